/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of all kinds for tests of codecs, and the check that all paths give the same bytes. */
#include "codec_paths.h"

#include "compress/elements.h"
#include "compress/kernels.h"
#include "core/err.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SLACK 64

const char *const test_paths[] = {"c", "avx2", "avx512", NULL};

bool test_path_set(const char *path)
{
    int err = sl_codec_kernels_force(path);

    assert_true(err == 0 || err == -ENOTSUP);
    return err == 0;
}

uint32_t test_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state * 0x2545f4914f6cdd1d >> 32);
}

float test_normal(void)
{
    double u = ((double)test_random() + 1) * 0x1p-32, v = (double)test_random() * 0x1p-32;

    return (float)(sqrt(-2 * log(u)) * cos(2 * M_PI * v));
}

static float special(void)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0x7f800001, 0x7f800000, 0xff800000,
                                    0,          0x80000000, 1,          0x807fffff, 0x7f7fffff,
                                    0xff7fffff, 0x00800000, 0x3f800000, 0xbf800000};

    return sl_f32_of(bits[test_random() % SL_ARRAY_LEN(bits)]);
}

static float one_of(unsigned kind, size_t i)
{
    switch (kind) {
    case 0: return sl_f32_of(test_random());
    case 1: return test_normal();
    case 2: return -0.0371f;
    case 3: return i % 2 ? -0.0f : 0.0f;
    case 4: return i / 128 % 3 == 0 ? special() : test_normal();
    case 5: return sl_f32_of(test_random() & 0x807fffff) * (i / 32 % 2 ? 4 : 1);
    case 6: return (i % 2 ? -FLT_MAX : FLT_MAX) * (1.0f - (float)(test_random() % 4) * 0x1p-8f);
    case 7: return i % 1000 == 77 ? -3e4f : test_normal() * 1e-3f;
    case 8: return i % 32 == 0 ? 127.0f : ((float)(test_random() % 509) - 254.0f) * 0.5f;
    default: return ldexpf(test_normal(), (int)(test_random() % 260) - 140);
    }
}

void test_input(unsigned kind, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = one_of(kind, i);
}

struct buffers {
    char *in, *wire, *wire_wanted, *out, *out_wanted;
    float *floats;
};

static char *take(size_t len)
{
    char *memory = aligned_alloc(64, (len + 4 * SLACK) / 64 * 64);

    assert_non_null(memory);
    return memory;
}

static void check_guard(const char *end)
{
    for (unsigned i = 0; i < SLACK; i++)
        assert_int_equal((unsigned char)end[i], 0xa5);
}

static size_t encode(const struct sl_codec_spec *spec, const void *in, size_t count, char *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    const struct sl_codec_at at = {.first = 7 * SL_TILE, .stream = 2, .step = 41};
    size_t size = codec->size(spec, count), len;

    memset(out, 0xa5, size + SLACK);
    len = codec->encode(spec, &at, in, count, out);
    assert_true(len <= size);
    check_guard(out + size);
    return len;
}

/* NaN are alike whatever their bits: which one a product keeps, it may choose. */
static bool alike(float a, float b)
{
    return sl_f32_bits(a) == sl_f32_bits(b) || (isnan(a) && isnan(b));
}

static void decode(const struct sl_codec_spec *spec, const char *wire, size_t len, size_t count,
                   bool add, size_t shift, char *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    const struct sl_codec_at at = {.first = 7 * SL_TILE, .stream = 2, .step = 41};
    size_t size = count * (add || spec->dtype == SLUICE_F32 ? 4 : 2);

    memset(out, 0xa5, size + shift + SLACK);
    if (add) {
        for (size_t i = 0; i < count; i++)
            memcpy(out + i * 4, &(float){(float)(i % 11) * 0.37f}, 4);
        assert_int_equal(codec->decode_add(spec, &at, wire, len, count, (float *)(void *)out), 0);
    } else {
        assert_int_equal(codec->decode(spec, &at, wire, len, count, out + shift), 0);
        memmove(out, out + shift, size);
        check_guard(out + shift + size);
        return;
    }
    check_guard(out + size);
}

static void compare(const struct sl_codec_spec *spec, const struct buffers *b, size_t count,
                    bool add)
{
    for (size_t i = 0; i < count; i++) {
        float x, y;

        if (!add && spec->dtype != SLUICE_F32) {
            assert_memory_equal(b->out + i * 2, b->out_wanted + i * 2, 2);
            continue;
        }
        memcpy(&x, b->out + i * 4, 4);
        memcpy(&y, b->out_wanted + i * 4, 4);
        if (!alike(x, y))
            fail_msg("element %zu of %zu: 0x%08x, not 0x%08x", i, count, sl_f32_bits(x),
                     sl_f32_bits(y));
    }
}

/* Halves give the bytes of the floats that they are, and get what the floats would be, narrowed. */
static void check_as_floats(const struct sl_codec_spec *spec, const struct buffers *b, size_t count,
                            size_t shift)
{
    struct sl_codec_spec floats = *spec;
    float *wide = (float *)(void *)b->out_wanted;
    size_t len, wanted;

    if (spec->dtype == SLUICE_F32 || (sl_codec_by_id(spec->id)->flags & SL_CODEC_LOSSLESS) != 0)
        return;
    floats.dtype = SLUICE_F32;
    sl_elements_widen(spec->dtype, b->in + shift, count, wide);
    wanted = encode(&floats, wide, count, b->wire_wanted);
    len = encode(spec, b->in + shift, count, b->wire);
    assert_int_equal(len, wanted);
    assert_memory_equal(b->wire, b->wire_wanted, len);
    decode(spec, b->wire, len, count, false, shift, b->out);
    decode(&floats, b->wire, len, count, false, 0, b->wire_wanted);
    memcpy(wide, b->wire_wanted, count * sizeof(*wide));
    sl_elements_narrow(spec->dtype, wide, count, b->wire_wanted);
    assert_memory_equal(b->out, b->wire_wanted, count * 2);
}

static void check_path(const char *path, const struct sl_codec_spec *spec, const struct buffers *b,
                       size_t count, size_t shift)
{
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, len, wanted;
    char text[128];

    sl_codec_print(spec, text, sizeof(text));
    sl_elements_narrow(spec->dtype, b->floats, count, b->in);
    memmove(b->in + shift, b->in, count * elem);
    test_path_set("c");
    wanted = encode(spec, b->in + shift, count, b->wire_wanted);
    test_path_set(path);
    len = encode(spec, b->in + shift, count, b->wire);
    assert_int_equal(len, wanted);
    for (size_t i = 0; i < len; i++)
        if (b->wire[i] != b->wire_wanted[i])
            fail_msg("%s by %s, %zu elements: byte %zu is 0x%02x, not 0x%02x", text, path, count, i,
                     (unsigned char)b->wire[i], (unsigned char)b->wire_wanted[i]);
    for (unsigned add = 0; add < 2; add++) {
        test_path_set("c");
        decode(spec, b->wire, len, count, add, shift, b->out_wanted);
        test_path_set(path);
        decode(spec, b->wire, len, count, add, shift, b->out);
        compare(spec, b, count, add);
    }
    if (strcmp(path, "c") == 0) /* which the others are like */
        check_as_floats(spec, b, count, shift);
}

static struct buffers buffers_make(size_t count)
{
    return (struct buffers){take(count * 4), take(count * 5), take(count * 5),
                            take(count * 4), take(count * 4), (float *)(void *)take(count * 4)};
}

static void buffers_free(struct buffers *b)
{
    free(b->in);
    free(b->wire);
    free(b->wire_wanted);
    free(b->out);
    free(b->out_wanted);
    free(b->floats);
    test_path_set(NULL);
}

void test_paths_agree(const char *text)
{
    static const size_t counts[] = {0,
                                    1,
                                    2,
                                    7,
                                    16,
                                    31,
                                    32,
                                    33,
                                    65,
                                    127,
                                    128,
                                    129,
                                    1000,
                                    SL_TILE - 1,
                                    SL_TILE,
                                    4097,
                                    SL_TILE + 64,
                                    2 * SL_TILE,
                                    3 * SL_TILE + 1};
    static const uint8_t dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    struct buffers b = buffers_make(3 * SL_TILE + 1);
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    for (unsigned kind = 0; kind < INPUT_KINDS; kind++)
        for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
            test_input(kind, counts[i], b.floats);
            for (size_t t = 0; t < SL_ARRAY_LEN(dtypes); t++)
                for (size_t p = 0; test_paths[p] != NULL; p++) {
                    spec.dtype = dtypes[t];
                    if (test_path_set(test_paths[p]))
                        check_path(test_paths[p], &spec, &b, counts[i], (kind + i) % 5);
                }
        }
    buffers_free(&b);
}

void test_paths_agree_at(const char *text, size_t count)
{
    struct buffers b = buffers_make(count);
    struct sl_codec_spec spec;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    for (size_t i = 0; i < count; i++)
        b.floats[i] = (float)(int32_t)test_random() * 0x1p-31f;
    for (size_t p = 1; test_paths[p] != NULL; p++)
        if (test_path_set(test_paths[p]))
            for (size_t shift = 0; shift < 8; shift += 4)
                check_path(test_paths[p], &spec, &b, count, shift);
    buffers_free(&b);
}
