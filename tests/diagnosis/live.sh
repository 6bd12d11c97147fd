#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Live diagnosis beside real ranks of this machine: who is stopped, killed, sleeps, or calls something else is named within 5 s of the threshold.
# usage: live.sh LIVE_RANKS SLUICECTL SLUICED SOURCE_ROOT
set -uo pipefail
ranks=$1 ctl=$2 sluiced=$3 corpus=$4/tests/fuzz/corpus
here=$(dirname "$0")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
# shellcheck source=tests/port.sh
. "$here/../port.sh"

stall=1
dir=$(mktemp -d)
declare -A job=()
servers=()
cleanup() {
    local name pid
    for name in "${!job[@]}"; do
        while read -r pid; do
            kill -KILL "$pid" 2>/dev/null
            rm -f /dev/shm/sluice.*."$pid".*
        done < <(sed -n 's/^rank [0-9]* pid \([0-9]*\)$/\1/p' "$dir/$name.ranks")
        kill -KILL "${job[$name]}" 2>/dev/null
    done
    for pid in ${servers[@]+"${servers[@]}"}; do kill -KILL "$pid" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT

# begin FAULT OPTIONS...: a job of four ranks, the third of which has that fault, and a diagnosis beside it
begin() {
    local fault=$1 port
    shift
    port=$(free_port)
    SLUICE_ROOT=127.0.0.1:$port SLUICE_JOB=live-$$-$fault SLUICE_ALGO=all_gather:ring SLUICE_TRANSPORT=${transport[$fault]:-shm} "$ranks" 4 "$fault" 2 >"$dir/$fault.ranks" 2>"$dir/$fault.err" &
    job[$fault]=$!
    {
        until grep -q '^fault\|^step 20' "$dir/$fault.ranks"; do sleep 0.05; done
        "$ctl" diagnose --live --stall "$stall" --every 0.5 --job "live-$$-$fault" "$@" >"$dir/$fault.out" 2>"$dir/$fault.said"
        echo "$? $(date +%s.%N)" >"$dir/$fault.end"
    } &
}

# ended FAULT STATUS LINE: it ended with that status, within the threshold and 5 s of the fault, and says that line
ended() {
    local status at fault
    for _ in {1..400}; do [[ ! -s $dir/$1.end ]] || break; sleep 0.05; done
    read -r status at <"$dir/$1.end"
    cat "$dir/$1.out" "$dir/$1.said" "$dir/$1.ranks"
    fault=$(sed -n 's/^fault .* at //p' "$dir/$1.ranks")
    [[ $status == "$2" ]] && grep -q "$3" "$dir/$1.out" || return
    [[ -z $fault ]] || python3 -c "
after = $at - $fault
print('named %.2f s after the fault' % after)
assert after < $stall + 5"
}

a_stopped_rank_is_named() { ended stop 3 '^host_stalled: rank 2 ' && grep -q 'is stopped by a signal' "$dir/stop.out"; }
a_killed_rank_is_named() { ended kill 3 '^dead: rank 2 '; }
a_rank_that_sleeps_is_named() { ended sleep 3 '^host_stalled: rank 2 ' && grep -q 'has not called all_reduce [0-9]* of' "$dir/sleep.out"; }
# In the middle of a ring: those behind it wait for what it has not passed on, and some have ended it.
a_rank_that_stops_within_a_ring_is_named_alone() {
    ended within-60 3 '^host_stalled: rank 2 ' && [[ $(grep -c '^[a-z_]*: ' "$dir/within-60.out") == 1 ]]
}
another_call_is_named() { ended other 3 '^mismatch: the program' && grep -q 'rank 2 .* called broadcast \([0-9]*\) .* called all_reduce \1 ' "$dir/other.out"; }
a_healthy_job_is_not_accused() { ended none 0 '^not_hung$'; }

# serve HOW: RAS, whose port is in $dir/HOW. Not in a case, whose shell ends with it.
serve() {
    python3 "$here/ras_server.py" "$corpus/diagnosis_ras/behind" "$1" "$dir/$1" >/dev/null 2>&1 </dev/null &
    servers+=($!)
}

# live STATUS ARGUMENT...: what it says is in $dir/live
live() {
    local status=$1 got=0
    shift
    timeout 20 "$ctl" diagnose --live --every 0.5 "$@" >"$dir/live" 2>&1 || got=$?
    cat "$dir/live"
    [[ $got == "$status" ]]
}

ras_is_asked_over_its_socket() {
    live 3 --stall 1.5 "ras:127.0.0.1:$(<"$dir/answer")" && grep -q '^host_stalled: rank 2 (host 10.0.0.2), 98 %' "$dir/live"
}

# Two in one list: the other one is heard.
a_silent_source_is_named_and_holds_up_nobody() {
    printf '# all of them\nras:127.0.0.1:%s\n  ras:[127.0.0.1]:%s\n' "$(<"$dir/silent")" "$(<"$dir/answer")" >"$dir/list"
    live 3 --stall 1 --wait 0.4 "@$dir/list" && grep -q "^sluicectl: ras:127.0.0.1:$(<"$dir/silent"): " "$dir/live" &&
        grep -q '^host_stalled: rank 2 ' "$dir/live"
}

# Where a rank is stopped NCCL leaves requests without an answer, or answers late: looks ask anew, and the next one takes what comes.
a_late_source_is_waited_for() {
    live 3 --stall 1 --wait 0.4 "ras:127.0.0.1:$(<"$dir/late")" && grep -q '^host_stalled: rank 2 ' "$dir/live" && grep -q 'no answer within 0.4 s; NCCL waits' "$dir/live"
}

# The agent reads the pages, and the diagnosis knows nothing but its answer.
an_agent_is_asked() {
    live 3 --stall "$stall" --job "live-$$-sleep" "agent:$dir/api.sock" && grep -q '^host_stalled: rank 2 ' "$dir/live"
}

what_is_no_source_is_refused() {
    local status=0
    "$ctl" diagnose --live nonsense 2>"$dir/err" || status=$?
    [[ $status == 2 ]] && grep -q 'nonsense is no source: host, ras' "$dir/err" || return
    status=0
    "$ctl" diagnose --live --every x 2>"$dir/err" || status=$?
    [[ $status == 2 ]] && grep -q '^usage: sluicectl diagnose --live' "$dir/err" || return
    status=0
    "$ctl" diagnose --live --wait 0.5 ras:127.0.0.1:1 2>"$dir/err" || status=$?
    [[ $status == 1 ]] && grep -q 'no source answers' "$dir/err"
}

declare -A transport=([kill]=tcp [sleep]=tcp [within-60]=tcp)
for fault in stop kill sleep other within-60; do begin $fault; done
begin none --for 3
for how in answer silent late; do serve $how; done
if [[ -n $sluiced ]]; then
    printf '[api]\nsocket = %s\n[store]\npath = %s\n[sources]\nperiod_ms = 200\n' "$dir/api.sock" "$dir/state.db" >"$dir/conf"
    "$sluiced" --config "$dir/conf" >"$dir/agent" 2>&1 </dev/null &
    servers+=($!)
fi
for file in "$dir"/{answer,silent,late}; do
    for _ in {1..200}; do [[ ! -s $file ]] || break; sleep 0.05; done
done
tap_case a_stopped_rank_is_named a_stopped_rank_is_named
tap_case a_killed_rank_is_named a_killed_rank_is_named
tap_case a_rank_that_sleeps_is_named a_rank_that_sleeps_is_named
tap_case a_rank_that_stops_within_a_ring_is_named_alone a_rank_that_stops_within_a_ring_is_named_alone
tap_case another_call_is_named another_call_is_named
tap_case a_healthy_job_is_not_accused a_healthy_job_is_not_accused
tap_case ras_is_asked_over_its_socket ras_is_asked_over_its_socket
tap_case a_silent_source_is_named_and_holds_up_nobody a_silent_source_is_named_and_holds_up_nobody
tap_case a_late_source_is_waited_for a_late_source_is_waited_for
if [[ -n $sluiced && -x $sluiced ]] && "$ctl" --help | grep '\] status' >/dev/null; then
    tap_case an_agent_is_asked an_agent_is_asked
else
    tap_skip an_agent_is_asked "built without the node agent, or without what asks it"
fi
tap_case what_is_no_source_is_refused what_is_no_source_is_refused
tap_done
