/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that one thread writes again and again while others copy it, and know a torn copy: a
 * version that is odd while the data is being written, and another one afterwards.
 *
 * Writer                                   Reader
 *   version = odd                            before = version             (acquire: A)
 *   release fence                      R     copy the data
 *   the data                                 acquire fence                B
 *   version = even            (release: S)   version == before, and even
 *
 * A copy that saw any of the data of a later writing sees, through R and B, that writing's odd
 * version or a later one. One that saw the version of S sees, through S and A, all data that
 * belongs to it. An increment in place of the store and R would not do: later stores may pass the
 * store half of it on 64-bit ARM.
 */
#ifndef SL_CORE_SEQLOCK_H
#define SL_CORE_SEQLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline void sl_seq_write_begin(_Atomic uint64_t *version)
{
    atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void sl_seq_write_end(_Atomic uint64_t *version)
{
    atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* Even: no thread is writing. */
static inline uint64_t sl_seq_read_begin(const _Atomic uint64_t *version)
{
    return atomic_load_explicit(version, memory_order_acquire);
}

/* Is the copy since sl_seq_read_begin() returned before whole? */
static inline bool sl_seq_read_whole(const _Atomic uint64_t *version, uint64_t before)
{
    atomic_thread_fence(memory_order_acquire);
    return before % 2 == 0 && atomic_load_explicit(version, memory_order_relaxed) == before;
}

#endif
