/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known before anything was seen: how often which part of a node fails, by published
 * tables, and which nodes have failed before.
 */
#ifndef SL_MONITOR_DIAGNOSIS_PRIORS_H
#define SL_MONITOR_DIAGNOSIS_PRIORS_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

/* Faults a node and day (a node: 8 GPUs): of that part, and of all, those without a class as well.
 * The tables are in priors.c. */
double sl_prior_rate(enum sl_fault fault);
double sl_prior_incidents(void);

/* The history of nodes: job->faults. */
struct sl_lemons {
    struct sl_lemon {
        uint32_t host;
        double faults; /* older ones count less */
        uint32_t count;
    } * list; /* by host */
    size_t count;
    double expected; /* of a node that fails as often as others, weighed in the same way */
};

/* half_life_days: of a fault's weight. Equal faults (host, time, class) count once. The order in
 * which they were added does not matter. -ENOMEM. */
int sl_lemons_make(const struct sl_job *job, double half_life_days, struct sl_lemons *out);
void sl_lemons_free(struct sl_lemons *lemons);
/* How often the host fails against others: 1 where no history is known. out may be NULL: how many
 * faults it had. */
double sl_lemon_factor(const struct sl_lemons *lemons, uint32_t host, uint32_t *count);

#define SL_LEMON_HALF_LIFE_DAYS 30

#endif
