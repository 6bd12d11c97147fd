/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection over the fake libibverbs, two rails each, in virtual time. */
#ifndef SL_TESTS_VERBS_WORLD_H
#define SL_TESTS_VERBS_WORLD_H

#include "tests/fake/fake_ibv.h"
#include "tests/fake/two_sides.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "verbs/queue_pair.h"
#include "verbs/verbs.h"

extern struct fake_ibv *world_fake;

/* Rails of each side, for the next world_prepare(); 2 each, unless a case says otherwise, and after
 * world_end(). Side 0 has the first devices. */
extern unsigned world_rails[2];

/* Fakes and settings of both ends; nothing is open yet: devices 0 and 1 are side 0's. more, which
 * may be NULL, changes a device before it is added. */
void world_prepare(void (*more)(struct fake_ibv_device *params));
/* Opens both ends; or opens and connects them. */
void world_open(void);
void world_join(void);
/* Closes what is open; nothing may be left of it, and nothing may have been misused. */
void world_end(void);

/* The same, as cmocka calls it after a case. */
int world_clean(void **state);

static inline struct sl_verbs_iface *world_iface(unsigned side)
{
    return sl_verbs_iface_of(world[side].iface);
}

static inline struct sl_mp_conn *world_ep(unsigned side)
{
    return sl_mp_conn_of(world[side].ep);
}

/* Channel 0. */
static inline struct sl_mp_channel *world_channel(unsigned side)
{
    return sl_mp_channel_of(sl_channels_find(&world_ep(side)->channels, 0));
}

#endif
