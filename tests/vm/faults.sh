# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What can go wrong on the rails of network.sh, to be sourced by the guest's tests. A RAIL is A or B.
#
#   rail_netem RAIL ARGUMENT...    any impairment of tc-netem, both ways; replaces the one before
#   rail_loss RAIL PERCENT         rail_delay RAIL TIME; e.g. rail_loss A 1%, rail_delay B 50ms
#   rail_clean RAIL                no impairment any more
#   rail_down RAIL [SIDE]          the carrier goes at both ends (PORT_ERR there), or at side a or b only
#   rail_up RAIL                   the carrier returns; both ports are ACTIVE when this returns
#   gid_remove DEVICE              the IPv4 address, and so its GID, leaves rxe0 to rxe3
#   gid_add DEVICE                 it returns; the GID is there when this returns
#   drop_opcode RAIL OPCODE [first N | chance PERCENT]
#                                  loses all packets of that BTH opcode, or the next N, or some; adds up
#   drop_longer RAIL BYTES         loses all RoCE packets that are longer, IP header included
#   dropped RAIL                   prints how many packets these two have lost there
#   clear_faults                   everything as at the start
#
# BTH opcodes of reliable connections: 0x00 to 0x05 SEND (0x04 only), 0x06 to 0x0b RDMA WRITE (0x0a only, 0x0b
# only with immediate, 0x09 last with immediate), 0x10 to 0x12 READ response and acknowledge (0x11).

# shellcheck source=tests/vm/network.sh
. "$(dirname "${BASH_SOURCE[0]}")/network.sh"

# rail_first RAIL: number of its port on side a; the one of side b follows.
rail_first() {
    case $1 in
    A) echo 0 ;;
    B) echo 2 ;;
    *) echo "no rail '$1': A or B" >&2; return 1 ;;
    esac
}

# do_ip LINE..., do_tc LINE...: for ip and tc. A caller may have its own, as starting a process takes long in the guest.
do_ip() { printf '%s\n' "$@" | ip -batch -; }
do_tc() { printf '%s\n' "$@" | tc -batch -; }

rail_netem() {
    local first
    first=$(rail_first "$1") || return
    shift
    # What leaves a bridge's port arrives at one side, so both ports are both ways.
    do_tc "qdisc replace dev b$first root netem limit 10000 $*" \
        "qdisc replace dev b$((first + 1)) root netem limit 10000 $*"
}

rail_loss() { rail_netem "$1" loss "$2"; }
rail_delay() { rail_netem "$1" delay "$2"; }

# The ports of bridges have no queue by themselves.
rail_clean() {
    local first
    first=$(rail_first "$1") || return
    do_tc "qdisc replace dev b$first root noqueue" "qdisc replace dev b$((first + 1)) root noqueue"
}

# port_state I STATE: whether rxe$I's port is in that state (ACTIVE, DOWN).
port_state() {
    local state
    read -r state <"/sys/class/infiniband/rxe$1/ports/1/state" && [[ $state == *"$2" ]]
}

rail_down() {
    local first i ends
    first=$(rail_first "$1") || return
    case ${2:-both} in
    a) ends=("$first") ;;
    b) ends=($((first + 1))) ;;
    both) ends=("$first" $((first + 1))) ;;
    *) echo "no side '$2': a or b" >&2; return 1 ;;
    esac
    for i in "${ends[@]}"; do
        do_ip "link set b$i down" || return
    done
    for i in "${ends[@]}"; do
        until_true 20 port_state "$i" DOWN || return
    done
}

rail_up() {
    local first i
    first=$(rail_first "$1") || return
    do_ip "link set b$first up" "link set b$((first + 1)) up" || return
    for i in "$first" $((first + 1)); do
        until_true 20 port_state "$i" ACTIVE || return
    done
}

gid_absent() { ! gid_present "$1"; }

gid_remove() {
    local i=${1#rxe}
    do_ip "addr del ${addresses[i]}/24 dev v$i" && until_true 20 gid_absent "$i"
}

gid_add() {
    local i=${1#rxe}
    do_ip "addr replace ${addresses[i]}/24 dev v$i noprefixroute" "$(reach "$i")" &&
        until_true 20 gid_present "$i"
}

drop_opcode() {
    local first which
    first=$(rail_first "$1") || return
    case ${3:-all} in
    all) which= ;;
    first) which="numgen inc mod 1000000000 < $4" ;;
    chance) which="numgen random mod 100 < ${4%\%}" ;;
    *) echo "no way '$3' to choose packets: first or chance" >&2; return 1 ;;
    esac
    nft -f - <<END_OF_RULES
add table bridge faults
add chain bridge faults rail$1 { type filter hook forward priority 0; }
add rule bridge faults rail$1 iifname { b$first, b$((first + 1)) } udp dport 4791 @th,64,8 $2 $which counter drop
END_OF_RULES
}

drop_longer() {
    local first
    first=$(rail_first "$1") || return
    nft -f - <<END_OF_RULES
add table bridge faults
add chain bridge faults rail$1 { type filter hook forward priority 0; }
add rule bridge faults rail$1 iifname { b$first, b$((first + 1)) } udp dport 4791 ip length > $2 counter drop
END_OF_RULES
}

dropped() {
    nft list chain bridge faults "rail$1" |
        awk '{ for (i = 1; i < NF; i++) if ($i == "packets") sum += $(i + 1) } END { print sum + 0 }'
}

# To add the table first is to be able to delete it, whether it was there or not.
clear_faults() {
    local rail i
    nft 'add table bridge faults; delete table bridge faults' || return
    for rail in A B; do
        rail_clean "$rail" && rail_up "$rail" || return
    done
    for i in 0 1 2 3; do
        gid_present "$i" || gid_add "rxe$i" || return
    done
}
