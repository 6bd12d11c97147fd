/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of bytes that never change, kept once in a process however many hold them.
 *
 * Facts that all ranks of a communicator share (hosts, addresses) are the same for each
 * communicator of the same ranks, and, in a simulation, for each rank of the process: thousands of
 * them.
 */
#ifndef SL_CORE_SHARED_H
#define SL_CORE_SHARED_H

#include <stddef.h>

struct sl_shared;

/* Takes bytes, from malloc(), also on failure; *out is counted: a block with the same content, if
 * there is a holder, or bytes themselves. -ENOMEM. Any thread. */
int sl_shared_keep(void *bytes, size_t len, struct sl_shared **out);

/* The block is there as long as it has a holder. */
const void *sl_shared_bytes(const struct sl_shared *shared);

void sl_shared_drop(struct sl_shared *shared); /* takes NULL */

#endif
