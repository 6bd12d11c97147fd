/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* TCP resets, each way. */
#include "ebpf/program.h"

COUNTS(counts, SL_BPF_RESETS);

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(on_send)
{
    COUNT(counts, SL_BPF_RESET_SENT);
    return 0;
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(on_receive)
{
    COUNT(counts, SL_BPF_RESET_RECEIVED);
    return 0;
}
