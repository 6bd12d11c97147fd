#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tool as people use it: ranks on this machine, every collective, type and operator, both transports.
# usage: bench_end_to_end.sh SLUICE_BENCH CORRUPTED_SLUICE_BENCH SOURCE_ROOT TLS (yes: it was built)
set -uo pipefail
bench=$1 corrupted=$2 root=$3 tls=$4
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/wait.sh
. "$root/tests/wait.sh"
# shellcheck source=tests/port.sh
. "$root/tests/port.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SLUICE_TUNE_DIR=$dir SLUICE_TIMEOUT_MS=30000

run() { timeout 120 "$@"; }

# all_right OPTIONS...: three ranks, rows there are, nothing is wrong.
all_right() {
    local out
    out=$(run "$bench" -n 3 -i 2 -w 1 "$@") || { echo "$out"; return 1; }
    grep -q '^# Out of bounds values : 0 OK$' <<<"$out" && grep -qE '^ +[0-9]+ ' <<<"$out" ||
        { echo "$out"; return 1; }
}

encrypted() {
    local out
    out=$(SLUICE_TCP_TLS=on SLUICE_LOG=tcp:info run "$bench" -n 4 -t tcp -C all -b 8 -e 256k -f 32 -i 2 2>&1) &&
        grep -q '^# Out of bounds values : 0 OK$' <<<"$out" && grep -q 'TLS 1.3' <<<"$out" &&
        ! grep -q 'no TLS' <<<"$out" || { echo "$out"; return 1; }
}

# Rank 0 wants TLS and rank 1 has it off: both name the rank and what to do.
one_rank_without_tls() {
    local port status=0
    port=$(free_port)
    local by_hand=(env SLUICE_SIZE=2 "SLUICE_ROOT=127.0.0.1:$port" SLUICE_SECRET=s SLUICE_TRANSPORT=tcp)
    run "${by_hand[@]}" SLUICE_RANK=0 SLUICE_TCP_TLS=on "$bench" -b 8 -e 8 >"$dir/tls0" 2>&1 &
    run "${by_hand[@]}" SLUICE_RANK=1 "$bench" -b 8 -e 8 >"$dir/tls1" 2>&1 && status=1
    wait $! && status=1
    # Who saw it first tells the other, whose sentence it is then, too.
    local why='rank 1 at .* speaks no TLS: set SLUICE_TCP_TLS=on|rank 0 at .* speaks TLS alone'
    [[ $status -eq 0 ]] && grep -qE "$why" "$dir/tls0" && grep -qE "$why" "$dir/tls1" || { cat "$dir/tls0" "$dir/tls1"; return 1; }
}

# fails_with STATUS PATTERN COMMAND...
fails_with() {
    local want=$1 pattern=$2 out status=0
    shift 2
    out=$(run "$@" 2>&1) || status=$?
    [[ $status -eq $want ]] && grep -qE -- "$pattern" <<<"$out" ||
        { echo "$out"; echo "status $status instead of $want, or no '$pattern'"; return 1; }
}

# once_with STATUS PATTERN COMMAND...: and the sentence comes once, however many ranks would have to say it.
once_with() {
    local out
    fails_with "$@" || return 1
    out=$(run "${@:3}" 2>&1)
    [[ $(grep -cE -- "$2" <<<"$out") -eq 1 ]] || { echo "$out"; return 1; }
}

# not_run PATTERN OPTIONS...: status 1 before anything is measured.
not_run() {
    local pattern=$1
    shift
    fails_with 1 "$pattern" "$bench" "$@" || return 1
    ! run "$bench" "$@" 2>/dev/null | grep .
}

# Columns of the row: bytes, count, type, operator, root, then time, p50 and p99 out of place.
# The machine may be several times as fast as it was when the work was measured, so what a rank has computed is compared
# with what was measured then (to one pass), and the time in the table with what it took in truth. Where computing were in
# the time of operations alone, no sample of them could be shorter than it.
computing_counts() {
    run "$bench" -n 2 -b 8 -e 8 -i 40 -v --compute 2000 --touch 64k --json "$dir/compute.json" >"$dir/compute" &&
        grep -q '2000 us of computing over 65536 bytes' "$dir/compute" &&
        awk '$1 == 8 { rows++; time = $6 }
            /"min_us":/ { samples++; shortest = $2 + 0 > shortest ? $2 + 0 : shortest }
            /^# Computing before an operation:/ { least = $6; passes = $13; pass = $16 }
            function off(x) { return x < 0 ? -x : x }
            END { exit !(rows == 1 && least > 0 && time >= least - 0.1 && samples > 0 && shortest < least &&
                         off(passes * pass - 2000) <= pass) }' "$dir/compute" "$dir/compute.json" || { cat "$dir/compute"; return 1; }
}

full_output() {
    local status=0
    run "$bench" "$@" >/dev/full 2>"$dir/full" || status=$?
    [[ $status -eq 1 ]] && grep -q 'cannot write standard output' "$dir/full" || { cat "$dir/full"; return 1; }
}

# Nothing is done in place, so that has no bandwidth; the columns stay in line.
one_rank_runs_all() {
    run "$bench" -n 1 -C all -b 64 -e 64M -f 1024 -i 2 --json "$dir/alone.json" --csv "$dir/alone.csv" >"$dir/alone" &&
        grep -q '^# sendrecv is left out' "$dir/alone" && ! grep -q '^# sendrecv$' "$dir/alone" &&
        grep -q '^# alltoallv$' "$dir/alone" && python3 -m json.tool "$dir/alone.json" >/dev/null &&
        ! grep -qiE 'nan|inf' "$dir/alone.csv" "$dir/alone.json" || { cat "$dir/alone"; return 1; }
    [[ $(grep -E '^ +[0-9]+ ' "$dir/alone" | awk '{ print length }' | sort -u | wc -l) -eq 1 ]] || { cat "$dir/alone"; return 1; }
}

# await PATTERN FILE
await() {
    until_true 20 grep -qsE -- "$1" "$2" || { cat "$2"; return 1; }
}

# interrupted SIGNAL STATUS: rows that there are, a word that there are no more, and nothing else.
interrupted() {
    local pid status=0
    rm -f "$dir/cut" "$dir/cut.json" # what an earlier case left would pass for its rows
    timeout 60 env --default-signal=INT "$bench" -n 3 -e 64 -i 20 -N 1000000 --json "$dir/cut.json" \
        >"$dir/cut" 2>"$dir/cut.errors" &
    pid=$!
    await '^ +8 ' "$dir/cut" || { kill "$pid"; return 1; }
    kill -s "$1" "$(pgrep -P "$pid" | head -1)"
    wait "$pid" || status=$?
    [[ $status -eq $2 && ! -s $dir/cut.errors ]] && grep -q '^# Ended early *: interrupted by signal' "$dir/cut" &&
        grep -q 'What stands above is all' "$dir/cut" && python3 - "$dir/cut.json" <<'END'
import json, sys
run = json.load(open(sys.argv[1]))
assert run["rows"] and "interrupted" in run["error"], run["error"]
END
    # shellcheck disable=SC2181
    [[ $? -eq 0 ]] || { echo "status $status"; tail -5 "$dir/cut"; cat "$dir/cut.errors"; return 1; }
}

# dies RANK SPEAKER: of four ranks one is killed; the error is told by one of the others, and of their ends by one line.
dies() {
    local pid status=0
    rm -f "$dir/died"
    timeout 60 "$bench" -n 4 -e 64 -i 20 -N 1000000 >"$dir/died" 2>"$dir/died.errors" &
    pid=$!
    await '^ +8 ' "$dir/died" || { kill "$pid"; return 1; }
    kill -s KILL "$(pgrep -P "$(pgrep -P "$pid")" | sed -n "$(($1 + 1))p")"
    wait "$pid" || status=$?
    [[ $status -eq 137 && $(wc -l <"$dir/died.errors") -eq 3 ]] &&
        grep -q "rank $1 of 4 .*was killed by signal 9" "$dir/died.errors" &&
        grep -q "^sluice-bench: rank $2: rank $1 is lost" "$dir/died.errors" &&
        grep -q 'of 4 ended with exit status 1 after that$' "$dir/died.errors" ||
        { echo "status $status"; cat "$dir/died.errors"; return 1; }
}

head_is_flushed() {
    local pid failed=0
    timeout 60 "$bench" -n 2 -b 8 -e 8 -i 100000000 >"$dir/head" 2>&1 &
    pid=$!
    await '^# minbytes' "$dir/head" || failed=1
    kill "$pid"
    wait "$pid"
    return "$failed"
}

json_is_whole() {
    run "$bench" -n 2 -i 3 -b 64 -e 1k -f 4 -C allreduce,broadcast --json "$dir/run.json" \
        --csv "$dir/run.csv" >/dev/null || return 1
    python3 - "$dir/run.json" "$dir/run.csv" <<'END'
import csv, json, sys
run = json.load(open(sys.argv[1]))
lines = list(csv.DictReader(open(sys.argv[2])))
assert len(run["rows"]) == 6 and run["ranks"] == 2 and run["error"] is None
assert len(lines) == 12
for row in run["rows"]:
    for place in ("out_of_place", "in_place"):
        cell = row[place]
        assert cell["wrong"] == 0 and cell["iters"] == 3 and len(cell["ranks"]) == 2
        for rank in cell["ranks"]:
            assert 0 < rank["min_us"] <= rank["p50_us"] <= rank["p99_us"] <= rank["max_us"]
END
}

# The time of a row is that of its ranks as -a says.
times_are_of_all_ranks_as_asked() {
    local how
    for how in 0 1 2 3; do
        run "$bench" -n 3 -i 20 -b 8 -e 8 -a "$how" --json "$dir/times.json" >/dev/null || return 1
        python3 - "$dir/times.json" "$how" <<'END' || return 1
import json, sys
row = json.load(open(sys.argv[1]))["rows"][0]
cell = row["out_of_place"]
near = lambda a, b: abs(a - b) <= 1e-6 * b
assert near(cell["algbw_GBps"], 8 / cell["time_us"] * 1e-3), cell
assert near(cell["busbw_GBps"], cell["algbw_GBps"] * 4 / 3), cell  # three ranks carry 2 (3 - 1) / 3
means = [rank["mean_us"] for rank in cell["ranks"]]
want = [means[0], sum(means) / len(means), min(means), max(means)][int(sys.argv[2])]
assert abs(cell["time_us"] - want) < 1e-6 * want, (sys.argv[2], cell["time_us"], means)
END
    done
}

# On a terminal, once it takes long: at which row of how many the run is. How long a row takes depends on the machine,
# so there are more rows than anybody waits for, and the run ends when it has said so.
rows_are_counted_on_a_terminal() {
    python3 - "$bench" <<'END'
import os, pty, re, select, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "-n", "2", "-b", "8", "-e", "512", "-i", "20", "-N", "100000"])
text, until = "", time.monotonic() + 60
while (said := re.search(r"\d+ of 700000: allreduce, \d+ bytes", text)) is None and time.monotonic() < until:
    if select.select([terminal], [], [], 1)[0]:
        text = text[-4000:] + os.read(terminal, 4000).decode()
os.kill(pid, signal.SIGTERM)
try:
    while os.read(terminal, 4000):
        pass
except OSError:  # nobody has the other end any more
    pass
os.waitpid(pid, 0)
sys.exit(None if said else text)
END
}

# The batch and the single operations are timed apart, so they agree roughly only: 50 times as long is not roughly. A
# rank that loses its core for a moment spoils one try.
operations_in_flight_are_timed_each() {
    local try
    for try in 1 2 3 4 5; do
        run "$bench" -n 2 -i 100 -m 50 -b 16k -e 16k --json "$dir/many.json" >/dev/null || return 1
        python3 - "$dir/many.json" <<'END' && return
import json, sys
for rank in json.load(open(sys.argv[1]))["rows"][0]["out_of_place"]["ranks"]:
    if rank["mean_us"] >= 15 * rank["p50_us"]:
        sys.exit(f"mean {rank['mean_us']} us, p50 {rank['p50_us']} us")
END
    done
    echo "not in $try tries"
    return 1
}

each_size_comes_once() {
    run "$bench" -n 2 -i 1 -b 8 -e 17 --stepbytes 1 >"$dir/steps" || return 1
    [[ $(awk '/^ +[0-9]/ { print $1 }' "$dir/steps" | xargs) == "8 12 16" ]] || { cat "$dir/steps"; return 1; }
}

json_on_stdout_is_alone() {
    run "$bench" -n 2 -i 1 -b 8 -e 8 --json - 2>/dev/null | python3 -m json.tool >/dev/null
}

list_names_transports_kernels_and_algorithms() {
    run "$bench" --list >"$dir/list" && cat "$dir/list" && grep -qE '^transport +shm ' "$dir/list" &&
        grep -qE '^transport +tcp ' "$dir/list" && grep -qE '^kernel +c +(available|in use)' "$dir/list" &&
        grep -qE '^algorithm +allreduce +ring ' "$dir/list" && grep -qE '^cores +[0-9]+ of ' "$dir/list"
}

list_as_json_names_devices_or_why_there_are_none() {
    run "$bench" --list --json - | tee "$dir/list.json" && python3 - "$dir/list.json" <<'END'
import json, sys
transports = json.load(open(sys.argv[1]))["transports"]
assert {"shm", "tcp"} <= {t["name"] for t in transports}
for transport in transports:
    assert (transport["why"] is None) == bool(transport["devices"])
    for device in transport["devices"]:
        assert device["name"] and device["usable"] == (device["why"] is None)
END
}

explain_says_what_each_size_takes() {
    run "$bench" -n 3 --explain -b 8 -e 1M -f 1024 >"$dir/explain" && cat "$dir/explain" &&
        [[ $(grep -c '^allreduce of ' "$dir/explain") -eq 2 ]] && grep -q ' us$' "$dir/explain" &&
        run "$bench" -n 1 -C barrier --explain >"$dir/explain" && cat "$dir/explain" &&
        grep -q ' on 1 rank, 1 host: ' "$dir/explain" &&
        [[ $(grep -vE '^  costs|^[a-z]' "$dir/explain" | awk '{ print length }' | sort -un | wc -l) -eq 1 ]]
}

schedule_of_every_rank_is_printed() {
    run "$bench" -n 3 --print-schedule --algo ring -b 1k >"$dir/schedule" && cat "$dir/schedule" &&
        [[ $(grep -c '^# rank [012]: allreduce of 256 f32 by ring' "$dir/schedule") -eq 3 ]] &&
        run "$bench" -n 3 --print-schedule -C sendrecv -b 64 >"$dir/schedule" && cat "$dir/schedule" &&
        [[ $(grep -cE ' send +in\[' "$dir/schedule") -eq 3 && $(grep -cE ' recv +from ' "$dir/schedule") -eq 3 ]]
}

# Ranks that somebody else starts: three variables are enough, and only rank 0 prints.
ranks_by_hand() {
    local port
    port=$(free_port)
    export SLUICE_SIZE=2 SLUICE_ROOT=127.0.0.1:$port
    SLUICE_RANK=1 run "$bench" -b 8 -e 8 -i 1 >"$dir/one" &
    SLUICE_RANK=0 run "$bench" -b 8 -e 8 -i 1 >"$dir/zero" || return 1
    wait $! || return 1
    unset SLUICE_SIZE SLUICE_ROOT
    grep -q '^# ranks: 2 on 1 host' "$dir/zero" && [[ ! -s $dir/one ]]
}

# But for "self" (one rank) and those for several hosts, which bench_hosts.sh tests.
same_data_whatever_the_algorithm() {
    local algo failed=0 list
    list=$(run "$bench" --list | awk '$1 == "algorithm" && $2 == "allreduce" && $3 != "self" && $3 !~ /^hier/ { print $3 }')
    (($(wc -w <<<"$list") >= 5)) || { echo "algorithms of allreduce: '$list'"; return 1; }
    for algo in $list; do
        all_right --algo "allreduce:$algo" -d f32,bf16,i32 -o all -b 12 -e 400k -f 31 ||
            { echo "algorithm $algo"; failed=1; }
    done
    return "$failed"
}

sizes=(-b 24 -e 200k -f 89)
for transport in shm tcp; do
    for coll in allreduce reduce_scatter reduce; do
        tap_case "${coll}_of_every_type_and_operator_over_$transport" \
            all_right -t "$transport" -C "$coll" -d all -o all "${sizes[@]}"
    done
    for coll in all_gather broadcast gather scatter alltoall alltoallv barrier sendrecv; do
        tap_case "${coll}_of_every_type_over_$transport" \
            all_right -t "$transport" -C "$coll" -d all "${sizes[@]}"
    done
    tap_case "every_root_over_$transport" \
        all_right -t "$transport" -C broadcast,reduce,gather,scatter -r all "${sizes[@]}"
    tap_case "five_operations_in_flight_over_$transport" \
        all_right -t "$transport" -C all -z 0 -m 5 "${sizes[@]}"
    tap_case "requests_one_at_a_time_over_$transport" \
        all_right -t "$transport" -C all --nonblocking "${sizes[@]}"
    tap_case "persistent_operations_over_$transport" \
        all_right -t "$transport" -C all --persistent "${sizes[@]}"
    tap_case "persistent_operations_in_flight_together_over_$transport" \
        all_right -t "$transport" -C all --persistent -z 0 -m 3 "${sizes[@]}"
    tap_case "buffers_that_begin_inside_a_page_over_$transport" \
        all_right -t "$transport" -C all -u 3 -d f64,u8,bf16 "${sizes[@]}"
done
if [[ $tls == yes ]]; then
    tap_case every_collective_of_four_ranks_over_tls encrypted
    tap_case a_rank_without_tls_is_named_on_both one_rank_without_tls
fi
tap_case memory_that_peers_map all_right -C all --alloc sluice -R 1 "${sizes[@]}"
tap_case every_allreduce_algorithm_gives_the_right_result same_data_whatever_the_algorithm
tap_case one_wrong_bit_fails_the_run fails_with 1 '^# Out of bounds values : [1-9][0-9]* FAILED' \
    "$corrupted" -n 2 -b 1k -e 1k -d i32 -i 2
tap_case bits_that_differ_between_ranks_fail_the_run_even_within_rounding fails_with 1 \
    'not the same bits on every rank : [1-9]' "$corrupted" -n 2 -b 1k -e 1k -d f64 -i 2
tap_case an_unknown_option_is_status_2 fails_with 2 'sluice-bench --help' "$bench" --frobnicate
tap_case a_root_that_is_no_rank_is_refused fails_with 2 'ranks 0 to 1' "$bench" -n 2 -r 5
tap_case an_unknown_algorithm_is_refused_by_name once_with 2 'frob' \
    "$bench" -n 2 --algo frob -b 8 -e 8 -i 1
tap_case an_unknown_transport_is_refused_by_name once_with 2 'pigeon' \
    "$bench" -n 2 -t pigeon -b 8 -e 8 -i 1
tap_case an_unknown_kernel_is_refused_by_name once_with 2 "SLUICE_KERNEL is 'foo', but must be one of" "$bench" -n 2 --kernel foo
tap_case an_unknown_launcher_is_refused_with_the_list once_with 2 'torchrun' env SLUICE_LAUNCHER=foo "$bench"
tap_case an_unknown_way_to_tune_is_refused_with_the_list once_with 2 'auto, measure, off' env SLUICE_TUNE=foo "$bench"
tap_case ports_that_are_none_are_refused_once once_with 2 "SLUICE_PORT_RANGE is '9-3'" \
    env SLUICE_PORT_RANGE=9-3 "$bench" -n 3 -t shm -b 8 -e 8 -i 1
tap_case paths_that_are_none_are_refused_once once_with 2 "SLUICE_VERBS_PATHS: '1-1'" \
    env SLUICE_VERBS_PATHS=1-1 "$bench" -n 3 -t shm -b 8 -e 8 -i 1
tap_case a_rank_without_a_size_is_status_2 once_with 2 'SLUICE_RANK is 0' env SLUICE_RANK=0 "$bench" -b 8 -e 8
tap_case an_unknown_variable_gets_one_warning once_with 0 'there is no variable SLUICE_FOO' \
    env SLUICE_FOO=1 "$bench" -n 3 -b 8 -e 8 -i 1
tap_case two_reports_to_one_file_are_refused once_with 2 'both write to' "$bench" --json - --csv -
tap_case a_report_that_cannot_be_written_is_noticed_before_the_run not_run 'cannot write /dev/null/x' \
    -n 2 --json /dev/null/x
tap_case so_is_a_table_and_a_drawing not_run 'cannot write /dev/null/x' -n 2 --csv /dev/null/x
tap_case a_table_that_standard_output_does_not_take_is_status_1 full_output -n 2 -b 8 -e 8 -i 1
tap_case a_list_that_standard_output_does_not_take_is_status_1 full_output --list
tap_case a_full_communicator_says_so fails_with 1 'Ended early .*raise SLUICE_INFLIGHT_MAX' \
    env SLUICE_INFLIGHT_MAX=1 SLUICE_TUNE=measure "$bench" -n 2 -b 64 -e 64 -i 1 -m 4
tap_case computing_between_calls_is_in_the_time_and_not_in_p50 computing_counts
tap_case one_rank_runs_all_but_sendrecv one_rank_runs_all
tap_case sendrecv_among_one_rank_is_refused fails_with 2 'takes two ranks' "$bench" -n 1 -C sendrecv
tap_case an_interrupted_run_reports_what_it_has interrupted INT 130
tap_case a_terminated_run_reports_what_it_has interrupted TERM 143
tap_case a_rank_that_dies_is_told_of_once dies 2 0
tap_case so_is_rank_0 dies 0 1
tap_case the_head_does_not_wait_for_the_first_row head_is_flushed
tap_case ranks_inside_ranks_are_refused env SLUICE_RANK=0 SLUICE_SIZE=2 SLUICE_ROOT=127.0.0.1:1 \
    bash -c "$(declare -f run fails_with); fails_with 2 'leave -n away' '$bench' -n 2"
tap_case json_and_csv_have_every_row json_is_whole
tap_case a_row_is_the_average_that_was_asked_for times_are_of_all_ranks_as_asked
tap_case a_long_run_on_a_terminal_says_how_far_it_is rows_are_counted_on_a_terminal
tap_case operations_in_flight_are_timed_each operations_in_flight_are_timed_each
tap_case sizes_that_round_to_one_are_one_row each_size_comes_once
tap_case json_on_stdout_is_nothing_but_json json_on_stdout_is_alone
tap_case list_names_what_is_there list_names_transports_kernels_and_algorithms
tap_case list_as_json_has_every_device list_as_json_names_devices_or_why_there_are_none
tap_case explain_names_algorithms_and_times explain_says_what_each_size_takes
tap_case print_schedule_shows_every_rank schedule_of_every_rank_is_printed
tap_case ranks_started_by_hand_meet ranks_by_hand
tap_case a_run_without_ranks_says_how_to_get_some fails_with 0 '-n 4 starts four' "$bench" -b 8 -e 8 -i 1
tap_done
