/* SPDX-License-Identifier: Apache-2.0 */
/* Which rail is connected to which of the peer's, by what is known of their subnets. Pure. */
#ifndef SL_MULTIPATH_PAIRS_H
#define SL_MULTIPATH_PAIRS_H

#include "multipath/control.h"

#include <stddef.h>
#include <stdint.h>

/* What addresses say of the way between two rails. */
enum sl_mp_reach {
    SL_MP_REACH_UNKNOWN, /* no address, or no prefix, or one of a link that may be any */
    SL_MP_REACH_NEVER,   /* other link layers, or no kind of address in common */
    SL_MP_REACH_ROUTED,  /* two subnets */
    SL_MP_REACH_DIRECT,  /* one subnet */
};

/* The rails of both ends; rows are local ones. */
struct sl_mp_reaches {
    unsigned local_rails, remote_rails;              /* at most SL_MP_RAILS_MAX each */
    uint8_t reach[SL_MP_RAILS_MAX][SL_MP_RAILS_MAX]; /* enum sl_mp_reach */
    uint16_t local_far, remote_far; /* rails that their end would rather not use, a bit each */
};

#define SL_MP_PAIRS_MAX (2 * SL_MP_RAILS_MAX)

/*
 * The pairs to connect, ordered by local rail, then those that share a rail. Each end has a rail.
 * How many there are.
 *
 * As many rails as possible are paired with one of their own subnet; where several would do, those
 * that are far at neither end with each other, so that what is near is near at both; else with the
 * one of their number, else the first. Then those that are left at both ends: where one's
 * subnet is not known, or neither has any of its own at the other end, for there may be a router.
 * What is left then shares the rail of its subnet that has the fewest paths, or, where no two rails
 * are of one subnet, any. A rail whose subnet the other end lacks is left out otherwise. Where no
 * two can be connected, they are paired by number.
 */
size_t sl_mp_pairs(const struct sl_mp_reaches *reaches, struct sl_mp_pair out[SL_MP_PAIRS_MAX]);

#endif
