/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a vector into shares that keep unequal links busy for the same time. */
#include "schedules/shares.h"

#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Ranks that still have a share, and what their links deliver together. */
struct sharers {
    uint64_t count, speed;
};

static struct sharers count_sharers(const uint64_t *speeds, uint32_t size)
{
    struct sharers sharers = {0, 0};

    for (uint32_t i = 0; i < size; i++) {
        sharers.count += speeds[i] != 0;
        sharers.speed += speeds[i];
    }
    return sharers;
}

/*
 * With a = 1 / own_parts, k sharers whose links deliver B together are all busy for
 * T = (n - 2 + k a) / B when w = (T b - a) / (n - 2) for each. Where that is no more than 0 the
 * rank is busy for longer than T with its own operands and results. Without such a rank T is lower,
 * so none that left would come back. Here all is multiplied by own_parts.
 */
static bool drop_busy(uint64_t *speeds, uint32_t size, uint64_t own_parts)
{
    struct sharers sharers = count_sharers(speeds, size);
    bool dropped = false;

    for (uint32_t i = 0; i < size; i++) {
        if (speeds[i] == 0 || (own_parts * (size - 2) + sharers.count) * speeds[i] > sharers.speed)
            continue;
        speeds[i] = 0;
        dropped = true;
    }
    return dropped;
}

static void share_equally(uint32_t size, uint64_t *ends)
{
    for (uint32_t i = 0; i < size; i++)
        ends[i] = SL_SHARES_ONE * (i + 1) / size;
}

void sl_shares_level(const uint16_t *speed, uint32_t size, uint32_t own_parts, uint64_t *ends)
{
    /* Of two ranks each sends and receives one vector, whatever the shares are. */
    if (speed == NULL || size == 2) {
        share_equally(size, ends);
        return;
    }
    for (uint32_t i = 0; i < size; i++)
        ends[i] = speed[i];
    while (drop_busy(ends, size, own_parts))
        ;
    struct sharers sharers = count_sharers(ends, size);
    uint64_t others = (uint64_t)own_parts * (size - 2), whole = others * sharers.speed, end = 0;

    sl_assert(whole != 0); /* the fastest rank always has a share */
    for (uint32_t i = 0; i < size; i++) {
        if (ends[i] != 0)
            end += (others + sharers.count) * ends[i] - sharers.speed;
        ends[i] = end * SL_SHARES_ONE / whole;
    }
}

struct sl_speeds sl_speeds_of(const uint16_t *speed, uint32_t size)
{
    struct sl_speeds speeds = {1, size};
    uint32_t slowest = SL_SPEED_MAX, fastest = 1, sum = 0;

    if (speed == NULL)
        return speeds;
    for (uint32_t i = 0; i < size; i++) {
        slowest = speed[i] < slowest ? speed[i] : slowest;
        fastest = speed[i] > fastest ? speed[i] : fastest;
        sum += speed[i];
    }
    speeds.slowest = (double)slowest / fastest;
    speeds.sum = (double)sum / fastest;
    return speeds;
}
