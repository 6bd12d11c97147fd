#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Four nodes, each a host of its own with two rails of a given rate, of which one has lost a rail: allreduce by the schedule
# that is chosen when nobody knows of it, and by shares of what each node's links deliver. All in one boot and in turn.
# usage, in the guest: vm_weighted.sh [ROUNDS [MBIT [SIZE [BUILD]]]]    5 rounds, 2 Mbit/s a rail, 1M
#   ./dev vm --limit 900 bench/vm_weighted.sh
#
# The rate is what limits, not the emulated processors: `whole` has to come close to its bound. It holds for what a device sends
# (at its interface) and for what it receives (at the bridge's port). Queues of that length take longer than the usual timeout.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-5} mbit=${2:-2} size=${3:-1M} build=$(readlink -f "${4:-build}")
nodes=4
# shellcheck source=tests/vm/tools.sh
. "$here/../tests/vm/tools.sh"

# Node k's rail r: interface wKR under device nKR, on the bridge of rail r.
address() { echo "10.2$2.0.$(($1 + 1))"; }
mac_of() { echo "02:00:00:00:01:$1$2"; }

node_links() {
    local k r j
    for ((k = 0; k < nodes; k++)); do
        for r in 0 1; do
            echo "link add w$k$r address $(mac_of "$k" "$r") mtu 4500 type veth peer name c$k$r mtu 4500"
            echo "link set c$k$r master br$r up"
            echo "link set w$k$r up"
            echo "addr add $(address "$k" "$r")/24 dev w$k$r noprefixroute"
            echo "rule add pref 10 iif w$k$r lookup local"
            echo "rule add pref 100 oif w$k$r lookup 3$k$r"
            echo "rule add pref 200 from $(address "$k" "$r") lookup 3$k$r"
            echo "route replace local $(address "$k" "$r") dev w$k$r table 3$k$r"
            for ((j = 0; j < nodes; j++)); do
                ((j != k)) || continue
                echo "route replace $(address "$j" "$r") dev w$k$r table 3$k$r"
                echo "route replace $(address "$j" "$r") dev w$k$r table 110"
                echo "neigh replace $(address "$j" "$r") dev w$k$r lladdr $(mac_of "$j" "$r") nud permanent"
            done
        done
    done
}

node_up() {
    local k r
    for ((k = 0; k < nodes; k++)); do
        for r in 0 1; do
            read -r state <"/sys/class/infiniband/n$k$r/ports/1/state" && [[ $state == *ACTIVE ]] || return
        done
    done
}

set_up() {
    local k r
    node_links | ip -batch - || return
    for ((k = 0; k < nodes; k++)); do
        for r in 0 1; do
            echo "link add n$k$r type rxe netdev w$k$r"
        done
    done | rdma --batch - || return
    for ((k = 0; k < nodes; k++)); do
        for r in 0 1; do
            printf 'qdisc replace dev %s root netem limit 10000 rate %dmbit\n' "w$k$r" "$mbit" "c$k$r" "$mbit"
        done
    done | tc -batch - || return
    until_true 20 node_up
}

# run CASE: time of one allreduce in ms, of both placements that sluice-bench has, the lesser: a line to the file CASE.
# shellcheck disable=SC2016
run() {
    local case=$1 line
    line=$(case=$case SLUICE_TRANSPORT=verbs SLUICE_INTERFACE=m0 SLUICE_VERBS_TIMEOUT=19 ranks "$nodes" bash -c '
        export SLUICE_HOST_ID=node-$SLUICE_RANK SLUICE_VERBS_DEVICES=n${SLUICE_RANK}0,n${SLUICE_RANK}1
        if [[ $SLUICE_RANK -eq 3 && $case != whole ]]; then
            export SLUICE_VERBS_DEVICES=n30
            [[ $case != weighted ]] || export SLUICE_LINK_WEIGHT=500
        fi
        exec "$@"' - "$build/tools/bench/sluice-bench" -b "$size" -e "$size" -w 0 -i 1 -c 0 --csv -) || { echo "$line"; return 1; }
    grep '^allreduce,' <<<"$line" | cut -d, -f10 | sort -g | head -n 1 | awk '{ printf "%.0f\n", $1 / 1000 }' >>"$dir/$case"
    echo "$case: $(tail -n 1 "$dir/$case") ms"
}

dir=$(mktemp -d)
ranks_limit=300
set_up || { echo "the nodes' devices cannot be set up" >&2; exit 1; }
for ((round = 0; round < rounds; round++)); do
    for case in whole unweighted weighted; do
        run "$case" || exit 1
    done
done
bytes=$(numfmt --from=iec "$size")
echo "allreduce of $size, $nodes nodes, two rails of $mbit Mbit/s each; one node has one in the last two; medians (lowest-highest) in ms"
bits=$((bytes * 8 / 1000))
echo "bounds of the rate: whole $((bits * (nodes - 1) / nodes / mbit)), unweighted (a ring) $((bits * 2 * (nodes - 1) / nodes / mbit)), weighted $((bits / mbit))"
for case in whole unweighted weighted; do
    sort -g "$dir/$case" | awk -v name="$case" '{ at[NR] = $1 } END {
        printf "%s: %.0f (%.0f-%.0f)\n", name, NR % 2 ? at[(NR + 1) / 2] : (at[NR / 2] + at[NR / 2 + 1]) / 2, at[1], at[NR] }'
done
