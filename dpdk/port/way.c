/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of what goes to a peer's port: Ethernet, IPv4 or IPv6, UDP. */
#include "core/err.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/sum.h"

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

struct heads6 {
    struct rte_ether_hdr ether;
    struct rte_ipv6_hdr ip;
    struct rte_udp_hdr udp;
} __attribute__((packed, aligned(2)));
_Static_assert(sizeof(struct heads6) == SL_DPDK_WAY6_BYTES, "as in port.h");

/* The MAC to send to: the peer's own within the subnet, as it told it; else the gateway's. */
static int next_hop(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer, bool is_ip6,
                    uint8_t mac[6])
{
    static const uint8_t none[16];
    const struct sl_dpdk_address *own = &port->address;
    bool is_near = is_ip6 ? sl_dpdk_same_subnet(own->ip6, peer->ip6, own->prefix6)
                          : sl_dpdk_same_subnet(own->ip, peer->ip, own->prefix);
    const uint8_t *ip =
        is_ip6 ? (is_near ? peer->ip6 : port->gateway6) : (is_near ? peer->ip : port->gateway);
    char text[SL_DPDK_ADDRESS_TEXT];

    if (is_near && memcmp(peer->mac, none, 6) != 0) {
        memcpy(mac, peer->mac, 6);
        return 0;
    }
    if (memcmp(ip, none, is_ip6 ? 16 : 4) == 0)
        return sl_fail(-EHOSTUNREACH,
                       "%s is in another subnet than DPDK port '%s', which has no gateway: "
                       "add @gw=ADDRESS to it in SLUICE_DPDK_PORTS",
                       sl_dpdk_address_text(peer, text), port->name);
    return is_ip6 ? sl_dpdk_nd_find(port, ip, mac) : sl_dpdk_arp_find(port, ip, mac);
}

static void put_ip4(const struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                    uint8_t traffic_class, struct rte_ipv4_hdr *ip)
{
    ip->version_ihl = 0x45;
    ip->type_of_service = (uint8_t)((traffic_class & ~3u) | ECT_0);
    ip->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
    ip->time_to_live = HOPS;
    ip->next_proto_id = IPPROTO_UDP;
    memcpy(&ip->src_addr, port->address.ip, 4);
    memcpy(&ip->dst_addr, peer->ip, 4);
    ip->hdr_checksum = rte_ipv4_cksum(ip); /* of length 0: put_way() adds it */
}

static void put_ip6(const struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                    uint8_t traffic_class, struct rte_ipv6_hdr *ip)
{
    uint32_t class = (traffic_class & ~3u) | ECT_0;

    ip->vtc_flow = rte_cpu_to_be_32(UINT32_C(6) << 28 | class << 20);
    ip->proto = IPPROTO_UDP;
    ip->hop_limits = HOPS;
    memcpy(&ip->src_addr, port->address.ip6, 16);
    memcpy(&ip->dst_addr, peer->ip6, 16);
}

int sl_dpdk_way_make(struct sl_dpdk_port *port, const struct sl_dpdk_address *peer,
                     uint16_t source_port, uint8_t traffic_class, struct sl_dpdk_way *out)
{
    struct rte_udp_hdr udp = {.src_port = rte_cpu_to_be_16(source_port),
                              .dst_port = rte_cpu_to_be_16(peer->udp_port)};
    bool is_ip6 = !(sl_dpdk_has_ip4(&port->address) && sl_dpdk_has_ip4(peer));
    struct sl_dpdk_way way = {.is_ip6 = is_ip6};
    struct rte_ether_hdr ether = {0};
    char text[SL_DPDK_ADDRESS_TEXT];
    int err;

    if (is_ip6 && !(sl_dpdk_has_ip6(&port->address) && sl_dpdk_has_ip6(peer)))
        return sl_fail(-EHOSTUNREACH,
                       "%s and DPDK port '%s' have no IP version in common: add an address of the "
                       "other one to either in SLUICE_DPDK_PORTS",
                       sl_dpdk_address_text(peer, text), port->name);
    err = next_hop(port, peer, is_ip6, ether.dst_addr.addr_bytes);
    if (err != 0)
        return err;
    memcpy(ether.src_addr.addr_bytes, port->address.mac, 6);
    ether.ether_type = rte_cpu_to_be_16(is_ip6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
    if (is_ip6) {
        struct heads6 heads = {.ether = ether, .udp = udp};

        put_ip6(port, peer, traffic_class, &heads.ip);
        way.pseudo =
            sl_dpdk_sum_fold(sl_dpdk_sum(&heads.ip.src_addr, 32) + rte_cpu_to_be_16(IPPROTO_UDP));
        memcpy(way.head, &heads, sizeof(heads));
    } else {
        struct heads heads = {.ether = ether, .udp = udp};

        put_ip4(port, peer, traffic_class, &heads.ip);
        memcpy(way.head, &heads, sizeof(heads));
    }
    *out = way;
    return 0;
}
