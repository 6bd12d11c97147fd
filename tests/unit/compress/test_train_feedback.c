/* SPDX-License-Identifier: Apache-2.0 */
/* Error feedback: what is applied catches up with what was given, on one side and on both. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/feedback.h"
#include "core/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT (2 * SL_TILE + 1000)
#define STEPS 40

/* Gradients of each rank, the same in all steps: what was applied in all is compared with them. */
static float gradients[RANKS_MOST][COUNT], applied[RANKS_MOST][COUNT];

struct plan {
    const char *up, *down;
    enum sl_feedback_sides sides;
    bool reload; /* save and load the state in each step */
};

static void draw_gradients(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, gradients[w], COUNT);
}

static int feed(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    struct sl_feedback_config config = {.sides = plan->sides, .count = COUNT};
    float *out = ranks_memory(sizeof(gradients[0])), *total = applied[net->rank];
    struct sl_state_part parts[2];
    struct sl_feedback f;
    void *memory = NULL;
    size_t size;
    int err = sl_codec_parse(plan->up, &config.up);

    if (err == 0)
        err = sl_codec_parse(plan->down, &config.down);
    if (err == 0)
        err = sl_feedback_size(&config, net, &size);
    if (err == 0) {
        memory = ranks_memory(size);
        sl_feedback_init(&f, &config, net, memory);
    }
    memset(total, 0, sizeof(applied[0]));
    for (unsigned i = 0; err == 0 && i < STEPS; i++) {
        err = sl_feedback_mean(&f, gradients[net->rank], out);
        sl_add_scaled(total, 1, out, COUNT);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_feedback_state(&f, 3, parts), net);
    }
    free(memory);
    free(out);
    return err;
}

/* How far from STEPS times the mean gradient, as a part of one step's norm. */
static double lag(const float *total, uint32_t ranks)
{
    double off = 0, one = 0;

    for (size_t i = 0; i < COUNT; i++) {
        double mean = 0;

        for (uint32_t w = 0; w < ranks; w++)
            mean += (double)gradients[w][i] / ranks;
        one += mean * mean;
        off += (STEPS * mean - (double)total[i]) * (STEPS * mean - (double)total[i]);
    }
    return sqrt(off / one);
}

static double lag_of(uint32_t ranks, struct plan plan)
{
    assert_int_equal(ranks_run(ranks, feed, &plan), 0);
    for (uint32_t w = 1; w < ranks; w++)
        assert_memory_equal(applied[w], applied[0], sizeof(applied[0]));
    return lag(applied[0], ranks);
}

static void without_feedback_errors_of_all_steps_add_up(void **state)
{
    draw_gradients();
    for (uint32_t ranks = 1; ranks <= 5; ranks += 2)
        assert_true(lag_of(ranks, (struct plan){"bq2", "bq2", SL_FEEDBACK_NONE}) > 5);
}

static void with_it_on_both_sides_what_lacks_stays_that_of_a_step_or_two(void **state)
{
    draw_gradients();
    for (uint32_t ranks = 1; ranks <= 5; ranks++)
        assert_true(lag_of(ranks, (struct plan){"bq2", "bq2", SL_FEEDBACK_TWO_SIDED}) < 3);
}

/* The owner's encoding is lossless in the second case, so that one side is enough. */
static void one_side_heals_its_own_encodings_alone(void **state)
{
    draw_gradients();
    assert_true(lag_of(3, (struct plan){"bq2", "bq2", SL_FEEDBACK_ONE_SIDED}) > 5);
    assert_true(lag_of(3, (struct plan){"bq2", "raw", SL_FEEDBACK_ONE_SIDED}) < 3);
}

static void raw_on_both_sides_is_the_mean_in_the_order_of_ranks(void **state)
{
    struct plan plan = {"raw", "raw", SL_FEEDBACK_NONE, false};

    draw_gradients();
    assert_int_equal(ranks_run(3, feed, &plan), 0);
    for (size_t i = 0; i < COUNT; i++) {
        float mean = (gradients[0][i] + gradients[1][i] + gradients[2][i]) * (1 / 3.0f), sum = 0;

        for (unsigned k = 0; k < STEPS; k++)
            sum += mean;
        assert_true(applied[1][i] == sum);
    }
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[COUNT];

    draw_gradients();
    lag_of(4, (struct plan){"bq4:stochastic=on", "bq2", SL_FEEDBACK_TWO_SIDED, false});
    memcpy(before, applied[0], sizeof(before));
    lag_of(4, (struct plan){"bq4:stochastic=on", "bq2", SL_FEEDBACK_TWO_SIDED, true});
    assert_memory_equal(before, applied[0], sizeof(before));
}

/* The same gradient each step: what is drawn anew averages out, over steps and over ranks. */
static void rounding_at_random_differs_from_step_to_step_and_rank_to_rank(void **state)
{
    struct plan plan = {"bq2:stochastic=on,seed=1", "raw", SL_FEEDBACK_NONE, false};
    double alone;

    draw_gradients();
    alone = lag_of(1, plan);
    assert_true(alone < 1.5 * sqrt(STEPS));
    for (unsigned w = 1; w < 4; w++)
        memcpy(gradients[w], gradients[0], sizeof(gradients[0]));
    assert_true(lag_of(4, plan) < 0.6 * alone);
}

/* Rand-k: all ranks and the owner keep the same elements, and others the next time. */
static void codecs_whose_messages_add_up_draw_alike(void **state)
{
    struct plan plan = {"randk:k=2048,seed=1", "randk:k=2048,seed=1", SL_FEEDBACK_NONE, false};
    size_t none = 0;

    draw_gradients();
    assert_int_equal(ranks_run(3, feed, &plan), 0);
    for (size_t i = 0; i < COUNT; i++) {
        double mean =
            ((double)gradients[0][i] + (double)gradients[1][i] + (double)gradients[2][i]) / 3;
        double times = (double)applied[1][i] / mean;

        /* Half of the steps, or all of them in a last tile of fewer elements: never parts of one.
         *  */
        none += applied[1][i] == 0;
        assert_true(fabs(times - round(times)) < 1e-3 || fabs(mean) < 1e-3);
        assert_true(times > STEPS / 6.0 || fabs(mean) < 1e-3);
    }
    assert_int_equal(none, 0);
}

static void codecs_of_any_length_are_refused(void **state)
{
    struct plan plan = {"kmeans:k=16,bits=2", "raw", SL_FEEDBACK_NONE, false};

    assert_int_equal(ranks_run(2, feed, &plan), -EINVAL);
    plan.up = "bq8:dtype=bf16";
    assert_int_equal(ranks_run(2, feed, &plan), -EINVAL);
}

/* Of a quadratic: theta - optimum of each rank. */
static int descend_by_sign(const struct sl_net *net, void *arg)
{
    struct sl_feedback_config config = {.sides = *(const enum sl_feedback_sides *)arg, .count = 64};
    float gradient[64], update[64], *theta = applied[net->rank];
    struct sl_feedback f;
    size_t size;
    void *memory;
    int err = sl_codec_parse("sign", &config.up);

    config.down = config.up;
    if (err == 0)
        err = sl_feedback_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_feedback_init(&f, &config, net, memory);
    for (unsigned i = 0; i < 64; i++)
        theta[i] = 10;
    for (unsigned k = 0; err == 0 && k < 600; k++) {
        for (unsigned i = 0; i < 64; i++)
            gradient[i] = (theta[i] - gradients[net->rank][i]) * (i % 8 == 0 ? 1.0f : 0.05f);
        err = sl_efsign_step(&f, 0.2f, gradient, theta, update);
    }
    free(memory);
    return err;
}

static double distance(uint32_t ranks)
{
    double off = 0;

    for (unsigned i = 0; i < 64; i++) {
        double mean = 0;

        for (uint32_t w = 0; w < ranks; w++)
            mean += (double)gradients[w][i] / ranks;
        off += fabs((double)applied[0][i] - mean);
    }
    return off / 64;
}

static void signs_with_residuals_reach_the_mean_of_the_optima(void **state)
{
    enum sl_feedback_sides sides = SL_FEEDBACK_TWO_SIDED;

    draw_gradients();
    assert_int_equal(ranks_run(4, descend_by_sign, &sides), 0);
    assert_true(distance(4) < 0.1);
    sides = SL_FEEDBACK_NONE;
    assert_int_equal(ranks_run(4, descend_by_sign, &sides), 0);
    assert_true(distance(4) > 0.2);
}

struct control {
    const char *spec;
    float eta;
    bool reload;
};

static int control(const struct sl_net *net, void *arg)
{
    const struct control *control = arg;
    struct sl_econtrol_config config = {.count = COUNT, .eta = control->eta};
    struct sl_state_part parts[3];
    struct sl_econtrol e;
    size_t size;
    void *memory;
    int err = sl_codec_parse(control->spec, &config.spec);

    if (err == 0)
        err = sl_econtrol_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_econtrol_init(&e, &config, net, memory);
    for (unsigned k = 0; err == 0 && k < 100; k++) {
        err = sl_econtrol_step(&e, gradients[net->rank], applied[net->rank]);
        if (err == 0 && control->reload)
            err = ranks_save_and_load(parts, sl_econtrol_state(&e, 9, parts), net);
    }
    free(memory);
    return err;
}

static void control_follows_gradients_that_stay(void **state)
{
    struct control c = {"topk:k=256", 0.05f, false};
    static float before[COUNT];
    double off = 0, one = 0;

    draw_gradients();
    assert_int_equal(ranks_run(3, control, &c), 0);
    for (size_t i = 0; i < COUNT; i++) {
        double mean =
            ((double)gradients[0][i] + (double)gradients[1][i] + (double)gradients[2][i]) / 3;

        off += ((double)applied[0][i] - mean) * ((double)applied[0][i] - mean);
        one += mean * mean;
    }
    assert_true(off < 0.05 * one);
    assert_memory_equal(applied[0], applied[2], sizeof(applied[0]));
    memcpy(before, applied[0], sizeof(before));
    c.reload = true;
    assert_int_equal(ranks_run(3, control, &c), 0);
    assert_memory_equal(before, applied[1], sizeof(before));
}

/* By elements that are drawn: the same ones each step would leave out all others. */
static void control_draws_other_elements_each_step(void **state)
{
    struct control c = {"randk:k=1024,seed=2", 0.05f, false};
    size_t none = 0;

    draw_gradients();
    assert_int_equal(ranks_run(2, control, &c), 0);
    for (size_t i = 0; i < COUNT; i++)
        none += applied[0][i] == 0;
    assert_int_equal(none, 0);
}

/* Two steps by hand, with a codec that takes the largest of each tile. */
static int two_steps(const struct sl_net *net, void *arg)
{
    float g[3] = {4, 2, 1};
    struct sl_econtrol_config config = {.count = 3, .eta = 0.5f};
    struct sl_econtrol e;
    size_t size;
    void *memory;
    int err = sl_codec_parse("topk:k=1", &config.spec);

    if (err == 0)
        err = sl_econtrol_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_econtrol_init(&e, &config, net, memory);
    err = sl_econtrol_step(&e, g, applied[0]);
    if (err == 0)
        err = sl_econtrol_step(&e, g, applied[0]);
    memcpy(applied[1], e.residual, 3 * sizeof(float));
    free(memory);
    return err;
}

static void two_steps_of_control_are_those_by_hand(void **state)
{
    /* 1: delta (4 0 0), e (0 2 1), h (4 0 0). 2: eta e + g - h = (0 3 1.5), delta (0 3 0): h (4 3
     * 0), e = (0 2 1) + (0 2 1) - (0 3 0). */
    const float h[3] = {4, 3, 0}, e[3] = {0, 1, 2};

    assert_int_equal(ranks_run(1, two_steps, NULL), 0);
    assert_memory_equal(applied[0], h, sizeof(h));
    assert_memory_equal(applied[1], e, sizeof(e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_feedback_errors_of_all_steps_add_up),
        cmocka_unit_test(with_it_on_both_sides_what_lacks_stays_that_of_a_step_or_two),
        cmocka_unit_test(one_side_heals_its_own_encodings_alone),
        cmocka_unit_test(raw_on_both_sides_is_the_mean_in_the_order_of_ranks),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(rounding_at_random_differs_from_step_to_step_and_rank_to_rank),
        cmocka_unit_test(codecs_whose_messages_add_up_draw_alike),
        cmocka_unit_test(codecs_of_any_length_are_refused),
        cmocka_unit_test(signs_with_residuals_reach_the_mean_of_the_optima),
        cmocka_unit_test(control_follows_gradients_that_stay),
        cmocka_unit_test(control_draws_other_elements_each_step),
        cmocka_unit_test(two_steps_of_control_are_those_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
