/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * How long processes wait for a processor, sleep, and are stopped: those that user space has put
 * into the map of them, of all others nothing.
 */
#include "ebpf/program.h"

#define TASK_STOPPED_OR_TRACED (4 | 8)

SETTINGS

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SL_BPF_PROCESSES);
    __type(key, __u32);
    __type(value, struct sl_bpf_process);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_THREADS);
    __type(key, __u32);
    __type(value, struct sl_bpf_thread);
} threads SEC(".maps");

static __always_inline struct sl_bpf_process *process_of(const struct task_struct *task)
{
    __u32 tgid = task->tgid;

    return bpf_map_lookup_elem(&processes, &tgid);
}

static __always_inline unsigned state_of(const struct task_struct *task)
{
    const struct task_struct___before_5_14 *old = (const void *)task;

    if (bpf_core_field_exists(task->__state))
        return BPF_CORE_READ(task, __state);
    return BPF_CORE_READ(old, state);
}

static __always_inline void period_begins(struct sl_bpf_process *process)
{
    const struct sl_bpf_settings *now = settings_now();

    if (now == NULL || process->epoch == now->epoch)
        return;
    process->epoch = now->epoch;
    process->wait_max_ns = process->off_max_ns = process->stopped_max_ns = 0;
}

/* What a thread was in ends, and is counted; then it is in state. */
static __always_inline void enter(struct sl_bpf_process *process, const struct task_struct *task,
                                  __u32 state, bool is_wakeup)
{
    struct sl_bpf_thread *thread, fresh = {};
    __u64 now = bpf_ktime_get_ns(), took;
    __u32 pid = task->pid;
    bool is_first = pid == (__u32)task->tgid;

    thread = bpf_map_lookup_elem(&threads, &pid);
    if (thread == NULL) {
        fresh.since_ns = now;
        fresh.state = state;
        bpf_map_update_elem(&threads, &pid, &fresh, BPF_ANY);
    } else {
        took = now - thread->since_ns;
        period_begins(process);
        /* Woken while it waits, or runs, or is about to sleep: that changes nothing. */
        if (is_wakeup && (thread->state == SL_BPF_RUNNABLE || thread->state == SL_BPF_RUNNING))
            return;
        if (thread->state == SL_BPF_RUNNABLE) {
            __sync_fetch_and_add(&process->wait_ns, took);
            __sync_fetch_and_add(&process->wait_count, 1);
            if (took > process->wait_max_ns)
                process->wait_max_ns = took;
        } else if (thread->state == SL_BPF_SLEEPING && is_first) {
            process->off_ns += took;
            if (took > process->off_max_ns)
                process->off_max_ns = took;
        } else if (thread->state == SL_BPF_STOPPED && is_first) {
            process->stopped_ns += took;
            process->stopped_count++;
            if (took > process->stopped_max_ns)
                process->stopped_max_ns = took;
        }
        thread->since_ns = now;
        thread->state = state;
    }
    if (is_first) {
        process->since_ns = now;
        process->state = state;
    }
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, const struct task_struct *task)
{
    struct sl_bpf_process *process = process_of(task);

    if (process != NULL)
        enter(process, task, SL_BPF_RUNNABLE, true);
    return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, const struct task_struct *task)
{
    struct sl_bpf_process *process = process_of(task);

    if (process != NULL)
        enter(process, task, SL_BPF_RUNNABLE, true);
    return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool is_preempted, const struct task_struct *prev,
             const struct task_struct *next)
{
    struct sl_bpf_process *process = process_of(prev);

    if (process != NULL) {
        /* One that is preempted on its way to sleep is ready to run all the same. */
        unsigned state = is_preempted ? 0 : state_of(prev);

        enter(process, prev,
              state == 0                              ? SL_BPF_RUNNABLE
              : (state & TASK_STOPPED_OR_TRACED) != 0 ? SL_BPF_STOPPED
                                                      : SL_BPF_SLEEPING,
              false);
    }
    process = process_of(next);
    if (process != NULL)
        enter(process, next, SL_BPF_RUNNING, false);
    return 0;
}
