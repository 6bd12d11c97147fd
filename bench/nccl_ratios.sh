#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin beside the transport that it stands on, and beside one blocking TCP stream: 1 MiB messages, 8 in flight on
# each connection, everything in turn, medians. On an idle machine; not a test. Each message in flight has memory of its
# own, and what is beyond the caches is slower whoever moves it: so the stream goes through as much, and through one MiB.
# usage: nccl_ratios.sh [BUILD [ROUNDS]]
set -euo pipefail
build=${1:-build} rounds=${2:-9}
driver=$build/tools/nccl-driver/nccl_driver
plugin=$build/tools/nccl/libnccl-net-sluice.so

# MB/s of one run each.
transport() {
    "$build/bench/bench_p2p" -w 8 "$1" | awk '$1 == "stream" && $2 == 1048576 { print $4 }'
}

# through_plugin TRANSPORT CONNECTIONS IN_FLIGHT
through_plugin() {
    SLUICE_TRANSPORT=$1 "$driver" bench --min 1M --max 1M --conns "$2" --flight "$3" --time-ms 250 --repeats 25 "$plugin" |
        awk '$1 == 1048576 { print $4 }'
}

# one_socket MIB: through so much memory
one_socket() {
    "$driver" socket --min 1M --max 1M --flight "$1" --time-ms 250 --repeats 25 | awk '$1 == 1048576 { print $4 }'
}

median() {
    tr ' ' '\n' <<<"$1" | grep . | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# line NAME MINE OTHERS WANTED: two lists of figures.
line() {
    awk -v name="$1" -v mine="$(median "$2")" -v other="$(median "$3")" -v wanted="$4" \
        'BEGIN { printf "%-44s %10.0f %10.0f %8.2f   %s\n", name, mine, other, mine / other, wanted }'
}

declare -A seen
for ((i = 0; i < rounds; i++)); do
    for t in shm tcp; do
        seen[$t]+=" $(transport "$t")"
        seen[$t-1x8]+=" $(through_plugin "$t" 1 8)"
    done
    for n in 2x4 2x8 4x8; do
        seen[tcp-$n]+=" $(through_plugin tcp "${n%x*}" "${n#*x}")"
    done
    for mib in 1 8 16 32; do
        seen[socket-$mib]+=" $(one_socket "$mib")"
    done
done
printf '%-44s %10s %10s %8s   %s\n' "1 MiB, 8 in flight, MB/s, $rounds rounds" plugin other ratio wanted
line "shm, beside bench_p2p" "${seen[shm-1x8]}" "${seen[shm]}" 0.95
line "tcp, beside bench_p2p" "${seen[tcp-1x8]}" "${seen[tcp]}" 0.95
for n in 1x8 2x4 2x8 4x8; do
    mib=$((${n%x*} * ${n#*x})) wanted=1.5
    [[ $n != 1x8 ]] || wanted=
    line "tcp, $n MiB in flight, stream of $mib MiB" "${seen[tcp-$n]}" "${seen[socket-$mib]}" "$wanted"
    line "tcp, $n MiB in flight, stream of 1 MiB" "${seen[tcp-$n]}" "${seen[socket-1]}" "$wanted"
done
