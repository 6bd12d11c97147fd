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
    snprintf(out->name, sizeof(out->name), "%s", port->name);
    snprintf(out->driver, sizeof(out->driver), "%s", port->driver);
    if (knows_link && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
        out->speed = (uint64_t)link.link_speed * 1000000 / 8;
    out->frame_most = port->frame_most;
    out->numa_node = rte_eth_dev_socket_id(port->id);
    out->sends_segments = port->traits.takes_lent;
    out->has_interrupts = port->has_interrupts;
    out->is_up = port->traits.is_gated ? atomic_load_explicit(&port->is_up, memory_order_relaxed)
                                       : knows_link && link.link_status != 0;
}

/* Counters that others change meanwhile: each is whole, they may be of different moments. */
void sl_dpdk_port_stats(const struct sl_dpdk_port *port, struct sl_dpdk_port_stats *out)
{
    struct rte_eth_stats stats = {0};

    (void)rte_eth_stats_get(port->id, &stats);
    *out = (struct sl_dpdk_port_stats){
        .received = port->received,
        .received_bytes = port->received_bytes,
        .sent = port->sent,
        .sent_bytes = port->sent_bytes,
        .foreign = port->foreign,
        .unknown = port->unknown,
        .inbox_full = port->inbox_full,
        .down_dropped = atomic_load_explicit(&port->down_dropped, memory_order_relaxed),
        .no_memory = atomic_load_explicit(&port->no_memory, memory_order_relaxed) + stats.rx_nombuf,
        .missed = stats.imissed,
        .restarts = port->restarts,
        .injected = sl_dpdk_inject_count(port),
    };
}
