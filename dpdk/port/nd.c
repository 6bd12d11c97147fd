/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbour discovery: answers who asks for the port's MAC, and asks for those of neighbours by
 * IPv6. The port looks for nobody else who has its address (RFC 4862): whoever gives it an address
 * answers for that, as with IPv4. */
#include "dpdk/port/nd.h"
#include "core/err.h"
#include "dpdk/port/inside.h"

#include <string.h>

#include <rte_config.h>
#include <rte_mbuf.h>

static void send_nd(struct sl_dpdk_port *port, struct sl_dpdk_nd *nd)
{
    uint8_t frame[SL_DPDK_ND_FRAME];

    memcpy(nd->from, port->address.ip6, 16);
    sl_dpdk_nd_write(nd, port->address.mac, frame);
    sl_dpdk_neighbour_send(port, frame, sizeof(frame));
}

/* Who looks whether anybody has the address hears it with all others (RFC 4861, 7.2.4). */
static void answer(struct sl_dpdk_port *port, const struct sl_dpdk_nd *question)
{
    static const uint8_t nobody[16], all_mac[6] = {0x33, 0x33, 0, 0, 0, 1};
    static const uint8_t all[16] = {0xff, 2, [15] = 1};
    bool is_probe = memcmp(question->from, nobody, 16) == 0;
    const uint8_t *mac = question->has_mac ? question->mac : question->ether;
    struct sl_dpdk_nd nd = {.is_answer = true, .is_solicited = !is_probe};

    if (!is_probe && (mac[0] & 1) != 0)
        return;
    memcpy(nd.ether, is_probe ? all_mac : mac, 6);
    memcpy(nd.to, is_probe ? all : question->from, 16);
    memcpy(nd.target, port->address.ip6, 16);
    send_nd(port, &nd);
}

bool sl_dpdk_nd_receive(struct sl_dpdk_port *port, struct rte_mbuf *packet)
{
    const uint8_t *own = port->address.ip6;
    uint8_t group[16];
    struct sl_dpdk_nd nd;
    bool is_to_us;

    if (!sl_dpdk_nd_read(rte_pktmbuf_mtod(packet, const uint8_t *), packet->data_len, &nd))
        return false;
    sl_dpdk_nd_group(own, group);
    is_to_us = memcmp(nd.to, own, 16) == 0;
    if (nd.is_answer) {
        if (is_to_us && nd.is_solicited && nd.has_mac)
            sl_dpdk_neighbour_learn(port, nd.target, nd.mac);
        return true;
    }
    if (memcmp(nd.target, own, 16) == 0 && (is_to_us || memcmp(nd.to, group, 16) == 0))
        answer(port, &nd);
    return true;
}

int sl_dpdk_nd_find(struct sl_dpdk_port *port, const uint8_t ip[16], uint8_t mac[6])
{
    struct sl_dpdk_nd question = {0};
    struct sl_dpdk_address address = {0};
    char text[SL_DPDK_ADDRESS_TEXT];
    bool asks;
    bool is_known = sl_dpdk_neighbour_find(port, ip, mac, &asks);

    if (asks) {
        sl_dpdk_nd_group_mac(ip, question.ether);
        sl_dpdk_nd_group(ip, question.to);
        memcpy(question.target, ip, 16);
        send_nd(port, &question);
    }
    if (is_known)
        return 0;
    memcpy(address.ip6, ip, 16);
    return sl_fail(-EAGAIN, "the MAC of %s is not known yet to DPDK port '%s'",
                   sl_dpdk_address_text(&address, text), port->name);
}
