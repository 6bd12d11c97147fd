#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluicectl matrix, and diagnose over the same edges.
# usage: ctl_matrix.sh SLUICECTL
# meson says in MESON_EXE_WRAPPER what runs a program for another processor.
set -uo pipefail
ctl=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
read -ra wrapper <<<"${MESON_EXE_WRAPPER:-}"

# ring RANKS SLOW_SENDER [STEP...]: each rank sends to those that are STEP (1) after it
ring() {
    awk -v ranks="$1" -v slow="$2" -v steps="${*:3}" 'BEGIN {
        print "src,dst,path,messages,bytes,lost,wire_s,src_host,dst_host"
        count = split(steps == "" ? "1" : steps, step, " ")
        for (r = 0; r < ranks; r++) for (i = 1; i <= count; i++) {
            to = (r + step[i]) % ranks
            printf "%d,%d,mlx5_0,2000,2097152000,%d,%.6f,h%d,h%d\n", r, to, r == slow, 0.05 * (r == slow ? 2 : 1) * (1 + (r * 7 + to) % 5 / 500), r, to
        }
    }'
}

# run STATUS ARGUMENT...: what it prints is in $dir/out and $dir/err
run() {
    local status=$1 got=0
    shift
    "${wrapper[@]}" "$ctl" "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    [[ $got == "$status" ]] || { echo "$* ended with $got, not $status"; cat "$dir/out" "$dir/err"; return 1; }
}

a_ring_gives_a_set_and_probes() {
    ring 8 3 >"$dir/ring.csv"
    run 3 diagnose "$dir/ring.csv" && grep -q '^slow_link: the link from rank 3 to rank 4' "$dir/out" && grep -qx '  or rank 3 (host h3), rank 4 (host h4)' "$dir/out" &&
        grep -q 'to tell them apart, probe rank 3 to rank 0, rank 0 to rank 4' "$dir/out" && grep -q 'sent again' "$dir/out"
}

probes_decide() {
    { ring 8 3; printf '3,0,mlx5_0,2000,2097152000,0,0.1,h3,h0\n0,4,mlx5_0,2000,2097152000,0,0.0502,h0,h4\n'; } >"$dir/more.csv"
    run 3 diagnose "$dir/more.csv" && grep -q '^slow_sender: rank 3 (host h3)' "$dir/out" && ! grep -q '^  or' "$dir/out"
}

healthy_edges_are_silent() {
    ring 16 99 1 2 15 >"$dir/healthy.csv"
    run 0 diagnose "$dir/healthy.csv"
}

text_has_a_row_a_rank() {
    run 0 matrix "$dir/ring.csv" && grep -q '^rows send' "$dir/out" && grep -qE '^ +3     [oO] *$' "$dir/out" && [[ $(grep -cE '^ +[0-9]+ ' "$dir/out") == 8 ]]
}

json_has_all_cells() {
    run 0 matrix -o json --path mlx5_0 "$dir/ring.csv" && python3 -c '
import json, sys
answer = json.load(sys.stdin)
assert answer["version"] == 1 and answer["ranks"] == 8 and len(answer["cells"]) == 8, answer
for cell in answer["cells"]:
    assert cell["bytes"] == 2097152000 and cell["path"] == "mlx5_0" and (cell["ratio"] > 1.9) == (cell["from"] == 3), cell' <"$dir/out" &&
        run 0 matrix -o json --path other "$dir/ring.csv" && grep -q '"cells":\[\]' "$dir/out"
}

svg_is_well_formed() {
    ring 300 3 1 2 3 >"$dir/large.csv"
    run 0 matrix -o svg "$dir/large.csv" && python3 -c '
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.stdin).getroot()
assert root.tag.endswith("svg") and sum(1 for it in root.iter() if it.tag.endswith("rect")) > 20' <"$dir/out" && grep -q 'rank 2 to rank 4: [12]' "$dir/out"
}

what_cannot_be_done_is_refused() {
    printf 'src,dst,bytes,wire_s\n0,1,5,x\n' >"$dir/bad.csv"
    printf 'src,dst,bytes,wire_s\n0,1,0,0\n' >"$dir/empty.csv"
    run 2 matrix && grep -q '^usage: sluicectl matrix' "$dir/err" && run 2 matrix -o csv x && run 2 matrix --what x &&
        run 1 matrix "$dir/bad.csv" && grep -q 'line 2: "x" is no time for wire_s' "$dir/err" && run 1 matrix "$dir/empty.csv" && grep -q 'none of the files tells' "$dir/err"
}

for name in a_ring_gives_a_set_and_probes probes_decide healthy_edges_are_silent text_has_a_row_a_rank json_has_all_cells svg_is_well_formed what_cannot_be_done_is_refused; do
    tap_case "$name" "$name"
done
tap_done
