#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks started by a real torchrun: alone, with a store of its own, by two agents, again after a rank
# died, and beside another job.
# usage: launch_torchrun.sh sluice-bench gather
set -uo pipefail
bench=$1
gather=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/launch/common.sh
. "$(dirname "$0")/common.sh"

command -v torchrun >/dev/null ||
    tap_skip_all "torchrun is not installed (package python3-torch, or PyTorch by pip)"
torchrun --help >/dev/null 2>&1 || tap_skip_all "torchrun does not start (torchrun --help)"

# PyTorch 1.13 under Python 3.11 crashes on its own default of -r and -t (no log files); the same said
# for a rank that does not exist it takes.
run=(timeout -k 5 90 torchrun -r 9:1 -t 9:1 --monitor_interval=0.1)
sweep=("$bench" -b 8 -e 64K -f 16 -i 5 -c 1)
export OMP_NUM_THREADS=1

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# With a port of its own, where torchrun's default may be another job's.
static() {
    "${run[@]}" --nnodes=1 --node_rank=0 --master_addr=127.0.0.1 --master_port="$(free_port)" \
        --nproc_per_node=3 --no_python "$@" 2>&1
}

ranks_by_torchrun() {
    local output
    output=$(static "$gather") || { echo "$output"; return 1; }
    all_said "$output" 3 torchrun
}

a_table() {
    local output
    output=$(static "${sweep[@]}") || { echo "$output"; return 1; }
    one_table "$output" 3
}

a_store_of_its_own() {
    local output
    output=$("${run[@]}" --standalone --nproc_per_node=3 --no_python "$gather" 2>&1) ||
        { echo "$output"; return 1; }
    all_said "$output" 3 torchrun
}

# Each agent starts two of four ranks, as on two hosts: LOCAL_WORLD_SIZE is not WORLD_SIZE.
two_agents() {
    local port node pids=() failed=0
    port=$(free_port)
    for node in 0 1; do
        "${run[@]}" --nnodes=2 --node_rank="$node" --master_addr=127.0.0.1 --master_port="$port" \
            --nproc_per_node=2 --no_python "$1" >"$folder/agent$node" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
    cat "$folder/agent0" "$folder/agent1"
    return "$failed"
}

ranks_of_two_agents() {
    local output
    output=$(two_agents "$gather") || { echo "$output"; return 1; }
    all_said "$output" 4 torchrun
}

# Rank 1 of the first round dies while the others wait for it; those of the second round must meet,
# and none of them one of the first.
a_second_round() {
    local output
    cat >"$folder/once" <<END
#!/bin/bash
[[ \$TORCHELASTIC_RESTART_COUNT == 0 && \$RANK == 1 ]] && exit 3
exec "$gather"
END
    chmod +x "$folder/once"
    output=$("${run[@]}" --standalone --max_restarts=1 --nproc_per_node=3 \
        --no_python "$folder/once" 2>&1) || { echo "$output"; return 1; }
    # Ranks of the first round may have said that another went away.
    all_said "$(grep ' by torchrun$' <<<"$output")" 3 torchrun
}

# Not --standalone, whose store is at the same port for every job of a host: the second agent would be a
# guest of the first's, and fail when that ends.
elastic() {
    local output
    output=$("${run[@]}" --nnodes=1 --rdzv_backend=c10d --rdzv_endpoint="127.0.0.1:$(free_port)" \
        --rdzv_id="$1" --nproc_per_node=3 --no_python "$gather" 2>&1) || { echo "$output"; return 1; }
    all_said "$output" 3 torchrun
}

two_jobs() {
    local output one
    elastic one >"$folder/other" 2>&1 &
    one=$!
    output=$(elastic two) || { wait "$one"; echo "$output"; return 1; }
    wait "$one" || { cat "$folder/other"; return 1; }
}

tap_case torchrun_starts_three_ranks ranks_by_torchrun
tap_case three_ranks_of_torchrun_print_one_table a_table
tap_case torchrun_standalone_starts_three_ranks a_store_of_its_own
tap_case two_agents_of_torchrun_start_four_ranks ranks_of_two_agents
tap_case torchrun_starts_the_ranks_again_after_one_died a_second_round
tap_case two_jobs_of_torchrun_do_not_disturb_each_other two_jobs
tap_done
