/* SPDX-License-Identifier: Apache-2.0 */
/* One made-up job, judged. */
#include "monitor/simulate/trial.h"
#include "core/err.h"
#include "monitor/diagnosis/lift.h"
#include "monitor/simulate/calls.h"
#include "monitor/simulate/play.h"
#include "monitor/simulate/wire.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PEERS_LEAST 3
#define HISTORY_LEAST 20 /* steps */
#define SPREADS 4.0
#define GROUPS_LEAST 4 /* rails, planes */

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

/* ---- the truth ---- */

/* A leaf, rail, plane or spine by its name. */
static bool is_group(const struct sl_play_plan *plan, const struct sl_job *job,
                     const struct sl_object *object)
{
    static const struct {
        const char *name;
        uint8_t kind;
    } groups[SL_PLAY_GROUPS] = {[SL_PLAY_LEAF] = {"leaf", SL_OBJECT_SWITCH},
                                [SL_PLAY_RAIL] = {"rail", SL_OBJECT_RAIL},
                                [SL_PLAY_PLANE] = {"plane", SL_OBJECT_PLANE},
                                [SL_PLAY_SPINE] = {"spine", SL_OBJECT_SWITCH}};
    char name[32];

    snprintf(name, sizeof(name), "%s%u", groups[plan->fault.group].name, plan->fault.rank);
    return object->kind == groups[plan->fault.group].kind &&
           strcmp(sl_job_string(job, object->name), name) == 0;
}

static bool is_culprit(const struct sl_play_plan *plan, const struct sl_job *job,
                       enum sl_verdict_class cls, const struct sl_object *object)
{
    const struct sl_play_fault *fault = &plan->fault;

    switch (fault->cls) {
    case SL_VERDICT_DEADLOCK: return cls == SL_VERDICT_DEADLOCK;
    case SL_VERDICT_MISMATCH: return cls == SL_VERDICT_MISMATCH && object->a == fault->rank;
    case SL_VERDICT_SLOW_LINK:
        return object->kind == SL_OBJECT_LINK && object->a == fault->rank &&
               object->b == fault->peer;
    case SL_VERDICT_SLOW_GROUP: return is_group(plan, job, object);
    default: return object->a == fault->rank && object->kind != SL_OBJECT_PROGRAM;
    }
}

/* ---- what can be known of messages ---- */

/* Does the element cover those cells of the matrix that are slow, and no others? */
static bool is_as_slow(const struct sl_play_plan *plan, const struct sl_places *places,
                       const struct sl_element *element)
{
    for (uint32_t i = 0; i < places->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &places->matrix->cells[i];

        if (sl_element_covers(places, element, cell->src, cell->dst, cell->path) !=
            sl_play_wire_is_hit(plan, cell->src, cell->dst))
            return false;
    }
    return true;
}

/* Rails or planes of which so few have messages are kinds of hardware: one may be older. */
static bool is_kind(const struct sl_play_plan *plan, const struct sl_places *places)
{
    const struct sl_play_fault *fault = &plan->fault;
    enum sl_family family = fault->group == SL_PLAY_RAIL ? SL_FAMILY_RAIL : SL_FAMILY_PLANE;

    return fault->cls == SL_VERDICT_SLOW_GROUP &&
           (fault->group == SL_PLAY_RAIL || fault->group == SL_PLAY_PLANE) &&
           places->counts[family] < GROUPS_LEAST;
}

/* Whatever explains the slow cells passes the first of them: all of that is the culprit. */
static bool is_alone(const struct sl_play_plan *plan, const struct sl_job *job,
                     const struct sl_places *places)
{
    const struct sl_matrix *matrix = places->matrix;
    struct sl_element elements[SL_ELEMENTS_MAX];
    unsigned count = 0;
    bool is_any = false;

    if (is_kind(plan, places))
        return false;
    for (uint32_t i = 0; i < matrix->count && count == 0; i++)
        if (sl_play_wire_is_hit(plan, matrix->cells[i].src, matrix->cells[i].dst))
            count = sl_elements_of(places, matrix->cells[i].src, matrix->cells[i].dst,
                                   matrix->cells[i].path, elements);
    for (unsigned k = 0; k < count; k++) {
        struct sl_object object = sl_element_object(places, &elements[k]);
        bool is_it = is_culprit(plan, job, sl_element_class(&elements[k]), &object);

        if (!is_as_slow(plan, places, &elements[k]))
            continue;
        if (!is_it)
            return false;
        is_any = true;
    }
    return is_any;
}

static bool is_message_identifiable(const struct sl_play_plan *plan, const struct sl_job *job)
{
    struct sl_matrix matrix;
    struct sl_places places = {.path_count = 0};
    bool is_it = false;

    if (sl_matrix_build(job, SL_JOB_WAIT_WIRE, SL_MATRIX_REMOTE, &matrix) == 0 &&
        sl_places_find(job, &matrix, &places) == 0)
        is_it = is_alone(plan, job, &places);
    sl_places_fini(&places);
    sl_matrix_fini(&matrix);
    return is_it;
}

bool sl_trial_identifiable(const struct sl_play_plan *plan, const struct sl_job *job)
{
    const struct sl_play_fault *fault = &plan->fault;

    switch (fault->cls) {
    case SL_VERDICT_GPU_STUCK: return fault->is_in_kernel || plan->has_starts;
    case SL_VERDICT_COMM_STUCK: return is_stuck_identifiable(plan);
    case SL_VERDICT_SLOW_RANK: return is_slow_rank_identifiable(plan);
    case SL_VERDICT_SLOW_SENDER:
    case SL_VERDICT_SLOW_RECEIVER:
    case SL_VERDICT_SLOW_LINK:
    case SL_VERDICT_SLOW_GROUP: return plan->has_edges && is_message_identifiable(plan, job);
    default: return true;
    }
}

/* ---- the verdicts ---- */

static void compare(const struct sl_play_plan *plan, const struct sl_job *job,
                    const struct sl_verdicts *verdicts, struct sl_trial *out)
{
    out->is_silent = true;
    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];
        enum sl_verdict_class cls = (enum sl_verdict_class)it->cls;
        bool has = is_culprit(plan, job, cls, &it->accused);

        if (it->cls == SL_VERDICT_NOT_HUNG)
            continue;
        out->is_silent = false;
        for (uint32_t k = 0; k < it->other_count && !has; k++)
            has = is_culprit(plan, job, cls, &it->others[k]);
        if (!has || plan->fault.cls == SL_VERDICT_NOT_HUNG) {
            out->wrong++;
            continue;
        }
        out->is_in_set = true;
        if (out->set == 0 || 1 + it->other_count < out->set)
            out->set = 1 + it->other_count;
        if (is_culprit(plan, job, cls, &it->accused)) {
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
    err = sl_job_seal(job);
    *out = (struct sl_trial){.is_identifiable = err == 0 && sl_trial_identifiable(plan, job)};
    begin_s = processor_s();
    if (err == 0)
        err = judge(job, &verdicts);
    out->judge_s = processor_s() - begin_s;
    if (err == 0)
        compare(plan, job, &verdicts, out);
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
