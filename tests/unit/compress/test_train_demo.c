/* SPDX-License-Identifier: Apache-2.0 */
/* Decoupled momentum against cosine transforms by their definition. */
#include "draw.h"
#include "ranks.h"

#include "compress/dct.h"
#include "compress/train/demo.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT (SL_TILE + 200)
#define WHOLE (SL_TILE + 256)
#define STEPS 6

static float gradients[STEPS][RANKS_MOST][COUNT], outs[RANKS_MOST][STEPS][COUNT];
static float deltas[RANKS_MOST][COUNT];

struct plan {
    const char *spec;
    bool reload;
};

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    struct sl_demo_config config = {.count = COUNT, .decay = 0.9f};
    struct sl_state_part parts[1];
    struct sl_demo d;
    size_t size;
    void *memory;
    int err = sl_codec_parse(plan->spec, &config.spec);

    if (err == 0)
        err = sl_demo_size(&config, net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_demo_init(&d, &config, net, memory);
    for (unsigned i = 0; err == 0 && i < STEPS; i++) {
        err = sl_demo_step(&d, 0.1f, gradients[i][net->rank], outs[net->rank][i]);
        if (err == 0 && plan->reload)
            err = ranks_save_and_load(parts, sl_demo_state(&d, 1, parts), net);
    }
    memcpy(deltas[net->rank], d.delta, sizeof(deltas[0]));
    free(memory);
    return err;
}

static double basis(unsigned k, unsigned j)
{
    return sqrt((k == 0 ? 1 : 2) / 64.0) * cos(3.14159265358979323846 * (2 * j + 1) * k / 128);
}

static double coefficient(const double *x, unsigned k)
{
    double sum = 0;

    for (unsigned j = 0; j < 64; j++)
        sum += x[j] * basis(k, j);
    return sum;
}

/* The k largest of 64, by their magnitude; true at least of those. */
static void largest(const double c[64], unsigned k, bool kept[64])
{
    memset(kept, 0, 64 * sizeof(*kept));
    for (unsigned n = 0; n < k; n++) {
        int best = -1;

        for (int i = 0; i < 64; i++)
            if (!kept[i] && (best < 0 || fabs(c[i]) > fabs(c[best])))
                best = i;
        kept[best] = true;
    }
}

static double model_delta[RANKS_MOST][WHOLE], model_out[WHOLE];

static void model_step(unsigned step, uint32_t ranks, unsigned k)
{
    memset(model_out, 0, sizeof(model_out));
    for (size_t first = 0; first < WHOLE; first += 64) {
        double sum[64] = {0};
        unsigned senders[64] = {0};

        for (uint32_t w = 0; w < ranks; w++) {
            double *delta = model_delta[w] + first, c[64];
            bool kept[64];

            for (unsigned j = 0; j < 64 && first + j < COUNT; j++)
                delta[j] = 0.9 * delta[j] + 0.1 * (double)gradients[step][w][first + j];
            for (unsigned i = 0; i < 64; i++)
                c[i] = coefficient(delta, i);
            largest(c, k, kept);
            for (unsigned i = 0; i < 64; i++) {
                if (!kept[i])
                    continue;
                sum[i] += c[i];
                senders[i]++;
                for (unsigned j = 0; j < 64 && first + j < COUNT; j++)
                    delta[j] -= c[i] * basis(i, j);
            }
        }
        for (unsigned i = 0; i < 64; i++)
            for (unsigned j = 0; j < 64 && senders[i] > 0; j++)
                model_out[first + j] += sum[i] / senders[i] * basis(i, j);
    }
}

static void draw_gradients(void)
{
    for (unsigned i = 0; i < STEPS; i++)
        for (unsigned w = 0; w < RANKS_MOST; w++)
            draw_fill(DRAW_GAUSSIAN, gradients[i][w], COUNT);
}

static void each_coefficient_is_averaged_over_those_that_sent_it(void **state)
{
    struct plan plan = {"dct:k=6,bits=32", false};

    draw_gradients();
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        memset(model_delta, 0, sizeof(model_delta));
        assert_int_equal(ranks_run(ranks, run, &plan), 0);
        for (unsigned i = 0; i < STEPS; i++) {
            unsigned wrong = 0;

            model_step(i, ranks, 6);
            for (size_t j = 0; j < COUNT; j++)
                wrong += fabs(model_out[j]) > 1e-4 &&
                         outs[ranks - 1][i][j] != (model_out[j] > 0 ? 1 : -1);
            assert_int_equal(wrong, 0);
        }
        for (uint32_t w = 0; w < ranks; w++)
            for (size_t j = 0; j < COUNT; j++)
                assert_true(fabs((double)deltas[w][j] - model_delta[w][j]) < 1e-4);
        for (uint32_t w = 1; w < ranks; w++)
            assert_memory_equal(outs[w], outs[0], sizeof(outs[0]));
    }
}

static void saving_and_loading_in_each_step_changes_nothing(void **state)
{
    static float before[STEPS][COUNT];
    struct plan plan = {"dct:k=8", false};

    draw_gradients();
    assert_int_equal(ranks_run(3, run, &plan), 0);
    memcpy(before, outs[2], sizeof(before));
    plan.reload = true;
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_memory_equal(before, outs[0], sizeof(before));
}

static void other_codecs_are_refused(void **state)
{
    struct plan plan = {"bq8", false};

    assert_int_equal(ranks_run(2, run, &plan), -EINVAL);
}

static void coefficients_of_a_forged_message_are_refused(void **state)
{
    _Alignas(16) static char message[1 << 16];
    static float sum[WHOLE];
    static uint32_t times[WHOLE];
    struct sl_codec_spec spec;
    struct sl_codec_at at = {0};
    size_t len;

    assert_int_equal(sl_codec_parse("dct:k=6", &spec), 0);
    len = sl_codec_by_id(spec.id)->encode(&spec, &at, gradients[0][0], COUNT, message);
    assert_int_equal(sl_dct_add_coefficients(&spec, message, len, COUNT, sum, times), 0);
    assert_int_equal(sl_dct_add_coefficients(&spec, message, len - 16, COUNT, sum, times),
                     -EBADMSG);
    memset(message, 0xff, 16);
    assert_int_equal(sl_dct_add_coefficients(&spec, message, len, COUNT, sum, times), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_coefficient_is_averaged_over_those_that_sent_it),
        cmocka_unit_test(saving_and_loading_in_each_step_changes_nothing),
        cmocka_unit_test(other_codecs_are_refused),
        cmocka_unit_test(coefficients_of_a_forged_message_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
