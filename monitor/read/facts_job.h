/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs whose ranks are on the nodes of a cluster, by their names, and each as the diagnosis
 * takes it (monitor/diagnosis/job.h). A cluster's instance and the reader of observations both make
 * jobs by it, so that what an instance judged can be judged again.
 *
 * What is claimed of a job's size takes no memory: what is there of it does.
 */
#ifndef SL_MONITOR_READ_FACTS_JOB_H
#define SL_MONITOR_READ_FACTS_JOB_H

#include "monitor/diagnosis/job.h"
#include "monitor/read/facts.h"

struct sl_facts_seen {
    const struct sl_facts *facts;
    bool is_silent; /* nothing is heard of the node: the facts are old */
    bool is_dead;   /* and its connection broke, or its agent said that it ends */
    int64_t last_ms;
    const char *why; /* nothing is heard of it; "" or a sentence */
};

struct sl_facts_rank {
    const struct sl_facts *node;
    const struct sl_fact_rank *fact;
    bool is_silent; /* the node is */
};

struct sl_facts_job {
    char name[64];
    uint32_t size;               /* as its ranks say */
    struct sl_facts_rank *ranks; /* by rank, each once; borrowed from all */
    unsigned rank_count;         /* that are known */
};

struct sl_facts_jobs {
    struct sl_facts_job *list; /* by name */
    unsigned count;
    struct sl_facts_rank *all;
};

/* Borrows the facts. Of two that say that they are one rank the one on a living node is believed,
 * then the one that says the newest. -ENOMEM. */
int sl_facts_jobs_find(const struct sl_facts_seen *nodes, unsigned node_count,
                       struct sl_facts_jobs *out);
void sl_facts_jobs_free(struct sl_facts_jobs *jobs);
const struct sl_facts_job *sl_facts_job_named(const struct sl_facts_jobs *jobs, const char *name);

/* Adds it to a job, which is not sealed by that. -ENOMEM. */
int sl_facts_job_add(const struct sl_facts_job *from, struct sl_job *job);
/* A node, what its agent found wrong with its host, and that it was heard, which speaks for the
 * host. sl_facts_job_add() does the last two for nodes that have ranks. -ENOMEM. */
int sl_facts_add_node(const struct sl_facts_seen *node, struct sl_job *job);
/* A rank of the communicator with that id, among those of the job that was made of them;
 * SL_JOB_NONE: it is not known. */
uint32_t sl_facts_rank_of(struct sl_job *job, uint64_t id, int32_t peer);
/* Sealed; the caller's: sl_job_free(). -ENOMEM. */
int sl_facts_job_build(const struct sl_facts_job *from, struct sl_job **out);

#endif
