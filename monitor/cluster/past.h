/* SPDX-License-Identifier: Apache-2.0 */
/* The history of nodes, from a file that somebody else writes: who failed before is likelier. */
#ifndef SL_MONITOR_CLUSTER_PAST_H
#define SL_MONITOR_CLUSTER_PAST_H

#include "monitor/diagnosis/job.h"

#include <time.h>

struct sl_cluster_past {
    char *bytes; /* the file as it is; NULL: there is none */
    size_t len;
    struct sl_job *job; /* with its faults alone */
    struct timespec at; /* when the file was written */
};

/* Reads the file where it has changed; "": there is none. 1: it did. 0: it did not. What was read
 * before stays where it cannot be read: -ENOENT, -EBADMSG, -EFBIG, -ENOMEM. */
int sl_cluster_past_read(struct sl_cluster_past *past, const char *path);
void sl_cluster_past_fini(struct sl_cluster_past *past);
/* Its faults into a job. past may be NULL. -ENOMEM. */
int sl_cluster_past_add(const struct sl_cluster_past *past, struct sl_job *job);

#endif
