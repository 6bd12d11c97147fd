/* SPDX-License-Identifier: Apache-2.0 */
/* Block quantisation: against its definition, element by element, and path against path. */
#include "codec_paths.h"

#include "compress/elements.h"
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

#define COUNT_MAX (2 * SL_TILE + 77)

static const struct sl_codec_at at = {.first = 3 * SL_TILE, .stream = 5, .step = 8};
static _Alignas(64) float input[COUNT_MAX], output[COUNT_MAX], again[COUNT_MAX];
static _Alignas(64) uint8_t wire[2 * COUNT_MAX], wanted[2 * COUNT_MAX];

static struct sl_codec_spec spec_of(const char *text)
{
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    return spec;
}

static void encode(const struct sl_codec_spec *spec, size_t count)
{
    sl_codec_by_id(spec->id)->encode(spec, &at, input, count, wire);
}

static void decode(const struct sl_codec_spec *spec, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);

    assert_int_equal(codec->decode(spec, &at, wire, codec->size(spec, count), count, output), 0);
}

static void round_trip(const char *text, size_t count)
{
    struct sl_codec_spec spec = spec_of(text);

    encode(&spec, count);
    decode(&spec, count);
}

/* ---- The definition, by mathematics instead of bits. ---- */

struct format {
    unsigned bits, block, most, mantissa; /* mantissa: bits of a scale's */
    double (*round)(double);              /* scales */
};

static struct format format_of(const struct sl_codec_spec *spec)
{
    /* At random up, so that none is past the largest and the mean is that of the input. */
    double (*round)(double) = (spec->flags & SL_SPEC_STOCHASTIC) != 0 ? ceil : nearbyint;

    return spec->id == SL_CODEC_BQ8   ? (struct format){8, 128, 127, 7, round}
           : spec->id == SL_CODEC_BQ4 ? (struct format){4, 32, 7, 3, round}
                                      : (struct format){2, 32, 1, 3, round};
}

/* The next number of a format with so many bits of mantissa, at or above or below x. */
static double next_scale(double x, unsigned mantissa, double (*round)(double))
{
    int exp;
    double part = frexp(x, &exp), unit = ldexp(1, exp - 1 - (int)mantissa);

    return part == 0 ? 0 : round(x / unit) * unit;
}

/* Of a block's maximum; 0: zeros; NaN: not finite. */
static double scale_by_definition(const struct format *f, float max)
{
    double scale, most = next_scale((double)FLT_MAX / f->most, f->mantissa, floor);

    if (!isfinite(max))
        return (double)NAN;
    if (max < 0x1p-126f)
        return 0;
    scale = next_scale((double)(max / (float)f->most), f->mantissa, f->round);
    return fmin(fmax(scale, 0x1p-126), most);
}

static float largest_of(const float *x, size_t n)
{
    float max = 0;

    for (size_t i = 0; i < n; i++)
        max = isnan(x[i]) || fabsf(x[i]) > max ? fabsf(x[i]) : max;
    for (size_t i = 0; i < n; i++)
        max = isnan(x[i]) ? x[i] : max;
    return max;
}

static int code_by_definition(const struct sl_codec_spec *spec, const struct format *f, float x,
                              double scale, size_t i)
{
    float product = x * (1.0f / (float)scale), most = (float)f->most;

    if (scale == 0 || isnan(scale))
        return 0;
    if ((spec->flags & SL_SPEC_STOCHASTIC) != 0) {
        float u = (float)sl_philox_16(at.first + i, at.stream, at.step, spec->seed) / 65536.0f;

        product = floorf(product + u);
    } else {
        product = nearbyintf(product);
    }
    return (int)fmaxf(fminf(product, most), -most);
}

static void put_code(const struct format *f, uint8_t *codes, size_t i, int code)
{
    unsigned each = 8 / f->bits;

    codes[i / each] |=
        (uint8_t)((unsigned)(code & (int)((1u << f->bits) - 1)) << i % each * f->bits);
}

/* Returns the bytes of a tile of n elements, of which the first is number first. */
static size_t tile_by_definition(const struct sl_codec_spec *spec, const float *x, size_t first,
                                 size_t n, uint8_t *out)
{
    struct format f = format_of(spec);
    size_t blocks = (n + f.block - 1) / f.block, head = f.bits == 8 ? 0 : 16;
    size_t codes = head + (blocks * (f.bits == 8 ? 2 : 1) + 15) / 16 * 16;
    size_t len = codes + (blocks * f.block * f.bits / 8 + 15) / 16 * 16;
    double scale[SL_TILE / 32], top = 0;
    int base;

    memset(out, 0, len);
    for (size_t b = 0; b < blocks; b++) {
        size_t end = (b + 1) * f.block < n ? (b + 1) * f.block : n;

        scale[b] = scale_by_definition(&f, largest_of(x + b * f.block, end - b * f.block));
        top = scale[b] > top ? scale[b] : top;
    }
    base = top > 0 ? ilogb(top) : 0;
    if (head > 0)
        out[0] = (uint8_t)base;
    for (size_t b = 0; b < blocks; b++) {
        float s = (float)scale[b];

        if (head == 0) {
            uint16_t half = isnan(s) ? 0x7fc0 : (uint16_t)(sl_f32_bits(s) >> 16);

            memcpy(out + 2 * b, &half, 2);
        } else if (isnan(s)) {
            out[head + b] = 255;
        } else if (s > 0) { /* eight numbers to a power of two, 2^(base - 30) the number 0 */
            int exp = ilogb(scale[b]), m = (int)(ldexp(scale[b], 3 - exp)) - 8;
            int code = (exp - base + 30) * 8 + m;

            out[head + b] = (uint8_t)(code < 1 ? 0 : code);
            scale[b] = code < 1 ? 0 : scale[b];
        }
    }
    for (size_t i = 0; i < n; i++)
        put_code(&f, out + codes, i,
                 code_by_definition(spec, &f, x[i], scale[i / f.block], first + i));
    return len;
}

static void bytes_are_those_of_the_definition(void **state)
{
    static const char *const texts[] = {"bq8",
                                        "bq4",
                                        "bq2",
                                        "bq8:stochastic=on,seed=11",
                                        "bq4:stochastic=on,seed=12345678901",
                                        "bq2:stochastic=on"};
    static const size_t counts[] = {1, 31, 32, 100, 129, SL_TILE, COUNT_MAX};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (unsigned kind = 0; kind < INPUT_KINDS; kind++)
            for (size_t c = 0; c < SL_ARRAY_LEN(counts); c++) {
                struct sl_codec_spec spec = spec_of(texts[t]);
                size_t len = 0;

                test_input(kind, counts[c], input);
                for (size_t i = 0; i < counts[c]; i += SL_TILE)
                    len += tile_by_definition(&spec, input + i, i,
                                              counts[c] - i < SL_TILE ? counts[c] - i : SL_TILE,
                                              wanted + len);
                assert_int_equal(sl_codec_by_id(spec.id)->size(&spec, counts[c]), len);
                encode(&spec, counts[c]);
                for (size_t i = 0; i < len; i++)
                    if (wire[i] != wanted[i])
                        fail_msg("%s, kind %u, %zu elements: byte %zu is 0x%02x, not 0x%02x",
                                 texts[t], kind, counts[c], i, wire[i], wanted[i]);
            }
}

static void all_paths_give_the_bytes_of_plain_c(void **state)
{
    test_paths_agree("bq8");
    test_paths_agree("bq4");
    test_paths_agree("bq2");
}

static void all_paths_round_at_random_alike(void **state)
{
    test_paths_agree("bq8:stochastic=on,seed=18446744073709551615");
    test_paths_agree("bq4:stochastic=on,seed=2");
    test_paths_agree("bq2:stochastic=on,seed=3");
}

static void all_paths_rotate_alike(void **state)
{
    test_paths_agree("bq8:rotated=on");
    test_paths_agree("bq4:rotated=on,stochastic=on");
}

static void large_messages_are_the_same_past_the_caches(void **state)
{
    test_paths_agree_at("bq8", (size_t)4200000);
    test_paths_agree_at("bq4", (size_t)8200000);
}

static void sizes_are_those_of_the_table(void **state)
{
    static const struct {
        const char *text;
        size_t count, len;
    } cases[] = {
        {"bq8", SL_TILE, 4160},
        {"bq8", 1, 16 + 128},
        {"bq8", 1025, 32 + 9 * 128},
        {"bq4", SL_TILE, 2192},
        {"bq4", 1, 16 + 16 + 16},
        {"bq4", 545, 16 + 32 + 18 * 16},
        {"bq2", SL_TILE, 1168},
        {"bq2", 1, 16 + 16 + 16},
        {"bq2", 65, 16 + 16 + 32},
        {"bq8", 3 * SL_TILE + 1, 3 * 4160 + 144},
        {"bq8", 0, 0},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_codec_spec spec = spec_of(cases[i].text);

        assert_int_equal(sl_codec_by_id(spec.id)->size(&spec, cases[i].count), cases[i].len);
    }
}

/* Half a step and a rounding each; the largest value clips by less. */
static void no_value_is_off_by_more_than_half_a_step(void **state)
{
    static const char *const texts[] = {"bq8", "bq4", "bq2"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec = spec_of(texts[t]);
        struct format f = format_of(&spec);

        test_input(1, SL_TILE, input);
        round_trip(texts[t], SL_TILE);
        for (size_t i = 0; i < SL_TILE; i++) {
            float max = largest_of(input + i / f.block * f.block, f.block);
            double step = scale_by_definition(&f, max);

            assert_true(fabs((double)output[i] - (double)input[i]) <= step * 0.500001);
            assert_true(step <= max / f.most * (f.bits == 8 ? 1.008 : 1.126));
        }
    }
}

static float largest_comes_back_as(const char *text, float largest)
{
    for (size_t i = 0; i < 32; i++)
        input[i] = i == 3 ? largest : 0;
    round_trip(text, 32);
    return output[3];
}

/* Between 1 and 1.125 there is no scale. */
static void a_scale_is_the_nearest_and_at_random_no_smaller_one(void **state)
{
    assert_true(largest_comes_back_as("bq2", 1) == 1);
    assert_true(largest_comes_back_as("bq2", 1.0625f) == 1); /* the even one */
    assert_true(largest_comes_back_as("bq2", nextafterf(1.0625f, 2)) == 1.125f);
    assert_true(largest_comes_back_as("bq2", 1.1875f) == 1.25f);
    assert_true(largest_comes_back_as("bq2:stochastic=on", 1) == 1);
    for (unsigned seed = 0; seed < 50; seed++) {
        char text[64];
        float back;

        snprintf(text, sizeof(text), "bq2:stochastic=on,seed=%u", seed);
        back = largest_comes_back_as(text, nextafterf(1, 2));
        assert_true(back == 1.125f || back == 0);
    }
}

static void a_block_that_is_not_finite_decodes_to_nan_alone(void **state)
{
    static const char *const texts[] = {"bq8", "bq4", "bq2"};
    static const float odd[] = {NAN, INFINITY, -INFINITY};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (size_t o = 0; o < SL_ARRAY_LEN(odd); o++) {
            struct sl_codec_spec spec = spec_of(texts[t]);
            size_t block = format_of(&spec).block;

            test_input(1, SL_TILE, input);
            round_trip(texts[t], SL_TILE);
            memcpy(again, output, sizeof(again));
            input[5 * block + 9] = odd[o];
            round_trip(texts[t], SL_TILE);
            for (size_t i = 0; i < SL_TILE; i++)
                if (i / block == 5)
                    assert_true(isnan(output[i]));
                else
                    assert_true(output[i] == again[i]);
        }
}

static void zeros_and_what_is_tiny_decode_to_zero(void **state)
{
    static const char *const texts[] = {"bq8", "bq4", "bq2", "bq8:stochastic=on", "bq4:rotated=on"};
    static const float tiny[] = {0, -0.0f, 0x1p-149f, 0x1.fffffcp-127f};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (size_t z = 0; z < SL_ARRAY_LEN(tiny); z++) {
            for (size_t i = 0; i < 200; i++)
                input[i] = i % 3 ? tiny[z] : -tiny[z];
            round_trip(texts[t], 200);
            for (size_t i = 0; i < 200; i++)
                assert_true(output[i] == 0);
        }
}

static void what_is_finite_decodes_to_what_is_finite(void **state)
{
    static const char *const texts[] = {"bq8", "bq4", "bq2", "bq8:stochastic=on"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (unsigned step = 0; step < 300; step++) {
            float x = FLT_MAX * (1.0f - (float)step * 0x1p-9f);

            for (size_t i = 0; i < 256; i++)
                input[i] = i % 2 ? x : -x;
            round_trip(texts[t], 256);
            for (size_t i = 0; i < 256; i++)
                assert_true(isfinite(output[i]) && fabsf(output[i] / input[i] - 1) < 0.13f);
        }
}

static void a_block_far_below_its_tile_becomes_zero_and_no_nearer_one(void **state)
{
    for (int down = 24; down < 40; down++) {
        for (size_t i = 0; i < SL_TILE; i++)
            input[i] = i < 32 ? 7.0f : ldexpf(7.0f, -down);
        round_trip("bq4", SL_TILE);
        for (size_t i = 0; i < SL_TILE; i++)
            assert_true(output[i] == (i < 32 || down < 30 ? input[i] : 0));
    }
    for (size_t i = 32; i < SL_TILE; i++) /* the smallest scale of all */
        input[i] = 7 * 0x1.2p-30f;
    round_trip("bq4", SL_TILE);
    for (size_t i = 0; i < SL_TILE; i++)
        assert_true(output[i] == input[i]);
}

/* Whatever its codes are, and on each path. A sum with it is some NaN. */
static void scales_of_strangers_that_are_no_numbers_are_one_nan(void **state)
{
    static const uint16_t odd[] = {0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffc0, 0xffff, 0x7fff};
    struct sl_codec_spec spec = spec_of("bq8");
    const struct sl_codec *codec = sl_codec_by_id(spec.id);
    size_t len = codec->size(&spec, SL_TILE);

    for (size_t p = 0; test_paths[p] != NULL; p++) {
        if (!test_path_set(test_paths[p]))
            continue;
        for (size_t i = 0; i < SL_ARRAY_LEN(odd); i++) {
            for (size_t b = 0; b < len; b++)
                wire[b] = (uint8_t)b;
            for (size_t b = 0; b < 32; b++)
                memcpy(wire + 2 * b, b % 2 == 0 ? &odd[i] : &(uint16_t){0x3f80}, 2);
            decode(&spec, SL_TILE);
            memset(again, 0, sizeof(again));
            assert_int_equal(codec->decode_add(&spec, &at, wire, len, SL_TILE, again), 0);
            for (size_t j = 0; j < SL_TILE; j++) {
                bool number = j / 128 % 2 == 1;

                assert_true(number ? output[j] == (float)(int8_t)(j + 64)
                                   : sl_f32_bits(output[j]) == SL_BITS_NAN);
                assert_true(number ? again[j] == output[j] : isnan(again[j]));
            }
        }
    }
    test_path_set(NULL);
}

static void bytes_of_strangers_decode_to_something_defined(void **state)
{
    struct sl_codec_spec spec = spec_of("bq4");

    memset(wire, 0x77, sizeof(wire));
    wire[0] = 127; /* the codes of the scales 246, ... pass the end of the floats */
    memset(wire + 16, 254, 128);
    decode(&spec, SL_TILE);
    assert_true(isnan(output[0]));
    memset(wire + 16, 248, 128); /* would be infinity */
    decode(&spec, SL_TILE);
    assert_true(isnan(output[0]));
    wire[0] = 0x80; /* and here they begin below 2^-126 */
    memset(wire + 16, 1, 128);
    decode(&spec, SL_TILE);
    assert_true(output[0] == 0);
    memset(wire + 16, 255, 128);
    decode(&spec, SL_TILE);
    assert_true(isnan(output[0]));
    wire[0] = 0;
    memset(wire + 16, 30 * 8, 128); /* 1 */
    memset(wire + 144, 0x87, 2048);
    decode(&spec, SL_TILE);
    assert_true(output[0] == 7 && output[1] == -8);
    spec = spec_of("bq2");
    memset(wire + 144, 0xe4, 1024);
    decode(&spec, SL_TILE);
    assert_true(output[0] == 0 && output[1] == 1 && output[2] == -2 && output[3] == -1);
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(wire); i++)
            wire[i] = (uint8_t)test_random();
        spec = spec_of(round % 3 == 0 ? "bq8" : round % 3 == 1 ? "bq4:rotated=on" : "bq2");
        decode(&spec, COUNT_MAX - round * 7);
    }
}

/* Half its steps apart, so that chance has most to do. */
static void rounding_at_random_has_the_value_as_its_mean(void **state)
{
    static const char *const texts[] = {"bq8:stochastic=on,seed=7", "bq4:stochastic=on,seed=7",
                                        "bq2:stochastic=on,seed=7"};
    enum { STEPS = 2000, COUNT = 256 };

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec = spec_of(texts[t]);
        const struct sl_codec *codec = sl_codec_by_id(spec.id);
        struct format f = format_of(&spec);
        double mean[COUNT] = {0};

        for (size_t i = 0; i < COUNT; i++)
            input[i] = i % 32 == 0 ? (float)f.most : (float)(i % 37) / 37.0f * (float)f.most;
        for (uint32_t step = 0; step < STEPS; step++) {
            const struct sl_codec_at here = {.step = step};

            codec->encode(&spec, &here, input, COUNT, wire);
            decode(&spec, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                mean[i] += (double)output[i] / STEPS;
                assert_true(fabsf(output[i] - input[i]) < 1.0001f);
            }
        }
        for (size_t i = 0; i < COUNT; i++) /* six of its own deviations, at most 0.5 each */
            assert_true(fabs(mean[i] - (double)input[i]) < 3 / sqrt(STEPS));
    }
}

static void a_slice_draws_what_the_whole_draws(void **state)
{
    struct sl_codec_spec spec = spec_of("bq4:stochastic=on,seed=5");
    const struct sl_codec *codec = sl_codec_by_id(spec.id);
    struct sl_codec_at here = at;
    size_t tile = codec->size(&spec, SL_TILE);

    test_input(1, 2 * SL_TILE, input);
    encode(&spec, 2 * SL_TILE);
    here.first += SL_TILE;
    codec->encode(&spec, &here, input + SL_TILE, SL_TILE, wanted);
    assert_memory_equal(wire + tile, wanted, tile);
    here.step++;
    codec->encode(&spec, &here, input + SL_TILE, SL_TILE, wanted);
    assert_memory_not_equal(wire + tile, wanted, tile);
}

/* Of whole numbers, sums are exact: with the matrix, whose sign is the parity of row AND column. */
static void rotation_is_the_hadamard_matrix(void **state)
{
    static const char *const texts[] = {"bq4:rotated=on", "bq8:rotated=on"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec = spec_of(texts[t]), plain = spec;
        size_t n = format_of(&spec).block;

        for (size_t i = 0; i < SL_TILE; i++)
            input[i] = (float)((int)(test_random() % 2001) - 1000);
        encode(&spec, SL_TILE);
        memcpy(wanted, wire, sizeof(wanted));
        for (size_t i = 0; i < SL_TILE; i++) {
            float sum = 0;

            for (size_t j = 0; j < n; j++)
                sum += input[i / n * n + j] * (__builtin_parity(i % n & j) ? -1.0f : 1.0f);
            again[i] = sum / (float)n;
        }
        memcpy(input, again, sizeof(input));
        plain.flags = 0;
        encode(&plain, SL_TILE);
        assert_memory_equal(wire, wanted, sl_codec_by_id(spec.id)->size(&spec, SL_TILE));
    }
}

static void a_rotated_message_comes_back(void **state)
{
    static const char *const texts[] = {"bq4:rotated=on", "bq8:rotated=on"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        double error = 0, power = 0;

        test_input(1, COUNT_MAX, input);
        round_trip(texts[t], COUNT_MAX);
        for (size_t i = 0; i < COUNT_MAX; i++) {
            error += pow((double)output[i] - (double)input[i], 2);
            power += pow((double)input[i], 2);
        }
        assert_true(error / power < (t == 0 ? 1.3e-2 : 5e-5));
        assert_true(error / power > (t == 0 ? 8e-3 : 3e-5));
    }
}

static void what_a_codec_has_no_use_for_is_refused(void **state)
{
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse("bq2:rotated=on", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("bq8:bits=8", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("bq8:seed=8", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("bq4:rotated=on,stochastic=on,seed=8", &spec), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_definition),
        cmocka_unit_test(all_paths_give_the_bytes_of_plain_c),
        cmocka_unit_test(all_paths_round_at_random_alike),
        cmocka_unit_test(all_paths_rotate_alike),
        cmocka_unit_test(large_messages_are_the_same_past_the_caches),
        cmocka_unit_test(sizes_are_those_of_the_table),
        cmocka_unit_test(no_value_is_off_by_more_than_half_a_step),
        cmocka_unit_test(a_scale_is_the_nearest_and_at_random_no_smaller_one),
        cmocka_unit_test(a_block_that_is_not_finite_decodes_to_nan_alone),
        cmocka_unit_test(zeros_and_what_is_tiny_decode_to_zero),
        cmocka_unit_test(what_is_finite_decodes_to_what_is_finite),
        cmocka_unit_test(a_block_far_below_its_tile_becomes_zero_and_no_nearer_one),
        cmocka_unit_test(scales_of_strangers_that_are_no_numbers_are_one_nan),
        cmocka_unit_test(bytes_of_strangers_decode_to_something_defined),
        cmocka_unit_test(rounding_at_random_has_the_value_as_its_mean),
        cmocka_unit_test(a_slice_draws_what_the_whole_draws),
        cmocka_unit_test(rotation_is_the_hadamard_matrix),
        cmocka_unit_test(a_rotated_message_comes_back),
        cmocka_unit_test(what_a_codec_has_no_use_for_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
