/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source of the kernel's log: /dev/kmsg, a record with each read. Records have numbers, so what
 * is lost when the kernel writes faster than the agent reads is counted, and not guessed.
 *
 * It needs CAP_SYSLOG where kernel.dmesg_restrict is 1.
 */
#ifndef SL_MONITOR_KLOG_H
#define SL_MONITOR_KLOG_H

#include "monitor/kmsg.h"

struct sl_mon_klog {
    int fd; /* -1: closed; the owner waits for it to be readable */
    char path[64];
    uint64_t next; /* number of the next record; 0: not known */
    uint64_t records, lost, reopened;
};

/* From now on, or from the oldest record that the kernel still has. -EACCES, -ENOENT, with what to
 * allow. */
int sl_mon_klog_open(struct sl_mon_klog *klog, const char *path, bool from_oldest);
/* The same of a descriptor that gives a record with each read; owned. */
void sl_mon_klog_adopt(struct sl_mon_klog *klog, int fd);
void sl_mon_klog_close(struct sl_mon_klog *klog);

/* Reads what is there, at most so many records, and gives each to take(). Returns how many; a
 * negative errno: it cannot be read, and is closed: to be opened again. */
int sl_mon_klog_read(struct sl_mon_klog *klog, unsigned most,
                     void (*take)(void *arg, const struct sl_mon_kmsg *record), void *arg);

#endif
