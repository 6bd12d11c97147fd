/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: frames of the data connections put together to messages.
 *
 * A connection reads a header, finds the receive that the message number names, and then reads the
 * payload straight to its place: into dst, or into the interface's staging buffer, from which
 * consume() takes it while it is still in L2. Without a posted receive, or when consume() must
 * first get earlier bytes from another connection, it is stalled: not read, so TCP holds the sender
 * back. That cannot lock up: the connection with the oldest missing bytes has nothing before them.
 */
#include "tcp/tcp.h"

#include <string.h>
#include <sys/uio.h>

#define SLICE_BYTES (512u << 10) /* of one recv(): writing gets its turn between */

static struct sl_tcp_rx_slot *rx_slot(struct sl_tcp_ep *ep, uint64_t seq)
{
    return &ep->rx[seq % SL_TCP_QUEUE];
}

/* What a stalled connection waited for may be there now: look again. */
static void unstall(struct sl_tcp_ep *ep)
{
    for (unsigned i = 1; i <= ep->data_conns; i++) {
        if (ep->conns[i].stalled) {
            ep->conns[i].stalled = false;
            sl_tcp_conn_ready(&ep->conns[i]);
        }
    }
}

int sl_tcp_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);

    if (SL_UNLIKELY(ep->state != SL_TCP_EP_UP || ep->is_failing))
        return sl_tcp_not_up(ep);
    if (SL_UNLIKELY(sink->consume != NULL && sink->granule > SL_TCP_GRANULE_MAX))
        return sl_fail(-EINVAL, "a granule of %u bytes is larger than %d", sink->granule,
                       SL_TCP_GRANULE_MAX);
    if (ep->rx_tail - ep->rx_head == SL_TCP_QUEUE)
        return -EAGAIN;
    *rx_slot(ep, ep->rx_tail) =
        (struct sl_tcp_rx_slot){.sink = sink, .req = req, .state = SL_TCP_RX_POSTED};
    req->status = SL_PENDING;
    ep->rx_tail++;
    sl_tcp_ep_activate(ep);
    unstall(ep);
    return 0;
}

static void rx_end_request(struct sl_tcp_ep *ep, struct sl_tcp_rx_slot *slot, int status)
{
    struct sl_req *req = slot->req;

    slot->req = NULL;
    req->len = slot->total;
    req->tag = slot->tag;
    ep->iface->budget--;
    sl_req_end(req, status);
}

/* The slot's message is over, received or dropped. */
static void rx_finish(struct sl_tcp_ep *ep, struct sl_tcp_rx_slot *slot)
{
    bool told = slot->state == SL_TCP_RX_DROPPING;

    slot->state = SL_TCP_RX_DONE;
    while (ep->rx_head < ep->rx_tail && rx_slot(ep, ep->rx_head)->state == SL_TCP_RX_DONE)
        ep->rx_head++;
    if (ep->rx_head == ep->rx_tail)
        sl_tcp_ep_deactivate(ep);
    if (!told)
        rx_end_request(ep, slot, 0);
}

/* The first frame of a message meets its receive. */
static void rx_start(struct sl_tcp_ep *ep, struct sl_tcp_rx_slot *slot,
                     const struct sl_tcp_frame *frame)
{
    slot->total = frame->total;
    slot->tag = frame->tag;
    if (frame->tag == slot->sink->tag && sl_sink_takes(slot->sink, frame->total)) {
        slot->state = SL_TCP_RX_GOING;
        return;
    }
    slot->state = SL_TCP_RX_DROPPING;
    if (frame->tag != slot->sink->tag)
        rx_end_request(ep, slot,
                       sl_fail(-EPROTO, "%s sent tag 0x%llx where 0x%llx was due",
                               sl_ep_peer_name(&ep->base), (unsigned long long)frame->tag,
                               (unsigned long long)slot->sink->tag));
    else
        rx_end_request(ep, slot,
                       sl_fail(-EMSGSIZE, "%s sent %llu bytes where %llu were due",
                               sl_ep_peer_name(&ep->base), (unsigned long long)frame->total,
                               (unsigned long long)slot->sink->len));
}

/*
 * The slot that the connection's frame may be delivered to now. NULL: stalled, or the endpoint
 * failed.
 */
static struct sl_tcp_rx_slot *rx_target(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    const struct sl_tcp_frame *frame = &conn->frame;
    struct sl_tcp_rx_slot *slot;

    conn->stalled = true;
    if (frame->seq >= ep->rx_tail)
        return NULL;
    slot = rx_slot(ep, frame->seq);
    if (frame->seq < ep->rx_head || slot->state == SL_TCP_RX_DONE) {
        sl_tcp_ep_fail(ep, -EBADMSG, "a frame came for message %llu, which is complete",
                       (unsigned long long)frame->seq);
        return NULL;
    }
    if (slot->state == SL_TCP_RX_POSTED)
        rx_start(ep, slot, frame);
    if (frame->tag != slot->tag || frame->total != slot->total ||
        slot->got + (frame->len - conn->piece_got) > slot->total) {
        sl_tcp_ep_fail(ep, -EBADMSG, "frames of message %llu contradict each other",
                       (unsigned long long)frame->seq);
        return NULL;
    }
    if (slot->state == SL_TCP_RX_GOING && slot->sink->consume != NULL &&
        (frame->seq != ep->rx_head ||
         frame->off + conn->piece_got != slot->consumed + ep->carry_len))
        return NULL;
    conn->stalled = false;
    return slot;
}

/* Hands over len bytes at the front of staging, of which the first carry_len are left from
 * before. */
static void rx_consume(struct sl_tcp_ep *ep, struct sl_tcp_rx_slot *slot, size_t len)
{
    const struct sl_sink *sink = slot->sink;
    uint8_t *staging = ep->iface->staging;
    size_t whole = len;

    if (slot->consumed + len != slot->total && sink->granule > 1)
        whole -= len % sink->granule;
    if (whole > 0)
        sink->consume(sink, staging, slot->consumed, whole);
    slot->consumed += whole;
    ep->carry_len = (uint32_t)(len - whole);
    memcpy(ep->carry, staging + whole, ep->carry_len);
}

/* Bytes of the current piece that lie in the connection's read-ahead. */
static void rx_take(struct sl_tcp_conn *conn, struct sl_tcp_rx_slot *slot, uint32_t len)
{
    struct sl_tcp_ep *ep = conn->ep;
    const uint8_t *bytes = conn->rx + conn->rx_pos;

    if (ep->crc)
        conn->crc = sl_crc32c(conn->crc, bytes, len);
    if (slot->state == SL_TCP_RX_GOING && slot->sink->consume != NULL) {
        memcpy(ep->iface->staging, ep->carry, ep->carry_len);
        memcpy(ep->iface->staging + ep->carry_len, bytes, len);
        rx_consume(ep, slot, ep->carry_len + len);
    } else if (slot->state == SL_TCP_RX_GOING) {
        memcpy((uint8_t *)slot->sink->dst + conn->frame.off + conn->piece_got, bytes, len);
    }
    conn->rx_pos += len;
    conn->piece_got += len;
    slot->got += len;
    ep->received_bytes += len;
    ep->base.iface->traffic += len;
}

/* False: the endpoint failed. */
static bool rx_piece_done(struct sl_tcp_conn *conn, struct sl_tcp_rx_slot *slot)
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
        unstall(ep);
    if (slot->got == slot->total)
        rx_finish(ep, slot);
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
    if (frame->type != SL_TCP_DATA || frame->seq < conn->next_seq ||
        (frame->seq == conn->next_seq && frame->off < conn->next_off)) {
        sl_tcp_ep_fail(ep, -EBADMSG,
                       "a frame of type %u for message %llu is out of order, on "
                       "connection %u of %u",
                       frame->type, (unsigned long long)frame->seq, conn->idx, ep->data_conns);
        return false;
    }
    conn->next_seq = frame->seq + (frame->off + frame->len == frame->total);
    conn->next_off = frame->off + frame->len == frame->total ? 0 : frame->off + frame->len;
    conn->rx_pos += SL_TCP_FRAME_BYTES;
    conn->have_frame = true;
    conn->piece_got = 0;
    conn->crc = 0;
    return true;
}

/* Delivers what the read-ahead holds. Returns how many pieces moved. */
static int rx_parse(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    int moved = 0;

    while (!ep->is_failing && ep->iface->budget > 0) {
        struct sl_tcp_rx_slot *slot;
        uint32_t take;

        if (!conn->have_frame && !rx_header(conn))
            break;
        slot = rx_target(conn);
        if (slot == NULL)
            break;
        take = conn->rx_end - conn->rx_pos;
        if (take > conn->frame.len - conn->piece_got)
            take = conn->frame.len - conn->piece_got;
        if (take > 0) {
            rx_take(conn, slot, take);
            moved++;
        }
        if (conn->piece_got < conn->frame.len)
            break;
        moved++;
        if (!rx_piece_done(conn, slot))
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
 * which is empty. Returns as recv() does. */
static ssize_t rx_read_payload(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_rx_slot *slot = rx_slot(ep, conn->frame.seq);
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
        size_t carry = consume ? ep->carry_len : 0;

        memcpy(ep->iface->staging, ep->carry, carry);
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
    n = SL_UNLIKELY(conn->tls != NULL)
            ? sl_tls_recv(conn->tls, conn->watch.fd, iov, (unsigned)msg.msg_iovlen)
            : recvmsg(conn->watch.fd, &msg, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    rx_note_empty(conn, (size_t)n, limit + (msg.msg_iovlen > 1 ? iov[1].iov_len : 0));
    conn->rx_pos = 0;
    conn->rx_end = (size_t)n > limit ? (uint32_t)((size_t)n - limit) : 0;
    if ((size_t)n < limit)
        limit = (size_t)n;
    if (ep->crc)
        conn->crc = sl_crc32c(conn->crc, iov[0].iov_base, limit);
    conn->piece_got += (uint32_t)limit;
    slot->got += limit;
    ep->received_bytes += limit;
    ep->base.iface->traffic += limit;
    if (consume)
        rx_consume(ep, slot, ep->carry_len + limit);
    if (conn->piece_got == conn->frame.len)
        rx_piece_done(conn, slot);
    return n;
}

static ssize_t rx_read_ahead(struct sl_tcp_conn *conn)
{
    size_t room;
    ssize_t n;

    if (conn->rx_pos > 0) {
        memmove(conn->rx, conn->rx + conn->rx_pos, conn->rx_end - conn->rx_pos);
        conn->rx_end -= conn->rx_pos;
        conn->rx_pos = 0;
    }
    room = SL_TCP_RX_BYTES - conn->rx_end;
    n = sl_tcp_read(conn, conn->rx + conn->rx_end, room);
    if (n > 0) {
        rx_note_empty(conn, (size_t)n, room);
        conn->rx_end += (uint32_t)n;
    }
    return n;
}

/* The peer sends no more on this connection: in order after a farewell, a crash otherwise. */
static void rx_eof(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;

    conn->eof = true;
    conn->watch.readable = false;
    if (!ep->bye && !ep->conns[0].eof)
        sl_tcp_ctrl_rx(&ep->conns[0]);
    if (!ep->bye) {
        sl_tcp_conn_lost(conn, 0);
        return;
    }
    for (unsigned i = 1; i <= ep->data_conns; i++)
        if (!ep->conns[i].eof)
            return;
    sl_tcp_ep_fail(ep, -ECONNRESET, "the peer closed its endpoint");
}

int sl_tcp_conn_rx(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    int moved;
    ssize_t n;

    if (conn->idx == 0)
        return sl_tcp_ctrl_rx(conn);
    moved = rx_parse(conn);
    if (conn->stalled || conn->eof || ep->is_failing || ep->iface->budget <= 0)
        return moved;
    n = conn->have_frame ? rx_read_payload(conn) : rx_read_ahead(conn);
    if (n > 0)
        return moved + 1 + rx_parse(conn);
    if (n == 0)
        rx_eof(conn);
    else if (errno == EAGAIN)
        conn->watch.readable = false;
    else if (errno != EINTR)
        sl_tcp_conn_lost(conn, errno);
    return moved;
}

void sl_tcp_cancel_receives(struct sl_tcp_ep *ep, int status)
{
    /* Counters move before each end: done() may look at the endpoint. */
    while (ep->rx_head < ep->rx_tail) {
        struct sl_req *req = rx_slot(ep, ep->rx_head++)->req;

        if (req != NULL)
            sl_req_end(req, status);
    }
}
