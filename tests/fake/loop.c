/* SPDX-License-Identifier: Apache-2.0 */
/* The transport within one process. A message lies in the inbox of its receiver from the start,
 * with the time at which it arrives. */
#include "tests/fake/loop.h"

#include "core/channel.h"
#include "core/config.h"
#include "core/err.h"
#include "core/list.h"
#include "core/registry.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ADDR_VERSION 1
#define NOBODY UINT32_MAX
#define LOOK_NS 1000
#define TAKEN_MAX 16
#define EAGER_MAX                                                                                  \
    65536 /* up to here a send ends when it has arrived; larger ones with the receive */

struct message {
    struct sl_node link; /* of the inbox */
    struct sl_req *req;  /* the sender's while pending */
    const void *lent;    /* its bytes then */
    uint32_t from, channel;
    uint32_t connection; /* of its sender */
    bool bye;            /* no message: its sender has closed the channel */
    uint64_t at_ns, tag;
    size_t len;
    uint8_t bytes[];
};

struct loop_channel {
    struct sl_channel base; /* posted: of recvs */
    struct sl_node recvs;
    unsigned taken; /* of its own, that have not arrived */
};

struct loop_ep {
    struct sl_ep base;
    uint32_t idx, peer;
    struct sl_node link, inbox, ctrls;
    struct sl_node
        orphans; /* its own messages that a peer which ended has left: sends are pending */
    struct sl_channels channels;
    struct sl_req *connect;
    bool connected, told;
    bool redials, matched,
        fails;            /* matched: with a peer that redials, too; connect is about to end */
    bool dead;            /* its process is */
    unsigned ctrls_taken; /* of its own, that have not arrived */
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
    uint32_t eagain_in, redial_fails_in;
    void (*look)(void *arg);
    void *look_arg;
    bool looking, takes_at_once;
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

/* Can the first message of the inbox be taken out, once it is due? */
static bool is_takeable(struct loop_ep *ep)
{
    const struct message *m = sl_container_of(ep->inbox.next, struct message, link);
    const struct sl_channel *channel;

    if (sl_list_empty(&ep->inbox))
        return false;
    channel = sl_channels_find(&ep->channels, m->channel);
    if (channel == NULL)
        return m->bye || ep->channels.wanting > 0;
    return m->bye || channel->closed || channel->posted > 0 ||
           sl_channels_wanting(&ep->channels, channel);
}

static bool has_work(const struct loop *loop, struct loop_ep *ep)
{
    if (ep->connect != NULL || sl_channels_due(&ep->channels))
        return true;
    return !ep->told && (ep->lost_at_ns <= loop->now_ns || is_due(loop, ep, &ep->ctrls) ||
                         (is_due(loop, ep, &ep->inbox) && is_takeable(ep)));
}

static bool iface_has_work(const struct loop_iface *iface)
{
    for (const struct sl_node *n = iface->eps.next; n != &iface->eps; n = n->next)
        if (has_work(iface->loop, sl_container_of(n, struct loop_ep, link)))
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

void loop_takes_at_once(struct loop *loop)
{
    loop->takes_at_once = true;
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

void loop_lose_here(struct loop *loop, unsigned idx, int status)
{
    lose(loop, ep_find(loop, idx), status, loop->now_ns, true);
}

void loop_die(struct loop *loop, unsigned idx)
{
    struct loop_ep *ep = ep_find(loop, idx), *peer = ep == NULL ? NULL : ep_find(loop, ep->peer);

    if (ep == NULL)
        return;
    ep->dead = true;
    lose(loop, ep, -ECONNRESET, loop->now_ns, true);
    lose(loop, peer, -ECONNRESET, loop->now_ns + loop->latency_ns, true);
}

void loop_redials(struct loop *loop, uint32_t fail_in)
{
    loop->redial_fails_in = fail_in;
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
                                    .caps = SL_CAP_WAKEUP | SL_CAP_CHANNELS};
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

    sl_assert(ep != NULL && sl_channels_init(&ep->channels, sizeof(struct loop_channel)) == 0);
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
    sl_list_init(&ep->orphans);
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

static void inbox_clear(struct loop *loop, struct loop_ep *ep);

/* Both ends dial again, and neither knows of the other. What one of them sent before it knew that
 * the old connection was lost is lost with it. */
static void match(struct loop *loop, struct loop_ep *ep, struct loop_ep *peer)
{
    struct loop_ep *ends[2] = {ep, peer};
    uint32_t number = 1 + (ep->base.connection > peer->base.connection ? ep->base.connection
                                                                       : peer->base.connection);

    for (unsigned i = 0; i < 2; i++)
        inbox_clear(loop, ends[i]);
    for (unsigned i = 0; i < 2; i++) {
        ends[i]->base.connection = number;
        ends[i]->matched = true;
        ends[i]->lost_at_ns = SL_NEVER;
        ends[i]->last_ns = 0;
    }
}

/* 1: it waits. */
static int redial_try(struct loop *loop, struct loop_ep *ep, struct loop_ep *peer)
{
    if (peer == NULL || peer->dead)
        return sl_fail(-ECONNREFUSED, "nobody is at the other end of the loop");
    if (ep->fails || loop->now_ns >= ep->connect_limit_ns)
        return sl_fail(-ETIMEDOUT, "the loop did not come to be");
    if (ep->matched)
        return (peer->matched || peer->connected) && ep->lost_at_ns > loop->now_ns
                   ? 0
                   : sl_fail(-ECONNRESET, "the loop broke as soon as it was there");
    if (peer->connected) /* it does not know yet */
        lose(loop, peer, -ECONNRESET, loop->now_ns + loop->latency_ns, true);
    if (peer->connect == NULL || !peer->redials || peer->matched || peer->fails)
        return 1;
    match(loop, ep, peer);
    return 0;
}

static bool redial_ends(struct loop *loop, struct loop_ep *ep)
{
    int status = redial_try(loop, ep, ep_find(loop, ep->peer));
    struct sl_req *req = ep->connect;

    if (status == 1)
        return false;
    ep->connect = NULL;
    ep->connected = status == 0;
    ep->matched = ep->connected;
    ep->told = !ep->connected;
    if (!ep->connected)
        ep->lost_status = status;
    sl_req_end(req, status);
    return true;
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

static struct loop_channel *channel_of(struct loop_ep *ep, uint32_t id)
{
    return (struct loop_channel *)sl_channels_find(&ep->channels, id);
}

static void check_lent(struct loop *loop, const struct message *m)
{
    if (memcmp(m->lent, m->bytes, m->len) != 0)
        misuse(loop, "bytes changed while they were lent to the sideband");
}

/* Takes a message off its list; its sender's request ends with status. */
static void message_over(struct loop *loop, struct message *m, int status, bool is_ctrl)
{
    struct loop_ep *from = ep_find(loop, m->from);
    struct loop_channel *channel = from != NULL ? channel_of(from, m->channel) : NULL;
    struct sl_req *req = m->req;

    sl_list_remove(&m->link);
    if (from != NULL && from->base.connection != m->connection) {
        from = NULL; /* that one is no more */
        channel = NULL;
    }
    if (from != NULL && is_ctrl)
        from->ctrls_taken--;
    else if (channel != NULL && !m->bye)
        channel->taken--;
    if (req != NULL)
        check_lent(loop, m);
    free(m);
    if (req != NULL)
        sl_req_end(req, status);
}

static void inbox_clear(struct loop *loop, struct loop_ep *ep)
{
    struct sl_node *node;

    while ((node = ep->inbox.next) != &ep->inbox) {
        struct message *m = sl_container_of(node, struct message, link);
        struct loop_ep *from = ep_find(loop, m->from);

        if (m->req == NULL || from == NULL || from->base.connection != m->connection) {
            message_over(loop, m, 0, false);
            continue;
        }
        sl_list_remove(node); /* its sender hears of the loss */
        sl_list_push_back(&from->orphans, node);
    }
    while ((node = ep->ctrls.next) != &ep->ctrls)
        message_over(loop, sl_container_of(node, struct message, link), 0, true);
}

static struct sl_req *recv_take(struct loop_ep *ep, struct loop_channel *channel)
{
    sl_channel_wants(&ep->channels, &channel->base, -1);
    return sl_container_of(sl_list_pop_front(&channel->recvs), struct sl_req, link);
}

static void end_recvs(struct loop_ep *ep, struct loop_channel *channel, int status)
{
    while (channel->base.posted > 0)
        sl_req_end(recv_take(ep, channel), status);
}

/* Ends what ep has pending. */
static void end_all(struct loop *loop, struct loop_ep *ep, int status)
{
    struct loop_ep *peer = ep_find(loop, ep->peer);

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
    while (!sl_list_empty(&ep->orphans))
        message_over(loop, sl_container_of(ep->orphans.next, struct message, link), status, false);
    for (struct sl_channel *c = NULL; (c = sl_channels_next(&ep->channels, c)) != NULL;)
        end_recvs(ep, (struct loop_channel *)c, status);
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
    sl_channels_cancel(&ep->channels, -ECANCELED);
    inbox_clear(loop, ep);
    peer = ep->connected ? ep_find(loop, ep->peer) : NULL;
    if (peer != NULL && ep->lost_at_ns == SL_NEVER) {
        uint64_t at = loop->now_ns + loop->latency_ns;

        lose(loop, peer, -ECONNRESET, at > ep->last_ns ? at : ep->last_ns, false);
    }
    loop->eps[ep->idx] = NULL;
    loop->live--;
    sl_list_remove(&ep->link);
    sl_channels_fini(&ep->channels);
    free(ep);
}

/* In its place: what it has under way ends. */
static int loop_ep_redial(struct sl_ep *base, struct sl_req *req, struct sl_ep **out)
{
    struct loop_ep *old = ep_of(base), *ep = calloc(1, sizeof(*ep));
    struct loop *loop = iface_of(base->iface)->loop;

    sl_assert(ep != NULL && sl_channels_init(&ep->channels, sizeof(struct loop_channel)) == 0);
    if (old->connect != NULL)
        misuse(loop, "an endpoint is dialled again that is connecting");
    old->told = true;
    end_all(loop, old, -ECANCELED);
    sl_channels_cancel(&old->channels, -ECANCELED);
    inbox_clear(loop, old);
    ep->base = (struct sl_ep){.iface = base->iface,
                              .owner = base->owner,
                              .peer = base->peer,
                              .connection = base->connection,
                              .peer_name = base->peer_name};
    ep->idx = old->idx;
    ep->peer = old->peer;
    ep->dead = old->dead;
    ep->lost_at_ns = SL_NEVER;
    ep->redials = true;
    ep->fails = sl_rng_chance(&loop->rng, loop->redial_fails_in);
    ep->connect = req;
    ep->connect_limit_ns =
        loop->now_ns + (uint64_t)base->iface->worker->config->connect_timeout_ms * SL_NS_PER_MS;
    sl_list_init(&ep->inbox);
    sl_list_init(&ep->ctrls);
    sl_list_init(&ep->orphans);
    sl_list_push_back(&iface_of(base->iface)->eps, &ep->link);
    loop->eps[ep->idx] = ep;
    sl_list_remove(&old->link);
    sl_channels_fini(&old->channels);
    free(old);
    *out = &ep->base;
    return 0;
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

    if (peer == NULL || peer->told || ep->lost_at_ns <= loop->now_ns ||
        peer->base.connection != ep->base.connection)
        return NULL;
    m = malloc(sizeof(*m) + len);
    sl_assert(m != NULL);
    if (loop->jitter_ns != 0)
        at += sl_rng_below(&loop->rng, loop->jitter_ns);
    ep->last_ns = at > ep->last_ns ? at : ep->last_ns;
    *m = (struct message){
        .from = ep->idx, .connection = ep->base.connection, .at_ns = ep->last_ns, .len = len};
    if (len != 0)
        memcpy(m->bytes, bytes, len);
    sl_list_push_back(is_ctrl ? &peer->ctrls : &peer->inbox, &m->link);
    return m;
}

static int loop_channel_open(struct sl_ep *base, uint32_t id)
{
    struct sl_channel *channel;

    return sl_channels_open(&ep_of(base)->channels, id, &channel);
}

static uint64_t loop_channel_traffic(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_traffic(&((const struct loop_ep *)base)->channels, id);
}

static bool loop_channel_starves(const struct sl_ep *base, uint32_t id)
{
    return sl_channels_starve(&((const struct loop_ep *)base)->channels, id);
}

static void forget_if_over(struct loop_ep *ep, struct sl_channel *channel)
{
    if (sl_channel_over(channel))
        sl_channels_remove(&ep->channels, channel);
}

/* The copies arrive all the same. */
static void cancel_sends(struct sl_node *messages, uint32_t channel)
{
    sl_list_foreach(messages, node)
    {
        struct message *m = sl_container_of(node, struct message, link);
        struct sl_req *req = m->req;

        if (m->channel != channel || req == NULL)
            continue;
        m->req = NULL;
        sl_req_end(req, -ECANCELED);
    }
}

static void loop_channel_close(struct sl_ep *base, uint32_t id)
{
    struct loop_ep *ep = ep_of(base), *peer = ep_find(iface_of(base->iface)->loop, ep->peer);
    struct loop_channel *channel = channel_of(ep, id);
    struct message *bye;

    sl_assert(channel != NULL && channel->base.open);
    cancel_sends(&ep->orphans, id);
    if (peer != NULL)
        cancel_sends(&peer->inbox, id);
    end_recvs(ep, channel, -ECANCELED);
    sl_channel_close(&ep->channels, &channel->base, -ECANCELED);
    bye = ep->told ? NULL : message_go(iface_of(base->iface)->loop, ep, NULL, 0, false);
    if (bye != NULL) {
        bye->channel = id;
        bye->bye = true;
    }
    forget_if_over(ep, &channel->base);
}

static int loop_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct loop_ep *ep = ep_of(base);
    struct loop *loop = iface_of(base->iface)->loop;
    struct loop_channel *channel = channel_of(ep, buf->channel);
    int err = refused(loop, ep);
    struct message *m;

    sl_assert(channel != NULL && channel->base.open && !base->iface->handler.ctrl_only);
    if (err != 0)
        return err;
    if (channel->taken == TAKEN_MAX)
        return -EAGAIN;
    m = message_go(loop, ep, buf->addr, buf->len, false);
    if (m == NULL) {
        req->status = 0;
        return 1; /* into nothing, as a socket's buffer does */
    }
    channel->taken++;
    sl_channel_moved(base, &channel->base, buf->len);
    m->channel = buf->channel;
    m->tag = tag;
    req->len = buf->len;
    if (buf->len <= EAGER_MAX && (loop->takes_at_once || sl_rng_chance(&loop->rng, 2))) {
        req->status = 0;
        return 1;
    }
    req->status = SL_PENDING;
    m->req = req;
    m->lent = buf->addr;
    return 0;
}

static int loop_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct loop_ep *ep = ep_of(base);
    struct loop_channel *channel = channel_of(ep, sink->channel);

    sl_assert(channel != NULL && channel->base.open && !base->iface->handler.ctrl_only);
    if (sl_channel_claim(&ep->channels, &channel->base, sink, req))
        return 0; /* of a lost end, too */
    if (ep->told)
        return sl_fail(ep->lost_status, "this end of the loop is lost");
    if (channel->base.posted == 0)
        sl_list_init(&channel->recvs);
    sl_channel_wants(&ep->channels, &channel->base, 1);
    req->status = SL_PENDING;
    req->len = (uintptr_t)sink;
    sl_list_push_back(&channel->recvs, &req->link);
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

/* To consume() in two pieces: a transport may. */
static void hand_over(const struct sl_sink *sink, const struct message *m)
{
    size_t first = sink->granule > 1 ? 0 : m->len / 3;

    if (sink->consume == NULL) {
        memcpy(sink->dst, m->bytes, m->len);
        return;
    }
    if (first != 0)
        sink->consume(sink, m->bytes, 0, first);
    sink->consume(sink, m->bytes + first, first, m->len - first);
}

static int deliver(const struct message *m, const struct sl_sink *sink)
{
    if (m->tag != sink->tag)
        return -EPROTO;
    if (!sl_sink_takes(sink, m->len))
        return -EMSGSIZE;
    if (m->len != 0)
        hand_over(sink, m);
    return 0;
}

/* Of the messages that are here, ends the first send that need not wait for its receive. */
static bool arrive_one(struct loop *loop, struct loop_ep *ep)
{
    sl_list_foreach(&ep->inbox, node)
    {
        struct message *m = sl_container_of(node, struct message, link);
        struct sl_req *req = m->req;

        if (ep->told || m->at_ns > loop->now_ns || ep->stall_until_ns > loop->now_ns)
            return false;
        if (req == NULL || m->len > EAGER_MAX)
            continue;
        check_lent(loop, m);
        m->req = NULL;
        sl_req_end(req, 0);
        return true;
    }
    return false;
}

/* A message that there is a receive for, or that must make room for others. */
static bool match_one(struct loop *loop, struct loop_ep *ep)
{
    struct message *m = sl_container_of(ep->inbox.next, struct message, link);
    struct loop_channel *channel;
    struct sl_req *req = NULL;
    int status = 0;

    if (ep->told || !is_due(loop, ep, &ep->inbox) || !is_takeable(ep))
        return false;
    channel = (struct loop_channel *)sl_channels_get(&ep->channels, m->channel);
    sl_assert(channel != NULL);
    if (m->bye) {
        sl_channel_peer_closed(&channel->base, channel->base.came);
    } else {
        channel->base.came++;
        sl_channel_moved(&ep->base, &channel->base, m->len);
        if (channel->base.posted > 0) {
            req = recv_take(ep, channel);
            status = deliver(m, (const struct sl_sink *)(uintptr_t)req->len);
        } else if (!channel->base.closed) {
            struct sl_kept *kept = sl_channel_keep(&ep->channels, &channel->base, m->tag, m->len);

            sl_assert(kept != NULL && deliver(m, &kept->sink) == 0);
            req = &kept->req;
        }
    }
    if (req != NULL) {
        req->len = m->len;
        req->tag = m->tag;
    }
    forget_if_over(ep, &channel->base);
    message_over(loop, m, 0, false);
    if (req != NULL)
        sl_req_end(req, status);
    return true;
}

static bool down_one(struct loop *loop, struct loop_ep *ep)
{
    struct sl_iface *iface = ep->base.iface;

    if (ep->told || ep->lost_at_ns > loop->now_ns || ep->connect != NULL)
        return false;
    if (!ep->abrupt && (!sl_list_empty(&ep->ctrls) || !sl_list_empty(&ep->inbox)))
        return false; /* after what came before */
    sl_channels_settle(&ep->channels, UINT_MAX);
    ep->told = true;
    ep->base.left = !ep->abrupt;
    inbox_clear(loop, ep);
    iface->handler.down(iface->handler.arg, &ep->base, ep->lost_status,
                        ep->abrupt ? "the loop was cut" : "the peer closed its end of the loop");
    sl_channels_lost(&ep->channels, ep->lost_status);
    end_all(loop, ep, ep->lost_status);
    return true;
}

static bool move_one(struct loop *loop, struct loop_ep *ep)
{
    if (ep->connect != NULL)
        return ep->redials ? redial_ends(loop, ep) : connect_try(loop, ep);
    if (ep->abrupt && down_one(loop, ep))
        return true;
    return ctrl_one(loop, ep) || sl_channels_settle(&ep->channels, 1) > 0 || arrive_one(loop, ep) ||
           match_one(loop, ep) || down_one(loop, ep);
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
    .ep_redial = loop_ep_redial,
    .channel_open = loop_channel_open,
    .channel_close = loop_channel_close,
    .channel_traffic = loop_channel_traffic,
    .channel_starves = loop_channel_starves,
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
