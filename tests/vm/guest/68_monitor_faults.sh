#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The node agent beside ranks over soft-RoCE: it names the port that is broken, by the right cause, and no other; and nothing while all is well.
# limit: 600 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

sluiced=$build/tools/sluiced/sluiced
[[ -x $sluiced ]] || tap_skip_all "the node agent is not built here (see \"Not built\" in meson's summary)"
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs
dir=$(mktemp -d)
agent=
# What is true too of a port that a path of ranks was lost on.
with_a_path='packet_loss|queue_pair_error|port_event|receiver_not_ready|rank_paths'

# knows KEY: of the configuration.
knows() { "$sluiced" --print-config | grep -q "^#$1 ="; }

# Ports train for minutes after a boot, and are not accused then: the agent's clock of the boot is an hour ahead.
watch() {
    rm -f "$dir"/state.db* "$dir/events" "$dir/prom"
    printf '[store]\npath = %s/state.db\n[output]\nevents = %s/events\ntextfile = %s/prom\n[sources]\nkmsg = off\n' "$dir" "$dir" "$dir" >"$dir/conf"
    ! knows rdma_events || echo 'rdma_events = on' >>"$dir/conf"
    unshare --time --boottime 3600 --fork --kill-child=TERM "$sluiced" --config "$dir/conf" 2>"$dir/err" &
    agent=$!
    until_true 120 test -s "$dir/prom" || { cat "$dir/err"; return 1; }
}

unwatch() {
    [[ -z $agent ]] || kill -KILL "$agent" 2>/dev/null
    wait "$agent" 2>/dev/null
    agent=
}
trap 'unwatch; rm -rf "$dir"' EXIT

# said KIND CHECK: the subjects that are accused so, each once.
said() {
    grep -F '"to":"bad"' "$dir/events" 2>/dev/null | grep -F "\"kind\":\"$1\"" | grep -F "\"check\":\"$2\"" |
        sed 's/.*"subject":"\([^"]*\)".*/\1/' | sort -u
}
is_said() { said "$1" "$2" | grep -qxE "$3"; }

# only SUBJECTS: nobody else is accused of anything: an expression of "subject check".
only() {
    local others
    others=$(grep -F '"to":"bad"' "$dir/events" 2>/dev/null | sed 's/.*"subject":"\([^"]*\)","check":"\([^"]*\)".*/\1 \2/' | sort -u | grep -vxE "$1")
    [[ -z $others ]] || { echo "accused falsely: $others"; grep -F '"to":"bad"' "$dir/events"; return 1; }
}

ended() { finish; local status=$?; unwatch; return "$status"; }

# case COMMAND...: the agent and the ranks end, whatever happens.
alone() {
    local status=0
    "$@" || { status=1; over; cat "$dir/events" "$dir/err" 2>/dev/null; }
    unwatch
    clear_faults
    return "$status"
}

nothing_is_said() {
    begin 2 && watch && go_on 20 120 && sleep 20 && go_on 5 && ended && only nothing
}

# The bridge's end goes down: the port and the interface under it are down, those of the other end and of the other rail are not.
port_down() {
    begin 2 && watch && go_on 20 120 && sleep 3 && rail_down A a &&
        until_true 60 is_said port link_down 'rxe0:1' && until_true 30 is_said port link_down v0 && sleep 3 || return
    rail_up A && go_on 5 120 && ended && only "(rxe0:1|v0|b0) (link_down|link_flap)|rxe[01]:1 ($with_a_path)|(v0|v1) to .*"
}

loss() {
    begin 2 && watch && go_on 20 120 && sleep 2 && rail_loss A 5% || return
    until_true 90 is_said port packet_loss 'rxe[01]:1' || return
    rail_clean A && go_on 5 120 && ended && only "rxe[01]:1 ($with_a_path)"
}

# A queue pair that is in the error state and stays there, as its process does not look: stopped while what it sent is lost.
qp_error() {
    begin 2 && watch && go_on 20 120 && sleep 2 || return
    local pid
    pid=$(<"$ranks_dir/0.pid")
    kill -STOP "$pid" && rail_down A && sleep 5
    until_true 60 is_said port queue_pair_error 'rxe[01]:1' || { kill -CONT "$pid"; return 1; }
    # They may have given each other up meanwhile, which is not asked here.
    kill -CONT "$pid"
    over >/dev/null
    unwatch
    only "(rxe[01]:1|v[01]|b[01]|br0) (link_down|link_flap|$with_a_path)|(v0|v1) to .*|pid [0-9]* (stopped|died)"
}

# The address of one end leaves its device, and so its GID: the program that uses it loses its paths.
gid_gone() {
    knows rdma_events || { echo "this agent does not read async events"; return 1; }
    begin 2 && watch && go_on 20 120 && sleep 2 && gid_remove rxe1 || return
    until_true 60 is_said port gid_gone 'rxe1:1' || return
    gid_add rxe1 && go_on 5 120 && ended && only "rxe[01]:1 (gid_gone|$with_a_path)|(v0|v1) to .*"
}

tap_case ranks_over_two_rails_that_are_well_accuse_nobody alone nothing_is_said
tap_case a_port_that_goes_down_under_ranks_is_named_and_no_other alone port_down
tap_case a_rail_that_loses_packets_is_named_and_the_other_is_not alone loss
tap_case a_queue_pair_that_stays_in_error_is_named alone qp_error
tap_case a_gid_that_goes_under_ranks_is_named alone gid_gone
tap_done
