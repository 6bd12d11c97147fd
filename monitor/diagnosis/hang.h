/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank, or what in the program, makes a job hang: the wait-for graph over all communicators.
 *
 * Rule 1: who has not issued an operation that others wait in is waited for.
 * Rule 2: who has not ended an operation that another member has ended, although no member can
 * end it without all of them, is stuck itself, unless the data that it misses comes by a member
 * that does not go on: in a ring that one may have all that it needs, and not have passed it on.
 * Where all have issued an operation and none has ended it, those that are still at something
 * earlier are waited for. Whoever is waited for and waits for nobody is accused; ranks that wait
 * for each other are a deadlock of the program, and ranks that called different things a mismatch.
 *
 * Near linear in operations and members. Pure: no clock, no files.
 */
#ifndef SL_MONITOR_DIAGNOSIS_HANG_H
#define SL_MONITOR_DIAGNOSIS_HANG_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

struct sl_hang_options {
    int64_t now_ns; /* when the job was looked at; SL_JOB_NEVER: not known, and all that is pending
                       * is too old */
    int64_t stall_ns; /* an operation that is pending for less is no hang */
};

#define SL_HANG_STALL_NS (30 * (int64_t)1000000000)

/* Of a sealed job. Adds at least one verdict: SL_VERDICT_NOT_HUNG where nothing hangs. -ENOMEM. */
int sl_hang_find(const struct sl_job *job, const struct sl_hang_options *options,
                 struct sl_verdicts *verdicts);

#endif
