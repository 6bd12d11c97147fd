#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All tests that need RDMA devices, in one boot of a virtual machine with soft-RoCE; see docs/vm.md.
# usage: vm_guest.sh BUILD LIMIT    the build directory; seconds for all of it
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
exec "$here/boot.sh" --limit "$2" -- "$here/run_guest.sh" "$1"
