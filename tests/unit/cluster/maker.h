/* SPDX-License-Identifier: Apache-2.0 */
/* A small cluster, made up: a job of eight ranks, each on a node of its own. */
#ifndef SL_TEST_CLUSTER_MAKER_H
#define SL_TEST_CLUSTER_MAKER_H

#include "monitor/cluster/judge.h"

#define SECOND UINT64_C(1000000000)
#define RANKS 8
#define T0 1764142595000 /* ms */

/* By which it is judged: nodes that were heard of at 100 s are not silent. */
extern const struct sl_cluster_judge maker_judge;
extern unsigned maker_peer; /* that ranks wait for */

struct sl_cluster_model *maker_new(void);
/* An observation, heard at 100 s. */
void maker_take(struct sl_cluster_model *model, const char *text);
/* A rank of the job. wait_s 0: it is at nothing. */
void maker_rank(struct sl_cluster_model *model, unsigned number, unsigned seq, unsigned begun,
                double wait_s);
void maker_status(struct sl_cluster_model *model, const char *node, const char *verdicts);
/* Rank 5 has not called what the others wait in. */
void maker_hang(struct sl_cluster_model *model, unsigned seq);
struct sl_cluster_verdicts maker_verdicts(struct sl_cluster_model *model,
                                          const struct sl_cluster_judge *options);

#endif
