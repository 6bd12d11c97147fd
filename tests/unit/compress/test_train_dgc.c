/* SPDX-License-Identifier: Apache-2.0 */
/* Deep gradient compression: against a plain model, and its momentum against that of no
 * compression. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/dgc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT 5000
#define STEPS 30

static float gradients[STEPS][RANKS_MOST][COUNT], outs[RANKS_MOST][STEPS][COUNT];

struct plan {
    struct sl_dgc_config config;
    bool reload;
    size_t sent[STEPS];
};

static void draw_gradients(void)
{
    for (unsigned i = 0; i < STEPS; i++)
        for (unsigned w = 0; w < RANKS_MOST; w++)
            draw_fill(DRAW_GAUSSIAN, gradients[i][w], COUNT);
}

static int run(const struct sl_net *net, void *arg)
{
    struct plan *plan = arg;
    struct sl_state_part parts[3];
    struct sl_dgc d;
    size_t size;
    void *memory;
    int err = sl_dgc_size(&plan->config, net, &size);

    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_dgc_init(&d, &plan->config, net, memory);
    for (unsigned i = 0; err == 0 && i < STEPS; i++) {
        err = sl_dgc_step(&d, gradients[i][net->rank], outs[net->rank][i]);
        if (net->rank == 0)
            plan->sent[i] = d.sent;
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_dgc_state(&d, 1, parts), net);
    }
    free(memory);
    return err;
}

/* The same, as the paper has it, with a sort. */
struct model {
    float u[RANKS_MOST][COUNT], v[RANKS_MOST][COUNT];
};

static const float *sorted_by;

static int by_magnitude(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = fabsf(sorted_by[i]), y = fabsf(sorted_by[j]);

    return x != y ? (x < y ? 1 : -1) : (i > j) - (i < j);
}

static void model_step(struct model *m, const struct sl_dgc_config *c, unsigned step,
                       uint32_t ranks, float *out)
{
    static uint32_t order[COUNT];
    size_t k = sl_dgc_kept(c, step);

    memset(out, 0, COUNT * sizeof(*out));
    for (uint32_t w = 0; w < ranks; w++) {
        double norm = 0, most = (double)c->clip / sqrt(ranks);
        float by = 1;

        for (unsigned i = 0; i < COUNT; i++)
            norm += (double)gradients[step][w][i] * (double)gradients[step][w][i];
        if (c->clip > 0 && sqrt(norm) > most)
            by = (float)(most / sqrt(norm));
        for (unsigned i = 0; i < COUNT; i++) {
            float g = by * gradients[step][w][i];

            m->u[w][i] =
                c->nesterov ? c->momentum * (m->u[w][i] + g) : c->momentum * m->u[w][i] + g;
            m->v[w][i] += c->nesterov ? m->u[w][i] + g : m->u[w][i];
            order[i] = i;
        }
        sorted_by = m->v[w];
        qsort(order, COUNT, sizeof(*order), by_magnitude);
        for (size_t i = 0; i < k; i++) {
            out[order[i]] += m->v[w][order[i]];
            m->v[w][order[i]] = 0;
            if (!c->keep_momentum)
                m->u[w][order[i]] = 0;
        }
    }
    for (unsigned i = 0; i < COUNT; i++)
        out[i] *= 1 / (float)ranks;
}

static void check_against_model(struct plan *plan, uint32_t ranks)
{
    static float expected[COUNT];
    struct model *model = calloc(1, sizeof(*model));

    assert_int_equal(ranks_run(ranks, run, plan), 0);
    for (unsigned i = 0; i < STEPS; i++) {
        model_step(model, &plan->config, i, ranks, expected);
        for (uint32_t w = 0; w < ranks; w++)
            for (unsigned j = 0; j < COUNT; j++)
                assert_true(fabsf(outs[w][i][j] - expected[j]) <= 1e-5f * fabsf(expected[j]));
    }
    for (uint32_t w = 1; w < ranks; w++)
        assert_memory_equal(outs[w], outs[0], sizeof(outs[0]));
    free(model);
}

static struct plan plan_of(float ratio)
{
    return (struct plan){.config = {.count = COUNT, .momentum = 0.9f, .ratio = ratio}};
}

static void each_step_is_that_of_the_paper(void **state)
{
    struct plan plan = plan_of(0.01f);

    draw_gradients();
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        check_against_model(&plan, ranks);
    plan.config.nesterov = true;
    check_against_model(&plan, 3);
    plan.config.keep_momentum = true;
    check_against_model(&plan, 2);
    plan.config.clip = 3;
    check_against_model(&plan, 4);
}

static void the_first_steps_send_more(void **state)
{
    struct plan plan = plan_of(0.002f);

    sl_dgc_warm_up(&plan.config, 5);
    assert_int_equal(plan.config.stages, 4);
    draw_gradients();
    check_against_model(&plan, 2);
    assert_int_equal(sl_dgc_kept(&plan.config, 0), 1250);
    assert_int_equal(sl_dgc_kept(&plan.config, 5), 315);
    assert_int_equal(sl_dgc_kept(&plan.config, 19), 20);
    assert_int_equal(sl_dgc_kept(&plan.config, 20), 10);
    /* 6 bytes of each and some more. */
    assert_in_range(plan.sent[STEPS - 1], 10 * 6, 10 * 6 + 16);
}

/* Without masking each element arrives in the end with all the momentum it would have had. */
static void what_waits_is_sent_with_its_momentum(void **state)
{
    struct plan plan = plan_of(1);
    static float u[COUNT];

    memset(u, 0, sizeof(u));
    draw_gradients();
    plan.config.keep_momentum = true;
    assert_int_equal(ranks_run(1, run, &plan), 0);
    for (unsigned i = 0; i < STEPS; i++)
        for (unsigned j = 0; j < COUNT; j++) {
            u[j] = 0.9f * u[j] + gradients[i][0][j];
            assert_true(outs[0][i][j] == u[j]);
        }
}

static void a_threshold_that_is_reused_sends_about_as_many(void **state)
{
    struct plan plan = plan_of(0.02f);
    size_t all = 0;

    draw_gradients();
    plan.config.reused = true;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    for (unsigned i = 0; i < STEPS; i++)
        for (unsigned j = 0; j < COUNT; j++)
            all += outs[0][i][j] != 0;
    /* Of three ranks, 100 each, a few the same. */
    assert_in_range(all, STEPS * 200, STEPS * 420);
    assert_memory_equal(outs[1], outs[0], sizeof(outs[0]));
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[STEPS][COUNT];
    struct plan plan = plan_of(0.01f);

    draw_gradients();
    plan.config.reused = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    memcpy(before, outs[0], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(2, run, &plan), 0);
    assert_memory_equal(before, outs[1], sizeof(before));
}

static void ratios_out_of_range_are_refused(void **state)
{
    struct plan plan = plan_of(0);

    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.ratio = 1.5f;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
    plan.config.ratio = 0.5f;
    plan.config.stages = 1;
    assert_int_equal(ranks_run(1, run, &plan), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_is_that_of_the_paper),
        cmocka_unit_test(the_first_steps_send_more),
        cmocka_unit_test(what_waits_is_sent_with_its_momentum),
        cmocka_unit_test(a_threshold_that_is_reused_sends_about_as_many),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(ratios_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
