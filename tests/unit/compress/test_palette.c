/* SPDX-License-Identifier: Apache-2.0 */
/* Palette-3: every float comes back bit for bit, by every path, from the same bytes. */
#include "compress/palette.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT_MAX (3 * SL_TILE + 1)

static const size_t counts[] = {
    0,        1, 63, 64, 65, 511, 513, SL_TILE - 1, SL_TILE, SL_TILE + 1, 2 * 4096, 2 * 4096 + 77,
    COUNT_MAX};

#define CODEC sl_codec_palette

static size_t encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                        const void *in, size_t count, void *out)
{
    return sl_palette_encode_by(path, spec, in, count, out);
}

static int decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                     const void *in, size_t len, size_t count, void *out)
{
    return sl_palette_decode_by(path, spec, in, len, count, out);
}

#include "tests/unit/compress/lossless_trials.h"

/* So long that stores go past the caches, and so aligned. */
static void a_long_message_comes_back(void **state)
{
    static const size_t offsets[] = {0, 2, 32};
    size_t count = 300 * SL_TILE + 1008;
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    size_t bound = sl_codec_palette.size(&spec, count), len;
    char *in = aligned_alloc(64, 4 * count), *out = aligned_alloc(64, 4 * count);
    uint8_t *message = aligned_alloc(64, (bound + 127) / 64 * 64);

    floats_fill(spec.dtype, FLOATS_GAUSS, count, in);
    for (size_t p = 0; p < sl_lossless_path_count; p++)
        for (size_t o = 0; o < SL_ARRAY_LEN(offsets); o++) {
            if (sl_lossless_paths[p]->lacks() != NULL)
                continue;
            memset(out, 0, 4 * count);
            len = sl_palette_encode_by(sl_lossless_paths[p], &spec, in, count, message);
            assert_int_equal(sl_palette_decode_by(sl_lossless_paths[p], &spec, message, len, count,
                                                  out + offsets[o]),
                             0);
            assert_memory_equal(out + offsets[o], in, 2 * count);
        }
    free(in);
    free(out);
    free(message);
}

static void sizes_are_those_of_the_notes(void **state)
{
    double tile = SL_TILE;

    /* Three bits, a head, and some escapes: of 16 bits for each element, of 32 for f32. */
    assert_true((double)encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, SL_TILE) / (2 * tile) < 0.710);
    assert_true((double)encoded_bytes(SLUICE_F32, FLOATS_GAUSS, SL_TILE) / (4 * tile) < 0.856);
    assert_true((double)encoded_bytes(SLUICE_BF16, FLOATS_SPARSE, SL_TILE) / (2 * tile) < 0.730);
    assert_int_equal(encoded_bytes(SLUICE_BF16, FLOATS_ZERO, SL_TILE), 4096 + 16 + 1536);
    /* What does not shrink costs a head. */
    assert_int_equal(encoded_bytes(SLUICE_BF16, FLOATS_RANDOM, SL_TILE), 2 * 4096 + 16);
    assert_int_equal(encoded_bytes(SLUICE_F32, FLOATS_RANDOM, SL_TILE), 4 * 4096 + 16);
}

static void a_palette_is_taken_where_windows_do_not_fit(void **state)
{
    encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, SL_TILE);
    assert_int_equal(bytes[4096 + 10], SL_PALETTE_WINDOW);
    encoded_bytes(SLUICE_BF16, FLOATS_SPARSE, SL_TILE);
    assert_int_equal(bytes[4096 + 10], SL_PALETTE_TABLE);
    encoded_bytes(SLUICE_BF16, FLOATS_RANDOM, SL_TILE);
    assert_int_equal(bytes[4096 + 10], SL_PALETTE_STORED);
}

/* Its bytes are those of the same floats, whatever the exponents are. */
static void the_raw_plane_stands_first(void **state)
{
    size_t count = 2 * SL_TILE + 77;

    encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, count);
    for (size_t i = 0; i < count; i++) {
        uint16_t x;

        memcpy(&x, given + 1 + 2 * i, 2);
        assert_int_equal(bytes[i], (uint8_t)(x << 1 | x >> 15));
    }
    /* The last group is filled by its last element. */
    for (size_t i = count; i < sl_lossless_round(count); i++)
        assert_int_equal(bytes[i], bytes[count - 1]);
}

static void every_other_length_is_refused(void **state)
{
    size_t count = SL_TILE + 100;
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    size_t len = encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, count);

    for (size_t l = 0; l < len; l += l < len - 600 ? 97 : 1) {
        uint8_t *exact = malloc(l + 1); /* so that the sanitizer sees what is read beyond */

        memcpy(exact, bytes, l);
        assert_int_equal(sl_palette_decode_by(sl_lossless_path(), &spec, exact, l, count, back),
                         -EBADMSG);
        assert_non_null(strstr(sluice_last_error(), l < 4224 + 32 ? "or more" : "are left"));
        free(exact);
    }
    assert_int_equal(decode(&spec, len, count), 0);
    assert_int_equal(decode(&spec, len + 1, count), -EBADMSG);
    assert_int_equal(decode(&spec, 1, 0), -EBADMSG);
}

static void forged_heads_are_refused(void **state)
{
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    size_t len = encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, SL_TILE);
    uint8_t *head = bytes + 4096;

    assert_int_equal(decode(&spec, len, SL_TILE), 0);
    head[10] = SL_PALETTE_STORED + 1;
    assert_int_equal(decode(&spec, len, SL_TILE), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "mode 3"));
    head[10] = SL_PALETTE_WINDOW;
    head[8]++; /* one more escape than codes of one; the message is one longer */
    assert_int_equal(decode(&spec, len + 1, SL_TILE), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "escapes"));
    head[8] = (uint8_t)(head[8] - 2);
    assert_int_equal(decode(&spec, len - 1, SL_TILE), -EBADMSG);
    head[9] = 0xff;
    assert_int_equal(decode(&spec, len, SL_TILE), -EBADMSG);
}

/* Messages are read by other versions and other machines: the format stays. */
static void the_bytes_are_those_of_the_first_version(void **state)
{
    static const uint64_t hashes[] = {0xf9d0a6f251aa834d, 0x4cacebeb82726b65, 0x9b013d1404d83aaa};

    for (size_t t = 0; t < SL_ARRAY_LEN(floats_dtypes); t++) {
        struct sl_codec_spec spec = spec_of(floats_dtypes[t]);
        size_t len;

        floats_state = 1;
        floats_fill(spec.dtype, FLOATS_RARE, COUNT_MAX, given + 1);
        len = sl_palette_encode_by(sl_lossless_path(), &spec, given + 1, COUNT_MAX, bytes);
        assert_int_equal(floats_hash(bytes, len), hashes[t]);
    }
}

static void the_row_is_in_the_table(void **state)
{
    struct sl_codec_spec spec;

    assert_ptr_equal(sl_codec_by_id(SL_CODEC_PALETTE), &sl_codec_palette);
    assert_int_equal(sl_codec_parse("palette:dtype=bf16", &spec), 0);
    assert_int_equal(spec.dtype, SLUICE_BF16);
    assert_int_equal(sl_codec_parse("palette:k=3", &spec), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_floats_come_back_by_all_paths_from_the_same_bytes),
        cmocka_unit_test(a_long_message_comes_back),
        cmocka_unit_test(sizes_are_those_of_the_notes),
        cmocka_unit_test(a_palette_is_taken_where_windows_do_not_fit),
        cmocka_unit_test(the_raw_plane_stands_first),
        cmocka_unit_test(decoding_adds_to_floats),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(forged_heads_are_refused),
        cmocka_unit_test(the_bytes_are_those_of_the_first_version),
        cmocka_unit_test(the_row_is_in_the_table),
    };

    return cmocka_run_group_tests_name("palette", tests, NULL, NULL);
}
