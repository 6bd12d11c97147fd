/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long messages: the receiver grants memory, the sender writes pieces of it over all paths.
 *
 * A receive into registered memory grants all of it at once, before the sender asked. Any other
 * grants pieces of staging memory when the sender is ready, and hands over what arrived in its
 * order.
 *
 * A receive that takes shorter messages may have granted more than there is. The sender then writes
 * what it has, and says how much in an RTS, at once: the receive is over when both are here, in any
 * order.
 */
#include "verbs/endpoint.h"
#include "verbs/fallback.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"

#include <string.h>

#define PIECE_BYTES (64u << 10) /* measured: docs/perf/rdma.md */
#define ID_PLACE_BITS 6
_Static_assert(SL_VERBS_GRANTS == 1 << ID_PLACE_BITS,
               "an id has so many bits for the place, and 10 for its generation");
#define EARLY_GRANTS (SL_VERBS_GRANTS / 2)
#define STAGED_MAX 8 /* pieces of staging that one message holds at a time */

static uint8_t *chunk_bytes(const struct sl_verbs_iface *iface, uint16_t chunk)
{
    return iface->staging.bytes + (size_t)chunk * SL_VERBS_CHUNK_BYTES;
}

/* Bytes of the message as far as they are known: those of its sender, or those that the receive
 * expects. */
static uint64_t total_of(const struct sl_verbs_rx_msg *msg)
{
    return msg->has_rts ? msg->len : msg->sink->len;
}

/* ---- granting ---- */

/* A grant that the sender asked for is used at once; one that left before may wait until all
 * messages before it are over, some of which have yet to ask. So early ones have their part of the
 * places, and never the others'. */
static struct sl_verbs_rx_grant *grant_place(struct sl_verbs_ep *ep, bool early)
{
    unsigned first = early ? 0 : EARLY_GRANTS, end = early ? EARLY_GRANTS : SL_VERBS_GRANTS;

    for (unsigned i = first; i < end; i++)
        if (!ep->rx_grants[i].used)
            return &ep->rx_grants[i];
    return NULL;
}

struct sl_verbs_rx_grant *sl_verbs_rx_grant_at(struct sl_verbs_ep *ep, uint32_t id)
{
    struct sl_verbs_rx_grant *grant = &ep->rx_grants[id % SL_VERBS_GRANTS];

    return grant->used && grant->generation == id >> ID_PLACE_BITS ? grant : NULL;
}

static bool announce(struct sl_verbs_ep *ep, struct sl_verbs_rx_grant *grant)
{
    const struct sl_verbs_iface *iface = ep->iface;
    const struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, grant->number);
    struct sl_verbs_tx_frame *frame = sl_verbs_frame_new(ep, SL_VERBS_GRANT, grant->number);
    struct sl_verbs_frame *header;
    struct sl_verbs_grant told = {
        .off = grant->off,
        .len = grant->len,
        .addr = (uintptr_t)grant->addr,
        .id = (uint32_t)grant->generation << ID_PLACE_BITS | (uint32_t)(grant - ep->rx_grants),
        .rkey_count = iface->rail_count,
    };

    if (frame == NULL)
        return false;
    for (unsigned i = 0; i < iface->rail_count; i++)
        told.rkeys[i] =
            grant->chunk == SL_VERBS_NO_CHUNK ? msg->mr->mr[i]->rkey : iface->staging.mr[i]->rkey;
    header = (struct sl_verbs_frame *)(void *)frame->bytes;
    header->len = sizeof(told);
    header->tag = msg->sink->tag;
    header->value = total_of(msg);
    header->flags = msg->sink->shorter && !msg->has_rts ? SL_VERBS_FLAG_SHORTER : 0;
    if (msg->mr != NULL && msg->mr->is_gpu)
        header->flags |= SL_VERBS_FLAG_GPU;
    memcpy(frame->bytes + SL_VERBS_FRAME_BYTES, &told, sizeof(told));
    grant->announced = true;
    sl_verbs_frame_post(ep, frame);
    return true;
}

static void grant_new(struct sl_verbs_ep *ep, struct sl_verbs_rx_grant *grant, uint32_t number,
                      uint16_t chunk, uint64_t len)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    *grant = (struct sl_verbs_rx_grant){
        .used = true,
        .chunk = chunk,
        .generation = (uint16_t)((grant->generation + 1) % (1 << (16 - ID_PLACE_BITS))),
        .number = number,
        .off = msg->granted,
        .len = len,
        .addr = chunk == SL_VERBS_NO_CHUNK ? (uint8_t *)msg->sink->dst + msg->granted
                                           : chunk_bytes(ep->iface, chunk),
    };
    msg->granted += len;
    msg->granted_count++;
    if (ep->unannounced == 0 && announce(ep, grant))
        return;
    ep->unannounced++;
    sl_verbs_ep_activate(ep);
}

void sl_verbs_grants_announce(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < SL_VERBS_GRANTS && ep->unannounced > 0; i++) {
        struct sl_verbs_rx_grant *grant = &ep->rx_grants[i];

        if (!grant->used || grant->announced)
            continue;
        if (!announce(ep, grant))
            return;
        ep->unannounced--;
    }
}

void sl_verbs_grant_more(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);
    struct sl_verbs_chunks *chunks = &ep->iface->rx_chunks;

    while (msg->req != NULL && msg->status == 0 && msg->granted < total_of(msg)) {
        struct sl_verbs_rx_grant *grant = grant_place(ep, !msg->has_rts);
        uint64_t left = total_of(msg) - msg->granted;

        if (msg->mr == NULL && msg->granted_count >= STAGED_MAX)
            return; /* the next that is complete comes back here */
        if (grant == NULL && !msg->has_rts)
            return; /* the sender will ask */
        if (grant == NULL || (msg->mr == NULL && chunks->free_count == 0)) {
            ep->wants_staging = true;
            sl_verbs_ep_activate(ep);
            return;
        }
        if (msg->mr != NULL)
            grant_new(ep, grant, number, SL_VERBS_NO_CHUNK, left);
        else
            grant_new(ep, grant, number, chunks->free[--chunks->free_count],
                      left < SL_VERBS_CHUNK_BYTES ? left : SL_VERBS_CHUNK_BYTES);
    }
}

/* ---- arrivals ---- */

static void grant_over(struct sl_verbs_ep *ep, struct sl_verbs_rx_grant *grant)
{
    struct sl_verbs_chunks *chunks = &ep->iface->rx_chunks;

    if (grant->chunk != SL_VERBS_NO_CHUNK)
        chunks->free[chunks->free_count++] = grant->chunk;
    grant->used = false;
    sl_verbs_rx_at(ep, grant->number)->granted_count--;
}

static struct sl_verbs_rx_grant *complete_at(struct sl_verbs_ep *ep, uint32_t number, uint64_t off)
{
    for (unsigned i = 0; i < SL_VERBS_GRANTS; i++) {
        struct sl_verbs_rx_grant *grant = &ep->rx_grants[i];

        if (grant->used && grant->complete && grant->number == number && grant->off == off)
            return grant;
    }
    return NULL;
}

/* Hands over what is complete and next in order. */
static void hand_over(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);
    const struct sl_sink *sink = msg->sink;
    struct sl_verbs_rx_grant *grant;

    while ((grant = complete_at(ep, number, msg->consumed)) != NULL) {
        uint64_t off = grant->off, len = grant->len;

        if (sink->consume != NULL)
            sink->consume(sink, grant->addr, off, len);
        else if (grant->chunk != SL_VERBS_NO_CHUNK)
            memcpy((uint8_t *)sink->dst + off, grant->addr, len);
        msg->consumed += len;
        grant_over(ep, grant);
    }
}

/* A grant has all its bytes. */
static void grant_complete(struct sl_verbs_ep *ep, struct sl_verbs_rx_grant *grant)
{
    uint32_t number = grant->number;
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    grant->complete = true;
    hand_over(ep, number);
    if (msg->consumed == total_of(msg)) {
        msg->len = msg->consumed;
        msg->tag = msg->sink->tag;
        sl_verbs_rx_end(ep, number,
                        msg->mr != NULL && msg->mr->is_gpu ? sl_verbs_gpu_arrived(msg->mr) : 0);
    } else {
        sl_verbs_grant_more(ep, number);
    }
}

void sl_verbs_grants_trim(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    /* Only memory of the receive's own is granted early, and all of it in one. */
    msg->granted = msg->len;
    for (unsigned i = 0; i < SL_VERBS_GRANTS; i++) {
        struct sl_verbs_rx_grant *grant = &ep->rx_grants[i];

        if (!grant->used || grant->number != number)
            continue;
        if (grant->got > msg->len) {
            sl_verbs_ep_fail(ep, -EPROTO, "%s wrote %llu bytes of message %u, which has %llu",
                             sl_ep_peer_name(&ep->base), (unsigned long long)grant->got, number,
                             (unsigned long long)msg->len);
            return;
        }
        grant->len = msg->len;
        if (grant->got == grant->len)
            grant_complete(ep, grant);
        return;
    }
}

void sl_verbs_on_write(struct sl_verbs_path *path, uint32_t id, uint32_t len)
{
    struct sl_verbs_ep *ep = path->ep;
    struct sl_verbs_rx_grant *grant = sl_verbs_rx_grant_at(ep, id);

    if (grant == NULL || len > grant->len - grant->got) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s wrote %u bytes where nothing was granted",
                         sl_ep_peer_name(&ep->base), len);
        return;
    }
    if (ep->state == SL_VERBS_EP_DOWN)
        return;
    ep->iface->base.traffic += len;
    grant->got += len;
    if (grant->got == grant->len)
        grant_complete(ep, grant);
}

/* ---- what we are granted ---- */

/* Takes a grant that fits the message. What is written is read from the message's memory, by offset
 * and length as the peer says them: no byte outside of it may be named, and none be asked for more
 * often than the message has bytes. */
static void deal_add(struct sl_verbs_ep *ep, struct sl_verbs_tx_grant *grant,
                     struct sl_verbs_tx_msg *msg)
{
    uint64_t room = grant->grant.off < msg->len ? msg->len - grant->grant.off : 0;

    if (grant->grant.len > room)
        grant->grant.len = room; /* the message is shorter than its room */
    if (room == 0 || grant->grant.len > msg->len - msg->granted) {
        sl_verbs_ep_fail(
            ep, -EPROTO,
            "%s grants %llu bytes at %llu of message %u, which has %llu, of which %llu are "
            "granted",
            sl_ep_peer_name(&ep->base), (unsigned long long)grant->grant.len,
            (unsigned long long)grant->grant.off, msg->number, (unsigned long long)msg->len,
            (unsigned long long)msg->granted);
        grant->used = false;
        return;
    }
    grant->msg = msg;
    msg->granted += grant->grant.len;
    ep->deal[(ep->deal_head + ep->deal_count++) % SL_VERBS_TX_GRANTS] =
        (uint16_t)(grant - ep->tx_grants);
    sl_verbs_ep_activate(ep);
}

void sl_verbs_on_grant(struct sl_verbs_ep *ep, const struct sl_verbs_frame *frame,
                       const struct sl_verbs_grant *told)
{
    uint32_t number = frame->number;
    struct sl_verbs_tx_msg *msg = sl_verbs_tx_at(ep, number);
    bool sent = number - ep->tx_oldest < ep->tx_next - ep->tx_oldest;
    bool early = number - ep->tx_next < SL_VERBS_RX_QUEUE;
    bool shorter = (frame->flags & SL_VERBS_FLAG_SHORTER) != 0;
    struct sl_verbs_tx_grant *grant = NULL,
                             fresh = {.grant = *told,
                                      .used = true,
                                      .shorter = shorter,
                                      .is_gpu = (frame->flags & SL_VERBS_FLAG_GPU) != 0,
                                      .number = number,
                                      .tag = frame->tag,
                                      .total = frame->value};

    /* What is granted before the length is known is all of it. */
    if (told->off + told->len > frame->value || (shorter && told->len != frame->value) ||
        told->rkey_count != ep->peer.rail_count) {
        sl_verbs_ep_fail(ep, -EBADMSG, "%s grants bytes past the end of message %u",
                         sl_ep_peer_name(&ep->base), number);
        return;
    }
    /* For a message that went by other means or was another than expected: its receive says so
     * itself. */
    if (!early && (!sent || msg->req == NULL || msg->number != number ||
                   !sl_verbs_grant_fits(&fresh, msg->tag, msg->len)))
        return;
    for (unsigned i = 0; i < SL_VERBS_TX_GRANTS && grant == NULL; i++)
        if (!ep->tx_grants[i].used)
            grant = &ep->tx_grants[i];
    if (grant == NULL) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s has granted more than was agreed",
                         sl_ep_peer_name(&ep->base));
        return;
    }
    *grant = fresh;
    ep->early_gpu_count += early && grant->is_gpu;
    if (early)
        ep->early_count++;
    else
        deal_add(ep, grant, msg);
}

void sl_verbs_tx_bind_grants(struct sl_verbs_ep *ep, struct sl_verbs_tx_msg *msg)
{
    for (unsigned i = 0; i < SL_VERBS_TX_GRANTS && ep->early_count > 0; i++) {
        struct sl_verbs_tx_grant *grant = &ep->tx_grants[i];

        if (!grant->used || grant->msg != NULL || grant->number != msg->number)
            continue;
        ep->early_count--;
        ep->early_gpu_count -= grant->is_gpu;
        /* The first one decided that they are for this message; the others must say the same. */
        if (!sl_verbs_grant_fits(grant, msg->tag, msg->len)) {
            sl_verbs_ep_fail(ep, -EPROTO,
                             "%s grants message %u as one of %llu bytes, and as another one",
                             sl_ep_peer_name(&ep->base), msg->number, (unsigned long long)msg->len);
            grant->used = false;
            continue;
        }
        deal_add(ep, grant, msg);
    }
}

/* ---- writing ---- */

static uint32_t piece_size(const struct sl_verbs_ep *ep, const struct sl_verbs_tx_grant *grant)
{
    uint64_t left = grant->grant.len - grant->dealt;
    uint64_t most = ep->iface->config->verbs_piece_bytes > 0
                        ? (uint64_t)ep->iface->config->verbs_piece_bytes
                        : PIECE_BYTES;

    if (grant->msg->mr == NULL && most > SL_VERBS_CHUNK_BYTES)
        most = SL_VERBS_CHUNK_BYTES;
    return (uint32_t)(left < most ? left : most);
}

/* Copies a piece of memory that nobody registered; false: no staging is free. */
static bool stage(struct sl_verbs_ep *ep, struct sl_verbs_piece *piece)
{
    struct sl_verbs_chunks *chunks = &ep->iface->tx_chunks;
    const struct sl_verbs_tx_grant *grant = piece->grant;

    if (grant->msg->mr != NULL)
        return true;
    if (chunks->free_count == 0)
        return false;
    piece->chunk = chunks->free[--chunks->free_count];
    memcpy(chunk_bytes(ep->iface, piece->chunk), grant->msg->addr + grant->grant.off + piece->off,
           piece->len);
    return true;
}

static int deal_grant(struct sl_verbs_ep *ep, struct sl_verbs_tx_grant *grant)
{
    int count = 0;

    while (grant->dealt < grant->grant.len) {
        struct sl_verbs_piece piece = {.grant = grant,
                                       .off = grant->dealt,
                                       .len = piece_size(ep, grant),
                                       .chunk = SL_VERBS_NO_CHUNK};
        struct sl_verbs_path *path = sl_verbs_path_best(ep, piece.len);

        if (path == NULL || !stage(ep, &piece))
            break;
        grant->dealt += piece.len;
        sl_verbs_path_post_write(path, &piece);
        count++;
    }
    return count;
}

int sl_verbs_deal(struct sl_verbs_ep *ep)
{
    int count = 0;

    while (ep->redo_count > 0) {
        const struct sl_verbs_piece *piece = &ep->redo[ep->redo_count - 1];
        struct sl_verbs_path *path = sl_verbs_path_best(ep, piece->len);

        if (path == NULL)
            return count;
        ep->redo_count--;
        sl_verbs_path_post_write(path, piece);
        count++;
    }
    while (ep->deal_count > 0) {
        struct sl_verbs_tx_grant *grant = &ep->tx_grants[ep->deal[ep->deal_head]];

        count += deal_grant(ep, grant);
        if (grant->dealt < grant->grant.len)
            return count;
        ep->deal_head = (ep->deal_head + 1) % SL_VERBS_TX_GRANTS;
        ep->deal_count--;
    }
    return count;
}

static void unstage(struct sl_verbs_ep *ep, const struct sl_verbs_piece *piece)
{
    struct sl_verbs_chunks *chunks = &ep->iface->tx_chunks;

    if (piece->chunk != SL_VERBS_NO_CHUNK)
        chunks->free[chunks->free_count++] = piece->chunk;
}

void sl_verbs_piece_over(struct sl_verbs_ep *ep, const struct sl_verbs_piece *piece)
{
    struct sl_verbs_tx_grant *grant = piece->grant;
    struct sl_verbs_tx_msg *msg = grant->msg;
    struct sl_req *req = msg->req;

    unstage(ep, piece);
    ep->iface->base.traffic += piece->len;
    grant->done += piece->len;
    msg->done += piece->len;
    if (grant->done == grant->grant.len)
        grant->used = false;
    if (ep->deal_count > 0)
        sl_verbs_ep_activate(ep);
    if (msg->done < msg->len)
        return;
    msg->req = NULL;
    while (ep->tx_oldest != ep->tx_next && sl_verbs_tx_at(ep, ep->tx_oldest)->req == NULL)
        ep->tx_oldest++;
    req->len = msg->len;
    sl_req_end(req, 0);
}

void sl_verbs_piece_redo(struct sl_verbs_ep *ep, const struct sl_verbs_piece *piece)
{
    sl_assert(ep->redo_count < SL_VERBS_REDO);
    ep->redo[ep->redo_count++] = *piece;
    sl_verbs_ep_activate(ep);
}

static void path_cancel(struct sl_verbs_path *path)
{
    while (path != NULL && path->retired != path->posted) {
        struct sl_verbs_wr *wr = &path->wrs[path->retired++ % SL_VERBS_SQ_DEPTH];

        if (wr->kind == SL_VERBS_WR_WRITE)
            unstage(path->ep, &wr->piece);
        else if (wr->kind != SL_VERBS_WR_PING)
            sl_verbs_frame_free(path->ep->iface, wr->frame);
    }
}

void sl_verbs_write_cancel(struct sl_verbs_ep *ep)
{
    for (; ep->redo_count > 0; ep->redo_count--)
        unstage(ep, &ep->redo[ep->redo_count - 1]);
    for (unsigned i = 0; i < ep->path_count; i++)
        path_cancel(ep->paths[i]);
    path_cancel(sl_verbs_tcp_path(ep));
    for (unsigned i = 0; i < SL_VERBS_GRANTS; i++)
        if (ep->rx_grants[i].used)
            grant_over(ep, &ep->rx_grants[i]);
    memset(ep->tx_grants, 0, sizeof(ep->tx_grants));
    ep->deal_count = ep->early_count = ep->early_gpu_count = ep->unannounced = 0;
    ep->wants_staging = false;
}
