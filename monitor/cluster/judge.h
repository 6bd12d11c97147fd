/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with a cluster, by all that was observed of it: nodes that are silent, what agents
 * found wrong with their hosts, and what the diagnosis says of each job.
 *
 * A pure function of the model and of a time. A verdict's id is derived from what it accuses and
 * from the incident's own numbers (how many collectives the accused rank had begun; the number of
 * the agent's verdict), so that whoever observed the same gives the same id.
 */
#ifndef SL_MONITOR_CLUSTER_JUDGE_H
#define SL_MONITOR_CLUSTER_JUDGE_H

#include "monitor/cluster/model.h"

#define SL_CLUSTER_ID 17 /* 16 hexadecimal digits */

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
};

struct sl_cluster_verdicts {
    struct sl_cluster_verdict *list; /* by id, each once */
    unsigned count, cap;
};

struct sl_cluster_judge {
    uint64_t silent_before_ns; /* heard of before it: silent */
    int64_t now_ms;            /* of the wall clock */
    int64_t stall_ms;          /* an operation that takes longer is a hang */
};

/* -ENOMEM. */
int sl_cluster_judge(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                     struct sl_cluster_verdicts *out);
void sl_cluster_verdicts_free(struct sl_cluster_verdicts *verdicts);
void sl_cluster_verdict_fini(struct sl_cluster_verdict *verdict);

/* ---- for the files that judge ---- */

/* Adds one with that id; NULL without memory. */
struct sl_cluster_verdict *sl_cluster_verdict_add(struct sl_cluster_verdicts *verdicts,
                                                  uint64_t id);
__attribute__((format(printf, 2, 3))) int sl_cluster_say(struct sl_cluster_verdict *verdict,
                                                         const char *format, ...);
int sl_cluster_other(struct sl_cluster_verdict *verdict, const char *object);
/* Text of an id: with its end, so that "ab", "c" is not "a", "bc". */
uint64_t sl_cluster_hash_text(uint64_t hash, const char *text);

/* judge_job.c */
int sl_cluster_judge_jobs(struct sl_cluster_model *model, const struct sl_cluster_judge *options,
                          struct sl_cluster_verdicts *out);

#endif
