/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements by the GPU's kernels, without a GPU: against sorting all of them.
 */
#include "compress/cuda/gpu_topk.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/compress/cuda_inputs.h"
#include "tests/unit/compress/emulated_driver.h"

#define MOST (5 * 4096 + 77)
#define LONG (260 * 4096 + 5) /* elements of a message that is sampled first */

static struct sl_gpu_topk *topk;
static float x[LONG]; /* the elements as floats */
static uint32_t want[LONG];
static size_t wanted;

static void *room(size_t len)
{
    void *at = NULL;

    assert_int_equal(posix_memalign(&at, 16, len == 0 ? 1 : len), 0);
    memset(at, 0xa5, len);
    return at;
}

static uint32_t magnitude(uint32_t i)
{
    return sl_f32_bits(x[i]) & SL_BITS_ABS;
}

static int by_magnitude(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t of_i = magnitude(i), of_j = magnitude(j);

    return of_i != of_j ? (of_i < of_j) - (of_i > of_j) : (i > j) - (i < j);
}

static int by_index(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    return (i > j) - (i < j);
}

/* Returns the least magnitude of the k largest. */
static uint32_t sort_for(size_t count, size_t k)
{
    uint32_t least;

    wanted = k < count ? k : count;
    for (uint32_t i = 0; i < count; i++)
        want[i] = i;
    qsort(want, count, sizeof(want[0]), by_magnitude);
    least = magnitude(want[wanted - 1]);
    qsort(want, wanted, sizeof(want[0]), by_index);
    return least;
}

static void assert_zeros(const void *work, size_t len)
{
    const char *at = work;

    for (size_t i = 0; i < len; i++)
        if (at[i] != 0)
            fail_msg("byte %zu of the work is not left zero", i);
}

/* The part of the work that must be zeros again: all but the list. */
static size_t kept_zero(size_t count, uint32_t cap)
{
    return sl_gpu_topk_work_size(count, cap) - (size_t)cap * 8;
}

static void assert_found(const struct sl_gpu_topk_out *out, size_t count)
{
    assert_int_equal(out->found[0], wanted);
    for (size_t i = 0; i < wanted && i < out->cap; i++) {
        if (out->index[i] != want[i])
            fail_msg("element %zu of %zu: index %u, not %u, of %zu", i, wanted, out->index[i],
                     want[i], count);
        assert_memory_equal(&out->value[i], &x[want[i]], sizeof(float));
    }
}

static struct sl_gpu_topk_out out_of(uint32_t cap)
{
    return (struct sl_gpu_topk_out){
        .index = room(cap * 4), .value = room(cap * 4), .found = room(8), .cap = cap};
}

static void out_free(struct sl_gpu_topk_out *out)
{
    free(out->index);
    free(out->value);
    free(out->found);
}

static void exactly(unsigned dtype, unsigned kind, size_t count, size_t k, uint32_t cap)
{
    size_t len = sl_gpu_topk_work_size(count, cap);
    struct sl_gpu_topk_out out = out_of(cap);
    void *in = room(count * (dtype == SLUICE_F32 ? 4 : 2)), *work = room(len);
    uint32_t least;

    inputs_fill(kind, dtype, count, count + k, in);
    sl_elements_widen(dtype, in, count, x);
    least = sort_for(count, k);
    memset(work, 0, len);
    for (unsigned again = 0; again < 2; again++) {
        memset(out.index, 0xa5, cap * 4);
        assert_int_equal(sl_gpu_topk_exact(topk, dtype, in, count, k, &out, work, NULL), 0);
        assert_found(&out, count);
        assert_int_equal(out.found[1], least);
        assert_zeros(work, kept_zero(count, cap));
    }
    out_free(&out);
    free(in);
    free(work);
}

static void the_largest_are_those_of_sorting(void **state)
{
    static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    static const size_t counts[] = {1, 33, 4095, 4097, MOST};

    (void)state;
    for (unsigned d = 0; d < 3; d++)
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
            for (unsigned kind = 0; kind < INPUT_COUNT; kind++) {
                size_t n = counts[c], k = 1 + n / 50;

                if (d > 0 && kind % 3 != 0)
                    continue;
                exactly(dtypes[d], kind, n, k, (uint32_t)(2 * k));
            }
}

static void any_k_and_any_room_for_it_will_do(void **state)
{
    static const size_t ks[] = {1, 2, 100, 4096, 6000, MOST - 1, MOST, MOST + 5};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(ks); i++) {
        size_t k = ks[i] < MOST ? ks[i] : MOST;

        exactly(SLUICE_F32, INPUT_NORMAL, MOST, ks[i], (uint32_t)k);
        exactly(SLUICE_F32, INPUT_TIES, MOST, ks[i], (uint32_t)k + 3);
        exactly(SLUICE_F32, INPUT_EQUAL, MOST, ks[i], (uint32_t)k);
        exactly(SLUICE_F32, INPUT_BITS, MOST, ks[i], (uint32_t)k * 3);
    }
}

/* Each 4,096 elements that are looked at first are larger than what is not: the bound is too
 * high. */
static void a_sample_that_misleads_costs_a_pass_and_no_byte(void **state)
{
    const uint32_t k = LONG / 1000, cap = 2 * k;
    size_t len = sl_gpu_topk_work_size(LONG, cap);
    struct sl_gpu_topk_out out = out_of(cap);
    float *in = room(LONG * 4);
    void *work = room(len);
    uint32_t least;

    (void)state;
    memset(work, 0, len);
    for (unsigned misleads = 0; misleads < 2; misleads++) {
        inputs_fill(INPUT_NORMAL, SLUICE_F32, LONG, 7, in);
        for (unsigned tile = 0; tile < 64 && misleads != 0; tile++)
            for (unsigned i = 0; i < 10; i++)
                in[(size_t)tile * 260 / 64 * 4096 + i * 399] = (float)(100 + i);
        memcpy(x, in, LONG * 4);
        least = sort_for(LONG, k);
        assert_int_equal(sl_gpu_topk_exact(topk, SLUICE_F32, in, LONG, k, &out, work, NULL), 0);
        assert_found(&out, LONG);
        assert_int_equal(out.found[1], least);
        assert_zeros(work, kept_zero(LONG, cap));
    }
    out_free(&out);
    free(in);
    free(work);
}

static void by_threshold(unsigned dtype, unsigned kind, size_t count, uint32_t threshold,
                         uint32_t cap, bool feedback)
{
    size_t len = sl_gpu_topk_work_size(count, cap);
    struct sl_gpu_topk_out out = out_of(cap);
    float *residual = room(count * 4), *left = room(count * 4);
    void *in = room(count * (dtype == SLUICE_F32 ? 4 : 2)), *work = room(len);

    inputs_fill(kind, dtype, count, count + threshold, in);
    sl_elements_widen(dtype, in, count, x);
    for (size_t i = 0; i < count; i++) {
        residual[i] = (float)(i % 31) / 64 - 0.25f;
        if (feedback)
            x[i] = residual[i] + x[i];
    }
    wanted = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool taken = magnitude(i) >= threshold;

        left[i] = (taken && wanted < cap) || magnitude(i) >= SL_BITS_INF ? 0 : x[i];
        if (taken)
            want[wanted++] = i;
    }
    memset(work, 0, len);
    assert_int_equal(sl_gpu_topk_above(topk, dtype, in, feedback ? residual : NULL, count,
                                       threshold, &out, work, NULL),
                     0);
    if (kind != INPUT_BITS || !feedback) /* of a sum's NaN the bits are not told */
        assert_found(&out, count);
    for (size_t i = 0; feedback && i < count; i++)
        if (memcmp(&residual[i], &left[i], sizeof(float)) != 0)
            fail_msg("residual %zu of %zu is %a, not %a", i, count, (double)residual[i],
                     (double)left[i]);
    assert_zeros(work, kept_zero(count, cap));
    out_free(&out);
    free(residual);
    free(left);
    free(in);
    free(work);
}

static void a_threshold_selects_in_one_pass(void **state)
{
    static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    static const size_t counts[] = {0, 1, 127, 4096, MOST};

    (void)state;
    for (unsigned d = 0; d < 3; d++)
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
            for (unsigned kind = 0; kind < INPUT_COUNT; kind++) {
                if ((d + c + kind) % 2 != 0)
                    continue;
                emulated_driver.launches = 0;
                by_threshold(dtypes[d], kind, counts[c], 0x40000000, MOST, false);
                assert_int_equal(emulated_driver.launches, 1);
                by_threshold(dtypes[d], kind, counts[c], 0x3f800000, 1000, true);
            }
}

static void what_cannot_be_is_refused(void **state)
{
    static float in[8] __attribute__((aligned(16)));
    static uint32_t index[8], found[2], work[4096] __attribute__((aligned(16)));
    struct sl_gpu_topk_out out = {index, in, found, 8};

    (void)state;
    emulated_driver.launches = 0;
    assert_int_equal(sl_gpu_topk_exact(topk, SLUICE_F32, in, 8, 0, &out, work, NULL), -EINVAL);
    assert_int_equal(sl_gpu_topk_exact(topk, SLUICE_F32, in, 9, 9, &out, work, NULL), -EINVAL);
    assert_int_equal(sl_gpu_topk_exact(topk, SLUICE_I32, in, 8, 4, &out, work, NULL), -EINVAL);
    assert_int_equal(
        sl_gpu_topk_above(topk, SLUICE_F32, (char *)in + 2, NULL, 4, 1, &out, work, NULL), -EINVAL);
    assert_int_equal(
        sl_gpu_topk_above(topk, SLUICE_F32, in, NULL, (size_t)1 << 31, 1, &out, work, NULL),
        -EINVAL);
    assert_int_equal(emulated_driver.launches, 0);
    emulated_driver.launch_result = 700;
    assert_int_equal(sl_gpu_topk_exact(topk, SLUICE_F32, in, 8, 4, &out, work, NULL), -EIO);
    assert_int_equal(emulated_driver.launches, 1);
    emulated_driver.launch_result = 0;
}

static int open_gpu(void **state)
{
    (void)state;
    emulated_driver_use();
    return sl_gpu_topk_create(&topk);
}

static int close_gpu(void **state)
{
    (void)state;
    sl_gpu_topk_destroy(topk);
    return emulated_driver.loaded == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_those_of_sorting),
        cmocka_unit_test(any_k_and_any_room_for_it_will_do),
        cmocka_unit_test(a_sample_that_misleads_costs_a_pass_and_no_byte),
        cmocka_unit_test(a_threshold_selects_in_one_pass),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
