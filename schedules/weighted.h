/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a vector, or of blocks, that ranks with unequal links work on: weighted.c. */
#ifndef SL_SCHEDULES_WEIGHTED_H
#define SL_SCHEDULES_WEIGHTED_H

#include "schedules/build.h"

#define SL_PARTS_LAG_MAX 8

struct sl_part {
    uint32_t by, owner; /* works on it; owns the block (allreduce: the same) */
    uint64_t at, len;   /* of the vector, or of the owner's block */
    uint64_t piece;     /* per round */
};

struct sl_parts {
    struct sl_part *parts; /* owned: by `by`, then by owner */
    uint32_t *first;       /* owned: rank r works on [first[r], first[r + 1]) */
    uint32_t rounds;
    uint32_t lag; /* rounds from a piece's first hop to its second, 1 to SL_PARTS_LAG_MAX */
};

/* All ranks cut alike. 0 or -ENOMEM. */
int sl_parts_cut(struct sl_parts *parts, const struct sl_shape *shape);
void sl_parts_fini(struct sl_parts *parts);

static inline bool sl_parts_has(const struct sl_parts *parts, uint32_t rank)
{
    return parts->first[rank] != parts->first[rank + 1];
}

static inline uint64_t sl_piece_len(const struct sl_part *part, uint32_t round)
{
    return sl_part_len(part->len, part->piece, round);
}

#endif
