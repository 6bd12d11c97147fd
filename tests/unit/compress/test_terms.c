/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings that add, as the numbers that an allreduce is given. */
#include "compress/terms.h"

#include "compress/elements.h"
#include "compress/shiq.h"
#include "core/err.h"
#include "core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MOST (3 * SL_TILE)
#define RANKS 300
#define ROOM (4 * MOST)

static struct sl_codec_spec spec;
static struct sl_code code;
static bool vote;
/* What all ranks' numbers come to, so far; those of the term before; and one rank's. */
static _Alignas(64) unsigned char sums[2][ROOM], own[ROOM];
static float in[MOST], out[MOST];
static double exact[MOST];

static void begin(const char *text)
{
    assert_int_equal(sl_codec_parse(text, &spec), 0);
    memset(&code, 0, sizeof(code));
    sl_terms_of(&spec, vote, &code);
}

static struct sl_terms_at at_of(unsigned term, uint32_t ranks, uint32_t rank)
{
    return (struct sl_terms_at){.spec = &spec,
                                .vote = vote,
                                .at = {.first = 5 * SL_TILE, .stream = rank, .step = 7},
                                .term = term,
                                .ranks = ranks,
                                .before = term > 0 ? sums[term - 1] : NULL};
}

/* Multiples of 1/64, so that sums of floats are exact; of other sizes from block to block. */
static void fill(uint32_t rank, size_t count)
{
    struct sl_rng rng;

    sl_rng_init(&rng, rank + 1);
    for (size_t i = 0; i < count; i++)
        in[i] = (float)((int)sl_rng_below(&rng, 511) - 255) * (float)(1 << i / 700 % 6) / 64;
}

static size_t esize(unsigned term)
{
    return sluice_dtype_size((enum sluice_dtype)code.terms[term].dtype);
}

/* As the reduction of an allreduce. */
static void add(unsigned term, uint64_t len, bool first)
{
    for (uint64_t i = 0; i < len; i++) {
        const uint32_t *a = (const uint32_t *)own + i;
        uint32_t *b = (uint32_t *)sums[term] + i;

        if (code.terms[term].dtype == SLUICE_I8)
            sums[term][i] = (unsigned char)((first ? 0 : sums[term][i]) + own[i]);
        else if (code.terms[term].dtype == SLUICE_F32)
            ((float *)sums[term])[i] = (first ? 0 : ((float *)sums[term])[i]) + ((float *)own)[i];
        else if (code.terms[term].op == SLUICE_MAX)
            *b = first || *a > *b ? *a : *b;
        else
            *b = (first ? 0 : *b) + *a;
    }
}

/* All ranks' numbers of all terms, reduced. */
static void reduce(uint32_t ranks, size_t count)
{
    memset(exact, 0, sizeof(exact));
    for (unsigned term = 0; term < code.term_count; term++) {
        uint64_t len = sl_terms_len(&spec, vote, term, ranks, count);

        assert_true(len != 0 && len * esize(term) <= ROOM);
        for (uint32_t r = 0; r < ranks; r++) {
            struct sl_terms_at at = at_of(term, ranks, r);

            fill(r, count);
            memset(own, 0x5c, len * esize(term) + 16);
            sl_terms_encode(&at, SLUICE_F32, in, NULL, count, own, NULL, NULL);
            assert_int_equal(own[len * esize(term)], 0x5c); /* not a byte more */
            add(term, len, r == 0);
            for (size_t i = 0; term == 0 && i < count; i++)
                exact[i] += (double)in[i];
        }
    }
}

static void decode(uint32_t ranks, size_t count, float factor)
{
    struct sl_terms_at at = at_of(code.term_count - 1, ranks, 0);

    sl_terms_decode(&at, SLUICE_F32, sums[code.term_count - 1], count, factor, out);
}

/* Each rank rounds once, to half a step at most, of scales that all share. */
static void sums_of_codes_are_codes_of_the_sum(void **state)
{
    static const uint32_t numbers[] = {1, 2, 3, 16, 127, RANKS};
    static const size_t counts[] = {1, 127, 129, SL_TILE, SL_TILE + 1, 2 * SL_TILE + 777};

    (void)state;
    for (size_t n = 0; n < 2 * SL_ARRAY_LEN(numbers); n++) {
        uint32_t ranks = numbers[n / 2];
        size_t count = counts[(n + n / 2) % SL_ARRAY_LEN(counts)];

        if (n % 2 == 0 && ranks > 127)
            continue;
        begin(n % 2 == 0 ? "shiq" : "shiq:bits=16");
        reduce(ranks, count);
        decode(ranks, count, 1);
        for (size_t i = 0; i < count; i++) {
            double scale = (double)sl_f32_of(((uint32_t *)sums[0])[i / SL_SHIQ_BLOCK]);
            double steps = fabs((double)out[i] - exact[i]) / scale;

            if (steps > ranks * 0.5001 + 0.01)
                fail_msg("%u ranks, element %zu: %.3f steps off", ranks, i, steps);
        }
    }
}

/* As large as they can be, of both signs, so that no number runs into its neighbour. */
static void the_largest_codes_of_all_ranks_fit(void **state)
{
    static const char *const texts[] = {"shiq", "shiq:bits=16"};

    (void)state;
    for (size_t t = 0; t < 2; t++) {
        uint32_t ranks = t == 0 ? 127 : 32767;
        struct sl_terms_at at;

        begin(texts[t]);
        for (int i = 0; i < 7; i++)
            in[i] = (i + i / 2) % 2 == 0 ? 3 : -3;
        at = at_of(0, ranks, 0);
        sl_terms_encode(&at, SLUICE_F32, in, NULL, 7, sums[0], NULL, NULL);
        at = at_of(1, ranks, 0);
        sl_terms_encode(&at, SLUICE_F32, in, NULL, 7, own, NULL, NULL);
        for (uint32_t r = 0; r < ranks; r++)
            add(1, sl_terms_len(&spec, vote, 1, ranks, 7), r == 0);
        decode(ranks, 7, 1.0f / (float)ranks);
        for (int i = 0; i < 7; i++)
            assert_true(fabsf(out[i] - in[i]) < 0.05f);
        assert_int_equal(sl_terms_len(&spec, vote, 1, ranks + 1, 7), 0);
    }
}

/* Places are those of all ranks, though each draws by a stream of its own. */
static void values_that_are_kept_add_up(void **state)
{
    const size_t count = SL_TILE + 1000;
    size_t kept = 0;

    (void)state;
    begin("randk:k=500,seed=3");
    assert_int_equal(sl_terms_len(&spec, vote, 0, 5, count), 1000);
    reduce(5, count);
    decode(5, count, 1);
    for (size_t i = 0; i < count; i++) {
        assert_true(out[i] == 0 || (double)out[i] == exact[i]);
        kept += out[i] != 0;
    }
    assert_true(kept > 960 && kept <= 1000);
}

static void the_sketch_of_a_sum_is_the_sum_of_sketches(void **state)
{
    const size_t count = 2 * SL_TILE + 9;

    (void)state;
    begin("sketch:k=601,rows=3");
    assert_int_equal(sl_terms_len(&spec, vote, 0, 4, count), 3 * 1804); /* a multiple of 16 bytes */
    reduce(4, count);
    for (size_t i = 0; i < count; i++)
        in[i] = (float)exact[i];
    struct sl_terms_at at = at_of(0, 4, 9);

    sl_terms_encode(&at, SLUICE_F32, in, NULL, count, own, NULL, NULL);
    for (size_t i = 0; i < 3 * 1804; i++)
        assert_true(((float *)own)[i] == ((float *)sums[0])[i]);
}

/* Counters of all ranks, beside votes that are counted one by one. */
static void the_majority_of_signs_decides(void **state)
{
    static const uint32_t numbers[] = {1, 2, 3, 4, 15, 16, 255, RANKS};
    static const size_t counts[] = {1, 33, SL_TILE + 17, 2 * SL_TILE};
    static int below[MOST];

    (void)state;
    vote = true;
    for (size_t n = 0; n < SL_ARRAY_LEN(numbers); n++) {
        uint32_t ranks = numbers[n], bits = ranks < 4 ? 2 : ranks < 16 ? 4 : ranks < 256 ? 8 : 16;
        size_t count = counts[n % 4];
        float means[3] = {0};

        begin("sign");
        assert_int_equal(sl_terms_len(&spec, vote, 1, ranks, SL_TILE), SL_TILE / 32 * bits);
        reduce(ranks, count);
        memcpy(means, sums[0], (count + SL_TILE - 1) / SL_TILE * sizeof(*means));
        memset(below, 0, sizeof(below));
        for (uint32_t r = 0; r < ranks; r++) {
            fill(r, count);
            for (size_t i = 0; i < count; i++)
                below[i] += in[i] < 0;
        }
        decode(ranks, count, 1);
        for (size_t i = 0; i < count; i++) {
            int up = 2 * below[i]<(int)ranks, down = 2 * below[i]>(int) ranks;

            assert_true(out[i] == means[i / SL_TILE] * (float)(up - down));
        }
    }
    vote = false;
}

/* What is lost of this rank's own elements comes the next time; of the sum nothing more is. */
static void a_residual_is_what_own_numbers_lack(void **state)
{
    static const char *const texts[] = {"shiq:ranks=40", "randk:k=900", "shiq:bits=16,ranks=9000",
                                        "sign"};
    static float residual[MOST], before[MOST];
    const size_t count = SL_TILE + 333;

    (void)state;
    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++) {
        double power = 0, error = 0, lacks = 0;

        vote = t == 3; /* with half of the sum of two means, of which one is here */
        begin(texts[t]);
        fill(3, count);
        for (size_t i = 0; i < count; i++)
            residual[i] = before[i] = (float)(i % 13) / 64;
        for (unsigned term = 0; term < code.term_count; term++) {
            struct sl_terms_at at = at_of(term, 2, 1);

            sl_terms_encode(&at, SLUICE_F32, in, residual, count, sums[term], &power, &error);
        }
        decode(1, count, vote ? 0.5f : 1);
        for (size_t i = 0; i < count; i++) {
            assert_true(fabsf(in[i] + before[i] - out[i] - residual[i]) < 2e-5f);
            lacks += (double)residual[i] * residual[i];
        }
        assert_true(power > 0 && error > 0 && fabs(error / lacks - 1) < 1e-6);
    }
    vote = false;
}

static void elements_of_16_bits_are_rounded_once(void **state)
{
    static const enum sluice_dtype dtypes[] = {SLUICE_BF16, SLUICE_F16};
    static uint16_t halves[MOST + 1], got[MOST + 1];
    const size_t count = SL_TILE + 5;

    (void)state;
    for (size_t d = 0; d < 2; d++) {
        begin("shiq");
        fill(8, count);
        sl_elements_narrow(dtypes[d], in, count, halves + 1);
        sl_elements_widen(dtypes[d], halves + 1, count, in);
        for (unsigned term = 0; term < 2; term++) {
            struct sl_terms_at at = at_of(term, 3, 1);

            sl_terms_encode(&at, dtypes[d], halves + 1, NULL, count, sums[term], NULL, NULL);
            sl_terms_encode(&at, SLUICE_F32, in, NULL, count, own, NULL, NULL);
            assert_memory_equal(sums[term], own,
                                sl_terms_len(&spec, vote, term, 3, count) * esize(term));
        }
        decode(3, count, 1.0f / 3);
        struct sl_terms_at at = at_of(1, 3, 0);

        sl_terms_decode(&at, dtypes[d], sums[1], count, 1.0f / 3, got + 1);
        sl_elements_narrow(dtypes[d], out, count, halves);
        assert_memory_equal(got + 1, halves, count * sizeof(*got));
    }
}

/* One rank's NaN is all ranks' NaN, in its block alone. */
static void no_number_spoils_its_block_on_all_ranks(void **state)
{
    (void)state;
    begin("shiq");
    for (unsigned term = 0; term < 2; term++) {
        for (uint32_t r = 0; r < 2; r++) {
            struct sl_terms_at at = at_of(term, 2, r);

            fill(r, 400);
            in[200] = r == 1 ? NAN : 1;
            sl_terms_encode(&at, SLUICE_F32, in, NULL, 400, own, NULL, NULL);
            add(term, sl_terms_len(&spec, vote, term, 2, 400), r == 0);
        }
    }
    decode(2, 400, 1);
    for (size_t i = 0; i < 400; i++)
        assert_int_equal(isnan(out[i]), i / SL_SHIQ_BLOCK == 1);
}

/* Bytes of others are numbers, whatever they are. */
static void forged_numbers_decode_to_something(void **state)
{
    static const char *const texts[] = {"shiq", "shiq:bits=16", "randk:k=77", "sketch:k=33,rows=5"};
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    for (unsigned round = 0; round < 40; round++) {
        size_t count = 1 + sl_rng_below(&rng, MOST);

        begin(texts[round % 4]);
        for (size_t i = 0; i < ROOM; i++) {
            sums[0][i] = (unsigned char)sl_rng_u64(&rng);
            sums[1][i] = (unsigned char)sl_rng_u64(&rng);
        }
        decode(2, count, 0.5f);
    }
}

static void codecs_whose_messages_do_not_add_have_no_terms(void **state)
{
    (void)state;
    begin("bq8");
    assert_int_equal(code.term_count, 0);
    begin("shiq");
    assert_int_equal(code.term_count, 2);
    begin("sketch:k=9,rows=1");
    assert_int_equal(code.term_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_codes_are_codes_of_the_sum),
        cmocka_unit_test(the_largest_codes_of_all_ranks_fit),
        cmocka_unit_test(values_that_are_kept_add_up),
        cmocka_unit_test(the_sketch_of_a_sum_is_the_sum_of_sketches),
        cmocka_unit_test(the_majority_of_signs_decides),
        cmocka_unit_test(a_residual_is_what_own_numbers_lack),
        cmocka_unit_test(elements_of_16_bits_are_rounded_once),
        cmocka_unit_test(no_number_spoils_its_block_on_all_ranks),
        cmocka_unit_test(forged_numbers_decode_to_something),
        cmocka_unit_test(codecs_whose_messages_do_not_add_have_no_terms),
    };

    return cmocka_run_group_tests_name("terms", tests, NULL, NULL);
}
