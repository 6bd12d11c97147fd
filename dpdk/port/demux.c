/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came on a port: Ethernet, IPv4 and UDP are looked at here, and from there on only the flow's
 * number. Anything may be in a frame; what is not ours is counted and dropped.
 */
#include "dpdk/port/inside.h"
#include "dpdk/proto/wire.h"

#include <stddef.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

struct frame {
    struct rte_ether_hdr ether;
    struct rte_ipv4_hdr ip;
    struct rte_udp_hdr udp;
    uint8_t head[SL_DP_HEAD_BYTES];
} __attribute__((packed, aligned(2)));
_Static_assert(offsetof(struct frame, head) == SL_DPDK_WAY_BYTES, "as in port.h");

/* The whole of an IPv4 packet of UDP without options, to this port; *len: of the UDP payload. */
static bool is_ours(const struct sl_dpdk_port *port, const struct frame *frame, uint32_t packet_len,
                    uint32_t *len)
{
    const struct rte_ipv4_hdr *ip = &frame->ip;
    uint32_t total = rte_be_to_cpu_16(ip->total_length);
    uint32_t udp_len = rte_be_to_cpu_16(frame->udp.dgram_len);

    if (ip->version_ihl != 0x45 || ip->next_proto_id != IPPROTO_UDP ||
        (ip->fragment_offset & rte_cpu_to_be_16(0x3fff)) != 0)
        return false;
    if (memcmp(&ip->dst_addr, port->address.ip, 4) != 0 ||
        frame->udp.dst_port != rte_cpu_to_be_16(port->address.udp_port))
        return false;
    if (total + sizeof(frame->ether) > packet_len || udp_len + sizeof(*ip) > total ||
        udp_len < sizeof(frame->udp) + SL_DP_HEAD_BYTES)
        return false;
    *len = udp_len - (uint32_t)sizeof(frame->udp);
    return rte_raw_cksum(ip, sizeof(*ip)) == 0xffff;
}

/* Leaves the UDP payload alone in the packet. */
static bool strip(struct rte_mbuf *packet, uint32_t len)
{
    uint32_t behind;

    if (rte_pktmbuf_adj(packet, SL_DPDK_WAY_BYTES) == NULL)
        return false;
    behind = packet->pkt_len - len; /* a short frame is padded */
    return behind == 0 || (behind < 65536 && rte_pktmbuf_trim(packet, (uint16_t)behind) == 0);
}

struct sl_dpdk_user *sl_dpdk_demux(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    const struct frame *frame = rte_pktmbuf_mtod(packet, const struct frame *);
    struct sl_dpdk_user *user;
    uint32_t len, flow;

    if (packet->data_len >= sizeof(frame->ether) &&
        frame->ether.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP)) {
        sl_dpdk_arp_receive(port, packet);
        return NULL;
    }
    if (packet->data_len < sizeof(*frame) ||
        frame->ether.ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
        !is_ours(port, frame, packet->pkt_len, &len)) {
        port->foreign++;
        return NULL;
    }
    memcpy(&flow, frame->head + offsetof(struct sl_dp_head, flow), sizeof(flow));
    user = sl_dpdk_flow_user(flow);
    if (user == NULL) {
        port->unknown++;
        return NULL;
    }
    packet->port = port->idx; /* ours from here on */
    packet->hash.fdir.lo = flow;
    packet->hash.fdir.hi = (frame->ip.type_of_service & 3) == 3; /* congestion experienced */
    if (!strip(packet, len)) {
        port->foreign++;
        return NULL;
    }
    port->received++;
    port->received_bytes += len + SL_DPDK_WAY_BYTES;
    return user;
}
