/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of one size that all connections of an interface share: taken when a connection needs one
 * more than it ever did, never given back to the heap before the end. So a connection is as large
 * as what is under way on it, and in the steady state nothing is allocated.
 */
#ifndef SL_MULTIPATH_POOL_H
#define SL_MULTIPATH_POOL_H

#include <stddef.h>

struct sl_mp_pool_block;

struct sl_mp_pool {
    void *free; /* the first word of a free entry is the next one */
    struct sl_mp_pool_block *blocks;
    size_t size;
    unsigned taken;
};

/* Entries of `size` bytes; some are there at once. -ENOMEM. */
int sl_mp_pool_init(struct sl_mp_pool *pool, size_t size);
void sl_mp_pool_fini(struct sl_mp_pool *pool);

void *sl_mp_pool_grow(struct sl_mp_pool *pool);

/* An entry with anything in it; NULL: no memory. */
static inline void *sl_mp_pool_take(struct sl_mp_pool *pool)
{
    void *entry = pool->free;

    if (__builtin_expect(entry == NULL, 0))
        entry = sl_mp_pool_grow(pool);
    if (__builtin_expect(entry != NULL, 1)) {
        pool->free = *(void **)entry;
        pool->taken++;
    }
    return entry;
}

/* The same where one is free. */
static inline void *sl_mp_pool_take_ready(struct sl_mp_pool *pool)
{
    void *entry = pool->free;

    pool->free = *(void **)entry;
    pool->taken++;
    return entry;
}

static inline void sl_mp_pool_put(struct sl_mp_pool *pool, void *entry)
{
    *(void **)entry = pool->free;
    pool->free = entry;
    pool->taken--;
}

#endif
