/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets a program survive the death of a memif peer. DPDK's memif driver notices it on a thread of
 * its own, forbids bursts on the port, and unmaps the rings at once, while the thread that polls
 * may still be within a burst, which ends in SIGSEGV. So munmap() of this program, which the driver
 * calls, waits on other threads until a burst that has begun is over; one that begins later finds
 * the port down.
 */
#ifndef SL_TESTING_DPDK_MEMIF_GUARD_H
#define SL_TESTING_DPDK_MEMIF_GUARD_H

#include <stdatomic.h>

/* The polling thread counts: odd within a round of bursts. */
extern _Atomic unsigned sl_memif_round;

static inline void sl_memif_enter(void)
{
    atomic_fetch_add_explicit(&sl_memif_round, 1, memory_order_seq_cst);
}

static inline void sl_memif_leave(void)
{
    atomic_fetch_add_explicit(&sl_memif_round, 1, memory_order_release);
}

/* The calling thread is the one that polls. */
void sl_memif_guard(void);

#endif
