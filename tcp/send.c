/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending: messages cut into frames over the data connections of an endpoint.
 *
 * A message is cut into pieces; each connection takes the next piece when it is done with its own,
 * so a slow connection carries less. A connection's pieces never go back in (seq, off).
 *
 * Sends of all channels stand in one line. It grows with the channels that are in use, so that a
 * channel whose peer takes nothing does not keep others from standing in it.
 */
#include "tcp/tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define SLICE_BYTES (1u << 20) /* of one send(): reading gets its turn between */
#define SMALL_BYTES 1024u      /* copied behind the header: one buffer is faster than a vector */

static struct sl_tcp_tx_slot *tx_slot(const struct sl_tcp_ep *ep, uint64_t number)
{
    return &ep->tx[number & ep->tx_mask];
}

static void tx_finish(struct sl_tcp_ep *ep, struct sl_tcp_tx_slot *slot)
{
    struct sl_req *req = slot->req;

    slot->over = true;
    slot->req = NULL;
    while (ep->tx_head < ep->tx_assign && tx_slot(ep, ep->tx_head)->over)
        ep->tx_head++;
    if (ep->tx_head == ep->tx_tail)
        sl_tcp_ep_deactivate(ep);
    if (SL_UNLIKELY(req == NULL)) /* its channel was closed */
        return;
    slot->channel->tx_pending--;
    req->len = slot->len;
    ep->iface->budget--;
    if (req == ep->inline_req) {
        req->status = 0;
        ep->inline_done = true;
    } else {
        sl_req_end(req, 0);
    }
}

/* All of a send is given to connections: on to the next one that did not vanish. */
static void tx_next(struct sl_tcp_ep *ep)
{
    ep->tx_assign++;
    while (SL_UNLIKELY(ep->tx_assign < ep->tx_tail && tx_slot(ep, ep->tx_assign)->over))
        ep->tx_assign++;
}

/* Gives the connection the next piece; false: there is none. */
static bool tx_assign(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_tx_slot *slot;
    struct sl_tcp_tx_piece *piece = &conn->tx;
    struct sl_tcp_frame frame = {.type = SL_TCP_DATA};
    uint64_t rest;

    if (ep->tx_assign == ep->tx_tail)
        return false;
    slot = tx_slot(ep, ep->tx_assign);
    rest = slot->len - slot->assigned;
    piece->active = true;
    piece->number = ep->tx_assign;
    piece->at = slot->addr + slot->assigned;
    piece->len = rest < ep->piece_bytes ? (uint32_t)rest : ep->piece_bytes;
    piece->sent = piece->header_sent = 0;
    frame.len = piece->len;
    frame.seq = slot->seq;
    frame.channel = slot->channel->base.id;
    frame.tag = slot->tag;
    frame.total = slot->len;
    frame.off = slot->assigned;
    if (ep->crc)
        frame.crc = sl_tcp_payload_crc(piece->at, piece->len);
    sl_tcp_frame_encode(&frame, ep->crc, piece->header);
    slot->assigned += piece->len;
    if (slot->assigned == slot->len)
        tx_next(ep);
    return true;
}

/* As tx_write(), in records: one for a small message, else the header has its own, so that the
 * other end can open those behind it straight to where the payload goes. */
static ssize_t tx_write_tls(struct sl_tcp_conn *conn, const uint8_t *payload, uint32_t rest)
{
    struct sl_tcp_tx_piece *piece = &conn->tx;
    uint32_t header = SL_TCP_FRAME_BYTES - piece->header_sent;
    uint8_t whole[SL_TCP_FRAME_BYTES + SMALL_BYTES];
    struct iovec iov[2] = {{piece->header + piece->header_sent, header},
                           {(void *)(uintptr_t)payload, rest}};

    if (header == 0)
        return sl_tls_send(conn->tls, conn->watch.fd, iov + 1, 1);
    if (rest > SMALL_BYTES)
        return sl_tls_send(conn->tls, conn->watch.fd, iov, 2);
    memcpy(whole, iov[0].iov_base, header);
    if (rest > 0)
        memcpy(whole + header, payload, rest);
    return sl_tls_send(conn->tls, conn->watch.fd, &(struct iovec){whole, header + rest}, 1);
}

static ssize_t tx_write(struct sl_tcp_conn *conn)
{
    struct sl_tcp_tx_piece *piece = &conn->tx;
    const uint8_t *payload = piece->at;
    uint32_t header = SL_TCP_FRAME_BYTES - piece->header_sent, rest = piece->len - piece->sent;
    struct iovec iov[2];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    if (rest > SLICE_BYTES)
        rest = SLICE_BYTES;
    if (SL_UNLIKELY(conn->tls != NULL))
        return tx_write_tls(conn, payload, rest);
    if (header == 0)
        return send(conn->watch.fd, payload, rest, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (rest <= SMALL_BYTES) {
        uint8_t whole[SL_TCP_FRAME_BYTES + SMALL_BYTES];

        memcpy(whole, piece->header + piece->header_sent, header);
        if (rest > 0)
            memcpy(whole + header, payload, rest);
        return send(conn->watch.fd, whole, header + rest, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    iov[0].iov_base = piece->header + piece->header_sent;
    iov[0].iov_len = header;
    iov[1].iov_base = (void *)(uintptr_t)payload;
    iov[1].iov_len = rest;
    return sendmsg(conn->watch.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The socket has taken so many payload bytes of that send. */
static inline void tx_count(struct sl_tcp_ep *ep, const struct sl_tcp_tx_slot *slot, uint32_t len)
{
    ep->sent_bytes += len;
    if (SL_LIKELY(slot->channel != NULL))
        sl_channel_moved(&ep->base, &slot->channel->base, len);
    else /* it was closed here */
        ep->base.iface->traffic += len;
}

int sl_tcp_conn_tx(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_tx_piece *piece = &conn->tx;
    struct sl_tcp_tx_slot *slot;
    uint32_t header;
    ssize_t n;

    if (conn->idx == 0)
        return sl_tcp_ctrl_tx(conn);
    if (!piece->active && !tx_assign(conn))
        return 0;
    n = tx_write(conn);
    if (n < 0) {
        if (errno == EAGAIN)
            conn->watch.writable = false;
        else if (errno != EINTR)
            sl_tcp_conn_lost(conn, errno);
        return 0;
    }
    header = SL_TCP_FRAME_BYTES - piece->header_sent;
    if ((size_t)n < header)
        header = (uint32_t)n;
    piece->header_sent += header;
    piece->sent += (uint32_t)n - header;
    piece->at += (uint32_t)n - header;
    slot = tx_slot(ep, piece->number);
    tx_count(ep, slot, (uint32_t)n - header);
    if (piece->header_sent < SL_TCP_FRAME_BYTES || piece->sent < piece->len)
        return 1;
    piece->active = false;
    if (SL_UNLIKELY(piece->own != NULL)) {
        free(piece->own);
        piece->own = NULL;
    }
    slot->written += piece->len;
    if (slot->written == slot->len)
        tx_finish(ep, slot);
    return 1;
}

/* Twice the line. False: no memory for it. */
static bool __attribute__((noinline)) tx_grow(struct sl_tcp_ep *ep)
{
    uint32_t mask = 2 * ep->tx_mask + 1;
    struct sl_tcp_tx_slot *more = calloc((size_t)mask + 1, sizeof(*more));

    if (more == NULL)
        return false;
    for (uint64_t n = ep->tx_head; n < ep->tx_tail; n++)
        more[n & mask] = *tx_slot(ep, n);
    if (ep->tx != ep->queues->tx)
        free(ep->tx);
    ep->tx = more;
    ep->tx_mask = mask;
    return true;
}

int sl_tcp_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    bool idle = ep->tx_head == ep->tx_tail;
    struct sl_tcp_channel *channel;
    struct sl_tcp_tx_slot *slot;

    if (SL_UNLIKELY(ep->state != SL_TCP_EP_UP || ep->is_failing))
        return sl_tcp_not_up(ep);
    if (SL_UNLIKELY(buf->len > SL_TCP_MESSAGE_MAX))
        return sl_fail(-EINVAL, "a message of %zu bytes is too long", buf->len);
    channel = sl_tcp_channel_find(ep, buf->channel);
    if (SL_UNLIKELY(channel == NULL || !channel->base.open))
        return sl_channel_not_open(base, buf->channel);
    if (channel->tx_pending == SL_TCP_QUEUE)
        return -EAGAIN;
    if (SL_UNLIKELY(ep->tx_tail - ep->tx_head > ep->tx_mask) && !tx_grow(ep))
        return -EAGAIN;
    slot = tx_slot(ep, ep->tx_tail);
    *slot = (struct sl_tcp_tx_slot){.addr = buf->addr,
                                    .len = buf->len,
                                    .tag = tag,
                                    .seq = (uint32_t)channel->base.sent++,
                                    .channel = channel,
                                    .req = req};
    channel->tx_pending++;
    req->status = SL_PENDING;
    ep->tx_tail++;
    if (idle) {
        int budget = ep->iface->budget;

        ep->inline_req = req;
        ep->inline_done = false;
        for (unsigned i = 1; i <= ep->data_conns && ep->tx_assign < ep->tx_tail; i++)
            if (ep->conns[i].watch.writable)
                sl_tcp_conn_tx(&ep->conns[i]);
        ep->inline_req = NULL;
        ep->iface->budget = budget;
        if (ep->inline_done)
            return 1;
    }
    sl_tcp_ep_activate(ep);
    for (unsigned i = 1; i <= ep->data_conns; i++)
        sl_tcp_conn_ready(&ep->conns[i]);
    return 0;
}

/* ---- sends that end before they are sent ---- */

/* The rest of a piece goes on from memory of our own. */
static int tx_own(struct sl_tcp_tx_piece *piece)
{
    uint32_t rest = piece->len - piece->sent;

    if (rest == 0)
        return 0;
    piece->own = malloc(rest);
    if (piece->own == NULL)
        return -ENOMEM;
    memcpy(piece->own, piece->at, rest);
    piece->at = piece->own;
    return 0;
}

/* The pieces that connections are sending of the channel's messages. */
static void tx_own_all(struct sl_tcp_ep *ep, const struct sl_tcp_channel *channel)
{
    for (unsigned i = 1; ep->conns != NULL && i <= ep->data_conns; i++) {
        struct sl_tcp_tx_piece *piece = &ep->conns[i].tx;

        if (!piece->active || tx_slot(ep, piece->number)->channel != channel || tx_own(piece) == 0)
            continue;
        piece->active = false;
        sl_tcp_ep_fail(ep, -ENOMEM, "no memory for %u bytes that are to be sent on channel %u",
                       piece->len - piece->sent, channel->base.id);
    }
}

void sl_tcp_drop_sends(struct sl_tcp_ep *ep, struct sl_tcp_channel *channel, struct sl_node *ended)
{
    bool cut = false;

    tx_own_all(ep, channel);
    for (uint64_t n = ep->tx_head; n < ep->tx_tail; n++) {
        struct sl_tcp_tx_slot *slot = tx_slot(ep, n);

        if (slot->channel != channel || slot->over)
            continue;
        sl_list_push_back(ended, &slot->req->link);
        slot->req = NULL;
        slot->channel = NULL;
        if (n > ep->tx_assign || (n == ep->tx_assign && slot->assigned == 0)) {
            slot->over = true;
            channel->base.sent--;
            continue;
        }
        if (n == ep->tx_assign) {
            cut = true;
            channel->tx_cut = slot->assigned;
        }
        slot->len = slot->assigned;
        slot->over = slot->written == slot->len;
    }
    channel->tx_pending = 0;
    if (cut || (ep->tx_assign < ep->tx_tail && tx_slot(ep, ep->tx_assign)->over))
        tx_next(ep);
    while (ep->tx_head < ep->tx_assign && tx_slot(ep, ep->tx_head)->over)
        ep->tx_head++;
}

void sl_tcp_forget_sends(struct sl_tcp_ep *ep, struct sl_node *ended)
{
    for (; ep->tx_head < ep->tx_tail; ep->tx_head++) {
        struct sl_req *req = tx_slot(ep, ep->tx_head)->req;

        if (req != NULL)
            sl_list_push_back(ended, &req->link);
    }
    ep->tx_assign = ep->tx_head;
}
