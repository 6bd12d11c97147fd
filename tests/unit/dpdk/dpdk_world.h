/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection by the DPDK transport over fake ports, two each, in virtual time. */
#ifndef SL_TESTS_DPDK_WORLD_H
#define SL_TESTS_DPDK_WORLD_H

#include "core/config.h"
#include "core/event.h"
#include "core/transport.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "dpdk/iface.h"
#include "dpdk/lane.h"
#include "multipath/conn.h"
#include "tests/fake/fake_port.h"
#include "tests/fake/loop.h"

#define WORLD_LIMIT_NS (60 * SL_NS_PER_S)

struct world_side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_event_ring events;
    struct sl_iface *iface;
    struct sl_ep *ep;
    unsigned downs;
    char why[512]; /* of the last down */
};

extern struct loop *world_loop;
extern struct world_side world[2];

/* Fakes and settings of both ends: ports a0 and a1, b0 and b1, on wires w0 and w1. */
void world_prepare(void);
/* Opens and connects. */
void world_join(void);
/* Closes what is open; nothing may be left of it. As cmocka calls it after a case. */
int world_clean(void **state);

void world_progress(void);
/* Until the condition holds; fails the case when it does not in time. */
#define WORLD_UNTIL(condition)                                                                     \
    do {                                                                                           \
        uint64_t limit_ns = loop_now(world_loop) + WORLD_LIMIT_NS;                                 \
                                                                                                   \
        while (!(condition)) {                                                                     \
            if (loop_now(world_loop) > limit_ns)                                                   \
                fail_msg("in time: %s", #condition);                                               \
            world_progress();                                                                      \
        }                                                                                          \
    } while (0)

/* One message of len bytes from one side to the other and back, checked. */
void world_message(size_t len);

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
