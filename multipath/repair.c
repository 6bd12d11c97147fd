/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How paths come, go and return: what the two ends tell each other over the sideband.
 *
 *   leading end                       other end
 *   IDLE ── OFFER(epoch) ──────────►  IDLE
 *   OFFERED ◄───────────── ACCEPT ──  ACCEPTED      (or REFUSE)
 *   PINGING ══ ping on the path ═══►  ACCEPTED
 *   PINGING ◄══════════════ ping ═══  PINGING
 *   PINGING ◄═ second ping ════════►  PINGING       each once its first is acknowledged
 *   UP                                UP            each once the other's second has come, too
 *
 *   UP ─ fails ─ stops ── DOWN(epoch, arrived) ──►  stops
 *   FENCING ◄──────────── DOWN(epoch, arrived) ───  repeats what we did not have, by other paths
 *   IDLE    repeats what the other end did not have
 *
 * The sideband keeps the order of control messages, so an OFFER never overtakes the DOWN before it.
 */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"

#include "core/log.h"
#include "verbs/plan.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_NS (5 * SL_NS_PER_S)    /* for the other end's part of making a path */
#define BESIDE_NS (100 * SL_NS_PER_MS) /* and for each connection that is made at the same time */
#define BACKOFF_NS_MIN (50 * SL_NS_PER_MS)
#define BACKOFF_NS_MAX (2 * SL_NS_PER_S)
#define STEADY_NS (5 * SL_NS_PER_S)      /* up for so long: the next failure is a first one again */
#define FALLBACK_NS (300 * SL_NS_PER_MS) /* without a path, before data goes over the sideband */
#define ALIVE_NS SL_NS_PER_S             /* between pings by each path, without a sideband */
#define SETTLE_NS (200 * SL_NS_PER_MS)   /* for the other paths, once one is up */

static uint64_t now(const struct sl_mp_conn *conn)
{
    return sl_now(conn->iface->base.worker->clock);
}

static uint64_t answer_deadline(const struct sl_mp_conn *conn)
{
    return now(conn) + ANSWER_NS + conn->iface->connecting * BESIDE_NS;
}

/* ---- control messages ---- */

static bool wants_tcp(const struct sl_mp_conn *conn)
{
    return strcmp(conn->iface->config->verbs_fallback, "tcp") == 0;
}

void sl_mp_hello_send(struct sl_mp_conn *conn)
{
    const struct sl_verbs_iface *iface = conn->iface;
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_HELLO};

    if (conn->state == SL_MP_CONN_NEW || conn->state == SL_MP_CONN_DOWN)
        return;
    /* One at a time is under way: a port that flaps must not fill the queue with its news. */
    conn->hello_due = conn->has_hello && (int32_t)(conn->control_handled - conn->hello_seq) <= 0;
    if (conn->hello_due)
        return;
    conn->hello_seq = conn->control_out;
    control.hello = (struct sl_mp_hello){.version = SL_MP_VERSION,
                                         .eager_bytes = iface->eager_bytes,
                                         .nonce = conn->nonce,
                                         .rail_count = iface->rail_count,
                                         .fallback = wants_tcp(conn)};
    for (unsigned i = 0; i < iface->rail_count; i++)
        sl_verbs_rail_info(&iface->rails[i], &control.hello.rails[i]);
    sl_mp_control_send(conn, &control);
}

static void down_send(struct sl_mp_conn *conn, uint8_t kind, uint8_t idx, uint16_t epoch,
                      uint32_t arrived, const char *why)
{
    struct sl_mp_control control = {.kind = kind, .path = idx, .epoch = epoch};

    control.down.arrived = arrived;
    snprintf(control.down.why, sizeof(control.down.why), "%s", why);
    sl_mp_control_send(conn, &control);
}

static void offer_send(struct sl_mp_path *path, uint8_t kind)
{
    struct sl_mp_control control = {.kind = kind, .path = path->idx, .epoch = path->epoch};

    control.offer = (struct sl_mp_offer){.local_rail = (uint8_t)path->rail->idx,
                                         .remote_rail = path->remote_rail,
                                         .lag_port = path->lag_port,
                                         .paths = (uint8_t)path->conn->path_count,
                                         .qpn = path->qp->qp_num,
                                         .psn = path->psn,
                                         .flow_label = path->flow_label};
    sl_verbs_rail_info(path->rail, &control.offer.rail);
    memcpy(control.offer.rail.gid, &path->gid.gid, sizeof(control.offer.rail.gid));
    control.offer.rail.gid_type = path->gid.type;
    sl_mp_control_send(path->conn, &control);
}

/* ---- a path's way up ---- */

/* Most states wait for a time. */
static void enter(struct sl_mp_path *path, enum sl_mp_path_state state)
{
    path->state = (uint8_t)state;
    sl_mp_conn_time(path->conn);
}

/* Idle again; the leading end tries later, ever later while it keeps failing. */
static void rest(struct sl_mp_path *path)
{
    enter(path, SL_MP_PATH_IDLE);
    path->tried = true;
    path->failing = false;
    sl_verbs_path_unmake(path);
    if (path->backoff_ns < BACKOFF_NS_MIN)
        path->backoff_ns = BACKOFF_NS_MIN;
    path->next_try_ns = now(path->conn) + path->backoff_ns;
    path->backoff_ns =
        path->backoff_ns * 2 < BACKOFF_NS_MAX ? path->backoff_ns * 2 : BACKOFF_NS_MAX;
}

static void try_failed(struct sl_mp_path *path, const char *why)
{
    snprintf(path->why, sizeof(path->why), "%s", why);
    sl_debug("verbs", "path %u to %s is not to be had: %s", path->idx,
             sl_ep_peer_name(&path->conn->base), why);
    rest(path);
}

static void info_to_gid(const struct sl_verbs_rail_info *info, struct sl_verbs_gid *out)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

    *out = (struct sl_verbs_gid){.type = info->gid_type, .prefix_len = info->prefix_len};
    memcpy(&out->gid, info->gid, sizeof(info->gid));
    out->is_v4 = memcmp(info->gid, v4_prefix, sizeof(v4_prefix)) == 0;
    out->is_link_local = (info->gid[0] == 0xfe && (info->gid[1] & 0xc0) == 0x80) ||
                         (out->is_v4 && info->gid[12] == 169 && info->gid[13] == 254);
}

/* Queue pair and GID of this end, for the peer's rail. */
static int prepare(struct sl_mp_path *path, const struct sl_verbs_rail_info *remote)
{
    struct sl_verbs_gid gid;
    int err;

    if (remote->link_layer != path->rail->port.link_layer)
        return sl_fail(-EHOSTUNREACH, "%s and the peer's rail %u are of different link layers",
                       path->rail->port.name, path->remote_rail);
    info_to_gid(remote, &gid);
    err = sl_verbs_gid_choose_for(path->conn->iface->config, &path->rail->port, &gid, &path->gid);
    return err != 0 ? err : sl_verbs_path_make(path);
}

static void offer(struct sl_mp_path *path)
{
    const struct sl_verbs_rail_info *remote = &path->conn->peer.rails[path->remote_rail];

    if (!path->rail->usable || !remote->usable) {
        /* Whoever's rail returns says so, and sl_mp_repair_soon() follows. */
        if (!path->rail->usable)
            snprintf(path->why, sizeof(path->why), "%s", path->rail->why);
        else
            snprintf(path->why, sizeof(path->why), "the peer's rail %u is not usable",
                     path->remote_rail);
        path->tried = true;
        path->next_try_ns = now(path->conn) + BACKOFF_NS_MAX;
        return;
    }
    path->epoch++;
    if (prepare(path, remote) != 0) {
        try_failed(path, sluice_last_error());
        return;
    }
    enter(path, SL_MP_PATH_OFFERED);
    path->deadline_ns = answer_deadline(path->conn);
    offer_send(path, SL_MP_CONTROL_OFFER);
}

static void on_offer(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    struct sl_mp_path *path = conn->paths[control->path];
    const struct sl_mp_offer *theirs = &control->offer;
    char why[SL_MP_WHY] = "";

    if (conn->leads || theirs->remote_rail >= conn->iface->rail_count) {
        sl_mp_conn_fail(conn, -EPROTO, "%s offers a path by a rail that we do not have",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    if (path == NULL && sl_mp_path_add(conn, control->path, &path) != 0) {
        sl_mp_conn_fail(conn, -ENOMEM, "%s", sluice_last_error());
        return;
    }
    if (path->state != SL_MP_PATH_IDLE) { /* the leading end never does that */
        sl_mp_conn_fail(conn, -EPROTO, "%s offers path %u, which is in use",
                        sl_ep_peer_name(&conn->base), control->path);
        return;
    }
    conn->paths_expected = theirs->paths;
    path->epoch = control->epoch;
    path->rail = &conn->iface->rails[theirs->remote_rail];
    path->remote_rail = theirs->local_rail;
    path->flow_label = theirs->flow_label;
    path->lag_port = theirs->lag_port;
    if (!path->rail->usable)
        snprintf(why, sizeof(why), "%s: %s", path->rail->port.name, path->rail->why);
    else if (prepare(path, &theirs->rail) != 0 || sl_verbs_path_connect(path, theirs) != 0)
        snprintf(why, sizeof(why), "%s", sluice_last_error());
    if (why[0] != '\0') {
        try_failed(path, why);
        down_send(conn, SL_MP_CONTROL_REFUSE, path->idx, path->epoch, 0, why);
        return;
    }
    enter(path, SL_MP_PATH_ACCEPTED);
    path->deadline_ns = answer_deadline(conn);
    offer_send(path, SL_MP_CONTROL_ACCEPT);
}

static void on_accept(struct sl_mp_path *path, const struct sl_mp_offer *theirs)
{
    if (path->state != SL_MP_PATH_OFFERED)
        return;
    if (sl_verbs_path_connect(path, theirs) != 0) {
        sl_mp_path_fail(path, "%s", sluice_last_error());
        return;
    }
    enter(path, SL_MP_PATH_PINGING);
    sl_mp_path_ping(path);
}

static void path_up(struct sl_mp_path *path)
{
    struct sl_mp_conn *conn = path->conn;

    enter(path, SL_MP_PATH_UP);
    path->tried = true;
    path->deadline_ns = now(conn) + STEADY_NS;
    path->stats.ups++;
    conn->paths_up++;
    conn->no_path_since_ns = 0;
    SL_PROBE3(path_up, conn->base.peer, path->idx, path->epoch);
    sl_mp_event(conn->iface, SL_EVENT_PATH_UP, conn->base.peer, path->idx, path->epoch);
    sl_info("verbs", "path %u to %s is up: %s to the peer's rail %u", path->idx,
            sl_ep_peer_name(&conn->base), path->rail->port.name, path->remote_rail);
    sl_mp_fallback_end(conn);
    sl_mp_choose_frame_path(conn);
    sl_mp_conn_activate(conn);
}

/* Until it is up at both ends only pings go by a path, so its counters tell how far they are. */
void sl_mp_path_pinged(struct sl_mp_path *path)
{
    if (path->failing)
        return;
    if (path->state == SL_MP_PATH_ACCEPTED) {
        enter(path, SL_MP_PATH_PINGING);
        sl_mp_path_ping(path);
    }
    if (path->state != SL_MP_PATH_PINGING || path->retired == 0)
        return;
    if (path->posted == 1)
        sl_mp_path_ping(path);
    if (path->arrived >= 2)
        path_up(path);
}

/* ---- and down ---- */

void sl_mp_choose_frame_path(struct sl_mp_conn *conn)
{
    struct sl_mp_path *best = NULL;
    unsigned rail = sl_mp_rail_in_use(conn);

    if (conn->frame_path != NULL || conn->fencing != NULL || sl_mp_fallback_has_work(conn))
        return;
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path != NULL && path->state == SL_MP_PATH_UP && !path->failing &&
            (rail == SL_MP_RAILS_ALL || path->rail->idx == rail) &&
            (best == NULL || path->latency_ns < best->latency_ns))
            best = path;
    }
    conn->frame_path = best != NULL ? best : sl_mp_fallback_path(conn);
}

void sl_mp_path_fail(struct sl_mp_path *path, const char *fmt, ...)
{
    va_list args;

    if (path->failing || path->state == SL_MP_PATH_IDLE || path->state == SL_MP_PATH_FENCING)
        return;
    va_start(args, fmt);
    vsnprintf(path->why, sizeof(path->why), fmt, args);
    va_end(args);
    path->failing = true;
    sl_mp_conn_activate(path->conn);
}

/* Stops the path and tells the other end; true: it was up, so what it carried must be looked
 * after. */
static bool stop(struct sl_mp_path *path)
{
    struct sl_mp_conn *conn = path->conn;

    bool was_up = path->state == SL_MP_PATH_UP;

    sl_verbs_path_stop(path);
    if (was_up) {
        sl_mp_controls_stranded(path);
        path->stats.failures++;
        conn->paths_up--;
        if (conn->frame_path == path) {
            conn->frame_path = NULL;
            conn->fencing = path;
        }
        if (now(conn) > path->deadline_ns)
            path->backoff_ns = 0;
        SL_PROBE3(path_down, conn->base.peer, path->idx, path->wc_status);
        sl_mp_event(conn->iface, SL_EVENT_PATH_DOWN, conn->base.peer, path->idx, path->wc_status);
        sl_warn("verbs", "path %u to %s is down: %s; %u of %u left", path->idx,
                sl_ep_peer_name(&conn->base), path->why, conn->paths_up, conn->path_count);
    }
    down_send(conn, SL_MP_CONTROL_DOWN, path->idx, path->epoch, path->arrived, path->why);
    return was_up;
}

/* The connection waits, unless a path is left. */
static void wait_without_path(struct sl_mp_conn *conn)
{
    if (conn->paths_up != 0 || conn->no_path_since_ns != 0)
        return;
    conn->no_path_since_ns = now(conn);
    sl_mp_conn_time(conn);
    sl_mp_event(conn->iface, SL_EVENT_CONN_WAITS, conn->base.peer, conn->path_count, 0);
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
    rest(path);
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
        rest(path);
        return;
    }
    path->failing = false;
    enter(path, SL_MP_PATH_FENCING);
    wait_without_path(path->conn);
}

static void on_down(struct sl_mp_path *path, const struct sl_mp_control *control)
{
    if (path->state == SL_MP_PATH_FENCING) {
        fenced(path, control->down.arrived);
        return;
    }
    if (path->state == SL_MP_PATH_IDLE)
        return;
    if (!path->failing)
        snprintf(path->why, sizeof(path->why), "ended by the peer: %.70s", control->down.why);
    if (stop(path)) {
        fenced(path, control->down.arrived);
        return;
    }
    sl_mp_path_salvage(path, path->posted);
    rest(path);
}

/* ---- what the peer says ---- */

static int paths_plan(struct sl_mp_conn *conn)
{
    const struct sl_verbs_iface *iface = conn->iface;
    struct sl_verbs_path_spec specs[SL_MP_PATHS_MAX];
    struct sl_verbs_plan_ends ends = {.local_rails = iface->rail_count,
                                      .remote_rails = conn->peer.rail_count};
    size_t count;
    int err;

    for (unsigned i = 0; i < iface->rail_count; i++)
        ends.lag_ports[i] = iface->rails[i].lag_ports;
    err = sl_verbs_plan(iface->config, &ends, conn->nonce ^ conn->peer.nonce, specs,
                        SL_MP_PATHS_MAX, &count);

    for (size_t i = 0; i < count && err == 0; i++) {
        struct sl_mp_path *path;

        err = sl_mp_path_add(conn, (unsigned)i, &path);
        if (err != 0)
            break;
        path->leads = true;
        path->rail = &conn->iface->rails[specs[i].local_rail];
        path->remote_rail = specs[i].remote_rail;
        path->flow_label = specs[i].flow_label;
        path->lag_port = specs[i].lag_port;
    }
    return err;
}

static void on_hello(struct sl_mp_conn *conn, const struct sl_mp_hello *hello)
{
    bool first = !conn->has_hello;
    int err = 0;

    conn->peer = *hello;
    conn->has_hello = true;
    if (!first) {
        sl_mp_repair_soon(conn);
        return;
    }
    conn->eager_bytes = conn->iface->eager_bytes < hello->eager_bytes ? conn->iface->eager_bytes
                                                                      : hello->eager_bytes;
    if (conn->nonce == hello->nonce)
        err = sl_fail(-EPROTO, "%s speaks with our own voice: it repeats our number",
                      sl_ep_peer_name(&conn->base));
    conn->leads = conn->nonce > hello->nonce;
    if (err == 0 && conn->leads)
        err = paths_plan(conn);
    if (err == 0 && wants_tcp(conn) && hello->fallback != 0)
        err = sl_mp_fallback_open(conn);
    if (err != 0)
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
}

void sl_mp_on_control(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    struct sl_mp_path *path;

    if (control->kind == SL_MP_CONTROL_HELLO) {
        on_hello(conn, &control->hello);
        return;
    }
    if (control->kind == SL_MP_CONTROL_BYE) {
        sl_mp_conn_fail(conn, -EHOSTUNREACH, "%s found no path: %s", sl_ep_peer_name(&conn->base),
                        control->down.why);
        return;
    }
    if (control->path >= SL_MP_PATHS_MAX || !conn->has_hello) {
        sl_mp_conn_fail(conn, -EPROTO, "%s speaks of path %u, which there cannot be",
                        sl_ep_peer_name(&conn->base), control->path);
        return;
    }
    if (control->kind == SL_MP_CONTROL_OFFER) {
        on_offer(conn, control);
        return;
    }
    if (control->kind == SL_MP_CONTROL_SIDEBAND_DONE) {
        sl_mp_fallback_ended(conn);
        return;
    }
    path = conn->paths[control->path];
    if (path == NULL || path->epoch != control->epoch)
        return; /* of an epoch that is over here */
    if (control->kind == SL_MP_CONTROL_ACCEPT) {
        on_accept(path, &control->offer);
    } else if (control->kind == SL_MP_CONTROL_DOWN) {
        on_down(path, control);
    } else if (path->state == SL_MP_PATH_OFFERED) {
        char why[SL_MP_WHY];

        snprintf(why, sizeof(why), "refused: %.80s", control->down.why);
        try_failed(path, why);
    }
}

/* ---- time ---- */

void sl_mp_repair_soon(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state == SL_MP_PATH_IDLE) {
            conn->paths[i]->next_try_ns = 0;
            conn->paths[i]->backoff_ns = 0;
            sl_mp_conn_time(conn);
        }
}

/* "mlx5_0:1: transport retry counter exceeded; mlx5_1:1: port is down" */
static void reasons(const struct sl_mp_conn *conn, char *out, size_t cap)
{
    size_t used = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < conn->path_count && used < cap; i++)
        if (conn->paths[i] != NULL)
            used += (size_t)snprintf(out + used, cap - used, "%s%s: %s", used > 0 ? "; " : "",
                                     conn->paths[i]->rail == NULL ? "?"
                                                                  : conn->paths[i]->rail->port.name,
                                     conn->paths[i]->why);
}

static void connect_timers(struct sl_mp_conn *conn, uint64_t now_ns)
{
    unsigned tried = 0;
    char why[200];

    for (unsigned i = 0; i < conn->path_count; i++)
        tried += conn->paths[i] != NULL && conn->paths[i]->tried;
    if (conn->paths_up > 0 && conn->settle_ns == 0)
        conn->settle_ns = now_ns + SETTLE_NS;
    bool settled = conn->leads ? tried == conn->path_count : tried >= conn->paths_expected;

    if (conn->paths_up > 0 && (settled || now_ns >= conn->settle_ns)) {
        conn->state = SL_MP_CONN_UP;
        conn->iface->connecting--;
        sl_req_end(conn->connect_req, 0);
        return;
    }
    reasons(conn, why, sizeof(why));
    if (conn->leads && conn->path_count > 0 && tried == conn->path_count && conn->paths_up == 0)
        sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s: %s", sl_ep_peer_name(&conn->base),
                        why);
    else if (now_ns >= conn->connect_deadline_ns)
        sl_mp_conn_fail(
            conn, -ETIMEDOUT, "no path to %s within %lld ms%s%s", sl_ep_peer_name(&conn->base),
            (long long)conn->iface->config->connect_timeout_ms, why[0] != '\0' ? ": " : "", why);
}

static void path_timers(struct sl_mp_path *path, uint64_t now_ns)
{
    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE:
        if (path->leads && now_ns >= path->next_try_ns && path->conn->iface->makes > 0)
            offer(path);
        break;
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_PINGING:
    case SL_MP_PATH_ACCEPTED:
        if (now_ns >= path->deadline_ns)
            sl_mp_path_fail(path, "%s",
                            path->state == SL_MP_PATH_OFFERED
                                ? "the peer did not answer an offer"
                                : "the first packet did not come through");
        break;
    case SL_MP_PATH_UP:
    case SL_MP_PATH_FENCING: break;
    }
}

/* Where there is no sideband to tell of the peer's end, and nothing to send, only a ping finds out
 * that a path has died. */
static void keep_alive(struct sl_mp_conn *conn, uint64_t now_ns)
{
    conn->ping_at_ns = now_ns + ALIVE_NS;
    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        if (path == NULL || path->state != SL_MP_PATH_UP || path->failing ||
            !sl_mp_path_has_room(path))
            continue;
        if (path->posted == path->retired ||
            path->wrs[(path->posted - 1) % SL_MP_WINDOW].kind != SL_MP_WR_PING)
            sl_mp_path_ping(path);
    }
}

static uint64_t path_due(const struct sl_mp_path *path)
{
    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE: return path->leads ? path->next_try_ns : SL_NEVER;
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_ACCEPTED:
    case SL_MP_PATH_PINGING: return path->deadline_ns;
    case SL_MP_PATH_UP:
    case SL_MP_PATH_FENCING: break;
    }
    return SL_NEVER;
}

static uint64_t due(const struct sl_mp_conn *conn)
{
    uint64_t due_ns = conn->sideband_up ? SL_NEVER : conn->ping_at_ns;

    if (conn->state == SL_MP_CONN_CONNECTING || conn->no_path_since_ns != 0)
        return 0;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && path_due(conn->paths[i]) < due_ns)
            due_ns = path_due(conn->paths[i]);
    return due_ns;
}

/* The connection has no path: for how long? */
static void wait_timers(struct sl_mp_conn *conn, uint64_t now_ns)
{
    uint64_t wait_ns = (uint64_t)conn->iface->config->verbs_path_wait_ms * SL_NS_PER_MS;
    char why[200];

    if (now_ns - conn->no_path_since_ns >= FALLBACK_NS && conn->fencing == NULL)
        sl_mp_fallback_begin(conn);
    if (now_ns - conn->no_path_since_ns < wait_ns || sl_mp_fallback_path(conn) != NULL)
        return;
    reasons(conn, why, sizeof(why));
    sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s for %lld ms: %s",
                    sl_ep_peer_name(&conn->base),
                    (long long)conn->iface->config->verbs_path_wait_ms, why);
}

uint64_t sl_mp_repair_timers(struct sl_mp_conn *conn, uint64_t now_ns)
{
    if (conn->state != SL_MP_CONN_CONNECTING && conn->state != SL_MP_CONN_UP)
        return SL_NEVER;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            path_timers(conn->paths[i], now_ns);
    if (conn->state == SL_MP_CONN_CONNECTING)
        connect_timers(conn, now_ns);
    if (conn->state == SL_MP_CONN_UP && !conn->sideband_up && now_ns >= conn->ping_at_ns)
        keep_alive(conn, now_ns);
    if (conn->state == SL_MP_CONN_UP && conn->no_path_since_ns != 0)
        wait_timers(conn, now_ns);
    return due(conn);
}
