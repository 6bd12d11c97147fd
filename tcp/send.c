/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending: messages cut into frames over the data connections of an endpoint.
 *
 * A message is cut into pieces; each connection takes the next piece when it is done with its own,
 * so a slow connection carries less. A connection's pieces never go back in (seq, off).
 */
#include "tcp/tcp.h"

#include <string.h>
#include <sys/uio.h>

#define SLICE_BYTES (1u << 20) /* of one send(): reading gets its turn between */
#define SMALL_BYTES 1024u      /* copied behind the header: one buffer is faster than a vector */

static struct sl_tcp_tx_slot *tx_slot(struct sl_tcp_ep *ep, uint64_t seq)
{
    return &ep->tx[seq % SL_TCP_QUEUE];
}

static void tx_finish(struct sl_tcp_ep *ep, struct sl_tcp_tx_slot *slot)
{
    struct sl_req *req = slot->req;

    slot->req = NULL;
    while (ep->tx_head < ep->tx_assign && tx_slot(ep, ep->tx_head)->req == NULL)
        ep->tx_head++;
    if (ep->tx_head == ep->tx_tail)
        sl_tcp_ep_deactivate(ep);
    req->len = slot->len;
    ep->iface->budget--;
    if (req == ep->inline_req) {
        req->status = 0;
        ep->inline_done = true;
    } else {
        sl_req_end(req, 0);
    }
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
    piece->slot = (uint32_t)(ep->tx_assign % SL_TCP_QUEUE);
    piece->off = slot->assigned;
    piece->len = rest < ep->piece_bytes ? (uint32_t)rest : ep->piece_bytes;
    piece->sent = piece->header_sent = 0;
    frame.len = piece->len;
    frame.seq = slot->seq;
    frame.tag = slot->tag;
    frame.total = slot->len;
    frame.off = piece->off;
    if (ep->crc)
        frame.crc = sl_tcp_payload_crc(slot->addr + piece->off, piece->len);
    sl_tcp_frame_encode(&frame, ep->crc, piece->header);
    slot->assigned += piece->len;
    if (slot->assigned == slot->len)
        ep->tx_assign++;
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
    const uint8_t *payload = conn->ep->tx[piece->slot].addr + piece->off + piece->sent;
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
    ep->sent_bytes += (uint32_t)n - header;
    ep->base.iface->traffic += (uint32_t)n - header;
    if (piece->header_sent < SL_TCP_FRAME_BYTES || piece->sent < piece->len)
        return 1;
    piece->active = false;
    slot = &ep->tx[piece->slot];
    slot->written += piece->len;
    if (slot->written == slot->len)
        tx_finish(ep, slot);
    return 1;
}

int sl_tcp_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    bool idle = ep->tx_head == ep->tx_tail;
    struct sl_tcp_tx_slot *slot;

    if (SL_UNLIKELY(ep->state != SL_TCP_EP_UP || ep->is_failing))
        return sl_tcp_not_up(ep);
    if (SL_UNLIKELY(buf->len > SL_TCP_MESSAGE_MAX))
        return sl_fail(-EINVAL, "a message of %zu bytes is too long", buf->len);
    if (ep->tx_tail - ep->tx_head == SL_TCP_QUEUE)
        return -EAGAIN;
    slot = tx_slot(ep, ep->tx_tail);
    *slot = (struct sl_tcp_tx_slot){
        .addr = buf->addr, .len = buf->len, .tag = tag, .seq = ep->tx_tail, .req = req};
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

void sl_tcp_cancel_sends(struct sl_tcp_ep *ep, int status)
{
    /* Counters move before each end: done() may look at the endpoint. */
    while (ep->tx_head < ep->tx_tail) {
        struct sl_req *req = tx_slot(ep, ep->tx_head++)->req;

        if (req != NULL)
            sl_req_end(req, status);
    }
    ep->tx_assign = ep->tx_head;
}
