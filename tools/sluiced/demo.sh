#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The agent with something to see: two network namespaces with a link between them, over which two ranks of sluice-bench
# sum, an RDMA port that is made of files, and faults, one after another, for as long as somebody looks. `./dev monitor`
# calls it after a build. Nothing of this machine is changed: namespaces, files and processes are its own and go with it.
# usage: demo.sh BUILD [--seconds N] [--no-faults]
#   --seconds N   end after so long, and without a terminal: print events as they come, and the state of all at last.
#                 Default: on a terminal `sluicectl top` until q is pressed; else 30
#   --no-faults   only the agent, the link and the ranks
set -uo pipefail
[[ ${1:-} != --inside ]] || { is_inside=1; shift; }
build=$(cd "${1:?usage: demo.sh BUILD [--seconds N] [--no-faults]}" && pwd) || exit
shift
given=("$@") seconds='' faults=1

say() { printf 'demo: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

while [[ $# -gt 0 ]]; do
    case $1 in
    --seconds)
        [[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || { say "--seconds wants a number of seconds"; exit 2; }
        seconds=$2
        shift 2
        ;;
    --no-faults) faults=; shift ;;
    *) say "there is no option '$1': --seconds N, --no-faults"; exit 2 ;;
    esac
done
[[ -n $seconds || -t 0 && -t 1 ]] || seconds=30
sluiced=$build/tools/sluiced/sluiced sluicectl=$build/tools/ctl/sluicectl bench=$build/tools/bench/sluice-bench

# ---- a network of its own ----

# As root, or as root of a user namespace; else without a link.
if [[ -z ${is_inside:-} ]]; then
    for how in '' -r; do
        # shellcheck disable=SC2086
        if [[ $EUID -eq 0 || -n $how ]] && unshare $how --net ip link add demo0 type veth peer name demo1 2>/dev/null; then
            # shellcheck disable=SC2086
            exec unshare $how --net "$(readlink -f "$0")" --inside "$build" "${given[@]}"
        fi
    done
    say "no network namespace can be had here (as root, it can): the demo has no link, and its ranks use shared memory"
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/sluice-demo.XXXXXX") || exit
pids=()

# Only what this script started, each by its number; one that is stopped has to go on to end.
clean_up() {
    local pid i
    trap '' INT TERM HUP
    for pid in "${pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null && kill -CONT "$pid" 2>/dev/null
    done
    for pid in "${pids[@]}"; do
        for ((i = 0; i < 40; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# begin COMMAND...: in the background; its number in $begun.
begin() {
    "$@" &
    begun=$!
    pids+=("$begun")
}

# pause SECONDS: on a pipe that nothing comes out of, as a `sleep` would outlive whoever waits for it.
exec {nothing}<> <(:)
pause() { ! read -rt "$1" -u "$nothing"; }

# until_true SECONDS COMMAND...
until_true() {
    local left=$((20 * $1))
    shift
    until "$@"; do
        ((left-- > 0)) || return 1
        pause 0.05
    done
}

other_network() { [[ $(readlink "/proc/$1/ns/net" 2>/dev/null) != "$(readlink /proc/self/ns/net)" ]]; }

# has_carrier PREFIX...: the kernel says so a moment after the link is up.
has_carrier() { "$@" ip link show dev demo0 | grep -q 'state UP'; }

# Two hosts: this namespace and that of a process that sleeps.
link() {
    begin unshare --net sleep 86400
    far=$begun
    until_true 5 other_network "$far" && ip link set lo up && ip link add demo0 type veth peer name demo0 netns "$far" &&
        ip addr add 10.78.0.1/24 dev demo0 && ip link set demo0 up &&
        nsenter --target "$far" --net -- sh -c 'ip link set lo up && ip addr add 10.78.0.2/24 dev demo0 && ip link set demo0 up' &&
        until_true 10 has_carrier && until_true 10 has_carrier nsenter --target "$far" --net -- || return
    # So that the ranks take this machine's time only now and then.
    tc qdisc add dev demo0 root tbf rate 200mbit burst 256kb latency 50ms 2>/dev/null
    return 0
}

# ---- what is watched ----

port=$dir/rdma/mlx5_demo/ports/1

made_port() {
    mkdir -p "$port/counters" && echo '4: ACTIVE' >"$port/state" && echo '400 Gb/sec (4X NDR)' >"$port/rate" &&
        echo 0 >"$port/counters/port_xmit_packets"
}

# It carries, which makes it a port in use.
port_carries() {
    local i
    for ((i = 1; ; i++)); do
        # In place, as the agent has the file open: at no time is it empty.
        [[ -e $dir/idle ]] || printf '%d\n' $((i * 1000)) 1<>"$port/counters/port_xmit_packets"
        pause 0.2
    done
}

agent() {
    printf '%s\n' '[store]' "path = $dir/state.db" '[output]' "events = $dir/events.jsonl" \
        '[sources]' 'period_ms = 250' 'kmsg = off' "rdma_root = $dir/rdma" '[api]' "socket = $dir/api.sock" >"$dir/sluiced.conf"
    begin "$sluiced" --config "$dir/sluiced.conf"
    until_true 10 test -S "$dir/api.sock"
}

# rank NUMBER PREFIX...: it sums until it is ended.
rank() {
    local number=$1
    shift
    SLUICE_RANK=$number SLUICE_SIZE=2 SLUICE_JOB=demo SLUICE_SECRET=only-for-this-demo SLUICE_ROOT=$root \
        begin "$@" "$bench" -b 1M -e 1M -c 0 -N 1000000 -T 600 >"$dir/rank$number.out" 2>&1
    ranks[number]=$begun
}

# ---- faults ----

told() { say "$(date +%T): $*"; }

flap() {
    told "the link's far end goes down for 50 ms"
    nsenter --target "$far" --net -- sh -c 'ip link set demo0 down; sleep 0.05; ip link set demo0 up'
}

port_down() {
    told "RDMA port mlx5_demo:1 goes down for $1 s"
    touch "$dir/idle"
    printf '1: DOWN  \n' 1<>"$port/state"
    pause "$1"
    printf '4: ACTIVE\n' 1<>"$port/state"
    rm -f "$dir/idle"
}

stopped() {
    told "rank 1 is stopped for $1 s"
    kill -STOP "${ranks[1]}" && pause "$1" && kill -CONT "${ranks[1]}"
}

# Beside the agent, until it is ended: each fault, a pause, from the start again.
inject() {
    trap - EXIT INT TERM HUP
    while pause 2; do
        [[ -z $far ]] || flap
        pause 1
        [[ ${#ranks[@]} -eq 0 ]] || stopped 2
        pause 1
        port_down 3
    done
}

# ---- the demo ----

far='' ranks=() root=127.0.0.1:0
if [[ -n ${is_inside:-} ]]; then
    link || die "the link could not be made"
    export SLUICE_TRANSPORT=tcp
    root=10.78.0.1:29478
fi
made_port || die "nothing can be written in $dir"
agent || die "the agent does not answer on $dir/api.sock"
begin port_carries
if [[ -n $far && -x $bench ]]; then
    rank 0
    rank 1 nsenter --target "$far" --net --
fi
[[ -z $faults ]] || begin inject

if [[ -z $seconds ]]; then
    # What faults do is to be seen in its table; what is said of them would write over it.
    "$sluicectl" --socket "$dir/api.sock" top
    exit
fi
told "for $seconds s; the agent's events:"
begin "$sluicectl" --socket "$dir/api.sock" events --follow 2>/dev/null
begin sleep "$seconds"
wait "$begun"
told "the end; what the agent says of all:"
"$sluicectl" --socket "$dir/api.sock" status
exit 0
