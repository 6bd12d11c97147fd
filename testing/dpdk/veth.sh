# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Hosts as network namespaces, for ports of the kernel under DPDK (af_xdp, af_packet). To be sourced; needs root and ip.
#
#   veth_hosts N MTU    N hosts: veth_pids[i] is a process in host i's namespace. Each has
#                         data0  for DPDK, without an address of the kernel's; MTU bytes
#                         ctl0   10.79.0.(i+1)/24, for the kernel: ranks meet by it
#                       data0 of two hosts is one veth pair; of more, ports of a bridge.
#                       Status 1, and a sentence in veth_why: it cannot be done here.
#   veth_in I COMMAND   in host I
#   veth_down           ends all of it; hosts end with this process at the latest
# An af_xdp port takes all that its interface receives, so the kernel has an interface of its own.

veth_pids=()
# shellcheck disable=SC2034 # read by who sources this
veth_why=

veth_in() { nsenter --target "${veth_pids[$1]}" --net -- "${@:2}"; }

# veth_host: one more namespace, that of a process which waits for this one to end.
veth_host() {
    local pid deadline=$((SECONDS + 5))
    unshare --net cat "$veth_life" {veth_fd}<&- >/dev/null 2>"$veth_log" &
    pid=$!
    disown "$pid"
    until [[ $(readlink "/proc/$pid/ns/net" 2>/dev/null) != "$(readlink /proc/self/ns/net)" ]]; do
        if ! kill -0 "$pid" 2>/dev/null || ((SECONDS > deadline)); then
            veth_why="no network namespace can be made here: $(<"$veth_log")"
            return 1
        fi
        sleep 0.02
    done
    veth_pids+=("$pid")
}

# veth_link A NAME_A B NAME_B MTU: a veth pair between two hosts, up, without IPv6's chatter.
veth_link() {
    veth_in "$1" ip link add "$2" mtu "$5" type veth peer name "$4" mtu "$5" netns "${veth_pids[$3]}" || return
    local end
    for end in "$1 $2" "$3 $4"; do
        # shellcheck disable=SC2086 # host and interface
        set -- $end
        veth_in "$1" sh -c "echo 1 >/proc/sys/net/ipv6/conf/$2/disable_ipv6" 2>/dev/null
        veth_in "$1" ip link set "$2" up || return
    done
}

# The last host is the fabric: its bridges join the hosts' interfaces.
veth_fabric() {
    local count=$1 mtu=$2 fabric=$1 i
    for i in ctl data; do
        veth_in "$fabric" ip link add "$i" type bridge forward_delay 0 || return
        veth_in "$fabric" ip link set "$i" up || return
    done
    for ((i = 0; i < count; i++)); do
        veth_link "$i" ctl0 "$fabric" "c$i" 1500 && veth_in "$fabric" ip link set "c$i" master ctl || return
        ((count > 2)) || continue
        veth_link "$i" data0 "$fabric" "d$i" "$mtu" && veth_in "$fabric" ip link set "d$i" master data || return
    done
    ((count != 2)) || veth_link 0 data0 1 data0 "$mtu"
}

veth_hosts() {
    local count=$1 mtu=$2 i
    if [[ $EUID -ne 0 ]] || ! command -v ip >/dev/null; then
        veth_why="network namespaces need root, and ip (package iproute2)"
        return 1
    fi
    veth_dir=$(mktemp -d)
    veth_life=$veth_dir/life veth_log=$veth_dir/log
    mkfifo "$veth_life"
    exec {veth_fd}<>"$veth_life"
    for ((i = 0; i <= count; i++)); do
        veth_host || return 1
        veth_in "$i" ip link set lo up
    done
    if ! veth_fabric "$count" "$mtu" 2>"$veth_log"; then
        veth_why="no veth pairs and bridges can be made here: $(<"$veth_log")"
        return 1
    fi
    for ((i = 0; i < count; i++)); do
        veth_in "$i" ip addr add "10.79.0.$((i + 1))/24" dev ctl0 || return 1
    done
    # The carrier is told a moment after the link is up.
    for ((i = 0; i < 100; i++)); do
        ! veth_in 0 ip -oneline link show data0 up | grep -q LOWER_UP || return 0
        sleep 0.05
    done
    # shellcheck disable=SC2034
    veth_why="the veth pair has no carrier after 5 s"
    return 1
}

veth_down() {
    ((${#veth_pids[@]} == 0)) || kill -9 "${veth_pids[@]}" 2>/dev/null
    veth_pids=()
    [[ -z ${veth_dir:-} ]] || rm -rf "$veth_dir"
}
