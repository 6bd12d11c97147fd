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
#include "dpdk/port/sum.h"

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
#define IP6_LENGTH 18
#define UDP6_AT 54
#define UDP6_LENGTH 58
#define UDP6_CHECK 60

#define BLOCK 64 /* bytes: a cache line */
#define AHEAD 1024

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

/* The same by IPv6, whose header has no checksum: see sum_6(). */
static void put_way_6(uint8_t *out, const struct sl_dpdk_way *way, uint32_t len)
{
    memcpy(out, way->head, SL_DPDK_WAY6_BYTES);
    put_16(out + IP6_LENGTH, len + 8);
    put_16(out + UDP6_LENGTH, len + 8);
}

/* UDP's checksum, which IPv6 cannot do without (RFC 8200, 8.1): over the packet's first buffer, and
 * payload that is lent. A NIC that computes it wants what the way knows of it. */
static void sum_6(const struct sl_dpdk_port *port, struct rte_mbuf *packet,
                  const struct sl_dpdk_way *way, uint32_t udp_len, const void *lent, size_t len)
{
    uint8_t *out = rte_pktmbuf_mtod(packet, uint8_t *);
    uint32_t sum = way->pseudo + (uint32_t)rte_cpu_to_be_16((uint16_t)udp_len);
    uint16_t check;

    if (port->sums) {
        packet->ol_flags |= RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM;
        packet->l2_len = 14;
        packet->l3_len = 40;
        check = sl_dpdk_sum_fold(sum);
    } else {
        size_t first = packet->data_len - (size_t)UDP6_AT;

        sum += sl_dpdk_sum(out + UDP6_AT, first);
        if (lent != NULL) {
            sl_dassert(first % 2 == 0); /* heads have an even length, and no tail is behind them */
            sum += sl_dpdk_sum(lent, len);
        }
        check = (uint16_t)~sl_dpdk_sum_fold(sum);
        check = check == 0 ? UINT16_MAX : check; /* 0 would say that there is none */
    }
    memcpy(out + UDP6_CHECK, &check, sizeof(check));
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
static inline __attribute__((always_inline)) bool lend(struct sl_dpdk_user *user,
                                                       struct sl_dpdk_port *port,
                                                       struct rte_mbuf *packet, const void *payload,
                                                       size_t len, uint64_t cookie)
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

/* A packet of one buffer that takes `room` bytes, to which another one may be added; NULL: there is
 * none. */
static struct rte_mbuf *fresh(struct sl_dpdk_port *port, size_t room, bool lends)
{
    bool is_small = room <= SL_DPDK_SMALL_ROOM && !port->traits.own_pool &&
                    !(lends && port->traits.large_heads);
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

/* The next packet is cut from the bytes behind these: its first ones are on their way while these
 * are copied, and none is kept, as it is read once. One memcpy() waits for them at each packet's
 * start. */
static void append_payload(struct rte_mbuf *packet, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    uint8_t *to = rte_pktmbuf_mtod_offset(packet, uint8_t *, packet->data_len);
    size_t at = 0;

    for (; len - at >= BLOCK; at += BLOCK) {
        /* Beyond the payload, as a number: an address that is not there is not fetched. */
        __builtin_prefetch((const void *)((uintptr_t)from + at + AHEAD), 0, 0);
        memcpy(to + at, from + at, BLOCK);
    }
    memcpy(to + at, from + at, len - at);
    packet->data_len += (uint16_t)len;
    packet->pkt_len += (uint32_t)len;
}

/* Compiled for each family by itself: what one needs costs the other nothing. */
static inline __attribute__((always_inline)) int
send_by(bool is_ip6, struct sl_dpdk_user *user, struct sl_dpdk_port *port,
        const struct sl_dpdk_way *way, const void *head, size_t head_len, const void *payload,
        size_t len, const uint32_t *tail, bool may_keep, uint64_t cookie)
{
    const uint16_t way_bytes = is_ip6 ? SL_DPDK_WAY6_BYTES : SL_DPDK_WAY_BYTES;
    struct sl_dpdk_collected *out = &user->out[port->idx];
    size_t total = head_len + len + (tail != NULL ? sizeof(*tail) : 0);
    bool lends = may_keep && port->traits.takes_lent && tail == NULL && len > SL_DPDK_COPY_MOST &&
                 user->kept < SL_DPDK_KEPT_MOST;
    struct rte_mbuf *packet;

    sl_dassert(total + way_bytes <= port->frame_most);
    sl_dpdk_thread_enter();
    if (out->count == SL_DPDK_BURST && sl_dpdk_flush(user, port) == 0)
        return -EAGAIN;
    packet = fresh(port, way_bytes + total - (lends ? len : 0), lends);
    if (packet == NULL)
        return -EAGAIN;
    if (is_ip6)
        put_way_6(rte_pktmbuf_mtod(packet, uint8_t *), way, (uint32_t)total);
    else
        put_way(rte_pktmbuf_mtod(packet, uint8_t *), way, (uint32_t)total);
    packet->data_len = way_bytes;
    packet->pkt_len = way_bytes;
    append(packet, head, head_len);
    if (!lends) {
        append_payload(packet, payload, len);
    } else if (!lend(user, port, packet, payload, len, cookie)) {
        rte_pktmbuf_free(packet);
        return -EAGAIN;
    }
    if (tail != NULL)
        append(packet, tail, sizeof(*tail));
    if (is_ip6)
        sum_6(port, packet, way, (uint32_t)total + 8, lends ? payload : NULL, len);
    out->packets[out->count++] = packet;
    if (out->count == SL_DPDK_BURST)
        sl_dpdk_flush(user, port);
    return lends;
}

int sl_dpdk_send(struct sl_dpdk_user *user, struct sl_dpdk_port *port,
                 const struct sl_dpdk_way *way, const void *head, size_t head_len,
                 const void *payload, size_t len, const uint32_t *tail, bool may_keep,
                 uint64_t cookie)
{
    if (SL_UNLIKELY(way->is_ip6))
        return send_by(true, user, port, way, head, head_len, payload, len, tail, may_keep, cookie);
    return send_by(false, user, port, way, head, head_len, payload, len, tail, may_keep, cookie);
}

static void count_sent(struct sl_dpdk_port *port, unsigned count, const uint32_t *lens)
{
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
    count_sent(port, taken, lens);
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

/* One burst of a port as one engine takes it. */
struct taken {
    struct rte_mbuf *own[SL_DPDK_BURST];
    unsigned own_count, theirs; /* packets of this user, and of others */
    unsigned before;            /* packets in the user's inbox that came before its own */
};

/* A burst of the port: the user's own packets, the others' go to their inboxes. How many frames. */
static unsigned take(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned most,
                     struct taken *out)
{
    struct rte_mbuf *packets[SL_DPDK_BURST];
    unsigned count;

    out->own_count = out->theirs = 0;
    out->before = SL_DPDK_INBOX;
    if (!sl_dpdk_lock_try(&port->rx))
        return 0;
    if (SL_LIKELY(port->has_started &&
                  !atomic_load_explicit(&port->is_spoiled, memory_order_relaxed)))
        count = rte_eth_rx_burst(port->id, 0, packets, (uint16_t)most);
    else
        count = 0;
    for (unsigned i = 0; i < count; i++)
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
    for (unsigned i = 0; i < count; i++) {
        struct sl_dpdk_user *whose = sl_dpdk_demux(port, packets[i]);

        if (whose == user) {
            out->own[out->own_count++] = packets[i];
            continue;
        }
        out->theirs += whose != NULL;
        if (whose == NULL) {
            rte_pktmbuf_free(packets[i]);
        } else if (rte_ring_mp_enqueue(whose->inbox, packets[i]) != 0) {
            port->inbox_full++;
            rte_pktmbuf_free(packets[i]);
        }
    }
    /* From here on others may take what came after these, and put it into the inbox. */
    if (out->own_count > 0)
        out->before = rte_ring_count(user->inbox);
    sl_dpdk_lock_give(&port->rx);
    return count;
}

/* What a packet's hash says beside its flow: demux.c. */
static bool is_whole(struct sl_dpdk_port *port, uint32_t note, const void *bytes, uint32_t len)
{
    if (SL_LIKELY((note & SL_DPDK_NOTE_SUM) == 0) ||
        sl_dpdk_sum_fold((note >> 16) + sl_dpdk_sum(bytes, len)) == 0xffff)
        return true;
    atomic_fetch_add_explicit(&port->damaged, 1, memory_order_relaxed);
    return false;
}

/* A flow may be forgotten since its packet came, by the callback of one before it too. The other
 * engines of the port need not wait for a checksum. */
static void hand_over(struct sl_dpdk_user *user, struct rte_mbuf **packets, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct rte_mbuf *packet = packets[i];
        uint32_t flow = packet->hash.fdir.lo, len = packet->pkt_len, note = packet->hash.fdir.hi;
        struct sl_dpdk_port *port = sl_dpdk_open_ports[packet->port];
        const void *bytes = rte_pktmbuf_read(packet, 0, len, user->line);

        if (bytes != NULL && port != NULL && sl_dpdk_flow_user(flow) == user &&
            is_whole(port, note, bytes, len))
            user->packet(user->arg, port, flow, bytes, len, (note & SL_DPDK_NOTE_MARK) != 0);
    }
    if (count > 0)
        rte_pktmbuf_free_bulk(packets, count);
}

static unsigned empty_inbox(struct sl_dpdk_user *user, unsigned most)
{
    struct rte_mbuf *packets[SL_DPDK_BURST];
    unsigned total = 0, count;

    while (!rte_ring_empty(user->inbox) && total < most) {
        count = most - total < SL_DPDK_BURST ? most - total : SL_DPDK_BURST;
        count = rte_ring_sc_dequeue_burst(user->inbox, (void **)packets, count, NULL);
        hand_over(user, packets, count);
        total += count;
    }
    return total;
}

unsigned sl_dpdk_user_poll(struct sl_dpdk_user *user, struct sl_dpdk_port *port, unsigned budget)
{
    unsigned frames = 0, packets = 0, count;

    sl_dpdk_thread_enter();
    sl_dpdk_user_done(user);
    do {
        struct taken taken;
        unsigned most = budget - frames < SL_DPDK_BURST ? budget - frames : SL_DPDK_BURST;

        count = take(user, port, most, &taken);
        unsigned waited = empty_inbox(user, taken.before);
        hand_over(user, taken.own, taken.own_count);
        frames += count + waited;
        packets += taken.own_count + taken.theirs + waited;
        if (count < most)
            return packets;
    } while (frames < budget);
    return packets > 0 ? packets : 1; /* more frames may be there, whosever they are */
}
