#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the gather program ($1) under the launchers that are here, as TAP.
gather=$1
# shellcheck source=tests/port.sh
. "$(dirname "$0")/../../port.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 SLUICE_CONNECT_TIMEOUT_MS=40000
# In a sanitizer build: the launchers' own libraries leak when they end.
export ASAN_OPTIONS=detect_leaks=0
number=0

# Each of 4 ranks must have said who it is, by launcher $1.
all_four_are_there() {
    [[ $(sort -u <<<"$output" | grep -c "^rank [0-3] of 4 by $1\$") == 4 ]]
}

report() { # result, name
    ((number++))
    if [[ $1 == 0 ]]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        sed 's/^/# /' <<<"$output"
    fi
}

skip() { # name, reason
    ((number++))
    echo "ok $number - $1 # SKIP $2"
}

run() { # name, launcher as it should be known, command
    local name=$1 launcher=$2
    shift 2
    output=$("$@" 2>&1) && all_four_are_there "$launcher"
    report $? "$name"
}

# Four processes with variables that $1 (a function of the rank) sets.
by_hand() {
    local pids=() rank status=0 port
    port=$(free_port)
    for rank in 0 1 2 3; do
        ("$1" "$rank"; exec "$gather") &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || status=1
    done
    return $status
}

as_torchrun() {
    export RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=localhost \
        MASTER_PORT=$port TORCHELASTIC_RUN_ID=test.$$
}

as_slurm() {
    export SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=$1 SLURM_JOB_ID=$$ SLURM_STEP_ID=0 \
        SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST='nowhere[01-04]'
}

with_root() {
    export SLUICE_RANK=$1 SLUICE_SIZE=4 SLUICE_ROOT="[::1]:$port" SLUICE_SECRET=s
}

echo 1..6
if [[ -n $(type -p mpirun.openmpi) ]]; then
    run open_mpis_mpirun_needs_no_settings pmix mpirun.openmpi --oversubscribe -np 4 "$gather"
    run open_mpi_without_pmix_meets_on_one_host openmpi env SLUICE_LAUNCHER=openmpi \
        mpirun.openmpi --oversubscribe -np 4 "$gather"
else
    skip open_mpis_mpirun_needs_no_settings "mpirun.openmpi is not installed"
    skip open_mpi_without_pmix_meets_on_one_host "mpirun.openmpi is not installed"
fi
if [[ -n $(type -p mpiexec.mpich) ]]; then
    run mpichs_mpiexec_needs_no_settings pmi mpiexec.mpich -n 4 "$gather"
else
    skip mpichs_mpiexec_needs_no_settings "mpiexec.mpich is not installed"
fi
run torchruns_variables_are_enough torchrun by_hand as_torchrun
run slurms_variables_are_enough slurm by_hand as_slurm
if grep -q . /proc/net/if_inet6 2>/dev/null; then
    run a_root_may_be_an_ipv6_address sluice by_hand with_root
else
    skip a_root_may_be_an_ipv6_address "this host has no IPv6"
fi
