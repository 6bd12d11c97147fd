/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed Lion against a plain model, of few and many ranks, and lengths that no shard divides.
 *  */
#include "draw.h"
#include "ranks.h"

#include "compress/train/lion.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT_MOST 3000
#define STEPS 12

static float gradients[STEPS][RANKS_MOST][COUNT_MOST], outs[RANKS_MOST][STEPS][COUNT_MOST];

struct plan {
    struct sl_lion_config config;
    bool reload;
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    void *memory = ranks_memory(sl_lion_size(&plan->config, net));
    struct sl_state_part parts[1];
    struct sl_lion l;
    int err = 0;

    sl_lion_init(&l, &plan->config, net, memory);
    for (unsigned i = 0; err == 0 && i < STEPS; i++) {
        err = sl_lion_step(&l, gradients[i][net->rank], outs[net->rank][i]);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_lion_state(&l, 1, parts), net);
    }
    free(memory);
    return err;
}

static void draw_gradients(void)
{
    for (unsigned i = 0; i < STEPS; i++)
        for (unsigned w = 0; w < RANKS_MOST; w++)
            draw_fill(DRAW_GAUSSIAN, gradients[i][w], COUNT_MOST);
}

static void check(struct plan plan, uint32_t ranks)
{
    static float m[RANKS_MOST][COUNT_MOST];

    memset(m, 0, sizeof(m));
    assert_int_equal(ranks_run(ranks, run, &plan), 0);
    for (unsigned i = 0; i < STEPS; i++)
        for (size_t j = 0; j < plan.config.count; j++) {
            int votes = 0;
            float expected;

            for (uint32_t w = 0; w < ranks; w++) {
                float g = gradients[i][w][j];

                votes += 0.9f * m[w][j] + (1 - 0.9f) * g < 0 ? -1 : 1;
                m[w][j] = 0.99f * m[w][j] + (1 - 0.99f) * g;
            }
            expected = plan.config.average ? (float)votes * (1 / (float)ranks)
                                           : (float)((votes > 0) - (votes < 0));
            for (uint32_t w = 0; w < ranks; w++)
                assert_true(outs[w][i][j] == expected);
        }
}

static void votes_and_averages_are_those_of_a_plain_count(void **state)
{
    static const size_t counts[] = {1, 63, 64, 65, 129, 1000, COUNT_MOST};

    draw_gradients();
    for (unsigned average = 0; average < 2; average++)
        for (uint32_t ranks = 1; ranks <= RANKS_MOST; ranks++)
            for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                check((struct plan){.config = {counts[i], 0.9f, 0.99f, average == 1}}, ranks);
}

static void even_votes_move_nothing(void **state)
{
    struct plan plan = {.config = {COUNT_MOST, 0.9f, 0.99f, false}};
    unsigned still = 0;

    draw_gradients();
    assert_int_equal(ranks_run(2, run, &plan), 0);
    for (size_t j = 0; j < COUNT_MOST; j++)
        still += outs[0][0][j] == 0;
    assert_in_range(still, COUNT_MOST * 2 / 5, COUNT_MOST * 3 / 5);
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    struct plan plan = {.config = {COUNT_MOST, 0.9f, 0.99f, true}, .reload = true};

    draw_gradients();
    check(plan, 3);
}

static void a_bit_goes_up_and_two_come_down(void **state)
{
    struct plan plan = {.config = {2048, 0.9f, 0.99f, false}};

    assert_int_equal(ranks_run(4, run, &plan), 0);
    /* Of rank 0: signs of all, and two planes of its shard. */
    assert_int_equal(ranks_bytes, STEPS * (2048 / 8 + 2 * 2048 / 8 / 4));
}

static void theta_decays_as_it_moves(void **state)
{
    float theta[2] = {2, -1}, update[2] = {1, -1};

    sl_lion_apply(update, 0.5f, 0.25f, 2, theta);
    assert_true(theta[0] == 2 - 0.5f * 1.5f && theta[1] == -1 + 0.5f * 1.25f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(votes_and_averages_are_those_of_a_plain_count),
        cmocka_unit_test(even_votes_move_nothing),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(a_bit_goes_up_and_two_come_down),
        cmocka_unit_test(theta_decays_as_it_moves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
