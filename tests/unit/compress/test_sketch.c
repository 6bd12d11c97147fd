/* SPDX-License-Identifier: Apache-2.0 */
/* Count sketches: cells by a model, sums of sketches, medians, and finding heavy elements. */
#include "codec_paths.h"
#include "codec_util.h"

#include "compress/philox.h"
#include "compress/sketch.h"

#define COUNT 3000

static float input[UTIL_COUNT], other[UTIL_COUNT], estimates[UTIL_COUNT];
static float table[15 * 4096], more[15 * 4096];

/* Where an element lies in a row, and its sign, by the words of the file's first comment. */
static size_t model_of(const struct sl_sketch *sketch, uint32_t row, uint64_t element, float *sign)
{
    const uint32_t counter[4] = {row, 0, 0, 0};
    uint32_t w[4];
    unsigned __int128 h;

    sl_philox(counter, sketch->seed, w);
    h = (unsigned __int128)(((uint64_t)w[1] << 32) + (w[0] | 1)) * element +
        (((uint64_t)w[3] << 32) + w[2]);
    h &= UINT64_MAX;
    *sign = h >= (unsigned __int128)1 << 63 ? -1.0f : 1.0f;
    return (size_t)row * sketch->columns +
           (size_t)((h % ((unsigned __int128)1 << 63) >> 31) * sketch->columns / 4294967296u);
}

static void elements_lie_where_the_hash_says(void **state)
{
    const struct sl_sketch sketch = {.rows = 5, .columns = 37, .seed = 12};
    const uint64_t first = UINT64_C(77) << 33;

    memset(table, 0, sizeof(table));
    memset(more, 0, sizeof(more));
    draw_fill(DRAW_GAUSSIAN, input, COUNT);
    sl_sketch_add(&sketch, first, input, COUNT, table);
    for (uint32_t r = 0; r < 5; r++)
        for (size_t i = 0; i < COUNT; i++) {
            float sign;
            size_t cell = model_of(&sketch, r, first + i, &sign);

            assert_true(cell < (r + 1) * 37);
            more[cell] += sign * input[i];
        }
    assert_floats_equal(table, more, (size_t)5 * 37);
    sl_sketch_estimate(&sketch, table, first, COUNT, estimates);
    for (size_t i = 0; i < COUNT; i++) {
        unsigned below = 0, above = 0;

        for (uint32_t r = 0; r < 5; r++) {
            float sign, x = table[model_of(&sketch, r, first + i, &sign)];

            x *= sign;
            below += x < estimates[i];
            above += x > estimates[i];
        }
        assert_true(below <= 2 && above <= 2);
    }
}

static void rows_spread_elements_and_signs_evenly(void **state)
{
    const struct sl_sketch sketch = {.rows = 1, .columns = 64, .seed = 5};

    for (size_t i = 0; i < UTIL_COUNT; i++)
        input[i] = 1;
    memset(table, 0, sizeof(table));
    sl_sketch_add(&sketch, 0, input, UTIL_COUNT, table);
    /* 192 elements a cell, whose signs nearly cancel. */
    for (size_t c = 0; c < 64; c++)
        assert_true(fabsf(table[c]) < 5 * sqrtf(192));
    for (size_t i = 0, full = 0; i < 64; i++)
        for (size_t e = 0; e < UTIL_COUNT; e++) {
            float sign;

            full += model_of(&sketch, 0, e, &sign) == i;
            if (e == UTIL_COUNT - 1) {
                assert_in_range(full, 192 - 70, 192 + 70);
                full = 0;
            }
        }
}

static void a_sketch_of_a_sum_is_the_sum_of_sketches(void **state)
{
    const struct sl_sketch sketch = {.rows = 3, .columns = 100, .seed = 1};

    for (size_t i = 0; i < COUNT; i++) {
        input[i] = (float)((int)draw_below(201) - 100);
        other[i] = (float)((int)draw_below(201) - 100);
    }
    memset(table, 0, sizeof(table));
    memset(more, 0, sizeof(more));
    sl_sketch_add(&sketch, 0, input, COUNT, table);
    sl_sketch_add(&sketch, 0, other, COUNT / 2, table); /* in parts */
    sl_sketch_add(&sketch, COUNT / 2, other + COUNT / 2, COUNT / 2, table);
    for (size_t i = 0; i < COUNT; i++)
        input[i] += other[i];
    sl_sketch_add(&sketch, 0, input, COUNT, more);
    assert_floats_equal(table, more, 300);
}

static void heavy_elements_of_a_sum_are_found(void **state)
{
    const struct sl_sketch sketch = {.rows = 5, .columns = 1000, .seed = 8};
    static struct sl_topk_work work;
    uint32_t index[10];
    float value[10];
    const struct sl_topk_out out = {index, value, 10};

    memset(table, 0, sizeof(table));
    for (unsigned rank = 0; rank < 4; rank++) {
        for (size_t i = 0; i < UTIL_COUNT; i++)
            input[i] = 0.01f * draw_gaussian();
        for (size_t j = 0; j < 10; j++)
            input[j * 1117 + 5] += j % 2 ? -1.0f : 1.0f;
        sl_sketch_add(&sketch, 0, input, UTIL_COUNT, table);
    }
    assert_int_equal(sl_sketch_topk(&sketch, table, UTIL_COUNT, 10, estimates, &work, &out), 10);
    for (size_t j = 0; j < 10; j++) {
        assert_int_equal(index[j], j * 1117 + 5);
        assert_true(fabsf(value[j] - (j % 2 ? -4.0f : 4.0f)) < 1);
    }
}

static void the_codec_keeps_the_rules(void **state)
{
    assert_rules_over_inputs("sketch:k=100,rows=3,seed=4");
    assert_rules_over_inputs("sketch:k=1,rows=1");
    assert_rules_over_inputs("sketch:k=273,rows=15");
}

static void messages_add_up(void **state)
{
    const struct sl_codec *codec = sl_codec_by_name("sketch");
    const struct sl_codec_at at = {.first = SL_TILE};
    static _Alignas(16) uint8_t a[8192], b[8192];
    struct sl_codec_spec spec;
    size_t len;

    spec_of("sketch:k=50,rows=3", &spec);
    for (size_t i = 0; i < 2 * SL_TILE; i++) {
        input[i] = (float)(i % 7) - 3;
        other[i] = (float)(i % 11) - 5;
    }
    len = codec->encode(&spec, &at, input, 2 * SL_TILE, a);
    (void)codec->encode(&spec, &at, other, 2 * SL_TILE, b);
    assert_int_equal(codec->add(&spec, a, b, len, 2 * SL_TILE), 0);
    for (size_t i = 0; i < 2 * SL_TILE; i++)
        input[i] += other[i];
    (void)codec->encode(&spec, &at, input, 2 * SL_TILE, b);
    assert_memory_equal(a, b, len);
}

static void an_element_that_is_no_number_stays_none(void **state)
{
    const struct sl_sketch sketch = {.rows = 3, .columns = 100, .seed = 1};

    memset(table, 0, sizeof(table));
    draw_fill(DRAW_GAUSSIAN, input, COUNT);
    input[500] = NAN;
    sl_sketch_add(&sketch, 0, input, COUNT, table);
    sl_sketch_estimate(&sketch, table, 0, COUNT, estimates);
    assert_int_equal(sl_f32_bits(estimates[500]), 0x7fc00000);
    size_t wild = 0;

    for (size_t i = 0; i < COUNT; i++)
        wild += isnan(estimates[i]);
    assert_in_range(wild, 1, COUNT / 50); /* of one row, the median does not care */
}

static void what_cannot_be_is_refused(void **state)
{
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse("sketch:k=10", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("sketch:k=10,rows=2", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("sketch:k=10,rows=17", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("sketch:rows=3", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("sketch:rows=3,k=1366", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("sketch:rows=3,k=1365", &spec), 0);
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("sketch:k=100,rows=5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_lie_where_the_hash_says),
        cmocka_unit_test(rows_spread_elements_and_signs_evenly),
        cmocka_unit_test(a_sketch_of_a_sum_is_the_sum_of_sketches),
        cmocka_unit_test(heavy_elements_of_a_sum_are_found),
        cmocka_unit_test(the_codec_keeps_the_rules),
        cmocka_unit_test(messages_add_up),
        cmocka_unit_test(an_element_that_is_no_number_stays_none),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
