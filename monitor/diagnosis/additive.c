/* SPDX-License-Identifier: Apache-2.0 */
/* Medians of rows and columns in turn. */
#include "monitor/diagnosis/additive.h"
#include "core/err.h"
#include "monitor/diagnosis/expect.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define ROUNDS 3
#define SETTLED 0.002f /* an effect that moves by less is fitted */
#define SPREAD_MIN 0.01f
#define ZEROS 2 /* cells of value 0 in each median */
#define SAMPLE 65536
#define ENOUGH 256 /* cells of a row: the median of more is no better known than a tenth of noise */

struct fit {
    const struct sl_matrix *matrix;
    const float *excess;
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
    upper = sl_select(fit->scratch, count, count / 2);
    if (count % 2 != 0)
        return upper;
    lower = fit->scratch[0];
    for (uint32_t i = 1; i < count / 2; i++)
        lower = fmaxf(lower, fit->scratch[i]);
    return lower >= 0 ? lower : upper <= 0 ? upper : 0;
}

/* Every so manieth of a row's cells. Odd: two paths of each pair do not all fall out. */
static uint32_t stride_of(uint32_t cells)
{
    uint32_t stride = cells / ENOUGH;

    return stride > 1 ? stride | 1 : 1;
}

/* The most that a sender's effect moved by. */
static float fit_rows(struct fit *fit)
{
    const struct sl_matrix *matrix = fit->matrix;
    float most = 0;

    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        uint32_t stride = stride_of(matrix->first[r + 1] - matrix->first[r]), known = 0;
        float effect;

        for (uint32_t i = matrix->first[r]; i < matrix->first[r + 1]; i += stride)
            if (!isnan(fit->excess[i]))
                fit->scratch[known++] = fit->excess[i] - fit->out->rx[matrix->dst[i]];
        effect = with_zeros(fit, known);
        most = fmaxf(most, fabsf(effect - fit->out->tx[r]));
        fit->out->tx[r] = effect;
    }
    return most;
}

static void fit_columns(struct fit *fit)
{
    const struct sl_matrix *matrix = fit->matrix;

    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        uint32_t stride = stride_of(matrix->column_first[r + 1] - matrix->column_first[r]);
        uint32_t known = 0;

        for (uint32_t i = matrix->column_first[r]; i < matrix->column_first[r + 1]; i += stride) {
            uint32_t cell = matrix->column[i];

            if (!isnan(fit->excess[cell]))
                fit->scratch[known++] = fit->excess[cell] - fit->out->tx[matrix->cells[cell].src];
        }
        fit->out->rx[r] = with_zeros(fit, known);
    }
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

int sl_additive_fit(const struct sl_matrix *matrix, const float *excess, struct sl_additive *out)
{
    size_t ranks = (size_t)matrix->rank_count + 1, cells = (size_t)matrix->count + 1;
    struct fit fit = {.matrix = matrix, .excess = excess, .out = out};
    size_t room = ranks > cells ? ranks : cells;

    *out = (struct sl_additive){.noise = SPREAD_MIN};
    out->tx = calloc(ranks, sizeof(float));
    out->rx = calloc(ranks, sizeof(float));
    out->link = reallocarray(NULL, cells, sizeof(float));
    fit.scratch = reallocarray(NULL, room + ZEROS, sizeof(float));
    if (out->tx == NULL || out->rx == NULL || out->link == NULL || fit.scratch == NULL) {
        free(fit.scratch);
        return sl_fail(-ENOMEM, "no memory to fit a matrix of %u cells", matrix->count);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        float moved = fit_rows(&fit);

        if (round > 0 && moved < SETTLED)
            break;
        fit_columns(&fit);
    }
    take_residuals(&fit);
    free(fit.scratch);
    return 0;
}

void sl_additive_fini(struct sl_additive *fit)
{
    free(fit->tx);
    free(fit->rx);
    free(fit->link);
    *fit = (struct sl_additive){.noise = 0};
}
