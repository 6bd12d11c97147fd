/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* What TCP sends again, by why it does, and of which connections. */
#include "ebpf/program.h"

#define CA_RECOVERY 3
#define CA_LOSS 4

COUNTS(counts, SL_BPF_CAUSES);

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_FLOWS);
    __type(key, struct sl_bpf_flow_key);
    __type(value, struct sl_bpf_flow);
} flows SEC(".maps");

static __always_inline void key_of(const struct sock *sk, struct sl_bpf_flow_key *key)
{
    const struct sock_common *common = &sk->__sk_common;

    key->family = common->skc_family;
    key->peer_port = bpf_ntohs(common->skc_dport);
    key->local_port = common->skc_num;
    if (key->family == AF_INET6 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
        bpf_core_read(key->peer, sizeof(key->peer), &common->skc_v6_daddr);
        bpf_core_read(key->local, sizeof(key->local), &common->skc_v6_rcv_saddr);
    } else {
        *(__be32 *)key->peer = common->skc_daddr;
        *(__be32 *)key->local = common->skc_rcv_saddr;
    }
}

static __always_inline int count(const struct sock *sk)
{
    const struct inet_connection_sock *icsk = (const void *)sk;
    unsigned state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
    enum sl_bpf_cause cause = state == CA_RECOVERY ? SL_BPF_RECOVERY
                              : state == CA_LOSS   ? SL_BPF_TIMEOUT
                                                   : SL_BPF_OTHER;
    struct sl_bpf_flow_key key = {};
    struct sl_bpf_flow *flow, fresh = {};

    COUNT(counts, cause);
    key_of(sk, &key);
    flow = bpf_map_lookup_elem(&flows, &key);
    if (flow == NULL) {
        BPF_CORE_READ_STR_INTO(&fresh.device, sk, sk_dst_cache, dev, name);
        bpf_map_update_elem(&flows, &key, &fresh, BPF_NOEXIST);
        flow = bpf_map_lookup_elem(&flows, &key);
        if (flow == NULL)
            return 0;
    }
    if (cause == SL_BPF_RECOVERY)
        flow->counts[SL_BPF_RECOVERY]++;
    else if (cause == SL_BPF_TIMEOUT)
        flow->counts[SL_BPF_TIMEOUT]++;
    else
        flow->counts[SL_BPF_OTHER]++;
    flow->last_ns = bpf_ktime_get_ns();
    return 0;
}

/* Until 6.14: only what could be sent. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_sent, const struct sock *sk, const struct sk_buff *skb)
{
    return count(sk);
}

/* After that: each attempt, and how it ended. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_attempt, const struct sock *sk, const struct sk_buff *skb, int err)
{
    return err == 0 ? count(sk) : 0;
}
