/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of every codec that there is: written, read, refused. */
#include "compress/frame.h"

#include "core/crc.h"
#include "core/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT_MAX (2 * SL_TILE + 77)

static const size_t counts[] = {0, 1, 16, 100, SL_TILE, COUNT_MAX};
static float in[COUNT_MAX], direct[COUNT_MAX], out[COUNT_MAX];
static _Alignas(64) uint8_t bytes[SL_FRAME_HEAD + 4 * COUNT_MAX * 4];
static _Alignas(64) uint8_t alone[4 * COUNT_MAX * 4];

static void fill(void)
{
    uint64_t word = 88172645463325252;

    for (size_t i = 0; i < COUNT_MAX; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        in[i] = ((float)(word >> 40) - 0x1p23f) * 0x1p-23f;
    }
}

static struct sl_codec_spec e4m3(void)
{
    return (struct sl_codec_spec){.id = SL_CODEC_E4M3, .dtype = SLUICE_F32};
}

static const struct sl_codec_at start;

/* A good frame, to spoil. */
static size_t good(void)
{
    struct sl_codec_spec spec = e4m3();

    fill();
    return sl_frame_write(&spec, &start, in, COUNT_MAX, bytes);
}

/* Puts the checksum right, since who forges can do so. */
static void seal(uint8_t *frame, size_t len)
{
    uint32_t crc = sl_crc32c(sl_crc32c(0, frame, 60), frame + SL_FRAME_HEAD, len - SL_FRAME_HEAD);

    memcpy(frame + 60, &crc, 4);
}

static int read_forged(size_t at, uint64_t value, size_t width)
{
    struct sl_frame frame;
    uint32_t crc;
    size_t len = good();
    uint64_t payload = len - SL_FRAME_HEAD;

    memcpy(bytes + at, &value, width);
    if (at != 16)
        memcpy(bytes + 16, &payload, 8);
    else if (value < payload)
        payload = value;
    crc = sl_crc32c(sl_crc32c(0, bytes, 60), bytes + SL_FRAME_HEAD, payload);
    memcpy(bytes + 60, &crc, 4);
    return sl_frame_read(bytes, len, &frame);
}

#define REFUSED(call, words)                                                                       \
    do {                                                                                           \
        assert_int_equal(call, -EBADMSG);                                                          \
        assert_non_null(strstr(sluice_last_error(), words));                                       \
    } while (0)

/* Whatever bit makes no difference to what is decoded is zero, or the frame is refused. Elements
 * are such that each code and each scale counts. */
static void bits_that_nobody_reads_are_zero(void **state)
{
    static const size_t sizes[] = {1, 2, 17, 33, 100, 127, SL_TILE + 45};
    static const char *const texts[] = {"bf16",
                                        "fp16",
                                        "bq8",
                                        "bq4",
                                        "bq2",
                                        "e4m3",
                                        "e5m2",
                                        "mxfp8",
                                        "mxfp4",
                                        "nvfp4",
                                        "e3m0",
                                        "sign",
                                        "bq4:rotated=on",
                                        "row8:row=33",
                                        "rowe4m3:row=1000"};
    size_t refused = 0;

    for (size_t i = 0; i < COUNT_MAX; i++) /* the largest of their blocks, with both signs */
        in[i] = i % 3 == 0 ? -1.5f : 1.5f;
    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (size_t c = 0; c < SL_ARRAY_LEN(sizes); c++) {
            struct sl_codec_spec spec;
            struct sl_frame frame;

            assert_int_equal(sl_codec_parse(texts[t], &spec), 0);
            size_t len = sl_frame_write(&spec, &start, in, sizes[c], bytes);

            assert_int_equal(sl_frame_read(bytes, len, &frame), 0);
            if (frame.raw) /* too short to gain anything */
                continue;
            assert_int_equal(sl_frame_decode(&frame, bytes, direct), 0);
            for (size_t bit = 0; bit < (len - SL_FRAME_HEAD) * 8; bit += len < 1000 ? 1 : 13) {
                uint8_t *at = bytes + SL_FRAME_HEAD + bit / 8;

                *at ^= (uint8_t)(1u << bit % 8);
                seal(bytes, len);
                bool taken = sl_frame_read(bytes, len, &frame) == 0;

                if (taken) {
                    assert_int_equal(sl_frame_decode(&frame, bytes, out), 0);
                    assert_memory_not_equal(out, direct, sizes[c] * sizeof(float));
                } else {
                    assert_non_null(strstr(sluice_last_error(), "padding is not zero"));
                    refused++;
                }
                *at ^= (uint8_t)(1u << bit % 8);
            }
        }
    assert_true(refused > 1000);
}

static void every_codec_comes_back_as_it_does_without_a_frame(void **state)
{
    const struct sl_codec *codec;

    fill();
    for (size_t i = 0; (codec = sl_codec_row(i)) != NULL; i++)
        for (size_t j = 0; j < SL_ARRAY_LEN(counts); j++) {
            struct sl_codec_spec spec = {.id = codec->id, .dtype = SLUICE_F32};
            struct sl_codec_at at = {3 * SL_TILE, 5, 7};
            size_t count = counts[j], len, size;
            struct sl_frame frame;

            if (sl_codec_check(&spec) != 0) /* it needs parameters */
                continue;
            memset(bytes, 0xa5, sizeof(bytes));
            len = sl_frame_write(&spec, &at, in, count, bytes);
            assert_true(len <= sl_frame_bound(&spec, count));
            assert_true(len <= SL_FRAME_HEAD + 4 * count);
            if ((codec->flags & SL_CODEC_FIXED) != 0)
                assert_int_equal(len, sl_frame_bound(&spec, count));
            assert_int_equal(bytes[sl_frame_bound(&spec, count)], 0xa5);
            assert_int_equal(sl_frame_read(bytes, len, &frame), 0);
            assert_memory_equal(&frame.spec, &spec, sizeof(spec));
            assert_true(frame.at.first == at.first && frame.at.stream == 5 && frame.at.step == 7);
            assert_int_equal(frame.count, count);
            assert_int_equal(sl_frame_size(&frame), len);
            assert_int_equal(sl_frame_decode(&frame, bytes, out), 0);
            if (frame.raw) {
                assert_memory_equal(out, in, 4 * count);
                continue;
            }
            size = codec->encode(&spec, &at, in, count, alone);
            assert_int_equal(size, frame.payload);
            assert_memory_equal(alone, bytes + SL_FRAME_HEAD, size);
            assert_int_equal(codec->decode(&spec, &at, alone, size, count, direct), 0);
            assert_memory_equal(out, direct, 4 * count);
        }
}

/* Files of today are read by those who come after. */
static void the_header_lies_where_its_description_says(void **state)
{
    static const uint8_t head[60] = {'S',         'L',  'c', 'z', 1, SL_CODEC_NVFP4,
                                     SLUICE_BF16, 0, /* as they are: no */
                                     0x00,        0x10, 0,   0,   0, 0,
                                     0,           0, /* 4096 elements */
                                     0x10,        0x09, 0,   0,   0, 0,
                                     0,           0, /* 2320 bytes */
                                     0,           12,   0,   0,   0, 0,
                                     0,           0, /* bits, tile, k */
                                     0,           0,    0,   0,   0, 0,
                                     0,           0, /* seed */
                                     5,           0,    0,   0,   7, 0,
                                     0,           0, /* stream, step */
                                     3,           0,    0,   0,   0, 0,
                                     0,           0,    0,   0,   0, 0}; /* tile, rows, ranks */
    struct sl_codec_spec spec = {.id = SL_CODEC_NVFP4, .dtype = SLUICE_BF16};
    struct sl_codec_at at = {3 * SL_TILE, 5, 7};
    uint32_t crc;

    fill();
    sl_frame_write(&spec, &at, in, SL_TILE, bytes);
    assert_memory_equal(bytes, head, sizeof(head));
    memcpy(&crc, bytes + 60, 4);
    assert_int_equal(crc, sl_crc32c(sl_crc32c(0, bytes, 60), bytes + 64, 2320));
}

static void what_would_not_shrink_goes_as_it_is(void **state)
{
    struct sl_codec_spec spec = e4m3();
    struct sl_frame frame;

    fill();
    assert_int_equal(sl_frame_write(&spec, &start, in, 36, bytes), SL_FRAME_HEAD + 4 * 36);
    assert_int_equal(sl_frame_read(bytes, SL_FRAME_HEAD + 4 * 36, &frame), 0);
    assert_true(frame.raw);
    assert_int_equal(sl_frame_decode(&frame, bytes, out), 0);
    assert_memory_equal(out, in, 4 * 36);
    assert_int_equal(sl_frame_write(&spec, &start, in, 37, bytes), SL_FRAME_HEAD + 144);
    assert_int_equal(sl_frame_read(bytes, SL_FRAME_HEAD + 144, &frame), 0);
    assert_false(frame.raw);
}

static void a_frame_that_is_cut_off_is_refused_at_every_length(void **state)
{
    struct sl_frame frame;
    size_t len = good();

    for (size_t i = 0; i < len; i += i < 2 * SL_FRAME_HEAD ? 1 : 61)
        REFUSED(sl_frame_read(bytes, i, &frame), i < SL_FRAME_HEAD ? "at least" : "cut off");
    assert_int_equal(sl_frame_read(bytes, len + 1, &frame), 0);
    assert_int_equal(sl_frame_size(&frame), len);
}

static void any_flipped_bit_is_noticed(void **state)
{
    struct sl_frame frame;
    size_t len = good();

    for (size_t i = 0; i < 8 * len; i += i < 16 * SL_FRAME_HEAD ? 1 : 997) {
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(sl_frame_read(bytes, len, &frame), -EBADMSG);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    REFUSED((bytes[len - 1] ^= 1, sl_frame_read(bytes, len, &frame)), "damaged");
}

static void a_forged_header_is_refused_by_a_sentence_that_names_it(void **state)
{
    assert_int_equal(read_forged(4, 1, 1), 0); /* as it was */
    REFUSED(read_forged(0, 0x04034b50, 4), "no frame");
    REFUSED(read_forged(4, 2, 1), "version 2");
    REFUSED(read_forged(5, 200, 1), "no codec number 200");
    REFUSED(read_forged(6, SLUICE_I32, 1), "not of i32");
    REFUSED(read_forged(7, 0x08, 1), "reserved");
    REFUSED(read_forged(7, 0x80, 1), "reserved");
    REFUSED(read_forged(7, 1, 1), "as they are take");
    REFUSED(read_forged(7, 2, 1), "at random");
    REFUSED(read_forged(8, COUNT_MAX + 128, 8), "e4m3 take");
    REFUSED(read_forged(8, UINT64_MAX, 8), "more elements than can be");
    REFUSED(read_forged(8, (uint64_t)1 << 62, 8), "more elements than can be");
    REFUSED(read_forged(8, UINT64_MAX / 16, 8), "e4m3 take");
    REFUSED(read_forged(16, UINT64_MAX, 8), "cut off");
    REFUSED(read_forged(16, 4160, 8), "e4m3 take");
    REFUSED(read_forged(24, 4, 1), "no bits");
    REFUSED(read_forged(25, 13, 1), "2^13");
    REFUSED(read_forged(26, 1, 2), "has no row");
    REFUSED(read_forged(28, 1, 4), "no k");
    REFUSED(read_forged(32, 1, 8), "seed");
    REFUSED(read_forged(52, 1, 4), "no rows");
    REFUSED(read_forged(56, 1, 4), "no ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_that_nobody_reads_are_zero),
        cmocka_unit_test(every_codec_comes_back_as_it_does_without_a_frame),
        cmocka_unit_test(the_header_lies_where_its_description_says),
        cmocka_unit_test(what_would_not_shrink_goes_as_it_is),
        cmocka_unit_test(a_frame_that_is_cut_off_is_refused_at_every_length),
        cmocka_unit_test(any_flipped_bit_is_noticed),
        cmocka_unit_test(a_forged_header_is_refused_by_a_sentence_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
