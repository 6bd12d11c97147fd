/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a path goes down, and what it carried is saved: exactly once, and never twice into memory.
 *
 * The way of an error, from the device to the user:
 *
 *   completion, event, deadline
 *        |  sl_mp_failed()                    lane.h: noted, with its text, in path->why
 *        v
 *   sl_mp_run() -> sl_mp_path_end()           the next progress: the lane stops, DOWN(arrived) goes
 *        |                                    to the peer, the path is FENCING
 *        v
 *   sl_mp_on_down() -> fenced()               both ends have stopped: what the peer did not have
 *        |                                    goes by other paths; the path is IDLE and returns
 *        |  no path is left
 *        v
 *   wait_timers() -> sl_mp_conn_fail()        repair.c: not for longer than path_wait_ms, with the
 *        |                                    why of each path
 *        v
 *   sl_mp_run() -> sl_mp_conn_lost()          conn.c: handler.down(status, why), then every request
 *        |                                    ends with that status
 *        v
 *   collectives/health.c -> report.c -> the user
 *
 * Two of these steps are by themselves: a path that fails while others carry ends at fenced(), and
 * the user hears nothing but a line in the log.
 */
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"
#include "multipath/repair.h"
#include "multipath/sideband.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define SLOW_PART 4 /* frames do not begin on a path of less than that part of the fastest */

static uint64_t now(const struct sl_mp_conn *conn)
{
    return sl_now(conn->iface->base.worker->clock);
}

static const char *area_of(const struct sl_mp_conn *conn)
{
    return conn->iface->base.ops->name;
}

static void down_send(const struct sl_mp_path *path)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_DOWN,
                                    .path = path->idx,
                                    .epoch = path->epoch,
                                    .flags = path->sound ? SL_MP_CONTROL_SOUND : 0};

    if (!path->rail->usable)
        control.flags |= SL_MP_CONTROL_RAIL;
    control.down.arrived = path->arrived;
    sl_mp_control_why(&control, path->why);
    sl_mp_control_send(path->conn, &control);
}

void sl_mp_refuse_send(struct sl_mp_conn *conn, const struct sl_mp_path *path, const char *why)
{
    struct sl_mp_control control = {
        .kind = SL_MP_CONTROL_REFUSE, .path = path->idx, .epoch = path->epoch};

    sl_mp_control_why(&control, why);
    sl_mp_control_send(conn, &control);
}

static bool takes_frames(const struct sl_mp_path *path, unsigned rail, unsigned resort)
{
    return path != NULL && path->state == SL_MP_PATH_UP && !path->failing &&
           (rail == SL_MP_RAILS_ALL || path->rail->idx == rail) &&
           sl_mp_path_resort(path) <= resort;
}

void sl_mp_choose_frame_path(struct sl_mp_conn *conn)
{
    struct sl_mp_path *best = NULL;
    unsigned rail = sl_mp_rail_in_use(conn);
    unsigned resort = sl_mp_resort_in_use(conn);

    if (conn->frame_path != NULL || conn->fencing != NULL || sl_mp_fallback_holds(conn))
        return;
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (takes_frames(path, rail, resort) &&
            (best == NULL || path->latency_ns < best->latency_ns))
            best = path;
    }
    conn->frame_path = best != NULL ? best : sl_mp_fallback_path(conn);
}

void sl_mp_frames_begin(struct sl_mp_conn *conn)
{
    struct sl_mp_path *good[SL_MP_PATHS_MAX];
    unsigned rail = sl_mp_rail_in_use(conn), resort = sl_mp_resort_in_use(conn);
    unsigned found = 0, count = 0;
    uint64_t least_ps = UINT64_MAX;

    if (conn->fseq_out != 0 || conn->frame_path == NULL || conn->frame_path->rail == NULL)
        return;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (takes_frames(conn->paths[i], rail, resort)) {
            good[found++] = conn->paths[i];
            if (conn->paths[i]->nominal_ps < least_ps)
                least_ps = conn->paths[i]->nominal_ps;
        }
    for (unsigned i = 0; i < found; i++)
        if (good[i]->nominal_ps / SLOW_PART <= least_ps)
            good[count++] = good[i];
    if (count > 0)
        conn->frame_path = good[conn->iface->base.worker->local_idx % count];
}

void sl_mp_failed(struct sl_mp_path *path, unsigned code, const char *fmt, ...)
{
    va_list args;

    if (path->failing || path->state == SL_MP_PATH_IDLE || path->state == SL_MP_PATH_FENCING)
        return;
    va_start(args, fmt);
    vsnprintf(path->why, sizeof(path->why), fmt, args);
    va_end(args);
    path->code = (uint16_t)code;
    path->failing = true;
    path->conn->iface->has_failed = path->conn->has_failed = true;
    sl_mp_conn_activate(path->conn);
}

/* Stops the path and tells the other end; true: it was up, so what it carried is
 * salvaged once the other end has said what it had. */
static bool stop(struct sl_mp_path *path)
{
    struct sl_mp_conn *conn = path->conn;
    bool was_up = path->state == SL_MP_PATH_UP;

    path->failing = true; /* nothing goes by it any more, and it comes up no more */
    path->lanes->stop(path);
    if (was_up) {
        sl_mp_controls_stranded(path);
        path->stats.failures++;
        conn->paths_up--;
        if (conn->frame_path == path) {
            conn->frame_path = NULL;
            conn->fencing = path;
        }
        SL_PROBE3(path_down, conn->base.peer, path->idx, path->code);
        sl_mp_event(conn->iface, SL_EVENT_PATH_DOWN, conn->base.peer, path->idx, path->code);
        sl_log(path->sound || sl_mp_peer_leaves(conn) ? SL_LOG_INFO : SL_LOG_WARN, area_of(conn),
               "path %u to %s is %s: %s; %u of %u left", path->idx, sl_ep_peer_name(&conn->base),
               path->sound ? "set aside" : "down", path->why, conn->paths_up,
               sl_mp_paths_all(conn));
    }
    down_send(path);
    if (!path->sound)
        sl_mp_paths_need(conn, "one has failed");
    return was_up;
}

/* The connection waits, unless a path is left. */
static void wait_without_path(struct sl_mp_conn *conn)
{
    if (conn->paths_up != 0 || conn->no_path_since_ns != 0)
        return;
    conn->no_path_since_ns = now(conn);
    sl_mp_repair_soon(conn); /* bad ones are better than none */
    sl_mp_conn_time(conn);
    sl_mp_event(conn->iface, SL_EVENT_CONN_WAITS, conn->base.peer, sl_mp_paths_all(conn), 0);
}

/* Both ends have stopped and said what they had. */
static void fenced(struct sl_mp_path *path, uint32_t arrived)
{
    struct sl_mp_conn *conn = path->conn;

    sl_mp_event(conn->iface, SL_EVENT_PATH_FENCED, conn->base.peer, path->idx, arrived);
    /* Its device acknowledged what it has not shown to the other end: nobody has those bytes any
     * more. */
    if ((int32_t)(path->carried - arrived) > 0)
        sl_mp_conn_fail(conn, -EHOSTUNREACH,
                        "a device of %s failed with %u messages in it that it had "
                        "acknowledged",
                        sl_ep_peer_name(&conn->base), path->carried - arrived);
    sl_mp_path_salvage(path, arrived);
    if (conn->fencing == path)
        conn->fencing = NULL;
    sl_mp_path_rest(path);
    sl_mp_choose_frame_path(conn);
    wait_without_path(conn);
    sl_mp_conn_activate(conn);
}

void sl_mp_path_end(struct sl_mp_path *path)
{
    if (!path->failing)
        return;
    if (path->state == SL_MP_PATH_IDLE || path->state == SL_MP_PATH_FENCING) {
        path->failing = false;
        return;
    }
    if (!stop(path)) {
        sl_mp_path_salvage(path, path->posted); /* pings */
        sl_mp_path_rest(path);
        return;
    }
    path->failing = false;
    sl_mp_path_enter(path, SL_MP_PATH_FENCING);
    wait_without_path(path->conn);
}

int sl_mp_paths_end(struct sl_mp_conn *conn)
{
    int ended = 0;

    conn->has_failed = false; /* the end of one may show that another has */
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->failing) {
            sl_mp_path_end(conn->paths[i]);
            ended++;
        }
    return ended;
}

void sl_mp_on_down(struct sl_mp_path *path, const struct sl_mp_control *control)
{
    if (path->state == SL_MP_PATH_IDLE)
        return;
    /* Then what failed here, too, is most likely that the other end had stopped. */
    path->sound |= (control->flags & SL_MP_CONTROL_SOUND) != 0;
    path->excused |= (control->flags & SL_MP_CONTROL_RAIL) != 0;
    if (path->state == SL_MP_PATH_FENCING) {
        fenced(path, control->down.arrived);
        return;
    }
    if (!path->failing)
        snprintf(path->why, sizeof(path->why), "ended by the peer: %s", control->down.why);
    if (stop(path)) {
        fenced(path, control->down.arrived);
        return;
    }
    sl_mp_path_salvage(path, path->posted);
    sl_mp_path_rest(path);
}
