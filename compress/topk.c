/* SPDX-License-Identifier: Apache-2.0 */
/* The k largest elements of a message, exactly or by a threshold that follows k. */
#include "compress/topk.h"

#include "compress/codec.h"
#include "compress/elements.h"
#include "compress/topk_kernels.h"
#include "core/err.h"

#define BUCKETS 2048 /* 11 bits; magnitudes have 31: 11, 11 and 9 */

static const unsigned shifts[] = {20, 9, 0};
static const unsigned widths[] = {11, 11, 9};

size_t sl_topk_above(const float *in, size_t count, uint32_t threshold,
                     const struct sl_topk_out *out)
{
    return sl_topk_best()(in, count, threshold, 0, out);
}

/* Room that is left after found elements. */
static struct sl_topk_out after(const struct sl_topk_out *out, size_t found)
{
    size_t used = found < out->cap ? found : out->cap;

    return (struct sl_topk_out){out->index + used, out->value + used, out->cap - used};
}

size_t sl_topk_above_feedback(const float *in, float *residual, size_t count, uint32_t threshold,
                              const struct sl_topk_out *out)
{
    sl_topk_select *select = sl_topk_best();
    size_t found = 0;

    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE, here;
        struct sl_topk_out room = after(out, found);
        uint32_t wild = 0;

        for (size_t i = first; i < first + n; i++) {
            residual[i] += in[i];
            wild |= (sl_f32_bits(residual[i]) & SL_BITS_ABS) >= SL_BITS_INF;
        }
        here = select(residual + first, n, threshold, (uint32_t)first, &room);
        found += here;
        for (size_t i = 0; i < here && i < room.cap; i++)
            residual[room.index[i]] = 0;
        for (size_t i = first; wild && i < first + n; i++)
            if ((sl_f32_bits(residual[i]) & SL_BITS_ABS) >= SL_BITS_INF)
                residual[i] = 0;
    }
    return found;
}

static size_t reach_of(const float *value, size_t count, uint32_t threshold)
{
    uint32_t reach = 0;

    for (size_t i = 0; i < count; i++)
        reach += (sl_f32_bits(value[i]) & SL_BITS_ABS) >= threshold;
    return reach;
}

/* The least of those that reach the threshold. */
static uint32_t least_of(const float *value, size_t count, uint32_t threshold)
{
    uint32_t least = SL_BITS_ABS;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = sl_f32_bits(value[i]) & SL_BITS_ABS;

        least = magnitude >= threshold && magnitude < least ? magnitude : least;
    }
    return least;
}

/* Few: bit by bit from above, a bit stays if k are still as large. Vectors count. Bits that all
 * have alike are known before, and there is no more to try where k reach and no more. */
static uint32_t kth_of_few(const float *value, size_t count, size_t k, size_t *above)
{
    uint32_t some = 0, all = SL_BITS_ABS, kth;
    int bit;

    for (size_t i = 0; i < count; i++) {
        some |= sl_f32_bits(value[i]) & SL_BITS_ABS;
        all &= sl_f32_bits(value[i]);
    }
    kth = all;
    bit = some == all ? -1 : 31 - __builtin_clz(some ^ all);
    if (bit >= 0)
        kth &= ~((2u << bit) - 1);
    for (; bit >= 0; bit--) {
        uint32_t tried = kth | 1u << bit;
        size_t reach = reach_of(value, count, tried);

        if (reach >= k)
            kth = tried;
        if (reach == k) {
            kth = least_of(value, count, tried);
            break;
        }
    }
    *above = reach_of(value, count, kth + 1);
    return kth;
}

/* The bucket that the k-th largest lies in; k becomes its place there. */
static uint32_t bucket_of(const uint32_t *histogram, unsigned width, size_t *k, size_t *above)
{
    uint32_t bucket = 1u << width;

    for (;;) {
        size_t here = histogram[--bucket];

        if (here >= *k)
            return bucket;
        *k -= here;
        *above += here;
    }
}

uint32_t sl_topk_kth(const float *value, size_t count, size_t k, size_t *above)
{
    uint32_t histogram[BUCKETS], prefix = 0;

    if (count <= 256)
        return kth_of_few(value, count, k, above);
    *above = 0;
    for (unsigned level = 0; level < SL_ARRAY_LEN(shifts); level++) {
        unsigned shift = shifts[level], top = shift + widths[level];

        memset(histogram, 0, sizeof(histogram));
        for (size_t i = 0; i < count; i++) {
            uint32_t magnitude = sl_f32_bits(value[i]) & SL_BITS_ABS;

            if (magnitude >> top == prefix >> top)
                histogram[magnitude >> shift & ((1u << widths[level]) - 1)]++;
        }
        prefix |= bucket_of(histogram, widths[level], &k, above) << shift;
    }
    return prefix;
}

/* One level over the message: adds bits of the k-th magnitude to the prefix. *reach: how many have
 * them, or are larger. */
static uint32_t refine(const float *in, size_t count, unsigned level, uint32_t prefix,
                       struct sl_topk_work *work, size_t *k, size_t *above, size_t *reach)
{
    unsigned shift = shifts[level], top = shift + widths[level];
    uint32_t mask = (1u << widths[level]) - 1, bucket;

    /* Four, so that equal neighbours do not wait for each other's sum. */
    memset(work->histogram, 0, sizeof(work->histogram));
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = sl_f32_bits(in[i]) & SL_BITS_ABS;

        if (level == 0 || magnitude >> top == prefix >> top)
            work->histogram[i % 4][magnitude >> shift & mask]++;
    }
    for (unsigned i = 0; i < BUCKETS; i++)
        work->histogram[0][i] +=
            work->histogram[1][i] + work->histogram[2][i] + work->histogram[3][i];
    bucket = bucket_of(work->histogram[0], widths[level], k, above);
    *reach = *above + work->histogram[0][bucket];
    return prefix | bucket << shift;
}

/* Keeps what is above the threshold, and the first equals, of found elements. */
static size_t keep(const struct sl_topk_out *out, size_t found, uint32_t threshold, size_t equals)
{
    size_t kept = 0;

    for (size_t i = 0; i < found; i++) {
        uint32_t magnitude = sl_f32_bits(out->value[i]) & SL_BITS_ABS;

        if (magnitude < threshold || (magnitude == threshold && equals == 0))
            continue;
        equals -= magnitude == threshold;
        out->index[kept] = out->index[i];
        out->value[kept++] = out->value[i];
    }
    return kept;
}

/* The largest k of those that lie in the output arrays. */
static size_t cut(const struct sl_topk_out *out, size_t found, size_t k, struct sl_topk_work *work,
                  uint32_t *threshold)
{
    uint32_t prefix = 0;
    size_t above = 0, reach, left = k;

    for (unsigned level = 0; level < SL_ARRAY_LEN(shifts); level++)
        prefix = refine(out->value, found, level, prefix, work, &left, &above, &reach);
    *threshold = prefix;
    return keep(out, found, prefix, k - above);
}

/* A pass for a threshold that more elements reach than there is room for: its equals are cut as
 * they come. */
static size_t collect(const float *in, size_t count, uint32_t threshold, size_t equals,
                      const struct sl_topk_out *out)
{
    sl_topk_select *select = sl_topk_best();
    uint32_t index[SL_TILE];
    float value[SL_TILE];
    struct sl_topk_out tile = {index, value, SL_TILE};
    size_t kept = 0;

    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;
        size_t found = select(in + first, n, threshold, (uint32_t)first, &tile), some;

        some = keep(&tile, found, threshold, equals);
        for (size_t i = 0; i < some; i++) {
            equals -= (sl_f32_bits(value[i]) & SL_BITS_ABS) == threshold;
            out->index[kept] = index[i];
            out->value[kept++] = value[i];
        }
    }
    return kept;
}

#define LINE 16          /* elements that come from memory together */
#define SAMPLE_LEAST 8   /* of the k largest, in a sample that tells anything */
#define SAMPLE_ENOUGH 64 /* a deviation of an eighth */

/* As refine(), over one line of each stride, anywhere in it: where scales repeat, a fixed place
 * would meet the same ones again and again. */
static uint32_t refine_sample(const float *in, size_t lines, size_t stride, unsigned level,
                              uint32_t prefix, uint32_t *histogram, size_t *k)
{
    unsigned shift = shifts[level], top = shift + widths[level];
    uint32_t mask = (1u << widths[level]) - 1;
    size_t above = 0;

    memset(histogram, 0, BUCKETS * sizeof(*histogram));
    for (size_t l = 0; l < lines; l++) {
        uint64_t place = (l * 0x9e3779b97f4a7c15u >> 32) % (stride / LINE);
        const float *line = in + l * stride + place * LINE;

        for (size_t i = 0; i < LINE; i++) {
            uint32_t magnitude = sl_f32_bits(line[i]) & SL_BITS_ABS;

            if (level == 0 || magnitude >> top == prefix >> top)
                histogram[magnitude >> shift & mask]++;
        }
    }
    return prefix | bucket_of(histogram, widths[level], k, &above) << shift;
}

/* A threshold that most likely k elements reach, and no more than there is room for: of a sample,
 * that which half as many again as k reach, or half way to what there is room for. 0: there is none
 * that would be worth a pass. */
static uint32_t guess(const float *in, size_t count, size_t k, size_t cap,
                      struct sl_topk_work *work)
{
    size_t most = cap < 2 * k ? cap : 2 * k, wanted = k + (most - k) / 2;
    size_t lines = (size_t)((double)SAMPLE_ENOUGH * (double)count / (double)k) / LINE + 1;
    uint32_t prefix;
    size_t left;

    lines = lines > count / 32 / LINE ? count / 32 / LINE : lines;
    if (wanted >= count || most - k < k / 2 ||
        lines * LINE * (double)k < (double)count * SAMPLE_LEAST)
        return 0;
    left = (size_t)((double)wanted * (double)(lines * LINE) / (double)count);
    prefix = refine_sample(in, lines, count / lines, 0, 0, work->histogram[0], &left);
    return refine_sample(in, lines, count / lines, 1, prefix, work->histogram[0], &left);
}

size_t sl_topk_exact(const float *in, size_t count, size_t k, uint32_t hint,
                     struct sl_topk_work *work, const struct sl_topk_out *out, uint32_t *threshold)
{
    uint32_t prefix = 0, least = 0;
    size_t above = 0, reach = 0, found, left;

    sl_assert(out->cap >= (k < count ? k : count) && count <= SL_TOPK_COUNT_MOST);
    k = left = k < count ? k : count;
    if (threshold == NULL)
        threshold = &least;
    *threshold = SL_BITS_ABS;
    if (k == 0)
        return 0;
    if (hint == 0)
        hint = guess(in, count, k, out->cap, work);
    if (hint != 0) {
        found = sl_topk_above(in, count, hint, out);
        if (found >= k && found <= out->cap)
            return cut(out, found, k, work, threshold);
    }
    for (unsigned level = 0; level < SL_ARRAY_LEN(shifts); level++) {
        prefix = refine(in, count, level, prefix, work, &left, &above, &reach);
        if (reach <= out->cap) {
            found = sl_topk_above(in, count, prefix, out);
            return cut(out, found, k, work, threshold);
        }
    }
    *threshold = prefix;
    return collect(in, count, prefix, k - above, out);
}

/* A threshold that is no number, or nothing, tells nothing about the next step. */
static uint32_t useful(uint32_t threshold)
{
    return threshold < SL_BITS_INF ? threshold : 0;
}

/* The 16th root of the share: around where one element of a hundred to one of a hundred thousand is
 * above it, 1 % more of a Gaussian's threshold means 7 % to 20 % fewer elements. */
void sl_topk_adapt(struct sl_topk_state *state, size_t k, size_t found)
{
    double share = (double)(found > 0 ? found : 1) / (double)k, factor = share;

    state->age++;
    if (share >= 0.8 && share <= 1.25)
        return;
    for (unsigned i = 0; i < 4; i++)
        factor = __builtin_sqrt(factor);
    state->threshold = useful(sl_f32_bits((float)(sl_f32_of(state->threshold) * factor)));
}

size_t sl_topk_reused(struct sl_topk_state *state, const float *in, size_t count, size_t k,
                      struct sl_topk_work *work, const struct sl_topk_out *out)
{
    uint32_t hint;
    size_t found;

    if (state->threshold != 0 && state->age < SL_TOPK_PERIOD && k > 0) {
        found = sl_topk_above(in, count, state->threshold, out);
        if (found <= out->cap) {
            sl_topk_adapt(state, k, found);
            return found;
        }
    }
    /* What is somewhat below the last threshold is a good guess of what k elements reach. */
    hint = sl_f32_bits(sl_f32_of(state->threshold) * 0.875f);
    found = sl_topk_exact(in, count, k, hint, work, out, &state->threshold);
    state->threshold = useful(state->threshold);
    state->age = 0;
    return found;
}
