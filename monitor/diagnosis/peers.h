/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks beside those that do the same: a table of times (ranks by steps), and who stands out.
 *
 * What is taken off before anybody is compared:
 *   - the step: the median of the role's members (steps differ);
 *   - the population: where members fall into groups that are apart from the first step to the
 *     last, each with two members at least and a tenth of the role, each group is compared with
 *     itself (two kinds of hardware), unless all of the slower one are one host's and the others
 *     are not;
 *   - the replica: what all stages of one pipeline have in common in a step (longer sequences);
 *     before the population, where ranks are as slow as their replicas.
 * What remains of a rank is tested twice (change.h): against its peers, beyond 10 % and beyond four
 * spreads between healthy members; and against its own first half, beyond 5 %. Steps that depend on
 * the ones before (moving averages, queues) are made independent by the part that they inherit.
 * Roles of fewer than three members have the second test alone, after what all ranks of the job
 * have in common was taken off, and are slow only where half of the steps since are.
 */
#ifndef SL_MONITOR_DIAGNOSIS_PEERS_H
#define SL_MONITOR_DIAGNOSIS_PEERS_H

#include "monitor/diagnosis/job.h"

struct sl_peers_table {
    uint32_t rank_count, step_count;
    double *values;        /* seconds of rank r in the i-th step: [r * step_count + i]; NAN: none */
    const uint64_t *roles; /* by rank; equal: peers */
    const uint32_t *replicas;        /* by rank, SL_JOB_NONE: not known; NULL: of none */
    const struct sl_job_rank *ranks; /* for their hosts */
};

struct sl_suspect {
    uint32_t rank;
    uint32_t onset, alarm; /* steps: indices */
    uint32_t peer_count;   /* of its population, without it */
    double ratio;          /* its time to that of its peers (or its own before), from onset on */
    double spread;         /* between the others: what 1 + spread is the most */
    double weight;         /* log of the evidence, where it was most */
    bool is_own;           /* compared with its own history alone */
};

struct sl_suspects {
    struct sl_suspect *list;
    uint32_t count;
};

/* values become what is left of them. 0 or -ENOMEM. */
int sl_peers_judge(struct sl_peers_table *table, double threshold, double margin,
                   struct sl_suspects *found);

/* Moves values; 0 where there are none. NAN are left out. */
double sl_median(double *list, size_t count);

#endif
