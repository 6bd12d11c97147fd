/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls are compressed, by which schedules, and what that comes to. */
#include "collectives/code.h"

#include "collectives/device.h"
#include "collectives/recall.h"
#include "collectives/select.h"
#include "collectives/steps.h"
#include "schedules/code_cost.h"

#include <string.h>

/* Sizes that are looked at for where it begins to pay. */
#define PAYS_LOG2_LEAST 10
#define PAYS_LOG2_MOST 32

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

int sl_coding_find_recipe(const char *name, const char **out)
{
    char names[128] = "auto";

    *out = NULL;
    if (strcmp(name, names) == 0)
        return 0;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++) {
        if ((*a)->recipe == NULL)
            continue;
        if (strcmp((*a)->recipe, name) == 0) {
            *out = (*a)->recipe;
            return 0;
        }
        sl_text_add(names, sizeof(names), ", %s", (*a)->recipe);
    }
    return sl_fail(-EINVAL, "recipe=%s: the choices are %s", name, names);
}

bool sl_coding_suits(const struct sluice_comm *comm, const struct sl_algo *algo, enum sl_coll coll)
{
    return (algo->colls & 1u << coll) != 0 && (!algo->needs_hosts || hosts_are_even(comm));
}

/* Bytes of the larger buffer of a rank. */
static uint64_t bytes_of(const struct sluice_comm *comm, const struct sl_call *call)
{
    bool blocks = call->coll != SL_ALLREDUCE && call->coll != SL_BROADCAST;

    return call->count * sluice_dtype_size(call->dtype) * (blocks ? comm->size : 1);
}

/* The code for such a call; NULL: it is never compressed. */
static const struct sl_code *code_for(struct sl_coding *coding, const struct sluice_comm *comm,
                                      const struct sl_call *call)
{
    bool sums = sl_coll_reduces(call->coll);

    if (coding == NULL || comm->size < 2 || call->count == 0 ||
        bytes_of(comm, call) < coding->min_bytes ||
        (sums && call->op != SLUICE_SUM && call->op != SLUICE_AVG))
        return NULL;
    return coding->code(coding, call->dtype, sums);
}

/* And for the shape's code. */
static bool suits(const struct sluice_comm *comm, const struct sl_algo *algo,
                  const struct sl_shape *shape)
{
    return sl_coding_suits(comm, algo, shape->coll) && (!algo->needs_terms || sl_has_terms(shape));
}

/* What adds up goes as a sum unless another recipe is asked for: what comes out, as the majority of
 * votes, must not be a question of costs. */
bool sl_coding_may(const struct sl_coding *coding, const struct sluice_comm *comm,
                   const struct sl_algo *algo, const struct sl_shape *shape)
{
    if (!suits(comm, algo, shape))
        return false;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++) {
        bool asked = coding->recipe != NULL && (*a)->recipe == coding->recipe;

        if ((asked || (coding->recipe == NULL && (*a)->needs_terms)) && suits(comm, *a, shape))
            return *a == algo;
    }
    return algo->unasked == NULL || algo->unasked(shape);
}

/* The cheapest, or the first where it does not matter. */
static void choose_algo(const struct sl_coding *coding, const struct sluice_comm *comm,
                        const struct sl_shape *shape, struct sl_coding_choice *out)
{
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++) {
        bool may = sl_coding_may(coding, comm, *a, shape);
        double ns = may ? sl_select_coded(comm, *a, shape) : -1;

        if (!may || (out->algo != NULL && coding->always) ||
            (!coding->always && (ns < 0 || (out->algo != NULL && ns >= out->ns))))
            continue;
        out->algo = *a;
        out->ns = ns;
    }
}

/* Within a host its processors move the bytes, by memory or through the kernel, and encoding is
 * more work than that. What is measured there says otherwise where other programs keep ranks from
 * their cores, and then encoding takes as much longer. */
void sl_coding_choose(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, const uint16_t *speed,
                      struct sl_coding_choice *out)
{
    struct sl_shape shape;

    *out = (struct sl_coding_choice){.code = code_for(coding, comm, call)};
    if (out->code == NULL)
        return;
    out->inner = coding->inner(coding, call->dtype);
    sl_call_shape(comm, call, &shape);
    shape.speed = comm->host_count > 1 ? speed : NULL;
    shape.code = out->code;
    shape.inner = out->inner;
    choose_algo(coding, comm, &shape, out);
    if (out->algo == NULL)
        return;
    out->raw = sl_select_raw(comm, &shape, &out->raw_ns);
    out->taken = coding->always || (comm->host_count > 1 && out->raw != NULL &&
                                    out->raw_ns >= out->ns * SL_CODE_GAIN);
}

bool sl_coding_recipe(struct sl_coding *coding, const struct sluice_comm *comm,
                      const struct sl_call *call, const uint16_t *speed,
                      struct sl_runner *runners[2], struct sl_recipe *out)
{
    struct sl_coding_choice choice;

    if (call->on_device)
        return sl_device_recipe(coding, call, code_for(coding, comm, call), runners, out);
    sl_coding_choose(coding, comm, call, speed, &choice);
    *out = (struct sl_recipe){.spared = choice.algo != NULL ? coding : NULL};
    if (choice.algo == NULL || !choice.taken)
        return false;
    runners[SL_CODE_RUNNER - 1] = coding->runner;
    runners[SL_INNER_RUNNER - 1] = coding->inner_runner;
    *out = (struct sl_recipe){.algo = choice.algo,
                              .runners = runners,
                              .runner_count = choice.algo->needs_hosts ? 2 : 1,
                              .coding = coding,
                              .code = choice.code,
                              .inner = choice.algo->needs_hosts ? choice.inner : NULL,
                              .raw_ns = choice.raw != NULL ? choice.raw_ns : 0};
    return true;
}

uint64_t sl_coding_pays_from(struct sl_coding *coding, const struct sluice_comm *comm,
                             const struct sl_call *call)
{
    struct sl_call other = *call;
    struct sl_coding_choice choice;
    uint64_t from = 0;

    for (unsigned log2 = PAYS_LOG2_MOST; log2 >= PAYS_LOG2_LEAST; log2--) {
        uint64_t bytes = UINT64_C(1) << log2;

        other.count = 1;
        other.count = bytes / bytes_of(comm, &other);
        sl_coding_choose(coding, comm, &other, comm->speeds.now, &choice);
        if (!choice.taken)
            break;
        from = bytes;
    }
    return from;
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

static bool encodes(const struct sl_step *step)
{
    unsigned work = sl_step_row(step)->work;

    return work == SL_WORK_ENCODE || work == SL_WORK_ENCODE_TERM;
}

void sl_coding_extents(const struct sl_plan *plan, struct sl_coding_extent *extents)
{
    uint32_t tile = plan->shape.code->tile;

    memset(extents, 0, SL_CODING_STAGES * sizeof(*extents));
    for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
        const struct sl_step *step = &plan->schedule.steps[i];
        struct sl_coding_extent *extent = &extents[step->stage];
        uint64_t end = step->tile + (step->count + tile - 1) / tile;

        if (!encodes(step) || code_of(plan, step)->exact)
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

/* Numbers of terms that a rank sends, or shows in its window, stand for as much of the elements as
 * they are of all numbers of the last term. */
static uint64_t raw_of_term(const struct sl_plan *plan, const struct sl_step *step)
{
    const struct sl_shape *shape = &plan->shape;
    uint32_t last = shape->code->term_count;
    uint64_t all = sl_term_count(shape, last - 1) * plan->terms[last - 1].esize;

    return step->term != last ? 0
                              : (uint64_t)((double)step->count / (double)all *
                                           (double)(shape->count * shape->esize));
}

static bool sends(const struct sl_step *step)
{
    return sl_step_row(step)->message == SL_SENDS ||
           (step->term != 0 &&
            (step->dst_buf == SL_BUF_WIN || (step->flags & SL_STEP_TO_WIN) != 0));
}

/* Bytes that it has sent, and those that they stand for. */
static void count_bytes(const struct sluice_req *op, struct sl_coding *coding)
{
    const struct sl_plan *plan = op->plan;
    uint64_t sent = 0, raw = 0;

    for (uint32_t i = 0; i < plan->schedule.step_count; i++) {
        const struct sl_step *step = &plan->schedule.steps[i];

        if (!sends(step))
            continue;
        raw += step->term != 0 ? raw_of_term(plan, step) : step->count * plan->esize;
        sent += step->src_buf == SL_BUF_WIRE ? sl_op_wire_len(op, step) : step->count * plan->esize;
    }
    sl_coding_add(&coding->calls, 1);
    sl_coding_add(&coding->bytes, sent);
    sl_coding_add(&coding->raw_bytes, raw);
}

/* Of which it is not known what it should have taken without, time is no gain and no loss. Several
 * that are under way together share it. */
void sl_coding_begins(const struct sluice_req *op)
{
    struct sl_coding *coding = op->plan->coding;

    if (op->plan->raw_ns > 0 && coding->under_way++ == 0)
        coding->busy_since_ns = sl_now(op->comm->worker->clock);
}

void sl_coding_ends(struct sluice_req *op, int status)
{
    const struct sl_plan *plan = op->plan;
    struct sl_coding *coding = plan->account;

    if (plan->coding == NULL) {
        if (status == 0)
            sl_coding_add(&coding->raw_calls, 1);
        return;
    }
    if (plan->raw_ns > 0 && --coding->under_way == 0)
        sl_coding_add(&coding->busy_ns, sl_now(op->comm->worker->clock) - coding->busy_since_ns);
    if (status == 0) {
        sl_coding_add(&coding->raw_ns, (uint64_t)plan->raw_ns);
        count_bytes(op, coding);
    }
    sl_recall_end(op->recalled);
    op->recalled = NULL;
}
