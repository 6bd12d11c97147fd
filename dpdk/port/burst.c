/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets out and in, in bursts.
 *
 * A packet is one buffer with everything copied; or, where the driver can, a small buffer of
 * headers and a second one that points to the user's bytes, whose private part has the cookie that
 * comes back when the driver frees it.
 */
#include "dpdk/port/eal.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/kept.h"

#include <string.h>

#include <rte_config.h>
#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define IP_LENGTH 16 /* places in a way */
#define IP_CHECK 24
#define UDP_LENGTH 38

/* ---- out ---- */

static void put_16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The headers of a packet with len bytes behind them. Those of the way have length 0, and a
 * checksum for that. */
static void put_way(uint8_t *out, const struct sl_dpdk_way *way, uint32_t len)
{
    uint32_t total = len + 28, sum;

    memcpy(out, way->head, SL_DPDK_WAY_BYTES);
    sum = (uint16_t) ~((way->head[IP_CHECK] << 8) | way->head[IP_CHECK + 1]);
    sum += total;
    sum = (sum & 0xffff) + (sum >> 16);
    put_16(out + IP_LENGTH, total);
    put_16(out + IP_CHECK, ~sum);
    put_16(out + UDP_LENGTH, total - 20);
}

/* The driver has read it; on any thread that sends or polls. The ring has a place for each. */
static void was_read(void *addr, void *arg)
{
    struct sl_dpdk_kept *kept = arg;

    (void)addr;
    (void)rte_ring_mp_enqueue(kept->user->done, (void *)(uintptr_t)kept->cookie);
}

void sl_dpdk_user_done(struct sl_dpdk_user *user)
{
    void *cookies[SL_DPDK_BURST];
    unsigned count;

    while (user->kept > 0 &&
           (count = rte_ring_sc_dequeue_burst(user->done, cookies, SL_DPDK_BURST, NULL)) > 0) {
        user->kept -= count;
        for (unsigned i = 0; i < count; i++)
            user->sent(user->arg, (uintptr_t)cookies[i]);
    }
}

/* Points a second buffer of the packet to the payload. */
static bool lend(struct sl_dpdk_user *user, struct sl_dpdk_port *port, struct rte_mbuf *packet,
                 const void *payload, size_t len, uint64_t cookie)
{
    struct rte_mbuf *second = rte_pktmbuf_alloc(port->small);
    struct sl_dpdk_kept *kept;

    if (second == NULL)
        return false;
    kept = rte_mbuf_to_priv(second);
    kept->user = user;
    kept->cookie = cookie;
    kept->shared.free_cb = was_read;
    kept->shared.fcb_opaque = kept;
    rte_mbuf_ext_refcnt_set(&kept->shared, 1);
    /* Drivers that it is lent to read it with the processor: they need no other address. */
    rte_pktmbuf_attach_extbuf(second, (void *)(uintptr_t)payload, (rte_iova_t)(uintptr_t)payload,
                              (uint16_t)len, &kept->shared);
    second->data_len = (uint16_t)len;
    packet->next = second;
    packet->nb_segs = 2;
    packet->pkt_len += (uint32_t)len;
    user->kept++;
    return true;
}

/* A packet of one buffer that takes `room` bytes; NULL: there is none. */
static struct rte_mbuf *fresh(struct sl_dpdk_port *port, size_t room)
{
    bool is_small = room <= SL_DPDK_SMALL_ROOM && !port->traits.own_pool;
    struct rte_mbuf *packet = rte_pktmbuf_alloc(is_small ? port->small : port->large);

    if (packet == NULL)
        atomic_fetch_add_explicit(&port->no_memory, 1, memory_order_relaxed);
    return packet;
}

static void append(struct rte_mbuf *packet, const void *bytes, size_t len)
{
    memcpy(rte_pktmbuf_mtod_offset(packet, uint8_t *, packet->data_len), bytes, len);
    packet->data_len += (uint16_t)len;
    packet->pkt_len += (uint32_t)len;
}

int sl_dpdk_send(struct sl_dpdk_user *user, struct sl_dpdk_port *port,
                 const struct sl_dpdk_way *way, const void *head, size_t head_len,
                 const void *payload, size_t len, const uint32_t *tail, bool may_keep,
                 uint64_t cookie)
{
    struct sl_dpdk_collected *out = &user->out[port->idx];
    size_t total = head_len + len + (tail != NULL ? sizeof(*tail) : 0);
    bool lends = may_keep && port->traits.takes_lent && tail == NULL && len > SL_DPDK_COPY_MOST &&
                 user->kept < SL_DPDK_KEPT_MOST;
    struct rte_mbuf *packet;

    sl_dassert(total + SL_DPDK_WAY_BYTES <= port->frame_most);
    sl_dpdk_thread_enter();
    if (out->count == SL_DPDK_BURST && sl_dpdk_flush(user, port) == 0)
        return -EAGAIN;
    packet = fresh(port, SL_DPDK_WAY_BYTES + total - (lends ? len : 0));
    if (packet == NULL)
        return -EAGAIN;
    put_way(rte_pktmbuf_mtod(packet, uint8_t *), way, (uint32_t)total);
    packet->data_len = SL_DPDK_WAY_BYTES;
    packet->pkt_len = SL_DPDK_WAY_BYTES;
    append(packet, head, head_len);
    if (!lends) {
        append(packet, payload, len);
    } else if (!lend(user, port, packet, payload, len, cookie)) {
        rte_pktmbuf_free(packet);
        return -EAGAIN;
    }
    if (tail != NULL)
        append(packet, tail, sizeof(*tail));
    out->packets[out->count++] = packet;
    if (out->count == SL_DPDK_BURST)
        sl_dpdk_flush(user, port);
    return lends;
}

static void count_sent(struct sl_dpdk_port *port, struct rte_mbuf **packets, unsigned count,
                       const uint32_t *lens)
{
    (void)packets;
    port->sent += count;
    for (unsigned i = 0; i < count; i++)
        port->sent_bytes += lens[i];
}

unsigned sl_dpdk_flush(struct sl_dpdk_user *user, struct sl_dpdk_port *port)
{
    struct sl_dpdk_collected *out = &user->out[port->idx];
    uint32_t lens[SL_DPDK_BURST]; /* the driver frees them */
    unsigned count = out->count, taken;

    if (count == 0)
        return 0;
    if (!atomic_load_explicit(&port->is_up, memory_order_relaxed)) {
        sl_dpdk_drop(user, port);
        atomic_fetch_add_explicit(&port->down_dropped, count, memory_order_relaxed);
        return count;
    }
    if (!sl_dpdk_lock_try(&port->tx))
        return 0;
    for (unsigned i = 0; i < count; i++)
        lens[i] = out->packets[i]->pkt_len;
    taken = port->has_started ? rte_eth_tx_burst(port->id, 0, out->packets, (uint16_t)count) : 0;
    count_sent(port, out->packets, taken, lens);
    sl_dpdk_lock_give(&port->tx);
    if (taken > 0 && taken < count)
        memmove(out->packets, out->packets + taken, (count - taken) * sizeof(out->packets[0]));
    out->count = (uint16_t)(count - taken);
    return taken;
}

void sl_dpdk_drop(struct sl_dpdk_user *user, struct sl_dpdk_port *port)
{
    struct sl_dpdk_collected *out = &user->out[port->idx];

    rte_pktmbuf_free_bulk(out->packets, out->count);
    out->count = 0;
}

/* ---- in ---- */

/* A burst of the port: the user's own packets, the others' go to their inboxes. */
static unsigned take(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned most,
                     struct rte_mbuf **own, unsigned *own_count)
{
    struct rte_mbuf *packets[SL_DPDK_BURST];
    unsigned count;

    *own_count = 0;
    if (!sl_dpdk_lock_try(&port->rx))
        return 0;
    count = port->has_started ? rte_eth_rx_burst(port->id, 0, packets, (uint16_t)most) : 0;
    for (unsigned i = 0; i < count; i++)
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
    for (unsigned i = 0; i < count; i++) {
        struct sl_dpdk_user *whose = sl_dpdk_demux(port, packets[i]);

        if (whose == user) {
            own[(*own_count)++] = packets[i];
        } else if (whose == NULL) {
            rte_pktmbuf_free(packets[i]);
        } else if (rte_ring_mp_enqueue(whose->inbox, packets[i]) != 0) {
            port->inbox_full++;
            rte_pktmbuf_free(packets[i]);
        }
    }
    sl_dpdk_lock_give(&port->rx);
    return count;
}

/* A flow may be forgotten since its packet came, by the callback of one before it too. */
static void hand_over(struct sl_dpdk_user *user, struct rte_mbuf **packets, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct rte_mbuf *packet = packets[i];
        uint32_t flow = packet->hash.fdir.lo, len = packet->pkt_len;
        struct sl_dpdk_port *port = sl_dpdk_open_ports[packet->port];
        const void *bytes = rte_pktmbuf_read(packet, 0, len, user->line);

        if (bytes != NULL && port != NULL && sl_dpdk_flow_user(flow) == user)
            user->packet(user->arg, port, flow, bytes, len, packet->hash.fdir.hi != 0);
    }
    if (count > 0)
        rte_pktmbuf_free_bulk(packets, count);
}

static unsigned empty_inbox(struct sl_dpdk_user *user)
{
    struct rte_mbuf *packets[SL_DPDK_BURST];
    unsigned total = 0, count;

    while (!rte_ring_empty(user->inbox) && total < SL_DPDK_INBOX) {
        count = rte_ring_sc_dequeue_burst(user->inbox, (void **)packets, SL_DPDK_BURST, NULL);
        hand_over(user, packets, count);
        total += count;
    }
    return total;
}

unsigned sl_dpdk_user_poll(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned budget)
{
    unsigned total = 0, count, own_count;

    sl_dpdk_thread_enter();
    sl_dpdk_user_done(user);
    do {
        struct rte_mbuf *own[SL_DPDK_BURST];
        unsigned most = budget - total < SL_DPDK_BURST ? budget - total : SL_DPDK_BURST;

        count = take(user, port, most, own, &own_count);
        /* What others took for this user came earlier. */
        unsigned waited = empty_inbox(user);
        hand_over(user, own, own_count);
        total += count + waited;
        if (count < most)
            break;
    } while (total < budget);
    return total;
}
