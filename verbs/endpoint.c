/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: their state, the sideband beside the paths, from the first address to the end. */
#include "verbs/endpoint.h"
#include "verbs/fallback.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x5642u /* "BV" */
#define BYE_TRIES 16
#define LINGER_NS (200 * SL_NS_PER_MS)
#define LINGER_LOOKS 1000000
#define LINGER_EVERY 256 /* of them between looks at the sideband */

struct address {
    uint16_t magic;
    uint16_t len;
    uint8_t sideband[SL_ADDR_MAX - 4];
};

/* ---- the state of a connection ---- */

void sl_verbs_ep_activate(struct sl_verbs_ep *ep)
{
    if (ep->is_active)
        return;
    ep->is_active = true;
    sl_list_push_back(&ep->iface->active, &ep->active);
}

static void deactivate(struct sl_verbs_ep *ep)
{
    if (!ep->is_active)
        return;
    ep->is_active = false;
    sl_list_remove(&ep->active);
}

void sl_verbs_ep_time(struct sl_verbs_ep *ep)
{
    ep->due_ns = 0;
    if (ep->is_timed)
        return;
    ep->is_timed = true;
    sl_list_push_back(&ep->iface->timed, &ep->timed);
}

void sl_verbs_ep_untime(struct sl_verbs_ep *ep)
{
    if (!ep->is_timed)
        return;
    ep->is_timed = false;
    sl_list_remove(&ep->timed);
}

int sl_verbs_ep_fail(struct sl_verbs_ep *ep, int status, const char *fmt, ...)
{
    va_list args;

    if (ep->failing || ep->state == SL_VERBS_EP_DOWN)
        return status;
    va_start(args, fmt);
    vsnprintf(ep->why, sizeof(ep->why), fmt, args);
    va_end(args);
    ep->failing = true;
    ep->down_status = status;
    sl_verbs_ep_activate(ep);
    return status;
}

int sl_verbs_not_up(const struct sl_verbs_ep *ep)
{
    if (ep->state < SL_VERBS_EP_UP)
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet",
                       sl_ep_peer_name(&ep->base));
    return sl_fail(ep->down_status, "%s is gone: %s", sl_ep_peer_name(&ep->base), ep->why);
}

/* No queue pair of it touches memory any more. */
static void stop_paths(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->qp != NULL)
            sl_verbs_path_stop(ep->paths[i]);
}

/* Memory that was lent to it is the user's again; the peer hears that we are gone. */
static void sideband_close(struct sl_verbs_ep *ep)
{
    if (ep->sideband == NULL)
        return;
    ep->sideband->iface->ops->ep_destroy(ep->sideband);
    ep->sideband = NULL;
    ep->sideband_up = false;
}

/* The other end of a connection without paths learns why it ends, not only that the sideband
 * did. */
static void say_why(struct sl_verbs_ep *ep)
{
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_BYE};

    if (ep->down_status != -EHOSTUNREACH || !ep->sideband_up || ep->left)
        return;
    snprintf(record.down.why, sizeof(record.down.why), "%s", ep->why);
    sl_verbs_record_send(ep, &record);
    for (unsigned i = 0; i < BYE_TRIES && ep->record_count > 0; i++)
        sl_verbs_record_flush(ep);
}

void sl_verbs_ep_lost(struct sl_verbs_ep *ep)
{
    struct sl_verbs_iface *iface = ep->iface;
    bool was_up = ep->state == SL_VERBS_EP_UP;

    stop_paths(ep);
    ep->frame_path = ep->fencing = NULL;
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL)
            ep->paths[i]->state = SL_VERBS_PATH_IDLE;
    if (was_up)
        say_why(ep);
    ep->state = SL_VERBS_EP_DOWN;
    ep->failing = false;
    sideband_close(ep);
    if (!was_up) {
        iface->connecting--;
        sl_fail_text(ep->down_status, ep->why);
        sl_req_end(ep->connect_req, ep->down_status);
        return;
    }
    if (iface->base.handler.down != NULL)
        iface->base.handler.down(iface->base.handler.arg, &ep->base, ep->down_status, ep->why);
    sl_verbs_cancel(ep, ep->down_status);
}

/* ---- the sideband ---- */

static struct sl_verbs_ep *owner_of(struct sl_ep *sideband)
{
    return sideband->owner;
}

static void on_ctrl(void *arg, struct sl_ep *sideband, const void *msg, size_t len)
{
    struct sl_verbs_ep *ep = owner_of(sideband);

    (void)arg;
    if (ep->state != SL_VERBS_EP_DOWN)
        sl_verbs_record_take(ep, msg, len);
}

static void on_sideband_down(void *arg, struct sl_ep *sideband, int status, const char *why)
{
    (void)arg;
    struct sl_verbs_ep *ep = owner_of(sideband);

    ep->sideband_up = false;
    if (ep->state != SL_VERBS_EP_UP) {
        sl_verbs_ep_fail(ep, status, "%s", why);
        return;
    }
    if (ep->failing || ep->left)
        return;
    /* A connection that broke by itself says nothing about the peer while paths carry. */
    if (status != -ECONNRESET && ep->paths_up > 0) {
        sl_warn("verbs",
                "the TCP connection beside the paths to %s is lost: %s; records go by "
                "the paths alone",
                sl_ep_peer_name(&ep->base), why);
        sl_verbs_records_requeue(ep);
        sl_verbs_ep_time(ep);
        return;
    }
    ep->left = true;
    ep->down_status = status;
    snprintf(ep->why, sizeof(ep->why), "%s", why);
    sl_verbs_ep_activate(ep);
}

/* The peer is gone. What it sent before it said so has arrived: its receives end well, all else
 * does not. */
void sl_verbs_ep_leave(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->qp != NULL)
            while (sl_verbs_rail_poll(ep->paths[i]->rail, 64) > 0)
                ;
    if (ep->gpu_copies + ep->gpu_waits == 0 && (ep->held == 0 || ep->rx_oldest != ep->rx_next))
        ep->failing = true;
}

static void on_sideband_up(struct sl_req *req)
{
    struct sl_verbs_ep *ep = sl_container_of(req, struct sl_verbs_ep, sideband_req);

    if (ep->state != SL_VERBS_EP_CONNECTING)
        return;
    if (req->status != 0) {
        sl_verbs_ep_fail(ep, req->status, "%s", sluice_last_error());
        return;
    }
    ep->sideband_up = true;
    sl_verbs_hello_send(ep);
    sl_verbs_ep_activate(ep); /* what the peer has said already */
}

struct sl_handler sl_verbs_sideband_handler(struct sl_verbs_iface *iface)
{
    return (struct sl_handler){.ctrl = on_ctrl, .down = on_sideband_down, .arg = iface};
}

/* ---- connections ---- */

static size_t ep_bytes(const struct sl_verbs_iface *iface)
{
    return sizeof(struct sl_verbs_ep) + (size_t)SL_VERBS_CREDITS * iface->slot_bytes;
}

int sl_verbs_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    /* Not of the heap, which would clear it: of a connection with little to say most pages are
     * never touched. */
    struct sl_verbs_ep *ep =
        mmap(NULL, ep_bytes(iface), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err = 0;

    if (ep == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for a verbs endpoint");
    ep->base = (struct sl_ep){.iface = base, .peer = -1};
    ep->iface = iface;
    ep->credits = SL_VERBS_CREDITS;
    ep->nonce = sl_rng_u64(&base->worker->rng);
    ep->eager_bytes = iface->eager_bytes;
    sl_list_init(&ep->repeat);
    for (unsigned i = 0; i < iface->rail_count && err == 0; i++)
        err = sl_verbs_rail_provide(&iface->rails[i], iface->ep_count + 1);
    if (err == 0)
        err = iface->sideband->ops->ep_create(iface->sideband, &ep->sideband);
    if (err != 0) {
        munmap(ep, ep_bytes(iface));
        return err;
    }
    ep->sideband->owner = ep;
    iface->ep_count++;
    sl_list_push_back(&iface->eps, &ep->link);
    *out = &ep->base;
    return 0;
}

int sl_verbs_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct address mine = {.magic = MAGIC};
    struct sl_addr sideband;
    int err = ep->sideband->iface->ops->ep_addr(ep->sideband, &sideband);

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
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct sl_verbs_iface *iface = ep->iface;
    struct address theirs = {0};
    struct sl_addr sideband = {0};
    int err;

    if (ep->state != SL_VERBS_EP_NEW)
        return sl_fail(-EINVAL, "the endpoint to %s was connected before", sl_ep_peer_name(base));
    memcpy(&theirs, peer->bytes, peer->len < sizeof(theirs) ? peer->len : sizeof(theirs));
    if (peer->len < offsetof(struct address, sideband) || theirs.magic != MAGIC ||
        theirs.len != peer->len - offsetof(struct address, sideband))
        return sl_fail(-EPROTO, "the address of %s is not one of the verbs transport",
                       sl_ep_peer_name(base));
    sideband.len = theirs.len;
    memcpy(sideband.bytes, theirs.sideband, theirs.len);
    ep->sideband->peer = base->peer;
    ep->sideband->peer_name = base->peer_name;
    ep->sideband_req = (struct sl_req){.status = SL_PENDING, .done = on_sideband_up};
    ep->connect_req = req;
    ep->state = SL_VERBS_EP_CONNECTING;
    ep->connect_deadline_ns = sl_now(iface->base.worker->clock) +
                              (uint64_t)iface->config->connect_timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    sl_verbs_ep_time(ep);
    err = ep->sideband->iface->ops->ep_connect(ep->sideband, &sideband, &ep->sideband_req);
    if (err < 0) {
        iface->connecting--;
        ep->state = SL_VERBS_EP_NEW;
        return err;
    }
    return 0;
}

/* Has the peer said farewell? Where many connections end, it often did so first, and nothing
 * acknowledges what is still on its way. Not from inside progress, which a handler may call this
 * from. */
static bool has_left(struct sl_verbs_ep *ep)
{
    struct sl_iface *sideband = ep->iface->sideband;

    if (!ep->iface->batching)
        sideband->ops->progress(sideband, 64);
    return ep->left;
}

/* Looks once, the i-th time, for the end of what was posted. False: it will not come. */
static bool linger_look(struct sl_verbs_ep *ep, struct sl_verbs_path *path, unsigned i)
{
    if (path->rail == NULL) { /* over the sideband, which has no queue of completions */
        sl_verbs_tcp_push(ep);
        return !ep->iface->batching && !has_left(ep) && !ep->failing;
    }
    return sl_verbs_rail_poll(path->rail, 64) >= 0 &&
           (i % LINGER_EVERY != LINGER_EVERY - 1 || !has_left(ep));
}

/* Frames are done for their sender when they are posted: before the queue pairs go, they must have
 * arrived. Receives that are posted keep their memory meanwhile: they are canceled only when no
 * peer can write there any more. A send that is not over means that the connection is given up. */
static void linger(struct sl_verbs_ep *ep)
{
    struct sl_verbs_iface *iface = ep->iface;
    struct sl_verbs_path *path = ep->frame_path;
    uint64_t deadline_ns = sl_now(iface->base.worker->clock) + LINGER_NS;
    struct sl_verbs_tx_frame *last;

    if (ep->state != SL_VERBS_EP_UP || path == NULL || path->posted == path->retired ||
        ep->tx_oldest != ep->tx_next || has_left(ep))
        return;
    last = sl_verbs_frame_new(ep, SL_VERBS_CREDIT, 0);
    if (last == NULL)
        return;
    path->unsignalled = SL_VERBS_SQ_DEPTH; /* this one tells of its end */
    sl_verbs_frame_post(ep, last);
    for (unsigned i = 0; i < LINGER_LOOKS && path->posted != path->retired && !path->failing &&
                         sl_now(iface->base.worker->clock) < deadline_ns;
         i++)
        if (!linger_look(ep, path, i))
            return;
}

void sl_verbs_ep_destroy(struct sl_ep *base)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct sl_verbs_iface *iface;

    if (base == NULL)
        return;
    iface = ep->iface;
    linger(ep);
    stop_paths(ep);
    if (ep->state == SL_VERBS_EP_CONNECTING) {
        iface->connecting--;
        ep->state = SL_VERBS_EP_DOWN;
        sl_req_end(ep->connect_req, -ECANCELED);
    }
    ep->state = SL_VERBS_EP_DOWN;
    snprintf(ep->why, sizeof(ep->why), "the endpoint is destroyed");
    ep->down_status = -ECANCELED;
    sideband_close(ep);
    sl_verbs_cancel(ep, -ECANCELED);
    sl_verbs_tcp_close(ep);
    for (unsigned i = 0; i < ep->path_count; i++)
        sl_verbs_path_free(ep->paths[i]);
    deactivate(ep);
    sl_verbs_ep_untime(ep);
    sl_list_remove(&ep->link);
    iface->ep_count--;
    munmap(ep, ep_bytes(iface));
}

void sl_verbs_ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_verbs_ep *ep = (const struct sl_verbs_ep *)base;
    uint64_t sent = 0, received = 0;
    size_t used;

    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL) {
            sent += ep->paths[i]->stats.sent_bytes;
            received += ep->paths[i]->stats.received_bytes;
        }
    used = (size_t)snprintf(out, cap, "verbs, %u of %u paths up", ep->paths_up, ep->path_count);
    for (unsigned i = 0; i < ep->path_count && used < cap; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->rail != NULL)
            used +=
                (size_t)snprintf(out + used, cap - used, ", %s %s", ep->paths[i]->rail->port.name,
                                 ep->paths[i]->state == SL_VERBS_PATH_UP ? "up"
                                 : ep->paths[i]->why[0] != '\0'          ? ep->paths[i]->why
                                                                         : "down");
    if (used < cap)
        snprintf(out + used, cap - used, ", sent %llu, received %llu bytes",
                 (unsigned long long)sent, (unsigned long long)received);
}
