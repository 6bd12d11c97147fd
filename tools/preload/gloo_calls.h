/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gloo calls that may be taken over, by the names that the C++ ABI gives them: the same list in
 * the shim and in its gloo module. Each takes one reference to its options and returns nothing, or
 * throws.
 */
#ifndef SL_PRELOAD_GLOO_CALLS_H
#define SL_PRELOAD_GLOO_CALLS_H

#include <stdint.h>

#define SL_GLOO_PARAMS (uintptr_t options)
#define SL_GLOO_ARGS (options)

/* X(call, exported name) */
#define SL_GLOO_CALLS(X)                                                                           \
    X(allreduce, _ZN4gloo9allreduceERKNS_16AllreduceOptionsE)                                      \
    X(allgather, _ZN4gloo9allgatherERNS_16AllgatherOptionsE)                                       \
    X(allgatherv, _ZN4gloo10allgathervERNS_17AllgathervOptionsE)                                   \
    X(broadcast, _ZN4gloo9broadcastERNS_16BroadcastOptionsE)                                       \
    X(reduce, _ZN4gloo6reduceERNS_13ReduceOptionsE)                                                \
    X(gather, _ZN4gloo6gatherERNS_13GatherOptionsE)                                                \
    X(gatherv, _ZN4gloo7gathervERNS_14GathervOptionsE)                                             \
    X(scatter, _ZN4gloo7scatterERNS_14ScatterOptionsE)                                             \
    X(alltoall, _ZN4gloo8alltoallERNS_15AlltoallOptionsE)                                          \
    X(alltoallv, _ZN4gloo9alltoallvERNS_16AlltoallvOptionsE)                                       \
    X(barrier, _ZN4gloo7barrierERNS_14BarrierOptionsE)

#define SL_GLOO_NUMBER(call, symbol) SL_GLOO_##call,
enum sl_gloo_call { SL_GLOO_CALLS(SL_GLOO_NUMBER) SL_GLOO_CALL_COUNT };
#undef SL_GLOO_NUMBER

#endif
