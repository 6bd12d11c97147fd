/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport over the fake libibverbs, one run per seed: rails, sizes, messages and faults are
 * drawn, and what every request, control message and pool came to is judged.
 *
 * usage: sim_verbs [--from N] [--count N]   runs so many seeds (TAP on stdout)
 *        sim_verbs --seed N [--trace]       runs one, and tells what it did
 */
#include "core/log.h"
#include "tests/sim/verbs_swarm.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct vs_run run; /* too large for a stack */

static void trace_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)level, (void)area;
    fprintf(arg, "%12.3f ms  %s\n", run.loop != NULL ? (double)loop_now(run.loop) / 1e6 : 0.0, line);
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static int run_many(uint64_t from, uint64_t count, const char *self)
{
    uint64_t failed = 0;

    for (uint64_t seed = from; seed < from + count && failed < 20; seed++) {
        vs_draw(&run, seed);
        if (vs_run_it(&run))
            continue;
        failed++;
        printf("not ok - sim_verbs seed %" PRIu64 "\n# %s\n# replay: %s --seed %" PRIu64 " --trace\n",
               seed, run.wrong, self, seed);
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
    vs_draw(&run, seed);
    vs_print(&run);
    bool good = vs_run_it(&run);

    printf("# %" PRIu64 " rounds, %" PRIu64 " steps of the wire\nseed %" PRIu64 " %s%s\n", run.rounds,
           run.steps, seed, good ? "ends as it must" : "does not: ", run.wrong);
    return !good;
}
