#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# DPDK over interfaces of the kernel, between hosts that are network namespaces: raw frames by af_packet and af_xdp, and,
# where the DPDK transport is built, ranks over them.
# usage: net_dpdk.sh bench_dpdk_raw BUILD PORT_PEER
set -uo pipefail
raw=$1 build=$2 peer=$3
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

# an_end_of_xdp LIST: the port opens, or its process says why not; PEER then waits for a line of input that never comes.
an_end_of_xdp() { veth_in 0 "$peer" "$1" echo; }

# The driver removes the interface's program when any port of it closes, or does not open.
others_leave_the_program() {
    local first why status=0
    veth_hosts 2 3498 || { echo "$veth_why"; return 1; }
    exec {first}> >(an_end_of_xdp net_af_xdp0,iface=data0,start_queue=0 >"$dir/hello")
    until [[ -s $dir/hello ]]; do sleep 0.02; done
    why=$(an_end_of_xdp net_af_xdp0,iface=data0,start_queue=0 2>&1 </dev/null) && { echo "a second process has the queue"; status=1; }
    [[ $why == *"another process drives"* ]] || { echo "$why"; status=1; }
    [[ $(veth_in 0 ip link show data0) == *xdp* ]] || { echo "the program is gone"; status=1; }
    exec {first}>&-
    veth_down
    return "$status"
}

# routed: two ranks in two subnets of IPv6, and a router between them that is the kernel's own stack: it asks for the ranks' MACs, and
# answers theirs.
routed() {
    local i ranks=() status=0
    veth_hosts 2 1500 || { echo "$veth_why"; return 1; }
    for i in 0 1; do
        veth_link "$i" six0 2 "six$i" 1500 || return 1
        veth_in 2 sh -c "echo 0 >/proc/sys/net/ipv6/conf/six$i/disable_ipv6" || return 1
        veth_in 2 ip -6 addr add "fd00:7$i::1/64" dev "six$i" nodad || return 1
    done
    veth_in 2 sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/forwarding' || return 1
    for i in 0 1; do
        SLUICE_RANK=$i SLUICE_SIZE=2 SLUICE_JOB=routed-$$ SLUICE_SECRET=known-to-ranks-of-this-run SLUICE_TRANSPORT=dpdk \
            SLUICE_MODULES_DIR=$build/dpdk SLUICE_ROOT=10.79.0.1:7715 SLUICE_INTERFACE=ctl0 \
            SLUICE_DPDK_PORTS="net_af_packet0,iface=six0@ip=fd00:7$i::2/64@gw=fd00:7$i::1" \
            timeout 30 nsenter --target "${veth_pids[i]}" --net -- "$build/tools/bench/sluice-bench" -b 8 -e 1M -f 16 -i 3 -c 1 &
        ranks+=($!)
    done
    for i in 0 1; do wait "${ranks[i]}" || status=1; done
    for i in 0 1; do
        veth_in 2 ip -6 neigh show dev "six$i" | tee /dev/stderr | grep -q "^fd00:7$i::2 lladdr $(veth_in "$i" cat /sys/class/net/six0/address)" ||
            { echo "the router has no MAC of rank $i"; status=1; }
    done 2>&1
    veth_down
    return "$status"
}

# over_ipv6: as ranks_over, the ports having an address of IPv6 alone.
over_ipv6() { SLUICE_DPDK_PORTS="net_$1,iface=data0@ip=fd00:79::1%r/64" ranks_over "${1%0*}" 2; }

# spares_the_kernel VERSION: the kernel has a copy of each packet that a port of af_packet takes, and does not look for a way for it.
spares_the_kernel() {
    local ports=net_af_packet0,iface=data0 i ranks=() status=0 came unwanted
    (($1 == 4)) || ports+=@ip=fd00:79::1%r/64
    veth_hosts 2 9000 || { echo "$veth_why"; return 1; }
    for i in 0 1; do
        SLUICE_RANK=$i SLUICE_SIZE=2 SLUICE_JOB=spares-$$ SLUICE_SECRET=known-to-ranks-of-this-run SLUICE_TRANSPORT=dpdk SLUICE_LOG=dpdk:info \
            SLUICE_MODULES_DIR=$build/dpdk SLUICE_ROOT=10.79.0.1:7715 SLUICE_INTERFACE=ctl0 SLUICE_DPDK_PORTS=$ports \
            timeout 30 nsenter --target "${veth_pids[i]}" --net -- "$build/tools/bench/sluice-bench" -b 1M -e 1M -i 3 -c 1 &
        ranks+=($!)
    done
    for i in 0 1; do wait "${ranks[i]}" || status=1; done
    for i in 0 1; do
        came=$(veth_in "$i" cat /proc/net/dev | awk '$1 == "data0:" { print $3 }')
        if (($1 == 4)); then
            unwanted=$(veth_in "$i" awk '/^Ip:/ && ++line == 2 { print $6 }' /proc/net/snmp) # InAddrErrors
        else
            unwanted=$(veth_in "$i" awk '$1 == "Ip6InReceives" { print $2 }' /proc/net/snmp6)
        fi
        echo "host $i: $came packets, of which the kernel looked at $unwanted"
        ((came > 500 && unwanted < 20)) || status=1
    done
    veth_down
    return "$status"
}

veth_hosts 2 1500 || tap_skip_all "$veth_why"
veth_down
for wire in af_packet af_xdp; do
    tap_case "frames_of_every_size_pass_over_$wire" raw_frames "$wire"
done
tap_case an_interface_that_a_process_drives_by_xdp_stays_its_own others_leave_the_program
if [[ -e $build/dpdk/sluice-dpdk.so ]]; then
    tap_case two_ranks_over_af_xdp_add_up ranks_over af_xdp 2
    tap_case three_ranks_over_af_packet_and_a_bridge_add_up ranks_over af_packet 3
    tap_case two_ranks_over_af_packet_and_ipv6_add_up over_ipv6 af_packet0
    tap_case two_ranks_over_af_xdp_and_ipv6_add_up over_ipv6 af_xdp0
    for version in 4 6; do
        if [[ $(printf '6.6\n%s\n' "$(uname -r)" | sort -V | head -n 1) == 6.6 ]]; then
            tap_case "the_kernel_leaves_packets_of_af_packet_and_ipv${version}_alone" spares_the_kernel "$version"
        else
            tap_skip "the_kernel_leaves_packets_of_af_packet_and_ipv${version}_alone" "programs that go with their process (tcx) need Linux 6.6"
        fi
    done
    tap_case a_kernel_that_routes_ipv6_finds_ranks_and_is_found routed
fi
tap_done
