/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of real transports: the machine's clock, settings from the environment. */
#include "core/config.h"
#include "core/err.h"
#include "tests/contract/stage.h"

#include <sched.h>
#include <unistd.h>

extern const struct sl_transport_ops CONTRACT_OPS;

const struct sl_transport_ops *const stage_ops = &CONTRACT_OPS;
const bool stage_forks = true;

static struct sl_config config;
static struct sl_worker workers[STAGE_WORKERS];

void stage_reset(void)
{
    sl_assert(sl_config_from_env(&config, environ) == 0);
    config.connect_timeout_ms = 2000;
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        workers[i] =
            (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config, .rank = (int)i};
        sl_rng_init(&workers[i].rng, i + 1);
        workers[i].has_session = config.secret[0] != '\0';
        if (workers[i].has_session)
            sl_assert(sl_session_derive(config.secret, workers[i].session) == 0);
    }
}

struct sl_worker *stage_worker(unsigned idx)
{
    return &workers[idx];
}

void stage_idle(void)
{
    sched_yield();
}

uint64_t stage_now(void)
{
    return sl_now(&sl_clock_monotonic);
}
