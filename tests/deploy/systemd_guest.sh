#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit under a real systemd, in a virtual machine: systemd is the first process of a namespace of processes there, with
# cgroups of the machine's kernel; this script asks it. Started by systemd.sh as:  ./dev vm systemd_guest.sh SLUICED SLUICECTL UNIT
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
# shellcheck source=tests/wait.sh
. "$here/../wait.sh"

if [[ ${1:-} != --inside ]]; then
    # Units beside ours are those that every unit wants; the first target wants no login and no network.
    mkdir -p /run/systemd/system /usr/local/sbin /usr/local/bin || exit
    install -m 755 "$1" /usr/local/sbin/sluiced && install -m 755 "$2" /usr/local/bin/sluicectl || exit
    sed 's#^ExecStart=[^ ]*#ExecStart=/usr/local/sbin/sluiced#' "$3" >/run/systemd/system/sluiced.service
    printf '%s\n' '[Unit]' 'Wants=sysinit.target' >/run/systemd/system/test.target
    # These go through all files of the machine, which are slow to reach from there.
    for name in systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-update-utmp systemd-udev-trigger systemd-hwdb-update ldconfig; do
        ln -s /dev/null "/run/systemd/system/$name.service"
    done
    mkdir -p /run/systemd/system/sluiced.service.d
    printf "%s\n" "[Service]" TimeoutStartSec=600 >/run/systemd/system/sluiced.service.d/slow.conf
    # A namespace of mounts, and one of processes, of which systemd is the first.
    unshare --mount --pid --fork --mount-proc --kill-child env -i container=vm PATH="$PATH" /lib/systemd/systemd --system --unit=test.target \
        >/run/vm/out/systemd.log 2>&1 </dev/null &
    # The namespace is that of systemd, which is the only child of unshare.
    unshared=$!
    until_true 90 test -S /run/systemd/private || { echo "systemd does not start"; cat /run/vm/out/systemd.log; exit 1; }
    first=$(<"/proc/$unshared/task/$unshared/children")
    nsenter --target "${first// /}" --mount --pid -- "$here/systemd_guest.sh" --inside
    status=$?
    kill -KILL "$unshared"
    exit "$status"
fi

property() { systemctl show -p "$1" --value sluiced; }
is_property() { [[ $(property "$1") == "$2" ]]; }
status_text() { [[ $(property StatusText) == *"$1"* ]]; }

it_starts_and_says_that_all_sources_are_read() {
    systemctl start sluiced || { systemctl status --no-pager -l sluiced; journalctl --no-pager -u sluiced | tail -20; return 1; }
    is_property ActiveState active && until_true 60 status_text 'all sources are read' || { property StatusText; return 1; }
}

its_powers_are_four_and_its_bounds_are_in_force() {
    local pid group
    pid=$(property MainPID) group=/sys/fs/cgroup$(property ControlGroup)
    grep -x 'CapEff:.000000c400001000' "/proc/$pid/status" && grep -x 'CapBnd:.000000c400001000' "/proc/$pid/status" && grep -x 'NoNewPrivs:.1' "/proc/$pid/status" &&
        grep -x 'Seccomp:.2' "/proc/$pid/status" || { grep -E 'Cap|NoNew|Seccomp' "/proc/$pid/status"; return 1; }
    [[ $(<"$group/memory.max") -eq $((96 * 1024 * 1024)) && $(<"$group/cpu.max") == '20000 100000' ]] || { head "$group"/{memory,cpu}.max; return 1; }
    # It may write to its two folders, and nowhere else.
    nsenter --target "$pid" --mount -- sh -c 'touch /var/lib/sluiced/x /run/sluiced/x && rm /var/lib/sluiced/x /run/sluiced/x && ! touch /etc/x /usr/x /dev/shm/x /sys/fs/cgroup/x'
}

sluicectl_says_that_the_host_is_well() {
    local status=0
    sluicectl status || status=$?
    [[ $status -eq 0 && -s /var/lib/sluiced/state.db && $(stat -c %a /var/lib/sluiced) == 700 && -S /run/sluiced/api.sock ]] || { ls -la /var/lib/sluiced /run/sluiced; return 1; }
    # Those that this machine has are up, with the unit's powers alone.
    sluicectl status | awk '$1 == "link" || $1 == "kmsg" || ($1 == "rdma" && $2 == "sysfs") { seen++; if ($3 != "up") exit 1 } END { exit seen != 3 }'
}

# In its bounds, with a file system that it may not write and system calls that it has not, and without them. BPF of
# RDMA is for CAP_SYS_ADMIN, which the unit has not: the types of a module are.
read_now() { sed -n 's/^sluice_probe_up{\(.*\)} 1$/\1/p' "$1" | grep -vE 'probe="(qp|rdma_event)"' | sort; }
# Written again with each period, and some sources take a few to be read.
reads_the_same() { [[ -s /run/sluiced/unit.prom ]] && cmp -s <(read_now /run/bare.prom) <(read_now /run/sluiced/unit.prom); }
nothing_is_read_without_the_units_bounds_that_is_not_read_within() {
    printf '%s\n' '[store]' 'path = /run/bare.db' '[output]' 'events =' 'textfile = /run/bare.prom' >/run/bare.conf
    ! sluiced --print-config | grep -q '^\[api\]' || printf '%s\n' '[api]' 'socket =' >>/run/bare.conf
    printf '%s\n' '[output]' 'textfile = /run/sluiced/unit.prom' >/etc/sluiced.conf
    timeout 20 sluiced --config /run/bare.conf
    [[ $(read_now /run/bare.prom | wc -l) -ge 3 ]] && systemctl restart sluiced || return
    until_true 60 reads_the_same || diff <(read_now /run/bare.prom) <(read_now /run/sluiced/unit.prom)
    local status=$?
    read_now /run/sluiced/unit.prom >/run/vm/out/read
    rm -f /etc/sluiced.conf
    systemctl restart sluiced || return
    return "$status"
}

json_events() { journalctl --no-pager -u sluiced -o cat --output-fields=MESSAGE | grep '^{'; }
death_is_told() { json_events | grep -q '"subject":"host","check":"out_of_memory"'; }

# Not a link that flaps: links have minutes to train after a boot, and this machine has just booted.
an_event_is_a_line_of_json_in_the_journal() {
    echo '<3>Out of memory: Killed process 4711 (train) total-vm:1000kB, anon-rss:1000kB' >/dev/kmsg
    until_true 60 death_is_told || { journalctl --no-pager -u sluiced | tail; return 1; }
    json_events | python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]'
}

a_reload_reads_the_configuration_again() {
    printf '[sources]\nperiod_ms = soon\n' >/etc/sluiced.conf
    systemctl reload sluiced && until_true 60 said "period_ms is to be a number" || return
    is_property ActiveState active && printf '%s\n' '[sources]' 'period_ms = 500' '[output]' 'textfile = /run/sluiced/again.prom' >/etc/sluiced.conf &&
        systemctl reload sluiced && until_true 60 grep -qsx 'sluice_config_last_reload_success 1' /run/sluiced/again.prom && is_property ActiveState active && is_property NRestarts 0
}
said() { journalctl --no-pager -u sluiced -o cat | grep -q "$1"; }
restarted() { [[ $(property NRestarts) -ge $1 ]] && is_property ActiveState active; }

# With a shorter time, so that this test does not take minutes.
one_that_stands_still_is_started_anew() {
    rm -f /etc/sluiced.conf
    mkdir -p /run/systemd/system/sluiced.service.d && printf '%s\n' '[Service]' 'WatchdogSec=3' 'RestartSec=1' >/run/systemd/system/sluiced.service.d/test.conf &&
        systemctl daemon-reload && systemctl restart sluiced && kill -STOP "$(property MainPID)" || return
    until_true 90 restarted 1 && said 'Watchdog timeout'
}

one_that_cannot_read_what_it_is_asked_to_is_started_anew() {
    local before
    before=$(property NRestarts)
    printf '[sources]\nkmsg = on\nkmsg_path = /run/none\n' >/etc/sluiced.conf
    systemctl reload sluiced && until_true 60 status_text 'not read: kmsg' || { property StatusText; return 1; }
    until_true 90 restarted $((before + 1)) || return
    rm /etc/sluiced.conf && systemctl restart sluiced && until_true 60 status_text 'all sources are read'
}

it_ends_when_it_is_told_to() {
    systemctl stop sluiced && is_property Result success && is_property ActiveState inactive && [[ ! -e /run/sluiced && -s /var/lib/sluiced/state.db ]] ||
        { systemctl --no-pager status sluiced; ls -la /run/sluiced /var/lib/sluiced; return 1; }
}

for name in it_starts_and_says_that_all_sources_are_read its_powers_are_four_and_its_bounds_are_in_force sluicectl_says_that_the_host_is_well \
    nothing_is_read_without_the_units_bounds_that_is_not_read_within an_event_is_a_line_of_json_in_the_journal a_reload_reads_the_configuration_again one_that_stands_still_is_started_anew \
    one_that_cannot_read_what_it_is_asked_to_is_started_anew it_ends_when_it_is_told_to; do
    tap_case "$name" "$name"
done
tap_done
