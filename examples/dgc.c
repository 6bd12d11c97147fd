/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deep gradient compression: of each gradient a rank sends the 10 elements that are largest, with
 * what has gathered in them since they were last sent. Momentum is applied before, so that an
 * element which waited arrives with the momentum it would have had (momentum correction), and both
 * begin anew where an element was sent (factor masking).
 *
 *   cc dgc.c $(pkg-config --cflags --libs sluice) -lm -o dgc
 *   mpirun -np 4 ./dgc
 *
 * Source: Y. Lin et al., "Deep gradient compression: reducing the communication bandwidth for
 * distributed training", ICLR 2018.
 */
#include <sluice/sluice.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEATURES 1000
#define SAMPLES 200 /* of each rank */
#define KEPT 10     /* elements that a rank sends: 1 % */
#define STEPS 300
#define WARM_UP 50 /* steps that send ten times as many */
#define RATE 0.01f
#define MOMENTUM 0.6f

static float x[SAMPLES][FEATURES], y[SAMPLES];
static float theta[FEATURES], gradient[FEATURES];
static float u[FEATURES], v[FEATURES]; /* momentum, and what was not sent yet */
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

/* Of a logistic regression. Returns the loss. */
static double find_gradient(void)
{
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
    return loss;
}

static int by_magnitude(const void *a, const void *b)
{
    float first = fabsf(v[*(const uint32_t *)a]), second = fabsf(v[*(const uint32_t *)b]);

    return (first < second) - (first > second);
}

/* The kept largest of v, which leave it. */
static void choose(uint32_t kept, uint32_t *index, float *value)
{
    static uint32_t order[FEATURES];

    for (uint32_t j = 0; j < FEATURES; j++) {
        u[j] = MOMENTUM * u[j] + gradient[j];
        v[j] += u[j];
        order[j] = j;
    }
    qsort(order, FEATURES, sizeof(order[0]), by_magnitude);
    for (uint32_t i = 0; i < kept; i++) {
        index[i] = order[i];
        value[i] = v[order[i]];
        u[order[i]] = v[order[i]] = 0;
    }
}

/* All ranks get what all have chosen, and add it in the order of ranks: so all have the same. */
static int step(struct sluice_comm *comm, uint32_t kept)
{
    int size = sluice_comm_size(comm), err;
    uint32_t *index = malloc(((size_t)size + 1) * kept * sizeof(*index));
    float *value = malloc(((size_t)size + 1) * kept * sizeof(*value));

    if (index == NULL || value == NULL)
        abort();
    choose(kept, index, value);
    err = sluice_all_gather(comm, index, index + kept, kept, SLUICE_U32, NULL);
    if (err == 0)
        err = sluice_all_gather(comm, value, value + kept, kept, SLUICE_F32, NULL);
    for (size_t i = kept; err == 0 && i < ((size_t)size + 1) * kept; i++)
        theta[index[i]] -= RATE * value[i] / (float)size;
    free(index);
    free(value);
    return err;
}

int main(void)
{
    struct sluice_comm *comm;
    double first = 0, last = 0;
    int err = sluice_comm_from_env(&comm);

    if (err != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    make_samples(sluice_comm_rank(comm));
    for (int i = 0; i < STEPS && err == 0; i++) {
        last = find_gradient();
        first = i == 0 ? last : first;
        err = step(comm, i < WARM_UP ? 10 * KEPT : KEPT);
    }
    if (err != 0)
        fprintf(stderr, "rank %d: %s\n", sluice_comm_rank(comm), sluice_last_error());
    else if (sluice_comm_rank(comm) == 0)
        printf("loss %.3f at first, %.3f after %d steps of %d elements in %d\n", first, last, STEPS,
               KEPT, FEATURES);
    sluice_comm_destroy(comm);
    return err != 0 || !(last < first / 2);
}
