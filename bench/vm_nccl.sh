#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The NCCL plugin over soft-RoCE beside the transport that it stands on: messages of 1 MiB, 8 in flight, in turn, ROUNDS
# times; medians (lowest-highest). Both with a rail and two paths, busy polling, a processor for each end.
# usage, in the guest: vm_nccl.sh [ROUNDS [BUILD]]    7 rounds
#   ./dev vm bench/vm_nccl.sh
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-7} build=${2:-build}
# shellcheck source=tests/vm/tools.sh
. "$here/../tests/vm/tools.sh"
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs
out=$(mktemp -d)

through_plugin() {
    timeout 100 "$build/tools/nccl-driver/nccl_driver" bench --min 1M --max 1M --flight 8 --time-ms 5000 --repeats 5 --call-ms 20000 \
        --env 0:SLUICE_VERBS_DEVICES=rxe0 --env 0:SLUICE_HOST_ID=side-0 \
        --env 1:SLUICE_VERBS_DEVICES=rxe1 --env 1:SLUICE_HOST_ID=side-1 \
        "$build/tools/nccl/libnccl-net-sluice.so" | awk '$1 == 1048576 { print $4 }'
}

transport() {
    SLUICE_INTERFACE=lo timeout 100 "$build/bench/bench_p2p" -w 8 verbs rxe0 rxe1 |
        awk '$1 == "stream" && $2 == 1048576 { print $4 }'
}

# once NAME COMMAND: its figure goes to the file NAME; the bytes have crossed the rail.
once() {
    local before figure
    before=$(counter 0 sent_pkts)
    figure=$("$2" 2>"$out/err")
    [[ $figure =~ ^[0-9.]+$ ]] || { echo "$1 gave no figure: $figure"; cat "$out/err"; return 1; }
    (($(counter 0 sent_pkts) - before > 1000)) || { echo "$1 did not go by rxe0"; return 1; }
    echo "$figure" >>"$out/$1"
}

# figures NAME: "MEDIAN (LOWEST-HIGHEST)"
figures() {
    sort -g "$out/$1" | awk '{ at[NR] = $1 } END { printf "%.1f (%.1f-%.1f)", at[int((NR + 1) / 2)], at[1], at[NR] }'
}

for ((round = 1; round <= rounds; round++)); do
    once plugin through_plugin && once transport transport || exit 1
    echo "round $round: $(tail -qn 1 "$out/plugin" "$out/transport" | tr '\n' ' ')MB/s"
done
echo "1 MiB, 8 in flight, $rounds rounds, MB/s: plugin $(figures plugin), transport $(figures transport)"
rm -rf "$out"
