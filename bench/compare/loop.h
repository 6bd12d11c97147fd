/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measuring loop that every peer program shares, ours too: same sizes, same buffers, same
 * checks, same clock. A peer says how it runs one collective; C and C++ include this once.
 *
 * usage of every peer: PROGRAM COLLECTIVE SIZE[,SIZE...] BUDGET_MS [COMPUTE_US [TOUCH_KIB]]
 * Rank 0 prints one JSON object a line and size; times are those of the slowest rank, in µs.
 * COMPUTE_US: before each call every rank computes, so much processor time, over TOUCH_KIB of
 * memory (1024): as programs do, and unlike the calls back to back of most benchmarks. Then a
 * sample is both, computing and call, and call_us the call alone, which holds the waiting for ranks
 * that computed for longer. A size is nccl-tests' own: the whole buffer of allreduce and broadcast,
 * all blocks of the others.
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
#define LOOP_TOUCH_KIB 1024

enum coll {
    ALLREDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
    REDUCE,
    BARRIER,
    COLL_COUNT
};

static const char *const coll_names[COLL_COUNT] = {
    "allreduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier"};

struct peer {
    int rank, size;
    void *self;
    /* Runs one collective to its end, f32, sum, root 0. count is of a block: of the whole buffer
     * for allreduce and broadcast (where in == out), of one rank's part for the others. */
    void (*run)(void *self, enum coll coll, const float *in, float *out, size_t count);
    /* The largest value of all ranks, on all ranks. */
    double (*max)(void *self, double value);
    /* Buffers that the next calls use; NULL: they go. NULL itself where a peer does nothing about
     * them. */
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
    case REDUCE: return loop_sum(idx, peer->size); /* on rank 0 */
    default: return 0;
    }
}

/* Runs once on known numbers. Returns how many elements of all ranks came out wrong. */
static double loop_check(const struct peer *peer, enum coll coll, float *in, float *out,
                         size_t elements, size_t count)
{
    size_t outputs = coll == REDUCE_SCATTER                                   ? count
                     : coll == BARRIER || (coll == REDUCE && peer->rank != 0) ? 0
                                                                              : elements;
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

/* The median of a few single runs, agreed: the first runs of a size set up connections and
 * pages. */
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

/* ---- computing between calls ---- */

struct work {
    double *memory; /* NULL: none */
    size_t count;   /* doubles of it */
    long passes;    /* over the memory, before each call */
};

static void loop_compute(const struct work *work)
{
    for (long pass = 0; pass < work->passes; pass++)
        for (size_t i = 0; i < work->count; i++)
            work->memory[i] = work->memory[i] * 0.999 + 0.001;
}

static double loop_cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* So many passes as take `us` of processor time: the same work for all, however many share the
 * processor. */
static void loop_work(const struct peer *peer, struct work *work, double us, size_t kib)
{
    double start, per;

    work->count = kib * 1024 / sizeof(double);
    work->memory = (double *)calloc(work->count, sizeof(double));
    if (work->memory == NULL)
        abort();
    work->passes = 1;
    loop_compute(work);
    start = loop_cpu_s();
    work->passes = 1 + (long)(8192 / kib);
    loop_compute(work);
    per = peer->max(peer->self, (loop_cpu_s() - start) / (double)work->passes);
    work->passes = (long)(us * 1e-6 / per + 0.5);
    work->passes = work->passes < 1 ? 1 : work->passes;
}

static void loop_size(const struct peer *peer, enum coll coll, size_t bytes, double budget,
                      const struct work *work)
{
    static double samples[LOOP_SAMPLES_MAX], calls[LOOP_SAMPLES_MAX];
    size_t blocks = coll == ALLREDUCE || coll == BROADCAST || coll == REDUCE || coll == BARRIER
                        ? 1
                        : (size_t)peer->size;
    size_t count = bytes / sizeof(float) / blocks > 0 ? bytes / sizeof(float) / blocks : 1;
    size_t elements = count * blocks;
    size_t len = (elements * sizeof(float) + 4095) / 4096 * 4096;
    float *in = (float *)aligned_alloc(4096, len), *out = (float *)aligned_alloc(4096, len);
    double wrong, per, total = 0, p50, p90, least, call;
    int batch, n;

    if (in == NULL || out == NULL)
        abort();
    if (peer->buffers != NULL)
        peer->buffers(peer->self, in, out, len);
    wrong = loop_check(peer, coll, in, out, elements, count);
    if (coll == BROADCAST)
        memcpy(in, out, elements * sizeof(float));
    per = loop_estimate(peer, coll, coll == BROADCAST ? out : in, out, count, budget);
    if (work->memory != NULL) {
        double start = loop_now();

        loop_compute(work);
        per = peer->max(peer->self, loop_now() - start) + per;
    }
    batch = per > LOOP_BATCH_S || work->memory != NULL ? 1 : (int)(LOOP_BATCH_S / per) + 1;
    batch = batch > LOOP_BATCH_MAX ? LOOP_BATCH_MAX : batch;
    n = (int)(budget / (per * batch));
    n = n < LOOP_SAMPLES_MIN ? LOOP_SAMPLES_MIN : n > LOOP_SAMPLES_MAX ? LOOP_SAMPLES_MAX : n;
    peer->max(peer->self, 0); /* all start together */
    for (int s = 0; s < n; s++) {
        double start = loop_now(), begin = start;

        if (work->memory != NULL) {
            loop_compute(work);
            begin = loop_now();
        }
        for (int i = 0; i < batch; i++)
            peer->run(peer->self, coll, coll == BROADCAST ? out : in, out, count);
        samples[s] = (loop_now() - start) / batch;
        calls[s] = (loop_now() - begin) / batch;
        total += samples[s];
    }
    qsort(samples, (size_t)n, sizeof(samples[0]), loop_by_value);
    qsort(calls, (size_t)n, sizeof(calls[0]), loop_by_value);
    call = peer->max(peer->self, calls[n / 2]);
    least = peer->max(peer->self, samples[0]);
    p50 = peer->max(peer->self, samples[n / 2]);
    p90 = peer->max(peer->self, samples[n * 9 / 10]);
    total = peer->max(peer->self, total / n);
    if (peer->rank == 0)
        printf("{\"coll\": \"%s\", \"bytes\": %zu, \"p50_us\": %.3f, \"min_us\": %.3f, \"p90_us\": "
               "%.3f, "
               "\"mean_us\": %.3f, \"call_us\": %.3f, \"samples\": %d, \"batch\": %d, \"wrong\": "
               "%.0f}\n",
               coll_names[coll], bytes, 1e6 * p50, 1e6 * least, 1e6 * p90, 1e6 * total, 1e6 * call,
               n, batch, wrong);
    fflush(stdout);
    if (peer->buffers != NULL)
        peer->buffers(peer->self, NULL, NULL, 0);
    free(in);
    free(out);
}

/* Returns the exit status. */
static int loop_main(const struct peer *peer, int argc, char **argv)
{
    struct work work = {NULL, 0, 0};
    int coll = 0;

    if (argc < 4 || argc > 6) {
        fprintf(stderr, "usage: %s COLLECTIVE SIZE[,SIZE...] BUDGET_MS [COMPUTE_US [TOUCH_KIB]]\n",
                argv[0]);
        return 2;
    }
    while (coll < COLL_COUNT && strcmp(coll_names[coll], argv[1]) != 0)
        coll++;
    if (coll == COLL_COUNT) {
        fprintf(stderr, "there is no collective '%s'\n", argv[1]);
        return 2;
    }
    if (argc > 4 && atof(argv[4]) > 0)
        loop_work(peer, &work, atof(argv[4]),
                  argc > 5 ? strtoull(argv[5], NULL, 10) : LOOP_TOUCH_KIB);
    for (char *text = argv[2]; *text != '\0';) {
        size_t bytes = strtoull(text, &text, 10);

        loop_size(peer, (enum coll)coll, bytes, atof(argv[3]) / 1e3, &work);
        text += *text == ',';
    }
    free(work.memory);
    return 0;
}

#endif
