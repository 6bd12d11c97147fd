/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that runners have: handed over, ended by their requests, taken back. */
#include "collectives/steps.h"

#include "collectives/health.h"
#include "collectives/operation.h"
#include "collectives/recall.h"

#include <stdio.h>

#define BUDGET 64 /* requests that a runner may end per pass */

static const struct sl_runner *runner_of(const struct sl_job *job)
{
    return job->op->plan->runners[job->step->runner - 1];
}

static uint32_t index_of(const struct sl_job *job)
{
    return (uint32_t)(job->step - job->op->plan->schedule.steps);
}

static void fail(const struct sl_job *job, int status, const char *why)
{
    struct sluice_comm *comm = job->op->comm;

    sl_comm_fail(comm, status, (int32_t)comm->rank, "rank %u: %s by %s, step %u, failed: %s",
                 comm->rank, sl_step_row(job->step)->name, runner_of(job)->ops->name, index_of(job),
                 why);
}

/* Keeps how many bytes an encoding has. False: not as many as the step says. */
static bool take_length(const struct sl_job *job)
{
    const struct sl_step *step = job->step;
    uint64_t len = job->req.len;
    char why[128];

    if (step->dst_buf != SL_BUF_WIRE)
        return true;
    if (len == step->wire_len || (len < step->wire_len && (step->flags & SL_STEP_UP_TO) != 0)) {
        if (job->op->lengths != NULL)
            job->op->lengths[index_of(job)] = len;
        return true;
    }
    snprintf(why, sizeof(why), "it left %llu bytes where %llu %s", (unsigned long long)len,
             (unsigned long long)step->wire_len,
             (step->flags & SL_STEP_UP_TO) != 0 ? "have room" : "belong");
    fail(job, -EPROTO, why);
    return false;
}

static void job_done(struct sl_req *req)
{
    struct sl_job *job = sl_container_of(req, struct sl_job, req);
    struct sluice_req *op = job->op;

    job->busy = false;
    op->at_work--;
    op->comm->calls.at_work--;
    if (SL_UNLIKELY(req->status != 0)) {
        fail(job, req->status, sluice_last_error());
        return; /* stays in flight: the operation must not end well */
    }
    if (!take_length(job))
        return;
    op->in_flight--;
    sl_op_step_over(op, index_of(job));
}

static bool is_wide(const struct sluice_req *op, uint8_t buf)
{
    return buf == SL_BUF_TMP && op->plan->schedule.wide_tmp;
}

/* Bytes of a unit of that buffer. */
static uint64_t unit(const struct sluice_req *op, uint8_t buf)
{
    return buf == SL_BUF_WIRE ? 1 : is_wide(op, buf) ? sizeof(float) : op->plan->esize;
}

/* A runner's steps count elements, whatever the others count. */
static size_t bytes_at(const struct sluice_req *op, const struct sl_step *step, uint8_t buf)
{
    if (buf == SL_BUF_WIRE || sl_step_is_term_side(step, buf))
        return step->wire_len;
    return step->count * (is_wide(op, buf) ? sizeof(float) : op->plan->shape.esize);
}

static uint8_t *place(const struct sluice_req *op, uint8_t buf, uint64_t off)
{
    return op->base[buf] + off * unit(op, buf);
}

/* By which a codec's random numbers are drawn: the same on all ranks, and for a persistent
 * operation as if no other call had been made. */
static uint32_t turn_of(const struct sluice_req *op)
{
    return op->plan->owner != NULL ? op->plan->owner->turn : op->seq;
}

/* What is kept from start to start, or from call to call. */
static void *state_of(const struct sluice_req *op)
{
    return op->plan->state != NULL ? *op->plan->state : sl_recalled_state(op->recalled);
}

/* What has come out of the term before. */
static const void *before_of(const struct sluice_req *op, const struct sl_step *step)
{
    return step->term == 0 || step->before == SL_NO_TERM
               ? NULL
               : op->base[SL_BUF_TMP] + UINT64_C(4) * step->before;
}

/* All that the step needs is there, but for what a step makes that the same runner has: that one's.
 * Lengths are read when a step starts, so that they must be known. */
static const struct sl_job *awaited(const struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_plan *plan = op->plan;
    const uint32_t *deps = plan->schedule.deps + step->dep_first;
    const struct sl_job *found = NULL;

    for (uint32_t i = 0; i < step->dep_count; i++) {
        const struct sl_step *dep = &plan->schedule.steps[deps[i]];

        if (op->done[deps[i]])
            continue;
        if (found != NULL || dep->runner != step->runner || op->lengths != NULL)
            return NULL;
        found = &op->jobs[plan->post_of[deps[i]]];
        if (!found->busy)
            return NULL;
    }
    return found;
}

bool sl_job_may_follow(const struct sluice_req *op, const struct sl_step *step)
{
    return op->plan->runners[step->runner - 1]->ops->in_order && awaited(op, step) != NULL;
}

static struct sl_work describe(const struct sluice_req *op, const struct sl_step *step)
{
    const struct sl_plan *plan = op->plan;
    enum sluice_op op_wished = plan->call.op;

    return (struct sl_work){
        .kind = (enum sl_work_kind)sl_step_row(step)->work,
        .src_first = (step->flags & SL_STEP_REMOTE_FIRST) != 0,
        .dtype = plan->call.dtype,
        .op = op_wished == SLUICE_AVG ? SLUICE_SUM : op_wished,
        .divisor = (step->flags & SL_STEP_FINAL) != 0 ? plan->divisor : 1,
        .count = step->count,
        .src_wide = is_wide(op, step->src_buf),
        .dst_wide = is_wide(op, step->dst_buf),
        .stage = step->stage,
        .stream = step->stream,
        .turn = turn_of(op),
        .tile = step->tile,
        .term = step->term != 0 ? step->term - 1u : 0,
        .ranks = op->comm->size,
        .before = before_of(op, step),
        .src = place(op, step->src_buf, step->src_off),
        .dst = place(op, step->dst_buf, step->dst_off),
        .src_len = step->src_buf == SL_BUF_WIRE ? sl_op_wire_len(op, step)
                                                : bytes_at(op, step, step->src_buf),
        .dst_len = bytes_at(op, step, step->dst_buf),
        .state = state_of(op),
    };
}

enum sl_go sl_step_run_job(struct sluice_req *op, const struct sl_step *step, uint32_t index)
{
    struct sl_runner *runner = op->plan->runners[step->runner - 1];
    struct sl_job *job = &op->jobs[op->plan->post_of[index]];
    struct sl_work work = describe(op, step);
    const struct sl_job *after = runner->ops->in_order ? awaited(op, step) : NULL;

    work.after = after != NULL ? &after->req : NULL;
    if (op->comm->health.error.code != 0)
        return SL_GO_BLOCKED;
    job->req = (struct sl_req){.status = SL_PENDING, .done = job_done};
    int result = runner->ops->start(runner, &work, &job->req);

    if (result == -EAGAIN)
        return SL_GO_BLOCKED;
    if (result < 0) {
        fail(job, result, sluice_last_error());
        return SL_GO_BLOCKED;
    }
    if (result == 1)
        return take_length(job) ? SL_GO_OVER : SL_GO_BLOCKED;
    job->busy = true;
    op->in_flight++;
    op->at_work++;
    op->comm->calls.at_work++;
    return SL_GO_ON;
}

unsigned sl_jobs_progress(const struct sl_plan *plan)
{
    unsigned ended = 0;

    for (uint32_t i = 0; i < plan->runner_count; i++)
        ended += plan->runners[i]->ops->progress(plan->runners[i], BUDGET);
    return ended;
}

void sl_jobs_cancel(struct sluice_req *op)
{
    for (uint32_t i = 0; op->at_work != 0 && i < op->plan->job_count; i++) {
        struct sl_job *job = &op->jobs[i];
        struct sl_runner *runner = op->plan->runners[job->step->runner - 1];

        if (job->busy)
            runner->ops->cancel(runner, &job->req);
    }
}
