/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links of memif. A client tries once to connect, when it is started, so it is started again until
 * there is a server. Never while it has a connection, though: one that waits for the server to
 * accept it, and is closed meanwhile, ends the server's process (see memif.c). A connection that
 * leads nowhere ends with the server.
 */
#include "core/clock.h"
#include "core/log.h"
#include "dpdk/port/inside.h"

#include <rte_config.h>
#include <rte_ethdev.h>

#define AGAIN_LEAST_NS (10 * SL_NS_PER_MS)
#define AGAIN_MOST_NS (200 * SL_NS_PER_MS)
/* How long the control thread sleeps: while an attempt is under way, which takes some ten messages;
 * while a port waits for a peer; and while all are up, when it notices a peer that went. */
#define HURRY_NS (1 * SL_NS_PER_MS)
#define WAIT_NS (20 * SL_NS_PER_MS)
#define CALM_NS (50 * SL_NS_PER_MS)
#define ATTEMPT_NS (1000 * SL_NS_PER_MS)
#define RESTART_MS 20 /* that the control thread waits for a start: then it asks again and again */
#define REFUSED_NS (SL_DPDK_START_MS * SL_NS_PER_MS)

bool sl_dpdk_link_is_up(const struct sl_dpdk_port *port)
{
    struct rte_eth_link link = {0};

    return port->has_started && rte_eth_link_get_nowait(port->id, &link) == 0 &&
           link.link_status != 0;
}

void sl_dpdk_links_note(uint64_t now_ns)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port == NULL || !port->traits.is_gated)
            continue;
        bool is_up = sl_dpdk_link_is_up(port);
        if (atomic_exchange_explicit(&port->is_up, is_up, memory_order_relaxed) == is_up)
            continue;
        sl_debug("dpdk", "port %s is %s", port->name, is_up ? "up" : "down");
        port->hurry_until_ns = now_ns + ATTEMPT_NS;
        port->is_fresh = is_up;
    }
}

/* Bursts leave the port alone, or not any more. */
static void has_started(struct sl_dpdk_port *port, bool has)
{
    sl_dpdk_lock_wait(&port->rx);
    sl_dpdk_lock_wait(&port->tx);
    if (port->has_started && !has)
        (void)rte_eth_dev_stop(port->id);
    port->has_started = has;
    sl_dpdk_lock_give(&port->tx);
    sl_dpdk_lock_give(&port->rx);
}

void sl_dpdk_client_take(struct sl_dpdk_port *port, int err)
{
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    bool is_refused;

    port->is_starting = err == -EINPROGRESS;
    is_refused = port->is_starting && now_ns - port->starting_ns >= REFUSED_NS;
    if (is_refused && !port->is_refused)
        sl_warn("dpdk", "port %s: the process that listens at its memif socket takes no connection",
                port->name);
    port->is_refused = is_refused;
    if (err != 0)
        return;
    has_started(port, true);
    sl_dpdk_memif_find_socket(port);
    port->hurry_until_ns = now_ns + ATTEMPT_NS;
}

static void restart(struct sl_dpdk_port *port, uint64_t now_ns)
{
    has_started(port, false);
    port->restarts++;
    port->starting_ns = now_ns;
    sl_dpdk_client_take(port, sl_dpdk_client_start(port->id, RESTART_MS));
}

static void restart_when_due(struct sl_dpdk_port *port, uint64_t now_ns)
{
    uint64_t wait_ns = port->restart_wait_ns;

    if (port->is_starting) {
        sl_dpdk_client_take(port, sl_dpdk_client_started(port->id, 0));
        return;
    }
    if (!port->is_client || sl_dpdk_memif_has_socket(port) || now_ns < port->restart_ns)
        return;
    wait_ns = wait_ns == 0 ? AGAIN_LEAST_NS : wait_ns * 3 / 2;
    port->restart_wait_ns = wait_ns < AGAIN_MOST_NS ? wait_ns : AGAIN_MOST_NS;
    port->restart_ns = now_ns + port->restart_wait_ns;
    restart(port, now_ns);
}

/* The rings of a new connection have no flags of old frames: docs/design/0048-dpdk.md. */
static void renew(struct sl_dpdk_port *port, uint64_t now_ns)
{
    uint32_t len = atomic_load_explicit(&port->spoiled_by, memory_order_relaxed);
    bool is_long = len > port->traits.frame_most;

    sl_warn(
        "dpdk",
        "port %s got a frame of %u bytes in several buffers of %u bytes (bsize=), after which a "
        "sender may damage frames: it connects anew; %s",
        port->name, len, port->traits.frame_most,
        is_long ? "say bsize= of the longest frame that the other end passes"
                : "the other end's DPDK needs mbufs as long as the frames that it passes");
    restart(port, now_ns);
    atomic_store_explicit(&port->is_spoiled, false, memory_order_relaxed);
}

uint64_t sl_dpdk_links_restart(uint64_t now_ns)
{
    uint64_t wait_ns = CALM_NS;

    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        struct sl_dpdk_port *port = sl_dpdk_open_ports[i];

        if (port == NULL || !port->traits.is_gated)
            continue;
        if (port->is_fresh)
            sl_dpdk_memif_own_sockets(port);
        port->is_fresh = false;
        if (atomic_load_explicit(&port->is_spoiled, memory_order_acquire))
            renew(port, now_ns);
        if (atomic_load_explicit(&port->is_up, memory_order_relaxed)) {
            port->restart_wait_ns = 0;
            continue;
        }
        restart_when_due(port, now_ns);
        uint64_t own_ns = now_ns < port->hurry_until_ns ? HURRY_NS : WAIT_NS;
        wait_ns = own_ns < wait_ns ? own_ns : wait_ns;
    }
    return wait_ns;
}
