#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts, each a namespace with an agent, files and a monotonic clock of its own, and a job of four ranks over both: what the agents say is enough to name a slow rank.
# usage: live_agents.sh INJECT_RANKS SLUICECTL SLUICED
set -uo pipefail
ranks=$1 ctl=$2 sluiced=$3
here=$(dirname "$0")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
# shellcheck source=tests/wait.sh
. "$here/../wait.sh"

dir=$(mktemp -d)
net=la$$
holders=()
cleanup() {
    local pid
    for pid in ${holders[@]+"${holders[@]}"}; do kill -KILL "$pid" 2>/dev/null; done
    wait 2>/dev/null
    ip netns del "$net-a" 2>/dev/null
    ip netns del "$net-b" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT

# host LETTER NUMBER SHIFT: its processes end with the one that the shell started. Its clock is SHIFT seconds ahead.
host() {
    local letter=$1 number=$2 shift=$3
    cat >"$dir/$letter.conf" <<CONF
[api]
socket = $dir/$letter.sock
http = 192.0.2.$number:9494
[store]
path = $dir/$letter.db
[sources]
period_ms = 200
CONF
    cat >"$dir/$letter.sh" <<SCRIPT
hostname $letter
mount -t tmpfs tmpfs /dev/shm
"$sluiced" --config "$dir/$letter.conf" >"$dir/$letter.agent" 2>&1 </dev/null &
for rank in $((2 * number - 2)) $((2 * number - 1)); do
    SLUICE_RANK=\$rank "$ranks" >"$dir/rank.\$rank" 2>"$dir/rank.\$rank.err" &
    echo \$! >"$dir/rank.\$rank.pid"
done
while read -r rank <&3; do kill -s RTMIN+1 "\$(<"$dir/rank.\$rank.pid")"; done
SCRIPT
    mkfifo "$dir/$letter.fifo"
    ip netns exec "$net-$letter" unshare --uts --ipc --mount --pid --time --monotonic "$shift" --fork --kill-child --mount-proc \
        bash "$dir/$letter.sh" 3<>"$dir/$letter.fifo" >"$dir/$letter.out" 2>&1 &
    holders+=($!)
}

begin() {
    ip netns add "$net-a" && ip netns add "$net-b" &&
        ip link add "${net}a" netns "$net-a" type veth peer name "${net}b" netns "$net-b" || return
    for letter in a b; do
        ip -n "$net-$letter" link set lo up
        ip -n "$net-$letter" link set "$net$letter" up
    done
    ip -n "$net-a" address add 192.0.2.1/24 dev "${net}a"
    ip -n "$net-b" address add 192.0.2.2/24 dev "${net}b"
    export SLUICE_ROOT=192.0.2.1:7311 SLUICE_SIZE=4 SLUICE_JOB=live-$$ INJECT_SPIN_US=500 INJECT_SLEEP_US=20000 INJECT_BYTES=16384
    host a 1 0
    host b 2 5000
}

# look STATUS ARGUMENT...: what it says is in $dir/live
look() {
    local status=$1 got=0
    shift
    ip netns exec "$net-a" timeout 40 "$ctl" diagnose --live --every 0.5 "$@" http://192.0.2.1:9494 http://192.0.2.2:9494 >"$dir/live" 2>&1 || got=$?
    cat "$dir/live" "$dir"/rank.*.err "$dir"/?.out
    [[ $got == "$status" ]]
}

all_run() { [[ $(cat "$dir"/rank.[0-3] 2>/dev/null | grep -c '^rank ') == 4 ]]; }

calls_of_both_hosts_are_told() {
    look 0 --for 8 && grep -q '^2 of 2 sources tell of 4 ranks, 3 communicators and [0-9]\{3,\} operations$' "$dir/live"
}
a_healthy_job_is_not_accused() { grep -q '^not_hung$' "$dir/live"; }
# Windows of 4 s, in which messages came over TCP, numbered by the clock of each host.
quickest_messages_are_told_by_the_hosts_own_clock() {
    local number
    for number in 1 2; do
        ip netns exec "$net-a" python3 - "http://192.0.2.$number:9494/v1/ranks" <<'PYTHON' || return
import json, sys, urllib.request
ranks = json.load(urllib.request.urlopen(sys.argv[1], timeout=10))["ranks"]
told = [(it["window"], of["window"], of["messages"], of["bytes"], of["ns"]) for it in ranks for path in it["paths"] for of in path.get("quickest", [])]
print(told)
sys.exit(not told or not all(now - 20 < window <= now and messages > 0 and size > 0 and ns > 0 for now, window, messages, size, ns in told))
PYTHON
    done >"$dir/windows"
    cat "$dir/windows"
    # b is 5,000 s ahead: 1,250 windows.
    python3 - "$dir/windows" <<'PYTHON'
import ast, sys
a, b = [ast.literal_eval(line)[0][0] for line in open(sys.argv[1])]
sys.exit(not 1250 <= b - a <= 1252)
PYTHON
}
a_slow_rank_of_the_other_host_is_named() {
    echo 2 >"$dir/b.fifo"
    look 3 --for 30 && grep -q '^slow_rank: rank 2 ' "$dir/live" && [[ $(grep -c '^[a-z_]*: ' "$dir/live") == 1 ]] &&
        grep -q 'rank 2 on b' "$dir/live"
}

cases=(calls_of_both_hosts_are_told a_healthy_job_is_not_accused quickest_messages_are_told_by_the_hosts_own_clock a_slow_rank_of_the_other_host_is_named)
if ! unshare --net --time --monotonic 1 true 2>/dev/null || ! ip netns list >/dev/null 2>&1; then
    why="namespaces of networks and clocks may not be made here"
elif [[ ! -x $sluiced ]] || ! "$ctl" --help | grep '\] status' >/dev/null; then
    why="built without the node agent, or without what asks it"
elif ! begin >"$dir/begin" 2>&1; then
    why="two namespaces cannot be joined: $(tail -n 1 "$dir/begin")"
fi
if [[ -n ${why:-} ]]; then
    for case in "${cases[@]}"; do tap_skip "$case" "$why"; done
    tap_done
    exit
fi
until_true 20 all_run
for case in "${cases[@]}"; do tap_case "$case" "$case"; done
tap_done
