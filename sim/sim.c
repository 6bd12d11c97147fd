/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of the simulated network: endpoints, messages between them, memory that ranks share.
 *
 * A message is counted by those who still need it: the sender while its request is pending, the event
 * that carries it, the receiver's inbox. Small ones are copied when they are sent; the bytes of large
 * ones are read from the sender's buffer when they meet their receive, and must then be what they were.
 */
#include "core/config.h"
#include "sim/net.h"

#include <stdlib.h>
#include <string.h>

#define ADDR_VERSION 1
#define NO_EP UINT32_MAX
#define SCRIBBLE_MAX 65536

struct sl_sim_msg {
    uint32_t refs;
    uint32_t from, to;     /* numbers of endpoints */
    struct sl_req *req;    /* the sender's while pending */
    const uint8_t *bytes;  /* the sender's, or copy */
    uint8_t *copy;
    size_t len, taken;
    uint64_t tag, hash;
    bool arrived, dropped; /* dropped: it met a receive that did not match */
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
};

struct sl_sim_ep {
    struct sl_ep base;
    uint32_t idx, peer; /* numbers; peer NO_EP before connect */
    struct sl_req *connect;
    bool connected, lost, told; /* lost: as soon as the inbox allows; told: down() was called */
    bool abrupt;                /* lost without waiting for what is in the inbox */
    int lost_status;
    const char *lost_why;
    uint64_t connect_limit;
    uint64_t last_arrival, last_ctrl, last_ack; /* of what this endpoint sent: order holds */
    struct sl_node recvs;  /* sl_req.link of struct sl_req, in order */
    unsigned recv_count, send_count, ctrl_count;
    struct sl_node outbox, inbox, endings, ctrls;
    struct sl_node maps;
    struct sl_node link; /* of the interface */
    unsigned storm;
};

/* Memory that ranks map. It goes when its owner has freed it and no map is left. */
struct sim_mem {
    struct sl_node link;
    uint32_t id, maps;
    uint32_t host;
    bool registered, freed;
    size_t len;
    void *addr;
};

struct sim_map {
    struct sl_node link;
    struct sim_mem *mem;
};

struct sim_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_sim_ops, completed */
    struct sl_sim *sim;
    struct sl_sim_rank *rank;
    struct sl_node link, eps;
    unsigned ep_count;
    uint64_t stalled_until;
};

static struct sl_sim_ep *ep_of(struct sl_ep *ep)
{
    return (struct sl_sim_ep *)ep;
}

static struct sim_iface *iface_of(struct sl_iface *iface)
{
    return (struct sim_iface *)iface;
}

static struct sim_iface *iface_of_ep(const struct sl_sim_ep *ep)
{
    return (struct sim_iface *)ep->base.iface;
}

static struct sl_sim_ep *ep_find(struct sl_sim *sim, uint32_t idx)
{
    return idx < sim->ep_len ? sim->eps[idx] : NULL;
}

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

/*
 * The lender must leave the bytes alone while they may be read. It may know that they were before it is
 * told: what depends on their arrival has come back. So the check is where they are read.
 */
static void msg_check_loan(struct sl_sim *sim, const struct sl_sim_msg *m)
{
    if (m->copy == NULL && hash_of(m->bytes, m->len) != m->hash)
        sl_sim_violate(sim, "rank %u changed %zu bytes (tag 0x%llx) while they were lent to a send",
                       sim->eps[m->from] != NULL ? iface_of_ep(sim->eps[m->from])->rank->rank : 0,
                       m->len, (unsigned long long)m->tag);
}

/* Interfaces */

static int sim_probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return sl_fail(-ENODEV, "the simulated network exists only inside a simulation");
}

static int sim_open(struct sl_worker *worker, const struct sl_device *dev,
                    const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_sim_rank *rank = worker->idle == sl_sim_idle ? worker->idle_arg : NULL;
    struct sim_iface *iface;

    (void)dev;
    if (rank == NULL)
        return sl_fail(-EINVAL, "a simulated interface needs a worker that idles in the simulator");
    iface = calloc(1, sizeof(*iface));
    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a simulated interface");
    iface->base = (struct sl_iface){.ops = sl_transport_complete(&sl_sim_ops, &iface->ops),
                                    .worker = worker,
                                    .handler = *handler,
                                    .caps = rank->sim->params.windows ? SL_CAP_MAP : 0,
                                    .eager_max = rank->sim->params.eager_max};
    iface->sim = rank->sim;
    iface->rank = rank;
    sl_list_init(&iface->eps);
    sl_list_push_back(&rank->sim->ifaces, &iface->link);
    *out = &iface->base;
    return 0;
}

static void sim_close(struct sl_iface *base)
{
    struct sim_iface *iface = iface_of(base);

    if (iface->ep_count > 0)
        sl_sim_violate(iface->sim, "rank %u closes an interface with %u endpoints",
                       iface->rank->rank, iface->ep_count);
    sl_list_remove(&iface->link);
    free(iface);
}

/* Memory */

static void mem_drop(struct sim_mem *mem)
{
    if (!mem->freed || mem->maps > 0)
        return;
    sl_list_remove(&mem->link);
    free(mem->addr);
    free(mem);
}

static struct sim_mem *mem_find(struct sl_sim *sim, const void *addr)
{
    sl_list_foreach(&sim->mems, node) {
        struct sim_mem *mem = sl_container_of(node, struct sim_mem, link);

        if (mem->addr == addr && !mem->freed)
            return mem;
    }
    return NULL;
}

static int sim_mem_alloc(struct sl_iface *base, size_t len, struct sl_mem *out)
{
    struct sim_iface *iface = iface_of(base);
    struct sim_mem *mem = calloc(1, sizeof(*mem));
    size_t bytes = (len + 4095) / 4096 * 4096;

    if (mem == NULL || (mem->addr = aligned_alloc(4096, bytes + 4096 * (bytes == 0))) == NULL) {
        free(mem);
        return sl_fail(-ENOMEM, "no memory for a simulated window of %zu bytes", len);
    }
    memset(mem->addr, 0, bytes);
    mem->id = (uint32_t)++iface->sim->seq;
    mem->host = iface->rank->host;
    mem->len = len;
    sl_list_push_back(&iface->sim->mems, &mem->link);
    *out = (struct sl_mem){.addr = mem->addr, .len = len, .kind = SL_MEM_HOST, .fd = -1};
    return 0;
}

static void sim_mem_free(struct sl_iface *base, struct sl_mem *given)
{
    struct sim_mem *mem = mem_find(iface_of(base)->sim, given->addr);

    sl_assert(mem != NULL);
    if (mem->registered)
        sl_sim_violate(iface_of(base)->sim, "rank %u frees memory that is still registered",
                       iface_of(base)->rank->rank);
    mem->freed = true;
    mem_drop(mem);
}

static int sim_mr_reg(struct sl_iface *base, const struct sl_mem *given, struct sl_mr **out,
                      struct sl_key *key)
{
    struct sim_mem *mem = mem_find(iface_of(base)->sim, given->addr);

    if (mem == NULL || !sl_mem_is_host(given->kind))
        return sl_fail(-ENOTSUP, "the simulated network shares only memory of its own");
    mem->registered = true;
    *out = (struct sl_mr *)mem;
    if (key != NULL) {
        *key = (struct sl_key){.len = sizeof(mem->id)};
        memcpy(key->bytes, &mem->id, sizeof(mem->id));
    }
    return 0;
}

static void sim_mr_dereg(struct sl_iface *base, struct sl_mr *mr)
{
    (void)base;
    ((struct sim_mem *)mr)->registered = false;
}

static int sim_map(struct sl_ep *base, const struct sl_key *key, void **out)
{
    struct sl_sim_ep *ep = ep_of(base);
    struct sl_sim *sim = iface_of_ep(ep)->sim;
    struct sim_map *map;
    uint32_t id = 0;

    if (ep->lost)
        return sl_fail(-ECONNRESET, "this simulated endpoint is lost");
    if (sl_sim_chance(sim, sim->params.eagain_in))
        return -EAGAIN;
    if (key->len == sizeof(id))
        memcpy(&id, key->bytes, sizeof(id));
    sl_list_foreach(&sim->mems, node) {
        struct sim_mem *mem = sl_container_of(node, struct sim_mem, link);

        if (mem->id != id || !mem->registered)
            continue;
        if (mem->host != iface_of_ep(ep)->rank->host)
            return sl_fail(-ENOTSUP, "this region is on another simulated host");
        map = calloc(1, sizeof(*map));
        sl_assert(map != NULL);
        map->mem = mem;
        mem->maps++;
        sl_list_push_back(&ep->maps, &map->link);
        *out = mem->addr;
        return 0;
    }
    return sl_fail(-EINVAL, "no simulated region has this key");
}

static void map_end(struct sim_map *map)
{
    sl_list_remove(&map->link);
    map->mem->maps--;
    mem_drop(map->mem);
    free(map);
}

static void sim_unmap(struct sl_ep *base, void *ptr)
{
    sl_list_foreach(&ep_of(base)->maps, node) {
        struct sim_map *map = sl_container_of(node, struct sim_map, link);

        if (map->mem->addr == ptr) {
            map_end(map);
            return;
        }
    }
    sl_assert(!"unmap of something that is not mapped");
}

/* Endpoints */

static int sim_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sim_iface *iface = iface_of(base);
    struct sl_sim *sim = iface->sim;
    struct sl_sim_ep *ep = calloc(1, sizeof(*ep));

    if (ep == NULL)
        return sl_fail(-ENOMEM, "no memory for a simulated endpoint");
    if (sim->ep_len == sim->ep_cap) {
        sim->ep_cap = sim->ep_cap * 2 + 64;
        sim->eps = realloc(sim->eps, sim->ep_cap * sizeof(sim->eps[0]));
        sl_assert(sim->eps != NULL);
    }
    ep->base.iface = base;
    ep->idx = (uint32_t)sim->ep_len;
    ep->peer = NO_EP;
    sl_list_init(&ep->recvs);
    sl_list_init(&ep->outbox);
    sl_list_init(&ep->inbox);
    sl_list_init(&ep->endings);
    sl_list_init(&ep->ctrls);
    sl_list_init(&ep->maps);
    sl_list_push_back(&iface->eps, &ep->link);
    iface->ep_count++;
    sim->eps[sim->ep_len++] = ep;
    sim->ep_live++;
    *out = &ep->base;
    return 0;
}

static int sim_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_sim_ep *ep = ep_of(base);

    *out = (struct sl_addr){.len = 5, .bytes = {ADDR_VERSION}};
    memcpy(out->bytes + 1, &ep->idx, sizeof(ep->idx));
    return 0;
}

static void connect_end(struct sl_sim_ep *ep, int status)
{
    struct sl_req *req = ep->connect;

    ep->connect = NULL;
    ep->connected = status == 0;
    sl_req_end(req, status);
}

/* Looked at from progress: both sides must have named each other. */
static bool connect_try(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    struct sl_sim_ep *peer = ep_find(sim, ep->peer);

    if (peer == NULL)
        connect_end(ep, sl_fail(-ECONNREFUSED, "the simulated peer is gone"));
    else if (peer->peer == ep->idx)
        connect_end(ep, 0);
    else if (sim->now_ns >= ep->connect_limit)
        connect_end(ep, sl_fail(-ETIMEDOUT, "the simulated peer did not connect in time"));
    else
        return false;
    return true;
}

static void connect_look(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ep *ep = ep_find(sim, (uint32_t)event->a);

    if (ep != NULL)
        sl_sim_kick(iface_of_ep(ep)->rank);
}

static int sim_ep_connect(struct sl_ep *base, const struct sl_addr *addr, struct sl_req *req)
{
    struct sl_sim_ep *ep = ep_of(base);
    struct sl_sim *sim = iface_of_ep(ep)->sim;
    struct sl_sim_event *event;
    uint64_t at;

    if (addr->len != 5)
        return sl_fail(-EINVAL, "an address of the simulated network has 5 bytes, not %u", addr->len);
    if (addr->bytes[0] != ADDR_VERSION)
        return sl_fail(-EPROTO, "the peer speaks version %u of the simulated network, this is %d",
                       addr->bytes[0], ADDR_VERSION);
    memcpy(&ep->peer, addr->bytes + 1, sizeof(ep->peer));
    req->status = SL_PENDING;
    ep->connect = req;
    ep->connect_limit =
        sim->now_ns + (uint64_t)ep->base.iface->worker->config->connect_timeout_ms * SL_NS_PER_MS;
    if (ep_find(sim, ep->peer) != NULL) {
        at = sl_sim_transit(sim, iface_of_ep(ep)->rank->rank,
                            iface_of_ep(sim->eps[ep->peer])->rank->rank, 64);
        if (at != SL_NEVER)
            sl_sim_at(sim, at, connect_look)->a = ep->peer;
    }
    event = sl_sim_at(sim, sim->now_ns + sim->params.latency_ns, connect_look);
    event->a = ep->idx;
    event = sl_sim_at(sim, ep->connect_limit, connect_look);
    event->a = ep->idx;
    return 0;
}

/* Marks an endpoint as lost; progress of its owner tells. */
static void ep_lose(struct sl_sim_ep *ep, int status, const char *why, bool abrupt)
{
    if (ep->lost)
        return;
    ep->lost = true;
    ep->abrupt = abrupt;
    ep->lost_status = status;
    ep->lost_why = why;
    sl_sim_kick(iface_of_ep(ep)->rank);
}

static void lose_happen(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ep *ep = ep_find(sim, (uint32_t)event->a);

    if (ep != NULL)
        ep_lose(ep, -ECONNRESET,
                event->b ? "the simulated connection was reset" : "the simulated peer closed it",
                event->b != 0);
}

void sl_sim_eps_lose(struct sl_sim *sim, uint32_t rank, uint32_t peer, uint64_t notice_ns)
{
    for (size_t i = 0; i < sim->ep_len; i++) {
        struct sl_sim_ep *ep = sim->eps[i], *other = ep != NULL ? ep_find(sim, ep->peer) : NULL;
        uint32_t mine, its;
        struct sl_sim_event *event;

        if (ep == NULL)
            continue;
        mine = iface_of_ep(ep)->rank->rank;
        its = other != NULL ? iface_of_ep(other)->rank->rank : UINT32_MAX - 1;
        if (!(mine == rank && (its == peer || peer == UINT32_MAX)) &&
            !(its == rank && (mine == peer || peer == UINT32_MAX)))
            continue;
        /* Each side hears at a time of its own. */
        event = sl_sim_at(sim, sim->now_ns + notice_ns + sl_rng_below(&sim->rng, notice_ns + 1),
                          lose_happen);
        event->a = i;
        event->b = 1;
    }
}

static void msg_unlink_inbox(struct sl_sim_msg *m)
{
    sl_list_remove(&m->inbox);
    msg_put(m);
}

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

/* Ends everything pending on ep with status. done() may look at the endpoint, so lists come first. */
static void ep_end_all(struct sl_sim_ep *ep, int status)
{
    struct sl_node *node;

    if (ep->connect != NULL)
        connect_end(ep, status);
    while ((node = sl_list_pop_front(&ep->endings)) != NULL) {
        struct ending *e = sl_container_of(node, struct ending, link);
        struct sl_req *req = e->req;

        if (e->msg != NULL)
            msg_put(e->msg);
        free(e);
        sl_req_end(req, 0);
    }
    while ((node = sl_list_pop_front(&ep->outbox)) != NULL) {
        struct sl_sim_msg *m = sl_container_of(node, struct sl_sim_msg, outbox);
        struct sl_req *req = m->req;

        m->req = NULL;
        /* Its bytes go back to the owner, so it can no longer be received; nor what was sent later. */
        if (!sl_list_empty(&m->inbox))
            inbox_cut(ep_find(iface_of_ep(ep)->sim, m->to), m);
        msg_put(m);
        ep->send_count--;
        sl_req_end(req, status);
    }
    while ((node = sl_list_pop_front(&ep->recvs)) != NULL) {
        ep->recv_count--;
        sl_req_end(sl_container_of(node, struct sl_req, link), status);
    }
}

static void inbox_clear(struct sl_sim_ep *ep)
{
    sl_list_foreach(&ep->inbox, node)
        msg_unlink_inbox(sl_container_of(node, struct sl_sim_msg, inbox));
}

static void sim_ep_destroy(struct sl_ep *base)
{
    struct sl_sim_ep *ep = ep_of(base), *peer;
    struct sim_iface *iface;
    struct sl_node *node;
    struct sl_sim *sim;
    uint64_t at;

    if (base == NULL)
        return;
    iface = iface_of_ep(ep);
    sim = iface->sim;
    ep->lost = ep->told = true;
    ep_end_all(ep, -ECANCELED);
    inbox_clear(ep);
    while ((node = sl_list_pop_front(&ep->ctrls)) != NULL)
        free(sl_container_of(node, struct sl_sim_ctrl, link));
    sl_list_foreach(&ep->maps, m)
        map_end(sl_container_of(m, struct sim_map, link));
    peer = ep->connected ? ep_find(sim, ep->peer) : NULL;
    if (peer != NULL) {
        at = sl_sim_transit(sim, iface->rank->rank, iface_of_ep(peer)->rank->rank, 0);
        if (at < ep->last_arrival)
            at = ep->last_arrival;
        if (at < ep->last_ctrl)
            at = ep->last_ctrl;
        if (at < ep->last_ack)
            at = ep->last_ack;
        if (at != SL_NEVER)
            sl_sim_at(sim, at, lose_happen)->a = peer->idx;
    }
    sl_list_remove(&ep->link);
    iface->ep_count--;
    sim->eps[ep->idx] = NULL;
    sim->ep_live--;
    free(ep);
}

/* Data */

/* 0, or why nothing can be posted now. */
static int post_refused(struct sl_sim_ep *ep, unsigned count, unsigned max)
{
    struct sl_sim *sim = iface_of_ep(ep)->sim;

    if (ep->lost && (ep->told || ep->abrupt))
        return sl_fail(ep->lost_status != 0 ? ep->lost_status : -ECONNRESET, "%s",
                       ep->lost_why != NULL ? ep->lost_why : "this simulated endpoint is lost");
    if (!ep->connected)
        return -EAGAIN;
    if (ep->storm == 0 && sl_sim_chance(sim, sim->params.eagain_in))
        ep->storm = (unsigned)sl_rng_range(&sim->rng, 1, 12);
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
    struct sl_sim_ep *ep = ep_find(sim, m->to);

    m->arrived = true;
    if (ep != NULL)
        sl_sim_kick(iface_of_ep(ep)->rank);
    msg_put(m);
}

/* The peer of ep, also when one side is already gone: its endpoint, or NULL. */
static struct sl_sim_ep *peer_of(struct sl_sim_ep *ep)
{
    return ep_find(iface_of_ep(ep)->sim, ep->peer);
}

static void tell_later(struct sl_sim_ep *ep, struct sl_req *req, struct sl_sim_msg *msg)
{
    struct ending *e = calloc(1, sizeof(*e));

    sl_assert(e != NULL);
    e->req = req;
    e->msg = msg;
    sl_list_push_back(&ep->endings, &e->link);
    sl_sim_kick(iface_of_ep(ep)->rank);
}

/* A message that is coming in may use all of its place, in any order, before it is complete. */
static void scribble(const struct sl_sink *sink, size_t len)
{
    if (sink->dst != NULL)
        memset(sink->dst, 0xee, len < SCRIBBLE_MAX ? len : SCRIBBLE_MAX);
}

static int sim_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_sim_ep *ep = ep_of(base), *peer = peer_of(ep);
    struct sl_sim *sim = iface_of_ep(ep)->sim;
    int err = post_refused(ep, ep->send_count, sim->params.sends_max);
    struct sl_sim_msg *m;
    uint64_t at;

    if (err != 0)
        return err;
    m = calloc(1, sizeof(*m));
    sl_assert(m != NULL);
    *m = (struct sl_sim_msg){.refs = 1, .from = ep->idx, .to = ep->peer, .len = buf->len,
                             .bytes = buf->addr, .tag = tag, .req = req};
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
    sim->stats.messages++;
    sim->stats.bytes += buf->len;
    req->status = SL_PENDING;
    req->len = buf->len;
    if (peer != NULL) {
        at = sl_sim_transit(sim, iface_of_ep(ep)->rank->rank, iface_of_ep(peer)->rank->rank,
                            buf->len);
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
        ep->send_count++;
        return 0;
    }
    m->req = NULL;
    msg_put(m);
    if (sl_rng_chance(&sim->rng, 2)) {
        req->status = 0;
        return 1;
    }
    tell_later(ep, req, NULL);
    return 0;
}

static int sim_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_sim_ep *ep = ep_of(base);
    int err = post_refused(ep, ep->recv_count, iface_of_ep(ep)->sim->params.recvs_max);

    if (err != 0)
        return err;
    req->status = SL_PENDING;
    /* Until it ends, the length field keeps the sink: the caller may not look at it. */
    req->len = (uint64_t)(uintptr_t)sink;
    sl_list_push_back(&ep->recvs, &req->link);
    ep->recv_count++;
    sl_sim_kick(iface_of_ep(ep)->rank);
    return 0;
}

static void ctrl_arrive(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ctrl *c = event->ptr;
    struct sl_sim_ep *ep = ep_find(sim, (uint32_t)event->a), *from = ep_find(sim, (uint32_t)event->b);

    if (from != NULL)
        from->ctrl_count--;
    if (ep == NULL || (ep->lost && ep->told)) {
        free(c);
        return;
    }
    sl_list_push_back(&ep->ctrls, &c->link);
    sl_sim_kick(iface_of_ep(ep)->rank);
}

static int sim_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_sim_ep *ep = ep_of(base), *peer = peer_of(ep);
    struct sl_sim *sim = iface_of_ep(ep)->sim;
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
    at = sl_sim_transit(sim, iface_of_ep(ep)->rank->rank, iface_of_ep(peer)->rank->rank, len);
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

/* Progress */

static void sent_happen(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_msg *m = event->ptr;
    struct sl_sim_ep *ep = ep_find(sim, m->from);
    struct sl_req *req = m->req;

    if (ep == NULL || req == NULL) {
        msg_put(m);
        return;
    }
    m->req = NULL;
    sl_list_remove(&m->outbox);
    ep->send_count--;
    msg_put(m);
    tell_later(ep, req, m); /* the event's count goes along */
}

/* The receiver has taken the message out: tells the sender after the way back. */
static void msg_received(struct sl_sim *sim, struct sl_sim_ep *ep, struct sl_sim_msg *m)
{
    struct sl_sim_ep *from = ep_find(sim, m->from);

    if (m->req != NULL && from != NULL) {
        uint64_t at = sl_sim_transit(sim, iface_of_ep(ep)->rank->rank,
                                     iface_of_ep(from)->rank->rank, 0);

        if (at < ep->last_ack)
            at = ep->last_ack;
        ep->last_ack = at;
        if (at != SL_NEVER) {
            m->refs++;
            sl_sim_at(sim, at, sent_happen)->ptr = m;
        }
    }
    msg_unlink_inbox(m);
}

static void recv_end(struct sl_sim_ep *ep, struct sl_req *req, uint64_t len, uint64_t tag, int status)
{
    sl_list_remove(&req->link);
    ep->recv_count--;
    req->len = len;
    req->tag = tag;
    sl_req_end(req, status);
}

/* Hands one piece of the message at the head of the inbox to the receive at the head of its list. */
static bool match_one(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    struct sl_sim_msg *m = sl_container_of(ep->inbox.next, struct sl_sim_msg, inbox);
    struct sl_req *req = sl_container_of(ep->recvs.next, struct sl_req, link);
    const struct sl_sink *sink;
    size_t piece;

    if (sl_list_empty(&ep->inbox) || !m->arrived || sl_list_empty(&ep->recvs))
        return false;
    sink = (const struct sl_sink *)(uintptr_t)req->len;
    if (m->tag != sink->tag || !sl_sink_takes(sink, m->len)) {
        uint64_t len = m->len, tag = m->tag;
        int status = tag != sink->tag ? -EPROTO : -EMSGSIZE;

        msg_received(sim, ep, m);
        recv_end(ep, req, len, tag, status);
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
    if (m->taken == m->len) {
        uint64_t len = m->len, tag = m->tag;

        msg_received(sim, ep, m);
        recv_end(ep, req, len, tag, 0);
    }
    return true;
}

static bool tell_one(struct sl_sim *sim, struct sl_sim_ep *ep)
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

static bool ctrl_one(struct sl_sim_ep *ep)
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

static bool down_one(struct sl_sim_ep *ep)
{
    struct sl_iface *iface = ep->base.iface;

    if (!ep->lost || ep->told)
        return false;
    /* An orderly end waits until what came before it was received. */
    if (!ep->abrupt && (!sl_list_empty(&ep->inbox) || !sl_list_empty(&ep->ctrls)))
        return false;
    ep->told = true;
    inbox_clear(ep);
    iface->handler.down(iface->handler.arg, &ep->base, ep->lost_status, ep->lost_why);
    ep_end_all(ep, ep->lost_status);
    return true;
}

/* One thing on one endpoint, of a kind drawn by chance. */
static bool move_one(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    if (ep->connect != NULL)
        return connect_try(sim, ep);
    if (sl_rng_chance(&sim->rng, 2) && tell_one(sim, ep))
        return true;
    return ctrl_one(ep) || match_one(sim, ep) || tell_one(sim, ep) || down_one(ep);
}

static int sim_progress(struct sl_iface *base, unsigned budget)
{
    struct sim_iface *iface = iface_of(base);
    struct sl_sim *sim = iface->sim;
    unsigned moved = 0, start;

    if (++iface->rank->turns > 20000000) {
        fprintf(stderr, "sim: rank %u asks for progress for ever and never idles\n",
                iface->rank->rank);
        abort();
    }
    if (sim->now_ns < iface->stalled_until || iface->ep_count == 0)
        return 0;
    if (sl_sim_chance(sim, sim->params.stall_in)) {
        iface->stalled_until = sim->now_ns + sl_rng_range(&sim->rng, 1000, 200000);
        return 0;
    }
    /* Begins at any endpoint: no order between endpoints may be relied on. */
    start = (unsigned)sl_rng_below(&sim->rng, iface->ep_count);
    while (start-- > 0) {
        struct sl_node *first = sl_list_pop_front(&iface->eps);

        sl_list_push_back(&iface->eps, first);
    }
    sl_list_foreach(&iface->eps, node) {
        while (moved < budget && move_one(sim, sl_container_of(node, struct sl_sim_ep, link)))
            moved++;
        if (moved >= budget)
            break;
    }
    iface->rank->kicked |= moved > 0;
    return (int)moved;
}

static void sim_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_sim_ep *ep = (const struct sl_sim_ep *)base;
    unsigned coming = 0, here = 0;

    for (const struct sl_node *n = ep->inbox.next; n != &ep->inbox; n = n->next) {
        coming++;
        here += sl_container_of(n, const struct sl_sim_msg, inbox)->arrived;
    }
    snprintf(out, cap, "sim endpoint %u to %u%s (inbox %u of %u, %u recvs, %u sends)", ep->idx,
             ep->peer, ep->lost ? ", lost" : "", here, coming, ep->recv_count, ep->send_count);
}

static struct sl_sim_ep *any_ep(struct sl_sim *sim)
{
    for (size_t i = 0; i < sim->ep_len; i++)
        if (sim->eps[i] != NULL)
            return sim->eps[i];
    return NULL;
}

void sl_sim_check_empty(struct sl_sim *sim)
{
    struct sl_sim_ep *ep = any_ep(sim);

    if (ep != NULL)
        sl_sim_violate(sim, "%u endpoints are left, one of rank %u", sim->ep_live,
                       iface_of_ep(ep)->rank->rank);
    if (!sl_list_empty(&sim->ifaces))
        sl_sim_violate(sim, "an interface of rank %u is left open",
                       sl_container_of(sim->ifaces.next, struct sim_iface, link)->rank->rank);
    if (!sl_list_empty(&sim->mems))
        sl_sim_violate(sim, "shared memory of %zu bytes is left",
                       sl_container_of(sim->mems.next, struct sim_mem, link)->len);
}

const struct sl_transport_ops sl_sim_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "sim",
    .probe = sim_probe,
    .open = sim_open,
    .close = sim_close,
    .mem_alloc = sim_mem_alloc,
    .mem_free = sim_mem_free,
    .mr_reg = sim_mr_reg,
    .mr_dereg = sim_mr_dereg,
    .map = sim_map,
    .unmap = sim_unmap,
    .ep_create = sim_ep_create,
    .ep_addr = sim_ep_addr,
    .ep_connect = sim_ep_connect,
    .ep_destroy = sim_ep_destroy,
    .send = sim_send,
    .recv = sim_recv,
    .ctrl = sim_ctrl,
    .progress = sim_progress,
    .ep_describe = sim_describe,
};
