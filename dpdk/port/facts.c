/* SPDX-License-Identifier: Apache-2.0 */
/* What a port is, and what it has counted. */
#include "dpdk/port/inject.h"
#include "dpdk/port/inside.h"

#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>

void sl_dpdk_port_info(const struct sl_dpdk_port *port, struct sl_dpdk_port_info *out)
{
    struct rte_eth_link link = {0};
    bool knows_link = rte_eth_link_get_nowait(port->id, &link) == 0;

    *out = (struct sl_dpdk_port_info){.address = port->address};
    out->has_gateway = port->gateway[0] != 0;
    out->has_gateway6 = memcmp(port->gateway6, (const uint8_t[16]){0}, 16) != 0;
    snprintf(out->name, sizeof(out->name), "%s", port->name);
    snprintf(out->driver, sizeof(out->driver), "%s", port->driver);
    if (knows_link && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
        out->speed = (uint64_t)link.link_speed * 1000000 / 8;
    out->frame_most = port->frame_most;
    out->numa_node = rte_eth_dev_socket_id(port->id);
    out->sends_segments = port->traits.takes_lent;
    out->has_interrupts = port->sleep_fd >= 0;
    out->is_refused = atomic_load_explicit(&port->is_refused, memory_order_relaxed);
    out->is_up = port->traits.is_gated ? atomic_load_explicit(&port->is_up, memory_order_relaxed)
                                       : knows_link && link.link_status != 0;
}

void sl_dpdk_port_stats(struct sl_dpdk_port *port, struct sl_dpdk_port_stats *out)
{
    struct rte_eth_stats stats = {0};

    *out = (struct sl_dpdk_port_stats){0};
    sl_dpdk_lock_wait(&port->rx);
    out->received = port->received;
    out->received_bytes = port->received_bytes;
    out->foreign = port->foreign;
    out->unknown = port->unknown;
    out->inbox_full = port->inbox_full;
    out->split = port->split;
    out->injected = sl_dpdk_inject_count(port);
    sl_dpdk_lock_wait(&port->tx);
    out->sent = port->sent;
    out->sent_bytes = port->sent_bytes;
    (void)rte_eth_stats_get(port->id, &stats);
    sl_dpdk_lock_give(&port->tx);
    sl_dpdk_lock_give(&port->rx);
    out->damaged = atomic_load_explicit(&port->damaged, memory_order_relaxed);
    out->down_dropped = atomic_load_explicit(&port->down_dropped, memory_order_relaxed);
    out->no_memory = atomic_load_explicit(&port->no_memory, memory_order_relaxed) + stats.rx_nombuf;
    out->missed = stats.imissed;
    out->restarts = atomic_load_explicit(&port->restarts, memory_order_relaxed);
}
