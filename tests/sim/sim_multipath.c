/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multi-path protocol alone, packet by packet, one run per seed: rails, sizes, messages and
 * faults are drawn, and what every request, control message and pool came to is judged. No device
 * and no model of one: the lanes (mp_lanes.h) do whatever multipath/lane.h lets them. Arguments:
 * seeds.h.
 */
#include "tests/sim/mp_swarm.h"
#include "tests/sim/seeds.h"

#include <inttypes.h>
#include <stdio.h>

static struct ms_run run; /* too large for a stack */

static uint64_t now_ns(void)
{
    return run.loop != NULL ? loop_now(run.loop) : 0;
}

static bool run_seed(uint64_t seed, bool tell, bool trace, char *why, size_t cap)
{
    (void)trace; /* all is in the log */
    ms_draw(&run, seed);
    if (tell)
        ms_print(&run);
    bool good = ms_run_it(&run);

    if (tell)
        printf("# %" PRIu64 " rounds, %" PRIu64 " steps of the wire\n", run.rounds, run.steps);
    snprintf(why, cap, "%s", run.traffic.wrong);
    return good;
}

int main(int argc, char **argv)
{
    static const struct seeds seeds = {"sim_multipath", run_seed, now_ns};

    return seeds_main(&seeds, argc, argv);
}
