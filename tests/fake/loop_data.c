/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the transport within one process: sent, received, and moved by progress. */
#include "tests/fake/loop_inside.h"

#include "core/err.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAKEN_MAX 16

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
    loop_end_recvs(ep, channel, -ECANCELED);
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

    if (ep->told || !loop_is_due(loop, ep, &ep->ctrls))
        return false;
    size_t len = m->len;

    memcpy(bytes, m->bytes, len);
    loop_message_over(loop, m, 0, true);
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
        loop_check_lent(loop, m);
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

    if (ep->told || !loop_is_due(loop, ep, &ep->inbox) || !loop_is_takeable(ep))
        return false;
    channel = (struct loop_channel *)sl_channels_get(&ep->channels, m->channel);
    sl_assert(channel != NULL);
    if (m->bye) {
        sl_channel_peer_closed(&channel->base, channel->base.came);
    } else {
        channel->base.came++;
        sl_channel_moved(&ep->base, &channel->base, m->len);
        if (channel->base.posted > 0) {
            req = loop_recv_take(ep, channel);
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
    loop_message_over(loop, m, 0, false);
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
    loop_inbox_clear(loop, ep);
    iface->handler.down(iface->handler.arg, &ep->base, ep->lost_status,
                        ep->abrupt ? "the loop was cut" : "the peer closed its end of the loop");
    sl_channels_lost(&ep->channels, ep->lost_status);
    loop_end_all(loop, ep, ep->lost_status);
    return true;
}

static bool move_one(struct loop *loop, struct loop_ep *ep)
{
    if (ep->connect != NULL)
        return ep->redials ? loop_redial_ends(loop, ep) : loop_connect_try(loop, ep);
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
    if (loop_iface_has_work(iface_of(base)))
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
