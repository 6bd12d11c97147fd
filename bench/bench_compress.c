/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures codecs on one core: gigabytes of elements per second, and what share that is of the
 * copy and of the read of the same memory, measured in turns with them.
 *
 * usage: bench_compress [--json] [--kernels c|avx2|avx512] [--mib N] [--rounds N] [CODEC ...]
 *
 * CODEC: "bq8", "bq4:stochastic=on,seed=1"; without any, those of the list below. --mib: elements,
 * 256 MiB by default, more than any cache. In each round each codec is measured beside a copy and a
 * read; the median of the rounds' shares is printed, and the least and the largest, so that a burst
 * of other work on the machine falls on both sides or out.
 */
#include "compress/codec.h"
#include "compress/kernels.h"
#include "core/err.h"
#include "kernels/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 101
#define SPECS_MAX 64

static const char *const texts[] = {
    "bf16",
    "bf16:stochastic=on,seed=1",
    "fp16",
    "bq8",
    "bq8:stochastic=on,seed=1",
    "bq8:rotated=on",
    "bq4",
    "bq4:stochastic=on,seed=1",
    "bq4:rotated=on",
    "bq2",
    "sign",
    "e4m3",
    "e5m2",
    "mxfp8",
    "mxfp4",
    "nvfp4",
    "e3m0",
    "bf16:dtype=bf16",
    "bq8:dtype=bf16",
    "bq4:dtype=bf16",
    "sign:dtype=bf16",
    "topk:k=4",
    "topk:k=41",
    "randk:k=41,stochastic=on,seed=1",
    "shiq:ranks=4",
    "shiq:ranks=4,stochastic=on,seed=1",
    "sketch:k=256,rows=3,seed=1",
    "dct:k=8",
    "kmeans:k=41,bits=2",
    "e4m3:dtype=bf16",
    "mxfp4:dtype=bf16",
    "palette",
    "palette:dtype=bf16",
    "rans",
    "rans:dtype=bf16",
};

enum { ENCODE, DECODE, DECODE_ADD, MEAN, REDUCE, FEEDBACK, WORK_COUNT };
static const char *const work_names[WORK_COUNT] = {"encode", "decode", "decode_add",
                                                   "mean",   "reduce", "feedback"};
#define RANKS 4 /* whose shards are reduced */

/* Seconds of each round, and of the copy and the read beside it. */
struct row {
    struct sl_codec_spec spec;
    size_t wire_len;
    double work[WORK_COUNT][ROUNDS_MAX], copy[ROUNDS_MAX], read[ROUNDS_MAX];
};

static struct row rows[SPECS_MAX];
static unsigned row_count, rounds = 9;
static size_t count; /* elements */
static char *input, *output, *wire;
static float *residual;
static bool json;

/* Of this thread's own time: another program on the core takes none of it. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t size_of(const struct sl_codec_spec *spec)
{
    return sluice_dtype_size((enum sluice_dtype)spec->dtype);
}

/* Nothing faster reads memory: eight sums at once, vectors of them where the compiler can. */
static void read_all(const void *in, size_t len)
{
    const uint64_t *p = in;
    uint64_t sum[8] = {0};

    for (size_t i = 0; i + 8 <= len / 8; i += 8)
        for (unsigned j = 0; j < 8; j++)
            sum[j] += p[i + j];
    for (unsigned j = 1; j < 8; j++)
        sum[0] += sum[j];
    __asm__ volatile("" ::"r"(sum[0]));
}

/* Values like a gradient's: about normal, their scale changing along the way. */
static void fill(unsigned dtype)
{
    static int filled = -1;
    uint64_t x = 88172645463325252;

    if (filled == (int)dtype)
        return;
    filled = (int)dtype;
    for (size_t i = 0; i < count; i++) {
        float sum = 0, scale = 1.0f / (float)(1 + (i >> 12) % 64);
        uint32_t bits;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        for (unsigned j = 0; j < 4; j++)
            sum += (float)(x >> j * 16 & 0xffff) - 32767.5f;
        sum *= scale * 1e-5f;
        memcpy(&bits, &sum, sizeof(bits));
        if (dtype == SLUICE_F32)
            memcpy(input + i * 4, &bits, 4);
        else /* of f16, numbers between 2^-8 and 2 of either sign */
            bits = dtype == SLUICE_BF16 ? bits >> 16 : (uint32_t)(x & 0x8fff) + 0x1c00;
        if (dtype != SLUICE_F32)
            memcpy(input + i * 2, &bits, 2);
    }
}

/* Decodes, adds up and encodes the shards of RANKS ranks: the quarters of the message. */
static int reduce(const struct row *row)
{
    const struct sl_codec *codec = sl_codec_by_id(row->spec.id);
    const struct sl_codec_at at = {0};
    size_t shard = count / RANKS / SL_TILE * SL_TILE, len = codec->size(&row->spec, shard), out_len;
    const void *in[RANKS];

    for (unsigned w = 0; w < RANKS; w++)
        in[w] = wire + w * len;
    return sl_codec_reduce(&row->spec, &at, in, RANKS, len, 1.0f / RANKS, &row->spec, &at, shard,
                           output, &out_len);
}

static double run(const struct row *row, unsigned work)
{
    const struct sl_codec *codec = sl_codec_by_id(row->spec.id);
    const struct sl_codec_at at = {0};
    double start = now();
    int err = 0;

    if (work == ENCODE)
        codec->encode(&row->spec, &at, input, count, wire);
    else if (work == DECODE)
        err = codec->decode(&row->spec, &at, wire, row->wire_len, count, output);
    else if (work == DECODE_ADD)
        err = codec->decode_add(&row->spec, &at, wire, row->wire_len, count, residual);
    else if (work == MEAN)
        err = sl_codec_decode_mean(&row->spec, &at, wire, row->wire_len, count, 0.25f, residual);
    else if (work == REDUCE)
        err = reduce(row);
    else
        sl_codec_encode_feedback(&row->spec, &at, input, residual, count, wire);
    sl_assert(err == 0);
    return now() - start;
}

static bool has(const struct row *row, unsigned work)
{
    return work < MEAN || (sl_codec_by_id(row->spec.id)->flags & SL_CODEC_FIXED) != 0;
}

/* The fastest of the copies that there are. */
static double copy_all(void *out, const void *in, size_t len)
{
    const struct sl_kernels *kernels;
    double best = 0;
    int err = sl_kernels_select(SL_KERNEL_AUTO, &kernels);

    sl_assert(err == 0);
    for (unsigned i = 0; i < 3; i++) {
        double start = now(), took;

        if (i == 0)
            memcpy(out, in, len);
        else if (i == 1)
            kernels->copy(out, in, len);
        else
            kernels->copy_stream(out, in, len);
        took = now() - start;
        best = i == 0 || took < best ? took : best;
    }
    return best;
}

static void measure(struct row *row, unsigned round)
{
    const struct sl_codec *codec = sl_codec_by_id(row->spec.id);
    const struct sl_codec_at at = {0};
    size_t len = count * size_of(&row->spec);
    double start;

    fill(row->spec.dtype);
    row->wire_len = codec->encode(&row->spec, &at, input, count, wire); /* warms up, too */
    row->copy[round] = copy_all(output, input, len);
    for (unsigned w = 0; w < WORK_COUNT; w++)
        if (has(row, w))
            row->work[w][round] = run(row, w);
    start = now();
    read_all(input, len);
    row->read[round] = now() - start;
    memset(residual, 0, count * sizeof(float));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct spread {
    double median, least, most;
};

/* Of a/b in each round; b NULL: of 1/a times scale. */
static struct spread spread(const double *a, const double *b, double scale)
{
    double x[ROUNDS_MAX];

    for (unsigned i = 0; i < rounds; i++)
        x[i] = (b != NULL ? b[i] : scale) / a[i];
    qsort(x, rounds, sizeof(x[0]), by_value);
    return (struct spread){x[rounds / 2], x[0], x[rounds - 1]};
}

static void print_row(const struct row *row, bool last)
{
    double bytes = (double)count * (double)size_of(&row->spec) * 1e-9;
    struct spread copy = spread(row->copy, NULL, bytes), read = spread(row->read, NULL, bytes);
    char text[128];

    sl_codec_print(&row->spec, text, sizeof(text));
    if (json)
        printf("  {\"codec\": \"%s\", \"wire\": %.4f, \"copy\": %.2f, \"read\": %.2f", text,
               (double)row->wire_len / ((double)count * (double)size_of(&row->spec)), copy.median,
               read.median);
    else
        printf("%-26s  wire %.4f  copy %.1f  read %.1f GB/s\n", text,
               (double)row->wire_len / ((double)count * (double)size_of(&row->spec)), copy.median,
               read.median);
    for (unsigned w = 0; w < WORK_COUNT; w++) {
        struct spread speed, of_copy, of_read;

        if (!has(row, w))
            continue;
        speed = spread(row->work[w], NULL, bytes);
        of_copy = spread(row->work[w], row->copy, 0);
        of_read = spread(row->work[w], row->read, 0);
        if (json)
            printf(", \"%s\": {\"gbps\": %.2f, \"of_copy\": %.3f, \"of_read\": %.3f}",
                   work_names[w], speed.median, of_copy.median, of_read.median);
        else
            printf("    %-10s %6.2f GB/s  of copy %.2f (%.2f to %.2f)  of read %.2f (%.2f to "
                   "%.2f)\n",
                   work_names[w], speed.median, of_copy.median, of_copy.least, of_copy.most,
                   of_read.median, of_read.least, of_read.most);
    }
    if (json)
        printf("}%s\n", last ? "" : ",");
    fflush(stdout);
}

static int add_row(const char *text)
{
    int err = row_count < SPECS_MAX ? sl_codec_parse(text, &rows[row_count].spec) : 0;

    row_count += err == 0 && row_count < SPECS_MAX;
    return err;
}

static void make_memory(size_t mib)
{
    size_t len = mib << 20;

    count = len / sizeof(float);
    input = aligned_alloc(4096, len);
    output = aligned_alloc(4096, len);
    wire = aligned_alloc(4096, len + len / 4);
    residual = aligned_alloc(4096, len);
    sl_assert(input != NULL && output != NULL && wire != NULL && residual != NULL);
    memset(input, 1, len);
    memset(output, 1, len);
    memset(wire, 1, len + len / 4);
    memset(residual, 0, len);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_compress [--json] [--kernels c|avx2|avx512] [--mib N] "
                    "[--rounds N] [CODEC ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    size_t mib = 256;

    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        int err = 0;

        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--kernels") == 0 && more)
            err = sl_codec_kernels_force(argv[++i]);
        else if (strcmp(argv[i], "--mib") == 0 && more)
            mib = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0 && more)
            rounds = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (argv[i][0] == '-')
            return usage();
        else
            err = add_row(argv[i]);
        if (err != 0) {
            fprintf(stderr, "bench_compress: %s\n", sluice_last_error());
            return 2;
        }
    }
    if (mib < 1 || mib > 65536 || rounds < 1 || rounds > ROUNDS_MAX)
        return usage();
    if (row_count == 0)
        for (size_t i = 0; i < SL_ARRAY_LEN(texts); i++)
            add_row(texts[i]);
    make_memory(mib);
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned r = 0; r < row_count; r++)
            measure(&rows[r], round);
    if (json)
        printf("{\"kernels\": \"%s\", \"mib\": %zu, \"rounds\": %u, \"rows\": [\n",
               sl_codec_kernels()->name, mib, rounds);
    else
        printf("%s kernels, %zu MiB of elements, medians of %u rounds (least to most)\n",
               sl_codec_kernels()->name, mib, rounds);
    for (unsigned r = 0; r < row_count; r++)
        print_row(&rows[r], r + 1 == row_count);
    if (json)
        printf("]}\n");
    return 0;
}
