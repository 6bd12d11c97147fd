/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that leave, and sends: in a frame, or announced by one. */
#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"

#include <string.h>

/* ---- frames ---- */

bool sl_mp_can_post_frame(const struct sl_mp_conn *conn)
{
    return conn->frame_path != NULL && !conn->frame_path->failing && sl_list_empty(&conn->repeat) &&
           conn->iface->free_frame_count != 0 && sl_mp_path_has_room(conn->frame_path);
}

void sl_mp_frame_free(struct sl_mp_iface *iface, struct sl_mp_tx_frame *frame)
{
    /* The one that was used last is still in the cache: it goes first. */
    frame->link.next = iface->free_frames.next;
    frame->link.prev = &iface->free_frames;
    iface->free_frames.next->prev = &frame->link;
    iface->free_frames.next = &frame->link;
    iface->free_frame_count++;
}

static struct sl_mp_frame *header_of(const struct sl_mp_tx_frame *frame)
{
    return (struct sl_mp_frame *)(void *)frame->bytes;
}

struct sl_mp_tx_frame *sl_mp_frame_new(struct sl_mp_conn *conn, uint8_t kind, uint32_t channel,
                                       uint32_t number)
{
    struct sl_mp_iface *iface = conn->iface;
    struct sl_mp_tx_frame *frame;

    if (!sl_mp_can_post_frame(conn))
        return NULL;
    frame = sl_container_of(sl_list_pop_front(&iface->free_frames), struct sl_mp_tx_frame, link);
    iface->free_frame_count--;
    *header_of(frame) = (struct sl_mp_frame){.kind = kind,
                                             .credits = (uint16_t)conn->credits_owed,
                                             .fseq = conn->fseq_out++,
                                             .channel = channel,
                                             .number = number};
    conn->credits_owed = 0;
    return frame;
}

void sl_mp_frame_post(struct sl_mp_conn *conn, struct sl_mp_tx_frame *frame, uint32_t payload)
{
    frame->len = SL_MP_FRAME_BYTES + payload;
    sl_mp_path_post_frame(conn->frame_path, frame);
}

/* ---- sending ---- */

static void tx_advance(struct sl_mp_channel *channel)
{
    while (channel->tx_oldest != channel->tx_next &&
           sl_mp_tx_at(channel, channel->tx_oldest) == NULL)
        channel->tx_oldest++;
}

/* A long message is over: its place is free, and its request the caller's to end. */
struct sl_req *sl_mp_tx_end(struct sl_mp_channel *channel, struct sl_mp_tx_msg *msg)
{
    struct sl_req *req = msg->req;

    channel->tx[msg->number & channel->tx_mask] = NULL;
    req->len = msg->len;
    sl_mp_pool_put(&channel->conn->iface->tx_msgs, msg);
    tx_advance(channel);
    return req;
}

/* Grants for a message that turns out not to be what the receiver expected: it will hear so and
 * take them back. */
static void forget_cts(struct sl_mp_channel *channel, uint32_t number)
{
    sl_list_foreach(&channel->early, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, link);

        if (cts->number == number) {
            sl_mp_early_take(cts);
            sl_mp_tx_cts_free(channel->conn, cts);
        }
    }
}

static int send_eager(struct sl_mp_conn *conn, struct sl_mp_channel *channel,
                      const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    uint32_t number = channel->tx_next;
    struct sl_mp_tx_frame *frame;

    if (conn->credits == 0)
        return -EAGAIN;
    frame = sl_mp_frame_new(conn, SL_MP_EAGER, channel->base.id, number);
    if (frame == NULL)
        return -EAGAIN;
    header_of(frame)->tag = tag;
    header_of(frame)->value = buf->len;
    if (buf->len != 0)
        memcpy(frame->bytes + SL_MP_FRAME_BYTES, buf->addr, buf->len);
    conn->credits--;
    channel->base.sent++;
    channel->tx_next++;
    if (channel->early_count != 0)
        forget_cts(channel, number);
    tx_advance(channel);
    sl_channel_moved(&conn->base, &channel->base, buf->len);
    sl_mp_frame_post(conn, frame, (uint32_t)buf->len);
    req->len = buf->len;
    req->status = 0;
    return 1;
}

/* A CTS that came before this message and is for it, or NULL. */
static const struct sl_mp_tx_cts *early_cts(const struct sl_mp_channel *channel, uint64_t tag,
                                            uint64_t len)
{
    for (const struct sl_node *node = channel->early.next; node != &channel->early;
         node = node->next) {
        const struct sl_mp_tx_cts *cts = sl_container_of(node, const struct sl_mp_tx_cts, link);

        if (cts->number == channel->tx_next)
            return sl_mp_cts_fits(cts, tag, len) ? cts : NULL;
    }
    return NULL;
}

int sl_mp_no_memory(struct sl_mp_conn *conn)
{
    return sl_mp_conn_fail(conn, sl_fail(-ENOMEM, "no memory for one more message"),
                           "no memory for one more message of %s", sl_ep_peer_name(&conn->base));
}

/* Room in the table for the next message. False: no memory. */
__attribute__((noinline)) static bool tx_room(struct sl_mp_channel *channel)
{
    while (channel->tx_next - channel->tx_oldest > channel->tx_mask)
        if (!sl_mp_tx_grow(channel))
            return false;
    return true;
}

static int send_long(struct sl_mp_conn *conn, struct sl_mp_channel *channel,
                     const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    uint32_t number = channel->tx_next;
    const struct sl_mp_tx_cts *early = early_cts(channel, tag, buf->len);
    struct sl_mp_tx_msg *msg;

    if (SL_UNLIKELY(number - channel->tx_oldest > channel->tx_mask) && !tx_room(channel))
        return sl_mp_no_memory(conn);
    msg = sl_mp_pool_take(&conn->iface->tx_msgs);
    if (SL_UNLIKELY(msg == NULL))
        return sl_mp_no_memory(conn);
    /* After a CTS for more than the message has, its receiver learns the length by an RTS beside
     * the bytes: nobody waits for it. */
    if (early == NULL || early->total != buf->len) {
        struct sl_mp_tx_frame *frame =
            conn->credits == 0 ? NULL : sl_mp_frame_new(conn, SL_MP_RTS, channel->base.id, number);

        if (frame == NULL) {
            sl_mp_pool_put(&conn->iface->tx_msgs, msg);
            return -EAGAIN;
        }
        if (early == NULL)
            forget_cts(channel, number);
        header_of(frame)->tag = tag;
        header_of(frame)->value = buf->len;
        conn->credits--;
        channel->base.sent++;
        sl_mp_frame_post(conn, frame, 0);
    }
    channel->tx[number & channel->tx_mask] = msg;
    *msg = (struct sl_mp_tx_msg){.addr = buf->addr,
                                 .len = buf->len,
                                 .due = buf->len,
                                 .tag = tag,
                                 .req = req,
                                 .number = number};
    msg->mr = sl_mp_region_find(conn->iface, buf->mr, buf->addr, buf->len);
    channel->tx_next++;
    if (channel->early_count != 0)
        sl_mp_tx_bind_cts(channel, msg);
    return 0;
}

/* A short message that the NIC is to write all the same: out of GPU memory, or into it. */
static bool is_written(const struct sl_mp_channel *channel, const struct sl_buf *buf,
                       const struct sl_mem_region *gpu, uint64_t tag)
{
    if (SL_LIKELY(gpu == NULL && channel->early_gpu_count == 0) || buf->len == 0)
        return false;
    const struct sl_mp_tx_cts *early = early_cts(channel, tag, buf->len);

    return gpu != NULL || (early != NULL && early->is_gpu);
}

/* The peer has closed the channel: what goes there is dropped. */
static int send_nowhere(const struct sl_buf *buf, struct sl_req *req)
{
    req->len = buf->len;
    req->status = 0;
    return 1;
}

int sl_mp_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_channel *channel =
        sl_mp_channel_of(sl_channels_find(&conn->channels, buf->channel));
    const struct sl_mem_region *gpu = sl_mp_gpu_region(conn->iface, buf->mr, buf->addr, buf->len);

    if (SL_UNLIKELY(conn->state != SL_MP_CONN_UP))
        return sl_mp_not_up(conn);
    if (SL_UNLIKELY(channel == NULL || !channel->base.open))
        return sl_channel_not_open(base, buf->channel);
    if (SL_UNLIKELY(channel->base.peer_closed))
        return send_nowhere(buf, req);
    if (channel->tx_next - channel->tx_oldest >= SL_MP_TX_QUEUE)
        return -EAGAIN;
    if (SL_UNLIKELY(gpu != NULL && sl_mp_gpu_check(gpu) != 0))
        return -EINVAL;
    req->status = SL_PENDING;
    return buf->len <= conn->eager_bytes && !is_written(channel, buf, gpu, tag)
               ? send_eager(conn, channel, buf, tag, req)
               : send_long(conn, channel, buf, tag, req);
}

void sl_mp_on_drop(struct sl_mp_channel *channel, uint32_t number)
{
    struct sl_mp_tx_msg *msg = sl_mp_tx_at(channel, number);

    if (msg == NULL || msg->number != number || channel->ends)
        return;
    /* A receiver that sent a CTS takes it; its bytes may be on their way out of the caller's
     * memory. */
    if (msg->covered != 0) {
        sl_mp_conn_fail(channel->conn, -EPROTO, "%s drops message %u, for which it granted memory",
                        sl_ep_peer_name(&channel->conn->base), number);
        return;
    }
    sl_req_end(sl_mp_tx_end(channel, msg), 0);
}

/* ---- the end of sends ---- */

bool sl_mp_tx_busy(const struct sl_mp_conn *conn)
{
    for (const struct sl_node *node = conn->all_channels.next; node != &conn->all_channels;
         node = node->next) {
        const struct sl_mp_channel *channel =
            sl_container_of(node, const struct sl_mp_channel, all);

        if (channel->tx_oldest != channel->tx_next)
            return true;
    }
    return false;
}

/* NULL: there is no such message, or it went in a frame. */
static struct sl_mp_tx_msg *exact(const struct sl_mp_channel *channel, uint32_t number)
{
    struct sl_mp_tx_msg *msg = sl_mp_tx_at(channel, number);

    return msg != NULL && msg->number == number ? msg : NULL;
}

void sl_mp_tx_strip(struct sl_mp_channel *channel, struct sl_node *reqs)
{
    struct sl_mp_conn *conn = channel->conn;

    sl_list_foreach(&conn->all_cts, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);

        if (cts->channel == channel)
            cts->msg = NULL;
    }
    for (uint32_t number = channel->tx_oldest; number != channel->tx_next; number++) {
        struct sl_mp_tx_msg *msg = exact(channel, number);

        if (msg == NULL)
            continue;
        msg->req->len = msg->len;
        sl_list_push_back(reqs, &msg->req->link);
        channel->tx[number & channel->tx_mask] = NULL;
        sl_mp_pool_put(&conn->iface->tx_msgs, msg);
    }
    channel->tx_oldest = channel->tx_next;
}

void sl_mp_tx_dropped(struct sl_mp_channel *channel)
{
    uint32_t number = channel->tx_oldest;

    while (number != channel->tx_next) {
        struct sl_mp_tx_msg *msg = exact(channel, number++);

        if (msg == NULL || msg->done != msg->due)
            continue;
        sl_req_end(sl_mp_tx_end(channel, msg), 0);
        number = channel->tx_oldest; /* it may have closed the channel */
    }
}
