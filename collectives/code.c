/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls are compressed, by which schedules, and what that comes to. */
#include "collectives/code.h"

#include "collectives/recall.h"
#include "collectives/steps.h"

#include <string.h>

void sl_coding_put(struct sl_coding *coding)
{
    if (coding != NULL && --coding->users == 0)
        coding->free(coding);
}

/* Several hosts with the same number of ranks, more than one. */
static bool hosts_are_even(const struct sluice_comm *comm)
{
    return comm->host_count > 1 && comm->most_local > 1 &&
           comm->most_local * comm->host_count == comm->size;
}

static const struct sl_algo *algo_of(const struct sluice_comm *comm, enum sl_coll coll)
{
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++)
        if (((*a)->colls & 1u << coll) != 0 && (!(*a)->needs_hosts || hosts_are_even(comm)))
            return *a;
    return NULL;
}

/* Bytes of the larger buffer of a rank. */
static uint64_t bytes_of(const struct sluice_comm *comm, const struct sl_call *call)
{
    bool blocks = call->coll != SL_ALLREDUCE && call->coll != SL_BROADCAST;

    return call->count * sluice_dtype_size(call->dtype) * (blocks ? comm->size : 1);
}

bool sl_coding_recipe(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, struct sl_runner *runners[2],
                      struct sl_recipe *out)
{
    const struct sl_algo *algo = algo_of(comm, call->coll);
    bool sums = sl_coll_reduces(call->coll);
    const struct sl_code *code;

    if (coding == NULL || algo == NULL || comm->size < 2 || call->count == 0 ||
        bytes_of(comm, call) < coding->min_bytes ||
        (sums && call->op != SLUICE_SUM && call->op != SLUICE_AVG))
        return false;
    code = coding->code(coding, call->dtype, sums);
    if (code == NULL)
        return false;
    runners[SL_CODE_RUNNER - 1] = coding->runner;
    runners[SL_INNER_RUNNER - 1] = coding->inner_runner;
    *out =
        (struct sl_recipe){.algo = algo,
                           .runners = runners,
                           .runner_count = algo->needs_hosts ? 2 : 1,
                           .coding = coding,
                           .code = code,
                           .inner = algo->needs_hosts ? coding->inner(coding, call->dtype) : NULL};
    return true;
}

void sl_comm_set_coding(struct sluice_comm *comm, struct sl_coding *coding)
{
    struct sl_coding *before = comm->coding;

    comm->coding = sl_coding_get(coding);
    sl_plans_drop(comm);
    sl_recall_drop(comm);
    sl_coding_put(before);
}

static const struct sl_code *code_of(const struct sl_plan *plan, const struct sl_step *step)
{
    return step->runner == SL_INNER_RUNNER ? plan->shape.inner : plan->shape.code;
}

void sl_coding_extents(const struct sl_plan *plan, struct sl_coding_extent *extents)
{
    uint32_t tile = plan->shape.code->tile;

    memset(extents, 0, SL_CODING_STAGES * sizeof(*extents));
    for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
        const struct sl_step *step = &plan->schedule.steps[i];
        struct sl_coding_extent *extent = &extents[step->stage];
        uint64_t end = step->tile + (step->count + tile - 1) / tile;

        if (sl_step_row(step)->work != SL_WORK_ENCODE || code_of(plan, step)->exact)
            continue;
        sl_assert(step->stage < SL_CODING_STAGES);
        if (extent->count == 0)
            *extent = (struct sl_coding_extent){step->tile, end - step->tile};
        if (step->tile < extent->first) {
            extent->count += extent->first - step->tile;
            extent->first = step->tile;
        }
        if (end > extent->first + extent->count)
            extent->count = end - extent->first;
    }
}

static void count_bytes(const struct sluice_req *op)
{
    const struct sl_plan *plan = op->plan;
    struct sl_coding *coding = plan->coding;

    coding->calls++;
    for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
        const struct sl_step *step = &plan->schedule.steps[i];

        if (sl_step_row(step)->message != SL_SENDS)
            continue;
        coding->raw_bytes += step->count * plan->esize;
        coding->bytes +=
            step->src_buf == SL_BUF_WIRE ? sl_op_wire_len(op, step) : step->count * plan->esize;
    }
}

void sl_coding_ended(struct sluice_req *op, int status)
{
    if (status == 0)
        count_bytes(op);
    sl_recall_end(op->recalled);
    op->recalled = NULL;
}
