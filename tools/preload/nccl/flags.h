/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in pinned memory that streams wait for. */
#ifndef SL_PRELOAD_NCCL_FLAGS_H
#define SL_PRELOAD_NCCL_FLAGS_H

#include <stdatomic.h>
#include <stdint.h>

struct shim_flag {
    _Atomic uint32_t *number;
    uint64_t address; /* of number, as the device knows it */
    int slot;
};

/*
 * A number that goes on from where its last user left it: a stream may look for a number long after
 * it was written, when its communicator is gone, so neither is the memory ever freed nor does a
 * number go back.
 */
int shim_flag_get(struct shim_flag *out);
void shim_flag_put(const struct shim_flag *flag);

#endif
