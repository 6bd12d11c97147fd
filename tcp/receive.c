/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: frames of the data connections put together to messages.
 *
 * A connection reads a header, finds the receive that the message number names (match.c), and then
 * reads the payload straight to its place: into dst, or into the interface's staging buffer, from
 * which consume() takes it while it is still in L2. While the frame may not be delivered it is
 * stalled: not read, so TCP holds the sender back.
 */
#include "tcp/tcp.h"

#include <string.h>
#include <sys/uio.h>

#define SLICE_BYTES (512u << 10) /* of one recv(): writing gets its turn between */
#define ARRIVING_MIN 4096u       /* bytes: fewer come at once, however fast the network is */

/* Where a frame goes. */
struct rx_place {
    struct sl_tcp_channel *channel;
    struct sl_tcp_rx_slot *slot;
};

/* Hands over len bytes at the front of staging, of which the first carry_len are left from
 * before. */
static void rx_consume(struct sl_tcp_ep *ep, const struct rx_place *place, size_t len)
{
    struct sl_tcp_channel *channel = place->channel;
    struct sl_tcp_rx_slot *slot = place->slot;
    const struct sl_sink *sink = slot->sink;
    uint8_t *staging = ep->iface->staging;
    size_t whole = len;

    if (slot->consumed + len != slot->total && sink->granule > 1)
        whole -= len % sink->granule;
    if (whole > 0)
        sink->consume(sink, staging, slot->consumed, whole);
    slot->consumed += whole;
    channel->carry_len = (uint32_t)(len - whole);
    memcpy(channel->carry, staging + whole, channel->carry_len);
}

/* Bytes of the current piece that lie in the connection's read-ahead. */
static void rx_take(struct sl_tcp_conn *conn, const struct rx_place *place, uint32_t len)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_channel *channel = place->channel;
    struct sl_tcp_rx_slot *slot = place->slot;
    const uint8_t *bytes = conn->rx + conn->rx_pos;

    if (ep->crc)
        conn->crc = sl_crc32c(conn->crc, bytes, len);
    if (slot->state == SL_TCP_RX_GOING && slot->sink->consume != NULL) {
        memcpy(ep->iface->staging, channel->carry, channel->carry_len);
        memcpy(ep->iface->staging + channel->carry_len, bytes, len);
        rx_consume(ep, place, channel->carry_len + len);
    } else if (slot->state == SL_TCP_RX_GOING) {
        memcpy((uint8_t *)slot->sink->dst + conn->frame.off + conn->piece_got, bytes, len);
    }
    conn->rx_pos += len;
    conn->piece_got += len;
    slot->got += len;
    ep->received_bytes += len;
    sl_channel_moved(&ep->base, &channel->base, len);
}

/*
 * How fast a message comes says something of the network only while this end is not behind: from
 * when all that had come was read, to the end. What the socket kept until this process came to
 * read it does not count.
 */
static void rx_note_drained(const struct sl_tcp_conn *conn, struct sl_tcp_rx_slot *slot)
{
    if (conn->tls != NULL || slot->drained_ns != 0 || slot->got >= slot->total ||
        slot->total < ARRIVING_MIN)
        return;
    slot->drained_ns = sl_now(conn->ep->base.iface->worker->clock);
    slot->drained_got = slot->got;
}

/* Short messages may be quick on a slow link: what limits its rate lets some bytes pass at once. So
 * only the largest are compared. */
static void rx_note_quickest(struct sl_tcp_ep *ep, uint64_t now, uint64_t ns, uint64_t bytes)
{
    struct sl_state_quickest *it = &ep->quickest[0];
    uint32_t window = (uint32_t)(now / SL_STATE_WINDOW_NS) + 1;

    if (it->window != window) {
        ep->quickest[1] = *it;
        *it = (struct sl_state_quickest){.window = window};
    }
    if (bytes < it->bytes / 2)
        return;
    if (bytes / 2 > it->bytes)
        it->messages = 0;
    /* ns / bytes of both, without a division. */
    if (it->messages == 0 || (double)ns * (double)it->bytes < (double)it->ns * (double)bytes) {
        it->ns = ns;
        it->bytes = bytes;
    }
    it->messages++;
}

static void rx_note_whole(struct sl_tcp_ep *ep, const struct sl_tcp_rx_slot *slot)
{
    uint64_t rest = slot->total - slot->drained_got, now, ns;

    if (rest < ARRIVING_MIN)
        return;
    now = sl_now(ep->base.iface->worker->clock);
    ns = now - slot->drained_ns;
    ep->arriving_ns += ns;
    ep->arriving_bytes += rest;
    ep->arriving_messages++;
    rx_note_quickest(ep, now, ns, rest);
}

/* False: the endpoint failed. */
static bool rx_piece_done(struct sl_tcp_conn *conn, const struct rx_place *place)
{
    struct sl_tcp_ep *ep = conn->ep;

    conn->have_frame = false;
    if (ep->crc && conn->crc != conn->frame.crc) {
        sl_tcp_ep_fail(ep, -EBADMSG,
                       "bytes %llu to %llu of a message were damaged on the way (CRC32C), on "
                       "connection %u of %u",
                       (unsigned long long)conn->frame.off,
                       (unsigned long long)(conn->frame.off + conn->frame.len), conn->idx,
                       ep->data_conns);
        return false;
    }
    /* Bytes that consume() now may get can wait on another connection: of this message, or of the
     * next when it is over. */
    if (ep->data_conns > 1)
        sl_tcp_unstall(ep);
    if (SL_UNLIKELY(place->slot->drained_ns != 0) && place->slot->got == place->slot->total)
        rx_note_whole(ep, place->slot);
    if (place->slot->got == place->slot->total)
        sl_tcp_rx_finish(ep, place->channel, place->slot);
    else if (SL_UNLIKELY(place->channel->base.peer_closed))
        sl_tcp_rx_cut(ep, place->channel);
    return true;
}

/* The next header out of the read-ahead. False: not whole yet, or the endpoint failed. */
static bool rx_header(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_frame *frame = &conn->frame;
    int err;

    if (conn->rx_end - conn->rx_pos < SL_TCP_FRAME_BYTES)
        return false;
    err = sl_tcp_frame_decode(conn->rx + conn->rx_pos, ep->crc, frame);
    if (err != 0) {
        sl_tcp_ep_fail(ep, err, "%s, on connection %u of %u", sluice_last_error(), conn->idx,
                       ep->data_conns);
        return false;
    }
    if (frame->type != SL_TCP_DATA ||
        (frame->channel == conn->last_channel &&
         ((int32_t)(frame->seq - conn->next_seq) < 0 ||
          (frame->seq == conn->next_seq && frame->off < conn->next_off)))) {
        sl_tcp_ep_fail(ep, -EBADMSG,
                       "a frame of type %u for message %u of channel %u is out of order, on "
                       "connection %u of %u",
                       frame->type, frame->seq, frame->channel, conn->idx, ep->data_conns);
        return false;
    }
    conn->last_channel = frame->channel;
    conn->next_seq = frame->seq + (frame->off + frame->len == frame->total);
    conn->next_off = frame->off + frame->len == frame->total ? 0 : frame->off + frame->len;
    conn->rx_pos += SL_TCP_FRAME_BYTES;
    conn->have_frame = true;
    conn->piece_got = 0;
    conn->crc = 0;
    return true;
}

/* Delivers the bytes of the read-ahead. Returns how many pieces moved. */
static int rx_parse(struct sl_tcp_conn *conn, struct rx_place *place)
{
    struct sl_tcp_ep *ep = conn->ep;
    int moved = 0;

    while (!ep->is_failing && ep->iface->budget > 0) {
        uint32_t take;

        if (!conn->have_frame && !rx_header(conn))
            break;
        place->slot = sl_tcp_rx_target(conn, &place->channel);
        if (place->slot == NULL)
            break;
        take = conn->rx_end - conn->rx_pos;
        if (take > conn->frame.len - conn->piece_got)
            take = conn->frame.len - conn->piece_got;
        if (take > 0) {
            rx_take(conn, place, take);
            moved++;
        }
        if (conn->piece_got < conn->frame.len)
            break;
        moved++;
        if (!rx_piece_done(conn, place))
            break;
    }
    return moved;
}

/*
 * n bytes came of those wanted. Fewer: the socket is empty, and the engine reports more, so no call
 * is needed to hear EAGAIN. Behind the peer's last byte that would be wrong, as its report may have
 * come already; and TLS cuts at records. Where the engine is asked now and then only, reading is
 * how to hear early.
 */
static void rx_note_empty(struct sl_tcp_conn *conn, size_t n, size_t wanted)
{
    if (n < wanted && !conn->watch.hung_up && conn->tls == NULL &&
        !sl_tcp_asks_sockets(conn->ep->iface))
        conn->watch.readable = false;
}

/* Reads the rest of the current piece to its place, and the bytes behind it into the read-ahead,
 * which is empty. Returns as recv() does. *asked: how much there was room for. */
static ssize_t rx_read_payload(struct sl_tcp_conn *conn, const struct rx_place *place,
                               size_t *asked)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_channel *channel = place->channel;
    struct sl_tcp_rx_slot *slot = place->slot;
    bool consume = slot->state == SL_TCP_RX_GOING && slot->sink->consume != NULL;
    size_t want = conn->frame.len - conn->piece_got, off = conn->frame.off + conn->piece_got;
    struct iovec iov[2];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};
    size_t limit = want;
    ssize_t n;

    if (slot->state == SL_TCP_RX_GOING && !consume) {
        iov[0].iov_base = (uint8_t *)slot->sink->dst + off;
        if (limit > SLICE_BYTES)
            limit = SLICE_BYTES;
    } else {
        size_t carry = consume ? channel->carry_len : 0;

        memcpy(ep->iface->staging, channel->carry, carry);
        iov[0].iov_base = ep->iface->staging + carry;
        if (limit > SL_TCP_STAGING_BYTES)
            limit = SL_TCP_STAGING_BYTES;
    }
    iov[0].iov_len = limit;
    if (limit == want) {
        iov[1].iov_base = conn->rx;
        iov[1].iov_len = SL_TCP_RX_BYTES;
        msg.msg_iovlen = 2;
    }
    *asked = limit + (msg.msg_iovlen > 1 ? iov[1].iov_len : 0);
    n = SL_UNLIKELY(conn->tls != NULL)
            ? sl_tls_recv(conn->tls, conn->watch.fd, iov, (unsigned)msg.msg_iovlen)
            : recvmsg(conn->watch.fd, &msg, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    rx_note_empty(conn, (size_t)n, *asked);
    conn->rx_pos = 0;
    conn->rx_end = (size_t)n > limit ? (uint32_t)((size_t)n - limit) : 0;
    if ((size_t)n < limit)
        limit = (size_t)n;
    if (ep->crc)
        conn->crc = sl_crc32c(conn->crc, iov[0].iov_base, limit);
    conn->piece_got += (uint32_t)limit;
    slot->got += limit;
    ep->received_bytes += limit;
    sl_channel_moved(&ep->base, &channel->base, limit);
    if (consume)
        rx_consume(ep, place, channel->carry_len + limit);
    if (conn->piece_got == conn->frame.len)
        rx_piece_done(conn, place);
    return n;
}

static ssize_t rx_read_ahead(struct sl_tcp_conn *conn, size_t *asked)
{
    size_t room;
    ssize_t n;

    if (conn->rx_pos > 0) {
        memmove(conn->rx, conn->rx + conn->rx_pos, conn->rx_end - conn->rx_pos);
        conn->rx_end -= conn->rx_pos;
        conn->rx_pos = 0;
    }
    room = *asked = SL_TCP_RX_BYTES - conn->rx_end;
    n = sl_tcp_read(conn, conn->rx + conn->rx_end, room);
    if (n > 0) {
        rx_note_empty(conn, (size_t)n, room);
        conn->rx_end += (uint32_t)n;
    }
    return n;
}

void sl_tcp_check_end(struct sl_tcp_ep *ep)
{
    bool all_read = true;

    for (unsigned i = 1; i <= ep->data_conns; i++) {
        if (!ep->conns[i].eof && !ep->conns[i].stalled)
            return;
        all_read &= ep->conns[i].eof;
    }
    if (ep->channels.wanting > 0 || (all_read && !sl_tcp_channels_keep(ep)))
        sl_tcp_ep_fail(ep, -ECONNRESET, "the peer closed its endpoint");
}

/* The peer sends no more on this connection: in order after a farewell, a crash otherwise. */
static void rx_eof(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;

    /* The farewell may be behind what was said of many channels. */
    if (!ep->bye && !sl_tcp_ctrl_rx_all(ep)) {
        conn->watch.readable = true; /* the end is read again in the next turn */
        sl_tcp_conn_ready(conn);
        return;
    }
    conn->eof = true;
    conn->watch.readable = false;
    if (!ep->bye) {
        sl_tcp_conn_lost(conn, 0);
        return;
    }
    sl_tcp_check_end(ep);
}

int sl_tcp_conn_rx(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct rx_place place = {0};
    size_t asked;
    int moved;
    ssize_t n;

    if (conn->idx == 0)
        return sl_tcp_ctrl_rx(conn);
    moved = rx_parse(conn, &place);
    if (conn->stalled || conn->eof || ep->is_failing || ep->iface->budget <= 0) {
        if (SL_UNLIKELY(ep->bye))
            sl_tcp_check_end(ep);
        return moved;
    }
    n = conn->have_frame && place.slot != NULL ? rx_read_payload(conn, &place, &asked)
                                               : rx_read_ahead(conn, &asked);
    if (n > 0) {
        moved += 1 + rx_parse(conn, &place);
        if (SL_UNLIKELY(conn->have_frame) && place.slot != NULL && (size_t)n < asked)
            rx_note_drained(conn, place.slot);
        if (SL_UNLIKELY(ep->bye) && conn->stalled)
            sl_tcp_check_end(ep);
        return moved;
    }
    if (n == 0)
        rx_eof(conn);
    else if (errno == EAGAIN)
        conn->watch.readable = false;
    else if (errno != EINTR)
        sl_tcp_conn_lost(conn, errno);
    return moved;
}
