/* SPDX-License-Identifier: Apache-2.0 */
/* How each kind of step runs. */
#ifndef SL_COLLECTIVES_STEPS_H
#define SL_COLLECTIVES_STEPS_H

#include "collectives/plan.h"

/* The function of a step. It returns how the channel goes on. */
sl_step_fn *sl_step_function(const struct sl_step *step);

/* jobs.c: gives the step to its runner. */
sl_step_fn sl_step_run_job;

/* jobs.c: of a runner's step of which not all that it needs is over: its runner has the rest, and
 * keeps the order. */
bool sl_job_may_follow(const struct sluice_req *op, const struct sl_step *step);

/* jobs.c: progress of the plan's runners. Returns how much ended. */
unsigned sl_jobs_progress(const struct sl_plan *plan);

/* jobs.c: takes back what runners still have of an operation that has failed. */
void sl_jobs_cancel(struct sluice_req *op);

/* win_steps.c: of the kinds that touch counters and windows. */
sl_step_fn sl_step_run_post, sl_step_run_await, sl_step_run_reduce_win, sl_step_run_get;
sl_step_fn sl_step_run_reduce_win_term;

/* win_steps.c: the operation's turn at the windows: earlier operations of this rank are through,
 * and its slot and area are free. False: not yet. */
bool sl_op_enter_windows(struct sluice_req *op);

/* win_steps.c: the first rank whose window says less than the step needs; -1: none. */
int32_t sl_step_awaited_rank(const struct sluice_req *op, const struct sl_step *step);

/* win_steps.c: whether the window of that rank says less than the step needs. */
bool sl_step_lacks(const struct sluice_req *op, const struct sl_step *step, uint32_t rank);

static inline uint8_t *sl_op_at(const struct sluice_req *op, uint8_t buf, uint64_t off)
{
    return op->base[buf] + off * op->plan->esize;
}

/* How many bytes lie in the wire buffer where the step reads. */
static inline uint64_t sl_op_wire_len(const struct sluice_req *op, const struct sl_step *step)
{
    return step->length_from != 0 ? op->lengths[step->length_from - 1] : step->wire_len;
}

/* Of the step's message: bytes, or the most of them. */
static inline uint64_t sl_op_len(const struct sluice_req *op, const struct sl_step *step)
{
    return sl_step_uses_wire(step) ? step->wire_len : step->count * op->plan->esize;
}

/* What a step of a term reduces by. */
static inline const struct sl_term_plan *sl_op_term(const struct sluice_req *op,
                                                    const struct sl_step *step)
{
    return &op->plan->terms[step->term - 1];
}

static inline void sl_op_step_over(struct sluice_req *op, uint32_t index)
{
    if (op->done != NULL)
        op->done[index] = 1;
}

#endif
