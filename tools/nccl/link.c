/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The callbacks of wire-up (core/wireup.h) for an engine: the awaited hellos, the transports, and
 * the result of a connection. HELLO carries the token of the handle in its group, and in
 * from the transport of the dialing end's device.
 */
#include "tools/nccl/link.h"

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
static struct sl_nccl_comm *find(struct sl_nccl_engine *engine, uint32_t number)
{
    sl_list_foreach(&engine->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, link);

        if (comm->number == number)
            return comm;
    }
    sl_assert(false);
    return NULL;
}

static struct sl_nccl_listen *find_listen(struct sl_nccl_engine *engine, uint64_t token)
{
    sl_list_foreach(&engine->listens, node)
    {
        struct sl_nccl_listen *ls = sl_container_of(node, struct sl_nccl_listen, node);

        if (ls->token == token)
            return ls;
    }
    return NULL;
}

/* ---- hellos ---- */

static const struct sl_wireup_addr *addr_of(void *arg, uint32_t number)
{
    return &find(arg, number)->to.addr;
}

static void greet(void *arg, uint32_t number, struct sl_wireup_hello *hello)
{
    const struct sl_nccl_comm *comm = find(arg, number);

    hello->from = comm->its_device;
    hello->to = 0;
    hello->group = comm->to.token;
}

static int awaited(void *arg, const struct sl_wireup_hello *hello, uint32_t *number)
{
    struct sl_nccl_listen *ls = find_listen(arg, hello->group);
    struct sl_nccl_comm *comm;
    int err;

    if (ls == NULL)
        return -ECONNREFUSED;
    ls->stranger_ns = 0;
    err = sl_nccl_link_new(arg, ls->ctx, ls, &comm);
    if (err != 0)
        return err;
    comm->its_device = hello->from;
    *number = comm->number;
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
    const struct sl_nccl_comm *comm = find(arg, number);
    const struct sl_nccl_engine *engine = arg;

    return sl_nccl_ways(engine, comm->listen != NULL || comm->to.addr.host == engine->addr.host,
                        comm->its_device);
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
    struct sl_nccl_comm *comm = find(engine, number);
    struct sl_nccl_way *way;
    int err = sl_nccl_way_open(engine, (uint8_t)id, &way);

    if (err == 0)
        err = way->ops->ep_create(way->iface, out);
    if (err != 0)
        return err;
    snprintf(comm->peer_name, sizeof(comm->peer_name), "the peer at %.*s", SL_NCCL_PEER_NAME - 13,
             sl_wireup_at(engine->wireup, number));
    (*out)->owner = comm;
    (*out)->peer_name = comm->peer_name;
    return 0;
}

/* ---- its result ---- */

static void up(void *arg, uint32_t number, struct sl_ep *ep)
{
    find(arg, number)->ep = ep;
}

static void failed(void *arg, uint32_t number, int err, const char *why)
{
    struct sl_nccl_comm *comm = find(arg, number);
    uint64_t now_ns = sl_nccl_now(arg), last_ns = now_ns + sl_nccl_patience_ns(arg);

    if (comm->listen != NULL) {
        sl_warn("nccl", "%s is not connected%s", comm->peer_name, why);
        sl_nccl_comm_free(comm);
        return;
    }
    comm->lost = err;
    sl_text_set(&comm->why, "%s", why);
    comm->next_ns = now_ns + SL_NCCL_RETRY_NS;
    if (comm->deadline_ns > last_ns)
        comm->deadline_ns = last_ns;
}

/* It tries again, or is not needed any more. */
static void left(void *arg, uint32_t number)
{
    struct sl_nccl_comm *comm = find(arg, number);

    sl_debug("nccl", "%s left before it was connected", comm->peer_name);
    sl_nccl_comm_free(comm);
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
}

int sl_nccl_link_new(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx,
                     struct sl_nccl_listen *listen, struct sl_nccl_comm **out)
{
    int err = sl_nccl_comm_new(engine, ctx, listen == NULL, out);

    if (err != 0)
        return err;
    snprintf((*out)->peer_name, sizeof((*out)->peer_name), "a peer");
    (*out)->listen = listen;
    (*out)->number = ++engine->last_number;
    return 0;
}

int sl_nccl_link_take(struct sl_nccl_comm *comm)
{
    char how[256];
    int err;

    comm->listen = NULL;
    comm->number = 0;
    err = sl_nccl_comm_start(comm);
    if (err != 0)
        return err;
    comm->ep->iface->ops->ep_describe(comm->ep, how, sizeof(how));
    sl_info("nccl", "device %u %s %s by %s", comm->engine->dev,
            comm->is_send ? "sends to" : "receives from", comm->peer_name, how);
    return 0;
}
