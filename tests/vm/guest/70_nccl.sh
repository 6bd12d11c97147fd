#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# NCCL's network plugin over two soft-RoCE rails, under the conformance driver: as it behaves in peace, and while rails
# die and return in the middle of transfers, with no request failing and every byte right.
# usage: 70_nccl.sh BUILD
# limit: 1500 s
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info SLUICE_VERBS_LAZY=off
dir=$(mktemp -d)
api=11
# shellcheck disable=SC2054 # a list of devices
driver=("$build/tools/nccl-driver/nccl_driver" --place processes --call-ms 20000 --deadline-ms 60000
    --env 0:SLUICE_VERBS_DEVICES=rxe0,rxe2 --env 0:SLUICE_HOST_ID=side-0
    --env 1:SLUICE_VERBS_DEVICES=rxe1,rxe3 --env 1:SLUICE_HOST_ID=side-1)
plugin=$build/tools/nccl/libnccl-net-sluice.so

packets() {
    local count
    read -r count <"/sys/class/net/$1/statistics/rx_packets" && echo "$count"
}

# behaves CASES...: and what they carried has crossed the rails.
behaves() {
    local before name
    before=$(packets b0)
    for name in "$@"; do
        timeout -k 5 300 "${driver[@]}" --api "$api" --case "$name" "$plugin" || return
    done
    (($(packets b0) - before > 100)) || { echo "nothing has crossed rail A"; return 1; }
}

# Sizes, groups, aborts: what tables of other versions could have wrong.
older_and_newer() {
    local api=12,10,9,8,6
    behaves 'windows*' 'group*' 'zero*' 'sends_are_cut*' 'abort*'
}

# rounds: how many the slower rank has told of.
rounds() {
    local a b
    a=$(grep -c 'of rank 0' "$dir/out") b=$(grep -c 'of rank 1' "$dir/out")
    echo $((a < b ? a : b))
}

more_than() { (($(rounds) > $1)); }

# go_on COUNT: so many more rounds, as long as it runs.
go_on() {
    local want=$(($(rounds) + $1)) deadline=$((SECONDS + 90))
    until more_than "$want"; do
        kill -0 "$pid" 2>/dev/null || { echo "it has ended"; return 1; }
        ((SECONDS < deadline)) || { echo "only $(rounds) rounds, not $want"; return 1; }
        pause 0.1
    done
}

begin() {
    rm -f "$dir/stop"
    timeout -k 5 500 "${driver[@]}" --api "$api" --verbose --case traffic_goes_on_until_told --until "$dir/stop" "$plugin" \
        >"$dir/out" 2>&1 &
    pid=$!
    go_on 1
}

finish() {
    touch "$dir/stop"
    wait "$pid"
}

# while_broken COMMAND...: traffic, meanwhile the faults, and the end of it.
while_broken() {
    begin && "$@" && finish && return
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    tail -n 60 "$dir/out"
    return 1
}

told() { grep -qE -- "$1" "$dir/out"; }

a_rail_dies() {
    local before
    rail_down A && until_true 60 told 'is down: .*; 1 of 2 left' && go_on 3 && rail_up A && go_on 2 || return
    before=$(packets b0)
    used() { go_on 1 && (($(packets b0) - before > 100)); }
    until_true 60 used || { echo "rail A is not used again"; return 1; }
}

each_rail_dies_in_turn() {
    rail_down A && go_on 2 && rail_up A && go_on 3 && rail_down B && go_on 2 && rail_up B && go_on 1
}

both_rails_are_gone_for_a_while() {
    rail_down A && rail_down B || return
    sleep 2 # how long the fault lasts
    rail_up A && rail_up B && go_on 2
}

packets_are_lost() {
    rail_loss A 2% && rail_loss B 2% && go_on 3 && rail_clean A && rail_clean B && go_on 1
}

# The acknowledges of rail A are lost once the receiver has posted: its requests are done, the sender's wait.
a_receiver_rests() {
    rm -f "$dir/stop"
    timeout -k 5 300 "${driver[@]}" --api "$api" --verbose --case sends_end_though_the_receiver_rests \
        --until "$dir/stop" "$plugin" >"$dir/out" 2>&1 &
    pid=$!
    if until_true 60 told 'the receives are posted' && drop_opcode A 0x11 && finish && (($(dropped A) > 0)) &&
        told 'is down: .*; 1 of 2 left'; then
        clear_faults
        return
    fi
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    tail -n 60 "$dir/out"
    clear_faults
    return 1
}

# held CASE: what the devices hold while the connections of that case are there, by the kernel: a line for each.
held() {
    rm -f "$dir/stop"
    timeout -k 5 200 "${driver[@]}" --api "$api" --case "connections_of_$1_stay" --until "$dir/stop" "$plugin" \
        >"$dir/out" 2>&1 &
    pid=$!
    both_there() { (($(grep -c 'the connections of rank' "$dir/out") == 2)); }
    if until_true 100 both_there; then
        rdma resource show | grep -E '^[0-9]+: rxe' >"$dir/$1"
        finish && return
    fi
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    tail -n 30 "$dir/out"
    return 1
}

# Queue pairs, registrations (so staging) and the rest.
contexts_share_a_device() {
    held one_context && held eight_contexts || return
    cat "$dir/one_context"
    diff "$dir/one_context" "$dir/eight_contexts"
}

killed_peer() {
    timeout -k 5 200 "${driver[@]}" --api "$api" --fault-ms 60000 --case a_killed_peer_ends_every_request "$plugin"
}

tap_case windows_groups_and_odd_sizes_are_carried behaves 'windows*' 'group*' 'zero*' 'sends_are_cut*'
tap_case aborts_leave_memory_alone behaves 'abort*' 'a_stalled*'
tap_case every_other_version_behaves_as_well older_and_newer
tap_case a_sender_may_close_at_once behaves 'what_is_sent*'
tap_case eight_contexts_hold_what_one_holds contexts_share_a_device
tap_case a_killed_peer_ends_every_request killed_peer
tap_case sends_end_though_the_receiver_rests a_receiver_rests
tap_case a_rail_that_dies_and_returns_fails_no_request while_broken a_rail_dies
tap_case each_rail_may_die_in_its_turn while_broken each_rail_dies_in_turn
tap_case requests_wait_while_there_is_no_rail while_broken both_rails_are_gone_for_a_while
tap_case lost_packets_damage_nothing while_broken packets_are_lost
rm -rf "$dir"
tap_done
