/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out one call of NCCL's on the engine: device to pinned memory, the collective between
 * hosts, back.
 *
 * Every collective is elementwise along its count, so a call of any size goes through pinned memory
 * of a fixed size, chunk by chunk: the chunk of a buffer of several blocks (one per rank) is the
 * same range of each block. Two slots let a chunk come in while the one before crosses the network.
 */
#include "tools/preload/nccl/gpu.h"
#include "tools/preload/nccl/inside.h"

#include "core/err.h"
#include "lib/compress.h"

#include <time.h>

/* Blocks of count elements on each side of this rank. */
struct shape {
    unsigned in, out;
};

static struct shape shape_of(const struct shim_comm *comm, const struct shim_op *op)
{
    unsigned all = (unsigned)comm->size, root = comm->rank == op->root;

    switch (op->call) {
    case SL_NCCL_Reduce: return (struct shape){1, root};
    case SL_NCCL_ReduceScatter: return (struct shape){all, 1};
    case SL_NCCL_AllGather: return (struct shape){1, all};
    case SL_NCCL_Broadcast: return (struct shape){root, 1};
    case SL_NCCL_AlltoAll: return (struct shape){all, all};
    case SL_NCCL_Gather: return (struct shape){1, root ? all : 0};
    case SL_NCCL_Scatter: return (struct shape){root ? all : 0, 1};
    default: return (struct shape){1, 1};
    }
}

static int wait_for(struct shim_comm *comm, struct CUevent_st *event)
{
    struct timespec nap = {.tv_nsec = 2000};
    int result;

    while ((result = gpu.event_query(event)) == GPU_NOT_READY) {
        if (atomic_load(&comm->aborted))
            return sl_fail(-ECANCELED, "the communicator was aborted");
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 100000)
            nap.tv_nsec *= 2;
    }
    return gpu_check(result, "finish a copy");
}

struct chunk {
    size_t first, count; /* elements, of each block */
};

static int copy_in(struct shim_comm *comm, const struct shim_op *op, const struct shim_slot *slot,
                   struct shape shape, struct chunk chunk)
{
    size_t size = sluice_dtype_size(op->type), len = chunk.count * size;
    int result = 0;

    for (unsigned block = 0; block < shape.in && result == 0; block++)
        result =
            gpu.to_host(slot->in + block * len, op->in + (block * op->count + chunk.first) * size,
                        len, comm->in_stream);
    if (result == 0)
        result = gpu.event_record(slot->copied_in, comm->in_stream);
    return gpu_check(result, "copy from the device");
}

static int copy_out(struct shim_comm *comm, const struct shim_op *op, struct shim_slot *slot,
                    struct shape shape, struct chunk chunk)
{
    size_t size = sluice_dtype_size(op->type), len = chunk.count * size;
    int result = 0;

    for (unsigned block = 0; block < shape.out && result == 0; block++)
        result = gpu.to_device(op->out + (block * op->count + chunk.first) * size,
                               slot->out + block * len, len, comm->out_stream);
    if (result == 0)
        result = gpu.event_record(slot->copied_out, comm->out_stream);
    slot->busy = result == 0;
    return gpu_check(result, "copy to the device");
}

static int collect(struct shim_comm *comm, const struct shim_op *op, const struct shim_slot *slot,
                   struct chunk chunk)
{
    struct sluice_comm *engine = comm->engine;
    size_t count = chunk.count;

    sl_compression_of(
        engine, (const void *)(uintptr_t)(op->in + chunk.first * sluice_dtype_size(op->type)));
    switch (op->call) {
    case SL_NCCL_AllReduce:
        return sluice_allreduce(engine, slot->in, slot->out, count, op->type, op->op, NULL);
    case SL_NCCL_Reduce:
        return sluice_reduce(engine, slot->in, slot->out, count, op->type, op->op, op->root, NULL);
    case SL_NCCL_ReduceScatter:
        return sluice_reduce_scatter(engine, slot->in, slot->out, count, op->type, op->op, NULL);
    case SL_NCCL_AllGather:
        return sluice_all_gather(engine, slot->in, slot->out, count, op->type, NULL);
    case SL_NCCL_Broadcast:
        return sluice_broadcast(engine, slot->in, slot->out, count, op->type, op->root, NULL);
    case SL_NCCL_AlltoAll:
        return sluice_all_to_all(engine, slot->in, slot->out, count, op->type, NULL);
    case SL_NCCL_Gather:
        return sluice_gather(engine, slot->in, slot->out, count, op->type, op->root, NULL);
    case SL_NCCL_Scatter:
        return sluice_scatter(engine, slot->in, slot->out, count, op->type, op->root, NULL);
    default: return sl_fail(-EINVAL, "call %d is none that the engine takes", (int)op->call);
    }
}

static struct chunk chunk_at(const struct shim_op *op, size_t first, size_t most)
{
    return (struct chunk){first, op->count - first < most ? op->count - first : most};
}

int shim_work(struct shim_comm *comm, const struct shim_op *op, struct CUevent_st *ready)
{
    struct shape shape = shape_of(comm, op);
    /* The same on all ranks, so not by this rank's shape. */
    bool blocks = op->call != SL_NCCL_AllReduce && op->call != SL_NCCL_Reduce &&
                  op->call != SL_NCCL_Broadcast;
    size_t most =
        SHIM_CHUNK_BYTES / sluice_dtype_size(op->type) / (blocks ? (size_t)comm->size : 1);
    unsigned number = 0;
    int status = gpu_check(gpu.stream_wait_event(comm->in_stream, ready, 0), "wait for a stream");

    if (status == 0)
        status = copy_in(comm, op, &comm->slots[0], shape, chunk_at(op, 0, most));
    for (size_t first = 0; first < op->count && status == 0; first += most, number++) {
        struct shim_slot *slot = &comm->slots[number % 2], *other = &comm->slots[(number + 1) % 2];

        if (first + most < op->count)
            status = copy_in(comm, op, other, shape, chunk_at(op, first + most, most));
        if (status == 0)
            status = wait_for(comm, slot->copied_in);
        if (status == 0 && slot->busy)
            status = wait_for(comm, slot->copied_out);
        if (status == 0)
            status = collect(comm, op, slot, chunk_at(op, first, most));
        if (status == 0)
            status = copy_out(comm, op, slot, shape, chunk_at(op, first, most));
    }
    for (unsigned i = 0; i < 2 && status == 0; i++)
        if (comm->slots[i].busy)
            status = wait_for(comm, comm->slots[i].copied_out);
    return status;
}
