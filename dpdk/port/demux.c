/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came on a port: Ethernet, IPv4 or IPv6, and UDP are looked at here, and from there on only
 * the flow's number. Anything may be in a frame; what is not ours is counted and dropped.
 */
#include "dpdk/port/inside.h"
#include "dpdk/port/sum.h"
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

struct frame6 {
    struct rte_ether_hdr ether;
    struct rte_ipv6_hdr ip;
    struct rte_udp_hdr udp;
    uint8_t head[SL_DP_HEAD_BYTES];
} __attribute__((packed, aligned(2)));
_Static_assert(offsetof(struct frame6, head) == SL_DPDK_WAY6_BYTES, "as in port.h");

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
    if (memcmp(&ip->dst_addr, port->address.ip, 4) != 0 || frame->udp.dst_port != port->udp_port)
        return false;
    if (total + sizeof(frame->ether) > packet_len || udp_len + sizeof(*ip) > total ||
        udp_len < sizeof(frame->udp) + SL_DP_HEAD_BYTES)
        return false;
    *len = udp_len - (uint32_t)sizeof(frame->udp);
    return rte_raw_cksum(ip, sizeof(*ip)) == 0xffff;
}

/* Leaves the UDP payload alone in the packet, which had so many bytes of headers before it. */
static inline bool strip(struct rte_mbuf *packet, uint16_t heads, uint32_t len)
{
    uint32_t behind;

    if (rte_pktmbuf_adj(packet, heads) == NULL)
        return false;
    behind = packet->pkt_len - len; /* a short frame is padded */
    return behind == 0 || (behind < 65536 && rte_pktmbuf_trim(packet, (uint16_t)behind) == 0);
}

/* To the user of the flow that the protocol's header names. */
static inline struct sl_dpdk_user *hand(struct sl_dpdk_port *port, struct rte_mbuf *packet,
                                        const uint8_t *head, uint16_t heads, uint32_t len,
                                        uint32_t note)
{
    struct sl_dpdk_user *user;
    uint32_t flow;

    memcpy(&flow, head + offsetof(struct sl_dp_head, flow), sizeof(flow));
    user = sl_dpdk_flow_user(flow);
    if (user == NULL) {
        port->unknown++;
        return NULL;
    }
    packet->port = port->idx; /* ours from here on */
    packet->hash.fdir.lo = flow;
    packet->hash.fdir.hi = note;
    if (!strip(packet, heads, len)) {
        port->foreign++;
        return NULL;
    }
    port->received++;
    port->received_bytes += len + heads;
    return user;
}

/* ---- IPv6 ---- */

/* The same without an extension header, and with a checksum of UDP's. */
static bool is_ours_6(const struct sl_dpdk_port *port, const struct frame6 *frame,
                      uint32_t packet_len, uint32_t *len)
{
    const struct rte_ipv6_hdr *ip = &frame->ip;
    uint32_t total = rte_be_to_cpu_16(ip->payload_len);
    uint32_t udp_len = rte_be_to_cpu_16(frame->udp.dgram_len);

    if ((ip->vtc_flow & rte_cpu_to_be_32(UINT32_C(15) << 28)) !=
            rte_cpu_to_be_32(UINT32_C(6) << 28) ||
        ip->proto != IPPROTO_UDP)
        return false;
    if (memcmp(&ip->dst_addr, port->address.ip6, 16) != 0 || frame->udp.dst_port != port->udp_port)
        return false;
    if (total + sizeof(frame->ether) + sizeof(*ip) > packet_len || udp_len > total ||
        udp_len < sizeof(frame->udp) + SL_DP_HEAD_BYTES)
        return false;
    *len = udp_len - (uint32_t)sizeof(frame->udp);
    return frame->udp.dgram_cksum != 0;
}

/* Of UDP's pseudo header, and its header. */
static uint32_t sum_of_heads(const struct frame6 *frame)
{
    return sl_dpdk_sum_fold(sl_dpdk_sum(&frame->ip.src_addr, 32) + rte_cpu_to_be_16(IPPROTO_UDP) +
                            frame->udp.dgram_len + sl_dpdk_sum(&frame->udp, sizeof(frame->udp)));
}

static struct sl_dpdk_user *demux_6(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    const struct frame6 *frame = rte_pktmbuf_mtod(packet, const struct frame6 *);
    uint64_t verdict = packet->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    uint32_t len, note;

    if (packet->data_len < sizeof(*frame) || !is_ours_6(port, frame, packet->pkt_len, &len)) {
        if (!sl_dpdk_nd_receive(port, packet))
            port->foreign++;
        return NULL;
    }
    if (verdict == RTE_MBUF_F_RX_L4_CKSUM_BAD) {
        atomic_fetch_add_explicit(&port->damaged, 1, memory_order_relaxed);
        return NULL;
    }
    note = (rte_be_to_cpu_32(frame->ip.vtc_flow) >> 20 & 3) == 3 ? SL_DPDK_NOTE_MARK : 0;
    if (verdict == RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN)
        note |= SL_DPDK_NOTE_SUM | sum_of_heads(frame) << 16;
    return hand(port, packet, frame->head, SL_DPDK_WAY6_BYTES, len, note);
}

/* ---- any frame ---- */

static struct sl_dpdk_user *demux_rest(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, const struct rte_ether_hdr *);

    if (packet->data_len >= sizeof(*ether) && ether->ether_type == port->ip6_type)
        return demux_6(port, packet);
    if (packet->data_len >= sizeof(*ether) &&
        ether->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
        sl_dpdk_arp_receive(port, packet);
    else
        port->foreign++;
    return NULL;
}

/* Of a memif port only what took several of its buffers takes several of ours. */
static void note_split(struct sl_dpdk_port *port, uint32_t len)
{
    if (!port->traits.is_gated)
        return;
    port->split++;
    if (!port->is_client)
        return;
    atomic_store_explicit(&port->spoiled_by, len, memory_order_relaxed);
    atomic_store_explicit(&port->is_spoiled, true, memory_order_release);
}

struct sl_dpdk_user *sl_dpdk_demux(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    const struct frame *frame = rte_pktmbuf_mtod(packet, const struct frame *);
    uint32_t len;

    if (SL_UNLIKELY(packet->nb_segs > 1))
        note_split(port, packet->pkt_len);
    if (SL_UNLIKELY(packet->data_len < sizeof(*frame) || frame->ether.ether_type != port->ip4_type))
        return demux_rest(port, packet);
    if (!is_ours(port, frame, packet->pkt_len, &len)) {
        port->foreign++;
        return NULL;
    }
    /* Congestion experienced: both bits. */
    return hand(port, packet, frame->head, SL_DPDK_WAY_BYTES, len,
                (frame->ip.type_of_service & 3) == 3 ? SL_DPDK_NOTE_MARK : 0);
}
