/* SPDX-License-Identifier: Apache-2.0 */
/* Members of communicators whose ranks only know themselves: put together when a job is sealed. */
#ifndef SL_MONITOR_DIAGNOSIS_JOB_MEMBERS_H
#define SL_MONITOR_DIAGNOSIS_JOB_MEMBERS_H

#include "monitor/diagnosis/job.h"

struct sl_job_member {
    uint32_t comm, place, size, rank;
};

struct sl_job_members {
    struct sl_job_member *list;
    size_t count, cap;
    uint32_t rank_count; /* of the job, before ranks were made for places that nobody told */
    uint32_t largest;    /* the size of the largest communicator */
};

/* -EBADMSG: it is no place, or the size or the rank of that place is another one elsewhere. */
int sl_job_members_add(struct sl_job_members *members, const struct sl_job *job, uint32_t comm,
                       uint32_t place, uint32_t size, uint32_t rank);
/* Sets members, and the ranks of operations and edges that were named by their places. -ENOMEM;
 * -EBADMSG: ranks do not agree on the members. */
int sl_job_members_seal(struct sl_job_members *members, struct sl_job *job);
void sl_job_members_fini(struct sl_job_members *members);

#endif
