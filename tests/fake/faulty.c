/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that wraps another and injects what the contract allows. */
#include "tests/fake/faulty.h"

#include "core/err.h"
#include "core/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRAPS 2048  /* requests under way per interface; more get -EAGAIN */
#define DELAY_MAX 6 /* rounds of progress that a completion is held back */

struct faulty_iface {
    struct sl_iface base;
    struct sl_iface *inner;
    struct sl_handler handler; /* of the owner */
    struct sl_node free, held; /* wrap.link */
    struct sl_node eps;        /* faulty_ep.link */
    struct wrap *wraps;
    unsigned storm;    /* calls that still get -EAGAIN */
    struct sl_rng rng; /* its own: ranks may be threads */
};

struct faulty_ep {
    struct sl_ep base;
    struct sl_ep *inner; /* NULL once broken */
    struct sl_node link;
    bool breaking, lost;
};

/* A request as the inner transport sees it. */
struct wrap {
    struct sl_req req;
    struct sl_req *outer;
    struct faulty_iface *iface;
    struct faulty_ep *ep;
    uint32_t channel;
    unsigned delay;
    struct sl_node link;
};

static const struct sl_transport_ops *inner_ops;
static struct sl_transport_ops ops;
static uint64_t chance;  /* seeds the interfaces */
static unsigned unnamed; /* interfaces of no rank so far */

static struct faulty_iface *iface_of(struct sl_iface *iface)
{
    return (struct faulty_iface *)iface;
}

static struct faulty_ep *ep_of(struct sl_ep *ep)
{
    return (struct faulty_ep *)ep;
}

/* True while a storm blows over this interface; begins one now and then. */
static bool stormy(struct faulty_iface *f)
{
    if (f->storm == 0 && sl_rng_chance(&f->rng, 16))
        f->storm = (unsigned)sl_rng_range(&f->rng, 1, 20);
    if (f->storm == 0)
        return false;
    f->storm--;
    return true;
}

static void wrap_finish(struct wrap *w, int status)
{
    struct sl_req *outer = w->outer;

    outer->len = w->req.len;
    outer->tag = w->req.tag;
    sl_list_remove(&w->link);
    sl_list_push_back(&w->iface->free, &w->link);
    sl_req_end(outer, status);
}

/* The inner transport is done with it; the owner hears later. */
static void wrap_hold(struct wrap *w)
{
    w->delay = (unsigned)sl_rng_below(&w->iface->rng, DELAY_MAX);
    sl_list_push_back(&w->iface->held, &w->link);
}

static void wrap_done(struct sl_req *req)
{
    wrap_hold(sl_container_of(req, struct wrap, req));
}

static struct wrap *wrap_get(struct faulty_iface *f, struct faulty_ep *ep, struct sl_req *outer)
{
    struct sl_node *node = sl_list_pop_front(&f->free);
    struct wrap *w;

    if (node == NULL)
        return NULL;
    w = sl_container_of(node, struct wrap, link);
    memset(&w->req, 0, sizeof(w->req));
    w->req.status = SL_PENDING;
    w->req.done = wrap_done;
    w->outer = outer;
    w->ep = ep;
    w->channel = 0;
    return w;
}

/* What the owner gets for an inner answer. */
static int wrap_answer(struct wrap *w, int rc)
{
    if (rc < 0) {
        sl_list_push_back(&w->iface->free, &w->link);
        return rc;
    }
    w->outer->status = SL_PENDING;
    if (rc == 0)
        return 0;
    if (sl_rng_chance(&w->iface->rng, 2)) {
        wrap_hold(w);
        return 0;
    }
    w->outer->len = w->req.len;
    w->outer->tag = w->req.tag;
    w->outer->status = 0;
    sl_list_push_back(&w->iface->free, &w->link);
    return 1;
}

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    struct faulty_iface *f = arg;

    f->handler.ctrl(f->handler.arg, ep->owner, msg, len);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct faulty_iface *f = arg;
    struct faulty_ep *e = ep->owner;

    if (!e->lost)
        f->handler.down(f->handler.arg, &e->base, status, why);
    e->lost = true;
}

static int faulty_open(struct sl_worker *worker, const struct sl_device *dev,
                       const struct sl_handler *handler, struct sl_iface **out)
{
    struct faulty_iface *f = calloc(1, sizeof(*f));
    struct sl_handler mine = {.ctrl = on_ctrl, .down = on_down, .arg = f};
    int err = f == NULL ? -ENOMEM : inner_ops->open(worker, dev, &mine, &f->inner);

    if (err != 0) {
        free(f);
        return err;
    }
    f->inner->ops = inner_ops;
    f->handler = *handler;
    f->base = *f->inner;
    f->base.ops = &ops;
    f->base.handler = *handler;
    sl_rng_init(&f->rng,
                chance * 1000 + (worker->rank >= 0 ? (unsigned)worker->rank : 100 + unnamed++));
    sl_list_init(&f->free);
    sl_list_init(&f->held);
    sl_list_init(&f->eps);
    f->wraps = calloc(WRAPS, sizeof(*f->wraps));
    sl_assert(f->wraps != NULL);
    for (unsigned i = 0; i < WRAPS; i++) {
        f->wraps[i].iface = f;
        sl_list_push_back(&f->free, &f->wraps[i].link);
    }
    *out = &f->base;
    return 0;
}

static void faulty_close(struct sl_iface *iface)
{
    struct faulty_iface *f = iface_of(iface);

    inner_ops->close(f->inner);
    free(f->wraps);
    free(f);
}

static int faulty_mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out)
{
    return inner_ops->mem_alloc(iface_of(iface)->inner, len, backed, out);
}

static int faulty_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    return inner_ops->mem_back(iface_of(iface)->inner, mem, off, len);
}

static void faulty_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off,
                              size_t len)
{
    inner_ops->mem_unback(iface_of(iface)->inner, mem, off, len);
}

static void faulty_mem_free(struct sl_iface *iface, struct sl_mem *mem)
{
    inner_ops->mem_free(iface_of(iface)->inner, mem);
}

static int faulty_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                         struct sl_key *key)
{
    return inner_ops->mr_reg(iface_of(iface)->inner, mem, out, key);
}

static void faulty_mr_dereg(struct sl_iface *iface, struct sl_mr *mr)
{
    inner_ops->mr_dereg(iface_of(iface)->inner, mr);
}

static unsigned faulty_mem_gone(struct sl_iface *iface, void *addr, size_t len)
{
    return inner_ops->mem_gone(iface_of(iface)->inner, addr, len);
}

static int faulty_map(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out)
{
    if (stormy(iface_of(ep->iface)))
        return -EAGAIN;
    return inner_ops->map(ep_of(ep)->inner, key, len, out);
}

static void faulty_unmap(struct sl_ep *ep, void *ptr)
{
    inner_ops->unmap(ep_of(ep)->inner, ptr);
}

static int faulty_ep_create(struct sl_iface *iface, struct sl_ep **out)
{
    struct faulty_ep *e = calloc(1, sizeof(*e));
    int err = e == NULL ? -ENOMEM : inner_ops->ep_create(iface_of(iface)->inner, &e->inner);

    if (err != 0) {
        free(e);
        return err;
    }
    e->base.iface = iface;
    e->base.peer_asleep = e->inner->peer_asleep;
    e->inner->owner = e;
    sl_list_push_back(&iface_of(iface)->eps, &e->link);
    *out = &e->base;
    return 0;
}

static int faulty_ep_addr(struct sl_ep *ep, struct sl_addr *out)
{
    return inner_ops->ep_addr(ep_of(ep)->inner, out);
}

static int faulty_ep_connect(struct sl_ep *ep, const struct sl_addr *peer, struct sl_req *req)
{
    struct wrap *w = wrap_get(iface_of(ep->iface), ep_of(ep), req);
    int rc;

    sl_assert(w != NULL);
    ep_of(ep)->inner->peer = ep->peer;
    rc = inner_ops->ep_connect(ep_of(ep)->inner, peer, &w->req);
    return wrap_answer(w, rc);
}

/* Ends what was held back for this endpoint; channel NULL: for all of its channels. */
static void release(struct faulty_iface *f, const struct faulty_ep *ep, const uint32_t *channel,
                    int canceled)
{
    bool found = true;

    /* done() may post or free others, so the list is searched anew each time. */
    while (found) {
        found = false;
        sl_list_foreach(&f->held, node)
        {
            struct wrap *w = sl_container_of(node, struct wrap, link);

            if (w->ep != ep || (channel != NULL && w->channel != *channel))
                continue;
            wrap_finish(w, w->req.status == -ECANCELED ? canceled : w->req.status);
            found = true;
            break;
        }
    }
}

static void faulty_ep_destroy(struct sl_ep *ep)
{
    struct faulty_ep *e = ep_of(ep);

    if (ep == NULL)
        return;
    inner_ops->ep_destroy(e->inner);
    release(iface_of(ep->iface), e, NULL, -ECANCELED);
    sl_list_remove(&e->link);
    free(e);
}

static int faulty_channel_open(struct sl_ep *ep, uint32_t channel)
{
    if (ep_of(ep)->inner == NULL)
        return sl_fail(-ECONNRESET, "this endpoint is lost");
    return inner_ops->channel_open(ep_of(ep)->inner, channel);
}

static void faulty_channel_close(struct sl_ep *ep, uint32_t channel)
{
    if (ep_of(ep)->inner != NULL)
        inner_ops->channel_close(ep_of(ep)->inner, channel);
    release(iface_of(ep->iface), ep_of(ep), &channel, -ECANCELED);
}

static uint64_t faulty_channel_traffic(const struct sl_ep *ep, uint32_t channel)
{
    const struct faulty_ep *e = (const struct faulty_ep *)ep;

    return e->inner != NULL ? inner_ops->channel_traffic(e->inner, channel) : 0;
}

static bool faulty_channel_starves(const struct sl_ep *ep, uint32_t channel)
{
    const struct faulty_ep *e = (const struct faulty_ep *)ep;

    return e->inner != NULL ? inner_ops->channel_starves(e->inner, channel) : false;
}

static int faulty_send(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct faulty_iface *f = iface_of(ep->iface);
    struct wrap *w;

    if (ep_of(ep)->lost)
        return sl_fail(-ECONNRESET, "this endpoint is lost");
    if (stormy(f) || (w = wrap_get(f, ep_of(ep), req)) == NULL)
        return -EAGAIN;
    w->channel = buf->channel;
    return wrap_answer(w, inner_ops->send(ep_of(ep)->inner, buf, tag, &w->req));
}

static int faulty_recv(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req)
{
    struct faulty_iface *f = iface_of(ep->iface);
    struct wrap *w;

    if (ep_of(ep)->inner == NULL)
        return sl_fail(-ECONNRESET, "this endpoint is lost");
    if (stormy(f) || (w = wrap_get(f, ep_of(ep), req)) == NULL)
        return -EAGAIN;
    w->channel = sink->channel;
    return wrap_answer(w, inner_ops->recv(ep_of(ep)->inner, sink, &w->req));
}

static int faulty_read(struct sl_ep *ep, uint64_t addr, void *dst, size_t len, struct sl_req *req)
{
    struct faulty_iface *f = iface_of(ep->iface);
    struct wrap *w;

    if (stormy(f) || (w = wrap_get(f, ep_of(ep), req)) == NULL)
        return -EAGAIN;
    return wrap_answer(w, inner_ops->read(ep_of(ep)->inner, addr, dst, len, &w->req));
}

static int faulty_ctrl(struct sl_ep *ep, const void *msg, size_t len)
{
    if (ep_of(ep)->lost)
        return sl_fail(-ECONNRESET, "this endpoint is lost");
    return stormy(iface_of(ep->iface)) ? -EAGAIN : inner_ops->ctrl(ep_of(ep)->inner, msg, len);
}

static void break_now(struct faulty_iface *f, struct faulty_ep *e)
{
    e->breaking = false;
    e->lost = true;
    f->handler.down(f->handler.arg, &e->base, -ECONNRESET, "broken by the test");
    inner_ops->ep_destroy(e->inner);
    e->inner = NULL;
    release(f, e, NULL, -ECONNRESET);
}

static int faulty_progress(struct sl_iface *iface, unsigned budget)
{
    struct faulty_iface *f = iface_of(iface);
    int moved = inner_ops->progress(f->inner, (unsigned)sl_rng_range(&f->rng, 1, budget));

    if (moved < 0)
        return moved;
    f->base.traffic = f->inner->traffic;
    f->base.eager_max = f->inner->eager_max;
    sl_list_foreach(&f->eps, node)
    {
        struct faulty_ep *e = sl_container_of(node, struct faulty_ep, link);

        if (e->inner != NULL)
            e->base.peer_asleep = e->inner->peer_asleep;
        if (e->breaking) {
            break_now(f, e);
            return moved + 1;
        }
    }
    sl_list_foreach(&f->held, node)
    {
        struct wrap *w = sl_container_of(node, struct wrap, link);

        if (w->delay > 0) {
            w->delay--;
            continue;
        }
        wrap_finish(w, w->req.status);
        /* One a round: what done() did to the list does not matter then. */
        return moved + 1;
    }
    return moved + !sl_list_empty(&f->held);
}

static int faulty_fd(struct sl_iface *iface)
{
    return inner_ops->fd(iface_of(iface)->inner);
}

static int faulty_arm(struct sl_iface *iface)
{
    return sl_list_empty(&iface_of(iface)->held) ? inner_ops->arm(iface_of(iface)->inner) : -EAGAIN;
}

static void faulty_disarm(struct sl_iface *iface)
{
    inner_ops->disarm(iface_of(iface)->inner);
}

static void faulty_wake(struct sl_ep *ep)
{
    inner_ops->wake(ep_of(ep)->inner);
}

static void faulty_describe(const struct sl_ep *ep, char *out, size_t cap)
{
    const struct faulty_ep *e = (const struct faulty_ep *)ep;

    if (e->inner != NULL)
        inner_ops->ep_describe(e->inner, out, cap);
    else
        snprintf(out, cap, "%s, lost: broken by the test", inner_ops->name);
}

static void faulty_stop_listening(struct sl_iface *iface)
{
    inner_ops->stop_listening(iface_of(iface)->inner);
}

static size_t faulty_stats(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)
{
    const struct faulty_ep *e = (const struct faulty_ep *)ep;

    return e->inner != NULL ? inner_ops->ep_stats(e->inner, out, cap) : 0;
}

const struct sl_transport_ops *faulty_wrap(const struct sl_transport_ops *inner, uint64_t seed)
{
    inner_ops = inner;
    chance = seed;
    unnamed = 0;
    ops = (struct sl_transport_ops){
        .abi = inner->abi,
        .name = inner->name,
        .probe = inner->probe,
        .open = faulty_open,
        .close = faulty_close,
        .mem_alloc = faulty_mem_alloc,
        .mem_back = faulty_mem_back,
        .mem_unback = faulty_mem_unback,
        .mem_free = faulty_mem_free,
        .mr_reg = faulty_mr_reg,
        .mr_dereg = faulty_mr_dereg,
        .mem_gone = faulty_mem_gone,
        .map = faulty_map,
        .unmap = faulty_unmap,
        .ep_create = faulty_ep_create,
        .ep_addr = faulty_ep_addr,
        .ep_connect = faulty_ep_connect,
        .ep_destroy = faulty_ep_destroy,
        .channel_open = faulty_channel_open,
        .channel_close = faulty_channel_close,
        .channel_traffic = faulty_channel_traffic,
        .channel_starves = faulty_channel_starves,
        .stop_listening = faulty_stop_listening,
        .send = faulty_send,
        .recv = faulty_recv,
        .read = faulty_read,
        .ctrl = faulty_ctrl,
        .progress = faulty_progress,
        .fd = faulty_fd,
        .arm = faulty_arm,
        .disarm = faulty_disarm,
        .wake = faulty_wake,
        .ep_describe = faulty_describe,
        .ep_stats = faulty_stats,
    };
    return &ops;
}

void faulty_break(struct sl_ep *ep)
{
    ep_of(ep)->breaking = true;
}
