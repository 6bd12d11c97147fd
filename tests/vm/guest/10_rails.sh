#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The test bed itself: two rails that carry what they should and nothing else, and faults that do what their
# names say. What later tests conclude rests on this.
# usage: 10_rails.sh BUILD
# limit: 900 s
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"
# shellcheck source=tests/vm/tools.sh
. "$here/../tools.sh"

packets() {
    local count
    read -r count <"/sys/class/net/$1/statistics/rx_packets" && echo "$count"
}

devices_are_active() {
    local i
    for i in 0 1 2 3; do
        port_state "$i" ACTIVE && gid_present "$i" && [[ $(gid_index "$i") -gt 0 ]] || return
        ibv_devinfo -d "rxe$i" | grep -q 'active_mtu:.*4096' || { echo "rxe$i: the MTU is not 4096"; return 1; }
    done
}

# crosses I J BRIDGE_PORT OTHER_PORT: 100 exchanges are 200 packets at least, at the rail's port only.
crosses() {
    local before other
    before=$(packets "$3") other=$(packets "$4")
    pingpong "$1" "$2" -n 100 -c || return
    (($(packets "$3") - before >= 100)) || { echo "$3 saw $(($(packets "$3") - before)) packets"; return 1; }
    (($(packets "$4") - other < 50)) || { echo "$4 saw $(($(packets "$4") - other)) packets"; return 1; }
}

stays_inside() {
    local before
    before=$(packets b0)
    pingpong 0 0 -n 100 || return
    (($(packets b0) - before < 50)) || { echo "b0 saw $(($(packets b0) - before)) packets"; return 1; }
}

no_way_between_rails() {
    ! pingpong 0 3 -n 1
}

# The queue pairs of ibv_rc_pingpong retry for ever on rxe, so it must go on once the rail is clean.
everything_lost() {
    local pid sent received
    rail_loss A 100% || return
    sent=$(counter 0 sent_pkts) received=$(counter 1 rcvd_pkts)
    pingpong 0 1 -n 10 &
    pid=$!
    resent() { (($(counter 0 sent_pkts) - sent >= 3)); }
    until_true 40 resent || return
    (($(counter 1 rcvd_pkts) == received)) || { echo "something has arrived"; return 1; }
    kill -0 "$pid" || { echo "the exchange has ended"; return 1; }
    pingpong 2 3 -n 10 || { echo "rail B is not clean"; return 1; }
    rail_clean A && wait "$pid"
}

# rises I COUNTER COMMAND...: the command passes, and leaves its trace.
rises() {
    local i=$1 name=$2 before
    shift 2
    before=$(counter "$i" "$name")
    "$@" || return
    (($(counter "$i" "$name") > before)) || { echo "$name of rxe$i is still $before"; return 1; }
}

# Which packets suffer is chance, and the last of a burst leave no gap: another burst then.
some_burst_leaves_a_gap() {
    local burst
    for burst in 1 2 3 4; do
        rises 1 out_of_seq_request pingpong 0 1 -n 10 -s 65536 -c && return
        echo "burst $burst left no gap"
    done
    return 1
}

some_lost() {
    rail_loss A 10% && some_burst_leaves_a_gap
}

delayed() {
    local start
    rail_delay A 20ms || return
    start=${EPOCHREALTIME/./}
    pingpong 0 1 -n 5 || return
    ((${EPOCHREALTIME/./} - start >= 200000)) || { echo "five round trips in less than 200 ms"; return 1; }
}

duplicated() {
    rail_netem B duplicate 100% && rises 3 duplicate_request pingpong 2 3 -n 50 -c
}

# One packet in twenty comes later than those behind it.
reordered() {
    rail_netem B delay 1ms reorder 95% && rises 3 out_of_seq_request pingpong 2 3 -n 20 -s 65536 -c
}

corrupted() {
    rail_netem A corrupt 10% && some_burst_leaves_a_gap
}

carrier_lost() {
    rail_down A || return
    ibv_devinfo -d rxe0 | grep -q PORT_DOWN && ibv_devinfo -d rxe1 | grep -q PORT_DOWN || return
    port_state 2 ACTIVE && port_state 3 ACTIVE && pingpong 2 3 -n 10 || return
    rail_up A && ibv_devinfo -d rxe0 | grep -q PORT_ACTIVE && pingpong 0 1 -n 10 || return
    rail_down B b && ibv_devinfo -d rxe3 | grep -q PORT_DOWN && port_state 2 ACTIVE
}

# asyncwatch prints at once only on a line-buffered output.
port_events() {
    local log pid
    log=$(mktemp)
    stdbuf -oL ibv_asyncwatch -d rxe2 >"$log" 2>&1 &
    pid=$!
    until_true 20 grep -q rxe2 "$log" && rail_down B && until_true 20 grep -q PORT_ERR "$log" &&
        rail_up B && until_true 20 grep -q PORT_ACTIVE "$log"
    local status=$?
    cat "$log"
    kill "$pid"
    return "$status"
}

gid_gone() {
    gid_remove rxe1 && ! ibv_devinfo -v -d rxe1 | grep -q 192.0.2.2 || return
    gid_present 0 && gid_present 3 && gid_add rxe1 && ibv_devinfo -v -d rxe1 | grep -q 192.0.2.2 || return
    pingpong 0 1 -n 10 && pingpong 1 0 -n 10
}

# 0x11: acknowledge; 0x04: a message's only packet; 0x06: the first of a write, which none is here.
opcodes_lost() {
    drop_opcode A 0x11 first 3 && drop_opcode A 0x06 && [[ $(dropped A) -eq 0 ]] || return
    pingpong 0 1 -n 20 -s 1024 -c || return
    [[ $(dropped A) -eq 3 ]] || { echo "$(dropped A) acknowledges were dropped, not 3"; return 1; }
    drop_opcode A 0x04 chance 20% && pingpong 0 1 -n 20 -s 1024 -c || return
    (($(dropped A) > 3)) || { echo "nothing was dropped by chance"; return 1; }
    pingpong 2 3 -n 10
}

all_clear() {
    rail_loss A 100% && rail_delay B 50ms && drop_opcode B 0x04 && rail_down A a && gid_remove rxe2 || return
    clear_faults || return
    [[ $(tc qdisc show | grep -c netem) -eq 0 ]] || { echo "netem is left"; return 1; }
    devices_are_active && pingpong 0 1 -n 10 && pingpong 2 3 -n 10
}

tap_case four_devices_are_active_with_a_gid_of_their_ipv4_address devices_are_active
tap_case an_exchange_over_rail_A_crosses_its_bridge_only crosses 0 1 b0 b2
tap_case an_exchange_over_rail_B_crosses_its_bridge_only crosses 3 2 b3 b1
tap_case a_device_reaches_itself_without_the_rail stays_inside
tap_case no_way_leads_from_one_rail_to_the_other no_way_between_rails
for name in everything_lost some_lost delayed duplicated reordered corrupted carrier_lost port_events gid_gone \
    opcodes_lost; do
    case $name in
    everything_lost) case=loss_of_everything_stops_one_rail_until_it_is_clean ;;
    some_lost) case=what_is_lost_is_sent_again ;;
    delayed) case=delay_counts_both_ways ;;
    duplicated) case=duplicates_are_counted_and_harmless ;;
    reordered) case=reordering_is_counted_and_harmless ;;
    corrupted) case=damaged_packets_are_sent_again ;;
    carrier_lost) case=a_lost_carrier_is_a_port_that_is_down ;;
    port_events) case=a_lost_carrier_and_its_return_are_events ;;
    gid_gone) case=a_gid_can_go_and_return ;;
    opcodes_lost) case=packets_are_lost_by_their_opcode ;;
    esac
    tap_case "$case" "$name"
    clear_faults || echo "Bail out! faults cannot be cleared"
done
# Four ranks of which one is killed; the others know who they are, and are ended at the limit.
four_ranks() {
    local ranks_dir ranks_limit=20 pid status=0
    ranks_dir=$(mktemp -d)
    ranks 4 sh -c 'echo $SLUICE_RANK of $SLUICE_SIZE at $SLUICE_VERBS_DEVICES; exec sleep 1000' >"$ranks_dir/log" &
    pid=$!
    until_true 15 grep -qs rxe "$ranks_dir/3.out" && kill -TERM "$(<"$ranks_dir/3.pid")" || return
    wait "$pid" || status=$?
    cat "$ranks_dir/log"
    [[ $status -eq 1 ]] || { echo "status $status"; return 1; }
    printf '%s\n' 'rank 0 ended with 137:' '0 of 4 at rxe0,rxe2' 'rank 1 ended with 137:' '1 of 4 at rxe1,rxe3' \
        'rank 2 ended with 137:' '2 of 4 at rxe0,rxe2' 'rank 3 ended with 143:' '3 of 4 at rxe1,rxe3' |
        diff - "$ranks_dir/log"
}

bench_over_tcp() {
    local output
    output=$(SLUICE_TRANSPORT=tcp ranks 2 "$build/tools/bench/sluice-bench" -b 64K -e 64K -c 1)
    local status=$?
    echo "$output"
    [[ $status -eq 0 && $output == *'ranks: 2 on 2 hosts'* ]]
}

tap_case ranks_get_a_side_each_and_end_one_by_one four_ranks
tap_case ranks_of_both_sides_are_two_hosts_and_meet bench_over_tcp
tap_case clear_faults_puts_everything_back all_clear
tap_done
