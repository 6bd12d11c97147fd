/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that the data path tries and never waits for. Who has to have it (a port that closes, the
 * gate) says so, and gets it before the next one that tries. */
#ifndef SL_DPDK_PORT_LOCK_H
#define SL_DPDK_PORT_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_dpdk_lock {
    _Atomic uint32_t taken, wanted;
};

static inline bool sl_dpdk_lock_try(struct sl_dpdk_lock *lock)
{
    if ((atomic_load_explicit(&lock->taken, memory_order_relaxed) |
         atomic_load_explicit(&lock->wanted, memory_order_relaxed)) != 0)
        return false;
    return atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire) == 0;
}

/* Who has it gives it back after one burst, so this is short. */
static inline void sl_dpdk_lock_wait(struct sl_dpdk_lock *lock)
{
    atomic_fetch_add_explicit(&lock->wanted, 1, memory_order_relaxed);
    while (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire) != 0)
        sched_yield();
    atomic_fetch_sub_explicit(&lock->wanted, 1, memory_order_relaxed);
}

static inline void sl_dpdk_lock_give(struct sl_dpdk_lock *lock)
{
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
}

#endif
