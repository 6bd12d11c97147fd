/* SPDX-License-Identifier: Apache-2.0 */
/* How each kind of method makes a step, over Sluice. */
#include "kinds.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the network ---- */

static int sum(void *arg, float *x, size_t count)
{
    struct lab *lab = arg;

    lab->sent += 2 * (lab->net.ranks - 1) * count * sizeof(*x) / lab->net.ranks;
    return sluice_allreduce(lab->comm, x, x, count, SLUICE_F32, SLUICE_SUM, NULL);
}

static int gather(void *arg, const void *in, size_t len, void *out)
{
    struct lab *lab = arg;

    lab->sent += (lab->net.ranks - 1) * len;
    return sluice_all_gather(lab->comm, in, out, len, SLUICE_U8, NULL);
}

static int exchange(void *arg, const void *in, size_t len, void *out)
{
    struct lab *lab = arg;

    lab->sent += (lab->net.ranks - 1) * len;
    return sluice_all_to_all(lab->comm, in, out, len, SLUICE_U8, NULL);
}

void lab_make(struct lab *lab, struct sluice_comm *comm)
{
    *lab = (struct lab){.comm = comm};
    lab->net = (struct sl_net){
        lab,     (uint32_t)sluice_comm_rank(comm), (uint32_t)sluice_comm_size(comm), sum, gather,
        exchange};
}

/* ---- what kinds share ---- */

void *memory_of(size_t size)
{
    void *memory = aligned_alloc(64, (size + 127) & ~(size_t)63);

    if (memory == NULL)
        abort();
    return memory;
}

int move_by_mean(struct run *run, float rate)
{
    bool nesterov = run->method->nesterov;
    float m = run->method->momentum;

    for (size_t i = 0; i < run->model->count; i++) {
        float *v = &run->velocity[i];

        *v = m * *v + run->mean[i];
        run->theta[i] -= rate * (nesterov ? run->mean[i] + m * *v : *v);
    }
    return 0;
}

size_t no_parts(const struct run *run, struct sl_state_part *parts)
{
    return 0;
}

/* ---- a codec of the library, as an attribute of an operation ---- */

/* Set on the communicator while the operation is made, which takes it over and reports there. */
static int make_operation(struct run *run)
{
    const char *codec = run->method->codec; /* with a parameter: min=0 */
    char text[128] = "";

    if (codec != NULL) /* ranks of one host would save no time, and train as without it */
        snprintf(text, sizeof(text), "%s,when=always", codec);
    int err = sluice_comm_set_compression(run->lab->comm, text);

    return err != 0
               ? err
               : sluice_allreduce_init(run->lab->comm, run->gradient, run->mean, run->model->count,
                                       SLUICE_F32, SLUICE_AVG, &run->operation);
}

static int step_operation(struct run *run, float rate)
{
    struct sluice_compression_report before, after;
    int err = sluice_comm_compression_report(run->lab->comm, &before);

    if (err == 0)
        err = sluice_start(run->operation, NULL);
    if (err == 0)
        err = sluice_comm_compression_report(run->lab->comm, &after);
    if (err != 0)
        return err;
    if (run->method->codec != NULL)
        run->lab->sent += after.wire_bytes - before.wire_bytes;
    else
        run->lab->sent +=
            2 * (run->lab->net.ranks - 1) * run->model->count * sizeof(float) / run->lab->net.ranks;
    return move_by_mean(run, rate);
}

const struct kind kind_operation = {make_operation, step_operation, no_parts, NULL};

/* ---- one scale a tensor, as a control ---- */

/* x = what codes of so many bits, by one scale for all of it, decode to. */
static void quantise(float *x, size_t count, double bits)
{
    float most = 0, steps = (float)((1 << (int)bits) / 2 - 1);

    for (size_t i = 0; i < count; i++)
        most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
    for (size_t i = 0; i < count && most > 0; i++)
        x[i] = __builtin_rintf(x[i] / most * steps) * (most / steps);
}

static int make_tensor(struct run *run)
{
    return 0;
}

static int step_tensor(struct run *run, float rate)
{
    size_t count = run->model->count;
    int err;

    memcpy(run->mean, run->gradient, count * sizeof(float));
    quantise(run->mean, count, run->method->number);
    err = sl_net_mean(&run->lab->net, run->mean, count);
    quantise(run->mean, count, run->method->number);
    return err != 0 ? err : move_by_mean(run, rate);
}

const struct kind kind_tensor = {make_tensor, step_tensor, no_parts, NULL};

/* ---- runs ---- */

int run_make(struct run *run, struct lab *lab, const struct model *model,
             const struct method *method, unsigned steps, const float *theta)
{
    size_t len = model->count * sizeof(float);
    float *arrays = memory_of(4 * len);
    int err;

    *run = (struct run){.lab = lab, .model = model, .method = method, .steps = steps};
    memset(arrays, 0, 4 * len);
    run->theta = arrays;
    run->velocity = arrays + model->count;
    run->gradient = arrays + 2 * model->count;
    run->mean = arrays + 3 * model->count;
    memcpy(run->theta, theta, len);
    err = method->kind->make(run);
    if (err == -EINVAL && strstr(sluice_last_error(), "there is no codec") != NULL)
        return 1;
    return err;
}

int run_step(struct run *run, float rate)
{
    int err = run->method->kind->step(run, rate);

    run->step++;
    return err;
}

const float *run_theta(const struct run *run)
{
    return run->is_local ? run->local.outer.anchor : run->theta;
}

static size_t parts_of(const struct run *run, struct sl_state_part parts[PARTS_MOST])
{
    size_t len = run->model->count * sizeof(float);

    parts[0] =
        (struct sl_state_part){.id = 1000, .kind = SL_STATE_RESIDUAL, .data = run->theta, len};
    parts[1] =
        (struct sl_state_part){.id = 1001, .kind = SL_STATE_RESIDUAL, .data = run->velocity, len};
    return 2 + run->method->kind->parts(run, parts + 2);
}

/* Of an operation: 0 bytes where it keeps nothing. */
static size_t operation_size(const struct run *run)
{
    size_t size = 0;

    if (run->operation == NULL || sluice_operation_save(run->operation, NULL, &size) != 0)
        return 0;
    return size;
}

int run_save(const struct run *run, void **bytes, size_t *len)
{
    struct sl_state_part parts[PARTS_MOST];
    size_t count = parts_of(run, parts), state = sl_state_size(parts, count);
    size_t size = operation_size(run);

    state = (state + 15) & ~(size_t)15;
    *len = state + size;
    *bytes = memory_of(*len);
    memset(*bytes, 0, *len);
    sl_state_save(parts, count, run->lab->net.ranks, run->step, *bytes);
    if (size == 0)
        return 0;
    return sluice_operation_save(run->operation, (char *)*bytes + state, &size);
}

int run_load(struct run *run, const void *bytes, size_t len)
{
    struct sl_state_part parts[PARTS_MOST];
    size_t count = parts_of(run, parts), state = sl_state_size(parts, count);
    size_t size = operation_size(run);
    uint64_t step;
    int err = sl_state_load(parts, count, run->lab->net.ranks, bytes, state, &step);

    if (err != 0)
        return err;
    run->step = (uint32_t)step;
    if (run->method->kind->counter != NULL)
        *run->method->kind->counter(run) = run->step;
    if (size == 0)
        return 0;
    return sluice_operation_load(run->operation, (const char *)bytes + ((state + 15) & ~(size_t)15),
                                 size);
}

void run_drop(struct run *run)
{
    if (run->operation != NULL)
        (void)sluice_comm_set_compression(run->lab->comm, NULL);
    sluice_operation_free(run->operation);
    if (run->is_local)
        free(run->local.memory);
    free(run->memory);
    free(run->theta);
}
