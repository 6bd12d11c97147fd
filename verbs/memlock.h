/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of locked memory, which everything that a NIC reaches counts against. */
#ifndef SL_VERBS_MEMLOCK_H
#define SL_VERBS_MEMLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Could this process pin so many bytes more, or does its limit stand in the way? False: it does,
 * and why gets a sentence part with the limit, the number needed, and the places to raise it.
 */
bool sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

#endif
