/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/child.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REAP_MS 200         /* for what was killed; one that waits in the kernel takes longer */
#define LOOK_MS 20          /* between two looks at whether a program has ended */
#define GRACE_NS 1000000000 /* the child says itself that a program is late, before it is killed */

extern char **environ;

uint64_t sl_mon_child_now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

/* ---- in the child ---- */

static void close_from(int first)
{
    if (close_range((unsigned)first, ~0U, 0) == 0)
        return;
    for (int fd = first; fd < 4096; fd++)
        close(fd);
}

static void signals_reset(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What the work has started, and what that has, ends and is waited for: it is the group of this
 * process, which leaves it, and children of this one, once they have no other parent. */
static void end_others(pid_t agent_group)
{
    pid_t group = getpgrp();

    (void)signal(SIGTERM, SIG_DFL); /* on_orphaned() is of the group that this one leaves */
    if (setpgid(0, agent_group) != 0)
        return; /* they end with this process, by the agent's hand */
    kill(-group, SIGKILL);
    for (unsigned i = 0; i < REAP_MS; i++) {
        pid_t got = waitpid(-1, NULL, WNOHANG);

        if (got < 0 && errno == ECHILD)
            return;
        if (got == 0)
            (void)poll(NULL, 0, 1);
    }
}

/* The agent is gone: nobody waits for any of this. */
static void on_orphaned(int number)
{
    (void)number;
    kill(0, SIGKILL);
}

/* agent_group: asked before the fork, as the agent moves this process, too. */
_Noreturn static void be_child(int fd, pid_t agent, pid_t agent_group, sl_mon_child_work work,
                               const void *arg, size_t len)
{
    char answer[SL_MON_CHILD_ANSWER];
    int null;

    setpgid(0, 0);
    signals_reset();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTERM, on_orphaned);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != agent)
        _exit(1);
    null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1); /* the agent's events go there */
    }
    if (fd != 3)
        dup2(fd, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    close_from(4);
    memset(answer, 0, sizeof(answer));
    work(arg, answer);
    end_others(agent_group);
    _exit(write(3, answer, len) == (ssize_t)len ? 0 : 1);
}

static void take_output(int fd, struct sl_mon_child_output *out, size_t *room)
{
    char *more;
    ssize_t n;

    for (;;) {
        if (out->len + 1 >= *room) {
            if (*room >= SL_MON_CHILD_OUTPUT_MAX)
                return;
            more = realloc(out->text, 2 * *room);
            if (more == NULL)
                return;
            out->text = more;
            *room *= 2;
        }
        n = read(fd, out->text + out->len, *room - out->len - 1);
        if (n <= 0)
            return;
        out->len += (size_t)n;
        out->text[out->len] = '\0';
    }
}

static void take_error(int fd, struct sl_mon_child_output *out)
{
    char text[256];
    size_t used = strlen(out->error);
    ssize_t n;

    while ((n = read(fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < n && used + 1 < sizeof(out->error); i++) {
            out->error[used++] = text[i] == '\n' ? ' ' : text[i];
            out->error[used] = '\0';
        }
}

static void tidy_error(char *text)
{
    size_t len = strlen(text);

    while (len > 0 && text[len - 1] == ' ')
        text[--len] = '\0';
    sl_tame_text(text);
}

/* fds: of what it writes. What it has started may still hold them: its own end counts. */
static int wait_for(pid_t pid, const int *fds, uint64_t deadline_ns,
                    struct sl_mon_child_output *out)
{
    size_t room = 4096;
    int status = 0;
    pid_t got = 0;

    out->text = malloc(room);
    if (out->text == NULL)
        return sl_fail(-ENOMEM, "no memory for a program's output");
    out->text[0] = '\0';
    while (got == 0) {
        struct pollfd ready[] = {{.fd = fds[0], .events = POLLIN},
                                 {.fd = fds[1], .events = POLLIN}};

        if (sl_mon_child_now() >= deadline_ns)
            return -ETIMEDOUT;
        (void)poll(ready, 2, LOOK_MS);
        got = waitpid(pid, &status, WNOHANG);
        take_output(fds[0], out, &room);
        take_error(fds[1], out);
        if (got == 0 && ((ready[0].revents | ready[1].revents) & POLLHUP) != 0)
            (void)poll(NULL, 0, 1); /* it has closed them, and lives on */
    }
    tidy_error(out->error);
    out->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return got < 0 ? sl_fail(-errno, "a program cannot be waited for: %s", sluice_strerror(-errno))
                   : 0;
}

/* Between fork and exec. Says by failure what went wrong. */
_Noreturn static void become(const char *const *argv, const char *const *environment, int out,
                             int error, int failure)
{
    int err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_DFL);
    dup2(out, 1);
    dup2(error, 2);
    if (environment != NULL)
        environ = (char **)(uintptr_t)environment;
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    err = errno;
    (void)!write(failure, &err, sizeof(err));
    _exit(127);
}

static int run(const char *const *argv, const char *const *environment, uint64_t deadline_ns,
               int (*pipes)[2], struct sl_mon_child_output *out)
{
    int fds[2] = {pipes[0][0], pipes[1][0]}, err = 0;
    pid_t pid = fork();

    if (pid < 0)
        return sl_fail(-errno, "no process for %s: %s", argv[0], sluice_strerror(-errno));
    if (pid == 0)
        become(argv, environment, pipes[0][1], pipes[1][1], pipes[2][1]);
    for (unsigned i = 0; i < 3; i++) {
        close(pipes[i][1]);
        pipes[i][1] = -1;
    }
    if (read(pipes[2][0], &err, sizeof(err)) == sizeof(err)) { /* ends with the exec */
        (void)waitpid(pid, NULL, 0);
        return sl_fail(-err, "%s cannot be run: %s", argv[0], sluice_strerror(-err));
    }
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(fds[1], F_SETFL, O_NONBLOCK);
    err = wait_for(pid, fds, deadline_ns, out);
    if (err == -ETIMEDOUT) {
        kill(pid, SIGKILL);
        return sl_fail(-ETIMEDOUT, "%s%s%s did not end in time, and was killed", argv[0],
                       argv[1] != NULL ? " " : "", argv[1] != NULL ? argv[1] : "");
    }
    return err;
}

int sl_mon_child_run(const char *const *argv, const char *const *environment, uint64_t deadline_ns,
                     struct sl_mon_child_output *out)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, err = 0;

    *out = (struct sl_mon_child_output){.text = NULL};
    for (unsigned i = 0; i < 3 && err == 0; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            err = sl_fail(-errno, "no pipe for %s: %s", argv[0], sluice_strerror(-errno));
    if (err == 0)
        err = run(argv, environment, deadline_ns, pipes, out);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned j = 0; j < 2; j++)
            if (pipes[i][j] >= 0)
                close(pipes[i][j]);
    if (err != 0) {
        free(out->text);
        out->text = NULL;
    }
    return err;
}

/* ---- in the agent ---- */

int sl_mon_child_start(struct sl_mon_child *child, sl_mon_child_work work, const void *arg,
                       size_t answer_len, uint64_t deadline_ns)
{
    pid_t self = getpid(), group = getpgrp(), pid;
    int fds[2], err;

    sl_assert(child->pid == 0 && answer_len <= SL_MON_CHILD_ANSWER);
    if (pipe2(fds, O_CLOEXEC) != 0)
        return sl_fail(-errno, "no pipe for a child: %s", sluice_strerror(-errno));
    pid = fork();
    if (pid == 0)
        be_child(fds[1], self, group, work, arg, answer_len);
    err = errno;
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return sl_fail(-err, "no process for a child: %s", sluice_strerror(-err));
    }
    (void)setpgid(pid, pid); /* whichever of the two comes first */
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    *child = (struct sl_mon_child){
        .pid = pid, .group = pid, .fd = fds[0], .deadline_ns = deadline_ns + GRACE_NS};
    return 0;
}

void sl_mon_child_kill(struct sl_mon_child *child)
{
    if (child->pid == 0)
        return;
    kill(-child->pid, SIGKILL);
    kill(child->pid, SIGKILL); /* had it no group yet */
    /* It leads no program into the kernel: it ends at once. */
    for (unsigned i = 0; i < 100 && waitpid(child->pid, NULL, WNOHANG) == 0; i++)
        (void)poll(NULL, 0, 1);
    close(child->fd);
    child->fd = -1;
    child->pid = 0;
}

int sl_mon_child_poll(struct sl_mon_child *child, uint64_t now_ns, void *answer, size_t answer_len)
{
    char got[SL_MON_CHILD_ANSWER];
    ssize_t n;

    sl_assert(child->pid != 0 && answer_len <= sizeof(got));
    n = read(child->fd, got, answer_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (now_ns < child->deadline_ns)
            return 0;
        sl_mon_child_kill(child);
        return sl_fail(-ETIMEDOUT, "no answer in time, and its process was killed");
    }
    sl_mon_child_kill(child);
    if (n != (ssize_t)answer_len)
        return sl_fail(-EIO, "its process ended without an answer");
    memcpy(answer, got, answer_len);
    return 1;
}

bool sl_mon_child_is_gone(struct sl_mon_child *child)
{
    if (child->pid == 0 && child->group != 0 && kill(-child->group, 0) != 0 && errno == ESRCH)
        child->group = 0;
    return child->pid == 0 && child->group == 0;
}
