#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Repeats the faults of guest/50_faults.sh, in an order, on rails, for times and at sizes that a seed chooses, while
# checked collectives run over them: each repetition has every kind of fault once, and ends well, by the death of a
# rank, or without a rail for good. Prints a line per seed, and what the ranks said where one failed.
# usage, in the guest: soak.sh SEED COUNT [BUILD]    seeds SEED to SEED + COUNT - 1
#   ./dev vm --limit 3600 tests/vm/soak.sh 1 100
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
first=${1:-1} count=${2:-10} build=${3:-build}
# shellcheck source=tests/vm/under.sh
. "$here/under.sh"

export SLUICE_LOG=info
# So that a machine with much else to do fails nothing that only takes long.
patience=240 under_limit=1500
kinds=(loss_1 loss_20 reorder duplicate corrupt delay carrier one_end both gid acks opcode flaps)

# One process of each for all of it: starting one takes longer than some faults last.
exec {ip_fd}> >(exec ip -batch -) {tc_fd}> >(exec tc -batch -)
do_ip() { printf '%s\n' "$@" >&"$ip_fd"; }
do_tc() { printf '%s\n' "$@" >&"$tc_fd"; }

# lap NAME: the time since the last lap goes to NAME, in ms.
declare -A laps=()
lap() {
    local now=${EPOCHREALTIME/./}
    laps[$1]=$((${laps[$1]:-0} + (now - lap_began) / 1000))
    lap_began=$now
}

# chance N: 0 to N - 1, by the seed. In its own shell RANDOM would begin anew each time, so into a variable.
chance() { chosen=$((RANDOM % $1)); }

# for_ms LEAST MOST: how long a fault lasts; as often in each octave, so that both short ones, which nothing may
# have noticed yet, and those that end a path come in their turn.
for_ms() {
    local ms octaves=0 least=$1 most=$2
    while ((most >> (octaves + 1) >= least)); do
        octaves=$((octaves + 1))
    done
    chance $((octaves + 1))
    most=$((most >> chosen))
    ((most / 2 <= least)) || least=$((most / 2))
    chance $((most - least + 1))
    ms=$((least + chosen))
    story+=" ${ms}ms"
    pause "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
}

flap() {
    local i turns
    i=$(rail_first "$1")
    chance 6
    for ((turns = chosen + 2; turns > 0; turns--)); do
        do_ip "link set b$i down"
        for_ms 20 500
        do_ip "link set b$i up"
        for_ms 20 500
    done
}

# strike KIND RAIL: the fault comes, lasts and goes.
strike() {
    local opcodes=(0x00 0x01 0x02 0x04 0x06 0x07 0x09 0x0b)
    case $1 in
    loss_1) rail_loss "$2" 1% && for_ms 200 2000 ;;
    loss_20) rail_loss "$2" 20% && for_ms 200 2000 ;;
    reorder) rail_netem "$2" delay 1ms reorder 95% && for_ms 200 2000 ;;
    duplicate) rail_netem "$2" duplicate 30% && for_ms 200 2000 ;;
    corrupt) rail_netem "$2" corrupt 3% && for_ms 200 2000 ;;
    delay) rail_delay "$2" 50ms && for_ms 200 2000 ;;
    carrier) rail_down "$2" && for_ms 20 2500 ;;
    one_end)
        chance 2
        if ((chosen == 0)); then rail_down "$2" a; else rail_down "$2" b; fi && for_ms 20 2500
        ;;
    both) rail_down A && for_ms 1 700 && rail_down B && for_ms 20 2500 && rail_up "$2" && for_ms 1 500 ;;
    gid)
        chance 4
        gid_remove "rxe$chosen" && local gone=$chosen && for_ms 20 2500 && gid_add "rxe$gone"
        ;;
    acks) drop_opcode "$2" 0x11 && for_ms 50 2500 ;;
    opcode)
        chance ${#opcodes[@]}
        story+=" ${opcodes[chosen]}" && drop_opcode "$2" "${opcodes[chosen]}" && for_ms 50 2500
        ;;
    flaps) flap "$2" ;;
    esac
}

# mend KIND RAIL: only what that fault has left, as starting a process takes long in the guest.
mend() {
    case $1 in
    loss_* | reorder | duplicate | corrupt | delay)
        rail_clean "$2"
        ;;
    carrier | one_end | flaps) rail_up "$2" ;;
    both) rail_up A && rail_up B ;;
    acks | opcode) nft delete table bridge faults ;;
    gid) ;;
    esac
}

all_kinds() {
    local order=("${kinds[@]}") kind rail i began=$SECONDS
    for ((i = ${#order[@]} - 1; i > 0; i--)); do
        chance $((i + 1))
        kind=${order[i]} order[i]=${order[chosen]} order[chosen]=$kind
    done
    for kind in "${order[@]}"; do
        chance 2
        rail=A
        ((chosen == 0)) || rail=B
        story+=", $kind $rail"
        strike "$kind" "$rail" || { echo "$kind could not be brought about"; return 1; }
        lap faults
        # Some come while those before still last; never without a rail that carries, if badly.
        chance 3
        [[ $chosen -eq 0 && $kind =~ ^(loss|reorder|duplicate|corrupt|delay) ]] || { mend "$kind" "$rail" && lap mending && go_on 2; } ||
            return
        lap rounds
        story+=" [$((SECONDS - began)) s]"
    done
    clear_faults && lap mending && go_on 5 && lap rounds
}

ends() {
    local pid
    case $1 in
    well) finish ;;
    death) read -r pid <"$ranks_dir/1.pid" && kill -KILL "$pid" && broken -104 'rank 1' 1 ;;
    no_rail) rail_down A && for_ms 1 700 && rail_down B && unreachable ;;
    esac
}

repetition() {
    local size bytes reg end settings
    RANDOM=$1
    chance 4 && size=$((chosen == 0 ? 4 : 2))
    chance 8 && bytes=$((1024 << chosen))
    chance 3 && reg=$chosen
    chance 3 && end=$(printf '%s\n' well death no_rail | sed -n "$((chosen + 1))p")
    chance 3 && settings=("SLUICE_VERBS_PATHS_PER_RAIL=$chosen")
    SLUICE_TRANSPORT=verbs SLUICE_INTERFACE=m0 SLUICE_VERBS_FALLBACK=off SLUICE_VERBS_PATH_WAIT_MS=150000
    ((size == 2)) || SLUICE_TRANSPORT=shm,verbs
    [[ $end != no_rail ]] || SLUICE_VERBS_PATH_WAIT_MS=10000
    chance 3
    ((chosen != 0)) || [[ $end == no_rail ]] || SLUICE_VERBS_FALLBACK=tcp
    under_with=()
    chance 4
    # shellcheck disable=SC2016
    ((chosen != 0)) || under_with=(bash -c 'SLUICE_INTERFACE=v$((SLUICE_RANK % 2)) exec "$0" "$@"')
    export SLUICE_TRANSPORT SLUICE_INTERFACE SLUICE_VERBS_FALLBACK SLUICE_VERBS_PATH_WAIT_MS "${settings[@]}"
    story="$size ranks, $bytes bytes, registered $reg, ${settings[0]#*VERBS_}, fallback $SLUICE_VERBS_FALLBACK"
    story+=", sideband ${under_with[0]:+on rail A}, ends $end:"
    lap_began=${EPOCHREALTIME/./}
    laps=()
    begin "$size" "$1" "$bytes" "$reg" && lap start && all_kinds && ends "$end" && lap end
}

# What took the time, and why paths went: each end tells of its own, so mostly twice.
report() {
    local name
    for name in start faults mending rounds end; do
        printf '  %s %d ms' "$name" "${laps[$name]}"
    done
    echo "  slow rounds $(cat "${under_logs[@]}" | grep -c '^slow')"
    cat "${under_logs[@]}" | sed -nE 's/.* is down: (ended by the peer: )?(.*); [0-9]+ of [0-9]+ left$/\2/p' |
        sed -E 's/message [0-9]+ when [0-9]+/message N when N/' | sort | uniq -c | sort -rn
}

failed=0
for ((seed = first; seed < first + count; seed++)); do
    started=$SECONDS
    if repetition "$seed" >/tmp/soak.log 2>&1; then
        echo "ok seed $seed, $((SECONDS - started)) s, $(rounds) rounds: $story"
        report
        rm -rf "$ranks_dir"
    else
        failed=$((failed + 1))
        echo "not ok seed $seed, $((SECONDS - started)) s: $story"
        cat /tmp/soak.log
        over
    fi
    clear_faults || exit 1
done
echo "$((count - failed)) of $count repetitions went as they should"
[[ $failed -eq 0 ]]
