/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of one thread move together: while it waits in one, operations that it started on
 * the others go on, or two ranks could wait for each other in different communicators.
 *
 * A communicator may pass from thread to thread, so a waiting thread touches another one only when
 * its own call was the last on it and nobody is inside: calls claim their communicator. With a
 * single communicator in the process there is nothing to move and nothing is claimed.
 *
 * A communicator whose paths are mended by both ends has a keeper besides (core/keeper.h), which
 * moves its transports while no call is inside: calls on it are claimed as well.
 */
#ifndef SL_COLLECTIVES_KIN_H
#define SL_COLLECTIVES_KIN_H

#include "collectives/comm.h"

extern _Atomic unsigned sl_kin_count;    /* communicators of this process */
extern _Thread_local char sl_kin_thread; /* its address is the thread's name */

void sl_kin_join(struct sluice_comm *comm);
void sl_kin_leave(struct sluice_comm *comm);

/* Progress on the communicators that this thread used last, but for comm. Returns how much
 * moved. */
unsigned sl_kin_progress(struct sluice_comm *comm);

/* What the keeper of comm does: mends paths, if nobody is inside. On any thread. */
void sl_kin_look_after(struct sluice_comm *comm);

/* Claims comm once it is free: whoever is inside makes a pass over it, or a keeper's look. */
void sl_kin_await(struct sluice_comm *comm);

/* Some of them have operations under way. */
bool sl_kin_busy(struct sluice_comm *comm);

/* The simulator's ranks are fibers of one thread; each counts as a thread. */
static inline const void *sl_kin_home(const struct sluice_comm *comm)
{
    return comm->worker.idle != NULL ? comm->worker.idle_arg : &sl_kin_thread;
}

static inline void sl_kin_claim(struct sluice_comm *comm)
{
    /* Once claimed, claimed always: else a thread that used it last, and that makes a second
     * communicator just now, could borrow it while a call of another thread, begun when it was the
     * only one, is inside. */
    bool shared = atomic_load_explicit(&comm->movable, memory_order_relaxed) ||
                  atomic_load_explicit(&sl_kin_count, memory_order_relaxed) > 1 || comm->kept;

    atomic_store_explicit(&comm->home, sl_kin_home(comm), memory_order_relaxed);
    if (SL_UNLIKELY(shared &&
                    atomic_exchange_explicit(&comm->claimed, 1, memory_order_acquire) != 0))
        sl_kin_await(comm);
    atomic_store_explicit(&comm->movable, shared, memory_order_relaxed);
}

static inline void sl_kin_release(struct sluice_comm *comm)
{
    if (SL_UNLIKELY(atomic_load_explicit(&comm->movable, memory_order_relaxed)))
        atomic_store_explicit(&comm->claimed, 0, memory_order_release);
}

#endif
