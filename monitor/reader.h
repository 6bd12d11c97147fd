/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that reads what may hang (NVML, a device's firmware), and writes records into a pipe.
 *
 * Its owner waits for none of its ends: one that is killed and does not die, as it hangs in the
 * kernel, is left behind and counted, and with too many of those no more are begun.
 */
#ifndef SL_MONITOR_READER_H
#define SL_MONITOR_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SL_MON_READERS_LEFT 4

struct sl_mon_reader {
    int fd;      /* to read records from, without waiting; -1: there is no process */
    pid_t child; /* 0: none */
    pid_t left[SL_MON_READERS_LEFT]; /* killed, and not dead yet; 0: free */
    size_t have;                     /* bytes of a record that is not whole yet */
};

void sl_mon_reader_init(struct sl_mon_reader *reader);
/* run is called in the process, which has nothing but the pipe's end (and standard input, output,
 * error), and ends with its result. name: for ps. -EBUSY: too many hang. */
int sl_mon_reader_begin(struct sl_mon_reader *reader, const char *name,
                        int (*run)(const void *arg, int fd), const void *arg);
/* Killed, if there is one. */
void sl_mon_reader_end(struct sl_mon_reader *reader);
/* Those that have died since are forgotten: how many are left. */
unsigned sl_mon_reader_reap(struct sl_mon_reader *reader);
/* It is ended, and given a moment to die. */
void sl_mon_reader_fini(struct sl_mon_reader *reader);

/* Reads records of that size into record, at most so many, and calls take() for each, whose
 * negative result ends this and is returned. How many were there; -EPIPE: the process ended. */
int sl_mon_reader_each(struct sl_mon_reader *reader, void *record, size_t size, unsigned most,
                       int (*take)(void *arg), void *arg);

#endif
