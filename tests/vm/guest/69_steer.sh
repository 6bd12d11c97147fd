#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The loop is closed: a rail begins to lose packets under allreduce, the node agent finds it and says so to the ranks, who
# leave it, and take it back when it is well again. Nobody touches them. What a run of it measured: docs/perf/monitor.md.
# limit: 600 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/under.sh
. "$here/../under.sh"

sluiced=$build/tools/sluiced/sluiced ctl=$build/tools/ctl/sluicectl
[[ -x $sluiced ]] || tap_skip_all "the node agent is not built here (see \"Not built\" in meson's summary)"
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_VERBS_LAZY=off
# The guest is emulated: within the 67 ms that queue pairs wait by default acknowledgements are late now and then although
# nothing is lost, on an idle host, too, and rail B would be accused as well.
export SLUICE_VERBS_TIMEOUT=${SLUICE_VERBS_TIMEOUT:-16}
dir=$(mktemp -d -p /dev/shm) # where no file is looked for on another file system
export SLUICE_PATHS_AGENT=$dir/paths
# Bytes of an operation; what rail A loses; seconds of each stretch, and until the agent has begun; cases by their begin.
: "${steer_cases:=}" "${steer_bytes:=8192}" "${steer_loss:=2%}" "${steer_s:=5}" "${steer_settle:=6}"
agent='' job='' ranks_dir=/nonexistent

# Ports train for minutes after a boot, and are not accused then: the agent's clock of the boot is an hour ahead.
watch() {
    cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
textfile = $dir/prom
[steer]
mode = ${1:-act}
table = $dir/paths
ports = 2
rest_s = ${2:-6}
trial_s = 5
[api]
socket = $dir/api
[probe]
echo = auto
secret = $dir/secret
[sources]
kmsg = off
bpf_tcp = off
bpf_queue = off
bpf_sched = off
bpf_rdma = off
END
    unshare --time --boottime 3600 --fork --kill-child=TERM "$sluiced" --config "$dir/conf" 2>"$dir/err" &
    agent=$!
    until_true 120 test -s "$dir/prom" || { cat "$dir/err"; return 1; }
}

unwatch() {
    [[ -z $agent ]] || kill -KILL "$agent" 2>/dev/null
    wait "$agent" 2>/dev/null
    agent=
    rm -f "$dir"/state.db* "$dir/events" "$dir/prom" "$dir/paths"
}

job_begin() {
    ranks_dir=$(mktemp -d) ranks_limit=500
    rm -f "$dir/stop"
    ranks 2 "$build/tests/vm/pace" "$dir/stop" "$steer_bytes" >"$dir/job" 2>&1 &
    job=$!
    until_true 60 grep -q '^pace' "$ranks_dir/0.out"
}

job_end() {
    touch "$dir/stop"
    wait "$job" || { cat "$dir/job"; return 1; }
    job=
    grep -q '^done' "$ranks_dir/0.out"
}

# Where acknowledgements take longer than a queue pair waits, soft-RoCE repeats what was not lost (docs/vm.md): then nobody can
# tell rail B, which loses nothing, from rail A.
cleanly() {
    local status=0
    if ! "$@"; then
        if steered avoided 'rxe[23]:1'; then
            echo "# $1 is not judged: the machine is so busy that rail B is accused, too" >&3
            grep -F '"type":"steer"' "$dir/events" | sed 's/^/# /' >&3
        else
            status=1
            cat "$ranks_dir/0.out" "$dir/events" "$dir/json" "$dir/err" 2>/dev/null | tail -n 60
        fi
    fi
    [[ -z $job ]] || { touch "$dir/stop"; wait "$job"; job=; }
    # What the figures are of.
    [[ -z ${VM_OUT:-} ]] || cp "$dir/events" "$VM_OUT/$1.events" 2>/dev/null
    [[ -z ${VM_OUT:-} ]] || cp "$ranks_dir/0.out" "$VM_OUT/$1.pace" 2>/dev/null
    unwatch
    "$ctl" paths clear
    clear_faults
    return "$status"
}

up_ms() { local up; read -r up _ </proc/uptime; now_ms=$((10#${up/./} * 10)); }

# pace FROM TO: MB/s of allreduce between those two times, in hundredths.
pace() {
    awk -v from="$1" -v to="$2" '$1 == "pace" && $2 > from && $2 <= to { n += $3; if (!first) first = $2 - 250; last = $2; mb += $4; k++ }
        END { printf "%d\n", k ? 100 * mb / k : 0 }' "$ranks_dir/0.out"
}

# stretch NAME: for some seconds; its pace in the variable of that name, and told.
stretch() {
    local from
    up_ms; from=$now_ms
    pause "$steer_s"
    up_ms
    printf -v "$1" '%d' "$(pace "$from" "$now_ms")"
    echo "# $1: $((${!1} / 100)).$(printf %02d $((${!1} % 100))) MB/s" >&3
}

# steered TO PORTS: the agent told so of that port.
steered() { grep -F '"type":"steer"' "$dir/events" 2>/dev/null | grep -F "\"to\":\"$1\"" | grep -qE "\"port\":\"($2)\""; }
table_says() { grep -qxE "$1" "$dir/paths" 2>/dev/null; }
table_is_empty() { grep -qx 'end 0' "$dir/paths" 2>/dev/null; }
# carries NUMBER: the bytes that rank 0 has sent by its path of that number.
carries() {
    local json
    json=$("$build/tools/bench/sluice-bench" --status "$(<"$ranks_dir/0.pid")" --json -) || return
    [[ $json =~ \"path\":$1,[^}]*\"sent_bytes\":([0-9]+) ]] && sent=${BASH_REMATCH[1]}
}

# first_good FROM LEAST: after which time all but one line in eight are at least so fast, for two seconds: ms after FROM.
first_good() {
    awk -v from="$1" -v least="$2" '$1 == "pace" && $2 > from { at[n] = $2; mb[n++] = $4 * 100 }
        END {
            for (i = 0; i + 8 <= n; i++) {
                sum = 0
                for (k = i; k < i + 8; k++) sum += mb[k]
                if (sum / 8 >= least) { print int(at[i] - 250 - from); exit }
            }
            print -1
        }' "$ranks_dir/0.out"
}

a_rail_that_loses_packets_is_left_and_taken_back() {
    local from back sent before
    job_begin && pause 2 && rail_loss A "$steer_loss" && pause 1 && stretch loss_without_the_agent && rail_clean A || return
    watch act && pause "$steer_settle" && stretch both_rails || return
    "$ctl" paths set port=rxe0:1 avoid && "$ctl" paths set port=rxe1:1 avoid && pause 1 && stretch the_clean_rail_alone || return
    "$ctl" paths clear && pause 1 || return
    up_ms; from=$now_ms
    rail_loss A "$steer_loss" || return
    until_true 60 steered avoided 'rxe[01]:1' || { echo "nobody was told to avoid rail A"; return 1; }
    up_ms; echo "# avoided $((now_ms - from)) ms after the loss began" >&3
    until_true 20 table_says 'port=rxe0:1 avoid' && until_true 20 table_says 'port=rxe1:1 avoid' || { cat "$dir/paths"; return 1; }
    up_ms; echo "# by both ends $((now_ms - from)) ms after it" >&3
    local until_then
    until_then=$(pace "$from" "$now_ms")
    echo "# loss_until_then: $((until_then / 100)).$(printf %02d $((until_then % 100))) MB/s" >&3
    pause 1; carries 0 && before=$sent || return
    stretch loss_with_the_agent && carries 0 || return
    ((sent == before)) || { echo "path 0 still carries: $((sent - before)) bytes"; return 1; }
    # shellcheck disable=SC2154 # stretch() sets it
    back=$(first_good "$from" $((the_clean_rail_alone * 95 / 100)))
    echo "# within 5 % of the clean rail's speed $back ms after the loss began" >&3
    # It loses still: it is tried, and left again, for longer.
    until_true 60 steered tried 'rxe[01]:1' || { echo "it was never tried again"; return 1; }
    rail_clean A && up_ms && from=$now_ms || return
    until_true 120 steered in_use 'rxe0:1' && until_true 120 steered in_use 'rxe1:1' && until_true 20 table_is_empty || { cat "$dir/paths"; return 1; }
    up_ms; echo "# given back $((now_ms - from)) ms after the loss ended" >&3
    carries 0 && before=$sent && stretch given_back && carries 0 && ((sent > before)) || { echo "path 0 carries nothing again"; return 1; }
    job_end
}

# The agent dies while a port is avoided: its rules end by themselves, and the ranks use the port again.
rules_of_an_agent_that_died_end() {
    job_begin && watch act 300 && pause 3 && rail_loss A 10% || return
    until_true 60 table_says 'port=rxe0:1 avoid' || { cat "$dir/events"; return 1; }
    kill -KILL "$agent"; wait "$agent" 2>/dev/null; agent=
    rail_clean A && carries 0 && local before=$sent || return
    still_nothing() { carries 0 && ((sent > before)); }
    until_true 90 still_nothing || { cat "$dir/paths"; return 1; }
    job_end
}

in_shadow_nothing_is_written() {
    job_begin && watch shadow && pause 3 && rail_loss A 10% || return
    until_true 60 steered avoided 'rxe[01]:1' || return
    grep -F '"type":"steer"' "$dir/events" | grep -qF '"mode":"shadow"' && [[ ! -e $dir/paths ]] && job_end
}

# The agent asks itself, over the bridge of rail A and back: netem loses and delays on either way.
a_probe_finds_what_netem_does() {
    printf 'nobody else knows this text\n' >"$dir/secret" && chmod 600 "$dir/secret" || return
    watch off || return
    rail_netem A loss 10% delay 5ms 1ms
    "$ctl" --socket "$dir/api" -o json probe --to 192.0.2.2 --rail rxe0:1 --address 192.0.2.1 --count 1000 --gap-us 3000 >"$dir/json" || { cat "$dir/json"; return 1; }
    cat "$dir/json"
    [[ $(<"$dir/json") =~ \"sent\":1000,\"answered\":([0-9]+),\"lost_there\":([0-9]+),\"lost_back\":([0-9]+),\"rtt_ns\":\{\"least\":([0-9]+) ]] || return
    echo "# 10 % each way, 5 ms: ${BASH_REMATCH[2]} of 1000 lost there, ${BASH_REMATCH[3]} back, the fastest $((BASH_REMATCH[4] / 1000)) us" >&3
    ((BASH_REMATCH[1] > 700 && BASH_REMATCH[1] < 900 && BASH_REMATCH[2] > 50 && BASH_REMATCH[2] < 160 && BASH_REMATCH[3] > 40 &&
        BASH_REMATCH[3] < 150 && BASH_REMATCH[4] > 7000000))
}

trap 'unwatch; rm -rf "$dir"' EXIT
# case NAME FUNCTION
case_of() { [[ $1 != "$steer_cases"* ]] || tap_case "$1" cleanly "$2"; }
case_of a_rail_that_loses_packets_is_left_and_taken_back a_rail_that_loses_packets_is_left_and_taken_back
case_of rules_of_an_agent_that_died_end_by_themselves rules_of_an_agent_that_died_end
case_of a_probe_finds_what_netem_loses_and_delays a_probe_finds_what_netem_does
case_of in_shadow_nothing_is_written in_shadow_nothing_is_written
tap_done
