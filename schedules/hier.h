/* SPDX-License-Identifier: Apache-2.0 */
/* What the builders over several hosts share: who is where, and the cut of their windows. */
#ifndef SL_SCHEDULES_HIER_H
#define SL_SCHEDULES_HIER_H

#include "schedules/build.h"

/* Slots of a window area that all ranks write and read in turn; see the rounds in direct.c. */
#define HIER_SLOTS 3

struct sl_hier_map {
    uint32_t hosts, me;   /* me: this rank's host */
    uint32_t idx, local;  /* this rank's place among the ranks of its host, and how many they are */
    uint32_t most, least; /* ranks of the largest and of the smallest host */
    uint32_t *ranks;      /* owned: by host, ascending inside each */
    uint32_t *first;      /* [hosts + 1]: host h has ranks[first[h] .. first[h + 1]) */
};

/* 0; -ENOTSUP: one host, or none with two ranks; -ENOMEM. */
int sl_hier_map_init(struct sl_hier_map *map, const struct sl_shape *shape);
void sl_hier_map_fini(struct sl_hier_map *map);
/* The ranks of this host as the schedule's group, when there are two of them. */
int sl_hier_group(struct sl_schedule *s, const struct sl_shape *shape,
                  const struct sl_hier_map *map);

static inline uint32_t sl_hier_ranks_of(const struct sl_hier_map *map, uint32_t host)
{
    return map->first[host + 1] - map->first[host];
}

static inline uint32_t sl_hier_rank(const struct sl_hier_map *map, uint32_t host, uint32_t idx)
{
    return map->ranks[map->first[host] + idx];
}

/* Elements of one piece when `areas` of them, each in whole cache lines, must fit in a window at
 * once, behind *base: the wished piece, or less. 0: the window is too small. All ranks cut alike,
 * since pieces travel between hosts. */
uint64_t sl_hier_piece(const struct sl_shape *shape, uint64_t default_bytes, uint64_t areas,
                       uint64_t *base);

/* Elements from slot to slot of pieces of that many. */
static inline uint64_t sl_hier_stride(const struct sl_shape *shape, uint64_t piece)
{
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1;

    return sl_ceil_div(piece, line) * line;
}

/* hier_blocks.c: all_gather, reduce_scatter */
int sl_hier_blocks_build(const struct sl_shape *shape, struct sl_schedule *out);
double sl_hier_blocks_cost(const struct sl_shape *shape, const struct sl_costs *costs);

/* hier_lead.c: broadcast, reduce; down a chain of hosts, or (tree) a binomial tree */
int sl_hier_lead_build(const struct sl_shape *shape, bool tree, struct sl_schedule *out);
double sl_hier_lead_cost(const struct sl_shape *shape, bool tree, const struct sl_costs *costs);

#endif
