/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a cluster, by all that was observed of it: nodes that are silent, what agents
 * found wrong with their hosts, and what the diagnosis says of each job.
 *
 * A pure function of the model and of a time. A verdict is one of the diagnosis, with its id, its
 * causes and its word on isolating a node (monitor/diagnosis/fuse.h): whoever observed the same
 * says the same, and what was observed is kept as a case (cases.h) by which it is judged again.
 */
#ifndef SL_MONITOR_CLUSTER_JUDGE_H
#define SL_MONITOR_CLUSTER_JUDGE_H

#include "monitor/cases/case.h"
#include "monitor/cluster/model.h"
#include "monitor/cluster/past.h"

#define SL_CLUSTER_ID SL_VERDICT_ID /* bytes: 16 hexadecimal digits, and the end */

struct sl_cluster_cause {
    uint8_t fault; /* enum sl_fault */
    double probability;
    char object[192];
};

struct sl_cluster_verdict {
    char id[SL_CLUSTER_ID];
    char cls[32];     /* "node_silent", a class of the agent's, or of the diagnosis */
    char object[192]; /* "rank 9 (host node3)", "port mlx5_0:1" */
    char node[SL_OBSERVE_NODE], job[64];
    bool is_fatal;
    double probability;
    int64_t since_ms; /* 0: not known */
    char **evidence;  /* sentences, the weightiest first */
    char **others;    /* objects that it could be as well */
    unsigned evidence_count, other_count;
    struct sl_cluster_cause causes[SL_CAUSES_MAX]; /* the likeliest first */
    unsigned cause_count;
    double elsewhere;        /* probability that it is none of these */
    double node_probability; /* that the hardware of its node is at fault */
    double threshold; /* from which on isolating it is worth its risk; 0: no node is at fault */
    bool act;         /* it reaches that */
};

struct sl_cluster_verdicts {
    struct sl_cluster_verdict *list; /* by id, each once */
    unsigned count, cap;
};

struct sl_cluster_judge {
    uint64_t silent_before_ns; /* heard of before it: silent */
    int64_t now_ms;            /* of the wall clock */
    int64_t stall_ms;          /* an operation that takes longer is a hang */
    double false_isolations;   /* of healthy nodes, a node and day, that are acceptable */
    const struct sl_cluster_past *history; /* of nodes; NULL: none is known */
};

/* -ENOMEM. */
int sl_cluster_judge(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                     struct sl_cluster_verdicts *out);
void sl_cluster_verdicts_free(struct sl_cluster_verdicts *verdicts);
void sl_cluster_verdict_fini(struct sl_cluster_verdict *verdict);

/* ---- for the files that judge ---- */

/* Adds one with that id; NULL without memory. */
struct sl_cluster_verdict *sl_cluster_verdict_add(struct sl_cluster_verdicts *verdicts,
                                                  const char *id);
/* One of the diagnosis; NULL without memory. */
struct sl_cluster_verdict *sl_cluster_take_verdict(struct sl_cluster_verdicts *verdicts,
                                                   const struct sl_job *job,
                                                   const struct sl_verdict *verdict);
/* By which a job ("": what is of no job) is judged, and judged again. */
struct sl_case_options sl_cluster_case_options(const struct sl_cluster_judge *judge,
                                               const char *job);

/* judge_job.c */
int sl_cluster_judge_jobs(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                          struct sl_cluster_verdicts *out);

#endif
