/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * What BPF programs read of the kernel: of each struct only the fields that are read, by name.
 * Where those lie is filled in when a program is loaded, from the running kernel's own types
 * (CO-RE), so that one program fits many kernels. Sizes and orders here mean nothing.
 *
 * To be included before libbpf's headers, which want these types; no kernel header is needed.
 */
#ifndef SL_EBPF_KERN_H
#define SL_EBPF_KERN_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
typedef int8_t __s8;
typedef int16_t __s16;
typedef int32_t __s32;
typedef int64_t __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;

/* Numbers of the interface to user space: they never change. */
enum bpf_map_type {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

/* ---- the network ---- */

struct ns_common {
    unsigned int inum;
};
struct net {
    struct ns_common ns;
};
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    char name[16];
    int ifindex;
    possible_net_t nd_net;
};
struct netdev_queue {
    struct net_device *dev;
};
struct dst_entry {
    struct net_device *dev;
};
struct in6_addr {
    __u8 bytes[16]; /* by its address only */
};
struct sock_common {
    __be32 skc_daddr, skc_rcv_saddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};
struct sock {
    struct sock_common __sk_common;
    struct dst_entry *sk_dst_cache;
};
struct inet_connection_sock {
    __u8 icsk_ca_state : 5;
};
struct tcp_sock {
    __u32 snd_wnd;
};
struct sk_buff;
struct Qdisc;

/* ---- registers at a kprobe ---- */

struct pt_regs {
    unsigned long di, si, dx, ax; /* x86-64 */
};
struct user_pt_regs {
    __u64 regs[31]; /* 64-bit ARM */
};

/* ---- tasks ---- */

struct task_struct {
    unsigned int __state; /* since 5.14 */
    int pid, tgid;
};
struct task_struct___before_5_14 {
    long state;
};

/* ---- RDMA ---- */

enum ib_qp_state {
    IB_QPS_RESET,
    IB_QPS_INIT,
    IB_QPS_RTR,
    IB_QPS_RTS,
    IB_QPS_SQD,
    IB_QPS_SQE,
    IB_QPS_ERR
};
enum ib_qp_type { IB_QPT_SMI, IB_QPT_GSI, IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
enum ib_event_type { IB_EVENT_CQ_ERR, IB_EVENT_QP_FATAL };

struct ib_device {
    char name[64];
};
struct ib_qp {
    struct ib_device *device;
    __u32 qp_num;
    enum ib_qp_type qp_type;
};
union ib_gid {
    __u8 raw[16];
};
struct ib_global_route {
    union ib_gid dgid;
    __u32 flow_label;
};
struct rdma_ah_attr {
    struct ib_global_route grh;
};
struct ib_qp_attr {
    enum ib_qp_state qp_state;
    __u32 dest_qp_num;
    struct rdma_ah_attr ah_attr;
};
struct ib_udata;
struct ib_pd;
struct ib_qp_init_attr;
struct ib_uqp_object;
struct ib_event {
    struct ib_device *device;
    union {
        struct ib_qp *qp;
        __u32 port_num;
    } element;
    enum ib_event_type event;
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

#endif
