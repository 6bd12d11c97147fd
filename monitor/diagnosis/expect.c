/* SPDX-License-Identifier: Apache-2.0 */
/* What messages of a size take: medians over cells, and lines between them. */
#include "monitor/diagnosis/expect.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define STEPS_PER_OCTAVE 2
#define SIZES 160        /* half octaves: up to 2^80 bytes */
#define CELLS_MIN 4      /* that have a median */
#define SAMPLE 8192      /* of a size: more tell no more */
#define FAR (8 * 0.3466) /* four octaves: nobody is compared across more */

enum { NEAR_LEAF, OTHER_LEAF, RELATIONS };

struct point {
    float size, time; /* logarithms: of a message's bytes, of its seconds */
};

struct curve {
    struct point points[SIZES];
    uint8_t near[SIZES]; /* by size's number: a point that is not far */
    unsigned count;
};

struct expect {
    const struct sl_matrix *matrix;
    const struct sl_places *places;
    float *size, *time; /* by cell; time becomes the excess */
    uint8_t *bin;       /* by cell: its size's number */
    uint8_t *relation;  /* by cell */
    struct curve curves[RELATIONS];
    float *sample;
};

/* ---- order statistics ---- */

static float middle_of(float a, float b, float c)
{
    if (a > b) {
        float swap = a;

        a = b;
        b = swap;
    }
    return c < a ? a : c > b ? b : c;
}

float sl_select(float *list, size_t count, size_t at)
{
    size_t low = 0, high = count - 1;

    while (low < high) {
        float pivot = middle_of(list[low], list[low + (high - low) / 2], list[high]);
        size_t i = low, j = high;

        for (;;) {
            while (list[i] < pivot)
                i++;
            while (list[j] > pivot)
                j--;
            if (i >= j)
                break;
            float swap = list[i];

            list[i++] = list[j];
            list[j--] = swap;
        }
        if (j == high)
            j--;
        if (at <= j)
            high = j;
        else
            low = j + 1;
    }
    return list[at];
}

float sl_median_of(float *list, size_t count)
{
    float upper, lower;

    if (count == 0)
        return 0;
    upper = sl_select(list, count, count / 2);
    if (count % 2 != 0)
        return upper;
    lower = list[0];
    for (size_t i = 1; i < count / 2; i++)
        lower = list[i] > lower ? list[i] : lower;
    return (lower + upper) / 2;
}

float sl_spread_of(float *list, size_t count)
{
    float middle = sl_median_of(list, count);

    for (size_t i = 0; i < count; i++)
        list[i] = fabsf(list[i] - middle);
    return 1.4826f * sl_median_of(list, count);
}

/* ---- sizes ---- */

static uint8_t relation_of(const struct expect *expect, const struct sl_matrix_cell *cell)
{
    uint32_t from = sl_place_of(expect->places, SL_FAMILY_LEAF, cell->src, cell->path);
    uint32_t to = sl_place_of(expect->places, SL_FAMILY_LEAF, cell->dst, cell->path);

    return from != SL_PLACE_NONE && from == to ? NEAR_LEAF : OTHER_LEAF;
}

static void take_logs(struct expect *expect)
{
    bool has_leaves = expect->places->group[SL_FAMILY_LEAF] != NULL;
    float size = 0, step;
    double last = 1;

    for (uint32_t i = 0; i < expect->matrix->count; i++) {
        const struct sl_matrix_cell *cell = &expect->matrix->cells[i];
        double messages = cell->messages >= 1 ? cell->messages : 1;
        double each = fmax(cell->bytes / messages, 1);

        if (each != last) {
            last = each;
            size = logf((float)each);
        }
        step = size * (float)(STEPS_PER_OCTAVE / M_LN2) + 0.5f;

        expect->size[i] = size;
        /* Sums of 10^38 s exceed a float: no file of a real job has them. */
        expect->time[i] = logf((float)fmin(fmax(cell->seconds / messages, 1e-30), 1e30));
        expect->bin[i] = step >= SIZES - 1 ? SIZES - 1 : (uint8_t)step;
        expect->relation[i] = has_leaves ? relation_of(expect, cell) : OTHER_LEAF;
    }
}

/* The medians of cells of one size and relation, of a sample of them. */
static void add_point(struct expect *expect, struct curve *curve, const uint32_t *cells,
                      uint32_t count)
{
    uint32_t stride = count / SAMPLE + 1, taken = 0;
    double size = 0;

    if (count < CELLS_MIN)
        return;
    for (uint32_t i = 0; i < count; i += stride) {
        size += expect->size[cells[i]];
        expect->sample[taken++] = expect->time[cells[i]];
    }
    curve->points[curve->count++] =
        (struct point){(float)(size / taken), sl_median_of(expect->sample, taken)};
}

static int make_curves(struct expect *expect)
{
    uint32_t begins[RELATIONS * SIZES + 1] = {0}, count = expect->matrix->count;
    uint32_t *sorted = reallocarray(NULL, (size_t)count + 1, sizeof(*sorted));

    if (sorted == NULL)
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    for (uint32_t i = 0; i < count; i++)
        begins[expect->relation[i] * SIZES + expect->bin[i] + 1]++;
    for (unsigned k = 0; k < RELATIONS * SIZES; k++)
        begins[k + 1] += begins[k];
    for (uint32_t i = 0; i < count; i++)
        sorted[begins[expect->relation[i] * SIZES + expect->bin[i]]++] = i;
    for (unsigned k = 0; k < RELATIONS * SIZES; k++) {
        struct curve *curve = &expect->curves[k / SIZES];
        uint32_t from = k > 0 ? begins[k - 1] : 0;

        add_point(expect, curve, sorted + from, begins[k] - from);
        curve->near[k % SIZES] = (uint8_t)(curve->count > 0 ? curve->count - 1 : 0);
    }
    free(sorted);
    return 0;
}

/* What a message of the size takes; NAN: nobody sends such. */
static float expected(const struct curve *curve, float size, unsigned near)
{
    const struct point *points = curve->points, *low, *high;
    unsigned i = near;

    if (curve->count == 0)
        return NAN;
    while (i > 0 && points[i].size > size)
        i--;
    while (i + 1 < curve->count && points[i + 1].size <= size)
        i++;
    low = &points[i];
    if (size < low->size)
        return low->size - size > (float)FAR ? NAN : low->time;
    if (i + 1 == curve->count)
        return size - low->size > (float)FAR ? NAN : low->time + (size - low->size);
    high = low + 1;
    return low->time +
           (high->time - low->time) * (size - low->size) / (high->size - low->size + 1e-12f);
}

static void take_off(struct expect *expect)
{
    for (uint32_t i = 0; i < expect->matrix->count; i++) {
        const struct curve *curve = &expect->curves[expect->relation[i]];

        expect->time[i] -= expected(curve, expect->size[i], curve->near[expect->bin[i]]);
    }
}

int sl_expect(const struct sl_matrix *matrix, const struct sl_places *places, float *excess,
              uint32_t *tiers)
{
    struct expect *expect = calloc(1, sizeof(*expect));
    int err = -ENOMEM;

    if (expect == NULL)
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    expect->matrix = matrix;
    expect->places = places;
    expect->time = excess;
    expect->size = reallocarray(NULL, (size_t)matrix->count + 1, sizeof(*expect->size));
    expect->bin = reallocarray(NULL, (size_t)matrix->count + 1, sizeof(*expect->bin));
    expect->sample = reallocarray(NULL, SAMPLE + 1, sizeof(*expect->sample));
    expect->relation = reallocarray(NULL, (size_t)matrix->count + 1, sizeof(*expect->relation));
    if (expect->size == NULL || expect->bin == NULL || expect->relation == NULL ||
        expect->sample == NULL) {
        sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    } else {
        take_logs(expect);
        err = make_curves(expect);
        if (err == 0)
            take_off(expect);
    }
    free(expect->size);
    free(expect->bin);
    free(expect->relation);
    free(expect->sample);
    free(expect);
    return err == 0 ? sl_expect_tiers(matrix, places, excess, tiers) : err;
}
