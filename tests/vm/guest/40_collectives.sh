#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All collectives over both rails, every element checked: types, operators, sizes, kinds of memory, numbers of
# ranks, alone and together with shm.
# limit: 1200 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"
# shellcheck source=tests/vm/tools.sh
. "$here/../tools.sh"

bench=$build/tools/bench/sluice-bench
export SLUICE_INTERFACE=m0 SLUICE_TRANSPORT=verbs SLUICE_LOG=info

# moved DEVICE...: together they have sent more than a few packets since noted.
note() { noted=("$(counter 0 sent_pkts)" "$(counter 1 sent_pkts)" "$(counter 2 sent_pkts)" "$(counter 3 sent_pkts)"); }
moved() {
    local i sum=0
    for i in "$@"; do
        ((sum += $(counter "$i" sent_pkts) - noted[i]))
    done
    [[ $sum -ge 20 ]] || { echo "devices $* have sent nothing"; return 1; }
}

# right N OPTION...: as N ranks, all results right, from both sides. Short messages go by the path that is
# first, so by one rail perhaps; long ones by both: both_rails N OPTION... asks for that too.
right() {
    local output status
    note
    output=$(ranks "$1" "$bench" -w 1 -i 2 "${@:2}")
    status=$?
    echo "$output"
    [[ $status -eq 0 && $output == *"ranks: $1 on 2 hosts"* ]] && moved 0 2 && moved 1 3
}

both_rails() { right "$@" && moved 0 && moved 1 && moved 2 && moved 3; }

tap_case two_ranks_all_collectives_to_256_KiB right 2 -C all -b 8 -e 256K -f 32
tap_case two_ranks_all_collectives_registered right 2 -C all -b 8 -e 256K -f 32 -R 1
SLUICE_VERBS_KEYS=window tap_case two_ranks_all_collectives_registered_by_windows \
    right 2 -C all -b 8 -e 256K -f 32 -R 1
tap_case two_ranks_all_collectives_in_memory_of_the_library right 2 -C all -b 8K -e 256K -f 32 --alloc sluice
tap_case two_ranks_all_types_and_operators right 2 -d all -o all -b 48 -e 12K -f 256
tap_case two_ranks_reduce_scatter_all_types_and_operators_registered \
    right 2 -C reduce_scatter -d all -o all -b 24K -e 24K -R 1
SLUICE_VERBS_PATHS_PER_RAIL=2 tap_case two_ranks_two_paths_per_rail both_rails 2 -C all -b 64 -e 512K -f 8192 -R 1
rails_crossed=1 tap_case hosts_that_list_their_rails_in_another_order_use_both \
    both_rails 2 -C allreduce -b 64 -e 512K -f 8192 -R 1
tap_case two_ranks_unaligned_with_four_operations_in_flight right 2 -C all -b 8 -e 64K -f 8192 -u 3 -m 4 -z 0
tap_case three_ranks_all_collectives right 3 -C all -b 8 -e 128K -f 16384
tap_case three_ranks_all_collectives_registered right 3 -C all -b 64K -e 64K -R 1
tap_case four_ranks_all_collectives right 4 -C all -b 8 -e 64K -f 8192
SLUICE_TRANSPORT=shm,verbs tap_case four_ranks_on_two_hosts_with_shm_inside right 4 -C all -b 8 -e 128K -f 16384
SLUICE_TRANSPORT=shm,verbs tap_case four_ranks_on_two_hosts_with_shm_inside_registered right 4 -C all -b 64K -e 64K -R 1
tap_case two_ranks_compressed both_rails 2 -C allreduce,reduce_scatter,all_gather,broadcast,alltoall -b 256K -e 1M -f 4 \
    --compress bq8:when=always,bq4:when=always,shiq:when=always
SLUICE_TRANSPORT=shm,verbs tap_case four_ranks_on_two_hosts_compressed right 4 -C allreduce,alltoall -b 256K -e 1M -f 4 \
    --compress bq8:when=always,topk:k=41,when=always
tap_case eight_ranks_all_collectives right 8 -C all -b 8 -e 16K -f 2048
SLUICE_TRANSPORT=shm,verbs tap_case eight_ranks_on_two_hosts_with_shm_inside right 8 -C all -b 8 -e 64K -f 8192
tap_done
