/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measuring loop that every peer program shares, ours too: same sizes, same buffers, same checks,
 * same clock. A peer says how it runs one collective; C and C++ include this once.
 *
 * usage of every peer: PROGRAM COLLECTIVE SIZE[,SIZE...] BUDGET_MS
 * Rank 0 prints one JSON object a line and size; times are those of the slowest rank, in µs.
 * A size is nccl-tests' own: the whole buffer of allreduce and broadcast, all blocks of the others.
 */
#ifndef COMPARE_LOOP_H
#define COMPARE_LOOP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOP_SAMPLES_MIN 5
#define LOOP_SAMPLES_MAX 2000
#define LOOP_BATCH_MAX 1000
#define LOOP_BATCH_S 20e-6 /* a sample lasts at least this long, so that the clock does not count */

enum coll { ALLREDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, BARRIER, COLL_COUNT };

static const char *const coll_names[COLL_COUNT] = {"allreduce",  "all_gather", "reduce_scatter",
                                                   "all_to_all", "broadcast",  "barrier"};

struct peer {
    int rank, size;
    void *self;
    /* Runs one collective to its end, f32, sum, root 0. count is of a block: of the whole buffer for
     * allreduce and broadcast (where in == out), of one rank's part for the others. */
    void (*run)(void *self, enum coll coll, const float *in, float *out, size_t count);
    /* The largest value of all ranks, on all ranks. */
    double (*max)(void *self, double value);
    /* Buffers that the next calls use; NULL: they go. NULL itself where a peer does nothing about them. */
    void (*buffers)(void *self, float *in, float *out, size_t len);
};

static double loop_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small whole numbers: sums of them are exact in any order. */
static float loop_element(size_t idx, int rank)
{
    return (float)((idx + (size_t)rank) % 7);
}

static float loop_sum(size_t idx, int size)
{
    float sum = 0;

    for (int r = 0; r < size; r++)
        sum += loop_element(idx, r);
    return sum;
}

/* What out[idx] must be. */
static float loop_expected(const struct peer *peer, enum coll coll, size_t idx, size_t count)
{
    switch (coll) {
    case ALLREDUCE: return loop_sum(idx, peer->size);
    case ALL_GATHER: return loop_element(idx % count, (int)(idx / count));
    case REDUCE_SCATTER: return loop_sum((size_t)peer->rank * count + idx, peer->size);
    case ALL_TO_ALL:
        return loop_element((size_t)peer->rank * count + idx % count, (int)(idx / count));
    case BROADCAST: return loop_element(idx, 0);
    default: return 0;
    }
}

/* Runs once on known numbers. Returns how many elements of all ranks came out wrong. */
static double loop_check(const struct peer *peer, enum coll coll, float *in, float *out,
                         size_t elements, size_t count)
{
    size_t outputs = coll == REDUCE_SCATTER ? count : coll == BARRIER ? 0 : elements;
    double wrong = 0;

    for (size_t i = 0; i < elements; i++) {
        in[i] = loop_element(i, peer->rank);
        out[i] = coll == BROADCAST && peer->rank == 0 ? in[i] : -1;
    }
    peer->run(peer->self, coll, coll == BROADCAST ? out : in, out, count);
    for (size_t i = 0; i < outputs; i++)
        wrong += out[i] != loop_expected(peer, coll, i, count);
    return peer->max(peer->self, wrong);
}

static int loop_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of a few single runs, agreed: the first runs of a size set up connections and pages. */
static double loop_median(const struct peer *peer, enum coll coll, const float *in, float *out,
                          size_t count, int runs)
{
    double times[32];

    for (int i = 0; i < runs; i++) {
        double start = loop_now();

        peer->run(peer->self, coll, in, out, count);
        times[i] = loop_now() - start;
    }
    qsort(times, (size_t)runs, sizeof(times[0]), loop_by_value);
    return peer->max(peer->self, times[runs / 2]);
}

/* Seconds per collective, after a warm-up of at least 5 runs and a quarter of the budget. */
static double loop_estimate(const struct peer *peer, enum coll coll, const float *in, float *out,
                            size_t count, double budget)
{
    double per = loop_median(peer, coll, in, out, count, 5);
    int runs;

    if (per * 20 < budget)
        per = loop_median(peer, coll, in, out, count, 20);
    runs = (int)(budget / 4 / per);
    runs = runs > 100000 ? 100000 : runs;
    for (int i = 0; i < runs; i++)
        peer->run(peer->self, coll, in, out, count);
    return per * 20 < budget ? loop_median(peer, coll, in, out, count, 20) : per;
}

static void loop_size(const struct peer *peer, enum coll coll, size_t bytes, double budget)
{
    static double samples[LOOP_SAMPLES_MAX];
    size_t blocks = coll == ALLREDUCE || coll == BROADCAST || coll == BARRIER ? 1 : (size_t)peer->size;
    size_t count = bytes / sizeof(float) / blocks > 0 ? bytes / sizeof(float) / blocks : 1;
    size_t elements = count * blocks;
    size_t len = (elements * sizeof(float) + 4095) / 4096 * 4096;
    float *in = (float *)aligned_alloc(4096, len), *out = (float *)aligned_alloc(4096, len);
    double wrong, per, total = 0, p50, p90, least;
    int batch, n;

    if (in == NULL || out == NULL)
        abort();
    if (peer->buffers != NULL)
        peer->buffers(peer->self, in, out, len);
    wrong = loop_check(peer, coll, in, out, elements, count);
    if (coll == BROADCAST)
        memcpy(in, out, elements * sizeof(float));
    per = loop_estimate(peer, coll, coll == BROADCAST ? out : in, out, count, budget);
    batch = per > LOOP_BATCH_S ? 1 : (int)(LOOP_BATCH_S / per) + 1;
    batch = batch > LOOP_BATCH_MAX ? LOOP_BATCH_MAX : batch;
    n = (int)(budget / (per * batch));
    n = n < LOOP_SAMPLES_MIN ? LOOP_SAMPLES_MIN : n > LOOP_SAMPLES_MAX ? LOOP_SAMPLES_MAX : n;
    peer->max(peer->self, 0); /* all start together */
    for (int s = 0; s < n; s++) {
        double start = loop_now();

        for (int i = 0; i < batch; i++)
            peer->run(peer->self, coll, coll == BROADCAST ? out : in, out, count);
        samples[s] = (loop_now() - start) / batch;
        total += samples[s];
    }
    qsort(samples, (size_t)n, sizeof(samples[0]), loop_by_value);
    least = peer->max(peer->self, samples[0]);
    p50 = peer->max(peer->self, samples[n / 2]);
    p90 = peer->max(peer->self, samples[n * 9 / 10]);
    total = peer->max(peer->self, total / n);
    if (peer->rank == 0)
        printf("{\"coll\": \"%s\", \"bytes\": %zu, \"p50_us\": %.3f, \"min_us\": %.3f, \"p90_us\": %.3f, "
               "\"mean_us\": %.3f, \"samples\": %d, \"batch\": %d, \"wrong\": %.0f}\n",
               coll_names[coll], bytes, 1e6 * p50, 1e6 * least, 1e6 * p90, 1e6 * total, n, batch,
               wrong);
    fflush(stdout);
    if (peer->buffers != NULL)
        peer->buffers(peer->self, NULL, NULL, 0);
    free(in);
    free(out);
}

/* Returns the exit status. */
static int loop_main(const struct peer *peer, int argc, char **argv)
{
    int coll = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: %s COLLECTIVE SIZE[,SIZE...] BUDGET_MS\n", argv[0]);
        return 2;
    }
    while (coll < COLL_COUNT && strcmp(coll_names[coll], argv[1]) != 0)
        coll++;
    if (coll == COLL_COUNT) {
        fprintf(stderr, "there is no collective '%s'\n", argv[1]);
        return 2;
    }
    for (char *text = argv[2]; *text != '\0';) {
        size_t bytes = strtoull(text, &text, 10);

        loop_size(peer, (enum coll)coll, bytes, atof(argv[3]) / 1e3);
        text += *text == ',';
    }
    return 0;
}

#endif
