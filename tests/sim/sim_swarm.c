/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real collectives on simulated networks, one run per seed: shapes, settings and faults are drawn, and
 * every rank's results and errors are judged.
 *
 * usage: sim_swarm [--from N] [--count N]   runs so many seeds (TAP on stdout)
 *        sim_swarm --seed N [--trace]       runs one, and tells what it did
 */
#include "core/err.h"
#include "core/log.h"
#include "tests/sim/swarm.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static bool run_seed(uint64_t seed, FILE *trace, bool tell, char *why, size_t cap)
{
    struct swarm s;

    swarm_draw(&s, seed);
    s.params.trace = trace;
    if (tell)
        swarm_print(&s, stdout);
    fflush(stdout);
    bool good = swarm_run(&s, why, cap);

    if (tell)
        tell_ranks(&s);
    swarm_clean_up(&s);
    return good;
}

static void trace_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)level, (void)area;
    fprintf(arg, "              %s\n", line);
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static int run_many(uint64_t from, uint64_t count, const char *self)
{
    uint64_t failed = 0;
    char why[512];

    for (uint64_t seed = from; seed < from + count; seed++) {
        if (run_seed(seed, NULL, false, why, sizeof(why)))
            continue;
        failed++;
        printf("not ok - sim_swarm seed %" PRIu64 "\n# %s\n# replay: %s --seed %" PRIu64
               " --trace\n",
               seed, why, self, seed);
        if (failed >= 20)
            break;
    }
    if (failed == 0)
        printf("ok 1 - %" PRIu64 " seeds from %" PRIu64 " end as they must\n", count, from);
    printf("1..%" PRIu64 "\n", failed > 0 ? failed : 1);
    return failed > 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"trace", no_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    uint64_t from = 1, count = 1000, seed = 0;
    bool one = false, trace = false;
    char why[512];
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': one = true, seed = strtoull(optarg, NULL, 0); break;
        case 'f': from = strtoull(optarg, NULL, 0); break;
        case 'c': count = strtoull(optarg, NULL, 0); break;
        case 't': trace = true; break;
        default: return 2;
        }
    }
    if (trace)
        sl_log_configure("debug");
    sl_log_set_sink(trace ? trace_log : no_log, stdout);
    if (!one)
        return run_many(from, count, argv[0]);
    if (run_seed(seed, trace ? stdout : NULL, true, why, sizeof(why))) {
        printf("seed %" PRIu64 " ends as it must\n", seed);
        return 0;
    }
    printf("seed %" PRIu64 ": %s\n", seed, why);
    return 1;
}
