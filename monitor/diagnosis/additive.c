/* SPDX-License-Identifier: Apache-2.0 */
/* Medians of rows and columns in turn. */
#include "monitor/diagnosis/additive.h"
#include "core/err.h"
#include "monitor/diagnosis/expect.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 3
#define SETTLED 0.002f /* an effect that moves by less is fitted */
#define SPREAD_MIN 0.01f
#define ZEROS 2 /* cells of value 0 in each median */
#define SAMPLE 65536
#define ENOUGH 256 /* cells of a row: the median of more is no better known than a tenth of noise */

struct sample {
    uint32_t peer; /* the other end */
    float excess;
};

struct samples {
    uint32_t *first, *count; /* of rank r: list[first[r]] to list[first[r] + count[r]] */
    struct sample *list;
};

struct fit {
    const struct sl_matrix *matrix;
    const float *excess;
    struct samples rows, columns;
    float *scratch;
    struct sl_additive *out;
};

/* The median of what is known and of the zeros: of the middle two the one that is nearer to 0. */
static float with_zeros(struct fit *fit, uint32_t known)
{
    uint32_t count = known + ZEROS;
    float upper, lower;

    if (known == 0)
        return 0;
    for (unsigned k = 0; k < ZEROS; k++)
        fit->scratch[known + k] = 0;
    sl_middle_of(fit->scratch, count, &lower, &upper);
    return lower >= 0 ? lower : upper <= 0 ? upper : 0;
}

/* Every so manieth of a row's cells. Odd: two paths of each pair do not all fall out. */
static uint32_t stride_of(uint32_t cells)
{
    uint32_t stride = cells / ENOUGH;

    return stride > 1 ? stride | 1 : 1;
}

/* ---- the cells that are fitted ---- */

/* Those of rows lie together, and those of columns: rounds go through them in order, where columns
 * of the matrix itself are a line of the cache for each cell. */
static int new_samples(const uint32_t *first, uint32_t rank_count, struct samples *out)
{
    uint32_t room = 0;

    out->first = reallocarray(NULL, (size_t)rank_count + 1, sizeof(*out->first));
    out->count = calloc((size_t)rank_count + 1, sizeof(*out->count));
    if (out->first == NULL || out->count == NULL)
        return -ENOMEM;
    for (uint32_t r = 0; r < rank_count; r++) {
        uint32_t cells = first[r + 1] - first[r];

        out->first[r] = room;
        room += cells / stride_of(cells) + 1;
    }
    out->list = sl_matrix_list(room, sizeof(*out->list));
    return out->list == NULL ? -ENOMEM : 0;
}

static void free_samples(struct samples *samples)
{
    free(samples->first);
    free(samples->count);
    free(samples->list);
}

static void add_sample(struct samples *samples, uint32_t rank, uint32_t peer, float excess)
{
    if (!isnan(excess))
        samples->list[samples->first[rank] + samples->count[rank]++] =
            (struct sample){.peer = peer, .excess = excess};
}

/* left: room by rank. A row at a time: its cells lie together, and those of a column are reached by
 * a count of how many are left until its next one. */
static void take_samples(struct fit *fit, uint32_t *left)
{
    const struct sl_matrix *matrix = fit->matrix;

    memset(left, 0, matrix->rank_count * sizeof(*left));
    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        uint32_t stride = stride_of(matrix->first[r + 1] - matrix->first[r]);

        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i += stride)
            add_sample(&fit->rows, r, matrix->dst[i], fit->excess[i]);
        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i++) {
            uint32_t dst = matrix->dst[i];

            if (left[dst]-- > 0)
                continue;
            left[dst] = stride_of(matrix->column_first[dst + 1] - matrix->column_first[dst]) - 1;
            add_sample(&fit->columns, dst, r, fit->excess[i]);
        }
    }
}

/* The most that an effect moved by. others: of the peers. */
static float fit_effects(struct fit *fit, const struct samples *samples, const float *others,
                         float *effects)
{
    float most = 0;

    for (uint32_t r = 0; r < fit->matrix->rank_count; r++) {
        const struct sample *list = samples->list + samples->first[r];
        float effect;

        for (uint32_t i = 0; i < samples->count[r]; i++)
            fit->scratch[i] = list[i].excess - others[list[i].peer];
        effect = with_zeros(fit, samples->count[r]);
        most = fmaxf(most, fabsf(effect - effects[r]));
        effects[r] = effect;
    }
    return most;
}

/* Between those that have a cell. */
static float spread_between(struct fit *fit, const float *effects, const uint32_t *first,
                            uint32_t *count)
{
    *count = 0;
    for (uint32_t r = 0; r < fit->matrix->rank_count; r++)
        if (first[r] < first[r + 1])
            fit->scratch[(*count)++] = effects[r];
    return fmaxf(SPREAD_MIN, sl_spread_of(fit->scratch, *count));
}

static void take_residuals(struct fit *fit)
{
    const struct sl_matrix *matrix = fit->matrix;
    uint32_t stride = matrix->count / SAMPLE + 1, taken = 0;
    struct sl_additive *out = fit->out;

    for (uint32_t r = 0; r < matrix->rank_count; r++)
        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i++)
            out->link[i] = fit->excess[i] - out->tx[r] - out->rx[matrix->dst[i]];
    for (uint32_t i = 0; i < matrix->count; i += stride)
        if (!isnan(out->link[i]))
            fit->scratch[taken++] = out->link[i];
    out->noise = fmaxf(SPREAD_MIN, sl_spread_of(fit->scratch, taken));
    out->tx_spread = spread_between(fit, out->tx, matrix->first, &out->tx_count);
    out->rx_spread = spread_between(fit, out->rx, matrix->column_first, &out->rx_count);
}

static int fit_all(struct fit *fit)
{
    const struct sl_matrix *matrix = fit->matrix;
    size_t ranks = (size_t)matrix->rank_count + 1, cells = (size_t)matrix->count + 1;
    uint32_t *left = reallocarray(NULL, ranks, sizeof(*left));
    struct sl_additive *out = fit->out;

    out->tx = calloc(ranks, sizeof(float));
    out->rx = calloc(ranks, sizeof(float));
    out->link = sl_matrix_list(cells, sizeof(float));
    fit->scratch = reallocarray(NULL, (ranks > cells ? ranks : cells) + ZEROS, sizeof(float));
    if (left == NULL || out->tx == NULL || out->rx == NULL || out->link == NULL ||
        fit->scratch == NULL || new_samples(matrix->first, matrix->rank_count, &fit->rows) != 0 ||
        new_samples(matrix->column_first, matrix->rank_count, &fit->columns) != 0) {
        free(left);
        return -ENOMEM;
    }
    take_samples(fit, left);
    free(left);
    for (unsigned round = 0; round < ROUNDS; round++) {
        float moved = fit_effects(fit, &fit->rows, out->rx, out->tx);

        if (round > 0 && moved < SETTLED)
            break;
        fit_effects(fit, &fit->columns, out->tx, out->rx);
    }
    take_residuals(fit);
    return 0;
}

int sl_additive_fit(const struct sl_matrix *matrix, const float *excess, struct sl_additive *out)
{
    struct fit fit = {.matrix = matrix, .excess = excess, .out = out};
    int err;

    *out = (struct sl_additive){.noise = SPREAD_MIN};
    err = fit_all(&fit);
    free_samples(&fit.rows);
    free_samples(&fit.columns);
    free(fit.scratch);
    return err == 0 ? 0 : sl_fail(err, "no memory to fit a matrix of %u cells", matrix->count);
}

void sl_additive_fini(struct sl_additive *fit)
{
    free(fit->tx);
    free(fit->rx);
    free(fit->link);
    *fit = (struct sl_additive){.noise = 0};
}
