#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: two ranks, each with a real NIC's driver of DPDK, as docs/dpdk.md sets a NIC up by vfio.
# usage: nics_guest.sh BUILD HOW    root: as root; user: as a user who may open the NIC's group and nothing else;
#                                   uio: as root with huge pages, where there is no IOMMU
# Prints what the ranks did and ends as they did.
set -uo pipefail
build=$1 how=$2
nics=(0000:00:10.0 0000:00:11.0)
as=()

fail() { echo "$*"; exit 1; }

driver=vfio-pci
if [[ $how == uio ]]; then
    driver=uio_pci_generic
    echo 400 >/proc/sys/vm/nr_hugepages
fi
modprobe "$driver" || fail "no $driver"
# As dpdk-devbind.py does.
for nic in "${nics[@]}"; do
    [[ ! -e /sys/bus/pci/devices/$nic/driver ]] || echo "$nic" >"/sys/bus/pci/devices/$nic/driver/unbind"
    echo "$driver" >"/sys/bus/pci/devices/$nic/driver_override"
    echo "$nic" >/sys/bus/pci/drivers_probe
    [[ $(readlink "/sys/bus/pci/devices/$nic/driver") == */$driver ]] || fail "$nic is not bound to $driver"
    if [[ $how == user ]]; then
        chown nobody "/dev/vfio/$(basename "$(readlink "/sys/bus/pci/devices/$nic/iommu_group")")" || exit 1
        chmod 666 /dev/vfio/vfio
    fi
done
[[ $how != user ]] || as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)

export SLUICE_MODULES_DIR=$build/dpdk SLUICE_TRANSPORT=dpdk SLUICE_ROOT=127.0.0.1:7715 SLUICE_SIZE=2 SLUICE_LOG=info HOME=/nonexistent
pids=()
for rank in 0 1; do
    SLUICE_HOST_ID=host$rank SLUICE_RANK=$rank SLUICE_DPDK_PORTS="${nics[rank]}@ip=10.1.0.$((rank + 1))/24" \
        timeout 120 "${as[@]}" "$build/tools/bench/sluice-bench" -b 8 -e 1M -f 4 --iters 5 >"/tmp/rank$rank" 2>&1 &
    pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
done
cat /tmp/rank0
[[ $status -eq 0 ]] || { cat /tmp/rank1; exit "$status"; }
grep -q 'Out of bounds values : 0 OK' /tmp/rank0 || fail "no result, or a wrong one"
grep -q "path 0 to rank 1 is up: ${nics[0]} to the peer's rail 0" /tmp/rank0 || fail "not over ${nics[0]}"
