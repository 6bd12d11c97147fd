/* SPDX-License-Identifier: Apache-2.0 */
/* Registers memory with a device, remembers it, and lets go of it in time. */
#include "core/mem.h"

#include "core/err.h"
#include "core/list.h"
#include "core/probe.h"

#include <stdlib.h>
#include <string.h>

/* A registration of a device. */
struct sl_mem_registration {
    uintptr_t addr;
    size_t len;
    void *handle;
    enum sl_mem_kind kind;
    bool stale;             /* part of its memory went away: ends with its last region */
    struct sl_node regions; /* sl_mem_region.link, dead ones too */
    struct sl_node link;    /* of cache->all */
    struct sl_node idle;    /* of cache->idle, while it has no region */
};

/* One range of an index. item is the region or the registration. */
struct sl_mem_place {
    uintptr_t addr, end;
    void *item;
    size_t longest; /* the place that ends last, of all up to this one */
};

/* Covers nothing: where last[] points before anything was hit, so that no lookup tests for NULL. */
static struct sl_mem_region nowhere;

/* ---- index ---- */

/* How many places start at addr or before it. No branch depends on the values. */
static size_t index_upto(const struct sl_mem_index *index, uintptr_t addr)
{
    size_t low = 0, left = index->count;

    while (left > 0) {
        size_t half = left / 2;
        bool right = index->places[low + half].addr <= addr;

        low = right ? low + half + 1 : low;
        left = right ? left - half - 1 : half;
    }
    return low;
}

/* Does anything up to place i end behind addr? */
static bool index_reaches(const struct sl_mem_index *index, size_t i, uintptr_t addr)
{
    return index->places[index->places[i].longest].end > addr;
}

/* Of those that cover [addr, end), the one that ends last; or NULL. */
static void *index_covering(const struct sl_mem_index *index, uintptr_t addr, uintptr_t end)
{
    size_t count = index_upto(index, addr);

    if (count == 0)
        return NULL;
    const struct sl_mem_place *place = &index->places[index->places[count - 1].longest];

    return place->end >= end && place->end > addr ? place->item : NULL;
}

static int index_reserve(struct sl_mem_index *index)
{
    if (index->count < index->cap)
        return 0;
    size_t cap = index->cap != 0 ? 2 * index->cap : 16;
    struct sl_mem_place *places = reallocarray(index->places, cap, sizeof(*places));

    if (places == NULL)
        return sl_fail(-ENOMEM, "no memory for the list of %zu registered regions", cap);
    index->places = places;
    index->cap = cap;
    return 0;
}

static void index_repair(struct sl_mem_index *index, size_t from)
{
    for (size_t i = from; i < index->count; i++) {
        size_t before = i > 0 ? index->places[i - 1].longest : i;

        index->places[i].longest = index->places[before].end > index->places[i].end ? before : i;
    }
}

/* There is room: index_reserve(). */
static void index_add(struct sl_mem_index *index, uintptr_t addr, size_t len, void *item)
{
    size_t at = index_upto(index, addr);

    sl_assert(index->count < index->cap);
    memmove(index->places + at + 1, index->places + at,
            (index->count - at) * sizeof(*index->places));
    index->places[at] = (struct sl_mem_place){.addr = addr, .end = addr + len, .item = item};
    index->count++;
    index_repair(index, at);
}

static void index_remove_at(struct sl_mem_index *index, size_t at)
{
    index->count--;
    memmove(index->places + at, index->places + at + 1,
            (index->count - at) * sizeof(*index->places));
    index_repair(index, at);
}

static void index_remove(struct sl_mem_index *index, uintptr_t addr, const void *item)
{
    size_t at = index_upto(index, addr);

    do {
        sl_assert(at > 0 && index->places[at - 1].addr == addr);
        at--;
    } while (index->places[at].item != item);
    index_remove_at(index, at);
}

/* ---- registrations ---- */

static bool keeps(const struct sl_mem_cache *cache)
{
    return cache->keep_bytes > 0 && cache->keep_count > 0;
}

/* Is it listed among those that a later get may find idle? */
static bool is_reusable(const struct sl_mem_cache *cache, const struct sl_mem_registration *base)
{
    return keeps(cache) && !base->stale && sl_mem_is_host(base->kind);
}

static bool is_idle(const struct sl_mem_registration *base)
{
    return sl_list_empty(&base->regions);
}

static void leave_idle(struct sl_mem_cache *cache, struct sl_mem_registration *base)
{
    sl_list_remove(&base->idle);
    cache->idle_bytes -= base->len;
    cache->idle_count--;
}

/* base has no regions and is not on the idle list. */
static void registration_end(struct sl_mem_cache *cache, struct sl_mem_registration *base)
{
    if (is_reusable(cache, base))
        index_remove(&cache->reusable, base->addr, base);
    sl_list_remove(&base->link);
    cache->bytes -= base->len;
    cache->count--;
    if (!cache->device.quiet)
        SL_PROBE2(mr_dereg, base->addr, base->len);
    cache->device.dereg(cache->device.arg, base->handle);
    free(base);
}

/* Ends idle registrations, the one unused for longest first, until the limits hold. */
static void evict(struct sl_mem_cache *cache, size_t bytes_max, uint32_t count_max)
{
    while (cache->idle_bytes > bytes_max || cache->idle_count > count_max) {
        struct sl_mem_registration *base =
            sl_container_of(cache->idle.next, struct sl_mem_registration, idle);

        leave_idle(cache, base);
        registration_end(cache, base);
    }
}

/* The last region of base is gone. */
static void registration_rest(struct sl_mem_cache *cache, struct sl_mem_registration *base)
{
    if (!is_reusable(cache, base) || base->len > cache->keep_bytes) {
        registration_end(cache, base);
        return;
    }
    sl_list_push_back(&cache->idle, &base->idle);
    cache->idle_bytes += base->len;
    cache->idle_count++;
    evict(cache, cache->keep_bytes, cache->keep_count);
}

/* A buffer that grew makes its former, smaller registrations useless: those pages would be pinned
 * twice. */
static void drop_idle_inside(struct sl_mem_cache *cache, uintptr_t addr, size_t len)
{
    sl_list_foreach(&cache->idle, node)
    {
        struct sl_mem_registration *base = sl_container_of(node, struct sl_mem_registration, idle);

        if (base->addr < addr || base->addr + base->len > addr + len)
            continue;
        leave_idle(cache, base);
        registration_end(cache, base);
    }
}

static int device_register(struct sl_mem_cache *cache, const struct sl_mem *mem, void **out)
{
    int err = cache->device.reg(cache->device.arg, mem, out);

    if ((err == -ENOMEM || err == -EPERM || err == -EAGAIN) && cache->idle_count > 0) {
        evict(cache, 0, 0);
        err = cache->device.reg(cache->device.arg, mem, out);
    }
    return err;
}

static int registration_make(struct sl_mem_cache *cache, const struct sl_mem *mem,
                             struct sl_mem_registration **out)
{
    uintptr_t addr = (uintptr_t)mem->addr;
    struct sl_mem_registration *base = calloc(1, sizeof(*base));
    int err = base == NULL   ? sl_fail(-ENOMEM, "no memory for the record of a registration")
              : keeps(cache) ? index_reserve(&cache->reusable)
                             : 0;

    if (err == 0) {
        drop_idle_inside(cache, addr, mem->len);
        err = device_register(cache, mem, &base->handle);
    }
    if (err != 0) {
        free(base);
        return err;
    }
    if (!cache->device.quiet)
        SL_PROBE2(mr_reg, addr, mem->len);
    base->addr = addr;
    base->len = mem->len;
    base->kind = mem->kind;
    sl_list_init(&base->regions);
    sl_list_init(&base->idle);
    sl_list_push_back(&cache->all, &base->link);
    if (is_reusable(cache, base))
        index_add(&cache->reusable, base->addr, base->len, base);
    cache->bytes += base->len;
    cache->count++;
    cache->made++;
    *out = base;
    return 0;
}

/* A registration that may serve [addr, addr+len): one under a live region that covers it, as that
 * region's user answers for the memory; or, where memory that goes away is reported, any that
 * covers it. */
static struct sl_mem_registration *find_registration(const struct sl_mem_cache *cache,
                                                     const struct sl_mem *mem)
{
    uintptr_t addr = (uintptr_t)mem->addr, end = addr + mem->len;
    struct sl_mem_region *region = index_covering(&cache->live, addr, end);

    if (region != NULL)
        return region->base;
    return sl_mem_is_host(mem->kind) ? index_covering(&cache->reusable, addr, end) : NULL;
}

/* ---- regions ---- */

static struct sl_mem_region *find_exact(const struct sl_mem_cache *cache, uintptr_t addr,
                                        size_t len)
{
    const struct sl_mem_index *live = &cache->live;

    for (size_t at = index_upto(live, addr); at > 0 && live->places[at - 1].addr == addr; at--)
        if (live->places[at - 1].end == addr + len)
            return live->places[at - 1].item;
    return NULL;
}

static void forget(struct sl_mem_cache *cache, const struct sl_mem_region *region)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(cache->last); i++)
        if (cache->last[i] == region)
            cache->last[i] = &nowhere;
}

/* Addresses are handed out once: a claim of GPU memory over ordinary memory, or the
 * other way round, has forgotten to put the older claim away. */
static int check_kind(const struct sl_mem_cache *cache, const struct sl_mem *mem)
{
    uintptr_t addr = (uintptr_t)mem->addr, end = addr + mem->len;
    const struct sl_mem_index *live = &cache->live;

    if (sl_mem_is_host(mem->kind) ? cache->gpu_regions == 0 : cache->gpu_regions == live->count)
        return 0;
    for (size_t i = index_upto(live, end - 1); i > 0 && index_reaches(live, i - 1, addr); i--) {
        const struct sl_mem_region *region = live->places[i - 1].item;

        if (live->places[i - 1].end > addr &&
            sl_mem_is_host(region->kind) != sl_mem_is_host(mem->kind))
            return sl_fail(-EINVAL,
                           "%zu bytes at %p are still registered as %s memory: deregister them "
                           "before their addresses serve another kind",
                           region->len, (void *)region->addr,
                           sl_mem_is_host(region->kind) ? "ordinary" : "GPU");
    }
    return 0;
}

/* A region was made, or goes. */
static void count_kind(struct sl_mem_cache *cache, const struct sl_mem_region *region, int change)
{
    if (!sl_mem_is_host(region->kind))
        cache->gpu_regions += (uint32_t)change;
}

int sl_mem_cache_get_as(struct sl_mem_cache *cache, const struct sl_mem *mem,
                        struct sl_mem_region **out)
{
    uintptr_t at = (uintptr_t)mem->addr;
    size_t len = mem->len;
    struct sl_mem_registration *base = NULL;
    int err;

    if (at == 0 || len == 0 || at + len < at)
        return sl_fail(-EINVAL, "%zu bytes at %p are no memory to register", len, mem->addr);
    err = check_kind(cache, mem);
    if (err != 0)
        return err;
    struct sl_mem_region *region = find_exact(cache, at, len);

    if (region != NULL) {
        region->count++;
        cache->reused++;
        *out = region;
        return 0;
    }
    region = calloc(1, sizeof(*region));
    err = region == NULL ? sl_fail(-ENOMEM, "no memory for the record of a region")
                         : index_reserve(&cache->live);
    if (err == 0) {
        base = find_registration(cache, mem);
        if (base != NULL)
            cache->reused++;
        else
            err = registration_make(cache, mem, &base);
    }
    if (err != 0) {
        free(region);
        return err;
    }
    if (!sl_list_empty(&base->idle))
        leave_idle(cache, base);
    *region = (struct sl_mem_region){.addr = at,
                                     .len = len,
                                     .handle = base->handle,
                                     .count = 1,
                                     .kind = mem->kind,
                                     .base = base};
    count_kind(cache, region, 1);
    sl_list_push_back(&base->regions, &region->link);
    index_add(&cache->live, at, len, region);
    *out = region;
    return 0;
}

void sl_mem_cache_put(struct sl_mem_cache *cache, struct sl_mem_region *region)
{
    if (region == NULL)
        return;
    sl_assert(region->count > 0);
    if (--region->count > 0)
        return;
    struct sl_mem_registration *base = region->base;

    if (!region->dead) {
        index_remove(&cache->live, region->addr, region);
        count_kind(cache, region, -1);
        forget(cache, region);
    }
    sl_list_remove(&region->link);
    free(region);
    if (is_idle(base))
        registration_rest(cache, base);
}

struct sl_mem_region *sl_mem_cache_search(struct sl_mem_cache *cache, uintptr_t addr, size_t len)
{
    uintptr_t end = addr + len;
    struct sl_mem_region *region = end < addr ? NULL : index_covering(&cache->live, addr, end);

    if (region != NULL) {
        cache->last[1] = cache->last[0];
        cache->last[0] = region;
    }
    return region;
}

/* ---- memory that goes away ---- */

static void invalidate_reusable(struct sl_mem_cache *cache, uintptr_t addr, uintptr_t end)
{
    struct sl_mem_index *index = &cache->reusable;

    for (size_t i = index_upto(index, end - 1); i > 0 && index_reaches(index, i - 1, addr); i--) {
        struct sl_mem_registration *base = index->places[i - 1].item;

        if (index->places[i - 1].end <= addr)
            continue;
        index_remove_at(index, i - 1);
        base->stale = true;
        if (!is_idle(base))
            continue;
        leave_idle(cache, base);
        registration_end(cache, base);
    }
}

unsigned sl_mem_cache_invalidate(struct sl_mem_cache *cache, const void *ptr, size_t len)
{
    uintptr_t addr = (uintptr_t)ptr, end = addr + len < addr ? UINTPTR_MAX : addr + len;
    struct sl_mem_index *live = &cache->live;
    unsigned in_use = 0;

    if (len == 0)
        return 0;
    invalidate_reusable(cache, addr, end);
    for (size_t i = index_upto(live, end - 1); i > 0 && index_reaches(live, i - 1, addr); i--) {
        struct sl_mem_region *region = live->places[i - 1].item;

        if (live->places[i - 1].end <= addr)
            continue;
        index_remove_at(live, i - 1);
        forget(cache, region);
        count_kind(cache, region, -1);
        region->dead = true;
        in_use++;
    }
    return in_use;
}

/* ---- life ---- */

void sl_mem_cache_init(struct sl_mem_cache *cache, const struct sl_mem_device *device,
                       size_t keep_bytes, uint32_t keep_count)
{
    *cache = (struct sl_mem_cache){.device = *device,
                                   .keep_bytes = keep_bytes,
                                   .keep_count = keep_count,
                                   .last = {&nowhere, &nowhere}};
    sl_list_init(&cache->all);
    sl_list_init(&cache->idle);
}

unsigned sl_mem_cache_fini(struct sl_mem_cache *cache)
{
    unsigned in_use = 0;

    sl_list_foreach(&cache->all, node)
    {
        struct sl_mem_registration *base = sl_container_of(node, struct sl_mem_registration, link);
        struct sl_node *link;

        while ((link = sl_list_pop_front(&base->regions)) != NULL) {
            free(sl_container_of(link, struct sl_mem_region, link));
            in_use++;
        }
        registration_end(cache, base);
    }
    free(cache->live.places);
    free(cache->reusable.places);
    memset(cache, 0, sizeof(*cache));
    return in_use;
}
