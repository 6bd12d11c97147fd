/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport's operations: progress and sleep, and the table of all. verbs.h says what
 * lies where. */
#include "verbs/verbs.h"

#include "multipath/channel.h"
#include "multipath/gpu_copy.h"
#include "multipath/message.h"
#include "multipath/control_queue.h"
#include "multipath/setup.h"
#include "multipath/stats.h"
#include "verbs/config.h"
#include "verbs/events.h"
#include "verbs/iface.h"
#include "verbs/probe.h"
#include "verbs/queue_pair.h"

#define SIDEBAND_EVERY 32 /* rounds of progress between polls of the sideband and the clock */
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

static int run_timers(struct sl_verbs_iface *iface)
{
    uint64_t now_ns = sl_now(iface->mp.base.worker->clock);
    int moved = 0;

    if (now_ns < iface->next_timer_ns)
        return 0;
    iface->next_timer_ns = now_ns + (iface->mp.connecting > 0 ? 0 : TIMER_NS);
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        moved += sl_verbs_rail_events(&iface->rails[i]);
    sl_verbs_mem_sync(iface);
    sl_mp_run_timers(&iface->mp, now_ns);
    return moved;
}

static int hear_sideband(struct sl_verbs_iface *iface, unsigned budget)
{
    return iface->mp.sideband->ops->progress(iface->mp.sideband, budget);
}

/* A peer that destroys its endpoint says so on the sideband, and then what was on its way to it
 * fails. The farewell is to be heard first: the sideband asks its sockets only now and then, unless
 * it is about to sleep. Returns what moved, or a negative errno. */
__attribute__((noinline)) static int hear_farewells(struct sl_verbs_iface *iface, unsigned budget)
{
    struct sl_iface *sideband = iface->mp.sideband;

    iface->mp.has_failed = false;
    if (sideband->ops->arm(sideband) == 0)
        sideband->ops->disarm(sideband);
    return hear_sideband(iface, budget);
}

static int run_connections(struct sl_verbs_iface *iface, unsigned budget)
{
    int moved = SL_UNLIKELY(iface->mp.has_failed) ? hear_farewells(iface, budget) : 0;

    if (moved < 0 || sl_list_empty(&iface->mp.active))
        return moved;
    return moved + sl_mp_run(&iface->mp);
}

static int run_sideband(struct sl_verbs_iface *iface, unsigned budget)
{
    int heard = hear_sideband(iface, budget), moved, n;

    if (heard < 0)
        return heard;
    moved = heard + run_timers(iface);
    n = run_connections(iface, budget);
    return n < 0 ? n : moved + n;
}

static int progress(struct sl_iface *base, unsigned budget)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0, n;

    iface->mp.in_progress = true;
    iface->mp.opens = SL_MP_OPENS;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        moved += (int)sl_verbs_rail_poll(&iface->rails[i], budget);
    if (SL_UNLIKELY(iface->mp.stage_count != 0))
        moved += sl_mp_gpu_progress(&iface->mp);
    n = run_connections(iface, budget);
    if (n >= 0 && (iface->round++ % SIDEBAND_EVERY == 0 || iface->mp.connecting > 0)) {
        moved += n;
        n = run_sideband(iface, budget);
    }
    iface->mp.in_progress = false;
    if (n < 0)
        return n;
    moved += n;
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

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        sl_verbs_rail_disarm(&iface->rails[i]);
    iface->mp.sideband->ops->disarm(iface->mp.sideband);
    iface->next_timer_ns = 0; /* what woke us may be an asynchronous event */
}

static int arm(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    int moved = 0;

    if (!sl_mp_may_sleep(&iface->mp))
        return -EAGAIN;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        sl_verbs_rail_arm(&iface->rails[i]);
    /* What completed before the request rings no bell. */
    iface->round = 0;
    moved = progress(base, 64);
    if (moved != 0 || iface->mp.sideband->ops->arm(iface->mp.sideband) != 0)
        return -EAGAIN;
    return 0;
}

const struct sl_transport_ops sl_verbs_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "verbs",
    .number = 2,
    .place = 20,
    .traits = SL_TRAIT_OFFLOAD,
    .config = &sl_verbs_section,
    .events = &sl_verbs_events,
    .prefer = sl_verbs_prefer,
    .probe = sl_verbs_probe,
    .open = sl_verbs_iface_open,
    .close = sl_verbs_iface_close,
    .mr_reg = sl_verbs_mr_reg,
    .mr_dereg = sl_verbs_mr_dereg,
    .mem_gone = sl_verbs_mem_gone,
    .ep_create = sl_mp_ep_create,
    .ep_addr = sl_mp_ep_addr,
    .ep_connect = sl_mp_ep_connect,
    .ep_destroy = sl_mp_ep_destroy,
    .channel_open = sl_mp_channel_open,
    .channel_close = sl_mp_channel_close,
    .channel_traffic = sl_mp_channel_traffic,
    .channel_starves = sl_mp_channel_starves,
    .send = sl_mp_send,
    .recv = sl_mp_recv,
    .ctrl = sl_mp_ctrl,
    .progress = progress,
    .fd = wake_fd,
    .arm = arm,
    .disarm = disarm,
    .ep_describe = sl_mp_ep_describe,
    .ep_stats = sl_mp_ep_stats,
    .delivers = sl_verbs_delivers,
};
