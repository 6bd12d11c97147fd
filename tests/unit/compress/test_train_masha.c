/* SPDX-License-Identifier: Apache-2.0 */
/* MASHA on a game whose plain descent runs in circles: x plays against y by x^T A y. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/masha.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define HALF 50
#define COUNT (2 * HALF)

/* Each rank's game has its own offsets; that of all has its saddle at the mean. */
static float offsets[RANKS_MOST][COUNT], ends[RANKS_MOST][COUNT];

static void operate(void *arg, const float *z, float *out)
{
    const float *offset = arg;

    for (unsigned i = 0; i < HALF; i++) {
        float a = 0.5f + (float)i / HALF;

        out[i] = a * (z[HALF + i] - offset[HALF + i]) + 0.05f * (z[i] - offset[i]);
        out[HALF + i] = -a * (z[i] - offset[i]) + 0.05f * (z[HALF + i] - offset[HALF + i]);
    }
}

struct plan {
    const char *up, *down;
    bool feedback, reload;
    unsigned steps;
    float gamma, tau;
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    struct sl_masha_config config = {.count = COUNT,
                                     .feedback = plan->feedback,
                                     .gamma = plan->gamma,
                                     .tau = plan->tau,
                                     .seed = 3,
                                     .f = operate,
                                     .arg = offsets[net->rank]};
    static const float zero[COUNT];
    struct sl_state_part parts[6];
    struct sl_masha m;
    size_t size;
    void *memory;
    int err = sl_codec_parse(plan->up, &config.up);

    if (err == 0)
        err = sl_codec_parse(plan->down, &config.down);
    if (err == 0)
        err = sl_masha_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    err = sl_masha_init(&m, &config, net, zero, memory);
    for (unsigned k = 0; err == 0 && k < plan->steps; k++) {
        err = sl_masha_step(&m);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_masha_state(&m, 1, parts), net);
    }
    memcpy(ends[net->rank], m.z, sizeof(ends[0]));
    free(memory);
    return err;
}

static double distance(uint32_t ranks)
{
    double off = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        double mean = 0;

        for (uint32_t w = 0; w < ranks; w++)
            mean += (double)offsets[w][i] / ranks;
        off += ((double)ends[0][i] - mean) * ((double)ends[0][i] - mean);
    }
    return sqrt(off / COUNT);
}

static void draw_offsets(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++)
        draw_fill(DRAW_GAUSSIAN, offsets[w], COUNT);
}

static double play(struct plan plan)
{
    draw_state = 77;
    draw_offsets();
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_memory_equal(ends[2], ends[0], sizeof(ends[0]));
    return distance(3);
}

static void without_compression_it_is_an_extragradient_method(void **state)
{
    assert_true(play((struct plan){"raw", "raw", false, false, 1500, 0.2f, 0.5f}) < 1e-3);
    assert_true(play((struct plan){"raw", "raw", true, false, 1500, 0.2f, 0.5f}) < 1e-3);
}

/* out = tau z + (1 - tau) w - gamma F(at): a step of extragradient with an anchor. */
static void move(const struct sl_masha *m, const float *z, const float *w, const float *at,
                 float *out)
{
    float f[COUNT];

    operate(m->config.arg, at, f);
    for (unsigned i = 0; i < COUNT; i++)
        out[i] = m->config.tau * z[i] + (1 - m->config.tau) * w[i] - m->config.gamma * f[i];
}

static int steps_by_hand(const struct sl_net *net, void *arg)
{
    struct sl_masha_config config = {.count = COUNT,
                                     .feedback = *(bool *)arg,
                                     .gamma = 0.1f,
                                     .tau = 0.8f,
                                     .seed = 3,
                                     .f = operate,
                                     .arg = offsets[0]};
    float z[COUNT] = {0}, w[COUNT], half[COUNT], end[COUNT];
    unsigned refreshed = 0;
    struct sl_masha m;
    size_t size;
    void *memory;
    int err = sl_codec_parse("raw", &config.up) ?: sl_codec_parse("raw", &config.down);

    err = err ?: sl_masha_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    err = sl_masha_init(&m, &config, net, z, memory);
    for (unsigned k = 0; err == 0 && k < 40; k++) {
        memcpy(z, m.z, sizeof(z));
        memcpy(w, m.w, sizeof(w));
        move(&m, z, w, w, half);
        move(&m, z, w, half, end);
        err = sl_masha_step(&m);
        for (unsigned i = 0; i < COUNT; i++)
            if (fabsf(m.z[i] - end[i]) > 1e-5f)
                err = 1;
        refreshed += memcmp(m.w, w, sizeof(w)) != 0;
    }
    free(memory);
    return err == 0 && (refreshed < 2 || refreshed > 20) ? 2 : err;
}

/* From the same z and w: with nothing lost, both are z = (mix of z and w) - gamma F(half). */
static void each_step_is_that_of_extragradient_with_an_anchor(void **state)
{
    bool feedback[2] = {false, true};

    draw_offsets();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(ranks_run(1, steps_by_hand, &feedback[i]), 0);
}

static void random_parts_both_ways_reach_the_saddle(void **state)
{
    assert_true(
        play((struct plan){"randk:k=25,stochastic=on,seed=4", "randk:k=50,stochastic=on,seed=9",
                           false, false, 6000, 0.03f, 0.9f}) < 0.02);
}

static void largest_parts_both_ways_reach_the_saddle(void **state)
{
    assert_true(play((struct plan){"topk:k=10", "topk:k=25", true, false, 6000, 0.03f, 0.9f}) <
                0.02);
}

/* Largest parts as if they were the whole: what is never sent is never corrected. */
static void without_residuals_largest_parts_miss_it(void **state)
{
    double with = play((struct plan){"topk:k=10", "topk:k=25", true, false, 1000, 0.03f, 0.9f});
    double without = play((struct plan){"topk:k=10", "topk:k=25", false, false, 1000, 0.03f, 0.9f});

    assert_true(without > 1.05 * with);
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    struct plan plan = {"topk:k=10", "bq4:stochastic=on", true, false, 50, 0.05f, 0.8f};
    static float before[COUNT];

    play(plan);
    memcpy(before, ends[1], sizeof(before));
    plan.reload = true;
    play(plan);
    assert_memory_equal(before, ends[0], sizeof(before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_compression_it_is_an_extragradient_method),
        cmocka_unit_test(each_step_is_that_of_extragradient_with_an_anchor),
        cmocka_unit_test(random_parts_both_ways_reach_the_saddle),
        cmocka_unit_test(largest_parts_both_ways_reach_the_saddle),
        cmocka_unit_test(without_residuals_largest_parts_miss_it),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
