/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of one simulated network. */
#include "tests/sim/ranks.h"

#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>

static void live(void *arg)
{
    const struct sim_rank *rank = arg;

    rank->all->live(rank);
}

/* All have ended: what they came to, and what is left. */
static bool judge(const struct sim_ranks *ranks, struct sl_sim *sim, struct sl_sim_meeting *meeting,
                  char *why, size_t cap)
{
    bool good = true;

    for (uint32_t i = 0; i < ranks->count && good; i++)
        good = ranks->judge(ranks->arg, i, why, cap);
    sl_sim_meeting_destroy(meeting);
    sl_sim_check_empty(sim);
    if (good && sl_sim_violation(sim) != NULL) {
        snprintf(why, cap, "%s", sl_sim_violation(sim));
        good = false;
    }
    sl_sim_destroy(sim);
    return good;
}

bool sim_ranks_run(const struct sim_ranks *ranks, char *why, size_t cap)
{
    struct sim_rank *all = calloc(ranks->count, sizeof(*all));
    struct sl_sim_meeting *meeting;
    struct sl_sim *sim;

    sl_assert(all != NULL && sl_sim_create(ranks->params, &sim) == 0);
    sl_assert(sl_sim_meeting_create(sim, ranks->count, 2 * SL_NS_PER_S, &meeting) == 0);
    for (uint32_t i = 0; i < ranks->count; i++) {
        all[i] = (struct sim_rank){ranks, sim, sl_sim_meeting_exchange(meeting, i, i), i};
        sl_assert(sl_sim_spawn(sim, i, live, &all[i]) == 0);
    }
    if (sl_sim_run(sim, ranks->limit_ns) != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return false;
    }
    free(all);
    return judge(ranks, sim, meeting, why, cap);
}

struct sl_comm_params sim_comm_params(const struct sim_rank *rank, uint64_t seed,
                                      const struct sl_config *config)
{
    static struct sl_transport_ops complete;
    static struct sl_comm_transport transport;

    transport.ops = sl_transport_complete(&sl_sim_ops, &complete);
    return (struct sl_comm_params){
        .config = config,
        .clock = sl_sim_clock(rank->sim),
        .seed = seed + rank->number,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(rank->sim, rank->number),
        .transports = &transport,
        .transport_count = 1,
    };
}
