#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whole jobs through the software switch beside a stranger, who hears all that passes and adds packets of every hostile kind to
# live ports: every element of the results is right, and the speed is stated.
# usage: net_dpdk_stranger.sh BUILD [ROUNDS]
set -uo pipefail
build=$1 rounds=${2:-3}
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
ranks=4

dir=$(mktemp -d)
pids=()
clean_up() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
    rm -rf "$dir"
}
trap clean_up EXIT

mkfifo "$dir/switch.in" "$dir/switch.out" "$dir/stranger.in" "$dir/stranger.out"
exec {switch_in}<>"$dir/switch.in" {switch_out}<>"$dir/switch.out" {stranger_in}<>"$dir/stranger.in" {stranger_out}<>"$dir/stranger.out"
# switch_says, stranger_says [LINE]: the next answer.
switch_says() {
    local answer=''
    [[ $# -eq 0 ]] || echo "$1" >&"$switch_in"
    read -rt 30 -u "$switch_out" answer
    echo "$answer"
}
stranger_says() {
    local answer=''
    [[ $# -eq 0 ]] || echo "$1" >&"$stranger_in"
    read -rt 30 -u "$stranger_out" answer
    echo "$answer"
}

"$build/testing/dpdk/sluice-dpdk-switch" --socket "$dir/sock" --ports $((ranks + 1)) --seed 1 \
    <"$dir/switch.in" >"$dir/switch.out" 2>"$dir/switch.err" &
pids+=($!)
ready=$(switch_says)
"$build/testing/dpdk/sluice-dpdk-stranger" --socket "$dir/sock" --id "$ranks" --seed 3 \
    <"$dir/stranger.in" >"$dir/stranger.out" 2>"$dir/stranger.err" &
pids+=($!)
ready+=$(stranger_says)
if [[ $ready != *ready*ready* ]]; then
    cat "$dir"/*.err >&2
    tap_case the_switch_and_the_stranger_start false
    tap_done
fi

# job OPTIONS...: an allreduce of four ranks through the switch; its figures are in $dir/json.
job() {
    SLUICE_DPDK_PORTS="net_memif0,role=client,socket=$dir/sock,id=%r@segment=sw" timeout 120 \
        "$here/../../testing/dpdk/ranks.sh" --wire mesh "$build" "$ranks" "$build/tools/bench/sluice-bench" --json "$dir/json" "$@"
}
# figure KEY: of the stranger, up to now.
figure() {
    local stats
    stats=$(stranger_says stats)
    [[ $stats =~ \"$1\":\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

# beside PERCENT OPTIONS...: a job while the stranger adds so many packets for 100; it adds each kind, and nothing is wrong.
beside() {
    local percent=$1 sent heard
    shift
    switch_says "mirror port=$ranks" >/dev/null
    stranger_says "percent $percent" >/dev/null
    sent=$(figure sent) heard=$(figure heard)
    job "$@" || { echo "the job failed"; return 1; }
    stranger_says "percent 0" >/dev/null
    sent=$(($(figure sent) - sent)) heard=$(($(figure heard) - heard))
    stranger_says forget >/dev/null
    python3 - "$dir/json" <<'END' || return 1
import json
import sys

rows = json.load(open(sys.argv[1]))["rows"]
assert rows, "no figures"
for row in rows:
    for way in "out_of_place", "in_place":
        assert row[way]["wrong"] == 0, row
END
    ((percent == 0 || sent > heard * percent / 300)) || { echo "only $sent packets beside $heard"; return 1; }
}

# all_kinds: since the stranger's start each kind was sent.
all_kinds() {
    local kind
    for kind in fields random old cut long checksum fragment vlan arp double; do
        [[ $(figure "$kind") -gt 100 ]] || { stranger_says stats; echo "hardly any '$kind'"; return 1; }
    done
}

# one_speed: bus bandwidth of 1 MiB, MB/s. Of a job that fails all that its ranks said, since the first of them to end says why.
one_speed() {
    job -b 1M -e 1M -i 30 -c 5 >"$dir/said" 2>&1 || { cat "$dir/said" >&2; return 1; }
    python3 -c 'import json, sys; print(int(1000 * json.load(open(sys.argv[1]))["rows"][0]["out_of_place"]["busbw_GBps"]))' "$dir/json"
}
# speeds: alone, heard, and with so many packets for 100, in turn; medians are stated. With a stranger and a switch that share the
# ranks' cores the ratio is of the whole machine, and the bound one of breaking down: between the best of each, since what else
# runs makes any of them slower, and at a load of 25 medians differed by more than tenfold.
speeds() {
    local round percent speed
    for ((round = 0; round < rounds; round++)); do
        switch_says mirror >/dev/null
        speed=$(one_speed) || return 1
        echo "alone $speed"
        switch_says "mirror port=$ranks" >/dev/null
        for percent in 0 10 100; do
            stranger_says "percent $percent" >/dev/null
            speed=$(one_speed) || return 1
            echo "$percent $speed"
        done
        stranger_says "percent 0" >/dev/null
    done
}
speed_is_stated() {
    speeds >"$dir/speeds" || { echo "a job failed" >&2; return 1; }
    python3 - "$dir/speeds" <<'END'
import collections
import statistics
import sys

found = collections.defaultdict(list)
for line in open(sys.argv[1]):
    which, speed = line.split()
    found[which].append(int(speed))
names = {"alone": "alone", "0": "heard by a stranger", "10": "beside 10 packets for 100", "100": "beside 100 packets for 100"}
for which, name in names.items():
    values = found[which]
    print(f"# allreduce of 1 MiB, four ranks, {name}: {statistics.median(values):.0f} MB/s ({min(values)} to {max(values)})", file=sys.stderr)
assert max(found["100"]) > max(found["alone"]) / 10, dict(found)
END
}

size=(-b 8 -e 256K -f 32 -i 20 -c 20)
tap_case a_job_that_a_stranger_hears_is_right beside 0 "${size[@]}"
for percent in 10 100 300; do
    tap_case "beside_${percent}_packets_for_100_every_element_is_right" beside "$percent" "${size[@]}"
done
tap_case every_hostile_kind_was_among_them all_kinds
speed_is_stated 2>"$dir/stated"
status=$?
cat "$dir/stated"
tap_case a_job_beside_a_stranger_does_not_break_down test "$status" = 0
tap_done
