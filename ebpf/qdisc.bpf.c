/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * How long packets wait in the queue of a device: a sample of them, by their address, at most so
 * many of a device in a tick of the clock, so that a slow flow is seen whole and a fast one costs
 * little, and neither hides the other.
 */
#include "ebpf/program.h"

#define SAMPLES_PER_JIFFY 16
#define WAITING 8192
#define BUDGETS 64 /* devices share one by chance */

SETTINGS

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, WAITING);
    __type(key, __u64);
    __type(value, __u64);
} waiting SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_DEVICES);
    __type(key, __u32);
    __type(value, struct sl_bpf_queueing);
} devices SEC(".maps");

struct budget {
    __u64 jiffy, taken;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, BUDGETS);
    __type(key, __u32);
    __type(value, struct budget);
} budgets SEC(".maps");

static __always_inline bool is_sampled(const struct net_device *dev)
{
    __u64 jiffy = bpf_jiffies64();
    __u32 key = dev->ifindex & (BUDGETS - 1);
    struct budget *budget = bpf_map_lookup_elem(&budgets, &key);

    if (budget == NULL)
        return false;
    if (budget->jiffy != jiffy) {
        budget->jiffy = jiffy;
        budget->taken = 0;
    }
    return budget->taken++ < SAMPLES_PER_JIFFY;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(on_enqueue, const struct Qdisc *qdisc, const struct netdev_queue *txq,
             const struct sk_buff *skb)
{
    __u64 key = (__u64)skb, now;

    if (!is_ours(settings_now(), txq->dev))
        return 0;
    if (is_sampled(txq->dev)) {
        now = bpf_ktime_get_ns();
        bpf_map_update_elem(&waiting, &key, &now, BPF_ANY);
    } else {
        /* One that had this address before and was dropped in the queue: not this one's time. */
        bpf_map_delete_elem(&waiting, &key);
    }
    return 0;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(on_dequeue, const struct Qdisc *qdisc, const struct netdev_queue *txq, int packets,
             const struct sk_buff *skb)
{
    __u64 key = (__u64)skb, took, *since = bpf_map_lookup_elem(&waiting, &key);
    const struct sl_bpf_settings *now = settings_now();
    const struct net_device *dev;
    struct sl_bpf_queueing *value, fresh = {};
    __u32 ifindex;

    if (since == NULL)
        return 0;
    took = bpf_ktime_get_ns() - *since;
    bpf_map_delete_elem(&waiting, &key);
    dev = txq->dev;
    if (now == NULL || !is_ours(now, dev))
        return 0;
    ifindex = dev->ifindex;
    value = bpf_map_lookup_elem(&devices, &ifindex);
    if (value == NULL) {
        BPF_CORE_READ_STR_INTO(&fresh.device, dev, name);
        bpf_map_update_elem(&devices, &ifindex, &fresh, BPF_NOEXIST);
        value = bpf_map_lookup_elem(&devices, &ifindex);
        if (value == NULL)
            return 0;
    }
    __sync_fetch_and_add(&value->count, 1);
    __sync_fetch_and_add(&value->sum_ns, took);
    if (value->epoch != now->epoch) {
        value->epoch = now->epoch;
        value->max_ns = 0;
    }
    if (took > value->max_ns)
        value->max_ns = took;
    return 0;
}
