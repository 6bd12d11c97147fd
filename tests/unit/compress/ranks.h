/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process, a thread each, with a network of shared memory: sums in the order of ranks.
 *  */
#ifndef SL_TESTS_COMPRESS_RANKS_H
#define SL_TESTS_COMPRESS_RANKS_H

#include "compress/state.h"
#include "compress/train/net.h"

#include <stdatomic.h>

#define RANKS_MOST 8

/* What each thread runs. It must not assert: it leaves results where the test looks. Returns 0 or
 * an error, of which the first is what ranks_run() returns. */
typedef int ranks_body(const struct sl_net *net, void *arg);

int ranks_run(uint32_t ranks, ranks_body *body, void *arg);

/* Bytes that rank 0 has given to the network in the last run, each counted once. */
extern atomic_size_t ranks_bytes;

/* As malloc(), aligned, filled with rubbish: who reads what was not set is found. */
void *ranks_memory(size_t size);

/* Saves parts to bytes, fills them with rubbish and loads them again. */
int ranks_save_and_load(const struct sl_state_part *parts, size_t count, const struct sl_net *net);

#endif
