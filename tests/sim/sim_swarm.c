/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real collectives on simulated networks, one run per seed: shapes, settings and faults are drawn,
 * and every rank's results and errors are judged. Arguments: seeds.h, and before them
 *     --ranks N   so many in every run, in place of those that the seed draws
 */
#include "tests/sim/seeds.h"
#include "tests/sim/swarm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t ranks;

static void tell_ranks(const struct swarm *s)
{
    struct sl_sim_stats stats = sl_sim_stats(s->sim);

    for (uint32_t i = 0; i < s->ranks; i++) {
        const struct swarm_rank *r = &s->rank[i];

        if (r->made != 0)
            printf("# rank %u: communicators: %s\n", i, r->text[SWARM_CALLS]);
        for (unsigned c = 0; c < s->call_count && r->made == 0; c++)
            printf("# rank %u call %u: %d %s\n", i, c, r->result[c], r->text[c]);
    }
    printf("# %.3f ms of virtual time, %" PRIu64 " messages, %" PRIu64 " bytes, %" PRIu64
           " events, %" PRIu64 " turns\n",
           (double)sl_sim_now(s->sim) / 1e6, stats.messages, stats.bytes, stats.events,
           stats.resumes);
}

static bool run_seed(uint64_t seed, bool tell, bool trace, char *why, size_t cap)
{
    struct swarm s;

    swarm_draw(&s, seed, ranks);
    s.params.trace = trace ? stdout : NULL;
    if (tell)
        swarm_print(&s, stdout);
    fflush(stdout);
    bool good = swarm_run(&s, why, cap);

    if (tell)
        tell_ranks(&s);
    swarm_clean_up(&s);
    return good;
}

int main(int argc, char **argv)
{
    static char self[512];
    static const struct seeds seeds = {"sim_swarm", run_seed, NULL};

    if (argc > 2 && strcmp(argv[1], "--ranks") == 0) {
        ranks = (uint32_t)strtoul(argv[2], NULL, 0);
        if (ranks < 2 || ranks > SWARM_RANKS_MAX)
            return 2;
        snprintf(self, sizeof(self), "%s --ranks %u", argv[0], ranks);
        argv[2] = self; /* for the line that says how to replay */
        argv += 2;
        argc -= 2;
    }
    return seeds_main(&seeds, argc, argv);
}
