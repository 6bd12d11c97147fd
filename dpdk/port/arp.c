/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers who asks for the port's MAC, and asks for those of neighbours: a gateway's, or a peer's
 * that did not tell its own. Peers within a subnet tell theirs over the sideband, and what ARP says
 * of them is not heard.
 *
 * ARP is believed by everybody and signed by nobody. So only the first answer after a question
 * counts: who was not asked changes nothing, whatever he sends. A neighbour that is known is asked
 * again once in a while, when a path is made, as a gateway may have been replaced.
 */
#include "core/clock.h"
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <string.h>

#include <rte_config.h>
#include <rte_arp.h>
#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#define ASK_AGAIN_MS 200
#define ANSWER_MS 1000 /* as long a question is open */
#define KNOWN_MS 30000 /* then it is asked again, and what is known serves until it answers */

struct frame {
    struct rte_ether_hdr ether;
    struct rte_arp_hdr arp;
} __attribute__((packed, aligned(2)));

/* Lost when the port is full or somebody sends: the other side asks again. */
static void send_now(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    bool taken = false;

    if (sl_dpdk_lock_try(&port->tx)) {
        taken = port->has_started && rte_eth_tx_burst(port->id, 0, &packet, 1) == 1;
        sl_dpdk_lock_give(&port->tx);
    }
    if (!taken)
        rte_pktmbuf_free(packet);
}

static void send_arp(struct sl_dpdk_port *port, uint16_t opcode, const uint8_t mac[6],
                     const uint8_t ip[4])
{
    static const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct rte_mbuf *packet = rte_pktmbuf_alloc(port->traits.own_pool ? port->large : port->small);
    struct frame frame = {0};
    char *room;

    if (packet == NULL)
        return;
    memcpy(frame.ether.dst_addr.addr_bytes, opcode == RTE_ARP_OP_REPLY ? mac : all, 6);
    memcpy(frame.ether.src_addr.addr_bytes, port->address.mac, 6);
    frame.ether.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP);
    frame.arp.arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER);
    frame.arp.arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
    frame.arp.arp_hlen = 6;
    frame.arp.arp_plen = 4;
    frame.arp.arp_opcode = rte_cpu_to_be_16(opcode);
    memcpy(&frame.arp.arp_data.arp_sha, port->address.mac, 6);
    memcpy(&frame.arp.arp_data.arp_sip, port->address.ip, 4);
    memcpy(&frame.arp.arp_data.arp_tha, mac, 6);
    memcpy(&frame.arp.arp_data.arp_tip, ip, 4);
    room = rte_pktmbuf_append(packet, 60); /* the least of Ethernet */
    memset(room, 0, 60);
    memcpy(room, &frame, sizeof(frame));
    send_now(port, packet);
}

static struct sl_dpdk_neighbour *find(struct sl_dpdk_port *port, const uint8_t ip[4])
{
    for (unsigned i = 0; i < SL_DPDK_NEIGHBOURS; i++) {
        if (memcmp(port->neighbours[i].ip, ip, 4) == 0)
            return &port->neighbours[i];
    }
    return NULL;
}

static bool is_asked(const struct sl_dpdk_neighbour *neighbour)
{
    return neighbour->is_open &&
           sl_now(&sl_clock_monotonic) - neighbour->asked_ns < ANSWER_MS * SL_NS_PER_MS;
}

/* Only those that were asked for are kept: a stranger fills no table. */
static void learn(struct sl_dpdk_port *port, const struct rte_arp_ipv4 *data)
{
    struct sl_dpdk_neighbour *neighbour;
    uint8_t ip[4];

    memcpy(ip, &data->arp_sip, 4);
    pthread_mutex_lock(&port->neighbours_lock);
    neighbour = find(port, ip);
    if (neighbour != NULL && is_asked(neighbour) && !(data->arp_sha.addr_bytes[0] & 1)) {
        memcpy(neighbour->mac, data->arp_sha.addr_bytes, 6);
        neighbour->is_known = true;
        neighbour->is_open = false;
    }
    pthread_mutex_unlock(&port->neighbours_lock);
}

void sl_dpdk_arp_receive(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    struct frame frame;
    struct rte_arp_ipv4 data;

    if (packet->data_len < sizeof(frame))
        return;
    memcpy(&frame, rte_pktmbuf_mtod(packet, void *), sizeof(frame));
    data = frame.arp.arp_data;
    if (frame.arp.arp_hardware != rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) ||
        frame.arp.arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
        frame.arp.arp_hlen != 6 || frame.arp.arp_plen != 4 ||
        memcmp(&data.arp_tip, port->address.ip, 4) != 0)
        return;
    learn(port, &data);
    if (frame.arp.arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REQUEST)) {
        uint8_t ip[4];

        memcpy(ip, &data.arp_sip, 4);
        send_arp(port, RTE_ARP_OP_REPLY, data.arp_sha.addr_bytes, ip);
    }
}

int sl_dpdk_arp_find(struct sl_dpdk_port *port, const uint8_t ip[4], uint8_t mac[6])
{
    static const uint8_t nobody[6];
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    struct sl_dpdk_neighbour *neighbour;
    bool asks, is_known;

    pthread_mutex_lock(&port->neighbours_lock);
    neighbour = find(port, ip);
    if (neighbour == NULL) {
        neighbour = &port->neighbours[port->neighbour_next++ % SL_DPDK_NEIGHBOURS];
        *neighbour = (struct sl_dpdk_neighbour){0};
        memcpy(neighbour->ip, ip, 4);
    }
    is_known = neighbour->is_known;
    memcpy(mac, neighbour->mac, 6);
    asks = neighbour->asked_ns == 0 ||
           now_ns - neighbour->asked_ns > (is_known ? KNOWN_MS : ASK_AGAIN_MS) * SL_NS_PER_MS;
    if (asks) {
        neighbour->asked_ns = now_ns;
        neighbour->is_open = true;
    }
    pthread_mutex_unlock(&port->neighbours_lock);
    if (asks)
        send_arp(port, RTE_ARP_OP_REQUEST, nobody, ip);
    if (is_known)
        return 0;
    return sl_fail(-EAGAIN, "the MAC of %u.%u.%u.%u is not known yet to DPDK port '%s'", ip[0],
                   ip[1], ip[2], ip[3], port->name);
}
