#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every collective by codecs, over real transports: the tool counts the bytes, compares the bits of all ranks and looks
# at the errors of results, which are within what the codec may lose.
# usage: bench_compress.sh SLUICE_BENCH SOURCE_ROOT
set -uo pipefail
bench=$1 root=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SLUICE_TUNE_DIR=$dir SLUICE_TIMEOUT_MS=30000

# lines CODEC LEAST_RATIO MOST_RATIO LEAST_ERROR MOST_ERROR COUNT: that many lines of the CSV are of it, and none is out of bounds.
lines() {
    sed 's/\("[^",]*\),\([^"]*"\)/\1;\2/' "$dir/csv" | awk -F, -v codec="\"${1/,/;}\"" -v low="$2" -v high="$3" -v least="$4" -v most="$5" -v count="$6" '
        $16 == codec {
            n++
            if (!($18 >= low && $18 <= high && $19 >= least && $19 <= most && $15 == 0)) { print "out of bounds: " $0; bad = 1 }
        }
        END { if (n != count) { print n " lines of " codec ", not " count; bad = 1 }; exit bad }'
}

# codecs RANKS TRANSPORT OPTIONS...
codecs() {
    local ranks=$1 transport=$2
    shift 2
    timeout 100 "$bench" -n "$ranks" -t "$transport" --compress bq8:when=always,bq4:when=always,bf16:when=always -C allreduce,reduce_scatter,all_gather,broadcast,alltoall \
        -b 192k -e 768k -f 4 -i 2 -w 1 --csv "$dir/csv" "$@" >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    # Of two sizes, in two places.
    lines bq8:when=always 0.2538 0.2544 1e-7 6e-5 20 && lines bq4:when=always 0.1337 0.1345 1e-4 3e-2 20 && lines bf16:when=always 0.5 0.5 1e-8 1e-5 20
}

# What a codec is not for is right to the last bit, as without one.
others() {
    timeout 100 "$bench" -n 2 -t shm --compress bq8:when=always -C all -d f64,i32 -b 192k -e 192k -i 2 -w 1 --csv "$dir/csv" >"$dir/out" 2>&1 &&
        timeout 100 "$bench" -n 2 -t shm --compress bq8:when=always -C allreduce -d f32 -o max,prod -b 192k -e 192k -i 2 -w 1 >>"$dir/out" 2>&1 &&
        timeout 100 "$bench" -n 2 -t shm --compress bq8:when=always -b 1k -e 32k -f 32 -i 2 -w 1 >>"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    ! awk -F, 'NR > 1 && ($17 != "" || $15 != "0")' "$dir/csv" | grep .
}

# 16-bit elements are summed in f32.
half() {
    timeout 100 "$bench" -n 3 -t tcp --compress bq8:when=always -C allreduce,reduce_scatter -d bf16,f16 -o sum,avg -b 192k -e 192k -i 2 -w 1 \
        --csv "$dir/csv" >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    lines bq8:when=always 0.507 0.509 1e-7 9e-5 16
}

by_the_environment() {
    SLUICE_COMPRESS=bq8:min=0 timeout 100 "$bench" -n 2 -b 1k -e 1k -i 2 >"$dir/out" 2>&1 && grep -q '^# allreduce by bq8:min=0$' "$dir/out" ||
        { cat "$dir/out"; return 1; }
    SLUICE_COMPRESS=zip timeout 100 "$bench" -n 2 -b 1k -e 1k -i 2 >"$dir/out" 2>&1
    [[ $? -eq 2 ]] && grep -q 'there is no codec "zip"' "$dir/out" || { cat "$dir/out"; return 1; }
}

for transport in shm tcp; do
    tap_case "every_collective_by_codecs_over_${transport}" codecs 3 "$transport"
done
tap_case persistent_operations_by_codecs codecs 2 shm --persistent
tap_case several_in_flight_by_codecs codecs 2 tcp -m 3
tap_case sums_of_16_bit_elements_are_in_f32 half
tap_case what_a_codec_is_not_for_is_exact others
# has PATTERN...: each is in what was said.
has() {
    local pattern
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$dir/out" || { echo "no '$pattern' in:"; cat "$dir/out"; return 1; }
    done
}

explained() {
    "$bench" -n 2 --compress bq8:when=always -b 1M -e 1M --explain >"$dir/out" 2>&1 &&
        has ': oneshot \(compressed\)' '^  oneshot  *[0-9.]+ us, encoded$' 'as when=always asks for; predicted [0-9.]+ times as fast as [a-z]+' || return
    "$bench" -n 2 -t shm --compress bq8 -b 1M -e 1M --explain >"$dir/out" 2>&1 &&
        has ': [a-z]+ \(predicted fastest\)' '^  codec bq8: encode [0-9.]+ ns/B, decode [0-9.]+ ns/B, decode and add [0-9.]+ ns/B, 0\.2539 of the bytes$' \
            '^  oneshot  *[0-9.]+ us, encoded$' '^  sent as it is: all ranks are on one host' 'compressed at no size$' || return
    "$bench" -n 2 --compress shiq:when=always -b 1M -e 1M --explain >"$dir/out" 2>&1 &&
        has ': code_sum \(compressed\)' '^    with an allreduce of 2048 u32, max, by [a-z]+$' '^    with an allreduce of 262144 i8, sum, by [a-z]+$' || return
    "$bench" -n 2 --compress bq8 -b 2k -e 2k --explain >"$dir/out" 2>&1 && has 'not compressed: .* less than the 4096 bytes of min='
}

# Over shared memory the elements' own bytes are faster: they are sent, right to the last bit, and the report says so.
left_raw() {
    timeout 100 "$bench" -n 2 -t shm --compress bq8:measure=on -C allreduce,all_gather -b 1M -e 1M -i 2 -w 1 --csv "$dir/csv" >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    ! awk -F, 'NR > 1 && ($17 != "" || $15 != "0")' "$dir/csv" | grep . || return
    has '^sluice compress: rank 0: 0 calls sent 0 bytes in place of 0 \(0\.0 %\); [1-9][0-9]* calls left as they are, which is faster$'
}

reported() {
    timeout 100 "$bench" -n 2 -t shm --compress bq8:when=always,measure=on -b 1M -e 1M -i 2 -w 1 >"$dir/out" 2>&1 || { cat "$dir/out"; return 1; }
    has '^sluice compress: rank 0: [1-9][0-9]* calls sent [0-9]+ bytes in place of [0-9]+ \(25\.4 %\), error [0-9.]+e-0[56], (saved|lost) about [0-9.]+ ms; 0 calls left' &&
        [[ $(grep -c '^sluice compress' "$dir/out") -eq 1 ]]
}

# Four ranks on two hosts: a host's sum goes between them.
hosts() {
    timeout 100 "$bench" -n 4 --hosts 2 --compress bq8:when=always,bq4:when=always,inside=bq8 -d f32,bf16 -o sum,avg -b 768k -e 768k -i 2 -w 1 --csv "$dir/csv" >"$dir/out" 2>&1 ||
        { cat "$dir/out"; return 1; }
    lines bq8:when=always 0.4 0.7 1e-7 9e-5 8 && lines bq4:when=always,inside=bq8 0.1 0.4 1e-4 3e-2 8
}

# Encodings that add, by an ordinary allreduce: of one host, over TCP, and of two hosts.
sums() {
    local options
    for options in "-n 3 -t shm" "-n 3 -t tcp -m 2" "-n 4 --hosts 2"; do
        # shellcheck disable=SC2086
        timeout 100 "$bench" $options --compress shiq:when=always,sign:vote=on,when=always -o sum,avg -b 256k -e 256k -i 2 -w 1 --csv "$dir/csv" >"$dir/out" 2>&1 ||
            { cat "$dir/out"; return 1; }
        lines shiq:when=always 0.25 0.26 1e-6 1e-3 4 && lines sign:vote=on,when=always 0.06 0.13 1e-3 1.1 4 || return 1
    done
}

tap_case an_allreduce_of_hosts_with_several_ranks hosts
tap_case a_choice_by_cost_is_explained explained
tap_case what_costs_more_than_it_saves_is_sent_as_it_is left_raw
tap_case what_it_came_to_is_said_once_by_rank_0 reported
tap_case an_allreduce_by_encodings_that_add sums
tap_case a_codec_from_the_environment_is_shown by_the_environment
tap_done
