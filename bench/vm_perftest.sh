#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One message stream over soft-RoCE, ours (bench_p2p) beside perftest, in turn, ROUNDS times: half a round trip of 8 B,
# and 64 KiB and 1 MiB one way. All bandwidths are in 10^6 bytes a second: perftest is asked for Gbit/s, as what it
# calls MB is 2^20 bytes. Over soft-RoCE ours writes packet by packet (docs/design/0007-rdma.md), so perftest does that as
# well, beside its whole messages: 64 KiB's worth of writes of 4 KiB.
# usage, in the guest: vm_perftest.sh [ROUNDS [BUILD]]
#   ./dev vm --limit 900 bench/vm_perftest.sh
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-5} build=$(readlink -f "${2:-build}")
# shellcheck source=tests/vm/tools.sh
. "$here/../tests/vm/tools.sh"
cd "$(mktemp -d)" || exit 1

# figures NAME...: "MEDIAN (LOWEST-HIGHEST)" of each file.
figures() {
    sort -g "$1" | awk '{ at[NR] = $1 } END {
        printf "%.1f (%.1f-%.1f)", NR % 2 ? at[(NR + 1) / 2] : (at[NR / 2] + at[NR / 2 + 1]) / 2, at[1], at[NR] }'
}

# perftest_bw BYTES COUNT: the average, in 10^6 B/s.
perftest_bw() { perftest ib_write_bw 0 1 -s "$1" -n "$2" --report_gbits | awk '{ print $4 * 125 }'; }

once_ours() {
    "$build/bench/bench_p2p" verbs rxe0 rxe1 >ours.txt || { cat ours.txt; return 1; }
    awk '$1 == "latency" && $2 == 8 { print $4 >>"ours.8" }
         $1 == "stream" && ($2 == 65536 || $2 == 1048576) { print $4 >>("ours." $2) }' ours.txt
}

once_theirs() {
    perftest ib_send_lat 0 1 -s 8 -n 2000 | awk '{ print $5 >>"theirs.8" }' || return 1
    perftest_bw 65536 512 >>theirs.65536 && perftest_bw 1048576 32 >>theirs.1048576 &&
        perftest_bw 4096 8192 >>theirs.4096
}

for ((round = 1; round <= rounds; round++)); do
    once_theirs && once_ours || exit 1
    echo "round $round, ours/perftest: 8 B $(tail -qn 1 ours.8 theirs.8 | paste -sd/) us, 64 KiB" \
        "$(tail -qn 1 ours.65536 theirs.65536 | paste -sd/), 1 MiB $(tail -qn 1 ours.1048576 theirs.1048576 | paste -sd/) MB/s," \
        "perftest packet by packet $(tail -qn 1 theirs.4096)"
done
echo "$rounds rounds, rxe0 to rxe1: median (lowest-highest), 1 MB is 10^6 bytes"
for size in 8 65536 1048576; do
    echo "$size bytes: Sluice $(figures ours.$size), perftest $(figures theirs.$size) $([[ $size -eq 8 ]] && echo us || echo MB/s)"
done
echo "perftest, packet by packet: $(figures theirs.4096) MB/s"
