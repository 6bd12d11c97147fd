/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of memory, and the cache of registered memory: which bytes a device may touch, and for how
 * long.
 *
 * Two things are kept apart. A *registration* belongs to the device (expensive: it pins pages). A
 * *region* is the claim of a user that a range stays mapped until it is put away; several regions
 * may stand on one registration. Lookups go by regions only: a registration that reaches further
 * than the regions that are left on it covers memory of which no region says any more that it is
 * there, and a NIC that writes through it writes into whatever pages were there once.
 *
 * For the same reason a registration is reused only for a range that a live region covers, and
 * requests that overlap are registered side by side, never merged: a merged one would outlive half
 * of its reason. With keep_bytes a registration whose last region was put away is kept idle and
 * found again by the next get of a range inside it. That is right only where every piece of memory
 * that goes away is reported through sl_mem_cache_invalidate(), so it is off unless the owner of
 * the cache asks for it.
 *
 * Both are kept in arrays sorted by address, each place also naming the one of all before it that
 * ends last: a range is covered if, and only if, the last-ending of those that start before it ends
 * behind it. So a lookup is one binary search through adjacent memory, with no allocation; a change
 * moves part of an array, microseconds beside the hundreds that a registration takes. (A balanced
 * tree would change faster and be looked up slower: the wrong way round.)
 *
 * GPU memory shares the address space of the process (CUDA's unified addressing), so one index
 * holds both; but the processor must not touch it, so a region of the one kind never answers for a
 * range of the other, and a claim that overlaps a live one of the other kind is a mistake. A
 * registration of GPU memory holds on to that memory itself, and is never kept idle.
 *
 * One thread at a time: no locks. Interfaces have one for the claims of their own users; those of a
 * process that share a device may share another one below, whose owner locks it.
 */
#ifndef SL_CORE_MEM_H
#define SL_CORE_MEM_H

#include "core/req.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_mem_kind {
    SL_MEM_HOST,
    SL_MEM_CUDA,   /* memory of a GPU, by its address alone: registering exports it */
    SL_MEM_DMABUF, /* the same, exported already: fd is a dma-buf, addr lies fd_off bytes into it */
};

/* A described buffer. */
struct sl_mem {
    void *addr;
    size_t len;
    enum sl_mem_kind kind;
    int fd; /* of the file behind a shareable region, or -1; borrowed: may be closed after mr_reg */
    uint64_t fd_off;
};

/* May the processor touch it? */
static inline bool sl_mem_is_host(enum sl_mem_kind kind)
{
    return kind == SL_MEM_HOST;
}

struct sl_mem_registration;

/* A user's claim on [addr, addr+len). */
struct sl_mem_region {
    uintptr_t addr;
    size_t len;
    void *handle;   /* what reg() made; it covers at least this range */
    uint32_t count; /* gets of exactly this range that were not put away yet */
    bool dead;      /* its memory went away: found by nobody any more */
    enum sl_mem_kind kind;
    struct sl_mem_registration *base;
    struct sl_node link; /* of base->regions */
};

/* An array of ranges, sorted by start. */
struct sl_mem_index {
    struct sl_mem_place *places;
    size_t count, cap;
};

/* The device's side, handed in. */
struct sl_mem_device {
    /* Makes mem usable. -ENOMEM and -EPERM: too much locked; the cache lets idle
     * registrations go and asks once more. Keeps its own sentence (see sl_mem_lock_failed()). */
    int (*reg)(void *arg, const struct sl_mem *mem, void **out_handle);
    void (*dereg)(void *arg, void *handle);
    void *arg;
    bool quiet; /* what it registers with tells the probes itself */
};

struct sl_mem_cache {
    struct sl_mem_device device;
    size_t keep_bytes; /* limits of what is kept idle; 0: nothing is */
    uint32_t keep_count;
    struct sl_mem_index live;      /* regions */
    struct sl_mem_index reusable;  /* registrations, in use and idle; empty when nothing is kept */
    struct sl_mem_region *last[2]; /* hit last: calls take turns between an input and an output */
    struct sl_node all;            /* every registration */
    struct sl_node idle;           /* those without a region, the one unused for longest first */
    size_t bytes, idle_bytes;      /* registered, and of that idle */
    uint32_t count, idle_count;
    uint32_t gpu_regions;  /* live ones of GPU memory */
    uint64_t made, reused; /* gets that made a registration, and that found one */
};

/* keep_bytes and keep_count: limits of idle registrations, 0 (either one) to keep none. */
void sl_mem_cache_init(struct sl_mem_cache *cache, const struct sl_mem_device *device,
                       size_t keep_bytes, uint32_t keep_count);

/* Deregisters everything. Returns how many regions were still in use. */
unsigned sl_mem_cache_fini(struct sl_mem_cache *cache);

/* A region that covers mem until it is put away; the memory must stay mapped so long. May register:
 * milliseconds. -EINVAL: no range, or memory of another kind is registered there; -ENOMEM; what
 * reg() returned. */
int sl_mem_cache_get_as(struct sl_mem_cache *cache, const struct sl_mem *mem,
                        struct sl_mem_region **out);

/* Ends one get. Takes NULL. */
void sl_mem_cache_put(struct sl_mem_cache *cache, struct sl_mem_region *region);

/* [addr, addr+len) goes away: idle registrations that overlap are deregistered now; regions that
 * overlap are not found from now on, and their registrations end with their last put. Returns
 * the number of regions still in use: more than 0 is a mistake of its owner. */
unsigned sl_mem_cache_invalidate(struct sl_mem_cache *cache, const void *addr, size_t len);

/* The way of sl_mem_cache_find() when neither of the last two is the one. */
struct sl_mem_region *sl_mem_cache_search(struct sl_mem_cache *cache, uintptr_t addr, size_t len);

/* Does region cover the range? Written so that no sum overflows. */
static inline bool sl_mem_covers(const struct sl_mem_region *region, uintptr_t addr, size_t len)
{
    size_t off = addr - region->addr;

    return off < region->len && len <= region->len - off;
}

/* Data path: a live region that covers [addr, addr+len), or NULL. Borrowed: valid until it is put
 * away. */
static inline struct sl_mem_region *sl_mem_cache_find(struct sl_mem_cache *cache, const void *addr,
                                                      size_t len)
{
    uintptr_t at = (uintptr_t)addr;

    if (__builtin_expect(sl_mem_covers(cache->last[0], at, len), 1))
        return cache->last[0];
    if (__builtin_expect(sl_mem_covers(cache->last[1], at, len), 1))
        return cache->last[1];
    return sl_mem_cache_search(cache, at, len);
}

/* How much memory this process may lock and has locked, as the kernel says. */
struct sl_mem_lock {
    uint64_t limit;  /* RLIMIT_MEMLOCK; UINT64_MAX: none */
    uint64_t locked; /* VmLck: by mlock */
    uint64_t pinned; /* VmPin: by devices */
};

void sl_mem_lock_read(struct sl_mem_lock *out);

/* The sentence about a registration of len bytes that failed with err (negative): for -ENOMEM,
 * -EPERM and -EAGAIN need, limit, use and advice. Returns err. */
int sl_mem_lock_failed(int err, size_t len);

/* The same with given numbers. */
int sl_mem_lock_failed_at(int err, size_t len, const struct sl_mem_lock *lock);

#endif
