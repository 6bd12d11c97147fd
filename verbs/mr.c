/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: the user's regions and our own pools, each on every rail. */
#include "verbs/config.h"
#include "verbs/events.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"
#include "verbs/window.h"

#include "core/event.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool sl_verbs_dereg_all(struct sl_verbs_iface *iface, struct sl_verbs_claim *claims)
{
    bool ended = false;

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        ended |= sl_verbs_memory_put(iface->rails[i].memory, &claims[i]);
    return ended;
}

/* Memory that no path needs yet is registered on one rail nevertheless: its user is to hear now
 * that it cannot be. */
static void choose_first(struct sl_verbs_iface *iface)
{
    struct sl_verbs_rail *first = NULL;

    for (unsigned i = iface->mp.rail_count; i-- > 0;) {
        struct sl_verbs_rail *rail = &iface->rails[i];

        if (rail->has_memory && !rail->is_lost)
            return;
        if (!rail->is_lost && (first == NULL || rail->base.usable || !first->base.usable))
            first = rail;
    }
    if (first != NULL)
        first->has_memory = true;
}

int sl_verbs_reg_all(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                     struct sl_verbs_claim *claims)
{
    uint32_t mine = 0; /* rails of which this call has the claim */
    int made = 0;

    choose_first(iface);
    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        struct sl_verbs_rail *rail = &iface->rails[i];

        if (rail->is_lost || !rail->has_memory || claims[i].region != NULL)
            continue;
        if (rail->rejoin != NULL && sl_mem_is_host(mem->kind))
            continue; /* its device is busy: registered before it is usable */
        int err = sl_verbs_memory_get(rail->memory, mem, &claims[i]);

        if (err < 0 && sl_verbs_rail_is_gone(rail))
            continue;
        if (err < 0) {
            for (unsigned k = 0; k < i; k++)
                if ((mine & 1u << k) != 0)
                    sl_verbs_memory_put(iface->rails[k].memory, &claims[k]);
            return err;
        }
        mine |= 1u << i;
        made |= err;
    }
    return made;
}

/* The registration of another rail on the same device serves this one, too. */
static struct ibv_mr *mr_beside(const struct sl_verbs_iface *iface,
                                const struct sl_verbs_pool *pool, unsigned i)
{
    for (unsigned k = 0; k < iface->mp.rail_count; k++)
        if (k != i && iface->rails[k].memory == iface->rails[i].memory && pool->mr[k] != NULL)
            return pool->mr[k];
    return NULL;
}

int sl_verbs_pool_join(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool, unsigned i)
{
    const struct sl_mem mem = {
        .addr = pool->bytes, .len = pool->len, .kind = SL_MEM_HOST, .fd = -1};

    if (pool->bytes == NULL || pool->mr[i] != NULL)
        return 0;
    pool->mr[i] = mr_beside(iface, pool, i);
    return pool->mr[i] != NULL
               ? 0
               : sl_verbs_memory_make(iface->rails[i].memory, &mem, pool->writers, &pool->mr[i]);
}

void sl_verbs_pool_leave(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool, unsigned i)
{
    if (pool->mr[i] != NULL && mr_beside(iface, pool, i) == NULL)
        sl_verbs_memory_end(iface->rails[i].memory, pool->mr[i]);
    pool->mr[i] = NULL;
}

int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, enum sl_verbs_writers writers,
                       struct sl_verbs_pool *out)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err = 0;

    if (bytes == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for %zu KiB of buffers", len >> 10);
    out->bytes = bytes;
    out->len = len;
    out->writers = writers;
    for (unsigned i = 0; i < iface->mp.rail_count && err == 0; i++) {
        if (iface->rails[i].is_asleep)
            continue;
        err = sl_verbs_pool_join(iface, out, i);
        if (err != 0 && sl_verbs_rail_is_gone(&iface->rails[i]))
            err = 0;
    }
    return err; /* sl_verbs_pool_fini() takes what is there */
}

void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool)
{
    if (pool->bytes == NULL)
        return;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        sl_verbs_pool_leave(iface, pool, i);
    munmap(pool->bytes, pool->len);
    pool->bytes = NULL;
}

/* ---- the user's memory ---- */

/* With nvidia_peermem GPU memory could be registered like any other, and would then be copied
 * from. */
static int host_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                    struct sl_verbs_claim *claims)
{
    if (sl_gpu_look(mem->addr, NULL))
        return sl_fail(-EINVAL, "%p is GPU memory, and is registered as ordinary memory",
                       mem->addr);
    return sl_verbs_reg_all(iface, mem, claims);
}

/* What the peer needs to know. */
static void keys_take(const struct sl_verbs_iface *iface, struct sl_verbs_mr *mr)
{
    mr->base.rails = 0;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        if (mr->claims[i].mr != NULL) {
            mr->base.rkeys[i] = mr->claims[i].mr->rkey;
            mr->base.rails |= (uint16_t)(1u << i);
        }
}

static int user_reg(void *arg, const struct sl_mem *mem, void **out)
{
    struct sl_verbs_iface *iface = arg;
    struct sl_verbs_mr *mr = calloc(1, sizeof(*mr));
    uint64_t start = sl_now(iface->mp.base.worker->clock);

    if (mr == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a region");
    int err = sl_mem_is_host(mem->kind) ? host_reg(iface, mem, mr->claims)
                                        : sl_verbs_gpu_reg(iface, mem, mr);

    if (err < 0) {
        free(mr);
        return err;
    }
    mr->base.len = mem->len;
    mr->addr = mem->addr;
    sl_list_push_back(&iface->regions, &mr->link);
    keys_take(iface, mr);
    if (err > 0)
        sl_event(iface->mp.base.worker, SL_EVENT_MR_REG, SL_EVENT_NOBODY, mem->len,
                 sl_now(iface->mp.base.worker->clock) - start);
    *out = mr;
    return 0;
}

static void user_dereg(void *arg, void *handle)
{
    struct sl_verbs_iface *iface = arg;
    struct sl_verbs_mr *mr = handle;

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        sl_verbs_rejoin_forget(&iface->rails[i], mr);
    if (sl_verbs_dereg_all(iface, mr->claims))
        sl_event(iface->mp.base.worker, SL_EVENT_MR_DEREG, SL_EVENT_NOBODY, mr->base.len, 0);
    sl_list_remove(&mr->link);
    free(mr);
}

/* ---- a rail that goes, and one that returns ---- */

void sl_verbs_staging_told(struct sl_verbs_iface *iface, unsigned i)
{
    if (iface->staging.mr[i] == NULL)
        return;
    iface->mp.staging_rkeys[i] = iface->staging.mr[i]->rkey;
    iface->mp.staging_rails |= (uint16_t)(1u << i);
}

void sl_verbs_mem_leave(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    unsigned i = rail->base.idx;

    sl_verbs_windows_leave(rail); /* first: no region goes while a window is bound to it */
    sl_list_foreach(&iface->regions, node)
    {
        struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);

        sl_verbs_memory_put(rail->memory, &mr->claims[i]);
        mr->base.rails &= (uint16_t) ~(1u << i);
    }
    sl_verbs_pool_leave(iface, &iface->frames, i);
    sl_verbs_pool_leave(iface, &iface->staging, i);
    iface->mp.staging_rails &= (uint16_t) ~(1u << i);
}

static int region_join(struct sl_verbs_rail *rail, struct sl_verbs_mr *mr)
{
    struct sl_verbs_claim *claim = &mr->claims[rail->base.idx];
    const struct sl_mem mem = {
        .addr = mr->addr, .len = mr->base.len, .kind = SL_MEM_HOST, .fd = -1};

    if (claim->region != NULL || mr->is_gone)
        return 0; /* registered ahead, or nobody finds it any more */
    return mr->base.is_gpu ? sl_verbs_gpu_again(rail->iface, mr)
                           : sl_verbs_memory_get(rail->memory, &mem, claim);
}

bool sl_verbs_mem_is_even(const struct sl_verbs_iface *iface)
{
    uint16_t all = 0, used = 0;
    bool even = true;

    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        if (iface->rails[i].is_asleep)
            continue; /* nothing goes by it */
        even &= !iface->rails[i].is_lost && iface->rails[i].rejoin == NULL;
        all |= (uint16_t)(1u << i);
        used |= (uint16_t)(iface->rails[i].has_memory << i);
    }
    even &= iface->mp.staging_rails == all;
    sl_list_foreach(&iface->regions, node)
    {
        const struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);

        even &= (used & ~mr->base.rails) == 0;
    }
    return even;
}

int sl_verbs_pools_join(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    int err = sl_verbs_pool_join(iface, &iface->frames, rail->base.idx);

    if (err == 0)
        err = sl_verbs_pool_join(iface, &iface->staging, rail->base.idx);
    if (err == 0)
        sl_verbs_staging_told(iface, rail->base.idx);
    return err;
}

int sl_verbs_mem_join(struct sl_verbs_rail *rail)
{
    struct sl_verbs_iface *iface = rail->iface;
    int err = sl_verbs_pools_join(rail);

    if (err != 0)
        return err;
    sl_list_foreach(&iface->regions, node)
    {
        struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);

        err = rail->has_memory ? region_join(rail, mr) : 0;
        if (err < 0)
            return err;
        keys_take(iface, mr);
    }
    return 0;
}

void sl_verbs_mem_init(struct sl_verbs_iface *iface)
{
    const struct sl_mem_device device = {
        .reg = user_reg, .dereg = user_dereg, .arg = iface, .quiet = true};

    /* The claims of this interface; the devices have the registrations. Nothing is kept: whether
     * memory is still there, only its user knows. */
    sl_mem_cache_init(&iface->mp.mem, &device, 0, 0);
    sl_list_init(&iface->regions);
}

/* How many claims lay there. */
static unsigned regions_gone(struct sl_verbs_iface *iface, uintptr_t addr, size_t len)
{
    unsigned in_use = sl_mem_cache_invalidate(&iface->mp.mem, (void *)addr, len);
    uintptr_t end = addr + len < addr ? UINTPTR_MAX : addr + len;

    if (in_use == 0)
        return 0;
    sl_list_foreach(&iface->regions, node)
    {
        struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);
        uintptr_t at = (uintptr_t)mr->addr;

        if (at >= end || at + mr->base.len <= addr)
            continue;
        mr->is_gone = true;
        for (unsigned i = 0; i < iface->mp.rail_count; i++)
            sl_verbs_rejoin_forget(&iface->rails[i], mr);
    }
    return in_use;
}

void sl_verbs_mem_sync(struct sl_verbs_iface *iface)
{
    struct sl_verbs_range gone[SL_VERBS_GONE_MAX];

    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        if (iface->rails[i].device == NULL)
            continue;
        unsigned count =
            sl_verbs_device_gone(iface->rails[i].device, &iface->rails[i].listener, gone);

        for (unsigned k = 0; k < count; k++)
            regions_gone(iface, gone[k].addr, gone[k].end - gone[k].addr);
    }
}

int sl_verbs_mr_reg(struct sl_iface *base, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key)
{
    struct sl_mem_region *region;

    /* First, or what was gone is found again. */
    sl_verbs_mem_sync(sl_verbs_iface_of(base));
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
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    unsigned in_use = regions_gone(iface, (uintptr_t)addr, len);

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        if (iface->rails[i].device != NULL)
            sl_verbs_device_mem_gone(iface->rails[i].device, addr, len);
    return in_use;
}
