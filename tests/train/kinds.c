/* SPDX-License-Identifier: Apache-2.0 */
/* Methods whose algorithm is one of compress/train, every step. */
#include "kinds.h"

#include <string.h>

static int parse(struct run *run, const char *text)
{
    return sl_codec_parse(text, &run->spec);
}

/* ---- error feedback ---- */

static int make_feedback(struct run *run)
{
    struct sl_feedback_config config = {.sides = (enum sl_feedback_sides)run->method->number,
                                        .count = run->model->count};
    size_t size;
    int err = parse(run, run->method->codec);

    config.up = config.down = run->spec;
    if (err == 0)
        err = sl_feedback_size(&config, &run->lab->net, &size);
    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_feedback_init(&run->feedback, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_feedback(struct run *run, float rate)
{
    int err = sl_feedback_mean(&run->feedback, run->gradient, run->mean);

    return err != 0 ? err : move_by_mean(run, rate);
}

static size_t parts_feedback(const struct run *run, struct sl_state_part *parts)
{
    return sl_feedback_state(&run->feedback, 1, parts);
}

static uint32_t *counter_feedback(struct run *run)
{
    return &run->feedback.step;
}

const struct kind kind_feedback = {make_feedback, step_feedback, parts_feedback, counter_feedback};

/* ---- EControl ---- */

static int make_econtrol(struct run *run)
{
    struct sl_econtrol_config config = {.count = run->model->count,
                                        .eta = (float)run->method->number};
    size_t size;
    int err = parse(run, run->method->codec);

    config.spec = run->spec;
    if (err == 0)
        err = sl_econtrol_size(&config, &run->lab->net, &size);
    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_econtrol_init(&run->econtrol, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_econtrol(struct run *run, float rate)
{
    int err = sl_econtrol_step(&run->econtrol, run->gradient, run->mean);

    return err != 0 ? err : move_by_mean(run, rate);
}

static size_t parts_econtrol(const struct run *run, struct sl_state_part *parts)
{
    return sl_econtrol_state(&run->econtrol, 1, parts);
}

static uint32_t *counter_econtrol(struct run *run)
{
    return &run->econtrol.step;
}

const struct kind kind_econtrol = {make_econtrol, step_econtrol, parts_econtrol, counter_econtrol};

/* ---- deep gradient compression, and top-k, which is that without momentum ---- */

static int make_dgc(struct run *run)
{
    bool warm = run->method->codec != NULL && strcmp(run->method->codec, "warm") == 0;
    struct sl_dgc_config config = {.count = run->model->count,
                                   .momentum = warm ? 0.9f : 0,
                                   .ratio = (float)run->method->number};
    size_t size;
    int err;

    /* A twentieth of the run for each of the stages. */
    if (warm)
        sl_dgc_warm_up(&config, run->steps / 20);
    err = sl_dgc_size(&config, &run->lab->net, &size);
    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_dgc_init(&run->dgc, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_dgc(struct run *run, float rate)
{
    int err = sl_dgc_step(&run->dgc, run->gradient, run->mean);

    return err != 0 ? err : move_by_mean(run, rate);
}

static size_t parts_dgc(const struct run *run, struct sl_state_part *parts)
{
    return sl_dgc_state(&run->dgc, 1, parts);
}

static uint32_t *counter_dgc(struct run *run)
{
    return &run->dgc.step;
}

const struct kind kind_dgc = {make_dgc, step_dgc, parts_dgc, counter_dgc};

/* ---- Distributed Lion ---- */

static int make_lion(struct run *run)
{
    struct sl_lion_config config = {.count = run->model->count,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.99f,
                                    .average = strcmp(run->method->codec, "average") == 0};

    run->memory = memory_of(sl_lion_size(&config, &run->lab->net));
    sl_lion_init(&run->lion, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_lion(struct run *run, float rate)
{
    int err = sl_lion_step(&run->lion, run->gradient, run->mean);

    sl_lion_apply(run->mean, rate, 0, run->model->count, run->theta);
    return err;
}

static size_t parts_lion(const struct run *run, struct sl_state_part *parts)
{
    return sl_lion_state(&run->lion, 1, parts);
}

const struct kind kind_lion = {make_lion, step_lion, parts_lion, NULL};

/* ---- decoupled momentum ---- */

static int make_demo(struct run *run)
{
    struct sl_demo_config config = {.count = run->model->count,
                                    .decay = (float)run->method->number};
    size_t size;
    int err = parse(run, run->method->codec);

    config.spec = run->spec;
    if (err == 0)
        err = sl_demo_size(&config, &run->lab->net, &size);
    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_demo_init(&run->demo, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_demo(struct run *run, float rate)
{
    int err = sl_demo_step(&run->demo, rate, run->gradient, run->mean);

    sl_add_scaled(run->theta, -rate, run->mean, run->model->count);
    return err;
}

static size_t parts_demo(const struct run *run, struct sl_state_part *parts)
{
    return sl_demo_state(&run->demo, 1, parts);
}

const struct kind kind_demo = {make_demo, step_demo, parts_demo, NULL};

/* ---- PowerSGD ---- */

static int make_powersgd(struct run *run)
{
    struct sl_powersgd_config config = {.layers = run->model->layers,
                                        .layer_count = MODEL_LAYERS,
                                        .rank = (uint32_t)run->method->number,
                                        .times = 1,
                                        .seed = 1};
    size_t size;
    int err = run->method->codec != NULL ? parse(run, run->method->codec) : 0;

    if (run->method->codec != NULL)
        config.codec = &run->spec;
    if (err == 0)
        err = sl_powersgd_size(&config, &run->lab->net, &size);
    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_powersgd_init(&run->powersgd, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_powersgd(struct run *run, float rate)
{
    int err = sl_powersgd_step(&run->powersgd, run->gradient, run->mean);

    return err != 0 ? err : move_by_mean(run, rate);
}

static size_t parts_powersgd(const struct run *run, struct sl_state_part *parts)
{
    return sl_powersgd_state(&run->powersgd, 1, parts);
}

static uint32_t *counter_powersgd(struct run *run)
{
    return &run->powersgd.step;
}

const struct kind kind_powersgd = {make_powersgd, step_powersgd, parts_powersgd, counter_powersgd};

/* ---- sketches, a quarter of the elements ---- */

static int make_sketched(struct run *run)
{
    uint32_t rows = run->method->number > 0 ? 5 : 1;
    struct sl_sketched_config config = {
        .count = run->model->count,
        .sketch = {rows, (uint32_t)(run->model->count / 4 / rows), 7},
        .momentum = 0.9f,
        .k = (size_t)(run->method->number * (double)run->model->count)};
    size_t size;
    int err = sl_sketched_size(&config, &size);

    if (err != 0)
        return err;
    run->memory = memory_of(size);
    sl_sketched_init(&run->sketched, &config, &run->lab->net, run->memory);
    return 0;
}

static int step_sketched(struct run *run, float rate)
{
    int err;

    if (run->method->number > 0) {
        err = sl_sketched_step(&run->sketched, rate, run->gradient, run->mean);
        sl_add_scaled(run->theta, -1, run->mean, run->model->count);
        return err;
    }
    /* Another sketch each step: the same elements must not meet for ever. */
    run->sketched.config.sketch.seed = run->step;
    err = sl_sketched_step(&run->sketched, 1, run->gradient, run->mean);
    return err != 0 ? err : move_by_mean(run, rate);
}

static size_t parts_sketched(const struct run *run, struct sl_state_part *parts)
{
    return sl_sketched_state(&run->sketched, 1, parts);
}

const struct kind kind_sketched = {make_sketched, step_sketched, parts_sketched, NULL};
