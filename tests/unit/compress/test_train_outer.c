/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of what ranks reach by their own steps: at once, by turns, and late. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/outer.h"
#include "compress/train/powersgd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT 101
#define STEPS 400

static float optima[RANKS_MOST][COUNT], thetas[RANKS_MOST][COUNT], anchors[RANKS_MOST][COUNT];

struct plan {
    struct sl_outer_config config;
    bool reload, low_rank;
    unsigned steps, means; /* in all, and how often a mean was taken */
};

struct low_rank {
    struct sl_powersgd p;
    const struct sl_net *net;
    struct plan *plan;
};

static int counted_mean(void *arg, float *x, size_t first, size_t count)
{
    struct low_rank *low = arg;

    if (low->net->rank == 0)
        low->plan->means++;
    return low->plan->low_rank ? sl_powersgd_step(&low->p, x, x) : sl_net_mean(low->net, x, count);
}

static int make_low_rank(struct low_rank *low, void **memory)
{
    static const struct sl_layer layers[] = {{10, 10}, {1, 1}};
    static const struct sl_codec_spec spec = {.id = SL_CODEC_BQ4, .dtype = SLUICE_F32};
    struct sl_powersgd_config config = {
        .layers = layers, .layer_count = 2, .rank = 4, .times = 1, .codec = &spec};
    size_t size;
    int err;

    err = sl_powersgd_size(&config, low->net, &size);
    *memory = ranks_memory(size);
    if (err == 0)
        sl_powersgd_init(&low->p, &config, low->net, *memory);
    return err;
}

static int run(const struct sl_net *net, void *arg)
{
    struct plan *plan = arg;
    struct low_rank low = {.net = net, .plan = plan};
    float *theta = thetas[net->rank];
    struct sl_state_part parts[5];
    struct sl_outer o;
    void *memory, *more = NULL;
    size_t size;
    int err = sl_outer_size(&plan->config, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    memset(theta, 0, sizeof(thetas[0]));
    sl_outer_init(&o, &plan->config, theta, memory);
    if (plan->low_rank)
        err = make_low_rank(&low, &more);
    for (unsigned k = 0; err == 0 && k < plan->steps; k++) {
        for (unsigned i = 0; i < COUNT; i++)
            theta[i] -= 0.05f * (theta[i] - optima[net->rank][i]);
        err = sl_outer_step(&o, counted_mean, &low, k, theta);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_outer_state(&o, 1, parts), net);
    }
    memcpy(anchors[net->rank], o.anchor, sizeof(anchors[0]));
    free(memory);
    free(more);
    return err;
}

static double mean_of(unsigned i, uint32_t ranks)
{
    double mean = 0;

    for (uint32_t w = 0; w < ranks; w++)
        mean += (double)optima[w][i] / ranks;
    return mean;
}

static double distance(uint32_t ranks)
{
    double most = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        double off = fabs((double)anchors[0][i] - mean_of(i, ranks));

        /* Not by fmax(): of that, gcc 12.2 for arm64 ends with an internal error. */
        if (off > most)
            most = off;
    }
    return most;
}

static void draw_optima(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, optima[w], COUNT);
}

static struct plan diloco(void)
{
    return (struct plan){.config = {.count = COUNT,
                                    .rate = 0.7f,
                                    .momentum = 0.5f,
                                    .nesterov = true,
                                    .interval = 10,
                                    .fragments = 1},
                         .steps = STEPS};
}

static void all_kinds_reach_the_mean_of_the_optima(void **state)
{
    struct plan streaming = diloco(), late = diloco(), low = diloco(), plain = diloco();

    draw_optima();
    assert_int_equal(ranks_run(3, run, &plain), 0);
    assert_int_equal(plain.means, STEPS / 10);
    assert_true(distance(3) < 1e-3);
    assert_memory_equal(thetas[0], anchors[2], sizeof(anchors[0]));

    streaming.config.fragments = 4;
    streaming.config.delay = 3;
    streaming.config.mix = 0.5f;
    assert_int_equal(ranks_run(3, run, &streaming), 0);
    assert_int_equal(streaming.means, STEPS / 10 * 4);
    assert_true(distance(3) < 2e-2);
    assert_memory_equal(anchors[0], anchors[2], sizeof(anchors[0]));

    late.config.delay = 10;
    late.config.keep_steps = true;
    late.config.rate = 0.5f;
    assert_int_equal(ranks_run(3, run, &late), 0);
    assert_true(distance(3) < 1e-2);
    assert_memory_equal(anchors[0], anchors[2], sizeof(anchors[0]));

    low = late;
    low.low_rank = true;
    /* Ranks whose optima differ always have much to say that cancels out: small steps. */
    low.config.momentum = 0.3f;
    low.config.rate = 0.15f;
    assert_int_equal(ranks_run(3, run, &low), 0);
    assert_true(distance(3) < 0.4);
    assert_memory_equal(anchors[0], anchors[2], sizeof(anchors[0]));
}

/* Plain averages each step, by hand. */
static void rate_one_without_momentum_is_the_average_of_theta(void **state)
{
    struct plan plan = diloco();

    draw_optima();
    plan.config.rate = 1;
    plan.config.momentum = 0;
    plan.steps = 10;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        double mean = ((double)optima[0][i] + (double)optima[1][i]) / 2 * (1 - pow(0.95, 10));

        assert_true(fabs((double)thetas[1][i] - mean) < 1e-5);
    }
}

static void fragments_take_turns_and_end_later(void **state)
{
    struct sl_outer_config config = {
        .count = 10, .interval = 6, .fragments = 3, .delay = 1, .rate = 1};
    float theta[10] = {0};
    size_t size, first, n = 0;
    struct sl_outer o;
    void *memory;

    assert_int_equal(sl_outer_size(&config, &size), 0);
    memory = ranks_memory(size);
    sl_outer_init(&o, &config, theta, memory);
    for (uint32_t f = 0; f < 3; f++) {
        size_t count = sl_outer_fragment(&o, f, &first);

        assert_int_equal(first, n);
        assert_int_equal(count, f == 0 ? 4 : 3);
        n += count;
    }
    for (uint32_t step = 0; step < 18; step++) {
        int begins = sl_outer_begins(&o, step), ends = sl_outer_ends(&o, step);

        /* Steps 1, 3, 5, 7 end turns of 0, 1, 2, 0; what has begun ends a step later. */
        assert_int_equal(begins, step % 2 == 1 ? (int)(step / 2 % 3) : -1);
        assert_int_equal(ends, step % 2 == 0 && step > 0 ? (int)((step - 2) / 2 % 3) : -1);
        if (ends >= 0)
            sl_outer_end(&o, (uint32_t)ends, theta);
        if (begins >= 0)
            sl_outer_begin(&o, (uint32_t)begins, theta);
    }
    free(memory);
}

/* A round late: the steps of that round are still in theta. */
static void steps_since_begin_are_kept(void **state)
{
    struct sl_outer_config config = {
        .count = 1, .interval = 1, .fragments = 1, .delay = 1, .rate = 1, .keep_steps = true};
    float theta = 1;
    struct sl_outer o;
    size_t size;
    void *memory;

    assert_int_equal(sl_outer_size(&config, &size), 0);
    memory = ranks_memory(size);
    sl_outer_init(&o, &config, &theta, memory);
    theta = 3;
    sl_outer_begin(&o, 0, &theta);
    assert_true(o.delta[0] == -2);
    theta = 4;         /* one more of its own */
    o.delta[0] = -1.5; /* the mean */
    sl_outer_end(&o, 0, &theta);
    assert_true(o.anchor[0] == 2.5f && theta == 3.5f);
    free(memory);
}

/* Two ends of one element, by hand: Nesterov's momentum, and a mix of theta and anchor. */
static void momentum_and_mix_are_those_by_hand(void **state)
{
    struct sl_outer_config config = {.count = 1,
                                     .interval = 1,
                                     .fragments = 1,
                                     .rate = 0.5f,
                                     .momentum = 0.5f,
                                     .nesterov = true,
                                     .mix = 0.25f};
    float theta = 0;
    struct sl_outer o;
    size_t size;
    void *memory;

    assert_int_equal(sl_outer_size(&config, &size), 0);
    memory = ranks_memory(size);
    sl_outer_init(&o, &config, &theta, memory);
    theta = 8;
    sl_outer_begin(&o, 0, &theta);
    sl_outer_end(&o, 0, &theta);
    /* delta -8, u -8, anchor 0.5 (8 + 4) */
    assert_true(o.anchor[0] == 6 && theta == 0.25f * 8 + 0.75f * 6);
    theta = 2;
    sl_outer_begin(&o, 0, &theta);
    sl_outer_end(&o, 0, &theta);
    /* delta 4, u 0, anchor 6 - 0.5 (4 + 0) */
    assert_true(o.anchor[0] == 4 && theta == 0.25f * 2 + 0.75f * 4);
    free(memory);
}

/* Two ends of three elements, by hand: what is out of date counts a fourth, and momentum stays
 * within 1.5. */
static void a_penalty_divides_and_momentum_is_clipped(void **state)
{
    struct sl_outer_config config = {.count = 3,
                                     .interval = 1,
                                     .fragments = 1,
                                     .rate = 1,
                                     .momentum = 0.5f,
                                     .penalty = 4,
                                     .clip = 1.5f};
    static const float ends[2][3] = {{-1, 1.5f, -1.5f}, {-2.5f, 3, -1.5f}};
    float theta[3] = {0};
    struct sl_outer o;
    size_t size;
    void *memory;

    assert_int_equal(sl_outer_size(&config, &size), 0);
    memory = ranks_memory(size);
    sl_outer_init(&o, &config, theta, memory);
    for (unsigned k = 0; k < 2; k++) {
        /* deltas 4, -8, 8 and then 4, -8, -3; u 1, -1.5, 1.5 and then 1.5, -1.5, 0 */
        theta[0] -= 4;
        theta[1] += 8;
        theta[2] += k == 0 ? -8 : 3;
        sl_outer_begin(&o, 0, theta);
        sl_outer_end(&o, 0, theta);
        assert_memory_equal(o.anchor, ends[k], sizeof(ends[k]));
    }
    free(memory);
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[COUNT];
    struct plan plan = diloco();

    draw_optima();
    plan.config.delay = 10;
    plan.config.keep_steps = true;
    plan.steps = 45;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    memcpy(before, thetas[1], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_memory_equal(before, thetas[1], sizeof(before));
}

static void turns_that_cannot_be_are_refused(void **state)
{
    struct plan plan = diloco();

    plan.config.fragments = 11;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.fragments = 0;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.fragments = 1;
    plan.config.delay = 11;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_reach_the_mean_of_the_optima),
        cmocka_unit_test(rate_one_without_momentum_is_the_average_of_theta),
        cmocka_unit_test(fragments_take_turns_and_end_later),
        cmocka_unit_test(steps_since_begin_are_kept),
        cmocka_unit_test(momentum_and_mix_are_those_by_hand),
        cmocka_unit_test(a_penalty_divides_and_momentum_is_clipped),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(turns_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
