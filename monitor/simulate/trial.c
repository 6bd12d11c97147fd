/* SPDX-License-Identifier: Apache-2.0 */
/* One made-up job, judged. */
#include "monitor/simulate/trial.h"
#include "core/err.h"
#include "monitor/simulate/calls.h"
#include "monitor/simulate/play.h"
#include "monitor/simulate/wire.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#define PEERS_LEAST 3
#define HISTORY_LEAST 20 /* steps */
#define SPREADS 4.0

static bool is_slow(enum sl_verdict_class cls)
{
    return cls >= SL_VERDICT_SLOW_RANK;
}

/* ---- what can be known ---- */

/* Of a step's own time: what its passes' noise leaves of it. */
static double step_noise(const struct sl_play_plan *plan)
{
    return fmax(0.01, plan->noise / sqrt(2.0 * plan->batches));
}

static bool is_slow_rank_identifiable(const struct sl_play_plan *plan)
{
    const struct sl_play_fault *fault = &plan->fault;
    uint32_t peers = plan->replicas * (plan->has_layout ? 1 : plan->tensor);
    uint32_t kind = plan->second_kind > 0 ? peers / 2 : peers; /* of its hardware */
    double log_strength = log(fault->strength), spread = step_noise(plan);

    /* With one stage they are what slowness is, and slower hosts look like them; with two, or with
     * few replicas, a part is left. */
    if (plan->stages == 1 || plan->second_kind > 0)
        spread += plan->sequences;
    else if (plan->stages == 2 || plan->replicas < 8)
        spread += plan->sequences / 3;
    if (fault->step > 0 && plan->steps >= HISTORY_LEAST)
        return log_strength > log1p(0.05) + SPREADS * spread;
    return kind >= PEERS_LEAST && log_strength > log1p(0.10) + SPREADS * spread;
}

/* The edge that hangs is between hosts, and so told. */
static bool is_stuck_identifiable(const struct sl_play_plan *plan)
{
    const struct sl_play_fault *fault = &plan->fault;
    struct sl_play_call calls[SL_PLAY_CALLS_MAX];
    const struct sl_play_edge *edge;
    struct sl_play_wire wire;
    bool is_told = false;

    sl_play_calls(plan, fault->rank, 1, calls);
    if (!plan->has_edges || sl_play_wire_init(&wire, plan) != 0)
        return false;
    edge = sl_play_wire_stuck(&wire, calls[fault->call].comm, fault->rank);
    is_told = edge != NULL && !sl_play_wire_is_inside(plan, edge->src, edge->dst);
    sl_play_wire_fini(&wire);
    return is_told;
}

/* Others on other hosts that the rank's NIC sends to (or hears from). */
static uint32_t partners(const struct sl_play_plan *plan, uint32_t rank, bool is_sender)
{
    uint32_t count = 0;

    if (plan->replicas < 2)
        return 0;
    switch (plan->algorithm) {
    case SL_PLAY_RING: count = plan->channels < plan->replicas ? plan->channels : 1; break;
    case SL_PLAY_TREE: count = 2; break;
    default: count = plan->replicas - 1;
    }
    (void)rank, (void)is_sender;
    return count + (plan->stages > 1) + (plan->experts > 1 ? plan->experts - 1 : 0);
}

bool sl_trial_identifiable(const struct sl_play_plan *plan)
{
    const struct sl_play_fault *fault = &plan->fault;

    switch (fault->cls) {
    case SL_VERDICT_GPU_STUCK: return fault->is_in_kernel || plan->has_starts;
    case SL_VERDICT_COMM_STUCK: return is_stuck_identifiable(plan);
    case SL_VERDICT_SLOW_RANK: return is_slow_rank_identifiable(plan);
    case SL_VERDICT_SLOW_SENDER:
    case SL_VERDICT_SLOW_RECEIVER:
    case SL_VERDICT_SLOW_LINK: return plan->has_edges && partners(plan, fault->rank, true) >= 2;
    default: return true;
    }
}

/* ---- the truth ---- */

static bool is_culprit(const struct sl_play_plan *plan, const struct sl_verdict *verdict,
                       const struct sl_object *object)
{
    const struct sl_play_fault *fault = &plan->fault;

    switch (fault->cls) {
    case SL_VERDICT_DEADLOCK: return verdict->cls == SL_VERDICT_DEADLOCK;
    case SL_VERDICT_MISMATCH: return verdict->cls == fault->cls && object->a == fault->rank;
    case SL_VERDICT_SLOW_LINK:
        return object->kind == SL_OBJECT_LINK && object->a == fault->rank &&
               object->b == fault->peer;
    case SL_VERDICT_SLOW_GROUP: return verdict->cls == SL_VERDICT_SLOW_GROUP;
    default: return object->a == fault->rank && object->kind != SL_OBJECT_PROGRAM;
    }
}

static void compare(const struct sl_play_plan *plan, const struct sl_verdicts *verdicts,
                    struct sl_trial *out)
{
    out->is_silent = true;
    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];
        bool has = is_culprit(plan, it, &it->accused);

        if (it->cls == SL_VERDICT_NOT_HUNG)
            continue;
        out->is_silent = false;
        for (uint32_t k = 0; k < it->other_count && !has; k++)
            has = is_culprit(plan, it, &it->others[k]);
        if (!has || plan->fault.cls == SL_VERDICT_NOT_HUNG) {
            out->wrong++;
            continue;
        }
        out->is_in_set = true;
        if (out->set == 0 || 1 + it->other_count < out->set)
            out->set = 1 + it->other_count;
        if (is_culprit(plan, it, &it->accused)) {
            out->is_found = true;
            out->is_class = out->is_class || it->cls == plan->fault.cls;
        }
    }
    out->is_found = out->is_found && out->wrong == 0;
}

static double processor_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int sl_trial_run(const struct sl_play_plan *plan, sl_trial_judge *judge, struct sl_trial *out)
{
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_job *job;
    double begin_s;
    int err = sl_play_job(plan, &job);

    if (err != 0)
        return err;
    *out = (struct sl_trial){.is_identifiable = sl_trial_identifiable(plan)};
    err = sl_job_seal(job);
    begin_s = processor_s();
    if (err == 0)
        err = judge(job, &verdicts);
    out->judge_s = processor_s() - begin_s;
    if (err == 0)
        compare(plan, &verdicts, out);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return err;
}

/* The shortest job in which it is found: the rules see what came until then. */
int sl_trial_time(const struct sl_play_plan *plan, sl_trial_judge *judge, struct sl_trial *out)
{
    struct sl_play_plan shorter = *plan;
    uint32_t low = plan->fault.step + 1, high = plan->steps;
    int err = sl_trial_run(plan, judge, out);

    if (err != 0 || !out->is_found || !is_slow((enum sl_verdict_class)plan->fault.cls))
        return err;
    low = low < 3 ? 3 : low;
    while (low < high) {
        struct sl_trial trial;

        shorter.steps = low + (high - low) / 2;
        err = sl_trial_run(&shorter, judge, &trial);
        if (err != 0)
            return err;
        if (trial.is_found)
            high = shorter.steps;
        else
            low = shorter.steps + 1;
    }
    out->steps = high - plan->fault.step;
    return 0;
}

/* ---- many ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void add(struct sl_trials *sum, const struct sl_trial *one, uint32_t *steps, uint32_t *timed)
{
    sum->count++;
    sum->identifiable += one->is_identifiable;
    sum->found += one->is_identifiable && one->is_found;
    sum->in_set += one->is_in_set;
    sum->wrong += one->wrong > 0;
    sum->silent += one->is_silent;
    sum->set += one->set;
    sum->judge_s_most = fmax(sum->judge_s_most, one->judge_s);
    if (one->is_identifiable && one->is_found && one->steps > 0)
        steps[(*timed)++] = one->steps;
}

int sl_trials_run(uint32_t ranks, enum sl_verdict_class cls, double strength, uint64_t seed,
                  uint32_t count, bool is_timed, sl_trial_judge *judge, struct sl_trials *out)
{
    uint32_t *steps = calloc(count + 1, sizeof(*steps)), timed = 0;
    int err = steps == NULL ? sl_fail(-ENOMEM, "no memory for %u trials", count) : 0;

    *out = (struct sl_trials){.cls = cls, .strength = strength, .ranks = ranks};
    for (uint32_t i = 0; i < count && err == 0; i++) {
        struct sl_play_plan plan;
        struct sl_trial one;

        sl_play_draw(&plan, ranks, seed + i);
        if (ranks > 2048)
            plan.steps = 12;
        if (cls != SL_VERDICT_NOT_HUNG && !sl_play_draw_fault(&plan, cls, strength))
            continue;
        err = is_timed ? sl_trial_time(&plan, judge, &one) : sl_trial_run(&plan, judge, &one);
        if (err == 0)
            add(out, &one, steps, &timed);
    }
    if (out->in_set > 0)
        out->set /= out->in_set;
    qsort(steps, timed, sizeof(*steps), by_number);
    for (unsigned i = 0; i < 3 && timed > 0; i++)
        out->steps[i] =
            steps[(size_t)(i + 1) * timed / 4 < timed ? (size_t)(i + 1) * timed / 4 : timed - 1];
    free(steps);
    return err;
}
