/* SPDX-License-Identifier: Apache-2.0 */
/* Sketched averages: the largest come out, all comes out in the end, and the plain form is
 * unbiased. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/sketched.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT 2000
#define STEPS 60

static float gradients[RANKS_MOST][COUNT], applied[RANKS_MOST][COUNT], last[RANKS_MOST][COUNT];

struct plan {
    struct sl_sketched_config config;
    bool reload, seeds; /* another sketch each step */
    unsigned steps;
    float rate; /* 0: 1 */
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    float *total = applied[net->rank], *out = last[net->rank];
    struct sl_state_part parts[2];
    struct sl_sketched s;
    size_t size;
    void *memory;
    int err = sl_sketched_size(&plan->config, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_sketched_init(&s, &plan->config, net, memory);
    memset(total, 0, sizeof(applied[0]));
    for (unsigned i = 0; err == 0 && i < plan->steps; i++) {
        if (plan->seeds)
            s.config.sketch.seed = i;
        err = sl_sketched_step(&s, plan->rate > 0 ? plan->rate : 1, gradients[net->rank], out);
        sl_add_scaled(total, 1, out, COUNT);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_sketched_state(&s, 1, parts), net);
    }
    free(memory);
    return err;
}

/* A few large elements in noise. */
static void draw_gradients(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++) {
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
        for (unsigned i = 0; i < 10; i++)
            gradients[w][i * 190 + 7] += 100;
    }
}

static double off(double times, uint32_t ranks)
{
    double error = 0, size = 0;

    for (size_t i = 0; i < COUNT; i++) {
        double mean = 0;

        for (uint32_t w = 0; w < ranks; w++)
            mean += (double)gradients[w][i] / ranks;
        size += mean * mean;
        error += ((double)applied[0][i] / times - mean) * ((double)applied[0][i] / times - mean);
    }
    return sqrt(error / size);
}

static struct plan plan_of(uint32_t rows, uint32_t columns, size_t k)
{
    return (struct plan){.config = {.count = COUNT, .sketch = {rows, columns, 11}, .k = k},
                         .steps = 1};
}

static void the_largest_of_the_mean_come_out_first(void **state)
{
    struct plan plan = plan_of(5, 300, 10);

    draw_gradients();
    assert_int_equal(ranks_run(3, run, &plan), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_true((last[2][i] != 0) == (i % 190 == 7 && i < 1900));
    assert_memory_equal(last[2], last[0], sizeof(last[0]));
    /* The table is all that goes around. */
    assert_int_equal(ranks_bytes, 5 * 300 * sizeof(float));
}

static void what_is_large_comes_out_in_full(void **state)
{
    struct plan plan = plan_of(5, 300, 10);

    draw_gradients();
    plan.steps = STEPS;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    for (unsigned i = 0; i < 10; i++)
        assert_true(fabsf(applied[0][i * 190 + 7] / (STEPS * 100) - 1) < 0.05f);
}

/* Momentum of elements that came out begins anew. */
static void momentum_is_masked_where_elements_came_out(void **state)
{
    struct plan plan = plan_of(5, 300, 10);

    draw_gradients();
    plan.config.momentum = 0.9f;
    plan.steps = STEPS;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    /* Without the mask it would be ten times as much; some wait for a turn. */
    for (unsigned i = 0; i < 10; i++)
        assert_true(fabsf(applied[0][i * 190 + 7] / (STEPS * 100) - 1.5f) < 1);
}

static void the_plain_form_has_the_gradient_as_its_mean(void **state)
{
    struct plan plan = plan_of(1, 500, 0);

    draw_gradients();
    plan.seeds = true;
    plan.steps = 1;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_true(off(1, 2) > 1);
    plan.steps = 2000;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_true(off(2000, 2) < 0.08);
}

static void the_rate_is_in_what_comes_out(void **state)
{
    static float whole[COUNT];
    struct plan plan = plan_of(1, 500, 0);

    draw_gradients();
    for (unsigned i = 0; i < 2; i++) {
        plan.rate = 1;
        assert_int_equal(ranks_run(2, run, &plan), 0);
        memcpy(whole, last[0], sizeof(whole));
        plan.rate = 0.25f;
        assert_int_equal(ranks_run(2, run, &plan), 0);
        for (size_t j = 0; j < COUNT; j++)
            assert_true(last[1][j] == 0.25f * whole[j]);
        plan = plan_of(5, 300, 10);
    }
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[COUNT];
    struct plan plan = plan_of(3, 200, 20);

    draw_gradients();
    plan.config.momentum = 0.9f;
    plan.steps = 10;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    memcpy(before, applied[1], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_memory_equal(before, applied[0], sizeof(before));
}

static void tables_without_a_median_are_refused(void **state)
{
    struct plan plan = plan_of(4, 100, 5);

    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.sketch.rows = 3;
    plan.config.k = 0;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_of_the_mean_come_out_first),
        cmocka_unit_test(what_is_large_comes_out_in_full),
        cmocka_unit_test(momentum_is_masked_where_elements_came_out),
        cmocka_unit_test(the_plain_form_has_the_gradient_as_its_mean),
        cmocka_unit_test(the_rate_is_in_what_comes_out),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(tables_without_a_median_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
