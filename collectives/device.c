/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules on memory that the processor must not touch, and where an operation's scratch lies. */
#include "collectives/device.h"

#include "schedules/build.h"

#include <stdlib.h>

/* Those whose steps are one runner's, which needs no more of the codec than bytes of elements.
 * Hosts that add up inside first have steps of another. */
static const struct sl_algo *algo_of(enum sl_coll coll)
{
    static const struct sl_algo *const algos[] = {&sl_algo_oneshot, &sl_algo_code_chain};

    for (size_t i = 0; i < SL_ARRAY_LEN(algos); i++)
        if ((algos[i]->colls & 1u << coll) != 0)
            return algos[i];
    return NULL;
}

bool sl_device_recipe(struct sl_coding *coding, const struct sl_call *call,
                      const struct sl_code *code, struct sl_runner *runners[2],
                      struct sl_recipe *out)
{
    const struct sl_algo *algo = algo_of(call->coll);

    *out = (struct sl_recipe){0};
    if (code == NULL || algo == NULL || coding->device_runner == NULL)
        return false;
    runners[SL_CODE_RUNNER - 1] = coding->device_runner;
    *out = (struct sl_recipe){
        .algo = algo, .runners = runners, .runner_count = 1, .coding = coding, .code = code};
    return true;
}

static bool is_users(uint8_t buf)
{
    return buf == SL_BUF_IN || buf == SL_BUF_OUT || buf == SL_BUF_TMP;
}

int sl_device_adopt(struct sl_plan *plan)
{
    struct sl_schedule *s = &plan->schedule;

    if (plan->shape.size == 1)
        return sl_fail(-ENOTSUP,
                       "%s of %llu %s is on GPU memory, and of one rank alone: nothing is sent, so "
                       "there is no codec to go by. Copy it on the GPU, or pass host memory",
                       sl_coll_name(plan->call.coll), (unsigned long long)plan->call.count,
                       sluice_dtype_name(plan->call.dtype));
    if (plan->coding == NULL)
        return sl_fail(-ENOTSUP,
                       "%s of %llu %s is on GPU memory, where the processor cannot compute, and "
                       "goes by no codec: switch compression on, with min=0 for short calls, or "
                       "pass host memory",
                       sl_coll_name(plan->call.coll), (unsigned long long)plan->call.count,
                       sluice_dtype_name(plan->call.dtype));
    for (uint32_t i = 0; i < s->step_count; i++) {
        struct sl_step *step = &s->steps[i];

        if (step->runner != 0 || (!is_users(step->src_buf) && !is_users(step->dst_buf)))
            continue;
        if (sl_step_row(step)->work == SL_WORK_NONE)
            return sl_fail(-ENOTSUP, "%s sends elements as they are, which lie on a GPU", s->algo);
        step->runner = SL_CODE_RUNNER;
    }
    return 0;
}

/* ---- scratch ---- */

static struct sl_runner *first_runner(const struct sl_plan *plan)
{
    return plan->runner_count != 0 ? plan->runners[0] : NULL;
}

/* Of len bytes, or none. */
static bool take_ordinary(void **out, size_t len)
{
    *out = NULL;
    return len == 0 || posix_memalign(out, SL_CACHE_LINE, len) == 0;
}

int sl_op_buffers_take(struct sluice_req *op)
{
    const struct sl_plan *plan = op->plan;
    const struct sl_schedule *s = &plan->schedule;
    size_t tmp = s->tmp_count * (s->wide_tmp ? sizeof(float) : plan->esize);
    struct sl_runner *runner = first_runner(plan);

    if (runner != NULL && runner->ops->take != NULL)
        return runner->ops->take(runner, tmp, s->wire_bytes, &op->tmp, &op->wire);
    if (take_ordinary(&op->tmp, tmp) && take_ordinary(&op->wire, s->wire_bytes))
        return 0;
    return sl_fail(-ENOMEM, "no memory for an operation of %u steps and %llu bytes of scratch",
                   s->step_count, (unsigned long long)(tmp + s->wire_bytes));
}

void sl_op_buffers_give(struct sluice_req *op)
{
    struct sl_runner *runner = op->plan != NULL ? first_runner(op->plan) : NULL;

    if (runner != NULL && runner->ops->give != NULL) {
        runner->ops->give(runner, op->tmp, op->wire);
    } else {
        free(op->tmp);
        free(op->wire);
    }
}
