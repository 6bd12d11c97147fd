#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Allreduce of two ranks over soft-RoCE, ours beside Open MPI over UCX: the same loop (bench/compare/loop.h), the same
# two devices, in turn, ROUNDS times. A figure is the median over the rounds of the slowest rank's median.
# usage, in the guest: vm_openmpi.sh [ROUNDS [BYTES [BUILD]]]    5 rounds of 16 MiB
#   ./dev vm bench/vm_openmpi.sh
#
# UCX by itself takes the GID of the IPv4 address, whose UD packets (by which it connects RC) it then throws away on
# soft-RoCE; with the link-local one it connects. Each rank is told its device, as both sides are this machine.
# It runs as it chooses to, and in the way of sending long messages that came out best of those it has (am; put and
# get, its choice, are others): docs/perf/rdma.md says why.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
rounds=${1:-5} bytes=${2:-16777216} build=$(readlink -f "${3:-build}")
budget_ms=1 # so the loop's least: 5 samples after 10 others
# shellcheck source=tests/vm/tools.sh
. "$here/../tests/vm/tools.sh"
cd "$(mktemp -d)" || exit 1

compile() {
    local from=$here/compare
    mpicc.openmpi -O2 "$from/peer_mpi.c" -o peer_openmpi || { echo "Open MPI is not here: libopenmpi-dev" >&2; return 1; }
    cc -O2 -I"$here/../include" "$from/peer_sluice.c" -L"$build/lib" -lsluice -Wl,-rpath,"$build/lib" -o peer_sluice
}

# run_openmpi [UCX_SETTING=VALUE]
run_openmpi() {
    local peer=("$PWD/peer_openmpi" allreduce "$bytes" "$budget_ms")
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_TLS=rc_v,self UCX_IB_GID_INDEX=0 \
        env "$@" timeout 200 mpirun.openmpi --bind-to none --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any \
        --mca osc '^ucx' --mca btl '^openib,uct' \
        -np 1 -x UCX_NET_DEVICES=rxe0:1 taskset -c 0 "${peer[@]}" : \
        -np 1 -x UCX_NET_DEVICES=rxe1:1 taskset -c 1 "${peer[@]}"
}

# run_sluice REGISTER
run_sluice() {
    ranks_limit=200 PEER_REGISTER=$1 SLUICE_TRANSPORT=verbs SLUICE_INTERFACE=m0 ranks 2 bash -c '
        export SLUICE_VERBS_DEVICES=rxe$SLUICE_RANK
        exec taskset -c "$SLUICE_RANK" "$@"' - "$PWD/peer_sluice" allreduce "$bytes" "$budget_ms"
}

# once NAME COMMAND...: the median in µs goes to the file NAME. What went over the wire must be as much at least.
once() {
    local name=$1 before line
    shift
    before=$(counter 0 sent_pkts)
    line=$("$@" 2>"$name.err") || { echo "$name ended with $? (124: not done in 200 s): $line"; cat "$name.err"; return 1; }
    [[ $line =~ \"p50_us\":\ ([0-9.]+).*\"wrong\":\ 0\} ]] || { echo "$name: wrong elements, or no figures: $line"; return 1; }
    (($(counter 0 sent_pkts) - before > bytes / 4096)) || { echo "$name did not go by rxe0"; return 1; }
    echo "${BASH_REMATCH[1]}" >>"$name"
}

# figures NAME: "MEDIAN (LOWEST-HIGHEST)", in ms.
figures() {
    sort -g "$1" | awk '{ at[NR] = $1 / 1e3 } END {
        printf "%.0f (%.0f-%.0f)", NR % 2 ? at[(NR + 1) / 2] : (at[NR / 2] + at[NR / 2 + 1]) / 2, at[1], at[NR] }'
}

compile || exit 1
for ((round = 1; round <= rounds; round++)); do
    once openmpi run_openmpi && once openmpi_am run_openmpi UCX_RNDV_SCHEME=am &&
        once sluice run_sluice 0 && once registered run_sluice 1 || exit 1
    echo "round $round: $(tail -qn 1 openmpi openmpi_am sluice registered | tr '\n' ' ')µs"
done
echo "allreduce of $bytes bytes, 2 ranks, rxe0 and rxe1, $rounds rounds: median ms (lowest-highest)"
echo "Open MPI over UCX, rc_verbs:  $(figures openmpi)"
echo "the same, UCX_RNDV_SCHEME=am: $(figures openmpi_am)"
echo "Sluice, plain memory:         $(figures sluice)"
echo "Sluice, registered:           $(figures registered)"
