/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a connection by the DPDK transport over fake ports. */
#include "tests/unit/dpdk/dpdk_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

void world_prepare(void)
{
    fake_port_reset(3);
    assert_int_equal(sl_config_register(&sl_dpdk_section), 0);
    world_begin();
    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_config *own = sl_dpdk_config_edit(&world[i].config);

        snprintf(own->ports, sizeof(own->ports), "%c0@w0 %c1@w1", 'a' + i, 'a' + i);
        own->mp.staging_bytes = 2 << 20;
        own->mp.lazy = SL_OFF;
    }
}

void world_join(void)
{
    world_open_by(&sl_dpdk_ops);
    world_connect();
}

int world_clean(void **state)
{
    (void)state;
    world_close();
    assert_int_equal(fake_port_live(), 0);
    return 0;
}
