/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory, which the processor must not touch.
 *
 * What is sent from it, however short, is written by the lane: it never goes into a frame. What is
 * received into it gets a CTS when the receive is posted, however short, which says that it is: a
 * sender that has it writes. One that sent a frame before the CTS came has the frame's bytes copied
 * by the GPU (gdr/staging.c).
 */
#include "multipath/gpu_copy.h"

#include "gdr/staging.h"
#include "multipath/conn.h"
#include "multipath/iface.h"

#define STAGE_BUFFERS 32

int sl_mp_gpu_stage(struct sl_mp_iface *iface, struct sl_mp_region *region)
{
    const struct sl_gpu_memory *gpu = &region->gpu;
    int err;

    for (unsigned i = 0; i < iface->stage_count; i++)
        if (sl_gpu_stage_serves(iface->stages[i], gpu)) {
            region->stage = iface->stages[i];
            return 0;
        }
    if (iface->stage_count == SL_MP_STAGES_MAX)
        return sl_fail(-ENOTSUP, "memory of more than %u CUDA contexts is registered",
                       SL_MP_STAGES_MAX);
    err = sl_gpu_stage_create(gpu, iface->base.worker->clock, iface->eager_bytes, STAGE_BUFFERS,
                              &region->stage);
    if (err == 0)
        iface->stages[iface->stage_count++] = region->stage;
    return err;
}

int sl_mp_gpu_check(const struct sl_mem_region *region)
{
    return region->dead
               ? sl_fail(-EINVAL, "the GPU memory of this message went away: %zu bytes at %p",
                         region->len, (void *)region->addr)
               : 0;
}

/* ---- what arrives ---- */

int sl_mp_gpu_arrived(const struct sl_mp_region *region)
{
    return region->gpu.order == SL_GPU_FLUSH ? sl_gpu_flush(&region->gpu) : 0;
}

static void copied(void *owner, uint32_t number, int status)
{
    struct sl_mp_channel *channel = owner;

    channel->gpu_copies--;
    channel->conn->gpu_copies--;
    sl_mp_rx_end(channel->conn, sl_mp_rx_at(channel, number), status);
}

int sl_mp_gpu_copy(const struct sl_mp_rx_msg *msg, const uint8_t *bytes, size_t len)
{
    int err = sl_gpu_stage_copy(msg->mr->stage, msg->sink->dst, bytes, len, copied, msg->channel,
                                msg->number);

    msg->channel->gpu_copies += err == 0;
    msg->channel->conn->gpu_copies += err == 0;
    return err;
}

int sl_mp_gpu_progress(struct sl_mp_iface *iface)
{
    unsigned count = 0;

    for (unsigned i = 0; i < iface->stage_count; i++)
        count += sl_gpu_stage_progress(iface->stages[i]);
    return (int)count;
}

bool sl_mp_gpu_busy(const struct sl_mp_iface *iface)
{
    for (unsigned i = 0; i < iface->stage_count; i++)
        if (sl_gpu_stage_busy(iface->stages[i]) > 0)
            return true;
    return false;
}

void sl_mp_gpu_forget(struct sl_mp_channel *channel)
{
    const struct sl_mp_iface *iface = channel->conn->iface;

    for (unsigned i = 0; i < iface->stage_count && channel->gpu_copies > 0; i++)
        sl_gpu_stage_forget(iface->stages[i], channel);
    channel->conn->gpu_copies -= channel->gpu_copies;
    channel->gpu_copies = 0;
}

void sl_mp_gpu_close(struct sl_mp_iface *iface)
{
    for (unsigned i = 0; i < iface->stage_count; i++) {
        /* What is left was forgotten, and is over but for being looked at. */
        sl_gpu_stage_progress(iface->stages[i]);
        sl_gpu_stage_destroy(iface->stages[i]);
    }
    iface->stage_count = 0;
}
