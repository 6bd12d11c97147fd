/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* TCP segments that arrive damaged. */
#include "ebpf/program.h"

COUNTS(counts, 1);

SEC("tp_btf/tcp_bad_csum")
int BPF_PROG(on_damaged)
{
    COUNT(counts, 0);
    return 0;
}
