#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluicectl diagnose: what it says of recorded jobs, as text and as JSON, and what it refuses.
# usage: ctl_diagnose.sh SLUICECTL SOURCE_ROOT
# meson says in MESON_EXE_WRAPPER what runs a program for another processor. SLUICE_TEST_DATA: what others recorded.
set -uo pipefail
ctl=$1 corpus=$2/tests/fuzz/corpus data=${SLUICE_TEST_DATA:-$2/../shared/data}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
read -ra wrapper <<<"${MESON_EXE_WRAPPER:-}"

# diagnose STATUS ARGUMENT...: what it prints is in $dir/out and $dir/err
diagnose() {
    local status=$1 got=0
    shift
    "${wrapper[@]}" "$ctl" diagnose "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    [[ $got == "$status" ]] || { echo "$* ended with $got, not $status"; cat "$dir/out" "$dir/err"; return 1; }
}

# fault_of CASE: "class rank" of each injected fault
fault_of() {
    sed -n 's/Rank \([0-9]*\), fault_type: GPU_ERROR/gpu_stuck \1/p; s/Rank \([0-9]*\), fault_type: LOCK_GIL/host_stalled \1/p' "$data/hang/$1/fault_injection.log"
}

accused() {
    python3 -c '
import json, sys
answer = json.load(sys.stdin)
assert answer["version"] == 1 and answer["ranks"] == 16 and answer["files"] == 16, answer
for verdict in answer["verdicts"]:
    assert verdict["accused"]["kind"] == "rank" and not verdict["others"] and verdict["evidence"] and verdict["since"].startswith("2025-"), verdict
    print(verdict["class"], verdict["accused"]["rank"])' <"$dir/out"
}

recorded_jobs_have_exactly_the_injected_faults() {
    local name
    for name in gpu_error_1st lock_gil_1st; do
        diagnose 3 -o json "$data/hang/$name"/_dump_* && diff <(accused | sort) <(fault_of "$name" | sort) || return
    done
    gzip -c "$data/hang/lock_gil_1st/_dump_9" >"$dir/_dump_9.gz"
    diagnose 3 "$dir/_dump_9.gz" "$data"/hang/lock_gil_1st/_dump_{?,1?} && grep -q '^host_stalled: rank 9, ' "$dir/out"
}

# Who is slow: exactly the worker that was slowed; worker 6 of the first mini-batch job; nobody else, and nothing hangs.
recorded_jobs_have_exactly_the_slow_rank() {
    diagnose 3 "$data/straggler/timeline-AR.json.gz" && [[ $(grep -c '^[a-z_]*: ' "$dir/out") == 1 ]] && grep -q '^slow_rank: rank 0, ' "$dir/out" &&
        grep -q 'data-parallel rank 0, stage 0' "$dir/out" && diagnose 3 "$data/minibatch/job_1_norm.csv" && [[ $(grep -c '^[a-z_]*: ' "$dir/out") == 1 ]] &&
        grep -q '^slow_rank: rank 6, ' "$dir/out" && diagnose 0 "$data/minibatch/job_2_norm.csv" && diagnose 0 "$data/xpu-timer/normal.prom" &&
        diagnose 3 "$data/xpu-timer/hang-all.prom" && grep -q '^comm_stuck: rank 0 ' "$dir/out" && ! grep -q not_hung "$dir/out"
}

text_says_who_and_why() {
    diagnose 3 "$corpus/diagnosis_ras/behind" &&
        grep -qx '1 files tell of 4 ranks, 2 communicators and 0 operations' "$dir/out" &&
        grep -qx 'host_stalled: rank 2 (host 10.0.0.2), 60 %' "$dir/out" &&
        grep -q '^  - rank 2 (pid 100 on 10.0.0.2, GPU 0) has not called collective 6650 of communicator 0xa; ranks 0-1, 3 wait in it$' "$dir/out"
}

two_looks_tell_that_a_job_moves() {
    diagnose 0 "$corpus/diagnosis_ras/behind" "$corpus/diagnosis_ras/moving" && grep -qx not_hung "$dir/out"
}

what_is_young_is_no_hang() {
    cp "$corpus/diagnosis_flight/protocol-2" "$dir/_dump_1"
    diagnose 3 "$dir/_dump_1" && diagnose 0 --at 1001 "$dir/_dump_1" && grep -q 'within their deadline' "$dir/out" &&
        diagnose 3 --at=1001 --stall 0.5 "$dir/_dump_1" && diagnose 0 --stall=60 "$dir/_dump_1" --at 1059
}

formats_may_be_mixed() {
    cp "$corpus/diagnosis_flight/json" "$dir/rank-1.json"
    diagnose 3 "$dir/rank-1.json" "$corpus/diagnosis_ras/dead" && grep -q '^dead: rank 3' "$dir/out"
}

what_cannot_be_read_is_refused_with_a_sentence() {
    echo hello >"$dir/hello"
    diagnose 2 && grep -q '^usage: sluicectl diagnose' "$dir/err" && diagnose 2 -o csv x && diagnose 2 --stall x y && diagnose 2 --at && diagnose 2 --what x &&
        diagnose 1 "$dir/none" && grep -q 'none cannot be opened' "$dir/err" &&
        diagnose 1 "$dir/hello" && grep -q 'hello is of no format that is known here (PyTorch' "$dir/err" &&
        diagnose 1 "$corpus/diagnosis_pickle/reduce" && grep -q 'the opcode GLOBAL is refused' "$dir/err" && [[ ! -s $dir/out ]]
}

for name in recorded_jobs_have_exactly_the_injected_faults recorded_jobs_have_exactly_the_slow_rank; do
    if [[ -d $data/hang && -d $data/straggler ]]; then
        tap_case "$name" "$name"
    else
        tap_skip "$name" "no recorded jobs at $data"
    fi
done
for name in text_says_who_and_why two_looks_tell_that_a_job_moves what_is_young_is_no_hang formats_may_be_mixed what_cannot_be_read_is_refused_with_a_sentence; do
    tap_case "$name" "$name"
done
tap_done
