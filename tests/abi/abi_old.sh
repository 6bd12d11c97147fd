#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that was compiled with the public headers of an earlier commit runs over the library of now.
# usage: abi_old.sh old_client
set -uo pipefail
client=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/port.sh
. "$(dirname "$0")/../port.sh"

# If it called what is new it would show nothing.
calls_what_there_was() {
    nm -D --undefined-only "$client" | grep -q ' sluice_config_init\(@\|$\)' || { echo "sluice_config_init is not called"; return 1; }
    ! nm -D --undefined-only "$client" | grep 'sluice_config_init_sized'
}

runs() {
    local port rank failed=0 pids=()
    port=$(free_port)
    for rank in 0 1; do
        timeout 60 "$client" "$rank" "127.0.0.1:$port" &
        pids+=($!)
    done
    for rank in 0 1; do
        wait "${pids[rank]}" || { echo "rank $rank ended with status $?"; failed=1; }
    done
    return "$failed"
}

tap_case the_old_program_calls_what_there_was_then calls_what_there_was
tap_case it_makes_uses_splits_and_destroys_communicators runs
tap_done
