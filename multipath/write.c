/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages, from their sender: what the peer has cleared to send is written in pieces over all
 * paths. cts.c says the rest. */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"

#include <stdlib.h>
#include <string.h>

/* 64 KiB at 25 Gbit/s, where smaller ones cost more than they bring; up to 1 MiB at 400 Gbit/s, as
 * each costs both ends the same however long it is. */
#define PIECE_PS (UINT64_C(320) * SL_MP_PIECE_LEAST) /* of line time: 21 us */
#define PIECE_MOST (1u << 20)
#define PIECE_GRAIN 4096u
#define PIECES_AHEAD 4 /* of a path: a frame behind them waits so long */

/* ---- what the peer clears to send ---- */

__attribute__((noinline)) static void refuse(struct sl_mp_tx_cts *cts,
                                             const struct sl_mp_tx_msg *msg)
{
    struct sl_mp_conn *conn = cts->channel->conn;

    sl_mp_conn_fail(conn, -EPROTO,
                    "%s grants %llu bytes at %llu of message %u, which has %llu, of which %llu are "
                    "granted",
                    sl_ep_peer_name(&conn->base), (unsigned long long)cts->cts.len,
                    (unsigned long long)cts->cts.off, msg->number, (unsigned long long)msg->len,
                    (unsigned long long)msg->covered);
    sl_mp_tx_cts_free(conn, cts);
}

/* Takes a CTS that fits the message. What is written is read from the message's memory, by offset
 * and length as the peer says them: no byte outside of it may be named, and none be asked for more
 * often than the message has bytes. */
static inline void deal_add(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts,
                            struct sl_mp_tx_msg *msg)
{
    uint64_t room = cts->cts.off < msg->len ? msg->len - cts->cts.off : 0;

    if (cts->cts.len > room)
        cts->cts.len = room; /* the message is shorter than its room */
    if (SL_UNLIKELY(room == 0 || cts->cts.len > msg->len - msg->covered)) {
        refuse(cts, msg);
        return;
    }
    cts->msg = msg;
    cts->is_bound = true;
    cts->channel->tx_cts++;
    msg->covered += cts->cts.len;
    sl_list_push_back(&conn->deal, &cts->link);
    sl_mp_conn_activate(conn);
}

/* The peer's rails that a path leads to now. */
static uint16_t rails_in_use(const struct sl_mp_conn *conn)
{
    uint16_t rails = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state == SL_MP_PATH_UP)
            rails |= (uint16_t)(1u << conn->paths[i]->remote_rail);
    return rails;
}

static void uneven_check(struct sl_mp_conn *conn)
{
    uint16_t in_use = rails_in_use(conn);

    conn->uneven = false;
    for (unsigned i = 0; i < conn->path_count; i++)
        conn->uneven |= conn->paths[i] != NULL && sl_mp_path_is_uneven(conn->paths[i]);
    sl_list_foreach(&conn->all_cts, node)
    {
        const struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);

        conn->uneven |= (in_use & ~cts->rails) != 0;
    }
}

/* One for other rails than the last, or by keys of an earlier time: those of rails that have others
 * now are none. If all paths can carry it, the next one like it is taken as it is. False: it has
 * not as many keys as the peer has rails. */
__attribute__((noinline)) static bool rails_find(struct sl_mp_conn *conn,
                                                 const struct sl_mp_cts_keys *keys, uint16_t *out)
{
    *out = keys->rails & (uint16_t)((1u << conn->peer.rail_count) - 1);
    for (unsigned i = 0; i < conn->peer.rail_count; i++)
        if ((int8_t)(keys->age - conn->peer.rails[i].keys) < 0)
            *out &= (uint16_t) ~(1u << i);
    if (keys->count != conn->peer.rail_count)
        return false;
    if ((rails_in_use(conn) & ~*out) != 0) {
        conn->uneven = true;
    } else if (*out == keys->rails) {
        conn->peer_keys = *keys;
        uneven_check(conn);
    }
    return true;
}

static inline bool rails_take(struct sl_mp_conn *conn, const struct sl_mp_cts_keys *keys,
                              uint16_t *out)
{
    if (SL_UNLIKELY(memcmp(keys, &conn->peer_keys, sizeof(*keys)) != 0))
        return rails_find(conn, keys, out);
    *out = keys->rails;
    return true;
}

void sl_mp_tx_keys_check(struct sl_mp_conn *conn)
{
    uint8_t age = conn->peer.rails[0].keys;

    for (unsigned i = 1; i < conn->peer.rail_count; i++)
        if ((int8_t)(conn->peer.rails[i].keys - age) > 0)
            age = conn->peer.rails[i].keys;
    conn->peer_keys =
        (struct sl_mp_cts_keys){.count = (uint8_t)conn->peer.rail_count,
                                .age = age,
                                .rails = (uint16_t)((1u << conn->peer.rail_count) - 1)};
    sl_list_foreach(&conn->all_cts, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);
        uint16_t rails;

        /* By old keys nothing is written again, however far generations go on. */
        rails_take(conn, &cts->cts.keys, &rails);
        cts->rails &= rails;
    }
    uneven_check(conn);
}

/* New keys of one that is here already, or over. */
static void take_again(struct sl_mp_conn *conn, const struct sl_mp_cts *told)
{
    sl_list_foreach(&conn->all_cts, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);

        if (cts->cts.id != told->id)
            continue;
        memcpy(cts->cts.rkeys, told->rkeys, told->keys.count * sizeof(told->rkeys[0]));
        cts->cts.keys = told->keys;
        rails_take(conn, &told->keys, &cts->rails);
        sl_mp_conn_activate(conn);
    }
    uneven_check(conn);
}

void sl_mp_on_cts(struct sl_mp_channel *channel, const struct sl_mp_frame *frame,
                  const struct sl_mp_cts *told)
{
    struct sl_mp_conn *conn = channel->conn;
    uint32_t number = frame->number;
    struct sl_mp_tx_msg *msg = sl_mp_tx_at(channel, number);
    bool sent = number - channel->tx_oldest < channel->tx_next - channel->tx_oldest;
    bool early = number - channel->tx_next < SL_MP_RX_QUEUE;
    bool shorter = (frame->flags & SL_MP_FLAG_SHORTER) != 0;
    struct sl_mp_tx_cts *cts;
    uint16_t rails;

    /* What a CTS names before the length is known is all of it. */
    if (told->off + told->len > frame->value || (shorter && told->len != frame->value) ||
        !rails_take(conn, &told->keys, &rails)) {
        sl_mp_conn_fail(conn, -EBADMSG, "%s grants bytes past the end of message %u",
                        sl_ep_peer_name(&conn->base), number);
        return;
    }
    if (SL_UNLIKELY(channel->base.peer_closed))
        return; /* it named that memory before it closed the channel */
    if (SL_UNLIKELY((frame->flags & SL_MP_FLAG_AGAIN) != 0)) {
        take_again(conn, told);
        return;
    }
    /* For a message that went by other means or was another than expected: its receive says so
     * itself. */
    if (!early && (!sent || msg == NULL || msg->number != number ||
                   !sl_mp_suits(msg->tag, msg->len, frame->tag, frame->value, shorter)))
        return;
    cts = conn->cts_count < SL_MP_TX_CTS_MAX ? sl_mp_pool_take(&conn->iface->tx_cts) : NULL;
    if (cts == NULL) {
        sl_mp_conn_fail(conn, -EPROTO, "%s has granted more than was agreed",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    sl_mp_cts_copy(told, &cts->cts);
    cts->link = (struct sl_node){0};
    cts->channel = channel;
    cts->msg = NULL;
    cts->is_bound = false;
    cts->shorter = shorter;
    cts->is_gpu = (frame->flags & SL_MP_FLAG_GPU) != 0;
    cts->rails = rails;
    cts->number = number;
    cts->tag = frame->tag;
    cts->total = frame->value;
    cts->dealt = cts->done = 0;
    sl_list_push_back(&conn->all_cts, &cts->all);
    conn->cts_count++;
    if (!early) {
        deal_add(conn, cts, msg);
        return;
    }
    sl_list_push_back(&channel->early, &cts->link);
    channel->early_gpu_count += cts->is_gpu;
    channel->early_count++;
}

void sl_mp_tx_cts_free(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts)
{
    struct sl_mp_channel *channel = cts->channel;

    sl_list_remove(&cts->all);
    conn->cts_count--;
    channel->tx_cts -= cts->is_bound;
    sl_mp_pool_put(&conn->iface->tx_cts, cts);
    if (SL_UNLIKELY(channel->ends))
        sl_mp_channel_tell(channel);
}

void sl_mp_early_take(struct sl_mp_tx_cts *cts)
{
    sl_list_remove(&cts->link);
    cts->channel->early_count--;
    cts->channel->early_gpu_count -= cts->is_gpu;
}

void sl_mp_tx_bind_cts(struct sl_mp_channel *channel, struct sl_mp_tx_msg *msg)
{
    struct sl_mp_conn *conn = channel->conn;

    sl_list_foreach(&channel->early, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, link);

        if (cts->number != msg->number)
            continue;
        sl_mp_early_take(cts);
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

void sl_mp_path_size_pieces(struct sl_mp_path *path)
{
    const struct sl_mp_iface *iface = path->conn->iface;
    uint64_t bytes = PIECE_PS / path->nominal_ps;

    path->piece_bytes = iface->piece_bytes;
    if (iface->settings.piece_bytes > 0 || path->rail == NULL)
        return;
    bytes -= bytes % PIECE_GRAIN;
    if (bytes > PIECE_MOST)
        bytes = PIECE_MOST;
    if (bytes > path->piece_bytes)
        path->piece_bytes = (uint32_t)bytes;
}

/* The last piece of a message, or its only one, looks at nothing more. */
static uint32_t piece_size(struct sl_mp_conn *conn, const struct sl_mp_tx_cts *cts)
{
    uint64_t left = cts->cts.len - cts->dealt;
    uint64_t most = conn->iface->piece_bytes;

    if (cts->msg->mr == NULL && most > SL_MP_CHUNK_BYTES)
        most = SL_MP_CHUNK_BYTES;
    if (left <= most)
        return (uint32_t)left;
    if (left >= SL_MP_SPREAD_BYTES)
        sl_mp_paths_spread(conn);
    return (uint32_t)most;
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
    memcpy(sl_mp_chunk_bytes(conn->iface, piece->chunk), cts->msg->addr + cts->cts.off + piece->off,
           piece->len);
    if (cts->msg->len >= SL_MP_SPREAD_BYTES)
        sl_mp_paths_spread(conn);
    return true;
}

/* How many paths share, with this one. */
static unsigned sharers(const struct sl_mp_path *path)
{
    const struct sl_mp_conn *conn = path->conn;
    bool reserve = conn->iface->settings.reserve;
    unsigned count = 1;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *other = conn->paths[i];

        count += other != NULL && other != path && sl_mp_path_carries(other) &&
                 sl_mp_path_resort(other) <= sl_mp_path_resort(path) &&
                 (!reserve || other->rail == path->rail);
    }
    return count;
}

/* The piece is for this path, which is fast: more of what is left, but no more than this path's
 * part of it, so that all paths end together. False: it has enough for now. */
__attribute__((noinline)) static bool enlarge(struct sl_mp_piece *piece,
                                              const struct sl_mp_path *path)
{
    const struct sl_mp_tx_cts *cts = piece->cts;
    uint64_t left = cts->cts.len - cts->dealt, most = path->piece_bytes, part;

    if (path->in_flight >= PIECES_AHEAD * most)
        return false;
    part = left / sharers(path);
    part -= part % PIECE_GRAIN;
    most = most * path->weight / SL_PATH_TABLE_WEIGHT_MAX;
    if (most > part)
        most = part;
    if (cts->msg->mr == NULL && most > SL_MP_CHUNK_BYTES)
        most = SL_MP_CHUNK_BYTES;
    if (most > piece->len)
        piece->len = (uint32_t)most;
    return true;
}

/* A piece that is not the last of its message fills its packets: each costs the same, however
 * little it carries. */
static uint32_t whole_packets(const struct sl_mp_path *path, uint32_t len)
{
    uint32_t most = path->packet_bytes;

    return most != 0 && len > most ? len - len % most : len;
}

static int deal_cts(struct sl_mp_conn *conn, struct sl_mp_tx_cts *cts)
{
    int count = 0;

    while (cts->dealt < cts->cts.len) {
        struct sl_mp_piece piece = {
            .cts = cts, .off = cts->dealt, .len = piece_size(conn, cts), .chunk = SL_MP_NO_CHUNK};
        struct sl_mp_path *path = sl_mp_path_best(conn, &piece);

        if (path == NULL) {
            sl_mp_paths_spread(conn); /* they are full */
            break;
        }
        if (piece.len < cts->cts.len - cts->dealt) {
            if (path->piece_bytes > piece.len && !enlarge(&piece, path))
                break;
            if (piece.len < cts->cts.len - cts->dealt)
                piece.len = whole_packets(path, piece.len);
        }
        if (!stage(conn, &piece))
            break;
        cts->dealt += piece.len;
        sl_mp_path_post_write(path, &piece);
        count++;
    }
    return count;
}

/* The last of those that wait to be repeated, or what of it is a piece for this path. */
static struct sl_mp_piece redo_take(struct sl_mp_conn *conn, const struct sl_mp_path *path)
{
    struct sl_mp_piece *last = &conn->redo[conn->redo_count - 1], piece = *last;

    if (piece.len <= path->piece_bytes || piece.chunk != SL_MP_NO_CHUNK) {
        conn->redo_count--;
        return piece;
    }
    piece.len = path->piece_bytes;
    last->off += piece.len;
    last->len -= piece.len;
    return piece;
}

int sl_mp_deal(struct sl_mp_conn *conn)
{
    int count = 0;

    while (conn->redo_count > 0) {
        struct sl_mp_path *path = sl_mp_path_best(conn, &conn->redo[conn->redo_count - 1]);

        if (path == NULL)
            return count;
        struct sl_mp_piece piece = redo_take(conn, path);

        sl_mp_path_post_write(path, &piece);
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
    struct sl_mp_channel *channel = cts->channel;

    unstage(conn, piece);
    sl_channel_moved(&conn->base, &channel->base, piece->len);
    channel->written += piece->len;
    cts->done += piece->len;
    if (cts->done == cts->cts.len)
        sl_mp_tx_cts_free(conn, cts);
    if (!sl_list_empty(&conn->deal))
        sl_mp_conn_activate(conn);
    if (SL_UNLIKELY(msg == NULL))
        return; /* its channel is closed */
    msg->done += piece->len;
    if (msg->done == msg->due)
        sl_req_end(sl_mp_tx_end(channel, msg), 0);
}

/* Of a channel that one end has closed, what no path carries is never written. */
static void piece_dropped(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    struct sl_mp_tx_cts *cts = piece->cts;
    struct sl_mp_tx_msg *msg = cts->msg;
    struct sl_mp_channel *channel = cts->channel;

    unstage(conn, piece);
    cts->cts.len -= piece->len;
    cts->dealt -= piece->len;
    if (cts->done == cts->cts.len)
        sl_mp_tx_cts_free(conn, cts);
    if (msg == NULL)
        return;
    msg->due -= piece->len;
    if (msg->done == msg->due)
        sl_req_end(sl_mp_tx_end(channel, msg), 0);
}

/* Paths have few writes under way each: it grows with those that have failed. */
static bool redo_has_room(struct sl_mp_conn *conn)
{
    unsigned room = conn->redo_room + 4 * SL_MP_WRITES_MAX;
    struct sl_mp_piece *redo;

    if (conn->redo_count < conn->redo_room)
        return true;
    redo = reallocarray(conn->redo, room, sizeof(*redo));
    if (redo == NULL)
        return false;
    conn->redo = redo;
    conn->redo_room = room;
    return true;
}

void sl_mp_piece_redo(struct sl_mp_conn *conn, const struct sl_mp_piece *piece)
{
    if (SL_UNLIKELY(piece->cts->channel->ends)) {
        piece_dropped(conn, piece);
        return;
    }
    if (!redo_has_room(conn)) {
        unstage(conn, piece);
        sl_mp_conn_fail(conn, -ENOMEM, "no memory to repeat what a path lost");
        return;
    }
    conn->redo[conn->redo_count++] = *piece;
    sl_mp_conn_activate(conn);
}

/* Pieces that wait for another path. */
static void redo_drop(struct sl_mp_conn *conn, const struct sl_mp_channel *channel)
{
    unsigned left = 0;

    for (unsigned i = 0; i < conn->redo_count; i++) {
        const struct sl_mp_piece *piece = &conn->redo[i];

        if (piece->cts->channel != channel) {
            conn->redo[left++] = *piece;
            continue;
        }
        unstage(conn, piece);
        piece->cts->cts.len -= piece->len;
        piece->cts->dealt -= piece->len;
    }
    conn->redo_count = left;
}

void sl_mp_tx_stop(struct sl_mp_channel *channel)
{
    struct sl_mp_conn *conn = channel->conn;

    redo_drop(conn, channel);
    for (uint32_t number = channel->tx_oldest; number != channel->tx_next; number++) {
        struct sl_mp_tx_msg *msg = sl_mp_tx_at(channel, number);

        if (msg != NULL)
            msg->due = msg->done;
    }
    sl_list_foreach(&conn->all_cts, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);

        if (cts->channel != channel)
            continue;
        if (cts->is_bound) {
            sl_list_remove(&cts->link); /* of those with bytes to deal, if it still was */
            cts->cts.len = cts->dealt;
            cts->msg->due += cts->cts.len - cts->done; /* on their way */
        } else {
            sl_mp_early_take(cts);
        }
        if (!cts->is_bound || cts->done == cts->cts.len)
            sl_mp_tx_cts_free(conn, cts);
    }
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
    path_cancel(sl_mp_fallback_any(conn));
    sl_list_foreach(&conn->all_cts, node)
    {
        struct sl_mp_tx_cts *cts = sl_container_of(node, struct sl_mp_tx_cts, all);

        if (cts->is_bound)
            sl_list_remove(&cts->link);
        else
            sl_mp_early_take(cts);
        sl_mp_tx_cts_free(conn, cts);
    }
}
