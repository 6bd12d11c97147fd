/* SPDX-License-Identifier: Apache-2.0 */
/* The largest elements on a real GPU: against sorting here, and against the speed of reading. */
#include "tests/hw/hw_gpu_codec.h"

#include "compress/cuda/gpu_topk.h"
#include "core/err.h"
#include "tests/unit/compress/cuda_inputs.h"

#include <stdlib.h>
#include <string.h>

#define LARGE ((size_t)(3 << 20) + 77) /* elements */

static const struct hw_gpu *gpu;
static struct sl_gpu_topk *topk;

static void *device(size_t len)
{
    void *at = hw_gpu_alloc(len + 16);

    if (at == NULL) {
        printf("the GPU has not %zu bytes of memory left\n", len);
        exit(77);
    }
    return at;
}

static struct sl_gpu_topk_out out_of(uint32_t cap)
{
    return (struct sl_gpu_topk_out){.index = device((size_t)cap * 4),
                                    .value = device((size_t)cap * 4),
                                    .found = device(8),
                                    .cap = cap};
}

static void need(int err)
{
    if (err == 0)
        return;
    printf("top-k: %s\n", sluice_last_error());
    exit(1);
}

static int larger_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

/* The k-th largest magnitude of x, and how many of its equals belong to the k. */
static uint32_t kth_of(const float *x, size_t count, size_t k, size_t *equals)
{
    uint32_t *mags = malloc(count * 4), kth;
    size_t above = 0;

    if (mags == NULL)
        exit(1);
    for (size_t i = 0; i < count; i++)
        mags[i] = sl_f32_bits(x[i]) & SL_BITS_ABS;
    qsort(mags, count, 4, larger_first);
    kth = mags[k - 1];
    while (mags[above] > kth)
        above++;
    *equals = k - above;
    free(mags);
    return kth;
}

/* What was found, against all that is above threshold and the first of its equals. */
static unsigned compare(const char *what, const float *x, size_t count, uint32_t threshold,
                        size_t equals, const struct sl_gpu_topk_out *out)
{
    uint32_t *index = malloc((size_t)out->cap * 4), found[2], n = 0;
    float *value = malloc((size_t)out->cap * 4);
    const char *wrong = NULL;

    if (index == NULL || value == NULL)
        exit(1);
    hw_gpu_get(gpu, found, out->found, sizeof(found));
    hw_gpu_get(gpu, index, out->index, (size_t)out->cap * 4);
    hw_gpu_get(gpu, value, out->value, (size_t)out->cap * 4);
    for (uint32_t i = 0; i < count && wrong == NULL; i++) {
        uint32_t mag = sl_f32_bits(x[i]) & SL_BITS_ABS;

        if (mag < threshold || (mag == threshold && equals == 0))
            continue;
        equals -= mag == threshold;
        if (n < out->cap && (index[n] != i || memcmp(&value[n], &x[i], 4) != 0))
            wrong = "another element";
        n++;
    }
    if (wrong == NULL && found[0] != n)
        wrong = "another number of them";
    if (wrong != NULL)
        printf("top-k %s of %zu elements: %s at %u (found %u)\n", what, count, wrong, n, found[0]);
    free(index);
    free(value);
    return wrong != NULL;
}

/* Residuals of 0 before: what was taken is 0 again, and what is no number. */
static unsigned compare_left(const float *x, size_t count, uint32_t threshold, uint32_t cap,
                             const float *g_left)
{
    float *left = malloc(count * 4);
    uint32_t n = 0;
    size_t i;

    if (left == NULL)
        exit(1);
    hw_gpu_get(gpu, left, g_left, count * 4);
    for (i = 0; i < count; i++) {
        uint32_t mag = sl_f32_bits(x[i]) & SL_BITS_ABS;
        bool taken = mag >= threshold && n++ < cap;
        float want = taken || mag >= SL_BITS_INF ? 0 : 0.0f + x[i];

        if (memcmp(&left[i], &want, 4) != 0)
            break;
    }
    if (i < count)
        printf("top-k of %zu elements: residual %zu is %a, of %a\n", count, i, (double)left[i],
               (double)x[i]);
    free(left);
    return i < count;
}

static unsigned trial(unsigned dtype, unsigned kind, size_t count, size_t k, uint32_t cap)
{
    size_t bytes = count * (dtype == SLUICE_F32 ? 4 : 2), len = sl_gpu_topk_work_size(count, cap);
    static void *g_in, *g_work, *g_left;
    static struct sl_gpu_topk_out out;
    char *in = malloc(bytes);
    float *x = malloc(count * 4);
    struct sl_gpu_topk_out mine;
    size_t equals;
    uint32_t kth;
    unsigned failed;

    if (in == NULL || x == NULL)
        exit(1);
    if (g_in == NULL) {
        g_in = device(LARGE * 4);
        g_left = device(LARGE * 4);
        g_work = device(sl_gpu_topk_work_size(LARGE, LARGE));
        out = out_of(LARGE);
    }
    mine = out;
    mine.cap = cap;
    inputs_fill(kind, dtype, count, count + k, in);
    sl_elements_widen(dtype, in, count, x);
    hw_gpu_put(gpu, g_in, in, bytes);
    hw_gpu_fill(gpu, g_work, 0, len);
    kth = kth_of(x, count, k, &equals);
    need(sl_gpu_topk_exact(topk, dtype, g_in, count, k, &mine, g_work, gpu->stream));
    failed = compare("exact", x, count, kth, equals, &mine);
    need(sl_gpu_topk_exact(topk, dtype, g_in, count, k, &mine, g_work, gpu->stream));
    failed += compare("exact again", x, count, kth, equals, &mine);
    need(sl_gpu_topk_above(topk, dtype, g_in, NULL, count, kth, &mine, g_work, gpu->stream));
    failed += compare("above", x, count, kth, SIZE_MAX, &mine);
    hw_gpu_fill(gpu, g_left, 0, count * 4);
    need(sl_gpu_topk_above(topk, dtype, g_in, g_left, count, kth, &mine, g_work, gpu->stream));
    failed += compare_left(x, count, kth, cap, g_left);
    free(in);
    free(x);
    return failed;
}

unsigned hw_topk_bytes(const struct hw_gpu *on)
{
    static const size_t counts[] = {1, 4095, 4097, 100000, LARGE};
    unsigned failed = 0, trials = 0;

    gpu = on;
    need(sl_gpu_topk_create(&topk));
    for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
        for (unsigned kind = 0; kind < INPUT_COUNT; kind++) {
            size_t n = counts[c], k = 1 + n / 1000;

            if (n == LARGE && kind != INPUT_NORMAL && kind != INPUT_EQUAL)
                continue;
            failed += trial(kind % 3 == 0   ? SLUICE_F32
                            : kind % 3 == 1 ? SLUICE_BF16
                                            : SLUICE_F16,
                            kind, n, k, (uint32_t)(2 * k));
            failed += trial(SLUICE_F32, kind, n, (n + 1) / 2, (uint32_t)n);
            trials += 8;
        }
    printf("top-k: %u comparisons with sorting, %u failed\n", trials, failed);
    return failed;
}

/* ---- speed ---- */

void hw_topk_speed(const struct hw_gpu *on, char *elements, size_t elements_len, char *residuals,
                   unsigned dtype, size_t bytes, hw_report *report)
{
    const size_t elem = dtype == SLUICE_F32 ? 4 : 2, count = bytes / elem, k = count / 1000;
    static const char *const ops[] = {"exact 0.1%", "above 0.1%", "above + fb"};
    static struct sl_gpu_topk_out out;
    static void *work;
    const uint32_t threshold = 0x40529000; /* 3.29: that 0.1 % of a normal distribution reach */
    size_t buffers = elements_len / bytes;

    gpu = on;
    if (topk == NULL)
        need(sl_gpu_topk_create(&topk));
    if (work == NULL) {
        out = out_of(1 << 20);
        work = device(sl_gpu_topk_work_size((size_t)1 << 28, out.cap));
        hw_gpu_fill(gpu, work, 0, sl_gpu_topk_work_size((size_t)1 << 28, out.cap));
    }
    for (unsigned op = 0; op < 3; op++) {
        double moved = (double)bytes * (op == 0 ? 2 : 1) + (op == 2 ? 8.0 * (double)count : 0);
        struct hw_times times;

        if (op == 2)
            hw_gpu_fill(gpu, residuals, 0, buffers * count * 4);
        hw_times_begin(&times, bytes);
        while (hw_times_next(&times, gpu)) {
            const size_t i = times.launch % buffers;
            const char *in = elements + i * bytes;
            float *left = (float *)(void *)(residuals + i * count * 4);

            if (op == 0)
                need(sl_gpu_topk_exact(topk, dtype, in, count, k, &out, work, gpu->stream));
            else
                need(sl_gpu_topk_above(topk, dtype, in, op == 2 ? left : NULL, count, threshold,
                                       &out, work, gpu->stream));
        }
        report("topk", false, dtype, ops[op], bytes, moved, &times);
    }
}
