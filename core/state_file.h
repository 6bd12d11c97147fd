/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that state pages lie in: made, found, taken away.
 *
 * /dev/shm/sluice.UID.PID.K, mode 0600, K from 0 (a process may hold two copies of this library).
 * Where that cannot be, a memfd, which others find in /proc/PID/fd as long as the process lives.
 * The process holds a lock on its file: the kernel gives it back however the process ends, so a
 * file that can be locked is of a process that has ended, even if another one has its pid now.
 */
#ifndef SL_CORE_STATE_FILE_H
#define SL_CORE_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_state_file {
    int fd;
    char path[64]; /* "": it has none */
};

/* A file of zeroes, which no other process sees yet. The first of its bytes have their memory; what
 * lies beyond may not be written before sl_state_file_back(). */
int sl_state_file_open(size_t bytes, size_t backed, struct sl_state_file *out);

/* Memory for these bytes of it. False: there is none. */
bool sl_state_file_back(const struct sl_state_file *file, size_t offset, size_t bytes);

/* Gives it its name. */
void sl_state_file_publish(struct sl_state_file *file);

/* Takes its name away, unless it shall stay. */
void sl_state_file_close(struct sl_state_file *file, bool stays);

/* Calls found() with each file of process pid, open for reading, that its user, or root, may
 * believe to be its own: alive, or, where there is none such, left behind by it. Returns how many;
 * -ESRCH: there is no such process, nor has it left any; -EACCES. */
int sl_state_file_find(int pid, void (*found)(void *arg, int fd, bool lives), void *arg);

/* Takes away the pages of processes of this user that ended badly: an hour after that was
 * noticed, and all but SL_STATE_DEAD_MAX. now_s: seconds since 1970. */
#define SL_STATE_DEAD_MAX 32
void sl_state_file_clean(uint64_t now_s);

/* The same, unless a process of this user has done so within the last minute: ranks that start
 * together do not look at each other's files one by one. */
void sl_state_file_clean_sometimes(void);

#endif
