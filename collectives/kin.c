/* SPDX-License-Identifier: Apache-2.0 */
/* The list of this process's communicators, and progress on those of a waiting thread. */
#include "collectives/kin.h"

_Atomic unsigned sl_kin_count;
_Thread_local char sl_kin_thread;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node list = {&list, &list};

void sl_kin_join(struct sluice_comm *comm)
{
    pthread_mutex_lock(&list_lock);
    sl_list_push_back(&list, &comm->kin);
    pthread_mutex_unlock(&list_lock);
    atomic_fetch_add(&sl_kin_count, 1);
}

void sl_kin_leave(struct sluice_comm *comm)
{
    pthread_mutex_lock(&list_lock); /* its neighbours leave too, perhaps on other threads */
    bool joined = comm->kin.next != NULL;

    if (joined)
        sl_list_remove(&comm->kin);
    pthread_mutex_unlock(&list_lock);
    if (joined)
        atomic_fetch_sub(&sl_kin_count, 1);
}

/* Takes other for a pass, if it is this thread's and nobody is inside. */
static bool borrow(struct sluice_comm *comm, struct sluice_comm *other)
{
    return other != comm &&
           atomic_load_explicit(&other->home, memory_order_relaxed) == sl_kin_home(comm) &&
           !other->threaded && atomic_load_explicit(&other->movable, memory_order_relaxed) &&
           atomic_exchange_explicit(&other->claimed, 1, memory_order_acquire) == 0;
}

unsigned sl_kin_progress(struct sluice_comm *comm)
{
    unsigned moved = 0;

    if (atomic_load_explicit(&sl_kin_count, memory_order_relaxed) < 2 ||
        pthread_mutex_trylock(&list_lock) != 0)
        return 0;
    sl_list_foreach (&list, node) {
        struct sluice_comm *other = sl_container_of(node, struct sluice_comm, kin);

        if (!borrow(comm, other))
            continue;
        unsigned its = sl_comm_progress(other);

        sl_comm_idle(other, its, false);
        moved += its;
        atomic_store_explicit(&other->claimed, 0, memory_order_release);
    }
    pthread_mutex_unlock(&list_lock);
    return moved;
}

bool sl_kin_busy(struct sluice_comm *comm)
{
    bool busy = false;

    if (atomic_load_explicit(&sl_kin_count, memory_order_relaxed) < 2 ||
        pthread_mutex_trylock(&list_lock) != 0)
        return false;
    sl_list_foreach (&list, node) {
        struct sluice_comm *other = sl_container_of(node, struct sluice_comm, kin);

        if (!borrow(comm, other))
            continue;
        busy |= !sl_list_empty(&other->active);
        atomic_store_explicit(&other->claimed, 0, memory_order_release);
    }
    pthread_mutex_unlock(&list_lock);
    return busy;
}
