/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory, which the processor must not touch: lent to devices as a dma-buf, written by the
 * peer's NIC, and by the GPU itself where a frame has brought the bytes (multipath/gpu_copy.c).
 */
#include "verbs/gpu.h"
#include "verbs/config.h"
#include "verbs/iface.h"

#include "gdr/dmabuf.h"
#include "multipath/gpu_copy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PEERMEM "/sys/module/nvidia_peermem"

bool sl_verbs_gpu_possible(const struct sl_verbs_iface *iface)
{
    bool possible = !iface->mp.settings.fallback;

    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        const struct sl_verbs_rail *rail = &iface->rails[i];

        possible &= (rail->device != NULL ? sl_verbs_device_takes_dmabuf(rail->device)
                                          : rail->takes_dmabuf) ||
                    access(PEERMEM, F_OK) == 0;
    }
    return possible;
}

/* ---- registering ---- */

static int dmabuf_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                      struct sl_verbs_claim *claims)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    if (iface->ibv->ibv_reg_dmabuf_mr == NULL)
        return sl_fail(-ENOTSUP,
                       "libibverbs cannot register GPU memory: that takes rdma-core 34 or later");
    if (mem->fd < 0)
        return sl_fail(-EINVAL,
                       "GPU memory is to be registered through a dma-buf, and none was given");
    if ((((uintptr_t)mem->addr ^ mem->fd_off) & (page - 1)) != 0)
        return sl_fail(
            -EINVAL,
            "GPU memory at %p and offset %llu of its dma-buf do not lie alike in their pages",
            mem->addr, (unsigned long long)mem->fd_off);
    return sl_verbs_reg_all(iface, mem, claims);
}

/* By its address alone: as a dma-buf of our own making, or, where that cannot be had, as
 * nvidia-peermem lets ordinary registration find it. */
static int address_reg(struct sl_verbs_iface *iface, const struct sl_gpu_memory *gpu,
                       const struct sl_mem *mem, struct sl_verbs_claim *claims)
{
    const struct sl_mem plain = {.addr = mem->addr, .len = mem->len, .kind = SL_MEM_CUDA, .fd = -1};
    struct sl_mem exported;
    char why[256];
    int err = sl_gpu_export(gpu, mem->addr, mem->len, &exported);

    if (err == 0) {
        err = dmabuf_reg(iface, &exported, claims);
        close(exported.fd); /* the regions hold on to what it stood for */
    }
    if (err != -ENOTSUP || gpu->is_managed)
        return err;
    snprintf(why, sizeof(why), "%s", sluice_last_error());
    err = sl_verbs_reg_all(iface, &plain, claims);
    if (err < 0)
        return sl_fail(-ENOTSUP,
                       "%s; and without dma-buf it takes the kernel module nvidia_peermem", why);
    return err;
}

/* A dma-buf of the user's is long closed: it takes one of our own making. */
int sl_verbs_gpu_again(struct sl_verbs_iface *iface, struct sl_verbs_mr *mr)
{
    const struct sl_mem mem = {
        .addr = mr->addr, .len = mr->base.len, .kind = SL_MEM_CUDA, .fd = -1};

    return address_reg(iface, &mr->base.gpu, &mem, mr->claims);
}

int sl_verbs_gpu_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem, struct sl_verbs_mr *mr)
{
    int err;

    if (!sl_gpu_look(mem->addr, &mr->base.gpu))
        return sl_fail(-ENOTSUP, "%p is no memory of a GPU that this process uses through CUDA",
                       mem->addr);
    if (iface->mp.settings.fallback)
        return sl_fail(
            -ENOTSUP,
            "with SLUICE_VERBS_FALLBACK=tcp the processor would have to reach GPU memory, "
            "which it cannot: set it to off");
    if (mr->base.gpu.order == SL_GPU_UNORDERED)
        return sl_fail(
            -ENOTSUP,
            "GPU %d sees what a NIC wrote in no certain order, and its driver cannot put "
            "it in order",
            mr->base.gpu.device);
    err = sl_mp_gpu_stage(&iface->mp, &mr->base);
    if (err != 0)
        return err;
    mr->base.is_gpu = true;
    return mem->kind == SL_MEM_DMABUF ? dmabuf_reg(iface, mem, mr->claims)
                                      : address_reg(iface, &mr->base.gpu, mem, mr->claims);
}
