/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: their state, the sideband beside the paths, from the first address to the end. */
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x5642u /* "BV" */
#define BYE_TRIES 16
#define LINGER_NS (200 * SL_NS_PER_MS)
#define LINGER_POLLS 1000000
#define LINGER_EVERY 256 /* of them between polls of the sideband */

struct address {
    uint16_t magic;
    uint16_t len;
    uint8_t sideband[SL_ADDR_MAX - 4];
};

/* ---- the state of a connection ---- */

void sl_mp_conn_activate(struct sl_mp_conn *conn)
{
    if (conn->is_active)
        return;
    conn->is_active = true;
    sl_list_push_back(&conn->iface->active, &conn->active);
}

static void deactivate(struct sl_mp_conn *conn)
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

int sl_mp_conn_fail(struct sl_mp_conn *conn, int status, const char *fmt, ...)
{
    va_list args;

    if (conn->failing || conn->state == SL_MP_CONN_DOWN)
        return status;
    va_start(args, fmt);
    vsnprintf(conn->why, sizeof(conn->why), fmt, args);
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

/* No queue pair of it touches memory any more. */
static void stop_paths(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->qp != NULL)
            sl_verbs_path_stop(conn->paths[i]);
}

/* Memory that was lent to it is the user's again; the peer hears that we are gone. */
static void sideband_close(struct sl_mp_conn *conn)
{
    if (conn->sideband == NULL)
        return;
    conn->sideband->iface->ops->ep_destroy(conn->sideband);
    conn->sideband = NULL;
    conn->sideband_up = false;
}

/* The other end of a connection without paths learns why it ends, not only that the sideband
 * did. */
static void say_why(struct sl_mp_conn *conn)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_BYE};

    if (conn->down_status != -EHOSTUNREACH || !conn->sideband_up || conn->left)
        return;
    snprintf(control.down.why, sizeof(control.down.why), "%s", conn->why);
    sl_mp_control_send(conn, &control);
    for (unsigned i = 0; i < BYE_TRIES && conn->control_count > 0; i++)
        sl_mp_control_flush(conn);
}

void sl_mp_conn_lost(struct sl_mp_conn *conn)
{
    struct sl_verbs_iface *iface = conn->iface;
    bool was_up = conn->state == SL_MP_CONN_UP;

    stop_paths(conn);
    conn->frame_path = conn->fencing = NULL;
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            conn->paths[i]->state = SL_MP_PATH_IDLE;
    if (was_up)
        say_why(conn);
    conn->state = SL_MP_CONN_DOWN;
    conn->failing = false;
    sideband_close(conn);
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

/* ---- the sideband ---- */

static struct sl_mp_conn *owner_of(struct sl_ep *sideband)
{
    return sideband->owner;
}

static void on_ctrl(void *arg, struct sl_ep *sideband, const void *msg, size_t len)
{
    struct sl_mp_conn *conn = owner_of(sideband);

    (void)arg;
    if (conn->state != SL_MP_CONN_DOWN)
        sl_mp_control_take(conn, msg, len);
}

static void on_sideband_down(void *arg, struct sl_ep *sideband, int status, const char *why)
{
    (void)arg;
    struct sl_mp_conn *conn = owner_of(sideband);

    conn->sideband_up = false;
    if (conn->state != SL_MP_CONN_UP) {
        sl_mp_conn_fail(conn, status, "%s", why);
        return;
    }
    if (conn->failing || conn->left)
        return;
    /* A connection that broke by itself says nothing about the peer while paths carry. */
    if (status != -ECONNRESET && conn->paths_up > 0) {
        sl_warn("verbs",
                "the TCP connection beside the paths to %s is lost: %s; records go by "
                "the paths alone",
                sl_ep_peer_name(&conn->base), why);
        sl_mp_controls_requeue(conn);
        sl_mp_conn_time(conn);
        return;
    }
    conn->left = true;
    conn->down_status = status;
    snprintf(conn->why, sizeof(conn->why), "%s", why);
    sl_mp_conn_activate(conn);
}

/* The peer is gone. What it sent before it said so has arrived: its receives end well, all else
 * does not. */
void sl_mp_conn_leave(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->qp != NULL)
            while (sl_verbs_rail_poll(conn->paths[i]->rail, 64) > 0)
                ;
    if (conn->gpu_copies + conn->gpu_waits == 0 &&
        (conn->held == 0 || conn->rx_oldest != conn->rx_next))
        conn->failing = true;
}

static void on_sideband_up(struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_container_of(req, struct sl_mp_conn, sideband_req);

    if (conn->state != SL_MP_CONN_CONNECTING)
        return;
    if (req->status != 0) {
        sl_mp_conn_fail(conn, req->status, "%s", sluice_last_error());
        return;
    }
    conn->sideband_up = true;
    sl_mp_hello_send(conn);
    sl_mp_conn_activate(conn); /* what the peer has said already */
}

struct sl_handler sl_mp_sideband_handler(struct sl_verbs_iface *iface)
{
    return (struct sl_handler){.ctrl = on_ctrl, .down = on_sideband_down, .arg = iface};
}

/* ---- connections ---- */

static size_t ep_bytes(const struct sl_verbs_iface *iface)
{
    return sizeof(struct sl_mp_conn) + (size_t)SL_MP_CREDITS * iface->slot_bytes;
}

int sl_verbs_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    /* Not of the heap, which would clear it: of a connection with little to say most pages are
     * never touched. */
    struct sl_mp_conn *conn =
        mmap(NULL, ep_bytes(iface), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err = 0;

    if (conn == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for a verbs endpoint");
    conn->base = (struct sl_ep){.iface = base, .peer = -1};
    conn->iface = iface;
    conn->credits = SL_MP_CREDITS;
    conn->nonce = sl_rng_u64(&base->worker->rng);
    conn->eager_bytes = iface->eager_bytes;
    sl_list_init(&conn->repeat);
    for (unsigned i = 0; i < iface->rail_count && err == 0; i++)
        err = sl_verbs_rail_provide(&iface->rails[i], iface->ep_count + 1);
    if (err == 0)
        err = iface->sideband->ops->ep_create(iface->sideband, &conn->sideband);
    if (err != 0) {
        munmap(conn, ep_bytes(iface));
        return err;
    }
    conn->sideband->owner = conn;
    iface->ep_count++;
    sl_list_push_back(&iface->eps, &conn->link);
    *out = &conn->base;
    return 0;
}

int sl_verbs_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct address mine = {.magic = MAGIC};
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

int sl_verbs_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_verbs_iface *iface = conn->iface;
    struct address theirs = {0};
    struct sl_addr sideband = {0};
    int err;

    if (conn->state != SL_MP_CONN_NEW)
        return sl_fail(-EINVAL, "the endpoint to %s was connected before", sl_ep_peer_name(base));
    memcpy(&theirs, peer->bytes, peer->len < sizeof(theirs) ? peer->len : sizeof(theirs));
    if (peer->len < offsetof(struct address, sideband) || theirs.magic != MAGIC ||
        theirs.len != peer->len - offsetof(struct address, sideband))
        return sl_fail(-EPROTO, "the address of %s is not one of the verbs transport",
                       sl_ep_peer_name(base));
    sideband.len = theirs.len;
    memcpy(sideband.bytes, theirs.sideband, theirs.len);
    conn->sideband->peer = base->peer;
    conn->sideband->peer_name = base->peer_name;
    conn->sideband_req = (struct sl_req){.status = SL_PENDING, .done = on_sideband_up};
    conn->connect_req = req;
    conn->state = SL_MP_CONN_CONNECTING;
    conn->connect_deadline_ns = sl_now(iface->base.worker->clock) +
                                (uint64_t)iface->config->connect_timeout_ms * SL_NS_PER_MS;
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

/* Has the peer said farewell? Where many connections end, it often did so first, and nothing
 * acknowledges what is still on its way. Not from inside progress, which a handler may call this
 * from. */
static bool has_left(struct sl_mp_conn *conn)
{
    struct sl_iface *sideband = conn->iface->sideband;

    if (!conn->iface->batching)
        sideband->ops->progress(sideband, 64);
    return conn->left;
}

/* Polls once, the i-th time, for the end of what was posted. False: it will not come. */
static bool linger_poll(struct sl_mp_conn *conn, struct sl_mp_path *path, unsigned i)
{
    if (path->rail == NULL) { /* over the sideband, which has no queue of completions */
        sl_mp_fallback_push(conn);
        return !conn->iface->batching && !has_left(conn) && !conn->failing;
    }
    return sl_verbs_rail_poll(path->rail, 64) >= 0 &&
           (i % LINGER_EVERY != LINGER_EVERY - 1 || !has_left(conn));
}

/* Frames are done for their sender when they are posted: before the queue pairs go, they must have
 * arrived. Receives that are posted keep their memory meanwhile: they are canceled only when no
 * peer can write there any more. A send that is not over means that the connection is given up. */
static void linger(struct sl_mp_conn *conn)
{
    struct sl_verbs_iface *iface = conn->iface;
    struct sl_mp_path *path = conn->frame_path;
    uint64_t deadline_ns = sl_now(iface->base.worker->clock) + LINGER_NS;
    struct sl_mp_tx_frame *last;

    if (conn->state != SL_MP_CONN_UP || path == NULL || path->posted == path->retired ||
        conn->tx_oldest != conn->tx_next || has_left(conn))
        return;
    last = sl_mp_frame_new(conn, SL_MP_CREDIT, 0);
    if (last == NULL)
        return;
    path->unsignalled = SL_MP_WINDOW; /* this one tells of its end */
    sl_mp_frame_post(conn, last);
    for (unsigned i = 0; i < LINGER_POLLS && path->posted != path->retired && !path->failing &&
                         sl_now(iface->base.worker->clock) < deadline_ns;
         i++)
        if (!linger_poll(conn, path, i))
            return;
}

void sl_verbs_ep_destroy(struct sl_ep *base)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_verbs_iface *iface;

    if (base == NULL)
        return;
    iface = conn->iface;
    linger(conn);
    stop_paths(conn);
    if (conn->state == SL_MP_CONN_CONNECTING) {
        iface->connecting--;
        conn->state = SL_MP_CONN_DOWN;
        sl_req_end(conn->connect_req, -ECANCELED);
    }
    conn->state = SL_MP_CONN_DOWN;
    snprintf(conn->why, sizeof(conn->why), "the endpoint is destroyed");
    conn->down_status = -ECANCELED;
    sideband_close(conn);
    sl_mp_cancel(conn, -ECANCELED);
    sl_mp_fallback_close(conn);
    for (unsigned i = 0; i < conn->path_count; i++)
        sl_verbs_path_free(conn->paths[i]);
    deactivate(conn);
    sl_mp_conn_untime(conn);
    sl_list_remove(&conn->link);
    iface->ep_count--;
    munmap(conn, ep_bytes(iface));
}

void sl_verbs_ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_mp_conn *conn = (const struct sl_mp_conn *)base;
    uint64_t sent = 0, received = 0;
    size_t used;

    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL) {
            sent += conn->paths[i]->stats.sent_bytes;
            received += conn->paths[i]->stats.received_bytes;
        }
    used = (size_t)snprintf(out, cap, "verbs, %u of %u paths up", conn->paths_up, conn->path_count);
    for (unsigned i = 0; i < conn->path_count && used < cap; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->rail != NULL)
            used +=
                (size_t)snprintf(out + used, cap - used, ", %s %s", conn->paths[i]->rail->port.name,
                                 conn->paths[i]->state == SL_MP_PATH_UP ? "up"
                                 : conn->paths[i]->why[0] != '\0'       ? conn->paths[i]->why
                                                                        : "down");
    if (used < cap)
        snprintf(out + used, cap - used, ", sent %llu, received %llu bytes",
                 (unsigned long long)sent, (unsigned long long)received);
}
