/* SPDX-License-Identifier: Apache-2.0 */
/* Cosine coefficients against the definition in f64, and which of them are kept. */
#include "codec_paths.h"
#include "codec_util.h"

static const struct sl_codec_at at;
static float input[UTIL_COUNT], got[UTIL_COUNT];
static _Alignas(16) uint8_t bytes[UTIL_COUNT * 5 + 1024];

static double exact_weight(unsigned k, unsigned j)
{
    return sqrt(k == 0 ? 1.0 / 64 : 2.0 / 64) * cos(3.14159265358979323846 * (2 * j + 1) * k / 128);
}

static void exact_transform(const float *in, size_t count, double out[64])
{
    for (unsigned k = 0; k < 64; k++) {
        out[k] = 0;
        for (unsigned j = 0; j < count; j++)
            out[k] += exact_weight(k, j) * (double)in[j];
    }
}

static size_t round_trip(const char *text, size_t count)
{
    struct sl_codec_spec spec;
    size_t len;

    spec_of(text, &spec);
    len = sl_codec_by_id(spec.id)->encode(&spec, &at, input, count, bytes);
    assert_int_equal(sl_codec_by_id(spec.id)->decode(&spec, &at, bytes, len, count, got), 0);
    return len;
}

static void the_codec_keeps_the_rules(void **state)
{
    assert_rules_over_inputs("dct:k=1");
    assert_rules_over_inputs("dct:k=8");
    assert_rules_over_inputs("dct:k=10,bits=32");
    assert_rules_over_inputs("dct:k=11");
    assert_rules_over_inputs("dct:k=64,bits=32");
}

static void all_coefficients_give_the_elements_back(void **state)
{
    for (int kind = 0; kind < DRAW_FINITE; kind++) {
        double error = 0, size = 0;

        draw_fill((enum draw_kind)kind, input, UTIL_COUNT - 65);
        (void)round_trip("dct:k=64,bits=32", UTIL_COUNT - 65);
        for (size_t i = 0; i < UTIL_COUNT - 65; i++) {
            error += pow((double)got[i] - (double)input[i], 2);
            size += pow((double)input[i], 2);
        }
        assert_true(sqrt(error) <= 1e-6 * sqrt(size));
    }
}

static void each_coefficient_is_that_of_the_definition(void **state)
{
    for (unsigned k = 0; k < 64; k++) {
        for (unsigned j = 0; j < 64; j++)
            input[j] = (float)exact_weight(k, j);
        struct sl_codec_spec spec;
        uint64_t word;
        float value;

        spec_of("dct:k=64,bits=32", &spec);
        (void)sl_codec_by_id(spec.id)->encode(&spec, &at, input, 64, bytes);
        memcpy(&word, bytes, 8);
        assert_true(word == UINT64_MAX);
        for (unsigned i = 0; i < 64; i++) {
            memcpy(&value, bytes + 16 + 4 * i, 4);
            assert_true(fabs((double)value - (i == k)) < 1e-6);
        }
    }
}

static void the_largest_coefficients_are_kept(void **state)
{
    static const unsigned ks[] = {1, 5, 8, 10, 11, 32};

    for (size_t n = 0; n < SL_ARRAY_LEN(ks); n++)
        for (size_t count = 64; count >= 37; count -= 27) {
            double all[64], kept[64], rest = 0, least = 1e30;
            char text[32];

            draw_fill(DRAW_GAUSSIAN, input, count);
            snprintf(text, sizeof(text), "dct:k=%u,bits=32", ks[n]);
            /* The decoding of a whole chunk tells which ones were kept. */
            struct sl_codec_spec spec;

            spec_of(text, &spec);
            size_t len = sl_codec_by_id(spec.id)->encode(&spec, &at, input, count, bytes);
            unsigned k = 0;

            assert_int_equal(sl_codec_by_id(spec.id)->decode(&spec, &at, bytes, len, 64, got), 0);
            exact_transform(input, count, all);
            exact_transform(got, 64, kept);
            for (unsigned i = 0; i < 64; i++) {
                if (fabs(kept[i]) < 1e-5) {
                    rest = fmax(rest, fabs(all[i]));
                    continue;
                }
                k++;
                assert_true(fabs(kept[i] - all[i]) < 1e-5);
                least = fmin(least, fabs(all[i]));
            }
            assert_int_equal(k, ks[n]);
            assert_true(least > rest - 1e-5);
        }
}

static void smooth_elements_take_few_bytes(void **state)
{
    double error = 0, size = 0;

    for (size_t i = 0; i < SL_TILE; i++)
        input[i] = (float)cos((double)i * 0.03) + 0.5f;
    assert_int_equal(round_trip("dct:k=8", SL_TILE), 64 * 8 * 6 / 8 + 64 * 8 * 2); /* 2.75 bits */
    for (size_t i = 0; i < SL_TILE; i++) {
        error += pow((double)got[i] - (double)input[i], 2);
        size += pow((double)input[i], 2);
    }
    assert_true(error < 2e-4 * size);
}

static void a_chunk_that_has_no_number_decodes_to_none(void **state)
{
    draw_fill(DRAW_GAUSSIAN, input, 200);
    input[70] = NAN;
    input[130] = INFINITY;
    (void)round_trip("dct:k=8", 192);
    for (size_t i = 0; i < 192; i++)
        assert_true(isnan(got[i]) == (i >= 64));
}

static void forged_places_are_refused(void **state)
{
    struct sl_codec_spec spec;
    const struct sl_codec *codec = sl_codec_by_name("dct");
    size_t len;

    draw_fill(DRAW_GAUSSIAN, input, 128);
    for (int list = 0; list < 2; list++) {
        spec_of(list ? "dct:k=4" : "dct:k=20", &spec);
        len = codec->encode(&spec, &at, input, 128, bytes);
        assert_int_equal(codec->decode(&spec, &at, bytes, len, 128, got), 0);
        memset(bytes, 0, 8);
        assert_int_equal(codec->decode(&spec, &at, bytes, len, 128, got), -EBADMSG);
        memset(bytes, 0xff, 8);
        assert_int_equal(codec->decode_add(&spec, &at, bytes, len, 128, got), -EBADMSG);
        assert_non_null(strstr(sluice_last_error(), "ascending"));
    }
    assert_int_equal(sl_codec_parse("dct", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("dct:k=65", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("dct:k=6,bits=8", &spec), -EINVAL);
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("dct:k=8");
    test_paths_agree("dct:k=32,bits=32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_codec_keeps_the_rules),
        cmocka_unit_test(all_coefficients_give_the_elements_back),
        cmocka_unit_test(each_coefficient_is_that_of_the_definition),
        cmocka_unit_test(the_largest_coefficients_are_kept),
        cmocka_unit_test(smooth_elements_take_few_bytes),
        cmocka_unit_test(a_chunk_that_has_no_number_decodes_to_none),
        cmocka_unit_test(forged_places_are_refused),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
