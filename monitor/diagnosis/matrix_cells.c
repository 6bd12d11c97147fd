/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of a matrix: their memory, edges into them, their logarithms, rows and columns. */
#include "monitor/diagnosis/matrix_cells.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE ((size_t)2 << 20) /* a large page */

void *sl_matrix_list(size_t count, size_t each)
{
    size_t len;
    void *list;

    if (__builtin_mul_overflow(count + 1, each, &len) || len > SIZE_MAX / 2)
        return NULL;
    if (len < LARGE)
        return malloc(len);
    len = (len + LARGE - 1) & ~(LARGE - 1);
    list = aligned_alloc(LARGE, len);
    if (list != NULL)
        (void)madvise(list, len, MADV_HUGEPAGE);
    return list;
}

int sl_matrix_new_cells(struct sl_matrix *matrix, uint32_t ranks, size_t count)
{
    matrix->rank_count = ranks;
    matrix->cells = sl_matrix_list(count, sizeof(*matrix->cells));
    matrix->dst = sl_matrix_list(count, sizeof(*matrix->dst));
    matrix->size = sl_matrix_list(count, sizeof(*matrix->size));
    matrix->time = sl_matrix_list(count, sizeof(*matrix->time));
    matrix->column = sl_matrix_list(count, sizeof(*matrix->column));
    matrix->first = calloc((size_t)ranks + 2, sizeof(*matrix->first));
    matrix->column_first = calloc((size_t)ranks + 2, sizeof(*matrix->column_first));
    if (matrix->cells == NULL || matrix->dst == NULL || matrix->size == NULL ||
        matrix->time == NULL || matrix->column == NULL || matrix->first == NULL ||
        matrix->column_first == NULL)
        return sl_fail(-ENOMEM, "no memory for a matrix of %zu cells", count);
    return 0;
}

void sl_matrix_free_cells(struct sl_matrix *matrix)
{
    free(matrix->cells);
    free(matrix->dst);
    free(matrix->size);
    free(matrix->time);
    free(matrix->column);
    free(matrix->first);
    free(matrix->column_first);
    matrix->cells = NULL;
    matrix->dst = matrix->column = matrix->first = matrix->column_first = NULL;
    matrix->size = matrix->time = NULL;
    matrix->count = 0;
}

/* The cell of that pair and path: the last one, or a new one behind it. */
static struct sl_matrix_cell *cell_of(struct sl_matrix *matrix, const struct sl_job_edge *edge,
                                      uint32_t path)
{
    struct sl_matrix_cell *cell = matrix->cells + matrix->count;

    if (matrix->count > 0 && cell[-1].src == edge->src && cell[-1].dst == edge->dst &&
        cell[-1].path == path)
        return cell - 1;
    *cell = (struct sl_matrix_cell){.src = edge->src, .dst = edge->dst, .path = path};
    matrix->dst[matrix->count++] = edge->dst;
    matrix->first[edge->src + 1]++;
    matrix->column_first[edge->dst + 1]++;
    return cell;
}

void sl_matrix_add_edge(struct sl_matrix *matrix, const struct sl_job_edge *edge, uint32_t path,
                        enum sl_job_wait state)
{
    struct sl_matrix_cell *cell = cell_of(matrix, edge, path);

    cell->messages += (double)edge->messages;
    cell->bytes += (double)edge->bytes;
    cell->lost += (float)edge->lost;
    cell->seconds += edge->wait_s[state];
}

/* The natural logarithm of a positive, normal number, to a last bit or two: the series of
 * 2 atanh(f / (2 + f)). Without a call the compiler takes four at a time. */
static inline float log_of(float x)
{
    int32_t bits, exponent;
    float part, ratio, square;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (bits - 0x3f3504f3) >> 23; /* so that the rest is between 1/sqrt(2) and sqrt(2) */
    bits -= (int32_t)((uint32_t)exponent << 23);
    memcpy(&part, &bits, sizeof(part));
    ratio = (part - 1) / (part + 1);
    square = ratio * ratio;
    return (float)exponent * (float)M_LN2 +
           ratio * (2 + square * (2 / 3.0f +
                                  square * (2 / 5.0f + square * (2 / 7.0f + square * 2 / 9.0f))));
}

/* Logarithms of cells from..to. Sums of 10^38 s exceed a float: no file of a real job has them. */
void sl_matrix_take_logs(struct sl_matrix *matrix, uint32_t from, uint32_t to)
{
    float size = 0;
    double last = 1;

    for (uint32_t i = from; i < to; i++) {
        const struct sl_matrix_cell *cell = &matrix->cells[i];
        double messages = cell->messages >= 1 ? cell->messages : 1;
        double bytes = cell->bytes / messages, seconds = cell->seconds / messages;

        bytes = bytes > 1 ? bytes : 1;
        if (bytes > last || bytes < last) {
            last = bytes;
            size = logf((float)bytes);
        }
        seconds = seconds > 1e-30 ? seconds : 1e-30;
        matrix->size[i] = size;
        matrix->time[i] = (float)(seconds < 1e30 ? seconds : 1e30);
    }
    for (uint32_t i = from; i < to; i++)
        matrix->time[i] = log_of(matrix->time[i]);
}

/* Where rows and columns begin: their lengths were counted. */
void sl_matrix_index_cells(struct sl_matrix *matrix)
{
    for (uint32_t r = 0; r < matrix->rank_count; r++) {
        matrix->first[r + 1] += matrix->first[r];
        matrix->column_first[r + 1] += matrix->column_first[r];
    }
    for (uint32_t i = 0; i < matrix->count; i++)
        matrix->column[matrix->column_first[matrix->dst[i]]++] = i;
    memmove(matrix->column_first + 1, matrix->column_first,
            matrix->rank_count * sizeof(*matrix->column_first));
    matrix->column_first[0] = 0;
}
