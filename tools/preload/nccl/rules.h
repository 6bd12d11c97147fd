/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls the engine takes: by kind and size only, which are the same on all ranks. */
#ifndef SL_PRELOAD_NCCL_RULES_H
#define SL_PRELOAD_NCCL_RULES_H

#include "tools/preload/nccl_calls.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Reads "allreduce:1M-64M,broadcast,all_gather:64K-": calls by Sluice's names, each with the sizes
 * in bytes, both included, at which it is taken; "all" stands for every call. The size of a call is
 * that of the larger side of a rank. -EINVAL: not understood; the sentence is the thread's last
 * error.
 */
int nccl_rules_read(const char *text);

bool nccl_rules_take(enum sl_nccl_call call, size_t bytes);

/* Of the rules in force: ranks whose numbers differ do not share an engine. */
uint64_t nccl_rules_hash(void);

#endif
