/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a step: all micro-batches forward, all back (J. Huang et al., "GPipe", NeurIPS
 * 2019), each with its tensor group's and its experts' collectives; then the gradients among the
 * replicas, and their norm among all.
 */
#include "monitor/simulate/calls.h"

#define ACTIVATIONS (UINT64_C(8) << 20) /* of a micro-batch, from stage to stage */
#define GRADIENTS (UINT64_C(256) << 20) /* of a stage */
#define TOKENS (UINT64_C(16) << 20)     /* of a micro-batch, to experts */

/* How many communicators of the kind there are; 0: it would have one member. */
static uint32_t count_of(const struct sl_play_plan *plan, enum sl_play_comm_kind kind)
{
    switch (kind) {
    case SL_PLAY_TENSOR: return plan->tensor > 1 ? plan->replicas * plan->stages : 0;
    case SL_PLAY_EXPERT:
        return plan->experts > 1 ? plan->stages * plan->tensor * (plan->replicas / plan->experts)
                                 : 0;
    case SL_PLAY_REPLICA: return plan->replicas > 1 ? plan->stages * plan->tensor : 0;
    case SL_PLAY_PIPELINE: return plan->stages > 1 ? plan->replicas * plan->tensor : 0;
    case SL_PLAY_WORLD: return 1;
    default: return 0;
    }
}

uint32_t sl_play_comms(const struct sl_play_plan *plan)
{
    uint32_t count = 0;

    for (unsigned kind = 0; kind < SL_PLAY_COMM_KINDS; kind++)
        count += count_of(plan, (enum sl_play_comm_kind)kind);
    return count;
}

/* Its number among those of its kind. */
static uint32_t within(const struct sl_play_plan *plan, uint32_t comm, unsigned *kind)
{
    for (*kind = 0; comm >= count_of(plan, (enum sl_play_comm_kind) * kind); (*kind)++)
        comm -= count_of(plan, (enum sl_play_comm_kind) * kind);
    return comm;
}

enum sl_play_comm_kind sl_play_comm_kind(const struct sl_play_plan *plan, uint32_t comm)
{
    unsigned kind;

    within(plan, comm, &kind);
    return (enum sl_play_comm_kind)kind;
}

uint32_t sl_play_comm_of(const struct sl_play_plan *plan, enum sl_play_comm_kind kind,
                         uint32_t rank)
{
    uint32_t stage = sl_play_stage(plan, rank), tensor = sl_play_tensor(plan, rank);
    uint32_t replica = sl_play_replica(plan, rank), before = 0, idx = 0;

    if (count_of(plan, kind) == 0)
        return SL_JOB_NONE;
    for (unsigned k = 0; k < kind; k++)
        before += count_of(plan, (enum sl_play_comm_kind)k);
    switch (kind) {
    case SL_PLAY_TENSOR: idx = rank / plan->tensor; break;
    case SL_PLAY_EXPERT:
        idx = (stage * plan->tensor + tensor) * (plan->replicas / plan->experts) +
              replica / plan->experts;
        break;
    case SL_PLAY_REPLICA: idx = stage * plan->tensor + tensor; break;
    case SL_PLAY_PIPELINE: idx = rank % (plan->tensor * plan->replicas); break;
    default: break;
    }
    return before + idx;
}

uint32_t sl_play_members(const struct sl_play_plan *plan, uint32_t comm, uint32_t *first,
                         uint32_t *step)
{
    uint32_t per_stage = plan->tensor * plan->replicas, groups;
    unsigned kind;

    comm = within(plan, comm, &kind);
    switch (kind) {
    case SL_PLAY_TENSOR:
        *first = comm * plan->tensor;
        *step = 1;
        return plan->tensor;
    case SL_PLAY_EXPERT:
        groups = plan->replicas / plan->experts;
        *first = comm / groups / plan->tensor * per_stage +
                 comm % groups * plan->experts * plan->tensor + comm / groups % plan->tensor;
        *step = plan->tensor;
        return plan->experts;
    case SL_PLAY_REPLICA:
        *first = comm / plan->tensor * per_stage + comm % plan->tensor;
        *step = plan->tensor;
        return plan->replicas;
    case SL_PLAY_PIPELINE:
        *first = comm;
        *step = per_stage;
        return plan->stages;
    default:
        *first = 0;
        *step = 1;
        return sl_play_ranks(plan);
    }
}

/* ---- a step ---- */

struct list {
    const struct sl_play_plan *plan;
    struct sl_play_call *out;
    uint32_t rank, count;
};

static void compute(struct list *list, double seconds)
{
    list->out[list->count++] = (struct sl_play_call){
        .comm = SL_JOB_NONE, .peer = SL_JOB_NONE, .compute_s = seconds, .kind = SL_JOB_COMPUTE};
}

static void collective(struct list *list, enum sl_play_comm_kind comm, enum sl_job_kind kind,
                       uint64_t bytes)
{
    uint32_t idx = sl_play_comm_of(list->plan, comm, list->rank);

    if (idx != SL_JOB_NONE)
        list->out[list->count++] = (struct sl_play_call){
            .comm = idx, .peer = SL_JOB_NONE, .bytes = bytes, .kind = (uint8_t)kind};
}

/* is_up: with the next stage, else with the one before. */
static void message(struct list *list, enum sl_job_kind kind, bool is_up, uint32_t batch)
{
    const struct sl_play_plan *plan = list->plan;
    uint32_t per_stage = plan->tensor * plan->replicas, stage = sl_play_stage(plan, list->rank);

    if (is_up ? stage + 1 == plan->stages : stage == 0)
        return;
    list->out[list->count++] =
        (struct sl_play_call){.comm = sl_play_comm_of(plan, SL_PLAY_PIPELINE, list->rank),
                              .peer = is_up ? list->rank + per_stage : list->rank - per_stage,
                              .bytes = ACTIVATIONS,
                              .kind = (uint8_t)kind,
                              .batch = (uint8_t)batch,
                              .is_back = is_up == (kind == SL_JOB_RECV)};
}

static void one_way(struct list *list, bool is_back, double seconds)
{
    for (uint32_t batch = 0; batch < list->plan->batches; batch++) {
        message(list, SL_JOB_RECV, is_back, batch);
        compute(list, seconds);
        collective(list, SL_PLAY_TENSOR, SL_JOB_ALLREDUCE, ACTIVATIONS);
        collective(list, SL_PLAY_EXPERT, SL_JOB_ALLTOALL, TOKENS);
        message(list, SL_JOB_SEND, !is_back, batch);
    }
}

uint32_t sl_play_calls(const struct sl_play_plan *plan, uint32_t rank, double heavier,
                       struct sl_play_call *out)
{
    struct list list = {.plan = plan, .out = out, .rank = rank};

    one_way(&list, false, plan->compute_s * heavier);
    one_way(&list, true, 2 * plan->compute_s * heavier);
    collective(&list, SL_PLAY_REPLICA, SL_JOB_REDUCE_SCATTER, GRADIENTS);
    collective(&list, SL_PLAY_REPLICA, SL_JOB_ALLGATHER, GRADIENTS);
    collective(&list, SL_PLAY_WORLD, SL_JOB_ALLREDUCE, 8);
    return list.count;
}
