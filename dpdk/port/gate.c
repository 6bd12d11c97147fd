/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK's control thread, kept out of the way of bursts.
 *
 * When a memif peer goes, DPDK's interrupt thread unmaps the shared memory at once, and a burst
 * that reads it at that moment ends the process (DPDK 22.11 to 26.07). The driver has no lock
 * for it. So that thread is kept in a callback of ours, the gate, which is due whenever the thread
 * looks (an eventfd that is never read). It leaves the gate with the control lock and the locks of
 * all gated ports, and gives them back when it enters again: everything else it does happens in
 * between, in particular what the driver does.
 *
 *   gate:   look at links | give locks | start again | sleep 1 to 50 ms | take locks ->
 *   driver: accept, connect, unmap, ... ->
 *
 * Between these the data path runs as ever: it tries a port's lock, and skips a burst when the
 * thread has it, which takes some microseconds.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/inside.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_interrupts.h>

#define ENTER_MS 5000

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* on the monotonic clock */
static bool is_installed, has_entered, is_hurried;
static bool is_out; /* the thread has left the gate with the locks: known to it alone */

bool sl_dpdk_control_lock(void)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + ENTER_MS * SL_NS_PER_MS;

    while (pthread_mutex_trylock(&control) != 0) {
        if (sl_now(&sl_clock_monotonic) > until_ns) {
            sl_fail_text(-ETIMEDOUT, "DPDK's control thread hangs: in a memif server that accepts "
                                     "no connection, or in a driver");
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return true;
}

void sl_dpdk_control_unlock(void)
{
    pthread_mutex_unlock(&control);
}

void sl_dpdk_gate_hurry(void)
{
    is_hurried = true;
    if (is_installed)
        pthread_cond_broadcast(&changed);
}

static void each_gated(void (*act)(struct sl_dpdk_lock *lock))
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port != NULL && port->traits.is_gated) {
            act(&port->rx);
            act(&port->tx);
        }
    }
}

static void enter(void)
{
    if (!is_out)
        pthread_mutex_lock(&control); /* the first time */
    sl_dpdk_links_note(sl_now(&sl_clock_monotonic));
    if (is_out)
        each_gated(sl_dpdk_lock_give);
    is_out = false;
    has_entered = true;
    pthread_cond_broadcast(&changed);
}

/* The lock of the condition is control, which others have meanwhile. */
static void wait_inside(uint64_t wait_ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((until.tv_nsec + wait_ns) / SL_NS_PER_S);
    until.tv_nsec = (long)((until.tv_nsec + wait_ns) % SL_NS_PER_S);
    while (!is_hurried && pthread_cond_timedwait(&changed, &control, &until) == 0)
        ;
    is_hurried = false;
}

static void gate(void *arg)
{
    (void)arg;
    enter();
    wait_inside(sl_dpdk_links_restart(sl_now(&sl_clock_monotonic)));
    each_gated(sl_dpdk_lock_wait);
    is_out = true;
}

static int wait_for_entry(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ENTER_MS / 1000;
    while (!has_entered) {
        if (pthread_cond_timedwait(&changed, &control, &until) != 0)
            return sl_fail(-ETIMEDOUT, "DPDK's control thread did not answer within %d ms",
                           ENTER_MS);
    }
    return 0;
}

int sl_dpdk_gate_install(void)
{
    static struct rte_intr_handle *handle; /* as long as the process */
    pthread_condattr_t attr;
    int fd, err;

    if (is_installed)
        return 0;
    handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Of this type nothing is read from the descriptor, so that it stays due. */
    if (handle == NULL || fd < 0 || rte_intr_fd_set(handle, fd) != 0 ||
        rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) != 0)
        err = -ENOMEM;
    else
        err = rte_intr_callback_register(handle, gate, NULL);
    if (err != 0) {
        rte_intr_instance_free(handle);
        if (fd >= 0)
            close(fd);
        return sl_fail(err, "DPDK's control thread cannot be watched: %s", strerror(-err));
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
    is_installed = true;
    return wait_for_entry();
}
