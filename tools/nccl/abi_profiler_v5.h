/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler interface, version 5 (NCCL 2.28 to 2.30): since 4, calls of the program. */
#ifndef SL_NCCL_ABI_PROFILER_V5_H
#define SL_NCCL_ABI_PROFILER_V5_H

#include "tools/nccl/abi_profiler.h"

#include <stdbool.h>
#include <sys/types.h>

#define SL_NCCL_PROFILER_V5_SYMBOL "ncclProfiler_v5"

/* Of a start. Borrowed for the call; texts live as long as the library. */
struct sl_nccl_profile_event_v5 {
    uint64_t type; /* enum sl_nccl_profile_kind */
    void *parent;  /* handle of the event that this one is part of */
    int rank;
    union {
        struct {
            bool captured; /* into a graph */
            int depth;
        } group_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool captured;
        } coll_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            void *stream;
            bool captured;
        } p2p_api;
        struct {
            void *stream;
        } kernel_launch;
        struct {
            uint64_t seq; /* counts calls of one function on one communicator */
            const char *func;
            const void *in;
            void *out;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels;
            uint8_t warps;
            const char *algo;
            const char *proto;
            void *parent_group;
        } coll;
        struct {
            const char *func;
            void *buf;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
            void *parent_group;
        } p2p;
        struct {
            pid_t pid; /* parent is of this process, when this is ours */
            uint8_t channel;
            int peer;
            int steps;
            int chunk_bytes;
            int is_send;
        } proxy_op;
        struct {
            int step;
        } proxy_step;
        struct {
            uint8_t channel;
            uint64_t gpu_ns;
        } kernel_ch;
        struct {
            int64_t id;
            void *data;
        } net_plugin;
    };
};

struct sl_nccl_profiler_v5 {
    const char *name;
    enum sl_nccl_result (*init)(void **ctx, uint64_t comm_id, int *mask, const char *comm_name,
                                int nodes, int ranks, int rank, sl_nccl_logger *logger);
    enum sl_nccl_result (*start)(void *ctx, void **event, struct sl_nccl_profile_event_v5 *what);
    enum sl_nccl_result (*stop)(void *event);
    enum sl_nccl_result (*state)(void *event, enum sl_nccl_profile_state state,
                                 union sl_nccl_profile_args *args);
    enum sl_nccl_result (*finalize)(void *ctx);
};

static_assert(sizeof(struct sl_nccl_profile_event_v5) == 112, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, parent) == 8, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, rank) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.count) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.proto) == 96, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, p2p.peer) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, proxy_op.is_send) == 44, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, kernel_ch.gpu_ns) == 32, "frozen");
static_assert(sizeof(struct sl_nccl_profiler_v5) == 48, "frozen");

#endif
