/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection by the DPDK transport over fake ports, two each, in virtual time. */
#ifndef SL_TESTS_DPDK_WORLD_H
#define SL_TESTS_DPDK_WORLD_H

#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"
#include "multipath/conn.h"
#include "tests/fake/fake_port.h"
#include "tests/fake/two_sides.h"

/* Fakes and settings of both ends: ports a0 and a1, b0 and b1, on wires w0 and w1. */
void world_prepare(void);
/* Opens and connects. */
void world_join(void);
/* Closes what is open; nothing may be left of it. As cmocka calls it after a case. */
int world_clean(void **state);

static inline struct sl_dpdk_iface *world_iface(unsigned side)
{
    return sl_dpdk_iface_of(world[side].iface);
}

static inline struct sl_mp_conn *world_conn(unsigned side)
{
    return sl_mp_conn_of(world[side].ep);
}

static inline struct sl_dpdk_lane *world_lane(unsigned side, unsigned idx)
{
    return (struct sl_dpdk_lane *)world_conn(side)->paths[idx];
}

#endif
