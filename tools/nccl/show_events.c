/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-nccl-events: prints the profiler's file of a process (events.h), a JSON object per line:
 * the communicators, past events, and open events with the reasons for their waits.
 */
#include "core/err.h"
#include "tools/nccl/events_view.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: sluice-nccl-events [--open] FILE | PID\n"
    "Prints the events that the NCCL plugin writes with SLUICE_NCCL_PROFILE, a JSON object per "
    "line.\n"
    "  --open   only events that are going on\n"
    "FILE is /dev/shm/sluice-nccl-PID-RANK; a process that has ended badly leaves it behind.\n";

static int complain(const char *path, const char *why)
{
    fprintf(stderr, "sluice-nccl-events: %s: %s\n", path, why);
    return -1;
}

/* Neither a pipe nor a device: opening must not wait, and reading must have no effect. */
static int open_file(const char *path, int more_flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | more_flags);
    struct stat st = {0};

    if (fd < 0)
        return complain(path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return complain(path, "it is no file of events");
}

/* The user whose file is believed to be of process pid: its own; after its end, the caller. */
static uid_t owner_of(const char *pid)
{
    char proc[64];
    struct stat st;

    snprintf(proc, sizeof(proc), "/proc/%s", pid);
    return stat(proc, &st) == 0 ? st.st_uid : geteuid();
}

/* A folder in which everybody may make files: only the file of the process' own user is its. */
static int open_owned(const char *path, const char *pid)
{
    int fd = open_file(path, O_NOFOLLOW);
    struct stat st = {0};
    char why[160];

    if (fd < 0 || (fstat(fd, &st) == 0 && st.st_uid == owner_of(pid)))
        return fd;
    close(fd);
    snprintf(why, sizeof(why),
             "it belongs to user %u, but process %s does not: give the file's name to read "
             "it all the same",
             (unsigned)st.st_uid, pid);
    return complain(path, why);
}

static int open_by_pid(const char *pid)
{
    char pattern[128];
    glob_t found = {0};
    int fd = -1;

    snprintf(pattern, sizeof(pattern), SL_NCCL_EVENTS_PATH "-%s-*", pid);
    if (glob(pattern, 0, NULL, &found) != 0 || found.gl_pathc == 0)
        fprintf(stderr,
                "sluice-nccl-events: process %s writes no events; is SLUICE_NCCL_PROFILE set?\n",
                pid);
    for (size_t i = 0; i < found.gl_pathc && fd < 0; i++)
        fd = open_owned(found.gl_pathv[i], pid);
    globfree(&found);
    return fd;
}

static bool is_pid(const char *given)
{
    return given[0] != '\0' && strlen(given) <= 10 && strspn(given, "0123456789") == strlen(given);
}

int main(int argc, char **argv)
{
    bool only_open = argc > 2 && strcmp(argv[1], "--open") == 0;
    struct sl_nccl_events_copy copy;
    struct timespec ts;
    const char *given;
    int fd, err;

    if (argc != 2 + only_open || strcmp(argv[1], "--help") == 0) {
        fputs(usage, argc == 2 ? stdout : stderr);
        return argc == 2 ? 0 : 2;
    }
    given = argv[1 + only_open];
    fd = is_pid(given) ? open_by_pid(given) : open_file(given, 0);
    if (fd < 0)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    err = sl_nccl_events_read(fd, &copy);
    close(fd);
    if (err != 0) {
        complain(given, sluice_last_error());
        return 1;
    }
    sl_nccl_events_print_head(&copy, stdout);
    if (!only_open)
        sl_nccl_events_print_ring(&copy, stdout);
    sl_nccl_events_print_open(&copy, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec,
                              stdout);
    sl_nccl_events_free(&copy);
    if (fflush(stdout) != 0) {
        complain("standard output", strerror(errno));
        return 1;
    }
    return 0;
}
