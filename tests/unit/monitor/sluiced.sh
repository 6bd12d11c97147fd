#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluiced as a program: its options, what it tells systemd, signals, and a port of a tree of our own that goes down.
# usage: sluiced.sh SLUICED
set -uo pipefail
sluiced=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"
# shellcheck source=tests/unit/monitor/only.sh
. "$(dirname "$0")/only.sh"

dir=$(mktemp -d)
pid=
# meson says in MESON_EXE_WRAPPER what runs a program for another processor.
if [[ -n ${MESON_EXE_WRAPPER:-} ]]; then
    printf '#!/bin/sh\nexec %s %s "$@"\n' "$MESON_EXE_WRAPPER" "$sluiced" >"$dir/sluiced"
    chmod +x "$dir/sluiced"
    sluiced=$dir/sluiced
fi
# A case is a process of its own: which agent it left is in a file.
trap '[[ ! -s $dir/pid ]] || kill "$(<"$dir/pid")" 2>/dev/null; rm -rf "$dir"' EXIT
port=$dir/rdma/mlx5_0/ports/1
other=$dir/rdma/mlx5_1/ports/1

tree() {
    local one
    rm -rf "$dir/rdma" "$dir"/*.db* "$dir"/events* "$dir"/*.prom
    for one in "$port" "$other"; do
        mkdir -p "$one/counters" && echo '4: ACTIVE' >"$one/state" && echo '400 Gb/sec (4X NDR)' >"$one/rate" &&
            echo 0 >"$one/counters/port_xmit_packets" || return
    done
    cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/sluice.prom
[sources]
period_ms = 100
rdma_root = $dir/rdma
$(sources_off "$sluiced" rdma)
[api]
socket =
END
}

# until_true COMMAND...: within ten seconds.
until_true() {
    local i
    for ((i = 0; i < 200; i++)); do
        "$@" && return
        sleep 0.05
    done
    echo "not within its time: $*"
    return 1
}

begin() {
    tree && : >"$dir/err"
    # Not into the pipe of this case, which would then wait for an agent that a failure leaves.
    "$sluiced" --config "$dir/conf" >/dev/null 2>"$dir/err" &
    pid=$!
    echo "$pid" >"$dir/pid"
    until_true test -s "$dir/sluice.prom" || { cat "$dir/err"; return 1; }
}

end() {
    local status=0
    kill -TERM "$pid" && wait "$pid" || status=$?
    pid=
    rm -f "$dir/pid"
    [[ $status -eq 0 ]] || { echo "status $status"; cat "$dir/err"; return 1; }
}

# carry [PORT]: it carries packets, as only a port in use is missed.
carry() {
    local i
    for ((i = 1; i <= 5; i++)); do
        echo $((i * 1000)) >"${1:-$port}/counters/port_xmit_packets"
        sleep 0.12
    done
}

a_port_that_goes_down_is_told() {
    begin && carry && echo '1: DOWN' >"$port/state" && until_true grep -q '"to":"bad"' "$dir/events" &&
        until_true grep -qx 'sluice_port_up{device="mlx5_0",port="1"} 0' "$dir/sluice.prom" && end || return
    python3 - "$dir/events" <<'END'
import json, sys
(event,) = [json.loads(line) for line in open(sys.argv[1])]
assert event["subject"] == "mlx5_0:1" and event["check"] == "link_down" and event["class"] == "NICDown", event
END
}

# The verdict of that port takes the node out, by a program; then it is told.
a_port_that_goes_down_takes_the_node_out() {
    begin && end || return
    printf '%s\n' '#!/bin/sh' "echo \"\$1 \$2 \$SLUICED_CLASS \$SLUICED_SUBJECT\" >>'$dir/hook.out'" >"$dir/hook" && chmod +x "$dir/hook" &&
        printf '%s\n' '[isolate]' 'plug = exec' 'mode = act' 'node = n1' "command = $dir/hook" >>"$dir/conf" || return
    rm -f "$dir/sluice.prom"
    "$sluiced" --config "$dir/conf" 2>"$dir/err" &
    pid=$!
    until_true test -s "$dir/sluice.prom" && carry && echo '1: DOWN' >"$port/state" &&
        until_true grep -q '"type":"action".*"result":"done"' "$dir/events" &&
        until_true grep -qx 'sluice_isolation_out{plug="exec"} 1' "$dir/sluice.prom" && end || { cat "$dir/err" "$dir/events"; return 1; }
    [[ $(<"$dir/hook.out") == "out n1 NICDown mlx5_0:1" ]] || { cat "$dir/hook.out"; return 1; }
}

killed_and_started_again_it_tells_nothing_twice() {
    begin && carry && echo '1: DOWN' >"$port/state" && until_true grep -q '"to":"bad"' "$dir/events" || return
    sleep 0.3
    kill -KILL "$pid" && wait "$pid" 2>/dev/null
    rm "$dir/sluice.prom"
    "$sluiced" --config "$dir/conf" 2>"$dir/err" &
    pid=$!
    until_true test -s "$dir/sluice.prom" && sleep 0.3 && end && [[ $(wc -l <"$dir/events") -eq 1 ]] ||
        { cat "$dir/events" "$dir/err"; return 1; }
}

a_bad_configuration_leaves_the_old_one_in_force() {
    begin || return
    sed -i 's/period_ms = 100/period_ms = soon/' "$dir/conf"
    kill -HUP "$pid" &&
        until_true grep -qx "sluiced: $dir/conf:7: period_ms is to be a number, and is 'soon'" "$dir/err" &&
        until_true grep -qx 'sluice_config_last_reload_success 0' "$dir/sluice.prom" || return
    sed -i 's/period_ms = soon/period_ms = 200/' "$dir/conf"
    kill -HUP "$pid" && until_true grep -qx 'sluice_config_last_reload_success 1' "$dir/sluice.prom" && end
}

# refused SENTENCE: it is told to read its configuration again, and says that, and the metric says so.
refused() {
    : >"$dir/err"
    kill -HUP "$pid" && until_true grep -q "^sluiced: .*$1" "$dir/err" && until_true grep -qx 'sluice_config_last_reload_success 0' "$dir/sluice.prom"
}

# taken: the same, and it is in force.
taken() { kill -HUP "$pid" && until_true grep -qx 'sluice_config_last_reload_success 1' "$dir/sluice.prom"; }

whatever_is_wrong_with_a_configuration_the_old_one_stays_in_force() {
    begin && cp "$dir/conf" "$dir/good" || return
    rm "$dir/conf" && refused "$dir/conf cannot be opened" && cp "$dir/good" "$dir/conf" && taken || return
    echo 'what = 1' >>"$dir/conf" && refused "$dir/conf:[0-9]*: there is no key 'what'" && cp "$dir/good" "$dir/conf" && taken || return
    # It reads well, and cannot be: the agent has closed the old store by then, and opens that again.
    sed -i 's#^path = .*#path = /proc/none/state.db#' "$dir/conf" && refused '/proc/none/state.db' || return
    # The old one is in force: its store, its sources and its files.
    carry && echo '1: DOWN' >"$port/state" && until_true grep -q '"to":"bad"' "$dir/events" && cp "$dir/good" "$dir/conf" && taken && end
}

a_file_of_events_that_was_moved_away_is_opened_anew() {
    begin && carry && echo '1: DOWN' >"$port/state" && until_true grep -q '"subject":"mlx5_0:1".*"to":"bad"' "$dir/events" || return
    mv "$dir/events" "$dir/events.1" && kill -HUP "$pid" && until_true test -e "$dir/events" && sleep 0.3 || return
    # From the beginning again: whether a port is in use is known from what it did.
    carry "$other" && echo '1: DOWN' >"$other/state" && until_true grep -q '"subject":"mlx5_1:1".*"to":"bad"' "$dir/events" && end || return
    [[ $(wc -l <"$dir/events.1") -eq 1 && $(wc -l <"$dir/events") -eq 1 ]] || { cat "$dir/events.1"; echo; cat "$dir/events"; return 1; }
}

# What the journal takes: systemd reads "<3>" before a line as its level, which no line of JSON begins with.
on_standard_output_are_lines_of_json_alone() {
    tree && sed -i 's#^events = .*#events = -#' "$dir/conf" || return
    "$sluiced" --config "$dir/conf" >"$dir/out" 2>"$dir/err" &
    pid=$!
    echo "$pid" >"$dir/pid"
    until_true test -s "$dir/sluice.prom" && carry && echo '1: DOWN' >"$port/state" && until_true grep -q '"to":"bad"' "$dir/out" || return
    sed -i 's/period_ms = 100/period_ms = soon/' "$dir/conf"
    kill -HUP "$pid" && until_true grep -q period_ms "$dir/err" && end || return
    python3 -c 'import json, sys; assert [json.loads(line)["subject"] for line in open(sys.argv[1])] == ["mlx5_0:1"]' "$dir/out" &&
        ! grep -v '^sluiced: ' "$dir/err"
}

systemd_hears_when_it_is_ready_and_that_it_lives() {
    tree
    python3 - "$sluiced" "$dir" <<'END'
import os, socket, subprocess, sys
program, folder = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(folder + "/notify")
listener.settimeout(10)
agent = subprocess.Popen([program, "--config", folder + "/conf"], env={**os.environ, "NOTIFY_SOCKET": folder + "/notify"})
try:
    assert listener.recv(1024) == b"READY=1"
    assert listener.recv(1024) == b"WATCHDOG=1\nSTATUS=all sources are read"
    agent.terminate()
    while listener.recv(1024) != b"STOPPING=1":
        pass
    assert agent.wait(10) == 0
finally:
    agent.kill()
END
}

a_dead_source_is_not_told_to_be_alive() {
    tree && sed -i "s#^kmsg = off#kmsg = on\nkmsg_path = $dir/none#" "$dir/conf"
    python3 - "$sluiced" "$dir" <<'END'
import os, socket, subprocess, sys
program, folder = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(folder + "/notify2")
listener.settimeout(10)
agent = subprocess.Popen([program, "--config", folder + "/conf"], env={**os.environ, "NOTIFY_SOCKET": folder + "/notify2"})
try:
    assert listener.recv(1024) == b"READY=1"
    for _ in range(5):
        said = listener.recv(1024)
        assert said.startswith(b"STATUS=not read: kmsg: ") and b"WATCHDOG" not in said, said
finally:
    agent.kill()
    agent.wait()
END
}

# In a network namespace of its own: a veth pair, over which the kernel's own few packets go.
a_flap_of_a_real_link_is_told_with_its_duration() {
    # A second: on a machine that is busy, 50 ms may be 200, and two readings of it would be a port that is down.
    tree && sed -i 's/^link = off/link = on/; s/^period_ms = .*/period_ms = 1000/' "$dir/conf"
    # shellcheck disable=SC2016
    unshare -n bash -c '
        ip link add sl_a type veth peer name sl_b && ip link set sl_a up && ip link set sl_b up || exit
        "$0" --config "$1/conf" 2>"$1/err" &
        pid=$!
        sleep 3
        ip link set sl_b down && sleep 0.05 && ip link set sl_b up
        for ((i = 0; i < 100; i++)); do
            grep -q link_flap "$1/events" && break
            sleep 0.05
        done
        kill -TERM "$pid" && wait "$pid"' "$sluiced" "$dir" || { cat "$dir/err"; return 1; }
    grep -q '"subject":"sl_a","check":"link_flap".*"to":"bad".*went down and came back 1 time, [0-9]* ms the last time' "$dir/events" ||
        { cat "$dir/events"; return 1; }
    ! grep link_down "$dir/events"
}

options_are_as_its_help_says() {
    local got=0
    "$sluiced" --help | grep '^usage: sluiced' >/dev/null && "$sluiced" --version | grep -q '^sluiced ' &&
        "$sluiced" --print-config >"$dir/printed" && "$sluiced" --config "$dir/printed" --check || return
    "$sluiced" --what >/dev/null 2>&1 || got=$?
    [[ $got -eq 2 ]] || { echo "status $got"; return 1; }
    got=0
    "$sluiced" word >/dev/null 2>&1 || got=$?
    [[ $got -eq 2 ]] || { echo "status $got"; return 1; }
    printf '[sources]\nwhat = 1\n' >"$dir/bad"
    got=0
    "$sluiced" --config "$dir/bad" --check 2>"$dir/said" || got=$?
    [[ $got -eq 1 ]] && grep -qx "sluiced: $dir/bad:2: there is no key 'what' in \[sources\]" "$dir/said"
}

tap_case options_are_as_its_help_says options_are_as_its_help_says
tap_case a_port_that_goes_down_is_told a_port_that_goes_down_is_told
tap_case a_port_that_goes_down_takes_the_node_out a_port_that_goes_down_takes_the_node_out
tap_case killed_and_started_again_it_tells_nothing_twice killed_and_started_again_it_tells_nothing_twice
tap_case a_bad_configuration_leaves_the_old_one_in_force a_bad_configuration_leaves_the_old_one_in_force
tap_case whatever_is_wrong_with_a_configuration_the_old_one_stays_in_force whatever_is_wrong_with_a_configuration_the_old_one_stays_in_force
tap_case a_file_of_events_that_was_moved_away_is_opened_anew a_file_of_events_that_was_moved_away_is_opened_anew
tap_case on_standard_output_are_lines_of_json_alone on_standard_output_are_lines_of_json_alone
tap_case systemd_hears_when_it_is_ready_and_that_it_lives systemd_hears_when_it_is_ready_and_that_it_lives
tap_case a_dead_source_is_not_told_to_be_alive a_dead_source_is_not_told_to_be_alive
if [[ $EUID -eq 0 ]] && unshare -n ip link show lo >/dev/null 2>&1; then
    tap_case a_flap_of_a_real_link_is_told_with_its_duration a_flap_of_a_real_link_is_told_with_its_duration
else
    tap_skip a_flap_of_a_real_link_is_told_with_its_duration "needs root, unshare and ip"
fi
tap_done
