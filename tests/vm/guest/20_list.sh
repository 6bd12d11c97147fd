#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluice-bench --list over real devices: each port with its GIDs, or with the reason why it is out, for every
# reason that can be brought about here.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/faults.sh
. "$here/../faults.sh"
bench=$build/tools/bench/sluice-bench
unprivileged=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-ipc_lock --inh-caps=-ipc_lock)

# shows PATTERN [SETTING...] [-- COMMAND...]: whether a line of the list, below a command, is like that.
shows() {
    local pattern=$1 settings=() list
    shift
    while [[ $# -gt 0 && $1 != -- ]]; do
        settings+=("$1")
        shift
    done
    list=$(env "${settings[@]}" "${@:2}" "$bench" --list 2>&1)
    grep -A4 '^transport *verbs' <<<"$list"
    grep -qE "$pattern" <<<"$list"
}

every_port_with_its_gids() {
    local i
    for i in 0 1 2 3; do
        shows "^transport +verbs +rxe$i:1 +ACTIVE, Ethernet, MTU 4096, 10 Gbit/s\$" || return
        shows "^ +GID $(gid_index "$i") .*/24 \(RoCE v2\) on v$i, chosen\$" || return
    done
}

a_down_port() {
    rail_down A
    shows '^transport +verbs +rxe0:1 +out: port is DOWN: check the cable' || return
    shows '^transport +verbs +rxe2:1 +ACTIVE' || return
    rail_up A
    shows '^transport +verbs +rxe0:1 +ACTIVE'
}

a_port_without_an_address() {
    gid_remove 0
    echo 1 >/proc/sys/net/ipv6/conf/v0/disable_ipv6
    shows '^transport +verbs +rxe0:1 +out: port has no GID that its network interface answers for' || return
    echo 0 >/proc/sys/net/ipv6/conf/v0/disable_ipv6
    gid_add 0
    shows '^transport +verbs +rxe0:1 +ACTIVE'
}

settings() {
    shows "^transport +verbs +rxe3:1 +out: left out by SLUICE_VERBS_DEVICES" 'SLUICE_VERBS_DEVICES=^rxe3' || return
    shows '^transport +verbs +rxe1:1 +out: .*SLUICE_VERBS_GID_INDEX 99; it has only 0: ' \
        SLUICE_VERBS_GID_INDEX=99 || return
    shows '^ +GID 0 .*fe80::.*, chosen$' SLUICE_VERBS_GID_FAMILY=ipv6
}

the_order_of_the_setting() {
    local order
    order=$(SLUICE_VERBS_DEVICES=rxe2,rxe0 "$bench" --list | awk '$1 == "transport" && $2 == "verbs" { printf "%s ", $3 }')
    echo "$order"
    [[ $order == "rxe2:1 rxe0:1 rxe1:1 rxe3:1 " ]]
}

locked_memory() {
    (
        ulimit -l 1024
        shows '^transport +verbs +rxe0:1 +out: locked memory is limited to 1024 KiB, but [0-9]+ KiB are needed' \
            -- "${unprivileged[@]}"
    ) || return
    # With the limit that it asks for a port is usable, and does carry.
    (
        ulimit -l 30000
        export SLUICE_VERBS_DEVICES=rxe0
        shows '^transport +verbs +rxe0:1 +ACTIVE' -- "${unprivileged[@]}" &&
            "${unprivileged[@]}" timeout 60 "$bench" -n 2 -t verbs -b 64k -e 64k -i 2
    )
}

a_refused_device_file() {
    local status
    chmod 600 /dev/infiniband/uverbs*
    shows '^transport +verbs +rxe0 +out: cannot be opened: no permission for /dev/infiniband/uverbs' \
        -- "${unprivileged[@]}"
    status=$?
    chmod 666 /dev/infiniband/uverbs*
    return "$status"
}

# Out of the folder: the library looks through all of it for the device's number. A device without its file it
# leaves out; here, all of them.
missing_device_files() {
    local status
    mkdir -p /run/away && mv /dev/infiniband/uverbs* /run/away/ || return
    shows '^transport +verbs +out: the kernel has the RDMA device rxe[0-9], but there is no /dev/infiniband/uverbs'
    status=$?
    mv /run/away/* /dev/infiniband/
    return "$status"
}

no_library_driver() {
    local status
    mount -t tmpfs none /etc/libibverbs.d || return
    shows '^transport +verbs +out: the kernel has the RDMA device rxe[0-9], but libibverbs does not show it'
    status=$?
    umount /etc/libibverbs.d
    return "$status"
}

tap_case every_port_is_listed_with_its_gids_and_the_chosen_one every_port_with_its_gids
tap_case a_port_without_carrier_is_out_until_it_returns a_down_port
tap_case a_port_without_an_address_is_out_until_it_has_one a_port_without_an_address
tap_case excluded_ports_and_gids_that_are_not_there_are_out_by_name settings
tap_case the_list_of_devices_gives_the_order the_order_of_the_setting
tap_case a_limit_of_locked_memory_is_named_and_the_number_it_asks_for_is_enough locked_memory
tap_case a_device_file_without_permission_is_named a_refused_device_file
tap_case missing_device_files_are_told_from_missing_devices missing_device_files
tap_case a_library_without_drivers_is_told_from_a_kernel_without_devices no_library_driver
tap_case afterwards_all_ports_are_there_again every_port_with_its_gids
tap_done
