/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport's operations: progress and sleep, and the table of all. verbs.h says what
 * lies where. */
#include "verbs/verbs.h"
#include "verbs/endpoint.h"
#include "verbs/fallback.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

#include "verbs/probe.h"

#define SIDEBAND_EVERY 32 /* rounds of progress between looks at the sideband and the clock */
#define TIMER_NS (5 * SL_NS_PER_MS)

/* ---- progress ---- */

static void flush_batches(struct sl_verbs_iface *iface)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&iface->dirty)) != NULL) {
        struct sl_verbs_path *path = sl_container_of(node, struct sl_verbs_path, dirty);

        path->is_dirty = false;
        sl_verbs_path_flush(path);
    }
}

/* True while the connection needs another look without anything new having happened. What waits for
 * a path is looked at when one comes up: until then its owner may sleep. */
static bool has_work(const struct sl_verbs_ep *ep)
{
    bool can_send = ep->paths_up > 0 || sl_verbs_tcp_path(ep) != NULL;
    bool stuck = !sl_list_empty(&ep->repeat) || ep->unannounced > 0 || ep->drop_count > 0 ||
                 ep->wants_staging || ep->deal_count > 0 || ep->redo_count > 0 ||
                 ep->credits_owed >= SL_VERBS_CREDITS / 2;

    if (ep->state == SL_VERBS_EP_DOWN)
        return false;
    return ep->failing || ep->left || ep->in_inbox[ep->record_in % SL_VERBS_RECORDS] ||
           ep->record_count > 0 || ep->late_count > 0 || ep->gpu_waits > 0 ||
           sl_verbs_tcp_has_work(ep) || (can_send && stuck);
}

static int ep_work(struct sl_verbs_ep *ep)
{
    int moved = sl_verbs_inbox_run(ep);

    for (unsigned i = 0; i < ep->path_count; i++)
        if (ep->paths[i] != NULL && ep->paths[i]->failing) {
            sl_verbs_path_end(ep->paths[i]);
            moved++;
        }
    if (ep->record_count > 0)
        sl_verbs_record_flush(ep);
    if (SL_UNLIKELY(ep->left && ep->state == SL_VERBS_EP_UP))
        sl_verbs_ep_leave(ep);
    if (SL_UNLIKELY(ep->failing)) {
        sl_verbs_ep_lost(ep);
        return 1;
    }
    if (ep->state == SL_VERBS_EP_UP)
        moved += sl_verbs_ep_push(ep) + sl_verbs_tcp_push(ep);
    return moved;
}

static int run_active(struct sl_verbs_iface *iface)
{
    struct sl_node turn, *node;
    int moved = 0;

    if (sl_list_empty(&iface->active))
        return 0;
    turn = iface->active;
    turn.next->prev = turn.prev->next = &turn;
    sl_list_init(&iface->active);
    while ((node = sl_list_pop_front(&turn)) != NULL) {
        struct sl_verbs_ep *ep = sl_container_of(node, struct sl_verbs_ep, active);

        ep->is_active = false;
        moved += ep_work(ep);
        if (has_work(ep))
            sl_verbs_ep_activate(ep);
    }
    return moved;
}

static int run_timers(struct sl_verbs_iface *iface)
{
    uint64_t now_ns = sl_now(iface->base.worker->clock);
    int moved = 0;

    if (now_ns < iface->next_timer_ns)
        return 0;
    iface->ticked_ns = now_ns;
    iface->next_timer_ns = now_ns + (iface->connecting > 0 ? 0 : TIMER_NS);
    for (unsigned i = 0; i < iface->rail_count; i++)
        moved += sl_verbs_rail_events(&iface->rails[i]);
    sl_list_foreach(&iface->timed, node)
    {
        struct sl_verbs_ep *ep = sl_container_of(node, struct sl_verbs_ep, timed);

        if (now_ns < ep->due_ns)
            continue;
        ep->due_ns = sl_verbs_repair_timers(ep, now_ns);
        if (ep->due_ns == SL_NEVER)
            sl_verbs_ep_untime(ep);
    }
    return moved;
}

static int progress(struct sl_iface *base, unsigned budget)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0, n;

    iface->batching = true;
    iface->makes = SL_VERBS_MAKES;
    for (unsigned i = 0; i < iface->rail_count; i++) {
        n = sl_verbs_rail_poll(&iface->rails[i], budget);
        if (n < 0) {
            iface->batching = false;
            return n;
        }
        moved += n;
    }
    if (SL_UNLIKELY(iface->stage_count != 0))
        moved += sl_verbs_gpu_progress(iface);
    moved += run_active(iface);
    if (iface->round++ % SIDEBAND_EVERY == 0 || iface->connecting > 0) {
        n = iface->sideband->ops->progress(iface->sideband, budget);
        if (n < 0) {
            iface->batching = false;
            return n;
        }
        moved += n + run_timers(iface) + run_active(iface);
    }
    iface->batching = false;
    flush_batches(iface);
    return moved;
}

/* ---- sleeping ---- */

static int wake_fd(struct sl_iface *base)
{
    return sl_verbs_iface_of(base)->epoll_fd;
}

static void disarm(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);

    for (unsigned i = 0; i < iface->rail_count; i++) {
        struct sl_verbs_rail *rail = &iface->rails[i];
        struct ibv_cq *cq;
        void *arg;

        while (iface->ibv->ibv_get_cq_event(rail->channel, &cq, &arg) == 0)
            rail->cq_events++;
    }
    iface->sideband->ops->disarm(iface->sideband);
    iface->next_timer_ns = 0; /* what woke us may be an asynchronous event */
}

static int arm(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0;

    if (!sl_list_empty(&iface->active) || iface->connecting > 0 || sl_verbs_gpu_busy(iface))
        return -EAGAIN;
    for (unsigned i = 0; i < iface->rail_count; i++)
        if (ibv_req_notify_cq(iface->rails[i].cq, 0) != 0)
            return -EAGAIN;
    /* What completed before the request rings no bell. */
    iface->round = 0;
    moved = progress(base, 64);
    if (moved != 0 || iface->sideband->ops->arm(iface->sideband) != 0)
        return -EAGAIN;
    return 0;
}

/* Paths come back by what the sideband carries, and need nobody who listens. */
static void stop_listening(struct sl_iface *base)
{
    struct sl_iface *sideband = sl_verbs_iface_of(base)->sideband;

    sideband->ops->stop_listening(sideband);
}

const struct sl_transport_ops sl_verbs_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "verbs",
    .number = 2,
    .place = 20,
    .probe = sl_verbs_probe,
    .open = sl_verbs_iface_open,
    .close = sl_verbs_iface_close,
    .mr_reg = sl_verbs_mr_reg,
    .mr_dereg = sl_verbs_mr_dereg,
    .mem_gone = sl_verbs_mem_gone,
    .ep_create = sl_verbs_ep_create,
    .ep_addr = sl_verbs_ep_addr,
    .ep_connect = sl_verbs_ep_connect,
    .ep_destroy = sl_verbs_ep_destroy,
    .stop_listening = stop_listening,
    .send = sl_verbs_send,
    .recv = sl_verbs_recv,
    .ctrl = sl_verbs_ctrl,
    .progress = progress,
    .fd = wake_fd,
    .arm = arm,
    .disarm = disarm,
    .ep_describe = sl_verbs_ep_describe,
    .ep_stats = sl_verbs_ep_stats,
};
