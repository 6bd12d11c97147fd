/* SPDX-License-Identifier: Apache-2.0 */
/* How far a part stands out of those of its kind, and what that is worth as evidence. */
#include "monitor/diagnosis/comm_inside.h"
#include "monitor/diagnosis/expect.h"

#include <math.h>
#include <stdlib.h>

#define KEPT 0.2        /* of the stake, whatever comes */
#define LOWER 2.0       /* z below it is no sign */
#define UPPER 1000.0    /* nor does more than this count for more */
#define LEAST 2.9       /* messages that an alarm needs more than */
#define MESSAGES 1000.0 /* that are independent at most */
#define SPREAD_MIN 0.01 /* between parts, of many */
#define GROUPS_MIN 3    /* that can be compared */
#define SAMPLE 65536    /* cells for the spread between groups */

/* ---- the bet ---- */

/* Student's density with 6 degrees of freedom. */
static double heavy(double z)
{
    double base = 1 + z * z / 6;

    return 0.3827 / (base * base * base * sqrt(base));
}

static double gaussian(double z)
{
    return 0.3989 * exp(-z * z / 2);
}

static double bet(double z, double messages, double looks)
{
    double independent = fmin(pow(fmax(messages, 1), looks), MESSAGES);
    double rare = 1 / (independent * independent), healthy, slow;

    if (!(z > LOWER))
        return log(KEPT);
    z = fmin(z, UPPER);
    healthy = (1 - rare) * gaussian(z) + rare * heavy(z);
    slow = 1 / (z * (log(UPPER / LOWER) + 1.0 / 6));
    return log(KEPT + (1 - KEPT) * slow / healthy);
}

/* ---- what healthy parts differ by ---- */

/* Spreads of few are not known well. */
static double widened(double spread, double count)
{
    return fmax(spread, SPREAD_MIN * (1 + 4 / count)) * (1 + 4 / count);
}

static enum sl_family family_of(enum sl_element_kind kind)
{
    switch (kind) {
    case SL_ELEMENT_HOST_TX:
    case SL_ELEMENT_HOST_RX:
    case SL_ELEMENT_HOST: return SL_FAMILY_HOST;
    case SL_ELEMENT_RAIL: return SL_FAMILY_RAIL;
    case SL_ELEMENT_PLANE: return SL_FAMILY_PLANE;
    default: return SL_FAMILY_LEAF;
    }
}

struct labelled {
    uint32_t group;
    float excess;
};

static int by_label(const void *a, const void *b)
{
    const struct labelled *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->excess < y->excess ? -1 : x->excess > y->excess;
}

/* A sample of cells with the group that they leave (or come to). */
static size_t label(const struct sl_comm_view *view, enum sl_element_kind kind,
                    struct labelled *out)
{
    bool is_inwards = kind == SL_ELEMENT_HOST_RX || kind == SL_ELEMENT_LEAF_RX;
    uint32_t stride = view->matrix->count / SAMPLE + 1;
    size_t count = 0;

    for (uint32_t i = 0; i < view->matrix->count; i += stride) {
        const struct sl_matrix_cell *cell = &view->matrix->cells[i];
        uint32_t group = sl_place_of(view->places, family_of(kind),
                                     is_inwards ? cell->dst : cell->src, cell->path);

        if (group != SL_PLACE_NONE && !isnan(view->excess[i]))
            out[count++] = (struct labelled){group, view->excess[i]};
    }
    return count;
}

/* Between the medians of groups. NAN: they are too few. */
static double find_spread(struct sl_comm_view *view, enum sl_element_kind kind)
{
    struct labelled *list = reallocarray(NULL, SAMPLE + 2, sizeof(*list));
    size_t count, groups = 0;

    if (list == NULL) {
        view->is_short = true;
        return NAN;
    }
    count = label(view, kind, list);
    qsort(list, count, sizeof(*list), by_label);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i; next < count && list[next].group == list[i].group;)
            next++;
        view->scratch[groups++] = list[i + (next - i) / 2].excess;
    }
    free(list);
    return groups < GROUPS_MIN ? NAN : widened(sl_spread_of(view->scratch, groups), (double)groups);
}

/* *parts: of the kind. */
static double spread_of(struct sl_comm_view *view, enum sl_element_kind kind, double *parts)
{
    const struct sl_additive *fit = &view->fit;

    switch (kind) {
    case SL_ELEMENT_LINK:
    case SL_ELEMENT_LANE: *parts = view->matrix->count; return widened(fit->noise, *parts);
    case SL_ELEMENT_TX:
    case SL_ELEMENT_NIC_TX:
        *parts = (double)fit->tx_count * view->places->path_count;
        return widened(fit->tx_spread, fit->tx_count);
    case SL_ELEMENT_RX:
    case SL_ELEMENT_NIC_RX:
        *parts = (double)fit->rx_count * view->places->path_count;
        return widened(fit->rx_spread, fit->rx_count);
    case SL_ELEMENT_NODE:
    case SL_ELEMENT_NIC:
        *parts = fmax(fit->tx_count, fit->rx_count) * view->places->path_count;
        return widened(fmaxf(fit->tx_spread, fit->rx_spread), fit->tx_count);
    case SL_ELEMENT_SPINE:
        *parts = (double)view->places->route_count;
        return widened(fit->tx_spread, fit->tx_count);
    default:
        *parts = view->places->counts[family_of(kind)];
        if (view->group_spread[kind] == 0)
            view->group_spread[kind] = find_spread(view, kind);
        return view->group_spread[kind];
    }
}

static double threshold_of(const struct sl_comm_view *view, double parts)
{
    const struct sl_comm_options *options = view->options;

    return log(fmax(parts, 1) * SL_ELEMENT_KINDS * 86400 * options->node_days /
               (view->nodes * options->window_s));
}

void sl_comm_weigh(struct sl_comm_view *view, const struct sl_ambiguity *ambiguity,
                   const struct sl_candidate *candidate, struct sl_comm_weight *out)
{
    const uint32_t *cells = ambiguity->slow + candidate->first;
    double parts, spread = spread_of(view, candidate->element.kind, &parts), z, middle, noise;

    *out = (struct sl_comm_weight){.spread = spread, .threshold = threshold_of(view, parts)};
    for (uint32_t i = 0; i < candidate->hot; i++) {
        const struct sl_matrix_cell *cell = &view->matrix->cells[cells[i]];

        out->messages += cell->messages;
        out->bytes += cell->bytes;
        out->lost += cell->lost;
        out->seconds += cell->seconds;
        view->scratch[i] = view->excess[cells[i]];
    }
    middle = sl_median_of(view->scratch, candidate->hot);
    out->ratio = exp(middle);
    noise = widened(view->fit.noise, view->matrix->count) * 1.2533 / sqrt(candidate->hot);
    z = (middle - log1p(view->options->margin)) / fmax(spread, noise);
    out->evidence = isnan(spread) ? 0
                                  : fmin(bet(z, out->messages, view->options->looks),
                                         out->threshold / LEAST * fmax(out->messages, 1));
}
