#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ports that fail under jobs over the DPDK transport, each element checked: interfaces that are taken down and come back,
# or do not (as root), and a lossy wire of memif.
# usage: net_dpdk_ports.sh BUILD [WIRE]...    memif, af_packet (both: default), af_xdp; kinds: as memif, fault by fault; many: 64 ranks
set -uo pipefail
build=$1
shift
wires=("${@:-memif}")
(($# > 0)) || wires+=(af_packet)
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
# shellcheck source=tests/wait.sh
. "$here/../wait.sh"
# shellcheck source=testing/dpdk/veth.sh
. "$here/../../testing/dpdk/veth.sh"

dir=$(mktemp -d) ranks=()
clean_up() {
    ((${#ranks[@]} == 0)) || kill -9 "${ranks[@]}" 2>/dev/null
    veth_down
    rm -rf "$dir"
}
trap clean_up EXIT
export SLUICE_SIZE=2 SLUICE_JOB=ports-$$ SLUICE_SECRET=known-to-ranks-of-this-run SLUICE_TRANSPORT=dpdk SLUICE_MODULES_DIR=$build/dpdk
export SLUICE_ROOT=10.79.0.1:7715 SLUICE_INTERFACE=ctl0

# job WIRE CYCLES: two ranks in two hosts, in the background; returns when data flows.
job() {
    local mtu=9000 port=net_af_packet0,iface=data0 rank
    [[ $1 != af_xdp ]] || mtu=3498 port=net_af_xdp0,iface=data0,busy_budget=0
    veth_hosts 2 "$mtu" || { echo "$veth_why"; return 1; }
    ranks=()
    for rank in 0 1; do
        SLUICE_RANK=$rank SLUICE_DPDK_PORTS=$port nsenter --target "${veth_pids[rank]}" --net -- \
            "$build/tools/bench/sluice-bench" -b 64K -e 64K -i 10 -c 5 -N "$2" -T 30 >"$dir/$rank" 2>&1 &
        ranks+=($!)
    done
    flows() { (($(veth_in 0 cat /proc/net/dev | awk '$1 == "data0:" { print $11 }') > 500)); }
    until_true 20 flows
}

# outcome: both ranks' statuses, when they have ended.
outcome() {
    local first second
    wait "${ranks[0]}"
    first=$?
    wait "${ranks[1]}"
    second=$?
    ranks=()
    veth_down
    cat "$dir/0" "$dir/1"
    echo "statuses $first $second"
    [[ $first$second == "$1" ]]
}

# returns WIRE SECONDS: the interface is down for so long; it was down under a running job.
returns() {
    job "$1" 40 || return 1
    veth_in 0 ip link set data0 down
    ! gone "${ranks[0]}" || { echo "the job was over too soon"; return 1; }
    pause "$2"
    veth_in 0 ip link set data0 up
    outcome 00 && grep -q 'Out of bounds values : 0 OK' "$dir/0"
}
goes_on() { returns "$1" 0.4 && ! grep -h 'path 0 .* is down' "$dir/0" "$dir/1"; }
comes_back() {
    export SLUICE_DPDK_TIMEOUT_MS=300
    returns "$1" 0.8 && grep -q 'path 0 to rank . is down: .*the peer has not answered for 30. ms' "$dir/0"
}
is_named() {
    # At "info" each rank logs why its communicator broke, also one that leaves the sentence to the rank that told it.
    export SLUICE_DPDK_TIMEOUT_MS=300 SLUICE_DPDK_PATH_WAIT_MS=300 SLUICE_LOG=comm:info
    job "$1" 100000 || return 1
    local began=${EPOCHREALTIME/./} rank
    veth_in 0 ip link set data0 down
    outcome 11 || return 1
    echo "$(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    ((${EPOCHREALTIME/./} - began < 3000000)) || return 1
    for rank in 0 1; do
        # By what it saw itself, or what the other told it before; sentences of either may be cut.
        grep -qE "sluice info comm .*rank [01] is lost: (rank $((1 - rank)) found no path: )?no path to rank [01] for 300 ms: net_${1}0: .*by dpdk, 0 of 1 paths up" \
            "$dir/$rank" || return 1
    done
    # People hear of it from those whose peer is lost to them: from one at least.
    grep -qhE '^sluice-bench: (rank [01]: )?rank [01] is lost: ' "$dir/0" "$dir/1"
}

# lossy FAULTS: a mesh of three ranks; with checksums, as what damages packets may damage payload.
lossy() {
    unset SLUICE_SIZE SLUICE_ROOT SLUICE_INTERFACE SLUICE_JOB
    SLUICE_DPDK_CRC=on SLUICE_DPDK_INJECT="$1,seed=7" timeout 60 "$here/../../testing/dpdk/ranks.sh" --wire mesh "$build" 3 \
        "$build/tools/bench/sluice-bench" -C "${2:-allreduce,alltoall}" -b 8 -e 256K -f 32 -i 3 -c 2
}

# meets: ranks measure the costs of their links and agree on them while a third of all packets is lost. Whoever has said its part
# waits for the others by other means than DPDK, and has to repeat what was lost all the same.
meets() {
    unset SLUICE_SIZE SLUICE_ROOT SLUICE_INTERFACE SLUICE_JOB
    local seed
    for seed in 1 2 3 4 5 6; do
        SLUICE_TUNE=measure SLUICE_DPDK_INJECT="loss=0.3,seed=$seed" timeout 60 "$here/../../testing/dpdk/ranks.sh" --wire mesh "$build" 2 \
            "$build/tools/bench/sluice-bench" -b 8 -e 8 -i 1 -c 1 || return 1
    done
}

# many: more ranks than processors by far, through two switches and one between them.
many() {
    unset SLUICE_SIZE SLUICE_ROOT SLUICE_INTERFACE SLUICE_JOB
    timeout 200 "$here/../../testing/dpdk/ranks.sh" --wire switch "$build" 64 "$build/tools/bench/sluice-bench" -b 8 -e 32K -f 64 -i 3 -c 1 \
        -T 60
}

# shellcheck disable=SC2054 # they are the injector's commas
declare -A faults=([loss]=loss=0.02 [dup]=dup=0.02 [reorder]=reorder=0.05 [corrupt]=corrupt=0.02 [delay]=delay=0.02,delay_us=500)
all=$(IFS=,; echo "${faults[*]}")
for wire in "${wires[@]}"; do
    case $wire in
    memif)
        tap_case all_faults_of_packets_at_once_change_no_element lossy "$all"
        ;;
    many)
        for run in 1 2 3; do
            tap_case "64_ranks_end_well_${run}" many
        done
        ;;
    kinds) # one by one, with every collective
        for kind in loss dup reorder corrupt delay; do
            tap_case "faults_of_the_kind_${kind}_change_no_element" lossy "${faults[$kind]}" all
        done
        tap_case ranks_meet_while_a_third_of_all_packets_is_lost meets
        ;;
    *)
        if [[ $EUID -ne 0 ]]; then
            tap_skip "a_port_of_${wire}_that_fails" "interfaces need root"
            continue
        fi
        tap_case "a_port_of_${wire}_may_be_down_for_a_moment" goes_on "$wire"
        tap_case "a_path_of_${wire}_that_ended_comes_back_with_its_port" comes_back "$wire"
        tap_case "the_only_port_of_${wire}_is_named_when_it_stays_down" is_named "$wire"
        ;;
    esac
done
tap_done
