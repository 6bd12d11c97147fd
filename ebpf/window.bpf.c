/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Segments that arrive while the peer's receive window is zero: it does not read. */
#include "ebpf/program.h"

COUNTS(counts, 1);

SEC("tp_btf/tcp_probe")
int BPF_PROG(on_probe, const struct sock *sk)
{
    const struct tcp_sock *tp = (const void *)sk;

    if (BPF_CORE_READ(tp, snd_wnd) == 0)
        COUNT(counts, 0);
    return 0;
}
