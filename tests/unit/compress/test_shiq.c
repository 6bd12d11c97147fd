/* SPDX-License-Identifier: Apache-2.0 */
/* Shared-scale integers: sums are exact in any order, never overflow, and are as near as the
 * shared step allows. */
#include "codec_paths.h"
#include "codec_util.h"

#include "compress/shiq.h"

#define RANKS 8
#define COUNT 1000

static float input[RANKS][COUNT], got[UTIL_COUNT];
static uint32_t scales[SL_TILE / SL_SHIQ_BLOCK * 4], own[SL_TILE / SL_SHIQ_BLOCK * 4];
static int8_t codes[RANKS][COUNT];
static int16_t wide_codes[RANKS][COUNT];
static _Alignas(16) uint8_t bytes[RANKS][UTIL_COUNT * 2 + 1024];
static const struct sl_codec_at at = {.first = SL_TILE, .stream = 1, .step = 2};

/* scales[] = the largest of all ranks, as SLUICE_MAX of SLUICE_U32 would make them. */
static void share_scales(const struct sl_codec_spec *spec)
{
    memset(scales, 0, sizeof(scales));
    for (unsigned r = 0; r < RANKS; r++) {
        sl_shiq_scales(spec, input[r], COUNT, own);
        for (size_t b = 0; b < sl_shiq_scale_count(COUNT); b++)
            scales[b] = own[b] > scales[b] ? own[b] : scales[b];
    }
}

static void quantise_all(const char *text, struct sl_codec_spec *spec)
{
    spec_of(text, spec);
    share_scales(spec);
    for (unsigned r = 0; r < RANKS; r++)
        sl_shiq_quantise(spec, &at, input[r], COUNT, scales,
                         spec->bits == 16 ? (void *)wide_codes[r] : (void *)codes[r]);
}

static void the_codec_keeps_the_rules(void **state)
{
    assert_rules_over_inputs("shiq:ranks=1");
    assert_rules_over_inputs("shiq:ranks=127,stochastic=on,seed=5");
    assert_rules_over_inputs("shiq:ranks=4,bits=16");
}

static void sums_are_the_same_in_any_order_and_never_overflow(void **state)
{
    struct sl_codec_spec spec;

    for (int kind = 0; kind < DRAW_KINDS; kind++) {
        for (unsigned r = 0; r < RANKS; r++)
            draw_fill((enum draw_kind)kind, input[r], COUNT);
        quantise_all(kind % 2 ? "shiq:ranks=8" : "shiq:ranks=8,stochastic=on", &spec);
        for (size_t i = 0; i < COUNT; i++) {
            int sum = 0, narrow = 0;

            for (unsigned r = 0; r < RANKS; r++) {
                assert_in_range(codes[r][i] + 15, 0, 30);
                sum += codes[r][i];
            }
            for (unsigned r = RANKS; r-- > 0;) /* in bytes, the last one first */
                narrow = (int8_t)(narrow + codes[r][i]);
            assert_int_equal(narrow, sum);
        }
    }
}

static void messages_add_up_to_the_same_bytes_in_any_order(void **state)
{
    static _Alignas(16) uint8_t one[sizeof(bytes[0])], two[sizeof(bytes[0])];
    const struct sl_codec *codec = sl_codec_by_name("shiq");
    static const unsigned orders[][RANKS] = {{0, 1, 2, 3, 4, 5, 6, 7}, {7, 3, 5, 1, 0, 2, 6, 4}};
    struct sl_codec_spec spec;
    size_t len = 0;

    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (int wide = 0; wide < 2; wide++) {
            for (unsigned r = 0; r < RANKS; r++)
                draw_fill((enum draw_kind)kind, input[r], COUNT);
            quantise_all(wide ? "shiq:ranks=8,bits=16" : "shiq:ranks=8", &spec);
            for (unsigned r = 0; r < RANKS; r++)
                len = sl_shiq_encode(&spec, &at, input[r], COUNT, scales, bytes[r]);
            assert_int_equal(len, codec->size(&spec, COUNT));
            for (unsigned i = 0; i < RANKS; i++) {
                uint8_t *to[2] = {one, two};

                for (unsigned o = 0; o < 2; o++)
                    if (i == 0)
                        memcpy(to[o], bytes[orders[o][i]], len);
                    else
                        assert_int_equal(codec->add(&spec, to[o], bytes[orders[o][i]], len, COUNT),
                                         0);
            }
            assert_memory_equal(one, two, len);
            assert_int_equal(codec->decode(&spec, &at, one, len, COUNT, got), 0);
            for (size_t i = 0; i < COUNT; i++) {
                int sum = 0;

                for (unsigned r = 0; r < RANKS; r++)
                    sum += wide ? wide_codes[r][i] : codes[r][i];
                float x = (float)sum * sl_f32_of(scales[i / SL_SHIQ_BLOCK]);

                assert_floats_equal(&got[i], &x, 1);
            }
        }
}

static void a_sum_is_as_near_as_half_a_step_of_each_rank(void **state)
{
    struct sl_codec_spec spec;

    for (int kind = 0; kind < DRAW_FINITE; kind++) {
        if (kind == DRAW_DENORMAL) /* below the least block */
            continue;
        for (unsigned r = 0; r < RANKS; r++)
            draw_fill((enum draw_kind)kind, input[r], COUNT);
        quantise_all("shiq:ranks=8", &spec);
        for (size_t i = 0; i < COUNT; i++) {
            double exact = 0, step = (double)sl_f32_of(scales[i / SL_SHIQ_BLOCK]);
            int sum = 0;

            for (unsigned r = 0; r < RANKS; r++) {
                exact += (double)input[r][i];
                sum += codes[r][i];
            }
            assert_true(fabs(sum * step - exact) <= RANKS * step * 0.5001);
        }
    }
}

static void the_largest_value_takes_the_largest_code(void **state)
{
    struct sl_codec_spec spec;

    for (unsigned ranks = 1; ranks <= 127; ranks++) {
        char text[32];

        snprintf(text, sizeof(text), "shiq:ranks=%u", ranks);
        spec_of(text, &spec);
        for (size_t i = 0; i < SL_SHIQ_BLOCK; i++)
            input[0][i] = i % 2 ? 0.7f : -0.7f;
        sl_shiq_scales(&spec, input[0], SL_SHIQ_BLOCK, scales);
        assert_int_equal(scales[0] & 0xffff, 0);
        sl_shiq_quantise(&spec, &at, input[0], SL_SHIQ_BLOCK, scales, codes[0]);
        assert_int_equal(codes[0][1], 127 / (int)ranks);
        assert_int_equal(codes[0][0], -(127 / (int)ranks));
        assert_true(codes[0][1] * sl_f32_of(scales[0]) >= 0.7f);
    }
}

static void no_number_of_one_rank_is_none_in_the_sum_of_its_block(void **state)
{
    struct sl_codec_spec spec;

    for (unsigned r = 0; r < RANKS; r++)
        draw_fill(DRAW_GAUSSIAN, input[r], COUNT);
    input[3][200] = -INFINITY;
    quantise_all("shiq:ranks=8", &spec);
    sl_shiq_dequantise(&spec, codes[0], COUNT, scales, 0.125f, got);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isnan(got[i]) == (i / SL_SHIQ_BLOCK == 1));
        if (i / SL_SHIQ_BLOCK != 1)
            assert_true(got[i] ==
                        (float)codes[0][i] * sl_f32_of(scales[i / SL_SHIQ_BLOCK]) * 0.125f);
    }
}

static void foreign_scales_are_harmless(void **state)
{
    static const uint32_t odd[] = {0,          1,          0x7f800000, 0x7fc00000, 0xffffffff,
                                   0xbf800000, 0x80000000, 0x3f800000, 0x7f7fffff};
    struct sl_codec_spec spec;

    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (int random = 0; random < 2; random++)
            for (size_t s = 0; s < SL_ARRAY_LEN(odd); s++) {
                spec_of(random ? "shiq:ranks=3,stochastic=on" : "shiq:ranks=3", &spec);
                draw_fill((enum draw_kind)kind, input[0], SL_SHIQ_BLOCK);
                sl_shiq_quantise(&spec, &at, input[0], SL_SHIQ_BLOCK, &odd[s], codes[0]);
                for (size_t i = 0; i < SL_SHIQ_BLOCK; i++) {
                    assert_in_range(codes[0][i] + 42, 0, 84);
                    if (odd[s] == 0 || odd[s] >= 0x7f800000)
                        assert_int_equal(codes[0][i], 0);
                }
            }
    /* What does not fit is clipped. */
    spec_of("shiq:ranks=1", &spec);
    input[0][0] = 500;
    input[0][1] = -500;
    input[0][2] = 126.6f;
    sl_shiq_quantise(&spec, &at, input[0], 3, &odd[7], codes[0]);
    assert_true(codes[0][0] == 127 && codes[0][1] == -127 && codes[0][2] == 127);
}

static void forged_sums_are_refused(void **state)
{
    const struct sl_codec *codec = sl_codec_by_name("shiq");
    struct sl_codec_spec spec;
    size_t len;

    spec_of("shiq:ranks=2", &spec);
    draw_fill(DRAW_GAUSSIAN, input[0], COUNT);
    len = codec->encode(&spec, &at, input[0], COUNT, bytes[0]);
    memcpy(bytes[1], bytes[0], len);
    assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len - 16, COUNT), -EBADMSG);
    assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len, COUNT), 0);
    /* The largest element of each block had the largest code, so a third one is too much. */
    assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len, COUNT), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "2 ranks"));
    for (int sign = -1; sign <= 1; sign += 2) { /* on either side */
        for (size_t i = 0; i < COUNT; i++)
            input[0][i] = (float)sign;
        (void)codec->encode(&spec, &at, input[0], COUNT, bytes[0]);
        memcpy(bytes[1], bytes[0], len);
        assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len, COUNT), 0);
        assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len, COUNT), -EBADMSG);
    }
    draw_fill(DRAW_GAUSSIAN, input[0], COUNT);
    (void)codec->encode(&spec, &at, input[0], COUNT, bytes[0]);
    memcpy(bytes[1], bytes[0], len);
    bytes[1][0] ^= 1;
    assert_int_equal(codec->add(&spec, bytes[1], bytes[0], len, COUNT), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "scales"));
    assert_int_equal(sl_codec_parse("shiq", &spec), 0); /* of as many ranks as there are */
    assert_int_equal(sl_codec_parse("shiq:ranks=128", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("shiq:ranks=2,bits=8", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("shiq:ranks=128,bits=16", &spec), 0);
}

static void the_mean_of_random_codes_is_the_input(void **state)
{
    enum { STEPS = 20000, FEW = 16 };

    for (int wide = 0; wide < 2; wide++) {
        struct sl_codec_at here = at;
        struct sl_codec_spec spec;
        double mean[FEW] = {0}, step;

        spec_of(wide ? "shiq:ranks=9000,stochastic=on,bits=16" : "shiq:ranks=40,stochastic=on",
                &spec);
        for (size_t i = 0; i < FEW; i++)
            input[0][i] = (float)i * 0.06f - 0.45f;
        sl_shiq_scales(&spec, input[0], FEW, scales);
        step = (double)sl_f32_of(scales[0]);
        for (here.step = 0; here.step < STEPS; here.step++) {
            sl_shiq_quantise(&spec, &here, input[0], FEW, scales,
                             wide ? (void *)wide_codes[0] : (void *)codes[0]);
            for (size_t i = 0; i < FEW; i++)
                mean[i] += (wide ? wide_codes[0][i] : codes[0][i]) * step / STEPS;
        }
        for (size_t i = 0; i < FEW; i++)
            assert_true(fabs(mean[i] - (double)input[0][i]) < 5 * step * 0.5 / sqrt(STEPS));
    }
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("shiq:ranks=3");
    test_paths_agree("shiq:ranks=1,stochastic=on,seed=4");
    test_paths_agree("shiq:ranks=9,bits=16,stochastic=on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_codec_keeps_the_rules),
        cmocka_unit_test(sums_are_the_same_in_any_order_and_never_overflow),
        cmocka_unit_test(messages_add_up_to_the_same_bytes_in_any_order),
        cmocka_unit_test(a_sum_is_as_near_as_half_a_step_of_each_rank),
        cmocka_unit_test(the_largest_value_takes_the_largest_code),
        cmocka_unit_test(no_number_of_one_rank_is_none_in_the_sum_of_its_block),
        cmocka_unit_test(foreign_scales_are_harmless),
        cmocka_unit_test(forged_sums_are_refused),
        cmocka_unit_test(the_mean_of_random_codes_is_the_input),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
