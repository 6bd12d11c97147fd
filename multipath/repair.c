/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How paths come, go and return: what the two ends tell each other over the sideband.
 *
 *   leading end                       other end
 *   IDLE ── OFFER(epoch) ──────────►  IDLE
 *   OFFERED ◄───────────── ACCEPT ──  ACCEPTED      (or REFUSE)
 *   PINGING ══ ping on the path ═══►  ACCEPTED
 *   PINGING ◄══════════════ ping ═══  PINGING
 *   PINGING ◄═ last ping ══════════►  PINGING       each once enough of its own are acknowledged
 *   UP                                UP            each once the other's last has come, too
 *
 *   UP ─ fails ─ stops ── DOWN(epoch, arrived) ──►  stops
 *   FENCING ◄──────────── DOWN(epoch, arrived) ───  repeats what we did not have, by other paths
 *   IDLE    repeats what the other end did not have
 *
 * The sideband keeps the order of control messages, so an OFFER never overtakes the DOWN before it.
 */
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "multipath/sideband.h"
#include "multipath/steer.h"
#include "multipath/trial.h"

#include "core/err.h"
#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_NS (5 * SL_NS_PER_S)      /* for the other end's part of making a path */
#define BESIDE_NS (100 * SL_NS_PER_MS)   /* and for each connection that is made at the same time */
#define FALLBACK_NS (300 * SL_NS_PER_MS) /* without a path, before data goes over the sideband */
#define REASONS_MORE 16                  /* bytes for "; and 63 more" */
#define ALIVE_NS SL_NS_PER_S             /* between pings by each path, without a sideband */

static uint64_t now(const struct sl_mp_conn *conn)
{
    return sl_now(conn->iface->base.worker->clock);
}

static const char *area_of(const struct sl_mp_conn *conn)
{
    return conn->iface->base.ops->name;
}

static uint64_t answer_deadline(const struct sl_mp_conn *conn)
{
    return now(conn) + ANSWER_NS + conn->iface->connecting * BESIDE_NS;
}

static void offer_send(struct sl_mp_path *path, uint8_t kind)
{
    struct sl_mp_control control = {.kind = kind, .path = path->idx, .epoch = path->epoch};

    control.offer = (struct sl_mp_offer){.local_rail = (uint8_t)path->rail->idx,
                                         .remote_rail = path->remote_rail,
                                         .turn = path->turn,
                                         .paths = (uint8_t)path->conn->path_count};
    if (path->conn->later)
        control.offer.paths |= SL_MP_OFFER_LATER;
    sl_mp_rail_describe(path->conn->iface, path->rail, &control.offer.rail);
    path->lanes->offer(path, &control.offer);
    sl_mp_control_send(path->conn, &control);
}

void sl_mp_path_enter(struct sl_mp_path *path, enum sl_mp_path_state state)
{
    path->state = (uint8_t)state;
    sl_mp_conn_time(path->conn);
}

void sl_mp_path_rest(struct sl_mp_path *path)
{
    uint64_t now_ns = now(path->conn);

    sl_mp_path_enter(path, SL_MP_PATH_IDLE);
    path->tried = true;
    path->failing = false;
    path->lanes->close(path);
    sl_mp_trial_over(path, now_ns);
    path->next_try_ns = path->sound ? 0 : now_ns + sl_mp_trial_rest_ns(path);
    path->sound = false;
}

/* ---- a path's way up ---- */

static void try_failed(struct sl_mp_path *path, const char *why)
{
    snprintf(path->why, sizeof(path->why), "%s", why);
    sl_debug(area_of(path->conn), "path %u to %s is not to be had: %s", path->idx,
             sl_ep_peer_name(&path->conn->base), why);
    sl_mp_path_rest(path);
    sl_mp_paths_need(path->conn, "one could not be made");
}

static void offer(struct sl_mp_path *path)
{
    const struct sl_mp_rail_info *remote = &path->conn->peer.rails[path->remote_rail];

    if (!path->rail->usable || !remote->usable) {
        /* Whoever's rail returns says so, and sl_mp_repair_soon() follows. */
        if (!path->rail->usable)
            snprintf(path->why, sizeof(path->why), "%s", path->rail->why);
        else
            snprintf(path->why, sizeof(path->why), "the peer's rail %u is not usable",
                     path->remote_rail);
        path->tried = true;
        path->next_try_ns = now(path->conn) + SL_MP_TRY_NS;
        sl_mp_paths_need(path->conn, path->why);
        return;
    }
    path->epoch++;
    sl_mp_path_reset(path);
    if (path->lanes->open(path, remote, NULL) != 0) {
        try_failed(path, sluice_last_error());
        return;
    }
    path->conn->uneven |= path->spare;
    sl_mp_path_enter(path, SL_MP_PATH_OFFERED);
    path->deadline_ns = answer_deadline(path->conn);
    offer_send(path, SL_MP_CONTROL_OFFER);
}

static struct sl_mp_path *path_at(const struct sl_mp_conn *conn, unsigned idx)
{
    return idx < conn->path_count ? conn->paths[idx] : NULL;
}

static void on_offer(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    struct sl_mp_path *path = path_at(conn, control->path);
    const struct sl_mp_offer *theirs = &control->offer;
    char why[SL_MP_PATH_WHY] = "";

    if (conn->leads || theirs->remote_rail >= conn->iface->rail_count ||
        theirs->local_rail >= conn->peer.rail_count) {
        sl_mp_conn_fail(conn, -EPROTO, "%s offers a path by a rail that there is not",
                        sl_ep_peer_name(&conn->base));
        return;
    }
    conn->paths_expected = theirs->paths & ~SL_MP_OFFER_LATER;
    conn->later = (theirs->paths & SL_MP_OFFER_LATER) != 0;
    if (path == NULL && sl_mp_path_add(conn, control->path, &path) != 0) {
        sl_mp_conn_fail(conn, -ENOMEM, "%s", sluice_last_error());
        return;
    }
    if (path->state != SL_MP_PATH_IDLE) { /* the leading end never does that */
        sl_mp_conn_fail(conn, -EPROTO, "%s offers path %u, which is in use",
                        sl_ep_peer_name(&conn->base), control->path);
        return;
    }
    path->epoch = control->epoch;
    path->rail = conn->iface->rails[theirs->remote_rail];
    path->remote_rail = theirs->local_rail;
    path->turn = theirs->turn;
    sl_mp_steer_path(path); /* it may be another rail than before, and there are rules of rails */
    sl_mp_path_reset(path);
    if (!path->rail->usable)
        snprintf(why, sizeof(why), "%s: %s", path->rail->name, path->rail->why);
    else if (path->lanes->open(path, &theirs->rail, theirs) != 0 ||
             path->lanes->connect(path, theirs) != 0)
        snprintf(why, sizeof(why), "%s", sluice_last_error());
    if (why[0] != '\0') {
        try_failed(path, why);
        sl_mp_refuse_send(conn, path, why);
        return;
    }
    sl_mp_path_size_pieces(path);
    conn->uneven |= path->spare;
    sl_mp_path_enter(path, SL_MP_PATH_ACCEPTED);
    path->deadline_ns = answer_deadline(conn);
    offer_send(path, SL_MP_CONTROL_ACCEPT);
}

static void on_accept(struct sl_mp_path *path, const struct sl_mp_offer *theirs)
{
    if (path->state != SL_MP_PATH_OFFERED)
        return;
    if (path->lanes->connect(path, theirs) != 0) {
        sl_mp_failed(path, 0, "%s", sluice_last_error());
        return;
    }
    sl_mp_path_size_pieces(path);
    sl_mp_path_enter(path, SL_MP_PATH_PINGING);
    sl_mp_path_ping(path, false);
}

static void path_up(struct sl_mp_path *path)
{
    struct sl_mp_conn *conn = path->conn;

    sl_mp_path_enter(path, SL_MP_PATH_UP);
    path->tried = true;
    path->up_ns = path->grown_ns = path->moved_ns = path->came_ns = now(conn);
    path->tries = 0;
    path->stats.ups++;
    conn->paths_up++;
    path->writes_most = sl_mp_trial_writes(path);
    conn->no_path_since_ns = 0;
    sl_mp_tx_keys_check(conn); /* what was cleared before may lack its rail */
    SL_PROBE3(path_up, conn->base.peer, path->idx, path->epoch);
    sl_mp_event(conn->iface, SL_EVENT_PATH_UP, conn->base.peer, path->idx, path->epoch);
    sl_info(area_of(conn), "path %u to %s is up: %s to the peer's rail %u", path->idx,
            sl_ep_peer_name(&conn->base), path->rail->name, path->remote_rail);
    sl_mp_fallback_end(conn);
    sl_mp_choose_frame_path(conn);
    sl_mp_conn_activate(conn);
}

void sl_mp_path_on_ping(struct sl_mp_path *path, bool proven)
{
    if (path->failing)
        return;
    path->peer_proven |= proven;
    if (path->state == SL_MP_PATH_ACCEPTED) {
        sl_mp_path_enter(path, SL_MP_PATH_PINGING);
        sl_mp_path_ping(path, false);
    } else if (path->state == SL_MP_PATH_PINGING && path->proven && path->peer_proven) {
        path_up(path);
    }
}

/* One after the other: what is lost is repeated only after a while, as nothing behind it tells the
 * other end. Until it is up at both ends only pings go by a path, so its counters tell how many
 * have been acknowledged. */
void sl_mp_path_pinged(struct sl_mp_path *path)
{
    if (path->failing || path->state != SL_MP_PATH_PINGING || path->proven)
        return;
    path->proven = path->retired + 1 >= sl_mp_trial_pings(path);
    sl_mp_path_ping(path, path->proven);
    if (path->proven && path->peer_proven)
        path_up(path);
}

/* ---- what the peer says ---- */

void sl_mp_on_control(struct sl_mp_conn *conn, const struct sl_mp_control *control)
{
    struct sl_mp_path *path;

    if (control->kind == SL_MP_CONTROL_HELLO) {
        sl_mp_on_hello(conn, &control->hello);
        return;
    }
    if (control->kind == SL_MP_CONTROL_BYE) {
        conn->heard_bye = true;
        sl_mp_conn_fail(conn, -EHOSTUNREACH, "%s found no path: %s", sl_ep_peer_name(&conn->base),
                        control->down.why);
        return;
    }
    if (control->kind == SL_MP_CONTROL_SIDEBAND_OVER) {
        sl_mp_on_sideband_over(conn, control);
        return;
    }
    if (control->kind == SL_MP_CONTROL_LEAVE) {
        sl_mp_on_leave(conn);
        return;
    }
    if (control->kind == SL_MP_CONTROL_CLOSE || control->kind == SL_MP_CONTROL_CLOSED) {
        sl_mp_on_close(conn, control);
        return;
    }
    if (control->kind == SL_MP_CONTROL_PATHS && conn->has_hello) {
        sl_mp_on_paths(conn, &control->paths);
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
    path = path_at(conn, control->path);
    if (path == NULL || path->epoch != control->epoch)
        return; /* of an epoch that is over here */
    if (control->kind == SL_MP_CONTROL_ACCEPT) {
        on_accept(path, &control->offer);
    } else if (control->kind == SL_MP_CONTROL_DOWN) {
        sl_mp_on_down(path, control);
    } else if (path->state == SL_MP_PATH_OFFERED) {
        char why[SL_MP_PATH_WHY];

        snprintf(why, sizeof(why), "refused: %s", control->down.why);
        try_failed(path, why);
    }
}

/* ---- time ---- */

void sl_mp_repair_soon(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->state == SL_MP_PATH_IDLE) {
            conn->paths[i]->next_try_ns = 0;
            conn->paths[i]->tries = 0;
            sl_mp_conn_time(conn);
        }
    if (conn->later)
        sl_mp_lazy_come_near(conn);
}

/* Has a path before it said that already? Several of one rail mostly fail alike. */
static bool is_said(const struct sl_mp_conn *conn, unsigned idx)
{
    for (unsigned i = 0; i < idx; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->rail == conn->paths[idx]->rail &&
            strcmp(conn->paths[i]->why, conn->paths[idx]->why) == 0)
            return true;
    return false;
}

static const char *rail_name(const struct sl_mp_path *path)
{
    return path->rail == NULL ? "?" : path->rail->name;
}

/* Every reason, each in full; how many there are. *whole: there was room. */
static unsigned reasons_in_full(const struct sl_mp_conn *conn, char *out, size_t cap, bool *whole)
{
    unsigned count = 0;

    *whole = true;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && !is_said(conn, i))
            *whole &= sl_text_add(out, cap, "%s%s: %s", count++ > 0 ? "; " : "",
                                  rail_name(conn->paths[i]), conn->paths[i]->why);
    return count;
}

/* Is it the first of its rail? */
static bool is_first(const struct sl_mp_conn *conn, unsigned idx)
{
    for (unsigned i = 0; i < idx; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->rail == conn->paths[idx]->rail)
            return false;
    return conn->paths[idx] != NULL;
}

/* One for each rail, with as much room each, and how many others there are. */
static void reasons_by_rail(const struct sl_mp_conn *conn, char *out, size_t cap, unsigned reasons)
{
    static const char cut[] = "...";
    unsigned rails = 0, said = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        rails += is_first(conn, i);
    size_t room = (cap - REASONS_MORE) / rails;

    out[0] = '\0';
    for (unsigned i = 0; i < conn->path_count; i++) {
        if (!is_first(conn, i))
            continue;
        size_t end = strlen(out) + room;

        if (!sl_text_add(out, end, "%s%s: %s", said++ > 0 ? "; " : "", rail_name(conn->paths[i]),
                         conn->paths[i]->why))
            memcpy(out + end - sizeof(cut), cut, sizeof(cut));
    }
    if (reasons > said)
        sl_text_add(out, cap, "; and %u more", reasons - said);
}

void sl_mp_reasons(const struct sl_mp_conn *conn, char out[SL_MP_REASONS_BYTES])
{
    bool whole;

    out[0] = '\0';
    unsigned reasons = reasons_in_full(conn, out, SL_MP_REASONS_BYTES, &whole);

    if (!whole)
        reasons_by_rail(conn, out, SL_MP_REASONS_BYTES, reasons);
}

static void path_timers(struct sl_mp_path *path, uint64_t now_ns)
{
    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE:
        if (path->leads && !path->later && now_ns >= path->next_try_ns &&
            path->conn->iface->opens > 0 && sl_mp_control_room(path->conn) &&
            !sl_mp_peer_leaves(path->conn))
            offer(path);
        break;
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_PINGING:
    case SL_MP_PATH_ACCEPTED:
        if (now_ns >= path->deadline_ns)
            sl_mp_failed(path, 0, "%s",
                         path->state == SL_MP_PATH_OFFERED
                             ? "the peer did not answer an offer"
                             : "the first packet did not come through");
        else if (path->state == SL_MP_PATH_PINGING && sl_mp_trial_is_lost(path))
            sl_mp_failed(path, 0, "a packet of %u bytes did not come through at once",
                         path->wrs[(path->posted - 1) % SL_MP_WINDOW].len);
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
            sl_mp_path_ping(path, false);
    }
}

static uint64_t path_due(const struct sl_mp_path *path)
{
    uint64_t look_ns = path->conn->iface->ticked_ns + path->repeat_ns / 2;

    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE: return path->leads && !path->later ? path->next_try_ns : SL_NEVER;
    case SL_MP_PATH_PINGING:
        if (sl_mp_is_on_trial(path) && look_ns < path->deadline_ns)
            return look_ns;
        return path->deadline_ns;
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_ACCEPTED: return path->deadline_ns;
    case SL_MP_PATH_UP:
    case SL_MP_PATH_FENCING: break;
    }
    return SL_NEVER;
}

static uint64_t due(const struct sl_mp_conn *conn)
{
    uint64_t due_ns = conn->sideband_up ? SL_NEVER : conn->ping_at_ns;

    if (sl_mp_sideband_lost(conn) && conn->redial_at_ns < due_ns)
        due_ns = conn->redial_at_ns;
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
    uint64_t wait_ns = (uint64_t)conn->iface->settings.path_wait_ms * SL_NS_PER_MS;
    char why[SL_MP_REASONS_BYTES];

    if (now_ns - conn->no_path_since_ns >= FALLBACK_NS && conn->fencing == NULL)
        sl_mp_fallback_begin(conn);
    if (now_ns - conn->no_path_since_ns < wait_ns || sl_mp_fallback_path(conn) != NULL)
        return;
    sl_mp_reasons(conn, why);
    sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s for %lld ms: %s",
                    sl_ep_peer_name(&conn->base), (long long)conn->iface->settings.path_wait_ms,
                    why);
}

uint64_t sl_mp_repair_timers(struct sl_mp_conn *conn, uint64_t now_ns)
{
    if (conn->state != SL_MP_CONN_CONNECTING && conn->state != SL_MP_CONN_UP)
        return sl_mp_sideband_heard(conn, now_ns);
    if (SL_UNLIKELY(sl_mp_sideband_lost(conn)))
        sl_mp_sideband_try(conn);
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            path_timers(conn->paths[i], now_ns);
    if (conn->state == SL_MP_CONN_CONNECTING)
        sl_mp_setup_timers(conn, now_ns);
    if (conn->state == SL_MP_CONN_UP && !conn->sideband_up && !sl_mp_peer_leaves(conn) &&
        now_ns >= conn->ping_at_ns)
        keep_alive(conn, now_ns);
    if (conn->state == SL_MP_CONN_UP && conn->no_path_since_ns != 0)
        wait_timers(conn, now_ns);
    return due(conn);
}
