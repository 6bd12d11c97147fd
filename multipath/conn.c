/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's state from up to its end: lost, left by its peer, waiting for its last frames. */
#include "multipath/conn.h"

#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "multipath/sideband.h"

#include "core/log.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYE_TRIES 16
#define LINGER_NS (200 * SL_NS_PER_MS)
/* Where the peer's process acknowledges, not its NIC: it has to get a processor first. */
#define LINGER_TIMELY_NS (1000 * SL_NS_PER_MS)
#define LINGER_REPAIR_NS (500 * SL_NS_PER_MS) /* while what a path has lost is repeated */
#define LINGER_POLLS 1000000
#define LINGER_EVERY 256 /* of them between polls of the sideband */
#define LINGER_YIELD_EVERY 32

/* ---- the state of a connection ---- */

void sl_mp_conn_activate(struct sl_mp_conn *conn)
{
    if (conn->is_active)
        return;
    conn->is_active = true;
    sl_list_push_back(&conn->iface->active, &conn->active);
}

void sl_mp_conn_deactivate(struct sl_mp_conn *conn)
{
    if (!conn->is_active)
        return;
    conn->is_active = false;
    sl_list_remove(&conn->active);
}

void sl_mp_conn_time(struct sl_mp_conn *conn)
{
    conn->due_ns = 0;
    if (conn->is_timed)
        return;
    conn->is_timed = true;
    sl_list_push_back(&conn->iface->timed, &conn->timed);
}

void sl_mp_conn_untime(struct sl_mp_conn *conn)
{
    if (!conn->is_timed)
        return;
    conn->is_timed = false;
    sl_list_remove(&conn->timed);
}

/* Few connections ever have a reason, and it may be long. */
static void say_why_v(struct sl_mp_conn *conn, const char *fmt, va_list args)
{
    if (conn->why_bytes == NULL)
        conn->why_bytes = malloc(SL_MP_CONN_WHY_BYTES);
    if (conn->why_bytes == NULL) {
        conn->why = "there is no memory to say why";
        return;
    }
    vsnprintf(conn->why_bytes, SL_MP_CONN_WHY_BYTES, fmt, args);
    conn->why = conn->why_bytes;
}

void sl_mp_conn_say_why(struct sl_mp_conn *conn, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say_why_v(conn, fmt, args);
    va_end(args);
}

int sl_mp_conn_fail(struct sl_mp_conn *conn, int status, const char *fmt, ...)
{
    va_list args;

    if (conn->failing || conn->state == SL_MP_CONN_DOWN)
        return status;
    va_start(args, fmt);
    say_why_v(conn, fmt, args);
    va_end(args);
    conn->failing = true;
    conn->down_status = status;
    sl_mp_conn_activate(conn);
    return status;
}

int sl_mp_not_up(const struct sl_mp_conn *conn)
{
    if (conn->state < SL_MP_CONN_UP)
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet",
                       sl_ep_peer_name(&conn->base));
    return sl_fail(conn->down_status, "%s is gone: %s", sl_ep_peer_name(&conn->base), conn->why);
}

void sl_mp_conn_stop(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state != SL_MP_PATH_IDLE) {
            conn->paths[i]->failing = true;
            conn->paths[i]->lanes->stop(conn->paths[i]);
        }
}

/* The other end of a connection without paths learns why it ends, not only that the sideband did.
 * False: there is no need to, or no way. */
static bool say_why(struct sl_mp_conn *conn)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_BYE};

    if (conn->down_status != -EHOSTUNREACH || !conn->sideband_up || conn->left || conn->heard_bye)
        return false;
    sl_mp_control_why(&control, conn->why);
    sl_mp_control_send(conn, &control);
    for (unsigned i = 0; i < BYE_TRIES && conn->control_count > 0; i++)
        sl_mp_control_flush(conn);
    return true;
}

void sl_mp_conn_lost(struct sl_mp_conn *conn)
{
    struct sl_mp_iface *iface = conn->iface;
    bool was_up = conn->state == SL_MP_CONN_UP, said = false;

    sl_mp_conn_stop(conn);
    conn->frame_path = conn->fencing = NULL;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            conn->paths[i]->state = SL_MP_PATH_IDLE;
    if (was_up)
        said = say_why(conn);
    conn->state = SL_MP_CONN_DOWN;
    conn->failing = false;
    if (said)
        sl_mp_sideband_close_when_heard(conn);
    else
        sl_mp_sideband_close(conn);
    if (!was_up) {
        iface->connecting--;
        sl_fail_text(conn->down_status, conn->why);
        sl_req_end(conn->connect_req, conn->down_status);
        return;
    }
    if (iface->base.handler.down != NULL)
        iface->base.handler.down(iface->base.handler.arg, &conn->base, conn->down_status,
                                 conn->why);
    sl_mp_cancel(conn, conn->down_status);
}

/* ---- its peer leaves ---- */

/* The peer is gone. What it sent before it said so has arrived: its receives end well, all else
 * does not. */
void sl_mp_conn_leave(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state != SL_MP_PATH_IDLE)
            while (conn->paths[i]->lanes->poll(conn->paths[i]) > 0)
                ;
    if (conn->gpu_copies == 0 && sl_list_empty(&conn->gpu_waits) &&
        (conn->held + conn->kept == 0 || sl_mp_rx_waits(conn, NULL)))
        conn->failing = true;
}

/* Has the peer said farewell? Where many connections end, it often did so first, and nothing
 * acknowledges what is still on its way. Not from inside progress, which a handler may call this
 * from. */
static bool has_left(struct sl_mp_conn *conn)
{
    struct sl_iface *sideband = conn->iface->sideband;

    if (!conn->iface->in_progress)
        sideband->ops->progress(sideband, 64);
    return conn->left;
}

/* Is a frame of this end on its way, or to be repeated? */
static bool owes_frames(const struct sl_mp_conn *conn)
{
    const struct sl_mp_path *path = conn->frame_path;

    if (conn->fencing != NULL || !sl_list_empty(&conn->repeat))
        return true;
    return path != NULL && path->posted != path->retired &&
           (path->rail != NULL || sl_mp_fallback_sends(conn));
}

/* Frames tell of their end only now and then: one more that does, unless it is the last one. */
static void ask_for_end(struct sl_mp_conn *conn, const struct sl_mp_path **asked, uint32_t *posted)
{
    struct sl_mp_path *path = conn->frame_path;
    struct sl_mp_tx_frame *last;

    if (path == NULL || path->failing || !sl_list_empty(&conn->repeat) ||
        (path == *asked && path->posted == *posted))
        return;
    last = sl_mp_frame_new(conn, SL_MP_CREDIT, 0, 0);
    if (last == NULL)
        return;
    path->unsignalled = SL_MP_WINDOW;
    sl_mp_frame_post(conn, last, 0);
    *asked = path;
    *posted = path->posted;
}

static void poll_paths(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state == SL_MP_PATH_UP)
            conn->paths[i]->lanes->poll(conn->paths[i]);
    if (conn->fallback != NULL)
        sl_mp_fallback_push(conn);
}

/* A path that ends meanwhile is fenced as ever, and what it lost goes by another one. */
static void repair(struct sl_mp_conn *conn)
{
    sl_mp_inbox_run(conn);
    if (conn->has_failed)
        sl_mp_paths_end(conn);
    if (conn->control_count > 0)
        sl_mp_control_flush(conn);
    if (!conn->failing && !conn->left)
        sl_mp_conn_push(conn);
}

static bool peer_answers_itself(const struct sl_mp_conn *conn)
{
    return (conn->iface->base.caps & SL_CAP_TIMELY) != 0;
}

/* Time for the peer: its process may wait for this very processor. */
static void let_peer_run(unsigned polls)
{
    if (polls % LINGER_YIELD_EVERY == 0)
        sched_yield();
}

/* Frames are done for their sender when they are posted: before the queue pairs go, they must have
 * arrived. Receives that are posted keep their memory meanwhile: they are canceled only when no
 * peer can write there any more. A send that is not over means that the connection is given up. */
void sl_mp_conn_linger(struct sl_mp_conn *conn)
{
    const struct sl_clock *clock = conn->iface->base.worker->clock;
    const struct sl_mp_path *asked = NULL;
    bool is_timely = peer_answers_itself(conn);
    uint64_t since_ns = sl_now(clock), now_ns = since_ns;
    uint64_t limit_ns = is_timely ? LINGER_TIMELY_NS : LINGER_NS;
    uint32_t posted = 0;

    conn->lingers = true;
    if (conn->state != SL_MP_CONN_UP || !owes_frames(conn) || sl_mp_tx_busy(conn) || has_left(conn))
        return;
    for (unsigned i = 1; i <= LINGER_POLLS && owes_frames(conn) && !conn->failing && !conn->left &&
                         now_ns - since_ns < limit_ns;
         i++) {
        ask_for_end(conn, &asked, &posted);
        poll_paths(conn);
        now_ns = sl_now(clock);
        if (conn->iface->in_progress)
            continue; /* others' turns are not for here */
        repair(conn);
        if (is_timely)
            let_peer_run(i);
        else if (conn->fencing != NULL || !sl_list_empty(&conn->repeat))
            limit_ns = LINGER_REPAIR_NS;
        bool over_sideband = conn->frame_path != NULL && conn->frame_path->rail == NULL;

        if (i % LINGER_EVERY == 0 || over_sideband) { /* that has to move for it */
            if (has_left(conn))
                return;
            (void)sl_mp_repair_timers(conn, now_ns);
        }
    }
}
