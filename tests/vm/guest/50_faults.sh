#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives go on, with right results, while the rails under them lose, delay, damage, go away and return; and
# where they cannot, all ranks learn it in time. Each case also asks for the trace of what it means to break.
# limit: 900 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

# total COUNTER: over the four devices.
total() {
    local i sum=0
    for i in 0 1 2 3; do
        sum=$((sum + $(counter "$i" "$1")))
    done
    echo "$sum"
}

# impaired COUNTER ROUNDS BYTES NETEM...: both rails so; the counter shows that it was felt.
impaired() {
    local name=$1 count=$2 bytes=$3 before
    shift 3
    begin 2 7 "$bytes" || return
    before=$(total "$name")
    rail_netem A "$@" && rail_netem B "$@" && go_on "$count" 120 || return
    (($(total "$name") > before)) || { echo "$name has not risen"; return 1; }
    rail_clean A && rail_clean B && go_on 5 && finish
}

carrier_of_one_rail() {
    begin "$1" && rail_down A "${2:-both}" && all_say 'path . to rank . is down: .*; 1 of 2 left' && go_on 10 || return
    local before
    before=$(counter 0 sent_pkts)
    rail_up A && all_say 'path . to rank . is up' "$3" && go_on 10 && finish || return
    (($(counter 0 sent_pkts) - before > 20)) || { echo "rxe0 is not used again"; return 1; }
}

no_rail_for_a_while() {
    begin 2 && rail_down A && rail_down B && all_say 'is down: .*; 0 of 2 left' || return
    local before
    before=$(rounds)
    sleep 1 # how long the fault lasts
    (($(rounds) <= before + 1)) || { echo "they go on without a rail"; return 1; }
    rail_up B && go_on 10 && rail_up A && all_say 'path . to rank . is up' 4 && go_on 10 && finish
}

# Well before the deadline of an operation, 30 s.
in_time() {
    ! grep -hE 'after ([0-9]{6,}|[2-9][0-9]{4}) ms' "${under_logs[@]}"
}

no_rail_any_more() {
    begin "$1" && rail_down A && rail_down B && unreachable || return
    in_time
}

fallback() {
    begin 2 && rail_down A && rail_down B && all_say 'continues over TCP' && go_on 20 || return
    rail_up B && all_say 'goes by paths again' && go_on 10 && rail_up A && go_on 5 && finish
}

gid_gone() {
    begin 2 && gid_remove rxe1 && all_say 'is down: .*; 1 of 2 left' && go_on 10 || return
    gid_add rxe1 && all_say 'path . to rank . is up' 3 && go_on 10 && finish
}

acknowledges_lost() {
    begin 2 && drop_opcode A 0x11 first 40 && go_on 10 || return
    (($(dropped A) == 40)) || { echo "only $(dropped A) acknowledges were lost"; return 1; }
    drop_opcode A 0x11 && all_say 'is down: .*; 1 of 2 left' && go_on 10 && clear_faults &&
        all_say 'path . to rank . is up' 3 && go_on 10 && finish
}

# Rank 1 has all that it waits for, and computes; what would end rank 0's sends is lost.
a_rank_rests() {
    under_size=2 ranks_limit=100
    ranks_dir=$(mktemp -d)
    under_logs=("$ranks_dir/0.out" "$ranks_dir/1.out")
    touch "${under_logs[@]}"
    ranks 2 "$build/tests/vm/rest" "$ranks_dir" >"$ranks_dir/end" 2>&1 &
    under_pid=$!
    await "$patience" grep -q '^posted' "$ranks_dir/1.out" && drop_opcode A 0x11 && touch "$ranks_dir/broken" &&
        all_say '^done' && wait "$under_pid" && at_least 1 'is down: .*; 1 of 2 left' || return
    (($(dropped A) > 0)) || { echo "rail A was not broken"; return 1; }
    grep -E '^sent after [0-9]{1,4} ms' "$ranks_dir/0.out" || { echo "not before rank 1 called again"; return 1; }
}

# lost OPCODE...: whatever is sent so; path after path goes out.
lost() {
    local opcode
    begin 2 || return
    for opcode in "$@"; do
        drop_opcode A "$opcode" || return
    done
    all_say 'is down: .*; 1 of 2 left' && go_on 10 && clear_faults && all_say 'path . to rank . is up' 3 && go_on 5 &&
        finish
}

# flaps RAIL [RAIL]: down and up in turn every 300 ms, for 10 s. What is told takes time, so only links.
flaps() {
    local until=$((SECONDS + 10)) rail i
    while ((SECONDS < until)); do
        for rail in "$@"; do
            i=$(rail_first "$rail")
            ip link set "b$i" down
            sleep 0.3
            ip link set "b$i" up
        done
        [[ $# -gt 1 ]] || sleep 0.3
    done
}

flapping() {
    begin 2 && flaps "$@" && all_say 'is down: ' 3 && go_on 10 && clear_faults &&
        go_on 10 && finish
}

# The ranks' TCP connections, as ss prints them.
sockets() { ss -Htn state established src 203.0.113.1; }

# reset N: as a firewall that is loaded again; both ends of a connection get a reset. Of all of them, or of N.
reset() {
    local local_address count=0
    while read -r _ _ local_address _; do
        ss -HKtn state established src "$local_address" >/dev/null || return
        ((++count < ${1:-1000000})) || break
    done < <(sockets)
    ((count > 0)) || { echo "no connection to reset"; return 1; }
}

lost_and_back() {
    all_say 'TCP connection beside the paths to rank . is lost' "$1" &&
        all_say 'TCP connection beside the paths to rank . is up again' "$1"
}

sideband_reset() {
    modprobe tcp_diag && begin 2 && reset 1 && lost_and_back 1 && go_on 10 && reset && lost_and_back 2 && go_on 10 &&
        finish || return
    ! grep -hE 'path . to rank . is down' "${under_logs[@]}" || { echo "a path went with it"; return 1; }
}

fallback_reset() {
    modprobe tcp_diag && begin 2 && rail_down A && rail_down B && all_say 'continues over TCP' && go_on 5 && reset &&
        lost_and_back 1 && all_say 'continues over TCP' 2 && go_on 5 && rail_up B && all_say 'goes by paths again' &&
        go_on 10 && finish
}

killed() {
    local pid
    begin "$1" && read -r pid <"$ranks_dir/1.pid" && kill -KILL "$pid" && broken -104 'rank 1' 1 || return
    in_time
}

on_rail_A() {
    # shellcheck disable=SC2016
    under_with=(bash -c 'SLUICE_INTERFACE=v$((SLUICE_RANK % 2)) exec "$0" "$@"')
    "$@"
}

# fault NAME COMMAND...: a case, and what its ranks said when it fails.
fault() {
    tap_wanted "$1" || return 0
    tap_case "$1" guarded "${@:2}"
    clear_faults || echo "Bail out! faults cannot be cleared"
}

fault loss_of_1_percent impaired out_of_seq_request 30 262144 loss 1%
fault loss_of_20_percent impaired out_of_seq_request 4 32768 loss 20%
fault reordering impaired out_of_seq_request 20 65536 delay 1ms reorder 95%
fault duplication impaired duplicate_request 20 262144 duplicate 30%
fault corruption impaired out_of_seq_request 20 65536 corrupt 3%
fault delay_of_50_ms impaired sent_pkts 4 65536 delay 50ms
fault carrier_lost_on_one_of_two_rails carrier_of_one_rail 2 both 3
fault carrier_lost_at_one_end_of_a_rail carrier_of_one_rail 2 a 3
fault both_rails_down_and_one_returns no_rail_for_a_while
SLUICE_VERBS_PATH_WAIT_MS=1500 fault both_rails_down_for_good_is_told_on_all_ranks no_rail_any_more 2
SLUICE_VERBS_FALLBACK=tcp fault both_rails_down_and_data_goes_over_tcp fallback
fault gid_removed_and_added_again gid_gone
fault acknowledges_lost_by_opcode acknowledges_lost
fault sends_end_though_the_receiver_computes a_rank_rests
fault sends_lost_by_opcode lost 0x00 0x01 0x02 0x04
fault writes_lost_by_opcode lost 0x06 0x07 0x09 0x0b
fault one_rail_flaps_for_10_s flapping A
fault both_rails_flap_in_turn_for_10_s flapping A B
fault a_killed_rank_is_named_to_the_other killed 2
fault a_killed_rank_is_named_to_all_others killed 4
fault the_sideband_is_reset sideband_reset
SLUICE_VERBS_FALLBACK=tcp fault the_sideband_is_reset_with_data_in_it fallback_reset
fault the_sideband_loses_its_rail_too on_rail_A carrier_of_one_rail 2 both 3
SLUICE_VERBS_PATH_WAIT_MS=1500 fault the_sideband_loses_its_rail_too_for_good on_rail_A no_rail_any_more 2
export SLUICE_TRANSPORT=shm,verbs
fault four_ranks_with_shm_lose_a_rail carrier_of_one_rail 4 both 3
SLUICE_VERBS_PATH_WAIT_MS=1500 fault four_ranks_with_shm_lose_both_rails_for_good no_rail_any_more 4
tap_done
