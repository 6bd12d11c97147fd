/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in the place of NCCL's functions: collectives that go to the engine or on to NCCL,
 * and the lives of communicators, which NCCL always makes and ends itself.
 */
#include "tools/preload/nccl/calls.h"

#include "tools/preload/nccl/comm.h"
#include "tools/preload/nccl/gpu.h"
#include "tools/preload/nccl/group.h"
#include "tools/preload/nccl/next.h"
#include "tools/preload/nccl/rules.h"

/* ---- collectives ---- */

static bool has_blocks(enum sl_nccl_call call)
{
    return call != SL_NCCL_AllReduce && call != SL_NCCL_Reduce && call != SL_NCCL_Broadcast &&
           call != SL_NCCL_Bcast;
}

/* What NCCL itself has to refuse, with its own words. */
static bool is_wrong(const struct shim_comm *comm, const struct shim_op *op)
{
    return op->root < 0 || op->root >= shim_comm_size(comm) || (op->in == 0 && op->out == 0);
}

static struct shim_comm *pass(enum sl_nccl_call call, enum sl_preload_why why)
{
    sl_preload_passed(nccl_host, call, why);
    return NULL;
}

/* The communicator whose engine takes the call, or NULL: it is NCCL's. By what is the same on all
 * ranks only: the communicator, the call, type, operator and size. (A program that captures does so
 * on all ranks.) */
static struct shim_comm *taker(struct nccl_comm *real, const struct shim_op *op)
{
    struct shim_comm *comm = shim_comm_find(real);
    int capturing = 0;
    size_t bytes;

    if (comm == NULL || !shim_comm_has_engine(comm))
        return pass(op->call, SL_WHY_ENGINE);
    if ((unsigned)op->type >= NCCL_TYPES)
        return pass(op->call, SL_WHY_TYPE);
    if ((unsigned)op->op >= NCCL_OPERATORS)
        return pass(op->call, SL_WHY_OP);
    bytes = op->count * sluice_dtype_size(op->type);
    if (has_blocks(op->call))
        bytes *= (size_t)shim_comm_size(comm);
    if (!nccl_rules_take(op->call, bytes))
        return pass(op->call, SL_WHY_SIZE);
    if (is_wrong(comm, op) || gpu.stream_is_capturing(op->stream, &capturing) != 0 ||
        capturing != 0)
        return pass(op->call, SL_WHY_FORM);
    return comm;
}

#define SHIM_OP(kind, ...)                                                                         \
    struct shim_op given = {.call = kind,                                                          \
                            .in = (uintptr_t)in,                                                   \
                            .out = (uintptr_t)out,                                                 \
                            .count = count,                                                        \
                            .type = (enum sluice_dtype)type,                                       \
                            .stream = stream,                                                      \
                            __VA_ARGS__};                                                          \
    struct shim_comm *by = taker(comm, &given)

enum nccl_result shim_AllReduce(const void *in, void *out, size_t count, int type, int op,
                                struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_AllReduce, .op = (enum sluice_op)op);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.AllReduce(in, out, count, type, op, comm, stream);
}

enum nccl_result shim_Reduce(const void *in, void *out, size_t count, int type, int op, int root,
                             struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_Reduce, .op = (enum sluice_op)op, .root = root);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.Reduce(in, out, count, type, op, root, comm, stream);
}

enum nccl_result shim_ReduceScatter(const void *in, void *out, size_t count, int type, int op,
                                    struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_ReduceScatter, .op = (enum sluice_op)op);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.ReduceScatter(in, out, count, type, op, comm, stream);
}

enum nccl_result shim_AllGather(const void *in, void *out, size_t count, int type,
                                struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_AllGather);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.AllGather(in, out, count, type, comm, stream);
}

enum nccl_result shim_Broadcast(const void *in, void *out, size_t count, int type, int root,
                                struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_Broadcast, .root = root);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.Broadcast(in, out, count, type, root, comm, stream);
}

enum nccl_result shim_Bcast(void *in, size_t count, int type, int root, struct nccl_comm *comm,
                            struct CUstream_st *stream)
{
    void *out = in;
    SHIM_OP(SL_NCCL_Broadcast, .root = root);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.Bcast(in, count, type, root, comm, stream);
}

enum nccl_result shim_AlltoAll(const void *in, void *out, size_t count, int type,
                               struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_AlltoAll);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.AlltoAll(in, out, count, type, comm, stream);
}

enum nccl_result shim_Gather(const void *in, void *out, size_t count, int type, int root,
                             struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_Gather, .root = root);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.Gather(in, out, count, type, root, comm, stream);
}

enum nccl_result shim_Scatter(const void *in, void *out, size_t count, int type, int root,
                              struct nccl_comm *comm, struct CUstream_st *stream)
{
    SHIM_OP(SL_NCCL_Scatter, .root = root);

    return by != NULL ? shim_group_post(by, &given)
                      : nccl.Scatter(in, out, count, type, root, comm, stream);
}

/* ---- communicators ---- */

enum nccl_result shim_CommInitRank(struct nccl_comm **out, int ranks, struct nccl_unique_id id,
                                   int rank)
{
    return shim_group_made(out, nccl.CommInitRank(out, ranks, id, rank));
}

enum nccl_result shim_CommInitRankConfig(struct nccl_comm **out, int ranks,
                                         struct nccl_unique_id id, int rank, void *config)
{
    return shim_group_made(out, nccl.CommInitRankConfig(out, ranks, id, rank, config));
}

enum nccl_result shim_CommInitRankScalable(struct nccl_comm **out, int ranks, int rank, int ids,
                                           struct nccl_unique_id *id, void *config)
{
    return shim_group_made(out, nccl.CommInitRankScalable(out, ranks, rank, ids, id, config));
}

/* Not taken: one thread would have to be all ranks, each with a device of its own. */
enum nccl_result shim_CommInitAll(struct nccl_comm **out, int devices, const int *list)
{
    return nccl.CommInitAll(out, devices, list);
}

enum nccl_result shim_CommSplit(struct nccl_comm *comm, int color, int key, struct nccl_comm **out,
                                void *config)
{
    return shim_group_made(out, nccl.CommSplit(comm, color, key, out, config));
}

enum nccl_result shim_CommShrink(struct nccl_comm *comm, int *excluded, int count,
                                 struct nccl_comm **out, void *config, int flags)
{
    struct shim_comm *parent = shim_comm_find(comm);

    if (parent != NULL && (flags & NCCL_SHRINK_ABORT) != 0)
        shim_comm_abort(parent);
    return shim_group_made(out, nccl.CommShrink(comm, excluded, count, out, config, flags));
}

enum nccl_result shim_CommRevoke(struct nccl_comm *comm, int flags)
{
    struct shim_comm *ours = shim_comm_find(comm);

    if (ours != NULL)
        shim_comm_abort(ours);
    return nccl.CommRevoke(comm, flags);
}

enum nccl_result shim_CommFinalize(struct nccl_comm *comm)
{
    struct shim_comm *ours = shim_comm_find(comm);

    if (ours != NULL)
        shim_comm_finalize(ours);
    return nccl.CommFinalize(comm);
}

enum nccl_result shim_CommDestroy(struct nccl_comm *comm)
{
    shim_comm_destroy(shim_comm_take(comm));
    return nccl.CommDestroy(comm);
}

/* Ours first: its thread may be asking the real one for its state. */
enum nccl_result shim_CommAbort(struct nccl_comm *comm)
{
    struct shim_comm *ours = shim_comm_take(comm);

    if (ours != NULL)
        shim_comm_abort(ours);
    shim_comm_destroy(ours);
    return nccl.CommAbort(comm);
}

enum nccl_result shim_CommGetAsyncError(struct nccl_comm *comm, enum nccl_result *error)
{
    enum nccl_result result = nccl.CommGetAsyncError(comm, error);
    struct shim_comm *ours = shim_comm_find(comm);

    if (result == NCCL_SUCCESS && ours != NULL)
        *error = shim_comm_state(ours, *error);
    return result;
}

const char *shim_GetLastError(struct nccl_comm *comm)
{
    struct shim_comm *ours = shim_comm_find(comm);
    const char *error = ours != NULL ? shim_comm_error(ours) : NULL;

    if (error != NULL)
        return error;
    return nccl.GetLastError != NULL ? nccl.GetLastError(comm) : "";
}
