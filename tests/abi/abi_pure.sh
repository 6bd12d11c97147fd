#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What runs in the simulator is handed clock, chance and settings; its objects name nothing that fetches them.
# usage: abi_pure.sh ARCHIVE ARCHIVE_OF_TESTING ARCHIVE_OF_DPDK_PROTO [ARCHIVE_OF_MONITOR]
set -u
banned='clock_gettime|gettimeofday|time|clock|nanosleep|clock_nanosleep|usleep|sleep|rand|rand_r|random|srandom|drand48|getrandom|getentropy|getenv|secure_getenv|environ'
pure() {
    nm -A "$@" "$archive" | grep -E ':[^:]*(schedules|kernels|collectives)_[a-z0-9_]+\.c\.o:'
    nm -A "$@" "$testing"
}
archive=$1 testing=$2 packets=$3 agent=${4-}
found=$(pure --undefined-only | awk '{sub(/@.*/, "", $NF); print $1, $NF}' | grep -E " ($banned)\$")
# multipath/ has no I/O either, and calls nobody above or beside it: neither libibverbs nor a transport.
outside="$banned|ibv_.*|socket|connect|send|sendmsg|recv|recvmsg|read|write|epoll_.*|sl_(verbs|tcp|shm|rail|ibv)_.*"
lanes() {
    nm -A --undefined-only "$archive" | grep -E ':[^:]*multipath_[a-z0-9_]+\.c\.o:' |
        awk '{sub(/@.*/, "", $NF); print $1, $NF}'
}
# What the node agent decides by is handed what was read: a day is replayed in a second.
judges='api_request|async|check|condition|engine|gpu|isolate|isolate_kube_json|kmsg|link|metrics|nldev|path|pcie|port|process|proctext|queue|tcp'
monitor() {
    nm -A --undefined-only "$1" | grep -E "[:_/]($judges)\.c\.o:" | grep -v source_ | awk '{sub(/@.*/, "", $NF); print $1, $NF}'
}
# The protocol over packets has no memory of its own either, and needs no DPDK.
alone="$outside|malloc|calloc|realloc|free|aligned_alloc|posix_memalign|mmap|pthread_.*|rte_.*"
flows() {
    nm -A --undefined-only "$packets" | awk '{sub(/@.*/, "", $NF); print $1, $NF}'
}
echo 1..4
for object in collectives_exec schedules_ring kernels_reduce sim_net; do
    pure | grep -q "$object\.c\.o:" && continue
    echo "not ok 1 - objects of the simulator and the collectives are looked at"
    echo "# $object was not found in $archive, $testing"
    exit 0
done
if [ -n "$found" ]; then
    echo "not ok 1 - the simulator and the collectives fetch no clock, chance or environment"
    echo "$found" | sed 's/^/# /'
else
    echo "ok 1 - the simulator and the collectives fetch no clock, chance or environment"
fi
if ! lanes | grep -q 'multipath_fence\.c\.o:'; then
    echo "not ok 2 - multipath_fence was not found in $archive"
elif lanes | grep -qE " ($outside)\$"; then
    echo "not ok 2 - multipath/ has no I/O, clock or chance, and calls no transport"
    lanes | grep -E " ($outside)\$" | sed 's/^/# /'
else
    echo "ok 2 - multipath/ has no I/O, clock or chance, and calls no transport"
fi
if [ -z "$agent" ]; then
    echo "ok 3 - the rules of the node agent have no I/O, clock or chance # SKIP this build has no agent"
elif ! monitor "$agent" | grep -q 'condition\.c\.o:' || ! monitor "$agent" | grep -q 'port\.c\.o:'; then
    echo "not ok 3 - condition.c or port.c was not found in $agent"
elif monitor "$agent" | grep -qE " ($banned|open|openat|fopen|fopen64|socket|connect|send|sendmsg|recv|recvmsg|read|pread|write|epoll_.*|sqlite3_.*)\$"; then
    echo "not ok 3 - the rules of the node agent have no I/O, clock or chance"
    monitor "$agent" | grep -E " ($banned|open|openat|fopen|fopen64|socket|connect|send|sendmsg|recv|recvmsg|read|pread|write|epoll_.*|sqlite3_.*)\$" | sed 's/^/# /'
else
    echo "ok 3 - the rules of the node agent have no I/O, clock or chance"
fi
for object in proto_flow proto_recover cc_wheel; do
    nm -A --defined-only "$packets" | grep -q "$object\.c\.o:" && continue
    echo "not ok 4 - $object was not found in $packets"
    exit 0
done
if flows | grep -qE " ($alone)\$"; then
    echo "not ok 4 - dpdk/proto and dpdk/cc have no I/O, clock, chance, lock or memory of their own"
    flows | grep -E " ($alone)\$" | sed 's/^/# /'
else
    echo "ok 4 - dpdk/proto and dpdk/cc have no I/O, clock, chance, lock or memory of their own"
fi
