/* SPDX-License-Identifier: Apache-2.0 */
/* Shorter floats: by definition, at random, and path against path. */
#include "codec_paths.h"

#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/philox.h"
#include "core/err.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT_MAX (SL_TILE + 77)

static const struct sl_codec_at at = {.first = 9 * SL_TILE, .stream = 4, .step = 6};
static _Alignas(64) float input[COUNT_MAX], output[COUNT_MAX];
static _Alignas(64) uint16_t wire[COUNT_MAX + 8];

static struct sl_codec_spec spec_of(const char *text)
{
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    return spec;
}

static void round_trip(const char *text, size_t count)
{
    struct sl_codec_spec spec = spec_of(text);
    const struct sl_codec *codec = sl_codec_by_id(spec.id);
    size_t len = codec->encode(&spec, &at, input, count, wire);

    assert_int_equal(codec->decode(&spec, &at, wire, len, count, output), 0);
}

static void all_paths_give_the_bytes_of_plain_c(void **state)
{
    test_paths_agree("bf16");
    test_paths_agree("fp16");
}

static void all_paths_round_at_random_alike(void **state)
{
    test_paths_agree("bf16:stochastic=on,seed=5");
    test_paths_agree("fp16:stochastic=on,seed=6");
}

static void large_messages_are_the_same_past_the_caches(void **state)
{
    test_paths_agree_at("bf16", (size_t)2100001);
    test_paths_agree_at("fp16", (size_t)2100001);
}

static void all_paths_know_every_half_float(void **state)
{
    static uint16_t halves[0x10000], back[0x10000];
    static float numbers[0x10000], wanted[0x10000];

    for (uint32_t i = 0; i < 0x10000; i++)
        halves[i] = (uint16_t)i;
    for (unsigned t = SLUICE_F16; t <= SLUICE_BF16; t += SLUICE_BF16 - SLUICE_F16) {
        for (uint32_t i = 0; i < 0x10000; i++)
            wanted[i] = t == SLUICE_F16 ? sl_f32_of_f16(halves[i]) : sl_f32_of_bf16(halves[i]);
        for (size_t p = 0; test_paths[p] != NULL; p++) {
            if (!test_path_set(test_paths[p]))
                continue;
            sl_elements_widen(t, halves, 0x10000, numbers);
            assert_memory_equal(numbers, wanted, sizeof(wanted));
            sl_elements_narrow(t, numbers, 0x10000, back);
            for (uint32_t i = 0; i < 0x10000; i++)
                assert_int_equal(back[i],
                                 isnan(wanted[i]) ? t == SLUICE_F16 ? 0x7e00 : 0x7fc0 : halves[i]);
        }
    }
    test_path_set(NULL);
}

static void a_message_is_padded_to_16_bytes_with_zeros(void **state)
{
    struct sl_codec_spec spec = spec_of("bf16");
    const struct sl_codec *codec = sl_codec_by_id(spec.id);

    for (size_t count = 1; count < 20; count++) {
        size_t len = (count * 2 + 15) / 16 * 16;

        test_input(2, count, input);
        memset(wire, 0xa5, sizeof(wire));
        assert_int_equal(codec->size(&spec, count), len);
        assert_int_equal(codec->encode(&spec, &at, input, count, wire), len);
        for (size_t i = count; i < len / 2; i++)
            assert_int_equal(wire[i], 0);
        assert_int_equal(wire[len / 2], 0xa5a5);
    }
}

static void nan_is_canonical_and_what_is_too_large_infinite(void **state)
{
    static const struct {
        uint32_t bits;
        uint16_t bf16, fp16;
    } cases[] = {
        {0x7fc00000, 0x7fc0, 0x7e00}, {0xff800001, 0x7fc0, 0x7e00}, {0x7f800000, 0x7f80, 0x7c00},
        {0xff800000, 0xff80, 0xfc00}, {0x7f7fffff, 0x7f80, 0x7c00}, {0xff7fffff, 0xff80, 0xfc00},
        {0x477fefff, 0x4780, 0x7bff}, {0x477ff000, 0x4780, 0x7c00}, {0x80000000, 0x8000, 0x8000},
        {0x33000000, 0x3300, 0x0000}, {0x33000001, 0x3300, 0x0001}, {0x00000001, 0x0000, 0x0000},
    };
    struct sl_codec_spec bf16 = spec_of("bf16"), fp16 = spec_of("fp16");

    for (size_t p = 0; test_paths[p] != NULL; p++) {
        if (!test_path_set(test_paths[p]))
            continue;
        for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
            for (size_t j = 0; j < 40; j++)
                input[j] = sl_f32_of(cases[i].bits);
            sl_codec_by_id(bf16.id)->encode(&bf16, &at, input, 40, wire);
            for (size_t j = 0; j < 40; j++)
                assert_int_equal(wire[j], cases[i].bf16);
            sl_codec_by_id(fp16.id)->encode(&fp16, &at, input, 40, wire);
            for (size_t j = 0; j < 40; j++)
                assert_int_equal(wire[j], cases[i].fp16);
        }
    }
    test_path_set(NULL);
}

/* The number below or above, by how far x is on the way and the element's 16 bits. */
static void rounding_at_random_is_by_definition(void **state)
{
    for (unsigned kind = 0; kind < INPUT_KINDS; kind++) {
        struct sl_codec_spec spec = spec_of("bf16:stochastic=on,seed=99");

        test_input(kind, COUNT_MAX, input);
        round_trip("bf16:stochastic=on,seed=99", COUNT_MAX);
        for (size_t i = 0; i < COUNT_MAX; i++) {
            uint32_t bits = sl_f32_bits(input[i]), low = bits & 0xffff0000;
            uint32_t u = sl_philox_16(at.first + i, at.stream, at.step, spec.seed);

            if (isnan(input[i]))
                assert_true(isnan(output[i]));
            else
                assert_int_equal(sl_f32_bits(output[i]),
                                 low + ((bits & 0xffff) + u >= 0x10000 ? 0x10000 : 0));
        }
    }
}

static void rounding_at_random_has_the_value_as_its_mean(void **state)
{
    static const char *const texts[] = {"bf16:stochastic=on,seed=3", "fp16:stochastic=on,seed=3"};
    enum { STEPS = 4000, COUNT = 128 };

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec = spec_of(texts[t]);
        const struct sl_codec *codec = sl_codec_by_id(spec.id);
        double mean[COUNT] = {0};

        for (size_t i = 0; i < COUNT; i++) /* normal numbers and, of fp16, denormal ones */
            input[i] = ldexpf(1 + (float)i / 317, i % 2 ? -18 : 0) * (i % 3 ? 1 : -1);
        for (uint32_t step = 0; step < STEPS; step++) {
            const struct sl_codec_at here = {.step = step};
            size_t len = codec->encode(&spec, &here, input, COUNT, wire);

            assert_int_equal(codec->decode(&spec, &here, wire, len, COUNT, output), 0);
            for (size_t i = 0; i < COUNT; i++)
                mean[i] += (double)output[i] / STEPS;
        }
        for (size_t i = 0; i < COUNT; i++) {
            double step = t == 0 ? ldexp(1, i % 2 ? -25 : -7) : ldexp(1, i % 2 ? -24 : -10);

            assert_true(fabs(mean[i] - (double)input[i]) < step * 3 / sqrt(STEPS));
        }
    }
}

static void halves_of_the_same_kind_pass_unchanged(void **state)
{
    static const char *const texts[] = {"bf16:dtype=bf16", "fp16:dtype=f16"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec = spec_of(texts[t]);
        const struct sl_codec *codec = sl_codec_by_id(spec.id);
        static uint16_t in[COUNT_MAX], out[COUNT_MAX];
        size_t len;

        for (size_t i = 0; i < COUNT_MAX; i++)
            in[i] = (uint16_t)(test_random() & 0xbbff); /* no NaN of either */
        len = codec->encode(&spec, &at, in, COUNT_MAX, wire);
        assert_memory_equal(wire, in, sizeof(in));
        assert_int_equal(codec->decode(&spec, &at, wire, len, COUNT_MAX, out), 0);
        assert_memory_equal(out, in, sizeof(in));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_paths_give_the_bytes_of_plain_c),
        cmocka_unit_test(all_paths_round_at_random_alike),
        cmocka_unit_test(large_messages_are_the_same_past_the_caches),
        cmocka_unit_test(all_paths_know_every_half_float),
        cmocka_unit_test(a_message_is_padded_to_16_bytes_with_zeros),
        cmocka_unit_test(nan_is_canonical_and_what_is_too_large_infinite),
        cmocka_unit_test(rounding_at_random_is_by_definition),
        cmocka_unit_test(rounding_at_random_has_the_value_as_its_mean),
        cmocka_unit_test(halves_of_the_same_kind_pass_unchanged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
