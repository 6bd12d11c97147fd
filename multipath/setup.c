/* SPDX-License-Identifier: Apache-2.0 */
#include "multipath/setup.h"

#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/iface.h"
#include "multipath/repair.h"

#include "core/err.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SETTLE_NS (200 * SL_NS_PER_MS) /* for the other paths, once one is up */

struct address {
    uint16_t magic;
    uint16_t len;
    uint8_t sideband[SL_ADDR_MAX - 4];
};

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
    conn->credits = SL_MP_CREDITS;
    conn->nonce = sl_rng_u64(&base->worker->rng);
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

void sl_mp_ep_destroy(struct sl_ep *base)
{
    struct sl_mp_conn *conn = sl_mp_conn_of(base);
    struct sl_mp_iface *iface;

    if (base == NULL)
        return;
    iface = conn->iface;
    sl_mp_conn_linger(conn);
    sl_mp_conn_stop(conn);
    if (conn->state == SL_MP_CONN_CONNECTING) {
        iface->connecting--;
        conn->state = SL_MP_CONN_DOWN;
        sl_req_end(conn->connect_req, -ECANCELED);
    }
    conn->state = SL_MP_CONN_DOWN;
    conn->left = false; /* nothing is received any more */
    snprintf(conn->why, sizeof(conn->why), "the endpoint is destroyed");
    conn->down_status = -ECANCELED;
    sl_mp_sideband_close(conn);
    sl_mp_cancel(conn, -ECANCELED);
    sl_mp_fallback_close(conn);
    sl_mp_controls_forget(conn);
    sl_mp_forget(conn);
    sl_mp_channels_fini(conn);
    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL)
            iface->lanes->destroy(conn->paths[i]);
    sl_mp_conn_deactivate(conn);
    sl_mp_conn_untime(conn);
    sl_list_remove(&conn->link);
    iface->conn_count--;
    munmap(conn, conn_bytes(iface));
}

/* ---- HELLO ---- */

void sl_mp_hello_send(struct sl_mp_conn *conn)
{
    const struct sl_mp_iface *iface = conn->iface;
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
                                         .fallback = iface->settings.fallback};
    for (unsigned i = 0; i < iface->rail_count; i++)
        sl_mp_rail_describe(iface, iface->rails[i], &control.hello.rails[i]);
    sl_mp_control_send(conn, &control);
}

/* The leading end decides which paths there are. */
static int plan(struct sl_mp_conn *conn)
{
    int err = conn->iface->lanes->plan(conn);

    for (unsigned i = 0; i < conn->path_count && err == 0; i++)
        conn->paths[i]->leads = true;
    return err;
}

void sl_mp_on_hello(struct sl_mp_conn *conn, const struct sl_mp_hello *hello)
{
    bool first = !conn->has_hello;
    int err = 0;

    conn->peer = *hello;
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
    conn->leads = conn->nonce > hello->nonce;
    if (err == 0 && conn->leads)
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
    char why[SL_ERROR_TEXT_MAX];

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
    sl_mp_reasons(conn, why, sizeof(why));
    if (conn->leads && conn->path_count > 0 && tried == conn->path_count && conn->paths_up == 0)
        sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s: %s", sl_ep_peer_name(&conn->base),
                        why);
    else if (now_ns >= conn->connect_deadline_ns)
        sl_mp_conn_fail(
            conn, -ETIMEDOUT, "no path to %s within %lld ms%s%s", sl_ep_peer_name(&conn->base),
            (long long)conn->iface->settings.connect_timeout_ms, why[0] != '\0' ? ": " : "", why);
}
