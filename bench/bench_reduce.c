/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures reduction and copy kernels: nanoseconds per call where messages are small, gigabytes of
 * result per second where they are large, beside memcpy and what memory allows.
 *
 * usage: bench_reduce [small|two|many|copy ...]   (all of them by default)
 *
 * Cases of one table are measured in turns, several times; the median is printed, so that a burst
 * of other work on the machine does not fall on one case alone.
 */
#include "kernels/reduce.h"

#include "core/cache.h"
#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SRC_MAX 32
#define TURNS 11
#define TURN_NS 2000000
#define CASES_MAX 16
#define AREA_BYTES ((size_t)64 << 20)

struct job {
    const char *name;
    sl_reduce_fn *reduce; /* or NULL, and */
    sl_copy_fn *copy;
    const void *src[SRC_MAX];
    void *dst, *second;
    unsigned nsrc;
    size_t count; /* elements, or bytes of a copy */
    size_t len;   /* bytes of result per call */
};

static char *area[SRC_MAX + 2];
static const struct sl_kernels *kernels[3];
static unsigned kernel_count;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Nanoseconds per call. */
static double run(const struct job *job, unsigned calls)
{
    int64_t start = now_ns();

    for (unsigned i = 0; i < calls; i++) {
        if (job->reduce != NULL)
            job->reduce(job->dst, job->second, job->src, job->nsrc, job->count, 1);
        else
            job->copy(job->dst, job->src[0], job->count);
        __asm__ volatile("" ::: "memory");
    }
    return (double)(now_ns() - start) / calls;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Medians of all jobs, measured in turns. */
static void measure(const struct job *jobs, unsigned count, double *ns)
{
    static double turn[CASES_MAX][TURNS];
    unsigned calls[CASES_MAX];

    for (unsigned j = 0; j < count; j++) {
        run(&jobs[j], 2);
        double once = run(&jobs[j], 3);

        calls[j] = once > TURN_NS ? 1 : (unsigned)(TURN_NS / (once + 1));
    }
    for (unsigned t = 0; t < TURNS; t++)
        for (unsigned j = 0; j < count; j++)
            turn[j][t] = run(&jobs[j], calls[j]);
    for (unsigned j = 0; j < count; j++) {
        qsort(turn[j], TURNS, sizeof(double), by_value);
        ns[j] = turn[j][TURNS / 2];
    }
}

static void libc_copy(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

#ifdef __x86_64__
static void rep_movsb(void *dst, const void *src, size_t len)
{
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(len) : : "memory");
}
#else
#define rep_movsb libc_copy
#endif

/* The least that a sum of n sources costs memory: n reads of what it writes. */
static void read_only(void *dst, const void *src, size_t len)
{
    uint64_t sum[8] = {0};
    const uint64_t *p = src;

    for (size_t i = 0; i + 8 <= len / 8; i += 8)
        for (unsigned j = 0; j < 8; j++)
            sum[j] += p[i + j];
    for (unsigned j = 1; j < 8; j++)
        sum[0] += sum[j];
    __asm__ volatile("" ::"r"(sum[0]));
}

static struct job reduce_job(const struct sl_kernels *k, enum sluice_dtype t, unsigned nsrc,
                             size_t len, bool stream, bool second)
{
    static const size_t sizes[SLUICE_DTYPE_COUNT] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    struct job job = {.name = k->name, .nsrc = nsrc, .len = len, .count = len / sizes[t]};

    job.reduce = stream ? k->reduce_stream[t][SLUICE_SUM] : k->reduce[t][SLUICE_SUM];
    job.dst = area[SRC_MAX];
    job.second = second ? area[SRC_MAX + 1] : NULL;
    for (unsigned i = 0; i < nsrc; i++)
        job.src[i] = area[i];
    return job;
}

static void print_size(size_t len)
{
    if (len >= 1 << 20)
        printf("%5zu MiB", len >> 20);
    else if (len >= 1 << 10)
        printf("%5zu KiB", len >> 10);
    else
        printf("%5zu B  ", len);
}

static void bench_small(void)
{
    static const size_t counts[] = {1, 4, 16, 17, 64, 256};
    static const unsigned sources[] = {2, 4, 8};

    printf("\nSmall f32 sums, ns per call\n  sources  count");
    for (unsigned k = 0; k < kernel_count; k++)
        printf("  %8s", kernels[k]->name);
    printf("\n");
    for (unsigned s = 0; s < SL_ARRAY_LEN(sources); s++)
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++) {
            struct job jobs[3];
            double ns[3];

            for (unsigned k = 0; k < kernel_count; k++)
                jobs[k] =
                    reduce_job(kernels[k], SLUICE_F32, sources[s], counts[c] * 4, false, false);
            measure(jobs, kernel_count, ns);
            printf("  %7u  %5zu", sources[s], counts[c]);
            for (unsigned k = 0; k < kernel_count; k++)
                printf("  %8.1f", ns[k]);
            printf("\n");
        }
}

static void bench_two_of(enum sluice_dtype t, const char *name, size_t len)
{
    struct job jobs[CASES_MAX];
    double ns[CASES_MAX];
    unsigned n = 0;

    for (unsigned k = 0; k < kernel_count; k++)
        for (unsigned v = 0; v < 4; v++)
            jobs[n++] = reduce_job(kernels[k], t, 2, len, v & 2, v & 1);
    jobs[n] = (struct job){.copy = libc_copy, .dst = area[SRC_MAX], .src = {area[0]}};
    jobs[n].count = jobs[n].len = len;
    n++;
    jobs[n] = (struct job){.copy = read_only, .src = {area[0]}};
    jobs[n].count = jobs[n].len = len;
    n++;
    measure(jobs, n, ns);
    for (unsigned k = 0; k < kernel_count; k++) {
        printf("  %-4s ", name);
        print_size(len);
        printf("  %-6s", kernels[k]->name);
        for (unsigned v = 0; v < 4; v++)
            printf("  %11.1f", (double)len / ns[k * 4 + v]);
        printf("  %6.1f  %6.1f\n", (double)len / ns[n - 2], (double)len / ns[n - 1]);
    }
}

static void bench_two(void)
{
    static const size_t lens[] = {8 << 10, 128 << 10, 4 << 20, 64 << 20};

    printf("\nSums of two sources, GB/s of result\n  type  bytes     kernel        plain"
           "   plain+copy       stream  stream+copy  memcpy    read\n");
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
        bench_two_of(SLUICE_F32, "f32", lens[i]);
        bench_two_of(SLUICE_F16, "f16", lens[i]);
        bench_two_of(SLUICE_BF16, "bf16", lens[i]);
    }
}

static void bench_many(void)
{
    static const size_t lens[] = {4 << 10, 128 << 10, 16 << 20};
    static const unsigned sources[] = {2, 3, 4, 6, 8, 12, 16, 32};

    printf("\nf32 sums of many sources, GB/s of loads\n  sources  bytes   ");
    for (unsigned k = 0; k < kernel_count; k++)
        printf("  %8s", kernels[k]->name);
    printf("\n");
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++)
        for (unsigned s = 0; s < SL_ARRAY_LEN(sources); s++) {
            struct job jobs[3];
            double ns[3];

            for (unsigned k = 0; k < kernel_count; k++)
                jobs[k] = reduce_job(kernels[k], SLUICE_F32, sources[s], lens[i], false, false);
            measure(jobs, kernel_count, ns);
            printf("  %7u  ", sources[s]);
            print_size(lens[i]);
            for (unsigned k = 0; k < kernel_count; k++)
                printf("  %8.1f", (double)lens[i] * sources[s] / ns[k]);
            printf("\n");
        }
}

static void bench_copy(void)
{
    static const size_t lens[] = {8,        64,        512,     4 << 10,  16 << 10,
                                  64 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20};

    printf("\nCopies, GB/s\n  bytes        memcpy  rep movsb");
    for (unsigned k = 0; k < kernel_count; k++)
        printf("  %6s:copy  %8s:nt", kernels[k]->name, kernels[k]->name);
    printf("\n");
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
        struct job jobs[8] = {{.copy = libc_copy}, {.copy = rep_movsb}};
        unsigned n = 2;
        double ns[8];

        for (unsigned k = 0; k < kernel_count; k++) {
            jobs[n++].copy = kernels[k]->copy;
            jobs[n++].copy = kernels[k]->copy_stream;
        }
        for (unsigned j = 0; j < n; j++) {
            jobs[j].dst = area[SRC_MAX];
            jobs[j].src[0] = area[0];
            jobs[j].count = lens[i];
        }
        measure(jobs, n, ns);
        printf("  ");
        print_size(lens[i]);
        for (unsigned j = 0; j < n; j++)
            printf("  %9.1f%s", (double)lens[i] / ns[j], j < 2 ? "" : "  ");
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tables[] = {
        {"small", bench_small}, {"two", bench_two}, {"many", bench_many}, {"copy", bench_copy}};

    for (unsigned kind = SL_KERNEL_AVX512; kind <= SL_KERNEL_C; kind++)
        kernel_count += sl_kernels_select((enum sl_kernel)kind, &kernels[kernel_count]) == 0;
    for (unsigned i = 0; i < SRC_MAX + 2; i++) {
        size_t len = i < 2 || i >= SRC_MAX ? AREA_BYTES : AREA_BYTES / 4;

        /* Unlike offsets within a page, as buffers of unlike owners have. */
        area[i] = (char *)aligned_alloc(4096, len + 8192) + i * 320 % 4096 / 64 * 64;
        memset(area[i], 0, len);
    }
    printf("last cache: %zu MiB\n", sl_cache_last_level() >> 20);
    for (unsigned i = 0; i < SL_ARRAY_LEN(tables); i++) {
        bool wanted = argc < 2;

        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], tables[i].name) == 0;
        if (wanted)
            tables[i].run();
    }
    return 0;
}
