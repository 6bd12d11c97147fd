/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Packets that the kernel throws away, by its reason. */
#include "ebpf/program.h"

COUNTS(counts, SL_BPF_REASONS);

SEC("tp_btf/kfree_skb")
int BPF_PROG(on_drop, const struct sk_buff *skb, void *location, unsigned int reason)
{
    /* Of a subsystem's own (the upper half of the number), or newer than this program. */
    if (reason >= SL_BPF_REASONS)
        reason = SL_BPF_REASONS - 1;
    COUNT(counts, reason);
    return 0;
}

/* Before 5.17 there are no reasons. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(on_drop_unsaid)
{
    COUNT(counts, 0);
    return 0;
}
