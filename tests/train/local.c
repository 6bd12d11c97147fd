/* SPDX-License-Identifier: Apache-2.0 */
/* Methods whose ranks go by themselves for some steps, and then take a mean of where they are. */
#include "kinds.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

static bool is(const struct run *run, const char *what)
{
    return strcmp(run->method->codec, what) == 0;
}

/* Means of the whole model, by an algorithm that keeps state for it. Its random numbers, if any, go
 * by the steps of the run, so that a run which was loaded draws the same. */
static int mean_feedback(void *arg, float *x, size_t first, size_t count)
{
    struct run *run = arg;

    run->local.feedback.step = run->step;
    return sl_feedback_mean(&run->local.feedback, x, x);
}

static int mean_fedzip(void *arg, float *x, size_t first, size_t count)
{
    struct run *run = arg;

    run->local.fedzip.step = run->step;
    return sl_fedzip_mean(&run->local.fedzip, x, x);
}

static int mean_powersgd(void *arg, float *x, size_t first, size_t count)
{
    struct run *run = arg;

    run->local.powersgd.step = run->step;
    return sl_powersgd_step(&run->local.powersgd, x, x);
}

/* Of a fragment, its bytes by a codec without state. */
static int mean_fragment(void *arg, float *x, size_t first, size_t count)
{
    struct run *run = arg;
    struct sl_feedback_config config = {.up = run->spec, .down = run->spec, .count = count};
    struct sl_feedback f;
    size_t size;
    void *memory;
    int err = sl_feedback_size(&config, &run->lab->net, &size);

    if (err != 0)
        return err;
    memory = memory_of(size);
    sl_feedback_init(&f, &config, &run->lab->net, memory);
    f.step = run->step;
    err = sl_feedback_mean(&f, x, x);
    free(memory);
    return err;
}

static struct sl_outer_config config_of(const struct run *run)
{
    struct sl_outer_config config = {.count = run->model->count,
                                     .rate = 0.7f,
                                     .momentum = 0.6f,
                                     .nesterov = true,
                                     .interval = run->method->interval,
                                     .fragments = 1};

    if (is(run, "fedzip")) {
        config.rate = 1;
        config.momentum = 0;
    } else if (is(run, "streaming")) {
        config.fragments = 4;
        config.delay = 2;
        config.mix = 0.5f;
    } else if (is(run, "late") || is(run, "dilocox")) {
        config.rate = 0.5f;
        config.momentum = 0.3f;
        config.delay = config.interval;
        config.keep_steps = true;
    }
    return config;
}

/* Memory of the algorithm that takes the means. */
static int make_mean(struct run *run)
{
    const struct sl_net *net = &run->lab->net;
    size_t size = 0;
    int err = sl_codec_parse(is(run, "fedzip") ? "kmeans:k=1024,bits=4"
                             : is(run, "late") ? "raw"
                                               : "bq4",
                             &run->spec);
    struct sl_feedback_config feedback = {.up = run->spec,
                                          .down = run->spec,
                                          .sides = SL_FEEDBACK_TWO_SIDED,
                                          .count = run->model->count};
    struct sl_fedzip_config fedzip = {
        .layers = run->model->layer_counts, .layer_count = MODEL_LAYERS, .spec = run->spec};
    struct sl_powersgd_config powersgd = {.layers = run->model->layers,
                                          .layer_count = MODEL_LAYERS,
                                          .rank = 8,
                                          .times = 1,
                                          .seed = 1,
                                          .codec = &run->spec};

    if (err == 0)
        err = is(run, "fedzip")    ? sl_fedzip_size(&fedzip, net, &size)
              : is(run, "dilocox") ? sl_powersgd_size(&powersgd, net, &size)
                                   : sl_feedback_size(&feedback, net, &size);
    if (err != 0)
        return err;
    run->local.memory = memory_of(size);
    if (is(run, "fedzip"))
        sl_fedzip_init(&run->local.fedzip, &fedzip, net, run->local.memory);
    else if (is(run, "dilocox"))
        sl_powersgd_init(&run->local.powersgd, &powersgd, net, run->local.memory);
    else
        sl_feedback_init(&run->local.feedback, &feedback, net, run->local.memory);
    return 0;
}

static int make_local(struct run *run)
{
    struct sl_outer_config config = config_of(run);
    size_t size;
    int err = sl_outer_size(&config, &size);

    if (err != 0)
        return err;
    run->is_local = true;
    run->memory = memory_of(size);
    sl_outer_init(&run->local.outer, &config, run->theta, run->memory);
    return make_mean(run);
}

static int step_local(struct run *run, float rate)
{
    sl_outer_mean *mean = is(run, "fedzip")      ? mean_fedzip
                          : is(run, "dilocox")   ? mean_powersgd
                          : is(run, "streaming") ? mean_fragment
                                                 : mean_feedback;
    float m = run->method->momentum;

    for (size_t i = 0; i < run->model->count; i++) {
        run->velocity[i] = m * run->velocity[i] + run->gradient[i];
        run->theta[i] -= rate * run->velocity[i];
    }
    return sl_outer_step(&run->local.outer, mean, run, run->step, run->theta);
}

static size_t parts_local(const struct run *run, struct sl_state_part *parts)
{
    size_t n = sl_outer_state(&run->local.outer, 1, parts);

    if (is(run, "dilocox"))
        n += sl_powersgd_state(&run->local.powersgd, 100, parts + n);
    else if (!is(run, "fedzip") && !is(run, "streaming"))
        n += sl_feedback_state(&run->local.feedback, 100, parts + n);
    return n;
}

const struct kind kind_local = {make_local, step_local, parts_local, NULL};
