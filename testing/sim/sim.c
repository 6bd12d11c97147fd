/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of the simulated network: its interfaces and endpoints, and their progress. */
#include "core/config.h"
#include "testing/sim/inside.h"

#include <stdlib.h>
#include <string.h>

#define ADDR_VERSION 1

/* Interfaces */

static int sim_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                     size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return sl_fail(-ENODEV, "the simulated network exists only inside a simulation");
}

static int sim_open(struct sl_worker *worker, const struct sl_device *dev,
                    const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_sim_rank *rank = worker->idle == sl_sim_idle ? worker->idle_arg : NULL;
    struct sl_sim_iface *iface;

    (void)dev;
    if (rank == NULL)
        return sl_fail(-EINVAL, "a simulated interface needs a worker that idles in the simulator");
    iface = calloc(1, sizeof(*iface));
    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a simulated interface");
    iface->base =
        (struct sl_iface){.ops = sl_transport_complete(&sl_sim_ops, &iface->ops),
                          .worker = worker,
                          .handler = *handler,
                          .caps = SL_CAP_CHANNELS | (rank->sim->params.windows ? SL_CAP_MAP : 0),
                          .eager_max = rank->sim->params.eager_max};
    iface->sim = rank->sim;
    iface->rank = rank;
    sl_list_init(&iface->eps);
    sl_list_push_back(&rank->sim->ifaces, &iface->link);
    *out = &iface->base;
    return 0;
}

static uint32_t sim_delivers(const struct sl_iface *base)
{
    return 1000 - ((const struct sl_sim_iface *)base)->rank->lost;
}

static void sim_close(struct sl_iface *base)
{
    struct sl_sim_iface *iface = sl_sim_iface_of(base);

    if (iface->ep_count > 0)
        sl_sim_violate(iface->sim, "rank %u closes an interface with %u endpoints",
                       iface->rank->rank, iface->ep_count);
    sl_list_remove(&iface->link);
    free(iface);
}

/* Endpoints */

static int sim_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_sim_iface *iface = sl_sim_iface_of(base);
    struct sl_sim *sim = iface->sim;
    struct sl_sim_ep *ep = calloc(1, sizeof(*ep));

    if (ep == NULL || sl_sim_channels_init(ep) != 0) {
        free(ep);
        return sl_fail(-ENOMEM, "no memory for a simulated endpoint");
    }
    if (sim->ep_len == sim->ep_cap) {
        sim->ep_cap = sim->ep_cap * 2 + 64;
        sim->eps = realloc(sim->eps, sim->ep_cap * sizeof(sim->eps[0]));
        sl_assert(sim->eps != NULL);
    }
    ep->base.iface = base;
    ep->idx = (uint32_t)sim->ep_len;
    ep->peer = SL_SIM_NO_EP;
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
    struct sl_sim_ep *ep = sl_sim_ep_of(base);

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
    struct sl_sim_ep *peer = sl_sim_ep_find(sim, ep->peer);

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
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, (uint32_t)event->a);

    if (ep != NULL)
        sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
}

static int sim_ep_connect(struct sl_ep *base, const struct sl_addr *addr, struct sl_req *req)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base);
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;
    struct sl_sim_event *event;
    uint64_t at;

    if (addr->len != 5)
        return sl_fail(-EINVAL, "an address of the simulated network has 5 bytes, not %u",
                       addr->len);
    if (addr->bytes[0] != ADDR_VERSION)
        return sl_fail(-EPROTO, "the peer speaks version %u of the simulated network, this is %d",
                       addr->bytes[0], ADDR_VERSION);
    memcpy(&ep->peer, addr->bytes + 1, sizeof(ep->peer));
    req->status = SL_PENDING;
    ep->connect = req;
    ep->connect_limit =
        sim->now_ns + (uint64_t)ep->base.iface->worker->config->connect_timeout_ms * SL_NS_PER_MS;
    if (sl_sim_ep_find(sim, ep->peer) != NULL) {
        at = sl_sim_transit(sim, sl_sim_rank_of(ep), sl_sim_rank_of(sim->eps[ep->peer]), 64);
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
    sl_sim_kick(sl_sim_iface_of_ep(ep)->rank);
}

static void lose_happen(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_ep *ep = sl_sim_ep_find(sim, (uint32_t)event->a);

    if (ep != NULL)
        ep_lose(ep, -ECONNRESET,
                event->b ? "the simulated connection was reset" : "the simulated peer closed it",
                event->b != 0);
}

void sl_sim_eps_lose(struct sl_sim *sim, uint32_t rank, uint32_t peer, uint64_t notice_ns)
{
    for (size_t i = 0; i < sim->ep_len; i++) {
        struct sl_sim_ep *ep = sim->eps[i],
                         *other = ep != NULL ? sl_sim_ep_find(sim, ep->peer) : NULL;
        uint32_t mine, its;
        struct sl_sim_event *event;

        if (ep == NULL)
            continue;
        mine = sl_sim_rank_of(ep);
        its = other != NULL ? sl_sim_rank_of(other) : UINT32_MAX - 1;
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

/* Ends everything pending on ep with status. */
static void ep_end_all(struct sl_sim_ep *ep, int status)
{
    if (ep->connect != NULL)
        connect_end(ep, status);
    sl_sim_end_posted(ep, status);
}

static void sim_ep_destroy(struct sl_ep *base)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base), *peer;
    struct sl_sim_iface *iface;
    struct sl_sim *sim;
    uint64_t at;

    if (base == NULL)
        return;
    iface = sl_sim_iface_of_ep(ep);
    sim = iface->sim;
    ep->lost = ep->told = true;
    ep_end_all(ep, -ECANCELED);
    sl_channels_cancel(&ep->channels, -ECANCELED);
    sl_sim_inbox_clear(ep);
    sl_sim_ctrls_clear(ep);
    sl_sim_maps_end(ep);
    peer = ep->connected ? sl_sim_ep_find(sim, ep->peer) : NULL;
    if (peer != NULL) {
        at = sl_sim_transit(sim, iface->rank->rank, sl_sim_rank_of(peer), 0);
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
    sl_channels_fini(&ep->channels);
    free(ep);
}

/* Progress */

static bool down_one(struct sl_sim_ep *ep)
{
    struct sl_iface *iface = ep->base.iface;

    if (!ep->lost || ep->told)
        return false;
    /* An orderly end waits until what came before it was received. */
    if (!ep->abrupt && (!sl_list_empty(&ep->inbox) || !sl_list_empty(&ep->ctrls)))
        return false;
    ep->told = true;
    sl_sim_inbox_clear(ep);
    iface->handler.down(iface->handler.arg, &ep->base, ep->lost_status, ep->lost_why);
    sl_channels_lost(&ep->channels, ep->lost_status);
    ep_end_all(ep, ep->lost_status);
    return true;
}

/* One thing on one endpoint, of a kind drawn by chance. */
static bool move_one(struct sl_sim *sim, struct sl_sim_ep *ep)
{
    if (ep->connect != NULL)
        return connect_try(sim, ep);
    if (sl_rng_chance(&sim->rng, 2) && sl_sim_tell_one(sim, ep))
        return true;
    return sl_sim_ctrl_one(ep) || sl_sim_settle_one(ep) || sl_sim_match_one(sim, ep) ||
           sl_sim_tell_one(sim, ep) || down_one(ep);
}

static int sim_progress(struct sl_iface *base, unsigned budget)
{
    struct sl_sim_iface *iface = sl_sim_iface_of(base);
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
    sl_list_foreach(&iface->eps, node)
    {
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
    unsigned coming, here, recvs = 0, sends = 0;

    for (struct sl_channel *c = NULL; (c = sl_channels_next(&ep->channels, c)) != NULL;) {
        recvs += ((struct sl_sim_channel *)c)->recv_count;
        sends += ((struct sl_sim_channel *)c)->send_count;
    }
    sl_sim_inbox_count(ep, &coming, &here);
    snprintf(out, cap, "sim endpoint %u to %u%s (inbox %u of %u, %u recvs, %u sends)", ep->idx,
             ep->peer, ep->lost ? ", lost" : "", here, coming, recvs, sends);
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
                       sl_sim_rank_of(ep));
    if (!sl_list_empty(&sim->ifaces))
        sl_sim_violate(sim, "an interface of rank %u is left open",
                       sl_container_of(sim->ifaces.next, struct sl_sim_iface, link)->rank->rank);
    sl_sim_mems_check_empty(sim);
}

const struct sl_transport_ops sl_sim_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "sim",
    .number = 31,
    .place = 100,
    .probe = sim_probe,
    .open = sim_open,
    .close = sim_close,
    .mem_alloc = sl_sim_mem_alloc,
    .mem_back = sl_sim_mem_back,
    .mem_unback = sl_sim_mem_unback,
    .mem_free = sl_sim_mem_free,
    .mr_reg = sl_sim_mr_reg,
    .mr_dereg = sl_sim_mr_dereg,
    .map = sl_sim_map,
    .unmap = sl_sim_unmap,
    .ep_create = sim_ep_create,
    .ep_addr = sim_ep_addr,
    .ep_connect = sim_ep_connect,
    .ep_destroy = sim_ep_destroy,
    .channel_open = sl_sim_channel_open,
    .channel_close = sl_sim_channel_close,
    .channel_traffic = sl_sim_channel_traffic,
    .channel_starves = sl_sim_channel_starves,
    .send = sl_sim_send,
    .recv = sl_sim_recv,
    .ctrl = sl_sim_ctrl,
    .progress = sim_progress,
    .ep_describe = sim_describe,
    .delivers = sim_delivers,
};
