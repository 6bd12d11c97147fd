/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for each codec of fixed size, whatever it does: sizes, tiles by themselves, sums. */
#ifndef SL_TESTS_COMPRESS_CODEC_UTIL_H
#define SL_TESTS_COMPRESS_CODEC_UTIL_H

#include "draw.h"

#include "compress/codec.h"
#include "compress/elements.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define UTIL_COUNT (3 * SL_TILE + 1)

static inline void spec_of(const char *text, struct sl_codec_spec *spec)
{
    if (sl_codec_parse(text, spec) != 0)
        fail_msg("%s: %s", text, sluice_last_error());
}

/* The same bits, or both no number. */
static inline void assert_floats_equal(const float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] != y[i] && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("element %zu of %zu is %a, not %a", i, count, (double)x[i], (double)y[i]);
}

/* A message is its tiles, one after the other; decode_add adds what decode gives; other lengths are
 * refused; bytes do not depend on the alignment of the input or on what was in the output. */
static inline void assert_codec_keeps_the_rules(const struct sl_codec_spec *spec, size_t count,
                                                const void *in)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    const struct sl_codec_at at = {.first = 5 * SL_TILE, .stream = 3, .step = 9};
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, len = codec->size(spec, count), done = 0;
    uint8_t *bytes = aligned_alloc(16, len + 16), *tile = aligned_alloc(16, len + 16);
    float *out = calloc(count + 1, sizeof(float)), *sum = calloc(count + 1, sizeof(float));
    uint8_t *moved = malloc(count * elem + 1);
    struct sl_codec_spec floats = *spec;

    floats.dtype = SLUICE_F32;
    assert_true(bytes != NULL && tile != NULL && out != NULL && sum != NULL && moved != NULL);
    memset(bytes, 0xa5, len + 16);
    assert_int_equal(len % 16, 0);
    assert_int_equal(codec->encode(spec, &at, in, count, bytes), len);
    assert_int_equal(bytes[len], 0xa5);
    memset(tile, 0, len + 16);
    memcpy(moved + 1, in, count * elem);
    assert_int_equal(codec->encode(spec, &at, moved + 1, count, tile), len);
    assert_memory_equal(bytes, tile, len);
    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t n = count - first < SL_TILE ? count - first : SL_TILE;
        struct sl_codec_at here = at;

        here.first += first;
        done += codec->encode(spec, &here, (const char *)in + first * elem, n, tile + done);
    }
    assert_int_equal(done, len);
    assert_memory_equal(bytes, tile, len);
    assert_int_equal(codec->decode(&floats, &at, bytes, len, count, out), 0);
    for (size_t i = 0; i < count; i++) {
        sum[i] = (float)(i % 13);
        out[i] += sum[i];
    }
    assert_int_equal(codec->decode_add(spec, &at, bytes, len, count, sum), 0);
    assert_floats_equal(sum, out, count);
    assert_int_equal(codec->decode(&floats, &at, bytes, len + 16, count, out), -EBADMSG);
    if (count > 0)
        assert_int_equal(codec->decode_add(spec, &at, bytes, len - 1, count, out), -EBADMSG);
    free(bytes);
    free(tile);
    free(out);
    free(sum);
    free(moved);
}

/* Over kinds of inputs, lengths and types. */
static inline void assert_rules_over_inputs(const char *text)
{
    static const size_t counts[] = {0,       1,           2,           31,        63,   64,
                                    65,      127,         128,         129,       1000, SL_TILE - 1,
                                    SL_TILE, SL_TILE + 1, 2 * SL_TILE, UTIL_COUNT};
    static const uint8_t dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    static float floats[UTIL_COUNT];
    static uint16_t halves[UTIL_COUNT];
    struct sl_codec_spec spec;

    spec_of(text, &spec);
    for (int kind = 0; kind < DRAW_KINDS; kind++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++) {
            draw_fill((enum draw_kind)kind, floats, counts[n]);
            for (size_t d = 0; d < SL_ARRAY_LEN(dtypes); d++) {
                if (d > 0 && n % 3 != 0)
                    continue;
                spec.dtype = dtypes[d];
                if (d > 0)
                    sl_elements_narrow(spec.dtype, floats, counts[n], halves);
                assert_codec_keeps_the_rules(&spec, counts[n],
                                             d == 0 ? (void *)floats : (void *)halves);
            }
        }
}

#endif
