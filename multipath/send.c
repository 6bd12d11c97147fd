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

struct sl_mp_tx_frame *sl_mp_frame_new(struct sl_mp_conn *conn, uint8_t kind, uint32_t number)
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
                                             .number = number};
    conn->credits_owed = 0;
    return frame;
}

void sl_mp_frame_post(struct sl_mp_conn *conn, struct sl_mp_tx_frame *frame)
{
    frame->len = SL_MP_FRAME_BYTES + header_of(frame)->len;
    sl_mp_path_post_frame(conn->frame_path, frame);
}

/* ---- sending ---- */

static void tx_advance(struct sl_mp_conn *conn)
{
    while (conn->tx_oldest != conn->tx_next && sl_mp_tx_at(conn, conn->tx_oldest) == NULL)
        conn->tx_oldest++;
}

/* A long message is over: its place is free, and its request the caller's to end. */
struct sl_req *sl_mp_tx_end(struct sl_mp_conn *conn, struct sl_mp_tx_msg *msg)
{
    struct sl_req *req = msg->req;

    conn->tx[msg->number % SL_MP_TX_QUEUE] = NULL;
    req->len = msg->len;
    sl_mp_pool_put(&conn->iface->tx_msgs, msg);
    tx_advance(conn);
    return req;
}

/* Grants for a message that turns out not to be what the receiver expected: it will hear so and
 * take them back. */
static void forget_cts(struct sl_mp_conn *conn, uint32_t number)
{
    sl_list_foreach(&conn->early, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, link);

        if (cts->number == number) {
            sl_mp_early_take(conn, cts);
            sl_mp_tx_cts_free(conn, cts);
        }
    }
}

static int send_eager(struct sl_mp_conn *conn, const struct sl_buf *buf, uint64_t tag,
                      struct sl_req *req)
{
    uint32_t number = conn->tx_next;
    struct sl_mp_tx_frame *frame;

    if (conn->credits == 0)
        return -EAGAIN;
    frame = sl_mp_frame_new(conn, SL_MP_EAGER, number);
    if (frame == NULL)
        return -EAGAIN;
    header_of(frame)->tag = tag;
    header_of(frame)->len = (uint32_t)buf->len;
    if (buf->len != 0)
        memcpy(frame->bytes + SL_MP_FRAME_BYTES, buf->addr, buf->len);
    conn->credits--;
    conn->tx_next++;
    if (conn->early_count != 0)
        forget_cts(conn, number);
    tx_advance(conn);
    conn->iface->base.traffic += buf->len;
    sl_mp_frame_post(conn, frame);
    req->len = buf->len;
    req->status = 0;
    return 1;
}

/* A CTS that came before this message and is for it, or NULL. */
static const struct sl_mp_tx_cts *early_cts(const struct sl_mp_conn *conn, uint32_t number,
                                            uint64_t tag, uint64_t len)
{
    for (const struct sl_node *node = conn->early.next; node != &conn->early; node = node->next) {
        const struct sl_mp_tx_cts *cts = sl_container_of(node, const struct sl_mp_tx_cts, link);

        if (cts->number == number)
            return sl_mp_cts_fits(cts, tag, len) ? cts : NULL;
    }
    return NULL;
}

int sl_mp_no_memory(struct sl_mp_conn *conn)
{
    return sl_mp_conn_fail(conn, sl_fail(-ENOMEM, "no memory for one more message"),
                           "no memory for one more message of %s", sl_ep_peer_name(&conn->base));
}

static int send_long(struct sl_mp_conn *conn, const struct sl_buf *buf, uint64_t tag,
                     struct sl_req *req)
{
    uint32_t number = conn->tx_next;
    struct sl_mp_tx_msg *msg;
    const struct sl_mp_tx_cts *early = early_cts(conn, number, tag, buf->len);

    msg = sl_mp_pool_take(&conn->iface->tx_msgs);
    if (SL_UNLIKELY(msg == NULL))
        return sl_mp_no_memory(conn);
    /* After a CTS for more than the message has, its receiver learns the length by an RTS beside
     * the bytes: nobody waits for it. */
    if (early == NULL || early->total != buf->len) {
        struct sl_mp_tx_frame *frame =
            conn->credits == 0 ? NULL : sl_mp_frame_new(conn, SL_MP_RTS, number);

        if (frame == NULL) {
            sl_mp_pool_put(&conn->iface->tx_msgs, msg);
            return -EAGAIN;
        }
        if (early == NULL)
            forget_cts(conn, number);
        header_of(frame)->tag = tag;
        header_of(frame)->value = buf->len;
        conn->credits--;
        sl_mp_frame_post(conn, frame);
    }
    conn->tx[number % SL_MP_TX_QUEUE] = msg;
    *msg = (struct sl_mp_tx_msg){
        .addr = buf->addr, .len = buf->len, .tag = tag, .req = req, .number = number};
    msg->mr = sl_mp_region_find(conn->iface, buf->mr, buf->addr, buf->len);
    conn->tx_next++;
    if (conn->early_count != 0)
        sl_mp_tx_bind_cts(conn, msg);
    return 0;
}

/* A short message that the NIC is to write all the same: out of GPU memory, or into it. */
static bool is_written(struct sl_mp_conn *conn, const struct sl_buf *buf,
                       const struct sl_mem_region *gpu, uint64_t tag)
{
    if (SL_LIKELY(gpu == NULL && conn->early_gpu_count == 0) || buf->len == 0)
        return false;
    const struct sl_mp_tx_cts *early = early_cts(conn, conn->tx_next, tag, buf->len);

    return gpu != NULL || (early != NULL && early->is_gpu);
}

int sl_mp_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    const struct sl_mem_region *gpu = sl_mp_gpu_region(conn->iface, buf->mr, buf->addr, buf->len);

    if (SL_UNLIKELY(conn->state != SL_MP_CONN_UP))
        return sl_mp_not_up(conn);
    if (conn->tx_next - conn->tx_oldest >= SL_MP_TX_QUEUE)
        return -EAGAIN;
    if (SL_UNLIKELY(gpu != NULL && sl_mp_gpu_check(gpu) != 0))
        return -EINVAL;
    req->status = SL_PENDING;
    return buf->len <= conn->eager_bytes && !is_written(conn, buf, gpu, tag)
               ? send_eager(conn, buf, tag, req)
               : send_long(conn, buf, tag, req);
}

void sl_mp_on_drop(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_tx_msg *msg = sl_mp_tx_at(conn, number);

    if (msg == NULL || msg->number != number)
        return;
    /* A receiver that sent a CTS takes it; its bytes may be on their way out of the caller's
     * memory. */
    if (msg->covered != 0) {
        sl_mp_conn_fail(conn, -EPROTO, "%s drops message %u, for which it granted memory",
                        sl_ep_peer_name(&conn->base), number);
        return;
    }
    sl_req_end(sl_mp_tx_end(conn, msg), 0);
}
