#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The shim in processes that have nothing for it to do, which are most of a job's: it must not be noticed.
# usage: preload_nothing.sh libsluice-preload.so
set -uo pipefail
shim=$(realpath "$1")
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

# facts [VARIABLE=VALUE...]: what a shell is like: its threads, open files, and what is mapped, but for the shim.
facts() {
    # By its own patterns: a pipe would be open in the shell while it is looked at.
    env "$@" bash -c 'tasks=(/proc/$$/task/*); files=(/proc/$$/fd/*); echo "${#tasks[@]} ${#files[@]}"
        grep -oE "/[^ ]*\.so[^ ]*" /proc/$$/maps | grep -v libsluice-preload.so | sort -u; true' 2>&1
}

same_process() {
    local without with
    without=$(facts SLUICE_PRELOAD=report)
    with=$(facts SLUICE_PRELOAD=report "LD_PRELOAD=$shim")
    [[ $with == "$without" ]] || { diff <(echo "$without") <(echo "$with"); return 1; }
    [[ $(wc -l <<<"$with") -ge 3 ]] || { echo "too little to see: $with"; return 1; }
}

# Programs of several languages end as they do without it, and say what they say.
same_output() {
    local program without with
    for program in "true" "bash -c 'exit 3'" "cat /proc/self/comm" "python3 -c 'print(1)'"; do
        without=$(env SLUICE_PRELOAD=report bash -c "$program" 2>&1; echo "status $?")
        with=$(env SLUICE_PRELOAD=report "LD_PRELOAD=$shim" bash -c "$program" 2>&1; echo "status $?")
        [[ $with == "$without" ]] || { echo "$program: $with"; return 1; }
    done
}

needs_libc_only() {
    local foreign
    foreign=$(readelf -dW "$shim" | grep -F '(NEEDED)' | grep -oE '\[.*\]' |
        grep -vE '\[(libc\.so\.6|ld-linux.*|ld64\.so.*|libc\.musl.*)\]')
    [[ -z $foreign ]] || { echo "also needs:" "$foreign"; return 1; }
}

has_no_constructor() {
    # Those of the compiler's start files (frame_dummy and its like) are one entry each.
    local entries
    entries=$(readelf -SW "$shim" | awk '$2 == ".init_array" || $3 == ".init_array" {
        for (i = 1; i <= NF; i++) if ($i == "INIT_ARRAY") print $(i + 3) }')
    [[ -z $entries || $((16#$entries)) -le 8 ]] || { echo "constructors: $entries bytes"; return 1; }
}

only_foreign_names() {
    local own
    own=$(nm -D --defined-only "$shim" | awk '{ print $3 }' | grep -E '^(sl_|sluice)')
    [[ -z $own ]] || { echo "exported:" "$own"; return 1; }
}

tap_case a_shell_under_the_shim_has_no_thread_file_or_library_more same_process
tap_case programs_say_and_return_what_they_do_without_it same_output
tap_case the_shim_needs_libc_only needs_libc_only
tap_case nothing_runs_before_the_first_call has_no_constructor
tap_case nothing_of_its_own_is_exported only_foreign_names
tap_done
