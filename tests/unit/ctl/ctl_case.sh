#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluicectl diagnose --bundle, replay, explain, graph.
# usage: ctl_case.sh SLUICECTL SOURCE_ROOT
# meson says in MESON_EXE_WRAPPER what runs a program for another processor. SLUICE_TEST_DATA: what others recorded.
set -uo pipefail
ctl=$1 corpus=$2/tests/fuzz/corpus data=${SLUICE_TEST_DATA:-$2/../shared/data}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
read -ra wrapper <<<"${MESON_EXE_WRAPPER:-}"

# ends STATUS ARGUMENT...: what it prints is in $dir/out and $dir/err
ends() {
    local status=$1 got=0
    shift
    "${wrapper[@]}" "$ctl" "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    [[ $got == "$status" ]] || { echo "$* ended with $got, not $status"; cat "$dir/out" "$dir/err"; return 1; }
}

# A look of RAS, and what the agent of the accused host says of it.
ras=$corpus/diagnosis_ras/behind
sed 's/"h1"/"10.0.0.2"/; s/link_down/gpu_fatal/; s/down for 3 s/Xid 79/; s/2025-11-25/2026-01-02/g' "$corpus/read_agent/status" >"$dir/10.0.0.2.json"

# What an agent told of the accused host decides, and is said.
agents_decide() {
    ends 3 diagnose "$ras" && grep -qx 'host_stalled: rank 2 (host 10.0.0.2), 60 %' "$dir/out" && grep -q 'isolate 10.0.0.2: no' "$dir/out" &&
        ends 3 diagnose "$ras" "$dir/10.0.0.2.json" && grep -q 'gpu_fatal, Xid 79.* times likelier where a GPU is at fault' "$dir/out" &&
        grep -q 'isolate 10.0.0.2: yes' "$dir/out"
}

# Neither the order nor the folder matters, and an id stays as more comes in.
bundles_are_of_the_set() {
    local id
    mkdir -p "$dir/there" && cp "$ras" "$dir/there/behind"
    ends 3 -o json diagnose "$ras" 2>/dev/null || ends 3 diagnose -o json "$ras" || return
    id=$(sed -n 's/.*"id":"\([0-9a-f]*\)".*/\1/p' "$dir/out")
    [[ ${#id} == 16 ]] && ends 3 diagnose --bundle "$dir/a.case" "$ras" "$dir/10.0.0.2.json" &&
        ends 3 diagnose --bundle="$dir/b.case" "$dir/10.0.0.2.json" "$dir/there/behind" "$ras" && cmp "$dir/a.case" "$dir/b.case" &&
        grep -q "\"id\":\"$id\"" "$dir/a.case" && ends 3 diagnose --job other -o json "$ras" && ! grep -q "$id" "$dir/out"
}

replay_says_whether_it_is_the_same() {
    ends 0 replay "$dir/a.case" && grep -qx '2 inputs, 1 verdicts: the result is the same, byte for byte' "$dir/out" &&
        ends 0 -o json replay "$dir/a.case" && python3 -c 'import json, sys; assert json.load(sys.stdin)["same"] is True' <"$dir/out" || return
    # One whose result is another, with sums that are right.
    python3 - "$dir/a.case" "$dir/other.case" <<'EOF' || return
import hashlib, re, sys
data = open(sys.argv[1], "rb").read()
head, result = data[:data.rindex(b"\nresult ") + 1], data[data.rindex(b"\nresult ") + 1:]
body = result[result.index(b"\n") + 1:result.rindex(b"\nend ")].replace(b'"act":true', b'"act":fals')
new = head + b"result %d %s\n" % (len(body), hashlib.sha256(body).hexdigest().encode()) + body + b"\n"
open(sys.argv[2], "wb").write(new + b"end %s\n" % hashlib.sha256(new).hexdigest().encode())
EOF
    ends 3 replay "$dir/other.case" && grep -q 'the result differs$' "$dir/out" && grep -q '^line 2: recorded .*"act":fals' "$dir/err" && grep -q '^line 2: replayed .*"act":true' "$dir/err"
}

damaged_bundles_are_refused() {
    sed 's/gpu_fatal/gpu_other/' "$dir/a.case" >"$dir/c.case"
    ends 1 replay "$dir/c.case" && grep -q 'c.case, byte [0-9]*: the bytes before are not those of their sum' "$dir/err" &&
        head -c 3000 "$dir/a.case" >"$dir/d.case" && ends 1 replay "$dir/d.case" && ends 1 explain "$dir/d.case" && ends 1 replay "$dir/none.case" &&
        sed 's/^sluice-case 1/sluice-case 2/' "$dir/a.case" >"$dir/e.case" && ends 1 replay "$dir/e.case" && grep -q 'a form that this program does not know' "$dir/err"
}

explain_is_prose() {
    local id part
    id=$(sed -n 's/.*{"id":"\([0-9a-f]*\)".*/\1/p' "$dir/a.case")
    ends 0 explain "$dir/a.case" || return
    for part in 'What was seen' 'What it was compared with' 'Why not another one' 'What may be behind it' 'What would decide' 'What to do next' "verdict $id" 'Isolate 10.0.0.2: yes'; do
        grep -q "$part" "$dir/out" || { echo "not said: $part"; cat "$dir/out"; return 1; }
    done
    awk 'length > 110 { exit 1 }' "$dir/out" && cp "$dir/out" "$dir/prose" && ends 0 explain --folder "$dir/only" "$id" 2>/dev/null && return 1
    mkdir "$dir/only" && cp "$dir/a.case" "$dir/only" && ends 0 explain --folder "$dir/only" "${id:0:8}" && cmp "$dir/out" "$dir/prose" &&
        ends 1 explain --folder "$dir/only" 0123456789abcdef && grep -q 'no verdict with id 0123456789abcdef' "$dir/err" && ends 1 explain "$dir/a.case" ffff
}

graphs_are_dot_and_well_formed_svg() {
    ends 0 graph "$ras" && python3 -c 'import sys, xml.dom.minidom as m; d = m.parse(sys.stdin); assert d.documentElement.tagName == "svg" and len(d.getElementsByTagName("rect")) == 4' <"$dir/out" &&
        ends 0 graph -o svg "$dir/a.case" && cp "$dir/out" "$dir/b.svg" && python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.stdin)' <"$dir/b.svg" &&
        ends 0 graph -o dot "$ras" && grep -q '^digraph waits {' "$dir/out" && grep -q ' b[0-9]* -> b[0-9]* ' "$dir/out" || return
    ! command -v dot >/dev/null || dot -Tsvg "$dir/out" >/dev/null
}

# All recorded jobs: the same bytes again.
recorded_jobs_replay() {
    local name
    for name in gpu_error_1st lock_gil_1st; do
        ends 3 diagnose --bundle "$dir/r.case" "$data/hang/$name"/_dump_* && ends 0 replay "$dir/r.case" && ends 0 explain "$dir/r.case" && ends 0 graph "$dir/r.case" || return
    done
    ends 3 diagnose --bundle "$dir/r.case" "$data/straggler/timeline-AR.json.gz" "$data/history/fault_trace.json" && ends 0 replay "$dir/r.case"
}

arguments_are_checked() {
    local words
    while read -r words; do
        # shellcheck disable=SC2086
        ends 2 $words || return
    done <<EOF
explain
explain a b c
explain $dir/a.case xyz
graph
graph -o png $ras
graph --stall x $ras
diagnose --false-isolations 0 $ras
diagnose --false-isolations x $ras
diagnose --bundle
replay -o csv $dir/a.case
EOF
    ends 1 diagnose --bundle /nothing/here "$ras" && ends 1 graph "$dir/none"
}

for name in agents_decide bundles_are_of_the_set replay_says_whether_it_is_the_same damaged_bundles_are_refused explain_is_prose graphs_are_dot_and_well_formed_svg arguments_are_checked; do
    tap_case "$name" "$name"
done
if [[ -d $data/hang && -d $data/straggler && -d $data/history ]]; then
    tap_case recorded_jobs_replay recorded_jobs_replay
else
    tap_skip recorded_jobs_replay "no recorded jobs at $data"
fi
tap_done
