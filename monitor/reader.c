/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/reader.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES_MOST 1024 /* descriptors of the owner that a process closes */

void sl_mon_reader_init(struct sl_mon_reader *reader)
{
    memset(reader, 0, sizeof(*reader));
    reader->fd = -1;
}

_Noreturn static void be_child(const char *name, int fd, pid_t parent,
                               int (*run)(const void *arg, int fd), const void *arg)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    prctl(PR_SET_NAME, name);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (fd != STDERR_FILENO + 1)
        dup2(fd, STDERR_FILENO + 1);
    /* The owner's files are not this process's to hold open. */
    for (int other = STDERR_FILENO + 2; other < FILES_MOST; other++)
        close(other);
    _exit(run(arg, STDERR_FILENO + 1));
}

unsigned sl_mon_reader_reap(struct sl_mon_reader *reader)
{
    unsigned left = 0;

    for (unsigned i = 0; i < SL_MON_READERS_LEFT; i++) {
        if (reader->left[i] != 0 && waitpid(reader->left[i], NULL, WNOHANG) != 0)
            reader->left[i] = 0;
        left += reader->left[i] != 0;
    }
    return left;
}

int sl_mon_reader_begin(struct sl_mon_reader *reader, const char *name,
                        int (*run)(const void *arg, int fd), const void *arg)
{
    pid_t parent = getpid();
    int ends[2], err;

    if (sl_mon_reader_reap(reader) == SL_MON_READERS_LEFT)
        return sl_fail(-EBUSY,
                       "%d processes (%s) hang in the kernel and cannot be killed: no more "
                       "are begun",
                       SL_MON_READERS_LEFT, name);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sl_fail(-errno, "no pipe to %s: %s", name, sluice_strerror(-errno));
    reader->child = fork();
    if (reader->child == 0)
        be_child(name, ends[1], parent, run, arg);
    err = -errno;
    close(ends[1]);
    if (reader->child < 0) {
        reader->child = 0;
        close(ends[0]);
        return sl_fail(err, "%s cannot be begun: %s", name, sluice_strerror(err));
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    reader->fd = ends[0];
    reader->have = 0;
    return 0;
}

void sl_mon_reader_end(struct sl_mon_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
    if (reader->child == 0)
        return;
    kill(reader->child, SIGKILL);
    /* There is room, as none is begun without. */
    for (unsigned i = 0; i < SL_MON_READERS_LEFT; i++)
        if (reader->left[i] == 0) {
            reader->left[i] = reader->child;
            break;
        }
    reader->child = 0;
    (void)sl_mon_reader_reap(reader);
}

void sl_mon_reader_fini(struct sl_mon_reader *reader)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    sl_mon_reader_end(reader);
    for (unsigned i = 0; i < 20 && sl_mon_reader_reap(reader) > 0; i++)
        nanosleep(&moment, NULL);
}

/* 1: a record is there; 0: not yet. */
static int read_record(struct sl_mon_reader *reader, char *record, size_t size)
{
    ssize_t len;

    do
        len = read(reader->fd, record + reader->have, size - reader->have);
    while (len < 0 && errno == EINTR);
    if (len < 0 && errno == EAGAIN)
        return 0;
    if (len <= 0)
        return -EPIPE;
    reader->have += (size_t)len;
    if (reader->have < size)
        return 0;
    reader->have = 0;
    return 1;
}

int sl_mon_reader_each(struct sl_mon_reader *reader, void *record, size_t size, unsigned most,
                       int (*take)(void *arg), void *arg)
{
    unsigned count = 0;

    while (count < most) {
        int err = read_record(reader, record, size);

        if (err == 0)
            break;
        if (err > 0)
            err = take(arg);
        if (err < 0)
            return err;
        count++;
    }
    return (int)count;
}
