/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DiLoCo: each rank trains for 20 steps by itself, then all move to the mean of where they came, by
 * an outer step with momentum. What a rank has moved travels in 4 bits an element, with error
 * feedback: some 150 times fewer bytes than a mean of gradients each step.
 *
 *   cc diloco.c $(pkg-config --cflags --libs sluice) -lm -o diloco
 *   mpirun -np 4 ./diloco
 *
 * Source: A. Douillard et al., "DiLoCo: distributed low-communication training of language models",
 * 2023.
 */
#include <sluice/sluice.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FEATURES 1000
#define SAMPLES 200 /* of each rank */
#define INNER 20    /* steps between means */
#define ROUNDS 15
#define RATE 0.01f      /* of an inner step */
#define OUTER_RATE 0.7f /* of an outer one */
#define MOMENTUM 0.6f

static float x[SAMPLES][FEATURES], y[SAMPLES]; /* pictures, say, and what they show: 0 or 1 */
static float theta[FEATURES], anchor[FEATURES], momentum[FEATURES];
static float moved[FEATURES], mean[FEATURES];
static uint32_t state;

static float draw(void)
{
    state = state * 1664525 + 1013904223;
    return (float)(state >> 8) / (1 << 23) - 1;
}

/* Every rank has samples of its own, which one hidden model has labelled. */
static void make_samples(int rank)
{
    static float hidden[FEATURES];

    state = 1;
    for (int j = 0; j < FEATURES; j++)
        hidden[j] = draw();
    state = (uint32_t)rank + 100;
    for (int i = 0; i < SAMPLES; i++) {
        float sum = 0;

        for (int j = 0; j < FEATURES; j++)
            sum += (x[i][j] = draw()) * hidden[j];
        y[i] = sum > 0;
    }
}

/* One step down the gradient of a logistic regression. Returns the loss before it. */
static double inner_step(void)
{
    static float gradient[FEATURES];
    double loss = 0;

    memset(gradient, 0, sizeof(gradient));
    for (int i = 0; i < SAMPLES; i++) {
        float sum = 0, off;

        for (int j = 0; j < FEATURES; j++)
            sum += theta[j] * x[i][j];
        off = 1 / (1 + expf(-sum)) - y[i];
        loss -= log(1 - fabs((double)off) + 1e-30) / SAMPLES;
        for (int j = 0; j < FEATURES; j++)
            gradient[j] += off * x[i][j] / SAMPLES;
    }
    for (int j = 0; j < FEATURES; j++)
        theta[j] -= RATE * gradient[j];
    return loss;
}

/* moved becomes its mean; then all ranks are at the same anchor again. */
static int outer_step(struct sluice_operation *operation)
{
    int err;

    for (int j = 0; j < FEATURES; j++)
        moved[j] = anchor[j] - theta[j];
    err = sluice_start(operation, NULL);
    for (int j = 0; j < FEATURES && err == 0; j++) {
        momentum[j] = MOMENTUM * momentum[j] + mean[j];
        anchor[j] -= OUTER_RATE * (mean[j] + MOMENTUM * momentum[j]);
        theta[j] = anchor[j];
    }
    return err;
}

int main(void)
{
    struct sluice_operation *operation = NULL;
    struct sluice_comm *comm;
    double first = 0, last = 0;
    int err = sluice_comm_from_env(&comm);

    if (err != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    make_samples(sluice_comm_rank(comm));
    /* The operation keeps what 4 bits could not say, and adds it the next time. Without when=always
     * it would compress over slow links alone. */
    err = sluice_allreduce_init(comm, moved, mean, FEATURES, SLUICE_F32, SLUICE_AVG, &operation);
    if (err == 0)
        err = sluice_operation_set_compression(operation, "bq4:when=always,min=0,feedback=on");
    for (int round = 0; round < ROUNDS && err == 0; round++) {
        for (int k = 0; k < INNER; k++) {
            last = inner_step();
            first = round == 0 && k == 0 ? last : first;
        }
        err = outer_step(operation);
    }
    if (err != 0)
        fprintf(stderr, "rank %d: %s\n", sluice_comm_rank(comm), sluice_last_error());
    else if (sluice_comm_rank(comm) == 0)
        printf("loss %.3f at first, %.3f after %d steps and %d means\n", first, last,
               INNER * ROUNDS, ROUNDS);
    sluice_operation_free(operation);
    sluice_comm_destroy(comm);
    return err != 0 || !(last < first / 2);
}
