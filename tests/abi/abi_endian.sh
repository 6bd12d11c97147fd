#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Machines that the code is not written for are refused when the build is configured.
# usage: abi_endian.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# This machine's own compiler does: nothing is compiled that far.
configure_for() {
    printf '%s\n' '[binaries]' "c = 'cc'" '[host_machine]' "system = 'linux'" "cpu_family = '$1'" "cpu = '$1'" \
        "endian = '$2'" >"$dir/cross.ini"
    rm -rf "$dir/build"
    meson setup "$dir/build" "$root" --cross-file "$dir/cross.ini" -Dtests=false >"$dir/log" 2>&1
}

big_endian_is_refused() {
    if configure_for s390x big; then
        echo "it was configured"
        return 1
    fi
    grep 'ERROR: .*little-endian' "$dir/log" || { tail -5 "$dir/log"; return 1; }
}

little_endian_is_not() {
    configure_for riscv64 little || { tail -5 "$dir/log"; return 1; }
}

tap_case big_endian_machines_are_refused_with_a_sentence big_endian_is_refused
tap_case little_endian_machines_are_not little_endian_is_not
tap_done
