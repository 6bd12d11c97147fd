/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes by themselves: those that are silent, and what their agents found. */
#ifndef SL_MONITOR_DIAGNOSIS_NODES_H
#define SL_MONITOR_DIAGNOSIS_NODES_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

/* Where nodes are watched and no ranks are known: the verdicts are of no job then. With ranks, what
 * agents told is evidence for the job's own verdicts (fuse.h). -ENOMEM. */
int sl_nodes_find(const struct sl_job *job, struct sl_verdicts *verdicts);

#endif
