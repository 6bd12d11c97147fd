/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sideband of a connection: what it carries, how it is lost, and how it is dialled again.
 *
 * A connection is its paths; the sideband beside them may break for reasons that say nothing about
 * the peer (a firewall that forgets, an address that moves). So it is dialled again, ever later
 * while that fails, and meanwhile paths carry the control messages. They are numbered, so those
 * that the peer has not told of are said once more on the next one, and handled once. Connections
 * of the sideband are numbered, too: news of the loss of an earlier one end none that came later.
 *
 * The peer is gone when it has said so, or when nobody listens where it did: a process that died.
 * Where neither can be known, the deadline for connections without a path decides.
 */
#include "multipath/sideband.h"

#include "multipath/events.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"

#include "core/err.h"
#include "core/log.h"

#include <stdio.h>

#define REDIAL_NS_MIN (10 * SL_NS_PER_MS)
#define REDIAL_NS_MAX (2 * SL_NS_PER_S)
#define STEADY_NS (5 * SL_NS_PER_S) /* up for so long: the next loss is a first one again */
#define FAREWELL_NS (100 * SL_NS_PER_MS)
#define FAREWELL_POLLS 1000000
#define BYE_NS (10 * SL_NS_PER_S) /* for a peer that does not read, to hear why it was given up */

static uint64_t now(const struct sl_mp_conn *conn)
{
    return sl_now(conn->iface->base.worker->clock);
}

static const char *area_of(const struct sl_mp_conn *conn)
{
    return conn->iface->base.ops->name;
}

/* ---- the end of the peer ---- */

/* What it sent before may still be received: sl_mp_conn_leave(). */
static void peer_left(struct sl_mp_conn *conn, int status, const char *why)
{
    if (conn->failing || conn->left)
        return;
    if (conn->state != SL_MP_CONN_UP) {
        sl_mp_conn_fail(conn, status, "%s", why);
        return;
    }
    conn->left = true;
    conn->down_status = status;
    if (why != conn->why)
        sl_mp_conn_say_why(conn, "%s", why);
    sl_mp_conn_activate(conn);
}

void sl_mp_on_leave(struct sl_mp_conn *conn)
{
    peer_left(conn, -ECONNRESET, "the peer closed its endpoint");
}

/* ---- it is lost ---- */

/* The peer may not know yet, and is told what we had of units. */
static void over_send(struct sl_mp_conn *conn, uint32_t before)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_SIDEBAND_OVER};

    conn->sideband_over = before;
    control.sideband.before = before;
    control.sideband.arrived = sl_mp_fallback_arrived(conn);
    sl_mp_control_send(conn, &control);
}

static void lose(struct sl_mp_conn *conn, int status, const char *why)
{
    uint64_t now_ns = now(conn);

    conn->sideband_up = false;
    sl_mp_conn_say_why(conn, "%s", why); /* should that be the end */
    sl_mp_event(conn->iface, SL_EVENT_SIDEBAND_DOWN, conn->base.peer, conn->sideband->connection,
                (uint64_t)-status);
    sl_warn(area_of(conn),
            "the TCP connection beside the paths to %s is lost: %s; it is dialled again, and %s",
            sl_ep_peer_name(&conn->base), why,
            conn->paths_up > 0 ? "control messages go by the paths" : "there is no path");
    if (now_ns - conn->sideband_up_ns >= STEADY_NS)
        conn->redial_wait_ns = 0;
    conn->redial_at_ns = now_ns + conn->redial_wait_ns;
    sl_mp_controls_requeue(conn);
    sl_mp_fallback_lost(conn);
    over_send(conn, conn->sideband->connection + 1);
    sl_mp_paths_need(conn, "the sideband is lost");
    sl_mp_conn_time(conn);
    sl_mp_conn_activate(conn);
}

/* Bytes that were damaged, or make no sense, would be so again. */
static bool may_be_repeated(int status)
{
    return status != -EBADMSG && status != -EPROTO && status != -ENOMEM;
}

static void on_down(void *arg, struct sl_ep *sideband, int status, const char *why)
{
    struct sl_mp_conn *conn = sideband->owner;

    (void)arg;
    if (conn->failing || conn->left || conn->state == SL_MP_CONN_DOWN)
        conn->sideband_up = false;
    else if (sideband->left || !may_be_repeated(status)) {
        conn->sideband_up = false;
        peer_left(conn, status, why);
    } else {
        lose(conn, status, why);
    }
}

/* ---- and dialled again ---- */

static void try_later(struct sl_mp_conn *conn)
{
    conn->redial_wait_ns = conn->redial_wait_ns < REDIAL_NS_MIN       ? REDIAL_NS_MIN
                           : conn->redial_wait_ns * 2 < REDIAL_NS_MAX ? conn->redial_wait_ns * 2
                                                                      : REDIAL_NS_MAX;
    conn->redial_at_ns = now(conn) + conn->redial_wait_ns;
    sl_mp_conn_time(conn);
}

static void up_again(struct sl_mp_conn *conn)
{
    conn->sideband_up = true;
    conn->sideband_up_ns = now(conn);
    sl_mp_event(conn->iface, SL_EVENT_SIDEBAND_UP, conn->base.peer, conn->sideband->connection, 0);
    sl_info(area_of(conn), "the TCP connection beside the paths to %s is up again",
            sl_ep_peer_name(&conn->base));
    /* Those that the last one took, and paths did not bring, too. */
    sl_mp_controls_requeue(conn);
    /* The peer may have had one that never came up here, and waits for word of its units. */
    if (conn->fallback != NULL && conn->sideband_over != conn->sideband->connection)
        over_send(conn, conn->sideband->connection);
    sl_mp_fallback_resume(conn);
    sl_mp_conn_activate(conn);
}

static void on_redialled(struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_container_of(req, struct sl_mp_conn, sideband_req);

    conn->dialling = false;
    if (conn->state == SL_MP_CONN_DOWN || req->status == -ECANCELED)
        return;
    if (req->status == 0) {
        up_again(conn);
    } else if (req->status == -ECONNREFUSED) {
        peer_left(conn, -ECONNRESET, conn->why);
    } else {
        sl_debug(area_of(conn), "the TCP connection beside the paths to %s is not to be had: %s",
                 sl_ep_peer_name(&conn->base), sluice_last_error());
        try_later(conn);
    }
}

static void redial(struct sl_mp_conn *conn)
{
    int err;

    conn->sideband_req = (struct sl_req){.status = SL_PENDING, .done = on_redialled};
    conn->dialling = true;
    err =
        conn->sideband->iface->ops->ep_redial(conn->sideband, &conn->sideband_req, &conn->sideband);
    sl_mp_fallback_renew(conn);
    if (err == 0)
        return;
    conn->dialling = false;
    try_later(conn);
}

void sl_mp_sideband_try(struct sl_mp_conn *conn)
{
    if (!conn->failing && !conn->left && now(conn) >= conn->redial_at_ns)
        redial(conn);
}

void sl_mp_on_sideband_over(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    uint32_t before = control->sideband.before;

    if (conn->sideband_up && (int32_t)(before - conn->sideband->connection) > 0) {
        lose(conn, -ECONNRESET, "the peer has lost it");
        redial(conn); /* nothing is lent to it any more: units may be repeated */
    }
    sl_mp_fallback_over(conn, before, control->sideband.arrived);
}

/* ---- the rest ---- */

static void on_ctrl(void *arg, struct sl_ep *sideband, const void *msg, size_t len)
{
    struct sl_mp_conn *conn = sideband->owner;
    struct sl_mp_control control;

    (void)arg;
    if (conn->state != SL_MP_CONN_DOWN)
        sl_mp_control_take(conn, msg, len);
    else if (sl_mp_control_read(msg, len, &control) == 0 && control.kind == SL_MP_CONTROL_BYE)
        conn->sideband_up = false; /* the peer has given up, too, and needs no word */
}

struct sl_handler sl_mp_sideband_handler(const struct sl_mp_settings *settings)
{
    return (struct sl_handler){.ctrl = on_ctrl, .down = on_down, .ctrl_only = !settings->fallback};
}

void sl_mp_sideband_close(struct sl_mp_conn *conn)
{
    if (conn->sideband == NULL)
        return;
    conn->sideband->iface->ops->ep_destroy(conn->sideband);
    conn->sideband = NULL;
    conn->sideband_up = false;
}

/* That the sideband has taken a BYE does not mean that the peer will read it: what a socket has not
 * sent is lost when it is closed. The peer hangs up when it has. */
void sl_mp_sideband_close_when_heard(struct sl_mp_conn *conn)
{
    if (conn->fallback != NULL) { /* the user's memory may be lent to it */
        sl_mp_sideband_close(conn);
        return;
    }
    conn->bye_until_ns = now(conn) + BYE_NS;
    sl_mp_conn_time(conn);
}

uint64_t sl_mp_sideband_heard(struct sl_mp_conn *conn, uint64_t now_ns)
{
    if (conn->sideband == NULL)
        return SL_NEVER;
    if (!conn->sideband_up || now_ns >= conn->bye_until_ns) {
        sl_mp_sideband_close(conn);
        return SL_NEVER;
    }
    sl_mp_control_flush(conn);
    return now_ns + SL_NS_PER_MS;
}

void sl_mp_sideband_farewell(struct sl_mp_conn *conn)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_LEAVE};
    uint64_t deadline_ns = now(conn) + FAREWELL_NS;

    if (conn->state != SL_MP_CONN_UP || conn->sideband_up || conn->left || conn->failing ||
        conn->paths_up == 0)
        return;
    sl_mp_control_send(conn, &control);
    for (unsigned i = 0; i < FAREWELL_POLLS && conn->control_count > 0 && conn->paths_up > 0 &&
                         !conn->failing && now(conn) < deadline_ns;
         i++) {
        for (unsigned p = 0; p < conn->path_count; p++)
            if (conn->paths[p] != NULL && conn->paths[p]->state == SL_MP_PATH_UP)
                conn->paths[p]->lanes->poll(conn->paths[p]);
        sl_mp_control_flush(conn);
    }
}
