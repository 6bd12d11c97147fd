/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The callbacks of wire-up (core/wireup.h) for an engine: the awaited hellos, the transports, and
 * the result of a connection. HELLO carries the token of the handle in its group, and in
 * from the transport of the dialing end's device; its from_id is the engine that dials.
 */
#include "tools/nccl/link.h"

#include "tools/nccl/config.h"
#include "tools/nccl/flow.h"

#include "core/log.h"
#include "core/wireup_word.h"

#include <stdio.h>
#include <string.h>

uint64_t sl_nccl_now(const struct sl_nccl_engine *engine)
{
    return sl_now(engine->worker.clock);
}

uint64_t sl_nccl_patience_ns(const struct sl_nccl_engine *engine)
{
    return (uint64_t)engine->config.connect_timeout_ms * SL_NS_PER_MS;
}

/* One that comes about, and so has a number: never NULL for wire-up. */
static struct sl_nccl_flow *find(struct sl_nccl_engine *engine, uint32_t number)
{
    sl_list_foreach(&engine->flows, node)
    {
        struct sl_nccl_flow *flow = sl_container_of(node, struct sl_nccl_flow, link);

        if (flow->number == number)
            return flow;
    }
    sl_assert(false);
    return NULL;
}

static struct sl_nccl_listen *find_listen(const struct sl_nccl_engine *engine, uint64_t token)
{
    sl_list_foreach(&engine->listens, node)
    {
        struct sl_nccl_listen *ls = sl_container_of(node, struct sl_nccl_listen, node);

        if (ls->token == token)
            return ls;
    }
    return NULL;
}

bool sl_nccl_listens(const struct sl_nccl_engine *engine, uint64_t token)
{
    struct sl_nccl_listen *ls = find_listen(engine, token);

    if (ls != NULL)
        ls->stranger_ns = 0;
    return ls != NULL;
}

/* ---- hellos ---- */

static const struct sl_wireup_addr *addr_of(void *arg, uint32_t number)
{
    return &find(arg, number)->to.addr;
}

static void greet(void *arg, uint32_t number, struct sl_wireup_hello *hello)
{
    const struct sl_nccl_flow *flow = find(arg, number);

    hello->from = flow->its_device;
    hello->to = 0;
    hello->group = flow->to.token;
}

/* Of two engines that dial each other more often than either may, the one with the higher id does.
 * The connections of a dial that does not count take the peer's. */
static bool give_way(struct sl_nccl_engine *engine, const uint8_t id[SL_WIREUP_ID_BYTES])
{
    if (memcmp(engine->addr.id, id, SL_WIREUP_ID_BYTES) > 0)
        return false;
    sl_list_foreach(&engine->flows, node)
    {
        struct sl_nccl_flow *flow = sl_container_of(node, struct sl_nccl_flow, link);

        if (flow->lost != 0 || !flow->dialed || flow->number == 0 ||
            memcmp(flow->id, id, sizeof(flow->id)) != 0)
            continue;
        sl_nccl_flow_lose(flow, -ECONNREFUSED, "");
        sl_list_foreach(&flow->comms, at)
            sl_nccl_flow_forget(sl_container_of(at, struct sl_nccl_comm, on_flow));
        return true;
    }
    return false;
}

/* Any engine that knows this one's address: what it wants it says by its OPENs. */
static int awaited(void *arg, const struct sl_wireup_hello *hello, uint32_t *number)
{
    struct sl_nccl_engine *engine = arg;
    int64_t most = sl_nccl_config(&engine->settings)->flows;
    bool self = memcmp(hello->from_id, engine->addr.id, sizeof(hello->from_id)) == 0;
    struct sl_nccl_flow *flow;
    int err;

    sl_nccl_listens(engine, hello->group);
    if (!self && sl_nccl_flow_count(engine, hello->from_id, &flow) >= most &&
        !give_way(engine, hello->from_id))
        return -ECONNREFUSED; /* it will find those that there are */
    err = sl_nccl_flow_new(engine, hello->from_id, &flow);
    if (err != 0)
        return err;
    flow->its_device = hello->from;
    *number = flow->number;
    return 0;
}

/* Most likely the peer of the listener. But any reader of the hello can say the same, so it is an
 * error only if no peer with the secret comes: sl_nccl_accept(). */
static void stranger(void *arg, const struct sl_wireup_hello *hello, const char *at)
{
    struct sl_nccl_listen *ls = find_listen(arg, hello->group);

    if (ls == NULL || ls->stranger_ns != 0)
        return;
    ls->stranger_ns = sl_nccl_now(ls->engine);
    snprintf(ls->stranger, sizeof(ls->stranger), "%s", at);
}

/* ---- transports ---- */

/* The end that dials knows both hosts. */
static uint32_t candidates(void *arg, uint32_t number)
{
    const struct sl_nccl_flow *flow = find(arg, number);
    const struct sl_nccl_engine *engine = arg;

    return sl_nccl_ways(engine, !flow->dialed || flow->to.addr.host == engine->addr.host,
                        flow->its_device);
}

static unsigned prefer(void *arg, uint32_t ways)
{
    const struct sl_nccl_engine *engine = arg;
    unsigned i = 0;

    while (i + 1 < engine->way_count && (ways & 1u << engine->ways[i].id) == 0)
        i++;
    return engine->ways[i].id;
}

static const char *name(void *arg, unsigned way)
{
    const struct sl_nccl_engine *engine = arg;

    for (unsigned i = 0; i < engine->way_count; i++)
        if (engine->ways[i].id == way)
            return engine->ways[i].ops->name;
    return "?";
}

static int ep_create(void *arg, unsigned id, uint32_t number, struct sl_ep **out)
{
    struct sl_nccl_engine *engine = arg;
    struct sl_nccl_flow *flow = find(engine, number);
    struct sl_nccl_way *way;
    int err = sl_nccl_way_open(engine, (uint8_t)id, &way);

    if (err == 0)
        err = way->ops->ep_create(way->iface, out);
    if (err != 0)
        return err;
    snprintf(flow->peer_name, sizeof(flow->peer_name), "the peer at %.*s", SL_NCCL_PEER_NAME - 13,
             sl_wireup_at(engine->wireup, number));
    (*out)->owner = flow;
    (*out)->peer_name = flow->peer_name;
    return 0;
}

/* ---- its result ---- */

static void up(void *arg, uint32_t number, struct sl_ep *ep)
{
    struct sl_nccl_flow *flow = find(arg, number);

    flow->number = 0;
    flow->ep = ep;
}

static void failed(void *arg, uint32_t number, int err, const char *why)
{
    struct sl_nccl_flow *flow = find(arg, number);

    if (!flow->dialed)
        sl_warn("nccl", "%s is not connected%s", flow->peer_name, why);
    flow->number = 0;
    sl_nccl_flow_lose(flow, err, why);
}

/* It tries again, or is not needed any more. */
static void left(void *arg, uint32_t number)
{
    struct sl_nccl_flow *flow = find(arg, number);

    sl_debug("nccl", "%s left before it was connected", flow->peer_name);
    flow->number = 0;
    sl_nccl_flow_lose(flow, -ECONNREFUSED, "");
}

/* ---- for the two ends ---- */

int sl_nccl_wireup_hold(struct sl_nccl_engine *engine)
{
    const struct sl_wireup_owner owner = {
        .arg = engine,
        .rank = UINT32_MAX,
        .addr = addr_of,
        .candidates = candidates,
        .name = name,
        .ep_create = ep_create,
        .up = up,
        .failed = failed,
        .greet = greet,
        .awaited = awaited,
        .left = left,
        .stranger = stranger,
        .prefer = prefer,
    };
    int err = 0;

    if (engine->wireup == NULL)
        err = sl_wireup_open(&engine->worker, &sl_wire_sockets, false, &owner, &engine->addr,
                             &engine->wireup);
    engine->wireup_users += err == 0;
    return err;
}

void sl_nccl_wireup_put(struct sl_nccl_engine *engine)
{
    if (--engine->wireup_users > 0)
        return;
    sl_wireup_close(engine->wireup);
    engine->wireup = NULL;
}

void sl_nccl_wireup_progress(struct sl_nccl_engine *engine)
{
    sl_nccl_progress(engine);
    sl_wireup_progress(engine->wireup, sl_nccl_now(engine));
    sl_list_foreach(&engine->flows, node)
    {
        const struct sl_nccl_flow *flow = sl_container_of(node, struct sl_nccl_flow, link);

        if (flow->number != 0 && !flow->dialed)
            sl_wireup_finish(engine->wireup, flow->number);
    }
    sl_nccl_flows_tidy(engine);
}

int sl_nccl_link_take(struct sl_nccl_comm *comm)
{
    const struct sl_nccl_flow *flow = comm->flow;
    const struct sl_transport_ops *ops = flow->ep->iface->ops;
    char how[256];
    int err = sl_nccl_flow_has_channels(flow) ? ops->channel_open(flow->ep, comm->channel) : 0;

    if (err != 0 && flow->lost == 0)
        return err;
    comm->dials = false;
    comm->ep = err == 0 ? flow->ep : NULL;
    memcpy(comm->peer_name, flow->peer_name, sizeof(comm->peer_name));
    if (flow->lost != 0) { /* after the peer had agreed: NCCL hears of it with the first request */
        comm->transport = ops->name;
        sl_nccl_comm_lose(comm, flow->lost, sl_text_of(flow->why));
        return 0;
    }
    err = sl_nccl_comm_start(comm);
    if (err != 0)
        return err;
    ops->ep_describe(comm->ep, how, sizeof(how));
    sl_info("nccl", "device %u %s %s by %s, channel %u", comm->engine->dev,
            comm->is_send ? "sends to" : "receives from", comm->peer_name, how, comm->channel);
    return 0;
}
