/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory, which the processor must not touch: lent to devices as a dma-buf, written by the
 * peer's NIC, and by the GPU itself where a frame has brought the bytes.
 *
 * What is sent from it, however short, is written by the NIC: it never goes into a frame. What is
 * received into it gets a CTS when the receive is posted, however short, which says that it is: a
 * sender that has it writes. One that sent a frame before the CTS came has the frame's bytes
 * copied by the GPU (gdr/staging.c).
 */
#include "multipath/conn.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"

#include "core/log.h"
#include "gdr/dmabuf.h"
#include "gdr/staging.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STAGE_BUFFERS 32
#define PEERMEM "/sys/module/nvidia_peermem"

/* Says a device that knows no dma-buf; one that does finds no file 0xffffffff. */
static bool is_unknown(int err)
{
    return err == EOPNOTSUPP || err == EPROTONOSUPPORT || err == ENOSYS;
}

bool sl_verbs_gpu_accepted(const struct sl_ibv *ibv, struct ibv_context *context)
{
    struct ibv_pd *pd = ibv->ibv_reg_dmabuf_mr == NULL ? NULL : ibv->ibv_alloc_pd(context);
    struct ibv_mr *mr;
    bool accepted;

    if (pd == NULL)
        return false;
    errno = 0;
    mr = ibv->ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
    accepted = mr == NULL && !is_unknown(errno);
    if (mr != NULL)
        (ibv->ibv_dereg_mr)(mr);
    ibv->ibv_dealloc_pd(pd);
    return accepted;
}

bool sl_verbs_gpu_possible(const struct sl_verbs_iface *iface)
{
    bool possible = strcmp(iface->config->verbs_fallback, "tcp") != 0;

    for (unsigned i = 0; i < iface->rail_count; i++)
        possible &= iface->rails[i].takes_dmabuf || access(PEERMEM, F_OK) == 0;
    return possible;
}

/* ---- registering ---- */

static int rail_reg(const struct sl_verbs_rail *rail, const struct sl_mem *mem, struct ibv_mr **out)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    uint64_t iova = (uintptr_t)mem->addr;
    struct ibv_mr *mr = NULL;

    if (ibv->ibv_reg_dmabuf_mr == NULL)
        return sl_fail(-ENOTSUP,
                       "libibverbs cannot register GPU memory: that takes rdma-core 34 or later");
    if (rail->iface->config->verbs_relaxed_ordering != SL_OFF)
        mr = ibv->ibv_reg_dmabuf_mr(rail->pd, mem->fd_off, mem->len, iova, mem->fd,
                                    SL_VERBS_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
    errno = 0;
    if (mr == NULL)
        mr =
            ibv->ibv_reg_dmabuf_mr(rail->pd, mem->fd_off, mem->len, iova, mem->fd, SL_VERBS_ACCESS);
    if (mr == NULL && is_unknown(errno))
        return sl_fail(-ENOTSUP,
                       "%s takes no GPU memory: its driver or this kernel knows no dma-buf",
                       rail->port.name);
    if (mr == NULL) {
        int err = errno != 0 ? -errno : -EIO;

        return sl_fail(err, "%s could not register %zu bytes of GPU memory: %s", rail->port.name,
                       mem->len, sluice_strerror(err));
    }
    *out = mr;
    return 0;
}

static int dmabuf_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem, struct ibv_mr **mr)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int err = 0;

    if (mem->fd < 0)
        return sl_fail(-EINVAL,
                       "GPU memory is to be registered through a dma-buf, and none was given");
    if ((((uintptr_t)mem->addr ^ mem->fd_off) & (page - 1)) != 0)
        return sl_fail(
            -EINVAL,
            "GPU memory at %p and offset %llu of its dma-buf do not lie alike in their pages",
            mem->addr, (unsigned long long)mem->fd_off);
    for (unsigned i = 0; i < iface->rail_count && err == 0; i++)
        err = rail_reg(&iface->rails[i], mem, &mr[i]);
    if (err != 0)
        sl_verbs_dereg_all(iface, mr);
    return err;
}

/* By its address alone: as a dma-buf of our own making, or, where that cannot be had, as
 * nvidia-peermem lets ordinary registration find it. */
static int address_reg(struct sl_verbs_iface *iface, const struct sl_gpu_memory *gpu,
                       const struct sl_mem *mem, struct ibv_mr **mr)
{
    struct sl_mem exported;
    char why[256];
    int err = sl_gpu_export(gpu, mem->addr, mem->len, &exported);

    if (err == 0) {
        err = dmabuf_reg(iface, &exported, mr);
        close(exported.fd); /* the regions hold on to what it stood for */
    }
    if (err != -ENOTSUP || gpu->is_managed)
        return err;
    snprintf(why, sizeof(why), "%s", sluice_last_error());
    if (sl_verbs_reg_all(iface, mem->addr, mem->len, mr) != 0)
        return sl_fail(-ENOTSUP,
                       "%s; and without dma-buf it takes the kernel module nvidia_peermem", why);
    return 0;
}

/* The copy engine of that memory's context. */
static int stage_find(struct sl_verbs_iface *iface, const struct sl_gpu_memory *gpu,
                      struct sl_gpu_stage **out)
{
    int err;

    for (unsigned i = 0; i < iface->stage_count; i++)
        if (sl_gpu_stage_serves(iface->stages[i], gpu)) {
            *out = iface->stages[i];
            return 0;
        }
    if (iface->stage_count == SL_MP_STAGES_MAX)
        return sl_fail(-ENOTSUP, "memory of more than %u CUDA contexts is registered",
                       SL_MP_STAGES_MAX);
    err =
        sl_gpu_stage_create(gpu, iface->base.worker->clock, iface->eager_bytes, STAGE_BUFFERS, out);
    if (err == 0)
        iface->stages[iface->stage_count++] = *out;
    return err;
}

int sl_verbs_gpu_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem, struct sl_verbs_mr *mr)
{
    int err;

    if (!sl_gpu_look(mem->addr, &mr->gpu))
        return sl_fail(-ENOTSUP, "%p is no memory of a GPU that this process uses through CUDA",
                       mem->addr);
    if (strcmp(iface->config->verbs_fallback, "tcp") == 0)
        return sl_fail(
            -ENOTSUP,
            "with SLUICE_VERBS_FALLBACK=tcp the processor would have to reach GPU memory, "
            "which it cannot: set it to off");
    if (mr->gpu.order == SL_GPU_UNORDERED)
        return sl_fail(
            -ENOTSUP,
            "GPU %d sees what a NIC wrote in no certain order, and its driver cannot put "
            "it in order",
            mr->gpu.device);
    err = stage_find(iface, &mr->gpu, &mr->stage);
    if (err != 0)
        return err;
    mr->is_gpu = true;
    return mem->kind == SL_MEM_DMABUF ? dmabuf_reg(iface, mem, mr->mr)
                                      : address_reg(iface, &mr->gpu, mem, mr->mr);
}

int sl_mp_gpu_check(const struct sl_mem_region *region)
{
    return region->dead
               ? sl_fail(-EINVAL, "the GPU memory of this message went away: %zu bytes at %p",
                         region->len, (void *)region->addr)
               : 0;
}

/* ---- what arrives ---- */

int sl_mp_gpu_arrived(const struct sl_verbs_mr *mr)
{
    return mr->gpu.order == SL_GPU_FLUSH ? sl_gpu_flush(&mr->gpu) : 0;
}

static void copied(void *owner, uint32_t number, int status)
{
    struct sl_mp_conn *conn = owner;

    conn->gpu_copies--;
    sl_mp_rx_end(conn, number, status);
}

int sl_mp_gpu_copy(struct sl_mp_conn *conn, uint32_t number, const uint8_t *bytes, size_t len)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    int err = sl_gpu_stage_copy(msg->mr->stage, msg->sink->dst, bytes, len, copied, conn, number);

    conn->gpu_copies += err == 0;
    return err;
}

int sl_mp_gpu_progress(struct sl_verbs_iface *iface)
{
    unsigned count = 0;

    for (unsigned i = 0; i < iface->stage_count; i++)
        count += sl_gpu_stage_progress(iface->stages[i]);
    return (int)count;
}

bool sl_mp_gpu_busy(const struct sl_verbs_iface *iface)
{
    for (unsigned i = 0; i < iface->stage_count; i++)
        if (sl_gpu_stage_busy(iface->stages[i]) > 0)
            return true;
    return false;
}

void sl_mp_gpu_forget(struct sl_mp_conn *conn)
{
    const struct sl_verbs_iface *iface = conn->iface;

    for (unsigned i = 0; i < iface->stage_count && conn->gpu_copies > 0; i++)
        sl_gpu_stage_forget(iface->stages[i], conn);
    conn->gpu_copies = 0;
    conn->gpu_waits = 0;
}

void sl_mp_gpu_close(struct sl_verbs_iface *iface)
{
    for (unsigned i = 0; i < iface->stage_count; i++) {
        /* What is left was forgotten, and is over but for being looked at. */
        sl_gpu_stage_progress(iface->stages[i]);
        sl_gpu_stage_destroy(iface->stages[i]);
    }
    iface->stage_count = 0;
}
