/* SPDX-License-Identifier: Apache-2.0 */
/* What a round of progress has only now and then. */
#include "multipath/rounds.h"

#include "core/registry.h"

int sl_mp_sideband_open(struct sl_mp_iface *iface)
{
    const struct sl_transport_ops *ops = sl_transport_with(SL_TRAIT_SIDEBAND);
    struct sl_handler handler = sl_mp_sideband_handler(&iface->settings);

    if (ops == NULL)
        return sl_fail(-ENOTSUP, "this build has no transport for the connection beside the paths");
    return ops->open(iface->base.worker, NULL, &handler, &iface->sideband);
}

static int run_timers(struct sl_mp_iface *iface, const struct sl_mp_rounds *by)
{
    uint64_t now_ns = sl_now(iface->base.worker->clock);
    int moved;

    if (now_ns < iface->next_timer_ns)
        return 0;
    iface->next_timer_ns = now_ns + (iface->connecting > 0 ? 0 : SL_MP_TIMER_NS);
    moved = by->events(iface, now_ns);
    sl_mp_run_timers(iface, now_ns);
    return moved;
}

static int hear_sideband(struct sl_mp_iface *iface, unsigned budget)
{
    return iface->sideband->ops->progress(iface->sideband, budget);
}

/* A peer that destroys its endpoint says so on the sideband, and then what was on its way to it
 * fails. The farewell is to be heard first: the sideband asks its sockets only now and then, unless
 * it is about to sleep. */
int sl_mp_hear_farewells(struct sl_mp_iface *iface, unsigned budget)
{
    struct sl_iface *sideband = iface->sideband;

    iface->has_failed = false;
    if (sideband->ops->arm(sideband) == 0)
        sideband->ops->disarm(sideband);
    return hear_sideband(iface, budget);
}

int sl_mp_seldom(struct sl_mp_iface *iface, const struct sl_mp_rounds *by, unsigned budget)
{
    int heard = hear_sideband(iface, budget), moved, n;

    if (heard < 0)
        return heard;
    moved = heard + run_timers(iface, by);
    n = sl_mp_run_connections(iface, budget);
    return n < 0 ? n : moved + n;
}
