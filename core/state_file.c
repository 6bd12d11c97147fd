/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, finds and cleans the files of state pages. */
#include "core/state_file.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/state_read.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "sluice."
#define MEMFD_NAME "sluice-state"
#define COPIES_MAX 16 /* of this library in a process */
#define DEAD_STAY_S 3600
#define CLEAN_EVERY_S 60

/* ---- making ---- */

/* A file larger than ulimit -f would end the process by SIGXFSZ. */
static bool fits_limit(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           limit.rlim_cur >= bytes;
}

/* Memory is there before anything is written: where shared memory is full, a store into a hole
 * would end the process by SIGBUS. */
bool sl_state_file_back(const struct sl_state_file *file, size_t offset, size_t bytes)
{
    return posix_fallocate(file->fd, (off_t)offset, (off_t)bytes) == 0;
}

/* Takes fd. */
static bool make_ready(struct sl_state_file *file, int fd, size_t bytes, size_t backed)
{
    file->fd = fd;
    if (fd < 0)
        return false;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)bytes) == 0 &&
        sl_state_file_back(file, 0, backed) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    close(fd);
    file->fd = -1;
    return false;
}

int sl_state_file_open(size_t bytes, size_t backed, struct sl_state_file *out)
{
    *out = (struct sl_state_file){.fd = -1};
    if (!fits_limit(bytes))
        return -EFBIG;
    if (make_ready(out, open(FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), bytes, backed) ||
        make_ready(out, memfd_create(MEMFD_NAME, MFD_CLOEXEC), bytes, backed))
        return 0;
    return -errno;
}

/* A name that a process of this pid left behind is free again. */
static bool name_is_free(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    bool dead = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

    if (dead)
        unlink(path);
    if (fd >= 0)
        close(fd);
    return dead;
}

void sl_state_file_publish(struct sl_state_file *file)
{
    char from[64];

    snprintf(from, sizeof(from), "/proc/self/fd/%d", file->fd);
    for (unsigned i = 0; i < COPIES_MAX; i++) {
        snprintf(file->path, sizeof(file->path), FOLDER "/" PREFIX "%u.%d.%u", (unsigned)geteuid(),
                 (int)getpid(), i);
        if (linkat(AT_FDCWD, from, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) == 0)
            return;
        if (errno != EEXIST)
            break; /* a memfd has no name */
        if (name_is_free(file->path) &&
            linkat(AT_FDCWD, from, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) == 0)
            return;
    }
    file->path[0] = '\0';
}

void sl_state_file_close(struct sl_state_file *file, bool stays)
{
    if (file->path[0] != '\0' && !stays)
        unlink(file->path);
    if (file->fd >= 0)
        close(file->fd);
    *file = (struct sl_state_file){.fd = -1};
}

/* ---- finding ---- */

/* A regular file, opened without waiting or following, of that user. -1: it is none. */
static int open_page(const char *path, int more_flags, uid_t user, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | more_flags);

    if (fd < 0)
        return -1;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == user)
        return fd;
    close(fd);
    return -1;
}

/* "sluice.1000.4711.0" */
static bool read_name(const char *name, unsigned *user, int *pid)
{
    unsigned copy;
    int end = 0;

    return sscanf(name, PREFIX "%u.%d.%u%n", user, pid, &copy, &end) == 3 && name[end] == '\0';
}

/* Its number in the innermost namespace, as it calls itself. */
static int own_pid(int pid)
{
    char path[64], line[256];
    int found = pid;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *in = fopen(path, "re");

    while (in != NULL && fgets(line, sizeof(line), in) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0)
            found = atoi(strrchr(line, '\t') != NULL ? strrchr(line, '\t') : line + 6);
    if (in != NULL)
        fclose(in);
    return found;
}

/* May the file behind a descriptor of the process be its own page? It may hold others', too, by
 * their names. Its own keeps that of O_TMPFILE. */
static bool is_own(const char *target, int pid)
{
    unsigned user;
    int named;

    if (strncmp(target, "/memfd:" MEMFD_NAME, strlen("/memfd:" MEMFD_NAME)) == 0 ||
        strncmp(target, FOLDER "/#", strlen(FOLDER "/#")) == 0)
        return true;
    return strncmp(target, FOLDER "/", strlen(FOLDER "/")) == 0 &&
           read_name(target + strlen(FOLDER "/"), &user, &named) && named == pid;
}

static int find_open(int pid, void (*found)(void *arg, int fd, bool lives), void *arg)
{
    char folder[64], path[320], target[128];
    struct stat process, st;
    int count = 0, own = own_pid(pid);
    struct sl_state_reader reader;

    snprintf(folder, sizeof(folder), "/proc/%d", pid);
    if (stat(folder, &process) != 0)
        return 0;
    snprintf(folder, sizeof(folder), "/proc/%d/fd", pid);
    DIR *dir = opendir(folder);

    if (dir == NULL)
        return -errno;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);

        target[len > 0 ? len : 0] = '\0';
        int fd = is_own(target, own) ? open_page(path, 0, process.st_uid, &st) : -1;

        if (fd < 0)
            continue;
        if (sl_state_read_fd(fd, &reader) == 0) {
            found(arg, fd, true);
            count++;
        }
        close(fd);
    }
    closedir(dir);
    return count;
}

static bool is_dead(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) == 0;
}

/* By name: of the users whose files this one may believe. */
static int find_named(int pid, void (*found)(void *arg, int fd, bool lives), void *arg)
{
    DIR *dir = opendir(FOLDER);
    int count = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[320];
        unsigned user;
        int named;
        struct stat st;

        if (!read_name(entry->d_name, &user, &named) || named != pid ||
            (user != geteuid() && geteuid() != 0))
            continue;
        snprintf(path, sizeof(path), FOLDER "/%s", entry->d_name);
        int fd = open_page(path, O_NOFOLLOW, user, &st);

        if (fd < 0)
            continue;
        found(arg, fd, !is_dead(fd));
        close(fd);
        count++;
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

int sl_state_file_find(int pid, void (*found)(void *arg, int fd, bool lives), void *arg)
{
    int open_ones = find_open(pid, found, arg), named;

    if (open_ones > 0)
        return open_ones;
    named = find_named(pid, found, arg);
    if (named > 0)
        return named;
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return sl_fail(-ESRCH, "there is no process %d, nor has it left a state page", pid);
    if (open_ones < 0)
        return sl_fail(open_ones, "process %d cannot be looked at: %s; run as its user or as root",
                       pid, strerror(-open_ones));
    return 0;
}

/* ---- cleaning ---- */

/* When the last one cleaned is the time of a file. */
static bool minute_is_over(void)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), FOLDER "/" PREFIX "%u.cleaned", (unsigned)geteuid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0)
        return true;
    bool over = fstat(fd, &st) != 0 || st.st_size == 0 ||
                (uint64_t)st.st_mtime + CLEAN_EVERY_S <= sl_wall_s();

    if (over && pwrite(fd, "\n", 1, 0) != 1)
        over = true;
    close(fd);
    return over;
}

static bool is_kept(int fd)
{
    struct sl_state_reader reader;
    struct sl_state_process process;

    return sl_state_read_fd(fd, &reader) == 0 &&
           sl_state_get(&reader, SL_STATE_PROCESS, 0, &process, sizeof(process)) ==
               SL_STATE_WHOLE &&
           (process.flags & SL_STATE_KEPT) != 0;
}

/* The first reader that sees its process ended makes it read-only: from then on its time counts.
 * Returns whether it stays. */
static bool stays(int fd, const struct stat *st, unsigned dead, uint64_t now_s)
{
    if (is_kept(fd))
        return true;
    if (dead >= SL_STATE_DEAD_MAX)
        return false;
    if ((st->st_mode & 0200) != 0)
        return fchmod(fd, 0400) == 0;
    return (uint64_t)st->st_ctime + DEAD_STAY_S > now_s;
}

void sl_state_file_clean(uint64_t now_s)
{
    DIR *dir = opendir(FOLDER);
    unsigned dead = 0, user;
    int pid;

    if (dir == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[320];
        struct stat st;

        if (!read_name(entry->d_name, &user, &pid) || user != geteuid())
            continue;
        snprintf(path, sizeof(path), FOLDER "/%s", entry->d_name);
        int fd = open_page(path, O_NOFOLLOW, geteuid(), &st);

        if (fd >= 0 && is_dead(fd)) {
            if (!stays(fd, &st, dead, now_s))
                unlink(path);
            else
                dead++;
        }
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
}

void sl_state_file_clean_sometimes(void)
{
    if (minute_is_over())
        sl_state_file_clean(sl_wall_s());
}
