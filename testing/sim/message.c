/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between endpoints of the simulated network.
 *
 * A message is counted by those who still need it: the sender while its request is pending, the
 * event that carries it, the receiver's inbox. Small ones are copied when they are sent; the bytes
 * of large ones are read from the sender's buffer when they meet their receive, and must then be
 * what they were.
 */
#include "testing/sim/inside.h"

#include <stdlib.h>
#include <string.h>

#define SCRIBBLE_MAX 65536

struct sl_sim_msg {
    uint32_t refs;
    uint32_t from, to; /* numbers of endpoints */
    uint32_t channel;
    struct sl_req *req;   /* the sender's while pending */
    const uint8_t *bytes; /* the sender's, or copy */
    uint8_t *copy;
    size_t len, taken;
    uint64_t tag, hash;
    bool arrived;
    bool canceled;         /* its sender has closed the channel: the bytes are gone */
    struct sl_node outbox; /* of the sender: pending */
    struct sl_node inbox;  /* of the receiver: on its way or there */
};

struct sl_sim_ctrl {
    struct sl_node link;
    size_t len;
    uint8_t bytes[SL_CTRL_MAX];
};

/* A request whose end is decided and not yet told. */
struct ending {
    struct sl_node link;
    struct sl_req *req;
    struct sl_sim_msg *msg; /* counted */
    uint32_t channel;
};

static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ len, word;

    for (; len >= 8; len -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    for (; len > 0; len--, bytes++)
        h = (h ^ *bytes) * UINT64_C(0x100000001b3);
    return h;
}

static void msg_put(struct sl_sim_msg *m)
{
    if (--m->refs > 0)
        return;
    free(m->copy);
    free(m);
}

static void msg_unlink_inbox(struct sl_sim_msg *m)
{
    sl_list_remove(&m->inbox);
    msg_put(m);
}

/*
 * The lender must leave the bytes alone while they may be read. It may know that they were before
 * it is told: what depends on their arrival has come back. So the check is where they are read.
 */
static void msg_check_loan(struct sl_sim *sim, const struct sl_sim_msg *m)
{
    if (m->copy == NULL && hash_of(m->bytes, m->len) != m->hash)
        sl_sim_violate(sim, "rank %u changed %zu bytes (tag 0x%llx) while they were lent to a send",
                       sim->eps[m->from] != NULL ? sl_sim_rank_of(sim->eps[m->from]) : 0, m->len,
                       (unsigned long long)m->tag);
}

/* ---- posting ---- */

/* 0, or why nothing can be posted now. */
static int post_refused(struct sl_sim_ep *ep, unsigned count, unsigned max)
{
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;

    if (ep->lost && (ep->told || ep->abrupt))
        return sl_fail(ep->lost_status != 0 ? ep->lost_status : -ECONNRESET, "%s",
                       ep->lost_why != NULL ? ep->lost_why : "this simulated endpoint is lost");
    if (!ep->connected)
        return -EAGAIN;
    /* A slow rank comes by more rarely: of a storm that lasts as long it sees less. With all of it,
     * it was silent for longer than the time limit (swarm seed 106680). */
    if (ep->storm == 0 && sl_sim_chance(sim, sim->params.eagain_in))
        ep->storm =
            1 + (unsigned)sl_rng_range(&sim->rng, 0, 11) / sl_sim_iface_of_ep(ep)->rank->slow;
    if (ep->storm > 0 || count >= max) {
        ep->storm -= ep->storm > 0;
        sim->stats.eagains++;
        return -EAGAIN;
    }
    return 0;
}

static void arrive(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_msg *m = event->ptr;
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, m->to);

    m->arrived = true;
    if (ep != NULL)
        sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
    msg_put(m);
}

/* The peer of ep, also when one side is already gone: its endpoint, or NULL. */
static struct sl_sim_ep *peer_of(struct sl_sim_ep *ep)
{
    return sl_sim_ep_find(sl_sim_iface_of_ep(ep)->sim, ep->peer);
}

static void tell_later(struct sl_sim_ep *ep, struct sl_req *req, uint32_t channel,
                       struct sl_sim_msg *msg)
{
    struct ending *e = calloc(1, sizeof(*e));

    sl_assert(e != NULL);
    e->req = req;
    e->msg = msg;
    e->channel = channel;
    sl_list_push_back(&ep->endings, &e->link);
    sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
}

/* A message that is coming in may use all of its place, in any order, before it is complete. */
static void scribble(const struct sl_sink *sink, size_t len)
{
    if (sink->dst != NULL)
        memset(sink->dst, 0xee, len < SCRIBBLE_MAX ? len : SCRIBBLE_MAX);
}

int sl_sim_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base), *peer = peer_of(ep);
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;
    struct sl_sim_channel *channel = sl_sim_channel_used(ep, buf->channel);
    int err = post_refused(ep, channel->send_count, sim->params.sends_max);
    struct sl_sim_msg *m;
    uint64_t at;

    if (err != 0)
        return err;
    m = calloc(1, sizeof(*m));
    sl_assert(m != NULL);
    *m = (struct sl_sim_msg){.refs = 1,
                             .from = ep->idx,
                             .to = ep->peer,
                             .channel = buf->channel,
                             .len = buf->len,
                             .bytes = buf->addr,
                             .tag = tag,
                             .req = req};
    sl_list_init(&m->inbox);
    if (buf->len <= sim->params.eager_max) {
        m->copy = malloc(buf->len + 1);
        sl_assert(m->copy != NULL);
        if (buf->len > 0)
            memcpy(m->copy, buf->addr, buf->len);
        m->bytes = m->copy;
    } else {
        m->hash = hash_of(m->bytes, m->len);
    }
    channel->base.sent++;
    sim->stats.messages++;
    sim->stats.bytes += buf->len;
    req->status = SL_PENDING;
    req->len = buf->len;
    if (peer != NULL) {
        at = sl_sim_transit(sim, sl_sim_rank_of(ep), sl_sim_rank_of(peer), buf->len);
        if (at < ep->last_arrival)
            at = ep->last_arrival;
        ep->last_arrival = at;
        m->refs++;
        sl_list_push_back(&peer->inbox, &m->inbox);
        if (at != SL_NEVER) {
            m->refs++;
            sl_sim_at(sim, at, arrive)->ptr = m;
        }
    }
    if (m->copy == NULL) {
        sl_list_push_back(&ep->outbox, &m->outbox);
        channel->send_count++;
        return 0;
    }
    m->req = NULL;
    msg_put(m);
    sl_channel_moved(&ep->base, &channel->base, buf->len);
    if (sl_rng_chance(&sim->rng, 2)) {
        req->status = 0;
        return 1;
    }
    tell_later(ep, req, buf->channel, NULL);
    return 0;
}

static void recv_add(struct sl_sim_channel *channel, const struct sl_sink *sink, struct sl_req *req)
{
    req->status = SL_PENDING;
    /* Until it ends, the length field keeps the sink: the caller may not look at it. */
    req->len = (uint64_t)(uintptr_t)sink;
    if (channel->recv_count++ == 0)
        sl_list_init(&channel->recvs);
    sl_list_push_back(&channel->recvs, &req->link);
}

int sl_sim_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base);
    struct sl_sim_channel *channel = sl_sim_channel_used(ep, sink->channel);
    int err;

    if (!sl_channel_claim(&ep->channels, &channel->base, sink, req)) { /* a lost endpoint's, too */
        err = post_refused(ep, channel->recv_count, sl_sim_iface_of_ep(ep)->sim->params.recvs_max);
        if (err != 0)
            return err; /* no kick: who asks in vain again and again may sleep in between */
        sl_channel_wants(&ep->channels, &channel->base, 1);
        recv_add(channel, sink, req);
    }
    sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
    return 0;
}
static void ctrl_arrive(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ctrl *c = event->ptr;
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, (uint32_t)event->a);
    struct sl_sim_ep *from = sl_sim_ep_find(sim, (uint32_t)event->b);

    if (from != NULL)
        from->ctrl_count--;
    if (ep == NULL || (ep->lost && ep->told)) {
        free(c);
        return;
    }
    sl_list_push_back(&ep->ctrls, &c->link);
    sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
}

int sl_sim_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base), *peer = peer_of(ep);
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;
    int err = post_refused(ep, ep->ctrl_count, sim->params.ctrls_max);
    struct sl_sim_event *event;
    struct sl_sim_ctrl *c;
    uint64_t at;

    if (err != 0)
        return err;
    sl_assert(len <= SL_CTRL_MAX);
    sim->stats.ctrls++;
    if (peer == NULL || sl_sim_chance(sim, sim->params.ctrl_loss_in))
        return 0;
    at = sl_sim_transit(sim, sl_sim_rank_of(ep), sl_sim_rank_of(peer), len);
    if (at < ep->last_ctrl)
        at = ep->last_ctrl;
    if (at == SL_NEVER)
        return 0;
    ep->last_ctrl = at;
    c = calloc(1, sizeof(*c));
    sl_assert(c != NULL);
    c->len = len;
    memcpy(c->bytes, msg, len);
    event = sl_sim_at(sim, at, ctrl_arrive);
    event->ptr = c;
    event->a = peer->idx;
    event->b = ep->idx;
    ep->ctrl_count++;
    return 0;
}

/* ---- arrivals ---- */

static struct sl_sim_channel *channel_of(struct sl_sim_ep *ep, const struct sl_sim_msg *m)
{
    return (struct sl_sim_channel *)sl_channels_find(&ep->channels, m->channel);
}

/* Takes a send off the books of its endpoint. The outbox' count is the caller's now. */
static struct sl_req *outbox_take(struct sl_sim_ep *ep, struct sl_sim_msg *m)
{
    struct sl_req *req = m->req;

    m->req = NULL;
    sl_list_remove(&m->outbox);
    channel_of(ep, m)->send_count--;
    return req;
}

static void sent_happen(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_msg *m = event->ptr;
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, m->from);
    struct sl_req *req;

    if (ep == NULL || m->req == NULL) {
        msg_put(m);
        return;
    }
    req = outbox_take(ep, m);
    sl_channel_moved(&ep->base, &channel_of(ep, m)->base, m->len);
    msg_put(m);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the event's count keeps m, and goes along */
    tell_later(ep, req, m->channel, m);
}

/* The receiver has taken the message out: tells the sender after the way back. */
static void msg_received(struct sl_sim *sim, struct sl_sim_ep *ep, struct sl_sim_msg *m)
{
    struct sl_sim_ep *from = sl_sim_ep_find(sim, m->from);
    struct sl_sim_channel *channel = channel_of(ep, m);

    if (m->req != NULL && from != NULL) {
        uint64_t at = sl_sim_transit(sim, sl_sim_rank_of(ep), sl_sim_rank_of(from), 0);

        if (at < ep->last_ack)
            at = ep->last_ack;
        ep->last_ack = at;
        if (at != SL_NEVER) {
            m->refs++;
            sl_sim_at(sim, at, sent_happen)->ptr = m;
        }
    }
    msg_unlink_inbox(m);
    ep->met = NULL;
    sl_sim_channel_came(ep, channel);
}

static struct sl_req *recv_take(struct sl_sim_channel *channel)
{
    channel->recv_count--;
    return sl_container_of(sl_list_pop_front(&channel->recvs), struct sl_req, link);
}

/* The first message of the inbox and the first receive of its channel are over. */
static void match_end(struct sl_sim *sim, struct sl_sim_ep *ep, struct sl_sim_msg *m, int status)
{
    struct sl_req *req = recv_take(ep->met);

    req->len = m->len;
    req->tag = m->tag;
    msg_received(sim, ep, m);
    sl_req_end(req, status);
}

/* The first message of the inbox has arrived: does a receive get it? One may have to be made for
 * it. */
static bool meet(struct sl_sim_ep *ep, const struct sl_sim_msg *m)
{
    struct sl_sim_channel *channel =
        (struct sl_sim_channel *)sl_channels_get(&ep->channels, m->channel);
    struct sl_kept *kept;

    sl_assert(channel != NULL);
    if (channel->recv_count > 0) {
        sl_channel_wants(&ep->channels, &channel->base, -1);
    } else if (sl_channels_wanting(&ep->channels, &channel->base)) {
        kept = sl_channel_keep(&ep->channels, &channel->base, m->tag, m->len);
        sl_assert(kept != NULL);
        recv_add(channel, &kept->sink, &kept->req);
    } else {
        return false;
    }
    ep->met = channel;
    return true;
}

static bool is_dropped(struct sl_sim_ep *ep, const struct sl_sim_msg *m)
{
    struct sl_channel *channel = sl_channels_find(&ep->channels, m->channel);

    return channel != NULL && channel->closed;
}

bool sl_sim_match_one(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    struct sl_sim_msg *m = sl_container_of(ep->inbox.next, struct sl_sim_msg, inbox);
    const struct sl_sink *sink;
    size_t piece;

    if (sl_list_empty(&ep->inbox) || !m->arrived)
        return false;
    if (is_dropped(ep, m)) {
        msg_received(sim, ep, m);
        return true;
    }
    if (ep->met == NULL && !meet(ep, m))
        return false;
    sink =
        (const struct sl_sink *)(uintptr_t)sl_container_of(ep->met->recvs.next, struct sl_req, link)
            ->len;
    if (m->canceled || m->tag != sink->tag || !sl_sink_takes(sink, m->len)) {
        match_end(sim, ep, m, m->canceled ? -ECANCELED : m->tag != sink->tag ? -EPROTO : -EMSGSIZE);
        return true;
    }
    piece = m->len - m->taken;
    if (piece > 256 && !sl_rng_chance(&sim->rng, 3)) {
        size_t granule = sink->granule > 0 ? sink->granule : 1;

        piece = (size_t)sl_rng_range(&sim->rng, 1, piece / granule) * granule;
    }
    if (m->taken == 0)
        scribble(sink, m->len);
    msg_check_loan(sim, m);
    if (sink->consume != NULL && piece > 0)
        sink->consume(sink, m->bytes + m->taken, m->taken, piece);
    else if (piece > 0)
        memcpy((char *)sink->dst + m->taken, m->bytes + m->taken, piece);
    m->taken += piece;
    sl_channel_moved(&ep->base, &ep->met->base, piece);
    if (m->taken == m->len)
        match_end(sim, ep, m, 0);
    return true;
}

bool sl_sim_settle_one(struct sl_sim_ep *ep)
{
    return sl_channels_settle(&ep->channels, 1) > 0;
}

bool sl_sim_tell_one(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    struct sl_node *node = ep->endings.next;
    struct ending *e;
    struct sl_req *req;

    if (node == &ep->endings)
        return false;
    if (node->next != &ep->endings && sl_sim_chance(sim, sim->params.late_in))
        node = node->next;
    sl_list_remove(node);
    e = sl_container_of(node, struct ending, link);
    req = e->req;
    if (e->msg != NULL)
        msg_put(e->msg);
    free(e);
    sl_req_end(req, 0);
    return true;
}

bool sl_sim_ctrl_one(struct sl_sim_ep *ep)
{
    struct sl_node *node = sl_list_pop_front(&ep->ctrls);
    struct sl_iface *iface = ep->base.iface;
    struct sl_sim_ctrl *c;

    if (node == NULL)
        return false;
    c = sl_container_of(node, struct sl_sim_ctrl, link);
    iface->handler.ctrl(iface->handler.arg, &ep->base, c->bytes, c->len);
    free(c);
    return true;
}

/* ---- the end ---- */

/* Takes m and all that was sent after it out of the inbox of ep. */
static void inbox_cut(struct sl_sim_ep *ep, struct sl_sim_msg *m)
{
    struct sl_node *node = &m->inbox;

    while (node != &ep->inbox) {
        struct sl_node *next = node->next;

        msg_unlink_inbox(sl_container_of(node, struct sl_sim_msg, inbox));
        node = next;
    }
}

/* The first of a list that is of this channel (NULL: of any), taken out. A list loses it before it
 * ends: done() may look at the endpoint. */
static struct ending *next_ending(struct sl_sim_ep *ep, const struct sl_sim_channel *channel)
{
    sl_list_foreach(&ep->endings, node)
    {
        struct ending *e = sl_container_of(node, struct ending, link);

        if (channel == NULL || e->channel == channel->base.id) {
            sl_list_remove(node);
            return e;
        }
    }
    return NULL;
}

static struct sl_sim_msg *next_send(struct sl_sim_ep *ep, const struct sl_sim_channel *channel)
{
    sl_list_foreach(&ep->outbox, node)
    {
        struct sl_sim_msg *m = sl_container_of(node, struct sl_sim_msg, outbox);

        if (channel == NULL || m->channel == channel->base.id)
            return m;
    }
    return NULL;
}

static void end_sends(struct sl_sim_ep *ep, const struct sl_sim_channel *channel, int status)
{
    struct sl_sim_msg *m;
    struct ending *e;

    while ((e = next_ending(ep, channel)) != NULL) {
        struct sl_req *req = e->req;

        if (e->msg != NULL)
            msg_put(e->msg);
        free(e);
        sl_req_end(req, 0);
    }
    while ((m = next_send(ep, channel)) != NULL) {
        struct sl_req *req = outbox_take(ep, m);

        /* Its bytes go back to the owner, so it can no longer be received. With the endpoint goes
         * what was sent later. */
        m->canceled = true;
        if (channel == NULL && !sl_list_empty(&m->inbox))
            inbox_cut(sl_sim_ep_find(sl_sim_iface_of_ep(ep)->sim, m->to), m);
        msg_put(m);
        sl_req_end(req, status);
    }
}

static void end_recvs(struct sl_sim_ep *ep, struct sl_sim_channel *channel, int status)
{
    /* One that a message has met is not counted any more. */
    unsigned met = ep->met == channel;

    if (met)
        ep->met = NULL;
    while (channel->recv_count > 0) {
        struct sl_req *req = recv_take(channel);

        sl_channel_wants(&ep->channels, &channel->base, met ? 0 : -1);
        met = 0;
        sl_req_end(req, status);
    }
}

void sl_sim_end_channel(struct sl_sim_ep *ep, struct sl_sim_channel *channel, int status)
{
    end_sends(ep, channel, status);
    end_recvs(ep, channel, status);
    sl_channel_close(&ep->channels, &channel->base, status);
}

void sl_sim_end_posted(struct sl_sim_ep *ep, int status)
{
    end_sends(ep, NULL, status);
    for (struct sl_channel *c = NULL; (c = sl_channels_next(&ep->channels, c)) != NULL;)
        end_recvs(ep, (struct sl_sim_channel *)c, status);
}

void sl_sim_inbox_clear(struct sl_sim_ep *ep)
{
    sl_list_foreach(&ep->inbox, node)
        msg_unlink_inbox(sl_container_of(node, struct sl_sim_msg, inbox));
}

void sl_sim_ctrls_clear(struct sl_sim_ep *ep)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&ep->ctrls)) != NULL)
        free(sl_container_of(node, struct sl_sim_ctrl, link));
}

void sl_sim_inbox_count(const struct sl_sim_ep *ep, unsigned *coming, unsigned *here)
{
    *coming = *here = 0;
    for (const struct sl_node *n = ep->inbox.next; n != &ep->inbox; n = n->next) {
        (*coming)++;
        *here += sl_container_of(n, const struct sl_sim_msg, inbox)->arrived;
    }
}
