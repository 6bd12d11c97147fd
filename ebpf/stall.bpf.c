/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Transmit queues whose completions stood still (byte queue limits; since 6.9, where asked for). */
#include "ebpf/program.h"

COUNTS(counts, 1);

SEC("tp_btf/dql_stall_detected")
int BPF_PROG(on_stall)
{
    COUNT(counts, 0);
    return 0;
}
