/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process, read in /proc from descriptors that stay open. They go on naming that process: when
 * its number is another's, they can be read no more.
 *
 * Of its threads the first is read each time, with the busiest of the others: those are looked for
 * every ten seconds, so many files at a time.
 */
#ifndef SL_MONITOR_PROCFS_H
#define SL_MONITOR_PROCFS_H

#include "monitor/process.h"
#include "monitor/proctext.h"

struct sl_mon_procfs; /* what all processes share */
struct sl_mon_proc;

/* proc: "/proc"; -ENODEV: it has no processes. */
int sl_mon_procfs_open(const char *proc, struct sl_mon_procfs **out);
void sl_mon_procfs_close(struct sl_mon_procfs *procfs);
/* A new period. */
void sl_mon_procfs_begin(struct sl_mon_procfs *procfs);
const char *sl_mon_procfs_root(const struct sl_mon_procfs *procfs);
/* Texts of a process, at once: "status", "cgroup", "cmdline". How long; -ESRCH, -EACCES. */
int sl_mon_procfs_text(const struct sl_mon_procfs *procfs, int pid, const char *file, char *out,
                       size_t cap);
/* Since boot. */
uint64_t sl_mon_procfs_ticks_ns(uint64_t ticks);

/* -ESRCH: there is none. -EMFILE, -ENOMEM. */
int sl_mon_proc_open(struct sl_mon_procfs *procfs, int pid, struct sl_mon_proc **out);
void sl_mon_proc_close(struct sl_mon_proc *proc);
/* What it is now; -ESRCH: it is gone, and so is a zombie without threads. */
int sl_mon_proc_stat(struct sl_mon_proc *proc, struct sl_proc_stat *out);
/* All but the cgroups: by the stat of this period. */
void sl_mon_proc_read(struct sl_mon_proc *proc, const struct sl_proc_stat *stat,
                      struct sl_mon_process_reading *out);

#endif
