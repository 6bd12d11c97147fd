/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport's operations: progress and sleep, and the table of all. verbs.h says what
 * lies where. */
#include "verbs/verbs.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"
#include "multipath/repair.h"

#include "verbs/probe.h"

#define SIDEBAND_EVERY 32 /* rounds of progress between polls of the sideband and the clock */
#define TIMER_NS (5 * SL_NS_PER_MS)

/* ---- progress ---- */

static void flush_batches(struct sl_verbs_iface *iface)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&iface->dirty)) != NULL) {
        struct sl_mp_path *path = sl_container_of(node, struct sl_mp_path, dirty);

        path->is_dirty = false;
        sl_verbs_path_flush(path);
    }
}

/* True while the connection needs another turn without anything new having happened. What waits for
 * a path gets its turn when one comes up: until then its owner may sleep. */
static bool has_work(const struct sl_mp_conn *conn)
{
    bool can_send = conn->paths_up > 0 || sl_mp_fallback_path(conn) != NULL;
    bool stuck = !sl_list_empty(&conn->repeat) || conn->unannounced > 0 || conn->drop_count > 0 ||
                 conn->wants_staging || conn->deal_count > 0 || conn->redo_count > 0 ||
                 conn->credits_owed >= SL_MP_CREDITS / 2;

    if (conn->state == SL_MP_CONN_DOWN)
        return false;
    return conn->failing || conn->left || conn->in_inbox[conn->control_in % SL_MP_CONTROLS] ||
           conn->control_count > 0 || conn->late_count > 0 || conn->gpu_waits > 0 ||
           sl_mp_fallback_has_work(conn) || (can_send && stuck);
}

static int ep_work(struct sl_mp_conn *conn)
{
    int moved = sl_mp_inbox_run(conn);

    for (unsigned i = 0; i < conn->path_count; i++)
        if (conn->paths[i] != NULL && conn->paths[i]->failing) {
            sl_mp_path_end(conn->paths[i]);
            moved++;
        }
    if (conn->control_count > 0)
        sl_mp_control_flush(conn);
    if (SL_UNLIKELY(conn->left && conn->state == SL_MP_CONN_UP))
        sl_mp_conn_leave(conn);
    if (SL_UNLIKELY(conn->failing)) {
        sl_mp_conn_lost(conn);
        return 1;
    }
    if (conn->state == SL_MP_CONN_UP)
        moved += sl_mp_conn_push(conn) + sl_mp_fallback_push(conn);
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
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, active);

        conn->is_active = false;
        moved += ep_work(conn);
        if (has_work(conn))
            sl_mp_conn_activate(conn);
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
        struct sl_mp_conn *conn = sl_container_of(node, struct sl_mp_conn, timed);

        if (now_ns < conn->due_ns)
            continue;
        conn->due_ns = sl_mp_repair_timers(conn, now_ns);
        if (conn->due_ns == SL_NEVER)
            sl_mp_conn_untime(conn);
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
        moved += sl_mp_gpu_progress(iface);
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

    if (!sl_list_empty(&iface->active) || iface->connecting > 0 || sl_mp_gpu_busy(iface))
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
    .send = sl_mp_send,
    .recv = sl_mp_recv,
    .ctrl = sl_mp_ctrl,
    .progress = progress,
    .fd = wake_fd,
    .arm = arm,
    .disarm = disarm,
    .ep_describe = sl_verbs_ep_describe,
    .ep_stats = sl_mp_stats,
};
