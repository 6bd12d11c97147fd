#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks started by a real srun, from a Slurm of this script's own.
# usage: launch_slurm.sh sluice-bench gather pmix|no-pmix (whether Sluice was built with PMIx)
set -uo pipefail
bench=$1
gather=$2
built=$3
# shellcheck source=tests/slurm.sh
. "$(dirname "$0")/../slurm.sh"
# shellcheck source=tests/launch/common.sh
. "$(dirname "$0")/common.sh"

limit=(timeout -k 5 60)
sweep=("$bench" -b 8 -e 64K -f 16 -i 5 -c 1)

no_job() { [[ -z $(squeue -h 2>/dev/null) ]]; }

slurm_before_stop() {
    timeout 10 squeue -h -o %i 2>/dev/null | xargs -r timeout 10 scancel 2>/dev/null
    until_true 5 no_job 2>/dev/null
}

# said RANKS LAUNCHER COMMAND...
said() {
    local ranks=$1 launcher=$2 output
    shift 2
    output=$("${limit[@]}" "$@" 2>&1) || { echo "$output"; echo "it failed"; return 1; }
    all_said "$output" "$ranks" "$launcher"
}

# Knowing that all are on one host, rank 0 waits for them on loopback alone.
stays_on_loopback() {
    local output
    output=$(SLUICE_LOG=launch:debug "${limit[@]}" "$@" 2>&1) || { echo "$output"; return 1; }
    echo "$output"
    [[ $(grep -c 'joined from user ' <<<"$output") -ge 2 ]] && ! grep -qE 'joined from (\[|[0-9])' <<<"$output"
}

table() {
    local ranks=$1 output
    shift
    output=$("${limit[@]}" "$@" 2>&1) || { echo "$output"; echo "it failed"; return 1; }
    one_table "$output" "$ranks"
}

# Both steps of one job at once: each meets at a port of its own.
two_steps() {
    cat >"$folder/two" <<END
#!/bin/bash
srun --overlap -n 3 --mpi=none "$gather" >"$folder/step0" 2>&1 &
srun --overlap -n 3 --mpi=none "$gather" >"$folder/step1" 2>&1
status=\$?
wait \$! && exit \$status
END
    chmod +x "$folder/two"
    "${limit[@]}" salloc -Q -n 3 "$folder/two" || { cat "$folder"/step[01]; return 1; }
    all_said "$(<"$folder/step0")" 3 slurm && all_said "$(<"$folder/step1")" 3 slurm
}

# A batch script has a rank's variables, but is none: it is alone, and its own srun is not.
batch() {
    cat >"$folder/batch" <<END
#!/bin/bash
"$gather" && srun -n 3 --mpi=none "$gather"
END
    "${limit[@]}" sbatch -W -n 3 -o "$folder/batch.out" "$folder/batch" ||
        { cat "$folder/batch.out"; return 1; }
    cat "$folder/batch.out"
    [[ $(head -1 "$folder/batch.out") == "rank 0 of 1 by none" ]] || return 1
    all_said "$(tail -n +2 "$folder/batch.out")" 3 slurm
}

# Rank 1 is not started: the others name it, and srun ends.
rank_that_is_missing() {
    local output
    output=$(SLUICE_CONNECT_TIMEOUT_MS=1500 "${limit[@]}" srun -n 3 --mpi=none bash -c \
        "[[ \$SLURM_PROCID == 1 ]] || exec '$gather'" 2>&1) && { echo "$output"; return 1; }
    echo "$output"
    grep -q 'rank 1 of 3 did not reach rank 0' <<<"$output"
}

slurm_needs srun
slurm_start "PartitionName=all Nodes=ALL Default=YES State=UP"
tap_case srun_starts_three_ranks said 3 slurm srun -n 3 --mpi=none "$gather"
tap_case three_ranks_of_srun_print_one_table table 3 srun -n 3 --mpi=none "${sweep[@]}"
if srun --mpi=list 2>&1 | grep -qw pmi2; then
    tap_case srun_with_pmi2_starts_three_ranks said 3 pmi srun -n 3 --mpi=pmi2 "$gather"
    tap_case srun_with_pmi2_on_one_host_meets_by_its_socket stays_on_loopback srun -n 3 --mpi=pmi2 "$gather"
    tap_case three_ranks_of_srun_with_pmi2_print_one_table table 3 srun -n 3 --mpi=pmi2 "${sweep[@]}"
else
    tap_skip srun_with_pmi2_starts_three_ranks "this Slurm has no PMI-2 plugin"
fi
if srun --mpi=list 2>&1 | grep -qw pmix; then
    # Sluice built without PMIx falls back on Slurm's variables.
    by=slurm
    [[ $built == pmix ]] && by=pmix
    tap_case srun_with_pmix_starts_three_ranks said 3 "$by" srun -n 3 --mpi=pmix "$gather"
    tap_case three_ranks_of_srun_with_pmix_print_one_table table 3 srun -n 3 --mpi=pmix "${sweep[@]}"
else
    tap_skip srun_with_pmix_starts_three_ranks "this Slurm has no PMIx plugin"
fi
tap_case two_steps_of_one_job_meet_at_once_in_two_places two_steps
tap_case a_batch_script_is_alone_and_its_srun_is_not batch
tap_case a_rank_that_srun_did_not_start_is_named rank_that_is_missing
if torchrun --help >/dev/null 2>&1; then
    tap_case torchrun_inside_srun_starts_three_ranks said 3 torchrun srun -n 1 --mpi=none torchrun \
        -r 9:1 -t 9:1 --monitor_interval=0.1 --standalone --nproc_per_node=3 --no_python "$gather"
else
    tap_skip torchrun_inside_srun_starts_three_ranks \
        "torchrun is not installed (package python3-torch, or PyTorch by pip)"
fi
tap_done
