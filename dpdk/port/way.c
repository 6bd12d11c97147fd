/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of what goes to a peer's port: Ethernet, IPv4, UDP. */
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#define HOPS 64
#define ECT_0 2 /* able to be marked (ECN) */

struct heads {
    struct rte_ether_hdr ether;
    struct rte_ipv4_hdr ip;
    struct rte_udp_hdr udp;
} __attribute__((packed, aligned(2)));
_Static_assert(sizeof(struct heads) == SL_DPDK_WAY_BYTES, "as in port.h");

static bool is_near(const struct sl_dpdk_port *port, const uint8_t ip[4])
{
    uint32_t own, other, mask;

    memcpy(&own, port->address.ip, 4);
    memcpy(&other, ip, 4);
    mask = port->address.prefix == 0 ? 0 : UINT32_MAX << (32 - port->address.prefix);
    return ((own ^ other) & rte_cpu_to_be_32(mask)) == 0;
}

/* The MAC to send to: the peer's own within the subnet, as it told it; else the gateway's. */
static int next_hop(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer, uint8_t mac[6])
{
    static const uint8_t none[6];
    const uint8_t *ip = is_near(port, peer->ip) ? peer->ip : port->gateway;

    if (ip == peer->ip && memcmp(peer->mac, none, 6) != 0) {
        memcpy(mac, peer->mac, 6);
        return 0;
    }
    if (memcmp(ip, none, 4) == 0)
        return sl_fail(
            -EHOSTUNREACH,
            "%u.%u.%u.%u is in another subnet than DPDK port '%s', which has no gateway: "
            "add @gw=ADDRESS to it in SLUICE_DPDK_PORTS",
            peer->ip[0], peer->ip[1], peer->ip[2], peer->ip[3], port->name);
    return sl_dpdk_arp_find(port, ip, mac);
}

int sl_dpdk_way_make(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                     uint16_t source_port, uint8_t traffic_class, struct sl_dpdk_way *out)
{
    struct heads heads = {0};
    int err = next_hop(port, peer, heads.ether.dst_addr.addr_bytes);

    if (err != 0)
        return err;
    memcpy(heads.ether.src_addr.addr_bytes, port->address.mac, 6);
    heads.ether.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
    heads.ip.version_ihl = 0x45;
    heads.ip.type_of_service = (uint8_t)((traffic_class & ~3u) | ECT_0);
    heads.ip.fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
    heads.ip.time_to_live = HOPS;
    heads.ip.next_proto_id = IPPROTO_UDP;
    memcpy(&heads.ip.src_addr, port->address.ip, 4);
    memcpy(&heads.ip.dst_addr, peer->ip, 4);
    heads.ip.hdr_checksum = rte_ipv4_cksum(&heads.ip); /* of length 0: put_way() adds it */
    heads.udp.src_port = rte_cpu_to_be_16(source_port);
    heads.udp.dst_port = rte_cpu_to_be_16(peer->udp_port);
    memcpy(out->head, &heads, sizeof(heads));
    return 0;
}
