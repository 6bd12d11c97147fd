/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD: exact where gradients are of low rank, with residuals elsewhere; published sizes. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/powersgd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct sl_layer layers[] = {{40, 60}, {1, 60}, {1, 1}, {30, 40}, {3, 2}};
#define LAYERS (sizeof(layers) / sizeof(layers[0]))
#define COUNT (40 * 60 + 60 + 1 + 30 * 40 + 6)
#define STEPS 60

static float gradients[RANKS_MOST][COUNT], applied[RANKS_MOST][COUNT], last[RANKS_MOST][COUNT];

struct plan {
    struct sl_powersgd_config config;
    bool reload, forget; /* the state in each step: by way of bytes, or its residual */
    unsigned steps;
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    float *total = applied[net->rank], *out = last[net->rank];
    struct sl_state_part parts[2];
    struct sl_powersgd p;
    size_t size;
    void *memory;
    int err = sl_powersgd_size(&plan->config, net, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_powersgd_init(&p, &plan->config, net, memory);
    memset(total, 0, sizeof(applied[0]));
    for (unsigned i = 0; err == 0 && i < plan->steps; i++) {
        err = sl_powersgd_step(&p, gradients[net->rank], out);
        sl_add_scaled(total, 1, out, COUNT);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_powersgd_state(&p, 1, parts), net);
        if (plan->forget)
            memset(p.residual, 0, sizeof(applied[0]));
    }
    free(memory);
    return err;
}

static struct plan plan_of(uint32_t rank, unsigned steps)
{
    return (struct plan){
        .config = {.layers = layers, .layer_count = LAYERS, .rank = rank, .times = 1, .seed = 5},
        .steps = steps};
}

/* Gradients whose matrices are of that rank, alike in their columns' space over the ranks. */
static void draw_low(unsigned rank)
{
    memset(gradients, 0, sizeof(gradients));
    for (unsigned w = 0; w < RANKS_MOST; w++) {
        float *g = gradients[w];

        for (unsigned l = 0; l < LAYERS; g += layers[l].rows * layers[l].columns, l++)
            for (unsigned r = 0; r < rank; r++) {
                float b[64];

                draw_fill(DRAW_GAUSSIAN, b, layers[l].columns);
                for (size_t i = 0; i < layers[l].rows; i++)
                    for (size_t j = 0; j < layers[l].columns; j++)
                        g[i * layers[l].columns + j] += sinf((float)(i * (r + 1))) * b[j];
            }
    }
}

/* |out / times - mean| / |mean| */
static double off(const float *out, double times, uint32_t ranks)
{
    double error = 0, size = 0;

    for (size_t i = 0; i < COUNT; i++) {
        double mean = 0;

        for (uint32_t w = 0; w < ranks; w++)
            mean += (double)gradients[w][i] / ranks;
        size += mean * mean;
        error += ((double)out[i] / times - mean) * ((double)out[i] / times - mean);
    }
    return sqrt(error / size);
}

static void gradients_of_that_rank_come_back_at_once(void **state)
{
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (uint32_t rank = 1; rank <= 3; rank++) {
            struct plan plan = plan_of(rank, 1);

            draw_low(rank);
            assert_int_equal(ranks_run(ranks, run, &plan), 0);
            assert_true(off(last[ranks - 1], 1, ranks) < 1e-4);
        }
}

static void with_residuals_all_arrives_in_the_end(void **state)
{
    struct plan plan = plan_of(2, STEPS);

    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_true(off(last[0], 1, 3) > 0.5);
    assert_true(off(applied[0], STEPS, 3) < 0.35);
    assert_memory_equal(applied[2], applied[0], sizeof(applied[0]));
}

/* Each step is then one of the power method, on the same matrix. */
static void a_warm_start_comes_nearer_with_each_step(void **state)
{
    struct plan plan = plan_of(2, 1);
    double once, warm;

    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
    plan.forget = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    once = off(last[0], 1, 2);
    plan.steps = 20;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    warm = off(last[0], 1, 2);
    assert_true(warm < 0.98 * once);
    plan.config.cold = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_true(off(last[0], 1, 2) > 1.01 * warm);
}

static void factors_of_four_bits_arrive_too(void **state)
{
    struct plan plan = plan_of(2, STEPS);
    struct sl_codec_spec spec;

    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
    assert_int_equal(sl_codec_parse("bq4", &spec), 0);
    plan.config.codec = &spec;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_true(off(applied[0], STEPS, 3) < 0.4);
    assert_memory_equal(applied[2], applied[0], sizeof(applied[0]));
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[COUNT];
    struct plan plan = plan_of(2, 10);

    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
    assert_int_equal(ranks_run(3, run, &plan), 0);
    memcpy(before, applied[1], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_memory_equal(before, applied[0], sizeof(before));
}

/* 40 x 60 and 30 x 40 by factors of rank 2, and the rest as it is. */
static void two_messages_have_the_factors_of_all_layers(void **state)
{
    struct plan plan = plan_of(2, 1);

    draw_low(1);
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_int_equal(ranks_bytes, 4 * (2 * (40 + 60 + 30 + 40) + 60 + 1 + 6));
}

static void rank_zero_and_a_codec_of_any_length_are_refused(void **state)
{
    struct plan plan = plan_of(0, 1);
    struct sl_codec_spec spec;

    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.rank = 1;
    assert_int_equal(sl_codec_parse("kmeans:k=9,bits=2", &spec), 0);
    plan.config.codec = &spec;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_that_rank_come_back_at_once),
        cmocka_unit_test(with_residuals_all_arrives_in_the_end),
        cmocka_unit_test(a_warm_start_comes_nearer_with_each_step),
        cmocka_unit_test(factors_of_four_bits_arrive_too),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(two_messages_have_the_factors_of_all_layers),
        cmocka_unit_test(rank_zero_and_a_codec_of_any_length_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
