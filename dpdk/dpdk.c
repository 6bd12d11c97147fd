/* SPDX-License-Identifier: Apache-2.0 */
/* The DPDK transport's operations: progress, and the table of all. */
#include "dpdk/dpdk.h"

#include "dpdk/config.h"
#include "dpdk/events.h"
#include "dpdk/iface.h"
#include "multipath/channel.h"
#include "multipath/message.h"
#include "multipath/rounds.h"
#include "multipath/setup.h"
#include "multipath/stats.h"
#include "multipath/control_queue.h"

static unsigned poll(struct sl_mp_iface *base, unsigned budget)
{
    return sl_dpdk_move(sl_dpdk_iface_of(&base->base), budget);
}

static int events(struct sl_mp_iface *base, uint64_t now_ns)
{
    return sl_dpdk_look(sl_dpdk_iface_of(&base->base), now_ns);
}

static void flush(struct sl_mp_iface *base)
{
    sl_dpdk_flush_all(sl_dpdk_iface_of(&base->base));
}

static const struct sl_mp_rounds rounds = {.poll = poll, .events = events, .flush = flush};

static int progress(struct sl_iface *base, unsigned budget)
{
    return sl_mp_progress(sl_mp_iface_of(base), &rounds, budget);
}

const struct sl_transport_ops sl_dpdk_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "dpdk",
    .number = 4,
    .place = 25,
    .config = &sl_dpdk_section,
    .events = &sl_dpdk_events,
    .prefer = sl_dpdk_prefer,
    .probe = sl_dpdk_probe,
    .open = sl_dpdk_iface_open,
    .close = sl_dpdk_iface_close,
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
    .fd = sl_dpdk_fd,
    .arm = sl_dpdk_arm,
    .disarm = sl_dpdk_disarm,
    .ep_describe = sl_mp_ep_describe,
    .ep_stats = sl_mp_ep_stats,
    .delivers = sl_mp_delivers,
};
