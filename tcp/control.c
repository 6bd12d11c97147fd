/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of an endpoint: small messages that never wait behind data, and
 * farewells. */
#include "tcp/tcp.h"

#include <string.h>

/* Of 8 KiB: more than peers have to say when they go (errors of many communicators, closes). */
#define READS_MAX 256

static struct sl_tcp_ctrl_msg *queued(struct sl_tcp_ep *ep, unsigned i)
{
    return &ep->ctrl[(ep->ctrl_head + i) % SL_TCP_CTRL_QUEUE];
}

/* Its place for the payload. */
static struct sl_tcp_ctrl_msg *enqueue_frame(struct sl_tcp_ep *ep, struct sl_tcp_frame *frame,
                                             const void *msg)
{
    struct sl_tcp_ctrl_msg *slot = queued(ep, ep->ctrl_count++);

    frame->seq = ep->ctrl_seq++;
    if (ep->crc)
        frame->crc = sl_tcp_payload_crc(msg, frame->len);
    sl_tcp_frame_encode(frame, ep->crc, slot->bytes);
    slot->len = (uint16_t)(SL_TCP_FRAME_BYTES + frame->len);
    return slot;
}

static void enqueue(struct sl_tcp_ep *ep, uint8_t type, const void *msg, size_t len)
{
    struct sl_tcp_frame frame = {.type = type, .len = (uint32_t)len};
    struct sl_tcp_ctrl_msg *slot = enqueue_frame(ep, &frame, msg);

    if (len > 0)
        memcpy(slot->bytes + SL_TCP_FRAME_BYTES, msg, len);
}

/* As many ends of channels as there is room for: one place stays free for the farewell. */
static void enqueue_closes(struct sl_tcp_ep *ep)
{
    struct sl_tcp_frame frame;

    while (ep->ctrl_count < SL_TCP_CTRL_QUEUE - 1 && sl_tcp_channel_next_close(ep, &frame))
        enqueue_frame(ep, &frame, NULL);
}

int sl_tcp_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);

    if (len > SL_CTRL_ROOM)
        return sl_fail(-EINVAL, "a control message of %zu bytes is longer than %d", len,
                       SL_CTRL_ROOM);
    if (ep->state != SL_TCP_EP_UP)
        return sl_tcp_not_up(ep);
    /* One place stays free for the farewell. */
    if (ep->ctrl_count >= SL_TCP_CTRL_QUEUE - 1)
        return -EAGAIN;
    enqueue(ep, SL_TCP_CTRL, msg, len);
    sl_tcp_ctrl_tx(&ep->conns[0]);
    return 0;
}

int sl_tcp_ctrl_tx(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    int moved = 0;

    for (enqueue_closes(ep); ep->ctrl_count > 0; enqueue_closes(ep)) {
        struct sl_tcp_ctrl_msg *msg = queued(ep, 0);
        uint8_t *rest = msg->bytes + ep->ctrl_sent;
        size_t len = msg->len - ep->ctrl_sent;
        ssize_t n = SL_UNLIKELY(conn->tls != NULL)
                        ? sl_tls_send(conn->tls, conn->watch.fd, &(struct iovec){rest, len}, 1)
                        : send(conn->watch.fd, rest, len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0) {
            if (errno == EAGAIN)
                conn->watch.writable = false;
            else if (errno != EINTR)
                sl_tcp_conn_lost(conn, errno);
            break;
        }
        ep->ctrl_sent += (uint32_t)n;
        if (ep->ctrl_sent < msg->len)
            continue;
        ep->ctrl_sent = 0;
        ep->ctrl_head++;
        ep->ctrl_count--;
        moved++;
    }
    return moved;
}

void sl_tcp_say_bye(struct sl_tcp_ep *ep)
{
    if (ep->state != SL_TCP_EP_UP)
        return;
    /* Its place was kept, and an endpoint ends once. */
    sl_assert(ep->ctrl_count < SL_TCP_CTRL_QUEUE);
    sl_list_init(&ep->closing); /* all channels end with the endpoint */
    enqueue(ep, SL_TCP_BYE, NULL, 0);
    sl_tcp_ctrl_tx(&ep->conns[0]);
}

/* One whole frame at bytes. */
static int handle(struct sl_tcp_conn *conn, const struct sl_tcp_frame *frame, const uint8_t *bytes)
{
    struct sl_tcp_ep *ep = conn->ep;

    if (frame->seq != ep->ctrl_seq_in)
        return sl_tcp_ep_fail(ep, -EBADMSG, "control message %u came when %u was due", frame->seq,
                              ep->ctrl_seq_in);
    if (ep->crc && frame->crc != sl_tcp_payload_crc(bytes, frame->len))
        return sl_tcp_ep_fail(ep, -EBADMSG, "a control message was damaged on the way (CRC32C)");
    ep->ctrl_seq_in++;
    if (frame->type == SL_TCP_CLOSE)
        return sl_tcp_channel_peer_closed(ep, frame);
    if (frame->type == SL_TCP_BYE) {
        ep->bye = ep->base.left = true;
        for (unsigned i = 1; i <= ep->data_conns; i++)
            sl_tcp_conn_ready(&ep->conns[i]);
        if (ep->data_conns == 0)
            sl_tcp_check_end(ep);
    } else if (ep->iface->base.handler.ctrl != NULL) {
        ep->iface->base.handler.ctrl(ep->iface->base.handler.arg, &ep->base, bytes, frame->len);
    }
    return 0;
}

/* Every whole frame that is in the buffer. Returns how many, or a negative errno. */
static int parse(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    int count = 0;

    while (conn->rx_end - conn->rx_pos >= SL_TCP_FRAME_BYTES) {
        struct sl_tcp_frame frame;
        int err = sl_tcp_frame_decode(conn->rx + conn->rx_pos, ep->crc, &frame);

        if (err != 0)
            return sl_tcp_ep_fail(ep, err, "%s", sluice_last_error());
        if (frame.type == SL_TCP_DATA)
            return sl_tcp_ep_fail(ep, -EBADMSG, "data came on the control connection");
        if (conn->rx_end - conn->rx_pos < SL_TCP_FRAME_BYTES + frame.len)
            break;
        err = handle(conn, &frame, conn->rx + conn->rx_pos + SL_TCP_FRAME_BYTES);
        if (err != 0)
            return err;
        conn->rx_pos += SL_TCP_FRAME_BYTES + frame.len;
        count++;
    }
    memmove(conn->rx, conn->rx + conn->rx_pos, conn->rx_end - conn->rx_pos);
    conn->rx_end -= conn->rx_pos;
    conn->rx_pos = 0;
    return count;
}

int sl_tcp_ctrl_rx(struct sl_tcp_conn *conn)
{
    ssize_t n = sl_tcp_read(conn, conn->rx + conn->rx_end, SL_TCP_RX_BYTES - conn->rx_end);
    int count;

    if (n < 0) {
        if (errno == EAGAIN)
            conn->watch.readable = false;
        else if (errno != EINTR)
            sl_tcp_conn_lost(conn, errno);
        return 0;
    }
    if (n == 0) {
        conn->eof = true;
        conn->watch.readable = false;
        if (!conn->ep->bye)
            sl_tcp_conn_lost(conn, 0);
        return 1;
    }
    conn->rx_end += (uint32_t)n;
    count = parse(conn);
    return count > 0 ? count : 1;
}

bool sl_tcp_ctrl_rx_all(struct sl_tcp_ep *ep)
{
    struct sl_tcp_conn *conn = &ep->conns[0];

    for (unsigned i = 0; i < READS_MAX; i++)
        if (ep->bye || conn->eof || conn->state != SL_TCP_OPEN || sl_tcp_ctrl_rx(conn) <= 0)
            return true;
    return false;
}
