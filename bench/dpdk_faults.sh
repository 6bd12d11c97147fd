#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the DPDK transport delivers on a fabric that misbehaves, through the software switch: goodput of one connection against
# loss, with one of four routes bad, an incast of eight on one shaped port, and short messages beside a long flow. Rounds go over
# all in turn. No root, no hugepages.
# usage: bench/dpdk_faults.sh [--rounds N] [--rate BITS] [--target US] [--out DIR] [BUILD]
#   5 rounds, links shaped to 1G, a delay target of 1000 us on these (a frame of 9,000 bytes alone takes 72), BUILD/dpdk-faults
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=5 rate=1G target=1000 out=''
while [[ ${1:-} == --* && $# -gt 1 ]]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --rate) rate=$2 ;;
    --target) target=$2 ;;
    --out) out=$2 ;;
    *) echo "dpdk_faults.sh: no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
build=$(readlink -f "${1:-build}")
out=${out:-$build/dpdk-faults}
switch=$build/testing/dpdk/sluice-dpdk-switch p2p=$build/bench/bench_p2p bench=$build/tools/bench/sluice-bench
module=$build/dpdk/sluice-dpdk.so
[[ -e $module ]] || { echo "dpdk_faults.sh: no transport here ($module)" >&2; exit 1; }
export SLUICE_MODULES_DIR=$build/dpdk
mkdir -p "$out" && : >"$out/rows.jsonl" && : >"$out/log" || exit 1
dir=$(mktemp -d) pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$dir"' EXIT

# start_switch NAME PORTS [OPTIONS...]: control by ask NAME LINE.
start_switch() {
    local name=$1 ports=$2 i
    shift 2
    mkfifo "$dir/$name.in"
    # shellcheck disable=SC2034 # stays open, so that the switch's stdin does
    exec {fd}<>"$dir/$name.in"
    "$switch" --socket "$dir/$name.sock" --ports "$ports" --seed 1 "$@" <"$dir/$name.in" >"$dir/$name.out" 2>>"$out/log" &
    pids+=($!)
    for ((i = 0; i < 400; i++)); do
        ! grep -qs ready "$dir/$name.out" || return 0
        sleep 0.05
    done
    echo "dpdk_faults.sh: the switch did not start (see $out/log)" >&2
    exit 1
}
ask() {
    local had i
    had=$(wc -l <"$dir/$1.out")
    echo "$2" >"$dir/$1.in"
    for ((i = 0; i < 500 && $(wc -l <"$dir/$1.out") == had; i++)); do sleep 0.01; done
    tail -n 1 "$dir/$1.out"
}
port() { echo "net_memif0,role=client,socket=$dir/$1.sock,id=$2@segment=faults"; }
# p2p_over SWITCH_A A SWITCH_B B [-l]: bench_p2p's lines.
p2p_over() { timeout 200 "$p2p" ${5:+"$5"} dpdk "$(port "$1" "$2")" "$(port "$3" "$4")" 2>>"$out/log"; }

# goodput ROUTES NAME LINE...: one connection while these faults last.
goodput() {
    local routes=$1 name=$2 line
    shift 2
    ask one heal >/dev/null
    for line in "$@"; do
        [[ $(ask one "$line") == *ok* ]] || { echo "dpdk_faults.sh: the switch refuses '$line'" >&2; exit 1; }
    done
    SLUICE_DPDK_ROUTES=$routes p2p_over one 0 one 1 | awk -v routes="$routes" -v name="$name" '$1 == "stream" && $2 == 1048576 {
        printf "{\"what\": \"goodput\", \"wire\": \"switch\", \"routes\": %d, \"fault\": \"%s\", \"gbit\": %.4f}\n", routes, name, $4 * 8 / 1000
    }' | tee -a "$out/rows.jsonl" | grep -q . || echo "round $round: $name on $routes routes failed (see $out/log)" >&2
}

# Eight ranks send to the ninth, whose port is shaped; shares are what the switch let out while all were sending.
incast() {
    local rank ranks=9 before after i
    ask many reset >/dev/null
    ask many "shape port=8 rate=$rate queue=1M mark=64K phantom=0.95" >/dev/null
    local jobs=()
    for ((rank = 0; rank < ranks; rank++)); do
        SLUICE_RANK=$rank SLUICE_SIZE=$ranks SLUICE_JOB=incast-$$-$round SLUICE_SECRET=known-to-ranks-of-this-run \
            SLUICE_ROOT=127.0.0.1:7725 SLUICE_TRANSPORT=dpdk SLUICE_DPDK_TARGET_US=$target SLUICE_DPDK_PORTS=$(port many "$rank") \
            timeout 200 "$bench" -C gather --algo linear -r 8 -b 32M -e 32M -i 2 -w 0 -c 0 >>"$out/log" 2>&1 &
        jobs+=($!)
    done
    before=$(until_bytes 16000000) && after=$(until_bytes 120000000) && python3 - "$before" "$after" >>"$out/rows.jsonl" <<'END2'
import json
import sys
a, b = (json.loads(text)["ports"][8] for text in sys.argv[1:])
got = [y - x for x, y in zip(a["bytes_from"], b["bytes_from"])][:8]
fair = sum(got) / 8
print(json.dumps({"what": "incast", "wire": "switch", "share_least": round(min(got) / fair, 4), "share_most": round(max(got) / fair, 4),
                  "queue_max": b["queue_bytes_max"], "phantom_max": b["phantom_bytes_max"], "marked": b["marked"] - a["marked"],
                  "queue_mean": round((b["queue_bytes_sum"] - a["queue_bytes_sum"]) / max(1, b["out_frames"] - a["out_frames"])),
                  "full": b["queue_full"] - a["queue_full"]}))
END2
    for i in "${jobs[@]}"; do
        wait "$i" || echo "round $round: a rank of the incast failed (see $out/log)" >&2
    done
}
# until_bytes N: the counters, once port 8 has sent so much.
until_bytes() {
    local stats i
    for ((i = 0; i < 3000; i++)); do
        stats=$(ask many stats)
        if python3 -c 'import json, sys; sys.exit(json.loads(sys.argv[1])["ports"][8]["out_bytes"] < int(sys.argv[2]))' "$stats" "$1"; then
            echo "$stats"
            return
        fi
        sleep 0.05
    done
    echo "round $round: the incast does not move" >&2
    return 1
}

# Two pairs of processes, one each side of a shaped link between two switches.
short_messages() {
    local name=$1
    p2p_over left 0 right 0 -l | awk -v name="$name" '$1 == "latency" {
        gsub(/[^0-9.]/, "", $10)
        printf "{\"what\": \"short\", \"wire\": \"switch\", \"fault\": \"%s\", \"p50_us\": %.3f, \"p99_us\": %.3f}\n", name, 2 * $4, 2 * $10
    }' >>"$out/rows.jsonl"
}
beside_a_long_flow() {
    local -x SLUICE_DPDK_TARGET_US=$target
    short_messages idle
    : >"$dir/goes-on"
    (while [[ -e $dir/goes-on ]] && p2p_over left 1 right 1; do :; done) >/dev/null 2>&1 &
    local flow=$!
    sleep 2
    short_messages 'beside a long flow'
    rm "$dir/goes-on"
    wait "$flow"
}

start_switch one 2
start_switch many 9
# Port 2 of the left switch leads to the right one, and back.
start_switch left 3 --do "shape port=2 rate=$rate queue=1M mark=64K phantom=0.95"
start_switch right 2 --uplink "$dir/left.sock,2" --do "shape port=2 rate=$rate queue=1M mark=64K phantom=0.95"
for ((round = 0; round < rounds; round++)); do
    for routes in 1 4; do
        goodput "$routes" none
        goodput "$routes" 'loss of 0.1 %' 'fault loss=0.001'
        goodput "$routes" 'loss of 1 %' 'fault loss=0.01'
    done
    goodput 4 '20 % on one route' 'fault route=2 loss=0.2'
    goodput 4 'one route cut' 'cut route=2'
    incast
    beside_a_long_flow
done
python3 "$here/dpdk_table.py" --json "$out/table.json" "$out/rows.jsonl" | tee "$out/table.txt"
