#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What NCCL's plugins show and need: the tables that NCCL looks up and nothing else; libc; and they stay loaded.
# usage: abi_nccl.sh libnccl-net-sluice.so libnccl-env-sluice.so
set -uo pipefail
net=$1 env=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

exports() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort
}

expect() {
    local wanted=$1 library=$2
    diff <(tr ' ' '\n' <<<"$wanted" | sort) <(exports "$library")
}

net_tables() {
    expect "ncclNetPlugin_v6 ncclNetPlugin_v8 ncclNetPlugin_v9 ncclNetPlugin_v10 ncclNetPlugin_v11 ncclNetPlugin_v12 \
ncclProfiler_v4 ncclProfiler_v5 ncclProfiler_v6 ncclProfiler_v7 \
ncclTunerPlugin_v3 ncclTunerPlugin_v4 ncclTunerPlugin_v5 ncclTunerPlugin_v6" "$net"
}

env_tables() {
    expect "ncclEnvPlugin_v1 ncclEnvPlugin_v2" "$env"
}

need_libc_only() {
    local foreign
    foreign=$(readelf -dW "$net" "$env" | grep -F '(NEEDED)' | grep -oE '\[.*\]' |
        grep -vE '\[(libc\.so\.6|ld-linux.*|ld64\.so.*|libc\.musl.*)\]')
    [[ -z $foreign ]] || { echo "also needs:" "$foreign"; return 1; }
}

# NCCL closes a plugin while threads may still be inside, and keeps its texts.
stay_loaded() {
    [[ $(readelf -dW "$net" | grep -c NODELETE) == 1 && $(readelf -dW "$env" | grep -c NODELETE) == 1 ]]
}

know_no_cuda() {
    nm -D --undefined-only "$net" | grep -iE ' (cu[A-Z]|cuda|nccl|ibv_)' && return 1
    return 0
}

take_little_of_each_thread() {
    local size
    size=$(readelf -lW "$net" | awk '$1 == "TLS" { print $6 }')
    [[ -z $size || $((size)) -le 256 ]] || { echo "$((size)) bytes of static thread-local memory"; return 1; }
}

tap_case the_network_plugin_exports_its_tables_alone net_tables
tap_case the_environment_plugin_exports_its_tables_alone env_tables
tap_case both_need_libc_only need_libc_only
tap_case both_stay_loaded stay_loaded
tap_case neither_is_linked_to_cuda_or_rdma know_no_cuda
tap_case the_network_plugin_takes_little_static_thread_memory take_little_of_each_thread
tap_done
