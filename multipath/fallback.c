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
#include "multipath/fallback.h"
#include "multipath/conn.h"
#include "verbs/iface.h"
#include "multipath/repair.h"

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
    uint32_t cts; /* of a write: id, and where in it */
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

struct sl_mp_fallback {
    struct sl_mp_conn *conn;
    struct sl_mp_path path;
    bool ending, end_sent;
    struct out out[DEPTH];
    uint32_t out_next, out_push, out_done; /* to fill, to hand over, to retire */
    struct unit in;
    struct sl_sink in_sink, bytes_sink;
    struct sl_req in_req, bytes_req;
    bool in_bytes; /* a unit's bytes are awaited, not a unit */
    uint8_t *frame;
};

const uint8_t *sl_mp_fallback_frame(const struct sl_mp_conn *conn)
{
    return conn->tcp->frame;
}

struct sl_mp_path *sl_mp_fallback_path(const struct sl_mp_conn *conn)
{
    return conn->tcp != NULL && conn->tcp->path.state == SL_MP_PATH_UP && !conn->tcp->ending
               ? &conn->tcp->path
               : NULL;
}

const struct sl_mp_path *sl_mp_fallback_past(const struct sl_mp_conn *conn)
{
    return conn->tcp != NULL && conn->tcp->path.stats.ups > 0 ? &conn->tcp->path : NULL;
}

bool sl_mp_fallback_has_work(const struct sl_mp_conn *conn)
{
    return conn->tcp != NULL && (conn->tcp->out_push != conn->tcp->out_next || conn->tcp->ending);
}

/* ---- out ---- */

static void retire(struct sl_mp_fallback *tcp)
{
    while (tcp->out_done != tcp->out_push && tcp->out[tcp->out_done % DEPTH].left == 0) {
        bool is_end = tcp->out[tcp->out_done++ % DEPTH].unit.kind == UNIT_END;

        if (!is_end)
            sl_mp_path_retire(&tcp->path, tcp->path.retired,
                              sl_now(tcp->conn->iface->base.worker->clock));
    }
    sl_mp_conn_activate(tcp->conn);
}

static void on_out(struct sl_req *req)
{
    struct sl_mp_fallback *tcp = req->arg;

    if (tcp->conn->state != SL_MP_CONN_UP || req->status != 0)
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
static bool hand_over(struct sl_mp_fallback *tcp, struct out *out)
{
    struct sl_ep *sideband = tcp->conn->sideband;
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

int sl_mp_fallback_push(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *tcp = conn->tcp;
    int count = 0;

    if (tcp == NULL || !conn->sideband_up)
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
        return count + sl_mp_fallback_push(conn);
    }
    return count;
}

void sl_mp_fallback_post(struct sl_mp_path *path)
{
    struct sl_mp_fallback *tcp = path->conn->tcp;
    const struct sl_verbs_iface *iface = path->conn->iface;
    const struct sl_mp_wr *wr = &path->wrs[(path->posted - 1) % SL_MP_WINDOW];
    struct out *out = &tcp->out[tcp->out_next++ % DEPTH];
    const struct sl_mp_piece *piece = &wr->piece;

    *out = (struct out){.unit = {.kind = UNIT_FRAME, .len = wr->len}, .left = wr->len == 0 ? 1 : 2};
    if (wr->kind == SL_MP_WR_WRITE) {
        out->unit.kind = UNIT_WRITE;
        out->unit.cts = piece->cts->cts.id;
        out->unit.off = piece->off;
        out->bytes = piece->chunk != SL_MP_NO_CHUNK
                         ? iface->staging.bytes + (size_t)piece->chunk * SL_MP_CHUNK_BYTES
                         : piece->cts->msg->addr + piece->cts->cts.off + piece->off;
    } else {
        out->bytes = wr->frame->bytes;
    }
    sl_mp_conn_activate(path->conn); /* ep_work() hands it over */
}

void sl_mp_fallback_begin(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *tcp = conn->tcp;

    if (tcp == NULL || !conn->sideband_up || tcp->path.state == SL_MP_PATH_UP)
        return;
    tcp->path.state = SL_MP_PATH_UP;
    tcp->ending = tcp->end_sent = false;
    tcp->path.stats.ups++;
    sl_mp_event(conn->iface, SL_EVENT_FALLBACK_ON, conn->base.peer, 0, 0);
    sl_warn("verbs", "no path to %s: continues over TCP until one returns",
            sl_ep_peer_name(&conn->base));
    sl_mp_choose_frame_path(conn);
    sl_mp_conn_activate(conn);
}

void sl_mp_fallback_end(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *tcp = conn->tcp;

    if (sl_mp_fallback_path(conn) == NULL)
        return;
    tcp->ending = true;
    if (conn->frame_path == &tcp->path)
        conn->frame_path = NULL;
    sl_mp_conn_activate(conn);
}

void sl_mp_fallback_ended(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *tcp = conn->tcp;

    if (tcp == NULL || !tcp->end_sent)
        return;
    tcp->ending = tcp->end_sent = false;
    tcp->path.state = SL_MP_PATH_IDLE;
    sl_info("verbs", "data for %s goes by paths again", sl_ep_peer_name(&conn->base));
    sl_mp_choose_frame_path(conn);
    sl_mp_event(conn->iface, SL_EVENT_FALLBACK_OFF, conn->base.peer,
                conn->frame_path != NULL ? conn->frame_path->idx : UINT64_MAX, 0);
    sl_mp_conn_activate(conn);
}

/* ---- in ---- */

static void listen_on(struct sl_mp_fallback *tcp);

/* Where a unit's bytes go, or NULL when the unit makes no sense. */
static uint8_t *place_for(struct sl_mp_fallback *tcp)
{
    const struct unit *in = &tcp->in;
    const struct sl_mp_rx_cts *cts;

    if (in->kind == UNIT_FRAME)
        return in->len <= tcp->conn->iface->slot_bytes ? tcp->frame : NULL;
    cts = in->kind == UNIT_WRITE ? sl_mp_rx_cts_at(tcp->conn, in->cts) : NULL;
    if (cts == NULL || in->off > cts->len || in->len > cts->len - in->off)
        return NULL;
    return cts->addr + in->off;
}

/* A unit, or its bytes, is here. */
static void take(struct sl_mp_fallback *tcp)
{
    struct sl_mp_conn *conn = tcp->conn;

    if (tcp->in_bytes) {
        tcp->in_bytes = false;
        tcp->path.arrived++;
        tcp->path.stats.received_messages++;
        tcp->path.stats.received_bytes += tcp->in.len;
        if (tcp->in.kind == UNIT_FRAME)
            sl_mp_on_frame(&tcp->path, 0, tcp->in.len);
        else
            sl_mp_on_write(&tcp->path, tcp->in.cts, tcp->in.len);
    } else if (tcp->in.kind == UNIT_END && tcp->in.len == 0) {
        struct sl_mp_control control = {.kind = SL_MP_CONTROL_SIDEBAND_DONE};

        sl_mp_control_send(conn, &control);
    } else if (place_for(tcp) == NULL || tcp->in.len == 0) {
        sl_mp_conn_fail(conn, -EPROTO, "%s sends %u bytes over TCP for nothing that was granted",
                        sl_ep_peer_name(&conn->base), tcp->in.len);
    } else {
        tcp->in_bytes = true;
    }
}

static void on_in(struct sl_req *req)
{
    struct sl_mp_fallback *tcp = req->arg;

    if (tcp->conn->state == SL_MP_CONN_DOWN)
        return;
    /* The sideband dropped a message that was not due, and lives on. Its end it tells by
     * itself. */
    if (req->status == -EPROTO || req->status == -EMSGSIZE)
        sl_mp_conn_fail(tcp->conn, -EPROTO,
                        "%s sends over TCP what is not due: %llu bytes, tag 0x%llx",
                        sl_ep_peer_name(&tcp->conn->base), (unsigned long long)req->len,
                        (unsigned long long)req->tag);
    if (req->status != 0)
        return;
    take(tcp);
    listen_on(tcp);
}

/* Awaits what comes next, taking at once what is here already. */
static void listen_on(struct sl_mp_fallback *tcp)
{
    struct sl_ep *sideband = tcp->conn->sideband;

    while (!tcp->conn->failing && tcp->conn->state != SL_MP_CONN_DOWN) {
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

int sl_mp_fallback_open(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *tcp = calloc(1, sizeof(*tcp));

    if (tcp == NULL)
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    tcp->frame = malloc(conn->iface->slot_bytes);
    if (tcp->frame == NULL) {
        free(tcp);
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    }
    tcp->conn = conn;
    tcp->path.conn = conn;
    tcp->path.idx = UINT8_MAX;
    tcp->path.nominal_ps = 1000;
    conn->tcp = tcp;
    listen_on(tcp);
    return 0;
}

void sl_mp_fallback_close(struct sl_mp_conn *conn)
{
    if (conn->tcp == NULL)
        return;
    free(conn->tcp->frame);
    free(conn->tcp);
    conn->tcp = NULL;
}
