#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluiced beside real ranks on this machine: who is stopped, starved, throttled or killed is told, with the right number and rank, and nobody else.
# usage: ranks.sh SLUICED SLUICE_BENCH
set -uo pipefail
sluiced=$1 bench=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"
# shellcheck source=tests/unit/monitor/only.sh
. "$(dirname "$0")/only.sh"

dir=$(mktemp -d)
agent='' job='' group='' hogs=()
cleanup() {
    local pid
    [[ -z $job ]] || for pid in $(ranks) "$job"; do kill -KILL "$pid" 2>/dev/null; done
    for pid in ${hogs[@]+"${hogs[@]}"} $agent; do kill -KILL "$pid" 2>/dev/null; done
    wait 2>/dev/null
    [[ -z $group ]] || rmdir "$group" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT

cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/sluice.prom
[sources]
period_ms = 500
$(sources_off "$sluiced" ranks sluice)
END

# until_true SECONDS COMMAND...
until_true() {
    local i limit=$(($1 * 20))
    shift
    for ((i = 0; i < limit; i++)); do
        "$@" && return
        sleep 0.05
    done
    echo "not within its time: $*"
    cat "$dir/events" "$dir/err"
    return 1
}

# Ranks of this test's own run; the machine may have others.
ranks() { pgrep -P "$job"; }

# The process of that rank, by its state page.
rank() {
    local pid
    for pid in $(ranks); do
        "$bench" --status "$pid" 2>/dev/null | grep -q "rank $1 of 2" && echo "$pid" && return
    done
    return 1
}

# told CHECK PID STATE: a line of that.
told() { grep -q "\"subject\":\"pid $2\",\"check\":\"$1\".*\"to\":\"$3\"" "$dir/events"; }

watched() { grep -q '^sluice_ranks{how="state page"} [1-9]' "$dir/sluice.prom" 2>/dev/null; }
have_pages() { [[ -n $(rank 0) && -n $(rank 1) ]]; }

# Spins as little as it may: the operations are short and far apart.
begin() {
    "$bench" -n 2 -t tcp -b 64k -e 64k --compute 2000 --budget 100 >"$dir/bench" 2>&1 &
    job=$!
    until_true 20 have_pages || { cat "$dir/bench"; return 1; }
    first=$(rank 0) second=$(rank 1)
    "$sluiced" --config "$dir/conf" 2>"$dir/err" &
    agent=$!
    until_true 10 watched
}

nobody_is_accused_who_is_well() {
    sleep 3
    # Where others keep this machine busy ranks do starve, and are told to.
    ! grep -E "\"subject\":\"pid ($first|$second)\"" "$dir/events" | grep -v '"check":"starved"'
}

a_rank_that_is_stopped_is_told_within_two_seconds() {
    kill -STOP "$second" && until_true 2 told stopped "$second" bad && kill -CONT "$second" || return
    grep "\"subject\":\"pid $second\",\"check\":\"stopped\"" "$dir/events" | grep -q '"text":"rank 1 of 2, job .* (sluice-bench): the process is stopped by a signal"' ||
        { cat "$dir/events"; return 1; }
    ! told stopped "$first" bad && until_true 3 told stopped "$second" recovering
}

a_rank_whose_processor_others_have_is_starved() {
    local i cpu
    cpu=$(taskset -pc "$first" | sed 's/.*: //; s/[,-].*//')
    taskset -apc "$cpu" "$first" >/dev/null || return
    for i in 1 2 3; do
        taskset -c "$cpu" bash -c 'while :; do :; done' &
        hogs+=($!)
    done
    until_true 8 told starved "$first" bad || i=
    kill -KILL "${hogs[@]}"
    wait "${hogs[@]}" 2>/dev/null
    hogs=()
    [[ -n $i ]] && ! told throttled "$first" bad
}

# make_group: a cgroup of either version with a quota so small that a busy machine does not keep its rank from it.
make_group() {
    local name=sluice-test-$$
    if [[ -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us || -e /sys/fs/cgroup/cpu/cgroup.procs ]]; then
        group=/sys/fs/cgroup/cpu/$name
        mkdir "$group" 2>/dev/null && echo 3000 >"$group/cpu.cfs_quota_us"
    elif grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
        group=/sys/fs/cgroup/$name
        mkdir "$group" 2>/dev/null && echo '3000 100000' >"$group/cpu.max"
    else
        return 1
    fi
}

a_rank_that_its_quota_stops_is_throttled() {
    local status=0
    echo "$second" >"$group/cgroup.procs" || return
    until_true 8 told throttled "$second" bad || status=1
    echo "$second" >"${group%/*}/cgroup.procs"
    [[ $status -eq 0 ]] && ! told throttled "$first" bad
}

a_rank_that_is_killed_is_told_with_what_it_did() {
    kill -KILL "$second" && until_true 2 told died "$second" bad || return
    grep "\"subject\":\"pid $second\",\"check\":\"died\"" "$dir/events" |
        grep -q '"text":"rank 1 of 2, job .* (sluice-bench) ended without a goodbye; ' || { cat "$dir/events"; return 1; }
    ! told died "$first" bad
}

names="nobody_is_accused_who_is_well a_rank_that_is_stopped_is_told_within_two_seconds a_rank_whose_processor_others_have_is_starved
    a_rank_that_its_quota_stops_is_throttled a_rank_that_is_killed_is_told_with_what_it_did"
command -v pgrep >/dev/null && command -v taskset >/dev/null || tap_skip_all "needs pgrep and taskset (procps, util-linux)"
if ! begin; then
    for name in $names; do tap_case "$name" false; done
    tap_done
fi
for name in $names; do
    if [[ $name == *throttled ]] && ! make_group; then
        tap_skip "$name" "no CPU cgroup can be made here"
    else
        tap_case "$name" "$name"
    fi
done
tap_done
