/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting to a listener's handle, a step with every call.
 *
 * NCCL calls again until there is a connection, each time with the same copy of the handle: in its
 * unused end lies where this attempt is kept. It never says that it has given up, so the attempt
 * belongs to the engine, which frees it with its context.
 *
 * Where nobody awaits it the attempt is repeated until the deadline: a listener may be closed
 * because another connection to the same rank came about first, and whether ours is needed at all
 * is NCCL's to know.
 */
#include "tools/nccl/flow.h"
#include "tools/nccl/link.h"

#include "core/netif.h"
#include "core/wireup_addr.h"
#include "tools/nccl/config.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE 10 /* deadlines that a listener has which is there but does not accept */

void sl_nccl_dials_drop(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx)
{
    sl_list_foreach(&engine->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, link);

        if (!comm->dials || comm->ctx != ctx)
            continue;
        sl_nccl_comm_free(comm);
        sl_nccl_wireup_put(engine);
        engine->users--;
    }
}

/* With the reasons that wire-up gave. */
static int give_up(struct sl_nccl_comm *comm)
{
    struct sockaddr_storage place;
    char where[SL_NCCL_PEER_NAME] = "this host";

    if (sl_wireup_place_at(&comm->to.addr, 0, &place))
        sl_sockaddr_text(&place, where, sizeof(where));
    switch (comm->lost) {
    case -EACCES:
        return sl_fail(-EPROTO,
                       "the listener has another SLUICE_SECRET, or none, or this rank has none: "
                       "set the same on all ranks");
    case 0:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
        return sl_fail(comm->lost == -ECONNREFUSED ? -ECONNREFUSED : -ETIMEDOUT,
                       "a connection to %s did not come about within %lld ms%s", where,
                       (long long)comm->engine->config.connect_timeout_ms,
                       comm->why != NULL && comm->why[0] != '\0' ? comm->why
                                                                 : "; it does not accept");
    default:
        return sl_fail(comm->lost, "a connection to %s did not come about%s", where,
                       sl_text_of(comm->why));
    }
}

void sl_nccl_dial_failed(struct sl_nccl_comm *comm, int err, const char *why)
{
    uint64_t now_ns = sl_nccl_now(comm->engine);
    uint64_t last_ns = now_ns + sl_nccl_patience_ns(comm->engine);

    comm->lost = err;
    sl_text_set(&comm->why, "%s", why);
    comm->next_ns = now_ns + SL_NCCL_RETRY_NS;
    if (comm->deadline_ns > last_ns)
        comm->deadline_ns = last_ns;
}

/* Another flow, while there may be more to that engine; else the least used one. After a failure
 * one that is there will do: the peer may have set fewer. */
static int find_flow(struct sl_nccl_comm *comm)
{
    struct sl_nccl_engine *engine = comm->engine;
    const uint8_t *id = comm->to.addr.id;
    int64_t most = sl_nccl_config(&engine->settings)->flows;
    struct sl_nccl_flow *flow;
    int err;

    if (sl_nccl_flow_count(engine, id, &flow) < (comm->why == NULL ? most : 1)) {
        err = sl_nccl_flow_new(engine, id, &flow);
        if (err != 0)
            return err;
        flow->dialed = true;
        flow->to = comm->to;
        flow->its_device = engine->by_device;
        err = sl_wireup_connect(engine->wireup, flow->number, true);
        if (err != 0) {
            sl_nccl_flow_free(flow);
            return err;
        }
    }
    sl_nccl_flow_join(flow, comm);
    return 0;
}

/* What has become of its flow, and of its question. */
static void look(struct sl_nccl_comm *comm)
{
    const struct sl_nccl_flow *flow = comm->flow;
    bool was_up;

    if (flow == NULL || comm->accepted)
        return;
    if (flow->lost != 0) {
        was_up = flow->ep != NULL;
        sl_nccl_dial_failed(comm, was_up ? -ECONNREFUSED : flow->lost,
                            was_up ? "; the endpoint was lost" : sl_text_of(flow->why));
        sl_nccl_flow_leave(comm);
    } else if (flow->ep != NULL && !sl_nccl_flow_has_channels(flow) &&
               (!flow->dialed || flow->comm_count > 1)) {
        sl_nccl_flow_leave(comm); /* it is another connection's */
    }
}

/* 1: it is a connection; 0: not yet; else it will not be one. */
static int step(struct sl_nccl_comm *comm)
{
    uint64_t now_ns = sl_nccl_now(comm->engine);
    int err;

    look(comm);
    if (comm->accepted)
        return 1;
    if ((comm->lost != 0 && comm->lost != -ECONNREFUSED) || now_ns >= comm->deadline_ns)
        return give_up(comm);
    if (comm->lost != 0 && now_ns < comm->next_ns)
        return 0;
    comm->lost = 0;
    err = comm->flow == NULL ? find_flow(comm) : 0;
    if (err == 0 && comm->flow->ep != NULL && !comm->asked)
        sl_nccl_flow_ask(comm);
    return err;
}

/* ---- NCCL's call ---- */

static struct sl_nccl_comm *find(struct sl_nccl_engine *engine, const void *handle)
{
    struct sl_nccl_comm *kept;

    memcpy(&kept, (const uint8_t *)handle + SL_NCCL_HANDLE_OWN, sizeof(kept));
    sl_list_foreach(&engine->comms, node)
    {
        struct sl_nccl_comm *comm = sl_container_of(node, struct sl_nccl_comm, link);

        if (comm == kept && comm->dials)
            return comm;
    }
    return NULL;
}

static void keep(void *handle, const struct sl_nccl_comm *comm)
{
    memcpy((uint8_t *)handle + SL_NCCL_HANDLE_OWN, &comm, sizeof(comm));
}

static int start(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx, const void *handle,
                 struct sl_nccl_comm **out)
{
    struct sl_nccl_handle to;
    struct sl_nccl_comm *comm;
    int err = sl_nccl_handle_decode(handle, &to) ?: sl_nccl_wireup_hold(engine);

    if (err != 0)
        return err;
    err = sl_nccl_comm_new(engine, ctx, true, &comm);
    if (err != 0) {
        sl_nccl_wireup_put(engine);
        return err;
    }
    comm->to = to;
    comm->dials = true;
    comm->deadline_ns = sl_nccl_now(engine) + PATIENCE * sl_nccl_patience_ns(engine);
    *out = comm;
    return 0;
}

int sl_nccl_connect(struct sl_nccl_ctx *ctx, int dev, int traffic_class, void *handle,
                    struct sl_nccl_comm **out)
{
    struct sl_nccl_engine *engine;
    struct sl_nccl_comm *comm = NULL;
    unsigned users;
    int err = sl_nccl_engine_get(ctx, dev, traffic_class, &engine);

    *out = NULL;
    if (err != 0)
        return err;
    sl_nccl_lock(engine);
    comm = find(engine, handle);
    users = comm != NULL ? 2 : 1; /* this call, and the attempt */
    if (comm == NULL)
        err = start(engine, ctx, handle, &comm);
    if (err == 0) {
        sl_nccl_wireup_progress(engine);
        err = step(comm);
    }
    if (err == 1) {
        err = sl_nccl_link_take(comm);
        *out = err == 0 ? comm : NULL;
    }
    if (comm != NULL && (err != 0 || *out != NULL)) {
        if (err != 0)
            sl_nccl_comm_free(comm);
        sl_nccl_wireup_put(engine);
        comm = NULL;
    }
    keep(handle, comm);
    sl_nccl_unlock(engine);
    /* One user stays: the attempt, or the connection that it became. */
    users -= comm != NULL || *out != NULL;
    while (users-- > 0)
        sl_nccl_engine_put(engine);
    return err;
}
