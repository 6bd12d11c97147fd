/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of /proc and of cgroups, as proc(5) and the kernel's documentation of cgroups have them.
 * A process chooses its own name and its cgroup's, and anything may stand there. False: it is not
 * such a text.
 */
#ifndef SL_MONITOR_PROCTEXT_H
#define SL_MONITOR_PROCTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_proc_stat {
    int32_t pid, parent;
    char comm[64], state;
    uint64_t major_faults, user_ticks, system_ticks, start_ticks;
    uint32_t threads;
};

/* /proc/PID/stat, and of a thread. */
bool sl_proc_stat(const char *text, struct sl_proc_stat *out);
/* /proc/PID/schedstat: on a processor, in its queue, and how often. */
bool sl_proc_schedstat(const char *text, uint64_t *run_ns, uint64_t *wait_ns, uint64_t *slices);
/* /proc/PID/status: the user that it acts as, and its number in its innermost namespace. */
bool sl_proc_status(const char *text, uint32_t *user, int32_t *own_pid);
/* /proc/PID/cgroup: the path below that controller, or with "" of version 2. A path with "..",
 * which a process of another cgroup namespace has, is none. */
bool sl_proc_cgroup(const char *text, const char *controller, char *out, size_t cap);

/* The number of a line "name number" (cpu.stat, memory.events). */
bool sl_proc_field(const char *text, const char *name, uint64_t *out);
/* A line "some avg10=... total=N" or "full ...", in microseconds. */
bool sl_proc_pressure(const char *text, const char *which, uint64_t *total_us);
/* A number; or "max", -1, or more than 2^60: there is no limit, UINT64_MAX. */
bool sl_proc_limit(const char *text, uint64_t *out);
/* cpu.max: "30000 100000", "max 100000". */
bool sl_proc_cpu_max(const char *text, uint64_t *quota_us, uint64_t *period_us);

#endif
