/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a case, notices who dies or hangs, and sums up what they said. */
#include "tools/nccl-driver/runner.h"

#include "tools/nccl-driver/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_LIMIT 10 /* deadlines: no case waits more often than this in a row */

struct crew { /* all ranks of a case, before they part */
    const struct run_options *options;
    const struct driver_case *what;
    int boot[RANKS_MOST][RANKS_MOST];
    pid_t pids[RANKS_MOST];
    int statuses[RANKS_MOST];
    unsigned processes, running;
};

struct rank_thread {
    const struct crew *crew;
    struct net *net;
    int idx;
};

/* Of an address-sanitized build; elsewhere it is not there. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

int run_prepare(void)
{
    watch_shared = mmap(NULL, sizeof(*watch_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return watch_shared == MAP_FAILED ? -ENOMEM : 0;
}

static void *rank_main(void *arg)
{
    const struct rank_thread *t = arg;
    const struct run_options *o = t->crew->options;
    struct rank r = {.idx = t->idx,
                     .count = t->crew->what->ranks,
                     .dev = o->dev,
                     .net = t->net,
                     .rng = (o->seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)t->idx};

    watch_sit(t->idx, ROLE_MAIN);
    memcpy(r.boot, t->crew->boot[t->idx], sizeof(r.boot));
    if (t->crew->what->run(&r) == 0)
        atomic_store(&watch_shared->seats[t->idx].finished, 1);
    else if (!watch_failed())
        watch_fail("the case ended without saying why");
    return NULL;
}

static int run_threads(const struct crew *crew, struct net *net)
{
    struct rank_thread threads[RANKS_MOST];
    pthread_t ids[RANKS_MOST];
    int count = crew->what->ranks;

    for (int i = 0; i < count; i++) {
        threads[i] = (struct rank_thread){.crew = crew, .net = net, .idx = i};
        if (pthread_create(&ids[i], NULL, rank_main, &threads[i]) != 0)
            return watch_fail("no thread for rank %d", i);
    }
    for (int i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
    return 0;
}

/* "RANK:NAME=VALUE" of --env, for this rank. */
static void set_environment(const struct run_options *o, int idx)
{
    for (unsigned i = 0; i < o->env_count; i++) {
        char text[400], *equals;

        snprintf(text, sizeof(text), "%s", o->env[i] + 2);
        equals = strchr(text, '=');
        if (o->env[i][0] - '0' != idx || equals == NULL)
            continue;
        *equals = '\0';
        setenv(text, equals + 1, 1);
    }
}

/* A process of the case: of one rank, or of all as threads. */
static _Noreturn void child(struct crew *crew, int idx, pid_t parent)
{
    const struct run_options *o = crew->options;
    bool alone = crew->processes > 1 || crew->what->ranks == 1;
    char why[200];
    struct net net;
    sigset_t chld;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &chld, NULL);
    set_environment(o, idx);
    watch_signals();
    watch_sit(idx, ROLE_MAIN);
    for (int rank = 0; rank < crew->what->ranks; rank++)
        if (!alone || rank == idx)
            atomic_store(&watch_shared->seats[rank].pid, getpid());
    for (int i = 0; i < crew->what->ranks && alone; i++)
        for (int j = 0; j < crew->what->ranks && i != idx; j++)
            if (i != j)
                close(crew->boot[i][j]);
    net = (struct net){.version = o->version};
    if (o->path != NULL && net_open(&net, o->path, o->version, why, sizeof(why)) != 0)
        watch_fail("%s", why);
    else if (alone)
        rank_main(&(struct rank_thread){.crew = crew, .net = &net, .idx = idx});
    else
        run_threads(crew, &net);
    /* Only a case that came to its end has given everything back. */
    if (!watch_failed() && __lsan_do_recoverable_leak_check != NULL &&
        __lsan_do_recoverable_leak_check() != 0)
        watch_fail("leaked memory, see above");
    if (net.library != NULL && !watch_failed())
        net_close(&net);
    fflush(NULL);
    _exit(watch_failed() ? 1 : 0);
}

static int start(struct crew *crew)
{
    int ranks = crew->what->ranks;
    pid_t parent = getpid();

    crew->processes = crew->options->placement == PLACE_PROCESSES ? (unsigned)ranks : 1;
    for (int i = 0; i < ranks; i++)
        for (int j = i + 1; j < ranks; j++) {
            int ends[2];

            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
                return -errno;
            crew->boot[i][j] = ends[0];
            crew->boot[j][i] = ends[1];
        }
    fflush(NULL);
    for (unsigned p = 0; p < crew->processes; p++) {
        pid_t pid = fork();

        if (pid == 0)
            child(crew, (int)p, parent);
        if (pid < 0)
            return -errno;
        crew->pids[p] = pid;
        crew->running++;
    }
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++)
            if (i != j)
                close(crew->boot[i][j]);
    return 0;
}

static void reap_children(struct crew *crew)
{
    for (unsigned p = 0; p < crew->processes; p++)
        if (crew->pids[p] != 0 &&
            waitpid(crew->pids[p], &crew->statuses[p], WNOHANG) == crew->pids[p]) {
            crew->pids[p] = 0;
            crew->running--;
        }
}

static void kill_all(struct crew *crew)
{
    for (unsigned p = 0; p < crew->processes; p++)
        if (crew->pids[p] != 0)
            kill(crew->pids[p], SIGKILL);
    for (unsigned p = 0; p < crew->processes; p++)
        if (crew->pids[p] != 0)
            waitpid(crew->pids[p], &crew->statuses[p], 0);
    crew->running = 0;
}

/* Until all have ended. Writes what hangs. */
static bool watch_over_them(struct crew *crew, char *text, size_t cap)
{
    uint64_t start_ns = watch_now(), stopped_ns = 0, deadline = crew->options->deadline_ns;
    struct timespec tick = {.tv_nsec = 10 * 1000 * 1000};
    sigset_t chld;

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    for (reap_children(crew); crew->running > 0; reap_children(crew)) {
        bool stuck = false;

        sigtimedwait(&chld, NULL, &tick);
        if (atomic_load(&watch_shared->stop) && stopped_ns == 0)
            stopped_ns = watch_now();
        for (int rank = 0; rank < crew->what->ranks && !stuck && stopped_ns == 0; rank++)
            stuck = watch_stuck(rank, text, cap);
        if (!stuck && stopped_ns == 0 && case_until == NULL &&
            watch_now() - start_ns > CASE_LIMIT * deadline) {
            stuck = true;
            watch_where(0, text, cap);
            snprintf(text + strlen(text), cap - strlen(text), ": the case did not end");
        }
        /* After a failure the others get a moment to end by themselves. */
        if (stuck || (stopped_ns != 0 && watch_now() - stopped_ns > 300 * MS)) {
            kill_all(crew);
            return !stuck;
        }
    }
    return true;
}

static enum run_verdict sum_up(const struct crew *crew, char *text, size_t cap)
{
    bool dies = (crew->what->flags & CASE_DIES) != 0;

    for (int rank = 0; rank < crew->what->ranks; rank++)
        if (atomic_load(&watch_shared->seats[rank].failed)) {
            snprintf(text, cap, "%s", watch_shared->seats[rank].text);
            return RUN_FAILED;
        }
    for (unsigned p = 0; p < crew->processes; p++) {
        int status = crew->statuses[p];

        if (dies && p == 1)
            continue;
        if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
            snprintf(text, cap, "rank %u ended with %s %d", p,
                     WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return RUN_FAILED;
        }
    }
    for (int rank = 0; rank < crew->what->ranks; rank++) {
        if (atomic_load(&watch_shared->seats[rank].skipped)) {
            snprintf(text, cap, "%s", watch_shared->seats[rank].text);
            return RUN_SKIPPED;
        }
        if (!atomic_load(&watch_shared->seats[rank].finished) && !(dies && rank == 1)) {
            snprintf(text, cap, "rank %d did not come to the end of the case", rank);
            return RUN_FAILED;
        }
    }
    return RUN_PASSED;
}

static enum run_verdict run_here(const struct run_options *o, const struct driver_case *c,
                                 char *text, size_t cap)
{
    struct crew crew = {.options = o, .what = c};
    int rc;

    text[0] = '\0';
    memset(watch_shared, 0, sizeof(*watch_shared));
    watch_shared->call_ns = o->call_ns;
    watch_shared->deadline_ns = o->deadline_ns;
    for (int rank = 0; rank < RANKS_MOST; rank++)
        for (int role = 0; role < ROLES; role++) {
            atomic_store(&watch_shared->seats[rank].doing[role].comm, -1);
            atomic_store(&watch_shared->seats[rank].doing[role].message, -1);
        }
    rc = start(&crew);
    if (rc != 0) {
        kill_all(&crew);
        snprintf(text, cap, "the ranks cannot be started: %s", strerror(-rc));
        return RUN_FAILED;
    }
    return watch_over_them(&crew, text, cap) ? sum_up(&crew, text, cap) : RUN_FAILED;
}

enum run_verdict run_probe(const char *path, int version, char *why, size_t cap)
{
    char *text = watch_shared->seats[0].text; /* shared with the process that looks */
    struct net net;
    int status;
    pid_t pid;

    snprintf(text, sizeof(watch_shared->seats[0].text), "loading %s ends the process", path);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(net_open(&net, path, version, text, sizeof(watch_shared->seats[0].text)) == 0 ? 0
                                                                                            : 1);
    waitpid(pid, &status, 0);
    snprintf(why, cap, "%s", text);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? RUN_PASSED : RUN_FAILED;
}

/* One process more between, which alone is in the namespace. */
static enum run_verdict run_in_netns(const struct run_options *o, const struct driver_case *c,
                                     char *text, size_t cap)
{
    struct {
        enum run_verdict verdict;
        char text[500];
    } *out = mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    enum run_verdict verdict;
    pid_t pid;

    if (out == MAP_FAILED)
        return RUN_FAILED;
    out->verdict = RUN_FAILED;
    snprintf(out->text, sizeof(out->text), "the process in the namespace died");
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        const char *why;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        why = netns_enter();
        if (why != NULL) {
            snprintf(out->text, sizeof(out->text), "%s", why);
            out->verdict = RUN_SKIPPED;
        } else {
            out->verdict = run_here(o, c, out->text, sizeof(out->text));
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    snprintf(text, cap, "%s", out->text);
    verdict = out->verdict;
    munmap(out, sizeof(*out));
    return verdict;
}

enum run_verdict run_case(const struct run_options *o, const struct driver_case *c, char *text,
                          size_t cap)
{
    return (c->flags & CASE_NETNS) != 0 ? run_in_netns(o, c, text, cap) : run_here(o, c, text, cap);
}
