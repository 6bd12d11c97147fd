/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: what every lossless codec is tried with, over the kinds of floats.h. The including file
 * defines the codec as CODEC, COUNT_MAX elements at most, their numbers as counts[], and
 * encode_by() and decode_by() of a path.
 */
#include "compress/codecs.h"
#include "core/err.h"
#include "tests/unit/compress/floats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define BYTES_MAX (COUNT_MAX * 5 + 4096)
#define CANARY 0xa5

static char given[BYTES_MAX], back[BYTES_MAX];
static uint8_t bytes[BYTES_MAX] __attribute__((aligned(64)));
static uint8_t expected[BYTES_MAX] __attribute__((aligned(64)));

static struct sl_codec_spec spec_of(unsigned dtype)
{
    return (struct sl_codec_spec){.id = CODEC.id, .dtype = (uint8_t)dtype};
}

/* Where both begin is odd, so that nothing depends on how the elements lie. */
static void check_path(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                       size_t count, size_t expected_len)
{
    size_t width = sl_lossless_width(spec->dtype), len;
    size_t bound = CODEC.size(spec, count);

    memset(bytes, CANARY, bound + 64);
    len = encode_by(path, spec, given + 1, count, bytes);
    assert_true(len <= bound);
    assert_int_equal(len, expected_len);
    assert_memory_equal(bytes, expected, len);
    for (size_t i = bound; i < bound + 64; i++)
        assert_int_equal(bytes[i], CANARY);
    memset(back, CANARY, count * width + 64);
    assert_int_equal(decode_by(path, spec, bytes, len, count, back + 1), 0);
    assert_memory_equal(back + 1, given + 1, count * width);
    assert_int_equal((uint8_t)back[1 + count * width], CANARY);
}

static void all_floats_come_back_by_all_paths_from_the_same_bytes(void **state)
{
    for (size_t t = 0; t < SL_ARRAY_LEN(floats_dtypes); t++)
        for (enum floats_kind kind = 0; kind < FLOATS_KINDS; kind++)
            for (size_t c = 0; c < SL_ARRAY_LEN(counts); c++) {
                struct sl_codec_spec spec = spec_of(floats_dtypes[t]);
                size_t len;

                floats_fill(spec.dtype, kind, counts[c], given + 1);
                len = encode_by(&sl_lossless_c, &spec, given + 1, counts[c], expected);
                for (size_t p = 0; p < sl_lossless_path_count; p++)
                    if (sl_lossless_paths[p]->lacks() == NULL)
                        check_path(sl_lossless_paths[p], &spec, counts[c], len);
            }
}

/* To bytes. */
static size_t encoded_bytes(unsigned dtype, enum floats_kind kind, size_t count)
{
    struct sl_codec_spec spec = spec_of(dtype);

    floats_fill(dtype, kind, count, given + 1);
    return encode_by(sl_lossless_path(), &spec, given + 1, count, bytes);
}

static void decoding_adds_to_floats(void **state)
{
    static float sum[COUNT_MAX], floats[COUNT_MAX];

    for (size_t t = 0; t < SL_ARRAY_LEN(floats_dtypes); t++) {
        struct sl_codec_spec spec = spec_of(floats_dtypes[t]);
        struct sl_codec_at at = {0};
        size_t len = encoded_bytes(spec.dtype, FLOATS_GAUSS, COUNT_MAX);

        for (size_t i = 0; i < COUNT_MAX; i++)
            sum[i] = (float)i;
        sl_elements_widen(spec.dtype, given + 1, COUNT_MAX, floats);
        assert_int_equal(CODEC.decode_add(&spec, &at, bytes, len, COUNT_MAX, sum), 0);
        for (size_t i = 0; i < COUNT_MAX; i++)
            assert_true(sum[i] == (float)i + floats[i]);
    }
}

/* Bytes, by all paths, which agree: in memory that ends where the message does, so that the
 * sanitizer sees what is read beyond. */
static int decode(const struct sl_codec_spec *spec, size_t len, size_t count)
{
    uint8_t *exact = malloc(len + 1);
    int err = 1;

    memcpy(exact, bytes, len);
    for (size_t p = 0; p < sl_lossless_path_count; p++) {
        int one;

        if (sl_lossless_paths[p]->lacks() != NULL)
            continue;
        one = decode_by(sl_lossless_paths[p], spec, exact, len, count, back);
        assert_true(err == 1 || err == one);
        err = one;
    }
    free(exact);
    return err;
}
