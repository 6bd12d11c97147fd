/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * Asynchronous events of RDMA devices, which libibverbs gives only to the process that opened the
 * device: of ports and devices as the kernel hands them round, of queue pairs as it hands them to
 * their owners. They are rare.
 */
#include "ebpf/program.h"

COUNTS(counts, 1); /* events that the ring had no room for */

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 64 * 1024);
} events SEC(".maps");

static __always_inline int tell(const struct ib_event *event, bool is_of_qp)
{
    struct sl_bpf_rdma_event *out = bpf_ringbuf_reserve(&events, sizeof(*out), 0);
    const struct ib_device *device;
    const struct ib_qp *qp;

    if (out == NULL) {
        COUNT(counts, 0);
        return 0;
    }
    device = BPF_CORE_READ(event, device);
    out->at_ns = bpf_ktime_get_ns();
    out->event = BPF_CORE_READ(event, event);
    out->qpn = 0;
    out->port = 0;
    out->pid = 0;
    out->device[0] = '\0';
    BPF_CORE_READ_STR_INTO(&out->device, device, name);
    if (is_of_qp) {
        qp = BPF_CORE_READ(event, element.qp);
        out->qpn = BPF_CORE_READ(qp, qp_num);
    } else {
        out->port = BPF_CORE_READ(event, element.port_num);
    }
    bpf_ringbuf_submit(out, 0);
    return 0;
}

SEC("fentry/ib_dispatch_event")
int BPF_PROG(dispatch_entry, const struct ib_event *event)
{
    return tell(event, false);
}

SEC("fentry/ib_uverbs_qp_event_handler")
int BPF_PROG(owner_entry, const struct ib_event *event)
{
    return tell(event, true);
}

SEC("kprobe/ib_dispatch_event")
int BPF_KPROBE(dispatch_call, const struct ib_event *event)
{
    return tell(event, false);
}

SEC("kprobe/ib_uverbs_qp_event_handler")
int BPF_KPROBE(owner_call, const struct ib_event *event)
{
    return tell(event, true);
}
