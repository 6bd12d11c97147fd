#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same sluice-bench under the launchers that jobs are started with. Each must give every rank its
# place with no settings of ours, check all results and print one table.
# usage: launch_start.sh sluice-bench
set -uo pipefail
bench=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/launch/common.sh
. "$(dirname "$0")/common.sh"

limit=(timeout -k 5 60)
sweep=("$bench" -b 8 -e 64K -f 16 -i 5 -c 1)

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

under() {
    local ranks=$1 output
    shift
    output=$("${limit[@]}" "$@" "${sweep[@]}" 2>&1) || { echo "$output"; echo "it failed"; return 1; }
    one_table "$output" "$ranks"
}

locally() {
    local output
    output=$("${limit[@]}" "${sweep[@]}" -n 4 2>&1) || { echo "$output"; return 1; }
    one_table "$output" 4
}

# each_rank RANKS FUNCTION: starts the ranks by hand; FUNCTION rank size port prints VARIABLE=value lines.
each_rank() {
    local ranks=$1 variables=$2 port rank pids=() failed=0 outputs
    port=$(free_port)
    outputs=$(mktemp -d)
    for ((rank = ranks - 1; rank >= 0; rank--)); do # rank 0 last: the others must wait for it
        local settings=()
        mapfile -t settings < <("$variables" "$rank" "$ranks" "$port")
        env "${settings[@]}" "${limit[@]}" "${sweep[@]}" >"$outputs/$rank" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
    local output
    output=$(cat "$outputs"/*)
    rm -rf "$outputs"
    [[ $failed -eq 0 ]] || { echo "$output"; echo "a rank failed"; return 1; }
    one_table "$output" "$ranks"
}

torchrun_variables() {
    printf '%s\n' "RANK=$1" "WORLD_SIZE=$2" "LOCAL_RANK=$1" "LOCAL_WORLD_SIZE=$2" \
        MASTER_ADDR=127.0.0.1 "MASTER_PORT=$3" TORCHELASTIC_RUN_ID=launch-test
}

own_variables() {
    printf '%s\n' "SLUICE_RANK=$1" "SLUICE_SIZE=$2" "SLUICE_ROOT=127.0.0.1:$3" SLUICE_JOB=launch-test \
        SLUICE_SECRET=only-for-this-test
}

slurm_variables() {
    printf '%s\n' "SLURM_PROCID=$1" "SLURM_NTASKS=$2" "SLURM_LOCALID=$1" SLURM_JOB_ID=4711 \
        SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_STEP_NODELIST=127.0.0.1 SLURM_NODELIST=127.0.0.1 \
        SLURM_NTASKS_PER_NODE="$2" "SLURM_STEP_NUM_TASKS=$2" SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 \
        "SLUICE_ROOT=127.0.0.1:$3"
}

# launcher NAME PROGRAM PACKAGE COMMAND...
launcher() {
    local name=$1 program=$2 package=$3
    shift 3
    if command -v "$program" >/dev/null; then
        tap_case "$name" under 4 "$@"
    else
        tap_skip "$name" "$program is not installed (package $package)"
    fi
}

launcher open_mpi_starts_four_ranks mpirun.openmpi openmpi-bin mpirun.openmpi -np 4 --oversubscribe \
    --bind-to none
launcher mpich_starts_four_ranks mpiexec.mpich mpich mpiexec.mpich -n 4
tap_case its_own_local_start_makes_four_ranks locally
tap_case torchrun_variables_make_four_ranks each_rank 4 torchrun_variables
tap_case slurm_variables_make_four_ranks each_rank 4 slurm_variables
tap_case a_root_and_a_secret_make_four_ranks each_rank 4 own_variables
tap_done
