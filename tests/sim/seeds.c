/* SPDX-License-Identifier: Apache-2.0 */
/* Runs seeds of a swarm, as its arguments say. */
#include "tests/sim/seeds.h"

#include "core/log.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FAILURES_MAX 20

static void trace_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    const struct seeds *seeds = arg;

    (void)level, (void)area;
    if (seeds->now_ns != NULL)
        printf("%12.3f ms  %s\n", (double)seeds->now_ns() / 1e6, line);
    else
        printf("              %s\n", line);
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

void seeds_quiet(void)
{
    sl_log_set_sink(no_log, NULL);
}

static int run_many(const struct seeds *seeds, uint64_t from, uint64_t count, const char *self)
{
    uint64_t failed = 0;
    char why[512];

    for (uint64_t seed = from; seed < from + count && failed < FAILURES_MAX; seed++) {
        if (seeds->run(seed, false, false, why, sizeof(why)))
            continue;
        failed++;
        printf("not ok - %s seed %" PRIu64 "\n# %s\n# replay: %s --seed %" PRIu64 " --trace\n",
               seeds->name, seed, why, self, seed);
    }
    if (failed == 0)
        printf("ok 1 - %" PRIu64 " seeds from %" PRIu64 " end as they must\n", count, from);
    printf("1..%" PRIu64 "\n", failed > 0 ? failed : 1);
    return failed > 0;
}

static int run_one(const struct seeds *seeds, uint64_t seed, bool trace)
{
    char why[512];
    bool good;

    if (trace) {
        sl_log_configure("debug");
        sl_log_set_sink(trace_log, (void *)(uintptr_t)seeds);
    }
    good = seeds->run(seed, true, trace, why, sizeof(why));
    printf("seed %" PRIu64 "%s%s\n", seed, good ? " ends as it must" : ": ", good ? "" : why);
    return !good;
}

int seeds_main(const struct seeds *seeds, int argc, char **argv)
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
    seeds_quiet();
    return one ? run_one(seeds, seed, trace) : run_many(seeds, from, count, argv[0]);
}
