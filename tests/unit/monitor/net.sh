#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the agent says of faults between two network namespaces: the right subject and cause, and nothing while all is well.
# usage: net.sh SLUICED [all]    without all: the shortest case
set -uo pipefail
sluiced=$(readlink -f "$1") which=${2:-short}
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
for tool in ip nft tc ethtool; do
    command -v "$tool" >/dev/null || tap_skip_all "needs $tool"
done
a=sluice_a$$ b=sluice_b$$
if [[ $EUID -ne 0 ]] || ! ip netns add "$a" 2>/dev/null; then
    tap_skip_all "needs root, and network namespaces"
fi
dir=$(mktemp -d)
pids=()

stop_all() {
    local pid
    for pid in "${pids[@]}"; do
        kill -CONT "$pid" 2>/dev/null
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    pids=()
}
trap 'stop_all; ip netns del "$a"; ip netns del "$b" 2>/dev/null; rm -rf "$dir"' EXIT

in_a() { ip netns exec "$a" "$@"; }
in_b() { ip netns exec "$b" "$@"; }

cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/sluice.prom
[sources]
kmsg = off
rdma = off
ranks = off
sluice = off
END

# A pair of interfaces, in whose two ends packets are as long as TCP makes them.
network() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns add "$a" && ip netns add "$b" && ip link add sl_a netns "$a" type veth peer name sl_b netns "$b" &&
        ip -n "$a" addr add 10.99.0.1/24 dev sl_a && ip -n "$b" addr add 10.99.0.2/24 dev sl_b || return
    ip -n "$a" link set lo up && ip -n "$a" link set sl_a up && ip -n "$b" link set lo up && ip -n "$b" link set sl_b up &&
        in_a ethtool -K sl_a gro on && in_b ethtool -K sl_b gro on
}

# begin [RECEIVER'S RATE] [SENDER'S SIZE AND PERIOD]: the agent and one flow from a to b.
begin() {
    stop_all
    network >/dev/null || return
    rm -f "$dir"/state.db* "$dir/events" "$dir/sluice.prom"
    : >"$dir/events"
    # (Not by in_a: its process would be the shell's.)
    ip netns exec "$a" "$sluiced" --config "$dir/conf" >/dev/null 2>"$dir/err" &
    pids+=($!)
    ip netns exec "$b" python3 "$here/flow.py" receive 7001 "${1:-0}" >/dev/null 2>&1 &
    pids+=($!) receiver=$!
    # shellcheck disable=SC2086
    ip netns exec "$a" python3 "$here/flow.py" send 10.99.0.2 7001 ${2:-} >/dev/null 2>&1 &
    pids+=($!) sender=$!
}

# The agent knows the flow: on a machine with much else to do that takes its time.
seen() {
    local i
    for ((i = 0; i < 300; i++)); do
        grep -q '^sluice_tcp_connections 1' "$dir/sluice.prom" 2>/dev/null && return
        sleep 0.1
    done
    echo "# the agent sees no flow:" && sed 's/^/# /' "$dir/err"
    return 1
}

told() { grep -qE "\"subject\":\"$2\",\"check\":\"$1\".*\"to\":\"bad\"" "$dir/events"; }

# until_told SECONDS CHECK SUBJECT
until_told() {
    local i
    for ((i = 0; i < 10 * $1; i++)); do
        told "$2" "$3" && return
        sleep 0.1
    done
    echo "not within its time: $2 of $3"
    cat "$dir/events" "$dir/err"
    return 1
}

# Nobody is accused but by this check.
only() {
    ! grep '"to":"bad"' "$dir/events" | grep -v "\"check\":\"$1\""
}

peer='sl_a to 10.99.0.2'

lose() {
    in_b nft -f - <<END
table netdev faults { chain in { type filter hook ingress device sl_b priority 0; ip protocol tcp $1 counter drop; }; }
END
}

a_receiver_that_is_stopped_is_told() {
    kill -STOP "$receiver"
    until_told 20 peer_slow "$peer" && only peer_slow
}

loss_is_told() {
    # With long packets one that is lost is 64 KiB of them.
    in_a ethtool -K sl_a tso off gso off >/dev/null
    in_b ethtool -K sl_b gro off >/dev/null
    lose 'numgen random mod 1000 < 10' && until_told 20 path_loss "$peer" && only path_loss
}

blackouts_are_told() {
    local i
    for ((i = 0; i < 8; i++)); do
        lose '' && sleep 0.2 && in_b nft delete table netdev faults && sleep 1.3
    done
    until_told 5 path_blackout "$peer" && only path_blackout
}

a_wrong_mac_is_told() {
    ip -n "$a" neigh replace 10.99.0.2 lladdr 02:00:00:00:00:99 dev sl_a
    until_told 20 path_blackout "$peer" && only path_blackout
}

a_way_that_became_slow_is_told() {
    in_a tc qdisc add dev sl_a root tbf rate 200mbit burst 256k latency 20ms
    until_told 30 path_slow "$peer" && only path_slow
}

# SECONDS: nothing is told.
quiet() {
    sleep "$1"
    ! grep '"to":"bad"' "$dir/events"
}

# A program that computes between its messages; one that is stopped sends nothing, and that is no fault of the way.
a_sender_that_is_stopped_is_no_fault_of_the_way() {
    kill -STOP "$sender"
    quiet 8
}

# A TAP device whose reader reads, then stops: what leaves the host ends there.
a_queue_that_stands_still_is_told() {
    local i status=0
    stop_all
    rm -f "$dir"/state.db* "$dir/events"
    ip netns exec "$a" python3 - "$dir" <<'END' >/dev/null 2>"$dir/tap.err" &
import fcntl, os, socket, struct, subprocess, sys, time
tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"sl_t", 0x1002))
for words in ("addr add 10.98.0.1/24 dev sl_t", "link set sl_t up", "neigh replace 10.98.0.2 lladdr 02:00:00:00:00:02 dev sl_t"):
    subprocess.check_call(["ip", *words.split()])
sender, began = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK), time.time()
open(sys.argv[1] + "/tap", "w").close()
while True:
    for _ in range(100):
        try:
            sender.sendto(bytes(1000), ("10.98.0.2", 9))
        except OSError:
            pass
    try:
        while time.time() < began + 5:
            os.read(tap, 4096)
    except BlockingIOError:
        pass
    time.sleep(0.02)
END
    pids+=($!)
    for ((i = 0; i < 100; i++)); do
        [[ ! -e $dir/tap ]] || break
        sleep 0.1
    done
    if [[ ! -e $dir/tap ]]; then
        cat "$dir/tap.err"
        stop_all
        return 1
    fi
    ip netns exec "$a" "$sluiced" --config "$dir/conf" >/dev/null 2>"$dir/err" &
    pids+=($!)
    until_told 25 transmit_stall sl_t && only transmit_stall || status=1
    stop_all # they are this shell's own
    return "$status"
}

# Cases run in shells of their own: flows begin before.
fault() {
    tap_wanted "$1" || return 0
    begin && seen && sleep "$2" && tap_case "$1" "$1"
}

# calm NAME SECONDS ARGUMENTS_OF_BEGIN...
calm() {
    tap_wanted "$1" || return 0
    begin "${@:3}" && seen && tap_case "$1" quiet "$2"
}

fault a_receiver_that_is_stopped_is_told 3
if [[ $which == all ]]; then
    calm twenty_healthy_seconds_are_quiet 20
    calm a_receiver_that_was_always_slow_is_quiet 12 20000000
    calm bursts_are_quiet 12 0 '50000000 1.5'
    fault loss_is_told 4
    fault blackouts_are_told 4
    fault a_wrong_mac_is_told 4
    fault a_way_that_became_slow_is_told 8
    fault a_sender_that_is_stopped_is_no_fault_of_the_way 4
    stop_all
    if [[ -c /dev/net/tun ]]; then
        tap_case a_queue_that_stands_still_is_told a_queue_that_stands_still_is_told
    else
        tap_skip a_queue_that_stands_still_is_told "there is no /dev/net/tun"
    fi
fi
stop_all
tap_done
