/* SPDX-License-Identifier: Apache-2.0 */
/* Votes over signs against counting them one by one. */
#include "draw.h"

#include "compress/vote.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <cmocka.h>

#define COUNT_MAX 300
#define WORDS_MAX 5
#define RANKS_MAX 40

static float input[RANKS_MAX][COUNT_MAX], out[COUNT_MAX];
static uint64_t signs[RANKS_MAX][WORDS_MAX], counters[6 * WORDS_MAX], more[6 * WORDS_MAX];
static uint64_t below[WORDS_MAX], ties[WORDS_MAX];
static unsigned votes[COUNT_MAX];

static const size_t counts[] = {0, 1, 63, 64, 65, 129, COUNT_MAX};

/* Signs of ranks, and votes[] of those below zero, from elements that are often alike. */
static void draw_votes(unsigned ranks, size_t count)
{
    memset(votes, 0, sizeof(votes));
    for (unsigned r = 0; r < ranks; r++) {
        draw_fill(r % 3 ? DRAW_FEW : DRAW_WILD, input[r], count);
        memset(signs[r], 0xff, sizeof(signs[r]));
        sl_vote_signs(input[r], count, signs[r]);
        for (size_t i = 0; i < count; i++)
            votes[i] += input[r][i] < 0;
    }
}

static bool bit_of(const uint64_t *words, size_t i)
{
    return (words[i / 64] >> i % 64 & 1) != 0;
}

static void signs_are_those_below_zero(void **state)
{
    for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++)
        for (int kind = 0; kind < DRAW_KINDS; kind++) {
            draw_fill((enum draw_kind)kind, input[0], counts[n]);
            memset(signs, 0xff, sizeof(signs));
            sl_vote_signs(input[0], counts[n], signs[0]);
            for (size_t i = 0; i < sl_vote_words(counts[n]) * 64; i++)
                assert_int_equal(bit_of(signs[0], i), i < counts[n] && input[0][i] < 0);
            assert_true(sl_vote_words(counts[n]) == WORDS_MAX ||
                        signs[0][sl_vote_words(counts[n])] == UINT64_MAX);
        }
}

static void the_majority_is_that_of_counting(void **state)
{
    for (unsigned ranks = 1; ranks <= RANKS_MAX; ranks++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++) {
            size_t count = counts[n], words = sl_vote_words(count);
            unsigned planes = sl_vote_planes(ranks), even = 0;

            draw_votes(ranks, count);
            memset(counters, 0, sizeof(counters));
            for (unsigned r = 0; r < ranks; r++)
                sl_vote_add(counters, planes, signs[r], words);
            sl_vote_majority(counters, planes, ranks, words, below, ties);
            sl_vote_sum(counters, planes, ranks, 0.5f, count, out);
            for (size_t i = 0; i < count; i++) {
                assert_int_equal(bit_of(below, i), 2 * votes[i] > ranks);
                assert_int_equal(bit_of(ties, i), 2 * votes[i] == ranks);
                assert_true(out[i] == 0.5f * (float)((int)ranks - 2 * (int)votes[i]));
                even += 2 * votes[i] == ranks;
            }
            assert_true(ranks != 2 || count < 63 || even > 0);
            sl_vote_majority(counters, planes, ranks, words, ties, NULL);
            assert_memory_equal(below, ties, words * 8);
            sl_vote_apply(below, 0.25f, count, out);
            for (size_t i = 0; i < count; i++)
                assert_true(out[i] == (2 * votes[i] > ranks ? -0.25f : 0.25f));
        }
}

static void counters_of_groups_add_up(void **state)
{
    for (unsigned ranks = 2; ranks <= RANKS_MAX; ranks++) {
        unsigned first = 1 + draw_below(ranks - 1), planes = sl_vote_planes(ranks);
        unsigned more_planes = sl_vote_planes(ranks - first);
        size_t words = sl_vote_words(COUNT_MAX);
        uint64_t whole[6 * WORDS_MAX] = {0};

        draw_votes(ranks, COUNT_MAX);
        memset(counters, 0, sizeof(counters));
        memset(more, 0, sizeof(more));
        for (unsigned r = 0; r < ranks; r++) {
            sl_vote_add(whole, planes, signs[r], words);
            if (r < first)
                sl_vote_add(counters, planes, signs[r], words);
            else
                sl_vote_add(more, more_planes, signs[r], words);
        }
        sl_vote_merge(counters, planes, more, more_planes, words);
        assert_memory_equal(counters, whole, planes * words * 8);
    }
}

static void planes_are_as_many_as_a_count_of_all_ranks_needs(void **state)
{
    assert_int_equal(sl_vote_planes(1), 1);
    assert_int_equal(sl_vote_planes(2), 2);
    assert_int_equal(sl_vote_planes(3), 2);
    assert_int_equal(sl_vote_planes(4), 3);
    assert_int_equal(sl_vote_planes(64), 7);
    assert_int_equal(sl_vote_planes(UINT32_MAX), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_are_those_below_zero),
        cmocka_unit_test(the_majority_is_that_of_counting),
        cmocka_unit_test(counters_of_groups_add_up),
        cmocka_unit_test(planes_are_as_many_as_a_count_of_all_ranks_needs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
