/* SPDX-License-Identifier: Apache-2.0 */
/* What messages of a size take: medians over cells, and lines between them. */
#include "monitor/diagnosis/expect.h"
#include "core/err.h"

#define ORDER_NUMBER float
#define ORDER_COUNT uint32_t
#define ORDER_NEXT nextafterf
#include "monitor/diagnosis/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define STEPS_PER_OCTAVE 2
#define SIZES 160        /* half octaves: up to 2^80 bytes */
#define CELLS_MIN 4      /* that have a median */
#define SAMPLE 8192      /* of a size: more tell no more */
#define FAR (8 * 0.3466) /* four octaves: nobody is compared across more */

enum { NEAR_LEAF, OTHER_LEAF, RELATIONS };

#define BINS (RELATIONS * SIZES)

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
    float *excess;
    uint16_t *bin; /* by cell: its relation and its size's number; NULL: all are of one bin */
    uint32_t counts[BINS];
    struct curve curves[RELATIONS];
};

/* ---- order statistics ---- */

float sl_select(float *list, size_t count, size_t at)
{
    return select_at(list, count, at);
}

void sl_middle_of(float *list, size_t count, float *lower, float *upper)
{
    size_t at = count / 2;

    if (count > ORDER_MANY && narrow(list, count, at, upper) &&
        (count % 2 != 0 || narrow(list, count, at - 1, lower))) {
        *lower = count % 2 != 0 ? *upper : *lower;
        return;
    }
    *lower = *upper = sl_select(list, count, at);
    if (count % 2 != 0)
        return;
    *lower = list[0];
    for (size_t i = 1; i < at; i++)
        *lower = list[i] > *lower ? list[i] : *lower;
}

float sl_median_of(float *list, size_t count)
{
    float upper, lower;

    if (count == 0)
        return 0;
    sl_middle_of(list, count, &lower, &upper);
    return count % 2 != 0 ? upper : (lower + upper) / 2;
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

static unsigned bin_of(float size)
{
    float step = size * (float)(STEPS_PER_OCTAVE / M_LN2) + 0.5f;

    return step >= SIZES - 1 ? SIZES - 1 : (unsigned)step;
}

/* Cells of one size, and no leaves that are known: as in a collective among all ranks. */
static bool is_one_bin(const struct expect *expect)
{
    const struct sl_matrix *matrix = expect->matrix;
    float first = matrix->count > 0 ? matrix->size[0] : 0, apart = 0;

    if (expect->places->group[SL_FAMILY_LEAF] != NULL)
        return false;
    for (uint32_t i = 0; i < matrix->count; i++)
        apart += fabsf(matrix->size[i] - first);
    return !(apart > 0);
}

static int sort_into_bins(struct expect *expect)
{
    const struct sl_matrix *matrix = expect->matrix;
    bool has_leaves = expect->places->group[SL_FAMILY_LEAF] != NULL;
    float last = NAN;
    unsigned bin = 0;

    if (is_one_bin(expect)) {
        if (matrix->count > 0)
            expect->counts[OTHER_LEAF * SIZES + bin_of(matrix->size[0])] = matrix->count;
        return 0;
    }
    expect->bin = reallocarray(NULL, (size_t)matrix->count + 1, sizeof(*expect->bin));
    if (expect->bin == NULL)
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    for (uint32_t i = 0; i < matrix->count; i++) {
        unsigned relation = has_leaves ? relation_of(expect, &matrix->cells[i]) : OTHER_LEAF;

        if (!(matrix->size[i] <= last && matrix->size[i] >= last)) {
            last = matrix->size[i];
            bin = bin_of(last);
        }
        expect->bin[i] = (uint16_t)(relation * SIZES + bin);
        expect->counts[expect->bin[i]]++;
    }
    return 0;
}

/* ---- a sample of each bin ---- */

struct sample {
    uint32_t stride, left; /* cells of the bin until the next one that is taken */
    uint32_t taken;
    double size; /* summed */
    float *times;
};

/* Every stride-th cell of the bin, and so SAMPLE of them at most. */
static size_t room_of(uint32_t count)
{
    return count < CELLS_MIN ? 0 : count / (count / SAMPLE + 1) + 1;
}

static void take(struct sample *sample, float size, float time)
{
    if (sample->times == NULL || sample->left-- > 0)
        return;
    sample->left = sample->stride - 1;
    sample->size += size;
    sample->times[sample->taken++] = time;
}

static void take_samples(const struct expect *expect, struct sample *samples)
{
    const struct sl_matrix *matrix = expect->matrix;
    unsigned bin = OTHER_LEAF * SIZES + (matrix->count > 0 ? bin_of(matrix->size[0]) : 0);

    if (expect->bin == NULL) { /* one bin: it alone has a stride */
        for (uint32_t i = 0; i < matrix->count && samples[bin].times != NULL;
             i += samples[bin].stride) {
            samples[bin].left = 0;
            take(&samples[bin], matrix->size[i], matrix->time[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < matrix->count; i++)
        take(&samples[expect->bin[i]], matrix->size[i], matrix->time[i]);
}

static int make_curves(struct expect *expect)
{
    struct sample *samples = calloc(BINS, sizeof(*samples));
    size_t room = 0;
    float *times;

    for (unsigned k = 0; k < BINS; k++)
        room += room_of(expect->counts[k]);
    times = reallocarray(NULL, room + 1, sizeof(*times));
    if (samples == NULL || times == NULL) {
        free(samples);
        free(times);
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    }
    for (unsigned k = 0, at = 0; k < BINS; k++) {
        samples[k].stride = expect->counts[k] / SAMPLE + 1;
        samples[k].times = expect->counts[k] < CELLS_MIN ? NULL : times + at;
        at += room_of(expect->counts[k]);
    }
    take_samples(expect, samples);
    for (unsigned k = 0; k < BINS; k++) {
        struct curve *curve = &expect->curves[k / SIZES];
        struct sample *it = &samples[k];

        if (it->taken > 0)
            curve->points[curve->count++] =
                (struct point){(float)(it->size / it->taken), sl_median_of(it->times, it->taken)};
        curve->near[k % SIZES] = (uint8_t)(curve->count > 0 ? curve->count - 1 : 0);
    }
    free(samples);
    free(times);
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

/* Neighbours are of one size as a rule: what is expected is the same then. */
static void take_off(struct expect *expect)
{
    const struct sl_matrix *matrix = expect->matrix;
    float last = NAN, time = 0;
    unsigned before = BINS, bin = OTHER_LEAF * SIZES;

    if (expect->bin == NULL && matrix->count > 0)
        bin += bin_of(matrix->size[0]);
    for (uint32_t i = 0; i < matrix->count; i++) {
        float size = matrix->size[i];

        bin = expect->bin != NULL ? expect->bin[i] : bin;
        if (bin != before || size > last || size < last) {
            const struct curve *curve = &expect->curves[bin / SIZES];

            time = expected(curve, size, curve->near[bin % SIZES]);
            last = size;
            before = bin;
        }
        expect->excess[i] = matrix->time[i] - time;
    }
}

int sl_expect(const struct sl_matrix *matrix, const struct sl_places *places, float *excess,
              uint32_t *tiers)
{
    struct expect *expect = calloc(1, sizeof(*expect));
    int err;

    if (expect == NULL)
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    expect->matrix = matrix;
    expect->places = places;
    expect->excess = excess;
    err = sort_into_bins(expect);
    if (err == 0)
        err = make_curves(expect);
    if (err == 0)
        take_off(expect);
    free(expect->bin);
    free(expect);
    return err == 0 ? sl_expect_tiers(matrix, places, excess, tiers) : err;
}
