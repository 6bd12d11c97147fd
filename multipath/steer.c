/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the path table. What it says of a path is kept in the path, where the choice of the best
 * one finds it (path.c): a message looks at no table. Frames leave a path that is to be avoided by
 * its fence, and it returns at once. A label is changed in the lane where that can be; where not,
 * the path is made anew by its fence, too, one after the other.
 */
#include "multipath/steer.h"

#include "core/state.h"
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"
#include "multipath/repair.h"

#define CONNS 32                     /* that a change is applied to at a time */
#define FADE_NS (100 * SL_NS_PER_MS) /* half of what was sent is forgotten */
#define ALONE_NS SL_NS_PER_S         /* the only path that is up waits so long for another one */
#define RETURN_NS SL_NS_PER_S        /* and the next for the return of one that is made anew */

static bool set(struct sl_mp_path *path, const struct sl_path_setting *setting)
{
    bool relabel = path->label != setting->label;
    bool changed = relabel || path->weight != setting->weight || path->is_avoided != setting->avoid;

    if (relabel && path->state != SL_MP_PATH_IDLE) {
        path->reroute = SL_MP_REROUTE;
        path->conn->rerouting = path->conn->iface->is_rerouting = true;
    }
    path->label = setting->label;
    path->weight = setting->weight;
    path->is_avoided = setting->avoid;
    path->conn->uneven |= sl_mp_path_is_uneven(path);
    if (sl_mp_path_is_uneven(path))
        sl_mp_paths_need(path->conn, "the path table says how much each carries");
    return changed;
}

static struct sl_path_setting setting_of(const struct sl_mp_path *path, unsigned number)
{
    const struct sl_path_watch *table = &path->conn->iface->table;

    return sl_path_rules_apply(table->rules, table->count, path->conn->base.peer, (int)number,
                               path->rail != NULL ? path->rail->name : NULL);
}

void sl_mp_steer_path(struct sl_mp_path *path)
{
    struct sl_path_setting setting = setting_of(path, path->idx);

    set(path, &setting);
}

void sl_mp_steer_routes(struct sl_mp_path *path)
{
    unsigned count = path->lanes->routes != NULL ? path->lanes->routes(path) : 0;

    for (unsigned i = 0; i < count; i++) {
        unsigned number = path->idx + (i + 1) * SL_STATE_PATH_ROUTE;
        struct sl_path_setting setting = setting_of(path, number);

        if (path->lanes->weigh_route(path, i, setting.weight, setting.avoid))
            sl_mp_event(path->conn->iface, SL_EVENT_PATH_SET, path->conn->base.peer, number,
                        setting.avoid ? 0 : setting.weight);
    }
}

/* Frames are handled in their order, so they leave a path only by its fence. */
static void frames_leave(struct sl_mp_conn *conn)
{
    struct sl_mp_path *path = conn->frame_path;

    if (path == NULL || path->rail == NULL || path->failing || !path->is_avoided ||
        sl_mp_path_resort(path) <= sl_mp_resort_in_use(conn))
        return;
    path->sound = true;
    sl_mp_failed(path, 0, "the path table says that it is to be avoided");
}

/* ---- labels ---- */

static bool is_whole(const struct sl_mp_path *path)
{
    return path->state == SL_MP_PATH_UP && !path->failing;
}

/* Is it its turn? One path of a connection at a time, and not the last one while it may get
 * company. */
static bool may_remake(const struct sl_mp_path *path, uint64_t now_ns)
{
    const struct sl_mp_conn *conn = path->conn;

    if (conn->state != SL_MP_CONN_UP ||
        (conn->remade != NULL && !is_whole(conn->remade) && now_ns < conn->remade_ns + RETURN_NS))
        return false;
    return conn->paths_up > 1 || conn->path_count == 1 || now_ns >= path->reroute_ns + ALONE_NS;
}

/* False: it goes by its label, or will as soon as it has a lane. */
static bool reroute(struct sl_mp_path *path, uint64_t now_ns)
{
    struct sl_mp_conn *conn = path->conn;

    if (path->reroute == SL_MP_ROUTED || path->state == SL_MP_PATH_IDLE ||
        path->state == SL_MP_PATH_FENCING)
        return false;
    if (!is_whole(path))
        return true;
    if (path->reroute == SL_MP_REROUTE) {
        if (path->lanes->route(path) == 0) {
            path->reroute = SL_MP_ROUTED;
            return false;
        }
        path->reroute = SL_MP_REMAKE;
        path->reroute_ns = now_ns;
    }
    if (!may_remake(path, now_ns))
        return true;
    conn->remade = path;
    conn->remade_ns = now_ns;
    path->sound = true;
    sl_mp_failed(path, 0, "the path table gives it another route");
    return true;
}

static void reroute_all(struct sl_mp_iface *iface, uint64_t now_ns)
{
    iface->is_rerouting = false;
    sl_list_foreach(&iface->conns, node)
    {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, link);
        bool waits = false;

        if (!conn->rerouting)
            continue;
        for (unsigned i = 0; i < conn->path_count; i++)
            waits |= conn->paths[i] != NULL && reroute(conn->paths[i], now_ns);
        conn->rerouting = waits;
        iface->is_rerouting |= waits;
    }
}

/* ---- when ---- */

static void apply(struct sl_mp_conn *conn)
{
    bool changed = false;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path == NULL)
            continue;
        struct sl_path_setting setting = setting_of(path, path->idx);

        sl_mp_steer_routes(path);
        if (!set(path, &setting))
            continue;
        changed = true;
        sl_mp_event(conn->iface, SL_EVENT_PATH_SET, conn->base.peer, path->idx,
                    path->is_avoided ? 0 : path->weight);
    }
    if (!changed)
        return;
    for (unsigned i = 0; i < conn->path_count; i++) /* shares begin anew */
        if (conn->paths[i] != NULL)
            conn->paths[i]->shared_from = conn->paths[i]->stats.sent_bytes;
    sl_mp_conn_activate(conn); /* what waits may go elsewhere now */
}

/* What a path had long ago gives it no right to more, nor to less, now. */
static void fade(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path != NULL)
            path->shared_from += (path->stats.sent_bytes - path->shared_from) / 2;
    }
}

static void apply_to_some(struct sl_mp_iface *iface)
{
    unsigned count = 0;

    sl_list_foreach(&iface->conns, node)
    {
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, link);

        if (conn->steered == iface->steered)
            continue;
        if (count++ == CONNS)
            return;
        conn->steered = iface->steered;
        apply(conn);
    }
    iface->is_steering = false;
}

void sl_mp_steer(struct sl_mp_iface *iface, uint64_t now_ns)
{
    if (sl_path_watch_poll(&iface->table, iface->base.worker->rank, now_ns)) {
        iface->steered++;
        iface->is_steering = true;
    }
    if (SL_UNLIKELY(iface->is_steering))
        apply_to_some(iface);
    if (SL_UNLIKELY(iface->is_rerouting))
        reroute_all(iface, now_ns);
    if (SL_LIKELY(iface->table.count == 0))
        return;
    sl_list_foreach(&iface->conns, node)
        frames_leave(sl_container_of(node, struct sl_mp_conn, link));
    if (now_ns - iface->faded_ns < FADE_NS)
        return;
    iface->faded_ns = now_ns;
    sl_list_foreach(&iface->conns, node) fade(sl_container_of(node, struct sl_mp_conn, link));
}
