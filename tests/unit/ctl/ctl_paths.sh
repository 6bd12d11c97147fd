#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluicectl paths: what it writes, what it refuses, and that two of them lose nothing.
# usage: ctl_paths.sh SLUICECTL
# meson says in MESON_EXE_WRAPPER what runs a program for another processor.
set -uo pipefail
ctl=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SLUICE_PATHS_TABLE=$dir/table
read -ra wrapper <<<"${MESON_EXE_WRAPPER:-}"

ctl() { "${wrapper[@]}" "$ctl" "$@"; }

table() { printf 'sluice-paths 1\n%s' "$1"; }

rules_are_set_changed_and_cleared() {
    ctl paths set job=train rank=0 peer=1 path=0 weight=50 &&
        ctl paths set path=1 avoid &&
        ctl paths set job=train rank=0 peer=1 path=0 label=c0de &&
        diff <(ctl paths show) <(table $'path=1 avoid\njob=train rank=0 peer=1 path=0 weight=50 label=c0de\nend 2\n') &&
        ctl paths clear path=1 &&
        diff <(ctl paths show) <(table $'job=train rank=0 peer=1 path=0 weight=50 label=c0de\nend 1\n') &&
        ctl paths clear && diff <(ctl paths show) <(table $'end 0\n') &&
        [[ $(stat -c %a "$dir/table") == 6[04][04] ]]
}

json_has_the_same() {
    table $'until 4000000000\njob=a peer=2 weight=7\nlabel=10 use\nend 2\n' | ctl paths load &&
        ctl paths show --json | python3 -c '
import json, sys
table = json.load(sys.stdin)
none = {"job": None, "port": None, "rank": None, "peer": None, "path": None, "label": None, "weight": None, "avoid": None}
assert table == {"version": 1, "until": 4000000000, "rules": [
    {**none, "job": "a", "peer": 2, "weight": 7}, {**none, "label": 16, "avoid": False}]}, table'
}

# fails STATUS ARGUMENT...
fails() {
    local status=$1 got=0
    shift
    ctl "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    [[ $got == "$status" && -s $dir/err && ! -s $dir/out ]] || { echo "$* ended with $got, not $status"; cat "$dir/err"; return 1; }
}

what_cannot_be_is_refused_and_changes_nothing() {
    ctl paths clear && ctl paths set avoid && cp "$dir/table" "$dir/before" || return
    fails 1 paths set path=1 && fails 1 paths set path=1 weight=0 && fails 1 paths set path=x avoid &&
        fails 1 paths set 'path=1 avoid' use && fails 1 paths load && fails 2 paths set && fails 2 paths &&
        fails 2 && fails 2 paths show --csv && fails 2 ports show && fails 1 --file "$dir/no/table" paths set avoid &&
        SLUICE_PATHS_TABLE=off fails 1 paths show && cmp "$dir/table" "$dir/before" || return
    # What it cannot read it does not replace by a change.
    echo 'not a table' >"$dir/table"
    fails 1 paths set avoid && fails 1 paths show && [[ $(cat "$dir/table") == 'not a table' ]] && ctl paths clear
}

many_at_a_time_lose_nothing() {
    local i pids=()
    ctl paths clear || return
    for i in {0..19}; do
        ctl paths set path="$i" avoid &
        pids+=($!)
    done
    wait "${pids[@]}"
    [[ $(ctl paths show | tail -1) == 'end 20' && $(ctl paths show | grep -c avoid) == 20 ]] || { ctl paths show; return 1; }
    # Nothing is left but the table and what writers wait at.
    [[ $(find "$dir" -name 'table*' | wc -l) == 2 ]] || { ls "$dir"; return 1; }
}

help_names_every_verb() {
    local verb help
    help=$(ctl --help)
    for verb in show set clear load; do
        grep -q "paths $verb" <<<"$help" || { echo "$verb"; return 1; }
    done
    ctl --version | grep -q '^sluicectl '
}

tap_case rules_are_set_changed_and_cleared rules_are_set_changed_and_cleared
tap_case json_has_the_same json_has_the_same
tap_case what_cannot_be_is_refused_and_changes_nothing what_cannot_be_is_refused_and_changes_nothing
tap_case many_at_a_time_lose_nothing many_at_a_time_lose_nothing
tap_case help_names_every_verb help_names_every_verb
tap_done
