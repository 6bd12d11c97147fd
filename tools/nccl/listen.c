/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening and accepting, a step with every call.
 *
 * All listeners of an engine share its wire-up and its flows: each is a token, which its handle has
 * and OPEN tells. A connection that the peer has asked for waits for sl_nccl_accept(), and becomes
 * one in the very call that returns it: so of several under way that stand for one, both ends take
 * the same.
 */
#include "tools/nccl/flow.h"
#include "tools/nccl/link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STRANGER_NS (5 * SL_NS_PER_S) /* in which a peer with the secret must have come, too */

/* Those that are open: NCCL may close one that finalize has freed already. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node listens = {&listens, &listens};

/* ---- listening ---- */

static int listen_new(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx,
                      struct sl_nccl_listen **out)
{
    struct sl_nccl_listen *ls = calloc(1, sizeof(*ls));
    int err = 0;

    if (ls == NULL)
        return sl_fail(-ENOMEM, "no memory for a listener");
    ls->engine = engine;
    ls->ctx = ctx;
    if (getrandom(&ls->token, sizeof(ls->token), 0) != (ssize_t)sizeof(ls->token))
        err = sl_fail(-EIO, "no random numbers are to be had for a listener's token");
    err = err ?: sl_nccl_wireup_hold(engine);
    if (err != 0) {
        free(ls);
        return err;
    }
    sl_list_push_back(&engine->listens, &ls->node);
    *out = ls;
    return 0;
}

/* In a child: all listeners are the parent's. */
static void forget_parents(void)
{
    pthread_mutex_init(&lock, NULL);
    sl_list_init(&listens);
}

int sl_nccl_listen(struct sl_nccl_ctx *ctx, int dev, void *handle, struct sl_nccl_listen **out)
{
    struct sl_nccl_handle to;
    struct sl_nccl_engine *engine;
    struct sl_nccl_listen *ls = NULL;
    int err = sl_nccl_engine_get(ctx, dev, ctx->traffic_class, &engine);

    if (err != 0)
        return err;
    sl_nccl_lock(engine);
    err = listen_new(engine, ctx, &ls);
    if (err == 0)
        to = (struct sl_nccl_handle){.addr = engine->addr, .token = ls->token};
    sl_nccl_unlock(engine);
    if (err != 0) {
        sl_nccl_engine_put(engine);
        return err;
    }
    sl_fork_on_child(forget_parents);
    memset(handle, 0, SL_NCCL_HANDLE_BYTES);
    sl_nccl_handle_encode(&to, handle);
    pthread_mutex_lock(&lock);
    sl_list_push_back(&listens, &ls->all);
    pthread_mutex_unlock(&lock);
    *out = ls;
    return 0;
}

/* ---- accepting ---- */

static int check_secret(const struct sl_nccl_listen *ls)
{
    uint64_t patience_ns = sl_nccl_patience_ns(ls->engine) / 4;
    uint64_t grace_ns = patience_ns < STRANGER_NS ? patience_ns : STRANGER_NS;

    if (ls->stranger_ns == 0 || sl_nccl_now(ls->engine) - ls->stranger_ns < grace_ns)
        return 0;
    return sl_fail(
        -EPROTO,
        "the peer at %s has another SLUICE_SECRET, or none, or this rank has none: set the same "
        "on all ranks",
        ls->stranger);
}

/* The peer hears of it in this very call. */
static int take(struct sl_nccl_listen *ls, struct sl_nccl_ask *ask, struct sl_nccl_comm **out)
{
    struct sl_nccl_comm *comm = NULL;
    int err = sl_nccl_comm_new(ls->engine, ls->ctx, false, &comm);

    if (err == 0) {
        comm->channel = ask->channel;
        sl_nccl_flow_join(ask->flow, comm);
        err = sl_nccl_link_take(comm);
    }
    sl_nccl_flow_answer(ask, err == 0);
    if (err == 0)
        *out = comm;
    else if (comm != NULL)
        sl_nccl_comm_free(comm);
    return err;
}

int sl_nccl_accept(struct sl_nccl_listen *ls, struct sl_nccl_comm **out)
{
    struct sl_nccl_engine *engine = ls->engine;
    struct sl_nccl_ask *ask;
    int err;

    *out = NULL;
    if (!sl_fork_same(engine->life))
        return sl_fork_refuse();
    sl_nccl_lock(engine);
    sl_nccl_wireup_progress(engine);
    ask = sl_nccl_flow_asked(engine, ls->token, true);
    err = ask != NULL ? take(ls, ask, out) : check_secret(ls);
    sl_nccl_unlock(engine);
    if (*out != NULL)
        sl_nccl_engine_hold(engine);
    return err;
}

/* ---- closing ---- */

static void listen_free(struct sl_nccl_listen *ls)
{
    struct sl_nccl_ask *ask;

    sl_list_remove(&ls->node);
    while ((ask = sl_nccl_flow_asked(ls->engine, ls->token, false)) != NULL)
        sl_nccl_flow_answer(ask, false);
    sl_nccl_wireup_put(ls->engine);
    free(ls);
}

static bool forget(struct sl_nccl_listen *ls)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    sl_list_foreach(&listens, node) if (sl_container_of(node, struct sl_nccl_listen, all) == ls)
    {
        sl_list_remove(node);
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void sl_nccl_listens_drop(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx)
{
    sl_list_foreach(&engine->listens, node)
    {
        struct sl_nccl_listen *ls = sl_container_of(node, struct sl_nccl_listen, node);

        if (ls->ctx == ctx && forget(ls)) {
            listen_free(ls);
            engine->users--;
        }
    }
}

void sl_nccl_listen_close(struct sl_nccl_listen *ls)
{
    struct sl_nccl_engine *engine;

    if (!forget(ls))
        return;
    engine = ls->engine;
    sl_nccl_lock(engine);
    listen_free(ls);
    sl_nccl_unlock(engine);
    sl_nccl_engine_put(engine);
}
