/* SPDX-License-Identifier: Apache-2.0 */
/* The list of this process's communicators, and progress on those of a waiting thread. */
#include "collectives/kin.h"

#include "core/fork.h"
#include "core/relax.h"

#include <sched.h>

_Atomic unsigned sl_kin_count;
_Thread_local char sl_kin_thread;

#define BORROWED_MAX 64     /* communicators moved in one pass */
#define TRIES_PER_YIELD 200 /* some 10 microseconds */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node list = {&list, &list};

/* In a child: its parent's list, maybe as another thread was changing it. Nobody reads it; leak
 * checkers see it here. */
static struct sl_node *parents __attribute__((used));

static void forget_parents(void)
{
    parents = list.next;
    sl_list_init(&list);
    pthread_mutex_init(&list_lock, NULL);
    atomic_store(&sl_kin_count, 0);
}

void sl_kin_join(struct sluice_comm *comm)
{
    sl_fork_on_child(forget_parents);
    pthread_mutex_lock(&list_lock);
    sl_list_push_back(&list, &comm->kin);
    pthread_mutex_unlock(&list_lock);
    atomic_fetch_add(&sl_kin_count, 1);
}

/* Looks before it writes: who waits must not take the line from who is inside. */
static bool claim(struct sluice_comm *comm)
{
    return atomic_load_explicit(&comm->claimed, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&comm->claimed, 1, memory_order_acquire) == 0;
}

static void give_back(struct sluice_comm *comm)
{
    atomic_store_explicit(&comm->claimed, 0, memory_order_release);
}

void sl_kin_leave(struct sluice_comm *comm)
{
    bool joined;

    pthread_mutex_lock(&list_lock);
    joined = comm->kin.next != NULL;
    if (joined)
        sl_list_remove(&comm->kin);
    pthread_mutex_unlock(&list_lock);
    if (!joined)
        return;
    atomic_fetch_sub(&sl_kin_count, 1);
    /* A waiting thread may be in the middle of a pass over it. */
    sl_kin_await(comm);
    give_back(comm);
}

/* Takes other for a pass, if it is this thread's and nobody is inside. */
static bool borrow(struct sluice_comm *comm, struct sluice_comm *other)
{
    return other != comm &&
           atomic_load_explicit(&other->home, memory_order_relaxed) == sl_kin_home(comm) &&
           !other->threaded && atomic_load_explicit(&other->movable, memory_order_relaxed) &&
           claim(other);
}

/* Borrows up to BORROWED_MAX of this thread's other communicators. The list is not held while they
 * are used: a pass can end in a tear-down, which may take its time. */
static unsigned borrow_all(struct sluice_comm *comm, struct sluice_comm *out[BORROWED_MAX])
{
    unsigned count = 0;

    if (atomic_load_explicit(&sl_kin_count, memory_order_relaxed) < 2 ||
        pthread_mutex_trylock(&list_lock) != 0)
        return 0;
    sl_list_foreach(&list, node)
    {
        struct sluice_comm *other = sl_container_of(node, struct sluice_comm, kin);

        if (count < BORROWED_MAX && borrow(comm, other))
            out[count++] = other;
    }
    /* Those beyond BORROWED_MAX come first the next time. */
    if (count == BORROWED_MAX) {
        sl_list_remove(&out[0]->kin);
        sl_list_push_back(&list, &out[0]->kin);
    }
    pthread_mutex_unlock(&list_lock);
    return count;
}

void sl_kin_await(struct sluice_comm *comm)
{
    for (unsigned tries = 1; !claim(comm); tries++)
        if (tries % TRIES_PER_YIELD == 0)
            sched_yield(); /* it may have lost its processor to us */
        else
            sl_cpu_relax();
}

void sl_kin_look_after(struct sluice_comm *comm)
{
    if (!claim(comm))
        return;
    sl_comm_mend(comm);
    give_back(comm);
}

unsigned sl_kin_progress(struct sluice_comm *comm)
{
    struct sluice_comm *others[BORROWED_MAX];
    unsigned count = borrow_all(comm, others), moved = 0;

    for (unsigned i = 0; i < count; i++) {
        unsigned its = sl_comm_progress(others[i]);

        sl_comm_idle(others[i], its, false);
        moved += its;
        give_back(others[i]);
    }
    return moved;
}

bool sl_kin_busy(struct sluice_comm *comm)
{
    struct sluice_comm *others[BORROWED_MAX];
    unsigned count = borrow_all(comm, others);
    bool busy = false;

    for (unsigned i = 0; i < count; i++) {
        busy |= !sl_list_empty(&others[i]->calls.active);
        give_back(others[i]);
    }
    return busy;
}
