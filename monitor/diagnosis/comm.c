/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of slow communication: what is expected, what is beyond it, which parts explain it. */
#include "monitor/diagnosis/comm.h"
#include "core/err.h"
#include "monitor/diagnosis/comm_inside.h"
#include "monitor/diagnosis/expect.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CELLS_MIN 4      /* that can be compared */
#define ROUNDS 3         /* a slow rank below a slow leaf is found in the second */
#define NOISE 3.5f       /* spreads up to which a cell is like its row and column */
#define RANKS_PER_NODE 8 /* where hosts are not known */
#define KIND_MIN 3       /* links of one speed that are no faults but another kind of link, */
#define KIND_SHARE 8     /* if they are an eighth of all */
#define KIND_APART 0.1   /* by which they differ at most: a logarithm */

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
}

/* ---- nodes ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* That ranks with cells are on. 0: no memory. */
static double count_nodes(const struct sl_job *job, const struct sl_matrix *matrix)
{
    uint32_t *hosts = reallocarray(NULL, (size_t)job->rank_count + 1, sizeof(*hosts));
    uint32_t known = 0, others = 0, nodes = 0;

    if (hosts == NULL)
        return 0;
    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        if (matrix->first[r] == matrix->first[r + 1] &&
            matrix->column_first[r] == matrix->column_first[r + 1])
            continue;
        if (job->ranks[r].host != 0)
            hosts[known++] = job->ranks[r].host;
        else
            others++;
    }
    qsort(hosts, known, sizeof(*hosts), by_number);
    for (uint32_t i = 0; i < known; i++)
        nodes += i == 0 || hosts[i] != hosts[i - 1];
    free(hosts);
    others = (others + RANKS_PER_NODE - 1) / RANKS_PER_NODE;
    return fmax(1, nodes + others);
}

/* ---- cells that are slow ---- */

/* Noise is taken off: a cell is as slow as its sender and receiver together, unless it is far from
 * that. */
static uint32_t find_hot(const struct sl_comm_view *view, uint8_t *hot)
{
    float limit = (float)log1p(view->options->margin), far = NOISE * view->fit.noise;
    const struct sl_matrix *matrix = view->matrix;
    uint32_t count = 0;

    for (uint32_t r = 0; r < matrix->rank_count; r++)
        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i++) {
            float link = view->fit.link[i], value = view->fit.tx[r] + view->fit.rx[matrix->dst[i]];

            value += fabsf(link) > far ? link : 0;
            /* What an earlier round has explained is no longer in the excess. */
            hot[i] = value > limit && view->excess[i] > limit / 2;
            count += hot[i];
        }
    return count;
}

/* A receiver's GPU memory is nobody else's. */
static void keep_receivers(struct sl_ambiguity *ambiguity)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < ambiguity->candidate_count; i++) {
        uint8_t kind = ambiguity->candidates[i].element.kind;

        if (kind == SL_ELEMENT_RX || kind == SL_ELEMENT_NIC_RX || kind == SL_ELEMENT_HOST_RX)
            ambiguity->candidates[kept++] = ambiguity->candidates[i];
    }
    ambiguity->candidate_count = kept;
}

/* Which have the evidence for a verdict. */
static bool find_strong(struct sl_comm_view *view, struct sl_ambiguity *ambiguity)
{
    bool is_any = false;

    for (uint32_t i = 0; i < ambiguity->candidate_count; i++) {
        struct sl_comm_weight weight;

        sl_comm_weigh(view, ambiguity, &ambiguity->candidates[i], &weight);
        ambiguity->candidates[i].is_strong = weight.evidence >= weight.threshold;
        is_any = is_any || ambiguity->candidates[i].is_strong;
    }
    return is_any;
}

/* ---- links that are another kind of link ---- */

static bool is_link(const struct sl_ambiguity *ambiguity, const struct sl_comm_fault *fault)
{
    uint8_t kind = ambiguity->candidates[fault->set[0]].element.kind;

    return kind == SL_ELEMENT_LINK || kind == SL_ELEMENT_LANE;
}

/* Several single links as slow as each other, and an eighth of all: longer ways through the
 * network, or older cables; no faults. */
static bool are_kind(struct sl_comm_view *view, const struct sl_ambiguity *ambiguity)
{
    double least = INFINITY, most = 0;
    uint32_t links = 0;

    for (uint32_t i = 0; i < ambiguity->fault_count; i++) {
        struct sl_comm_weight weight;

        if (!is_link(ambiguity, &ambiguity->faults[i]))
            continue;
        sl_comm_weigh(view, ambiguity, &ambiguity->candidates[ambiguity->faults[i].set[0]],
                      &weight);
        links++;
        least = fmin(least, log(weight.ratio));
        most = fmax(most, log(weight.ratio));
    }
    return links >= KIND_MIN && links >= view->matrix->count / KIND_SHARE &&
           most - least <= fmax(KIND_APART, 4 * view->fit.noise);
}

/* ---- verdicts ---- */

/* Ranks that a fault touches: no probe goes to them to find out about another. */
static void mark_bad(const struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                     uint8_t *is_bad)
{
    for (uint32_t i = 0; i < ambiguity->candidate_count; i++) {
        const struct sl_candidate *it = &ambiguity->candidates[i];

        if (!it->is_strong)
            continue;
        for (uint32_t k = 0; k < it->hot; k++) {
            is_bad[view->matrix->cells[ambiguity->slow[it->first + k]].src] |= 1;
            is_bad[view->matrix->cells[ambiguity->slow[it->first + k]].dst] |= 1;
        }
    }
}

/* Who only receives what a slow sender sends is a good end of a probe: those ranks alone are bad
 * that an accused part names, or all of whose cells are slow. */
static void clear_victims(const struct sl_comm_view *view, const uint8_t *hot, uint8_t *is_bad)
{
    const struct sl_matrix *matrix = view->matrix;

    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        uint32_t slow = 0, all = matrix->first[r + 1] - matrix->first[r] +
                                 matrix->column_first[r + 1] - matrix->column_first[r];

        if (!is_bad[r])
            continue;
        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i++)
            slow += hot[i];
        for (uint32_t i = matrix->column_first[r]; i < matrix->column_first[r + 1]; i++)
            slow += hot[matrix->column[i]];
        is_bad[r] = slow * 4 > all;
    }
}

static int give_verdicts(struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                         const uint8_t *hot)
{
    uint8_t *is_bad = calloc((size_t)view->matrix->rank_count + 1, sizeof(*is_bad));
    bool skips_links = are_kind(view, ambiguity);
    int err = 0;

    if (is_bad == NULL)
        return no_memory();
    mark_bad(view, ambiguity, is_bad);
    clear_victims(view, hot, is_bad);
    for (uint32_t i = 0; i < ambiguity->fault_count && err == 0; i++) {
        const struct sl_comm_fault *fault = &ambiguity->faults[i];
        struct sl_comm_weight weight, best;

        if (skips_links && is_link(ambiguity, fault))
            continue;
        sl_comm_weigh(view, ambiguity, &ambiguity->candidates[fault->set[0]], &best);
        /* The members of a set explain the same: the one with the best evidence speaks. */
        for (uint32_t k = 1; k < fault->set_count; k++) {
            sl_comm_weigh(view, ambiguity, &ambiguity->candidates[fault->set[k]], &weight);
            if (weight.evidence - weight.threshold > best.evidence - best.threshold) {
                best.evidence = weight.evidence;
                best.threshold = weight.threshold;
            }
        }
        err = sl_comm_say(view, ambiguity, fault, &best, is_bad);
    }
    free(is_bad);
    return err;
}

/* What faults explain goes out of the excess. True: something did. */
static bool take_off(struct sl_comm_view *view, const struct sl_ambiguity *ambiguity)
{
    for (uint32_t i = 0; i < ambiguity->fault_count; i++) {
        const struct sl_candidate *it = &ambiguity->candidates[ambiguity->faults[i].set[0]];
        struct sl_comm_weight weight;

        sl_comm_weigh(view, ambiguity, it, &weight);
        for (uint32_t k = 0; k < it->hot; k++) {
            uint32_t cell = ambiguity->slow[it->first + k];

            view->excess[cell] -= (float)log(weight.ratio);
            view->fit.link[cell] -= (float)log(weight.ratio);
        }
    }
    return ambiguity->fault_count > 0;
}

/* *goes_on: something was found, and there may be more below it. */
static int run_round(struct sl_comm_view *view, uint8_t *hot, bool *goes_on)
{
    struct sl_ambiguity ambiguity;
    int err;

    *goes_on = false;
    if (find_hot(view, hot) == 0)
        return 0;
    err = sl_ambiguity_find(view->places, hot, &ambiguity);
    if (err == 0 && view->state == SL_JOB_WAIT_FLUSH)
        keep_receivers(&ambiguity);
    if (err == 0 && find_strong(view, &ambiguity)) {
        err = sl_ambiguity_cover(&ambiguity);
        if (err == 0)
            err = give_verdicts(view, &ambiguity, hot);
        if (err == 0)
            *goes_on = take_off(view, &ambiguity);
    }
    sl_ambiguity_fini(&ambiguity);
    if (err == 0 && view->is_short)
        err = no_memory();
    return err;
}

/* A message that hangs is no slow one, and its link has a verdict of its own. */
static void take_hangs_off(struct sl_comm_view *view)
{
    const struct sl_matrix *matrix = view->matrix;

    for (uint32_t k = 0; k < view->verdicts->count; k++) {
        const struct sl_verdict *it = &view->verdicts->list[k];

        if (it->cls != SL_VERDICT_COMM_STUCK || it->accused.kind != SL_OBJECT_LINK ||
            it->accused.a >= matrix->rank_count)
            continue;
        for (uint32_t i = matrix->first[it->accused.a]; i < matrix->first[it->accused.a + 1]; i++)
            if (matrix->dst[i] == it->accused.b && !isnan(view->excess[i]))
                view->excess[i] = 0;
    }
}

static int judge(struct sl_comm_view *view)
{
    size_t cells = (size_t)view->matrix->count + 1;
    uint8_t *hot = calloc(cells, sizeof(*hot));
    bool goes_on = true;
    int err = 0;

    view->excess = sl_matrix_list(cells, sizeof(*view->excess));
    view->scratch = reallocarray(NULL, cells, sizeof(*view->scratch));
    view->nodes = count_nodes(view->job, view->matrix);
    if (hot == NULL || view->excess == NULL || view->scratch == NULL || view->nodes == 0)
        err = no_memory();
    if (err == 0)
        err = sl_expect(view->matrix, view->places, view->excess, &view->tiers);
    if (err == 0)
        take_hangs_off(view);
    if (err == 0)
        err = sl_additive_fit(view->matrix, view->excess, &view->fit);
    for (view->round = 0; view->round < ROUNDS && goes_on && err == 0; view->round++)
        err = run_round(view, hot, &goes_on);
    sl_additive_fini(&view->fit);
    free(view->excess);
    free(view->scratch);
    free(hot);
    return err;
}

/* *others and *flushes: are there edges of the other side, and such that waited for a flush? */
static int look_at(const struct sl_job *job, const struct sl_comm_options *options,
                   enum sl_job_wait state, enum sl_matrix_side side, struct sl_verdicts *verdicts,
                   bool *others, bool *flushes)
{
    struct sl_places places = {.path_count = 0};
    struct sl_comm_view view = {
        .job = job, .options = options, .verdicts = verdicts, .state = state};
    struct sl_matrix matrix;
    int err = sl_matrix_build(job, state, side, &matrix);

    *others = matrix.others > 0;
    *flushes = matrix.flushes > 0;
    if (err == 0 && matrix.count >= CELLS_MIN) {
        err = sl_places_find(job, &matrix, &places);
        view.matrix = &matrix;
        view.places = &places;
        if (err == 0)
            err = judge(&view);
    }
    sl_places_fini(&places);
    sl_matrix_fini(&matrix);
    return err;
}

int sl_comm_find(const struct sl_job *job, const struct sl_comm_options *options,
                 struct sl_verdicts *verdicts)
{
    bool has_local, has_flush, unused;
    int err =
        look_at(job, options, SL_JOB_WAIT_WIRE, SL_MATRIX_REMOTE, verdicts, &has_local, &has_flush);

    if (err == 0 && has_local)
        err = look_at(job, options, SL_JOB_WAIT_WIRE, SL_MATRIX_LOCAL, verdicts, &unused, &unused);
    if (err == 0 && has_flush)
        err =
            look_at(job, options, SL_JOB_WAIT_FLUSH, SL_MATRIX_REMOTE, verdicts, &unused, &unused);
    return err;
}
