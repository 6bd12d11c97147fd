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
# Bytes of an operation; what rail A loses; until the agent has begun; seconds of a stretch, and how many of them; what they may lack
# of the clean rail's speed, in percent; the least MB/s of a machine that is quick enough, in hundredths; cases by their begin.
: "${steer_cases:=}" "${steer_bytes:=8192}" "${steer_loss:=2%}" "${steer_settle:=6}"
: "${steer_turn_s:=0.25}" "${steer_turns:=80}" "${steer_lack:=5}" "${steer_least:=200}"
agent='' job='' unjudged='' ranks_dir=/nonexistent

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
    ranks 2 "$build/tests/vm/pace" "$dir/stop" "$steer_bytes" 20 >"$dir/job" 2>&1 &
    job=$!
    until_true 60 grep -q '^pace' "$ranks_dir/0.out"
}

job_end() {
    touch "$dir/stop"
    wait "$job" || { cat "$dir/job"; return 1; }
    job=
    grep -q '^done' "$ranks_dir/0.out"
}

# What the guest's own counters say of rail B, which loses nothing.
repeated_on_B() { printf '%d\n' $(($(counter 2 completer_retry_err) + $(counter 3 completer_retry_err))); }

# cleanly FUNCTION: a case, and everything as before it. 77: it says nothing, and the last line of its output why.
# Where acknowledgements take longer than a queue pair waits, soft-RoCE repeats what was not lost (docs/vm.md): then nobody can
# tell rail B from rail A. Its counters say whether it was so: an agent that accuses rail B without them is wrong.
cleanly() {
    local status=0 repeated why=''
    repeated=$(repeated_on_B)
    "$@" || status=$?
    repeated=$(($(repeated_on_B) - repeated))
    if [[ $status -ne 0 ]]; then
        cat "$ranks_dir/0.out" "$dir/events" "$dir/json" "$dir/err" 2>/dev/null | grep -v '^pace' | tail -n 60
        [[ $status -ne 77 ]] || why=$unjudged
        if steered avoided 'rxe[23]:1' && ((repeated >= 3)); then
            status=77 why="soft-RoCE repeated on rail B, too, $repeated times, though nothing is lost there, and both were accused"
        fi
    fi
    [[ -z $job ]] || { touch "$dir/stop"; wait "$job"; job=; }
    # What the figures are of.
    [[ -z ${VM_OUT:-} ]] || cp "$dir/events" "$VM_OUT/$1.events" 2>/dev/null
    [[ -z ${VM_OUT:-} ]] || cp "$ranks_dir/0.out" "$VM_OUT/$1.pace" 2>/dev/null
    [[ -z ${VM_OUT:-} ]] || cp "$dir/turns" "$VM_OUT/$1.turns" 2>/dev/null
    unwatch
    "$ctl" paths clear
    clear_faults
    [[ $status -ne 77 ]] || echo "$why"
    return "$status"
}

up_ms() { local up; read -r up _ </proc/uptime; now_ms=$((10#${up/./} * 10)); }

# pace FROM TO: MB/s of allreduce between those two times, in hundredths.
pace() {
    awk -v from="$1" -v to="$2" -v bytes="$steer_bytes" '
        $1 == "pace" && $2 <= to { if (last && last >= from) { n += $3; ms += $2 - last } last = $2 }
        END { printf "%d\n", ms ? n * bytes / ms / 10 : 0 }' "$ranks_dir/0.out"
}

# told NAME HUNDREDTHS
told() { echo "# $1: $(($2 / 100)).$(printf %02d $(($2 % 100))) MB/s" >&3; }

# stretch NAME SECONDS: its pace in the variable of that name, and told.
stretch() {
    local from
    up_ms; from=$now_ms
    pause "$2"
    up_ms
    printf -v "$1" '%d' "$(pace "$from" "$now_ms")"
    told "$1" "${!1}"
}

# By a process that stays: a new one for each turn costs more than what is measured.
tc_begin() {
    exec {tc_fd}> >(exec tc -batch -)
    tc_pid=$!
    do_tc() { printf '%s\n' "$@" >&"$tc_fd"; }
}

tc_end() {
    unset -f do_tc
    do_tc() { printf '%s\n' "$@" | tc -batch -; }
    kill -0 "$tc_pid" 2>/dev/null || { echo "tc has ended: it did not like a line"; return 1; }
    exec {tc_fd}>&-
}

# turns COUNT: stretches in which rail A loses and in which it does not, in turn, and their beginnings.
turns() {
    local i
    tc_begin
    for ((i = 0; i < $1; i++)); do
        rail_clean A; up_ms; echo "clean $now_ms"; pause "$steer_turn_s"
        rail_loss A "$steer_loss"; up_ms; echo "loss $now_ms"; pause "$steer_turn_s"
    done >>"$dir/turns"
    rail_clean A; up_ms; { echo "clean $now_ms"; pause "$steer_turn_s"; up_ms; echo "end $now_ms"; } >>"$dir/turns"
    tc_end && rail_loss A "$steer_loss"
}

# share: the speed of each stretch with loss against the mean of the clean ones before and after it, as the machine's own speed
# changes from second to second. Prints how many, the least, median and greatest percent that the true one may be (signs, 95 %;
# neighbours share a clean one, hence the fifth more).
share() {
    awk '
        BEGIN { n = i = k = 0 }
        NR == FNR { kind[n] = $1; at[n++] = $2; next }
        $1 == "pace" {
            while (i + 1 < n && $2 > at[i + 1]) i++
            if (last && last >= at[i] + 20 && i + 1 < n) { ops[i] += $3; ms[i] += $2 - last }
            last = $2
        }
        END {
            for (i = 1; i + 1 < n; i++)
                if (kind[i] == "loss" && ms[i - 1] && ms[i] && ms[i + 1] && ops[i - 1] && ops[i + 1])
                    r[k++] = 200 * (ops[i] / ms[i]) / (ops[i - 1] / ms[i - 1] + ops[i + 1] / ms[i + 1])
            for (i = 1; i < k; i++)
                for (j = i; j > 0 && r[j - 1] > r[j]; j--) { t = r[j]; r[j] = r[j - 1]; r[j - 1] = t }
            h = 1.2 * 0.98 * sqrt(k)
            printf "%d %.1f %.1f %.1f\n", k, r[int(k / 2 - h < 0 ? 0 : k / 2 - h)], r[int(k / 2)], r[int(k / 2 + h >= k ? k - 1 : k / 2 + h)]
        }' "$dir/turns" "$ranks_dir/0.out"
}

# steered TO PORTS: the agent told so of that port.
steered() { grep -F '"type":"steer"' "$dir/events" 2>/dev/null | grep -F "\"to\":\"$1\"" | grep -qE "\"port\":\"($2)\""; }
table_says() { grep -qxE "$1" "$dir/paths" 2>/dev/null; }
table_is_empty() { grep -qx 'end 0' "$dir/paths" 2>/dev/null; }
# carries: the bytes that both ranks have sent by path 0 ($sent), and by all paths ($all).
carries() {
    local json rank
    sent=0 all=0
    for rank in 0 1; do
        json=$("$build/tools/bench/sluice-bench" --status "$(<"$ranks_dir/$rank.pid")" --json -) || return
        [[ $json =~ \"path\":0,[^}]*\"sent_bytes\":([0-9]+) ]] && sent=$((sent + BASH_REMATCH[1])) all=$((all + BASH_REMATCH[1])) || return
        [[ $json =~ \"path\":1,[^}]*\"sent_bytes\":([0-9]+) ]] && all=$((all + BASH_REMATCH[1])) || return
    done
}

both_left() { table_says 'port=rxe0:1 avoid' && table_says 'port=rxe1:1 avoid'; }

# rail_A_is_left: loses packets from now on; returns when both ends are told to avoid it, after $left_ms from $from on.
rail_A_is_left() {
    up_ms; from=$now_ms
    rail_loss A "$steer_loss" || return
    until_true 60 steered avoided 'rxe[01]:1' || { echo "nobody was told to avoid rail A"; return 1; }
    up_ms; echo "# avoided $((now_ms - from)) ms after the loss began" >&3
    until_true 60 both_left || { cat "$dir/paths"; return 1; }
    up_ms; left_ms=$((now_ms - from))
    echo "# by both ends $left_ms ms after it" >&3
}

# The job is as fast as by the clean rail alone: nothing goes by the other one, and what is lost there costs nothing.
a_rail_that_loses_packets_is_left() {
    local before from left_ms least median most count rounds both_rails
    job_begin && pause 2 && watch act 300 && pause "$steer_settle" && stretch both_rails 3 || return
    ((both_rails >= steer_least)) || { unjudged="the machine is too busy: both rails carry $both_rails/100 MB/s"; return 77; }
    rail_A_is_left || return
    told loss_until_then "$(pace "$from" "$now_ms")"
    pause 1; carries && before=$sent || return
    : >"$dir/turns"
    for ((rounds = 0; rounds < 3; rounds++)); do
        turns "$steer_turns" || return
        read -r count least median most < <(share)
        echo "# lossy beside clean stretches, avoided: $median % ($least to $most with 95 %; $count)" >&3
        # More of them where it may be either.
        awk -v median="$median" -v most="$most" -v bar=$((100 - steer_lack)) 'BEGIN { exit median < bar && most >= bar }' && break
    done
    carries && ((sent == before)) || { echo "path 0 still carries: $((sent - before)) bytes"; return 1; }
    awk -v most="$most" -v bar=$((100 - steer_lack)) 'BEGIN { exit most < bar }' || { echo "it is slower than by the clean rail alone"; return 1; }
    awk -v median="$median" -v bar=$((100 - steer_lack)) 'BEGIN { exit median < bar }' ||
        { unjudged="the machine's speed varies so much that it may be $least to $most % of the clean rail's"; return 77; }
    ((left_ms <= 10000)) || { echo "it took longer than 10 s"; return 1; }
    job_end
}

# It loses still: it is tried, and left again, for longer. Then it is well, and given back.
a_rail_is_tried_and_taken_back() {
    local before from left_ms
    job_begin && pause 2 && watch act && pause "$steer_settle" && rail_A_is_left || return
    until_true 60 steered tried 'rxe[01]:1' || { echo "it was never tried again"; return 1; }
    rail_clean A && up_ms && from=$now_ms || return
    until_true 120 steered in_use 'rxe0:1' && until_true 120 steered in_use 'rxe1:1' && until_true 20 table_is_empty || { cat "$dir/paths"; return 1; }
    up_ms; echo "# given back $((now_ms - from)) ms after the loss ended" >&3
    carries && before=$sent && pause 3 && carries && ((sent > before)) || { echo "path 0 carries nothing again"; return 1; }
    job_end
}

# The agent dies while a port is avoided: its rules end by themselves, and the ranks use the port again.
rules_of_an_agent_that_died_end() {
    job_begin && watch act 300 && pause 3 && rail_loss A 10% || return
    until_true 60 table_says 'port=rxe0:1 avoid' || { cat "$dir/events"; return 1; }
    kill -KILL "$agent"; wait "$agent" 2>/dev/null; agent=
    rail_clean A && carries && local before=$sent || return
    carries_again() { carries && ((sent > before)); }
    until_true 90 carries_again || { cat "$dir/paths"; return 1; }
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
# case_of NAME FUNCTION: one that says nothing is skipped, with its reason.
case_of() {
    local said ended=0 # names that tap_case has not
    [[ $1 == "$steer_cases"* ]] && tap_wanted "$1" || return
    said=$(cleanly "$2" 2>&1 </dev/null) || ended=$?
    if [[ $ended -eq 77 ]]; then
        sed 's/^/# /' <<<"$said"
        tap_skip "$1" "${said##*$'\n'}"
    else
        tap_case "$1" eval 'printf "%s\n" "$said"; return "$ended"'
    fi
}
case_of a_rail_that_loses_packets_is_left a_rail_that_loses_packets_is_left
case_of a_rail_is_tried_and_taken_back a_rail_is_tried_and_taken_back
case_of rules_of_an_agent_that_died_end_by_themselves rules_of_an_agent_that_died_end
case_of a_probe_finds_what_netem_loses_and_delays a_probe_finds_what_netem_does
case_of in_shadow_nothing_is_written in_shadow_nothing_is_written
tap_done
