/* SPDX-License-Identifier: Apache-2.0 */
/* FedKSeed: sums of scalars stand for the walk, and losses alone lead downhill. */
#include "draw.h"
#include "ranks.h"

#include "compress/seedscalar.h"
#include "compress/train/fedkseed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT 200

static float optima[RANKS_MOST][COUNT], thetas[RANKS_MOST][COUNT], walked[RANKS_MOST][COUNT];

static double loss(void *arg, const float *theta)
{
    const float *optimum = arg;
    double sum = 0;

    for (unsigned i = 0; i < COUNT; i++)
        sum += ((double)theta[i] - (double)optimum[i]) * ((double)theta[i] - (double)optimum[i]);
    return sum / 2;
}

struct plan {
    unsigned rounds, steps;
    bool reload;
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    struct sl_fedkseed_config config = {.count = COUNT,
                                        .seeds = 512,
                                        .seed = 42,
                                        .epsilon = 1e-2f,
                                        .rate = 2e-3f,
                                        .loss = loss,
                                        .arg = optima[net->rank]};
    void *memory = ranks_memory(sl_fedkseed_size(&config));
    float *theta = thetas[net->rank];
    struct sl_state_part parts[2];
    struct sl_fedkseed f;
    int err = 0;

    memset(theta, 0, sizeof(thetas[0]));
    sl_fedkseed_init(&f, &config, net, theta, memory);
    for (unsigned r = 0; err == 0 && r < plan->rounds; r++) {
        for (unsigned k = 0; err == 0 && k < plan->steps; k++) {
            sl_fedkseed_step(&f, theta);
            if (plan->reload)
                err = ranks_save_and_load(parts, sl_fedkseed_state(&f, 1, parts), net);
        }
        memcpy(walked[net->rank], theta, sizeof(walked[0]));
        if (err == 0)
            err = sl_fedkseed_round(&f, theta);
    }
    free(memory);
    return err;
}

static void draw_optima(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++) {
        draw_fill(DRAW_GAUSSIAN, optima[w], COUNT);
        for (unsigned i = 0; i < COUNT; i++)
            optima[w][i] += 3;
    }
}

/* Of a quadratic, exactly: z times (theta - optimum). */
static int first_step(const struct sl_net *net, void *arg)
{
    struct sl_fedkseed_config config = {.count = COUNT,
                                        .seeds = 512,
                                        .seed = 42,
                                        .epsilon = 0.25f,
                                        .rate = 1,
                                        .loss = loss,
                                        .arg = optima[0]};
    void *memory = ranks_memory(sl_fedkseed_size(&config));
    double *off = arg;
    struct sl_fedkseed f;
    float g;

    memset(thetas, 0, sizeof(thetas));
    sl_fedkseed_init(&f, &config, net, thetas[0], memory);
    g = sl_fedkseed_step(&f, thetas[0]);
    for (uint32_t j = 0; j < 512; j++) {
        struct sl_direction z = {.seed = 42, .step = j};

        if (f.a[j] != 0)
            *off = fabs((double)g + sl_direction_project(&z, 0, optima[0], COUNT));
    }
    free(memory);
    return 0;
}

static void a_step_measures_the_slope_along_its_direction(void **state)
{
    double off = 1e9;

    draw_optima();
    assert_int_equal(ranks_run(1, first_step, &off), 0);
    assert_true(off < 1e-2);
}

static void a_round_of_one_rank_is_its_walk(void **state)
{
    struct plan plan = {1, 300, false};

    draw_optima();
    assert_int_equal(ranks_run(1, run, &plan), 0);
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(fabsf(walked[0][i] - thetas[0][i]) < 1e-4f);
}

static void a_round_is_the_mean_of_the_walks(void **state)
{
    struct plan plan = {1, 300, false};

    draw_optima();
    assert_int_equal(ranks_run(4, run, &plan), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        float mean = (walked[0][i] + walked[1][i] + walked[2][i] + walked[3][i]) / 4;

        assert_true(fabsf(mean - thetas[3][i]) < 1e-4f);
    }
    assert_memory_equal(thetas[0], thetas[3], sizeof(thetas[0]));
    /* 512 scalars, however many steps. */
    assert_int_equal(ranks_bytes, 512 * sizeof(float));
}

static void losses_alone_lead_to_the_mean_of_the_optima(void **state)
{
    struct plan plan = {20, 300, false};
    double off = 0, start = 0;

    draw_optima();
    assert_int_equal(ranks_run(4, run, &plan), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        double mean = ((double)optima[0][i] + (double)optima[1][i] + (double)optima[2][i] +
                       (double)optima[3][i]) /
                      4;

        off += (mean - (double)thetas[0][i]) * (mean - (double)thetas[0][i]);
        start += mean * mean;
    }
    assert_true(off < 0.02 * start);
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    struct plan plan = {2, 20, false};
    static float before[COUNT];

    draw_optima();
    assert_int_equal(ranks_run(2, run, &plan), 0);
    memcpy(before, thetas[1], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_memory_equal(before, thetas[0], sizeof(before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_measures_the_slope_along_its_direction),
        cmocka_unit_test(a_round_of_one_rank_is_its_walk),
        cmocka_unit_test(a_round_is_the_mean_of_the_walks),
        cmocka_unit_test(losses_alone_lead_to_the_mean_of_the_optima),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
