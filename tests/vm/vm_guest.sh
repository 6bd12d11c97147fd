#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All tests that need RDMA devices, in one boot of a virtual machine with soft-RoCE; see docs/vm.md.
# usage: vm_guest.sh BUILD LIMIT [SCRIPT...]    the build directory; seconds for a boot; instead of all of guest/
# A script is a file, or the name of one of guest/. VM_QUICK=1: only the cases that the file quick names.
#
# Where soft-RoCE makes the kernel itself spin, which it can (docs/vm.md), the script that ran and those after it
# run in a second boot. Nothing else is tried again.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

why=$("$here/boot.sh" --prepare 2>&1) || tap_skip_all "${why##*$'\n'}"
for tool in ibv_rc_pingpong:ibverbs-utils ib_send_lat:perftest; do
    command -v "${tool%:*}" >/dev/null || tap_skip_all "${tool%:*} is not here (package ${tool#*:})"
done
PATH=$PATH:/usr/sbin:/sbin
for tool in ip:iproute2 tc:iproute2 rdma:iproute2 nft:nftables; do
    command -v "${tool%:*}" >/dev/null || tap_skip_all "${tool%:*} is not here (package ${tool#*:})"
done

build=$1 limit=$2
shift 2
for ((i = $#; i > 0; i--)); do
    script=$1
    shift
    [[ $script == */* ]] || script=$here/guest/$script.sh
    set -- "$@" "$script"
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

boot() {
    "$here/boot.sh" --limit "$limit" --out "$out" -- env VM_QUICK="${VM_QUICK:-}" "$here/run_guest.sh" "$build" "$@" | tee -a "$out/tap"
    return "${PIPESTATUS[0]}"
}

soft_roce_spun() { grep -q 'soft lockup' "$out/kernel.log" && grep -q '\brxe_' "$out/kernel.log"; }

boot "$@"
status=$?
if [[ $status -eq 125 ]] && soft_roce_spun; then
    echo "# the guest's kernel spun in soft-RoCE:"
    grep -m 1 'soft lockup' "$out/kernel.log" | sed 's/^/# /'
    grep -m 3 '\brxe_' "$out/kernel.log" | sed 's/^/# /'
    echo "# what is left runs in a second boot"
    grep -cE '^(not )?ok ' "$out/tap" >"$out/count"
    boot "$@"
    status=$?
fi
exit "$status"
