/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs whose ranks are on the nodes of a model. */
#ifndef SL_MONITOR_CLUSTER_JOBS_H
#define SL_MONITOR_CLUSTER_JOBS_H

#include "monitor/cluster/model.h"
#include "monitor/read/facts_job.h"

/* Borrows from the model until it changes. A node that was heard of before silent_before_ns is
 * silent. -ENOMEM. */
int sl_cluster_jobs_find(struct sl_cluster_model *model, uint64_t silent_before_ns,
                         struct sl_facts_jobs *out);

/* The node as it was seen: nothing was heard of it since silent_before_ns, or something was. */
struct sl_facts_seen sl_cluster_seen(const struct sl_cluster_node *node, uint64_t silent_before_ns);
/* Is nothing new heard of the node? */
bool sl_cluster_is_silent(const struct sl_cluster_node *node, uint64_t silent_before_ns);

#endif
