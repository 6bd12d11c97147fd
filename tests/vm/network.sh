# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Two rails between two sides, in one network namespace (rxe hears only the first), to be sourced.
#
#            side a                                  side b
#   rail A   rxe0 on v0, 192.0.2.1    - b0 [br0] b1 - v1, 192.0.2.2    under rxe1
#   rail B   rxe2 on v2, 198.51.100.1 - b2 [br1] b3 - v3, 198.51.100.2 under rxe3
#            m0, 203.0.113.1: for TCP beside the rails (SLUICE_INTERFACE=m0); nothing breaks it. Not lo, as
#            ranks of two hosts do not look for each other there.
#
# A rank of side a is given SLUICE_VERBS_DEVICES=rxe0,rxe2, one of side b rxe1,rxe3. Everything between two
# sides crosses the bridges, where faults.sh interferes; never at v0 to v3: there, the sender itself would
# see the loss. Both addresses of a rail are this machine's, so routes, by device and by source, lead to the
# wire before the kernel finds out that it could deliver by itself. No rail leads to the other.

# shellcheck source=tests/wait.sh
. "$(dirname "${BASH_SOURCE[0]}")/../wait.sh"

addresses=(192.0.2.1 192.0.2.2 198.51.100.1 198.51.100.2)
gids=(c000:0201 c000:0202 c633:6401 c633:6402)

mac() { echo "02:00:00:00:00:1$1"; }

# reach I: how v$I finds the other end of its rail; lines for ip -batch. Gone with the device's last address.
# Neighbours are fixed, as an RDMA NIC keeps them with the queue pair: loss is then not felt twice.
reach() {
    local i=$1 j=$(($1 ^ 1))
    cat <<END_OF_REACH
route replace local ${addresses[i]} dev v$i table 10$i
route replace ${addresses[j]} dev v$i table 10$i
route replace ${addresses[j]} dev v$i table 110
neigh replace ${addresses[j]} dev v$i lladdr $(mac "$j") nud permanent
END_OF_REACH
}

links() {
    local i
    for i in 0 1; do
        echo "link add br$i type bridge mcast_snooping 0"
        echo "link set br$i mtu 4500 up"
    done
    for i in 0 1 2 3; do
        echo "link add v$i address $(mac "$i") mtu 4500 type veth peer name b$i mtu 4500"
        echo "link set b$i master br$((i / 2)) up"
        echo "link set v$i up"
        echo "addr add ${addresses[i]}/24 dev v$i noprefixroute"
        echo "rule add pref 10 iif v$i lookup local"
        echo "rule add pref 100 oif v$i lookup 10$i"
        echo "rule add pref 200 from ${addresses[i]} lookup 10$i"
        reach "$i"
    done
    echo "link add m0 type dummy"
    echo "link set m0 up"
    echo "addr add 203.0.113.1/24 dev m0"
    echo "rule add pref 20 to 127.0.0.0/8 lookup local"
    echo "rule add pref 300 lookup 110"
    echo "rule add pref 400 lookup local"
    echo "rule del pref 0"
}

# gid_present I: whether rxe$I has the GID made of its IPv4 address; among the first, as few are in use.
# Without a process: starting one in the guest takes as long as reading them all.
gid_present() {
    gid_index "$1" >/dev/null
}

# gid_index I: the index of that GID, as tools want it.
gid_index() {
    local index gid
    for index in 0 1 2 3 4 5 6 7 8 9; do
        read -r gid 2>/dev/null <"/sys/class/infiniband/rxe$1/ports/1/gids/$index" &&
            [[ $gid == *:ffff:${gids[$1]} ]] && echo "$index" && return
    done
    return 1
}

network_up() {
    local conf=/proc/sys/net/ipv4/conf i
    modprobe -a ib_uverbs rdma_ucm rdma_rxe veth dummy bridge sch_netem || return
    echo 0 >$conf/all/rp_filter
    echo 0 >$conf/default/rp_filter
    echo 1 >$conf/default/accept_local
    echo 1 >$conf/default/arp_ignore
    echo 2 >$conf/default/arp_announce
    echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
    { echo "link set lo up"; links; } | ip -batch - || return
    for i in 0 1 2 3; do
        echo "link add rxe$i type rxe netdev v$i"
    done | rdma --batch - || return
    for i in 0 1 2 3; do
        until_true 20 gid_present "$i" || return
    done
}
