/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was observed of a job, or of all nodes, as lines that the diagnosis reads
 * (monitor/read/observations.c): bodies as their nodes wrote them, less the ranks of other jobs.
 */
#ifndef SL_MONITOR_CLUSTER_CASE_LINES_H
#define SL_MONITOR_CLUSTER_CASE_LINES_H

#include "monitor/cluster/model.h"

#include <stdio.h>

/* job "": the nodes by themselves. By node, so that the same model has the same lines. -ENOENT:
 * there is no such job. -ENOMEM, -EIO. */
int sl_cluster_case_lines(struct sl_cluster_model *model, uint64_t silent_before_ns,
                          const char *job, FILE *out);

#endif
