/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MACs of neighbours that ARP (IPv4) and neighbour discovery (IPv6) tell: a gateway's, or a peer's
 * that did not tell its own. Peers within a subnet tell theirs over the sideband, and what others
 * say of them is not heard.
 *
 * Both protocols are believed by everybody and signed by nobody. So only the first answer after a
 * question counts: who was not asked changes nothing, whatever he sends. A neighbour that is known
 * is asked again once in a while, when a path is made, as a gateway may have been replaced.
 */
#include "core/clock.h"
#include "dpdk/port/inside.h"

#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define ASK_AGAIN_MS 200
#define ANSWER_MS 1000 /* as long a question is open */
#define KNOWN_MS 30000 /* then it is asked again, and what is known serves until it answers */

/* Lost when the port is full or somebody sends: the other side asks again. */
void sl_dpdk_neighbour_send(struct sl_dpdk_port *port, const void *frame, size_t len)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(port->traits.own_pool ? port->large : port->small);
    bool taken = false;

    if (packet == NULL)
        return;
    memcpy(rte_pktmbuf_append(packet, (uint16_t)len), frame, len);
    if (sl_dpdk_lock_try(&port->tx)) {
        taken = port->has_started && rte_eth_tx_burst(port->id, 0, &packet, 1) == 1;
        sl_dpdk_lock_give(&port->tx);
    }
    if (!taken)
        rte_pktmbuf_free(packet);
}

static struct sl_dpdk_neighbour *find(struct sl_dpdk_port *port, const uint8_t ip[16])
{
    for (unsigned i = 0; i < SL_DPDK_NEIGHBOURS; i++) {
        if (memcmp(port->neighbours[i].ip, ip, 16) == 0)
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
void sl_dpdk_neighbour_learn(struct sl_dpdk_port *port, const uint8_t ip[16], const uint8_t mac[6])
{
    struct sl_dpdk_neighbour *neighbour;

    pthread_mutex_lock(&port->neighbours_lock);
    neighbour = find(port, ip);
    if (neighbour != NULL && is_asked(neighbour) && !(mac[0] & 1)) {
        memcpy(neighbour->mac, mac, 6);
        neighbour->is_known = true;
        neighbour->is_open = false;
    }
    pthread_mutex_unlock(&port->neighbours_lock);
}

bool sl_dpdk_neighbour_find(struct sl_dpdk_port *port, const uint8_t ip[16], uint8_t mac[6],
                            bool *asks)
{
    uint64_t now_ns = sl_now(&sl_clock_monotonic);
    struct sl_dpdk_neighbour *neighbour;
    bool is_known;

    pthread_mutex_lock(&port->neighbours_lock);
    neighbour = find(port, ip);
    if (neighbour == NULL) {
        neighbour = &port->neighbours[port->neighbour_next++ % SL_DPDK_NEIGHBOURS];
        *neighbour = (struct sl_dpdk_neighbour){0};
        memcpy(neighbour->ip, ip, 16);
    }
    is_known = neighbour->is_known;
    memcpy(mac, neighbour->mac, 6);
    *asks = neighbour->asked_ns == 0 ||
            now_ns - neighbour->asked_ns > (is_known ? KNOWN_MS : ASK_AGAIN_MS) * SL_NS_PER_MS;
    if (*asks) {
        neighbour->asked_ns = now_ns;
        neighbour->is_open = true;
    }
    pthread_mutex_unlock(&port->neighbours_lock);
    return is_known;
}
