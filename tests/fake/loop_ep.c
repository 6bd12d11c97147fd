/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces and endpoints of the transport within one process: they connect, are dialled again,
 * and end. */
#include "tests/fake/loop_inside.h"

#include "core/config.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ADDR_VERSION 1

int loop_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return sl_fail(-ENODEV, "this transport exists only inside tests");
}

int loop_open(struct sl_worker *worker, const struct sl_device *dev,
              const struct sl_handler *handler, struct sl_iface **out)
{
    struct loop_iface *iface = calloc(1, sizeof(*iface));

    (void)dev;
    sl_assert(iface != NULL && loop_world != NULL);
    iface->base = (struct sl_iface){.ops = sl_transport_complete(&loop_ops, &iface->ops),
                                    .worker = worker,
                                    .handler = *handler,
                                    .caps = SL_CAP_WAKEUP | SL_CAP_CHANNELS};
    iface->loop = loop_world;
    iface->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sl_assert(iface->fd >= 0);
    sl_list_init(&iface->eps);
    sl_list_push_back(&loop_world->ifaces, &iface->link);
    loop_world->live++;
    *out = &iface->base;
    return 0;
}

void loop_close(struct sl_iface *base)
{
    struct loop_iface *iface = iface_of(base);

    if (!sl_list_empty(&iface->eps))
        loop_note_misuse(iface->loop, "an interface is closed that has endpoints");
    iface->loop->live--;
    sl_list_remove(&iface->link);
    close(iface->fd);
    free(iface);
}

int loop_ep_create(struct sl_iface *base, struct sl_ep **out)
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

int loop_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    *out = (struct sl_addr){.len = 5, .bytes = {ADDR_VERSION}};
    memcpy(out->bytes + 1, &ep_of(base)->idx, sizeof(uint32_t));
    return 0;
}

int loop_ep_connect(struct sl_ep *base, const struct sl_addr *addr, struct sl_req *req)
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

void loop_inbox_clear(struct loop *loop, struct loop_ep *ep);
/* Both ends dial again, and neither knows of the other. What one of them sent before it knew that
 * the old connection was lost is lost with it. */
static void match(struct loop *loop, struct loop_ep *ep, struct loop_ep *peer)
{
    struct loop_ep *ends[2] = {ep, peer};
    uint32_t number = 1 + (ep->base.connection > peer->base.connection ? ep->base.connection
                                                                       : peer->base.connection);

    for (unsigned i = 0; i < 2; i++)
        loop_inbox_clear(loop, ends[i]);
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
        loop_lose_ep(loop, peer, -ECONNRESET, loop->now_ns + loop->latency_ns, true);
    if (peer->connect == NULL || !peer->redials || peer->matched || peer->fails)
        return 1;
    match(loop, ep, peer);
    return 0;
}

bool loop_redial_ends(struct loop *loop, struct loop_ep *ep)
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

bool loop_connect_try(struct loop *loop, struct loop_ep *ep)
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

void loop_check_lent(struct loop *loop, const struct message *m)
{
    if (memcmp(m->lent, m->bytes, m->len) != 0)
        loop_note_misuse(loop, "bytes changed while they were lent to the sideband");
}

/* Takes a message off its list; its sender's request ends with status. */
void loop_message_over(struct loop *loop, struct message *m, int status, bool is_ctrl)
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
        loop_check_lent(loop, m);
    free(m);
    if (req != NULL)
        sl_req_end(req, status);
}

void loop_inbox_clear(struct loop *loop, struct loop_ep *ep)
{
    struct sl_node *node;

    while ((node = ep->inbox.next) != &ep->inbox) {
        struct message *m = sl_container_of(node, struct message, link);
        struct loop_ep *from = ep_find(loop, m->from);

        if (m->req == NULL || from == NULL || from->base.connection != m->connection) {
            loop_message_over(loop, m, 0, false);
            continue;
        }
        sl_list_remove(node); /* its sender hears of the loss */
        sl_list_push_back(&from->orphans, node);
    }
    while ((node = ep->ctrls.next) != &ep->ctrls)
        loop_message_over(loop, sl_container_of(node, struct message, link), 0, true);
}

struct sl_req *loop_recv_take(struct loop_ep *ep, struct loop_channel *channel)
{
    sl_channel_wants(&ep->channels, &channel->base, -1);
    return sl_container_of(sl_list_pop_front(&channel->recvs), struct sl_req, link);
}

void loop_end_recvs(struct loop_ep *ep, struct loop_channel *channel, int status)
{
    while (channel->base.posted > 0)
        sl_req_end(loop_recv_take(ep, channel), status);
}

/* Ends what ep has pending. */
void loop_end_all(struct loop *loop, struct loop_ep *ep, int status)
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
                loop_message_over(loop, m, status, false);
        }
    while (!sl_list_empty(&ep->orphans))
        loop_message_over(loop, sl_container_of(ep->orphans.next, struct message, link), status,
                          false);
    for (struct sl_channel *c = NULL; (c = sl_channels_next(&ep->channels, c)) != NULL;)
        loop_end_recvs(ep, (struct loop_channel *)c, status);
}

void loop_ep_destroy(struct sl_ep *base)
{
    struct loop_ep *ep = ep_of(base), *peer;
    struct loop *loop;

    if (base == NULL)
        return;
    loop = iface_of(base->iface)->loop;
    ep->told = true;
    loop_end_all(loop, ep, -ECANCELED);
    sl_channels_cancel(&ep->channels, -ECANCELED);
    loop_inbox_clear(loop, ep);
    peer = ep->connected ? ep_find(loop, ep->peer) : NULL;
    if (peer != NULL && ep->lost_at_ns == SL_NEVER) {
        uint64_t at = loop->now_ns + loop->latency_ns;

        loop_lose_ep(loop, peer, -ECONNRESET, at > ep->last_ns ? at : ep->last_ns, false);
    }
    loop->eps[ep->idx] = NULL;
    loop->live--;
    sl_list_remove(&ep->link);
    sl_channels_fini(&ep->channels);
    free(ep);
}

/* In its place: what it has under way ends. */
int loop_ep_redial(struct sl_ep *base, struct sl_req *req, struct sl_ep **out)
{
    struct loop_ep *old = ep_of(base), *ep = calloc(1, sizeof(*ep));
    struct loop *loop = iface_of(base->iface)->loop;

    sl_assert(ep != NULL && sl_channels_init(&ep->channels, sizeof(struct loop_channel)) == 0);
    if (old->connect != NULL)
        loop_note_misuse(loop, "an endpoint is dialled again that is connecting");
    old->told = true;
    loop_end_all(loop, old, -ECANCELED);
    sl_channels_cancel(&old->channels, -ECANCELED);
    loop_inbox_clear(loop, old);
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
