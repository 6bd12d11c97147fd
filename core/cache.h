/* SPDX-License-Identifier: Apache-2.0 */
/* How large the caches are that a core can use. */
#ifndef SL_CORE_CACHE_H
#define SL_CORE_CACHE_H

#include <stddef.h>

/* Bytes of the last-level cache that this core can use; a guess of 8 MiB when unknown. Reads some
 * files. */
size_t sl_cache_last_level(void);

#endif
