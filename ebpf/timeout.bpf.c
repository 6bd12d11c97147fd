/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Transmit queues that stood still until the kernel's watchdog found them. */
#include "ebpf/program.h"

SETTINGS

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_QUEUES);
    __type(key, struct sl_bpf_queue_key);
    __type(value, struct sl_bpf_timeout);
} queues SEC(".maps");

SEC("tp_btf/net_dev_xmit_timeout")
int BPF_PROG(on_timeout, const struct net_device *dev, int queue)
{
    struct sl_bpf_queue_key key = {.queue = queue};
    struct sl_bpf_timeout *value, fresh = {};

    if (!is_ours(settings_now(), dev))
        return 0;
    key.ifindex = dev->ifindex;
    value = bpf_map_lookup_elem(&queues, &key);
    if (value == NULL) {
        BPF_CORE_READ_STR_INTO(&fresh.device, dev, name);
        bpf_map_update_elem(&queues, &key, &fresh, BPF_NOEXIST);
        value = bpf_map_lookup_elem(&queues, &key);
        if (value == NULL)
            return 0;
    }
    __sync_fetch_and_add(&value->count, 1);
    value->last_ns = bpf_ktime_get_ns();
    return 0;
}
