#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# NCCL's plugin over DPDK: ranks in one process, over a wire within it, and in processes of their own, over memif.
# usage: nccl_dpdk.sh nccl_driver libnccl-net-sluice.so sluice-dpdk.so [all]
set -uo pipefail
driver=$1 plugin=$2 module=$3 which=${4:-some}
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

for name in "${!SLUICE_@}"; do
    unset "$name"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SLUICE_TRANSPORT=dpdk SLUICE_MODULES_DIR
SLUICE_MODULES_DIR=$(dirname "$(realpath "$module")")

# Without a case all but those that break the network: nothing cuts a wire of these.
in_one_process() {
    SLUICE_DPDK_PORTS='ring:nccl/0 ring:nccl/1' \
        "$driver" --api 11 --no-faults --place threads ${1:+--case "$1"} "$plugin" | grep -v ' # SKIP'
    return "${PIPESTATUS[0]}"
}

in_processes() {
    local mesh ports=() rank
    mesh=$(mktemp -d "$work/XXXXXX") || return 1
    for rank in 0 1 2; do
        ports+=(--env "$rank:SLUICE_DPDK_PORTS=mesh:$mesh@rank=$rank@ranks=3")
    done
    "$driver" --api 11 --no-faults --place processes "${ports[@]}" ${1:+--case "$1"} "$plugin"
}

if [[ $which == all ]]; then
    tap_case every_case_passes_in_one_process in_one_process ''
    tap_case every_case_passes_in_processes in_processes ''
else
    tap_case windows_carry_every_size_in_one_process in_one_process 'windows_of_8*'
    tap_case half_open_connections_leave_nothing_behind in_one_process 'half_open*'
    tap_case aborted_memory_is_left_alone_in_one_process in_one_process 'aborted_memory_is_not*'
    tap_case windows_carry_every_size_between_processes in_processes 'windows_of_8*'
    tap_case contexts_follow_each_other_over_ports_that_come_and_go in_processes 'what_is_sent*'
    tap_case contexts_of_two_processes_share_ports in_processes 'many_connections*'
    tap_case more_connections_of_two_processes_open_no_more_sockets in_processes 'more_connections*'
fi
tap_done
