/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs, their specs as text, reduction and error feedback by their definitions. */
#include "codec_paths.h"

#include "compress/elements.h"
#include "compress/kernels.h"
#include "core/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define COUNT_MAX (3 * SL_TILE + 1)

static const size_t counts[] = {0,        1, 15, 33, 129, SL_TILE - 1, SL_TILE, 2 * SL_TILE + 77,
                                COUNT_MAX};

static uint64_t state_of_random = 0x9e3779b97f4a7c15;

static uint32_t random_u32(void)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return (uint32_t)(state_of_random * 0x2545f4914f6cdd1d >> 32);
}

static float random_float(void)
{
    return ((float)random_u32() - 0x1p31f) * 0x1p-31f;
}

static void every_codec_is_found_by_number_and_by_name(void **state)
{
    size_t n = 0;

    for (const struct sl_codec *codec; (codec = sl_codec_row(n)) != NULL; n++) {
        assert_ptr_equal(sl_codec_by_id(codec->id), codec);
        assert_ptr_equal(sl_codec_by_name(codec->name), codec);
        assert_true(codec->id < SL_CODEC_ID_COUNT && strlen(codec->help) > 0);
        assert_non_null(codec->size);
        assert_non_null(codec->encode);
        assert_non_null(codec->decode);
        assert_non_null(codec->decode_add);
        assert_int_equal(codec->add != NULL, (codec->flags & SL_CODEC_LINEAR) != 0);
    }
    assert_true(n > 0);
    assert_null(sl_codec_by_id(SL_CODEC_ID_COUNT));
    assert_null(sl_codec_by_name("zip"));
}

static void a_spec_is_parsed_and_printed_again(void **state)
{
    static const char *const texts[] = {
        "raw",
        "raw:dtype=bf16",
        "raw:dtype=f16",
        "bq8",
        "bq8:stochastic=on",
        "bq4:stochastic=on,rotated=on,seed=18446744073709551615,dtype=bf16"};
    struct sl_codec_spec spec;
    char text[128];

    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++) {
        memset(&spec, 0xa5, sizeof(spec));
        assert_int_equal(sl_codec_parse(texts[i], &spec), 0);
        assert_int_equal(sl_codec_print(&spec, text, sizeof(text)), strlen(texts[i]));
        assert_string_equal(text, texts[i]);
        assert_int_equal(spec.k + spec.rows + spec.ranks + spec.bits, 0);
    }
    assert_int_equal(spec.id, SL_CODEC_BQ4);
    assert_int_equal(spec.flags, SL_SPEC_STOCHASTIC | SL_SPEC_ROTATED);
    assert_int_equal(spec.dtype, SLUICE_BF16);
    assert_true(spec.seed == UINT64_MAX);
}

static void printing_tells_the_room_that_it_needs(void **state)
{
    const struct sl_codec_spec spec = {.id = SL_CODEC_RAW, .dtype = SLUICE_BF16};
    char text[4];

    assert_int_equal(sl_codec_print(&spec, NULL, 0), strlen("raw:dtype=bf16"));
    assert_int_equal(sl_codec_print(&spec, text, sizeof(text)), strlen("raw:dtype=bf16"));
    assert_string_equal(text, "raw");
}

static void a_text_that_is_no_spec_is_refused_with_the_choices(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "the choices are raw"},
        {"zip", "no codec \"zip\": the choices are raw"},
        {"a-name-that-is-longer-than-any-codec-has", "the choices are raw"},
        {"raw:", "\"\" is no parameter of codec raw: the choices are bits, k, rows"},
        {"raw:colour=red", "\"colour\" is no parameter of codec raw"},
        {"raw:dtype", "dtype needs a value"},
        {"raw:dtype=", "the choices are f32, bf16, f16"},
        {"raw:dtype=f64", "dtype=f64: the choices are f32, bf16, f16"},
        {"raw:dtype=f32,", "\"\" is no parameter"},
        {"raw:dtype=f32,dtype=f32", "given twice"},
        {"raw:stochastic=yes", "stochastic=yes: the choices are on, off"},
        {"raw:stochastic=on", "cannot round at random"},
        {"raw:rotated=on", "codec raw has no rotated"},
        {"raw:k=7", "codec raw has no k"},
        {"raw:k=x", "k=x: a whole number up to 4294967295"},
        {"raw:k=", "a whole number"},
        {"raw:k=4294967296", "a whole number up to 4294967295"},
        {"raw:k=-1", "a whole number"},
        {"raw:bits=256", "a whole number up to 255"},
        {"raw:seed=18446744073709551616", "a whole number up to 18446744073709551615"},
        {"raw:seed=18446744073709551615", "only with stochastic=on"},
        {"raw:k=11111111111111111111111111111111111111111111", "needs a value"},
    };
    struct sl_codec_spec spec, before;

    memset(&spec, 0xa5, sizeof(spec));
    before = spec;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        assert_int_equal(sl_codec_parse(cases[i].text, &spec), -EINVAL);
        if (strstr(sluice_last_error(), cases[i].says) == NULL)
            fail_msg("\"%s\": %s", cases[i].text, sluice_last_error());
        assert_memory_equal(&spec, &before, sizeof(spec));
    }
}

static void a_spec_that_no_codec_can_fulfil_is_refused(void **state)
{
    static const struct sl_codec_spec specs[] = {
        {.id = SL_CODEC_ID_COUNT, .dtype = SLUICE_F32},
        {.id = SL_CODEC_RAW, .dtype = SLUICE_F64},
        {.id = SL_CODEC_RAW, .dtype = 200},
        {.id = SL_CODEC_RAW, .dtype = SLUICE_F32, .flags = 128},
        {.id = SL_CODEC_RAW, .dtype = SLUICE_F32, .seed = 1},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(specs); i++)
        assert_int_equal(sl_codec_check(&specs[i]), -EINVAL);
}

/* The specs of all codecs of fixed size that a text can choose without more. */
static size_t plain_specs(struct sl_codec_spec *specs)
{
    static const uint8_t dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    const struct sl_codec *codec;
    size_t n = 0;

    for (size_t i = 0; (codec = sl_codec_row(i)) != NULL; i++)
        for (size_t t = 0; t < SL_ARRAY_LEN(dtypes); t++)
            for (unsigned random = 0; random < 2; random++) {
                struct sl_codec_spec spec = {.id = codec->id, .dtype = dtypes[t]};

                spec.flags = random ? SL_SPEC_STOCHASTIC : 0;
                spec.seed = random ? 77 : 0;
                if ((codec->flags & SL_CODEC_FIXED) != 0 && sl_codec_check(&spec) == 0)
                    specs[n++] = spec;
            }
    return n;
}

static struct sl_codec_spec specs[SL_CODEC_ID_COUNT * 6];
static const struct sl_codec_at at = {.first = 5 * SL_TILE, .stream = 3, .step = 9};
static _Alignas(64) char bytes[RANKS][COUNT_MAX * 8], wanted[COUNT_MAX * 8], got[COUNT_MAX * 8];
static _Alignas(64) float inputs[RANKS][COUNT_MAX], sums[COUNT_MAX], rest[COUNT_MAX],
    rest_wanted[COUNT_MAX], sent[COUNT_MAX];

static void make_inputs(const struct sl_codec_spec *spec, size_t count)
{
    for (unsigned w = 0; w < RANKS; w++) {
        float numbers[COUNT_MAX];

        for (size_t i = 0; i < count; i++)
            numbers[i] = random_float();
        sl_elements_narrow(spec->dtype, numbers, count, inputs[w]);
    }
}

static void sizes_of_fixed_codecs_are_those_of_their_tiles_in_a_row(void **state)
{
    size_t n = plain_specs(specs);

    assert_true(n > 0);
    for (size_t s = 0; s < n; s++) {
        const struct sl_codec *codec = sl_codec_by_id(specs[s].id);
        size_t tile = codec->size(&specs[s], SL_TILE);

        assert_int_equal(codec->size(&specs[s], 0), 0);
        assert_int_equal(tile % 16, 0);
        for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
            size_t count = counts[i], len = codec->size(&specs[s], count);

            assert_int_equal(len, count / SL_TILE * tile + codec->size(&specs[s], count % SL_TILE));
            make_inputs(&specs[s], count);
            assert_int_equal(codec->encode(&specs[s], &at, inputs[0], count, bytes[0]), len);
        }
        assert_true(codec->size(&specs[s], SL_CODEC_COUNT_MOST) > SL_CODEC_COUNT_MOST / 16);
    }
}

static void a_message_of_another_length_is_refused(void **state)
{
    size_t n = plain_specs(specs), count = SL_TILE + 5;

    for (size_t s = 0; s < n; s++) {
        const struct sl_codec *codec = sl_codec_by_id(specs[s].id);
        size_t len = codec->size(&specs[s], count);
        const size_t lens[] = {0, 1, len - 1, len + 1, len + 16, SIZE_MAX};

        make_inputs(&specs[s], count);
        codec->encode(&specs[s], &at, inputs[0], count, bytes[0]);
        for (size_t i = 0; i < SL_ARRAY_LEN(lens); i++) {
            assert_int_equal(codec->decode(&specs[s], &at, bytes[0], lens[i], count, sums),
                             -EBADMSG);
            assert_int_equal(codec->decode_add(&specs[s], &at, bytes[0], lens[i], count, sums),
                             -EBADMSG);
            assert_non_null(strstr(sluice_last_error(), codec->name));
        }
        assert_int_equal(codec->decode(&specs[s], &at, bytes[0], len, SIZE_MAX, sums), -EBADMSG);
    }
}

/* What a peer gets of elements, as floats. */
static void decode_floats(struct sl_codec_spec spec, const void *in, size_t len, size_t count,
                          float *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec.id);

    for (size_t i = 0; i < count; i++)
        out[i] = -0.0f; /* to which any number may be added, -0 too */
    assert_int_equal(codec->decode_add(&spec, &at, in, len, count, out), 0);
}

static void reduce_by_definition(const struct sl_codec_spec *spec, size_t len, size_t count,
                                 float factor, const struct sl_codec_spec *out_spec)
{
    struct sl_codec_spec floats = *out_spec;
    const struct sl_codec *to = sl_codec_by_id(out_spec->id);

    decode_floats(*spec, bytes[0], len, count, sums);
    for (unsigned w = 1; w < RANKS; w++) {
        decode_floats(*spec, bytes[w], len, count, sent);
        for (size_t i = 0; i < count; i++)
            sums[i] += sent[i];
    }
    for (size_t i = 0; i < count; i++)
        sums[i] *= factor;
    if ((to->flags & SL_CODEC_LOSSLESS) != 0)
        sl_elements_narrow(out_spec->dtype, sums, count, sums);
    else
        floats.dtype = SLUICE_F32;
    to->encode(&floats, &at, sums, count, wanted);
}

static void reduction_is_decoding_adding_in_order_and_encoding_once(void **state)
{
    const void *const in[RANKS] = {bytes[0], bytes[1], bytes[2]};
    size_t n = plain_specs(specs), out_len;

    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
            const struct sl_codec *codec = sl_codec_by_id(specs[s].id);
            const struct sl_codec_spec *out_spec = &specs[(s + i) % n];
            size_t count = counts[i], len = codec->size(&specs[s], count);
            float factor = i % 2 ? 1.0f : 1.0f / RANKS;

            make_inputs(&specs[s], count);
            for (unsigned w = 0; w < RANKS; w++)
                codec->encode(&specs[s], &at, inputs[w], count, bytes[w]);
            reduce_by_definition(&specs[s], len, count, factor, out_spec);
            assert_int_equal(sl_codec_reduce(&specs[s], &at, in, RANKS, len, factor, out_spec, &at,
                                             count, got, &out_len),
                             0);
            assert_int_equal(out_len, sl_codec_by_id(out_spec->id)->size(out_spec, count));
            assert_memory_equal(got, wanted, out_len);
            out_len = 99;
            assert_int_equal(sl_codec_reduce(&specs[s], &at, in, RANKS, len + 1, factor, out_spec,
                                             &at, count, got, &out_len),
                             -EBADMSG);
            assert_int_equal(out_len, 99);
        }
}

static void a_mean_is_decoding_adding_and_a_product(void **state)
{
    static const float factors[] = {1.0f, 1.0f / 3, 0.125f};
    size_t n = plain_specs(specs);

    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
            const struct sl_codec *codec = sl_codec_by_id(specs[s].id);
            size_t count = counts[i], len = codec->size(&specs[s], count);
            float factor = factors[(s + i) % 3];

            make_inputs(&specs[s], count);
            len = codec->encode(&specs[s], &at, inputs[0], count, bytes[0]);
            for (size_t j = 0; j < count; j++)
                sums[j] = rest[j] = random_float();
            assert_int_equal(codec->decode_add(&specs[s], &at, bytes[0], len, count, sums), 0);
            assert_int_equal(
                sl_codec_decode_mean(&specs[s], &at, bytes[0], len, count, factor, rest), 0);
            for (size_t j = 0; j < count; j++)
                assert_true(rest[j] == sums[j] * factor);
            assert_int_equal(
                sl_codec_decode_mean(&specs[s], &at, bytes[0], len + 1, count, factor, rest),
                -EBADMSG);
        }
}

static void feedback_by_definition(const struct sl_codec_spec *spec, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    struct sl_codec_spec floats = *spec;
    static float narrow[COUNT_MAX];
    size_t len;

    sl_elements_widen(spec->dtype, inputs[0], count, sums);
    for (size_t i = 0; i < count; i++)
        sums[i] += rest_wanted[i];
    if ((codec->flags & SL_CODEC_LOSSLESS) == 0)
        floats.dtype = SLUICE_F32;
    sl_elements_narrow(floats.dtype, sums, count, narrow);
    len = codec->encode(&floats, &at, narrow, count, wanted);
    decode_floats(floats, wanted, len, count, sent);
    for (size_t i = 0; i < count; i++) {
        float left = sums[i] - sent[i];

        rest_wanted[i] = isfinite(left) ? left : 0;
    }
}

static void feed(const struct sl_codec_spec *spec, const float *numbers, size_t count)
{
    size_t len;

    sl_elements_narrow(spec->dtype, numbers, count, inputs[0]);
    feedback_by_definition(spec, count);
    len = sl_codec_encode_feedback(spec, &at, inputs[0], rest, count, got);
    assert_int_equal(len, sl_codec_by_id(spec->id)->size(spec, count));
    assert_memory_equal(got, wanted, len);
    for (size_t j = 0; j < count; j++)
        assert_true(rest[j] == rest_wanted[j]); /* -0 is 0 */
}

static void check_feedback(const struct sl_codec_spec *spec, unsigned kind, size_t count)
{
    for (size_t j = 0; j < count; j++)
        rest[j] = rest_wanted[j] = random_float() / 64;
    for (unsigned step = 0; step < 2; step++) {
        float numbers[COUNT_MAX];

        test_input(kind, count, numbers);
        feed(spec, numbers, count);
    }
}

static void feedback_keeps_what_was_not_sent_by_all_paths(void **state)
{
    size_t n = plain_specs(specs);

    for (size_t p = 0; test_paths[p] != NULL; p++)
        for (size_t s = 0; s < n && test_path_set(test_paths[p]); s++)
            for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++)
                check_feedback(&specs[s], (s + i) % INPUT_KINDS, counts[i]);
    test_path_set(NULL);
}

static void feedback_of_rotated_blocks_is_by_definition(void **state)
{
    static const char *const texts[] = {"bq8:rotated=on", "bq4:rotated=on,stochastic=on,seed=3"};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        struct sl_codec_spec spec;

        assert_int_equal(sl_codec_parse(texts[t], &spec), 0);
        check_feedback(&spec, 1, COUNT_MAX);
    }
}

/* The range of a tile's scales is known at its end alone: what was sent of blocks below it is taken
 * back. Some blocks are zero or no number, and so are whole parts of some tiles. */
static void feedback_of_blocks_far_apart_is_by_definition(void **state)
{
    static const char *const texts[] = {"bq4",   "bq2",   "bq4:dtype=bf16",   "bq8",
                                        "mxfp4", "nvfp4", "bq4:stochastic=on"};
    struct sl_codec_spec spec;
    float numbers[COUNT_MAX];

    for (size_t p = 0; test_paths[p] != NULL; p++)
        for (size_t t = 0; t < SL_ARRAY_LEN(texts) && test_path_set(test_paths[p]); t++)
            for (unsigned round = 0; round < 6; round++) {
                assert_int_equal(sl_codec_parse(texts[t], &spec), 0);
                memset(rest, 0, sizeof(rest));
                memset(rest_wanted, 0, sizeof(rest_wanted));
                for (unsigned step = 0; step < 2; step++) {
                    test_input(1, COUNT_MAX, numbers);
                    for (size_t i = 0, down = 0; i < COUNT_MAX; i++) {
                        down = i % 32 == 0 ? random_u32() % 60 : down;
                        numbers[i] = ldexpf(numbers[i], -(int)down);
                        if (i / 512 % 5 == round % 5 || down == 7)
                            numbers[i] = 0;
                        if (down == 8 && i % 32 == 3 && round > 3)
                            numbers[i] = step == 0 ? NAN : INFINITY;
                    }
                    feed(&spec, numbers, COUNT_MAX);
                }
            }
    test_path_set(NULL);
}

static void feedback_forgets_what_is_no_number(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    size_t n = plain_specs(specs), count = SL_TILE + 40;

    for (size_t s = 0; s < n; s++) {
        make_inputs(&specs[s], count);
        for (size_t i = 0; i < count; i++)
            rest[i] = 0;
        for (size_t i = 0; i < SL_ARRAY_LEN(odd); i++)
            sl_elements_narrow(specs[s].dtype, &odd[i], 1,
                               (char *)inputs[0] + i * (specs[s].dtype == SLUICE_F32 ? 4 : 2));
        sl_codec_encode_feedback(&specs[s], &at, inputs[0], rest, count, got);
        for (size_t i = 0; i < count; i++)
            assert_true(isfinite(rest[i]));
        for (size_t i = 0; i < SL_ARRAY_LEN(odd); i++)
            assert_true(rest[i] == 0);
    }
}

static void kernels_are_chosen_by_name_and_the_best_without(void **state)
{
    const struct sl_codec_kernels *best;

    assert_int_equal(sl_codec_kernels_force(NULL), 0);
    best = sl_codec_kernels();
    for (size_t p = 0; test_paths[p] != NULL; p++)
        if (test_path_set(test_paths[p]))
            assert_string_equal(sl_codec_kernels()->name, test_paths[p]);
    assert_ptr_equal(sl_codec_kernels(), best); /* the last name that this CPU runs */
    assert_int_equal(sl_codec_kernels_force("altivec"), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "no altivec codecs"));
    assert_ptr_equal(sl_codec_kernels(), best);
    assert_int_equal(sl_codec_kernels_force("c"), 0);
    assert_int_equal(sl_codec_kernels_force(NULL), 0);
    assert_ptr_equal(sl_codec_kernels(), best);
}

static void every_half_float_widens_and_narrows_to_itself(void **state)
{
    for (unsigned t = SLUICE_F16; t <= SLUICE_BF16; t += SLUICE_BF16 - SLUICE_F16)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            uint16_t half = (uint16_t)bits, back, nan = t == SLUICE_F16 ? 0x7e00 : 0x7fc0;
            float x;

            sl_elements_widen(t, &half, 1, &x);
            sl_elements_narrow(t, &x, 1, &back);
            assert_int_equal(back, isnan(x) ? nan : half);
            if (t == SLUICE_F16 && (bits & 0x7fff) < 0x7c00)
                assert_true(fabsf(x) ==
                            ldexpf((float)(bits & 0x3ff) + ((bits & 0x7c00) != 0 ? 1024.0f : 0.0f),
                                   ((bits & 0x7c00) != 0 ? (int)(bits >> 10 & 31) : 1) - 25));
        }
}

static void narrowing_takes_the_nearest_and_of_two_the_even(void **state)
{
    for (unsigned t = SLUICE_F16; t <= SLUICE_BF16; t += SLUICE_BF16 - SLUICE_F16)
        for (unsigned i = 0; i < (t == SLUICE_F16 ? 0x7bff : 0x7f7f); i++) {
            uint16_t half = (uint16_t)i, next = (uint16_t)(i + 1), back;
            float low, high, middle, x;

            sl_elements_widen(t, &half, 1, &low);
            sl_elements_widen(t, &next, 1, &high);
            middle = (float)(((double)low + (double)high) / 2);
            sl_elements_narrow(t, &middle, 1, &back);
            assert_int_equal(back, half % 2 ? next : half);
            x = nextafterf(middle, high);
            sl_elements_narrow(t, &x, 1, &back);
            assert_int_equal(back, next);
            x = nextafterf(middle, low);
            sl_elements_narrow(t, &x, 1, &back);
            assert_int_equal(back, half);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_is_found_by_number_and_by_name),
        cmocka_unit_test(a_spec_is_parsed_and_printed_again),
        cmocka_unit_test(printing_tells_the_room_that_it_needs),
        cmocka_unit_test(a_text_that_is_no_spec_is_refused_with_the_choices),
        cmocka_unit_test(a_spec_that_no_codec_can_fulfil_is_refused),
        cmocka_unit_test(sizes_of_fixed_codecs_are_those_of_their_tiles_in_a_row),
        cmocka_unit_test(a_message_of_another_length_is_refused),
        cmocka_unit_test(reduction_is_decoding_adding_in_order_and_encoding_once),
        cmocka_unit_test(a_mean_is_decoding_adding_and_a_product),
        cmocka_unit_test(feedback_keeps_what_was_not_sent_by_all_paths),
        cmocka_unit_test(feedback_of_rotated_blocks_is_by_definition),
        cmocka_unit_test(feedback_of_blocks_far_apart_is_by_definition),
        cmocka_unit_test(feedback_forgets_what_is_no_number),
        cmocka_unit_test(kernels_are_chosen_by_name_and_the_best_without),
        cmocka_unit_test(every_half_float_widens_and_narrows_to_itself),
        cmocka_unit_test(narrowing_takes_the_nearest_and_of_two_the_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
