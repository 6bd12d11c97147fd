/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, starts and frees persistent operations. */
#include "collectives/operation.h"

#include "collectives/code.h"

#include <stdlib.h>

/* The request that all starts use. */
static int take_memory(struct sluice_operation *operation)
{
    struct sluice_req *op;
    int err = sl_op_get(operation->comm, operation->plan, &op);

    if (err == 0)
        sl_op_put(op);
    return err;
}

/* The plan is no longer busy. */
static void plan_rests(struct sl_plan *plan)
{
    struct sluice_operation *operation = plan->owner;

    if (operation->dropped)
        sl_operation_drop(operation);
}

/* What its codec keeps from start to start. */
static int keep_state(struct sluice_operation *operation)
{
    struct sl_coding *coding = operation->plan->coding;
    struct sl_coding_extent extents[SL_CODING_STAGES];
    void *state;

    /* What goes to other ranks each time has no identity. */
    if (coding == NULL || coding->keep == NULL || operation->plan->call.coll == SL_ALL_TO_ALL)
        return 0;
    sl_coding_extents(operation->plan, extents);
    int err = coding->keep(coding, extents, &state);

    if (err == 0)
        sl_operation_keep(operation, state, coding->forget);
    return err;
}

/* Its plan, memory and state. */
static int take_plan(struct sluice_operation *operation, const struct sl_call *call,
                     const struct sl_recipe *recipe)
{
    int err = sl_plan_create(operation->comm, call, recipe, &operation->plan);

    if (err != 0)
        return err;
    operation->plan->owner = operation;
    operation->plan->state = &operation->state;
    operation->plan->rests = plan_rests;
    err = take_memory(operation);
    return err ?: keep_state(operation);
}

int sl_operation_create(struct sluice_comm *comm, const struct sl_call *call,
                        const struct sl_recipe *recipe, const void *in, void *out,
                        struct sluice_operation **made)
{
    struct sluice_operation *operation = calloc(1, sizeof(*operation));

    if (operation == NULL)
        return sl_fail(-ENOMEM, "no memory for a persistent operation");
    *operation = (struct sluice_operation){.comm = comm, .in = in, .out = out};
    int err = take_plan(operation, call, recipe);

    if (err != 0) {
        sl_plan_destroy(operation->plan);
        free(operation);
        return err;
    }
    comm->calls.kept++;
    *made = operation;
    return 0;
}

int sl_operation_set_coding(struct sluice_operation *operation, struct sl_coding *coding)
{
    struct sluice_operation before = *operation;
    struct sl_runner *runners[2];
    struct sl_recipe recipe;

    if (before.plan->busy != 0)
        return sl_fail(-EINVAL, "this %s was started and has not ended",
                       sl_coll_name(before.plan->call.coll));
    operation->plan = NULL;
    operation->state = NULL;
    operation->forget = NULL;
    sl_coding_recipe(coding, operation->comm, &before.plan->call, operation->comm->speed, runners,
                     &recipe);
    int err = take_plan(operation, &before.plan->call, &recipe);

    if (err != 0) {
        sl_plan_destroy(operation->plan);
        *operation = before;
        return err;
    }
    operation->turn = 0;
    if (before.forget != NULL)
        before.forget(before.state);
    sl_plan_destroy(before.plan);
    return 0;
}

void sl_operation_keep(struct sluice_operation *operation, void *state, void (*forget)(void *state))
{
    if (operation->forget != NULL)
        operation->forget(operation->state);
    operation->state = state;
    operation->forget = forget;
}

void sl_operation_drop(struct sluice_operation *operation)
{
    operation->dropped = true;
    if (operation->plan->busy != 0)
        return;
    sl_operation_keep(operation, NULL, NULL);
    operation->comm->calls.kept--;
    sl_plan_destroy(operation->plan);
    free(operation);
}

int sl_operation_start(struct sluice_operation *operation, struct sluice_req **out_op)
{
    const struct sl_plan *plan = operation->plan;

    if (SL_UNLIKELY(plan->busy != 0))
        return sl_fail(-EINVAL, "this %s was started and has not ended",
                       sl_coll_name(plan->call.coll));
    operation->turn++; /* before it begins: steps run at once */
    int err = sl_op_start(operation->comm, operation->plan, operation->in, operation->out, out_op);

    if (SL_UNLIKELY(err != 0))
        operation->turn--;
    return err;
}
