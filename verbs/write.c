/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long messages: the receiver grants memory, the sender writes pieces of it over all paths.
 *
 * A receive into registered memory grants all of it at once, before the sender asked. Any other grants
 * pieces of staging memory when the sender is ready, and hands over what arrived in its order.
 */
#include "verbs/verbs.h"

#include <string.h>

#define PIECE_BYTES (64u << 10) /* measured: docs/perf/rdma.md */
#define STAGED_MAX 8 /* pieces of staging that one message holds at a time */

static uint8_t *chunk_bytes(const struct sl_verbs_iface *iface, uint16_t chunk)
{
    return iface->staging.bytes + (size_t)chunk * SL_VERBS_CHUNK_BYTES;
}

/* ---- granting ---- */

static struct sl_verbs_rx_grant *grant_place(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < SL_VERBS_GRANTS; i++)
        if (!ep->rx_grants[i].used)
            return &ep->rx_grants[i];
    return NULL;
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
        .id = (uint32_t)grant->generation << 16 | (uint32_t)(grant - ep->rx_grants),
        .rkey_count = iface->rail_count,
    };

    if (frame == NULL)
        return false;
    for (unsigned i = 0; i < iface->rail_count; i++)
        told.rkeys[i] = grant->chunk == SL_VERBS_NO_CHUNK ? msg->mr->mr[i]->rkey
                                                          : iface->staging.mr[i]->rkey;
    header = (struct sl_verbs_frame *)(void *)frame->bytes;
    header->len = sizeof(told);
    header->tag = msg->sink->tag;
    header->value = msg->sink->len;
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
        .generation = (uint16_t)(grant->generation + 1),
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

    while (msg->req != NULL && msg->status == 0 && msg->granted < msg->sink->len) {
        struct sl_verbs_rx_grant *grant = grant_place(ep);
        uint64_t left = msg->sink->len - msg->granted;

        if (msg->mr == NULL && msg->granted_count >= STAGED_MAX)
            return; /* the next that is complete comes back here */
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

void sl_verbs_on_write(struct sl_verbs_path *path, uint32_t imm, uint32_t len)
{
    struct sl_verbs_ep *ep = path->ep;
    struct sl_verbs_rx_grant *grant = &ep->rx_grants[(imm & 0xffff) % SL_VERBS_GRANTS];
    uint32_t number = grant->number;

    if ((imm & 0xffff) >= SL_VERBS_GRANTS || !grant->used || grant->generation != imm >> 16 ||
        len > grant->len - grant->got) {
        sl_verbs_ep_fail(ep, -EPROTO, "rank %d wrote %u bytes where nothing was granted",
                         ep->base.peer, len);
        return;
    }
    if (ep->state == SL_VERBS_EP_DOWN)
        return;
    ep->iface->base.traffic += len;
    grant->got += len;
    if (grant->got < grant->len)
        return;
    grant->complete = true;
    hand_over(ep, number);

    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    if (msg->consumed == msg->sink->len) {
        msg->len = msg->sink->len;
        msg->tag = msg->sink->tag;
        sl_verbs_rx_end(ep, number, 0);
    } else {
        sl_verbs_grant_more(ep, number);
    }
}

/* ---- what we are granted ---- */

static void deal_add(struct sl_verbs_ep *ep, struct sl_verbs_tx_grant *grant,
                     struct sl_verbs_tx_msg *msg)
{
    grant->msg = msg;
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
    struct sl_verbs_tx_grant *grant = NULL;

    if (told->off + told->len > frame->value ||
        told->rkey_count != ep->peer.rail_count) {
        sl_verbs_ep_fail(ep, -EBADMSG, "rank %d grants bytes past the end of message %u",
                         ep->base.peer, number);
        return;
    }
    /* For a message that went by other means or was another than expected: its receive says so itself. */
    if (!early && (!sent || msg->req == NULL || msg->number != number || frame->tag != msg->tag ||
                   frame->value != msg->len))
        return;
    for (unsigned i = 0; i < SL_VERBS_TX_GRANTS && grant == NULL; i++)
        if (!ep->tx_grants[i].used)
            grant = &ep->tx_grants[i];
    if (grant == NULL) {
        sl_verbs_ep_fail(ep, -EPROTO, "rank %d has granted more than was agreed", ep->base.peer);
        return;
    }
    *grant = (struct sl_verbs_tx_grant){.grant = *told, .used = true, .number = number,
                                        .tag = frame->tag, .total = frame->value};
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
        struct sl_verbs_piece piece = {.grant = grant, .off = grant->dealt,
                                       .len = piece_size(ep, grant), .chunk = SL_VERBS_NO_CHUNK};
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
        else
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
    ep->deal_count = ep->early_count = ep->unannounced = 0;
    ep->wants_staging = false;
}
