#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo of the agent, as `./dev monitor` runs it: what it shows with and without a terminal, and that it leaves nothing.
# usage: demo.sh DEMO BUILD
set -uo pipefail
demo=$1 build=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# What the demo starts inherits this, by which it is found.
export SLUICE_DEMO_MARK="demo-test-$$-$RANDOM" TMPDIR=$dir/tmp
mkdir "$dir/tmp"

# of_the_demo: the processes that it has left.
of_the_demo() {
    local file
    for file in /proc/[0-9]*/environ; do
        [[ $file == "/proc/$BASHPID/environ" || $file == "/proc/$$/environ" ]] ||
            ! grep -qsz "^SLUICE_DEMO_MARK=$SLUICE_DEMO_MARK$" "$file" || tr '\0' ' ' <"${file%environ}cmdline"
    done
}

nothing_is_left() {
    [[ -z $(ls -A "$dir/tmp") ]] || { ls -A "$dir/tmp"; return 1; }
    local left
    left=$(of_the_demo | grep -v 'tests/deploy/demo.sh')
    [[ -z $left ]] || { echo "still there: $left"; return 1; }
}

without_a_terminal_it_tells_of_each_fault_and_ends_well() {
    "$demo" "$build" --seconds 9 >"$dir/out" 2>"$dir/err" || { cat "$dir/out" "$dir/err"; return 1; }
    cat "$dir/out" "$dir/err"
    if ! grep -q 'no network namespace can be had here' "$dir/err"; then
        grep -q 'demo0.*link_flap.*went down and came back 1 time' "$dir/out" || return
        # Those that its link connects.
        grep -q 'process pid [0-9]* *stopped *ok -> bad' "$dir/out" && grep -q 'rank 1 of 2, job demo' "$dir/out" || return
    fi
    grep -q 'mlx5_demo:1.*link_down.*the port is down' "$dir/out" && grep -q ': BAD$' "$dir/out" && nothing_is_left
}

on_a_terminal_it_opens_top_until_q_is_pressed() {
    local typed=$dir/typed
    mkfifo "$typed"
    script -qefc "$demo $build --no-faults" "$dir/screen" <"$typed" >/dev/null &
    local pid=$! keys
    exec {keys}>"$typed"
    until_true 10 grep -qs mlx5_demo "$dir/screen" || { cat "$dir/screen"; return 1; }
    printf q >&"$keys"
    until_true 10 gone "$pid" || return
    wait "$pid" || { echo "status $?"; cat "$dir/screen"; return 1; }
    nothing_is_left
}

ended_before_its_time_it_leaves_nothing() {
    "$demo" "$build" --seconds 60 >"$dir/out" 2>&1 &
    local pid=$! status=0
    until_true 10 grep -qs "the agent's events" "$dir/out" || { cat "$dir/out"; return 1; }
    pause 1
    kill -TERM "$pid" && until_true 10 gone "$pid" || return
    wait "$pid" || status=$?
    [[ $status -eq 143 ]] || { echo "status $status"; return 1; }
    nothing_is_left
}

tap_case without_a_terminal_it_tells_of_each_fault_and_ends_well without_a_terminal_it_tells_of_each_fault_and_ends_well
if command -v script >/dev/null; then
    tap_case on_a_terminal_it_opens_top_until_q_is_pressed on_a_terminal_it_opens_top_until_q_is_pressed
else
    tap_skip on_a_terminal_it_opens_top_until_q_is_pressed "script is not here (package bsdutils)"
fi
tap_case ended_before_its_time_it_leaves_nothing ended_before_its_time_it_leaves_nothing
tap_done
