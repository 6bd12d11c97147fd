/* SPDX-License-Identifier: Apache-2.0 */
/* Signs and mean magnitudes: by definition, special numbers, and path against path. */
#include "codec_paths.h"

#include "compress/elements.h"
#include "core/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT_MAX (2 * SL_TILE + 77)
#define TILE_LEN (16 + SL_TILE / 8)

static const struct sl_codec_at at = {0};
static const struct sl_codec_spec spec = {.id = SL_CODEC_SIGN, .dtype = SLUICE_F32};
static _Alignas(64) float input[COUNT_MAX], output[COUNT_MAX];
static _Alignas(64) uint8_t wire[COUNT_MAX], wanted[COUNT_MAX];

static size_t round_trip(size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(SL_CODEC_SIGN);
    size_t len = codec->encode(&spec, &at, input, count, wire);

    assert_int_equal(codec->decode(&spec, &at, wire, len, count, output), 0);
    return len;
}

/* 16 sums in f64, each of every 16th magnitude, added in their order. */
static float mean_by_definition(const float *x, size_t n)
{
    double sum = 0;

    for (size_t lane = 0; lane < 16; lane++) {
        double part = 0;

        for (size_t i = lane; i < n; i += 16)
            part += fabs((double)x[i]);
        sum += part;
    }
    return isfinite(sum) ? (float)(sum / (double)n) : sl_f32_of(0x7fc00000);
}

static size_t tile_by_definition(const float *x, size_t n, uint8_t *out)
{
    size_t len = 16 + (n + 127) / 128 * 16;
    float mean = mean_by_definition(x, n);

    memset(out, 0, len);
    memcpy(out, &mean, sizeof(mean));
    for (size_t i = 0; i < n; i++)
        if (x[i] < 0 && !isnan(mean))
            out[16 + i / 8] |= (uint8_t)(1 << i % 8);
    return len;
}

static void bytes_are_those_of_the_definition(void **state)
{
    static const size_t counts[] = {1, 2, 15, 16, 17, 129, 1000, SL_TILE, COUNT_MAX};

    for (size_t p = 0; test_paths[p] != NULL; p++)
        for (unsigned kind = 0; kind < INPUT_KINDS && test_path_set(test_paths[p]); kind++)
            for (size_t c = 0; c < SL_ARRAY_LEN(counts); c++) {
                size_t len = 0;

                test_input(kind, counts[c], input);
                for (size_t i = 0; i < counts[c]; i += SL_TILE)
                    len += tile_by_definition(
                        input + i, counts[c] - i < SL_TILE ? counts[c] - i : SL_TILE, wanted + len);
                assert_int_equal(round_trip(counts[c]), len);
                assert_memory_equal(wire, wanted, len);
            }
    test_path_set(NULL);
}

static void all_paths_give_the_bytes_of_plain_c(void **state)
{
    test_paths_agree("sign");
    test_paths_agree_at("sign", (size_t)1100000);
}

static void each_element_decodes_to_its_sign_and_the_mean(void **state)
{
    test_input(1, COUNT_MAX, input);
    round_trip(COUNT_MAX);
    for (size_t i = 0; i < COUNT_MAX; i++) {
        size_t first = i / SL_TILE * SL_TILE, n = COUNT_MAX - first;
        float mean = mean_by_definition(input + first, n < SL_TILE ? n : SL_TILE);

        assert_true(output[i] == (input[i] < 0 ? -mean : mean));
    }
}

static void both_zeros_are_positive(void **state)
{
    for (size_t i = 0; i < 130; i++)
        input[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? -0.0f : -4.0f;
    round_trip(130);
    for (size_t i = 0; i < 130; i++)
        assert_true(i % 3 == 2 ? output[i] < 0 : output[i] > 0);
}

static void a_tile_that_is_not_finite_decodes_to_nan_alone(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};

    for (size_t o = 0; o < SL_ARRAY_LEN(odd); o++) {
        test_input(1, COUNT_MAX, input);
        input[SL_TILE + 1234] = odd[o];
        round_trip(COUNT_MAX);
        for (size_t i = 0; i < COUNT_MAX; i++)
            assert_int_equal(isnan(output[i]) != 0, i / SL_TILE == 1);
        for (size_t i = TILE_LEN + 4; i < 2 * TILE_LEN; i++)
            assert_int_equal(wire[i], 0);
    }
}

/* In f32, the sum would stop growing at 2^24. */
static void the_mean_of_many_is_exact(void **state)
{
    for (size_t i = 0; i < SL_TILE; i++)
        input[i] = i == 0 ? -0x1p30f : 1.0f;
    round_trip(SL_TILE);
    assert_true(output[0] == -(float)((0x1p30 + 4095) / 4096));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_definition),
        cmocka_unit_test(all_paths_give_the_bytes_of_plain_c),
        cmocka_unit_test(each_element_decodes_to_its_sign_and_the_mean),
        cmocka_unit_test(both_zeros_are_positive),
        cmocka_unit_test(a_tile_that_is_not_finite_decodes_to_nan_alone),
        cmocka_unit_test(the_mean_of_many_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
