/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls are on memory of a GPU, and when that is ready. */
#include "lib/device.h"

#include "gdr/gpu.h"
#include "lib/args.h"

#include <sluice/compress.h>

static bool has_none(const struct sl_call *call)
{
    return call->count == 0 && call->in_counts == NULL;
}

/* What a call reads on this rank, or writes; NULL: nothing. */
static const void *given(const struct sluice_comm *comm, const struct sl_call *call, const void *in)
{
    bool of_root = call->coll == SL_BROADCAST || call->coll == SL_SCATTER;

    return has_none(call) || (of_root && call->root != comm->rank) ? NULL : in;
}

static void *got(const struct sluice_comm *comm, const struct sl_call *call, void *out)
{
    bool of_root = call->coll == SL_REDUCE || call->coll == SL_GATHER;

    return has_none(call) || (of_root && call->root != comm->rank) ? NULL : out;
}

static bool is_gpu(const void *addr, struct sl_gpu_memory *out)
{
    return addr != NULL && sl_gpu_look(addr, out);
}

int sl_device_look(const struct sluice_comm *comm, struct sl_coding *coding, struct sl_call *call,
                   const void *in, void *out)
{
    struct sl_gpu_memory source, target;
    const void *from = given(comm, call, in), *to = got(comm, call, out);
    bool reads = is_gpu(from, &source), writes = is_gpu(to, &target);

    call->on_device = reads || writes;
    if (SL_LIKELY(!call->on_device))
        return 0;
    if ((from != NULL && !reads) || (to != NULL && !writes))
        return sl_fail(-EINVAL, "%s: the %s buffer is GPU memory, and the other is not",
                       sl_coll_name(call->coll), reads ? "input" : "output");
    if (reads && writes && source.context != target.context)
        return sl_fail(-EINVAL, "%s: the input is memory of GPU %d, the output of GPU %d",
                       sl_coll_name(call->coll), source.device, target.device);
    return coding != NULL && coding->use_device != NULL
               ? coding->use_device(coding, reads ? &source : &target)
               : 0;
}

int sluice_comm_set_stream(struct sluice_comm *comm, void *stream)
{
    int err = sl_check_comm(comm);

    err = err ?: sl_check_process(comm);
    if (err != 0)
        return err;
    sl_enter(comm);
    comm->device_stream = stream;
    sl_leave(comm);
    return 0;
}
