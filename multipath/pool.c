/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/pool.h"

#include "core/err.h"

#include <stdint.h>
#include <stdlib.h>

#define BLOCK_ENTRIES 32

struct sl_mp_pool_block {
    struct sl_mp_pool_block *next;
    uint64_t entries[];
};

void *sl_mp_pool_grow(struct sl_mp_pool *pool)
{
    struct sl_mp_pool_block *block = malloc(sizeof(*block) + BLOCK_ENTRIES * pool->size);

    if (block == NULL)
        return NULL;
    block->next = pool->blocks;
    pool->blocks = block;
    for (unsigned i = 0; i < BLOCK_ENTRIES; i++) {
        void *entry = (uint8_t *)block->entries + i * pool->size;

        *(void **)entry = pool->free;
        pool->free = entry;
    }
    return pool->free;
}

int sl_mp_pool_init(struct sl_mp_pool *pool, size_t size)
{
    *pool = (struct sl_mp_pool){.size = (size + 7) & ~(size_t)7};
    return sl_mp_pool_grow(pool) != NULL ? 0
                                         : sl_fail(-ENOMEM, "no memory for a connection's parts");
}

void sl_mp_pool_fini(struct sl_mp_pool *pool)
{
    struct sl_mp_pool_block *block = pool->blocks;

    sl_assert(pool->taken == 0);
    while (block != NULL) {
        struct sl_mp_pool_block *next = block->next;

        free(block);
        block = next;
    }
    pool->blocks = NULL;
}
