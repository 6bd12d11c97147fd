#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts on one machine: every rank names its host in SLUICE_HOST_ID, so that ranks of one name share
# memory and the others speak over tcp.
# usage: bench_hosts.sh SLUICE_BENCH SOURCE_ROOT
set -uo pipefail
bench=$1 root=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/port.sh
. "$root/tests/port.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SLUICE_TUNE_DIR=$dir SLUICE_TIMEOUT_MS=30000

weights=() # of the ranks' links; 1000 where it has none
# ranks_on "HOST HOST …" OPTIONS...: one rank per word; all end well, and rank 0 finds nothing wrong.
ranks_on() {
    local hosts pids=() rank port failed=0
    read -ra hosts <<<"$1"
    shift
    port=$(free_port)
    for rank in "${!hosts[@]}"; do
        SLUICE_SIZE=${#hosts[@]} SLUICE_RANK=$rank SLUICE_ROOT=127.0.0.1:$port \
            SLUICE_HOST_ID=${hosts[rank]} SLUICE_LINK_WEIGHT=${weights[rank]:-1000} timeout 100 "$bench" -i 2 -w 1 "$@" >"$dir/$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}" || { failed=1; echo "rank $rank:"; cat "$dir/$rank"; }
    done
    ((failed == 0)) && grep -q '^# Out of bounds values : 0 OK$' "$dir/0" &&
        grep -qE "^# ranks: ${#hosts[@]} on $(printf '%s\n' "${hosts[@]}" | sort -u | wc -l) hosts" "$dir/0" ||
        { cat "$dir/0"; return 1; }
}

sizes=(-b 24 -e 600k -f 151)
for hosts in "a a b b" "a b a b b" "a b b c"; do
    name=${hosts// /}
    for coll in allreduce reduce_scatter all_gather broadcast reduce; do
        tap_case "hier_${coll}_on_hosts_$name" \
            ranks_on "$hosts" --algo hier -C "$coll" -d f32 -r all "${sizes[@]}"
    done
    for coll in broadcast reduce; do
        tap_case "hiertree_${coll}_on_hosts_$name" \
            ranks_on "$hosts" --algo hiertree -C "$coll" -d i32 -r all "${sizes[@]}"
    done
    tap_case "hiertree_small_allreduce_on_hosts_$name" \
        ranks_on "$hosts" --algo hiertree -C allreduce -d bf16 -o all -b 4 -e 4k -f 16
    tap_case "hiertree_barrier_on_hosts_$name" ranks_on "$hosts" --algo hiertree -C barrier
    tap_case "every_collective_by_the_choice_of_costs_on_hosts_$name" \
        ranks_on "$hosts" -C all -b 24 -e 40k -f 89 -m 3
done
for speeds in "1000 875 1000 1000" "1000 1000 500 700" "500 1000 1000"; do
    read -ra weights <<<"$speeds"
    hosts="a b c d"
    hosts=${hosts:0:2*${#weights[@]}-1}
    name=${speeds// /_}
    for coll in allreduce reduce_scatter all_gather; do
        tap_case "weighted_${coll}_with_links_of_$name" \
            ranks_on "$hosts" --algo weighted -C "$coll" -d f32 "${sizes[@]}"
    done
    tap_case "weighted_averages_with_links_of_$name" \
        ranks_on "$hosts" --algo weighted -C allreduce -d bf16 -o avg -b 2 -e 40k -f 89
done
# chosen ALGO OPTIONS...: what 64 MiB on four hosts take by built-in costs, and why.
chosen() {
    local algo=$1 rank pids=() port
    shift
    port=$(free_port)
    for rank in 0 1 2 3; do
        SLUICE_SIZE=4 SLUICE_RANK=$rank SLUICE_ROOT=127.0.0.1:$port SLUICE_HOST_ID=$rank SLUICE_TUNE=off \
            SLUICE_LINK_WEIGHT=${weights[rank]:-1000} timeout 60 "$bench" --explain -C allreduce -b 64M -e 64M \
            >"$dir/$rank" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}"
    grep -q "4 hosts: $algo (predicted fastest)" "$dir/0" && grep -q -- "$1" "$dir/0" ||
        { cat "$dir/0"; return 1; }
}
weights=(1000 1000 500 1000)
tap_case links_that_differ_are_weighted chosen weighted "slowest rank's deliver 0.500 of the fastest's, all together 3.500"
weights=()
tap_case links_that_are_alike_are_not chosen '[^w][a-z]*' 'weighted .*only for links that differ'
# many RANKS HOSTS: started by -n; every collective ends well.
many() {
    "$bench" -n "$1" --hosts "$2" -C allreduce,barrier,broadcast -b 8 -e 8 -i 2 -w 1 >"$dir/many" 2>&1 &&
        grep -q "^# ranks: $1 on $2 hosts" "$dir/many" &&
        grep -q '^# Out of bounds values : 0 OK$' "$dir/many" || { cat "$dir/many"; return 1; }
}
tap_case a_hundred_ranks_on_eight_pretended_hosts many 100 8
tap_done
