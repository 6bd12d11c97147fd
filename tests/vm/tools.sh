# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Runs ranks of ours, and others' RDMA programs, between the sides of the guest; to be sourced by its tests.
# All meet over TCP on 127.0.0.1, so only what they measure or check crosses the rails.
#
#   ranks N COMMAND [ARGUMENT...]     as N ranks, even ones on side a, odd ones on side b, each side a host of its
#                                     own: prints what rank 0 does, and everything if one fails or is not done
#                                     after ranks_limit seconds (120). Output and pid of rank R are the files
#                                     R.out and R.pid in the folder $ranks_dir, new for each call unless set.
#   pingpong I J [ARGUMENT...]        ibv_rc_pingpong, rxe$J serving; 60 s at most
#   perftest TOOL I J [ARGUMENT...]   a tool of perftest (ib_send_lat, ib_write_bw, ...): its line of figures
#   counter I NAME                    a hardware counter of rxe$I, e.g. rcvd_pkts

# shellcheck source=tests/vm/network.sh
. "$(dirname "${BASH_SOURCE[0]}")/network.sh"

tools_port=18600
ranks_limit=120
ranks_dir=

# listening PORT: whether a program waits there; from /proc, without a process.
listening() {
    local port local_address state rest file
    printf -v port '%04X' "$1"
    for file in /proc/net/tcp /proc/net/tcp6; do
        while read -r _ local_address _ state rest; do
            [[ $local_address == *:$port && $state == 0A ]] && return
        done <"$file"
    done
    return 1
}

# served LOG COMMAND SERVER_ARGUMENTS -- CLIENT_ARGUMENTS: both with a port of their own.
served() {
    local log=$1 command=$2 server=() pid status port
    shift 2
    while [[ $1 != -- ]]; do
        server+=("$1")
        shift
    done
    shift
    port=$((tools_port += 1))
    timeout -k 1 60 "$command" "${server[@]}" -p "$port" >"$log" 2>&1 &
    pid=$!
    if ! until_true 20 listening "$port"; then
        kill "$pid"
        cat "$log"
        return 1
    fi
    timeout -k 1 60 "$command" "$@" -p "$port" 127.0.0.1
    status=$?
    # The serving end of a failed run may wait for ever.
    [[ $status -eq 0 ]] || kill "$pid" 2>/dev/null
    wait "$pid" || { cat "$log"; [[ $status -ne 0 ]] || status=1; }
    return "$status"
}

pingpong() {
    local i=$1 j=$2 log
    shift 2
    log=$(mktemp)
    served "$log" ibv_rc_pingpong -d "rxe$j" -g "$(gid_index "$j")" "$@" -- \
        -d "rxe$i" -g "$(gid_index "$i")" "$@"
}

perftest() {
    local tool=$1 i=$2 j=$3 log
    shift 3
    log=$(mktemp)
    served "$log" "$tool" -F -d "rxe$j" -x "$(gid_index "$j")" "$@" -- \
        -F -d "rxe$i" -x "$(gid_index "$i")" "$@" | awk '$1 == "#bytes" { on = 1; next } on && $1 ~ /^[0-9]+$/'
    return "${PIPESTATUS[0]}"
}

counter() {
    local value
    read -r value <"/sys/class/infiniband/rxe$1/ports/1/hw_counters/$2" && echo "$value"
}

# devices_of SIDE: its rails in their order; with rails_crossed set side a has them the other way round.
devices_of() {
    if [[ -n ${rails_crossed:-} && $1 -eq 0 ]]; then
        echo rxe2,rxe0
    else
        echo "rxe$1,rxe$(($1 + 2))"
    fi
}

# A test may break a rail, or kill a rank by its pid, while `ranks ... &` runs. Returns 1 if a rank failed.
ranks() {
    local size=$1 dir=${ranks_dir:-$(mktemp -d)} port rank side pids=() statuses=() bad=0
    shift
    port=$((tools_port += 1))
    for ((rank = 0; rank < size; rank++)); do
        side=$((rank % 2))
        SLUICE_RANK=$rank SLUICE_SIZE=$size SLUICE_ROOT=127.0.0.1:$port SLUICE_JOB=ranks-$port \
            SLUICE_SECRET=only-for-this-test SLUICE_HOST_ID=${SLUICE_HOST_ID:-side-$side} \
            SLUICE_VERBS_DEVICES="$(devices_of "$side")" SLUICE_VERBS_LAZY="${SLUICE_VERBS_LAZY:-off}" \
            timeout -s KILL "$ranks_limit" bash -c 'echo $$ >"$0" && exec "$@"' "$dir/$rank.pid" "$@" \
            >"$dir/$rank.out" 2>&1 </dev/null &
        pids[rank]=$!
    done
    for ((rank = 0; rank < size; rank++)); do
        wait "${pids[rank]}"
        statuses[rank]=$?
        [[ ${statuses[rank]} -eq 0 ]] || bad=1
    done
    for ((rank = 0; rank < (bad ? size : 1); rank++)); do
        [[ $bad -eq 0 ]] || echo "rank $rank ended with ${statuses[rank]}:"
        cat "$dir/$rank.out"
    done
    return "$bad"
}
