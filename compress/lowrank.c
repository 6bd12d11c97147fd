/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a low-rank approximation by power iteration. */
#include "compress/lowrank.h"

#include "compress/elements.h"
#include "compress/philox.h"
#include "compress/tree.h"
#include "core/err.h"

#define LANES SL_TREE_LANES
#define COLUMNS                                                                                    \
    1024 /* of a row of M that are dealt with together, so that they stay in the cache */

/* What is left of a column after those before it are taken out, and is mere rounding. */
#define DEPENDENT 1e-6

bool sl_lowrank_pays(const struct sl_lowrank *l, double times)
{
    return ((double)l->rows + (double)l->columns) * l->rank * times <
           (double)l->rows * (double)l->columns;
}

/* Whether a column cannot be multiplied with any use. */
static bool is_useless(const float *x, size_t count)
{
    uint32_t any = 0, wild = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = sl_f32_bits(x[i]) & SL_BITS_ABS;

        any |= magnitude;
        wild |= magnitude >= SL_BITS_INF;
    }
    return any == 0 || wild;
}

uint32_t sl_lowrank_refill(const struct sl_lowrank *l, uint64_t seed, uint32_t stream,
                           uint32_t step, float *q)
{
    uint32_t drawn = 0;

    for (uint32_t c = 0; c < l->rank; c++) {
        float *column = q + c * l->columns;

        if (!is_useless(column, l->columns))
            continue;
        for (size_t i = 0; i < l->columns; i++) {
            uint32_t u = sl_philox_16(c * l->columns + i, stream, step, seed);

            column[i] = ((float)u - 32767.5f) * 0x1p-15f;
        }
        drawn++;
    }
    return drawn;
}

/* Products of one row of M with each column of Q. */
static void row_left(const struct sl_lowrank *l, const float *row, const float *q, float *p)
{
    for (uint32_t c = 0; c < l->rank; c++) {
        const float *column = q + c * l->columns;
        float lanes[LANES] = {0}, sum;
        size_t j = 0;

        for (; j + LANES <= l->columns; j += LANES)
            for (unsigned i = 0; i < LANES; i++)
                lanes[i] += row[j + i] * column[j + i];
        for (unsigned i = 0; j + i < l->columns; i++)
            lanes[i] += row[j + i] * column[j + i];
        sum = lanes[0];
        for (unsigned i = 1; i < LANES; i++)
            sum += lanes[i];
        p[c * l->rows] = sum;
    }
}

void sl_lowrank_left(const struct sl_lowrank *l, const float *m, const float *q, float *p)
{
    for (size_t i = 0; i < l->rows; i++)
        row_left(l, m + i * l->columns, q, p + i);
}

static void subtract(float *x, const float *y, float times, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] -= y[i] * times;
}

void sl_lowrank_orthogonalise(const struct sl_lowrank *l, float *p)
{
    for (uint32_t c = 0; c < l->rank; c++) {
        float *column = p + c * l->rows;
        double before = __builtin_sqrt(sl_tree_dot(column, column, l->rows)), norm, inverse;

        for (uint32_t b = 0; b < c; b++) {
            const float *other = p + b * l->rows;

            subtract(column, other, (float)sl_tree_dot(other, column, l->rows), l->rows);
        }
        norm = __builtin_sqrt(sl_tree_dot(column, column, l->rows));
        /* NaN is no reason for zeros, and so it is seen. */
        inverse = norm <= before * DEPENDENT ? 0 : 1 / norm;
        for (size_t i = 0; i < l->rows; i++)
            column[i] = (float)((double)column[i] * inverse);
    }
}

void sl_lowrank_right(const struct sl_lowrank *l, const float *m, const float *p, float *q)
{
    memset(q, 0, sl_lowrank_q_count(l) * sizeof(*q));
    for (size_t i = 0; i < l->rows; i++)
        for (size_t first = 0; first < l->columns; first += COLUMNS) {
            size_t n = l->columns - first < COLUMNS ? l->columns - first : COLUMNS;
            const float *row = m + i * l->columns + first;

            for (uint32_t c = 0; c < l->rank; c++) {
                float *column = q + c * l->columns + first, times = p[c * l->rows + i];

                for (size_t j = 0; j < n; j++)
                    column[j] += row[j] * times;
            }
        }
}

/* Part of a row of P Q^T. */
static void row_decode(const struct sl_lowrank *l, const float *p, const float *q, size_t n,
                       float *out)
{
    memset(out, 0, n * sizeof(*out));
    for (uint32_t c = 0; c < l->rank; c++)
        for (size_t j = 0; j < n; j++)
            out[j] += p[c * l->rows] * q[c * l->columns + j];
}

void sl_lowrank_decode(const struct sl_lowrank *l, const float *p, const float *q, float *out)
{
    for (size_t i = 0; i < l->rows; i++)
        for (size_t first = 0; first < l->columns; first += COLUMNS) {
            size_t n = l->columns - first < COLUMNS ? l->columns - first : COLUMNS;

            row_decode(l, p + i, q + first, n, out + i * l->columns + first);
        }
}

void sl_lowrank_residual(const struct sl_lowrank *l, const float *m, const float *p, const float *q,
                         float *out)
{
    float part[COLUMNS];

    for (size_t i = 0; i < l->rows; i++)
        for (size_t first = 0; first < l->columns; first += COLUMNS) {
            size_t n = l->columns - first < COLUMNS ? l->columns - first : COLUMNS;
            size_t at = i * l->columns + first;

            row_decode(l, p + i, q + first, n, part);
            for (size_t j = 0; j < n; j++)
                out[at + j] = m[at + j] - part[j];
        }
}
