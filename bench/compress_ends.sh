#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What compression makes of slow links, from end to end: an allreduce between hosts, which are network namespaces on one
# bridge, each behind a port of limited rate (tbf). On an idle machine; not a test. Needs root, ip and tc.
#   ends    time over what a rank's bytes take at the rate of its port, for codecs and as it is, on 2 and 4 hosts
#   sweep   from which size on the engine compresses at 1 Gbit/s, and whether it is right: both ways, beside its choice
#   local   shared memory and loopback, where it should leave calls as they are: time with the choice over time without
# usage: compress_ends.sh [--build DIR] [--rates "MBIT ..."] [--hosts "N ..."] [--bytes SIZE] [--iters N] [--codecs "C ..."] [ends|sweep|local]...
set -uo pipefail
build=build rates="100 1000 10000" counts="2 4" bytes=64M iters=5 codecs="bq8 bq4 sign"
while [[ ${1:-} == --* ]]; do
    case $1 in
    --build) build=$2 ;;
    --rates) rates=$2 ;;
    --hosts) counts=$2 ;;
    --bytes) bytes=$2 ;;
    --iters) iters=$2 ;;
    --codecs) codecs=$2 ;;
    *) sed -n 's/^# usage/usage/p' "$0" && exit 2 ;;
    esac
    shift 2
done
[[ $# -gt 0 ]] || set -- ends sweep local
bench=$(readlink -f "$build/tools/bench/sluice-bench")
[[ -x $bench ]] || { echo "there is no sluice-bench in $build"; exit 2; }
dir=$(mktemp -d)
holders=()

clean_up() {
    [[ ${#holders[@]} -eq 0 ]] || kill "${holders[@]}" 2>/dev/null
    rm -rf "$dir"
}
trap clean_up EXIT

for name in "${!SLUICE_@}"; do
    unset "$name"
done
export SLUICE_JOB=ends SLUICE_SECRET=only-for-this-run SLUICE_TUNE_DIR=$dir/tune SLUICE_TIMEOUT_MS=300000

# ---- hosts and their ports ----

# A namespace is that of a process that reads from a pipe: see tests/net/net_two_hosts.sh.
mkfifo "$dir/life"
exec {life}<>"$dir/life"
namespace() {
    unshare --net cat "$dir/life" {life}<&- >/dev/null &
    holder=$!
    holders+=("$holder")
    disown "$holder"
    for ((i = 0; i < 200; i++)); do
        other_network "$holder" && return
        read -rt 0.05 -u "$life"
    done
    echo "no network namespace can be made here"
    exit 1
}
# Not before it has left this one: what is made there must never be made here.
other_network() {
    local its
    its=$(readlink "/proc/$1/ns/net") && [[ -n $its && $its != "$(readlink /proc/self/ns/net)" ]]
}
inside() { nsenter --target "$1" --net -- "${@:2}"; }

hosts=()
# make_hosts N: their ports on the bridge of a switch.
make_hosts() {
    local n
    namespace
    switch=$holder
    { inside "$switch" ip link add bridge0 type bridge && inside "$switch" ip link set bridge0 up; } || exit 1
    for ((n = 0; n < $1; n++)); do
        namespace
        hosts[n]=$holder
        { inside "$switch" ip link add "port$n" type veth peer name eth0 netns "$holder" &&
            inside "$switch" ip link set "port$n" master bridge0 && inside "$switch" ip link set "port$n" up &&
            inside "$holder" ip addr add "10.79.0.$((n + 1))/24" dev eth0 && inside "$holder" ip link set lo up &&
            inside "$holder" ip link set eth0 up; } || exit 1
    done
}

# limit MBIT HOSTS: of a port, out of the host; between more than two also into it, where several may send to one. The
# bucket is 1 ms of the rate, and 64 KiB at least, which is what the kernel hands over at once; a port holds 4 MiB.
limit() {
    local n bucket=$(($1 * 125))
    ((bucket >= 65536)) || bucket=65536
    for ((n = 0; n < ${#hosts[@]}; n++)); do
        inside "${hosts[n]}" tc qdisc replace dev eth0 root tbf rate "$1mbit" burst "$bucket" limit 4mb || exit 1
        inside "$switch" tc qdisc del dev "port$n" root 2>/dev/null
        (($2 <= 2)) || inside "$switch" tc qdisc replace dev "port$n" root tbf rate "$1mbit" burst "$bucket" limit 4mb || exit 1
    done
}

port=7800
# between HOSTS OPTIONS...: a rank on each; rank 0's lines as values separated by commas to $dir/csv.
between() {
    local n ranks=$1 pids=() status=0
    shift
    ((port++))
    rm -f "$dir/csv"
    for ((n = ranks - 1; n >= 0; n--)); do
        SLUICE_RANK=$n SLUICE_SIZE=$ranks SLUICE_ROOT=10.79.0.1:$port inside "${hosts[n]}" "$bench" "$@" --csv "$dir/csv" >"$dir/out$n" 2>&1 &
        pids+=($!)
    done
    for n in "${pids[@]}"; do
        wait "$n" || status=1
    done
    [[ $status -eq 0 ]] || tail -n 3 "$dir"/out?
    return $status
}

# ---- what is measured ----

# Column 11 is the median of single calls, 16 the codec, 17 the bytes that a rank has sent.
ends() {
    local n rate list=raw codec
    for codec in $codecs; do
        list+=,$codec:when=always
    done
    printf '\n%-6s %8s %-18s %12s %12s %8s %10s\n' hosts Mbit/s codec "bytes sent" "ms" "of rate" "of raw"
    for n in $counts; do
        for rate in $rates; do
            limit "$rate" "$n"
            between "$n" -C allreduce -b "$bytes" -e "$bytes" -w 1 -i "$iters" -c 1 --compress "$list" || continue
            awk -F, -v n="$n" -v mbit="$rate" 'NR > 1 && $8 == "out" {
                gsub(/"/, "", $16); sub(/:.*/, "", $16)
                sent = $16 == "raw" ? 2 * (n - 1) / n * $3 : $17
                raw = $16 == "raw" ? $11 : raw
                printf "%-6d %8d %-18s %12.0f %12.2f %8.3f %9.2fx\n", n, mbit, $16, sent, $11 / 1e3, $11 / (sent * 8 / mbit), raw / $11
            }' "$dir/csv"
        done
    done
}

# The choice's call is compressed where its error is not 0; its time should be that of the better one.
sweep() {
    local n
    printf '\n%-6s %10s %12s %12s %12s   %s\n' hosts bytes "raw us" "always us" "choice us" "by choice"
    for n in $counts; do
        limit 1000 "$n"
        between "$n" -C allreduce -b 4k -e 4M -w 3 -i 21 -c 1 --compress raw,bq8:when=always,min=1,bq8 || continue
        sed 's/"\([^",]*\),\([^"]*\)"/"\1;\2"/' "$dir/csv" | awk -F, -v n="$n" 'NR > 1 && $8 == "out" {
            gsub(/"/, "", $16); us[$16, $3] = $11; if ($16 == "bq8") { by[$3] = $17 != "" ? "compressed" : "as it is" }
            if (!($3 in seen)) { seen[$3] = 1; order[++count] = $3 }
        } END { for (i = 1; i <= count; i++) { b = order[i]
            printf "%-6d %10d %12.1f %12.1f %12.1f   %s\n", n, b, us["raw", b], us["bq8:when=always;min=1", b], us["bq8", b], by[b] } }'
        between "$n" --explain -b 1M -e 1M --compress bq8 >/dev/null
        grep -h 'calls like this one' "$dir/out0"
    done
}

# One run after the other, in turn: only the ratio of what was beside each other counts.
local_runs() {
    local transport size round
    printf '\n%-10s %10s %12s %12s %8s\n' over bytes "raw us" "choice us" ratio
    for transport in shm tcp; do
        for size in 64k 1M 16M; do
            rm -f "$dir/raw" "$dir/choice"
            for ((round = 0; round < 5; round++)); do
                "$bench" -n 2 -t "$transport" -b "$size" -e "$size" -c 0 --csv "$dir/csv" >"$dir/out" 2>&1 &&
                    awk -F, 'NR > 1 && $8 == "out" { print $11 }' "$dir/csv" >>"$dir/raw"
                "$bench" -n 2 -t "$transport" -b "$size" -e "$size" -c 0 --compress bq8 --csv "$dir/csv" >"$dir/out" 2>&1 &&
                    awk -F, 'NR > 1 && $8 == "out" { print $11 }' "$dir/csv" >>"$dir/choice"
            done
            paste "$dir/raw" "$dir/choice" | awk -v over="$transport" -v bytes="$size" '
                { raw[NR] = $1; choice[NR] = $2; ratio[NR] = $2 / $1 }
                function middle(v, i, j, t) { for (i = 1; i <= NR; i++) for (j = i + 1; j <= NR; j++) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t }
                    return v[int((NR + 1) / 2)] }
                END { printf "%-10s %10s %12.1f %12.1f %8.3f\n", over, bytes, middle(raw), middle(choice), middle(ratio) }'
        done
    done
}

most=0
for n in $counts; do
    ((n <= most)) || most=$n
done
for what in "$@"; do
    case $what in
    ends | sweep)
        [[ ${#hosts[@]} -gt 0 ]] || make_hosts "$most"
        "$what"
        ;;
    local) local_runs ;;
    *) echo "there is no $what"; exit 2 ;;
    esac
done
