#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a module shows and needs: one symbol, nothing of the process, and no library but those that it is for.
# usage: abi_module.sh MODULE [NEEDED...]      NEEDED: patterns of libraries beside libc
set -uo pipefail
module=$1
shift
needed=("$@")
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

exports_one_symbol() {
    local names
    names=$(nm -D --defined-only "$module" | awk '$2 != "A" { print $3 }')
    [[ $names == sluice_module ]] || { echo "exported: $names"; return 1; }
}

# A plugin that contains Sluice exports none of it.
asks_nothing_of_the_process() {
    local names
    names=$(nm -D --undefined-only "$module" | awk '{ print $NF }' | grep -E '^(sl_|sluice_)')
    [[ -z $names ]] || { echo "not defined in it: $names"; return 1; }
}

needs_only_what_it_is_for() {
    local pattern='libc\.so\.6|libm\.so\.6|ld-linux.*' other foreign
    for other in "${needed[@]}"; do
        pattern+="|$other"
    done
    foreign=$(readelf -dW "$module" | grep -F '(NEEDED)' | grep -oE '\[.*\]' | grep -vE "\[($pattern)\]")
    [[ -z $foreign ]] || { echo "also needs: $foreign"; return 1; }
}

tap_case one_symbol_is_exported exports_one_symbol
tap_case nothing_of_the_process_is_asked_for asks_nothing_of_the_process
tap_case no_library_is_needed_but_those_that_it_is_for needs_only_what_it_is_for
tap_done
