/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rules say of a job, put together with what is known of its nodes: how often which part
 * fails (priors.h), which nodes failed before, what agents told (evidence.h).
 *
 * An incident has one cause: a part of a node that one of the accused objects is on, or something
 * else. A rule that accuses k objects with probability p each gives them k p together, and the rest
 * to the other nodes. Within both, parts and nodes have their prior shares; each is multiplied by
 * the likelihood ratios of what was told of it; all are divided by their sum. docs/design/0051 has
 * the model, what is measured in it, and what is assumed.
 */
#ifndef SL_MONITOR_DIAGNOSIS_FUSE_H
#define SL_MONITOR_DIAGNOSIS_FUSE_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

struct sl_fuse_options {
    double false_isolations; /* of healthy nodes, a node and day, that are acceptable */
    double incidents;        /* a node's and day's; 0: by the tables of priors.h */
    double half_life_days;   /* of what a fault of a node's history counts */
    const char *scope;       /* of ids: the job's name; NULL: "" */
};

#define SL_FUSE_OPTIONS                                                                            \
    {                                                                                              \
        .false_isolations = 1e-4, .half_life_days = 30                                             \
    }

/* Node probability from which on isolating breaks no more than false_isolations healthy nodes a
 * node and day: with at most `incidents` verdicts a node and day, each right with at least that
 * probability, at most incidents x (1 - threshold) are wrong. Between 0.5 and 0.99999. */
double sl_fuse_threshold(const struct sl_fuse_options *options);

/* Of a sealed job. Each verdict gets its id, its causes and the new probability; the accused object
 * is the likeliest of the set then; what counted is said on it. Verdicts of healthy jobs and of the
 * program stay as they are but for the id. Once per list. -ENOMEM. */
int sl_fuse(const struct sl_job *job, const struct sl_fuse_options *options,
            struct sl_verdicts *verdicts);

#endif
