#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TLS whose records the kernel makes, of a kernel that can: what no container's kernel promises to have.
# usage: 80_kernel_tls.sh BUILD
# limit: 600 s
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/vm/network.sh
. "$here/../network.sh"

unit=$build/tests/unit/tcp
[[ -x $unit/tcp_test_tls_kernel ]] || tap_skip_all "this build has no TLS (libssl-dev)"
dir=$(mktemp -d)
export SLUICE_INTERFACE=lo SLUICE_SECRET=only-for-this-test SLUICE_TCP_TLS=on SLUICE_TCP_TLS_RECORDS=kernel
bench=("$build/tools/bench/sluice-bench" -n 2 -t tcp -i 2 -w 1)

# sealed: how many directions of connections the kernel has sealed so far.
sealed() { awk '$1 == "TlsTxSw" { print $2 }' /proc/net/tls_stat; }

# Before the module is there: refused by name, or done without.
without_it() {
    ! grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp || { echo "the module is there already"; return 1; }
    local loader
    read -r loader </proc/sys/kernel/modprobe
    echo /nowhere >/proc/sys/kernel/modprobe # root's sockets would have it loaded
    done_without
    local status=$?
    echo "$loader" >/proc/sys/kernel/modprobe
    return "$status"
}

done_without() {
    "${bench[@]}" -b 8 -e 8 >"$dir/out" 2>&1 && return 1
    grep -q 'this kernel has no TLS .*modprobe tls' "$dir/out" || { cat "$dir/out"; return 1; }
    SLUICE_TCP_TLS_RECORDS=auto SLUICE_LOG=tcp:info "${bench[@]}" -b 8 -e 8 >"$dir/out" 2>&1 &&
        grep -q 'TLS records are made in user space: this kernel has no TLS' "$dir/out" &&
        grep -q 'TLS 1.3 [^ ]*$' "$dir/out" || { cat "$dir/out"; return 1; }
}

unit_tests() { timeout -k 5 200 "$unit/tcp_test_tls_kernel" machine; }

# Whose bytes somebody between the ends changes: one that the kernel seals and one of ours, in turn.
changed_on_the_way() { timeout -k 5 250 "$unit/tcp_test_secure" epoll kernel user 8; }

collectives() {
    local before
    before=$(sealed)
    SLUICE_LOG=tcp:info timeout -k 5 120 "${bench[@]}" -C all -b 8 -e 256k -f 32 >"$dir/out" 2>&1 &&
        grep -q '^# Out of bounds values : 0 OK$' "$dir/out" && grep -q 'TLS 1.3 .* in the kernel' "$dir/out" &&
        (($(sealed) - before >= 4)) || { cat "$dir/out"; return 1; }
}

plugin() {
    local before
    before=$(sealed)
    SLUICE_TRANSPORT=tcp timeout -k 5 250 "$build/tools/nccl-driver/nccl_driver" --place processes --api 11 --call-ms 20000 \
        --deadline-ms 60000 --case "$1" "$build/tools/nccl/libnccl-net-sluice.so" &&
        (($(sealed) - before >= 4)) || { echo "the kernel has sealed $(($(sealed) - before)) directions"; return 1; }
}

tap_case a_kernel_without_it_is_named without_it
modprobe tls || tap_skip_all "this kernel has no module tls"
tap_case records_of_the_kernel_and_ours_understand_each_other unit_tests
tap_case a_changed_byte_ends_the_connection changed_on_the_way
tap_case collectives_over_it collectives
tap_case nccl_over_it plugin 'windows*'
tap_case what_nccl_sent_arrives_though_the_sender_closes plugin 'what_is_sent*'
rm -rf "$dir"
tap_done
