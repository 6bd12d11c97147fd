/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of SLUICE_DPDK_PORTS, for people: each is opened to look at it, and closed. */
#include "core/err.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "dpdk/iface.h"

#include <stdio.h>
#include <string.h>

/* "10.1.0.2/24, fd00:1::2/64" */
static void addresses(const struct sl_dpdk_address *address, char *out, size_t cap)
{
    struct sl_dpdk_address only6 = *address;
    char text[SL_DPDK_ADDRESS_TEXT];
    int len = 0;

    memset(only6.ip, 0, sizeof(only6.ip));
    *out = '\0';
    if (sl_dpdk_has_ip4(address))
        len = snprintf(out, cap, "%s/%u%s", sl_dpdk_address_text(address, text), address->prefix,
                       sl_dpdk_has_ip6(address) ? ", " : "");
    if (sl_dpdk_has_ip6(address))
        snprintf(out + len, cap - (size_t)len, "%s/%u", sl_dpdk_address_text(&only6, text),
                 address->prefix6);
}

static void describe(const struct sl_dpdk_port *port, struct sl_device *out)
{
    struct sl_dpdk_port_info info;
    char ips[2 * SL_DPDK_ADDRESS_TEXT + 16];

    sl_dpdk_port_info(port, &info);
    addresses(&info.address, ips, sizeof(ips));
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", info.name);
    snprintf(out->detail, sizeof(out->detail),
             "driver %s, link %s, %s, UDP port %u, frames up to %u bytes, payload %s%s",
             info.driver, info.is_up ? "up" : "down", ips, info.address.udp_port, info.frame_most,
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
