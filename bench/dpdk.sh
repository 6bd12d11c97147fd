#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The figures of docs/perf/dpdk.md: raw frames, the DPDK transport and the kernel's TCP, each once a round, in turn, so that
# the machine's moods befall all alike. Medians and least to greatest; as root also over veth, by af_packet, af_xdp and TCP.
# usage: bench/dpdk.sh [--rounds N] [--ms N] [--largest SIZE] [--only PART] [--out DIR] [BUILD]     5 rounds, 200 ms, 16M, BUILD/dpdk-bench
#   --only         memif, veth or allreduce
#   DIR/rows.jsonl   every figure of every round        DIR/table.txt, DIR/table.json   what is printed
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=testing/dpdk/veth.sh
. "$here/../testing/dpdk/veth.sh"
rounds=5 ms=200 largest=16M only='' out=''
while [[ ${1:-} == --* && $# -gt 1 ]]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --ms) ms=$2 ;;
    --largest) largest=$2 ;;
    --only) only=$2 ;;
    --out) out=$2 ;;
    *) echo "dpdk.sh: no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
build=$(readlink -f "${1:-build}")
out=${out:-$build/dpdk-bench}
ranks=$here/../testing/dpdk/ranks.sh raw=$build/testing/dpdk/bench_dpdk_raw p2p=$build/bench/bench_p2p
bench=$build/tools/bench/sluice-bench module=$build/dpdk/sluice-dpdk.so
mkdir -p "$out" && : >"$out/rows.jsonl" && : >"$out/log" || exit 1
dir=$(mktemp -d)
trap 'veth_down; rm -rf "$dir"' EXIT
[[ ! -e $module ]] || export SLUICE_MODULES_DIR=$build/dpdk

# step NAME COMMAND...: its output is kept; a failure is told, and the rest goes on.
step() {
    local name=$1
    shift
    echo "== $name: $*" >>"$out/log"
    timeout 120 "$@" >"$dir/$name" 2>>"$out/log" || { echo "round $round: $name failed with $? (see $out/log)" >&2; return 1; }
}
raw_frames() { step raw "$raw" --rounds 1 --ms "$ms" --json "$dir/raw.json" "$@" && cat "$dir/raw.json" >>"$out/rows.jsonl"; }
# one_connection WIRE PORT_A PORT_B [OPTIONS...]: bench_p2p's lines as rows. 32 MiB at each end, as raw frames with user copies have.
one_connection() {
    local wire=$1 a=$2 b=$3
    shift 3
    step p2p "$p2p" -w 32 "$@" dpdk "$a" "$b" && awk -v wire="$wire" '
        $1 == "latency" { printf "{\"what\": \"rtt8\", \"wire\": \"%s\", \"p50_us\": %.3f}\n", wire, 2 * $4 }
        $1 == "stream" { printf "{\"what\": \"stream\", \"wire\": \"%s\", \"bytes\": %d, \"gbit\": %.3f}\n", wire, $2, $4 * 8 / 1000 }
    ' "$dir/p2p" >>"$out/rows.jsonl"
}
# collective WIRE N
collective() {
    step run "$ranks" --wire "$1" "$build" "$2" "$bench" -b 8 -e "$largest" -f 4 --budget 0.1 -c 1 --json "$dir/run.json" &&
        python3 "$here/dpdk_table.py" --rows "$1" "$2" "$dir/run.json" >>"$out/rows.jsonl"
}
memif() { echo "net_memif0,role=$1,id=0,socket=$dir/p2p.sock@segment=p2p"; }

# Each end in a namespace of its own: two ports of af_packet in one would have the same fanout group.
with_root=false
if veth_hosts 2 9000; then
    with_root=true
    nets=(/proc/"${veth_pids[0]}"/ns/net /proc/"${veth_pids[1]}"/ns/net)
    veth_link 0 xdp0 1 xdp0 3498 || exit 1
else
    echo "not over veth: $veth_why" >&2
fi
answers=6 # packets of a stream for each acknowledgement, as counted: docs/perf/dpdk.md
# over_veth DRIVER INTERFACE [ARGUMENTS]
over_veth() {
    local port=net_$1"0,iface=$2${3:-}"
    raw_frames --veth "${nets[0]}:$2,${nets[1]}:$2" --answers "$answers" "$1"
    [[ ! -e $module ]] || SLUICE_INTERFACE=ctl0 one_connection "$1" "$port" "$port" -n "${nets[0]},${nets[1]}"
}
[[ -e $module ]] || echo "no transport here yet ($module): raw frames and TCP only" >&2

one_round() {
    if [[ ${only:-memif} == memif ]]; then
        raw_frames memif memif-copy memif-extbuf
        [[ ! -e $module ]] || one_connection memif "$(memif server)" "$(memif client)"
    fi
    if $with_root && [[ ${only:-veth} == veth ]]; then
        over_veth af_packet data0
        over_veth af_xdp xdp0 ,busy_budget=0
    fi
    [[ ${only:-allreduce} == allreduce ]] || return 0
    for n in 2 4; do
        [[ ! -e $module ]] || collective mesh "$n"
        ! $with_root || collective tcp "$n"
    done
}
for ((round = 0; round < rounds; round++)); do
    one_round
done
python3 "$here/dpdk_table.py" --json "$out/table.json" "$out/rows.jsonl" | tee "$out/table.txt"
