/* SPDX-License-Identifier: Apache-2.0 */
/* Computes between calls: passes over memory of its own. */
#include "work.h"

#include "core/err.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define MEASURED_BYTES ((size_t)1 << 20) /* a pass is timed by so many, at least one */
#define MEASURED_TIMES 40 /* of which the shortest counts: the core may be shared for a while */

/* Of this thread alone: others may have the core in between. */
static double processor_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void sb_work_do(struct sb_work *work)
{
    double start_s = work->passes > 0 ? processor_s() : 0, took_s;

    for (uint64_t pass = 0; pass < work->passes; pass++)
        for (size_t i = 0; i < work->count; i++)
            work->memory[i] = work->memory[i] * 0.999 + 0.001;
    if (work->passes == 0)
        return;
    took_s = processor_s() - start_s;
    work->least_s = fmin(work->least_s, took_s);
    work->most_s = fmax(work->most_s, took_s);
}

void sb_work_size(struct sb_work *work, double pass_s, double seconds)
{
    work->passes = (uint64_t)fmax(seconds / pass_s + 0.5, 1);
    work->pass_s = pass_s;
    work->least_s = HUGE_VAL;
    work->most_s = 0;
}

int sb_work_init(struct sb_work *work, size_t bytes)
{
    work->count = bytes / sizeof(double) > 0 ? bytes / sizeof(double) : 1;
    work->memory = calloc(work->count, sizeof(double));
    if (work->memory == NULL)
        return sl_fail(-ENOMEM, "no memory of %zu bytes to compute in; give a smaller --touch",
                       bytes);
    work->passes = 1; /* touches the pages */
    sb_work_do(work);
    work->passes = 1 + MEASURED_BYTES / (work->count * sizeof(double));
    work->least_s = HUGE_VAL;
    for (int i = 0; i < MEASURED_TIMES; i++)
        sb_work_do(work);
    work->pass_s = work->least_s / (double)work->passes;
    return 0;
}

void sb_work_fini(struct sb_work *work)
{
    free(work->memory);
    work->memory = NULL;
}
