#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Agents of two hosts that probe each other over soft-RoCE (UD): of two rails the one that loses or delays is told.
# limit: 500 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/tools.sh
. "$here/../tools.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"

sluiced=$build/tools/sluiced/sluiced ctl=$build/tools/ctl/sluicectl
[[ -x $sluiced ]] || tap_skip_all "the node agent is not built here (see \"Not built\" in meson's summary)"
exec 3>&1                    # figures go past tap_case, which shows what a case says only when it fails
dir=$(mktemp -d -p /dev/shm) # where no file is looked for on another file system
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT
printf 'nobody else knows this text\n' >"$dir/secret" && chmod 600 "$dir/secret"

# begin HOST PORT: an agent that answers probes, and otherwise knows RDMA ports alone.
begin() {
    {
        printf '[store]\npath = %s/%s.db\n[output]\nevents =\n[api]\nsocket = %s/%s\n' "$dir" "$1" "$dir" "$1"
        printf '[probe]\necho = on\nlisten = 127.0.0.1:%s\nsecret = %s/secret\n[sources]\nrdma = on\n' "$2" "$dir"
        "$sluiced" --print-config | sed -n '/^\[sources\]/,/^\[/s/^#\([a-z_]*\) = \(on\|auto\)$/\1 = off/p' | grep -v '^rdma = '
    } >"$dir/$1.conf"
    unshare --uts sh -c "hostname $1 && exec \"\$@\"" - "$sluiced" --config "$dir/$1.conf" >/dev/null 2>"$dir/$1.err" &
    pids+=($!)
    until_true 60 test -S "$dir/$1" || { cat "$dir/$1.err"; return 1; }
}
# ask RAIL [ARGUMENT...]: from host a to host b; the last answer is in $dir/RAIL. On a busy machine fewer packets may be sent.
ask() {
    "$ctl" --socket "$dir/a" -o json probe --rdma --to 127.0.0.1:9496 --rail "$1" --count 300 --gap-us 8000 "${@:2}" >"$dir/$1" 2>"$dir/err" ||
        { cat "$dir/$1" "$dir/err" "$dir"/*.err; return 1; }
    [[ $(<"$dir/$1") =~ \"to_rail\":\"([^\"]*)\".*\"sent\":([0-9]+),\"answered\":([0-9]+),\"lost_there\":([0-9]+),\"lost_back\":([0-9]+),\"rtt_ns\":\{\"least\":([0-9]+),\"mean\":([0-9]+),\"p50\":([0-9]+),\"p99\":([0-9]+) ]] ||
        { cat "$dir/$1"; return 1; }
    to=${BASH_REMATCH[1]} sent=${BASH_REMATCH[2]} answered=${BASH_REMATCH[3]} there=${BASH_REMATCH[4]} back=${BASH_REMATCH[5]} least=${BASH_REMATCH[6]}
    echo "# ${1} to $to: $answered of $sent answered, $there lost there, $back back; round trip $((BASH_REMATCH[8] / 1000)) us (least $((least / 1000)), p99 $((BASH_REMATCH[9] / 1000)))" >&3
    ((sent >= 50)) || { cat "$dir/$1"; return 1; }
}
loses_nothing() { ((answered == sent)) || { cat "$dir"/rxe*; return 1; }; }
# within LEAST MOST COUNT: percent of what was sent.
within() { ((100 * $3 >= $1 * sent && 100 * $3 <= $2 * sent)) || { echo "$3 of $sent are not within $1 and $2 %"; return 1; }; }

two_clean_rails() {
    ask rxe0:1 && [[ $to == rxe1:1 ]] && loses_nothing && ask rxe2:1 && [[ $to == rxe3:1 ]] && loses_nothing && ask rxe0:1 --bytes 1024 &&
        loses_nothing && ask rxe2:1 --traffic-class 106 && loses_nothing
}
# 10 % each way is 19 % of the round trips.
the_one_that_loses() {
    rail_netem A loss 10% || return
    ask rxe0:1 && within 65 93 "$answered" && within 2 20 "$there" && within 2 20 "$back" && ask rxe2:1 && loses_nothing
}
the_one_that_delays() {
    local clean
    rail_netem B delay 5ms || return
    ask rxe0:1 && loses_nothing && clean=$least && ask rxe2:1 && loses_nothing && ((least > 10000000 && least > clean))
}
one_that_is_down() {
    rail_down A a || return
    ! "$ctl" --socket "$dir/a" -o json probe --rdma --to 127.0.0.1:9496 --rail rxe0:1 --count 10 >"$dir/json" 2>&1
    grep -q 'not ACTIVE' "$dir/json" || { cat "$dir/json"; return 1; }
}
# With no port named each that is up is probed; here both hosts have all four.
each_port() {
    "$ctl" --socket "$dir/a" probe --rdma --to 127.0.0.1:9496 --count 50 --gap-us 8000 >"$dir/all" 2>&1 && cat "$dir/all" >&3
    (($(grep -c '^a -> b .* 0 of [0-9]* packets lost' "$dir/all") == 4)) || { cat "$dir/all"; return 1; }
}
# rxe keeps a device that is open for ever: an agent that nobody asks holds none.
nothing_is_held() {
    local open
    open=$(find /proc/[0-9]*/fd -lname '/dev/infiniband/uverbs*' 2>/dev/null | wc -l)
    ((open > 0)) || return
    nobody_has() { [[ -z $(find /proc/[0-9]*/fd -lname '/dev/infiniband/uverbs*' 2>/dev/null) ]]; }
    until_true 90 nobody_has
}

# without_faults FUNCTION: and none is left.
without_faults() {
    local status
    "$1"
    status=$?
    clear_faults
    return "$status"
}

begin a 9495 && begin b 9496 || { echo "Bail out! the agents do not begin"; exit 1; }
tap_case two_clean_rails_lose_nothing two_clean_rails
tap_case the_rail_that_loses_is_told_from_the_other without_faults the_one_that_loses
tap_case the_rail_that_delays_is_told_from_the_other without_faults the_one_that_delays
tap_case a_port_that_is_down_is_said without_faults one_that_is_down
tap_case without_a_rail_each_port_is_probed each_port
tap_case a_minute_later_no_device_is_open nothing_is_held
tap_done
