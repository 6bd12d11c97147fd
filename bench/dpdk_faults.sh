#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the DPDK transport delivers on a fabric that misbehaves, through the software switch: goodput and message times of one
# connection, by one path, by one path of four routes and by four paths, against loss, one bad route and one that is cut; short
# messages beside long flows; an incast of eight on one shaped port. Rounds go over all in turn. No root, no hugepages.
# All hosts but those of the incast are one process on a core of its own, and the switch has another one, so no figure is the
# scheduler's; as root both are niced, so that other work hardly takes their cores.
# usage: bench/dpdk_faults.sh [--rounds N] [--rate BITS] [--delay US] [--only WORDS] [--out DIR] [BUILD]
#   5 rounds; links of 10G with 5 us each way (--delay), marks from 64 KiB of a phantom queue; WORDS of "goodput short incast"; BUILD/dpdk-faults.
#   The incast, of nine processes, has 1G and a delay target of 1000 us (a frame of 9,000 bytes alone takes 72).
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=5 rate=10G only='goodput short incast' out='' delay=5
while [[ ${1:-} == --* && $# -gt 1 ]]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --rate) rate=$2 ;;
    --delay) delay=$2 ;;
    --only) only=$2 ;;
    --out) out=$2 ;;
    *) echo "dpdk_faults.sh: no option $1" >&2; exit 2 ;;
    esac
    shift 2
done
build=$(readlink -f "${1:-build}")
out=${out:-$build/dpdk-faults}
switch=$build/testing/dpdk/sluice-dpdk-switch hosts=$build/bench/bench_dpdk_hosts bench=$build/tools/bench/sluice-bench
module=$build/dpdk/sluice-dpdk.so
[[ -e $module ]] || { echo "dpdk_faults.sh: no transport here ($module)" >&2; exit 1; }
export SLUICE_MODULES_DIR=$build/dpdk
mkdir -p "$out" && : >"$out/rows.jsonl" && : >"$out/log" || exit 1
dir=$(mktemp -d) pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$dir"' EXIT
mapfile -t cores < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
switch_core=${cores[1]:-${cores[0]}} host_core=${cores[0]}
((EUID != 0)) || renice -n -12 -p $$ >/dev/null

# start_switch NAME PORTS CORES [OPTIONS...]: control by ask NAME LINE.
start_switch() {
    local name=$1 ports=$2 core=$3 i
    shift 3
    mkfifo "$dir/$name.in"
    # shellcheck disable=SC2034 # stays open, so that the switch's stdin does
    exec {fd}<>"$dir/$name.in"
    taskset -c "$core" "$switch" --socket "$dir/$name.sock" --ports "$ports" --seed 1 "$@" <"$dir/$name.in" >"$dir/$name.out" 2>>"$out/log" &
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
# ports SWITCH N: SLUICE_DPDK_PORTS of a process that is N hosts.
ports() {
    local i list=''
    for ((i = 0; i < $2; i++)); do list+="net_memif$i,role=client,socket=$dir/$1.sock,id=$i@segment=faults "; done
    echo "${list% }"
}
# tell LINE...: the state of switch `one`.
tell() {
    local line
    ask one heal >/dev/null
    for line in "$@"; do
        [[ $(ask one "$line") == *ok* ]] || { echo "dpdk_faults.sh: the switch refuses '$line'" >&2; exit 1; }
    done
}

# stream PATHS ROUTES FAULT [OPTIONS...]: one connection, by so many paths of so many source ports each. Labels are given, so
# that a fault can name the source port of a path: 49152 and its label.
stream() {
    local paths=$1 routes=$2 fault=$3 list='0>0/1'
    shift 3
    ((paths == 1)) || list='0>0/1,0>0/2,0>0/3,0>0/4'
    SLUICE_DPDK_PATHS=$list SLUICE_DPDK_ROUTES=$routes timeout 30 taskset -c "$host_core" "$hosts" -t 400 "$@" stream "$(ports one 2)" \
        2>>"$out/log" | sed "s/^{/{\"what\": \"goodput\", \"wire\": \"switch\", \"paths\": $paths, \"routes\": $routes, \"fault\": \"$fault\", /" |
        tee -a "$out/rows.jsonl" | grep -q . || echo "round $round: $fault on $paths paths of $routes routes failed (see $out/log)" >&2
}
streams() { # FAULT LINE: of messages of 1 MiB, and of 64 KiB
    local how one=${3:-}
    for how in '1 1' '1 4' '4 1'; do
        [[ -z $one || $how != '1 1' ]] || continue
        # shellcheck disable=SC2086 # two words
        tell "fault delay_us=$delay ${2:-}" ${one:+"fault $(one_of $how) $one"}
        # shellcheck disable=SC2086
        stream $how "$1" && stream $how "$1" -b 65536 -w 4
    done
}
# one_of PATHS ROUTES: the third of them, as the switch knows it.
one_of() { ((${1} == 1)) && echo route=2 || echo sport=49155; }
goodput() {
    local how
    streams none
    streams 'loss of 0.1 %' loss=0.001
    streams 'loss of 1 %' loss=0.01
    streams '20 % on one' '' loss=0.2
    for how in '1 4' '4 1'; do
        tell "fault delay_us=$delay"
        # shellcheck disable=SC2086
        stream $how 'one is cut' -t 2000 -a 500 -c "$dir/one.in" -l "cut $(one_of $how)"
    done
}

# Eight ranks send to the ninth, whose port is shaped; shares are what the switch let out while all were sending.
incast() {
    local rank ranks=9 before after i
    ask many reset >/dev/null
    ask many "shape port=8 rate=1G queue=1M mark=64K phantom=0.95" >/dev/null
    local jobs=()
    for ((rank = 0; rank < ranks; rank++)); do
        SLUICE_RANK=$rank SLUICE_SIZE=$ranks SLUICE_JOB=incast-$$-$round SLUICE_SECRET=known-to-ranks-of-this-run \
            SLUICE_ROOT=127.0.0.1:7725 SLUICE_TRANSPORT=dpdk SLUICE_DPDK_TARGET_US=1000 SLUICE_DPDK_PORTS=$(port many "$rank") \
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

# A message of 8 bytes from host 0 to host 1 and back: alone, while host 2 sends to host 3 (so what the processor adds is there,
# but no queue), to host 1, and beside another connection or channel of host 0.
# Once with one class in the switch, and once with two; and what frames of up to 256 bytes waited for the wire of host 1's port, by the
# switch's own times, in which the processor has no part.
short() {
    local classes
    for classes in 1 2; do
        tell "fault delay_us=$delay" "shape high=$( ((classes == 2)) && echo 20 || echo none)" reset
        timeout 60 taskset -c "$host_core" "$hosts" -n 1000 short "$(ports one 4)" 2>>"$out/log" | grep -v 'warm up' |
            sed "s/^{/{\"classes\": $classes, /" >>"$out/rows.jsonl" || echo "round $round: short messages failed (see $out/log)" >&2
        ask one stats | python3 -c 'import json, sys
port = json.load(sys.stdin)["ports"][1]
print(json.dumps({"classes": int(sys.argv[1]), "what": "short frames in the switch", "wire": "switch",
                  "wait_mean_us": round(port["short_wait_ns_sum"] / max(1, port["short_frames"]) / 1e3, 2),
                  "wait_most_us": round(port["short_wait_ns_max"] / 1e3, 2)}))' "$classes" >>"$out/rows.jsonl"
    done
}

start_switch one 4 "$switch_core" --spin --do "shape rate=$rate queue=1M mark=64K phantom=0.95"
for ((round = 0; round < rounds; round++)); do
    [[ $only != *goodput* ]] || goodput
    [[ $only != *short* ]] || short
done
kill "${pids[0]}"
start_switch many 9 "$host_core,$switch_core"
for ((round = 0; round < rounds; round++)); do
    [[ $only != *incast* ]] || incast
done
python3 "$here/dpdk_table.py" --json "$out/table.json" "$out/rows.jsonl" | tee "$out/table.txt"
