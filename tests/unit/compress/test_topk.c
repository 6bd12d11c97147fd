/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k against sorting, on every path that this CPU runs, with equal elements and NaN. */
#include "compress/topk.h"

#include "codec_paths.h"
#include "codec_util.h"
#include "compress/kernels.h"
#include "compress/topk_kernels.h"

#include <float.h>

#define COUNT_MAX 20000
#define GUARD 64

static float input[COUNT_MAX + 1];
static uint32_t expected[COUNT_MAX], index_out[COUNT_MAX + GUARD];
static float value_out[COUNT_MAX + GUARD];
static struct sl_topk_work work;
static const float *sorted_input;

static uint32_t magnitude_of(float x)
{
    return sl_f32_bits(x) & SL_BITS_ABS;
}

static int by_magnitude(const void *x, const void *y)
{
    uint32_t i, j, a, b;

    memcpy(&i, x, sizeof(i));
    memcpy(&j, y, sizeof(j));
    a = magnitude_of(sorted_input[i]);
    b = magnitude_of(sorted_input[j]);
    return a != b ? (a < b ? 1 : -1) : (i > j) - (i < j);
}

static int by_index(const void *x, const void *y)
{
    uint32_t i, j;

    memcpy(&i, x, sizeof(i));
    memcpy(&j, y, sizeof(j));
    return (i > j) - (i < j);
}

/* expected[] = the places of the k largest, ascending. Returns the least magnitude. */
static uint32_t sort_out(const float *in, size_t count, size_t k)
{
    uint32_t least;

    for (size_t i = 0; i < count; i++)
        expected[i] = (uint32_t)i;
    sorted_input = in;
    qsort(expected, count, sizeof(*expected), by_magnitude);
    least = k > 0 ? magnitude_of(in[expected[k - 1]]) : 0;
    qsort(expected, k, sizeof(*expected), by_index);
    return least;
}

static struct sl_topk_out out_of(size_t cap)
{
    for (size_t i = 0; i < GUARD; i++) {
        index_out[cap + i] = 0xdeadbeef;
        value_out[cap + i] = 12345;
    }
    return (struct sl_topk_out){index_out, value_out, cap};
}

static void assert_guarded(size_t cap)
{
    for (size_t i = 0; i < GUARD; i++)
        assert_true(index_out[cap + i] == 0xdeadbeef && value_out[cap + i] == 12345);
}

static void assert_expected(const float *in, size_t k)
{
    for (size_t i = 0; i < k; i++)
        if (index_out[i] != expected[i] ||
            sl_f32_bits(value_out[i]) != sl_f32_bits(in[expected[i]]))
            fail_msg("place %zu of %zu is %u, not %u", i, k, index_out[i], expected[i]);
}

static void every_path_selects_by_threshold(void **state)
{
    static const size_t counts[] = {0, 1, 7, 8, 9, 31, 33, 63, 64, 65, 129, 1000, 4097};
    size_t ran = 0;

    for (size_t p = 0; p < sl_topk_path_count; p++) {
        if (sl_codec_kernels_force(sl_topk_paths[p].name) != 0)
            continue; /* not on this CPU */
        assert_ptr_equal(sl_topk_best(), sl_topk_paths[p].select);
        ran++;
        for (int kind = 0; kind < DRAW_KINDS; kind++)
            for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++)
                for (unsigned t = 0; t < 6; t++) {
                    static const uint32_t thresholds[] = {0, 1, 0x3f800000, 0x40000000, 0x7f800000};
                    const float *in = input + t % 2; /* aligned or not */
                    size_t count = counts[n], found = 0, cap = t < 4 ? count : count / 2;

                    draw_fill((enum draw_kind)kind, input, count + 1);
                    uint32_t least = t < 5 ? thresholds[t] : magnitude_of(input[count / 2]);
                    struct sl_topk_out out = out_of(cap);

                    for (size_t i = 0; i < count; i++)
                        if (magnitude_of(in[i]) >= least)
                            expected[found++] = (uint32_t)i;
                    assert_int_equal(sl_topk_paths[p].select(in, count, least, 0, &out), found);
                    assert_expected(in, found < cap ? found : cap);
                    assert_guarded(cap);
                }
    }
    assert_true(ran > 0);
    assert_int_equal(sl_codec_kernels_force(NULL), 0);
    assert_ptr_equal(sl_topk_paths[sl_topk_path_count - 1].select, sl_topk_select_c);
}

static void exact_is_what_sorting_gives(void **state)
{
    static const size_t counts[] = {0, 1, 5, 64, 300, 4096, 4097, COUNT_MAX};
    static const size_t ks[] = {0, 1, 3, 41, 400, 4096, COUNT_MAX};

    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++)
            for (size_t j = 0; j < SL_ARRAY_LEN(ks); j++) {
                size_t count = counts[n], k = ks[j] < count ? ks[j] : count;

                draw_fill((enum draw_kind)kind, input, count);
                uint32_t least = sort_out(input, count, k);
                uint32_t hints[] = {0, least, least > 0x100000 ? least - 0x100000 : 1, least + 1};
                size_t caps[] = {k, 2 * k < COUNT_MAX ? 2 * k : COUNT_MAX, COUNT_MAX};

                for (size_t t = 0; t < SL_ARRAY_LEN(hints) * SL_ARRAY_LEN(caps); t++) {
                    size_t cap = caps[t / SL_ARRAY_LEN(hints)];
                    struct sl_topk_out out = out_of(cap);
                    uint32_t threshold = 0;

                    assert_int_equal(sl_topk_exact(input, count, ks[j],
                                                   hints[t % SL_ARRAY_LEN(hints)], &work, &out,
                                                   &threshold),
                                     k);
                    assert_expected(input, k);
                    assert_guarded(cap);
                    if (k > 0)
                        assert_int_equal(threshold, least);
                }
            }
}

static void the_kth_magnitude_is_that_of_sorting(void **state)
{
    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (size_t round = 0; round < 40; round++) {
            size_t count = 1 + draw_below(round % 2 ? 256 : 4096), above, larger = 0;
            size_t k = 1 + draw_below((uint32_t)count);

            draw_fill((enum draw_kind)kind, input, count);
            uint32_t least = sort_out(input, count, k);

            for (size_t i = 0; i < count; i++)
                larger += magnitude_of(input[i]) > least;
            assert_int_equal(sl_topk_kth(input, count, k, &above), least);
            assert_int_equal(above, larger);
        }
}

static void a_reused_threshold_follows_k(void **state)
{
    struct sl_topk_state reused = {0};
    size_t k = 200, inexact = 0;

    for (size_t step = 0; step < 3 * SL_TOPK_PERIOD; step++) {
        struct sl_topk_out out = out_of(3 * k);

        draw_fill(DRAW_GAUSSIAN, input, COUNT_MAX);
        for (size_t i = 0; i < COUNT_MAX; i++)
            input[i] *= expf(-(float)step / 60); /* gradients become smaller */
        bool exact = reused.threshold == 0 || reused.age >= SL_TOPK_PERIOD;
        uint32_t threshold = reused.threshold;
        size_t found = sl_topk_reused(&reused, input, COUNT_MAX, k, &work, &out);

        if (exact) {
            assert_int_equal(found, k);
            assert_int_equal(reused.age, 0);
            assert_int_equal(reused.threshold, sort_out(input, COUNT_MAX, k));
        }
        assert_in_range(found, k / 2, 2 * k);
        inexact += found != k;
        for (size_t i = 0; i < found && !exact; i++)
            assert_true(magnitude_of(value_out[i]) >= threshold);
        assert_guarded(3 * k);
    }
    assert_true(inexact > SL_TOPK_PERIOD);
}

static void too_many_above_the_threshold_make_a_step_exact(void **state)
{
    struct sl_topk_state reused = {.threshold = 1};
    struct sl_topk_out out = out_of(100);

    draw_fill(DRAW_GAUSSIAN, input, COUNT_MAX);
    uint32_t least = sort_out(input, COUNT_MAX, 50);

    assert_int_equal(sl_topk_reused(&reused, input, COUNT_MAX, 50, &work, &out), 50);
    assert_expected(input, 50);
    assert_int_equal(reused.threshold, least);
    /* Nor does a threshold that is no number last. */
    for (size_t i = 0; i < 60; i++)
        input[i * 7] = NAN;
    reused.threshold = 0;
    assert_int_equal(sl_topk_reused(&reused, input, COUNT_MAX, 50, &work, &out), 50);
    assert_true(isnan(value_out[0]) && isnan(value_out[49]));
    assert_int_equal(reused.threshold, 0);
}

static void feedback_keeps_what_was_not_sent(void **state)
{
    static float residual[COUNT_MAX], sum[COUNT_MAX];

    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (size_t cap = 10; cap <= COUNT_MAX; cap += COUNT_MAX - 10) {
            struct sl_topk_out out = out_of(cap);
            size_t found = 0;

            draw_fill((enum draw_kind)kind, input, COUNT_MAX);
            draw_fill(DRAW_GAUSSIAN, residual, COUNT_MAX);
            for (size_t i = 0; i < COUNT_MAX; i++) {
                sum[i] = residual[i] + input[i];
                if (magnitude_of(sum[i]) >= 0x3fc00000)
                    expected[found++] = (uint32_t)i;
            }
            assert_int_equal(sl_topk_above_feedback(input, residual, COUNT_MAX, 0x3fc00000, &out),
                             found);
            assert_expected(sum, found < cap ? found : cap);
            assert_guarded(cap);
            for (size_t i = 0, at = 0; i < COUNT_MAX; i++) {
                bool sent = at < found && at < cap && expected[at] == i;

                at += sent;
                assert_true(residual[i] ==
                            (sent || magnitude_of(sum[i]) >= SL_BITS_INF ? 0 : sum[i]));
            }
        }
}

static void the_codec_keeps_the_rules(void **state)
{
    assert_rules_over_inputs("topk:k=41");
    assert_rules_over_inputs("topk:k=1,bits=32");
    assert_rules_over_inputs("topk:k=4096");
}

static void the_codec_keeps_the_largest_of_each_tile(void **state)
{
    const struct sl_codec_at at = {0};
    struct sl_codec_spec spec;
    static float got[UTIL_COUNT];
    static _Alignas(16) uint8_t bytes[UTIL_COUNT * 8];
    size_t len;

    spec_of("topk:k=50,bits=32", &spec);
    for (int kind = 0; kind < DRAW_KINDS; kind++) {
        draw_fill((enum draw_kind)kind, input, UTIL_COUNT);
        len = sl_codec_by_id(spec.id)->encode(&spec, &at, input, UTIL_COUNT, bytes);
        assert_int_equal(sl_codec_by_id(spec.id)->decode(&spec, &at, bytes, len, UTIL_COUNT, got),
                         0);
        for (size_t first = 0; first < UTIL_COUNT; first += SL_TILE) {
            size_t n = UTIL_COUNT - first < SL_TILE ? UTIL_COUNT - first : SL_TILE;
            size_t k = n < 50 ? n : 50;
            static float only[SL_TILE];

            sort_out(input + first, n, k);
            memset(only, 0, sizeof(only));
            for (size_t i = 0; i < k; i++)
                only[expected[i]] = input[first + expected[i]];
            assert_floats_equal(got + first, only, n);
        }
    }
}

static void feedback_of_the_codec_is_that_of_its_definition(void **state)
{
    static const char *const texts[] = {"topk:k=41", "topk:k=3,bits=32", "topk:k=41,dtype=bf16"};
    static float residual[UTIL_COUNT], sum[UTIL_COUNT], sent[UTIL_COUNT];
    static _Alignas(16) uint8_t bytes[UTIL_COUNT * 4], plain[UTIL_COUNT * 4];
    const struct sl_codec_at at = {0};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (int kind = 0; kind < DRAW_KINDS; kind++) {
            static uint16_t halves[UTIL_COUNT];
            struct sl_codec_spec spec, floats;
            const struct sl_codec *codec = sl_codec_by_name("topk");
            size_t len;

            spec_of(texts[t], &spec);
            floats = spec;
            floats.dtype = SLUICE_F32;
            draw_fill((enum draw_kind)kind, input, UTIL_COUNT);
            draw_fill(DRAW_GAUSSIAN, residual, UTIL_COUNT);
            if (kind == DRAW_GAUSSIAN) /* nearer to infinity than to any other bf16 */
                input[77] = FLT_MAX;
            sl_elements_narrow(SLUICE_BF16, input, UTIL_COUNT, halves);
            if (spec.dtype != SLUICE_F32)
                sl_elements_widen(SLUICE_BF16, halves, UTIL_COUNT, input);
            for (size_t i = 0; i < UTIL_COUNT; i++)
                sum[i] = input[i] + residual[i];
            len = codec->encode(&floats, &at, sum, UTIL_COUNT, plain);
            assert_int_equal(codec->decode(&floats, &at, plain, len, UTIL_COUNT, sent), 0);
            assert_int_equal(
                sl_codec_encode_feedback(&spec, &at,
                                         spec.dtype == SLUICE_F32 ? (void *)input : (void *)halves,
                                         residual, UTIL_COUNT, bytes),
                len);
            assert_memory_equal(bytes, plain, len);
            for (size_t i = 0; i < UTIL_COUNT; i++)
                sum[i] = isfinite(sum[i] - sent[i]) ? sum[i] - sent[i] : 0;
            assert_floats_equal(residual, sum, UTIL_COUNT);
        }
}

static void forged_places_are_refused(void **state)
{
    const struct sl_codec_at at = {0};
    struct sl_codec_spec spec;
    _Alignas(16) uint8_t bytes[64];
    float out[100];
    const struct sl_codec *codec = sl_codec_by_name("topk");
    size_t len;

    spec_of("topk:k=5", &spec);
    draw_fill(DRAW_GAUSSIAN, input, 100);
    len = codec->encode(&spec, &at, input, 100, bytes);
    assert_int_equal(codec->decode(&spec, &at, bytes, len, 100, out), 0);
    memcpy(bytes + 2, bytes, 2); /* twice the same */
    assert_int_equal(codec->decode(&spec, &at, bytes, len, 100, out), -EBADMSG);
    len = codec->encode(&spec, &at, input, 100, bytes);
    memcpy(bytes + 8, "\x64\x00", 2); /* 100 */
    assert_int_equal(codec->decode_add(&spec, &at, bytes, len, 100, out), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "outside"));
    assert_int_equal(sl_codec_parse("topk", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("topk:k=4097", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("topk:k=4,bits=16", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("topk:k=4,rows=1", &spec), -EINVAL);
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("topk:k=41");
    test_paths_agree("topk:k=2000,bits=32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_selects_by_threshold),
        cmocka_unit_test(exact_is_what_sorting_gives),
        cmocka_unit_test(the_kth_magnitude_is_that_of_sorting),
        cmocka_unit_test(a_reused_threshold_follows_k),
        cmocka_unit_test(too_many_above_the_threshold_make_a_step_exact),
        cmocka_unit_test(feedback_keeps_what_was_not_sent),
        cmocka_unit_test(the_codec_keeps_the_rules),
        cmocka_unit_test(the_codec_keeps_the_largest_of_each_tile),
        cmocka_unit_test(feedback_of_the_codec_is_that_of_its_definition),
        cmocka_unit_test(forged_places_are_refused),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
