/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the engine's communicator beside a real one. The ranks find each other through the real
 * one, which is the only thing that they are known to share, and agree through it whether all of
 * them have an engine: else none uses it.
 */
#include "tools/preload/engine.h"
#include "tools/preload/nccl/gpu.h"
#include "tools/preload/nccl/inside.h"
#include "tools/preload/nccl/next.h"
#include "tools/preload/nccl/rules.h"

#include "core/clock.h"
#include "core/err.h"

#include <stdio.h>
#include <time.h>

#define EXCHANGE_NS UINT64_C(60000000000)
#define NCCL_U8 1

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static int settle(struct shim_comm *comm, uint64_t deadline)
{
    enum nccl_result state = NCCL_IN_PROGRESS;
    int result = GPU_NOT_READY;

    while (nccl.CommGetAsyncError(comm->real, &state) == NCCL_SUCCESS &&
           state == NCCL_IN_PROGRESS && sl_now(&sl_clock_monotonic) < deadline &&
           !atomic_load(&comm->aborted))
        nap();
    while (state == NCCL_SUCCESS && (result = gpu.stream_query(comm->in_stream)) == GPU_NOT_READY &&
           sl_now(&sl_clock_monotonic) < deadline && !atomic_load(&comm->aborted))
        nap();
    if (atomic_load(&comm->aborted))
        return sl_fail(-ECANCELED, "the communicator was aborted");
    if (state != NCCL_SUCCESS || result != 0)
        return sl_fail(-ETIMEDOUT,
                       "the ranks of a communicator did not all answer within %d s: is "
                       "SLUICE_PRELOAD_NCCL set on all of them?",
                       (int)(EXCHANGE_NS / 1000000000));
    return 0;
}

/* Every rank's len bytes, in order of ranks, over the real communicator. */
static int exchange(struct shim_comm *comm, const void *in, void *out, size_t len)
{
    size_t all = (size_t)comm->size * len;
    uint64_t device;
    int status = gpu_check(gpu.alloc(&device, len + all), "allocate memory of the device");
    enum nccl_result result;

    if (status != 0)
        return status;
    status = gpu_check(gpu.to_device(device, in, len, comm->in_stream), "copy to the device");
    if (status == 0) {
        result = nccl.AllGather((void *)(uintptr_t)device, (void *)(uintptr_t)(device + len), len,
                                NCCL_U8, comm->real, comm->in_stream);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            status = sl_fail(-EIO, "NCCL's own all_gather, over which ranks meet, ended with %d",
                             (int)result);
    }
    if (status == 0)
        status =
            gpu_check(gpu.to_host(out, device + len, all, comm->in_stream), "copy to the host");
    if (status == 0)
        status = settle(comm, sl_now(&sl_clock_monotonic) + EXCHANGE_NS);
    /* What has not ended may still write there. */
    if (status == 0)
        gpu.free(device);
    return status;
}

static int make_slots(struct shim_comm *comm)
{
    int result = gpu.alloc_host((void **)&comm->pinned, 4 * SHIM_CHUNK_BYTES, GPU_HOST_MAPPED);

    for (unsigned i = 0; i < 2 && result == 0; i++) {
        comm->slots[i].in = comm->pinned + 2 * i * SHIM_CHUNK_BYTES;
        comm->slots[i].out = comm->slots[i].in + SHIM_CHUNK_BYTES;
        result = gpu.event_create(&comm->slots[i].copied_in, GPU_EVENT_QUIET);
        if (result == 0)
            result = gpu.event_create(&comm->slots[i].copied_out, GPU_EVENT_QUIET);
    }
    return gpu_check(result, "pin memory for copies");
}

static int make_queue(struct shim_comm *comm)
{
    int result = 0;

    if (shim_flag_get(&comm->flag) != 0)
        return -ENOMEM;
    comm->has_flag = true;
    comm->issued = comm->done = atomic_load(comm->flag.number);
    for (unsigned i = 0; i < SHIM_OPS && result == 0; i++)
        result = gpu.event_create(&comm->ready[i], GPU_EVENT_QUIET);
    return gpu_check(result, "make events");
}

static int make_streams(struct shim_comm *comm)
{
    int result = gpu.use_context(comm->context);

    if (result == 0)
        result = gpu.stream_create(&comm->in_stream, GPU_STREAM_NON_BLOCKING);
    if (result == 0)
        result = gpu.stream_create(&comm->out_stream, GPU_STREAM_NON_BLOCKING);
    return gpu_check(result, "make streams");
}

static int swap(void *arg, const void *in, size_t len, void *out)
{
    struct shim_comm *comm = arg;
    int status = exchange(comm, in, out, len);

    comm->lost |= status != 0;
    return status;
}

/* What NCCL's ranks wait for is up to the program, for any time: its own deadline ends it. */
static int join(struct shim_comm *comm, bool ready)
{
    struct sl_preload_peers peers = {.rank = comm->rank,
                                     .size = comm->size,
                                     .arg = comm,
                                     .allgather = swap,
                                     .facts = ready ? nccl_rules_hash() : 0};
    char why[256] = "";
    int status;

    if (!ready)
        snprintf(why, sizeof(why), "%s", sluice_last_error());
    status = sl_preload_comm_create(&peers, &comm->engine);
    if (!ready) /* the others had to hear of it; the reason is ours */
        return sl_fail(-ENOTSUP, "%s", why);
    if (status == 0 &&
        sluice_register(comm->engine, comm->pinned, 4 * SHIM_CHUNK_BYTES, &comm->registered) != 0)
        comm->registered = NULL; /* harmless: transports copy or register by themselves */
    return status;
}

bool shim_make(struct shim_comm *comm)
{
    int status = make_streams(comm);

    if (status == 0)
        status = join(comm, make_slots(comm) == 0 && make_queue(comm) == 0);
    else
        comm->lost = true;
    if (status == 0) {
        atomic_store(&comm->state, SHIM_READY);
        return true;
    }
    nccl_host->note(nccl_host, sluice_last_error());
    /* Without an answer of the others nobody knows what they do: the program has to hear of it. */
    if (comm->lost)
        shim_break(comm, sluice_last_error());
    else
        atomic_store(&comm->state, SHIM_PASSING);
    return false;
}

void shim_unmake(struct shim_comm *comm, struct sluice_comm *engine)
{
    if (engine != NULL) {
        sluice_deregister(engine, comm->registered);
        sluice_comm_destroy(engine);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (comm->slots[i].copied_in != NULL)
            gpu.event_destroy(comm->slots[i].copied_in);
        if (comm->slots[i].copied_out != NULL)
            gpu.event_destroy(comm->slots[i].copied_out);
    }
    for (unsigned i = 0; i < SHIM_OPS; i++)
        if (comm->ready[i] != NULL)
            gpu.event_destroy(comm->ready[i]);
    if (comm->in_stream != NULL)
        gpu.stream_destroy(comm->in_stream);
    if (comm->out_stream != NULL)
        gpu.stream_destroy(comm->out_stream);
    if (comm->pinned != NULL)
        gpu.free_host(comm->pinned);
}
