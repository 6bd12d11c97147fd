#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The node agent beside soft-RoCE: queue pairs by RDMA netlink, and what ports tell by async events.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/tools.sh
. "$here/../tools.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"
sluiced=$build/tools/sluiced/sluiced
if [[ ! -x $sluiced ]]; then
    tap_skip_all "the node agent is not built"
fi
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$dir"' EXIT

cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/sluice.prom
[sources]
kmsg = off
link = off
ranks = off
sluice = off
rdma_events = on
END

says() { grep -qE "$1" "$dir/sluice.prom"; }

# told CHECK SUBJECT SINCE: an event or transition of it, not before that time (ns); $dir/said has how much later.
told() {
    python3 - "$dir/events" "$@" <<'END'
import datetime, json, sys
path, check, subject, since = sys.argv[1:]
for line in open(path):
    event = json.loads(line)
    at = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp() * 1000
    if event["check"] == check and event["subject"] == subject and at >= int(since) / 1e6 - 1:
        with open(path.replace("events", "said"), "a") as said:
            said.write(f"# {subject} {check}: {at - int(since) / 1e6:.0f} ms later: {event['text']}\n")
        sys.exit(0)
sys.exit(1)
END
}

# As only ports in use are missed.
carry() {
    local i
    for ((i = 0; i < 20; i++)); do
        pingpong 0 1 -n 3000 -s 1024
    done >/dev/null 2>&1
}

# One queue pair of each device is the kernel's own.
the_agent_sees_devices_and_queue_pairs() {
    until_true 60 says 'sluice_rdma_qps\{device="rxe0",state="rts"\} [2-9]' &&
        says 'sluice_probe_up\{probe="rdma",how="netlink"\} 1' &&
        says 'sluice_probe_up\{probe="rdma",how="async events"\} 1' || { cat "$dir/err" "$dir/sluice.prom"; return 1; }
}

a_gid_that_goes_is_told() {
    local since
    since=$(date +%s%N)
    gid_remove 0 && until_true 60 told gid_gone rxe0:1 "$since" || { cat "$dir/events"; return 1; }
    gid_add 0
}

a_port_that_goes_down_is_told() {
    local since
    since=$(date +%s%N)
    rail_down A a && until_true 60 told port_event rxe0:1 "$since" || { cat "$dir/events"; return 1; }
    since=$(date +%s%N)
    rail_up A && until_true 60 told port_event rxe0:1 "$since"
}

run_ns() { awk '{ sum += $1 } END { printf "%.0f", sum }' /proc/"$agent"/task/*/schedstat; }

# used SECONDS: microseconds a second that the agent has of a processor; the machine here is an emulated one, so only
# the ratio says something.
used() {
    local before after
    before=$(run_ns)
    sleep "$1"
    after=$(run_ns)
    echo $(((after - before) / $1 / 1000))
}

a_thousand_queue_pairs_cost_little() {
    local few many
    few=$(used 20)
    "$build/tests/vm/hold_qps" rxe2 1000 >"$dir/held" 2>&1 &
    pids+=($!)
    until_true 120 grep -q ready "$dir/held" || { cat "$dir/held"; return 1; }
    until_true 60 says 'sluice_rdma_qps\{device="rxe2",state="rts"\} 1[0-9]{3}' || { cat "$dir/sluice.prom"; return 1; }
    many=$(used 40)
    echo "# emulated: $few us a second with few queue pairs, $many with a thousand" >>"$dir/said"
    ((many < 3 * few + 10000)) || { cat "$dir/said"; return 1; }
}

nobody_else_is_accused() {
    ! grep -E '"subject":"rxe[23]:1"' "$dir/events"
}

"$sluiced" --config "$dir/conf" >/dev/null 2>"$dir/err" &
agent=$!
pids+=("$agent")
carry >/dev/null 2>&1 &
pids+=($!)
tap_case the_agent_sees_devices_and_queue_pairs the_agent_sees_devices_and_queue_pairs
tap_case a_gid_that_goes_is_told a_gid_that_goes_is_told
tap_case a_port_that_goes_down_is_told a_port_that_goes_down_is_told
tap_case a_thousand_queue_pairs_cost_little a_thousand_queue_pairs_cost_little
tap_case nobody_else_is_accused nobody_else_is_accused
cat "$dir/said"
cp "$dir/events" "$dir/sluice.prom" "${VM_OUT:-/tmp}" 2>/dev/null
tap_done
