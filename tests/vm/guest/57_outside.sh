#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Paths set from outside while collectives run, by sluicectl: what a rule says is seen on the state page, and in the traffic.
# limit: 300 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"
ctl=$build/tools/ctl/sluicectl bench=$build/tools/bench/sluice-bench
table=/dev/shm/sluice-paths.0

export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

# page: what rank 0's process publishes, as JSON, of which bash takes what it needs.
page() { "$bench" --status "$(<"$ranks_dir/0.pid")" --json -; }

# look: the bytes that rank 0 has sent by its two paths, how many rules it has applied, and when the last, in ns.
look() {
    local json
    json=$(page) || return
    [[ $json =~ \"path\":0,[^}]*\"sent_bytes\":([0-9]+) ]] && bytes_0=${BASH_REMATCH[1]} || return
    [[ $json =~ \"path\":1,[^}]*\"sent_bytes\":([0-9]+) ]] && bytes_1=${BASH_REMATCH[1]} || return
    [[ $json =~ \"count\":([0-9]+),\"first_ns\":[0-9]+,\"last_ns\":([0-9]+),\"area\":\"multipath\",\"event\":\"path_set\" ]] &&
        rules=${BASH_REMATCH[1]} applied_ns=${BASH_REMATCH[2]}
}

is_applied() { look && ((rules > $1)); }

# says RULE...: from the table's being there (a file is renamed, its ctime) to the rule's being applied, in ms. The kernel's
# uptime has hundredths of a second, so it is up to 10 ms less.
says() {
    local before up there
    look && before=$rules || return
    "$ctl" paths "$@" && await 20 is_applied "$before" || return
    there=$(stat -c %.6Z "$table")
    read -r up _ </proc/uptime
    took_ms=$(((applied_ns / 1000 - (10#${there/./} - (10#${EPOCHREALTIME/./} - 10#${up/./}0000))) / 1000))
    echo "# \"$*\" is applied ${took_ms} ms after it is there" >&3
}

# carried COUNT: bytes by each path in so many rounds.
carried() {
    local from_0 from_1
    look && from_0=$bytes_0 from_1=$bytes_1 && go_on "$1" && look || return
    by_0=$((bytes_0 - from_0)) by_1=$((bytes_1 - from_1))
}

# The bound leaves room for a busy machine: 20 ms from one look at the table to the next, 5 ms of timers.
soon() { ((took_ms < 1000)) || { echo "applied after $took_ms ms"; return 1; }; }

weights_and_avoided_paths() {
    begin 2 7 262144 1 && go_on 20 && carried 40 && ((by_0 > 0 && by_1 > 0)) || return
    echo "# without rules: path 0 carries $((by_0 * 100 / (by_0 + by_1))) % of the bytes" >&3
    says set path=0 avoid && soon && pause 0.5 && carried 40 || return
    echo "# path 0 to be avoided: it carries $by_0 bytes, path 1 $by_1" >&3
    ((by_0 == 0 && by_1 > 0)) || { echo "path 0 carries $by_0 bytes, path 1 $by_1"; return 1; }
    says clear && soon && says set path=1 weight=25 && soon && pause 0.5 && carried 60 || return
    echo "# path 1 with a weight of 25: it carries $((by_1 * 100 / by_0)) % of what path 0 does" >&3
    ((by_1 > 0 && by_1 * 100 < by_0 * 60)) || { echo "path 0 carries $by_0 bytes, path 1 $by_1"; return 1; }
    says clear && soon && go_on 10 && finish || return
    ! grep -hE 'path . to rank . is down' "${under_logs[@]}" || { echo "a path went with it"; return 1; }
}

cleared() {
    "$@" && return
    "$ctl" paths clear
    return 1
}

tap_case weights_and_avoided_paths_are_seen_at_once guarded cleared weights_and_avoided_paths
tap_done
