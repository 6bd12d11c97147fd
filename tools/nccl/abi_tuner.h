/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's tuner interface, versions 3 to 6 (NCCL 2.22 to 2.30). A table of costs, in microseconds
 * per algorithm and protocol, is handed over before each collective; the lowest wins.
 */
#ifndef SL_NCCL_ABI_TUNER_H
#define SL_NCCL_ABI_TUNER_H

#include "tools/nccl/abi.h"

enum sl_nccl_algo {
    SL_NCCL_ALGO_TREE = 0,
    SL_NCCL_ALGO_RING = 1,
    SL_NCCL_ALGO_COLLNET_DIRECT = 2,
    SL_NCCL_ALGO_COLLNET_CHAIN = 3,
    SL_NCCL_ALGO_NVLS = 4,
    SL_NCCL_ALGO_NVLS_TREE = 5,
    SL_NCCL_ALGO_PAT = 6,
    SL_NCCL_ALGOS = 7
};

enum sl_nccl_proto {
    SL_NCCL_PROTO_LL = 0,
    SL_NCCL_PROTO_LL128 = 1,
    SL_NCCL_PROTO_SIMPLE = 2,
    SL_NCCL_PROTOS = 3
};

enum sl_nccl_func {
    SL_NCCL_BROADCAST = 0,
    SL_NCCL_REDUCE = 1,
    SL_NCCL_ALL_GATHER = 2,
    SL_NCCL_REDUCE_SCATTER = 3,
    SL_NCCL_ALL_REDUCE = 4
};

/* An entry of the table that NCCL itself cannot use; a cost of 0 wins over all others. */
#define SL_NCCL_COST_IGNORE (-1.0f)

struct sl_nccl_nvlink_domains {
    int count, ranks_min, ranks_max;
};

/* v5 and later: NCCL's own model, which init() may change. Ours never does. */
struct sl_nccl_tuner_constants {
    double base_latency[SL_NCCL_ALGOS][SL_NCCL_PROTOS];
    double hw_latency[3][SL_NCCL_ALGOS][SL_NCCL_PROTOS];
    double ll_bw_max[4][3];
    double ring_ll128_bw_max[4][3];
    double tree_ll128_bw_max[4][3];
    double tree_bw_max[4][3];
    double nvls_tree_bw_max[4][3];
};

/*
 * costs is float[algos][protos] in spite of its type: one row of protos after the other. Anything
 * but success leaves the collective to NCCL, as does leaving everything as it is.
 */
struct sl_nccl_tuner_v3 {
    const char *name;
    enum sl_nccl_result (*init)(size_t ranks, size_t nodes, sl_nccl_logger *logger, void **ctx);
    enum sl_nccl_result (*choose)(void *ctx, enum sl_nccl_func func, size_t bytes, int ops,
                                  float **costs, int algos, int protos, int *channels);
    enum sl_nccl_result (*finalize)(void *ctx);
};

/* reg_buf: the program's buffers can be registered. */
struct sl_nccl_tuner_v4 {
    const char *name;
    enum sl_nccl_result (*init)(size_t ranks, size_t nodes, sl_nccl_logger *logger, void **ctx);
    enum sl_nccl_result (*choose)(void *ctx, enum sl_nccl_func func, size_t bytes, int ops,
                                  float **costs, int algos, int protos, int reg_buf, int *channels);
    enum sl_nccl_result (*finalize)(void *ctx);
};

/* Version 5 ends before chunk, which changes the size of the pieces that NCCL chose; it may be
 * NULL, and NCCL clamps the result. */
struct sl_nccl_tuner_v6 {
    const char *name;
    enum sl_nccl_result (*init)(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes,
                                sl_nccl_logger *logger, struct sl_nccl_nvlink_domains *domains,
                                struct sl_nccl_tuner_constants *constants);
    enum sl_nccl_result (*choose)(void *ctx, enum sl_nccl_func func, size_t bytes, int ops,
                                  float **costs, int algos, int protos, int reg_buf, int *channels);
    enum sl_nccl_result (*finalize)(void *ctx);
    enum sl_nccl_result (*chunk)(void *ctx, enum sl_nccl_func func, size_t bytes, int algo,
                                 int proto, int channels, size_t *chunk_bytes);
};

static_assert(sizeof(struct sl_nccl_nvlink_domains) == 12, "frozen");
static_assert(sizeof(struct sl_nccl_tuner_constants) == (84 + 60) * 8, "frozen");
static_assert(offsetof(struct sl_nccl_tuner_constants, ll_bw_max) == 84 * 8, "frozen");
static_assert(sizeof(struct sl_nccl_tuner_v3) == 32, "frozen");
static_assert(sizeof(struct sl_nccl_tuner_v4) == 32, "frozen");
static_assert(offsetof(struct sl_nccl_tuner_v6, chunk) == 32, "frozen");
static_assert(sizeof(struct sl_nccl_tuner_v6) == 40, "frozen");

#endif
