#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each fuzz target with libFuzzer for a few seconds, from the corpus on: that the targets build with clang, and
# what the fixed mutations of the suite fuzz do not reach. What it finds lies in build-fuzz/.
# usage: explore.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

command -v clang >/dev/null || tap_skip_all "there is no clang, whose libFuzzer this needs"
why=$(mktemp)
trap 'rm -f "$why"' EXIT
if targets=$("$root/dev" fuzz --list 2>"$why"); then
    for target in $targets; do
        tap_case "$target" "$root/dev" fuzz "$target" "${FUZZ_SECONDS:-5}"
    done
else
    tap_case the_targets_are_listed cat "$why"
    tap_failed=1
fi
tap_done
