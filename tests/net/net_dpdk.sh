#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# DPDK over interfaces of the kernel, between hosts that are network namespaces: raw frames by af_packet and af_xdp, and,
# where the DPDK transport is built, ranks over them.
# usage: net_dpdk.sh bench_dpdk_raw BUILD
set -uo pipefail
raw=$1 build=$2
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
# shellcheck source=testing/dpdk/veth.sh
. "$here/../../testing/dpdk/veth.sh"

dir=$(mktemp -d)
trap 'veth_down; rm -rf "$dir"' EXIT
# MTU of frames that fit: an XDP program takes no page's more than this.
mtu_of() { case $1 in af_xdp) echo 3498 ;; *) echo 9000 ;; esac }

# raw_frames WIRE: each size arrives, and comes back.
raw_frames() {
    veth_hosts 2 "$(mtu_of "$1")" || { echo "$veth_why"; return 1; }
    "$raw" --rounds 1 --ms 40 --json "$dir/json" --veth "/proc/${veth_pids[0]}/ns/net:data0,/proc/${veth_pids[1]}/ns/net:data0" "$1" ||
        return 1
    veth_down
    python3 - "$dir/json" <<'END2'
import json
import sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) >= 3, "too few figures"
for row in rows:
    assert row.get("gbit", 1) > 0 and row.get("p50_us", 1) > 0, row
END2
}

# ranks_over WIRE N: an allreduce that checks its sums.
ranks_over() {
    timeout 60 "$here/../../testing/dpdk/ranks.sh" --wire "$1" "$build" "$2" "$build/tools/bench/sluice-bench" -b 8 -e 1M -f 16 -i 3 -c 1
}

veth_hosts 2 1500 || tap_skip_all "$veth_why"
veth_down
for wire in af_packet af_xdp; do
    tap_case "frames_of_every_size_pass_over_$wire" raw_frames "$wire"
done
if [[ -e $build/dpdk/sluice-dpdk.so ]]; then
    tap_case two_ranks_over_af_xdp_add_up ranks_over af_xdp 2
    tap_case three_ranks_over_af_packet_and_a_bridge_add_up ranks_over af_packet 3
fi
tap_done
