/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures on one core what keeps a part of a whole message, or adds up: gigabytes of f32 elements
 * per second, and what share that is of reading the same memory, measured in turns with it.
 *
 * usage: bench_sparse [--json] [--kernels c|avx2|avx512] [--mib N] [--rounds N]
 *
 * Beside each figure the bytes that must move for an element, of which reading moves 4.
 */
#include "compress/kernels.h"
#include "compress/lowrank.h"
#include "compress/seedscalar.h"
#include "compress/sparse.h"
#include "compress/topk.h"
#include "compress/vote.h"
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 101
#define COLUMNS 4096 /* of the matrix that the elements are to low rank */
#define RANK 4

static size_t count; /* elements */
static unsigned rounds = 9;
static float *input, *output, *values;
static uint32_t *indices, thousandth, hundredth;
static uint64_t *signs, *counters;
static struct sl_topk_work work;
static struct sl_topk_out kept;
static size_t kept_count, message_len;
static void *message;
static float *p, *q;

static const struct sl_sparse_spec sparse = {.bf16 = true};
static const struct sl_direction direction = {.seed = 1};
static struct sl_lowrank matrix = {.columns = COLUMNS, .rank = RANK};

/* Of this thread's own time: another program on the core takes none of it. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Nothing faster reads memory: eight sums at once, vectors of them where the compiler can. */
static void read_all(void)
{
    const uint64_t *x = (const uint64_t *)(const void *)input;
    uint64_t sum[8] = {0};

    for (size_t i = 0; i + 8 <= count / 2; i += 8)
        for (unsigned j = 0; j < 8; j++)
            sum[j] += x[i + j];
    for (unsigned j = 1; j < 8; j++)
        sum[0] += sum[j];
    __asm__ volatile("" ::"r"(sum[0]));
}

static void select_thousandth(void)
{
    sl_topk_above(input, count, thousandth, &kept);
}

static void select_hundredth(void)
{
    sl_topk_above(input, count, hundredth, &kept);
}

static void select_feedback(void)
{
    sl_topk_above_feedback(input, output, count, thousandth, &kept);
}

static void exact(void)
{
    sl_topk_exact(input, count, count / 1000, 0, &work, &kept, NULL);
}

static void exact_with_hint(void)
{
    sl_topk_exact(input, count, count / 1000, thousandth - (1 << 20), &work, &kept, NULL);
}

static void sparse_write(void)
{
    message_len = sl_sparse_write(&sparse, indices, values, kept_count, count, message);
}

static void sparse_add(void)
{
    int err = sl_sparse_add(&sparse, message, message_len, count, output);

    sl_assert(err == 0);
}

static void vote_signs(void)
{
    sl_vote_signs(input, count, signs);
}

static void vote_add(void)
{
    sl_vote_add(counters, 3, signs, sl_vote_words(count));
}

static void vote_majority(void)
{
    sl_vote_majority(counters, 3, 4, sl_vote_words(count), signs, NULL);
}

static void project(void)
{
    output[0] = (float)sl_direction_project(&direction, 0, input, count);
}

static void step_along(void)
{
    sl_direction_apply(&direction, 0, 1e-6f, count, output);
}

static void lowrank_left(void)
{
    sl_lowrank_left(&matrix, input, q, p);
}

static void lowrank_right(void)
{
    sl_lowrank_right(&matrix, input, p, q);
}

static void lowrank_residual(void)
{
    sl_lowrank_residual(&matrix, input, p, q, output);
}

static const struct job {
    const char *name;
    double bytes; /* that move, of an element */
    void (*run)(void);
} jobs[] = {
    {"read", 4, read_all},
    {"select 0.1 %", 4, select_thousandth},
    {"select 1 %", 4.08, select_hundredth},
    {"select 0.1 %, feedback", 12, select_feedback},
    {"exact top 0.1 %", 8, exact},
    {"exact top 0.1 %, hint", 4, exact_with_hint},
    {"sparse write, 0.1 %", 0.012, sparse_write},
    {"sparse add, 0.1 %", 0.13, sparse_add},
    {"vote: signs", 4.125, vote_signs},
    {"vote: add", 0.875, vote_add},
    {"vote: majority", 0.5, vote_majority},
    {"seed: project", 4, project},
    {"seed: step", 8, step_along},
    {"low rank 4: left", 4, lowrank_left},
    {"low rank 4: right", 4, lowrank_right},
    {"low rank 4: residual", 8, lowrank_residual},
};

static double times[SL_ARRAY_LEN(jobs)][ROUNDS_MAX];

/* About normal. */
static void fill(void)
{
    uint64_t x = 88172645463325252;

    for (size_t i = 0; i < count; i++) {
        float sum = 0;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        for (unsigned j = 0; j < 4; j++)
            sum += (float)(x >> j * 16 & 0xffff) - 32767.5f;
        input[i] = sum * 1e-5f;
    }
}

static void *take(size_t len)
{
    void *memory = aligned_alloc(4096, (len + 4095) / 4096 * 4096);

    sl_assert(memory != NULL);
    return memset(memory, 0, len);
}

static void prepare(size_t mib)
{
    count = (mib << 20) / sizeof(float);
    matrix.rows = count / COLUMNS;
    input = take(count * sizeof(float));
    output = take(count * sizeof(float));
    kept = (struct sl_topk_out){take(count / 25 * 4), take(count / 25 * 4), count / 25};
    indices = kept.index;
    values = kept.value;
    signs = take(sl_vote_words(count) * 8);
    counters = take(sl_vote_words(count) * 24);
    p = take(sl_lowrank_p_count(&matrix) * 4);
    q = take(sl_lowrank_q_count(&matrix) * 4);
    message = take(sl_sparse_bound(&sparse, count, count / 500));
    fill();
    sl_lowrank_refill(&matrix, 1, 0, 0, q);
    sl_topk_exact(input, count, count / 100, 0, &work, &kept, &hundredth);
    kept_count = sl_topk_exact(input, count, count / 1000, 0, &work, &kept, &thousandth);
}

/* The kept elements, which other jobs overwrite, are there again before each. */
static void measure(unsigned round)
{
    for (size_t j = 0; j < SL_ARRAY_LEN(jobs); j++) {
        double start;

        kept_count = sl_topk_exact(input, count, count / 1000, thousandth, &work, &kept, NULL);
        sl_sparse_write(&sparse, indices, values, kept_count, count, message);
        start = now();
        jobs[j].run();
        times[j][round] = now() - start;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median, least and largest of scale / time, or of the time of reading / time. */
static void spread(size_t job, double scale, double out[3])
{
    double x[ROUNDS_MAX];

    for (unsigned i = 0; i < rounds; i++)
        x[i] = (scale > 0 ? scale : times[0][i]) / times[job][i];
    qsort(x, rounds, sizeof(x[0]), by_value);
    out[0] = x[rounds / 2];
    out[1] = x[0];
    out[2] = x[rounds - 1];
}

static void print(bool json)
{
    for (size_t j = 0; j < SL_ARRAY_LEN(jobs); j++) {
        double speed[3], share[3];

        spread(j, (double)count * 4e-9, speed);
        spread(j, 0, share);
        if (json)
            printf("%s{\"job\": \"%s\", \"bytes\": %.3f, \"gbps\": %.2f, \"of_read\": %.3f}%s\n",
                   j == 0 ? "[" : " ", jobs[j].name, jobs[j].bytes, speed[0], share[0],
                   j + 1 < SL_ARRAY_LEN(jobs) ? "," : "]");
        else
            printf("%-24s moves %6.3f B  %8.2f GB/s  of read %6.2f (%.2f to %.2f)\n", jobs[j].name,
                   jobs[j].bytes, speed[0], share[0], share[1], share[2]);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_sparse [--json] [--kernels c|avx2|avx512] [--mib N] "
                    "[--rounds N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    size_t mib = 256;
    bool json = false;

    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;

        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--kernels") == 0 && more) {
            if (sl_codec_kernels_force(argv[++i]) != 0) {
                fprintf(stderr, "bench_sparse: %s\n", sluice_last_error());
                return 2;
            }
        } else if (strcmp(argv[i], "--mib") == 0 && more)
            mib = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0 && more)
            rounds = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            return usage();
    }
    if (mib < 1 || mib > 8192 || rounds < 1 || rounds > ROUNDS_MAX)
        return usage();
    prepare(mib);
    for (unsigned round = 0; round < rounds; round++)
        measure(round);
    print(json);
    return 0;
}
