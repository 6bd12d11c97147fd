/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/process.h"

#include "core/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GAP_NS (30 * SL_MON_S) /* between readings that say nothing of each other */

/* In thousandths of the time between two readings. */
#define STARVED_WAIT 250    /* ready to run, and not run */
#define STARVED_OF_WANT 400 /* of the time that it wanted a processor */
#define STARVED_OWN 800 /* of its processors: it has them, and its threads wait for each other */
#define CROWD_OWN 800   /* the same, of all ranks */
#define THROTTLED_TIME 50
#define WANTS 10
#define BUSY 200
#define STALLED 100

#define THROTTLED_PERIODS 4 /* every so manieth */
#define HITS_PER_S 10
#define FAULTS_SHARED_PER_S 5 /* where others may have been stalled, too */
#define FAULTS_PER_S 10       /* where the kernel does not count stalls */

/* Two readings of one process. */
struct pair {
    struct sl_mon *mon;
    struct sl_mon_process *process;
    const struct sl_mon_process_reading *before, *now;
    uint64_t ns; /* between them */
    struct sl_mon_evidence evidence;
};

static unsigned share(uint64_t part_ns, uint64_t ns)
{
    return part_ns >= ns ? 1000 : (unsigned)(part_ns * 1000 / ns);
}

static uint64_t more(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

/* The text begins with who it is: a number means nothing once the process is gone. */
static void sample(struct pair *pair, enum sl_mon_check check, bool is_bad)
{
    struct sl_mon_subject *subject = pair->process->subject;
    struct sl_mon_evidence evidence = pair->evidence;

    if (is_bad && subject->label[0] != '\0')
        snprintf(evidence.text, sizeof(evidence.text), "%.80s: %.170s", subject->label,
                 pair->evidence.text);
    sl_mon_sample(pair->mon, subject, check, is_bad, is_bad ? &evidence : NULL);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* ---- threads ---- */

static const struct sl_mon_thread_reading *thread_of(const struct sl_mon_process_reading *reading,
                                                     int32_t tid)
{
    for (unsigned i = 0; i < reading->thread_count; i++)
        if (reading->threads[i].tid == tid)
            return &reading->threads[i];
    return NULL;
}

/* The thread that waited for a processor longest, and that ran longest, in between. */
struct scheduled {
    const struct sl_mon_thread_reading *before, *now; /* that waited; NULL: none */
    uint64_t run_ns, wait_ns;                         /* of it */
    uint64_t want_ns;                                 /* the most that one wanted */
};

static struct scheduled schedule(const struct pair *pair)
{
    struct scheduled out = {.now = NULL};

    for (unsigned i = 0; i < pair->now->thread_count; i++) {
        const struct sl_mon_thread_reading *now = &pair->now->threads[i];
        const struct sl_mon_thread_reading *before = thread_of(pair->before, now->tid);

        if (before == NULL || now->wait_ns < before->wait_ns || now->run_ns < before->run_ns)
            continue;
        uint64_t run_ns = now->run_ns - before->run_ns, wait_ns = now->wait_ns - before->wait_ns;

        if (run_ns + wait_ns > out.want_ns)
            out.want_ns = run_ns + wait_ns;
        if (out.now != NULL && wait_ns <= out.wait_ns)
            continue;
        out.now = now;
        out.before = before;
        out.run_ns = run_ns;
        out.wait_ns = wait_ns;
    }
    return out;
}

/* ---- one check each ---- */

/* Is it stopped? A debugger stops a thread for moments: then it has not run since the last time. */
static bool check_stopped(struct pair *pair)
{
    const struct sl_mon_thread_reading *now = &pair->now->threads[0], *before = NULL;
    bool is_bad = now->state == 'T';

    if (now->state == 't') {
        before = pair->before != NULL ? thread_of(pair->before, now->tid) : NULL;
        is_bad = before != NULL && (before->state == 't' || before->state == 'T') &&
                 before->slices == now->slices;
    }
    snprintf(pair->evidence.text, sizeof(pair->evidence.text), "the process is stopped %s",
             now->state == 't' ? "by a debugger" : "by a signal");
    pair->evidence.before = pair->evidence.after = 0;
    sample(pair, SL_MON_CHECK_PROCESS_STOPPED, is_bad);
    return now->state == 'T' || now->state == 't';
}

/* The quota that stopped it longest; how long, over all processors. */
static uint64_t throttled(const struct pair *pair, const struct sl_mon_quota_reading **before,
                          const struct sl_mon_quota_reading **now)
{
    uint64_t most_ns = 0;

    *before = *now = NULL;
    for (unsigned i = 0; i < pair->now->quota_count; i++)
        for (unsigned j = 0; j < pair->before->quota_count; j++) {
            const struct sl_mon_quota_reading *was = &pair->before->quotas[j];
            const struct sl_mon_quota_reading *is = &pair->now->quotas[i];

            if (was->id != is->id || is->throttled_ns < was->throttled_ns ||
                (*now != NULL && is->throttled_ns - was->throttled_ns <= most_ns))
                continue;
            most_ns = is->throttled_ns - was->throttled_ns;
            *before = was;
            *now = is;
        }
    return most_ns;
}

static uint64_t check_throttled(struct pair *pair, const struct scheduled *scheduled, bool *is_bad)
{
    const struct sl_mon_quota_reading *before, *now;
    uint64_t ns = throttled(pair, &before, &now);

    *is_bad = false;
    pair->process->throttled_share = share(ns, pair->ns);
    if (!pair->now->has_quotas)
        return 0;
    if (now != NULL) {
        uint64_t periods = more(before->periods, now->periods);
        uint64_t times = more(before->throttled, now->throttled);

        *is_bad = times > 1 && times * THROTTLED_PERIODS >= periods &&
                  share(ns, pair->ns) >= THROTTLED_TIME &&
                  share(scheduled->want_ns, pair->ns) >= WANTS;
        snprintf(pair->evidence.text, sizeof(pair->evidence.text),
                 "its cgroup's CPU quota, %" PRIu64 " ms in each %" PRIu64
                 " ms, stopped it in %" PRIu64 " of %" PRIu64 " periods, for %.2f s of %.2f s",
                 now->quota_us / 1000, now->period_us / 1000, times, periods, seconds(ns),
                 seconds(pair->ns));
        pair->evidence.before = before->throttled;
        pair->evidence.after = now->throttled;
    }
    sample(pair, SL_MON_CHECK_PROCESS_THROTTLED, *is_bad);
    return ns;
}

/* Are its processors busy with its own threads, or all with ranks where there are too many? */
static bool has_them_all(const struct pair *pair)
{
    uint64_t run_ns = more(pair->before->cpu_ns, pair->now->cpu_ns);

    return (pair->now->cpus > 0 && share(run_ns / pair->now->cpus, pair->ns) >= STARVED_OWN) ||
           pair->now->crowd_share >= CROWD_OWN;
}

/* A quota that was not there the last time: how long it stopped the process nobody knows yet. */
static bool has_new_quota(const struct pair *pair)
{
    for (unsigned i = 0; i < pair->now->quota_count; i++) {
        bool is_known = false;

        for (unsigned j = 0; j < pair->before->quota_count; j++)
            is_known = is_known || pair->before->quotas[j].id == pair->now->quotas[i].id;
        if (!is_known)
            return true;
    }
    return false;
}

static void check_starved(struct pair *pair, const struct scheduled *scheduled,
                          uint64_t throttled_ns, bool is_throttled)
{
    if (!pair->now->has_sched || scheduled->now == NULL)
        return;
    /* A thread that its quota stops stands in the queue, too. */
    uint64_t wait_ns = more(throttled_ns, scheduled->wait_ns);
    uint64_t want_ns = wait_ns + scheduled->run_ns;
    bool is_bad = share(wait_ns, pair->ns) >= STARVED_WAIT &&
                  share(wait_ns, want_ns) >= STARVED_OF_WANT && !has_them_all(pair);

    if (is_bad && (is_throttled || has_new_quota(pair)))
        return; /* that explains it, or may */
    snprintf(pair->evidence.text, sizeof(pair->evidence.text),
             "its thread %d was ready to run for %.2f s of %.2f s, while others had the processor; "
             "it ran for %.2f s",
             (int)scheduled->now->tid, seconds(wait_ns), seconds(pair->ns),
             seconds(scheduled->run_ns));
    pair->evidence.before = scheduled->before->wait_ns;
    pair->evidence.after = scheduled->now->wait_ns;
    sample(pair, SL_MON_CHECK_PROCESS_STARVED, is_bad);
}

/* In the same wait since the last time: who reads and writes a disk is in D often, and runs. */
static const struct sl_mon_thread_reading *blocked(const struct pair *pair)
{
    for (unsigned i = 0; i < pair->now->thread_count; i++) {
        const struct sl_mon_thread_reading *now = &pair->now->threads[i];
        const struct sl_mon_thread_reading *before = thread_of(pair->before, now->tid);

        if (before != NULL && now->state == 'D' && before->state == 'D' &&
            now->slices == before->slices)
            return now;
    }
    return NULL;
}

static void check_blocked(struct pair *pair)
{
    const struct sl_mon_thread_reading *thread = blocked(pair);
    uint64_t now_ns = sl_mon_time(pair->mon)->mono_ns;

    if (!pair->now->has_sched)
        return;
    if (thread == NULL)
        pair->process->blocked_since_ns = now_ns;
    else
        snprintf(pair->evidence.text, sizeof(pair->evidence.text),
                 "its thread %d has waited in the kernel for %.1f s and cannot be interrupted (D)",
                 (int)thread->tid, seconds(now_ns - pair->process->blocked_since_ns));
    pair->evidence.before = pair->evidence.after = thread != NULL ? thread->slices : 0;
    sample(pair, SL_MON_CHECK_PROCESS_BLOCKED, thread != NULL);
}

static bool is_short_of_memory(const struct pair *pair, uint64_t hits, unsigned stalled)
{
    double faults = pair->process->faults_per_s;
    bool is_full = hits >= HITS_PER_S * pair->ns / SL_MON_S && hits > 0;

    if (!pair->now->has_stall)
        return is_full && faults >= FAULTS_PER_S;
    if (stalled < STALLED)
        return false;
    if (pair->now->is_stall_own)
        return true;
    return (is_full && pair->now->is_only_full) || faults >= FAULTS_SHARED_PER_S;
}

static void check_memory(struct pair *pair)
{
    const struct sl_mon_process_reading *before = pair->before, *now = pair->now;
    bool has_stall =
        now->has_stall && before->has_stall && now->is_stall_own == before->is_stall_own;
    uint64_t stall_ns = has_stall ? more(before->stall_ns, now->stall_ns) : 0;
    uint64_t hits = now->memory_id != 0 && now->memory_id == before->memory_id
                        ? more(before->memory_hits, now->memory_hits)
                        : 0;
    uint64_t faults = more(before->major_faults, now->major_faults);

    pair->process->stall_share = share(stall_ns, pair->ns);
    pair->process->faults_per_s = (double)faults / seconds(pair->ns);
    bool is_bad = is_short_of_memory(pair, hits, pair->process->stall_share);

    if (hits > 0)
        snprintf(pair->evidence.text, sizeof(pair->evidence.text),
                 "its cgroup reached its memory limit %" PRIu64 " times in %.1f s; %s waited for "
                 "memory for %.2f s; it read %" PRIu64 " pages again from disk",
                 hits, seconds(pair->ns), now->is_stall_own ? "its tasks" : "tasks of this host",
                 seconds(stall_ns), faults);
    else
        snprintf(pair->evidence.text, sizeof(pair->evidence.text),
                 "%s waited for memory for %.2f s of %.2f s; it read %" PRIu64
                 " pages again from disk",
                 now->is_stall_own ? "tasks of its cgroup" : "tasks of this host",
                 seconds(stall_ns), seconds(pair->ns), faults);
    pair->evidence.before = hits > 0 ? before->memory_hits : before->major_faults;
    pair->evidence.after = hits > 0 ? now->memory_hits : now->major_faults;
    sample(pair, SL_MON_CHECK_PROCESS_MEMORY, is_bad);
}

/* ---- a reading ---- */

void sl_mon_process_init(struct sl_mon_process *process, struct sl_mon_subject *subject,
                         uint64_t started_ns)
{
    *process = (struct sl_mon_process){.subject = subject, .started_ns = started_ns};
}

static void compare(struct pair *pair)
{
    struct scheduled scheduled = schedule(pair);
    uint64_t now_ns = sl_mon_time(pair->mon)->boot_ns, throttled_ns;
    bool is_throttled;

    pair->process->run_share =
        (unsigned)(more(pair->before->cpu_ns, pair->now->cpu_ns) * 1000 / pair->ns);
    pair->process->wait_share = share(scheduled.wait_ns, pair->ns);
    if (now_ns < pair->process->started_ns + SL_MON_PROCESS_GRACE_NS)
        return; /* it starts: programs are read, memory is filled */
    throttled_ns = check_throttled(pair, &scheduled, &is_throttled);
    check_starved(pair, &scheduled, throttled_ns, is_throttled);
    check_blocked(pair);
    check_memory(pair);
}

void sl_mon_process_read(struct sl_mon *mon, struct sl_mon_process *process, const char *source,
                         const struct sl_mon_process_reading *reading)
{
    uint64_t now_ns = sl_mon_time(mon)->mono_ns;
    struct pair pair = {.mon = mon, .process = process, .now = reading};

    sl_assert(reading->thread_count > 0 && reading->thread_count <= SL_MON_PROCESS_THREADS);
    pair.evidence.source = source;
    if (process->last_ns != 0 && now_ns > process->last_ns && now_ns - process->last_ns <= GAP_NS) {
        pair.before = &process->last;
        pair.ns = now_ns - process->last_ns;
    }
    /* What is stopped neither runs nor wants to: nobody knows better than before. */
    if (check_stopped(&pair))
        process->run_share = process->wait_share = process->throttled_share = 0;
    else if (pair.before != NULL)
        compare(&pair);
    if (process->last_ns == 0)
        process->blocked_since_ns = now_ns;
    process->last = *reading;
    process->last_ns = now_ns;
}

bool sl_mon_process_is_busy(const struct sl_mon_process *process)
{
    return process->run_share + process->wait_share >= BUSY;
}
