/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler interface, version 4 (NCCL 2.27 to 2.30). */
#ifndef SL_NCCL_ABI_PROFILER_V4_H
#define SL_NCCL_ABI_PROFILER_V4_H

#include "tools/nccl/abi_profiler.h"

#include <stdbool.h>
#include <sys/types.h>

/* Of a start. Borrowed for the call; texts live as long as the library. */
struct sl_nccl_profile_event_v4 {
    uint8_t type; /* enum sl_nccl_profile_kind */
    void *parent; /* handle of the event that this one is part of */
    int rank;
    union {
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
        } coll;
        struct {
            const char *func;
            void *buf;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
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

struct sl_nccl_profiler_v4 {
    const char *name;
    enum sl_nccl_result (*init)(void **ctx, int *mask, const char *comm_name, uint64_t comm_id,
                                int nodes, int ranks, int rank, sl_nccl_logger *logger);
    enum sl_nccl_result (*start)(void *ctx, void **event, struct sl_nccl_profile_event_v4 *what);
    enum sl_nccl_result (*stop)(void *event);
    enum sl_nccl_result (*state)(void *event, enum sl_nccl_profile_state state,
                                 union sl_nccl_profile_args *args);
    enum sl_nccl_result (*finalize)(void *ctx);
};

static_assert(sizeof(struct sl_nccl_profile_event_v4) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, parent) == 8, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, rank) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, coll.count) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, coll.proto) == 96, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, p2p.peer) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, proxy_op.is_send) == 44, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v4, kernel_ch.gpu_ns) == 32, "frozen");
static_assert(sizeof(struct sl_nccl_profiler_v4) == 48, "frozen");

#endif
