/* SPDX-License-Identifier: Apache-2.0 */
/* Receives, the frames that arrive, and how the two meet in their order. */
#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"
#include "multipath/repair.h"

#include <stdlib.h>
#include <string.h>

/* ---- receiving ---- */

static bool is_posted(const struct sl_mp_channel *channel, uint32_t number)
{
    return number - channel->rx_oldest < channel->rx_next - channel->rx_oldest;
}

/* A message whose bytes were written by a CTS that left before the sender asked may be over
 * when the sender's RTS comes: that travels by another path. */
static bool is_over(const struct sl_mp_channel *channel, uint32_t number)
{
    return channel->rx_oldest - number - 1 < SL_MP_RX_QUEUE ||
           (is_posted(channel, number) && sl_mp_rx_at(channel, number)->over);
}

/* Room for one more message in the pool and in the table. False: no memory, and the connection
 * ends. */
__attribute__((noinline)) static bool rx_room(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;
    struct sl_mp_pool *pool = &conn->iface->rx_msgs;

    if ((pool->free != NULL || sl_mp_pool_grow(pool) != NULL) &&
        (channel->rx_known - channel->rx_oldest <= channel->rx_mask || sl_mp_rx_grow(channel)))
        return true;
    sl_mp_no_memory(conn);
    return false;
}

/* A place for the first message that has none; NULL: no memory. */
static inline struct sl_mp_rx_msg *rx_make(struct sl_mp_conn *conn, struct sl_mp_channel *channel)
{
    uint32_t number = channel->rx_known;
    struct sl_mp_rx_msg *msg;

    if (SL_UNLIKELY(conn->iface->rx_msgs.free == NULL ||
                    number - channel->rx_oldest > channel->rx_mask) &&
        !rx_room(channel))
        return NULL;
    msg = sl_mp_pool_take_ready(&conn->iface->rx_msgs);
    /* Not all of it as one: what is set before it is read stays as it is. */
    msg->link.next = NULL;
    msg->channel = channel;
    msg->number = number;
    msg->has_frame = msg->has_rts = msg->over = msg->came = msg->is_kept = false;
    msg->cts_count = 0;
    msg->status = 0;
    msg->req = NULL;
    msg->mr = NULL;
    msg->covered = msg->consumed = 0;
    channel->rx[number & channel->rx_mask] = msg;
    channel->rx_known++;
    return msg;
}

/* One is over. Receives that are, up to the first that is not, are none any more. */
static void rx_over(struct sl_mp_channel *channel, struct sl_mp_rx_msg *msg)
{
    msg->over = true;
    msg->req = NULL;
    if (msg->number != channel->rx_oldest)
        return;
    do {
        sl_mp_pool_put(&channel->conn->iface->rx_msgs, msg);
        if (++channel->rx_oldest == channel->rx_next)
            return;
        msg = sl_mp_rx_at(channel, channel->rx_oldest);
    } while (msg->over);
}

static void unlink_msg(struct sl_mp_rx_msg *msg)
{
    if (SL_UNLIKELY(msg->link.next != NULL))
        sl_list_remove(&msg->link);
}

void sl_mp_rx_end(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status)
{
    struct sl_req *req = msg->req;

    if (msg->cts_count != 0 && !sl_mp_cts_take_back(conn, msg, status))
        return;
    unlink_msg(msg);
    req->len = msg->len;
    req->tag = msg->tag;
    rx_over(msg->channel, msg);
    sl_req_end(req, status);
}

void sl_mp_rx_end_later(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg, int status)
{
    msg->status = status;
    sl_list_push_back(&conn->late, &msg->link);
    sl_mp_conn_activate(conn);
}

static int mismatch(const struct sl_mp_conn *conn, const struct sl_mp_rx_msg *msg)
{
    const struct sl_sink *sink = msg->sink;

    if (msg->tag != sink->tag)
        return sl_fail(-EPROTO, "message %u of %s has tag 0x%llx, expected 0x%llx", msg->number,
                       sl_ep_peer_name(&conn->base), (unsigned long long)msg->tag,
                       (unsigned long long)sink->tag);
    return sl_fail(-EMSGSIZE, "message %u of %s has %llu bytes, expected %zu", msg->number,
                   sl_ep_peer_name(&conn->base), (unsigned long long)msg->len, sink->len);
}

/* Does the message as its sender gave it fit the receive? */
static inline int match(const struct sl_mp_conn *conn, const struct sl_mp_rx_msg *msg)
{
    return SL_LIKELY(msg->tag == msg->sink->tag && sl_sink_takes(msg->sink, msg->len))
               ? 0
               : mismatch(conn, msg);
}

static void hand_over(struct sl_mp_conn *conn, const struct sl_mp_rx_msg *msg, const uint8_t *bytes,
                      uint64_t len)
{
    const struct sl_sink *sink = msg->sink;

    if (len == 0)
        return;
    sl_channel_moved(&conn->base, &msg->channel->base, len);
    if (sink->consume != NULL)
        sink->consume(sink, bytes, 0, len);
    else
        memcpy(sink->dst, bytes, len);
}

/* A frame's bytes go into GPU memory by other means than ours; the frame waits while these are
 * busy. */
static bool needs_copy(const struct sl_mp_rx_msg *msg)
{
    return SL_UNLIKELY(msg->mr != NULL && msg->mr->is_gpu) && msg->len != 0;
}

/* The frame of a message that came before its receive. Its end, when it is one for done(). */
static int take_waiting(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    int err = match(conn, msg);

    if (err == 0 && needs_copy(msg)) {
        sl_mp_rx_copy(conn, msg);
        return 0;
    }
    if (err == 0)
        hand_over(conn, msg, msg->bytes, msg->len);
    sl_mp_rx_release(conn, msg);
    if (err != 0) {
        sl_mp_rx_end_later(conn, msg, err);
        return 0;
    }
    msg->req->len = msg->len;
    msg->req->tag = msg->tag;
    msg->req->status = 0;
    rx_over(msg->channel, msg);
    return 1;
}

static void drop(struct sl_mp_conn *conn, const struct sl_mp_rx_msg *msg)
{
    struct sl_mp_drops *drops = &conn->drops;

    /* Seldom more than none: room comes with the first. */
    if (drops->count == drops->room) {
        unsigned room = drops->room == 0 ? 16 : 2 * drops->room;
        struct sl_mp_drop *at = reallocarray(drops->at, room, sizeof(*at));

        if (at == NULL) {
            sl_mp_no_memory(conn);
            return;
        }
        drops->at = at;
        drops->room = room;
    }
    drops->at[drops->count++] = (struct sl_mp_drop){msg->channel, msg->number};
    sl_mp_conn_activate(conn);
}

/* ---- posting ---- */

/* What a lost peer had sent in frames before it left is still good. */
__attribute__((noinline)) static int recv_left(struct sl_mp_conn *conn,
                                               struct sl_mp_channel *channel,
                                               const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_mp_rx_msg *msg;
    int err;

    if (!conn->left || channel == NULL || !channel->base.open ||
        channel->rx_next == channel->rx_known ||
        sl_mp_gpu_region(conn->iface, sink->mr, sink->dst, sink->len) != NULL)
        return sl_mp_not_up(conn);
    msg = sl_mp_rx_at(channel, channel->rx_next);
    if (!msg->has_frame)
        return sl_mp_not_up(conn);
    msg->sink = sink;
    err = match(conn, msg);
    if (err != 0)
        return err;
    channel->rx_next++;
    msg->req = req;
    return take_waiting(conn, msg);
}

int sl_mp_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_channel *channel =
        sl_mp_channel_of(sl_channels_find(&conn->channels, sink->channel));
    struct sl_mp_rx_msg *msg;

    if (SL_UNLIKELY(conn->state != SL_MP_CONN_UP))
        return recv_left(conn, channel, sink, req);
    if (SL_UNLIKELY(channel == NULL || !channel->base.open))
        return sl_channel_not_open(base, sink->channel);
    if (channel->rx_next - channel->rx_oldest >= SL_MP_TX_QUEUE)
        return -EAGAIN;
    const struct sl_mem_region *gpu = sl_mp_gpu_region(conn->iface, sink->mr, sink->dst, sink->len);

    if (SL_UNLIKELY(gpu != NULL && sl_mp_gpu_check(gpu) != 0))
        return -EINVAL;
    if (SL_UNLIKELY(gpu != NULL && sink->consume != NULL))
        return sl_fail(-EINVAL, "nothing here can read the GPU memory at %p to hand it over",
                       sink->dst);
    msg = channel->rx_next == channel->rx_known ? rx_make(conn, channel)
                                                : sl_mp_rx_at(channel, channel->rx_next);
    if (SL_UNLIKELY(msg == NULL))
        return conn->down_status;
    channel->rx_next++;
    req->status = SL_PENDING;
    msg->sink = sink;
    msg->req = req;
    if (SL_UNLIKELY(gpu != NULL && sink->len != 0))
        msg->mr = gpu->handle;
    if (msg->has_frame)
        return take_waiting(conn, msg);
    if (SL_UNLIKELY(conn->held > SL_MP_HELD_MAX))
        sl_mp_keep_held(conn);
    if (sink->len > conn->eager_bytes && sink->dst != NULL && gpu == NULL)
        msg->mr = sl_mp_region_find(conn->iface, sink->mr, sink->dst, sink->len);
    if (msg->has_rts) {
        int err = match(conn, msg);

        channel->rts_waiting--;
        if (err != 0) {
            drop(conn, msg);
            sl_mp_rx_end_later(conn, msg, err);
            return 0;
        }
    }
    if (msg->has_rts || msg->mr != NULL ||
        (conn->iface->everywhere != NULL && sl_mp_cts_stages_early(conn, sink)))
        sl_mp_cts_more(conn, msg);
    return 0;
}

void sl_mp_rx_strip(struct sl_mp_channel *channel, struct sl_node *reqs)
{
    struct sl_mp_conn *conn = channel->conn;
    bool stays = conn->left && !channel->base.closed;
    uint32_t end = stays ? channel->rx_next : channel->rx_known;

    if (SL_UNLIKELY(stays))
        sl_mp_keep_left(channel);
    for (; channel->rx_oldest != end; channel->rx_oldest++) {
        struct sl_mp_rx_msg *msg = sl_mp_rx_at(channel, channel->rx_oldest);

        unlink_msg(msg);
        /* Frames that came for receives that never will be: their buffers go back. */
        if (msg->has_frame)
            sl_mp_rx_release(conn, msg);
        if (msg->req != NULL)
            sl_list_push_back(reqs, &msg->req->link);
        sl_mp_pool_put(&conn->iface->rx_msgs, msg);
    }
    channel->rx_next = end;
    channel->rts_waiting = 0;
}

/* ---- frames that arrive ---- */

static void on_eager(struct sl_mp_path *path, struct sl_mp_channel *channel,
                     const struct sl_mp_frame *frame, const uint8_t *payload, uint32_t buffer)
{
    struct sl_mp_conn *conn = path->conn;
    bool posted = is_posted(channel, frame->number);
    struct sl_mp_rx_msg *msg =
        posted ? sl_mp_rx_at(channel, frame->number) : rx_make(conn, channel);
    int err;

    if (SL_UNLIKELY(msg == NULL)) {
        sl_mp_release(conn->iface, path->rail, buffer);
        return;
    }
    msg->came = true;
    msg->tag = frame->tag;
    msg->len = frame->value;
    if (!posted) {
        sl_mp_hold(path, msg, payload, buffer);
        return;
    }
    err = match(conn, msg);
    if (err == 0 && needs_copy(msg)) {
        sl_mp_hold(path, msg, payload, buffer);
        if (msg->has_frame)
            sl_mp_rx_copy(conn, msg);
        return;
    }
    if (err == 0)
        hand_over(conn, msg, payload, frame->value);
    sl_mp_release(conn->iface, path->rail, buffer);
    sl_mp_owe_credit(conn);
    sl_mp_rx_end(conn, msg, err);
}

static void on_rts(struct sl_mp_channel *channel, const struct sl_mp_frame *frame)
{
    struct sl_mp_conn *conn = channel->conn;
    bool posted = is_posted(channel, frame->number);
    struct sl_mp_rx_msg *msg;
    int err;

    sl_mp_owe_credit(conn);
    if (is_over(channel, frame->number))
        return;
    msg = posted ? sl_mp_rx_at(channel, frame->number) : rx_make(conn, channel);
    if (SL_UNLIKELY(msg == NULL))
        return;
    msg->has_rts = true;
    msg->tag = frame->tag;
    msg->len = frame->value;
    channel->rts_waiting += !posted;
    if (!posted)
        return;
    err = match(conn, msg);
    if (err == 0) {
        if (msg->covered > msg->len)
            sl_mp_cts_trim(conn, msg);
        else
            sl_mp_cts_more(conn, msg);
        return;
    }
    drop(conn, msg);
    sl_mp_rx_end(conn, msg, err);
}

/* Of a channel that is closed here: it is dropped. */
static void on_closed(struct sl_mp_path *path, struct sl_mp_channel *channel,
                      const struct sl_mp_frame *frame, uint32_t buffer)
{
    sl_mp_release(path->conn->iface, path->rail, buffer);
    if (frame->kind == SL_MP_EAGER || frame->kind == SL_MP_RTS)
        sl_mp_owe_credit(path->conn);
    if (channel->base.peer_closed)
        sl_mp_channel_tell(channel);
}

/* What the peer may say at this point; anything else is a defect of it, or of us. */
static int check_order(const struct sl_mp_conn *conn, const struct sl_mp_frame *frame)
{
    if (frame->fseq != conn->fseq_in)
        return sl_fail(-EPROTO, "frame %u of %s came when %u was due", frame->fseq,
                       sl_ep_peer_name(&conn->base), conn->fseq_in);
    if (conn->credits + frame->credits > SL_MP_CREDITS)
        return sl_fail(-EPROTO, "%s gives back %u credits of %u", sl_ep_peer_name(&conn->base),
                       frame->credits, SL_MP_CREDITS - conn->credits);
    return 0;
}

/* May a message of that number come now, in a frame or by an RTS? Those without a receive come in
 * their order, and no more of them than a sender can have under way. */
static bool may_come(const struct sl_mp_channel *channel, const struct sl_mp_frame *frame)
{
    if (is_posted(channel, frame->number)) {
        const struct sl_mp_rx_msg *msg = sl_mp_rx_at(channel, frame->number);

        return msg->over ? frame->kind == SL_MP_RTS : !msg->came && !msg->has_rts;
    }
    if (frame->number != channel->rx_known)
        return frame->kind == SL_MP_RTS && is_over(channel, frame->number);
    return frame->kind == SL_MP_EAGER || channel->rts_waiting < SL_MP_TX_QUEUE;
}

static int check_message(const struct sl_mp_channel *channel, const struct sl_mp_frame *frame)
{
    const struct sl_ep *base = &channel->conn->base;

    if (SL_UNLIKELY(channel->base.peer_closed && channel->base.came >= channel->base.peer_sent))
        return sl_fail(-EPROTO, "%s speaks of channel %u, which it has closed",
                       sl_ep_peer_name(base), channel->base.id);
    if ((frame->kind == SL_MP_EAGER || frame->kind == SL_MP_RTS) && !channel->base.closed &&
        !may_come(channel, frame))
        return sl_fail(-EPROTO, "message %u of %s comes twice, or not in its turn after %u",
                       frame->number, sl_ep_peer_name(base), channel->rx_oldest);
    return 0;
}

/* The channel of the frame, or NULL: it has none, or *err says what is wrong. */
static struct sl_mp_channel *channel_of(struct sl_mp_conn *conn, const struct sl_mp_frame *frame,
                                        int *err)
{
    struct sl_mp_channel *channel;

    if (frame->kind == SL_MP_CREDIT)
        return NULL;
    channel = sl_mp_channel_of(sl_channels_find(&conn->channels, frame->channel));
    if (SL_UNLIKELY(channel == NULL))
        channel = sl_mp_channel_named(conn, frame->channel, err);
    if (channel != NULL)
        *err = check_message(channel, frame);
    return channel;
}

void sl_mp_on_frame(struct sl_mp_path *path, const uint8_t *bytes, uint32_t buffer, uint32_t got)
{
    struct sl_mp_conn *conn = path->conn;
    struct sl_mp_channel *channel = NULL;
    struct sl_mp_cts cts;
    struct sl_mp_frame frame;
    int err = sl_mp_frame_read(bytes, got, &frame);

    if (err == 0 && frame.kind == SL_MP_PING) {
        sl_mp_release(conn->iface, path->rail, buffer);
        sl_mp_path_on_ping(path, (frame.flags & SL_MP_FLAG_PROVEN) != 0);
        return;
    }
    if (err == 0 && frame.kind == SL_MP_CONTROL) {
        sl_mp_control_take(conn, bytes + SL_MP_FRAME_BYTES, (size_t)frame.value);
        sl_mp_release(conn->iface, path->rail, buffer);
        return;
    }
    if (err == 0)
        err = check_order(conn, &frame);
    if (err == 0)
        channel = channel_of(conn, &frame, &err);
    if (err == 0 && frame.kind == SL_MP_CTS)
        err = sl_mp_cts_read(bytes + SL_MP_FRAME_BYTES, got - SL_MP_FRAME_BYTES, &cts);
    if (SL_UNLIKELY(err != 0 || conn->state == SL_MP_CONN_DOWN)) {
        sl_mp_release(conn->iface, path->rail, buffer);
        if (err != 0)
            sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
        return;
    }
    conn->fseq_in++;
    conn->credits += frame.credits;
    if (channel == NULL) { /* CREDIT */
        sl_mp_release(conn->iface, path->rail, buffer);
        return;
    }
    channel->base.came++;
    if (SL_UNLIKELY(channel->base.closed)) {
        on_closed(path, channel, &frame, buffer);
        return;
    }
    if (frame.kind == SL_MP_EAGER) {
        on_eager(path, channel, &frame, bytes + SL_MP_FRAME_BYTES, buffer);
        return;
    }
    sl_mp_release(conn->iface, path->rail, buffer);
    if (frame.kind == SL_MP_RTS)
        on_rts(channel, &frame);
    else if (frame.kind == SL_MP_CTS)
        sl_mp_on_cts(channel, &frame, &cts);
    else
        sl_mp_on_drop(channel, frame.number);
}
