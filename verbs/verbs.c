/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs transport's operations: progress and sleep, and the table of all. verbs.h says what
 * lies where. */
#include "verbs/verbs.h"

#include "multipath/channel.h"
#include "multipath/message.h"
#include "multipath/control_queue.h"
#include "multipath/rounds.h"
#include "multipath/setup.h"
#include "multipath/stats.h"
#include "verbs/config.h"
#include "verbs/events.h"
#include "verbs/iface.h"
#include "verbs/probe.h"
#include "verbs/queue_pair.h"

/* ---- progress ---- */

static unsigned poll(struct sl_mp_iface *base, unsigned budget)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(&base->base);
    unsigned moved = 0;

    for (unsigned i = 0; i < base->rail_count; i++)
        moved += sl_verbs_rail_poll(&iface->rails[i], budget);
    return moved;
}

static int events(struct sl_mp_iface *base, uint64_t now_ns)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(&base->base);
    int moved = 0;

    (void)now_ns;
    for (unsigned i = 0; i < base->rail_count; i++)
        moved += sl_verbs_rail_events(&iface->rails[i]);
    sl_verbs_mem_sync(iface);
    return moved;
}

static void flush_batches(struct sl_mp_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(&base->base);
    struct sl_node *node;

    while ((node = sl_list_pop_front(&iface->dirty)) != NULL) {
        struct sl_verbs_path *path = sl_container_of(node, struct sl_verbs_path, dirty);

        path->is_dirty = false;
        sl_verbs_path_flush(path);
    }
}

static const struct sl_mp_rounds rounds = {.poll = poll, .events = events, .flush = flush_batches};

static int progress(struct sl_iface *base, unsigned budget)
{
    return sl_mp_progress(sl_mp_iface_of(base), &rounds, budget);
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
    sl_mp_rounds_woken(&iface->mp);
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
    sl_mp_rounds_all(&iface->mp);
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
    .delivers = sl_mp_delivers,
};
