/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport's operations: interfaces, connections, progress. verbs.h says what lies where. */
#include "verbs/verbs.h"

#include "core/log.h"
#include "verbs/probe.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#define COMPANION "tcp"
#define MAGIC 0x5642u /* "BV" */
#define COMPANION_EVERY 32 /* rounds of progress between looks at the companion and the clock */
#define TIMER_NS (5 * SL_NS_PER_MS)
#define BYE_TRIES 16
#define LINGER_NS (200 * SL_NS_PER_MS)
#define LINGER_LOOKS 1000000
#define LINGER_EVERY 256 /* of them between looks at the companion */

struct address {
    uint16_t magic;
    uint16_t len;
    uint8_t companion[SL_ADDR_MAX - 4];
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

static void untime(struct sl_verbs_ep *ep)
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
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet", sl_ep_peer_name(&ep->base));
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
static void companion_close(struct sl_verbs_ep *ep)
{
    if (ep->companion == NULL)
        return;
    ep->companion->iface->ops->ep_destroy(ep->companion);
    ep->companion = NULL;
    ep->companion_up = false;
}

/* The other end of a connection without paths learns why it ends, not only that the companion did. */
static void say_why(struct sl_verbs_ep *ep)
{
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_BYE};

    if (ep->down_status != -EHOSTUNREACH || !ep->companion_up || ep->left)
        return;
    snprintf(record.down.why, sizeof(record.down.why), "%s", ep->why);
    sl_verbs_record_send(ep, &record);
    for (unsigned i = 0; i < BYE_TRIES && ep->record_count > 0; i++)
        sl_verbs_record_flush(ep);
}

static void ep_lost(struct sl_verbs_ep *ep)
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
    companion_close(ep);
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

/* ---- the companion ---- */

static struct sl_verbs_ep *owner_of(struct sl_ep *companion)
{
    return companion->owner;
}

static void on_ctrl(void *arg, struct sl_ep *companion, const void *msg, size_t len)
{
    struct sl_verbs_ep *ep = owner_of(companion);

    (void)arg;
    if (ep->state != SL_VERBS_EP_DOWN)
        sl_verbs_record_take(ep, msg, len);
}

static void on_companion_down(void *arg, struct sl_ep *companion, int status, const char *why)
{
    (void)arg;
    struct sl_verbs_ep *ep = owner_of(companion);

    ep->companion_up = false;
    if (ep->state != SL_VERBS_EP_UP) {
        sl_verbs_ep_fail(ep, status, "%s", why);
        return;
    }
    if (ep->failing || ep->left)
        return;
    /* A connection that broke by itself says nothing about the peer while paths carry. */
    if (status != -ECONNRESET && ep->paths_up > 0) {
        sl_warn("verbs", "the TCP connection beside the paths to %s is lost: %s; records go by "
                "the paths alone", sl_ep_peer_name(&ep->base), why);
        sl_verbs_records_requeue(ep);
        sl_verbs_ep_time(ep);
        return;
    }
    ep->left = true;
    ep->down_status = status;
    snprintf(ep->why, sizeof(ep->why), "%s", why);
    sl_verbs_ep_activate(ep);
}

/* The peer is gone. What it sent before it said so has arrived: its receives end well, all else does not. */
static void leave(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->qp != NULL)
            while (sl_verbs_rail_poll(ep->paths[i]->rail, 64) > 0)
                ;
    if (ep->gpu_copies + ep->gpu_waits == 0 && (ep->held == 0 || ep->rx_oldest != ep->rx_next))
        ep->failing = true;
}

static void on_companion_up(struct sl_req *req)
{
    struct sl_verbs_ep *ep = sl_container_of(req, struct sl_verbs_ep, companion_req);

    if (ep->state != SL_VERBS_EP_CONNECTING)
        return;
    if (req->status != 0) {
        sl_verbs_ep_fail(ep, req->status, "%s", sluice_last_error());
        return;
    }
    ep->companion_up = true;
    sl_verbs_hello_send(ep);
    sl_verbs_ep_activate(ep); /* what the peer has said already */
}

static const struct sl_transport_ops *companion_given; /* for tests */

void sl_verbs_companion_replace(const struct sl_transport_ops *ops)
{
    companion_given = ops;
}

static int companion_open(struct sl_verbs_iface *iface)
{
    const struct sl_transport_ops *ops = companion_given != NULL
                                             ? companion_given
                                             : sl_transport_find(COMPANION, strlen(COMPANION));
    struct sl_handler handler = {.ctrl = on_ctrl, .down = on_companion_down, .arg = iface};

    if (ops == NULL)
        return sl_fail(-ENOTSUP, "this build has no transport '%s', which looks after RDMA paths",
                       COMPANION);
    return ops->open(iface->base.worker, NULL, &handler, &iface->companion);
}

/* ---- interfaces ---- */

static void close_iface(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);

    if (base == NULL)
        return;
    sl_assert(sl_list_empty(&iface->eps));
    sl_mem_cache_fini(&iface->mem);
    sl_verbs_gpu_close(iface);
    sl_verbs_pool_fini(iface, &iface->frames);
    sl_verbs_pool_fini(iface, &iface->staging);
    for (unsigned i = 0; i < SL_VERBS_RAILS_MAX; i++)
        sl_verbs_rail_close(&iface->rails[i]);
    if (iface->companion != NULL)
        iface->companion->ops->close(iface->companion);
    if (iface->epoll_fd >= 0)
        close(iface->epoll_fd);
    free(iface->tx_chunks.free);
    free(iface->rx_chunks.free);
    free(iface->paths);
    free(iface);
}

static void fork_prepare(const struct sl_verbs_iface *iface)
{
    struct utsname name;
    int major = 0, minor = 0;

    if (iface->config->verbs_fork == SL_OFF)
        return;
    /* From 5.12 on the kernel copies pinned pages at fork() by itself. */
    if (iface->config->verbs_fork == SL_AUTO && uname(&name) == 0 &&
        sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
        (major > 5 || (major == 5 && minor >= 12)))
        return;
    int err = iface->ibv->ibv_fork_init();

    if (err != 0)
        sl_warn("verbs", "fork() is not safe for registered memory: %s", sluice_strerror(-err));
}

/* "rxe0:1: port is DOWN …; rxe1:1: …", and "; ..." for those that there is no room for. */
static void reason_add(char *out, size_t cap, const char *name, const char *why)
{
    static const char more[] = "; ...";
    size_t used = strlen(out), room = cap > used + sizeof(more) ? cap - used - sizeof(more) : 0;
    int len;

    if (used >= strlen(more) && strcmp(out + used - strlen(more), more) == 0)
        return;
    len = snprintf(out + used, room, "%s%s: %s", used > 0 ? "; " : "", name, why);
    if (len < 0 || (size_t)len >= room)
        snprintf(out + used, cap - used, "%s", more);
}

/* Those that should be rails, from all of this host or the one that was asked for; why gets the reasons of
 * those that are not usable. */
static int ports_choose(const struct sl_verbs_iface *iface, const struct sl_device *dev,
                        struct sl_verbs_port *ports, size_t *count, char *why, size_t cap)
{
    size_t found = 0, kept = 0;
    int err = sl_verbs_ports_list(iface->config, ports, SL_VERBS_PORTS_MAX, &found);

    for (size_t i = 0; i < found && i < SL_VERBS_PORTS_MAX && err == 0; i++) {
        if (dev != NULL && strcmp(dev->name, ports[i].name) != 0)
            continue;
        if (ports[i].why[0] != '\0')
            reason_add(why, cap, ports[i].name, ports[i].why);
        if (kept != i)
            ports[kept] = ports[i];
        kept++;
    }
    *count = sl_verbs_ports_pick(ports, kept, SL_VERBS_RAILS_MAX);
    return err;
}

/* Ports that are down are opened too: they join when they come up, and until then keep their number, which
 * is the same on all hosts. */
static int rails_open(struct sl_verbs_iface *iface, const struct sl_device *dev)
{
    struct sl_verbs_port *ports = calloc(SL_VERBS_PORTS_MAX, sizeof(*ports));
    char why[900] = "";
    size_t count = 0;
    unsigned usable = 0;
    int err = ports == NULL ? sl_fail(-ENOMEM, "no memory to list ports")
                            : ports_choose(iface, dev, ports, &count, why, sizeof(why));

    for (size_t i = 0; i < count && err == 0; i++) {
        struct sl_verbs_rail *rail = &iface->rails[iface->rail_count];

        if (sl_verbs_rail_open(iface, &ports[i], iface->rail_count) != 0) {
            reason_add(why, sizeof(why), ports[i].name, sluice_last_error());
            sl_warn("verbs", "%s", sluice_last_error());
            continue;
        }
        usable += rail->usable;
        if (!rail->usable)
            sl_info("verbs", "%s waits until it can be used: %s", rail->port.name, rail->why);
        iface->rail_count++;
    }
    free(ports);
    if (err == 0 && usable == 0)
        err = sl_fail(-ENODEV, "no RDMA port is usable%s%s", why[0] != '\0' ? ": " : "", why);
    return err;
}

static int chunks_init(struct sl_verbs_chunks *chunks, unsigned first, unsigned count)
{
    chunks->free = calloc(count, sizeof(*chunks->free));
    if (chunks->free == NULL)
        return sl_fail(-ENOMEM, "no memory for a list of staging buffers");
    for (unsigned i = 0; i < count; i++)
        chunks->free[chunks->free_count++] = (uint16_t)(first + i);
    return 0;
}

static int pools_init(struct sl_verbs_iface *iface)
{
    size_t frame_bytes = iface->slot_bytes;
    unsigned chunks = (unsigned)(iface->config->verbs_staging_bytes / SL_VERBS_CHUNK_BYTES);
    int err;

    chunks = chunks < 4 ? 4 : chunks > 65534 ? 65534 : chunks & ~1u;
    err = sl_verbs_pool_init(iface, frame_bytes * (SL_VERBS_TX_FRAMES + 1), &iface->frames);
    if (err == 0)
        err = sl_verbs_pool_init(iface, (size_t)chunks * SL_VERBS_CHUNK_BYTES, &iface->staging);
    if (err == 0)
        err = chunks_init(&iface->tx_chunks, 0, chunks / 2);
    if (err == 0)
        err = chunks_init(&iface->rx_chunks, chunks / 2, chunks / 2);
    if (err != 0)
        return err;
    for (unsigned i = 0; i < SL_VERBS_TX_FRAMES; i++) {
        iface->tx_frames[i].bytes = iface->frames.bytes + i * frame_bytes;
        sl_verbs_frame_free(iface, &iface->tx_frames[i]);
    }
    struct sl_verbs_frame header = {.kind = SL_VERBS_PING};

    iface->ping.bytes = iface->frames.bytes + SL_VERBS_TX_FRAMES * frame_bytes;
    iface->ping.len = sizeof(header);
    memcpy(iface->ping.bytes, &header, sizeof(header));
    return 0;
}

/* Who asked for encryption should not believe to have it. */
static void say_what_is_in_clear(const struct sl_config *config)
{
    static _Atomic bool said;

    if (config->tcp_tls == SL_ON && !atomic_exchange(&said, true))
        sl_warn("verbs", "SLUICE_TCP_TLS encrypts TCP alone: what goes by RDMA goes in clear; SLUICE_TRANSPORT=shm,tcp "
                "keeps to what it covers");
}

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_verbs_iface *iface = calloc(1, sizeof(*iface));
    int err;

    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a verbs interface");
    iface->base = (struct sl_iface){.worker = worker, .caps = SL_CAP_WAKEUP | SL_CAP_MENDS};
    if (handler != NULL)
        iface->base.handler = *handler;
    iface->base.ops = sl_transport_complete(&sl_verbs_ops, &iface->ops);
    iface->config = worker->config;
    iface->eager_bytes = (uint32_t)iface->config->verbs_eager_bytes;
    iface->base.eager_max = iface->eager_bytes;
    iface->slot_bytes = (SL_VERBS_FRAME_BYTES + iface->eager_bytes + 63) & ~63u;
    sl_list_init(&iface->eps);
    sl_list_init(&iface->active);
    sl_list_init(&iface->timed);
    sl_verbs_mem_init(iface);
    sl_list_init(&iface->dirty);
    sl_list_init(&iface->free_frames);
    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = iface->epoll_fd < 0 ? sl_fail(-errno, "epoll_create1 failed: %s", sluice_strerror(-errno))
                              : sl_ibv_get(&iface->ibv);
    if (err == 0) {
        iface->mlx5dv = sl_mlx5dv_get();
        fork_prepare(iface);
        err = rails_open(iface, dev);
    }
    if (err == 0 && sl_verbs_gpu_possible(iface))
        iface->base.caps |= SL_CAP_GPU;
    if (err == 0)
        err = pools_init(iface);
    if (err == 0)
        err = companion_open(iface);
    if (err == 0) {
        struct epoll_event event = {.events = EPOLLIN};
        int fd = iface->companion->ops->fd(iface->companion);

        if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
            err = sl_fail(-errno, "the companion's events cannot be waited for: %s",
                          sluice_strerror(-errno));
    }
    if (err != 0) {
        close_iface(&iface->base);
        return err;
    }
    say_what_is_in_clear(iface->config);
    *out = &iface->base;
    return 0;
}

/* ---- connections ---- */

static size_t ep_bytes(const struct sl_verbs_iface *iface)
{
    return sizeof(struct sl_verbs_ep) + (size_t)SL_VERBS_CREDITS * iface->slot_bytes;
}

static int ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    /* Not of the heap, which would clear it: of a connection with little to say most pages are never touched. */
    struct sl_verbs_ep *ep = mmap(NULL, ep_bytes(iface), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
        err = iface->companion->ops->ep_create(iface->companion, &ep->companion);
    if (err != 0) {
        munmap(ep, ep_bytes(iface));
        return err;
    }
    ep->companion->owner = ep;
    iface->ep_count++;
    sl_list_push_back(&iface->eps, &ep->link);
    *out = &ep->base;
    return 0;
}

static int ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct address mine = {.magic = MAGIC};
    struct sl_addr companion;
    int err = ep->companion->iface->ops->ep_addr(ep->companion, &companion);

    if (err != 0)
        return err;
    if (companion.len > sizeof(mine.companion))
        return sl_fail(-EMSGSIZE, "the companion's address has %u bytes", companion.len);
    mine.len = companion.len;
    memcpy(mine.companion, companion.bytes, companion.len);
    out->len = (uint16_t)(offsetof(struct address, companion) + companion.len);
    memcpy(out->bytes, &mine, out->len);
    return 0;
}

static int ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct sl_verbs_iface *iface = ep->iface;
    struct address theirs = {0};
    struct sl_addr companion = {0};
    int err;

    if (ep->state != SL_VERBS_EP_NEW)
        return sl_fail(-EINVAL, "the endpoint to %s was connected before", sl_ep_peer_name(base));
    memcpy(&theirs, peer->bytes, peer->len < sizeof(theirs) ? peer->len : sizeof(theirs));
    if (peer->len < offsetof(struct address, companion) || theirs.magic != MAGIC ||
        theirs.len != peer->len - offsetof(struct address, companion))
        return sl_fail(-EPROTO, "the address of %s is not one of the verbs transport",
                       sl_ep_peer_name(base));
    companion.len = theirs.len;
    memcpy(companion.bytes, theirs.companion, theirs.len);
    ep->companion->peer = base->peer;
    ep->companion->peer_name = base->peer_name;
    ep->companion_req = (struct sl_req){.status = SL_PENDING, .done = on_companion_up};
    ep->connect_req = req;
    ep->state = SL_VERBS_EP_CONNECTING;
    ep->connect_deadline_ns = sl_now(iface->base.worker->clock) +
                              (uint64_t)iface->config->connect_timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    sl_verbs_ep_time(ep);
    err = ep->companion->iface->ops->ep_connect(ep->companion, &companion, &ep->companion_req);
    if (err < 0) {
        iface->connecting--;
        ep->state = SL_VERBS_EP_NEW;
        return err;
    }
    return 0;
}

/* Has the peer said farewell? Where many connections end, it often did so first, and nothing acknowledges
 * what is still on its way. Not from inside progress, which a handler may call this from. */
static bool has_left(struct sl_verbs_ep *ep)
{
    struct sl_iface *companion = ep->iface->companion;

    if (!ep->iface->batching)
        companion->ops->progress(companion, 64);
    return ep->left;
}

/* Frames are done for their sender when they are posted: before the queue pairs go, they must have arrived. Receives
 * that are posted keep their memory meanwhile: they are canceled only when no peer can write there any more. A send that
 * is not over means that the connection is given up. */
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
                         sl_now(iface->base.worker->clock) < deadline_ns; i++)
        if (sl_verbs_rail_poll(path->rail, 64) < 0 || (i % LINGER_EVERY == LINGER_EVERY - 1 && has_left(ep)))
            return;
}

static void ep_destroy(struct sl_ep *base)
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
    companion_close(ep);
    sl_verbs_cancel(ep, -ECANCELED);
    sl_verbs_tcp_close(ep);
    for (unsigned i = 0; i < ep->path_count; i++)
        sl_verbs_path_free(ep->paths[i]);
    deactivate(ep);
    untime(ep);
    sl_list_remove(&ep->link);
    iface->ep_count--;
    munmap(ep, ep_bytes(iface));
}

static void ep_describe(const struct sl_ep *base, char *out, size_t cap)
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
            used += (size_t)snprintf(out + used, cap - used, ", %s %s", ep->paths[i]->rail->port.name,
                                     ep->paths[i]->state == SL_VERBS_PATH_UP ? "up"
                                     : ep->paths[i]->why[0] != '\0'          ? ep->paths[i]->why
                                                                             : "down");
    if (used < cap)
        snprintf(out + used, cap - used, ", sent %llu, received %llu bytes",
                 (unsigned long long)sent, (unsigned long long)received);
}

/* ---- progress ---- */

static void flush_batches(struct sl_verbs_iface *iface)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&iface->dirty)) != NULL) {
        struct sl_verbs_path *path = sl_container_of(node, struct sl_verbs_path, dirty);

        path->is_dirty = false;
        sl_verbs_path_flush(path);
    }
}

/* True while the connection needs another look without anything new having happened. What waits for a path
 * is looked at when one comes up: until then its owner may sleep. */
static bool has_work(const struct sl_verbs_ep *ep)
{
    bool can_send = ep->paths_up > 0 || sl_verbs_tcp_path(ep) != NULL;
    bool stuck = !sl_list_empty(&ep->repeat) || ep->unannounced > 0 || ep->drop_count > 0 ||
                 ep->wants_staging || ep->deal_count > 0 || ep->redo_count > 0 ||
                 ep->credits_owed >= SL_VERBS_CREDITS / 2;

    if (ep->state == SL_VERBS_EP_DOWN)
        return false;
    return ep->failing || ep->left || ep->in_inbox[ep->record_in % SL_VERBS_RECORDS] ||
           ep->record_count > 0 || ep->late_count > 0 || ep->gpu_waits > 0 ||
           sl_verbs_tcp_has_work(ep) || (can_send && stuck);
}

static int ep_work(struct sl_verbs_ep *ep)
{
    int moved = sl_verbs_inbox_run(ep);

    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->failing) {
            sl_verbs_path_end(ep->paths[i]);
            moved++;
        }
    if (ep->record_count > 0)
        sl_verbs_record_flush(ep);
    if (SL_UNLIKELY(ep->left && ep->state == SL_VERBS_EP_UP))
        leave(ep);
    if (SL_UNLIKELY(ep->failing)) {
        ep_lost(ep);
        return 1;
    }
    if (ep->state == SL_VERBS_EP_UP)
        moved += sl_verbs_ep_push(ep) + sl_verbs_tcp_push(ep);
    return moved;
}

static int run_active(struct sl_verbs_iface *iface)
{
    struct sl_node turn, *node;
    int moved = 0;

    if (sl_list_empty(&iface->active))
        return 0;
    turn = iface->active;
    turn.next->prev = turn.prev->next = &turn;
    sl_list_init(&iface->active);
    while ((node = sl_list_pop_front(&turn)) != NULL) {
        struct sl_verbs_ep *ep = sl_container_of(node, struct sl_verbs_ep, active);

        ep->is_active = false;
        moved += ep_work(ep);
        if (has_work(ep))
            sl_verbs_ep_activate(ep);
    }
    return moved;
}

static int run_timers(struct sl_verbs_iface *iface)
{
    uint64_t now_ns = sl_now(iface->base.worker->clock);
    int moved = 0;

    if (now_ns < iface->next_timer_ns)
        return 0;
    iface->ticked_ns = now_ns;
    iface->next_timer_ns = now_ns + (iface->connecting > 0 ? 0 : TIMER_NS);
    for (unsigned i = 0; i < iface->rail_count; i++)
        moved += sl_verbs_rail_events(&iface->rails[i]);
    sl_list_foreach (&iface->timed, node) {
        struct sl_verbs_ep *ep = sl_container_of(node, struct sl_verbs_ep, timed);

        if (now_ns < ep->due_ns)
            continue;
        ep->due_ns = sl_verbs_repair_timers(ep, now_ns);
        if (ep->due_ns == SL_NEVER)
            untime(ep);
    }
    return moved;
}

static int progress(struct sl_iface *base, unsigned budget)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0, n;

    iface->batching = true;
    iface->makes = SL_VERBS_MAKES;
    for (unsigned i = 0; i < iface->rail_count; i++) {
        n = sl_verbs_rail_poll(&iface->rails[i], budget);
        if (n < 0) {
            iface->batching = false;
            return n;
        }
        moved += n;
    }
    if (SL_UNLIKELY(iface->stage_count != 0))
        moved += sl_verbs_gpu_progress(iface);
    moved += run_active(iface);
    if (iface->round++ % COMPANION_EVERY == 0 || iface->connecting > 0) {
        n = iface->companion->ops->progress(iface->companion, budget);
        if (n < 0) {
            iface->batching = false;
            return n;
        }
        moved += n + run_timers(iface) + run_active(iface);
    }
    iface->batching = false;
    flush_batches(iface);
    return moved;
}

/* ---- sleeping ---- */

static int wake_fd(struct sl_iface *base)
{
    return sl_verbs_iface_of(base)->epoll_fd;
}

static void disarm(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);

    for (unsigned i = 0; i < iface->rail_count; i++) {
        struct sl_verbs_rail *rail = &iface->rails[i];
        struct ibv_cq *cq;
        void *arg;

        while (iface->ibv->ibv_get_cq_event(rail->channel, &cq, &arg) == 0)
            rail->cq_events++;
    }
    iface->companion->ops->disarm(iface->companion);
    iface->next_timer_ns = 0; /* what woke us may be an asynchronous event */
}

static int arm(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0;

    if (!sl_list_empty(&iface->active) || iface->connecting > 0 || sl_verbs_gpu_busy(iface))
        return -EAGAIN;
    for (unsigned i = 0; i < iface->rail_count; i++)
        if (ibv_req_notify_cq(iface->rails[i].cq, 0) != 0)
            return -EAGAIN;
    /* What completed before the request rings no bell. */
    iface->round = 0;
    moved = progress(base, 64);
    if (moved != 0 || iface->companion->ops->arm(iface->companion) != 0)
        return -EAGAIN;
    return 0;
}

/* Paths come back by what the companion carries, and need nobody who listens. */
static void stop_listening(struct sl_iface *base)
{
    struct sl_iface *companion = sl_verbs_iface_of(base)->companion;

    companion->ops->stop_listening(companion);
}

const struct sl_transport_ops sl_verbs_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "verbs",
    .probe = sl_verbs_probe,
    .open = open_iface,
    .close = close_iface,
    .mr_reg = sl_verbs_mr_reg,
    .mr_dereg = sl_verbs_mr_dereg,
    .mem_gone = sl_verbs_mem_gone,
    .ep_create = ep_create,
    .ep_addr = ep_addr,
    .ep_connect = ep_connect,
    .ep_destroy = ep_destroy,
    .stop_listening = stop_listening,
    .send = sl_verbs_send,
    .recv = sl_verbs_recv,
    .ctrl = sl_verbs_ctrl,
    .progress = progress,
    .fd = wake_fd,
    .arm = arm,
    .disarm = disarm,
    .ep_describe = ep_describe,
    .ep_stats = sl_verbs_ep_stats,
};
