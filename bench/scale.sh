#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How a job starts by its number of ranks, all on this machine: seconds until every rank is connected and rank 0 says
# so, memory of a rank (resident; of that its own, and shared memory that it has touched) and open sockets of rank 0.
# usage: bench/scale.sh SLUICE_BENCH "RANKS ..." [OPTIONS OF SLUICE-BENCH...]
set -uo pipefail
bench=$1 counts=$2
shift 2
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# memory PID...: kilobytes of them all: resident, of that their own, and shared memory.
memory() {
    local files=()
    for pid in "$@"; do
        [[ -r /proc/$pid/status ]] && files+=("/proc/$pid/status")
    done
    awk '{ kib[$1] += $2 } END { print kib["VmRSS:"] + 0, kib["RssAnon:"] + 0, kib["RssShmem:"] + 0 }' "${files[@]}"
}

printf '%6s %8s %8s %8s %8s %8s\n' ranks start_s rss_KiB own_KiB shm_KiB sockets
for n in $counts; do
    : >"$out"
    began=$(date +%s%N)
    stdbuf -oL "$bench" -n "$n" "$@" -C barrier --budget 10 >"$out" 2>&1 &
    pid=$!
    until grep -q '^# ranks:' "$out" || ! kill -0 "$pid" 2>/dev/null; do
        sleep 0.02
    done
    took=$(($(date +%s%N) - began))
    read -ra ranks < <(cat "/proc/$pid/task/"*/children | tr "\n" " ")
    read -r rss own shm < <(memory "${ranks[@]}")
    sockets=$(find "/proc/${ranks[0]:-$pid}/fd" -lname 'socket:*' 2>/dev/null | wc -l)
    wait "$pid" || { echo "$n ranks failed:"; tail -5 "$out"; }
    printf '%6d %8.2f %8d %8d %8d %8d\n' "$n" "$(awk -v t="$took" 'BEGIN { print t / 1e9 }')" $((rss / n)) \
        $((own / n)) $((shm / n)) "$sockets"
done
