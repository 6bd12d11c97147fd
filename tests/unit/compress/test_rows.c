/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs with a scale for each row: bytes by definition, on all paths, and what they are for. */
#include "codec_paths.h"

#include "compress/elements.h"
#include "compress/rows.h"
#include "core/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT_MAX (4 * SL_ROW_MOST)

static const char *const names[] = {"row8", "rowe4m3"};
static const struct sl_codec_at at = {0};
static float in[COUNT_MAX], out[COUNT_MAX], alone[COUNT_MAX];
static _Alignas(64) uint8_t wire[2 * COUNT_MAX], piece[2 * COUNT_MAX];

static const struct sl_codec *codec_of(const char *name, unsigned row, struct sl_codec_spec *spec)
{
    char text[64];

    snprintf(text, sizeof(text), "%s:row=%u", name, row);
    assert_int_equal(sl_codec_parse(text, spec), 0);
    return sl_codec_by_id(spec->id);
}

static void a_row_has_32_to_8192_elements(void **state)
{
    static const char *const bad[] = {"row8", "row8:row=31", "row8:row=8193", "rowe4m3:row=1",
                                      "row8:row=65536"};
    struct sl_codec_spec spec;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_codec_parse(bad[i], &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("row8:row=31", &spec), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "row=32 to 8192 elements are one, not 31"));
    assert_int_equal(sl_codec_parse("bq8:row=128", &spec), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "codec bq8 has no row"));
    assert_int_equal(sl_codec_parse("row8:row=64,stochastic=on", &spec), -EINVAL);
}

/* Up to 128 elements are a block of bq8 or e4m3, and their scale and codes are those of it. */
static void a_short_row_is_a_block_of_bq8_or_e4m3(void **state)
{
    static const char *const blocks[] = {"bq8", "e4m3"};
    static const unsigned rows[] = {32, 33, 100, 127, 128};

    (void)state;
    for (unsigned i = 0; i < 2 * SL_ARRAY_LEN(rows) * INPUT_KINDS; i++) {
        unsigned row = rows[i / 2 % SL_ARRAY_LEN(rows)], n = 7 * row - 5;
        struct sl_codec_spec spec, block;
        const struct sl_codec *codec = codec_of(names[i % 2], row, &spec);
        size_t codes = 16; /* scales of up to 8 rows */

        test_input(i / 2 / SL_ARRAY_LEN(rows), n, in);
        assert_int_equal(sl_codec_parse(blocks[i % 2], &block), 0);
        assert_int_equal(codec->encode(&spec, &at, in, n, wire), codec->size(&spec, n));
        assert_int_equal(codec->size(&spec, n), 16 + (n + 15) / 16 * 16);
        for (unsigned r = 0; r < 7; r++) {
            unsigned len = r < 6 ? row : row - 5;

            sl_codec_by_id(block.id)->encode(&block, &at, in + r * row, len, piece);
            assert_memory_equal(wire + 2 * r, piece, 2);
            assert_memory_equal(wire + codes + r * row, piece + 16, len);
        }
        for (size_t b = codes + n; b < codec->size(&spec, n); b++)
            assert_int_equal(wire[b], 0);
        assert_int_equal(wire[14] | wire[15], 0);
    }
}

/* The scale is that of the largest element, and codes are x / scale to the nearest. */
static void a_long_row_has_the_scale_of_its_largest_element(void **state)
{
    static const unsigned rows[] = {129, 1000, 4095, 4096, 4097, 7168, 8192};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        struct sl_codec_spec spec;
        const struct sl_codec *codec = codec_of("row8", rows[i], &spec);
        size_t tile = sl_rows_tile(rows[i]), n = tile + rows[i] / 2,
               step = codec->size(&spec, tile);

        assert_true(tile % rows[i] == 0 && tile >= SL_TILE && tile < SL_TILE + rows[i] + 1);
        assert_true(sl_codec_tile(&spec) == tile && tile <= SL_TILE_MOST);
        test_input(1, n, in);
        in[tile - 1] = -77;
        codec->encode(&spec, &at, in, n, wire);
        for (size_t first = 0; first < n; first += rows[i]) {
            size_t len = n - first < rows[i] ? n - first : rows[i], inside = first % tile;
            const uint8_t *from = wire + first / tile * step;
            size_t left = n - first / tile * tile, count = left < tile ? left : tile;
            size_t codes = ((count + rows[i] - 1) / rows[i] * 2 + 15) / 16 * 16;
            uint16_t half;
            float most = 0, scale;

            for (size_t j = first; j < first + len; j++)
                most = fmaxf(most, fabsf(in[j]));
            memcpy(&half, from + inside / rows[i] * 2, 2);
            scale = sl_f32_of_bf16(half);
            assert_true(fabsf(scale - most / 127) <= most / 127 * 0x1p-8f);
            for (size_t j = 0; j < len; j++)
                assert_int_equal((int8_t)from[codes + inside + j],
                                 lrintf(in[first + j] * (1.0f / scale)));
        }
    }
}

/* Tiles encode apart, and decode apart: a shard is whole rows. */
static void a_message_is_its_tiles_one_after_the_other(void **state)
{
    static const unsigned rows[] = {96, 4097, 8192};

    (void)state;
    for (unsigned i = 0; i < 2 * SL_ARRAY_LEN(rows); i++) {
        struct sl_codec_spec spec;
        const struct sl_codec *codec = codec_of(names[i % 2], rows[i / 2], &spec);
        size_t tile = sl_codec_tile(&spec), n = 2 * tile + rows[i / 2] + 7, done = 0;
        size_t len = codec->size(&spec, n);

        test_input(1, n, in);
        assert_int_equal(codec->encode(&spec, &at, in, n, wire), len);
        assert_int_equal(codec->decode(&spec, &at, wire, len, n, out), 0);
        for (size_t first = 0; first < n; first += tile) {
            size_t here = n - first < tile ? n - first : tile;
            size_t bytes = codec->encode(&spec, &at, in + first, here, piece);

            assert_memory_equal(wire + done, piece, bytes);
            assert_int_equal(codec->decode(&spec, &at, piece, bytes, here, alone), 0);
            assert_memory_equal(out + first, alone, here * sizeof(float));
            done += bytes;
        }
        assert_int_equal(done, len);
        assert_int_equal(codec->decode(&spec, &at, wire, len - 16, n, out), -EBADMSG);
        assert_int_equal(codec->decode_add(&spec, &at, wire, len, n + 17, out), -EBADMSG);
    }
}

static void a_row_that_is_no_number_leaves_the_others_alone(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct sl_codec_spec spec;
        const struct sl_codec *codec = codec_of(names[i % 2], 300, &spec);
        size_t len = codec->size(&spec, 900);

        test_input(1, 900, in);
        in[300 + 150] = i < 2 ? NAN : -INFINITY;
        codec->encode(&spec, &at, in, 900, wire);
        codec->decode(&spec, &at, wire, len, 900, out);
        for (size_t j = 0; j < 900; j++)
            assert_true((j / 300 == 1) == isnan(out[j]));
        for (size_t j = 0; j < 300; j++)
            assert_int_equal(wire[16 + 300 + j], 0);
        wire[0] = 0x80; /* the first row's scale: an infinity that no encoder makes */
        wire[1] = 0x7f;
        codec->decode(&spec, &at, wire, len, 900, out);
        for (size_t j = 0; j < 900; j++)
            assert_true((j < 600) == isnan(out[j]));
    }
}

static void all_paths_give_the_same_bytes(void **state)
{
    (void)state;
    test_paths_agree("row8:row=33");
    test_paths_agree("row8:row=2880");
    test_paths_agree("rowe4m3:row=100");
    test_paths_agree("rowe4m3:row=8192");
}

/* Mean square of what is lost of a row, over that of the row: of the worst row. */
static double worst_row(const char *text, size_t row, size_t rows)
{
    size_t n = row * rows, len;
    struct sl_codec_spec spec;
    double worst = 0;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    len = sl_codec_by_id(spec.id)->encode(&spec, &at, in, n, wire);
    assert_int_equal(sl_codec_by_id(spec.id)->decode(&spec, &at, wire, len, n, out), 0);
    for (size_t first = 0; first < n; first += row) {
        double power = 0, error = 0;

        for (size_t i = first; i < first + row; i++) {
            power += (double)in[i] * in[i];
            error += ((double)out[i] - in[i]) * ((double)out[i] - in[i]);
        }
        worst = fmax(worst, error / power);
    }
    printf("# rows of %zu, from 1e-3 to 1e+3: worst of a row by %s: %.2e\n", row, text, worst);
    return worst;
}

/* Tokens of very different sizes, whose length is no multiple of bq8's blocks. */
static void a_small_row_is_not_lost_beside_a_large_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < 64 * 96; i++)
        in[i] = test_normal() * (i / 96 % 2 ? 1e3f : 1e-3f);
    assert_true(worst_row("bq8", 96, 64) > 0.5);
    assert_true(worst_row("row8:row=96", 96, 64) < 1.2e-4);
    assert_true(worst_row("rowe4m3:row=96", 96, 64) < 1.2e-3);
    for (size_t i = 0; i < 6 * 2880; i++)
        in[i] = test_normal() * (i / 2880 % 2 ? 1e3f : 1e-3f);
    assert_true(worst_row("bq8", 2880, 6) > 0.02);
    assert_true(worst_row("row8:row=2880", 2880, 6) < 1.5e-4);
    assert_true(worst_row("rowe4m3:row=2880", 2880, 6) < 1.2e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_32_to_8192_elements),
        cmocka_unit_test(a_short_row_is_a_block_of_bq8_or_e4m3),
        cmocka_unit_test(a_long_row_has_the_scale_of_its_largest_element),
        cmocka_unit_test(a_message_is_its_tiles_one_after_the_other),
        cmocka_unit_test(a_row_that_is_no_number_leaves_the_others_alone),
        cmocka_unit_test(all_paths_give_the_same_bytes),
        cmocka_unit_test(a_small_row_is_not_lost_beside_a_large_one),
    };

    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
