/* SPDX-License-Identifier: Apache-2.0 */
/* Receives, the frames that arrive, and how the two meet in their order. */
#include "multipath/conn.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"
#include "multipath/repair.h"

#include <stdlib.h>
#include <string.h>

static void owe_credit(struct sl_mp_conn *conn)
{
    if (++conn->credits_owed >= SL_MP_CREDITS_DUE)
        sl_mp_conn_activate(conn);
}

/* ---- receiving ---- */

static bool is_posted(const struct sl_mp_conn *conn, uint32_t number)
{
    return number - conn->rx_oldest < conn->rx_next - conn->rx_oldest;
}

/* Memory of its CTS is no longer the peer's. It has not written: the tags or lengths differ,
 * or the message came in a frame. */
static void take_grants_back(struct sl_mp_conn *conn, uint32_t number)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (conn->rx_cts[i].used && conn->rx_cts[i].number == number) {
            conn->unannounced -= !conn->rx_cts[i].announced;
            conn->rx_cts[i].used = false;
        }
}

/* A message whose bytes were written by a CTS that left before the sender asked may be over
 * when the sender's RTS comes: that travels by another path. */
static bool is_over(struct sl_mp_conn *conn, uint32_t number)
{
    return conn->rx_oldest - number - 1 < SL_MP_RX_QUEUE ||
           (is_posted(conn, number) && sl_mp_rx_at(conn, number)->over);
}

/* Its place for number, made when there is none; NULL: no memory, and the connection ends. */
static struct sl_mp_rx_msg *rx_make(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

    if (msg != NULL)
        return msg;
    msg = sl_mp_pool_take(&conn->iface->rx_msgs);
    if (SL_UNLIKELY(msg == NULL)) {
        sl_mp_no_memory(conn);
        return NULL;
    }
    *msg = (struct sl_mp_rx_msg){0};
    conn->rx[number % SL_MP_RX_QUEUE] = msg;
    return msg;
}

/* Receives that are over, up to the first that is not, are none any more. */
static void rx_advance(struct sl_mp_conn *conn)
{
    while (conn->rx_oldest != conn->rx_next && sl_mp_rx_at(conn, conn->rx_oldest)->over) {
        struct sl_mp_rx_msg **place = &conn->rx[conn->rx_oldest++ % SL_MP_RX_QUEUE];

        sl_mp_pool_put(&conn->iface->rx_msgs, *place);
        *place = NULL;
    }
}

void sl_mp_rx_end(struct sl_mp_conn *conn, uint32_t number, int status)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    struct sl_req *req = msg->req;
    uint64_t len = msg->len, tag = msg->tag;

    if (msg->cts_count != 0)
        take_grants_back(conn, number);
    msg->over = true;
    msg->req = NULL;
    rx_advance(conn);
    req->len = len;
    req->tag = tag;
    sl_req_end(req, status);
}

/* Seldom more than none: room comes with the first. */
static void number_add(struct sl_mp_conn *conn, struct sl_mp_numbers *numbers, uint32_t number)
{
    if (numbers->count == numbers->room) {
        unsigned room = numbers->room == 0 ? 16 : 2 * numbers->room;
        uint32_t *at = reallocarray(numbers->at, room, sizeof(*at));

        if (at == NULL) {
            sl_mp_no_memory(conn);
            return;
        }
        numbers->at = at;
        numbers->room = room;
    }
    numbers->at[numbers->count++] = number;
    sl_mp_conn_activate(conn);
}

static void end_later(struct sl_mp_conn *conn, uint32_t number, int status)
{
    sl_mp_rx_at(conn, number)->status = status;
    number_add(conn, &conn->late, number);
}

static int match(const struct sl_mp_conn *conn, uint32_t number, const struct sl_sink *sink,
                 uint64_t tag, uint64_t len)
{
    if (tag != sink->tag)
        return sl_fail(-EPROTO, "message %u of %s has tag 0x%llx, expected 0x%llx", number,
                       sl_ep_peer_name(&conn->base), (unsigned long long)tag,
                       (unsigned long long)sink->tag);
    if (!sl_sink_takes(sink, len))
        return sl_fail(-EMSGSIZE, "message %u of %s has %llu bytes, expected %zu", number,
                       sl_ep_peer_name(&conn->base), (unsigned long long)len, sink->len);
    return 0;
}

static void hand_over(struct sl_mp_conn *conn, const struct sl_sink *sink, const uint8_t *bytes,
                      uint64_t len)
{
    if (len == 0)
        return;
    conn->iface->base.traffic += len;
    if (sink->consume != NULL)
        sink->consume(sink, bytes, 0, len);
    else
        memcpy(sink->dst, bytes, len);
}

void sl_mp_release(const struct sl_mp_iface *iface, struct sl_mp_rail *rail, uint32_t buffer)
{
    if (SL_LIKELY(rail != NULL))
        iface->lanes->release(rail, buffer);
}

/* The bytes of a frame that waited are not needed any more. */
void sl_mp_rx_release(struct sl_mp_conn *conn, struct sl_mp_rx_msg *msg)
{
    if (msg->rail == NULL)
        conn->copies_used &=
            ~(1u << ((size_t)(msg->bytes - conn->copies) / conn->iface->slot_bytes));
    sl_mp_release(conn->iface, msg->rail, msg->buffer);
    msg->rail = NULL;
    msg->bytes = NULL;
    msg->has_frame = false;
    conn->held--;
}

/* A frame's bytes go into GPU memory by other means than ours; the frame waits while these are
 * busy. */
static bool needs_copy(const struct sl_mp_rx_msg *msg)
{
    return SL_UNLIKELY(msg->mr != NULL && msg->mr->is_gpu) && msg->len != 0;
}

bool sl_mp_rx_copy(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    int err = sl_mp_gpu_copy(conn, number, msg->bytes, msg->len);

    if (err == -EAGAIN) {
        conn->gpu_waits++;
        sl_mp_conn_activate(conn);
        return false;
    }
    conn->iface->base.traffic += msg->len;
    sl_mp_rx_release(conn, msg);
    owe_credit(conn);
    if (err != 0)
        end_later(conn, number, err);
    return true;
}

/* The frame of a message that came before its receive. Its end, when it is one for done(). */
static int take_waiting(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    int err = match(conn, number, msg->sink, msg->tag, msg->len);

    if (err == 0 && needs_copy(msg)) {
        sl_mp_rx_copy(conn, number);
        return 0;
    }
    if (err == 0)
        hand_over(conn, msg->sink, msg->bytes, msg->len);
    sl_mp_rx_release(conn, msg);
    owe_credit(conn);
    if (err != 0) {
        end_later(conn, number, err);
        return 0;
    }
    msg->req->len = msg->len;
    msg->req->tag = msg->tag;
    msg->req->status = 0;
    msg->over = true;
    msg->req = NULL;
    rx_advance(conn);
    return 1;
}

static void drop(struct sl_mp_conn *conn, uint32_t number)
{
    number_add(conn, &conn->drops, number);
}

int sl_mp_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    uint32_t number = conn->rx_next;
    struct sl_mp_rx_msg *msg;

    if (SL_UNLIKELY(conn->state != SL_MP_CONN_UP))
        return sl_mp_not_up(conn);
    if (number - conn->rx_oldest >= SL_MP_TX_QUEUE)
        return -EAGAIN;
    const struct sl_mem_region *gpu = sl_mp_gpu_region(conn->iface, sink->mr, sink->dst, sink->len);

    if (SL_UNLIKELY(gpu != NULL && sl_mp_gpu_check(gpu) != 0))
        return -EINVAL;
    if (SL_UNLIKELY(gpu != NULL && sink->consume != NULL))
        return sl_fail(-EINVAL, "nothing here can read the GPU memory at %p to hand it over",
                       sink->dst);
    msg = rx_make(conn, number);
    if (SL_UNLIKELY(msg == NULL))
        return conn->down_status;
    conn->rx_next++;
    req->status = SL_PENDING;
    msg->sink = sink;
    msg->req = req;
    if (SL_UNLIKELY(gpu != NULL && sink->len != 0))
        msg->mr = gpu->handle;
    if (msg->has_frame)
        return take_waiting(conn, number);
    if (sink->len > conn->eager_bytes && sink->dst != NULL && gpu == NULL)
        msg->mr = sl_mp_region_find(conn->iface, sink->mr, sink->dst, sink->len);
    if (msg->has_rts) {
        int err = match(conn, number, sink, msg->tag, msg->len);

        if (err != 0) {
            drop(conn, number);
            end_later(conn, number, err);
            return 0;
        }
    }
    if (msg->has_rts || msg->mr != NULL)
        sl_mp_cts_more(conn, number);
    return 0;
}

/* ---- frames that arrive ---- */

/* A place for the bytes of a frame. NULL: all credits of the peer are used up, and it sent one
 * more. */
static uint8_t *copy_take(struct sl_mp_conn *conn)
{
    unsigned i = (unsigned)__builtin_ctz(~conn->copies_used | 1u << 31);

    if (i >= SL_MP_CREDITS)
        return NULL;
    conn->copies_used |= 1u << i;
    return conn->copies + (size_t)i * conn->iface->slot_bytes;
}

/* Keeps a frame until its receive is posted: in its buffer, which its sender has a credit less for.
 * But not the last ones, which many connections share: the frame that all others wait for may need
 * one. */
static void hold(struct sl_mp_path *path, struct sl_mp_rx_msg *msg, const uint8_t *payload,
                 uint32_t buffer)
{
    struct sl_mp_conn *conn = path->conn;

    msg->rail = path->rail;
    msg->buffer = buffer;
    msg->bytes = payload;
    if (path->lanes->is_short(path)) {
        uint8_t *copy = copy_take(conn);

        msg->rail = NULL;
        if (copy == NULL) {
            sl_mp_conn_fail(conn, -EPROTO,
                            "%s sends more than the %d frames that there is room for",
                            sl_ep_peer_name(&conn->base), SL_MP_CREDITS);
            sl_mp_release(conn->iface, path->rail, buffer);
            return;
        }
        memcpy(copy, payload, msg->len);
        msg->bytes = copy;
        sl_mp_release(conn->iface, path->rail, buffer);
    }
    msg->has_frame = true;
    conn->held++;
}

static void on_eager(struct sl_mp_path *path, const struct sl_mp_frame *frame,
                     const uint8_t *payload, uint32_t buffer)
{
    struct sl_mp_conn *conn = path->conn;
    struct sl_mp_rx_msg *msg = rx_make(conn, frame->number);
    int err;

    if (SL_UNLIKELY(msg == NULL)) {
        sl_mp_release(conn->iface, path->rail, buffer);
        return;
    }
    msg->came = true;
    msg->tag = frame->tag;
    msg->len = frame->len;
    if (!is_posted(conn, frame->number)) {
        hold(path, msg, payload, buffer);
        return;
    }
    err = match(conn, frame->number, msg->sink, frame->tag, frame->len);
    if (err == 0 && needs_copy(msg)) {
        hold(path, msg, payload, buffer);
        if (msg->has_frame)
            sl_mp_rx_copy(conn, frame->number);
        return;
    }
    if (err == 0)
        hand_over(conn, msg->sink, payload, frame->len);
    sl_mp_release(conn->iface, path->rail, buffer);
    owe_credit(conn);
    sl_mp_rx_end(conn, frame->number, err);
}

static void on_rts(struct sl_mp_conn *conn, const struct sl_mp_frame *frame)
{
    struct sl_mp_rx_msg *msg;
    int err;

    owe_credit(conn);
    if (is_over(conn, frame->number))
        return;
    msg = rx_make(conn, frame->number);
    if (SL_UNLIKELY(msg == NULL))
        return;
    msg->has_rts = true;
    msg->tag = frame->tag;
    msg->len = frame->value;
    if (!is_posted(conn, frame->number))
        return;
    err = match(conn, frame->number, msg->sink, frame->tag, frame->value);
    if (err == 0) {
        if (msg->covered > msg->len)
            sl_mp_cts_trim(conn, frame->number);
        else
            sl_mp_cts_more(conn, frame->number);
        return;
    }
    drop(conn, frame->number);
    sl_mp_rx_end(conn, frame->number, err);
}

/* Is there a message of that number that may come now, in a frame or by an RTS? */
static bool may_come(struct sl_mp_conn *conn, uint32_t number)
{
    const struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

    return number - conn->rx_oldest < SL_MP_RX_QUEUE && !is_over(conn, number) &&
           (msg == NULL || (!msg->came && !msg->has_rts));
}

/* What the peer may say at this point; anything else is a defect of it, or of us. */
static int check_order(struct sl_mp_conn *conn, const struct sl_mp_frame *frame)
{
    if (frame->fseq != conn->fseq_in)
        return sl_fail(-EPROTO, "frame %u of %s came when %u was due", frame->fseq,
                       sl_ep_peer_name(&conn->base), conn->fseq_in);
    if (conn->credits + frame->credits > SL_MP_CREDITS)
        return sl_fail(-EPROTO, "%s gives back %u credits of %u", sl_ep_peer_name(&conn->base),
                       frame->credits, SL_MP_CREDITS - conn->credits);
    if (frame->kind == SL_MP_RTS && is_over(conn, frame->number))
        return 0;
    if ((frame->kind == SL_MP_EAGER || frame->kind == SL_MP_RTS) && !may_come(conn, frame->number))
        return sl_fail(-EPROTO, "message %u of %s comes twice, or too far ahead of %u",
                       frame->number, sl_ep_peer_name(&conn->base), conn->rx_oldest);
    return 0;
}

void sl_mp_on_frame(struct sl_mp_path *path, const uint8_t *bytes, uint32_t buffer, uint32_t got)
{
    struct sl_mp_conn *conn = path->conn;
    struct sl_mp_cts cts;
    struct sl_mp_frame frame;
    int err = sl_mp_frame_read(bytes, got, &frame);

    if (err == 0 && frame.kind == SL_MP_PING) {
        sl_mp_release(conn->iface, path->rail, buffer);
        sl_mp_path_pinged(path);
        return;
    }
    if (err == 0 && frame.kind == SL_MP_CONTROL) {
        sl_mp_control_take(conn, bytes + SL_MP_FRAME_BYTES, frame.len);
        sl_mp_release(conn->iface, path->rail, buffer);
        return;
    }
    if (err == 0)
        err = check_order(conn, &frame);
    if (err == 0 && frame.kind == SL_MP_CTS)
        err = sl_mp_cts_read(&frame, bytes + SL_MP_FRAME_BYTES, &cts);
    if (SL_UNLIKELY(err != 0 || conn->state == SL_MP_CONN_DOWN)) {
        sl_mp_release(conn->iface, path->rail, buffer);
        if (err != 0)
            sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
        return;
    }
    conn->fseq_in++;
    conn->credits += frame.credits;
    if (frame.kind == SL_MP_EAGER) {
        on_eager(path, &frame, bytes + SL_MP_FRAME_BYTES, buffer);
        return;
    }
    sl_mp_release(conn->iface, path->rail, buffer);
    switch ((enum sl_mp_frame_kind)frame.kind) {
    case SL_MP_RTS: on_rts(conn, &frame); break;
    case SL_MP_CTS: sl_mp_on_cts(conn, &frame, &cts); break;
    case SL_MP_DROP: sl_mp_on_drop(conn, frame.number); break;
    case SL_MP_CREDIT:
    case SL_MP_EAGER:
    case SL_MP_PING:
    case SL_MP_CONTROL: break;
    }
}
