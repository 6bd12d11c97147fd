/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources that know processes by other names than the rest: they are read like all others and taken
 * when all else is there, so that a process that several sources tell of is one rank, whatever the
 * order of the files. And notes for people, on what could not be put together.
 */
#ifndef SL_MONITOR_DIAGNOSIS_JOB_LATE_H
#define SL_MONITOR_DIAGNOSIS_JOB_LATE_H

#include "monitor/diagnosis/job.h"

/* As a function that adds to a job. */
typedef int sl_job_late_take(struct sl_job *job, void *arg);
typedef void sl_job_late_end(void *arg);

/* sl_job_seal() calls take(), once, and then end(); a job that is freed before calls end() alone.
 * arg is the job's from here on, also on failure. -ENOMEM. Where take() fails so does
 * sl_job_seal(), with -EBADMSG where what waited makes no sense; called again, it goes on without
 * all that waited. */
int sl_job_later(struct sl_job *job, sl_job_late_take *take, sl_job_late_end *end, void *arg);

/* The rank of a process that says of itself which it is: `wanted`, unless it has one already.
 * identity: a text, alike in all that this process says and in nothing that another one says; 0:
 * none is told. Files of one process are so of one rank, also where each counts ranks in its own
 * way. -ENOMEM. */
int sl_job_rank_of(struct sl_job *job, uint32_t identity, uint32_t wanted, uint32_t *rank);
/* The communicator of that name, or SL_JOB_NONE: it is not made. */
uint32_t sl_job_find_comm(const struct sl_job *job, uint32_t name);
/* Of a communicator whose ranks told their own places: the ranks by place, SL_JOB_NONE where nobody
 * told; the caller's. *size: 0, NULL: it is none such. -ENOMEM. */
int sl_job_told_places(const struct sl_job *job, uint32_t comm, uint32_t **ranks, uint32_t *size);

/* A sentence about the sources, without its end. -ENOMEM. */
int sl_job_note(struct sl_job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* NULL after the last one. */
const char *sl_job_note_at(const struct sl_job *job, size_t i);

#endif
