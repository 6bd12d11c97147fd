/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's profiler interface, versions 5 (NCCL 2.28 and later), 6 (2.29) and 7 (2.31): since 4,
 * calls of the program; since 6, copy engines; since 7, the user's tag of a call, and phases of
 * kernels.
 *
 * A version moves nothing that was there before it: what came with 6 or 7 says so, and is nobody's
 * to read in an event of an earlier one.
 */
#ifndef SL_NCCL_ABI_PROFILER_V5_H
#define SL_NCCL_ABI_PROFILER_V5_H

#include "tools/nccl/abi_profiler.h"

#include <stdbool.h>
#include <sys/types.h>

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
            uint64_t tag; /* v7: the user's, 0: none */
        } coll_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            void *stream;
            bool captured;
            uint64_t tag; /* v7 */
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
            const char *kernel; /* v7, as those below: variant */
            bool symmetric;     /* its memory is */
            uint64_t tag;
        } coll;
        struct {
            const char *func;
            void *buf;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
            void *parent_group;
            uint64_t tag; /* v7 */
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
        struct { /* v6, as the two below */
            uint64_t seq;
            const char *func;
            const void *in;
            void *out;
            size_t count;
            int root;
            const char *datatype;
            const char *sync;
            bool sync_inside;
            uint32_t batch_size;
            uint32_t batches;
            uint32_t ce_seq;
            void *stream;
            uint64_t tag; /* v7 */
        } ce_coll;
        struct {
            bool complete;
            int ranks;
        } ce_sync;
        struct {
            int ops;
            size_t bytes;
            bool sync_inside;
        } ce_batch;
        struct { /* v7 */
            uint8_t channel;
            uint8_t phase; /* 0 ranks meet, 1 the work, 2 ranks meet again */
            const char *name;
            uint64_t gpu_ns;
        } kernel_phase;
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

static_assert(sizeof(struct sl_nccl_profile_event_v5) == 136, "frozen; 112 before v7");
static_assert(offsetof(struct sl_nccl_profile_event_v5, parent) == 8, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, rank) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.count) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.proto) == 96, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, p2p.peer) == 56, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, proxy_op.is_send) == 44, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, kernel_ch.gpu_ns) == 32, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll_api.tag) == 72, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, p2p_api.tag) == 64, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.kernel) == 112, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.symmetric) == 120, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, coll.tag) == 128, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, p2p.tag) == 72, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, ce_coll.tag) == 112, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, kernel_phase.phase) == 25, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, kernel_phase.name) == 32, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, kernel_phase.gpu_ns) == 40, "frozen");
static_assert(sizeof(struct sl_nccl_profiler_v5) == 48, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, ce_coll.batch_size) == 92, "frozen");
static_assert(offsetof(struct sl_nccl_profile_event_v5, ce_batch.bytes) == 32, "frozen");

#endif
