#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Paths that are made when they are needed, and rails in reserve that nothing is open of before: which are there, and when,
# and what becomes of messages when the rail goes that all of them took (docs/design/0037-lazy-paths.md).
# limit: 600 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"
bench=$build/tools/bench/sluice-bench

# What links cost is measured with long messages, which take all paths.
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info SLUICE_TUNE=off

# page RANK: what its process publishes, as JSON, of which bash takes what it needs.
page() { "$bench" --status "$(<"$ranks_dir/$1.pid")" --json -; }

# have COUNT: so many paths have come up at each rank, and no more. One that was set aside does so again.
have() {
    awk -v want="$1" '/path . to rank . is up/ && !seen[FILENAME, $7]++ { count[FILENAME]++ }
        END { for (i = 1; i < ARGC; i++) bad += count[ARGV[i]] != want; exit bad != 0 }' "${under_logs[@]}"
}

has() { have "$1" || { echo "a rank has not had $1 paths"; return 1; }; }

# apart: from the first path to the second, in ms, into a variable. Of the end where it is longer, as one of both decides.
apart() {
    local rank json first ms event='"time_ns":([0-9]+),[^}]*"event":"path_up"'
    apart_ms=0
    for rank in 0 1; do
        json=$(page "$rank") || return
        [[ $json =~ $event(.*) ]] && first=${BASH_REMATCH[1]} && [[ ${BASH_REMATCH[2]} =~ $event ]] || return
        ms=$(((BASH_REMATCH[1] - first) / 1000000))
        ((ms <= apart_ms)) || apart_ms=$ms
    done
}

# sent: bytes of messages by each of rank 0's paths, into a list.
sent() {
    local json
    json=$(page 0) || return
    sent_bytes=()
    while [[ $json =~ \"path\":([0-9]+),[^}]*\"sent_bytes\":([0-9]+)(.*) ]]; do
        sent_bytes[BASH_REMATCH[1]]=${BASH_REMATCH[2]}
        json=${BASH_REMATCH[3]}
    done
}

# all_carry COUNT: so many paths, each of which has carried something.
all_carry() {
    local bytes
    sent && ((${#sent_bytes[@]} == $1)) || return
    for bytes in "${sent_bytes[@]}"; do
        ((bytes > 0)) || return
    done
}

# rails_of RANK: of its paths in the order in which they came up.
rails_of() { sed -n 's/.*path . to rank . is up: \(rxe[0-3]\):1 .*/\1/p' "${under_logs[$1]}"; }

# soon WHAT: no round took three seconds, ten times what the fault costs on an idle machine. To be asked after the end.
soon() {
    local longest
    longest=$(sed -n 's/^longest: \([0-9]*\) ms .*/\1/p' "${under_logs[@]}" | sort -rn | head -n 1)
    echo "# $1: the longest round took $longest ms" >&3
    ((longest < 3000)) || { echo "a round took $longest ms"; return 1; }
}

# is_open RANK I: that process has rxe$I open. Without a process, as that takes long in the guest.
is_open() {
    local pid device name file
    read -r pid <"$ranks_dir/$1.pid"
    for device in /sys/class/infiniband_verbs/uverbs*; do
        read -r name <"$device/ibdev"
        [[ $name != "rxe$2" ]] || break
    done
    for file in "/proc/$pid/fd"/*; do
        [[ ! $file -ef /dev/infiniband/${device##*/} ]] || return 0
    done
    return 1
}

# Two paths between a pair of rails: the second path is not all of them.
one_then_two_then_all() {
    local grow rails
    grow=$(mktemp -u)
    begin 2 7 1048576 0 "$grow" && await 20 have 2 && apart && pause 1 && go_on 10 && has 2 || return
    mapfile -t rails < <(rails_of 0)
    echo "# short messages: ${rails[1]} has a path $apart_ms ms after ${rails[0]}" >&3
    [[ ${rails[0]} != "${rails[1]}" ]] || { echo "both are of ${rails[0]}"; return 1; }
    ((apart_ms >= 100)) || { echo "the second came after $apart_ms ms"; return 1; }
    touch "$grow" && await 20 have 4 && await 20 all_carry 4 && go_on 3 && finish
}

# silent RAIL: everything that is sent there is lost, of which no port tells.
silent() { rail_loss "$1" 100%; }

# Nothing is there to compare the only path with.
the_only_path_is_silent() {
    local grow rail=A other='rxe[23]'
    grow=$(mktemp -u)
    begin 2 7 1048576 1 "$grow" && pause 1 && go_on 10 && has 1 || return
    [[ $(rails_of 0) == rxe0 ]] || rail=B other='rxe[01]'
    silent "$rail" && all_say "path . to rank . is up: $other:1" && go_on 20 && rail_clean "$rail" && go_on 5 && finish &&
        soon "the only path is silent, short messages"
}

# Rails A are the first of both ends, and B in reserve.
asleep() {
    local rank
    at_least 1 'rxe[23]:1 is in reserve, and opened when a path needs it' || { echo "it is not in reserve"; return 1; }
    ! grep -hE 'was in reserve' "${under_logs[@]}" && has 1 || return
    for rank in 0 1; do
        is_open "$rank" "$rank" || { echo "rank $rank has no device open"; return 1; }
        ! is_open "$rank" $((rank + 2)) || { echo "rxe$((rank + 2)) is open"; return 1; }
    done
}

# by PATH [PERCENT]: that one carries rank 0's messages, and the other one no more than so much of what it does. Short ones
# stay on the reserve's path when the first is back, until that answers much sooner.
by() {
    local before this other
    sent && before=("${sent_bytes[@]}" 0) && go_on 10 && sent || return
    this=$((sent_bytes[$1] - before[$1])) other=$((${sent_bytes[$1 ^ 1]:-0} - before[$1 ^ 1]))
    ((this > 0 && other * 100 <= this * ${2:-0})) || { echo "path $1 has carried $this bytes, the other one $other"; return 1; }
}

by_the_reserve() {
    all_say 'rxe[23]:1 was in reserve, and is opened now' && all_say 'path 1 to rank . is up: rxe[23]:1' && by 1
}

by_the_first_again() {
    all_say 'path 0 to rank . is up: rxe[01]:1' 2 && go_on 5 && by 0 20
}

# reserve_wakes FAULT END: FAULT of rail A, and what ends it.
reserve_wakes() {
    begin 2 7 131072 2 && pause 1 && go_on 5 && asleep && by 0 && "$1" A && by_the_reserve && is_open 0 2 && is_open 1 3 &&
        "$2" A && by_the_first_again && finish && soon "$1, while B is not open"
}

# The second path is that of the rail in reserve: it is there as another way for the ends to agree, and carries nothing.
reserve_stands_by() {
    begin 2 7 131072 2 && all_say 'rxe[23]:1 was in reserve, and is opened now' && await 20 have 2 && by 0 && rail_down A &&
        all_say 'path 0 to rank . is down' && by 1 && rail_up A && by_the_first_again && finish &&
        soon "rail_down, while B stands by"
}

lazy() {
    tap_wanted "$1" || return 0
    tap_case "$1" guarded "${@:2}"
    clear_faults || echo "Bail out! faults cannot be cleared"
}

SLUICE_VERBS_LAZY=auto SLUICE_VERBS_PATHS_PER_RAIL=2 lazy one_path_then_a_second_and_all_for_long_messages one_then_two_then_all
SLUICE_VERBS_LAZY=on SLUICE_VERBS_PATHS_PER_RAIL=2 lazy the_others_are_made_when_the_only_path_is_silent the_only_path_is_silent
export SLUICE_VERBS_RESERVE=on
SLUICE_VERBS_LAZY=on lazy the_reserve_is_opened_when_the_first_rail_is_down reserve_wakes rail_down rail_up
SLUICE_VERBS_LAZY=on lazy the_reserve_is_opened_when_the_first_rail_is_silent reserve_wakes silent rail_clean
SLUICE_VERBS_LAZY=auto lazy the_reserve_has_the_second_path_and_waits reserve_stands_by
tap_done
