/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long messages: the receiver names memory in a CTS (clear to send), the sender writes pieces of it
 * over all paths.
 *
 * A receive into registered memory sends one CTS for all of it at once, before the sender asked.
 * Any other names pieces of staging memory when the sender is ready, and hands over what arrived in
 * its order.
 *
 * A receive that takes shorter messages may have named more than there is. The sender then writes
 * what it has, and says how much in an RTS, at once: the receive is over when both are here, in any
 * order.
 */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (64u << 10) /* measured: docs/perf/rdma.md */
#define ID_PLACE_BITS 6
_Static_assert(SL_MP_RX_CTS_MAX == 1 << ID_PLACE_BITS,
               "an id has so many bits for the place, and 10 for its generation");
#define EARLY_GRANTS (SL_MP_RX_CTS_MAX / 2)
#define STAGED_MAX 8 /* pieces of staging that one message holds at a time */

static uint8_t *chunk_bytes(const struct sl_mp_iface *iface, uint16_t chunk)
{
    return iface->staging_bytes + (size_t)chunk * SL_MP_CHUNK_BYTES;
}

/* Bytes of the message as far as they are known: those of its sender, or those that the receive
 * expects. */
static uint64_t total_of(const struct sl_mp_rx_msg *msg)
{
    return msg->has_rts ? msg->len : msg->sink->len;
}

/* ---- granting ---- */

/* A CTS that the sender asked for is used at once; one that left before may wait until all
 * messages before it are over, some of which have yet to ask. So early ones have their part of the
 * places, and never the others'. */
static struct sl_mp_rx_cts *cts_place(struct sl_mp_conn *conn, bool early)
{
    unsigned first = early ? 0 : EARLY_GRANTS, end = early ? EARLY_GRANTS : SL_MP_RX_CTS_MAX;

    for (unsigned i = first; i < end; i++)
        if (!conn->rx_cts[i].used)
            return &conn->rx_cts[i];
    return NULL;
}

struct sl_mp_rx_cts *sl_mp_rx_cts_at(struct sl_mp_conn *conn, uint32_t id)
{
    struct sl_mp_rx_cts *cts = &conn->rx_cts[id % SL_MP_RX_CTS_MAX];

    return cts->used && cts->generation == id >> ID_PLACE_BITS ? cts : NULL;
}

static bool announce(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    const struct sl_mp_iface *iface = conn->iface;
    const struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, cts->number);
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(conn, SL_MP_CTS, cts->number);
    struct sl_mp_frame *header;
    struct sl_mp_cts told = {
        .off = cts->off,
        .len = cts->len,
        .addr = (uintptr_t)cts->addr,
        .id = (uint32_t)cts->generation << ID_PLACE_BITS | (uint32_t)(cts - conn->rx_cts),
        .rkey_count = iface->rail_count,
    };

    if (frame == NULL)
        return false;
    for (unsigned i = 0; i < iface->rail_count; i++)
        told.rkeys[i] = cts->chunk == SL_MP_NO_CHUNK ? msg->mr->rkeys[i] : iface->staging_rkeys[i];
    header = (struct sl_mp_frame *)(void *)frame->bytes;
    header->len = sizeof(told);
    header->tag = msg->sink->tag;
    header->value = total_of(msg);
    header->flags = msg->sink->shorter && !msg->has_rts ? SL_MP_FLAG_SHORTER : 0;
    if (msg->mr != NULL && msg->mr->is_gpu)
        header->flags |= SL_MP_FLAG_GPU;
    memcpy(frame->bytes + SL_MP_FRAME_BYTES, &told, sizeof(told));
    cts->announced = true;
    sl_mp_frame_post(conn, frame);
    return true;
}

static void cts_new(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts, uint32_t number,
                    uint16_t chunk, uint64_t len)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

    *cts = (struct sl_mp_rx_cts){
        .used = true,
        .chunk = chunk,
        .generation = (uint16_t)((cts->generation + 1) % (1 << (16 - ID_PLACE_BITS))),
        .number = number,
        .off = msg->covered,
        .len = len,
        .addr = chunk == SL_MP_NO_CHUNK ? (uint8_t *)msg->sink->dst + msg->covered
                                        : chunk_bytes(conn->iface, chunk),
    };
    msg->covered += len;
    msg->cts_count++;
    if (conn->unannounced == 0 && announce(conn, cts))
        return;
    conn->unannounced++;
    sl_mp_conn_activate(conn);
}

void sl_mp_cts_announce(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX && conn->unannounced > 0; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || cts->announced)
            continue;
        if (!announce(conn, cts))
            return;
        conn->unannounced--;
    }
}

void sl_mp_cts_more(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    struct sl_mp_chunks *chunks = &conn->iface->rx_chunks;

    while (msg->req != NULL && msg->status == 0 && msg->covered < total_of(msg)) {
        struct sl_mp_rx_cts *cts = cts_place(conn, !msg->has_rts);
        uint64_t left = total_of(msg) - msg->covered;

        if (msg->mr == NULL && msg->cts_count >= STAGED_MAX)
            return; /* the next that is complete comes back here */
        if (cts == NULL && !msg->has_rts)
            return; /* the sender will ask */
        if (cts == NULL || (msg->mr == NULL && chunks->free_count == 0)) {
            conn->wants_staging = true;
            sl_mp_conn_activate(conn);
            return;
        }
        if (msg->mr != NULL)
            cts_new(conn, cts, number, SL_MP_NO_CHUNK, left);
        else
            cts_new(conn, cts, number, chunks->free[--chunks->free_count],
                    left < SL_MP_CHUNK_BYTES ? left : SL_MP_CHUNK_BYTES);
    }
}

/* ---- arrivals ---- */

static void cts_over(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    struct sl_mp_chunks *chunks = &conn->iface->rx_chunks;

    if (cts->chunk != SL_MP_NO_CHUNK)
        chunks->free[chunks->free_count++] = cts->chunk;
    cts->used = false;
    sl_mp_rx_at(conn, cts->number)->cts_count--;
}

static struct sl_mp_rx_cts *complete_at(struct sl_mp_conn *conn, uint32_t number, uint64_t off)
{
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (cts->used && cts->complete && cts->number == number && cts->off == off)
            return cts;
    }
    return NULL;
}

/* Hands over what is complete and next in order, from this one on. */
static void hand_over(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    uint32_t number = cts->number;
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);
    const struct sl_sink *sink = msg->sink;

    if (cts->off != msg->consumed)
        return;
    while (cts != NULL) {
        uint64_t off = cts->off, len = cts->len;

        if (sink->consume != NULL)
            sink->consume(sink, cts->addr, off, len);
        else if (cts->chunk != SL_MP_NO_CHUNK)
            memcpy((uint8_t *)sink->dst + off, cts->addr, len);
        msg->consumed += len;
        cts_over(conn, cts);
        cts = msg->cts_count > 0 ? complete_at(conn, number, msg->consumed) : NULL;
    }
}

/* A CTS has all its bytes. */
static void cts_complete(struct sl_mp_conn *conn, struct sl_mp_rx_cts *cts)
{
    uint32_t number = cts->number;
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

    cts->complete = true;
    hand_over(conn, cts);
    if (msg->consumed == total_of(msg)) {
        msg->len = msg->consumed;
        msg->tag = msg->sink->tag;
        sl_mp_rx_end(conn, number,
                     msg->mr != NULL && msg->mr->is_gpu ? sl_mp_gpu_arrived(msg->mr) : 0);
    } else {
        sl_mp_cts_more(conn, number);
    }
}

void sl_mp_cts_trim(struct sl_mp_conn *conn, uint32_t number)
{
    struct sl_mp_rx_msg *msg = sl_mp_rx_at(conn, number);

    /* Only memory of the receive's own gets an early CTS, and all of it in one. */
    msg->covered = msg->len;
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++) {
        struct sl_mp_rx_cts *cts = &conn->rx_cts[i];

        if (!cts->used || cts->number != number)
            continue;
        if (cts->got > msg->len) {
            sl_mp_conn_fail(conn, -EPROTO, "%s wrote %llu bytes of message %u, which has %llu",
                            sl_ep_peer_name(&conn->base), (unsigned long long)cts->got, number,
                            (unsigned long long)msg->len);
            return;
        }
        cts->len = msg->len;
        if (cts->got == cts->len)
            cts_complete(conn, cts);
        return;
    }
}

void sl_mp_on_write(struct sl_mp_path *path, uint32_t id, uint32_t len)
{
    struct sl_mp_conn *conn = path->conn;
    struct sl_mp_rx_cts *cts = sl_mp_rx_cts_at(conn, id);

    if (cts == NULL || len > cts->len - cts->got) {
        sl_mp_conn_fail(conn, -EPROTO, "%s wrote %u bytes where nothing was granted",
                        sl_ep_peer_name(&conn->base), len);
        return;
    }
    if (conn->state == SL_MP_CONN_DOWN)
        return;
    conn->iface->base.traffic += len;
    cts->got += len;
    if (cts->got == cts->len)
        cts_complete(conn, cts);
}

/* ---- what the peer clears to send ---- */

/* Takes a CTS that fits the message. What is written is read from the message's memory, by offset
 * and length as the peer says them: no byte outside of it may be named, and none be asked for more
 * often than the message has bytes. */
static void deal_add(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts, struct sl_mp_tx_msg *msg)
{
    uint64_t room = cts->cts.off < msg->len ? msg->len - cts->cts.off : 0;

    if (cts->cts.len > room)
        cts->cts.len = room; /* the message is shorter than its room */
    if (room == 0 || cts->cts.len > msg->len - msg->covered) {
        sl_mp_conn_fail(
            conn, -EPROTO,
            "%s grants %llu bytes at %llu of message %u, which has %llu, of which %llu are "
            "granted",
            sl_ep_peer_name(&conn->base), (unsigned long long)cts->cts.len,
            (unsigned long long)cts->cts.off, msg->number, (unsigned long long)msg->len,
            (unsigned long long)msg->covered);
        sl_mp_tx_cts_free(conn, cts);
        return;
    }
    cts->msg = msg;
    msg->covered += cts->cts.len;
    sl_list_push_back(&conn->deal, &cts->link);
    sl_mp_conn_activate(conn);
}

void sl_mp_on_cts(struct sl_mp_conn *conn, const struct sl_mp_frame *frame,
                  const struct sl_mp_cts *told)
{
    uint32_t number = frame->number;
    struct sl_mp_tx_msg *msg = sl_mp_tx_at(conn, number);
    bool sent = number - conn->tx_oldest < conn->tx_next - conn->tx_oldest;
    bool early = number - conn->tx_next < SL_MP_RX_QUEUE;
    bool shorter = (frame->flags & SL_MP_FLAG_SHORTER) != 0;
    struct sl_mp_tx_cts *cts = NULL, fresh = {.cts = *told,
                                              .shorter = shorter,
                                              .is_gpu = (frame->flags & SL_MP_FLAG_GPU) != 0,
                                              .number = number,
                                              .tag = frame->tag,
                                              .total = frame->value};

    /* What a CTS names before the length is known is all of it. */
    if (told->off + told->len > frame->value || (shorter && told->len != frame->value) ||
        told->rkey_count != conn->peer.rail_count) {
        sl_mp_conn_fail(conn, -EBADMSG, "%s grants bytes past the end of message %u",
                        sl_ep_peer_name(&conn->base), number);
        return;
    }
    /* For a message that went by other means or was another than expected: its receive says so
     * itself. */
    if (!early && (!sent || msg == NULL || msg->number != number ||
                   !sl_mp_cts_fits(&fresh, msg->tag, msg->len)))
        return;
    cts = conn->cts_count < SL_MP_TX_CTS_MAX ? sl_mp_pool_take(&conn->iface->tx_cts) : NULL;
    if (cts == NULL) {
        sl_mp_conn_fail(conn, -EPROTO, "%s has granted more than was agreed",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    *cts = fresh;
    sl_list_push_back(&conn->all_cts, &cts->all);
    conn->cts_count++;
    if (!early) {
        deal_add(conn, cts, msg);
        return;
    }
    sl_list_push_back(&conn->early, &cts->link);
    conn->early_gpu_count += cts->is_gpu;
    conn->early_count++;
}

void sl_mp_tx_cts_free(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts)
{
    sl_list_remove(&cts->all);
    conn->cts_count--;
    sl_mp_pool_put(&conn->iface->tx_cts, cts);
}

void sl_mp_early_take(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts)
{
    sl_list_remove(&cts->link);
    conn->early_count--;
    conn->early_gpu_count -= cts->is_gpu;
}

void sl_mp_tx_bind_cts(struct sl_mp_conn *conn, struct sl_mp_tx_msg *msg)
{
    sl_list_foreach(&conn->early, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, link);

        if (cts->number != msg->number)
            continue;
        sl_mp_early_take(conn, cts);
        /* The first one decided that they are for this message; the others must say the same. */
        if (!sl_mp_cts_fits(cts, msg->tag, msg->len)) {
            sl_mp_conn_fail(
                conn, -EPROTO, "%s grants message %u as one of %llu bytes, and as another one",
                sl_ep_peer_name(&conn->base), msg->number, (unsigned long long)msg->len);
            sl_mp_tx_cts_free(conn, cts);
            continue;
        }
        deal_add(conn, cts, msg);
    }
}

/* ---- writing ---- */

static uint32_t piece_size(const struct sl_mp_conn *conn, const struct sl_mp_tx_cts *cts)
{
    uint64_t left = cts->cts.len - cts->dealt;
    uint64_t most = conn->iface->settings.piece_bytes > 0
                        ? (uint64_t)conn->iface->settings.piece_bytes
                        : PIECE_BYTES;

    if (cts->msg->mr == NULL && most > SL_MP_CHUNK_BYTES)
        most = SL_MP_CHUNK_BYTES;
    return (uint32_t)(left < most ? left : most);
}

/* Copies a piece of memory that nobody registered; false: no staging is free. */
static bool stage(struct sl_mp_conn *conn, struct sl_mp_piece *piece)
{
    struct sl_mp_chunks *chunks = &conn->iface->tx_chunks;
    const struct sl_mp_tx_cts *cts = piece->cts;

    if (cts->msg->mr != NULL)
        return true;
    if (chunks->free_count == 0)
        return false;
    piece->chunk = chunks->free[--chunks->free_count];
    memcpy(chunk_bytes(conn->iface, piece->chunk), cts->msg->addr + cts->cts.off + piece->off,
           piece->len);
    return true;
}

static int deal_cts(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts)
{
    int count = 0;

    while (cts->dealt < cts->cts.len) {
        struct sl_mp_piece piece = {
            .cts = cts, .off = cts->dealt, .len = piece_size(conn, cts), .chunk = SL_MP_NO_CHUNK};
        struct sl_mp_path *path = sl_mp_path_best(conn, piece.len);

        if (path == NULL || !stage(conn, &piece))
            break;
        cts->dealt += piece.len;
        sl_mp_path_post_write(path, &piece);
        count++;
    }
    return count;
}

int sl_mp_deal(struct sl_mp_conn *conn)
{
    int count = 0;

    while (conn->redo_count > 0) {
        const struct sl_mp_piece *piece = &conn->redo[conn->redo_count - 1];
        struct sl_mp_path *path = sl_mp_path_best(conn, piece->len);

        if (path == NULL)
            return count;
        conn->redo_count--;
        sl_mp_path_post_write(path, piece);
        count++;
    }
    while (!sl_list_empty(&conn->deal)) {
        struct sl_mp_tx_cts *cts = sl_container_of(conn->deal.next, struct sl_mp_tx_cts, link);

        count += deal_cts(conn, cts);
        if (cts->dealt < cts->cts.len)
            return count;
        sl_list_remove(&cts->link);
    }
    return count;
}

static void unstage(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    struct sl_mp_chunks *chunks = &conn->iface->tx_chunks;

    if (piece->chunk != SL_MP_NO_CHUNK)
        chunks->free[chunks->free_count++] = piece->chunk;
}

void sl_mp_piece_over(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    struct sl_mp_tx_cts *cts = piece->cts;
    struct sl_mp_tx_msg *msg = cts->msg;

    unstage(conn, piece);
    conn->iface->base.traffic += piece->len;
    cts->done += piece->len;
    msg->done += piece->len;
    if (cts->done == cts->cts.len)
        sl_mp_tx_cts_free(conn, cts);
    if (!sl_list_empty(&conn->deal))
        sl_mp_conn_activate(conn);
    if (msg->done == msg->len)
        sl_req_end(sl_mp_tx_end(conn, msg), 0);
}

void sl_mp_piece_redo(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    if (conn->redo == NULL)
        conn->redo = calloc(SL_MP_REDO, sizeof(*conn->redo));
    if (conn->redo == NULL) {
        unstage(conn, piece);
        sl_mp_conn_fail(conn, -ENOMEM, "no memory to repeat what a path lost");
        return;
    }
    sl_assert(conn->redo_count < SL_MP_REDO);
    conn->redo[conn->redo_count++] = *piece;
    sl_mp_conn_activate(conn);
}

static void path_cancel(struct sl_mp_path *path)
{
    while (path != NULL && path->retired != path->posted) {
        struct sl_mp_wr *wr = &path->wrs[path->retired++ % SL_MP_WINDOW];

        if (wr->kind == SL_MP_WR_WRITE)
            unstage(path->conn, &wr->piece);
        else if (wr->kind != SL_MP_WR_PING)
            sl_mp_frame_free(path->conn->iface, wr->frame);
    }
}

void sl_mp_write_cancel(struct sl_mp_conn *conn)
{
    for (; conn->redo_count > 0; conn->redo_count--)
        unstage(conn, &conn->redo[conn->redo_count - 1]);
    for (unsigned i = 0; i < conn->path_count; i++)
        path_cancel(conn->paths[i]);
    path_cancel(sl_mp_fallback_path(conn));
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (conn->rx_cts[i].used)
            cts_over(conn, &conn->rx_cts[i]);
    sl_list_init(&conn->early);
    sl_list_init(&conn->deal);
    sl_list_foreach(&conn->all_cts, node)
    {
        sl_mp_tx_cts_free(conn, sl_container_of(node, struct sl_mp_tx_cts, all));
    }
    conn->early_count = conn->early_gpu_count = conn->unannounced = 0;
    conn->wants_staging = false;
}
