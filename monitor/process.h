/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is a rank, or that somebody named: what its readings say.
 *
 * Two readings make samples. Times on a processor and in its queue, and counts of a cgroup, only
 * say something by their difference. A process that asks for no processor is not starved, one whose
 * quota stops it is throttled and nothing else, one that others stopped is only that: what explains
 * a rank that is slow is said once.
 */
#ifndef SL_MONITOR_PROCESS_H
#define SL_MONITOR_PROCESS_H

#include "monitor/engine.h"

#define SL_MON_PROCESS_THREADS 4 /* that are read each time: the first, and the busiest */
#define SL_MON_PROCESS_QUOTAS 4  /* levels of its CPU cgroup that have one */
#define SL_MON_PROCESS_GRACE_NS (3 * SL_MON_S)

struct sl_mon_thread_reading {
    int32_t tid;
    char state;               /* as in /proc/PID/stat: 'R', 'S', 'D', 'T', 't', 'Z'; 0: not known */
    uint64_t run_ns, wait_ns; /* on a processor; ready, in its queue */
    uint64_t slices;          /* times that it ran */
};

struct sl_mon_quota_reading {
    uint64_t id;                               /* of the cgroup */
    uint64_t quota_us, period_us;              /* of processor time, in each period */
    uint64_t periods, throttled, throttled_ns; /* so far; the last one over all processors */
};

struct sl_mon_process_reading {
    struct sl_mon_thread_reading threads[SL_MON_PROCESS_THREADS]; /* the first one leads */
    unsigned thread_count;
    bool has_sched; /* the times of threads are true */

    uint64_t cpu_ns, major_faults; /* of all its threads */
    unsigned cpus;                 /* that it may run on; 0: not known */

    bool has_quotas; /* its CPU cgroup could be read */
    struct sl_mon_quota_reading quotas[SL_MON_PROCESS_QUOTAS];
    unsigned quota_count;

    uint64_t memory_id;   /* of its memory cgroups that have a limit, in all; 0: none */
    uint64_t memory_hits; /* times that a limit was reached */
    bool is_only_full;    /* of all cgroups that are watched no other one reaches its limit */
    bool has_stall;       /* the kernel counts (PSI) */
    bool is_stall_own;    /* of its own cgroup; else of the whole host */
    uint64_t stall_ns;    /* that tasks waited for memory */

    /* Where there are more ranks that want a processor than processors they wait for each other by
     * design: the share, in thousandths, of all processors that ranks have. 0: there are fewer. */
    unsigned crowd_share;
};

/* What is remembered of a process between readings, and the last of what they say, for people: in
 * thousandths of the time between the last two. */
struct sl_mon_process {
    struct sl_mon_subject *subject; /* borrowed */
    uint64_t started_ns;            /* since boot */
    struct sl_mon_process_reading last;
    uint64_t last_ns; /* 0: there was none */
    uint64_t blocked_since_ns;
    unsigned run_share, wait_share, throttled_share, stall_share;
    double faults_per_s;
};

void sl_mon_process_init(struct sl_mon_process *process, struct sl_mon_subject *subject,
                         uint64_t started_ns);

/* One more reading, at the monitor's time: gives its samples. */
void sl_mon_process_read(struct sl_mon *mon, struct sl_mon_process *process, const char *source,
                         const struct sl_mon_process_reading *reading);

/* Does it ask for processors? By the last two readings. */
bool sl_mon_process_is_busy(const struct sl_mon_process *process);

#endif
