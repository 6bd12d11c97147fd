#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts ranks of this machine over DPDK, each a process with SLUICE_RANK and a port of its own; `./dev dpdk` calls it.
# usage: ranks.sh [--wire WIRE] [--do LINE]... [--stats FILE] BUILD N [COMMAND...]
#   --wire mesh        each rank has a memif port to each other rank; up to 17 ranks (default up to 8)
#   --wire switch      each rank is a client of a software switch; beyond 31 ranks of several in a tree (default beyond 8)
#   --wire af_xdp, af_packet
#                      each rank in a network namespace of its own, on veth; needs root
#   --wire tcp         the same hosts without DPDK: the kernel's TCP over data0, to compare with
#   --do LINE          a line of control for the switch (docs/dpdk.md), before the ranks start
#   --stats FILE       counters of the switches when the ranks have ended, a line of JSON each
#   COMMAND            default: sluice-bench -b 8 -e 16M -f 8
# No root, no hugepages. The status is the worst of the ranks'.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=testing/dpdk/veth.sh
. "$here/veth.sh"

die() { echo "ranks.sh: $*" >&2; exit 2; }
wire='' lines=() stats=''
while [[ ${1:-} == --* ]]; do
    case $1 in
    --wire) wire=${2:-} ;;
    --do) lines+=(--do "${2:-}") ;;
    --stats) stats=${2:-} ;;
    *) die "no option $1" ;;
    esac
    shift 2 || die "$1 needs a value"
done
build=$(readlink -f "${1:-build}") ranks=${2:-}
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "how many ranks?"
shift 2
[[ $# -gt 0 ]] || set -- "$build/tools/bench/sluice-bench" -b 8 -e 16M -f 8
[[ -n $wire ]] || { ((ranks <= 8)) && wire=mesh || wire=switch; }

dir=$(mktemp -d) pids=() switches=()
clean_up() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
    ((${#switches[@]} == 0)) || kill "${switches[@]}" 2>/dev/null
    veth_down
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# until_ready PID FILE: the switch has said that its socket is there.
until_ready() {
    local i
    for ((i = 0; i < 400; i++)); do
        ! grep -q ready "$2" || return 0
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    cat "$2" >&2
    die "the switch did not start"
}

# start_switch NAME PORTS [OPTIONS...]: control by $dir/NAME.in, answers in $dir/NAME.out.
start_switch() {
    local name=$1 ports=$2
    shift 2
    mkfifo "$dir/$name.in"
    # shellcheck disable=SC2034 # stays open, so that the switch's stdin does
    exec {fd}<>"$dir/$name.in"
    "$build/testing/dpdk/sluice-dpdk-switch" --socket "$dir/$name.sock" --ports "$ports" "$@" \
        <"$dir/$name.in" >"$dir/$name.out" 2>&1 &
    switches+=($!)
    until_ready $! "$dir/$name.out"
}

# 32 ports a switch: of one alone all are ranks'; in a tree one leads to the switch of switches.
switch_up() {
    local leaves=$(((ranks + 30) / 31)) i
    if ((ranks <= 31)); then
        start_switch leaf0 "$ranks" "${lines[@]}"
        return
    fi
    start_switch spine "$leaves"
    for ((i = 0; i < leaves; i++)); do
        start_switch "leaf$i" 31 --uplink "$dir/spine.sock,$i" "${lines[@]}"
    done
}

# SLUICE_DPDK_PORTS of a rank. Smaller rings where there are many: what they hold is memory.
ports_of() {
    local rank=$1 ring=10
    ((ranks <= 16)) || ring=8
    case $wire in
    mesh) echo "mesh:$dir@rank=$rank@ranks=$ranks" ;;
    switch)
        echo "net_memif0,role=client,socket=$dir/leaf$((rank / 31)).sock,socket-abstract=no,id=$((rank % 31)),rsize=$ring@segment=switch"
        ;;
    af_xdp) echo "net_af_xdp0,iface=data0,busy_budget=0" ;;
    tcp) ;;
    af_packet) echo "net_af_packet0,iface=data0" ;;
    esac
}

case $wire in
mesh) ((ranks <= 17)) || die "a mesh has at most 17 ranks: take --wire switch" ;;
switch) switch_up ;;
af_xdp) veth_hosts "$ranks" 3498 || die "$veth_why" ;;
af_packet | tcp) veth_hosts "$ranks" 9000 || die "$veth_why" ;;
*) die "no wire '$wire': mesh, switch, af_xdp, af_packet, tcp" ;;
esac

export SLUICE_SIZE=$ranks SLUICE_JOB=dpdk-$$ SLUICE_SECRET=known-to-ranks-of-this-run SLUICE_TRANSPORT=${SLUICE_TRANSPORT:-dpdk}
[[ -z ${SLUICE_MODULES_DIR:-} && -e $build/dpdk/sluice-dpdk.so ]] && export SLUICE_MODULES_DIR=$build/dpdk
# shellcheck source=tests/port.sh
. "$here/../../tests/port.sh"
if [[ $wire == tcp ]]; then
    export SLUICE_TRANSPORT=tcp SLUICE_ROOT=10.78.0.1:7715 SLUICE_INTERFACE=data0
    for ((rank = 0; rank < ranks; rank++)); do
        veth_in "$rank" ip addr add "10.78.0.$((rank + 1))/24" dev data0
    done
elif ((${#veth_pids[@]} > 0)); then
    export SLUICE_ROOT=10.79.0.1:7715 SLUICE_INTERFACE=ctl0
else
    SLUICE_ROOT=127.0.0.1:$(free_port)
    export SLUICE_ROOT
fi
for ((rank = 0; rank < ranks; rank++)); do
    enter=()
    ((${#veth_pids[@]} == 0)) || enter=(nsenter --target "${veth_pids[rank]}" --net --)
    port=${SLUICE_DPDK_PORTS:-$(ports_of "$rank")}
    env SLUICE_RANK="$rank" ${port:+SLUICE_DPDK_PORTS="$port"} "${enter[@]}" "$@" &
    pids+=($!)
done

worst=0
for pid in "${pids[@]}"; do
    wait "$pid"
    status=$?
    ((status <= worst)) || worst=$status
done
pids=()

# answer NAME: the switch's counters.
answer() {
    local had i
    had=$(wc -l <"$dir/$1.out")
    echo stats >"$dir/$1.in"
    for ((i = 0; i < 100; i++)); do
        [[ $(wc -l <"$dir/$1.out") == "$had" ]] || break
        sleep 0.02
    done
    tail -n 1 "$dir/$1.out"
}
if [[ -n $stats ]]; then
    : >"$stats"
    for file in "$dir"/*.in; do
        [[ -e $file ]] || continue
        name=${file##*/}
        answer "${name%.in}" >>"$stats"
    done
fi
exit "$worst"
