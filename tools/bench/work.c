/* SPDX-License-Identifier: Apache-2.0 */
/* Computes between calls: passes over memory of its own. */
#include "work.h"

#include "core/err.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define MEASURED_BYTES ((size_t)8 << 20) /* a pass is timed by so many, at least one */
#define MEASURED_TIMES 3                 /* of which the shortest counts */

void sb_work_do(const struct sb_work *work)
{
    for (uint64_t pass = 0; pass < work->passes; pass++)
        for (size_t i = 0; i < work->count; i++)
            work->memory[i] = work->memory[i] * 0.999 + 0.001;
}

/* Of this thread alone: others may have the core in between. */
static double processor_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

int sb_work_init(struct sb_work *work, size_t bytes, double *pass_s)
{
    double least = HUGE_VAL;

    work->count = bytes / sizeof(double) > 0 ? bytes / sizeof(double) : 1;
    work->memory = calloc(work->count, sizeof(double));
    if (work->memory == NULL)
        return sl_fail(-ENOMEM, "no memory of %zu bytes to compute in; give a smaller --touch", bytes);
    work->passes = 1; /* touches the pages */
    sb_work_do(work);
    work->passes = 1 + MEASURED_BYTES / (work->count * sizeof(double));
    for (int i = 0; i < MEASURED_TIMES; i++) {
        double start = processor_s();

        sb_work_do(work);
        least = fmin(least, processor_s() - start);
    }
    *pass_s = least / (double)work->passes;
    return 0;
}

void sb_work_fini(struct sb_work *work)
{
    free(work->memory);
    work->memory = NULL;
}
