/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/lazy.h"

#include "multipath/iface.h"
#include "multipath/repair.h"
#include "multipath/watch.h"

#include "core/log.h"

#define STANDBY_NS (100 * SL_NS_PER_MS) /* after the first path is up */

static const char *area_of(const struct sl_mp_conn *conn)
{
    return conn->iface->base.ops->name;
}

/* The end that leads has all of its paths, the other one those that were offered. */
static bool is_later(const struct sl_mp_path *path)
{
    return path != NULL && path->later;
}

/* ---- which one is first ---- */

static void make(struct sl_mp_path *path)
{
    struct sl_mp_conn *conn = path->conn;

    path->later = false;
    path->next_try_ns = 0;
    conn->later = false;
    for (unsigned i = 0; i < conn->path_count; i++)
        conn->later |= is_later(conn->paths[i]);
    sl_mp_conn_time(conn);
}

static bool may_carry(const struct sl_mp_path *path)
{
    return path->rail->usable && path->conn->peer.rails[path->remote_rail].usable;
}

/* Another number for each pair of ranks, so that the connections of a host spread over its rails.
 * Where ranks are not known, chance does the same. */
static uint64_t pair_number(const struct sl_mp_conn *conn)
{
    struct sl_rng rng;

    if (conn->name.rank == SL_MP_NO_RANK || conn->peer.rank == SL_MP_NO_RANK)
        return conn->nonce ^ conn->peer.nonce;
    sl_rng_init(&rng, (uint64_t)conn->name.rank << 32 | conn->peer.rank);
    return sl_rng_u64(&rng);
}

static bool is_far_there(const struct sl_mp_path *path)
{
    return (path->conn->peer.far >> path->remote_rail & 1) != 0;
}

/* NULL: none of them may carry. here, there: it has to be near this end, and the other. */
static struct sl_mp_path *first_of(const struct sl_mp_conn *conn, bool here, bool there)
{
    struct sl_mp_path *candidates[SL_MP_PATHS_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path->turn == 0 && may_carry(path) && !(here && path->rail->is_far) &&
            !(there && is_far_there(path)))
            candidates[count++] = path;
    }
    return count == 0 ? NULL : candidates[pair_number(conn) % count];
}

/* One that is near both ends; or one that is near this end, and one that is near the other. */
static void make_first(struct sl_mp_conn *conn)
{
    struct sl_mp_path *both = first_of(conn, true, true);
    struct sl_mp_path *here = both != NULL ? both : first_of(conn, true, false);
    struct sl_mp_path *there = both != NULL ? both : first_of(conn, false, true);

    if (here == NULL && there == NULL)
        here = first_of(conn, false, false);
    if (here == NULL && there == NULL)
        here = conn->paths[0];
    if (here != NULL)
        make(here);
    if (there != NULL && there != here)
        make(there);
}

static bool joins_as(const struct sl_mp_path *path, const struct sl_mp_path *other)
{
    return path->rail == other->rail && path->remote_rail == other->remote_rail;
}

/* With reserve each end sends by the first of its own rails, so that may be two paths. False: none
 * may carry. */
static bool find_first_rails(const struct sl_mp_conn *conn, const struct sl_mp_path **here,
                             const struct sl_mp_path **there)
{
    *here = *there = NULL;
    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (!may_carry(path))
            continue;
        if (*here == NULL || path->rail->idx < (*here)->rail->idx)
            *here = path;
        if (*there == NULL || path->remote_rail < (*there)->remote_rail)
            *there = path;
    }
    return *here != NULL;
}

static void needs_first_rails(struct sl_mp_conn *conn)
{
    const struct sl_mp_path *here, *there;

    if (!find_first_rails(conn, &here, &there))
        here = there = conn->paths[0];
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        path->later = !joins_as(path, here) && !joins_as(path, there);
        conn->later |= path->later;
    }
}

static void come_first(struct sl_mp_conn *conn)
{
    const struct sl_mp_path *here, *there;

    if (!find_first_rails(conn, &here, &there))
        return;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (is_later(conn->paths[i]) &&
            (joins_as(conn->paths[i], here) || joins_as(conn->paths[i], there)))
            make(conn->paths[i]);
}

void sl_mp_lazy_plan(struct sl_mp_conn *conn)
{
    const struct sl_mp_settings *settings = &conn->iface->settings;

    /* Who lists paths, or says how much each carries, means them all. */
    if (!settings->lazy || settings->listed || conn->peer.listed || conn->uneven ||
        conn->path_count < 2)
        return;
    if (settings->reserve) {
        needs_first_rails(conn);
        return;
    }
    for (unsigned i = 0; i < conn->path_count; i++)
        conn->paths[i]->later = true;
    make_first(conn);
}

static void come_near(struct sl_mp_conn *conn, bool here)
{
    struct sl_mp_path *best = NULL;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (here ? path->rail->is_far : is_far_there(path))
            continue;
        if (!path->later)
            return;
        if (best == NULL && may_carry(path))
            best = path;
    }
    if (best != NULL)
        make(best);
}

void sl_mp_lazy_come_near(struct sl_mp_conn *conn)
{
    if (!conn->leads)
        return;
    if (conn->iface->settings.reserve) {
        come_first(conn);
        return;
    }
    come_near(conn, true);
    come_near(conn, false);
}

/* ---- more ---- */

/* What is far from both ends carries nothing while others do. */
static void spread(struct sl_mp_conn *conn)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_PATHS,
                                    .paths = {.now = SL_MP_PATHS_SPREAD}};

    if (!conn->leads && !sl_mp_control_room(conn))
        return; /* the next piece does it */
    conn->has_spread = true;
    sl_debug(area_of(conn), "paths to %s are %s: there is much to send",
             sl_ep_peer_name(&conn->base), conn->leads ? "made" : "asked for");
    if (!conn->leads)
        sl_mp_control_send(conn, &control);
    for (unsigned i = 0; i < conn->path_count && conn->leads; i++)
        if (is_later(conn->paths[i]) &&
            !(conn->paths[i]->rail->is_far && is_far_there(conn->paths[i])))
            make(conn->paths[i]);
}

void sl_mp_paths_spread(struct sl_mp_conn *conn)
{
    /* With reserve the others carry nothing while the first does. */
    if (SL_UNLIKELY(conn->later) && !conn->has_spread && !conn->iface->settings.reserve)
        spread(conn);
}

void sl_mp_lazy_end(struct sl_mp_conn *conn, const char *why)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_PATHS, .paths = {.now = SL_MP_PATHS_ALL}};

    if (conn->leads) {
        sl_debug(area_of(conn), "all paths to %s are made: %s", sl_ep_peer_name(&conn->base), why);
        for (unsigned i = 0; i < conn->path_count; i++)
            if (is_later(conn->paths[i]))
                make(conn->paths[i]);
    } else if (sl_mp_control_room(conn)) { /* else the next occasion does it */
        conn->later = false;
        sl_debug(area_of(conn), "all paths to %s are asked for: %s", sl_ep_peer_name(&conn->base),
                 why);
        sl_mp_control_send(conn, &control);
    }
}

/* ---- a second one ---- */

/* Away from the rails of the first; NULL: there is no other. */
static struct sl_mp_path *beside(const struct sl_mp_conn *conn, const struct sl_mp_path *first)
{
    struct sl_mp_path *best = NULL;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (!is_later(path) || path->rail == first->rail || !may_carry(path))
            continue;
        if (path->remote_rail != first->remote_rail)
            return path;
        if (best == NULL)
            best = path;
    }
    return best;
}

/* Should a cable that the sideband needs as well fail, there is no other way to agree on a path. */
static void stand_by(struct sl_mp_conn *conn, const struct sl_mp_path *first, uint64_t now_ns)
{
    struct sl_mp_path *second;

    if (conn->has_standby || !conn->iface->settings.standby ||
        conn->fseq_out + conn->fseq_in == 0 || now_ns - first->up_ns < STANDBY_NS)
        return;
    conn->has_standby = true;
    second = beside(conn, first);
    if (second != NULL)
        make(second);
}

void sl_mp_lazy_watch(struct sl_mp_conn *conn, uint64_t now_ns)
{
    struct sl_mp_path *path = NULL;

    for (unsigned i = 0; i < conn->path_count && path == NULL; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state == SL_MP_PATH_UP)
            path = conn->paths[i];
    if (path == NULL || path->failing)
        return;
    if (conn->leads)
        stand_by(conn, path, now_ns);
    if (sl_mp_watch_waits(path, now_ns))
        sl_mp_paths_need(conn, "nothing comes back by the one that there is");
}
