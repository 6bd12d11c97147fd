#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The software switch of the DPDK transport's tests, with memif clients that exchange raw frames through it: no root, no
# hugepages.
# usage: net_dpdk_switch.sh sluice-dpdk-switch bench_dpdk_raw
set -uo pipefail
switch=$1 raw=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"

dir=$(mktemp -d)
pid=
clean_up() {
    [[ -z $pid ]] || kill -9 "$pid" 2>/dev/null
    rm -rf "$dir"
}
trap clean_up EXIT

mkfifo "$dir/in" "$dir/out"
exec {in}<>"$dir/in" {out}<>"$dir/out"
"$switch" --socket "$dir/sock" --ports 3 --seed 5 <"$dir/in" >"$dir/out" 2>"$dir/err" {in}<&- {out}<&- &
pid=$!
# answer SECONDS: the next line of the switch.
answer() {
    local line=''
    read -rt "$1" -u "$out" line
    echo "$line"
}
if [[ $(answer 30) != *'"ready": true'* ]]; then
    cat "$dir/err"
    tap_case the_switch_starts_without_root_and_hugepages false
    tap_done
fi

# ask LINE: prints what is answered.
ask() {
    echo "$1" >&"$in"
    answer 20
}
# count PORT NAME
count() {
    local stats
    stats=$(ask stats)
    [[ $stats =~ \"port\":\ $1,[^}]*\"$2\":\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}
exchange() { "$raw" --rounds 1 --ms 30 --switch "$dir/sock" --json "$dir/json" switch; }
# arrived: largest throughput of the last exchange, Gbit/s.
arrived() {
    python3 - "$dir/json" <<'END2'
import json
import sys
print(max(row.get("gbit", 0) for row in map(json.loads, open(sys.argv[1]))))
END2
}

passes_frames() {
    exchange && [[ $(arrived) != 0.0 ]] && [[ $(count 1 in_frames) -gt 0 && $(count 1 out_bytes) -gt 0 ]] || return 1
    echo "port 2 got $(count 2 out_bytes) bytes, port 1 $(count 1 out_bytes)"
    # Addresses are learned: once port 1 was heard, what is for it is not flooded.
    (($(count 2 out_bytes) < 1500))
}
cuts_and_heals() {
    [[ $(ask 'cut port=1') == '{"ok": true}' ]] || return 1
    exchange && [[ $(arrived) == 0.0 ]] && [[ $(count 1 lost) -gt 0 ]] || return 1
    [[ $(ask heal) == '{"ok": true}' ]] # the next cases see that it is
}
refuses() {
    # shellcheck disable=SC1003 # a backslash, as it is
    [[ $(ask 'fault loss=2') == *'fault does not take'* ]] &&
        [[ $(ask 'what "is" this\') == '{"error": '*'no command of the switch'* ]] &&
        ask 'what "is" this\' | python3 -c 'import json, sys; json.load(sys.stdin)'
}
shapes() {
    ask 'shape port=1 rate=200M queue=256K mark=64K' >/dev/null
    ask reset >/dev/null
    exchange || return 1
    echo "$(arrived) Gbit/s of 0.2, $(count 1 queue_full) did not fit, $(count 1 marked) were marked"
    # Of a measurement of 30 ms, the queue gives 10 ms more; and time counts at the receiver.
    awk -v got="$(arrived)" 'BEGIN { exit !(got > 0.02 && got < 0.4) }' || return 1
    [[ $(count 1 queue_full) -gt 0 && $(count 1 marked) -gt 0 && $(count 1 queue_bytes_max) -le 262144 ]] || return 1
    ask 'shape port=1 rate=0' >/dev/null
}
# A client is killed while frames are under way, and the port serves the next one.
survives() {
    "$raw" --rounds 1 --ms 2000 --switch "$dir/sock" switch >/dev/null 2>&1 &
    local bench=$! before
    before=$(count 0 in_bytes)
    flows() { (($(count 0 in_bytes) > before + 100000)) || gone "$bench"; }
    until_true 20 flows
    pkill -9 -P "$bench"
    wait "$bench"
    [[ $? -eq 1 ]] || return 1
    ! gone "$pid" && exchange && [[ $(arrived) != 0.0 ]]
}
# The shell between is the parent that dies.
ends_with_its_parent() {
    local shell
    sh -c '"$1" --socket "$2/sock2" --ports 1 <"$2/in" >"$2/out2" 2>&1 & echo $! >"$2/pid2"; wait' sh "$switch" "$dir" &
    shell=$!
    is_ready2() { grep -q ready "$dir/out2" 2>/dev/null; }
    until_true 30 is_ready2 || return 1
    pid=$(<"$dir/pid2")
    kill -9 "$shell"
    until_true 10 gone "$pid" || return 1
    pid=
}

tap_case frames_pass_to_the_port_of_their_address passes_frames
tap_case a_cut_port_passes_nothing_until_it_is_healed cuts_and_heals
tap_case a_line_that_is_wrong_is_answered_with_json refuses
tap_case a_shaped_port_passes_its_rate_marks_and_loses_the_rest shapes
tap_case the_death_of_a_client_ends_neither_the_switch_nor_its_port survives
# tap_case runs in a subshell: what it ends is waited for here.
tap_case it_ends_with_its_parent ends_with_its_parent
kill "$pid"
wait "$pid"
status=$?
pid=
tap_case it_ends_by_sigterm_and_takes_its_socket_away test "$status" -eq 0 -a ! -e "$dir/sock"
tap_done
