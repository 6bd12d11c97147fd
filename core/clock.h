/* SPDX-License-Identifier: Apache-2.0 */
/* Time, handed in: real programs pass sl_clock_monotonic, the simulator passes its counter. */
#ifndef SL_CORE_CLOCK_H
#define SL_CORE_CLOCK_H

#include <stdint.h>

struct sl_clock {
    uint64_t (*now_ns)(const struct sl_clock *clock); /* never goes back */
};

extern const struct sl_clock sl_clock_monotonic;

static inline uint64_t sl_now(const struct sl_clock *clock)
{
    return clock->now_ns(clock);
}

/* Of the calendar: seconds since 1970. For dates in files; it may jump. */
uint64_t sl_wall_s(void);

/* For a random generator: another number in each process and at each time. Nothing secret. */
uint64_t sl_seed(void);

#define SL_NS_PER_MS UINT64_C(1000000)
#define SL_NS_PER_S UINT64_C(1000000000)
#define SL_NEVER UINT64_MAX

#endif
