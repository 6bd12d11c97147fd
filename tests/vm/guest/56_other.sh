#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Failures that somebody else thought of: links, addresses, acknowledges, the sideband, processes and devices that go and
# return under collectives that run all the time, every element checked. Each case prints its row of the table in
# docs/perf/faults.md: the rounds, the longest time that one took, how often a path of rank 0 ended and came up again.
# limit: 900 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

# row WHAT [LONGEST]: of what the ranks did. Frames that leave a path for a better one are no failure of it.
row() {
    local longest=${2:-} downs ups
    [[ -n $longest ]] || longest=$(sed -n 's/^longest: \([0-9]* ms\) .*/\1/p' "${under_logs[@]}" | sort -rn | head -n 1)
    downs=$(grep -c 'path . to rank . is down' "${under_logs[0]}")
    ups=$(grep -c 'path . to rank . is up' "${under_logs[0]}")
    ups=$((ups - 2 - $(grep -c 'path . to rank . is set aside' "${under_logs[0]}")))
    echo "# | $1 | $(sed -n 's/^done: \([0-9]* rounds\).*/\1/p' "${under_logs[0]}") | $longest | $downs, $ups |" >&3
}

# is_back: path 0 is up on both ranks, whatever it was before.
is_back() {
    awk '/path 0 to rank . is (up|down|set)/ { up[FILENAME] = / is up/ }
        END { for (file in up) count += up[file]; exit count != ARGC - 1 }' "${under_logs[@]}"
}

pid_of() { cat "$ranks_dir/$1.pid"; }

# ---- links and addresses ----

links_in_turn() {
    local until
    begin 2 || return
    until=$((SECONDS + 20))
    while ((SECONDS < until)); do
        do_ip 'link set b0 down' 'link set b2 up'
        pause 0.2
        do_ip 'link set b2 down' 'link set b0 up'
        pause 0.2
    done
    clear_faults && go_on 10 && finish && row 'one link down, then the other, every 200 ms, 20 s'
}

all_rails_down() {
    begin 2 && rail_down A && rail_down B && all_say 'is down: .*; 0 of 2 left' && pause "$1" && rail_up A && rail_up B &&
        go_on 10 && finish && row "both rails down $1 s"
}

# Its GID has another index then, and its peer another neighbour.
address_changes() {
    local old=${addresses[0]} status=0
    begin 2 && go_on 3 && do_ip "addr del $old/24 dev v0" || return
    addresses[0]=192.0.2.11 gids[0]=c000:020b
    do_ip "addr add 192.0.2.11/24 dev v0 noprefixroute" 'rule add pref 200 from 192.0.2.11 lookup 100' "$(reach 0)" "$(reach 1)" &&
        until_true 20 gid_present 0 && await "$patience" is_back && go_on 10 && finish && row 'address of v0 changed' ||
        status=1
    do_ip 'addr del 192.0.2.11/24 dev v0' 'rule del pref 200 from 192.0.2.11'
    addresses[0]=$old gids[0]=c000:0201
    do_ip "$(reach 1)"
    gid_add rxe0 && return "$status"
}

address_gone() {
    begin 2 && gid_remove rxe0 && all_say 'is down: .*; 1 of 2 left' && pause 5 && gid_add rxe0 &&
        await "$patience" is_back && go_on 10 && finish && row 'address of v0 gone 5 s'
}

# ---- packets ----

# lose PORT OPCODE [PERCENT]: of those that come from that side of a bridge.
lose() {
    local which=${3:+numgen random mod 100 < $3}
    nft -f - <<END_OF_RULES
add table bridge faults
add chain bridge faults one_way { type filter hook forward priority 0; }
add rule bridge faults one_way iifname $1 udp dport 4791 @th,64,8 $2 $which counter drop
END_OF_RULES
}

lost() { nft list chain bridge faults one_way | awk '{ for (i = 1; i < NF; i++) if ($i == "packets") sum += $(i + 1) } END { print sum + 0 }'; }

acknowledges_of_one_direction() {
    begin 2 && lose b1 0x11 && lose b3 0x11 && pause 4.6 && (($(lost) > 0)) && clear_faults && go_on 10 && finish &&
        row 'acknowledges of one direction lost on both rails, 4.6 s'
}

most_acknowledges_of_a_rail() {
    begin 2 && lose b1 0x11 60 && pause 5 && (($(lost) > 0)) && clear_faults && go_on 10 && finish &&
        row '60 % of the acknowledges from one side lost on rail A, 5 s'
}

some_with_immediates() {
    local rail opcode
    begin 2 || return
    for rail in A B; do
        for opcode in 0x0b 0x09 0x05 0x01; do
            drop_opcode "$rail" "$opcode" chance 15% || return
        done
    done
    pause 4
    (($(dropped A) + $(dropped B) > 0)) && clear_faults && go_on 10 && finish &&
        row '15 % of four opcodes lost on both rails, 4 s'
}

mild_loss() {
    begin 2 && rail_loss A 2% && pause 6 && rail_clean A && rail_loss B 2% && pause 6 && rail_clean B && go_on 10 && finish &&
        row '2 % lost on A, then on B, 6 s each'
}

slower_rail() {
    begin 2 && rail_netem A rate 40mbit && pause 8 && rail_clean A && go_on 10 && finish && row 'rail A limited to 40 Mbit/s, 8 s'
}

# ---- the sideband, and processes ----

sideband_silent() {
    begin 2 && nft 'add table ip faults; add chain ip faults in { type filter hook input priority 0; }; add rule ip faults in ip saddr 203.0.113.1 meta l4proto tcp counter drop' ||
        return
    pause 3
    rail_down A && all_say 'is down: .*; 1 of 2 left' && pause 3 && rail_up A && pause 4
    nft delete table ip faults
    await "$patience" is_back && go_on 10 && finish && row 'TCP beside the paths silent 10 s, rail A down and up meanwhile'
}

stopped_for_a_while() {
    begin 2 && kill -STOP "$(pid_of 1)" || return
    pause 8
    kill -CONT "$(pid_of 1)" && go_on 10 && finish && row 'rank 1 stopped for 8 s'
}

stopped_for_too_long() {
    begin 2 && kill -STOP "$(pid_of 1)" && await 60 grep -q '^failed: -110' "${under_logs[0]}"
    local status=$?
    kill -CONT "$(pid_of 1)"
    [[ $status -eq 0 ]] && broken -110 'rank 1 (made no progress|gave no sign of life) within 5000 ms' 1 &&
        row 'rank 1 stopped, SLUICE_TIMEOUT_MS=5000: ends with -110' \
            "$(sed -n 's/^failed: -110 after \([0-9]* ms\).*/\1/p' "${under_logs[0]}")"
}

dies() {
    local began
    begin 2 && began=${EPOCHREALTIME/./} && kill -KILL "$(pid_of 1)" && broken -104 'rank 1' 1 &&
        row 'rank 1 killed: ends with -104' "$(((${EPOCHREALTIME/./} - began) / 1000)) ms at most"
}

# ---- devices ----

# soft-RoCE waits with it until the program has closed the device.
deleted_device() {
    local pid status
    begin 2 || return
    rdma link delete rxe0 &
    pid=$!
    pause 4
    go_on 10 && finish && wait "$pid" && row 'rdma link delete rxe0'
    status=$?
    rdma link add rxe0 type rxe netdev v0 && until_true 20 gid_present 0 && return "$status"
}

# remake I: the interface and the device over it, under their names.
remake() {
    local i=$1
    do_ip "link add v$i address $(mac "$i") mtu 4500 type veth peer name b$i mtu 4500" \
        "link set b$i master br$((i / 2)) up" "link set v$i up" "addr add ${addresses[i]}/24 dev v$i noprefixroute" \
        "$(reach "$i")" && rdma link add "rxe$i" type rxe netdev "v$i" && until_true 20 gid_present "$i" &&
        until_true 20 port_state "$i" ACTIVE
}

# The figure is from the port's being active, with its address, to the path's being up at both ends: half a second until the
# device is looked for again, then all is opened and registered anew. The bound has room for a busy machine.
device_made_again() {
    local back waited before
    begin 2 && go_on 3 && do_ip 'link del v0' && all_say 'is down: .*; 1 of 2 left' && pause 3 && remake 0 || return
    back=${EPOCHREALTIME/./}
    await "$patience" is_back || return
    waited=$(((${EPOCHREALTIME/./} - back) / 1000))
    before=$(counter 0 sent_pkts)
    go_on 20 && finish || return
    (($(counter 0 sent_pkts) - before > 20)) || { echo "rxe0 is not used again"; return 1; }
    row "v0 and rxe0 deleted and made again: carries $waited ms after it is ACTIVE"
    ((waited < 5000)) || { echo "used only $waited ms after it was back"; return 1; }
}

other() {
    tap_wanted "$1" || return 0
    tap_case "$1" guarded "${@:2}"
    clear_faults || echo "Bail out! faults cannot be cleared"
}

other links_go_in_turn_every_200_ms links_in_turn
other both_rails_are_down_for_5_s all_rails_down 5
other both_rails_are_down_for_2_s all_rails_down 2
other the_address_of_a_port_changes address_changes
other the_address_of_a_port_is_gone_for_5_s address_gone
other acknowledges_of_one_direction_are_lost acknowledges_of_one_direction
other some_packets_with_immediates_are_lost some_with_immediates
other most_acknowledges_of_a_rail_are_lost most_acknowledges_of_a_rail
other two_percent_are_lost_on_each_rail_in_turn mild_loss
other a_rail_is_slower slower_rail
other the_sideband_is_silent_while_a_rail_goes_and_returns sideband_silent
other a_rank_is_stopped_and_goes_on stopped_for_a_while
SLUICE_TIMEOUT_MS=5000 other a_rank_that_is_stopped_for_too_long_is_named stopped_for_too_long
other a_rank_is_killed dies
other a_device_is_made_again_under_its_name_and_used device_made_again
other the_device_is_deleted_by_its_name deleted_device
tap_done
