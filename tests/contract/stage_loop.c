/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the loop: what other fakes stand on keeps the contract itself. */
#include "core/config.h"
#include "core/err.h"
#include "tests/contract/stage.h"
#include "tests/fake/loop.h"

#include <stdio.h>

#define PASS_NS 2000
#define LONG_NS SL_NS_PER_MS /* once it has been quiet for long: what is awaited is a time limit */

static struct sl_transport_ops ops;
const struct sl_transport_ops *const stage_ops = &ops;
const bool stage_forks = false;

static struct loop *loop;
static struct sl_config config;
static struct sl_worker workers[STAGE_WORKERS];
static unsigned still; /* rounds in which nothing moved */

__attribute__((constructor)) static void ops_fill(void)
{
    ops = loop_ops;
}

void stage_reset(void)
{
    if (loop != NULL) { /* of the case before */
        if (loop_misuse(loop) != NULL)
            fprintf(stderr, "%s\n", loop_misuse(loop));
        sl_assert(loop_misuse(loop) == NULL && loop_live(loop) == 0);
    }
    loop_destroy(loop);
    loop = loop_create(7);
    loop_weather(loop, 5000, 20000, 30);
    sl_config_defaults(&config);
    config.connect_timeout_ms = 2000;
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        workers[i] =
            (struct sl_worker){.clock = loop_clock(loop), .config = &config, .rank = (int)i};
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
    still++;
    loop_pass(loop, still % 1000 < 900 ? PASS_NS : LONG_NS);
}

uint64_t stage_now(void)
{
    return loop_now(loop);
}
