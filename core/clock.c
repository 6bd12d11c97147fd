/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that reads the machine's clock. */
#include "core/clock.h"

#include <time.h>
#include <unistd.h>

static uint64_t monotonic_now(const struct sl_clock *clock)
{
    struct timespec ts;

    (void)clock;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SL_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t sl_wall_s(void)
{
    return (uint64_t)time(NULL);
}

const struct sl_clock sl_clock_monotonic = {.now_ns = monotonic_now};

uint64_t sl_seed(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_nsec << 32 ^ (uint64_t)ts.tv_sec ^ (uint64_t)getpid();
}
