/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's use of ports. */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/eal.h"
#include "dpdk/port/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define LINE_BYTES 65536
#define CLOSE_MS 200 /* for a driver to give lent payload back */

static _Atomic unsigned number; /* of users made: names of rings */

static struct rte_ring *make_ring(const char *what, unsigned size, unsigned flags)
{
    char name[RTE_RING_NAMESIZE];

    snprintf(name, sizeof(name), "sluice_%s_%u", what, atomic_fetch_add(&number, 1));
    return rte_ring_create(name, size, SOCKET_ID_ANY, flags);
}

int sl_dpdk_user_open(sl_dpdk_packet_fn packet, sl_dpdk_sent_fn sent, void *arg,
                      struct sl_dpdk_user **out)
{
    struct sl_dpdk_user *user = calloc(1, sizeof(*user));

    if (user == NULL)
        return sl_fail(-ENOMEM, "no memory for an engine of DPDK ports");
    user->packet = packet;
    user->sent = sent;
    user->arg = arg;
    user->line = malloc(LINE_BYTES);
    user->inbox = make_ring("inbox", SL_DPDK_INBOX, RING_F_SC_DEQ);
    user->done = make_ring("done", 2 * SL_DPDK_KEPT_MOST, RING_F_SC_DEQ);
    if (user->line == NULL || user->inbox == NULL || user->done == NULL) {
        rte_ring_free(user->inbox);
        rte_ring_free(user->done);
        free(user->line);
        free(user);
        return sl_fail(-ENOMEM, "no memory for an engine of DPDK ports (%s)",
                       rte_strerror(rte_errno));
    }
    *out = user;
    return 0;
}

/* Nobody who polls a port now still knows the user when this returns. */
static void pass_every_port(void)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port == NULL)
            continue;
        sl_dpdk_lock_wait(&port->rx);
        sl_dpdk_lock_give(&port->rx);
    }
}

static void clean_ports(void)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port == NULL)
            continue;
        sl_dpdk_lock_wait(&port->tx);
        (void)rte_eth_tx_done_cleanup(port->id, 0, 0); /* few drivers can, and few need it */
        sl_dpdk_lock_give(&port->tx);
    }
}

static void wait_for_kept(struct sl_dpdk_user *user)
{
    uint64_t until = sl_now(&sl_clock_monotonic) + CLOSE_MS * SL_NS_PER_MS;

    for (;;) {
        sl_dpdk_user_done(user);
        if (user->kept == 0 || sl_now(&sl_clock_monotonic) > until)
            return;
        clean_ports();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

void sl_dpdk_user_close(struct sl_dpdk_user *user)
{
    void *packet;

    if (user == NULL)
        return;
    sl_dpdk_flows_forget(user);
    if (!sl_dpdk_control_lock()) { /* no port goes meanwhile */
        sl_warn("dpdk", "an engine stays: %s", sluice_last_error());
        return;
    }
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        if (sl_dpdk_open_ports[i] != NULL)
            sl_dpdk_drop(user, sl_dpdk_open_ports[i]);
    }
    pass_every_port();
    while (rte_ring_dequeue(user->inbox, &packet) == 0)
        rte_pktmbuf_free(packet);
    wait_for_kept(user);
    sl_dpdk_control_unlock();
    if (user->kept > 0) {
        /* The callback of each will use it. */
        sl_warn("dpdk", "a driver did not give %u packets back within %d ms", user->kept, CLOSE_MS);
        return;
    }
    rte_ring_free(user->inbox);
    rte_ring_free(user->done);
    free(user->line);
    free(user);
}
