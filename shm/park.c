/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping without losing a wake-up, at no cost to threads that are awake.
 *
 * A publisher stores its data and then reads the peer's `asleep` word. Between that
 * store and that load stands no fence: a full barrier per message would cost as much as a third of
 * the message. So the processor may perform the load first, see "awake", and only then make the
 * store visible; meanwhile the sleeper could set its word, look for work, find none, and sleep for
 * good.
 *
 * The sleeper pays instead. It sets its word, then calls membarrier(GLOBAL_EXPEDITED), which makes
 * every running thread of every registered process pass a full barrier, and looks for work only
 * then. For each publisher its barrier lies either
 *   - after the load of the word in program order: then the store, which is earlier still, is
 *   visible
 *     to the sleeper's look; or
 *   - before the load: then the load is performed after the sleeper's own store, sees it, and
 *   wakes.
 * A thread that is not running has passed a barrier when it was switched out, and passes another
 * before it goes on.
 *
 * Where the call is missing, or a peer did not register for it, the sleeper sets a timer instead: a
 * wake-up may then be lost, but for no longer than the timer, as store buffers drain by themselves.
 */
#include "shm/shm.h"

#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <sys/timerfd.h>
#include <unistd.h>

#define NAP_NS 1000000

bool shm_barrier_register(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
           (commands & MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) != 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

int shm_fd(struct sl_iface *iface)
{
    return shm_iface_of(iface)->epoll_fd;
}

static void set_timer(struct shm_iface *iface)
{
    struct itimerspec nap = {.it_value = {.tv_nsec = NAP_NS}};

    timerfd_settime(iface->timer.fd, 0, &nap, NULL);
}

int shm_arm(struct sl_iface *base)
{
    struct shm_iface *iface = shm_iface_of(base);
    bool barrier = iface->barrier;

    if (++iface->sleeps == 0)
        iface->sleeps = 1;
    atomic_store_explicit(&iface->page->asleep, iface->sleeps, memory_order_relaxed);
    if (barrier)
        barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
    atomic_thread_fence(memory_order_seq_cst);
    sl_list_foreach(&iface->active, node)
    {
        if (shm_ep_ready(sl_container_of(node, struct shm_ep, active))) {
            shm_disarm(base);
            return -EAGAIN;
        }
    }
    /* Dialling again, deadlines and departures have no event of their own either. */
    if (!barrier || iface->connecting > 0 || iface->chores > 0)
        set_timer(iface);
    return 0;
}

void shm_disarm(struct sl_iface *base)
{
    struct shm_iface *iface = shm_iface_of(base);

    atomic_store_explicit(&iface->page->asleep, 0, memory_order_relaxed);
    iface->events_due = true;
}

void shm_wake(struct sl_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    uint32_t sleep = atomic_load_explicit(base->peer_asleep, memory_order_relaxed);

    /* Once per sleep is enough: it takes the peer a while to clear its word. */
    if (sleep == 0 || sleep == ep->woken || ep->peer_event < 0)
        return;
    ep->woken = sleep;
    if (eventfd_write(ep->peer_event, 1) != 0)
        return; /* EAGAIN: the counter is full, so the peer has been woken */
}

/* The event and the timer are watched edge-triggered: to have seen them is enough. */
void shm_park_ready(struct shm_iface *iface, struct shm_source *source)
{
    (void)iface;
    (void)source;
}
