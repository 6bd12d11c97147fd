/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames and writes over the sideband, while a connection has no path and its settings allow it.
 *
 * To the rest of the protocol this is a path whose lane is the sideband. There each frame or write
 * is a unit: a message of fixed length that says what follows, and a message with its bytes. The
 * sideband keeps their order; the other end says how many it has, and until then they may have to
 * be repeated: when the sideband is lost, both ends say what they had, and what the other one lacks
 * goes by a path or the next connection of the sideband (fence.c does the same for a path). Frames
 * go back to another path only when the other end has said that it handled all units, for frames
 * must not overtake each other.
 */
#include "multipath/fallback.h"
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/iface.h"
#include "multipath/repair.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 16
#define UNIT_TAG UINT64_C(0x756e6974)
#define BYTES_TAG UINT64_C(0x6279746573)

enum unit_kind { UNIT_FRAME = 1, UNIT_WRITE, UNIT_END, UNIT_HAVE };

struct unit {
    uint32_t kind;
    uint32_t len;
    uint32_t cts; /* of a write: id, and where in it */
    uint32_t spare;
    uint64_t off; /* HAVE: frames and writes that arrived, of all */
};

struct out {
    struct unit unit;
    struct sl_req unit_req, bytes_req;
    const uint8_t *bytes;
    uint8_t *copy; /* of a write's: the sideband never reads memory of the caller's */
    uint8_t taken; /* messages that the sideband took */
    uint8_t left;  /* messages that are not over */
};

struct sl_mp_fallback {
    struct sl_mp_conn *conn;
    struct sl_mp_path path;
    bool ending, end_sent;
    uint32_t connection; /* of the sideband, by which the last ones went */
    struct out out[DEPTH];
    uint32_t out_next, out_push, out_done; /* to fill, to hand over, to forget */
    /* As path.posted and path.arrived count: those that the sideband took to the end, those that
     * the peer has, those of its own that we told it of. */
    uint32_t taken, had, told;
    struct out have; /* tells it */
    bool have_busy;
    struct unit in;
    struct sl_sink in_sink, bytes_sink;
    struct sl_req in_req, bytes_req;
    bool in_bytes; /* a unit's bytes are awaited, not a unit */
    uint8_t *frame;
};

struct sl_mp_path *sl_mp_fallback_path(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL && conn->fallback->path.state == SL_MP_PATH_UP &&
                   !conn->fallback->ending
               ? &conn->fallback->path
               : NULL;
}

const struct sl_mp_path *sl_mp_fallback_past(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL && conn->fallback->path.stats.ups > 0 ? &conn->fallback->path
                                                                        : NULL;
}

struct sl_mp_path *sl_mp_fallback_any(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL ? &conn->fallback->path : NULL;
}

uint32_t sl_mp_fallback_arrived(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL ? conn->fallback->path.arrived : 0;
}

static bool owes_word(const struct sl_mp_fallback *fb)
{
    return fb->path.arrived != fb->told && !fb->have_busy;
}

bool sl_mp_fallback_sends(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL && conn->sideband_up &&
           conn->fallback->out_done != conn->fallback->out_next;
}

bool sl_mp_fallback_holds(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL &&
           (conn->fallback->out_push != conn->fallback->out_next || conn->fallback->ending);
}

bool sl_mp_fallback_has_work(const struct sl_mp_conn *conn)
{
    return conn->fallback != NULL && conn->sideband_up &&
           (sl_mp_fallback_holds(conn) || owes_word(conn->fallback));
}

/* ---- out ---- */

/* The peer has it, and the sideband nothing more of it. */
static void retire(struct sl_mp_fallback *fb)
{
    while (fb->out_done != fb->out_push && fb->out[fb->out_done % DEPTH].left == 0) {
        struct out *out = &fb->out[fb->out_done++ % DEPTH];

        free(out->copy);
        out->copy = NULL;
        fb->taken += out->unit.kind != UNIT_END;
    }
    uint32_t over = (int32_t)(fb->had - fb->taken) < 0 ? fb->had : fb->taken;

    if (over != fb->path.retired)
        sl_mp_retired(&fb->path, over - 1, sl_now(fb->conn->iface->base.worker->clock));
    sl_mp_conn_activate(fb->conn);
}

static void on_out(struct sl_req *req)
{
    struct sl_mp_fallback *fb = req->arg;

    if (fb->conn->state != SL_MP_CONN_UP || req->status != 0)
        return; /* the sideband's end is told by itself */
    if (req == &fb->have.unit_req) {
        fb->have_busy = false;
        sl_mp_conn_activate(fb->conn);
        return;
    }
    /* The unit that is half handed over too: its first message may end before the second is
     * taken. */
    for (uint32_t i = fb->out_done; i != fb->out_next; i++) {
        struct out *out = &fb->out[i % DEPTH];

        if (req == &out->unit_req || req == &out->bytes_req)
            out->left--;
    }
    retire(fb);
}

/* Hands one message over. False: the sideband has no room. */
static bool hand_over(struct sl_mp_fallback *fb, struct out *out)
{
    struct sl_ep *sideband = fb->conn->sideband;
    bool first = out->taken == 0;
    struct sl_buf buf = {.addr = first ? (const void *)&out->unit : out->bytes,
                         .len = first ? sizeof(out->unit) : out->unit.len};
    struct sl_req *req = first ? &out->unit_req : &out->bytes_req;

    *req = (struct sl_req){.status = SL_PENDING, .done = on_out, .arg = fb};
    int rc = sideband->iface->ops->send(sideband, &buf, first ? UNIT_TAG : BYTES_TAG, req);

    if (rc < 0)
        return false;
    out->taken++;
    out->left -= rc == 1;
    return true;
}

/* Between units alone. */
static int word_push(struct sl_mp_fallback *fb)
{
    if (!owes_word(fb) ||
        (fb->out_push != fb->out_next && fb->out[fb->out_push % DEPTH].taken != 0))
        return 0;
    fb->have = (struct out){.unit = {.kind = UNIT_HAVE, .off = fb->path.arrived}, .left = 1};
    if (!hand_over(fb, &fb->have))
        return 0;
    fb->have_busy = fb->have.left != 0;
    fb->told = fb->path.arrived;
    return 1;
}

int sl_mp_fallback_push(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;
    int count = 0;

    if (fb == NULL || !conn->sideband_up)
        return 0;
    count += word_push(fb);
    while (fb->out_push != fb->out_next) {
        struct out *out = &fb->out[fb->out_push % DEPTH];
        uint8_t messages = out->unit.len == 0 ? 1 : 2;

        while (out->taken < messages)
            if (!hand_over(fb, out))
                return count;
        fb->out_push++;
        count++;
    }
    if (count > 0)
        retire(fb);
    if (fb->ending && !fb->end_sent && fb->out_done == fb->out_next &&
        fb->path.retired == fb->path.posted) {
        fb->end_sent = true;
        fb->out[fb->out_next++ % DEPTH] = (struct out){.unit = {.kind = UNIT_END}, .left = 1};
        return count + sl_mp_fallback_push(conn);
    }
    return count;
}

/* The next unit; sl_mp_run() hands it over. */
static struct out *out_new(struct sl_mp_path *path, enum unit_kind kind, uint32_t len,
                           const uint8_t *bytes)
{
    struct sl_mp_fallback *fb = path->conn->fallback;
    struct out *out = &fb->out[fb->out_next++ % DEPTH];

    path->wrs[(path->posted - 1) % SL_MP_WINDOW].posted_ns =
        sl_now(path->conn->iface->base.worker->clock);
    *out =
        (struct out){.unit = {.kind = kind, .len = len}, .bytes = bytes, .left = len == 0 ? 1 : 2};
    sl_mp_conn_activate(path->conn);
    return out;
}

static void lane_post(struct sl_mp_path *path, const struct sl_mp_tx_frame *frame, bool signal)
{
    (void)signal; /* each tells of its end */
    out_new(path, UNIT_FRAME, frame->len, frame->bytes);
}

static void lane_write(struct sl_mp_path *path, const struct sl_mp_piece *piece)
{
    const uint8_t *bytes = sl_mp_piece_bytes(path, piece);
    uint8_t *copy = piece->chunk == SL_MP_NO_CHUNK ? malloc(piece->len) : NULL;

    if (piece->chunk == SL_MP_NO_CHUNK && copy == NULL) {
        sl_mp_no_memory(path->conn);
        return;
    }
    if (copy != NULL)
        memcpy(copy, bytes, piece->len);
    struct out *out = out_new(path, UNIT_WRITE, piece->len, copy != NULL ? copy : bytes);

    out->copy = copy;
    out->unit.cts = piece->cts->cts.id;
    out->unit.off = piece->off;
}

/* There is one buffer for frames that come: each that has to wait is copied. */
static bool lane_is_short(const struct sl_mp_path *path)
{
    (void)path;
    return true;
}

static unsigned lane_poll(struct sl_mp_path *path)
{
    return (unsigned)sl_mp_fallback_push(path->conn);
}

static void lane_name(const struct sl_mp_path *path, char *out, size_t cap)
{
    (void)path;
    snprintf(out, cap, "tcp (fallback)");
}

/* It is there as long as the connection: nothing of a lane's life. */
static const struct sl_mp_lanes sideband_lanes = {
    .post = lane_post,
    .write = lane_write,
    .is_short = lane_is_short,
    .poll = lane_poll,
    .name = lane_name,
};

void sl_mp_fallback_begin(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;

    if (fb == NULL || !conn->sideband_up || fb->path.state == SL_MP_PATH_UP)
        return;
    fb->path.state = SL_MP_PATH_UP;
    fb->connection = conn->sideband->connection;
    fb->ending = fb->end_sent = false;
    fb->path.stats.ups++;
    sl_mp_event(conn->iface, SL_EVENT_FALLBACK_ON, conn->base.peer, 0, 0);
    sl_warn(conn->iface->base.ops->name, "no path to %s: continues over TCP until one returns",
            sl_ep_peer_name(&conn->base));
    sl_mp_choose_frame_path(conn);
    sl_mp_conn_activate(conn);
}

void sl_mp_fallback_end(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;

    if (sl_mp_fallback_path(conn) == NULL)
        return;
    fb->ending = true;
    if (conn->frame_path == &fb->path)
        conn->frame_path = NULL;
    sl_mp_conn_activate(conn);
}

void sl_mp_fallback_ended(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;

    if (fb == NULL || !fb->end_sent)
        return;
    fb->ending = fb->end_sent = false;
    fb->path.state = SL_MP_PATH_IDLE;
    sl_info(conn->iface->base.ops->name, "data for %s goes by paths again",
            sl_ep_peer_name(&conn->base));
    sl_mp_choose_frame_path(conn);
    sl_mp_event(conn->iface, SL_EVENT_FALLBACK_OFF, conn->base.peer,
                conn->frame_path != NULL ? conn->frame_path->idx : UINT64_MAX, 0);
    sl_mp_conn_activate(conn);
}

/* ---- in ---- */

static void listen_on(struct sl_mp_fallback *fb);

/* The CTS that a write fits into, or NULL. */
static const struct sl_mp_rx_cts *cts_of(const struct sl_mp_fallback *fb)
{
    const struct unit *in = &fb->in;
    const struct sl_mp_rx_cts *cts =
        in->kind == UNIT_WRITE ? sl_mp_rx_cts_at(fb->conn, in->cts) : NULL;

    return cts == NULL || in->off > cts->len || in->len > cts->len - in->off ? NULL : cts;
}

static bool makes_sense(const struct sl_mp_fallback *fb)
{
    if (fb->in.len == 0)
        return false;
    return fb->in.kind == UNIT_FRAME ? fb->in.len <= fb->conn->iface->slot_bytes
                                     : cts_of(fb) != NULL;
}

/* Bytes of a write. Its memory is looked for each time: it may be its owner's again. */
static void on_bytes(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    const struct sl_mp_fallback *fb =
        sl_container_of(sink, const struct sl_mp_fallback, bytes_sink);
    const struct sl_mp_rx_cts *cts = cts_of(fb);

    if (cts != NULL && (cts->msg != NULL || cts->chunk != SL_MP_NO_CHUNK))
        memcpy(cts->addr + fb->in.off + off, bytes, len);
}

/* The peer has so many. */
static void take_word(struct sl_mp_fallback *fb)
{
    const struct sl_mp_path *path = &fb->path;
    uint64_t more = fb->in.off - path->retired;

    if (more > path->posted - path->retired) {
        sl_mp_conn_fail(fb->conn, -EPROTO, "%s has %llu messages over TCP, of %u",
                        sl_ep_peer_name(&fb->conn->base), (unsigned long long)fb->in.off,
                        path->posted);
        return;
    }
    fb->had = (uint32_t)fb->in.off;
    retire(fb);
}

/* A unit, or its bytes, is here. */
static void take(struct sl_mp_fallback *fb)
{
    struct sl_mp_conn *conn = fb->conn;

    if (fb->in_bytes) {
        fb->in_bytes = false;
        fb->path.arrived++;
        fb->path.stats.received_messages++;
        fb->path.stats.received_bytes += fb->in.len;
        sl_mp_conn_activate(conn); /* it is to be told */
        if (fb->in.kind == UNIT_FRAME)
            sl_mp_on_frame(&fb->path, fb->frame, 0, fb->in.len);
        else
            sl_mp_on_write(&fb->path, fb->in.cts, fb->in.len);
    } else if (fb->in.kind == UNIT_END && fb->in.len == 0) {
        struct sl_mp_control control = {.kind = SL_MP_CONTROL_SIDEBAND_DONE};

        sl_mp_control_send(conn, &control);
    } else if (fb->in.kind == UNIT_HAVE && fb->in.len == 0) {
        take_word(fb);
    } else if (!makes_sense(fb)) {
        sl_mp_conn_fail(conn, -EPROTO, "%s sends %u bytes over TCP for nothing that was granted",
                        sl_ep_peer_name(&conn->base), fb->in.len);
    } else {
        fb->in_bytes = true;
    }
}

static void on_in(struct sl_req *req)
{
    struct sl_mp_fallback *fb = req->arg;

    if (fb->conn->state == SL_MP_CONN_DOWN)
        return;
    /* The sideband dropped a message that was not due, and lives on. Its end it tells by
     * itself. */
    if (req->status == -EPROTO || req->status == -EMSGSIZE)
        sl_mp_conn_fail(fb->conn, -EPROTO,
                        "%s sends over TCP what is not due: %llu bytes, tag 0x%llx",
                        sl_ep_peer_name(&fb->conn->base), (unsigned long long)req->len,
                        (unsigned long long)req->tag);
    if (req->status != 0)
        return;
    take(fb);
    listen_on(fb);
}

/* Awaits what comes next, taking at once what is here already. */
static void listen_on(struct sl_mp_fallback *fb)
{
    struct sl_ep *sideband = fb->conn->sideband;

    while (!fb->conn->failing && fb->conn->state != SL_MP_CONN_DOWN) {
        struct sl_sink *sink = fb->in_bytes ? &fb->bytes_sink : &fb->in_sink;
        struct sl_req *req = fb->in_bytes ? &fb->bytes_req : &fb->in_req;

        *sink = fb->in_bytes
                    ? (struct sl_sink){.len = fb->in.len, .tag = BYTES_TAG, .granule = 1}
                    : (struct sl_sink){.dst = &fb->in, .len = sizeof(fb->in), .tag = UNIT_TAG};
        if (fb->in_bytes && fb->in.kind == UNIT_FRAME)
            sink->dst = fb->frame;
        else if (fb->in_bytes)
            sink->consume = on_bytes;
        *req = (struct sl_req){.status = SL_PENDING, .done = on_in, .arg = fb};
        if (sideband->iface->ops->recv(sideband, sink, req) != 1)
            return; /* taken, or the sideband is gone and says so itself */
        take(fb);
    }
}

int sl_mp_fallback_open(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = calloc(1, sizeof(*fb));

    if (fb == NULL)
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    fb->frame = malloc(conn->iface->slot_bytes);
    if (fb->frame == NULL) {
        free(fb);
        return sl_fail(-ENOMEM, "no memory for the way over TCP");
    }
    fb->conn = conn;
    fb->path.conn = conn;
    fb->path.idx = UINT8_MAX;
    fb->path.lanes = &sideband_lanes;
    fb->path.depth = SL_MP_FALLBACK_DEPTH;
    fb->path.nominal_ps = 1000;
    sl_mp_path_size_pieces(&fb->path);
    conn->fallback = fb;
    listen_on(fb);
    return 0;
}

/* ---- the sideband is lost, and dialled again ---- */

/* It is no path any more: frames go by another one, or wait. */
static void rest(struct sl_mp_fallback *fb)
{
    struct sl_mp_conn *conn = fb->conn;

    fb->path.state = SL_MP_PATH_IDLE;
    if (conn->fencing == &fb->path)
        conn->fencing = NULL;
    if (conn->paths_up == 0) {
        conn->no_path_since_ns = sl_now(conn->iface->base.worker->clock);
        sl_mp_conn_time(conn);
    }
    sl_mp_choose_frame_path(conn);
    sl_mp_event(conn->iface, SL_EVENT_FALLBACK_OFF, conn->base.peer,
                conn->frame_path != NULL ? conn->frame_path->idx : UINT64_MAX, 0);
    sl_mp_conn_activate(conn);
}

void sl_mp_fallback_lost(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;

    if (fb == NULL || fb->path.state != SL_MP_PATH_UP)
        return;
    fb->path.stats.failures++;
    fb->ending = fb->end_sent = false;
    fb->out_push = fb->out_next;
    if (conn->frame_path == &fb->path)
        conn->frame_path = NULL;
    if (fb->path.retired == fb->path.posted) {
        rest(fb);
        return;
    }
    fb->path.state = SL_MP_PATH_FENCING;
    conn->fencing = &fb->path;
    if (conn->paths_up == 0)
        conn->no_path_since_ns = sl_now(conn->iface->base.worker->clock);
}

void sl_mp_fallback_renew(struct sl_mp_conn *conn)
{
    struct sl_mp_fallback *fb = conn->fallback;

    if (fb == NULL)
        return;
    for (unsigned i = 0; i < DEPTH; i++) {
        free(fb->out[i].copy);
        fb->out[i].copy = NULL;
    }
    fb->out_next = fb->out_push = fb->out_done = 0;
    fb->in_bytes = fb->have_busy = false;
    fb->told = fb->path.arrived;
}

void sl_mp_fallback_resume(struct sl_mp_conn *conn)
{
    if (conn->fallback != NULL)
        listen_on(conn->fallback);
}

void sl_mp_fallback_over(struct sl_mp_conn *conn, uint32_t before, uint64_t arrived)
{
    struct sl_mp_fallback *fb = conn->fallback;
    struct sl_mp_path *path = sl_mp_fallback_any(conn);

    if (fb == NULL || path->state != SL_MP_PATH_FENCING || (int32_t)(before - fb->connection) <= 0)
        return;
    if (arrived - path->retired > path->posted - path->retired) {
        sl_mp_conn_fail(conn, -EPROTO, "%s had %llu messages over TCP, of %u",
                        sl_ep_peer_name(&conn->base), (unsigned long long)arrived, path->posted);
        return;
    }
    sl_mp_path_salvage(path, (uint32_t)arrived);
    /* The next one has the number that the peer expects. */
    path->posted = path->retired = fb->taken = fb->had = (uint32_t)arrived;
    rest(fb);
}

void sl_mp_fallback_close(struct sl_mp_conn *conn)
{
    if (conn->fallback == NULL)
        return;
    for (unsigned i = 0; i < DEPTH; i++)
        free(conn->fallback->out[i].copy);
    free(conn->fallback->frame);
    free(conn->fallback);
    conn->fallback = NULL;
}
