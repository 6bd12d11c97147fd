/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a made-up job: the host of each rank calls, up to `ahead` calls before its GPU, the GPU
 * does what it is given in turn, a collective ends when all members have come to it and its wires
 * are through. With a fault that stops a rank the job runs until nothing moves.
 *
 *     struct sl_job *job;
 *     sl_play_job(&plan, &job);            0, -ENOMEM, or -EINVAL (plan.h)
 *     sl_job_seal(job), rules, sl_job_free(job);
 *
 * What the job tells is what sources tell: calls with their times by the rank's own clock (which
 * differ by up to 10 ms), what is pending, what edges waited for. The clock begins at 0.
 */
#ifndef SL_MONITOR_SIMULATE_PLAY_H
#define SL_MONITOR_SIMULATE_PLAY_H

#include "monitor/simulate/plan.h"

int sl_play_job(const struct sl_play_plan *plan, struct sl_job **out);

/* What a step takes: a first guess from the plan, for budgets. */
double sl_play_step_s(const struct sl_play_plan *plan);

#endif
