/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by their like: near ones share a hash, far ones do not, and the difference stays at home.
 *  */
#include "draw.h"
#include "ranks.h"

#include "compress/train/lsh.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define DIM 48
#define TOKENS 400

static float tokens[RANKS_MOST][TOKENS][DIM], before[RANKS_MOST][TOKENS][DIM];
static size_t sent[RANKS_MOST], worked[RANKS_MOST];

/* Clusters: each token is one of so many points, and some noise. */
static void draw_tokens(unsigned points, float noise)
{
    static float centers[TOKENS][DIM];

    draw_fill(DRAW_GAUSSIAN, centers[0], (size_t)TOKENS * DIM);
    for (unsigned w = 0; w < RANKS_MOST; w++)
        for (unsigned i = 0; i < TOKENS; i++) {
            unsigned c = draw_below(points);

            for (unsigned j = 0; j < DIM; j++)
                tokens[w][i][j] = centers[c][j] + noise * draw_gaussian();
        }
    memcpy(before, tokens, sizeof(tokens));
}

/* The expert of rank w: twice the token, plus w. Linear, but for its number of tokens. */
static void expert(void *arg, float *x, size_t count)
{
    uint32_t rank = *(const uint32_t *)arg;

    worked[rank] += count;
    for (size_t i = 0; i < count * DIM; i++)
        x[i] = 2 * x[i] + (float)rank;
}

static uint32_t count_for(uint32_t from, uint32_t to, uint32_t ranks)
{
    return to + 1 < ranks ? (from * 7 + to * 13) % (TOKENS / ranks) : TOKENS / ranks;
}

static int run(const struct sl_net *net, void *arg)
{
    struct sl_lsh_config config = {
        .dim = DIM, .hashes = *(const uint32_t *)arg, .seed = 1, .tokens = TOKENS};
    uint32_t counts[RANKS_MOST], rank = net->rank;
    struct sl_lsh l;
    size_t size;
    void *memory;
    int err = sl_lsh_size(&config, net, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_lsh_init(&l, &config, net, memory);
    worked[rank] = 0;
    for (uint32_t w = 0; w < net->ranks; w++)
        counts[w] = count_for(rank, w, net->ranks);
    err = sl_lsh_round(&l, tokens[rank][0], counts, expert, &rank, &sent[rank]);
    free(memory);
    return err;
}

/* E(c) + x - c, for a linear E, is 2 c + w + x - c = x + c + w: off from E(x) by what x is from c.
 *  */
static void tokens_come_back_as_the_expert_has_them_but_for_their_difference(void **state)
{
    uint32_t hashes = 4;

    for (uint32_t ranks = 1; ranks <= 5; ranks++) {
        draw_tokens(12, 0.01f);
        assert_int_equal(ranks_run(ranks, run, &hashes), 0);
        for (uint32_t r = 0; r < ranks; r++) {
            size_t i = 0;

            for (uint32_t w = 0; w < ranks; w++)
                for (uint32_t n = count_for(r, w, ranks); n > 0; n--, i++)
                    for (unsigned j = 0; j < DIM; j++)
                        assert_true(fabsf(tokens[r][i][j] - (2 * before[r][i][j] + (float)w)) <
                                    0.08f);
            assert_true(sent[r] * 3 < i || i < 60);
            assert_memory_equal(tokens[r][i], before[r][i], (TOKENS - i) * sizeof(tokens[0][0]));
        }
    }
}

static void all_centroids_reach_their_expert(void **state)
{
    size_t out = 0, in = 0;
    uint32_t hashes = 2;

    draw_tokens(30, 0.05f);
    assert_int_equal(ranks_run(4, run, &hashes), 0);
    for (unsigned w = 0; w < 4; w++) {
        out += sent[w];
        in += worked[w];
    }
    assert_int_equal(out, in);
}

/* Each token a bucket of its own: exact. */
static void tokens_that_are_all_different_are_sent_as_they_are(void **state)
{
    uint32_t hashes = 16;

    draw_tokens(TOKENS, 1);
    assert_int_equal(ranks_run(1, run, &hashes), 0);
    assert_true(sent[0] > TOKENS * 95 / 100);
}

static int codes_of(const struct sl_net *net, void *arg)
{
    struct sl_lsh_config config = {.dim = DIM, .hashes = 1, .seed = 1, .tokens = TOKENS};
    unsigned *same = arg;
    struct sl_lsh l;
    size_t size;
    void *memory;
    int err = sl_lsh_size(&config, net, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_lsh_init(&l, &config, net, memory);
    same[0] = same[1] = same[2] = same[3] = 0;
    for (unsigned i = 0; i < TOKENS; i++) {
        float near[DIM], scaled[DIM], turned[DIM];

        for (unsigned j = 0; j < DIM; j++) {
            near[j] = tokens[0][i][j] + 0.1f * tokens[1][i][j];
            scaled[j] = 4 * tokens[0][i][j];
            turned[j] = -tokens[0][i][j];
        }
        same[0] += sl_lsh_code(&l, tokens[0][i]) == sl_lsh_code(&l, near);
        same[1] += sl_lsh_code(&l, tokens[0][i]) == sl_lsh_code(&l, tokens[2][i]);
        same[3] += sl_lsh_code(&l, tokens[0][i]) == sl_lsh_code(&l, turned);
        same[2] += sl_lsh_code(&l, tokens[0][i]) == sl_lsh_code(&l, scaled);
    }
    free(memory);
    return 0;
}

static void near_tokens_have_the_same_hash_more_often(void **state)
{
    unsigned same[4];

    draw_tokens(TOKENS, 1);
    assert_int_equal(ranks_run(1, codes_of, same), 0);
    assert_true(same[0] > TOKENS * 7 / 10);
    assert_true(same[1] < TOKENS / 20);
    assert_int_equal(same[2], TOKENS); /* angles alone count */
    assert_int_equal(same[3], 0);
}

static void numbers_of_hashes_that_cannot_be_are_refused(void **state)
{
    uint32_t hashes = 0;

    assert_int_equal(ranks_run(1, run, &hashes), -EINVAL);
    hashes = 17;
    assert_int_equal(ranks_run(1, run, &hashes), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_back_as_the_expert_has_them_but_for_their_difference),
        cmocka_unit_test(all_centroids_reach_their_expert),
        cmocka_unit_test(tokens_that_are_all_different_are_sent_as_they_are),
        cmocka_unit_test(near_tokens_have_the_same_hash_more_often),
        cmocka_unit_test(numbers_of_hashes_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
