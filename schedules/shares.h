/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a vector each rank sums, by what its links deliver: docs/design/0031. */
#ifndef SL_SCHEDULES_SHARES_H
#define SL_SCHEDULES_SHARES_H

#include <stdint.h>

#define SL_SHARES_ONE (UINT64_C(1) << 20) /* the whole vector */
#define SL_SHARES_RANKS_MAX 1024          /* keeps the products below within 64 bits */
#define SL_SPEED_MAX 1000                 /* of a rank's links, in parts of the fastest's */

/*
 * Rank i of size (2 .. SL_SHARES_RANKS_MAX), whose links deliver speed[i] (1 .. SL_SPEED_MAX; NULL:
 * all alike), sums the vector from ends[i - 1] (0 for rank 0) to ends[i], in parts of
 * SL_SHARES_ONE. A rank with share w sends and receives w (size - 2) vectors for the others and, of
 * its own, 1 / own_parts (allreduce: 1; where each rank owns a block: size). The shares are such
 * that all links are busy for the same time; a rank whose links are busy for longer without any
 * share has none. Integers only, so that all ranks and processors cut alike.
 */
void sl_shares_level(const uint16_t *speed, uint32_t size, uint32_t own_parts, uint64_t *ends);

/* Elements of count before that end. */
static inline uint64_t sl_shares_cut(uint64_t count, uint64_t end)
{
    return count / SL_SHARES_ONE * end + count % SL_SHARES_ONE * end / SL_SHARES_ONE;
}

/* What the slowest and all together deliver, in parts of what the fastest does. */
struct sl_speeds {
    double slowest, sum;
};

struct sl_speeds sl_speeds_of(const uint16_t *speed, uint32_t size);

#endif
