/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Packets that a device's driver does not take. */
#include "ebpf/program.h"

#define NETDEV_TX_BUSY 0x10

SETTINGS

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_DEVICES);
    __type(key, __u32);
    __type(value, struct sl_bpf_xmit);
} devices SEC(".maps");

/* The packet may be gone by then. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(on_xmit, const struct sk_buff *skb, int rc, const struct net_device *dev)
{
    struct sl_bpf_xmit *value, fresh = {};
    __u32 ifindex;

    if (rc == 0 || !is_ours(settings_now(), dev))
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
    if (rc == NETDEV_TX_BUSY)
        __sync_fetch_and_add(&value->busy, 1);
    else
        __sync_fetch_and_add(&value->dropped, 1);
    return 0;
}
