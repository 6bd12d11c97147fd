/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the comparison of peers share. */
#ifndef SL_MONITOR_DIAGNOSIS_PEERS_INSIDE_H
#define SL_MONITOR_DIAGNOSIS_PEERS_INSIDE_H

#include "monitor/diagnosis/peers.h"

#include <string.h>

#define SL_PEERS_MIN 3    /* members of a role that are compared */
#define SL_PEERS_STEPS 20 /* that a rank needs, to be compared with itself */

struct sl_peers {
    struct sl_peers_table *table;
    double threshold, margin;
    struct sl_suspects *found;
    uint32_t *order;  /* ranks that have values, role after role */
    uint32_t *groups; /* by rank: its population */
    double *middles;  /* by rank: the median of its steps */
    double *scratch;  /* room for the steps of a rank, all ranks, and the steps once more */
    uint32_t count;
};

/* A role: members order[first] to order[first + count]. */
struct sl_peers_role {
    const uint32_t *members;
    uint32_t count;
    double between;         /* the spread of healthy members' medians */
    double memory;          /* what a step inherits from the one before, 0 to 0.95 */
    double within;          /* the spread of steps of one member, without that */
    uint64_t steps, pauses; /* of all members but unsteady ones, and how many of them are long */
};

static inline double *sl_peers_row(const struct sl_peers *peers, uint32_t rank)
{
    return peers->table->values + (size_t)rank * peers->table->step_count;
}

/* Of a rank's steps from..to. Uses scratch. */
static inline double sl_peers_median(const struct sl_peers *peers, uint32_t rank, uint32_t from,
                                     uint32_t to)
{
    memcpy(peers->scratch, sl_peers_row(peers, rank) + from, (to - from) * sizeof(double));
    return sl_median(peers->scratch, to - from);
}

/* peers.c: the end of the role (or of the population in it) that begins at order[first]. */
uint32_t sl_peers_end(const struct sl_peers *peers, uint32_t first, bool with_groups);
/* By role, and in it by population. */
void sl_peers_sort(struct sl_peers *peers);

/* peers_off.c: takes off what members have in common. Roles lie together after it, and in each its
 * populations. is_small: by rank, whether it has too few peers. -ENOMEM. */
int sl_peers_take_off(struct sl_peers *peers, bool *is_small);

/* peers_spread.c: how far healthy members and their steps are from each other. */
void sl_peers_measure(const struct sl_peers *peers, struct sl_peers_role *role);
/* The spread of what a member's step adds to what it inherits. */
double sl_peers_spread(const struct sl_peers *peers, uint32_t rank, double memory);
/* The share of long steps among those of the other members. */
double sl_peers_pauses(const struct sl_peers *peers, const struct sl_peers_role *role,
                       uint32_t rank);

#endif
