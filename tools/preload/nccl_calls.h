/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shim needs of NCCL's interface, so that it builds without NCCL: results, types, and the
 * calls that may be taken over. Numbers and layouts are NCCL's own; tests compare them with
 * <nccl.h> where that is installed.
 */
#ifndef SL_PRELOAD_NCCL_CALLS_H
#define SL_PRELOAD_NCCL_CALLS_H

#include <stddef.h>

struct nccl_comm; /* NCCL's; never looked into */
struct CUstream_st;

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

/* Types 0 to 9 and operators 0 to 4 are enum sluice_dtype and enum sluice_op. */
enum { NCCL_TYPES = 10, NCCL_OPERATORS = 5 };
enum { NCCL_SHRINK_ABORT = 1 };

/* Passed by value. */
struct nccl_unique_id {
    char bytes[128];
};

#define NCCL_ARGS_COLLECTIVE (in, out, count, type, comm, stream)
#define NCCL_ARGS_REDUCTION (in, out, count, type, op, comm, stream)
#define NCCL_ARGS_ROOTED (in, out, count, type, root, comm, stream)

/* X(call, result, parameters, arguments) */
#define SL_NCCL_CALLS(X)                                                                           \
    X(AllReduce, enum nccl_result,                                                                 \
      (const void *in, void *out, size_t count, int type, int op, struct nccl_comm *comm,          \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_REDUCTION)                                                                         \
    X(Reduce, enum nccl_result,                                                                    \
      (const void *in, void *out, size_t count, int type, int op, int root,                        \
       struct nccl_comm *comm, struct CUstream_st *stream),                                        \
      (in, out, count, type, op, root, comm, stream))                                              \
    X(ReduceScatter, enum nccl_result,                                                             \
      (const void *in, void *out, size_t count, int type, int op, struct nccl_comm *comm,          \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_REDUCTION)                                                                         \
    X(AllGather, enum nccl_result,                                                                 \
      (const void *in, void *out, size_t count, int type, struct nccl_comm *comm,                  \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_COLLECTIVE)                                                                        \
    X(Broadcast, enum nccl_result,                                                                 \
      (const void *in, void *out, size_t count, int type, int root, struct nccl_comm *comm,        \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_ROOTED)                                                                            \
    X(Bcast, enum nccl_result,                                                                     \
      (void *buffer, size_t count, int type, int root, struct nccl_comm *comm,                     \
       struct CUstream_st *stream),                                                                \
      (buffer, count, type, root, comm, stream))                                                   \
    X(AlltoAll, enum nccl_result,                                                                  \
      (const void *in, void *out, size_t count, int type, struct nccl_comm *comm,                  \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_COLLECTIVE)                                                                        \
    X(Gather, enum nccl_result,                                                                    \
      (const void *in, void *out, size_t count, int type, int root, struct nccl_comm *comm,        \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_ROOTED)                                                                            \
    X(Scatter, enum nccl_result,                                                                   \
      (const void *in, void *out, size_t count, int type, int root, struct nccl_comm *comm,        \
       struct CUstream_st *stream),                                                                \
      NCCL_ARGS_ROOTED)                                                                            \
    X(GroupStart, enum nccl_result, (void), ())                                                    \
    X(GroupEnd, enum nccl_result, (void), ())                                                      \
    X(CommInitRank, enum nccl_result,                                                              \
      (struct nccl_comm * *out, int ranks, struct nccl_unique_id id, int rank),                    \
      (out, ranks, id, rank))                                                                      \
    X(CommInitRankConfig, enum nccl_result,                                                        \
      (struct nccl_comm * *out, int ranks, struct nccl_unique_id id, int rank, void *config),      \
      (out, ranks, id, rank, config))                                                              \
    X(CommInitRankScalable, enum nccl_result,                                                      \
      (struct nccl_comm * *out, int ranks, int rank, int ids, struct nccl_unique_id *id,           \
       void *config),                                                                              \
      (out, ranks, rank, ids, id, config))                                                         \
    X(CommInitAll, enum nccl_result, (struct nccl_comm * *out, int devices, const int *list),      \
      (out, devices, list))                                                                        \
    X(CommSplit, enum nccl_result,                                                                 \
      (struct nccl_comm * comm, int color, int key, struct nccl_comm **out, void *config),         \
      (comm, color, key, out, config))                                                             \
    X(CommShrink, enum nccl_result,                                                                \
      (struct nccl_comm * comm, int *excluded, int count, struct nccl_comm **out, void *config,    \
       int flags),                                                                                 \
      (comm, excluded, count, out, config, flags))                                                 \
    X(CommRevoke, enum nccl_result, (struct nccl_comm * comm, int flags), (comm, flags))           \
    X(CommFinalize, enum nccl_result, (struct nccl_comm * comm), (comm))                           \
    X(CommDestroy, enum nccl_result, (struct nccl_comm * comm), (comm))                            \
    X(CommAbort, enum nccl_result, (struct nccl_comm * comm), (comm))                              \
    X(CommGetAsyncError, enum nccl_result, (struct nccl_comm * comm, enum nccl_result * error),    \
      (comm, error))                                                                               \
    X(GetLastError, const char *, (struct nccl_comm * comm), (comm))

#define SL_NCCL_NUMBER(call, ret, params, args) SL_NCCL_##call,
enum sl_nccl_call { SL_NCCL_CALLS(SL_NCCL_NUMBER) SL_NCCL_CALL_COUNT };
#undef SL_NCCL_NUMBER

#endif
