/* SPDX-License-Identifier: Apache-2.0 */
/* Small measured results kept on disk from run to run. Losing one costs a measurement, nothing
 * else. */
#ifndef SL_CORE_TUNE_CACHE_H
#define SL_CORE_TUNE_CACHE_H

#include "core/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The entry of key, if it has exactly len bytes, is whole, and nobody but this user and root
 * could write it. */
bool sl_tune_cache_read(const struct sl_config *config, uint64_t key, void *out, size_t len);

/* Keeps len bytes under key; writes a new file and renames it, so that readers see all or nothing.
 * Does nothing when there is no place to write. This user's files of more than a month, and all but
 * the newest 64, go. */
void sl_tune_cache_write(const struct sl_config *config, uint64_t key, const void *bytes,
                         size_t len);

#endif
