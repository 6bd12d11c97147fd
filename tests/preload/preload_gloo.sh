#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program on the installed gloo, as it is and under libsluice-preload.so: the same results to the last bit,
# every call taken, and gloo's own behaviour where something goes wrong.
# usage: preload_gloo.sh gloo_program|none libsluice-preload.so [sluice-dpdk.so]
set -uo pipefail
program=$1
shim=$2
module=${3:-}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

[[ $program != none ]] || tap_skip_all "gloo is not installed (package libgloo-dev)"
for name in "${!SLUICE_@}"; do
    unset "$name"
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# plain RANKS PART, shimmed RANKS PART [VARIABLE=VALUE...]: results.RANK in $folder/plain and $folder/shimmed.
plain() {
    rm -rf "$folder/plain" && mkdir "$folder/plain" && timeout -k 5 60 "$program" "$1" "$folder/plain" "$2"
}
shimmed() {
    local ranks=$1 part=$2
    shift 2
    rm -rf "$folder/shimmed" && mkdir "$folder/shimmed" &&
        env LD_PRELOAD="$shim" "$@" timeout -k 5 60 "$program" "$ranks" "$folder/shimmed" "$part"
}

same_results() {
    local rank
    for ((rank = 0; rank < $1; rank++)); do
        [[ -s $folder/plain/results.$rank || $rank -gt 0 ]] || { echo "no results"; return 1; }
        diff "$folder/plain/results.$rank" "$folder/shimmed/results.$rank" || return 1
    done
}

# every_rank_took OUTPUT RANKS: the line at exit of each rank tells of calls, all of them taken.
every_rank_took() {
    local rank
    echo "$1"
    for ((rank = 0; rank < $2; rank++)); do
        [[ $(grep -cE "^sluice preload: rank $rank: took [1-9][0-9]+ calls.*; passed on 0\$" <<<"$1") -eq 1 ]] ||
            { echo "rank $rank did not take all calls"; return 1; }
    done
}

every_call() {
    local output
    plain "$1" every || return 1
    output=$(shimmed "$1" every SLUICE_PRELOAD=report 2>&1) || { echo "$output"; return 1; }
    every_rank_took "$output" "$1" && same_results "$1"
}

# Additions in another order: the program itself holds the results against a reference.
another_order() {
    local output
    output=$(shimmed 3 every SLUICE_PRELOAD=report SLUICE_PRELOAD_EXACT=0 2>&1) || { echo "$output"; return 1; }
    every_rank_took "$output" 3
    # Results are digests: what ranks say of the allreduces must be one and the same.
    diff <(grep ^allreduce "$folder/shimmed/results.0") <(grep ^allreduce "$folder/shimmed/results.2")
}

# After every_call 3: beside the same results of plain gloo.
over_tcp() {
    local output
    output=$(shimmed 3 every SLUICE_PRELOAD=report SLUICE_TRANSPORT=tcp 2>&1) || { echo "$output"; return 1; }
    every_rank_took "$output" 3 && same_results 3
}

# The same over DPDK: a memif port to each other rank.
over_dpdk() {
    local output
    mkdir "$folder/mesh"
    output=$(shimmed 3 every SLUICE_PRELOAD=report SLUICE_TRANSPORT=dpdk SLUICE_DPDK_PORTS="mesh:$folder/mesh" \
        SLUICE_MODULES_DIR="$(dirname "$module")" 2>&1) || { echo "$output"; return 1; }
    every_rank_took "$output" 3 && same_results 3
}

story() {
    local output
    output=$(shimmed "$1" "$2" SLUICE_PRELOAD=report 2>&1) || { echo "$output"; return 1; }
    echo "$output"
    grep -qE 'rank 0: took [1-9]' <<<"$output"
}

switched_off() {
    local output
    output=$(shimmed 2 threads SLUICE_PRELOAD=off 2>&1) || { echo "$output"; return 1; }
    [[ -z $output ]] || { echo "not silent: $output"; return 1; }
}

# The C++ runtime and the engine come with the first call only.
other_programs() {
    local maps
    maps=$(LD_PRELOAD=$shim cat /proc/self/maps) || return 1
    grep -q libsluice-preload.so <<<"$maps" || { echo "the shim is not there"; return 1; }
    ! grep -E 'libstdc|libsluice-preload-' <<<"$maps"
}

without_module() {
    local output
    mkdir -p "$folder/alone" && cp "$shim" "$folder/alone/" || return 1
    output=$(shim=$folder/alone/$(basename "$shim") shimmed 2 threads SLUICE_PRELOAD=report 2>&1) ||
        { echo "$output"; return 1; }
    echo "$output"
    [[ $(grep -c 'took 0 calls.*cannot be opened' <<<"$output") -eq 2 ]] || return 1
    output=$(shim=$folder/alone/$(basename "$shim") RANK=0 shimmed 2 threads SLUICE_PRELOAD=on 2>&1) || { echo "$output"; return 1; }
    echo "$output"
    [[ $(grep -c 'calls of gloo are not taken: the module cannot be opened' <<<"$output") -eq 2 ]] || return 1
    output=$(shim=$folder/alone/$(basename "$shim") RANK=1 shimmed 2 threads SLUICE_PRELOAD=on 2>&1) || { echo "$output"; return 1; }
    [[ -z $output ]]
}

tap_case every_call_of_four_ranks_gives_the_same_bits_as_gloo every_call 4
tap_case every_call_of_three_ranks_gives_the_same_bits_as_gloo every_call 3
tap_case over_tcp_too_the_bits_are_those_of_gloo over_tcp
[[ -z $module ]] || tap_case over_dpdk_too_the_bits_are_those_of_gloo over_dpdk
tap_case every_call_of_two_ranks_gives_the_same_bits_as_gloo every_call 2
tap_case sums_in_another_order_are_right_and_the_same_on_all_ranks another_order
tap_case calls_of_several_threads_meet_by_tag story 4 threads
tap_case contexts_come_and_go story 3 contexts
tap_case further_contexts_of_a_thread_use_the_connections_of_its_first story 3 again
tap_case a_rank_that_is_late_makes_the_others_throw_at_their_deadline story 3 late
tap_case a_rank_that_dies_makes_the_others_throw story 3 death
tap_case a_function_that_throws_on_one_rank_makes_the_others_throw story 3 throw
tap_case ranks_that_disagree_about_the_type_are_told_so story 3 mismatch
tap_case a_child_after_fork_is_let_alone story 3 fork
tap_case switched_off_it_is_silent_and_takes_nothing switched_off
tap_case programs_without_gloo_load_neither_engine_nor_cxx other_programs
tap_case without_its_module_calls_go_to_gloo without_module
tap_done
