/* SPDX-License-Identifier: Apache-2.0 */
/* rANS of exponents: every float comes back bit for bit, by every path, from the same bytes, and
 * what was forged is refused by all paths alike. */
#include "compress/rans_by.h"

#include <stdio.h>
#include <stdlib.h>

#define COUNT_MAX (5 * SL_RANS_BLOCK + 4097) /* more blocks than a decoder has in hand */
#define HEAD (16 + sizeof(struct sl_rans_table))

static const size_t counts[] = {0,       1,           63,   64,   65,   SL_TILE - 1,
                                SL_TILE, SL_TILE + 1, 8191, 8192, 8193, COUNT_MAX};

#define CODEC sl_codec_rans

static size_t encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                        const void *in, size_t count, void *out)
{
    return sl_rans_encode_by(path, spec, NULL, in, count, out);
}

static int decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                     const void *in, size_t len, size_t count, void *out)
{
    return sl_rans_decode_by(path, spec, NULL, in, len, count, out);
}

#include "tests/unit/compress/lossless_trials.h"

/* By the row: its table is of a sample, its stores go past the caches. */
static void a_long_message_comes_back(void **state)
{
    size_t count = 300 * SL_TILE + 1008, len; /* three segments */
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    struct sl_codec_at at = {0};
    size_t bound = sl_codec_rans.size(&spec, count);
    char *in = aligned_alloc(64, 4 * count), *out = aligned_alloc(64, 4 * count);
    uint8_t *message = aligned_alloc(64, (bound + 127) / 64 * 64);

    floats_fill(spec.dtype, FLOATS_GAUSS, count, in);
    len = sl_codec_rans.encode(&spec, &at, in, count, message);
    assert_true((double)len / (double)(2 * count) <= 0.672);
    for (size_t p = 0; p < sl_lossless_path_count; p++) {
        if (sl_lossless_paths[p]->lacks() != NULL)
            continue;
        memset(out, 0, 4 * count);
        assert_int_equal(
            sl_rans_decode_by(sl_lossless_paths[p], &spec, NULL, message, len, count, out), 0);
        assert_memory_equal(out, in, 2 * count);
    }
    free(in);
    free(out);
    free(message);
}

static void sizes_are_near_the_entropy(void **state)
{
    double n = COUNT_MAX;

    assert_true((double)encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, COUNT_MAX) / (2 * n) <= 0.672);
    assert_true((double)encoded_bytes(SLUICE_F32, FLOATS_GAUSS, COUNT_MAX) / (4 * n) <= 0.838);
    assert_true((double)encoded_bytes(SLUICE_F16, FLOATS_GAUSS, COUNT_MAX) / (2 * n) <= 0.862);
    /* One symbol takes no bit: the states are left. */
    assert_int_equal(encoded_bytes(SLUICE_BF16, FLOATS_ZERO, SL_RANS_BLOCK),
                     SL_RANS_BLOCK + HEAD + 4 + 128);
    /* What does not shrink costs the heads. */
    assert_int_equal(encoded_bytes(SLUICE_BF16, FLOATS_RANDOM, SL_RANS_BLOCK),
                     2 * SL_RANS_BLOCK + HEAD + 4);
}

static void a_table_has_the_most_frequent_symbols_and_an_escape(void **state)
{
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    struct sl_rans_table table;

    floats_fill(SLUICE_BF16, FLOATS_WIDE, SL_TILE, given);
    sl_rans_table_build(&spec, given, SL_TILE, &table);
    assert_int_equal(sl_rans_table_check(&table), 0);
    assert_int_equal(table.count, SL_RANS_SYMBOLS);
    assert_int_equal(table.escape, SL_RANS_SYMBOLS - 1);
    floats_fill(SLUICE_BF16, FLOATS_CONSTANT, 1, given);
    sl_rans_table_build(&spec, given, 1, &table);
    assert_int_equal(sl_rans_table_check(&table), 0);
    assert_int_equal(table.count, 1);
    assert_int_equal(table.freq[0], SL_RANS_TOTAL);
    assert_int_equal(table.escape, SL_RANS_NO_ESCAPE);
}

/* As in a message of many layers: what fits one does not fit the other. */
static void each_segment_has_a_table_of_its_own(void **state)
{
    size_t count = SL_RANS_SEGMENT + 2 * SL_TILE, len;
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    uint16_t *in = malloc(2 * count), *out = malloc(2 * count);
    uint8_t *message = malloc(sl_codec_rans.size(&spec, count));
    struct sl_rans_table tables[2];

    for (size_t i = 0; i < count; i++)
        in[i] = (uint16_t)(i < SL_RANS_SEGMENT ? 0x3f80 + i % 256 : 0x1f80 + i % 128);
    len = sl_rans_encode_by(sl_lossless_path(), &spec, NULL, in, count, message);
    memcpy(tables, message + count + 16, sizeof(tables));
    assert_int_equal(tables[0].symbol[0], 0x7f);
    assert_int_equal(tables[1].symbol[0], 0x3f);
    for (size_t p = 0; p < sl_lossless_path_count; p++) {
        if (sl_lossless_paths[p]->lacks() != NULL)
            continue;
        memset(out, 0, 2 * count);
        assert_int_equal(
            sl_rans_decode_by(sl_lossless_paths[p], &spec, NULL, message, len, count, out), 0);
        assert_memory_equal(out, in, 2 * count);
    }
    free(in);
    free(out);
    free(message);
}

static void a_shared_table_stays_out_of_the_message(void **state)
{
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    struct sl_rans_table table;
    struct sl_codec_at at = {0};
    size_t count = 2 * SL_RANS_BLOCK + 5, own, len;

    /* Made from a wide range: it has an escape, for what later messages bring. */
    floats_fill(SLUICE_BF16, FLOATS_WIDE, count, given);
    sl_rans_table_build(&spec, given, count, &table);
    for (enum floats_kind kind = 0; kind < FLOATS_KINDS; kind++) {
        own = encoded_bytes(SLUICE_BF16, kind, count);
        len = sl_rans_encode_shared(&spec, &table, given + 1, count, bytes);
        assert_true(len <= sl_codec_rans.size(&spec, count));
        assert_int_equal(sl_rans_decode_shared(&spec, &table, bytes, len, count, back + 1), 0);
        assert_memory_equal(back + 1, given + 1, 2 * count);
        if (kind == FLOATS_WIDE)
            assert_int_equal(len, own - sizeof(table));
        assert_int_equal(sl_codec_rans.decode(&spec, &at, bytes, len, count, back), -EBADMSG);
    }
    len = encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, count);
    assert_int_equal(sl_rans_decode_shared(&spec, &table, bytes, len, count, back), -EBADMSG);
}

static void every_other_length_is_refused(void **state)
{
    size_t count = 300, len = encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, count);
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);

    for (size_t l = 0; l < len; l++) {
        assert_int_equal(decode(&spec, l, count), -EBADMSG);
        if (l >= 320 + HEAD + 4)
            assert_non_null(strstr(sluice_last_error(), "are left"));
    }
    assert_int_equal(decode(&spec, len, count), 0);
    assert_int_equal(decode(&spec, len + 1, count), -EBADMSG);
    assert_int_equal(decode(&spec, 1, 0), -EBADMSG);
    assert_int_equal(decode(&spec, 0, 0), 0);
}

static void refuse(const struct sl_codec_spec *spec, size_t len, size_t count, const char *why)
{
    assert_int_equal(decode(spec, len, count), -EBADMSG);
    if (strstr(sluice_last_error(), why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", sluice_last_error(), why);
}

static void forged_tables_are_refused(void **state)
{
    size_t len = encoded_bytes(SLUICE_BF16, FLOATS_GAUSS, SL_TILE);
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    uint8_t *table = bytes + SL_TILE + 16, *symbols = table + 4, *freq = symbols + SL_RANS_SYMBOLS;
    unsigned count = table[0];

    freq[2]++;
    refuse(&spec, len, SL_TILE, "add up to 2049");
    freq[2]--;
    uint16_t first, second, zero = 0;

    memcpy(&first, freq, 2);
    memcpy(&second, freq + 2, 2);
    second = (uint16_t)(second + first);
    memcpy(freq, &zero, 2);
    memcpy(freq + 2, &second, 2);
    refuse(&spec, len, SL_TILE, "frequency 0 for symbol 0");
    memcpy(freq, &first, 2);
    second = (uint16_t)(second - first);
    memcpy(freq + 2, &second, 2);
    assert_int_equal(decode(&spec, len, SL_TILE), 0);
    symbols[1] = symbols[0];
    refuse(&spec, len, SL_TILE, "ascend");
    symbols[1] = (uint8_t)(symbols[0] + 1);
    table[0] = SL_RANS_SYMBOLS + 1;
    refuse(&spec, len, SL_TILE, "33 symbols");
    table[0] = (uint8_t)count;
    table[1] = 0;
    refuse(&spec, len, SL_TILE, "not the last");
    table[1] = SL_RANS_NO_ESCAPE;
    table[3] = 1;
    refuse(&spec, len, SL_TILE, "not 0");
    table[3] = 0;
    bytes[SL_TILE] = 0;
    refuse(&spec, len, SL_TILE, "table that it does not have");
}

static void forged_blocks_are_refused(void **state)
{
    size_t len = encoded_bytes(SLUICE_BF16, FLOATS_RARE, SL_TILE);
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    uint8_t *entry = bytes + SL_TILE + HEAD, *body = entry + 4;
    uint16_t counts_of[2];

    memcpy(counts_of, entry, 4);
    assert_true(counts_of[0] > 100 && counts_of[1] > 10);
    uint8_t *states = body + 2 * counts_of[0];

    assert_int_equal(decode(&spec, len, SL_TILE), 0);
    states[3] |= 0x80; /* a state of 2^31 */
    refuse(&spec, len, SL_TILE, "does not end as it began");
    states[3] &= 0x7f;
    entry[2]--; /* an escape less than is asked for */
    refuse(&spec, len - 1, SL_TILE, "does not end as it began");
    entry[2]++;
    entry[0]++; /* a word more, that is of the states */
    refuse(&spec, len, SL_TILE, "bytes");
    memmove(body + 2, body, len - (size_t)(body - bytes)); /* one that nothing takes */
    refuse(&spec, len + 2, SL_TILE, "does not end as it began");
    memmove(body, body + 2, len - (size_t)(body - bytes));
    entry[0]--;
    uint8_t *escapes = states + 4 * SL_RANS_LANES;

    entry[2]++; /* an escape that nothing takes */
    memmove(escapes + 1, escapes, len - (size_t)(escapes - bytes));
    refuse(&spec, len + 1, SL_TILE, "does not end as it began");
    memmove(escapes, escapes + 1, len - (size_t)(escapes - bytes));
    entry[2]--;
    assert_int_equal(decode(&spec, len, SL_TILE), 0);
}

/* They would end as they should, since words can make up for them; but no encoder makes them. */
static void states_that_begin_too_low_are_refused(void **state)
{
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    const uint16_t all = SL_RANS_TOTAL, words[2] = {2 * SL_RANS_LANES}, low = SL_RANS_LOW;
    uint8_t *table = bytes + 64 + 16, *entry = bytes + 64 + HEAD, *body = entry + 4;

    memset(bytes, 0, 1024);
    bytes[64] = 1;
    table[0] = 1; /* one symbol, whose step changes no state */
    table[1] = SL_RANS_NO_ESCAPE;
    memcpy(table + 4 + SL_RANS_SYMBOLS, &all, 2);
    memcpy(entry, words, 4);
    for (unsigned l = 0; l < SL_RANS_LANES; l++)
        memcpy(body + 2 * l, &low, 2); /* the words that are taken last */
    refuse(&spec, 64 + HEAD + 4 + 4 * SL_RANS_LANES + 4 * SL_RANS_LANES, 64,
           "does not end as it began");
}

/* Of damage anywhere: all paths say the same, and most of it is seen although there is no sum. */
static void damage_is_the_same_to_all_paths(void **state)
{
    size_t count = 5 * SL_RANS_BLOCK, len = encoded_bytes(SLUICE_BF16, FLOATS_RARE, count);
    struct sl_codec_spec spec = spec_of(SLUICE_BF16);
    unsigned refused = 0, tried = 0;

    for (size_t i = count; i < len; i += 1 + floats_random() % 97, tried++) {
        uint8_t damage = (uint8_t)(1 << floats_random() % 8);

        bytes[i] ^= damage;
        refused += decode(&spec, len, count) != 0;
        bytes[i] ^= damage;
    }
    assert_true(refused > tried * 9 / 10);
}

/* Messages are read by other versions and other machines: the format stays. */
static void the_bytes_are_those_of_the_first_version(void **state)
{
    static const uint64_t hashes[] = {0x6e55b052525a3478, 0xe987e3d399234482, 0x5a9fa306a2332774};

    for (size_t t = 0; t < SL_ARRAY_LEN(floats_dtypes); t++) {
        struct sl_codec_spec spec = spec_of(floats_dtypes[t]);
        size_t len;

        floats_state = 1;
        floats_fill(spec.dtype, FLOATS_RARE, COUNT_MAX, given + 1);
        len = encode_by(sl_lossless_path(), &spec, given + 1, COUNT_MAX, bytes);
        assert_int_equal(floats_hash(bytes, len), hashes[t]);
    }
}

static void the_row_is_in_the_table(void **state)
{
    struct sl_codec_spec spec;

    assert_ptr_equal(sl_codec_by_id(SL_CODEC_RANS), &sl_codec_rans);
    assert_int_equal(sl_codec_parse("rans:dtype=f16", &spec), 0);
    assert_int_equal(spec.dtype, SLUICE_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_floats_come_back_by_all_paths_from_the_same_bytes),
        cmocka_unit_test(a_long_message_comes_back),
        cmocka_unit_test(sizes_are_near_the_entropy),
        cmocka_unit_test(a_table_has_the_most_frequent_symbols_and_an_escape),
        cmocka_unit_test(each_segment_has_a_table_of_its_own),
        cmocka_unit_test(a_shared_table_stays_out_of_the_message),
        cmocka_unit_test(decoding_adds_to_floats),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(forged_tables_are_refused),
        cmocka_unit_test(forged_blocks_are_refused),
        cmocka_unit_test(states_that_begin_too_low_are_refused),
        cmocka_unit_test(damage_is_the_same_to_all_paths),
        cmocka_unit_test(the_bytes_are_those_of_the_first_version),
        cmocka_unit_test(the_row_is_in_the_table),
    };

    return cmocka_run_group_tests_name("rans", tests, NULL, NULL);
}
