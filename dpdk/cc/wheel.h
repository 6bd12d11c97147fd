/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of flows, and of packets that are spaced: a hierarchical timing wheel (G. Varghese,
 * A. Lauck, "Hashed and hierarchical timing wheels", IEEE/ACM ToN 5(6), 1997) of 10 levels with 64
 * slots each, so that any time of 64 bits has its slot and none is out of reach. Pure: time is
 * handed in.
 *
 *   level 0   64 slots of 256 ns     the 16 us that now is in
 *   level 1   64 slots of  16 us     the millisecond
 *   level 2   64 slots of   1 ms     67 ms
 *   ...                              each 64 times the one below
 *
 * A timer lies at the level of the highest digit (base 64) in which its time differs from now: so
 * all of a level come after all of the levels below, and what is next is found by one look at each
 * level's bitmap. When now reaches a slot of an upper level its timers move down.
 */
#ifndef SL_DPDK_CC_WHEEL_H
#define SL_DPDK_CC_WHEEL_H

#include "core/req.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_DP_WHEEL_SHIFT 8 /* a slot of level 0 is 2^8 ns */
#define SL_DP_WHEEL_LEVELS 10

/* Embedded by its owner; all zeros: not armed. */
struct sl_dp_timer {
    struct sl_node node;
    uint64_t at_ns;
    /* Not armed any more. May arm and cancel any timer, this one too. */
    void (*fire)(struct sl_dp_timer *timer, uint64_t now_ns);
};

struct sl_dp_wheel {
    uint64_t tick;                                    /* now, in slots of level 0 */
    uint64_t filled[SL_DP_WHEEL_LEVELS + 1];          /* a bit for a slot with timers */
    struct sl_node slot[SL_DP_WHEEL_LEVELS * 64 + 2]; /* and two lists more: wheel.c */
};

void sl_dp_wheel_init(struct sl_dp_wheel *wheel, uint64_t now_ns);

/* It fires in the first advance with now_ns >= at_ns, or up to 256 ns later, never earlier; one
 * that lies in the past in the next advance, never in the one that calls this. An armed timer is
 * moved: to a later time by a store, as it stays where it lies until its slot comes. */
void sl_dp_wheel_arm(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer, uint64_t at_ns);

/* Does nothing when it is not armed. */
void sl_dp_wheel_cancel(struct sl_dp_wheel *wheel, struct sl_dp_timer *timer);

static inline bool sl_dp_timer_armed(const struct sl_dp_timer *timer)
{
    return timer->node.next != 0;
}

/* Fires what is due, in no order; how many. Time may jump ahead by any length. Cheap enough for
 * each poll. */
unsigned sl_dp_wheel_advance(struct sl_dp_wheel *wheel, uint64_t now_ns);

/* No timer fires before this time; UINT64_MAX: none is armed, 0: at once. It may be too early (a
 * timer was put off, or moves down a level): then advance fires nothing, and this knows better. */
uint64_t sl_dp_wheel_next(const struct sl_dp_wheel *wheel);

#endif
