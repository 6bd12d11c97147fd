/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the DPDK transport over fake ports: two each, virtual time, and the loop in the
 * sideband's place. CONTRACT_DPDK says what the wires do and how the transport is set up. */
#include "core/config.h"
#include "core/err.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "tests/contract/stage.h"
#include "tests/fake/fake_port.h"
#include "tests/fake/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASS_NS 2000

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

static struct loop *loop;
static struct sl_config config[STAGE_WORKERS];
static struct sl_worker workers[STAGE_WORKERS];
static unsigned still; /* rounds in which nothing moved */

__attribute__((constructor)) static void ops_fill(void)
{
    ops = sl_dpdk_ops;
}

/* Of the case before. */
static void check_before(void)
{
    if (loop == NULL)
        return;
    if (loop_misuse(loop) != NULL)
        fprintf(stderr, "%s\n", loop_misuse(loop));
    sl_assert(loop_misuse(loop) == NULL && loop_live(loop) == 0);
    sl_assert(fake_port_live() == 0);
    loop_destroy(loop);
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

    check_before();
    fake_port_reset(7);
    fake_port_weather(&sky);
    loop = loop_create(7);
    loop_weather(loop, 5000, 20000, 0);
    sl_config_register(&sl_dpdk_section);
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        struct sl_dpdk_config *own;

        sl_config_defaults(&config[i]);
        own = sl_dpdk_config_edit(&config[i]);
        snprintf(own->ports, sizeof(own->ports), "%c0@w0 %c1@w1", 'a' + i, 'a' + i);
        if (asks_for("routes"))
            own->routes = 4;
        if (asks_for("crc"))
            own->crc = SL_ON;
        config[i].connect_timeout_ms = 2000;
        workers[i] =
            (struct sl_worker){.clock = loop_clock(loop), .config = &config[i], .rank = (int)i};
        sl_rng_init(&workers[i].rng, i + 1);
    }
    still = 0;
}

struct sl_worker *stage_worker(unsigned idx)
{
    return &workers[idx];
}

void stage_idle(void)
{
    /* Quiet for long: what is awaited is a time limit. */
    still++;
    loop_pass(loop, still % 1000 < 900 ? PASS_NS : SL_NS_PER_MS);
}

uint64_t stage_now(void)
{
    return loop_now(loop);
}
