/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* What the BPF programs of this folder keep in their maps, and user space reads out of them. */
#ifndef SL_EBPF_SHARED_H
#define SL_EBPF_SHARED_H

#include <stdint.h>

/* The only value of a map "settings". */
struct sl_bpf_settings {
    uint32_t netns; /* devices of this network namespace only; 0: of all */
    uint32_t epoch; /* of the period that is being counted; a maximum of another one is over */
};

/* ---- retransmit ---- */

enum sl_bpf_cause {
    SL_BPF_RECOVERY, /* gaps in what the peer acknowledges */
    SL_BPF_TIMEOUT,  /* silence */
    SL_BPF_OTHER,    /* a probe of the tail, mostly */
    SL_BPF_CAUSES
};

#define SL_BPF_FLOWS 2048 /* the least recently used give way */

struct sl_bpf_flow_key {
    uint8_t local[16], peer[16]; /* an IPv4 address has the first four bytes */
    uint16_t local_port, peer_port, family, zero;
};

struct sl_bpf_flow {
    uint64_t counts[SL_BPF_CAUSES];
    uint64_t last_ns; /* CLOCK_MONOTONIC */
    char device[16];  /* that it leaves by; "": unknown */
};

/* ---- reset ---- */

enum { SL_BPF_RESET_SENT, SL_BPF_RESET_RECEIVED, SL_BPF_RESETS };

/* ---- drop ---- */

#define SL_BPF_REASONS 192 /* the last: all that have no place of their own */

/* ---- xmit, timeout, qdisc ---- */

#define SL_BPF_DEVICES 256
#define SL_BPF_QUEUES 1024

struct sl_bpf_xmit {
    uint64_t busy, dropped; /* NETDEV_TX_BUSY; all else that is not OK */
    char device[16];
};

struct sl_bpf_queue_key {
    uint32_t ifindex, queue;
};

struct sl_bpf_timeout {
    uint64_t count, last_ns;
    char device[16];
};

struct sl_bpf_queueing {
    uint64_t count, sum_ns, max_ns; /* max_ns: in this epoch */
    uint32_t epoch, zero;
    char device[16];
};

/* ---- sched ---- */

#define SL_BPF_PROCESSES 1024
#define SL_BPF_THREADS 16384

enum { SL_BPF_RUNNING, SL_BPF_RUNNABLE, SL_BPF_SLEEPING, SL_BPF_STOPPED };

/* Of one process. Waits for a processor are those of all its threads, the rest its first one's. */
struct sl_bpf_process {
    uint64_t wait_ns, wait_count, wait_max_ns; /* ready to run, and not running */
    uint64_t off_ns, off_max_ns;               /* asleep */
    uint64_t stopped_ns, stopped_count, stopped_max_ns;
    uint64_t since_ns; /* the first thread is in that state; 0: not known yet */
    uint32_t state, epoch;
};

struct sl_bpf_thread {
    uint64_t since_ns;
    uint32_t state, zero;
};

/* ---- qp, rdma_event ---- */

#define SL_BPF_QPS 8192

struct sl_bpf_qp {
    char device[64];
    uint8_t peer_gid[16];
    uint32_t qpn, type, state, peer_qpn, flow_label, pid;
    uint64_t created_ns, changed_ns; /* created_ns 0: before the probe */
};

enum { SL_BPF_QP_CREATED, SL_BPF_QP_MODIFIED, SL_BPF_QP_DESTROYED, SL_BPF_QP_COUNTS };

struct sl_bpf_rdma_event {
    uint64_t at_ns;
    uint32_t event, qpn, port, pid; /* event: the kernel's enum ib_event_type */
    char device[64];
};

#endif
