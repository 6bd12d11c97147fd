/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of SLUICE_DPDK_PORTS, for people: each is opened to look at it, and closed. */
#include "core/err.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "dpdk/iface.h"

#include <stdio.h>
#include <string.h>

static void describe(const struct sl_dpdk_port *port, struct sl_device *out)
{
    struct sl_dpdk_port_info info;
    const uint8_t *ip = info.address.ip;

    sl_dpdk_port_info(port, &info);
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", info.name);
    snprintf(out->detail, sizeof(out->detail),
             "driver %s, link %s, %u.%u.%u.%u/%u, UDP port %u, frames up to %u bytes, payload %s%s",
             info.driver, info.is_up ? "up" : "down", ip[0], ip[1], ip[2], ip[3],
             info.address.prefix, info.address.udp_port, info.frame_most,
             info.sends_segments ? "sent in place" : "copied",
             info.has_interrupts ? ", interrupts" : "");
    out->speed = info.speed;
    out->reach = SL_REACH_NETWORK;
    out->numa_node = info.numa_node;
}

int sl_dpdk_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings wanted = sl_dpdk_ports_wanted(config, (int)config->rank);
    int err;

    if (sl_dpdk_config(config)->ports[0] == '\0')
        return sl_fail(-ENODEV, "SLUICE_DPDK_PORTS names no port (docs/dpdk.md)");
    err = sl_dpdk_ports_get(&wanted, ports, SL_DPDK_PORTS_MAX, count);
    if (err != 0)
        return err;
    for (size_t i = 0; i < *count && i < cap; i++)
        describe(ports[i], &out[i]);
    sl_dpdk_ports_put(ports, *count);
    return 0;
}
