/* SPDX-License-Identifier: Apache-2.0 */
/* Time to build one rank's schedule, per algorithm, for a small and a large allreduce (or what it
 * knows). */
#include "schedules/schedule.h"

#include <stdio.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void time_build(const struct sl_algo *algo, const struct sl_shape *shape)
{
    double best = 1e18;
    uint32_t steps = 0;

    for (int i = 0; i < 200; i++) {
        struct sl_schedule s;
        double start = now_ns();
        int rc = algo->build(shape, &s);
        double took = now_ns() - start;
        steps = s.step_count;
        sl_schedule_fini(&s);
        if (rc != 0)
            return;
        if (took < best)
            best = took;
    }
    printf("%-14s %-14s %10llu elements %6u steps %9.2f us\n", algo->name,
           sl_coll_name(shape->coll), (unsigned long long)shape->count, steps, best / 1e3);
}

int main(void)
{
    for (size_t a = 0; sl_algos[a] != NULL; a++) {
        enum sl_coll coll = SL_ALLREDUCE;
        while ((sl_algos[a]->colls & 1u << coll) == 0)
            coll++;
        struct sl_shape shape = {
            .coll = coll, .rank = 1, .size = 4, .esize = 4, .win_count = 1 << 20};
        if (coll == SL_SEND || coll == SL_ALL_TO_ALL_V)
            continue;
        for (shape.count = 1024; shape.count <= 16 << 20; shape.count <<= 14)
            time_build(sl_algos[a], &shape);
    }
    return 0;
}
