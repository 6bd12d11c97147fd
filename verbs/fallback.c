/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames and writes over the sideband, while a connection has no path (SLUICE_VERBS_FALLBACK=tcp).
 *
 * To the rest of the transport this is a path without a queue pair. On the sideband each frame or
 * write is a unit: a message of fixed length that says what follows, and a message with its bytes.
 * The sideband keeps their order and loses none, so there is nothing to fence. Frames go back to a
 * path only when the other end has said that it handled all units, for frames must not overtake
 * each other.
 */
#include "verbs/fallback.h"
#include "verbs/endpoint.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 16
#define UNIT_TAG UINT64_C(0x756e6974)
#define BYTES_TAG UINT64_C(0x6279746573)

enum unit_kind { UNIT_FRAME = 1, UNIT_WRITE, UNIT_END };

struct unit {
    uint32_t kind;
    uint32_t len;
    uint32_t grant; /* of a write: id, and where in it */
    uint32_t spare;
    uint64_t off;
};

struct out {
    struct unit unit;
    struct sl_req unit_req, bytes_req;
    const uint8_t *bytes;
    uint8_t taken; /* messages that the sideband took */
    uint8_t left;  /* messages that are not over */
};

struct sl_verbs_tcp {
    struct sl_verbs_ep *ep;
    struct sl_verbs_path path;
    bool ending, end_sent;
    struct out out[DEPTH];
    uint32_t out_next, out_push, out_done; /* to fill, to hand over, to retire */
    struct unit in;
    struct sl_sink in_sink, bytes_sink;
    struct sl_req in_req, bytes_req;
    bool in_bytes; /* a unit's bytes are awaited, not a unit */
    uint8_t *frame;
};

const uint8_t *sl_verbs_tcp_frame(const struct sl_verbs_ep *ep)
{
    return ep->tcp->frame;
}

struct sl_verbs_path *sl_verbs_tcp_path(const struct sl_verbs_ep *ep)
{
    return ep->tcp != NULL && ep->tcp->path.state == SL_VERBS_PATH_UP && !ep->tcp->ending
               ? &ep->tcp->path
               : NULL;
}

const struct sl_verbs_path *sl_verbs_tcp_past(const struct sl_verbs_ep *ep)
{
    return ep->tcp != NULL && ep->tcp->path.stats.ups > 0 ? &ep->tcp->path : NULL;
}

bool sl_verbs_tcp_has_work(const struct sl_verbs_ep *ep)
{
    return ep->tcp != NULL && (ep->tcp->out_push != ep->tcp->out_next || ep->tcp->ending);
}

/* ---- out ---- */

static void retire(struct sl_verbs_tcp *tcp)
{
    while (tcp->out_done != tcp->out_push && tcp->out[tcp->out_done % DEPTH].left == 0) {
        bool is_end = tcp->out[tcp->out_done++ % DEPTH].unit.kind == UNIT_END;

        if (!is_end)
            sl_verbs_path_retire(&tcp->path, tcp->path.retired,
                                 sl_now(tcp->ep->iface->base.worker->clock));
    }
    sl_verbs_ep_activate(tcp->ep);
}

static void on_out(struct sl_req *req)
{
    struct sl_verbs_tcp *tcp = req->arg;

    if (tcp->ep->state != SL_VERBS_EP_UP || req->status != 0)
        return; /* the sideband's end is told by itself */
    /* The unit that is half handed over too: its first message may end before the second is
     * taken. */
    for (uint32_t i = tcp->out_done; i != tcp->out_next; i++) {
        struct out *out = &tcp->out[i % DEPTH];

        if (req == &out->unit_req || req == &out->bytes_req)
            out->left--;
    }
    retire(tcp);
}

/* Hands one message over. False: the sideband has no room. */
static bool hand_over(struct sl_verbs_tcp *tcp, struct out *out)
{
    struct sl_ep *sideband = tcp->ep->sideband;
    bool first = out->taken == 0;
    struct sl_buf buf = {.addr = first ? (const void *)&out->unit : out->bytes,
                         .len = first ? sizeof(out->unit) : out->unit.len};
    struct sl_req *req = first ? &out->unit_req : &out->bytes_req;

    *req = (struct sl_req){.status = SL_PENDING, .done = on_out, .arg = tcp};
    int rc = sideband->iface->ops->send(sideband, &buf, first ? UNIT_TAG : BYTES_TAG, req);

    if (rc < 0)
        return false;
    out->taken++;
    out->left -= rc == 1;
    return true;
}

int sl_verbs_tcp_push(struct sl_verbs_ep *ep)
{
    struct sl_verbs_tcp *tcp = ep->tcp;
    int count = 0;

    if (tcp == NULL || !ep->sideband_up)
        return 0;
    while (tcp->out_push != tcp->out_next) {
        struct out *out = &tcp->out[tcp->out_push % DEPTH];
        uint8_t messages = out->unit.len == 0 ? 1 : 2;

        while (out->taken < messages)
            if (!hand_over(tcp, out))
                return count;
        tcp->out_push++;
        count++;
    }
    if (count > 0)
        retire(tcp);
    if (tcp->ending && !tcp->end_sent && tcp->out_done == tcp->out_next) {
        tcp->end_sent = true;
        tcp->out[tcp->out_next++ % DEPTH] = (struct out){.unit = {.kind = UNIT_END}, .left = 1};
        return count + sl_verbs_tcp_push(ep);
    }
    return count;
}

void sl_verbs_tcp_post(struct sl_verbs_path *path)
{
    struct sl_verbs_tcp *tcp = path->ep->tcp;
    const struct sl_verbs_iface *iface = path->ep->iface;
    const struct sl_verbs_wr *wr = &path->wrs[(path->posted - 1) % SL_VERBS_SQ_DEPTH];
    struct out *out = &tcp->out[tcp->out_next++ % DEPTH];
    const struct sl_verbs_piece *piece = &wr->piece;

    *out = (struct out){.unit = {.kind = UNIT_FRAME, .len = wr->len}, .left = wr->len == 0 ? 1 : 2};
    if (wr->kind == SL_VERBS_WR_WRITE) {
        out->unit.kind = UNIT_WRITE;
        out->unit.grant = piece->grant->grant.id;
        out->unit.off = piece->off;
        out->bytes = piece->chunk != SL_VERBS_NO_CHUNK
                         ? iface->staging.bytes + (size_t)piece->chunk * SL_VERBS_CHUNK_BYTES
                         : piece->grant->msg->addr + piece->grant->grant.off + piece->off;
    } else {
        out->bytes = wr->frame->bytes;
    }
    sl_verbs_ep_activate(path->ep); /* ep_work() hands it over */
}

void sl_verbs_tcp_begin(struct sl_verbs_ep *ep)
{
    struct sl_verbs_tcp *tcp = ep->tcp;

    if (tcp == NULL || !ep->sideband_up || tcp->path.state == SL_VERBS_PATH_UP)
        return;
    tcp->path.state = SL_VERBS_PATH_UP;
    tcp->ending = tcp->end_sent = false;
    tcp->path.stats.ups++;
    sl_verbs_event(ep->iface, SL_EVENT_FALLBACK_ON, ep->base.peer, 0, 0);
    sl_warn("verbs", "no path to %s: continues over TCP until one returns",
            sl_ep_peer_name(&ep->base));
    sl_verbs_choose_frame_path(ep);
    sl_verbs_ep_activate(ep);
}

void sl_verbs_tcp_end(struct sl_verbs_ep *ep)
{
    struct sl_verbs_tcp *tcp = ep->tcp;

    if (sl_verbs_tcp_path(ep) == NULL)
        return;
    tcp->ending = true;
    if (ep->frame_path == &tcp->path)
        ep->frame_path = NULL;
    sl_verbs_ep_activate(ep);
}

void sl_verbs_tcp_ended(struct sl_verbs_ep *ep)
{
    struct sl_verbs_tcp *tcp = ep->tcp;

    if (tcp == NULL || !tcp->end_sent)
        return;
    tcp->ending = tcp->end_sent = false;
    tcp->path.state = SL_VERBS_PATH_IDLE;
    sl_info("verbs", "data for %s goes by paths again", sl_ep_peer_name(&ep->base));
    sl_verbs_choose_frame_path(ep);
    sl_verbs_event(ep->iface, SL_EVENT_FALLBACK_OFF, ep->base.peer,
                   ep->frame_path != NULL ? ep->frame_path->idx : UINT64_MAX, 0);
    sl_verbs_ep_activate(ep);
}

/* ---- in ---- */

static void listen_on(struct sl_verbs_tcp *tcp);

/* Where a unit's bytes go, or NULL when the unit makes no sense. */
static uint8_t *place_for(struct sl_verbs_tcp *tcp)
{
    const struct unit *in = &tcp->in;
    const struct sl_verbs_rx_grant *grant;

    if (in->kind == UNIT_FRAME)
        return in->len <= tcp->ep->iface->slot_bytes ? tcp->frame : NULL;
    grant = in->kind == UNIT_WRITE ? sl_verbs_rx_grant_at(tcp->ep, in->grant) : NULL;
    if (grant == NULL || in->off > grant->len || in->len > grant->len - in->off)
        return NULL;
    return grant->addr + in->off;
}

/* A unit, or its bytes, is here. */
static void take(struct sl_verbs_tcp *tcp)
{
    struct sl_verbs_ep *ep = tcp->ep;

    if (tcp->in_bytes) {
        tcp->in_bytes = false;
        tcp->path.arrived++;
        tcp->path.stats.received_messages++;
        tcp->path.stats.received_bytes += tcp->in.len;
        if (tcp->in.kind == UNIT_FRAME)
            sl_verbs_on_frame(&tcp->path, 0, tcp->in.len);
        else
            sl_verbs_on_write(&tcp->path, tcp->in.grant, tcp->in.len);
    } else if (tcp->in.kind == UNIT_END && tcp->in.len == 0) {
        struct sl_verbs_record record = {.kind = SL_VERBS_REC_TCP_ENDED};

        sl_verbs_record_send(ep, &record);
    } else if (place_for(tcp) == NULL || tcp->in.len == 0) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s sends %u bytes over TCP for nothing that was granted",
                         sl_ep_peer_name(&ep->base), tcp->in.len);
    } else {
        tcp->in_bytes = true;
    }
}

static void on_in(struct sl_req *req)
{
    struct sl_verbs_tcp *tcp = req->arg;

    if (tcp->ep->state == SL_VERBS_EP_DOWN)
        return;
    /* The sideband dropped a message that was not due, and lives on. Its end it tells by
     * itself. */
    if (req->status == -EPROTO || req->status == -EMSGSIZE)
        sl_verbs_ep_fail(tcp->ep, -EPROTO,
                         "%s sends over TCP what is not due: %llu bytes, tag 0x%llx",
                         sl_ep_peer_name(&tcp->ep->base), (unsigned long long)req->len,
                         (unsigned long long)req->tag);
    if (req->status != 0)
        return;
    take(tcp);
    listen_on(tcp);
}

/* Awaits what comes next, taking at once what is here already. */
static void listen_on(struct sl_verbs_tcp *tcp)
{
    struct sl_ep *sideband = tcp->ep->sideband;

    while (!tcp->ep->failing && tcp->ep->state != SL_VERBS_EP_DOWN) {
        struct sl_sink *sink = tcp->in_bytes ? &tcp->bytes_sink : &tcp->in_sink;
        struct sl_req *req = tcp->in_bytes ? &tcp->bytes_req : &tcp->in_req;

        *sink = tcp->in_bytes
                    ? (struct sl_sink){.dst = place_for(tcp), .len = tcp->in.len, .tag = BYTES_TAG}
                    : (struct sl_sink){.dst = &tcp->in, .len = sizeof(tcp->in), .tag = UNIT_TAG};
        *req = (struct sl_req){.status = SL_PENDING, .done = on_in, .arg = tcp};
        if (sideband->iface->ops->recv(sideband, sink, req) != 1)
            return; /* taken, or the sideband is gone and says so itself */
        take(tcp);
    }
}

int sl_verbs_tcp_open(struct sl_verbs_ep *ep)
{
    struct sl_verbs_tcp *tcp = calloc(1, sizeof(*tcp));

    if (tcp == NULL)
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    tcp->frame = malloc(ep->iface->slot_bytes);
    if (tcp->frame == NULL) {
        free(tcp);
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    }
    tcp->ep = ep;
    tcp->path.ep = ep;
    tcp->path.idx = UINT8_MAX;
    tcp->path.nominal_ps = 1000;
    ep->tcp = tcp;
    listen_on(tcp);
    return 0;
}

void sl_verbs_tcp_close(struct sl_verbs_ep *ep)
{
    if (ep->tcp == NULL)
        return;
    free(ep->tcp->frame);
    free(ep->tcp);
    ep->tcp = NULL;
}
