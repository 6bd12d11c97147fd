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
 * The sideband keeps the order of records, so an OFFER never overtakes the DOWN before it.
 */
#include "verbs/endpoint.h"
#include "verbs/fallback.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

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

static uint64_t now(const struct sl_verbs_ep *ep)
{
    return sl_now(ep->iface->base.worker->clock);
}

static uint64_t answer_deadline(const struct sl_verbs_ep *ep)
{
    return now(ep) + ANSWER_NS + ep->iface->connecting * BESIDE_NS;
}

/* ---- records ---- */

static bool wants_tcp(const struct sl_verbs_ep *ep)
{
    return strcmp(ep->iface->config->verbs_fallback, "tcp") == 0;
}

void sl_verbs_hello_send(struct sl_verbs_ep *ep)
{
    const struct sl_verbs_iface *iface = ep->iface;
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_HELLO};

    if (ep->state == SL_VERBS_EP_NEW || ep->state == SL_VERBS_EP_DOWN)
        return;
    /* One at a time is under way: a port that flaps must not fill the queue with its news. */
    ep->hello_due = ep->has_hello && (int32_t)(ep->record_handled - ep->hello_seq) <= 0;
    if (ep->hello_due)
        return;
    ep->hello_seq = ep->record_out;
    record.hello = (struct sl_verbs_hello){.version = SL_VERBS_VERSION,
                                           .eager_bytes = iface->eager_bytes,
                                           .nonce = ep->nonce,
                                           .rail_count = iface->rail_count,
                                           .fallback = wants_tcp(ep)};
    for (unsigned i = 0; i < iface->rail_count; i++)
        sl_verbs_rail_info(&iface->rails[i], &record.hello.rails[i]);
    sl_verbs_record_send(ep, &record);
}

static void down_send(struct sl_verbs_ep *ep, uint8_t kind, uint8_t idx, uint16_t epoch,
                      uint32_t arrived, const char *why)
{
    struct sl_verbs_record record = {.kind = kind, .path = idx, .epoch = epoch};

    record.down.arrived = arrived;
    snprintf(record.down.why, sizeof(record.down.why), "%s", why);
    sl_verbs_record_send(ep, &record);
}

static void offer_send(struct sl_verbs_path *path, uint8_t kind)
{
    struct sl_verbs_record record = {.kind = kind, .path = path->idx, .epoch = path->epoch};

    record.offer = (struct sl_verbs_offer){.local_rail = (uint8_t)path->rail->idx,
                                           .remote_rail = path->remote_rail,
                                           .lag_port = path->lag_port,
                                           .paths = (uint8_t)path->ep->path_count,
                                           .qpn = path->qp->qp_num,
                                           .psn = path->psn,
                                           .flow_label = path->flow_label};
    sl_verbs_rail_info(path->rail, &record.offer.rail);
    memcpy(record.offer.rail.gid, &path->gid.gid, sizeof(record.offer.rail.gid));
    record.offer.rail.gid_type = path->gid.type;
    sl_verbs_record_send(path->ep, &record);
}

/* ---- a path's way up ---- */

/* Most states wait for a time. */
static void enter(struct sl_verbs_path *path, enum sl_verbs_path_state state)
{
    path->state = (uint8_t)state;
    sl_verbs_ep_time(path->ep);
}

/* Idle again; the leading end tries later, ever later while it keeps failing. */
static void rest(struct sl_verbs_path *path)
{
    enter(path, SL_VERBS_PATH_IDLE);
    path->tried = true;
    path->failing = false;
    sl_verbs_path_unmake(path);
    if (path->backoff_ns < BACKOFF_NS_MIN)
        path->backoff_ns = BACKOFF_NS_MIN;
    path->next_try_ns = now(path->ep) + path->backoff_ns;
    path->backoff_ns =
        path->backoff_ns * 2 < BACKOFF_NS_MAX ? path->backoff_ns * 2 : BACKOFF_NS_MAX;
}

static void try_failed(struct sl_verbs_path *path, const char *why)
{
    snprintf(path->why, sizeof(path->why), "%s", why);
    sl_debug("verbs", "path %u to %s is not to be had: %s", path->idx,
             sl_ep_peer_name(&path->ep->base), why);
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
static int prepare(struct sl_verbs_path *path, const struct sl_verbs_rail_info *remote)
{
    struct sl_verbs_gid gid;
    int err;

    if (remote->link_layer != path->rail->port.link_layer)
        return sl_fail(-EHOSTUNREACH, "%s and the peer's rail %u are of different link layers",
                       path->rail->port.name, path->remote_rail);
    info_to_gid(remote, &gid);
    err = sl_verbs_gid_choose_for(path->ep->iface->config, &path->rail->port, &gid, &path->gid);
    return err != 0 ? err : sl_verbs_path_make(path);
}

static void offer(struct sl_verbs_path *path)
{
    const struct sl_verbs_rail_info *remote = &path->ep->peer.rails[path->remote_rail];

    if (!path->rail->usable || !remote->usable) {
        /* Whoever's rail returns says so, and sl_verbs_repair_soon() follows. */
        if (!path->rail->usable)
            snprintf(path->why, sizeof(path->why), "%s", path->rail->why);
        else
            snprintf(path->why, sizeof(path->why), "the peer's rail %u is not usable",
                     path->remote_rail);
        path->tried = true;
        path->next_try_ns = now(path->ep) + BACKOFF_NS_MAX;
        return;
    }
    path->epoch++;
    if (prepare(path, remote) != 0) {
        try_failed(path, sluice_last_error());
        return;
    }
    enter(path, SL_VERBS_PATH_OFFERED);
    path->deadline_ns = answer_deadline(path->ep);
    offer_send(path, SL_VERBS_REC_OFFER);
}

static void on_offer(struct sl_verbs_ep *ep, const struct sl_verbs_record *record)
{
    struct sl_verbs_path *path = ep->paths[record->path];
    const struct sl_verbs_offer *theirs = &record->offer;
    char why[SL_VERBS_WHY] = "";

    if (ep->leads || theirs->remote_rail >= ep->iface->rail_count) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s offers a path by a rail that we do not have",
                         sl_ep_peer_name(&ep->base));
        return;
    }
    if (path == NULL && sl_verbs_path_add(ep, record->path, &path) != 0) {
        sl_verbs_ep_fail(ep, -ENOMEM, "%s", sluice_last_error());
        return;
    }
    if (path->state != SL_VERBS_PATH_IDLE) { /* the leading end never does that */
        sl_verbs_ep_fail(ep, -EPROTO, "%s offers path %u, which is in use",
                         sl_ep_peer_name(&ep->base), record->path);
        return;
    }
    ep->paths_expected = theirs->paths;
    path->epoch = record->epoch;
    path->rail = &ep->iface->rails[theirs->remote_rail];
    path->remote_rail = theirs->local_rail;
    path->flow_label = theirs->flow_label;
    path->lag_port = theirs->lag_port;
    if (!path->rail->usable)
        snprintf(why, sizeof(why), "%s: %s", path->rail->port.name, path->rail->why);
    else if (prepare(path, &theirs->rail) != 0 || sl_verbs_path_connect(path, theirs) != 0)
        snprintf(why, sizeof(why), "%s", sluice_last_error());
    if (why[0] != '\0') {
        try_failed(path, why);
        down_send(ep, SL_VERBS_REC_REFUSE, path->idx, path->epoch, 0, why);
        return;
    }
    enter(path, SL_VERBS_PATH_ACCEPTED);
    path->deadline_ns = answer_deadline(ep);
    offer_send(path, SL_VERBS_REC_ACCEPT);
}

static void on_accept(struct sl_verbs_path *path, const struct sl_verbs_offer *theirs)
{
    if (path->state != SL_VERBS_PATH_OFFERED)
        return;
    if (sl_verbs_path_connect(path, theirs) != 0) {
        sl_verbs_path_fail(path, "%s", sluice_last_error());
        return;
    }
    enter(path, SL_VERBS_PATH_PINGING);
    sl_verbs_path_ping(path);
}

static void path_up(struct sl_verbs_path *path)
{
    struct sl_verbs_ep *ep = path->ep;

    enter(path, SL_VERBS_PATH_UP);
    path->tried = true;
    path->deadline_ns = now(ep) + STEADY_NS;
    path->stats.ups++;
    ep->paths_up++;
    ep->no_path_since_ns = 0;
    SL_PROBE3(path_up, ep->base.peer, path->idx, path->epoch);
    sl_verbs_event(ep->iface, SL_EVENT_PATH_UP, ep->base.peer, path->idx, path->epoch);
    sl_info("verbs", "path %u to %s is up: %s to the peer's rail %u", path->idx,
            sl_ep_peer_name(&ep->base), path->rail->port.name, path->remote_rail);
    sl_verbs_tcp_end(ep);
    sl_verbs_choose_frame_path(ep);
    sl_verbs_ep_activate(ep);
}

/* Until it is up at both ends only pings go by a path, so its counters tell how far they are. */
void sl_verbs_path_pinged(struct sl_verbs_path *path)
{
    if (path->failing)
        return;
    if (path->state == SL_VERBS_PATH_ACCEPTED) {
        enter(path, SL_VERBS_PATH_PINGING);
        sl_verbs_path_ping(path);
    }
    if (path->state != SL_VERBS_PATH_PINGING || path->retired == 0)
        return;
    if (path->posted == 1)
        sl_verbs_path_ping(path);
    if (path->arrived >= 2)
        path_up(path);
}

/* ---- and down ---- */

void sl_verbs_choose_frame_path(struct sl_verbs_ep *ep)
{
    struct sl_verbs_path *best = NULL;
    unsigned rail = sl_verbs_rail_in_use(ep);

    if (ep->frame_path != NULL || ep->fencing != NULL || sl_verbs_tcp_has_work(ep))
        return;
    for (unsigned i = 0; i < ep->path_count; i++) {
        struct sl_verbs_path *path = ep->paths[i];

        if (path != NULL && path->state == SL_VERBS_PATH_UP && !path->failing &&
            (rail == SL_VERBS_RAILS_ALL || path->rail->idx == rail) &&
            (best == NULL || path->latency_ns < best->latency_ns))
            best = path;
    }
    ep->frame_path = best != NULL ? best : sl_verbs_tcp_path(ep);
}

void sl_verbs_path_fail(struct sl_verbs_path *path, const char *fmt, ...)
{
    va_list args;

    if (path->failing || path->state == SL_VERBS_PATH_IDLE || path->state == SL_VERBS_PATH_FENCING)
        return;
    va_start(args, fmt);
    vsnprintf(path->why, sizeof(path->why), fmt, args);
    va_end(args);
    path->failing = true;
    sl_verbs_ep_activate(path->ep);
}

/* Stops the path and tells the other end; true: it was up, so what it carried must be looked
 * after. */
static bool stop(struct sl_verbs_path *path)
{
    struct sl_verbs_ep *ep = path->ep;

    bool was_up = path->state == SL_VERBS_PATH_UP;

    sl_verbs_path_stop(path);
    if (was_up) {
        sl_verbs_records_stranded(path);
        path->stats.failures++;
        ep->paths_up--;
        if (ep->frame_path == path) {
            ep->frame_path = NULL;
            ep->fencing = path;
        }
        if (now(ep) > path->deadline_ns)
            path->backoff_ns = 0;
        SL_PROBE3(path_down, ep->base.peer, path->idx, path->wc_status);
        sl_verbs_event(ep->iface, SL_EVENT_PATH_DOWN, ep->base.peer, path->idx, path->wc_status);
        sl_warn("verbs", "path %u to %s is down: %s; %u of %u left", path->idx,
                sl_ep_peer_name(&ep->base), path->why, ep->paths_up, ep->path_count);
    }
    down_send(ep, SL_VERBS_REC_DOWN, path->idx, path->epoch, path->arrived, path->why);
    return was_up;
}

/* The connection waits, unless a path is left. */
static void wait_without_path(struct sl_verbs_ep *ep)
{
    if (ep->paths_up != 0 || ep->no_path_since_ns != 0)
        return;
    ep->no_path_since_ns = now(ep);
    sl_verbs_ep_time(ep);
    sl_verbs_event(ep->iface, SL_EVENT_CONN_WAITS, ep->base.peer, ep->path_count, 0);
}

/* Both ends have stopped and said what they had. */
static void fenced(struct sl_verbs_path *path, uint32_t arrived)
{
    struct sl_verbs_ep *ep = path->ep;

    sl_verbs_event(ep->iface, SL_EVENT_PATH_FENCED, ep->base.peer, path->idx, arrived);
    /* Its device acknowledged what it has not shown to the other end: nobody has those bytes any
     * more. */
    if ((int32_t)(path->carried - arrived) > 0)
        sl_verbs_ep_fail(ep, -EHOSTUNREACH,
                         "a device of %s failed with %u messages in it that it had "
                         "acknowledged",
                         sl_ep_peer_name(&ep->base), path->carried - arrived);
    sl_verbs_path_salvage(path, arrived);
    if (ep->fencing == path)
        ep->fencing = NULL;
    rest(path);
    sl_verbs_choose_frame_path(ep);
    wait_without_path(ep);
    sl_verbs_ep_activate(ep);
}

void sl_verbs_path_end(struct sl_verbs_path *path)
{
    if (!path->failing)
        return;
    if (path->state == SL_VERBS_PATH_IDLE || path->state == SL_VERBS_PATH_FENCING) {
        path->failing = false;
        return;
    }
    if (!stop(path)) {
        sl_verbs_path_salvage(path, path->posted); /* pings */
        rest(path);
        return;
    }
    path->failing = false;
    enter(path, SL_VERBS_PATH_FENCING);
    wait_without_path(path->ep);
}

static void on_down(struct sl_verbs_path *path, const struct sl_verbs_record *record)
{
    if (path->state == SL_VERBS_PATH_FENCING) {
        fenced(path, record->down.arrived);
        return;
    }
    if (path->state == SL_VERBS_PATH_IDLE)
        return;
    if (!path->failing)
        snprintf(path->why, sizeof(path->why), "ended by the peer: %.70s", record->down.why);
    if (stop(path)) {
        fenced(path, record->down.arrived);
        return;
    }
    sl_verbs_path_salvage(path, path->posted);
    rest(path);
}

/* ---- what the peer says ---- */

static int paths_plan(struct sl_verbs_ep *ep)
{
    const struct sl_verbs_iface *iface = ep->iface;
    struct sl_verbs_path_spec specs[SL_VERBS_PATHS_MAX];
    struct sl_verbs_plan_ends ends = {.local_rails = iface->rail_count,
                                      .remote_rails = ep->peer.rail_count};
    size_t count;
    int err;

    for (unsigned i = 0; i < iface->rail_count; i++)
        ends.lag_ports[i] = iface->rails[i].lag_ports;
    err = sl_verbs_plan(iface->config, &ends, ep->nonce ^ ep->peer.nonce, specs, SL_VERBS_PATHS_MAX,
                        &count);

    for (size_t i = 0; i < count && err == 0; i++) {
        struct sl_verbs_path *path;

        err = sl_verbs_path_add(ep, (unsigned)i, &path);
        if (err != 0)
            break;
        path->leads = true;
        path->rail = &ep->iface->rails[specs[i].local_rail];
        path->remote_rail = specs[i].remote_rail;
        path->flow_label = specs[i].flow_label;
        path->lag_port = specs[i].lag_port;
    }
    return err;
}

static void on_hello(struct sl_verbs_ep *ep, const struct sl_verbs_hello *hello)
{
    bool first = !ep->has_hello;
    int err = 0;

    ep->peer = *hello;
    ep->has_hello = true;
    if (!first) {
        sl_verbs_repair_soon(ep);
        return;
    }
    ep->eager_bytes =
        ep->iface->eager_bytes < hello->eager_bytes ? ep->iface->eager_bytes : hello->eager_bytes;
    if (ep->nonce == hello->nonce)
        err = sl_fail(-EPROTO, "%s speaks with our own voice: it repeats our number",
                      sl_ep_peer_name(&ep->base));
    ep->leads = ep->nonce > hello->nonce;
    if (err == 0 && ep->leads)
        err = paths_plan(ep);
    if (err == 0 && wants_tcp(ep) && hello->fallback != 0)
        err = sl_verbs_tcp_open(ep);
    if (err != 0)
        sl_verbs_ep_fail(ep, err, "%s", sluice_last_error());
}

void sl_verbs_on_record(struct sl_verbs_ep *ep, const struct sl_verbs_record *record)
{
    struct sl_verbs_path *path;

    if (record->kind == SL_VERBS_REC_HELLO) {
        on_hello(ep, &record->hello);
        return;
    }
    if (record->kind == SL_VERBS_REC_BYE) {
        sl_verbs_ep_fail(ep, -EHOSTUNREACH, "%s found no path: %s", sl_ep_peer_name(&ep->base),
                         record->down.why);
        return;
    }
    if (record->path >= SL_VERBS_PATHS_MAX || !ep->has_hello) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s speaks of path %u, which there cannot be",
                         sl_ep_peer_name(&ep->base), record->path);
        return;
    }
    if (record->kind == SL_VERBS_REC_OFFER) {
        on_offer(ep, record);
        return;
    }
    if (record->kind == SL_VERBS_REC_TCP_ENDED) {
        sl_verbs_tcp_ended(ep);
        return;
    }
    path = ep->paths[record->path];
    if (path == NULL || path->epoch != record->epoch)
        return; /* of an epoch that is over here */
    if (record->kind == SL_VERBS_REC_ACCEPT) {
        on_accept(path, &record->offer);
    } else if (record->kind == SL_VERBS_REC_DOWN) {
        on_down(path, record);
    } else if (path->state == SL_VERBS_PATH_OFFERED) {
        char why[SL_VERBS_WHY];

        snprintf(why, sizeof(why), "refused: %.80s", record->down.why);
        try_failed(path, why);
    }
}

/* ---- time ---- */

void sl_verbs_repair_soon(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->state == SL_VERBS_PATH_IDLE) {
            ep->paths[i]->next_try_ns = 0;
            ep->paths[i]->backoff_ns = 0;
            sl_verbs_ep_time(ep);
        }
}

/* "mlx5_0:1: transport retry counter exceeded; mlx5_1:1: port is down" */
static void reasons(const struct sl_verbs_ep *ep, char *out, size_t cap)
{
    size_t used = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < ep->path_count && used < cap; i++)
        if (ep->paths[i] != NULL)
            used +=
                (size_t)snprintf(out + used, cap - used, "%s%s: %s", used > 0 ? "; " : "",
                                 ep->paths[i]->rail == NULL ? "?" : ep->paths[i]->rail->port.name,
                                 ep->paths[i]->why);
}

static void connect_timers(struct sl_verbs_ep *ep, uint64_t now_ns)
{
    unsigned tried = 0;
    char why[200];

    for (unsigned i = 0; i < ep->path_count; i++)
        tried += ep->paths[i] != NULL && ep->paths[i]->tried;
    if (ep->paths_up > 0 && ep->settle_ns == 0)
        ep->settle_ns = now_ns + SETTLE_NS;
    bool settled = ep->leads ? tried == ep->path_count : tried >= ep->paths_expected;

    if (ep->paths_up > 0 && (settled || now_ns >= ep->settle_ns)) {
        ep->state = SL_VERBS_EP_UP;
        ep->iface->connecting--;
        sl_req_end(ep->connect_req, 0);
        return;
    }
    reasons(ep, why, sizeof(why));
    if (ep->leads && ep->path_count > 0 && tried == ep->path_count && ep->paths_up == 0)
        sl_verbs_ep_fail(ep, -EHOSTUNREACH, "no path to %s: %s", sl_ep_peer_name(&ep->base), why);
    else if (now_ns >= ep->connect_deadline_ns)
        sl_verbs_ep_fail(
            ep, -ETIMEDOUT, "no path to %s within %lld ms%s%s", sl_ep_peer_name(&ep->base),
            (long long)ep->iface->config->connect_timeout_ms, why[0] != '\0' ? ": " : "", why);
}

static void path_timers(struct sl_verbs_path *path, uint64_t now_ns)
{
    switch ((enum sl_verbs_path_state)path->state) {
    case SL_VERBS_PATH_IDLE:
        if (path->leads && now_ns >= path->next_try_ns && path->ep->iface->makes > 0)
            offer(path);
        break;
    case SL_VERBS_PATH_OFFERED:
    case SL_VERBS_PATH_PINGING:
    case SL_VERBS_PATH_ACCEPTED:
        if (now_ns >= path->deadline_ns)
            sl_verbs_path_fail(path, "%s",
                               path->state == SL_VERBS_PATH_OFFERED
                                   ? "the peer did not answer an offer"
                                   : "the first packet did not come through");
        break;
    case SL_VERBS_PATH_UP:
    case SL_VERBS_PATH_FENCING: break;
    }
}

/* Where there is no sideband to tell of the peer's end, and nothing to send, only a ping finds out
 * that a path has died. */
static void keep_alive(struct sl_verbs_ep *ep, uint64_t now_ns)
{
    ep->ping_at_ns = now_ns + ALIVE_NS;
    for (unsigned i = 0; i < ep->path_count; i++) {
        struct sl_verbs_path *path = ep->paths[i];

        if (path == NULL || path->state != SL_VERBS_PATH_UP || path->failing ||
            !sl_verbs_path_has_room(path))
            continue;
        if (path->posted == path->retired ||
            path->wrs[(path->posted - 1) % SL_VERBS_SQ_DEPTH].kind != SL_VERBS_WR_PING)
            sl_verbs_path_ping(path);
    }
}

static uint64_t path_due(const struct sl_verbs_path *path)
{
    switch ((enum sl_verbs_path_state)path->state) {
    case SL_VERBS_PATH_IDLE: return path->leads ? path->next_try_ns : SL_NEVER;
    case SL_VERBS_PATH_OFFERED:
    case SL_VERBS_PATH_ACCEPTED:
    case SL_VERBS_PATH_PINGING: return path->deadline_ns;
    case SL_VERBS_PATH_UP:
    case SL_VERBS_PATH_FENCING: break;
    }
    return SL_NEVER;
}

static uint64_t due(const struct sl_verbs_ep *ep)
{
    uint64_t due_ns = ep->sideband_up ? SL_NEVER : ep->ping_at_ns;

    if (ep->state == SL_VERBS_EP_CONNECTING || ep->no_path_since_ns != 0)
        return 0;
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && path_due(ep->paths[i]) < due_ns)
            due_ns = path_due(ep->paths[i]);
    return due_ns;
}

/* The connection has no path: for how long? */
static void wait_timers(struct sl_verbs_ep *ep, uint64_t now_ns)
{
    uint64_t wait_ns = (uint64_t)ep->iface->config->verbs_path_wait_ms * SL_NS_PER_MS;
    char why[200];

    if (now_ns - ep->no_path_since_ns >= FALLBACK_NS && ep->fencing == NULL)
        sl_verbs_tcp_begin(ep);
    if (now_ns - ep->no_path_since_ns < wait_ns || sl_verbs_tcp_path(ep) != NULL)
        return;
    reasons(ep, why, sizeof(why));
    sl_verbs_ep_fail(ep, -EHOSTUNREACH, "no path to %s for %lld ms: %s", sl_ep_peer_name(&ep->base),
                     (long long)ep->iface->config->verbs_path_wait_ms, why);
}

uint64_t sl_verbs_repair_timers(struct sl_verbs_ep *ep, uint64_t now_ns)
{
    if (ep->state != SL_VERBS_EP_CONNECTING && ep->state != SL_VERBS_EP_UP)
        return SL_NEVER;
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL)
            path_timers(ep->paths[i], now_ns);
    if (ep->state == SL_VERBS_EP_CONNECTING)
        connect_timers(ep, now_ns);
    if (ep->state == SL_VERBS_EP_UP && !ep->sideband_up && now_ns >= ep->ping_at_ns)
        keep_alive(ep, now_ns);
    if (ep->state == SL_VERBS_EP_UP && ep->no_path_since_ns != 0)
        wait_timers(ep, now_ns);
    return due(ep);
}
