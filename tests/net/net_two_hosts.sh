#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts, as network namespaces joined by a veth pair of limited rate: sluice-bench runs over the link
# and is bound by it, and when the link is lost every rank says so in time. A third one is cut off from the second.
# usage: net_two_hosts.sh sluice-bench
set -uo pipefail
bench=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"

# What the limiter saves up, 128 KiB, is 10 ms of the rate: ranks that wait so long for a core on a busy machine lose nothing.
rate_mbit=100
timeout_ms=2000
dir=$(mktemp -d)
pids=()

clean_up() {
    local pid
    for pid in "${pids[@]}"; do
        kill -9 "$pid" 2>/dev/null
    done
    kill -9 "${a:-}" "${b:-}" "${c:-}" 2>/dev/null
    rm -rf "$dir"
}
trap clean_up EXIT

[[ $EUID -eq 0 ]] || tap_skip_all "network namespaces need root"
{ command -v ip && command -v tc; } >/dev/null || tap_skip_all "ip and tc are not here (package iproute2)"

# A namespace is that of a process that waits for this one to end: `ip netns add` would give it a name by a mount, which
# the root of a container often cannot take.
mkfifo "$dir/life"
exec {life}<>"$dir/life"
namespace() {
    unshare --net cat "$dir/life" {life}<&- >/dev/null 2>"$dir/why" &
    holder=$!
    disown "$holder"
    until_true 5 other_network "$holder" 2>/dev/null ||
        tap_skip_all "no network namespace can be made here: $(<"$dir/why")"
}
other_network() {
    local its
    its=$(readlink "/proc/$1/ns/net") && [[ $its != "$(readlink /proc/self/ns/net)" ]]
}
# inside PID COMMAND...
inside() { nsenter --target "$1" --net -- "${@:2}"; }
holder=
namespace
a=$holder
namespace
b=$holder
namespace
c=$holder
inside "$a" ip link add sluice0 type veth peer name sluice0 netns "$b" 2>"$dir/why" ||
    tap_skip_all "no veth pair can be made here: $(<"$dir/why")"

# host PID NUMBER: an address on the link, the limit, and a bridge with the same address on both
# hosts, as container tools leave them: ranks must not try to meet there.
host() {
    inside "$1" ip addr add "10.77.0.$2/24" dev sluice0 &&
        inside "$1" ip addr add "fd77::$2/64" dev sluice0 nodad &&
        inside "$1" ip link add docker0 type veth peer name container0 &&
        inside "$1" ip addr add 172.17.0.1/16 dev docker0 &&
        inside "$1" ip link set docker0 up &&
        inside "$1" ip link set container0 up &&
        inside "$1" ip link set lo up &&
        inside "$1" ip link set sluice0 up &&
        inside "$1" tc qdisc add dev sluice0 root tbf rate "${rate_mbit}mbit" burst 128kb latency 50ms
}
{ host "$a" 1 && host "$b" 2; } 2>"$dir/why" || tap_skip_all "the link cannot be set up here: $(<"$dir/why")"

has_carrier() { inside "$1" ip link show dev sluice0 | grep -q 'state UP'; }

# The kernel reports the carrier a moment after the link is up.
for namespace in "$a" "$b"; do
    until_true 10 has_carrier "$namespace" 2>/dev/null || tap_skip_all "the veth pair has no carrier after 10 s"
done

for name in "${!SLUICE_@}"; do
    unset "$name"
done
export SLUICE_SIZE=2 SLUICE_JOB=two-hosts SLUICE_SECRET=only-for-this-test

# start PID RANK ROOT OPTIONS...: output in $dir/RANK, process in pids[RANK].
start() {
    local namespace=$1 rank=$2 root=$3
    shift 3
    SLUICE_RANK=$rank SLUICE_ROOT=$root nsenter --target "$namespace" --net -- "$bench" "$@" >"$dir/$rank" 2>&1 &
    pids[rank]=$!
}

# ended SECONDS: waits for all; a status of a rank that is still there after SECONDS is 99.
ended() {
    local deadline=$((SECONDS + $1)) rank
    statuses=()
    for rank in "${!pids[@]}"; do
        until_true $((deadline - SECONDS)) gone "${pids[rank]}"
        if kill -9 "${pids[rank]}" 2>/dev/null; then
            wait "${pids[rank]}" 2>/dev/null
            statuses[rank]=99
        else
            wait "${pids[rank]}" 2>/dev/null
            statuses[rank]=$?
        fi
    done
    pids=()
}

show() {
    local rank
    for rank in "${!statuses[@]}"; do
        echo "rank $rank ended with ${statuses[rank]:-?}:"
        cat "$dir/$rank"
    done
}

# over_the_link ROOT: 2 MiB each way per allreduce, so the time gives the payload's share of the rate. The time is the
# median of five: the limiter drops what its queue has no room for, and a lost last segment costs TCP 200 ms.
over_the_link() {
    local time share
    start "$a" 0 "$1" -b 2M -e 2M -w 1 -i 5 -c 1 -v
    start "$b" 1 "$1" -b 2M -e 2M -w 1 -i 5 -c 1 -v
    ended 60
    show
    [[ ${statuses[0]} -eq 0 && ${statuses[1]} -eq 0 ]] || return 1
    grep -qE '^# ranks: 2 on 2 hosts' "$dir/0" || { echo "not seen as two hosts"; return 1; }
    time=$(awk '$1 == 2097152 { print $7 }' "$dir/0")
    share=$(awk -v us="$time" -v mbit="$rate_mbit" \
        'BEGIN { printf "%d", (us > 0) ? 100 * 2097152 * 8 / us / mbit : 0 }')
    echo "$share % of the link's rate"
    # Headers take 5 %; the limiter's bucket may give a little more than the rate for a moment.
    [[ $share -ge 80 && $share -le 105 ]]
}

# What is encoded takes the time of its bytes: encoding, the link and decoding overlap. 8 MiB of f32 by bq8 are 2.1 MiB each way.
encodings_over_the_link() {
    local time wire share
    start "$a" 0 10.77.0.1:7721 --compress bq8 -b 8M -e 8M -w 1 -i 5 -c 1 -v
    start "$b" 1 10.77.0.1:7721 --compress bq8 -b 8M -e 8M -w 1 -i 5 -c 1 -v
    ended 60
    show
    [[ ${statuses[0]} -eq 0 && ${statuses[1]} -eq 0 ]] || return 1
    read -r time wire < <(awk '$1 == 8388608 { print $7, $12 }' "$dir/0")
    [[ $wire -eq 2129920 ]] || { echo "$wire bytes were sent"; return 1; }
    share=$(awk -v us="$time" -v mbit="$rate_mbit" -v wire="$wire" 'BEGIN { printf "%d", (us > 0) ? 100 * wire * 8 / us / mbit : 0 }')
    echo "$share % of the link's rate"
    [[ $share -ge 75 && $share -le 106 ]]
}

# checksums_are on|off OTHER PORT SETTING...: on both ends of a run between $a and OTHER, by addresses of the network.
checksums_are() {
    local crc=$1 other=$2 root=10.77.0.1:$3 rank
    shift 3
    # shellcheck disable=SC2163 # NAME=VALUE each
    export SLUICE_LOG=tcp:info SLUICE_TRANSPORT=tcp "$@"
    start "$a" 0 "$root" -b 8k -e 8k -i 5
    start "$other" 1 "$root" -b 8k -e 8k -i 5
    unset SLUICE_LOG SLUICE_TRANSPORT "${@%%=*}"
    ended 60
    show
    [[ ${statuses[0]} -eq 0 && ${statuses[1]} -eq 0 ]] || return 1
    for rank in 0 1; do
        grep -q "connected to .*10\.77\.0\..*, crc $crc" "$dir/$rank" || { echo "rank $rank: checksums are not $crc"; return 1; }
    done
}

# Machines cloned from one snapshot look like one host; what they send still crosses a network.
hosts_that_look_like_one() { checksums_are on "$b" 7718 SLUICE_HOST_ID=clone; }

# By addresses of the network, within one host.
one_host_that_does_not_use_loopback() { checksums_are off "$a" 7719 SLUICE_INTERFACE=sluice0; }

bytes_sent() {
    inside "$1" ip -s link show dev sluice0 | awk '/TX:/ { getline; print $1 }'
}

# moving SINCE: the run is well past the meeting and the first operations; or a rank has ended.
moving() { (($(bytes_sent "$a") - $1 >= 16 * 1024 * 1024)) || gone "${pids[0]}" || gone "${pids[1]}"; }

loses_the_link() {
    local before started
    export SLUICE_TIMEOUT_MS=$timeout_ms
    before=$(bytes_sent "$a")
    start "$a" 0 10.77.0.1:7717 -b 1M -e 1M -i 1000000
    start "$b" 1 10.77.0.1:7717 -b 1M -e 1M -i 1000000
    if ! until_true 30 moving "$before" || gone "${pids[0]}" || gone "${pids[1]}"; then
        ended 0
        show
        echo "the run did not begin"
        return 1
    fi
    inside "$a" ip link set sluice0 down
    started=$SECONDS
    ended $((timeout_ms / 1000 + 10))
    show
    echo "both had ended $((SECONDS - started)) s after the link was lost"
    [[ ${statuses[0]} -ne 0 && ${statuses[1]} -ne 0 && ${statuses[0]} -ne 99 && ${statuses[1]} -ne 99 ]] || return 1
    ((SECONDS - started <= timeout_ms / 1000 + 5)) || { echo "too late"; return 1; }
    grep -q 'rank 1' "$dir/0" || { echo "rank 0 does not name rank 1"; return 1; }
    grep -q 'rank 0' "$dir/1" || { echo "rank 1 does not name rank 0"; return 1; }
}

# A third host reaches the first, and the second only through the first, which forwards nothing and says nothing of it: as
# behind a firewall. The first collective that needs the two together fails on every rank, and the lowest names them.
a_pair_is_cut_off() {
    local rank timeout_ms=4000
    inside "$a" ip link set sluice0 up
    inside "$a" sh -c 'echo 0 >/proc/sys/net/ipv4/ip_forward'
    { inside "$a" ip link add cut0 type veth peer name sluice0 netns "$c" &&
        inside "$a" ip addr add 10.78.0.1/24 dev cut0 && inside "$a" ip link set cut0 up &&
        inside "$c" ip addr add 10.78.0.2/24 dev sluice0 && inside "$c" ip link set sluice0 up &&
        inside "$c" ip link set lo up && inside "$c" ip route add 10.77.0.0/24 via 10.78.0.1 &&
        inside "$b" ip route add 10.78.0.0/24 via 10.77.0.1; } || return 1
    until_true 10 has_carrier "$c" && until_true 10 has_carrier "$a"
    export SLUICE_SIZE=3 SLUICE_CONNECT_TIMEOUT_MS=$timeout_ms SLUICE_INTERFACE='sluice0,cut0'
    start "$a" 0 10.77.0.1:7720 -b 8 -e 8
    start "$b" 1 10.77.0.1:7720 -b 8 -e 8
    start "$c" 2 10.77.0.1:7720 -b 8 -e 8
    ended $((timeout_ms / 1000 + 10))
    export SLUICE_SIZE=2
    unset SLUICE_CONNECT_TIMEOUT_MS SLUICE_INTERFACE
    show
    for rank in 0 1 2; do
        [[ ${statuses[rank]} -ne 0 && ${statuses[rank]} -ne 99 ]] || { echo "rank $rank goes on"; return 1; }
    done
    grep -q 'no transport connects ranks 1 and 2' "$dir/0" || { echo "rank 0 does not name them"; return 1; }
    grep -q '10\.7[78]\.0\.2.*firewall' "$dir/0" ||
        { echo "rank 0 does not say which address does not answer"; return 1; }
}

statuses=()
tap_case a_run_over_ipv4_is_checked_and_reaches_the_rate_of_the_link over_the_link 10.77.0.1:7715
tap_case a_run_over_ipv6_is_checked_and_reaches_the_rate_of_the_link over_the_link '[fd77::1]:7716'
tap_case encodings_take_the_time_of_their_bytes encodings_over_the_link
tap_case hosts_that_look_like_one_check_what_they_send hosts_that_look_like_one
tap_case one_host_needs_no_checksums_on_any_of_its_addresses one_host_that_does_not_use_loopback
tap_case a_lost_link_ends_both_ranks_in_time_and_each_names_the_other loses_the_link
tap_case a_pair_that_a_firewall_cuts_is_named a_pair_is_cut_off
tap_done
