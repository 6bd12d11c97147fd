/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which receive a frame is for.
 *
 * The n-th message of a channel is for its n-th receive. A frame without a posted receive stalls
 * its connection, and so does one whose bytes consume() may not get before others that come on
 * another connection. That cannot lock up within a channel: the connection with the oldest missing
 * bytes has nothing before them. Across channels it could: the frames that another channel's
 * receive waits for may be behind the frame. So while another channel has a receive that waits, be
 * it for its first byte or the last one, a message without a receive is kept in memory
 * (core/channel.h), in the slot that its receive would have. The messages before it must have
 * theirs first: they were sent earlier, and no connection has anything before the first of their
 * frames but what is let in in the same way.
 */
#include "tcp/tcp.h"

#include <stdlib.h>
#include <string.h>

/* Twice the slots. False: no memory for them, or so many are under way. */
static bool __attribute__((noinline)) grow(struct sl_tcp_channel *channel)
{
    uint32_t mask = 2 * channel->rx_mask + 1;
    struct sl_tcp_rx_slot *more;

    more = mask < SL_TCP_QUEUE ? malloc(((size_t)mask + 1) * sizeof(*more)) : NULL;
    if (more == NULL)
        return false;
    for (uint64_t n = channel->rx_head; n < channel->rx_tail; n++)
        more[n & mask] = *sl_tcp_rx_slot(channel, n);
    if (channel->rx != channel->few)
        free(channel->rx);
    channel->rx = more;
    channel->rx_mask = mask;
    return true;
}

/* There is a slot for the next message. */
static inline bool has_room(struct sl_tcp_channel *channel)
{
    return SL_LIKELY(channel->rx_tail - channel->rx_head <= channel->rx_mask) || grow(channel);
}

/* That slot, which the caller fills. */
static inline struct sl_tcp_rx_slot *append(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel)
{
    ep->rx_open++;
    sl_tcp_ep_activate(ep);
    return sl_tcp_rx_slot(channel, channel->rx_tail++);
}

static void set_wanted(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                       struct sl_tcp_rx_slot *slot, bool wanted)
{
    if (slot->wanted != wanted)
        sl_channel_wants(&ep->channels, &channel->base, wanted ? 1 : -1);
    slot->wanted = wanted;
}

/* ---- receives ---- */

void sl_tcp_unstall(struct sl_tcp_ep *ep)
{
    for (unsigned i = 1; ep->conns != NULL && i <= ep->data_conns; i++) {
        if (ep->conns[i].stalled) {
            ep->conns[i].stalled = false;
            sl_tcp_conn_ready(&ep->conns[i]);
        }
    }
}

static int __attribute__((noinline)) make_carry(struct sl_tcp_channel *channel, uint32_t granule)
{
    uint8_t *carry;

    if (granule > SL_TCP_GRANULE_MAX)
        return sl_fail(-EINVAL, "a granule of %u bytes is larger than %d", granule,
                       SL_TCP_GRANULE_MAX);
    carry = malloc(SL_TCP_GRANULE_MAX);
    if (carry == NULL)
        return sl_fail(-ENOMEM, "no memory for a granule of %u bytes", granule);
    memcpy(carry, channel->carry, channel->carry_len);
    channel->carry = carry;
    channel->carry_room = SL_TCP_GRANULE_MAX;
    return 0;
}

/* Its message was kept, or is being kept. */
static int __attribute__((noinline)) claim(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                                           const struct sl_sink *sink, struct sl_req *req)
{
    uint64_t number = channel->rx_next++;
    bool found = sl_channel_claim(&ep->channels, &channel->base, sink, req);

    sl_assert(found);
    if (number >= channel->rx_head && sl_tcp_rx_slot(channel, number)->state != SL_TCP_RX_DONE) {
        set_wanted(ep, channel, sl_tcp_rx_slot(channel, number), true);
        sl_tcp_unstall(ep);
    }
    if (sl_channels_due(&ep->channels))
        sl_tcp_ep_news(ep);
    if (ep->bye)
        sl_tcp_check_end(ep);
    return 0;
}

/* What was kept whole of an endpoint that is down is still received. */
static int __attribute__((noinline))
recv_left(struct sl_tcp_ep *ep, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_tcp_channel *channel = sl_tcp_channel_find(ep, sink->channel);

    if (ep->state != SL_TCP_EP_DOWN || channel == NULL || !channel->base.open ||
        !sl_channel_claim(&ep->channels, &channel->base, sink, req))
        return sl_tcp_not_up(ep);
    sl_tcp_ep_news(ep);
    return 0;
}

int sl_tcp_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    struct sl_tcp_channel *channel;

    if (SL_UNLIKELY(ep->state != SL_TCP_EP_UP))
        return recv_left(ep, sink, req);
    channel = sl_tcp_channel_find(ep, sink->channel);
    if (SL_UNLIKELY(channel == NULL || !channel->base.open))
        return sl_channel_not_open(base, sink->channel);
    if (SL_UNLIKELY(ep->is_failing && channel->rx_next == channel->rx_tail))
        return sl_tcp_not_up(ep);
    if (SL_UNLIKELY(sink->consume != NULL && sink->granule > channel->carry_room)) {
        int err = make_carry(channel, sink->granule);

        if (err != 0)
            return err;
    }
    if (SL_UNLIKELY(channel->rx_next != channel->rx_tail))
        return claim(ep, channel, sink, req);
    if (!has_room(channel))
        return -EAGAIN;
    *append(ep, channel) = (struct sl_tcp_rx_slot){
        .sink = sink, .req = req, .state = SL_TCP_RX_POSTED, .wanted = true};
    sl_channel_wants(&ep->channels, &channel->base, 1);
    channel->rx_next = channel->rx_tail;
    req->status = SL_PENDING;
    sl_tcp_unstall(ep);
    if (SL_UNLIKELY(ep->bye))
        sl_tcp_check_end(ep);
    return 0;
}

static void end_request(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                        struct sl_tcp_rx_slot *slot, int status)
{
    struct sl_req *req = slot->req;
    bool kept = slot->kept;

    set_wanted(ep, channel, slot, false);
    slot->sink = NULL;
    slot->req = NULL;
    req->len = slot->total;
    req->tag = slot->tag;
    ep->iface->budget--;
    sl_req_end(req, status);
    if (SL_UNLIKELY(kept) && sl_channels_due(&ep->channels))
        sl_tcp_ep_news(ep);
}

void sl_tcp_rx_finish(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                      struct sl_tcp_rx_slot *slot)
{
    bool told = slot->state == SL_TCP_RX_DROPPING;

    slot->state = SL_TCP_RX_DONE;
    channel->base.came++;
    while (channel->rx_head < channel->rx_tail &&
           sl_tcp_rx_slot(channel, channel->rx_head)->state == SL_TCP_RX_DONE)
        channel->rx_head++;
    if (--ep->rx_open == 0)
        sl_tcp_ep_deactivate(ep);
    if (!told)
        end_request(ep, channel, slot, 0);
    else if (channel->base.closed)
        sl_tcp_channel_check_over(ep, channel);
}

/* ---- frames ---- */

/* A message that no receive may ever take, as it is not in order: the endpoint fails. */
static bool is_too_much(struct sl_tcp_ep *ep, const struct sl_tcp_channel *channel, uint64_t number)
{
    if (SL_LIKELY(!channel->base.peer_closed || number < channel->base.peer_sent))
        return false;
    sl_tcp_ep_fail(ep, -EBADMSG, "a frame came for message %llu of channel %u, which had %llu",
                   (unsigned long long)number, channel->base.id,
                   (unsigned long long)channel->base.peer_sent);
    return true;
}

/* The first frame of a message meets its slot. */
static void start(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel, struct sl_tcp_rx_slot *slot,
                  const struct sl_tcp_frame *frame)
{
    const struct sl_sink *sink = slot->sink;

    slot->total = frame->total;
    slot->tag = frame->tag;
    slot->state = SL_TCP_RX_DROPPING;
    if (sink == NULL) {
        ; /* its channel was closed */
    } else if (frame->tag != sink->tag) {
        end_request(ep, channel, slot,
                    sl_fail(-EPROTO, "%s sent tag 0x%llx where 0x%llx was due",
                            sl_ep_peer_name(&ep->base), (unsigned long long)frame->tag,
                            (unsigned long long)sink->tag));
    } else if (!sl_sink_takes(sink, frame->total)) {
        end_request(ep, channel, slot,
                    sl_fail(-EMSGSIZE, "%s sent %llu bytes where %llu were due",
                            sl_ep_peer_name(&ep->base), (unsigned long long)frame->total,
                            (unsigned long long)sink->len));
    } else {
        slot->state = SL_TCP_RX_GOING;
    }
}

/* A message beyond the receives gets its slot when it is to be dropped or kept. False: stalled, or
 * the endpoint failed. */
static bool __attribute__((noinline)) admit(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                                            uint64_t number, const struct sl_tcp_frame *frame)
{
    struct sl_tcp_rx_slot slot = {.total = frame->total, .tag = frame->tag};
    struct sl_kept *kept;

    if ((int64_t)(number - channel->rx_head) < 0) {
        sl_tcp_ep_fail(ep, -EBADMSG, "a frame came for message %u of channel %u, which is complete",
                       frame->seq, frame->channel);
        return false;
    }
    if (is_too_much(ep, channel, number) || number != channel->rx_tail)
        return false;
    if (channel->base.closed) {
        slot.state = SL_TCP_RX_DROPPING;
        if (!has_room(channel))
            return false;
    } else {
        if (!sl_channels_wanting(&ep->channels, &channel->base) || !has_room(channel))
            return false;
        kept = sl_channel_keep(&ep->channels, &channel->base, frame->tag, frame->total);
        if (kept == NULL)
            return false;
        slot.state = SL_TCP_RX_GOING;
        slot.kept = true;
        slot.sink = &kept->sink;
        slot.req = &kept->req;
    }
    *append(ep, channel) = slot;
    return true;
}

struct sl_tcp_rx_slot *sl_tcp_rx_target(struct sl_tcp_conn *conn, struct sl_tcp_channel **out)
{
    struct sl_tcp_ep *ep = conn->ep;
    const struct sl_tcp_frame *frame = &conn->frame;
    struct sl_tcp_channel *channel = sl_tcp_channel_find(ep, frame->channel);
    struct sl_tcp_rx_slot *slot;
    uint64_t number;

    conn->stalled = true;
    if (SL_UNLIKELY(channel == NULL)) {
        channel = sl_tcp_channel_get(ep, frame->channel);
        if (channel == NULL)
            return NULL;
    }
    number = channel->rx_tail + (uint64_t)(int32_t)(frame->seq - (uint32_t)channel->rx_tail);
    if (SL_UNLIKELY(number - channel->rx_head >= channel->rx_tail - channel->rx_head) &&
        !admit(ep, channel, number, frame))
        return NULL;
    slot = sl_tcp_rx_slot(channel, number);
    if (slot->state == SL_TCP_RX_POSTED) {
        if (is_too_much(ep, channel, number))
            return NULL;
        start(ep, channel, slot, frame);
        if (SL_UNLIKELY(slot->state != SL_TCP_RX_GOING))
            return sl_tcp_rx_target(conn, out); /* a request may have ended: all may be different */
    }
    if (slot->state == SL_TCP_RX_DONE) {
        sl_tcp_ep_fail(ep, -EBADMSG, "a frame came for message %u of channel %u, which is complete",
                       frame->seq, frame->channel);
        return NULL;
    }
    if (frame->tag != slot->tag || frame->total != slot->total ||
        slot->got + (frame->len - conn->piece_got) > slot->total) {
        sl_tcp_ep_fail(ep, -EBADMSG, "frames of message %u of channel %u contradict each other",
                       frame->seq, frame->channel);
        return NULL;
    }
    if (slot->sink != NULL && slot->sink->consume != NULL && /* one that is dropped has none */
        (number != channel->rx_head ||
         frame->off + conn->piece_got != slot->consumed + channel->carry_len))
        return NULL;
    conn->stalled = false;
    *out = channel;
    return slot;
}

/* ---- channels that end ---- */

uint64_t sl_tcp_rx_seen(const struct sl_tcp_channel *channel)
{
    uint64_t seen = channel->rx_tail;

    while (seen > channel->rx_head && sl_tcp_rx_slot(channel, seen - 1)->state == SL_TCP_RX_POSTED)
        seen--;
    return seen;
}

bool sl_tcp_rx_cut(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel)
{
    uint64_t number = channel->base.peer_sent - 1;
    struct sl_tcp_rx_slot *slot;

    if (!channel->base.peer_closed || channel->rx_cut == 0 ||
        number - channel->rx_head >= channel->rx_tail - channel->rx_head)
        return false;
    slot = sl_tcp_rx_slot(channel, number);
    if (slot->got > channel->rx_cut)
        sl_tcp_ep_fail(ep, -EBADMSG, "%llu bytes came of a message of channel %u that ends at %llu",
                       (unsigned long long)slot->got, channel->base.id,
                       (unsigned long long)channel->rx_cut);
    if (slot->state != SL_TCP_RX_DROPPING || slot->got != channel->rx_cut)
        return false;
    sl_tcp_rx_finish(ep, channel, slot);
    return true;
}

void sl_tcp_drop_receives(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel,
                          struct sl_node *ended)
{
    for (uint64_t n = channel->rx_head; n < channel->rx_tail; n++) {
        struct sl_tcp_rx_slot *slot = sl_tcp_rx_slot(channel, n);

        set_wanted(ep, channel, slot, false);
        if (slot->req != NULL)
            sl_list_push_back(ended, &slot->req->link);
        slot->sink = NULL;
        slot->req = NULL;
        if (slot->state == SL_TCP_RX_GOING)
            slot->state = SL_TCP_RX_DROPPING;
    }
    ep->rx_open -= (uint32_t)(channel->rx_tail - sl_tcp_rx_seen(channel));
    channel->rx_tail = channel->rx_next = sl_tcp_rx_seen(channel);
}
