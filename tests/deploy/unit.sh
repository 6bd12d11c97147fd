#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The agent as systemd starts it: what systemd-analyze says of the unit, and what the agent sees with the powers that the
# unit leaves it, and no others.
# usage: unit.sh SLUICED UNIT SLUICE_BENCH
set -uo pipefail
sluiced=$(realpath "$1") unit=$2 bench=$3 # systemd wants a whole path
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"

dir=$(mktemp -d)
# A case is a process of its own: which agent it left is in a file.
trap 'kill -KILL $(cat "$dir/pid" "$dir/ranks" 2>/dev/null) 2>/dev/null; rm -rf "$dir"' EXIT

value() { sed -n "s/^$1=//p" "$unit"; }

# The unit with the program of this build, as the one that it names is not installed here.
sed "s#^ExecStart=[^ ]*#ExecStart=$sluiced#" "$unit" >"$dir/sluiced.service"

systemd_understands_all_of_it() {
    local said
    said=$(systemd-analyze verify --man=no "$dir/sluiced.service" 2>&1) && [[ -z $said ]] || { echo "$said"; return 1; }
}

# Of 10, by systemd's own table. What is left: the host's network, users and processes, four capabilities, three devices.
it_is_exposed_little() { systemd-analyze security --offline=true --no-pager --threshold=30 "$dir/sluiced.service"; }

it_has_four_capabilities() {
    [[ $(value CapabilityBoundingSet) == 'CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_SYSLOG' && -z $(value AmbientCapabilities) &&
        $(value NoNewPrivileges) == yes ]]
}

# begin CAPABILITIES: the agent as root with these alone, in the folders that the unit makes. What every host has is asked for.
begin() {
    # One that a case before left, as it failed.
    [[ ! -s $dir/pid ]] || kill -KILL "$(<"$dir/pid")" 2>/dev/null
    rm -rf "$dir"/state && install -d -m 700 "$dir/state" && install -d -m 755 "$dir/run" "$dir/rdma/mlx5_0/ports/1/counters" || return
    echo '4: ACTIVE' >"$dir/rdma/mlx5_0/ports/1/state" && echo '400 Gb/sec (4X NDR)' >"$dir/rdma/mlx5_0/ports/1/rate" &&
        echo 0 >"$dir/rdma/mlx5_0/ports/1/counters/port_xmit_packets"
    rm -f "$dir/run/sluice.prom" "$dir/run/events"
    printf '%s\n' '[store]' "path = $dir/state/state.db" '[output]' "events = $dir/run/events" "textfile = $dir/run/sluice.prom" \
        '[sources]' 'period_ms = 100' 'link = on' 'rdma = on' "rdma_root = $dir/rdma" 'kmsg = on' >"$dir/conf"
    ! "$sluiced" --print-config | grep -q '^\[api\]' || printf '%s\n' '[api]' "socket = $dir/run/api.sock" >>"$dir/conf"
    setpriv --nnp --inh-caps=-all --ambient-caps=-all --bounding-set="$1" "$sluiced" --config "$dir/conf" >/dev/null 2>"$dir/err" &
    pid=$!
    echo "$pid" >"$dir/pid"
    until_true 10 test -s "$dir/run/sluice.prom" || { cat "$dir/err"; return 1; }
}

end() {
    local status=0
    kill -TERM "$pid" && wait "$pid" || status=$?
    rm -f "$dir/pid"
    return "$status"
}

# powers: those of the unit, as setpriv writes them.
powers() {
    local name all=-all
    for name in $(value CapabilityBoundingSet); do
        name=${name#CAP_}
        all+=,+${name,,}
    done
    echo "$all"
}

is_up() { grep -q "^sluice_probe_up{probe=\"$1\",.*} $2\$" "$dir/run/sluice.prom"; }

# CapEff of the process is that of the unit, or the rest shows nothing.
the_powers_of_the_unit_are_enough() {
    local probe
    begin "$(powers)" || return
    [[ $(sed -n 's/^CapEff:\s*//p' "/proc/$pid/status") == 000000c400001000 ]] || { grep Cap "/proc/$pid/status"; return 1; }
    for probe in link rdma kmsg; do
        is_up "$probe" 1 || { echo "$probe is not up"; grep probe "$dir/run/sluice.prom"; cat "$dir/err"; return 1; }
    done
    end
}

# Whatever this machine and this build have, BPF probes too.
read_now() { sed -n 's/^sluice_probe_up{\(.*\)} 1$/\1/p' "$dir/run/sluice.prom" | sort; }
# A source is tried in the first periods; each writes the file anew.
written() { stat -c %.Y "$dir/run/sluice.prom"; }
is_written_since() { [[ $(written) != "$1" ]]; }
periods() {
    local i
    for ((i = 0; i < $1; i++)); do
        until_true 20 is_written_since "$(written)" || return
    done
}
reads() { [[ $(read_now) == "$1" ]]; }
nothing_is_read_with_all_powers_that_these_do_not_read() {
    local all
    begin +all && periods 5 && all=$(read_now) && end && begin "$(powers)" || return
    until_true 20 reads "$all" || { diff <(echo "$all") <(read_now); return 1; }
    end
}

without_its_capability_the_log_is_not_read_and_the_rest_is() {
    begin "$(powers | sed 's/,+syslog//')" && is_up kmsg 0 && is_up link 1 && is_up rdma 1 &&
        grep -q '^sluice_probe_stale{probe="kmsg",.*} 1$' "$dir/run/sluice.prom" && end
}

# Ranks of a user whose files root reads by its powers alone: the unit has not these, and what the page has to tell is missed.
unreadable() { grep -qx "sluice_page_unreadable $1" "$dir/run/sluice.prom"; }
two_are_watched() { [[ $(sed -n 's/^sluice_ranks{how="state page"} //p' "$dir/run/sluice.prom") -ge 2 ]]; }
stopped() { grep -q "\"subject\":\"pid $1\",\"check\":\"stopped\".*\"to\":\"bad\"" "$dir/run/events"; }
have_ranks() { [[ $(pgrep -c -P "$1") -eq 2 ]]; }
ranks_of_another_user_are_watched_and_their_pages_are_not_read() {
    local job both one
    chmod 755 "$dir" && install -m 755 "$bench" "$dir/bench" || return
    setpriv --reuid 64999 --regid 64999 --clear-groups --inh-caps=-all "$dir/bench" -n 2 -t tcp -b 64k -e 64k --compute 2000 --budget 100 >/dev/null 2>&1 &
    job=$!
    echo "$job" >"$dir/ranks"
    until_true 20 have_ranks "$job" && both=$(pgrep -P "$job") || return
    echo "$both" >>"$dir/ranks"
    one=${both%%$'\n'*}
    begin "$(powers)" && until_true 20 unreadable 2 && until_true 20 two_are_watched && kill -STOP "$one" && until_true 20 stopped "$one" &&
        kill -CONT "$one" && end || { grep -E 'page_unread|stopped' "$dir/run/sluice.prom"; return 1; }
    # With the drop-in of docs/monitor.md.
    begin "$(powers),+dac_read_search" && until_true 20 two_are_watched && until_true 20 unreadable 0 && end
}

if command -v systemd-analyze >/dev/null; then
    tap_case systemd_understands_all_of_it systemd_understands_all_of_it
    if systemd-analyze security --help 2>&1 | grep -q -- --offline; then
        tap_case it_is_exposed_little it_is_exposed_little
    else
        tap_skip it_is_exposed_little "this systemd-analyze has no --offline"
    fi
else
    tap_skip systemd_understands_all_of_it "systemd-analyze is not here (package systemd)"
    tap_skip it_is_exposed_little "systemd-analyze is not here (package systemd)"
fi
tap_case it_has_four_capabilities it_has_four_capabilities
why=
if [[ $EUID -ne 0 ]]; then
    why="needs root"
elif ! setpriv --inh-caps=-all --bounding-set="$(powers)" true 2>"$dir/err"; then
    why="setpriv cannot: $(head -n 1 "$dir/err")"
fi
if [[ -n $why ]]; then
    tap_skip the_powers_of_the_unit_are_enough "$why"
    tap_skip nothing_is_read_with_all_powers_that_these_do_not_read "$why"
    tap_skip ranks_of_another_user_are_watched_and_their_pages_are_not_read "$why"
    tap_skip without_its_capability_the_log_is_not_read_and_the_rest_is "$why"
else
    tap_case nothing_is_read_with_all_powers_that_these_do_not_read nothing_is_read_with_all_powers_that_these_do_not_read
    tap_case ranks_of_another_user_are_watched_and_their_pages_are_not_read ranks_of_another_user_are_watched_and_their_pages_are_not_read
    if setpriv --inh-caps=-all --bounding-set=-all,+syslog dd if=/dev/kmsg of=/dev/null count=0 2>/dev/null; then
        tap_case the_powers_of_the_unit_are_enough the_powers_of_the_unit_are_enough
    else
        tap_skip the_powers_of_the_unit_are_enough "this machine's log cannot be read by anybody (/dev/kmsg)"
    fi
    if [[ $(cat /proc/sys/kernel/dmesg_restrict) == 1 && -e /dev/kmsg ]]; then
        tap_case without_its_capability_the_log_is_not_read_and_the_rest_is without_its_capability_the_log_is_not_read_and_the_rest_is
    else
        tap_skip without_its_capability_the_log_is_not_read_and_the_rest_is "everybody may read the kernel's log here (kernel.dmesg_restrict)"
    fi
fi
tap_done
