/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group in which a port's IPv6 address is asked for (its solicited-node group): what is sent
 * there has a MAC of its own, which a NIC has to be told. An interface of the kernel that a port
 * looks through is told by a packet socket, and forgets it with the socket; wires without a filter
 * (memif, ring) need nothing.
 */
#include "core/log.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/nd.h"

#include <errno.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_ether.h>

/* The interface of the kernel that the port is a view of. */
static bool interface_of(const struct sl_dpdk_port *port, char *out, size_t cap)
{
    return (strncmp(port->spec.name, "net_af_packet", 13) == 0 ||
            strncmp(port->spec.name, "net_af_xdp", 10) == 0) &&
           sl_dpdk_arg(port->spec.args, "iface", out, cap);
}

/* A socket that receives nothing, and is in the group. Negative errno. */
static int join_by_kernel(const char *interface, const uint8_t mac[6])
{
    struct packet_mreq wish = {
        .mr_ifindex = (int)if_nametoindex(interface), .mr_type = PACKET_MR_MULTICAST, .mr_alen = 6};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), err;

    if (fd < 0)
        return -errno;
    memcpy(wish.mr_address, mac, 6);
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, sizeof(wish)) == 0)
        return fd;
    err = -errno;
    close(fd);
    return err;
}

static int join_by_driver(const struct sl_dpdk_port *port, const uint8_t mac[6])
{
    struct rte_ether_addr group;
    int err;

    memcpy(group.addr_bytes, mac, 6);
    err = rte_eth_dev_set_mc_addr_list(port->id, &group, 1);
    return err == 0 ? 0 : rte_eth_allmulticast_enable(port->id);
}

void sl_dpdk_group_join(struct sl_dpdk_port *port)
{
    char interface[IFNAMSIZ];
    uint8_t mac[6];
    int err;

    if (port->address.prefix6 == 0)
        return;
    sl_dpdk_nd_group_mac(port->address.ip6, mac);
    if (interface_of(port, interface, sizeof(interface))) {
        err = join_by_kernel(interface, mac);
        port->group_fd = err >= 0 ? err : -1;
    } else {
        err = join_by_driver(port, mac);
        if (port->spec.kind != SL_DPDK_PCI)
            return;
    }
    if (err < 0)
        sl_warn("dpdk",
                "port %s cannot hear who asks for its IPv6 address (%s): a gateway will not find "
                "it, unless the address is entered there",
                port->name, strerror(-err));
}

void sl_dpdk_group_leave(struct sl_dpdk_port *port)
{
    if (port->group_fd >= 0)
        close(port->group_fd);
    port->group_fd = -1;
}
