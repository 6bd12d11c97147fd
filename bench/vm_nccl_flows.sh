#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What SLUICE_NCCL_FLOWS costs and gains over soft-RoCE: 4 connections of NCCL's to one process as channels of 1, 2 or 4
# endpoints, in turn, ROUNDS times; medians (lowest-highest). One rail; a processor for each end.
# usage, in the guest: vm_nccl_flows.sh [ROUNDS [BUILD]]    5 rounds
#   ./dev vm bench/vm_nccl_flows.sh
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-5} build=${2:-build}
# shellcheck source=tests/vm/tools.sh
. "$here/../tests/vm/tools.sh"
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs
out=$(mktemp -d)

through_plugin() {
    SLUICE_NCCL_FLOWS=$1 timeout 200 "$build/tools/nccl-driver/nccl_driver" bench --conns 4 --min 8 --max 512K --flight 8 \
        --time-ms 300 --repeats 3 --call-ms 20000 \
        --env 0:SLUICE_VERBS_DEVICES=rxe0 --env 0:SLUICE_HOST_ID=side-0 \
        --env 1:SLUICE_VERBS_DEVICES=rxe1 --env 1:SLUICE_HOST_ID=side-1 \
        "$build/tools/nccl/libnccl-net-sluice.so"
}

# figures FILE: "MEDIAN (LOWEST-HIGHEST)"
figures() {
    sort -g "$1" | awk '{ at[NR] = $1 } END { printf "%.1f (%.1f-%.1f)", at[int((NR + 1) / 2)], at[1], at[NR] }'
}

for ((round = 1; round <= rounds; round++)); do
    order="1 2 4"
    ((round % 2 == 0)) && order="4 2 1"
    for flows in $order; do
        through_plugin "$flows" >"$out/table" 2>"$out/err" || { cat "$out/err"; exit 1; }
        while read -r bytes latency rate; do
            echo "$latency" >>"$out/$flows.$bytes.us"
            echo "$rate" >>"$out/$flows.$bytes.rate"
            echo "round $round, $flows endpoints, $bytes B: $latency us, $rate MB/s"
        done < <(awk '$1 ~ /^(8|32768|524288)$/ { print $1, $3, $4 }' "$out/table")
    done
done
for bytes in 8 32768 524288; do
    for flows in 1 2 4; do
        echo "$bytes B, $flows endpoints: $(figures "$out/$flows.$bytes.us") us, $(figures "$out/$flows.$bytes.rate") MB/s"
    done
done
rm -rf "$out"
