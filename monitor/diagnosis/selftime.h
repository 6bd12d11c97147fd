/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each rank did itself in each step of training, without the waits that it inherited, and
 * which ranks do the same (rule 6.2 of the design).
 *
 * Own time of rank r in a step: the time of its compute operations, and what passed before an
 * operation while none of its own kept it:
 *
 *     self(r, k) = arrival(r, k) - max(end of what r did before k)
 *
 * The arrival is when the program called the operation; where it was called while an earlier one
 * still ran (a GPU's queue), when it started. A source that tells no calls and lists compute
 * operations (a timeline of transfers) starts an operation when all its members have come: what
 * passed before it is not the rank's own, and only compute counts. Communication never counts, of
 * whatever communicator, and no message: so a wait that came down a pipeline is nobody's own but
 * that of the rank where it began.
 *
 * Steps are told, or found: the shortest sequence of operations that repeats to the end.
 */
#ifndef SL_MONITOR_DIAGNOSIS_SELFTIME_H
#define SL_MONITOR_DIAGNOSIS_SELFTIME_H

#include "monitor/diagnosis/job.h"

struct sl_selftime {
    uint32_t rank_count, step_count;
    uint32_t *steps;    /* their numbers, in order; ordinals where they were found */
    double *seconds;    /* of rank r in the i-th step: [r * step_count + i]; NAN: not known */
    int64_t *begin_ns;  /* the same: when the rank began it */
    uint64_t *roles;    /* by rank: equal where sequence of operations, stage and tensor rank are */
    uint32_t *replicas; /* by rank: told, or ranks that messages join; SL_JOB_NONE: not known */
    double step_s;      /* of a step, until the next begins: a median; 0: not known */
};

/* The job must be sealed. Steps that are shorter than least_s seconds are put together to such as
 * last so long. 0, also where nothing is known (step_count 0), or -ENOMEM. */
int sl_selftime_find(const struct sl_job *job, double least_s, struct sl_selftime *self);
void sl_selftime_fini(struct sl_selftime *self);

/* Where the shortest repeating end of a sequence begins (*at) and its period, which is there at
 * least three times; turned so that equal cycles begin alike. 0, or -ENOENT: nothing repeats;
 * -ENOMEM. */
int sl_period_find(const uint64_t *list, size_t count, size_t *at, size_t *period);

#endif
