/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose ranks are on a cluster's nodes, by their names, and each as the diagnosis takes
 * it (monitor/diagnosis/job.h). What is claimed of a job's size takes no memory: what is there of
 * it does.
 */
#ifndef SL_MONITOR_CLUSTER_JOBS_H
#define SL_MONITOR_CLUSTER_JOBS_H

#include "monitor/cluster/model.h"
#include "monitor/diagnosis/job.h"

struct sl_cluster_rank {
    const struct sl_cluster_node *node;
    const struct sl_fact_rank *fact;
    int64_t time_ms; /* of the observation */
    bool is_silent;  /* the node is: the fact is old */
};

struct sl_cluster_job {
    char name[64];
    uint32_t size;                 /* as its ranks say */
    struct sl_cluster_rank *ranks; /* by rank, each once; borrowed from all */
    unsigned rank_count;           /* that are known */
};

struct sl_cluster_jobs {
    struct sl_cluster_job *list; /* by name */
    unsigned count;
    struct sl_cluster_rank *all;
};

/* Borrows from the model until it changes. silent_ns: a node that was heard of before it is
 * silent. -ENOMEM. */
int sl_cluster_jobs_find(struct sl_cluster_model *model, uint64_t silent_before_ns,
                         struct sl_cluster_jobs *out);
void sl_cluster_jobs_free(struct sl_cluster_jobs *jobs);
const struct sl_cluster_job *sl_cluster_job_named(const struct sl_cluster_jobs *jobs,
                                                  const char *name);

/* Is nothing new heard of the node? */
bool sl_cluster_is_silent(const struct sl_cluster_node *node, uint64_t silent_before_ns);

/* Sealed; the caller's: sl_job_free(). -ENOMEM. */
int sl_cluster_job_build(const struct sl_cluster_job *cluster_job, struct sl_job **out);

#endif
