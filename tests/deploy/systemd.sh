#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit under a real systemd, in a virtual machine (systemd_guest.sh has the cases).
# usage: systemd.sh SLUICED SLUICECTL UNIT
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

why=$("$here/../vm/boot.sh" --prepare 2>&1) || tap_skip_all "${why##*$'\n'}"
[[ -x /lib/systemd/systemd ]] || tap_skip_all "systemd is not here (package systemd)"
command -v python3 >/dev/null || tap_skip_all "python3 is not here"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$here/../vm/boot.sh" --limit 1000 --out "$out" -- "$here/systemd_guest.sh" "$(readlink -f "$1")" "$(readlink -f "$2")" "$(readlink -f "$3")"
status=$?
[[ $status -lt 124 ]] || { echo "not ok - the machine ended with status $status"; tail -n 5 "$out/systemd.log" | sed 's/^/# /'; }
exit "$status"
