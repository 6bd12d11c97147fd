#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The DPDK transport over drivers of real NICs: a virtual machine for each, with two NICs that QEMU plays on one wire,
# bound to vfio-pci as docs/dpdk.md says, and a rank at each.
# usage: nics.sh BUILD
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
build=$1

why=$("$here/boot.sh" --prepare 2>&1) || tap_skip_all "${why##*$'\n'}"

# over HOW MODEL [OPTION...]
over() {
    local how=$1 model=$2
    shift 2
    "$here/boot.sh" --limit 300 "$@" --nics "$model" -- "$here/nics_guest.sh" "$build" "$how"
}

tap_case ranks_reduce_over_e1000e over root e1000e
tap_case ranks_reduce_over_vmxnet3 over root vmxnet3
tap_case ranks_reduce_over_virtio over root virtio-net-pci,disable-legacy=on,iommu_platform=on
tap_case a_user_who_may_open_the_group_needs_no_more over user e1000e
tap_case without_an_iommu_by_uio_and_huge_pages over uio e1000e --no-iommu
tap_done
