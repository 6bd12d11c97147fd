#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program that uses NCCL, with libsluice-preload.so and without, over stand-ins for NCCL and the CUDA driver:
# what is taken, what is passed on, and that results, streams, groups and lives are NCCL's.
# usage: preload_nccl.sh NCCL_APP PRELOAD AUDIT STANDINS [FOLDER_OF_A_REAL_NCCL]
set -uo pipefail
app=$(readlink -f "$1") preload=$(readlink -f "$2") audit=$(readlink -f "$3") standins=$4 real_nccl=${5:-}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

for name in "${!SLUICE_@}"; do
    unset "$name"
done
export LD_LIBRARY_PATH=$standins SLUICE_TUNE=off

plain() {
    timeout 100 "$app" "$@"
}

# shimmed RULES STORY RANKS
shimmed() {
    local rules=$1
    shift
    LD_PRELOAD=$preload SLUICE_PRELOAD_NCCL=$rules timeout 100 "$app" "$@"
}

said() {
    local output
    output=$("${@:2}" 2>&1) || { echo "$output"; return 1; }
    grep -qE "$1" <<<"$output" || { echo "$output"; echo "no line like $1"; return 1; }
}

# All tensors pass through the same memory, and what a codec loses of one is added to that one.
feedback() {
    SLUICE_COMPRESS=bq2:when=always,min=0,feedback=on shimmed all repeats 2 || return
    said 'the mean of tensor 0 has an error' bare_feedback
}
bare_feedback() { ! SLUICE_COMPRESS=bq2:when=always,min=0 shimmed all repeats 2; }

off() {
    SLUICE_PRELOAD=off shimmed all all_reach 2
}

silent() {
    local output
    output=$(shimmed all small 2 2>&1) && [[ $output == ok ]] || { echo "$output"; return 1; }
}

report() {
    said 'rank 1: took 10 calls, 40960 bytes, .* \(ncclAllReduce 10\); passed on 0' \
        env SLUICE_PRELOAD=report LD_PRELOAD="$preload" SLUICE_PRELOAD_NCCL=all "$app" none_reaches 2
}

bad_rules() {
    local output
    output=$(SLUICE_PRELOAD=report shimmed allredoce all_reach 2 2>&1) || { echo "$output"; return 1; }
    grep -q "'allredoce' is no call that can be taken" <<<"$output" || { echo "$output"; return 1; }
}

audited() {
    LD_AUDIT=$audit shimmed all by_dlsym 2
}

audited_passing() {
    LD_AUDIT=$audit shimmed '' by_dlsym_passing 2
}

# The real NCCL, as far as it goes without a GPU: what it says of itself, ids, errors.
real() {
    LD_LIBRARY_PATH=$real_nccl "$@" python3 "$(dirname "$0")/real_nccl.py" 2>&1
}

real_is_the_same() {
    local bare passing taking
    bare=$(real env) || { echo "$bare"; return 1; }
    passing=$(real env LD_PRELOAD="$preload" LD_AUDIT="$audit")
    taking=$(real env LD_PRELOAD="$preload" LD_AUDIT="$audit" SLUICE_PRELOAD_NCCL=all)
    printf '%s\n' "$bare" "$passing" "$taking"
    grep -q '^version 0 2' <<<"$bare" && [[ $bare == "$passing" && $bare == "$taking" ]]
}

tap_case the_program_is_right_without_the_shim plain all_reach 2
tap_case every_collective_type_and_operator_in_place_too shimmed all small 3
tap_case messages_larger_than_the_pinned_memory shimmed all large 3
tap_case averages shimmed all average 2
tap_case calls_return_at_once_and_keep_the_order_of_their_streams shimmed all streams 2
tap_case groups_nest_and_mix_with_calls_that_pass shimmed all groups 3
tap_case captures_own_operators_and_wrong_arguments_pass shimmed all passes 2
tap_case only_the_sizes_that_rules_name_are_taken shimmed allreduce:1K- by_size 2
tap_case nothing_of_a_taken_call_reaches_nccl shimmed all none_reaches 4
tap_case no_rules_take_nothing shimmed '' all_reach 2
tap_case switched_off_takes_nothing off
tap_case it_says_nothing_unless_asked silent
tap_case the_report_counts_calls_and_bytes report
tap_case rules_that_are_not_understood_take_nothing_and_are_told bad_rules
tap_case nonblocking_communicators_stay_so shimmed all nonblocking 3
tap_case feedback_of_a_codec_is_that_of_each_tensor feedback
tap_case splits_have_engines_of_their_own shimmed all splits 3
tap_case an_abort_lets_streams_go_on shimmed all aborts 3
tap_case a_rank_that_dies_is_told_and_its_streams_are_held shimmed all a_rank_dies 3
tap_case one_rank_alone_passes shimmed all all_reach 1
tap_case a_program_that_asks_by_dlsym_is_served_by_the_audit_library audited
tap_case what_is_asked_by_dlsym_passes_without_rules audited_passing
tap_case without_the_audit_library_it_reaches_nccl shimmed all by_dlsym_passing 2
if [[ -n $real_nccl ]]; then
    tap_case the_real_nccl_says_the_same_under_the_shim real_is_the_same
else
    tap_skip the_real_nccl_says_the_same_under_the_shim "no libnccl.so.2 (CUDA toolkit with NCCL) is installed"
fi
tap_done
