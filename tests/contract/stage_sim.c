/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of the simulated network: virtual time, two ranks without fibers. */
#include "core/config.h"
#include "core/err.h"
#include "testing/sim/sim.h"
#include "tests/contract/stage.h"

const struct sl_transport_ops *const stage_ops = &sl_sim_ops;
const bool stage_forks = false;

static struct sl_sim *sim;
static struct sl_config config;
static struct sl_worker workers[STAGE_WORKERS];

void stage_reset(void)
{
    struct sl_sim_params params;

    if (sim != NULL) {
        /* Of the case before. */
        sl_sim_check_empty(sim);
        if (sl_sim_violation(sim) != NULL)
            fprintf(stderr, "%s\n", sl_sim_violation(sim));
        sl_assert(sl_sim_violation(sim) == NULL);
    }
    sl_sim_destroy(sim);
    sl_config_defaults(&config);
    sl_sim_params_init(&params, STAGE_WORKERS, 42);
    params.jitter_ns = 5000;
    params.late_in = 4;
    params.stall_in = 50;
    sl_assert(sl_sim_create(&params, &sim) == 0);
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        workers[i] = (struct sl_worker){.clock = sl_sim_clock(sim),
                                        .config = &config,
                                        .rank = (int)i,
                                        .idle = sl_sim_idle,
                                        .idle_arg = sl_sim_idle_arg(sim, i)};
        sl_rng_init(&workers[i].rng, i + 1);
    }
}

struct sl_worker *stage_worker(unsigned idx)
{
    return &workers[idx];
}

void stage_idle(void)
{
    sl_sim_idle(&workers[0]);
}

uint64_t stage_now(void)
{
    return sl_sim_now(sim);
}
