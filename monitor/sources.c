/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sources: in this order they are opened, read and shown. */
#include "monitor/source.h"

#include "core/err.h"

const struct sl_source_class *const sl_source_classes[] = {
    &sl_source_link,       &sl_source_rdma,           &sl_source_kmsg,
    &sl_source_ranks,      &sl_source_sluice,         &sl_source_tcp,
    &sl_source_queues,     &sl_source_pcie,           &sl_source_gpu,
    &sl_source_nldev,      &sl_source_async,          &sl_source_bpf_retransmit,
    &sl_source_bpf_window, &sl_source_bpf_reset,      &sl_source_bpf_checksum,
    &sl_source_bpf_drop,   &sl_source_bpf_xmit,       &sl_source_bpf_timeout,
    &sl_source_bpf_qdisc,  &sl_source_bpf_stall,      &sl_source_bpf_sched,
    &sl_source_bpf_qp,     &sl_source_bpf_rdma_event, &sl_source_echo,
};

const unsigned sl_source_class_count = SL_ARRAY_LEN(sl_source_classes);
