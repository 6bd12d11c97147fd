/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of small floats against slow ones of this file, which go by the formats' definitions in
 * f64 and look for the nearest code among all, and every set of kernels against each other. */
#include "codec_paths.h"

#include "compress/scaled.h"
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

#define COUNT_MAX (3 * SL_TILE + 1)
#define BYTES_MAX (COUNT_MAX * 2)

/* ---- Formats by their definitions ---- */

static const struct format {
    const char *name;
    enum sl_minifloat kind;
    int exponent_bits, mantissa_bits, bias;
    unsigned infinity, nan; /* codes; 0: none, and NaN from there on */
} formats[] = {{"E4M3", SL_MINI_E4M3, 4, 3, 7, 0, 0x7f},
               {"E5M2", SL_MINI_E5M2, 5, 2, 15, 0x7c, 0x7d},
               {"E2M1", SL_MINI_E2M1, 2, 1, 1, 0, 0},
               {"E3M0", SL_MINI_E3M0, 3, 0, 3, 0, 0}};

static unsigned sign_of(const struct format *f)
{
    return 1u << (f->exponent_bits + f->mantissa_bits);
}

static double value_of(const struct format *f, unsigned code)
{
    unsigned mag = code & (sign_of(f) - 1);
    int exponent = (int)(mag >> f->mantissa_bits);
    unsigned mantissa = mag & ((1u << f->mantissa_bits) - 1);
    double value, one = (double)(1u << f->mantissa_bits);

    if (f->nan != 0 && mag >= f->nan)
        return NAN;
    if (f->infinity != 0 && mag == f->infinity)
        value = INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa / one, 1 - f->bias);
    else
        value = ldexp(1 + mantissa / one, exponent - f->bias);
    return (code & sign_of(f)) != 0 ? -value : value;
}

static unsigned largest_of(const struct format *f)
{
    return f->infinity != 0 ? f->infinity - 1 : f->nan != 0 ? f->nan - 1 : sign_of(f) - 1;
}

/* Of two that are equally near that with the even code, of E3M0 the larger: but 0 beside 0.25. */
static unsigned nearest(const struct format *f, double x)
{
    unsigned best = 0;

    for (unsigned code = 1; code <= largest_of(f); code++) {
        double here = fabs(fabs(x) - value_of(f, code)), there = fabs(fabs(x) - value_of(f, best));

        if (here < there || (here == there && (f->mantissa_bits == 0 ? best > 0 : code % 2 == 0)))
            best = code;
    }
    return best | (signbit(x) ? sign_of(f) : 0);
}

/* ---- Codecs by their definitions ---- */

enum scales { BF16, E8M0, TWO_LEVELS };

static const struct codec {
    uint8_t id;
    const struct format *format;
    unsigned block;
    enum scales scales;
    double largest_scale; /* whose product by the largest value is finite */
} codecs[] = {{SL_CODEC_E4M3, &formats[0], 128, BF16, 0x1.24p119},
              {SL_CODEC_E5M2, &formats[1], 128, BF16, 0x1.24p112},
              {SL_CODEC_MXFP8, &formats[0], 32, E8M0, 0},
              {SL_CODEC_MXFP4, &formats[2], 32, E8M0, 0},
              {SL_CODEC_NVFP4, &formats[2], 16, TWO_LEVELS, 0},
              {SL_CODEC_E3M0, &formats[3], 128, BF16, 0x1.fep123}};

static size_t round16(size_t len)
{
    return (len + 15) / 16 * 16;
}

static float max_of(const float *in, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++) {
        if (!isfinite(in[i]))
            return NAN;
        most = fmaxf(most, fabsf(in[i]));
    }
    return most < 0x1p-126f ? 0 : most;
}

/* The bf16 that is nearest to x, within what scales may be. */
static float bf16_scale(float x, double largest)
{
    float step = ldexpf(1, ilogbf(x) - 7), scale;

    if (x < 0x1p-126f)
        return 0x1p-126f;
    scale = nearbyintf(x / step) * step;
    return scale > (float)largest ? (float)largest : scale;
}

/* A tile's scales, as bytes and as numbers. */
static size_t slow_scales(const struct codec *codec, const float *in, size_t count, uint8_t *out,
                          float *scales)
{
    size_t blocks = (count + codec->block - 1) / codec->block;
    float max[SL_TILE / 16], tile = 0;

    for (size_t b = 0; b < blocks; b++) {
        size_t left = count - b * codec->block;

        max[b] = max_of(in + b * codec->block, left < codec->block ? left : codec->block);
        tile = fmaxf(tile, max[b]); /* the one that is a number */
    }
    if (codec->scales == TWO_LEVELS) {
        tile = tile == 0 ? 0 : fminf(fmaxf(tile / 2688, 0x1p-117f), 0x1.86p116f);
        memset(out, 0, 16);
        memcpy(out, &tile, 4);
    }
    for (size_t b = 0; b < blocks; b++) {
        unsigned code = 0;

        if (codec->scales == BF16) {
            float scale =
                isnan(max[b]) || max[b] == 0
                    ? max[b]
                    : bf16_scale(max[b] / (float)value_of(codec->format, largest_of(codec->format)),
                                 codec->largest_scale);

            code = isnan(scale) ? 0x7fc0 : sl_f32_bits(scale) >> 16;
            memcpy(out + 2 * b, &(uint16_t){(uint16_t)code}, 2);
            scales[b] = scale;
        } else if (codec->scales == E8M0) {
            int exponent = max[b] == 0 || isnan(max[b])
                               ? -127
                               : ilogbf(max[b]) - (codec->format->kind == SL_MINI_E4M3 ? 8 : 2);

            exponent = exponent < -127 ? -127 : exponent;
            out[b] = isnan(max[b]) ? 0xff : (uint8_t)(exponent + 127);
            scales[b] = isnan(max[b]) ? NAN : ldexpf(1, exponent);
        } else {
            if (isnan(max[b]))
                code = 0x7f;
            else if (max[b] > 0)
                code = nearest(&formats[0], max[b] / (6 * tile));
            code = code == 0 && max[b] > 0 ? 1 : code;
            out[16 + b] = (uint8_t)code;
            scales[b] = (float)value_of(&formats[0], code) * tile;
        }
        if (max[b] == 0)
            scales[b] = 0;
    }
    return round16((codec->scales == TWO_LEVELS ? 16 : 0) +
                   blocks * (codec->scales == BF16 ? 2 : 1));
}

/* out: zeros. decoded: count floats. */
static size_t slow_tile(const struct codec *codec, const float *in, size_t count, uint8_t *out,
                        float *decoded)
{
    const struct format *f = codec->format;
    float scales[SL_TILE / 16];
    size_t at = slow_scales(codec, in, count, out, scales);
    size_t blocks = (count + codec->block - 1) / codec->block;
    bool nibbles = sign_of(f) == 8;

    for (size_t i = 0; i < count; i++) {
        float scale = scales[i / codec->block];
        unsigned code = scale > 0 ? nearest(f, in[i] * (1 / scale)) : 0;

        if (nibbles)
            out[at + i / 2] |= (uint8_t)(code << i % 2 * 4);
        else
            out[at + i] = (uint8_t)code;
        decoded[i] = (float)value_of(f, code) * scale;
    }
    return at + round16(blocks * codec->block / (nibbles ? 2 : 1));
}

static size_t slow_encode(const struct codec *codec, const float *in, size_t count, uint8_t *out,
                          float *decoded)
{
    size_t at = 0;

    memset(out, 0, BYTES_MAX);
    for (size_t i = 0; i < count; i += SL_TILE)
        at += slow_tile(codec, in + i, count - i < SL_TILE ? count - i : SL_TILE, out + at,
                        decoded + i);
    return at;
}

/* ---- Inputs ---- */

static float in[COUNT_MAX + 1], decoded[COUNT_MAX], out[COUNT_MAX + 1];
static _Alignas(64) uint8_t bytes[BYTES_MAX + 64], expected[BYTES_MAX];
static const struct sl_codec_at at;

/* Beside the common kinds: near 2^-126, halfway between codes, blocks of all magnitudes. */
enum { NORMAL = 1, ODD = 4, NEAR_LEAST = INPUT_KINDS, TIES, BLOCKS, KINDS };

static float one_of(unsigned kind, size_t i)
{
    uint32_t word = test_random(), sign = word & 0x80000000;

    if (kind == NEAR_LEAST)
        return sl_f32_of(sign | (0x007fff00 + word % (0x400000 * (uint32_t)(1 + i / 128 % 24))));
    if (kind == BLOCKS)
        return ldexpf(test_normal(), (int)(i / 16 * 37 % 255) - 130);
    return ldexpf((float)(word % 64), (int)(word >> 8) % 3) * (sign != 0 ? -1 : 1);
}

static void fill(unsigned kind)
{
    if (kind < INPUT_KINDS)
        test_input(kind, COUNT_MAX, in);
    for (size_t i = 0; kind >= INPUT_KINDS && i < COUNT_MAX; i++)
        in[i] = one_of(kind, i);
}

static const size_t counts[] = {0,        1,           2,       15,          16,
                                17,       31,          33,      64,          127,
                                129,      SL_TILE - 1, SL_TILE, SL_TILE + 1, 2 * SL_TILE + 77,
                                COUNT_MAX};

static struct sl_codec_spec spec_of(const struct codec *codec, enum sluice_dtype dtype)
{
    return (struct sl_codec_spec){.id = codec->id, .dtype = (uint8_t)dtype};
}

/* Bit for bit, but any NaN for any. */
static bool same(float a, float b)
{
    return sl_f32_bits(a) == sl_f32_bits(b) || (isnan(a) && isnan(b));
}

/* ---- Tests ---- */

static void every_code_has_its_value_by_the_definition(void **state)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(formats); i++)
        for (unsigned code = 0; code < 2 * sign_of(&formats[i]); code++) {
            float value = sl_minifloat_decode(formats[i].kind, code);

            assert_true(same(value, (float)value_of(&formats[i], code)));
            if (isfinite(value))
                assert_int_equal(sl_minifloat_encode(formats[i].kind, value), code);
        }
}

static void a_value_becomes_the_nearest_of_all_codes(void **state)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(formats); i++) {
        const struct format *f = &formats[i];

        /* Halfway between neighbours, a step of f32 beside it, and anywhere up to far above. */
        for (unsigned code = 0; code < largest_of(f); code++) {
            float half = (float)(value_of(f, code) + value_of(f, code + 1)) / 2;
            float near[] = {half, nextafterf(half, 0), nextafterf(half, INFINITY), -half};

            for (size_t j = 0; j < SL_ARRAY_LEN(near); j++)
                assert_int_equal(sl_minifloat_encode(f->kind, near[j]), nearest(f, near[j]));
        }
        for (unsigned j = 0; j < 20000; j++) {
            float x = ldexpf(test_normal(), (int)(test_random() % 48) - 24);

            assert_int_equal(sl_minifloat_encode(f->kind, x), nearest(f, x));
        }
        assert_int_equal(sl_minifloat_encode(f->kind, 3e38f), largest_of(f));
        assert_int_equal(sl_minifloat_encode(f->kind, -0.0f), sign_of(f));
    }
}

static void sizes_are_those_of_the_layout(void **state)
{
    static const struct {
        uint8_t id;
        size_t tile, one, hundred;
    } sizes[] = {{SL_CODEC_E4M3, 4160, 144, 144}, {SL_CODEC_E5M2, 4160, 144, 144},
                 {SL_CODEC_MXFP8, 4224, 48, 144}, {SL_CODEC_MXFP4, 2176, 32, 80},
                 {SL_CODEC_NVFP4, 2320, 48, 96},  {SL_CODEC_E3M0, 2112, 80, 80}};

    for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        const struct sl_codec *codec = sl_codec_by_id(sizes[i].id);
        struct sl_codec_spec spec = {.id = sizes[i].id, .dtype = SLUICE_F32};

        assert_int_equal(codec->size(&spec, 0), 0);
        assert_int_equal(codec->size(&spec, 1), sizes[i].one);
        assert_int_equal(codec->size(&spec, 100), sizes[i].hundred);
        assert_int_equal(codec->size(&spec, SL_TILE), sizes[i].tile);
        assert_int_equal(codec->size(&spec, 3 * SL_TILE + 100),
                         3 * sizes[i].tile + sizes[i].hundred);
    }
}

/* What one set of kernels makes of in[0..count), from any address and to the least alignment. */
static void check_bytes(const struct codec *codec, size_t count, size_t len)
{
    const struct sl_codec *row = sl_codec_by_id(codec->id);
    struct sl_codec_spec spec = spec_of(codec, SLUICE_F32);
    uint8_t *from = (uint8_t *)out + 1, *to = bytes + 16;

    assert_int_equal(row->size(&spec, count), len);
    memcpy(from, in, count * 4);
    memset(bytes, 0xa5, sizeof(bytes));
    assert_int_equal(row->encode(&spec, &at, from, count, to), len);
    assert_memory_equal(to, expected, len);
    assert_true(bytes[15] == 0xa5 && to[len] == 0xa5);

    memset(out, 0xa5, sizeof(out));
    assert_int_equal(row->decode(&spec, &at, to, len, count, from), 0);
    for (size_t i = 0; i < count; i++) {
        float x;

        memcpy(&x, from + 4 * i, 4);
        assert_true(same(x, decoded[i]));
    }
    assert_true(((uint8_t *)out)[0] == 0xa5 && from[4 * count] == 0xa5);

    for (size_t i = 0; i < count; i++)
        out[i] = (float)i;
    assert_int_equal(row->decode_add(&spec, &at, to, len, count, out), 0);
    for (size_t i = 0; i < count; i++)
        assert_true(same(out[i], (float)i + decoded[i]));
}

static void every_set_of_kernels_makes_the_bytes_of_the_definition(void **state)
{
    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            fill(kind);
            for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
                size_t len;

                if (counts[i] == COUNT_MAX ? kind % 3 != 0 : counts[i] > SL_TILE + 1)
                    continue;
                len = slow_encode(&codecs[c], in, counts[i], expected, decoded);
                for (size_t p = 0; test_paths[p] != NULL; p++)
                    if (test_path_set(test_paths[p]))
                        check_bytes(&codecs[c], counts[i], len);
            }
        }
    test_path_set(NULL);
}

/* Narrow elements are widened first and rounded at the end: what the f32 codec and the casts do. */
static void narrow_elements_are_widened_and_rounded_back(void **state)
{
    static uint16_t halves[COUNT_MAX], back[COUNT_MAX], want[COUNT_MAX];
    static const enum sluice_dtype dtypes[] = {SLUICE_BF16, SLUICE_F16};

    for (size_t d = 0; d < SL_ARRAY_LEN(dtypes); d++)
        for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++) {
            const struct sl_codec *row = sl_codec_by_id(codecs[c].id);
            struct sl_codec_spec spec = spec_of(&codecs[c], dtypes[d]);
            size_t len;

            fill(c % 2 != 0 ? NORMAL : ODD);
            sl_elements_narrow(dtypes[d], in, COUNT_MAX, halves);
            sl_elements_widen(dtypes[d], halves, COUNT_MAX, in);
            len = slow_encode(&codecs[c], in, COUNT_MAX, expected, decoded);
            assert_int_equal(row->encode(&spec, &at, halves, COUNT_MAX, bytes), len);
            assert_memory_equal(bytes, expected, len);
            assert_int_equal(row->decode(&spec, &at, bytes, len, COUNT_MAX, back), 0);
            sl_elements_narrow(dtypes[d], decoded, COUNT_MAX, want);
            assert_memory_equal(back, want, sizeof(want));
        }
}

static void all_sets_agree_past_the_caches_too(void **state)
{
    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++) {
        const struct sl_codec *row = sl_codec_by_id(codecs[c].id);
        struct sl_codec_spec spec = spec_of(&codecs[c], SLUICE_F32);
        size_t count = ((size_t)4 << 20) + 77;

        if (row->size(&spec, count) < SL_STREAM_BYTES)
            count *= 2;
        assert_true(row->size(&spec, count) >= SL_STREAM_BYTES);
        test_paths_agree(row->name);
        test_paths_agree_at(row->name, count);
    }
}

/* Whatever bytes come, all sets read the same numbers from them. */
static void foreign_bytes_decode_alike_in_every_set(void **state)
{
    static float first[COUNT_MAX];

    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++) {
        const struct sl_codec *row = sl_codec_by_id(codecs[c].id);
        struct sl_codec_spec spec = spec_of(&codecs[c], SLUICE_F32);
        size_t len = row->size(&spec, COUNT_MAX);

        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)test_random();
        for (size_t p = 0; test_paths[p] != NULL; p++) {
            if (!test_path_set(test_paths[p]))
                continue;
            assert_int_equal(row->decode(&spec, &at, bytes, len, COUNT_MAX, out), 0);
            if (p == 0)
                memcpy(first, out, sizeof(first));
            for (size_t i = 0; i < COUNT_MAX; i++)
                assert_true(same(out[i], first[i]));
        }
        test_path_set(NULL);
        assert_int_equal(row->decode(&spec, &at, bytes, len - 1, COUNT_MAX, out), -EBADMSG);
        assert_int_equal(row->decode_add(&spec, &at, bytes, len + 1, COUNT_MAX, out), -EBADMSG);
    }
}

/* How far a number may be from what becomes of it. most, tile: the largest of its block and of its
 * tile. */
static double bound_of(const struct codec *codec, double most, double tile)
{
    double high = value_of(codec->format, largest_of(codec->format));
    double next = value_of(codec->format, largest_of(codec->format) - 1);
    double part = (high - next) / 2 / high, least = 0x1p-126;

    if (codec->scales == E8M0) /* cuts off: 512 becomes 448, 8 becomes 6 */
        part = high == 448 ? 0.125 : 0.25;
    if (most < 0x1p-100) /* the scale is the least that is allowed */
        part = fmax(part, ldexp(1, -(codec->format->mantissa_bits + 1)));
    if (codec->scales == TWO_LEVELS) /* half a step of the block scales, of which 6 are clipped */
        least += 0x1.3p-19 * tile;
    /* Scales are the nearest of 7 bits of mantissa or 3, and may be larger by half a step of it. */
    return part * (codec->scales == TWO_LEVELS ? 1.063 : 1.005) * most + least;
}

/* What users rely on: half the step of a format beside the largest of a block. */
static void what_is_finite_comes_back_within_half_a_step(void **state)
{
    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++)
        for (unsigned kind = 0; kind < KINDS; kind++) {
            const struct sl_codec *row = sl_codec_by_id(codecs[c].id);
            struct sl_codec_spec spec = spec_of(&codecs[c], SLUICE_F32);
            size_t len = row->size(&spec, COUNT_MAX), block = codecs[c].block;
            double most = 0, tile = 0;

            if (kind == 0 || kind == ODD) /* not finite */
                continue;
            fill(kind);
            row->encode(&spec, &at, in, COUNT_MAX, bytes);
            assert_int_equal(row->decode(&spec, &at, bytes, len, COUNT_MAX, out), 0);
            for (size_t i = 0; i < COUNT_MAX; i++) {
                size_t left = COUNT_MAX - i;

                if (i % block == 0)
                    most = max_of(in + i, left < block ? left : block);
                if (i % SL_TILE == 0)
                    tile = max_of(in + i, left < SL_TILE ? left : SL_TILE);
                assert_true(isfinite(out[i]));
                assert_true(fabs(in[i] - out[i]) <= bound_of(&codecs[c], most, tile));
            }
        }
}

static void a_block_that_is_not_finite_is_nan_and_its_neighbours_are_not(void **state)
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001};

    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++)
        for (size_t k = 0; k < SL_ARRAY_LEN(odd); k++) {
            const struct sl_codec *row = sl_codec_by_id(codecs[c].id);
            struct sl_codec_spec spec = spec_of(&codecs[c], SLUICE_F32);
            size_t block = codecs[c].block, at_block = 3 * block;

            fill(NORMAL);
            in[at_block + k] = sl_f32_of(odd[k]);
            row->encode(&spec, &at, in, SL_TILE, bytes);
            assert_int_equal(
                row->decode(&spec, &at, bytes, row->size(&spec, SL_TILE), SL_TILE, out), 0);
            for (size_t i = 0; i < SL_TILE; i++)
                assert_int_equal(isnan(out[i]) != 0, i >= at_block && i < at_block + block);
        }
}

static void what_the_codecs_have_no_use_for_is_refused(void **state)
{
    static const char *const texts[] = {"e4m3:stochastic=on", "mxfp4:rotated=on", "nvfp4:bits=4",
                                        "e3m0:k=1", "mxfp8:seed=1"};
    struct sl_codec_spec spec;

    for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++)
        assert_int_equal(sl_codec_parse(texts[i], &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("e5m2:dtype=bf16", &spec), 0);
    assert_true(spec.id == SL_CODEC_E5M2 && spec.dtype == SLUICE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_value_by_the_definition),
        cmocka_unit_test(a_value_becomes_the_nearest_of_all_codes),
        cmocka_unit_test(sizes_are_those_of_the_layout),
        cmocka_unit_test(every_set_of_kernels_makes_the_bytes_of_the_definition),
        cmocka_unit_test(narrow_elements_are_widened_and_rounded_back),
        cmocka_unit_test(all_sets_agree_past_the_caches_too),
        cmocka_unit_test(foreign_bytes_decode_alike_in_every_set),
        cmocka_unit_test(what_is_finite_comes_back_within_half_a_step),
        cmocka_unit_test(a_block_that_is_not_finite_is_nan_and_its_neighbours_are_not),
        cmocka_unit_test(what_the_codecs_have_no_use_for_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
