/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/setup.h"

#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/lazy.h"
#include "multipath/repair.h"
#include "multipath/sideband.h"
#include "multipath/steer.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SETTLE_NS (200 * SL_NS_PER_MS) /* for the other paths, once one is up */

struct address {
    uint16_t magic;
    uint16_t len;
    uint8_t sideband[SL_ADDR_MAX - 4];
};

/* ---- which paths ---- */

static void say_what_is_left_out(const struct sl_mp_conn *conn, const struct sl_mp_paths *paths,
                                 const char *area, enum sl_log_level level, const char *why)
{
    uint32_t used = 0;

    for (unsigned i = 0; i < paths->count; i++)
        used |= 1u << paths->pairs[i].local;
    for (unsigned i = 0; i < conn->iface->rail_count; i++)
        if ((used & 1u << i) == 0)
            sl_log(level, area, "no path to %s by %s: %s", sl_ep_peer_name(&conn->base),
                   conn->iface->rails[i]->name, why);
}

int sl_mp_paths_plan(struct sl_mp_conn *conn, const struct sl_mp_path_wishes *wishes,
                     const struct sl_mp_plan_ends *ends, enum sl_log_level level, const char *why,
                     struct sl_mp_paths *out)
{
    struct sl_mp_path_spec specs[SL_MP_PATHS_MAX];
    size_t count;
    int err = sl_mp_plan(wishes, ends, specs, SL_MP_PATHS_MAX, &count);

    if (err != 0)
        return err;
    out->count = (uint8_t)count;
    for (size_t i = 0; i < count; i++)
        out->pairs[i] = (struct sl_mp_pair){specs[i].local_rail, specs[i].remote_rail};
    say_what_is_left_out(conn, out, wishes->area, level, why);
    return 0;
}

/* ---- a connection, and the sideband beside it ---- */

static size_t conn_bytes(const struct sl_mp_iface *iface)
{
    return sizeof(struct sl_mp_conn) + (size_t)SL_MP_CREDITS * iface->slot_bytes;
}

int sl_mp_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_mp_iface *iface = sl_mp_iface_of(base);
    /* Not of the heap, which would clear it: of a connection with little to say most pages are
     * never touched. */
    struct sl_mp_conn *conn =
        mmap(NULL, conn_bytes(iface), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err;

    if (conn == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for a connection");
    conn->base = (struct sl_ep){.iface = base, .peer = -1};
    conn->iface = iface;
    conn->why = "";
    conn->credits = SL_MP_CREDITS;
    conn->nonce = sl_rng_u64(&base->worker->rng);
    conn->name.rank = base->worker->rank < 0 ? SL_MP_NO_RANK : (uint32_t)base->worker->rank;
    conn->eager_bytes = iface->eager_bytes;
    sl_list_init(&conn->repeat);
    sl_list_init(&conn->all_cts);
    sl_list_init(&conn->deal);
    sl_list_init(&conn->late);
    sl_list_init(&conn->starved);
    sl_list_init(&conn->gpu_waits);
    err = sl_mp_channels_init(conn);
    if (err == 0)
        err = iface->lanes->provide(iface, iface->conn_count + 1);
    if (err == 0)
        err = iface->sideband->ops->ep_create(iface->sideband, &conn->sideband);
    if (err != 0) {
        sl_mp_channels_fini(conn);
        munmap(conn, conn_bytes(iface));
        return err;
    }
    conn->sideband->owner = conn;
    iface->conn_count++;
    sl_list_push_back(&iface->conns, &conn->link);
    *out = &conn->base;
    return 0;
}

int sl_mp_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct address mine = {.magic = conn->iface->settings.magic};
    struct sl_addr sideband;
    int err = conn->sideband->iface->ops->ep_addr(conn->sideband, &sideband);

    if (err != 0)
        return err;
    if (sideband.len > sizeof(mine.sideband))
        return sl_fail(-EMSGSIZE, "the sideband's address has %u bytes", sideband.len);
    mine.len = sideband.len;
    memcpy(mine.sideband, sideband.bytes, sideband.len);
    out->len = (uint16_t)(offsetof(struct address, sideband) + sideband.len);
    memcpy(out->bytes, &mine, out->len);
    return 0;
}

int sl_mp_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_iface *iface = conn->iface;
    struct address theirs = {0};
    struct sl_addr sideband = {0};
    int err;

    if (conn->state != SL_MP_CONN_NEW)
        return sl_fail(-EINVAL, "the endpoint to %s was connected before", sl_ep_peer_name(base));
    memcpy(&theirs, peer->bytes, peer->len < sizeof(theirs) ? peer->len : sizeof(theirs));
    if (peer->len < offsetof(struct address, sideband) ||
        theirs.magic != conn->iface->settings.magic ||
        theirs.len != peer->len - offsetof(struct address, sideband))
        return sl_fail(-EPROTO, "the address of %s is not one of the %s transport",
                       sl_ep_peer_name(base), iface->base.ops->name);
    sideband.len = theirs.len;
    memcpy(sideband.bytes, theirs.sideband, theirs.len);
    conn->sideband->peer = base->peer;
    conn->sideband->peer_name = base->peer_name;
    conn->sideband_req = (struct sl_req){.status = SL_PENDING, .done = sl_mp_on_sideband_up};
    conn->connect_req = req;
    conn->dialling = true;
    conn->state = SL_MP_CONN_CONNECTING;
    conn->connect_deadline_ns = sl_now(iface->base.worker->clock) +
                                (uint64_t)iface->settings.connect_timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    sl_mp_conn_time(conn);
    err = conn->sideband->iface->ops->ep_connect(conn->sideband, &sideband, &conn->sideband_req);
    if (err < 0) {
        iface->connecting--;
        conn->state = SL_MP_CONN_NEW;
        return err;
    }
    return 0;
}

void sl_mp_on_sideband_up(struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_container_of(req, struct sl_mp_conn, sideband_req);

    conn->dialling = false;
    if (conn->state != SL_MP_CONN_CONNECTING)
        return;
    if (req->status != 0) {
        sl_mp_conn_fail(conn, req->status, "%s", sluice_last_error());
        return;
    }
    conn->sideband_up = true;
    conn->sideband_up_ns = sl_now(conn->iface->base.worker->clock);
    sl_mp_hello_send(conn);
    sl_mp_conn_activate(conn); /* what the peer has said already */
}

void sl_mp_ep_destroy(struct sl_ep *base)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_iface *iface;

    if (base == NULL)
        return;
    iface = conn->iface;
    sl_mp_conn_linger(conn);
    sl_mp_sideband_farewell(conn);
    if (conn->state == SL_MP_CONN_CONNECTING) {
        iface->connecting--;
        conn->state = SL_MP_CONN_DOWN;
        sl_req_end(conn->connect_req, -ECANCELED);
    }
    /* First: what the peer still sends fails as soon as the lanes have stopped. */
    sl_mp_sideband_close(conn);
    sl_mp_conn_stop(conn);
    conn->state = SL_MP_CONN_DOWN;
    conn->left = false; /* nothing is received any more */
    conn->why = "the endpoint is destroyed";
    conn->down_status = -ECANCELED;
    sl_mp_cancel(conn, -ECANCELED);
    sl_mp_fallback_close(conn);
    sl_mp_controls_forget(conn);
    sl_mp_forget(conn);
    sl_mp_channels_fini(conn);
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            iface->lanes->destroy(conn->paths[i]);
    free(conn->paths);
    free(conn->peer.rails);
    free(conn->why_bytes);
    sl_mp_conn_deactivate(conn);
    sl_mp_conn_untime(conn);
    sl_list_remove(&conn->link);
    iface->conn_count--;
    munmap(conn, conn_bytes(iface));
}

/* ---- HELLO ---- */

static void hello_part_send(struct sl_mp_conn *conn, unsigned first)
{
    const struct sl_mp_iface *iface = conn->iface;
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_HELLO};

    control.hello = (struct sl_mp_hello){.version = SL_MP_VERSION,
                                         .eager_bytes = iface->eager_bytes,
                                         .nonce = conn->nonce,
                                         .rank = conn->name.rank,
                                         .rail_count = (uint8_t)iface->rail_count,
                                         .fallback = iface->settings.fallback,
                                         .listed = iface->settings.listed,
                                         .first = (uint8_t)first};
    for (unsigned i = 0; i < SL_MP_HELLO_RAILS && first + i < iface->rail_count; i++) {
        sl_mp_rail_describe(iface, iface->rails[first + i], &control.hello.rails[i]);
        if (iface->rails[first + i]->is_far)
            control.hello.rails[i].usable |= SL_MP_RAIL_FAR;
    }
    if (!conn->is_named)
        memcpy(conn->name.address, control.hello.rails[0].address, sizeof(conn->name.address));
    conn->is_named = true;
    sl_mp_control_send(conn, &control);
}

void sl_mp_hello_send(struct sl_mp_conn *conn)
{
    const struct sl_mp_iface *iface = conn->iface;

    if (conn->state == SL_MP_CONN_NEW || conn->state == SL_MP_CONN_DOWN)
        return;
    /* One at a time is under way: a port that flaps must not fill the queue with its news. */
    conn->hello_due = conn->has_hello && (int32_t)(conn->control_handled - conn->hello_seq) <= 0;
    if (conn->hello_due)
        return;
    for (unsigned first = 0; first < iface->rail_count; first += SL_MP_HELLO_RAILS)
        hello_part_send(conn, first);
    conn->hello_seq = conn->control_out - 1;
}

static bool leads(const struct sl_mp_conn *conn, const struct sl_mp_hello *theirs)
{
    int order = memcmp(conn->name.address, conn->peer.rails[0].address, sizeof(conn->name.address));

    if (conn->name.rank != theirs->rank)
        return conn->name.rank < theirs->rank;
    return order != 0 ? order < 0 : conn->nonce < theirs->nonce;
}

/* How many paths there are between these rails. */
static unsigned paths_between(const struct sl_mp_conn *conn, unsigned local, unsigned remote)
{
    unsigned count = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        count += conn->paths[i]->rail->idx == local && conn->paths[i]->remote_rail == remote;
    return count;
}

static int path_plan(struct sl_mp_conn *conn, unsigned local, unsigned remote)
{
    unsigned turn = paths_between(conn, local, remote);
    struct sl_mp_path *path;
    int err = sl_mp_path_add(conn, conn->path_count, &path);

    if (err != 0)
        return err;
    path->rail = conn->iface->rails[local];
    path->remote_rail = (uint8_t)remote;
    path->turn = (uint8_t)turn;
    path->leads = true;
    sl_mp_steer_path(path); /* there are rules of rails, too */
    return 0;
}

/* The leading end decides which paths there are. Where a user lists paths, the other one asks for
 * those that it would have made, so that it does not matter which leads. */
static int plan(struct sl_mp_conn *conn)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_PATHS};
    const struct sl_mp_paths *paths = &control.paths;
    int err = conn->iface->lanes->plan(conn, &control.paths);

    for (unsigned i = 0; i < paths->count && err == 0 && conn->leads; i++)
        err = path_plan(conn, paths->pairs[i].local, paths->pairs[i].remote);
    if (err == 0 && conn->leads && conn->path_count > 0)
        sl_mp_lazy_plan(conn);
    if (err == 0 && !conn->leads && (conn->iface->settings.listed || conn->peer.listed))
        sl_mp_control_send(conn, &control);
    return err;
}

void sl_mp_on_paths(struct sl_mp_conn *conn, const struct sl_mp_paths *theirs)
{
    int err = 0;

    if (!conn->leads)
        err = sl_fail(-EPROTO, "%s asks for paths, which are its own to offer",
                      sl_ep_peer_name(&conn->base));
    for (unsigned i = 0; i < theirs->count && err == 0; i++) {
        unsigned local = theirs->pairs[i].remote, remote = theirs->pairs[i].local, asked = 1;

        for (unsigned j = 0; j < i; j++)
            asked += theirs->pairs[j].remote == local && theirs->pairs[j].local == remote;
        if (local < conn->iface->rail_count && remote < conn->peer.rail_count &&
            conn->path_count < SL_MP_PATHS_MAX && paths_between(conn, local, remote) < asked)
            err = path_plan(conn, local, remote);
    }
    if (err != 0)
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
    else if (theirs->now == SL_MP_PATHS_SPREAD)
        sl_mp_paths_spread(conn);
    else if (theirs->now != 0)
        sl_mp_paths_need(conn, "the peer asks for them");
    sl_mp_conn_time(conn);
}

/* What a HELLO says of the peer. -EPROTO, -ENOMEM. */
static int take_hello(struct sl_mp_conn *conn, const struct sl_mp_hello *hello)
{
    struct sl_mp_peer *peer = &conn->peer;
    unsigned count = hello->rail_count - hello->first;

    if (peer->rails == NULL)
        peer->rails = calloc(hello->rail_count, sizeof(*peer->rails));
    else if (peer->rail_count != hello->rail_count)
        return sl_fail(-EPROTO, "%s had %u rails and has %u", sl_ep_peer_name(&conn->base),
                       peer->rail_count, hello->rail_count);
    if (peer->rails == NULL)
        return sl_fail(-ENOMEM, "no memory for what a peer says of its rails");
    peer->nonce = hello->nonce;
    peer->rank = hello->rank;
    peer->listed = hello->listed;
    peer->rail_count = hello->rail_count;
    for (unsigned i = 0; i < count && i < SL_MP_HELLO_RAILS; i++) {
        struct sl_mp_rail_info *rail = &peer->rails[hello->first + i];
        uint16_t bit = (uint16_t)(1u << (hello->first + i));

        *rail = hello->rails[i];
        peer->far =
            (uint16_t)((rail->usable & SL_MP_RAIL_FAR) != 0 ? peer->far | bit : peer->far & ~bit);
        rail->usable &= SL_MP_RAIL_USABLE;
    }
    return 0;
}

void sl_mp_on_hello(struct sl_mp_conn *conn, const struct sl_mp_hello *hello)
{
    bool first = !conn->has_hello;
    int err = take_hello(conn, hello);

    if (err != 0) {
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
        return;
    }
    if (hello->first + SL_MP_HELLO_RAILS < hello->rail_count)
        return; /* the rest follows */
    conn->has_hello = true;
    sl_mp_tx_keys_check(conn);
    if (!first) {
        sl_mp_repair_soon(conn);
        return;
    }
    conn->eager_bytes = conn->iface->eager_bytes < hello->eager_bytes ? conn->iface->eager_bytes
                                                                      : hello->eager_bytes;
    if (conn->nonce == hello->nonce)
        err = sl_fail(-EPROTO, "%s speaks with our own voice: it repeats our number",
                      sl_ep_peer_name(&conn->base));
    conn->leads = leads(conn, hello);
    if (err == 0)
        err = plan(conn);
    if (err == 0 && conn->iface->settings.fallback && hello->fallback != 0)
        err = sl_mp_fallback_open(conn);
    if (err != 0)
        sl_mp_conn_fail(conn, err, "%s", sluice_last_error());
}

/* ---- up, or in vain ---- */

void sl_mp_setup_timers(struct sl_mp_conn *conn, uint64_t now_ns)
{
    unsigned tried = 0;
    char why[SL_MP_REASONS_BYTES];

    for (unsigned i = 0; i < conn->path_count; i++)
        tried += conn->paths[i] != NULL && (conn->paths[i]->tried || conn->paths[i]->later);
    if (conn->paths_up > 0 && conn->settle_ns == 0)
        conn->settle_ns = now_ns + SETTLE_NS;
    bool settled =
        conn->leads ? tried == conn->path_count : tried >= (conn->later ? 1 : conn->paths_expected);

    if (conn->paths_up > 0 && (settled || now_ns >= conn->settle_ns)) {
        conn->state = SL_MP_CONN_UP;
        conn->iface->connecting--;
        sl_mp_frames_begin(conn);
        sl_req_end(conn->connect_req, 0);
        return;
    }
    sl_mp_reasons(conn, why);
    if (conn->leads && conn->path_count > 0 && tried == conn->path_count && conn->paths_up == 0)
        sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s: %s", sl_ep_peer_name(&conn->base),
                        why);
    else if (now_ns >= conn->connect_deadline_ns)
        sl_mp_conn_fail(
            conn, -ETIMEDOUT, "no path to %s within %lld ms%s%s", sl_ep_peer_name(&conn->base),
            (long long)conn->iface->settings.connect_timeout_ms, why[0] != '\0' ? ": " : "", why);
}
