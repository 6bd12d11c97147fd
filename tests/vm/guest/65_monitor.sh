#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The node agent's BPF probes in a kernel that has kprobes and RDMA: queue pairs with their peers, events of ports.
# limit: 280 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/tools.sh
. "$here/../tools.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"

qps=$build/tests/vm/qps sluiced=$build/tools/sluiced/sluiced
[[ -x $sluiced && -x $qps ]] || tap_skip_all "this build has no node agent or no BPF probes"
dir=$(mktemp -d)
pid=
trap '[[ -z $pid ]] || kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/metrics
END

has() { grep -qE "$1" "$dir/metrics"; }
# told PATTERN: within 30 s.
told() {
    until_true 30 has "$1" || { echo "no $1 in:"; grep rdma "$dir/metrics"; return 1; }
}

# Cases are processes of their own, so it is started and waited for outside of them. Its host is up for ten minutes
# more than the guest, so that no link is still excused by its boot: how long the guest is up depends on the machine.
unshare --time --boottime 600 --fork --kill-child "$sluiced" --config "$dir/conf" >"$dir/log" 2>&1 &
pid=$!

probes_are_up() {
    until_true 60 test -s "$dir/metrics" || { cat "$dir/log"; return 1; }
    told '^sluice_probe_up\{probe="qp",how="bpf"\} 1$' && told '^sluice_probe_up\{probe="rdma_event",how="bpf"\} 1$' &&
        told '^sluice_rdma_qp_changes_total\{kind="created"\} 0$'
}

# What is made, connected and destroyed within a period is counted all the same.
life_is_counted() {
    pingpong 0 1 -n 20 -s 1024 || return
    told '^sluice_rdma_qp_changes_total\{kind="created"\} 2$' && told '^sluice_rdma_qp_changes_total\{kind="destroyed"\} 2$' &&
        told '^sluice_rdma_qp_changes_total\{kind="modified"\} 6$'
}

# A peer is known by its GID and its queue pair's number: each is the other's.
peers_are_known() {
    local status=0 watcher
    "$qps" rxe0 1 60 >"$dir/qps" 2>&1 &
    watcher=$!
    until_true 30 grep -q watching "$dir/qps" || { cat "$dir/qps"; return 1; }
    pingpong 0 1 -n 600 -s 4096 >"$dir/pingpong" || status=1
    wait "$watcher" || status=1
    cat "$dir/qps" "$dir/pingpong"
    [[ $status -eq 0 ]] || return
    python3 - "$dir/qps" "$dir/pingpong" <<'END'
import ipaddress, json, re, sys
lines = open(sys.argv[1]).read().splitlines()[1:]
(qp,) = [json.loads(line) for line in lines]
remote = re.search(r"remote address:.*QPN (0x[0-9a-f]+).*GID (\S+)", open(sys.argv[2]).read())
local = re.search(r"local address:.*QPN (0x[0-9a-f]+).*GID (\S+)", open(sys.argv[2]).read())
assert qp["qpn"] == int(local[1], 16) and qp["peer_qpn"] == int(remote[1], 16), qp
assert ipaddress.ip_address(qp["peer_gid"]) == ipaddress.ip_address(remote[2]), qp
assert qp["type"] == "RC" and qp["pid"] > 0, qp
END
}

a_port_that_goes_and_comes_is_two_events() {
    local before
    before=$(sed -n 's/^sluice_rdma_events_total{device="rxe0",event="port_error"} //p' "$dir/metrics")
    rail_down A && rail_up A || return
    told "^sluice_rdma_events_total\{device=\"rxe0\",event=\"port_error\"\} $((${before:-0} + 1))\$" &&
        told '^sluice_rdma_events_total\{device="rxe0",event="port_active"\} [1-9]' && told '^sluice_rdma_events_total\{device="rxe1",event="port_error"\} [1-9]'
}

# Programs that come and go are no fault.
nobody_is_accused() {
    ! grep '"to":"bad"' "$dir/events"
}

# The ports of rail A, their network devices, and the bridge, of which no port had a carrier.
the_flap_is_told_of_its_rail_alone() {
    until_true 30 grep -q '"subject":"rxe0:1","check":"link_flap".*"to":"bad"' "$dir/events" || { cat "$dir/events"; return 1; }
    ! grep '"to":"bad"' "$dir/events" | grep -vE '"subject":"(rxe[01]:1|[vb][01]|br0)","check":"link_flap"'
}

it_ended() { [[ $status -eq 0 ]] || { echo "status $status"; cat "$dir/log"; return 1; }; }

tap_case probes_of_rdma_are_up_here probes_are_up
tap_case the_life_of_queue_pairs_is_counted life_is_counted
tap_case the_peer_of_a_queue_pair_is_known_by_gid_and_number peers_are_known
tap_case nobody_is_accused nobody_is_accused
tap_case a_port_that_goes_and_comes_is_two_events a_port_that_goes_and_comes_is_two_events
tap_case the_flap_is_told_of_its_rail_alone the_flap_is_told_of_its_rail_alone
status=0
# The agent is the only child of unshare, which has its status.
read -r agent <"/proc/$pid/task/$pid/children"
kill -TERM "$agent" && wait "$pid" || status=$?
pid=
tap_case it_ends_when_it_is_told_to it_ended
if [[ -x $build/tests/unit/ebpf/ebpf_test_probe ]]; then
    tap_case each_way_to_watch_rdma_and_the_loader_in_this_kernel "$build/tests/unit/ebpf/ebpf_test_probe"
fi
tap_done
