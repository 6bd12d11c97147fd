#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Paths judged by what they deliver: a rail that is worse than dead costs little more than one that is dead. The bounds
# here leave room for a busy machine; what was measured is printed with each case.
# limit: 600 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

# number: of the last round that rank 0 told of.
number() { sed -n 's/^round //p' "${under_logs[0]}" | tail -n 1; }

# rate SECONDS: rounds in a hundred seconds, into a variable.
rate() {
    local before after began=${EPOCHREALTIME/./} ended
    before=$(number)
    pause "$1"
    after=$(number) ended=${EPOCHREALTIME/./}
    hundred=$(((after - before) * 100000000 / (ended - began)))
}

ends() { grep -hc "$1" "${under_logs[0]}"; }

# Of rounds that took a second soak tells in "slow:" lines. On a busy machine there are some without any fault.
never_slow() {
    ! grep -hE '^slow: ([2-9][0-9]{3}|[0-9]{5,}) ms' "${under_logs[@]}"
}

# What of two rails is left by one that loses 30 % of its packets, both ways, against the other one alone, before and
# after: the machine may have got slower meanwhile.
a_third_is_lost() {
    local clean lossy
    begin 2 7 65536 1 && rail_down A && all_say 'is down: .*; 1 of 2 left' && pause 1 && rate 8 && clean=$hundred || return
    rail_up A && go_on 10 && rail_loss A 30% && pause 2 || return
    rate 12 && lossy=$hundred
    rail_down A && rail_clean A && pause 1 && rate 8 && clean=$(((clean + hundred) / 2)) || return
    echo "# rounds in 100 s: $clean by one rail, $lossy beside one that loses 30 %: $((lossy * 100 / clean)) %" >&3
    rail_up A && go_on 5 && finish || return
    ((lossy * 100 >= clean * 60)) || { echo "less than 60 %"; return 1; }
}

# A route whose MTU is smaller than the ports', as after a change of a switch: it carries pings of 32 bytes, and no data.
large_packets_are_lost() {
    local before after
    begin 2 7 65536 1 && go_on 5 && drop_longer A 2000 && all_say 'is down: .*; 1 of 2 left' && go_on 5 || return
    before=$(ends 'is down: ')
    rate 10
    after=$(ends 'is down: ')
    echo "# the path ended $before times at first, $((after - before)) times in the 10 s after it, $hundred rounds in 100 s" >&3
    (($(dropped A) > 0)) || { echo "nothing was lost"; return 1; }
    ((after == before)) || { echo "it came back"; return 1; }
    never_slow || return
    clear_faults && all_say 'path . to rank . is up' 3 && go_on 5 && finish
}

# A rail of 1/10 of what both carry holds no round up for long, and keeps up.
a_rail_is_slow() {
    local both slow
    begin 2 7 65536 1 && go_on 5 && rate 6 && both=$hundred || return
    rail_netem A rate 20mbit && pause 2 || return
    rate 8 && slow=$hundred
    echo "# rounds in 100 s: $both by two rails, $slow with one of them at 20 Mbit/s: $((slow * 100 / both)) %" >&3
    never_slow && rail_clean A && go_on 5 && finish
}

judged() {
    tap_wanted "$1" || return 0
    tap_case "$1" guarded "${@:2}"
    clear_faults || echo "Bail out! faults cannot be cleared"
}

judged a_rail_that_loses_a_third_costs_little_more_than_none a_third_is_lost
judged a_rail_that_loses_large_packets_does_not_come_back large_packets_are_lost
judged a_slow_rail_holds_nothing_up a_rail_is_slow
tap_done
