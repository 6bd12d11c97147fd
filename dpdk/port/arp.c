/* SPDX-License-Identifier: Apache-2.0 */
/* ARP: answers who asks for the port's MAC, and asks for those of neighbours by IPv4. */
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <string.h>

#include <rte_config.h>
#include <rte_arp.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

struct frame {
    struct rte_ether_hdr ether;
    struct rte_arp_hdr arp;
} __attribute__((packed, aligned(2)));

static void send_arp(struct sl_dpdk_port *port, uint16_t opcode, const uint8_t mac[6],
                     const uint8_t ip[4])
{
    static const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    uint8_t room[60] = {0}; /* the least of Ethernet */
    struct frame frame = {0};

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
    memcpy(room, &frame, sizeof(frame));
    sl_dpdk_neighbour_send(port, room, sizeof(room));
}

/* As the table of neighbours has it: ::ffff:a.b.c.d. */
static void mapped(const void *ip, uint8_t out[16])
{
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, ip, 4);
}

void sl_dpdk_arp_receive(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    struct frame frame;
    struct rte_arp_ipv4 data;
    uint8_t ip[16];

    if (packet->data_len < sizeof(frame) || !sl_dpdk_has_ip4(&port->address))
        return;
    memcpy(&frame, rte_pktmbuf_mtod(packet, void *), sizeof(frame));
    data = frame.arp.arp_data;
    if (frame.arp.arp_hardware != rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) ||
        frame.arp.arp_protocol != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) ||
        frame.arp.arp_hlen != 6 || frame.arp.arp_plen != 4 ||
        memcmp(&data.arp_tip, port->address.ip, 4) != 0)
        return;
    mapped(&data.arp_sip, ip);
    sl_dpdk_neighbour_learn(port, ip, data.arp_sha.addr_bytes);
    if (frame.arp.arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REQUEST))
        send_arp(port, RTE_ARP_OP_REPLY, data.arp_sha.addr_bytes, ip + 12);
}

int sl_dpdk_arp_find(struct sl_dpdk_port *port, const uint8_t ip[4], uint8_t mac[6])
{
    static const uint8_t nobody[6];
    uint8_t key[16];
    bool asks, is_known;

    mapped(ip, key);
    is_known = sl_dpdk_neighbour_find(port, key, mac, &asks);
    if (asks)
        send_arp(port, RTE_ARP_OP_REQUEST, nobody, ip);
    if (is_known)
        return 0;
    return sl_fail(-EAGAIN, "the MAC of %u.%u.%u.%u is not known yet to DPDK port '%s'", ip[0],
                   ip[1], ip[2], ip[3], port->name);
}
