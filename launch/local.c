/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a job on this host, watches them, and ends them together. */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/address.h"
#include "launch/kept.h"
#include "launch/wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_MS 2000 /* between the request to end and the order */

/* What the parent keeps of its ranks. */
struct flock {
    int count, left;
    pid_t *pid;                /* 0: has ended */
    uint64_t grace_ns, end_ns; /* end_ns: when the next, harsher signal is due */
    int next_signal;
    bool ending; /* we sent one ourselves: deaths by it are no news */
    bool asked;  /* somebody asked all to end: however they do is no news */
    int worst;
    uint8_t *code; /* of those that ended after the first failure, by themselves and not well */
};

static int set_variables(int rank, int count, uint16_t port, const char *job, const char *secret)
{
    char text[4][32];

    snprintf(text[0], sizeof(text[0]), "%d", rank);
    snprintf(text[1], sizeof(text[1]), "%d", count);
    snprintf(text[2], sizeof(text[2]), "127.0.0.1:%u", port);
    if (setenv("SLUICE_RANK", text[0], 1) != 0 || setenv("SLUICE_LOCAL_RANK", text[0], 1) != 0 ||
        setenv("SLUICE_SIZE", text[1], 1) != 0 || setenv("SLUICE_LOCAL_SIZE", text[1], 1) != 0 ||
        setenv("SLUICE_ROOT", text[2], 1) != 0 || setenv("SLUICE_JOB", job, 1) != 0 ||
        setenv("SLUICE_SECRET", secret, 1) != 0 || setenv("SLUICE_LAUNCHER", "sluice", 1) != 0)
        return sl_fail(-ENOMEM, "no memory for the variables of rank %d", rank);
    return 0;
}

/* Later failures are reported in one line at the end: each rank ends for the same reason. */
static void note_end(struct flock *flock, int rank, int status)
{
    bool killed = WIFSIGNALED(status);
    int sig = killed ? WTERMSIG(status) : 0;
    int code = killed ? 128 + sig : WEXITSTATUS(status);

    if (code == 0 || flock->asked ||
        (flock->ending && (code == 128 + SIGTERM || code == 128 + SIGKILL)))
        return;
    if (!killed && flock->end_ns != SL_NEVER)
        flock->code[rank] = (uint8_t)code;
    else if (killed)
        sl_error("launch", "rank %d of %d (pid %d) was killed by signal %d, %s%s", rank,
                 flock->count, (int)flock->pid[rank], sig, strsignal(sig),
                 WCOREDUMP(status) ? ", and left a core dump" : "");
    else
        sl_error("launch", "rank %d of %d (pid %d) ended with exit status %d", rank, flock->count,
                 (int)flock->pid[rank], code);
    if (code > flock->worst)
        flock->worst = code;
    if (flock->end_ns == SL_NEVER) {
        flock->end_ns = sl_now(&sl_clock_monotonic) + flock->grace_ns;
        flock->next_signal = SIGTERM;
    }
}

/* Those whose end was no line of its own, in a line for each exit status. */
static void tell_others(const struct flock *flock)
{
    bool *same = calloc((size_t)flock->count, sizeof(*same));
    char list[256];

    for (int code = 1; code < 256 && same != NULL; code++) {
        int count = 0;

        for (int i = 0; i < flock->count; i++) {
            same[i] = flock->code[i] == code;
            count += same[i];
        }
        if (count == 0)
            continue;
        sl_rank_list(same, flock->count, list, sizeof(list));
        sl_error("launch", "rank%s %s of %d ended with exit status %d after that",
                 count == 1 ? "" : "s", list, flock->count, code);
    }
    free(same);
}

static bool was_killed(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid && info.si_code != CLD_EXITED;
}

static void reap_one(struct flock *flock, int rank)
{
    int status;

    if (flock->pid[rank] == 0 || waitpid(flock->pid[rank], &status, WNOHANG) != flock->pid[rank])
        return;
    note_end(flock, rank, status);
    flock->pid[rank] = 0;
    flock->left--;
}

/* Of those that have ended since the last time, a rank that was killed is most likely why the
 * others did. */
static void reap(struct flock *flock)
{
    for (int i = 0; i < flock->count; i++)
        if (flock->pid[i] != 0 && was_killed(flock->pid[i]))
            reap_one(flock, i);
    for (int i = 0; i < flock->count; i++)
        reap_one(flock, i);
}

static void signal_all(struct flock *flock, int sig)
{
    for (int i = 0; i < flock->count; i++)
        if (flock->pid[i] != 0)
            kill(flock->pid[i], sig);
}

/* The time for the others to report is over: first asks them to end, then makes them. */
static void end_rest(struct flock *flock)
{
    uint64_t at = sl_now(&sl_clock_monotonic);

    if (at < flock->end_ns || flock->left == 0)
        return;
    sl_warn("launch", "%s the %d rank%s still running",
            flock->next_signal == SIGTERM ? "ending" : "killing", flock->left,
            flock->left == 1 ? "" : "s");
    flock->ending = true;
    signal_all(flock, flock->next_signal);
    if (flock->next_signal == SIGTERM) /* a stopped rank hears it only when it goes on */
        signal_all(flock, SIGCONT);
    flock->end_ns = at + KILL_MS * SL_NS_PER_MS;
    flock->next_signal = SIGKILL;
}

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static void pass_on(struct flock *flock, const siginfo_t *info)
{
    /* A terminal's key reaches every process of the foreground group by itself. */
    if (info->si_code != SI_KERNEL)
        signal_all(flock, info->si_signo);
    if (info->si_signo == SIGUSR1 || info->si_signo == SIGUSR2)
        return;
    if (info->si_signo + 128 > flock->worst)
        flock->worst = 128 + info->si_signo;
    flock->ending = flock->asked = true;
    flock->end_ns = sl_now(&sl_clock_monotonic) + KILL_MS * SL_NS_PER_MS;
    flock->next_signal = SIGKILL;
}

static void watch(struct flock *flock, const sigset_t *watched)
{
    while (flock->left > 0) {
        uint64_t at = sl_now(&sl_clock_monotonic), wait_ns = SL_NS_PER_S;
        siginfo_t info;

        if (flock->end_ns != SL_NEVER)
            wait_ns = flock->end_ns <= at            ? 0
                      : flock->end_ns - at < wait_ns ? flock->end_ns - at
                                                     : wait_ns;
        struct timespec wait = {.tv_sec = (time_t)(wait_ns / SL_NS_PER_S),
                                .tv_nsec = (long)(wait_ns % SL_NS_PER_S)};
        int sig = sigtimedwait(watched, &info, &wait);

        if (sig > 0 && sig != SIGCHLD)
            pass_on(flock, &info);
        reap(flock);
        end_rest(flock);
    }
}

/* What a child does before it returns as a rank. */
static int become_rank(int rank, int count, pid_t parent, const sigset_t *before,
                       struct sl_listeners *listeners, const char *job, const char *secret)
{
    /* A parent that is killed takes its ranks along. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(128 + SIGTERM);
    if (set_variables(rank, count, listeners->port, job, secret) != 0)
        _exit(1);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (rank != 0)
        sl_listeners_close(listeners);
    else if (sl_kept_put(listeners) != 0)
        _exit(1);
    return 1;
}

/* Forks count ranks. 1: this is one of them. */
static int fork_all(struct flock *flock, const sigset_t *before, struct sl_listeners *listeners,
                    const char *job, const char *secret)
{
    pid_t parent = getpid();

    fflush(NULL); /* else each child would print what waits in our buffers again */
    for (int i = 0; i < flock->count; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            free(flock->pid);
            free(flock->code);
            return become_rank(i, flock->count, parent, before, listeners, job, secret);
        }
        if (pid < 0) {
            int err = errno;

            flock->end_ns = 0;
            flock->next_signal = SIGKILL;
            return sl_fail(-err,
                           "cannot start rank %d of %d: %s (ulimit -u, pids.max of the "
                           "container)",
                           i, flock->count, strerror(err));
        }
        flock->pid[i] = pid;
        flock->left++;
    }
    return 0;
}

int sl_local_start(int count, uint64_t grace_ms, int *status)
{
    struct flock flock = {.count = count, .grace_ns = grace_ms * SL_NS_PER_MS, .end_ns = SL_NEVER};
    struct sl_listeners listeners;
    uint8_t bytes[SL_SECRET_BYTES];
    char secret[2 * SL_SECRET_BYTES + 1], job[32];
    sigset_t watched, before;

    if (count < 1 || count > 1 << 16)
        return sl_fail(-EINVAL, "%d ranks cannot be started here; from 1 to 65536 would do", count);
    int err = sl_random(bytes, sizeof(bytes));
    err = err ?: sl_listen_any("", NULL, &listeners);
    if (err != 0)
        return err;
    flock.pid = calloc((size_t)count, sizeof(*flock.pid));
    flock.code = calloc((size_t)count, sizeof(*flock.code));
    if (flock.pid == NULL || flock.code == NULL) {
        free(flock.pid);
        free(flock.code);
        sl_listeners_close(&listeners);
        return sl_fail(-ENOMEM, "no memory to start %d ranks", count);
    }
    sl_hex(bytes, sizeof(bytes), secret);
    snprintf(job, sizeof(job), "local.%d", (int)getpid());
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < SL_ARRAY_LEN(passed_on); i++)
        sigaddset(&watched, passed_on[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    err = fork_all(&flock, &before, &listeners, job, secret);
    if (err == 1)
        return 1;
    sl_listeners_close(&listeners);
    watch(&flock, &watched);
    tell_others(&flock);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(flock.pid);
    free(flock.code);
    if (err == 0)
        *status = flock.worst;
    return err;
}
