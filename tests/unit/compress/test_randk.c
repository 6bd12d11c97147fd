/* SPDX-License-Identifier: Apache-2.0 */
/* Rand-k: which places are drawn, by a model of its own, the same on all ranks, and its mean. */
#include "codec_paths.h"
#include "codec_util.h"

#include "compress/philox.h"

static const struct sl_codec *codec;
static struct sl_codec_spec spec;
static float input[UTIL_COUNT], other[UTIL_COUNT], got[UTIL_COUNT], expected[UTIL_COUNT];
static _Alignas(16) uint8_t bytes[UTIL_COUNT * 4 + 64], more[UTIL_COUNT * 4 + 64];

static size_t encode(const char *text, const struct sl_codec_at *at, const float *in, size_t count,
                     uint8_t *out)
{
    spec_of(text, &spec);
    codec = sl_codec_by_id(spec.id);
    return codec->encode(&spec, at, in, count, out);
}

/* Places of a tile: numbers one by one, as the file says. */
static void model_of(const struct sl_codec_at *at, size_t count, size_t k, bool *kept)
{
    bool out = k > count / 2;
    size_t wanted = out ? count - k : k;
    uint32_t mask = 1;

    while (mask < count)
        mask *= 2;
    for (size_t i = 0; i < count; i++)
        kept[i] = out;
    for (size_t i = 0; wanted > 0; i++) {
        uint32_t place = sl_philox_16(at->first + i, at->stream, at->step, spec.seed) & (mask - 1);

        assert_true(i < SL_TILE);
        if (place >= count || kept[place] != out)
            continue;
        kept[place] = !out;
        wanted--;
    }
}

static void the_codec_keeps_the_rules(void **state)
{
    assert_rules_over_inputs("randk:k=41,seed=7");
    assert_rules_over_inputs("randk:k=3000,stochastic=on");
    assert_rules_over_inputs("randk:k=4096");
}

static void what_is_kept_is_what_the_numbers_say(void **state)
{
    static const uint32_t ks[] = {1, 41, 2047, 2048, 2049, 4000, 4096};
    static const size_t counts[] = {1, 2, 3, 40, 41, 42, 1000, SL_TILE - 1, SL_TILE};
    const struct sl_codec_at at = {.first = UINT64_C(9) << 40, .stream = 4, .step = 5};

    draw_fill(DRAW_GAUSSIAN, input, SL_TILE);
    for (size_t j = 0; j < SL_ARRAY_LEN(ks); j++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++) {
            size_t count = counts[n], k = ks[j] < count ? ks[j] : count;
            static bool kept[SL_TILE];
            char text[64];

            snprintf(text, sizeof(text), "randk:k=%u,seed=99", ks[j]);
            size_t len = encode(text, &at, input, count, bytes);

            assert_int_equal(len, (k * 4 + 15) / 16 * 16);
            assert_int_equal(codec->decode(&spec, &at, bytes, len, count, got), 0);
            model_of(&at, count, k, kept);
            for (size_t i = 0; i < count; i++)
                expected[i] = kept[i] ? input[i] : 0;
            assert_floats_equal(got, expected, count);
            spec.flags = SL_SPEC_STOCHASTIC;
            assert_int_equal(codec->decode(&spec, &at, bytes, len, count, got), 0);
            for (size_t i = 0; i < count; i++)
                expected[i] *= (float)count / (float)k;
            assert_floats_equal(got, expected, count);
        }
}

static void messages_of_ranks_add_up(void **state)
{
    const struct sl_codec_at at = {.first = SL_TILE, .stream = 1, .step = 77};
    size_t len;

    for (size_t i = 0; i < UTIL_COUNT; i++) { /* sums of whole numbers are exact */
        input[i] = (float)((int)draw_below(2001) - 1000);
        other[i] = (float)((int)draw_below(2001) - 1000);
        expected[i] = input[i] + other[i];
    }
    len = encode("randk:k=400", &at, input, UTIL_COUNT, bytes);
    (void)encode("randk:k=400", &at, other, UTIL_COUNT, more);
    assert_int_equal(codec->add(&spec, bytes, more, len, UTIL_COUNT), 0);
    (void)encode("randk:k=400", &at, expected, UTIL_COUNT, more);
    assert_memory_equal(bytes, more, len);
    assert_int_equal(codec->add(&spec, bytes, more, len - 16, UTIL_COUNT), -EBADMSG);
}

static void each_step_seed_and_stream_draws_other_places(void **state)
{
    struct sl_codec_at at = {.step = 1}, later = {.step = 2}, beside = {.stream = 1, .step = 1};
    size_t len;

    draw_fill(DRAW_GAUSSIAN, input, SL_TILE);
    len = encode("randk:k=100", &at, input, SL_TILE, bytes);
    (void)encode("randk:k=100", &later, input, SL_TILE, more);
    assert_memory_not_equal(bytes, more, len);
    (void)encode("randk:k=100", &beside, input, SL_TILE, more);
    assert_memory_not_equal(bytes, more, len);
    (void)encode("randk:k=100,seed=1", &at, input, SL_TILE, more);
    assert_memory_not_equal(bytes, more, len);
}

static void the_mean_is_the_input(void **state)
{
    enum { COUNT = 100, K = 10, STEPS = 20000 };
    double mean[COUNT] = {0};
    struct sl_codec_at at = {0};

    for (size_t i = 0; i < COUNT; i++)
        input[i] = 1 + (float)i;
    for (at.step = 0; at.step < STEPS; at.step++) {
        size_t len = encode("randk:k=10,stochastic=on,seed=3", &at, input, COUNT, bytes);

        assert_int_equal(codec->decode(&spec, &at, bytes, len, COUNT, got), 0);
        for (size_t i = 0; i < COUNT; i++)
            mean[i] += (double)got[i] / STEPS;
    }
    /* Five deviations of the mean of x * 10 with one chance of ten. */
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabs(mean[i] / (double)input[i] - 1) < 5 * sqrt(9.0 / STEPS));
}

static void what_cannot_be_is_refused(void **state)
{
    assert_int_equal(sl_codec_parse("randk", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("randk:k=4097", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("randk:k=1,bits=8", &spec), -EINVAL);
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("randk:k=41,stochastic=on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_codec_keeps_the_rules),
        cmocka_unit_test(what_is_kept_is_what_the_numbers_say),
        cmocka_unit_test(messages_of_ranks_add_up),
        cmocka_unit_test(each_step_seed_and_stream_draws_other_places),
        cmocka_unit_test(the_mean_is_the_input),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
