/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of an interface's progress: whose turn it is, and how often.
 *
 *   each round      what completed on the lanes; connections with something to do; what was posted
 *   each 32nd       the sideband, whose sockets cost system calls; then the clock is read
 *   each 5 ms       events of the ports; timers
 *
 * While a connection is being made each round has all of it.
 */
#ifndef SL_MULTIPATH_ROUNDS_H
#define SL_MULTIPATH_ROUNDS_H

#include "core/err.h"
#include "multipath/gpu_copy.h"
#include "multipath/iface.h"

#define SL_MP_SIDEBAND_ROUNDS 32 /* between polls of the sideband and the clock */
#define SL_MP_TIMER_NS (5 * SL_NS_PER_MS)

/* The part of the lanes' owner: a constant, so that the calls are direct ones. */
struct sl_mp_rounds {
    /* Handles what has completed on all rails, up to budget things on each; how many. */
    unsigned (*poll)(struct sl_mp_iface *iface, unsigned budget);
    /* What the ports have to say, and its own timers; how many things happened. */
    int (*events)(struct sl_mp_iface *iface, uint64_t now_ns);
    /* The round is over: what posts have collected leaves. */
    void (*flush)(struct sl_mp_iface *iface);
};

/* Opens the interface's sideband; the owner closes it. -ENOTSUP: this build has no transport for
 * it. */
int sl_mp_sideband_open(struct sl_mp_iface *iface);

/* A path has failed. What moved, or a negative errno. */
int sl_mp_hear_farewells(struct sl_mp_iface *iface, unsigned budget);
/* The part of a round that comes seldom. What moved, or a negative errno. */
int sl_mp_seldom(struct sl_mp_iface *iface, const struct sl_mp_rounds *by, unsigned budget);

static inline int sl_mp_run_connections(struct sl_mp_iface *iface, unsigned budget)
{
    int moved = SL_UNLIKELY(iface->has_failed) ? sl_mp_hear_farewells(iface, budget) : 0;

    if (moved < 0 || sl_list_empty(&iface->active))
        return moved;
    return moved + sl_mp_run(iface);
}

/* The operation `progress`. */
static inline __attribute__((always_inline)) int
sl_mp_progress(struct sl_mp_iface *iface, const struct sl_mp_rounds *by, unsigned budget)
{
    int moved = 0, n;

    iface->in_progress = true;
    iface->opens = SL_MP_OPENS;
    moved += (int)by->poll(iface, budget);
    if (SL_UNLIKELY(iface->stage_count != 0))
        moved += sl_mp_gpu_progress(iface);
    n = sl_mp_run_connections(iface, budget);
    if (n >= 0 && (iface->round++ % SL_MP_SIDEBAND_ROUNDS == 0 || iface->connecting > 0)) {
        moved += n;
        n = sl_mp_seldom(iface, by, budget);
    }
    iface->in_progress = false;
    if (n < 0)
        return n;
    by->flush(iface);
    return moved + n;
}

/* The last round before the interface sleeps has all of it. */
static inline void sl_mp_rounds_all(struct sl_mp_iface *iface)
{
    iface->round = 0;
}

/* What woke it may be an event of a port. */
static inline void sl_mp_rounds_woken(struct sl_mp_iface *iface)
{
    iface->next_timer_ns = 0;
}

#endif
