/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of ordinary memory. */
#ifndef SL_TESTS_UTIL_HOST_MEM_H
#define SL_TESTS_UTIL_HOST_MEM_H

#include "core/mem.h"

/* sl_mem_cache_get_as() for [addr, addr+len). */
static inline int get_host_mem(struct sl_mem_cache *cache, void *addr, size_t len,
                               struct sl_mem_region **out)
{
    const struct sl_mem mem = {.addr = addr, .len = len, .kind = SL_MEM_HOST, .fd = -1};

    return sl_mem_cache_get_as(cache, &mem, out);
}

#endif
