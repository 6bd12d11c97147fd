/* SPDX-License-Identifier: Apache-2.0 */
/* The transport within one process. A message lies in the inbox of its receiver from the start,
 * with the time at which it arrives. */
#include "tests/fake/loop.h"

#include "core/config.h"
#include "core/err.h"
#include "core/list.h"
#include "core/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ADDR_VERSION 1
#define NOBODY UINT32_MAX
#define LOOK_NS 1000
#define TAKEN_MAX 16

struct message {
    struct sl_node link; /* of the inbox */
    struct sl_req *req;  /* the sender's while pending */
    const void *lent;    /* its bytes then */
    uint32_t from;
    uint64_t at_ns, tag;
    size_t len;
    uint8_t bytes[];
};

struct loop_ep {
    struct sl_ep base;
    uint32_t idx, peer;
    struct sl_node link, inbox, ctrls, recvs;
    struct sl_req *connect;
    bool connected, told;
    unsigned taken, ctrls_taken;        /* of its own, that have not arrived */
    uint64_t connect_limit_ns, last_ns; /* last_ns: when its latest message arrives */
    uint64_t stall_until_ns;
    uint64_t lost_at_ns; /* SL_NEVER: not lost */
    bool abrupt;
    int lost_status;
};

struct loop_iface {
    struct sl_iface base;
    struct loop *loop;
    struct sl_node link, eps;
    struct sl_transport_ops ops;
    int fd;
    bool armed;
};

struct loop {
    struct sl_clock clock; /* first: the clock's owner is found by cast */
    struct sl_rng rng;
    uint64_t now_ns, latency_ns, jitter_ns;
    uint32_t eagain_in;
    void (*look)(void *arg);
    void *look_arg;
    bool looking;
    struct sl_node ifaces;
    struct loop_ep **eps; /* by number; NULL: destroyed */
    unsigned ep_count, ep_cap, live;
    char misuse[160];
};

static struct loop *the;

static struct loop_ep *ep_of(struct sl_ep *ep)
{
    return (struct loop_ep *)ep;
}

static struct loop_iface *iface_of(struct sl_iface *iface)
{
    return (struct loop_iface *)iface;
}

static struct loop_ep *ep_find(const struct loop *loop, uint32_t idx)
{
    return idx < loop->ep_count ? loop->eps[idx] : NULL;
}

static void misuse(struct loop *loop, const char *what)
{
    if (loop->misuse[0] == '\0')
        snprintf(loop->misuse, sizeof(loop->misuse), "%s", what);
}

/* ---- what is due ---- */

static bool is_due(const struct loop *loop, const struct loop_ep *ep, const struct sl_node *list)
{
    const struct message *m = sl_container_of(list->next, const struct message, link);

    return list->next != list && m->at_ns <= loop->now_ns && ep->stall_until_ns <= loop->now_ns;
}

static bool has_work(const struct loop *loop, const struct loop_ep *ep)
{
    if (ep->connect != NULL)
        return true;
    return !ep->told && (ep->lost_at_ns <= loop->now_ns || is_due(loop, ep, &ep->ctrls) ||
                         (is_due(loop, ep, &ep->inbox) && ep->recvs.next != &ep->recvs));
}

static bool iface_has_work(const struct loop_iface *iface)
{
    for (const struct sl_node *n = iface->eps.next; n != &iface->eps; n = n->next)
        if (has_work(iface->loop, sl_container_of(n, const struct loop_ep, link)))
            return true;
    return false;
}

static void ring(struct loop *loop)
{
    uint64_t one = 1;

    sl_list_foreach(&loop->ifaces, node)
    {
        struct loop_iface *iface = sl_container_of(node, struct loop_iface, link);

        if (!iface->armed || !iface_has_work(iface))
            continue;
        iface->armed = false;
        sl_assert(write(iface->fd, &one, sizeof(one)) == sizeof(one));
    }
}

/* ---- the world ---- */

void loop_pass(struct loop *loop, uint64_t ns)
{
    loop->now_ns += ns;
    ring(loop);
}

static uint64_t look_at_clock(const struct sl_clock *clock)
{
    struct loop *loop = (struct loop *)(uintptr_t)clock;

    if (loop->looking)
        return loop->now_ns;
    loop->looking = true;
    if (loop->look != NULL)
        loop->look(loop->look_arg);
    loop->looking = false;
    loop_pass(loop, LOOK_NS);
    return loop->now_ns;
}

struct loop *loop_create(uint64_t seed)
{
    struct loop *loop = calloc(1, sizeof(*loop));

    sl_assert(loop != NULL && the == NULL);
    loop->clock.now_ns = look_at_clock;
    loop->now_ns = SL_NS_PER_S; /* 0 often stands for "never" */
    loop->latency_ns = 2000;
    sl_rng_init(&loop->rng, seed);
    sl_list_init(&loop->ifaces);
    the = loop;
    return loop;
}

void loop_destroy(struct loop *loop)
{
    if (loop == NULL)
        return;
    sl_assert(loop->live == 0);
    the = NULL;
    free(loop->eps);
    free(loop);
}

const struct sl_clock *loop_clock(const struct loop *loop)
{
    return &loop->clock;
}

void loop_on_look(struct loop *loop, void (*look)(void *arg), void *arg)
{
    loop->look = look;
    loop->look_arg = arg;
}

uint64_t loop_now(const struct loop *loop)
{
    return loop->now_ns;
}

void loop_weather(struct loop *loop, uint64_t latency_ns, uint64_t jitter_ns, uint32_t eagain_in)
{
    loop->latency_ns = latency_ns;
    loop->jitter_ns = jitter_ns;
    loop->eagain_in = eagain_in;
}

unsigned loop_ep_count(const struct loop *loop)
{
    return loop->ep_count;
}

void loop_stall(struct loop *loop, unsigned idx, uint64_t for_ns)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    if (ep != NULL)
        ep->stall_until_ns = loop->now_ns + for_ns;
    if (peer != NULL)
        peer->stall_until_ns = loop->now_ns + for_ns;
}

static void lose(struct loop *loop, struct loop_ep *ep, int status, uint64_t at_ns, bool abrupt)
{
    if (ep == NULL || ep->lost_at_ns <= at_ns)
        return;
    ep->lost_at_ns = at_ns;
    ep->lost_status = status;
    ep->abrupt = abrupt;
    (void)loop;
}

void loop_lose(struct loop *loop, unsigned idx, int status, uint64_t within_ns)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    lose(loop, ep, status, loop->now_ns + sl_rng_below(&loop->rng, within_ns + 1), true);
    lose(loop, peer, status, loop->now_ns + sl_rng_below(&loop->rng, within_ns + 1), true);
}

unsigned loop_live(const struct loop *loop)
{
    return loop->live;
}

const char *loop_misuse(const struct loop *loop)
{
    return loop->misuse[0] != '\0' ? loop->misuse : NULL;
}

/* ---- interfaces and endpoints ---- */

static int loop_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                      size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return sl_fail(-ENODEV, "this transport exists only inside tests");
}

static int loop_open(struct sl_worker *worker, const struct sl_device *dev,
                     const struct sl_handler *handler, struct sl_iface **out)
{
    struct loop_iface *iface = calloc(1, sizeof(*iface));

    (void)dev;
    sl_assert(iface != NULL && the != NULL);
    iface->base = (struct sl_iface){.ops = sl_transport_complete(&loop_ops, &iface->ops),
                                    .worker = worker,
                                    .handler = *handler,
                                    .caps = SL_CAP_WAKEUP};
    iface->loop = the;
    iface->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sl_assert(iface->fd >= 0);
    sl_list_init(&iface->eps);
    sl_list_push_back(&the->ifaces, &iface->link);
    the->live++;
    *out = &iface->base;
    return 0;
}

static void loop_close(struct sl_iface *base)
{
    struct loop_iface *iface = iface_of(base);

    if (!sl_list_empty(&iface->eps))
        misuse(iface->loop, "an interface is closed that has endpoints");
    iface->loop->live--;
    sl_list_remove(&iface->link);
    close(iface->fd);
    free(iface);
}

static int loop_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct loop *loop = iface_of(base)->loop;
    struct loop_ep *ep = calloc(1, sizeof(*ep));

    sl_assert(ep != NULL);
    if (loop->ep_count == loop->ep_cap) {
        loop->ep_cap = 2 * loop->ep_cap + 16;
        loop->eps = reallocarray(loop->eps, loop->ep_cap, sizeof(struct loop_ep *));
        sl_assert(loop->eps != NULL);
    }
    ep->base.iface = base;
    ep->idx = loop->ep_count;
    ep->peer = NOBODY;
    ep->lost_at_ns = SL_NEVER;
    sl_list_init(&ep->inbox);
    sl_list_init(&ep->ctrls);
    sl_list_init(&ep->recvs);
    sl_list_push_back(&iface_of(base)->eps, &ep->link);
    loop->eps[loop->ep_count++] = ep;
    loop->live++;
    *out = &ep->base;
    return 0;
}

static int loop_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    *out = (struct sl_addr){.len = 5, .bytes = {ADDR_VERSION}};
    memcpy(out->bytes + 1, &ep_of(base)->idx, sizeof(uint32_t));
    return 0;
}

static int loop_ep_connect(struct sl_ep *base, const struct sl_addr *addr, struct sl_req *req)
{
    struct loop_ep *ep = ep_of(base);
    struct loop *loop = iface_of(base->iface)->loop;

    if (addr->len != 5 || addr->bytes[0] != ADDR_VERSION)
        return sl_fail(-EPROTO, "this is no address of the loop");
    memcpy(&ep->peer, addr->bytes + 1, sizeof(uint32_t));
    ep->connect = req;
    ep->connect_limit_ns =
        loop->now_ns + (uint64_t)base->iface->worker->config->connect_timeout_ms * SL_NS_PER_MS;
    return 0;
}

static bool connect_try(struct loop *loop, struct loop_ep *ep)
{
    const struct loop_ep *peer = ep_find(loop, ep->peer);
    struct sl_req *req = ep->connect;
    int status = 0;

    if (peer == NULL)
        status = sl_fail(-ECONNREFUSED, "the peer in the loop is gone");
    else if (peer->peer != ep->idx && loop->now_ns >= ep->connect_limit_ns)
        status = sl_fail(-ETIMEDOUT, "the peer in the loop did not connect in time");
    else if (peer->peer != ep->idx)
        return false;
    ep->connect = NULL;
    ep->connected = status == 0;
    sl_req_end(req, status);
    return true;
}

/* Takes a message off its list; its sender's request ends with status. */
static void message_over(struct loop *loop, struct message *m, int status, bool is_ctrl)
{
    struct loop_ep *from = ep_find(loop, m->from);
    struct sl_req *req = m->req;

    sl_list_remove(&m->link);
    if (from != NULL && is_ctrl)
        from->ctrls_taken--;
    else if (from != NULL)
        from->taken--;
    if (req != NULL && memcmp(m->lent, m->bytes, m->len) != 0)
        misuse(loop, "bytes changed while they were lent to the sideband");
    free(m);
    if (req != NULL)
        sl_req_end(req, status);
}

static void inbox_clear(struct loop *loop, struct loop_ep *ep)
{
    struct sl_node *node;

    while ((node = ep->inbox.next) != &ep->inbox) {
        struct message *m = sl_container_of(node, struct message, link);

        m->req = NULL; /* its sender hears of the loss */
        message_over(loop, m, 0, false);
    }
    while ((node = ep->ctrls.next) != &ep->ctrls)
        message_over(loop, sl_container_of(node, struct message, link), 0, true);
}

/* Ends what ep has pending. */
static void end_all(struct loop *loop, struct loop_ep *ep, int status)
{
    struct loop_ep *peer = ep_find(loop, ep->peer);
    struct sl_node *node;

    if (ep->connect != NULL) {
        struct sl_req *req = ep->connect;

        ep->connect = NULL;
        sl_req_end(req, status);
    }
    /* Lent bytes are the owner's again: they and what was sent later cannot arrive. */
    bool gone = false;

    if (peer != NULL)
        sl_list_foreach(&peer->inbox, at)
        {
            struct message *m = sl_container_of(at, struct message, link);

            gone |= m->req != NULL;
            if (gone)
                message_over(loop, m, status, false);
        }
    while ((node = sl_list_pop_front(&ep->recvs)) != NULL)
        sl_req_end(sl_container_of(node, struct sl_req, link), status);
}

static void loop_ep_destroy(struct sl_ep *base)
{
    struct loop_ep *ep = ep_of(base), *peer;
    struct loop *loop;

    if (base == NULL)
        return;
    loop = iface_of(base->iface)->loop;
    ep->told = true;
    end_all(loop, ep, -ECANCELED);
    inbox_clear(loop, ep);
    peer = ep->connected ? ep_find(loop, ep->peer) : NULL;
    if (peer != NULL && ep->lost_at_ns == SL_NEVER) {
        uint64_t at = loop->now_ns + loop->latency_ns;

        lose(loop, peer, -ECONNRESET, at > ep->last_ns ? at : ep->last_ns, false);
    }
    loop->eps[ep->idx] = NULL;
    loop->live--;
    sl_list_remove(&ep->link);
    free(ep);
}

/* ---- data ---- */

static int refused(struct loop *loop, const struct loop_ep *ep)
{
    if (ep->told)
        return sl_fail(ep->lost_status, "this end of the loop is lost");
    if (!ep->connected)
        return sl_fail(-EINVAL, "this end of the loop is not connected");
    return sl_rng_chance(&loop->rng, loop->eagain_in) ? -EAGAIN : 0;
}

/* Puts a copy on its way; NULL: the peer is gone, and the message with it. */
static struct message *message_go(struct loop *loop, struct loop_ep *ep, const void *bytes,
                                  size_t len, bool is_ctrl)
{
    struct loop_ep *peer = ep_find(loop, ep->peer);
    struct message *m;
    uint64_t at = loop->now_ns + loop->latency_ns;

    if (peer == NULL || peer->told || ep->lost_at_ns <= loop->now_ns)
        return NULL;
    m = malloc(sizeof(*m) + len);
    sl_assert(m != NULL);
    if (loop->jitter_ns != 0)
        at += sl_rng_below(&loop->rng, loop->jitter_ns);
    ep->last_ns = at > ep->last_ns ? at : ep->last_ns;
    *m = (struct message){.from = ep->idx, .at_ns = ep->last_ns, .len = len};
    if (len != 0)
        memcpy(m->bytes, bytes, len);
    sl_list_push_back(is_ctrl ? &peer->ctrls : &peer->inbox, &m->link);
    return m;
}

static int loop_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct loop_ep *ep = ep_of(base);
    struct loop *loop = iface_of(base->iface)->loop;
    int err = refused(loop, ep);
    struct message *m;

    if (err != 0)
        return err;
    if (ep->taken == TAKEN_MAX)
        return -EAGAIN;
    m = message_go(loop, ep, buf->addr, buf->len, false);
    if (m == NULL) {
        req->status = 0;
        return 1; /* into nothing, as a socket's buffer does */
    }
    ep->taken++;
    m->tag = tag;
    req->len = buf->len;
    if (sl_rng_chance(&loop->rng, 2)) {
        req->status = 0;
        return 1;
    }
    m->req = req;
    m->lent = buf->addr;
    return 0;
}

static int loop_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct loop_ep *ep = ep_of(base);

    if (ep->told)
        return sl_fail(ep->lost_status, "this end of the loop is lost");
    req->len = (uintptr_t)sink;
    sl_list_push_back(&ep->recvs, &req->link);
    return 0;
}

static int loop_ctrl(struct sl_ep *base, const void *bytes, size_t len)
{
    struct loop_ep *ep = ep_of(base);
    struct loop *loop = iface_of(base->iface)->loop;
    int err = refused(loop, ep);

    if (err != 0)
        return err;
    if (len > SL_CTRL_ROOM)
        return sl_fail(-EINVAL, "a control message of %zu bytes", len);
    if (ep->ctrls_taken == TAKEN_MAX)
        return -EAGAIN;
    ep->ctrls_taken += message_go(loop, ep, bytes, len, true) != NULL;
    return 0;
}

static bool ctrl_one(struct loop *loop, struct loop_ep *ep)
{
    struct sl_iface *iface = ep->base.iface;
    uint8_t bytes[SL_CTRL_ROOM];
    struct message *m = sl_container_of(ep->ctrls.next, struct message, link);

    if (ep->told || !is_due(loop, ep, &ep->ctrls))
        return false;
    size_t len = m->len;

    memcpy(bytes, m->bytes, len);
    message_over(loop, m, 0, true);
    iface->handler.ctrl(iface->handler.arg, &ep->base, bytes, len);
    return true;
}

static bool match_one(struct loop *loop, struct loop_ep *ep)
{
    struct sl_node *first = ep->recvs.next;
    struct sl_req *req = sl_container_of(first, struct sl_req, link);
    struct message *m = sl_container_of(ep->inbox.next, struct message, link);

    if (ep->told || first == &ep->recvs || !is_due(loop, ep, &ep->inbox))
        return false;
    const struct sl_sink *sink = (const struct sl_sink *)(uintptr_t)req->len;
    int status = m->tag != sink->tag ? -EPROTO : !sl_sink_takes(sink, m->len) ? -EMSGSIZE : 0;

    sl_list_remove(first);
    if (status == 0 && m->len != 0)
        memcpy(sink->dst, m->bytes, m->len);
    req->len = m->len;
    req->tag = m->tag;
    message_over(loop, m, 0, false);
    sl_req_end(req, status);
    return true;
}

static bool down_one(struct loop *loop, struct loop_ep *ep)
{
    struct sl_iface *iface = ep->base.iface;

    if (ep->told || ep->lost_at_ns > loop->now_ns || ep->connect != NULL)
        return false;
    if (!ep->abrupt &&
        (!sl_list_empty(&ep->ctrls) || (!sl_list_empty(&ep->inbox) && !sl_list_empty(&ep->recvs))))
        return false; /* after what came before */
    ep->told = true;
    inbox_clear(loop, ep);
    iface->handler.down(iface->handler.arg, &ep->base, ep->lost_status,
                        ep->abrupt ? "the loop was cut" : "the peer closed its end of the loop");
    end_all(loop, ep, ep->lost_status);
    return true;
}

static bool move_one(struct loop *loop, struct loop_ep *ep)
{
    if (ep->connect != NULL)
        return connect_try(loop, ep);
    if (ep->abrupt && down_one(loop, ep))
        return true;
    return ctrl_one(loop, ep) || match_one(loop, ep) || down_one(loop, ep);
}

static int loop_progress(struct sl_iface *base, unsigned budget)
{
    struct loop_iface *iface = iface_of(base);
    unsigned moved = 0;

    sl_list_foreach(&iface->eps, node) while (
        moved < budget && move_one(iface->loop, sl_container_of(node, struct loop_ep, link)))
        moved++;
    return (int)moved;
}

static int loop_fd(struct sl_iface *base)
{
    return iface_of(base)->fd;
}

static int loop_arm(struct sl_iface *base)
{
    if (iface_has_work(iface_of(base)))
        return -EAGAIN;
    iface_of(base)->armed = true;
    return 0;
}

static void loop_disarm(struct sl_iface *base)
{
    uint64_t count;

    iface_of(base)->armed = false;
    if (read(iface_of(base)->fd, &count, sizeof(count)) < 0)
        return; /* nothing rang */
}

static void loop_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct loop_ep *ep = (const struct loop_ep *)base;

    snprintf(out, cap, "end %u of a loop to %u%s", ep->idx, ep->peer, ep->told ? ", lost" : "");
}

const struct sl_transport_ops loop_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "loop",
    .number = 30,
    .place = 0,
    .traits = SL_TRAIT_SIDEBAND,
    .probe = loop_probe,
    .open = loop_open,
    .close = loop_close,
    .ep_create = loop_ep_create,
    .ep_addr = loop_ep_addr,
    .ep_connect = loop_ep_connect,
    .ep_destroy = loop_ep_destroy,
    .send = loop_send,
    .recv = loop_recv,
    .ctrl = loop_ctrl,
    .progress = loop_progress,
    .fd = loop_fd,
    .arm = loop_arm,
    .disarm = loop_disarm,
    .ep_describe = loop_describe,
};

/* Before tcp: so connections over the fake libibverbs have their sideband here. */
__attribute__((constructor)) static void loop_register(void)
{
    sl_assert(sl_transport_register(&loop_ops) == 0);
}
