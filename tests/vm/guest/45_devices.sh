#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Four communicators of one process: one context of each device, one registration of a buffer that all use, and an
# event of a device reaches all of them. And a library that was closed leaves nothing open.
# limit: 240 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

four_in_a_process() {
    under_size=2 ranks_limit=200 patience=120
    ranks_dir=$(mktemp -d)
    under_logs=("$ranks_dir/0.out" "$ranks_dir/1.out")
    touch "${under_logs[@]}"
    ranks 2 "$build/tests/vm/devices" 4 "$ranks_dir" >"$ranks_dir/end" 2>&1 &
    under_pid=$!
    all_say '^counted' && rail_down A && touch "$ranks_dir/broken" && all_say '^done' && wait "$under_pid" &&
        all_say 'rxe.:1 is out: port is DOWN' 4
    local status=$?
    grep -hE '^(1 communicator|registered|wrong|failed)' "${under_logs[@]}"
    [[ $status -eq 0 ]] || over
    rail_up A
    return "$status"
}

closed_library() { SLUICE_LOG=warn SLUICE_VERBS_DEVICES=rxe0 timeout -s KILL 200 "$build/tests/fault/fault_unload" "$build/lib/libsluice.so"; }

tap_case devices_are_opened_and_memory_registered_once_for_four_communicators four_in_a_process
tap_case a_library_that_was_closed_leaves_nothing closed_library
tap_done
