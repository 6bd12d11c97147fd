/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/procfs.h"

#include "core/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKS 48        /* files of threads that are read in a period to find the busiest */
#define LOOK_PERIODS 10 /* between two looks at one process */
#define CROWD 512       /* threads of one process that are looked at */
#define OTHERS (SL_MON_PROCESS_THREADS - 1)

struct thread {
    int32_t tid; /* 0: none */
    int fd;      /* its schedstat */
    uint64_t slices;
    bool stays;
    bool is_stuck; /* in D, and has not run since the last time */
};

/* The look for busy threads: goes on where it was in the period before. */
struct look {
    DIR *dir; /* NULL: none is under way */
    unsigned count;
    struct seen {
        int32_t tid;
        uint64_t run_ns;
    } now[CROWD];
};

struct sl_mon_procfs {
    char root[PATH_MAX];
    unsigned looks; /* left in this period */
    uint64_t period;
    bool is_live;                /* it is the kernel's, of this machine */
    struct sl_mon_proc *looking; /* one at a time */
    struct look look;
};

struct sl_mon_proc {
    struct sl_mon_procfs *procfs;
    int pid, stat, sched;        /* descriptors; -1: none */
    uint64_t looked, cpus_asked; /* in which period */
    unsigned cpus;
    struct thread others[OTHERS];
    /* What was seen of its threads at the last look: the busiest by what they ran since. */
    struct seen *seen;
    unsigned seen_count;
};

/* ---- files ---- */

__attribute__((format(printf, 1, 2))) static int open_file(const char *fmt, ...)
{
    char path[PATH_MAX + 256];
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path, sizeof(path), fmt, args);

    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static int read_text(int fd, char *out, size_t cap)
{
    ssize_t len = fd < 0 ? -1 : pread(fd, out, cap - 1, 0);

    if (len < 0)
        return fd < 0 ? -EBADF : -errno;
    out[len] = '\0';
    return (int)len;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int sl_mon_procfs_open(const char *proc, struct sl_mon_procfs **out)
{
    struct sl_mon_procfs *procfs;
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/stat", proc);
    if (access(path, R_OK) != 0)
        return sl_fail(-ENODEV, "%s cannot be read: it is to be the kernel's list of processes",
                       path);
    procfs = calloc(1, sizeof(*procfs));
    if (procfs == NULL)
        return sl_fail(-ENOMEM, "no memory for processes");
    snprintf(procfs->root, sizeof(procfs->root), "%s", proc);
    procfs->is_live = strcmp(proc, "/proc") == 0;
    procfs->period = LOOK_PERIODS; /* the first look at a process is soon */
    *out = procfs;
    return 0;
}

static void look_end(struct sl_mon_procfs *procfs)
{
    if (procfs->look.dir != NULL)
        closedir(procfs->look.dir);
    procfs->look.dir = NULL;
    procfs->looking = NULL;
}

void sl_mon_procfs_close(struct sl_mon_procfs *procfs)
{
    if (procfs == NULL)
        return;
    look_end(procfs);
    free(procfs);
}

void sl_mon_procfs_begin(struct sl_mon_procfs *procfs)
{
    procfs->period++;
    procfs->looks = LOOKS;
}

const char *sl_mon_procfs_root(const struct sl_mon_procfs *procfs)
{
    return procfs->root;
}

int sl_mon_procfs_text(const struct sl_mon_procfs *procfs, int pid, const char *file, char *out,
                       size_t cap)
{
    int fd = open_file("%s/%d/%s", procfs->root, pid, file);
    int len = fd < 0 ? -errno : read_text(fd, out, cap);

    if (fd >= 0)
        close(fd);
    return len == -ENOENT ? -ESRCH : len;
}

uint64_t sl_mon_procfs_ticks_ns(uint64_t ticks)
{
    long rate = sysconf(_SC_CLK_TCK);

    return ticks * (UINT64_C(1000000000) / (uint64_t)(rate > 0 ? rate : 100));
}

/* ---- a process ---- */

int sl_mon_proc_open(struct sl_mon_procfs *procfs, int pid, struct sl_mon_proc **out)
{
    struct sl_mon_proc *proc;
    int fd = open_file("%s/%d/stat", procfs->root, pid);

    if (fd < 0)
        return errno == ENOENT
                   ? sl_fail(-ESRCH, "there is no process %d", pid)
                   : sl_fail(-errno, "process %d cannot be read: %s", pid, sluice_strerror(-errno));
    proc = calloc(1, sizeof(*proc));
    if (proc == NULL) {
        close(fd);
        return sl_fail(-ENOMEM, "no memory for process %d", pid);
    }
    *proc = (struct sl_mon_proc){.procfs = procfs, .pid = pid, .stat = fd};
    proc->sched = open_file("%s/%d/schedstat", procfs->root, pid);
    for (unsigned i = 0; i < OTHERS; i++)
        proc->others[i].fd = -1;
    /* Those that begin together are not looked at together. */
    proc->looked = procfs->period + (uint64_t)pid % 4 - LOOK_PERIODS;
    *out = proc;
    return 0;
}

void sl_mon_proc_close(struct sl_mon_proc *proc)
{
    if (proc == NULL)
        return;
    if (proc->procfs->looking == proc)
        look_end(proc->procfs);
    close_fd(&proc->stat);
    close_fd(&proc->sched);
    for (unsigned i = 0; i < OTHERS; i++)
        close_fd(&proc->others[i].fd);
    free(proc->seen);
    free(proc);
}

int sl_mon_proc_stat(struct sl_mon_proc *proc, struct sl_proc_stat *out)
{
    char text[1024];
    int len = read_text(proc->stat, text, sizeof(text));

    if (len < 0 && len != -ESRCH)
        return sl_fail(len, "process %d cannot be read: %s", proc->pid, sluice_strerror(len));
    if (len <= 0 || !sl_proc_stat(text, out) || out->state == 'X' ||
        (out->state == 'Z' && out->threads <= 1))
        return sl_fail(-ESRCH, "process %d has ended", proc->pid);
    return 0;
}

/* ---- its busiest threads ---- */

static bool is_number(const char *text, int32_t *out)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end != '\0' || value <= 0 || value > INT32_MAX)
        return false;
    *out = (int32_t)value;
    return true;
}

/* What a thread ran since the last look; a new one, all that it did. */
static uint64_t ran(const struct sl_mon_proc *proc, int32_t tid, uint64_t run_ns)
{
    for (unsigned i = 0; i < proc->seen_count; i++)
        if (proc->seen[i].tid == tid)
            return run_ns > proc->seen[i].run_ns ? run_ns - proc->seen[i].run_ns : 0;
    return run_ns;
}

static void keep(struct sl_mon_proc *proc, struct thread *place, int32_t tid)
{
    close_fd(&place->fd);
    *place = (struct thread){
        .tid = tid,
        .fd = open_file("%s/%d/task/%d/schedstat", proc->procfs->root, proc->pid, (int)tid)};
    if (place->fd < 0)
        place->tid = 0;
}

static bool takes(int32_t *best, int32_t tid)
{
    for (unsigned i = 0; i < OTHERS; i++)
        if (best[i] == tid) {
            best[i] = 0;
            return true;
        }
    return false;
}

/* Those that stay keep their descriptors. One that hangs stays, and so does one whose place nobody
 * wants: it runs no more, but it may hang. */
static void settle(struct sl_mon_proc *proc, int32_t *best)
{
    unsigned wanted = 0, free_places = 0;

    for (unsigned k = 0; k < OTHERS; k++) {
        struct thread *thread = &proc->others[k];

        thread->stays = thread->tid != 0 && (takes(best, thread->tid) || thread->is_stuck);
        free_places += !thread->stays;
    }
    for (unsigned i = 0; i < OTHERS; i++)
        wanted += best[i] != 0;
    for (unsigned k = 0, i = 0; k < OTHERS; k++) {
        struct thread *thread = &proc->others[k];

        if (thread->stays)
            continue;
        bool is_spare = free_places-- > wanted;

        if (thread->tid != 0 && is_spare)
            continue;
        while (i < OTHERS && best[i] == 0)
            i++;
        if (i < OTHERS) {
            keep(proc, thread, best[i++]);
            wanted--;
        }
    }
}

/* Those that run most, of what the look found. */
static void choose(struct sl_mon_proc *proc, const struct look *look)
{
    int32_t best[OTHERS] = {0};
    uint64_t most[OTHERS] = {0};

    for (unsigned i = 0; i < look->count; i++) {
        int32_t tid = look->now[i].tid;
        uint64_t run_ns = ran(proc, tid, look->now[i].run_ns);

        for (unsigned k = 0; k < OTHERS; k++) {
            if (run_ns <= most[k])
                continue;
            memmove(&most[k + 1], &most[k], (OTHERS - 1 - k) * sizeof(most[0]));
            memmove(&best[k + 1], &best[k], (OTHERS - 1 - k) * sizeof(best[0]));
            most[k] = run_ns;
            best[k] = tid;
            break;
        }
    }
    settle(proc, best);
}

static void remember(struct sl_mon_proc *proc, const struct look *look)
{
    void *seen = look->count == 0 ? NULL : realloc(proc->seen, look->count * sizeof(proc->seen[0]));

    if (seen == NULL) {
        proc->seen_count = 0;
        return;
    }
    proc->seen = seen;
    proc->seen_count = look->count;
    memcpy(proc->seen, look->now, look->count * sizeof(proc->seen[0]));
}

static void look_at(struct sl_mon_proc *proc, int32_t tid)
{
    struct sl_mon_procfs *procfs = proc->procfs;
    struct look *look = &procfs->look;
    char text[128];
    uint64_t wait_ns, slices;
    int fd = open_file("%s/%d/task/%d/schedstat", procfs->root, proc->pid, (int)tid);

    procfs->looks--;
    if (fd >= 0 && read_text(fd, text, sizeof(text)) > 0 &&
        sl_proc_schedstat(text, &look->now[look->count].run_ns, &wait_ns, &slices))
        look->now[look->count++].tid = tid;
    if (fd >= 0)
        close(fd);
}

/* Goes on as far as the period's budget allows. */
static void look_further(struct sl_mon_proc *proc)
{
    struct sl_mon_procfs *procfs = proc->procfs;
    struct look *look = &procfs->look;
    const struct dirent *entry = NULL;
    int32_t tid;

    while (procfs->looks > 0 && look->count < CROWD && (entry = readdir(look->dir)) != NULL)
        if (is_number(entry->d_name, &tid) && tid != proc->pid)
            look_at(proc, tid);
    if (entry != NULL && look->count < CROWD)
        return;
    if (procfs->looks == 0 && look->count < CROWD)
        return;
    choose(proc, look);
    remember(proc, look);
    proc->looked = procfs->period;
    look_end(procfs);
}

static void look(struct sl_mon_proc *proc, uint32_t threads)
{
    struct sl_mon_procfs *procfs = proc->procfs;
    char path[PATH_MAX + 64];

    if (procfs->looks == 0)
        return;
    if (procfs->looking == NULL && threads > 1 && procfs->period >= proc->looked + LOOK_PERIODS) {
        snprintf(path, sizeof(path), "%s/%d/task", procfs->root, proc->pid);
        procfs->look.dir = opendir(path);
        procfs->look.count = 0;
        proc->looked = procfs->period;
        if (procfs->look.dir != NULL)
            procfs->looking = proc;
    }
    if (procfs->looking == proc && procfs->look.dir != NULL)
        look_further(proc);
}

/* ---- a reading ---- */

static void read_thread(int fd, struct sl_mon_thread_reading *out, bool *has_sched)
{
    char text[128];

    *has_sched = read_text(fd, text, sizeof(text)) > 0 &&
                 sl_proc_schedstat(text, &out->run_ns, &out->wait_ns, &out->slices);
}

/* Only of one that has not run since the last time: others are in no wait that lasts. */
static char state_of(const struct sl_mon_proc *proc, int32_t tid)
{
    struct sl_proc_stat stat;
    char text[1024];
    int fd = open_file("%s/%d/task/%d/stat", proc->procfs->root, proc->pid, (int)tid);
    bool good = fd >= 0 && read_text(fd, text, sizeof(text)) > 0 && sl_proc_stat(text, &stat);

    if (fd >= 0)
        close(fd);
    return good ? stat.state : 0;
}

static void read_others(struct sl_mon_proc *proc, struct sl_mon_process_reading *out)
{
    for (unsigned i = 0; i < OTHERS; i++) {
        struct thread *thread = &proc->others[i];
        struct sl_mon_thread_reading reading = {.tid = thread->tid};
        bool good;

        if (thread->tid == 0)
            continue;
        read_thread(thread->fd, &reading, &good);
        if (!good) { /* it has ended */
            close_fd(&thread->fd);
            thread->tid = 0;
            continue;
        }
        if (reading.slices == thread->slices)
            reading.state = state_of(proc, thread->tid);
        thread->is_stuck = reading.state == 'D';
        thread->slices = reading.slices;
        out->threads[out->thread_count++] = reading;
    }
}

/* Asked for now and then: who pins a process does so when it starts. */
static unsigned cpus_of(struct sl_mon_proc *proc)
{
    cpu_set_t set;

    if (!proc->procfs->is_live)
        return 0;
    if (proc->cpus_asked != 0 && proc->procfs->period - proc->cpus_asked < LOOK_PERIODS)
        return proc->cpus;
    proc->cpus_asked = proc->procfs->period;
    proc->cpus =
        sched_getaffinity(proc->pid, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 0;
    return proc->cpus;
}

void sl_mon_proc_read(struct sl_mon_proc *proc, const struct sl_proc_stat *stat,
                      struct sl_mon_process_reading *out)
{
    struct sl_mon_thread_reading *first = &out->threads[0];

    *out = (struct sl_mon_process_reading){.thread_count = 1};
    first->tid = proc->pid;
    first->state = stat->state;
    read_thread(proc->sched, first, &out->has_sched);
    out->cpu_ns = sl_mon_procfs_ticks_ns(stat->user_ticks + stat->system_ticks);
    out->major_faults = stat->major_faults;
    out->cpus = cpus_of(proc);
    if (!out->has_sched)
        return;
    look(proc, stat->threads);
    read_others(proc, out);
}
