/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the DPDK transport over fake ports: two each, virtual time, and the loop in the
 * sideband's place. CONTRACT_DPDK says what the wires do and how the transport is set up. */
#include "core/err.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "tests/contract/stage_virtual.h"
#include "tests/fake/fake_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

__attribute__((constructor)) static void ops_fill(void)
{
    ops = sl_dpdk_ops;
}

static bool asks_for(const char *what)
{
    const char *all = getenv("CONTRACT_DPDK");

    return all != NULL && strstr(all, what) != NULL;
}

static struct fake_port_weather weather(void)
{
    struct fake_port_weather out = {0};

    if (asks_for("lossy"))
        out = (struct fake_port_weather){
            .lost = 50, .doubled = 50, .held = 20, .damaged = 100, .marked = 50};
    out.keeps = asks_for("keeps");
    out.slow = out.keeps ? 2 : 0;
    return out;
}

void stage_reset(void)
{
    struct fake_port_weather sky = weather();

    if (stage_loop != NULL) /* a case was before */
        sl_assert(fake_port_live() == 0);
    stage_virtual_check();
    fake_port_reset(7);
    fake_port_weather(&sky);
    sl_config_register(&sl_dpdk_section);
    stage_virtual_reset(0);
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        struct sl_dpdk_config *own = sl_dpdk_config_edit(&stage_config[i]);

        snprintf(own->ports, sizeof(own->ports), "%c0@w0 %c1@w1", 'a' + i, 'a' + i);
        if (asks_for("routes"))
            own->routes = 4;
        if (asks_for("crc"))
            own->crc = SL_ON;
    }
}
