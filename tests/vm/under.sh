# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Keeps checked collectives running (soak.c) while a test breaks the rails; to be sourced, with $build set.
#
#   begin N [SOAK_ARGUMENT...]  starts N ranks, of both sides in turn; returns when all have told of three rounds
#   go_on K [SECONDS]           all ranks do K more rounds, and tell of them
#   finish                      they all end well, after the same number of rounds
#   broken CODE PATTERN [RANK]  all ranks (but RANK) end by themselves, with that error; its sentence matches PATTERN
#   unreachable                 all ranks end as there is no path; the first tells of it with -EHOSTUNREACH, and some may
#                               see it go before their own wait is over, which is -ECONNRESET
#   all_say PATTERN [COUNT]     each rank's log has (COUNT times) a line like that; waits for it
#   over                        ends what still runs, and shows what the ranks said; to be called when a case failed
#   guarded COMMAND...          a case: over, should it fail; once more where that was the guest's kernel
#
# Settings besides SLUICE_*: under_with, a command in front of each rank's; under_limit, seconds that ranks get (280).

# shellcheck source=tests/vm/faults.sh
. "$(dirname "${BASH_SOURCE[0]}")/faults.sh"
# shellcheck source=tests/vm/tools.sh
. "$(dirname "${BASH_SOURCE[0]}")/tools.sh"
: "${build:=build}"

# Figures go past tap_case, which shows what a case says only when it fails.
exec 3>&1

under_with=()
under_fds=()
patience=60 # seconds for whatever a case waits for

# at_least COUNT PATTERN: all ranks' logs have so many lines like that.
at_least() {
    local count
    while read -r count; do
        ((count >= $1)) || return
    done < <(grep -hcE -- "$2" "${under_logs[@]}")
}

# Waits for it as long as the ranks run.
await() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        kill -0 "$under_pid" 2>/dev/null || { "$@" && return; echo "the ranks have ended before: $*"; return 1; }
        ((SECONDS < deadline)) || { echo "not within its time: $*"; return 1; }
        pause 0.05
    done
}

# Rounds that each rank has told of, by reading on in its log: without a process, as that takes long in the guest.
listen() {
    local rank line
    for ((rank = 0; rank < under_size; rank++)); do
        while IFS= read -r -u "${under_fds[rank]}" line; do
            [[ ${under_part[rank]}$line != round* ]] || under_rounds[rank]=$((under_rounds[rank] + 1))
            under_part[rank]=
        done
        under_part[rank]+=$line
    done
}

# least: of them, into a variable.
least() {
    local count
    listen
    least_rounds=${under_rounds[0]}
    for count in "${under_rounds[@]}"; do
        ((count >= least_rounds)) || least_rounds=$count
    done
}

has_rounds() { least && ((least_rounds >= $1)); }

begin() {
    local rank fd
    for fd in "${under_fds[@]}"; do
        exec {fd}<&-
    done
    under_size=$1
    under_fds=() under_part=() under_rounds=()
    ranks_dir=$(mktemp -d)
    ranks_limit=${under_limit:-280}
    under_logs=()
    for ((rank = 0; rank < under_size; rank++)); do
        under_logs+=("$ranks_dir/$rank.out")
        : >"$ranks_dir/$rank.out"
        exec {fd}<"$ranks_dir/$rank.out"
        under_fds[rank]=$fd under_part[rank]='' under_rounds[rank]=0
    done
    ranks "$under_size" "${under_with[@]}" "$build/tests/vm/soak" "$ranks_dir/stop" "${@:2}" >"$ranks_dir/end" 2>&1 &
    under_pid=$!
    await "$patience" has_rounds 3
}

# rounds: how many the slowest rank has told of.
rounds() {
    grep -hc '^round' "${under_logs[@]}" | sort -n | head -n 1
}

go_on() {
    least
    await "${2:-$patience}" has_rounds $((least_rounds + $1))
}

all_say() {
    await "$patience" at_least "${2:-1}" "$1"
}

finish() {
    local file said last=''
    touch "$ranks_dir/stop"
    await "$patience" at_least 1 '^done:' && wait "$under_pid" || return
    # A path may come up after that line.
    for file in "${under_logs[@]}"; do
        said=$(grep '^done:' "$file")
        [[ -z $last || $last == "$said" ]] || { echo "the ranks disagree"; return 1; }
        last=$said
    done
}

has_ended() { ! kill -0 "$under_pid" 2>/dev/null; }

broken() {
    local rank
    until_true "$patience" has_ended || return
    for ((rank = 0; rank < under_size; rank++)); do
        [[ $rank == "${3:-}" ]] || grep -E "^failed: $1 after [0-9]+ ms: .*$2" "${under_logs[rank]}" ||
            { echo "rank $rank does not end with $1, /$2/"; return 1; }
    done
}

unreachable() {
    broken '-(113|104)' 'rank [0-9]+ ' &&
        grep -hE '^failed: -113 after [0-9]+ ms: .*no path to rank [0-9]+ for [0-9]+ ms: .*rxe[0-3]:1: ' "${under_logs[@]}"
}

over() {
    local file pid
    for file in "$ranks_dir"/*.pid; do
        read -r pid <"$file" && ! has_ended && kill -KILL "$pid" 2>/dev/null
    done
    wait "$under_pid" 2>/dev/null
    for file in "${under_logs[@]}"; do
        echo "== ${file##*/}, $(grep -c '^round' "$file") rounds"
        grep -vE '^round|publishes' "$file" | tail -n "${under_lines:-60}"
    done
}

# How often soft-RoCE waited 50 s for a queue pair's last user in vain, with the rank that destroys it in that call
# (rxe_pool.c of Linux 6.1 warns of it). No rank can do anything meanwhile, and its peers give it up.
kernel_stalls() { dmesg | grep -c 'rxe_pool\.c.*__rxe_cleanup' || true; }

guarded() {
    local stalls
    stalls=$(kernel_stalls)
    "$@" && return
    over
    (($(kernel_stalls) > stalls)) || return 1
    echo "# once more, as soft-RoCE's kernel stood still for 50 s in: $*" >&3
    clear_faults && "$@" && return
    over
    return 1
}
