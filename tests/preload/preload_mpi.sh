#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MPI programs under the shim, started by the MPI's own launcher: results, what the report says, and what happens
# when the shim is off, alone, or not the same on all ranks.
# usage: preload_mpi.sh openmpi|mpich PROGRAM libsluice-preload.so FOLDER_OF_SOURCES [sluice-dpdk.so]
set -uo pipefail
mpi=$1 program=$(realpath "$2") shim=$(realpath "$3") sources=$4 module=${5:-}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"

for name in "${!SLUICE_@}" "${!OMPI_@}" "${!PMI@}" "${!SLURM_@}"; do
    unset "$name"
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks=3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $mpi in
openmpi) launcher=mpirun.openmpi ;;
mpich) launcher=mpiexec.mpich ;;
esac
command -v "$launcher" >/dev/null || tap_skip_all "$launcher is not here"

# Open MPI would rather refuse more ranks than cores. Of a job that does not end: what its processes wait for.
job() {
    local start=("$launcher") pid
    [[ $mpi == openmpi ]] && start+=(--oversubscribe --mca btl_base_warn_component_unused 0)
    "${start[@]}" "$@" 2>&1 &
    pid=$!
    if until_true "${limit:-100}" gone "$pid"; then
        wait "$pid"
        return
    fi
    echo "no end within ${limit:-100} s:"
    ps -L -o pid,stat,time,wchan:24,args -p "$pid" --ppid "$pid"
    kill "$pid"
    until_true 5 gone "$pid" || kill -9 "$pid"
    return 124
}

# under VARIABLE=VALUE... -- PROGRAM...: all ranks alike. Leaves what they say in $told.
under() {
    local parts=(-n "$ranks") setting
    [[ $mpi == openmpi ]] && parts+=(-x "LD_PRELOAD=$shim") || parts+=(-env LD_PRELOAD "$shim")
    for setting in "$@"; do
        shift
        [[ $setting == -- ]] && break
        [[ $mpi == openmpi ]] && parts+=(-x "$setting") || parts+=(-env "${setting%%=*}" "${setting#*=}")
    done
    told=$(job "${parts[@]}" "$@")
}

# one_has RANK VARIABLE=VALUE PROGRAM...: the program, with that setting on one rank alone. Not by launchers' own way
# (COMMAND : COMMAND), at which mpirun of Open MPI 5.0.7, Debian 13's, ends with a segmentation fault.
cat >"$work/one_has" <<'END'
#!/bin/bash
[[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} != "$1" ]] || export "$2"
exec "${@:3}"
END
chmod +x "$work/one_has"

lines() { grep -c -- "$1" <<<"$told"; }

# said TEXT TIMES: that many lines have it.
said() {
    [[ $(lines "$1") -eq $2 ]] || { echo "'$1' is in $(lines "$1") lines, not $2:"; echo "$told"; return 1; }
}

part_ok() {
    grep -qx "ok $1" <<<"$told" || { echo "$told"; return 1; }
}

everything_is_counted() {
    said "^sluice preload: rank [0-9]*: took [0-9]* calls, [0-9]* bytes" "$ranks" || return 1
    local taken passed
    taken=$(sed -n 's/^sluice preload: rank 0: took \([0-9]*\) calls.*/\1/p' <<<"$told")
    passed=$(sed -n 's/^sluice preload: rank 0:.*passed on \([0-9]*\).*/\1/p' <<<"$told")
    [[ $taken -gt 2000 && $passed -gt 10 ]] || { echo "$taken taken, $passed passed on"; return 1; }
    local call why
    for call in Allreduce Reduce Bcast Allgather Allgatherv Gather Gatherv Scatter Scatterv Alltoall Alltoallv \
        Reduce_scatter Reduce_scatter_block Barrier; do
        grep "rank 0:" <<<"$told" | grep -q "took.*MPI_$call [0-9].*passed on" ||
            { echo "no MPI_$call was taken"; echo "$told"; return 1; }
    done
    for why in type operator communicator "too few calls"; do
        grep "rank 0:" <<<"$told" | grep -q "passed on.*: $why" || { echo "none because of $why"; return 1; }
    done
}

off_takes_none() {
    under SLUICE_PRELOAD=0 -- "$program" types && said "^ok types" 1 && said "sluice" 0
}

an_unknown_word_takes_none() {
    under SLUICE_PRELOAD=perhaps -- "$program" types && said "^ok types" 1 &&
        said "SLUICE_PRELOAD is 'perhaps', but must be one of on, off, report" "$ranks"
}

on_is_silent() {
    under SLUICE_PRELOAD=on -- "$program" types && said "^ok types" 1 && said "sluice" 0
}

late() {
    under SLUICE_PRELOAD=report SLUICE_TIMEOUT_MS=500 -- "$program" lonely
    said "^ok a_rank_that_stays_away" 1 && said "an MPI collective failed: " $((ranks - 1))
}

nowhere() {
    under SLUICE_PRELOAD=report -- "$program" no_places
    said "^ok a_root_without_places" 1 && said "collective failed: MPI_Gatherv: the root's type, counts or places" 1
}

# pass_together SETTING: rank 0 with it, the others without: none takes anything, the results are right.
pass_together() {
    under SLUICE_PRELOAD=report -- "$work/one_has" 0 "$1" "$program" types
    said "^ok types" 1 && said "took 0 calls" "$ranks" && said ": no engine" "$ranks" && said "$2" "$ranks"
}

# One rank without the shim: the job hangs, as it never comes where the others wait, but nobody has wrong data, and a
# sentence says why.
one_without() {
    limit=6 under SLUICE_PRELOAD=report SLUICE_TIMEOUT_MS=1000 -- \
        "$work/one_has" $((ranks - 1)) SLUICE_PRELOAD=off "$program" first_gather
    said "not ok" 0 && said "a rank without the shim" $((ranks - 1))
}

# A rank that forks a child which ends by exit(): one report a rank, not one a process.
forked() {
    under SLUICE_PRELOAD=report -- "$program" forks
    said "^ok ranks_may_fork" 1 && said "^sluice preload: rank" "$ranks" && said "took 2 calls" "$ranks"
}

# 12 communicators that come and go are used six times each, most others four: none of them is worth an engine.
early() {
    under SLUICE_PRELOAD=report -- "$program" come_and_go
    said "^ok communicators_come_and_go" 1 && said "took 12 calls" "$ranks" && said ": too few calls" "$ranks"
}

# The engines of nine communicators, six of them of all ranks: none connects or listens anew.
over_tcp() {
    under SLUICE_PRELOAD=report SLUICE_PRELOAD_MPI_EARLY_CALLS=2 SLUICE_TRANSPORT=tcp -- "$program" copies
    said "^ok copies_share_connections" 1 && said "took [1-9][0-9]* calls" "$ranks" && said ": no engine" 0
}

# A mesh of ports wants to know a rank's place on its host, which MPI's launcher knows.
cat >"$work/placed" <<'END'
#!/bin/bash
export SLUICE_LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK SLUICE_LOCAL_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
exec "$@"
END
chmod +x "$work/placed"

# By DPDK, over memory that behaves as a wire: a port to each other rank, shared by the engines of nine communicators.
over_dpdk() {
    mkdir "$work/mesh"
    under SLUICE_PRELOAD=report SLUICE_PRELOAD_MPI_EARLY_CALLS=2 SLUICE_TRANSPORT=dpdk SLUICE_DPDK_PORTS="mesh:$work/mesh" \
        SLUICE_MODULES_DIR="$(dirname "$(realpath "$module")")" SLUICE_LOG=dpdk:debug,warn -- "$work/placed" "$program" copies
    said "^ok copies_share_connections" 1 && said "took [1-9][0-9]* calls" "$ranks" && said ": no engine" 0 &&
        said "port net_memif_[0-9a-f_]* is up" $((ranks * (ranks - 1)))
}

# What is encoded so that nothing is lost is right, and rank 0 says once what it came to, at the end.
compressed() {
    under SLUICE_PRELOAD=on SLUICE_COMPRESS=rans:when=always,min=1 -- "$program" reductions
    said "^ok reductions" 1 && said "^sluice compress: rank 0: [1-9][0-9]* calls sent [0-9]* bytes in place of [1-9][0-9]* (.*; 0 calls left as they are" 1 &&
        said "^sluice compress" 1
}

a_shim_alone() {
    cp "$shim" "$work/libsluice-preload.so"
    shim=$work/libsluice-preload.so under SLUICE_PRELOAD=report -- "$program" types
    said "^ok types" 1 && said "took 0 calls.*mpi: the module cannot be opened" "$ranks" || return 1
    shim=$work/libsluice-preload.so under SLUICE_PRELOAD=on -- "$program" types
    said "^ok types" 1 && said "calls of mpi are not taken: the module cannot be opened" 1
}

fortran() {
    "mpifort.$mpi" -o "$work/fortran" "$sources/mpi_fortran.f90" || return 1
    under SLUICE_PRELOAD=report -- "$work/fortran"
    said "^ *ok fortran" 1 && said "took 6 calls.*MPI_Allreduce 3" "$ranks"
}

python() {
    under SLUICE_PRELOAD=report -- /usr/bin/python3 "$sources/mpi_numpy.py"
    said "^ok python" 1 && said "took [1-9][0-9]* calls.*MPI_Allreduce" "$ranks"
}

under SLUICE_PRELOAD=report SLUICE_PRELOAD_MPI_EARLY_CALLS=2 -- "$program"
for part in reductions_of_every_type_and_operator_are_right \
    products_of_complex_numbers_are_right \
    sums_of_fractions_are_the_same_on_all_ranks_and_near_the_true_sum moves_of_every_type_are_right \
    blocks_with_a_size_for_each_rank_are_right types_may_differ_from_rank_to_rank_and_need_not_be_dense \
    what_the_engine_has_not_is_done_by_mpi communicators_come_and_go \
    copies_share_connections messages_arrive_while_a_rank_waits_in_a_collective threads_use_communicators_side_by_side; do
    tap_case "${mpi}_$part" part_ok "$part"
done
tap_case "${mpi}_the_report_tells_of_every_call_and_why_some_were_passed_on" everything_is_counted
tap_case "${mpi}_off_takes_no_call_and_says_nothing" off_takes_none
tap_case "${mpi}_on_says_nothing" on_is_silent
tap_case "${mpi}_a_word_that_is_not_known_is_complained_about_and_takes_none" an_unknown_word_takes_none
tap_case "${mpi}_a_rank_that_stays_away_ends_in_the_error_handler" late
tap_case "${mpi}_a_root_without_places_is_an_error_on_every_rank" nowhere
tap_case "${mpi}_ranks_with_other_settings_pass_all_on_together" pass_together SLUICE_TRANSPORT=shm \
    "settings differ"
tap_case "${mpi}_ranks_with_other_rules_pass_all_on_together" pass_together SLUICE_PRELOAD_MPI_EARLY_CALLS=5 \
    "ranks take calls by other rules"
tap_case "${mpi}_a_rank_without_the_shim_gets_no_wrong_data_and_the_others_say_so" one_without
tap_case "${mpi}_a_forked_child_reports_nothing_and_harms_nobody" forked
tap_case "${mpi}_communicators_get_an_engine_when_they_have_seen_enough_calls" early
tap_case "${mpi}_what_compression_came_to_is_said_once_at_the_end" compressed
tap_case "${mpi}_copies_of_a_communicator_share_connections_over_tcp" over_tcp
if [[ $mpi == openmpi && -n $module ]]; then
    tap_case "${mpi}_copies_of_a_communicator_share_ports_of_dpdk" over_dpdk
fi
tap_case "${mpi}_a_rank_that_cannot_make_its_part_makes_all_pass_on" pass_together SLUICE_LOG=nonsense:9 \
    "no engine.*mpi: "
tap_case "${mpi}_without_its_module_the_shim_takes_none_and_the_report_says_why" a_shim_alone
if command -v "mpifort.$mpi" >/dev/null && command -v gfortran >/dev/null; then
    tap_case "${mpi}_programs_in_fortran_are_taken_too" fortran
else
    tap_skip "${mpi}_programs_in_fortran_are_taken_too" "no Fortran compiler here (package gfortran)"
fi
# Debian's mpi4py is made for Open MPI, and for Debian's own interpreter.
if [[ $mpi == openmpi ]] && /usr/bin/python3 -c "import mpi4py.rc, numpy" 2>/dev/null; then
    tap_case "${mpi}_programs_in_python_are_taken_too" python
elif [[ $mpi == openmpi ]]; then
    tap_skip "${mpi}_programs_in_python_are_taken_too" "no mpi4py here, or no numpy (packages python3-mpi4py, python3-numpy)"
fi
tap_done
