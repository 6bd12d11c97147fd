/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/stranger.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define ROOM 128 /* places of a ring that he leaves free */

/* What is on its way to that end. */
static struct rte_ring *ring_to(const struct stranger *s, unsigned end)
{
    char name[32];

    snprintf(name, sizeof(name), "sl_%s_%u", s->wire, end);
    return rte_ring_lookup(name);
}

static void keep(struct stranger *s, unsigned to, const struct rte_mbuf *packet)
{
    uint8_t whole[SL_FORGE_FRAME];

    sl_forge_keep(&s->forge, to, rte_pktmbuf_read(packet, 0, packet->pkt_len, whole),
                  packet->pkt_len);
}

/* Not his own, and none of ARP. */
static bool is_good(const struct stranger *s, const struct rte_mbuf *packet)
{
    return packet->pool != s->pool &&
           sl_forge_is_good(rte_pktmbuf_mtod(packet, const uint8_t *), packet->pkt_len);
}

/* Every packet goes through his hands, in its order. */
static void listen_to(struct stranger *s, unsigned to)
{
    struct rte_ring *ring = ring_to(s, to);
    unsigned count = rte_ring_count(ring);
    void *packet;

    s->owed += count * s->percent;
    s->seen += count;
    while (count-- > 0 && rte_ring_dequeue(ring, &packet) == 0) {
        if (is_good(s, packet) &&
            (s->forge.kept_count < SL_FORGE_KEPT || sl_rng_below(&s->forge.rng, 16) == 0))
            keep(s, to, packet);
        (void)rte_ring_enqueue(ring, packet);
    }
}

static bool put(struct stranger *s, const struct sl_forge_frame *frame)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(s->pool);

    if (packet == NULL)
        return false;
    memcpy(rte_pktmbuf_append(packet, (uint16_t)frame->len), frame->bytes, frame->len);
    if (rte_ring_enqueue(ring_to(s, frame->to), packet) == 0)
        return true;
    rte_pktmbuf_free(packet);
    return false;
}

static bool add(struct stranger *s)
{
    static struct sl_forge_frame frame;

    sl_forge_make(&s->forge, s->kind, &frame);
    if (rte_ring_free_count(ring_to(s, frame.to)) < ROOM || !put(s, &frame))
        return false;
    s->sent++;
    return true;
}

void stranger_says(struct stranger *s, unsigned to, const uint8_t mac[6], const uint8_t ip[4])
{
    static struct sl_forge_frame frame;
    struct sl_dpdk_port_info info;

    sl_dpdk_port_info(s->pair->end[to].port, &info);
    sl_forge_arp(frame.bytes, 2, mac, ip, info.address.mac, info.address.ip);
    frame.len = SL_FORGE_ARP;
    frame.to = to;
    (void)put(s, &frame);
}

void stranger_act(void *arg)
{
    struct stranger *s = arg;

    listen_to(s, 0);
    listen_to(s, 1);
    while (s->owed >= 100 && s->forge.kept_count == SL_FORGE_KEPT && add(s))
        s->owed -= 100;
    s->owed %= 100;
}

int stranger_open(struct stranger *stranger, struct live_pair *pair, const char *wire)
{
    memset(stranger, 0, sizeof(*stranger));
    stranger->pair = pair;
    stranger->wire = wire;
    stranger->pool =
        rte_pktmbuf_pool_create("stranger", 1023, 0, 0, SL_FORGE_FRAME + 128, SOCKET_ID_ANY);
    return stranger->pool == NULL ? -ENOMEM : 0;
}

void stranger_close(struct stranger *stranger)
{
    rte_mempool_free(stranger->pool);
}
