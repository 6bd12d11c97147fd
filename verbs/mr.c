/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: the user's regions and our own pools, each on every rail. */
#include "verbs/config.h"
#include "verbs/events.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"

#include "core/event.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

static int reg_failed(const struct sl_verbs_rail *rail, size_t len, int err)
{
    sl_mem_lock_failed(-err, len);
    return sl_fail(-err, "%s: %s", rail->port.name, sluice_last_error());
}

int sl_verbs_reg(const struct sl_verbs_rail *rail, void *addr, size_t len, struct ibv_mr **out)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    struct ibv_mr *mr = NULL;

    errno = 0;
    if (sl_verbs_config(rail->iface->config)->relaxed_ordering != SL_OFF &&
        ibv->ibv_reg_mr_iova2 != NULL)
        mr = ibv->ibv_reg_mr_iova2(rail->device->pd, addr, len, (uintptr_t)addr,
                                   SL_VERBS_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
    if (mr == NULL)
        mr = (ibv->ibv_reg_mr)(rail->device->pd, addr, len, SL_VERBS_ACCESS);
    if (mr == NULL)
        return reg_failed(rail, len, errno != 0 ? errno : ENOMEM);
    *out = mr;
    return 0;
}

void sl_verbs_dereg_all(struct sl_verbs_iface *iface, struct ibv_mr **mr)
{
    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        if (mr[i] != NULL && (iface->ibv->ibv_dereg_mr)(mr[i]) != 0)
            sl_warn("verbs", "%s did not give a region back", iface->rails[i].port.name);
        mr[i] = NULL;
    }
}

int sl_verbs_reg_all(struct sl_verbs_iface *iface, void *addr, size_t len, struct ibv_mr **mr)
{
    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        int err = sl_verbs_reg(&iface->rails[i], addr, len, &mr[i]);

        if (err != 0) {
            sl_verbs_dereg_all(iface, mr);
            return err;
        }
    }
    return 0;
}

int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, struct sl_verbs_pool *out)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err;

    if (bytes == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for %zu KiB of buffers", len >> 10);
    err = sl_verbs_reg_all(iface, bytes, len, out->mr);
    if (err != 0) {
        munmap(bytes, len);
        return err;
    }
    out->bytes = bytes;
    out->len = len;
    return 0;
}

void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool)
{
    if (pool->bytes == NULL)
        return;
    sl_verbs_dereg_all(iface, pool->mr);
    munmap(pool->bytes, pool->len);
    pool->bytes = NULL;
}

/* ---- the user's memory ---- */

/* With nvidia_peermem GPU memory could be registered like any other, and would then be copied
 * from. */
static int host_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem, struct ibv_mr **mr)
{
    if (sl_gpu_look(mem->addr, NULL))
        return sl_fail(-EINVAL, "%p is GPU memory, and is registered as ordinary memory",
                       mem->addr);
    return sl_verbs_reg_all(iface, mem->addr, mem->len, mr);
}

static int user_reg(void *arg, const struct sl_mem *mem, void **out)
{
    struct sl_verbs_iface *iface = arg;
    struct sl_verbs_mr *mr = calloc(1, sizeof(*mr));
    uint64_t start = sl_now(iface->mp.base.worker->clock);

    if (mr == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a region");
    int err =
        sl_mem_is_host(mem->kind) ? host_reg(iface, mem, mr->mr) : sl_verbs_gpu_reg(iface, mem, mr);

    if (err != 0) {
        free(mr);
        return err;
    }
    mr->base.len = mem->len;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): of each rail, since err is 0 */
        mr->base.rkeys[i] = mr->mr[i]->rkey;
    sl_event(iface->mp.base.worker, SL_EVENT_MR_REG, SL_EVENT_NOBODY, mem->len,
             sl_now(iface->mp.base.worker->clock) - start);
    *out = mr;
    return 0;
}

static void user_dereg(void *arg, void *handle)
{
    struct sl_verbs_iface *iface = arg;
    struct sl_verbs_mr *mr = handle;

    sl_event(iface->mp.base.worker, SL_EVENT_MR_DEREG, SL_EVENT_NOBODY, mr->base.len, 0);
    sl_verbs_dereg_all(iface, mr->mr);
    free(mr);
}

void sl_verbs_mem_init(struct sl_verbs_iface *iface)
{
    const struct sl_mem_device device = {.reg = user_reg, .dereg = user_dereg, .arg = iface};

    /* Nothing is kept: whether memory is still there, only its user knows. */
    sl_mem_cache_init(&iface->mp.mem, &device, 0, 0);
}

int sl_verbs_mr_reg(struct sl_iface *base, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key)
{
    struct sl_mem_region *region;
    int err = sl_mem_cache_get_as(&sl_verbs_iface_of(base)->mp.mem, mem, &region);

    if (err != 0)
        return err;
    if (key != NULL)
        key->len = 0; /* peers write where a CTS says; nobody needs a key */
    *out = (struct sl_mr *)region;
    return 0;
}

void sl_verbs_mr_dereg(struct sl_iface *base, struct sl_mr *mr)
{
    sl_mem_cache_put(&sl_verbs_iface_of(base)->mp.mem, (struct sl_mem_region *)mr);
}

unsigned sl_verbs_mem_gone(struct sl_iface *base, void *addr, size_t len)
{
    return sl_mem_cache_invalidate(&sl_verbs_iface_of(base)->mp.mem, addr, len);
}
