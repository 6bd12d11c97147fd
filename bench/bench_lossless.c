/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lossless codecs beside zstd, lz4 and zfp, on one core: what is left of the bytes, and gigabytes
 * of elements per second, encoded and decoded.
 *
 * usage: bench_lossless [--mib N] [--rounds N] [bf16|f32 FILE]
 *
 * Without a file: normally distributed numbers, and a gradient's stand-in, of which a third is 0.
 * All take turns in each round, beside a copy; the medians are printed. Of this thread's own time.
 */
#include "compress/codecs.h"
#include "compress/elements.h"
#include "compress/lossless.h"
#include "core/err.h"

#include <lz4.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zfp.h>
#include <zstd.h>

#define ROUNDS_MAX 51

static size_t bytes = (size_t)128 << 20, encoded_cap;
static unsigned rounds = 5, dtype;
static char *input, *encoded, *output;
static uint8_t *exponents; /* of split_zstd */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t elements(void)
{
    return bytes / sl_lossless_width(dtype);
}

/* ---- the contestants: encode() returns bytes, decode() takes them; 0: not for this type ---- */

static size_t copy_encode(int level)
{
    memcpy(encoded, input, bytes);
    return bytes;
}

static void copy_decode(size_t len)
{
    memcpy(output, encoded, bytes);
}

static size_t codec_encode(int id)
{
    struct sl_codec_spec spec = {.id = (uint8_t)id, .dtype = (uint8_t)dtype};
    struct sl_codec_at at = {0};

    return sl_codec_by_id(spec.id)->encode(&spec, &at, input, elements(), encoded);
}

static void codec_decode(unsigned id, size_t len)
{
    struct sl_codec_spec spec = {.id = (uint8_t)id, .dtype = (uint8_t)dtype};
    struct sl_codec_at at = {0};

    sl_assert(sl_codec_by_id(id)->decode(&spec, &at, encoded, len, elements(), output) == 0);
}

static void palette_decode(size_t len)
{
    codec_decode(SL_CODEC_PALETTE, len);
}

static void rans_decode(size_t len)
{
    codec_decode(SL_CODEC_RANS, len);
}

static size_t zstd_encode(int level)
{
    size_t len = ZSTD_compress(encoded, encoded_cap, input, bytes, level);

    sl_assert(!ZSTD_isError(len));
    return len;
}

static void zstd_decode(size_t len)
{
    sl_assert(ZSTD_decompress(output, bytes, encoded, len) == bytes);
}

static size_t lz4_encode(int level)
{
    int len = LZ4_compress_fast(input, encoded, (int)bytes, (int)encoded_cap, level);

    sl_assert(len > 0);
    return (size_t)len;
}

static void lz4_decode(size_t len)
{
    sl_assert(LZ4_decompress_safe(encoded, output, (int)len, (int)bytes) == (int)bytes);
}

/* Without a loss ("reversible"), f32 alone: in one dimension, as a bucket of gradients has. */
static size_t zfp_run(char *elems, bool decode)
{
    zfp_field *field = zfp_field_1d(elems, zfp_type_float, elements());
    bitstream *bits = stream_open(encoded, encoded_cap);
    zfp_stream *zfp = zfp_stream_open(bits);
    size_t len;

    zfp_stream_set_reversible(zfp);
    zfp_stream_rewind(zfp);
    len = decode ? zfp_decompress(zfp, field) : zfp_compress(zfp, field);
    sl_assert(len > 0);
    zfp_stream_close(zfp);
    stream_close(bits);
    zfp_field_free(field);
    return len;
}

static size_t zfp_encode(int level)
{
    return dtype == SLUICE_F32 ? zfp_run(input, false) : 0;
}

static void zfp_decode(size_t len)
{
    zfp_run(output, true);
}

/* Our split, and zstd for the exponents: Huffman codes of them, about what ZipNN does. */
static size_t split_zstd_encode(int level)
{
    size_t raw = sl_lossless_raw_bytes(dtype, elements()), len;

    for (size_t i = 0; i < elements(); i += SL_TILE)
        sl_lossless_path()->split(dtype, input + i * sl_lossless_width(dtype), SL_TILE,
                                  (uint8_t *)encoded + sl_lossless_raw_bytes(dtype, i),
                                  exponents + i, true);
    len = ZSTD_compress(encoded + raw, encoded_cap - raw, exponents, elements(), level);
    sl_assert(!ZSTD_isError(len));
    return raw + len;
}

static void split_zstd_decode(size_t len)
{
    size_t raw = sl_lossless_raw_bytes(dtype, elements());

    sl_assert(ZSTD_decompress(exponents, elements(), encoded + raw, len - raw) == elements());
    for (size_t i = 0; i < elements(); i += SL_TILE)
        sl_lossless_path()->join(dtype, (const uint8_t *)encoded + sl_lossless_raw_bytes(dtype, i),
                                 exponents + i, SL_TILE, output + i * sl_lossless_width(dtype),
                                 true);
}

static struct contestant {
    const char *name;
    size_t (*encode)(int level);
    void (*decode)(size_t len);
    int level;
    size_t len;
    double encodes[ROUNDS_MAX], decodes[ROUNDS_MAX];
} contestants[] = {
    {"copy", copy_encode, copy_decode, 0},
    {"palette", codec_encode, palette_decode, SL_CODEC_PALETTE},
    {"rans", codec_encode, rans_decode, SL_CODEC_RANS},
    {"split + zstd -1", split_zstd_encode, split_zstd_decode, 1},
    {"zstd -1", zstd_encode, zstd_decode, 1},
    {"zstd -3", zstd_encode, zstd_decode, 3},
    {"lz4", lz4_encode, lz4_decode, 1},
    {"zfp reversible", zfp_encode, zfp_decode, 0},
};

/* ---- measuring ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double rate(double *seconds)
{
    qsort(seconds, rounds, sizeof(seconds[0]), by_value);
    return (double)bytes / seconds[rounds / 2] * 1e-9;
}

static void measure(struct contestant *c, unsigned round)
{
    double start = now(), middle;

    c->len = c->encode(c->level);
    middle = now();
    c->encodes[round] = middle - start;
    if (c->len == 0)
        return;
    memset(output, 0x55, bytes);
    start = now();
    c->decode(c->len);
    c->decodes[round] = now() - start;
    sl_assert(memcmp(input, output, bytes) == 0);
}

static void measure_all(const char *what)
{
    for (unsigned round = 0; round < rounds; round++)
        for (size_t i = 0; i < SL_ARRAY_LEN(contestants); i++)
            measure(&contestants[i], round);
    printf("\n%s, %zu KiB of %s\n  %-16s %7s  %11s  %11s\n", what, bytes >> 10,
           sluice_dtype_name((enum sluice_dtype)dtype), "", "part", "encode GB/s", "decode GB/s");
    for (size_t i = 0; i < SL_ARRAY_LEN(contestants); i++) {
        struct contestant *c = &contestants[i];

        if (c->len > 0)
            printf("  %-16s %7.4f  %11.2f  %11.2f\n", c->name, (double)c->len / (double)bytes,
                   rate(c->encodes), rate(c->decodes));
    }
    fflush(stdout);
}

/* ---- what is encoded ---- */

static void fill(bool zeros)
{
    uint64_t x = 88172645463325252;

    for (size_t i = 0; i < elements(); i++) {
        double u, v;
        float number;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        u = (double)((x >> 32) + 1) * 0x1p-32;
        v = (double)(x & 0xffffffff) * 0x1p-32;
        number = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
        if (zeros && x % 3 == 0)
            number = 0;
        if (dtype == SLUICE_F32)
            memcpy(input + 4 * i, &number, 4);
        uint16_t half = sl_bf16_of(number);

        if (dtype == SLUICE_BF16)
            memcpy(input + 2 * i, &half, 2);
    }
}

/* The file's beginning, or all of it, but for what is no whole tile. */
static int fill_from(const char *name)
{
    FILE *file = fopen(name, "rb");
    size_t len;

    if (file == NULL) {
        perror(name);
        return 1;
    }
    len = fread(input, 1, bytes, file) / 64 * 64;
    fclose(file);
    if (len == 0) {
        fprintf(stderr, "%s: it is too short\n", name);
        return 1;
    }
    if (len < bytes)
        bytes = len / (SL_TILE * 4) * (SL_TILE * 4);
    return 0;
}

static void *room(size_t len)
{
    void *at = aligned_alloc(64, (len + 63) / 64 * 64);

    sl_assert(at != NULL);
    memset(at, 1, len);
    return at;
}

int main(int argc, char **argv)
{
    static const unsigned dtypes[] = {SLUICE_BF16, SLUICE_F32};
    int i = 1;

    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--mib") == 0)
            bytes = (size_t)strtoul(argv[i + 1], NULL, 10) << 20;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    sl_assert(bytes >= 1 << 20 && bytes <= 1 << 30 && rounds >= 1 && rounds <= ROUNDS_MAX);
    encoded_cap = 2 * bytes + (1 << 20);
    input = room(bytes);
    encoded = room(encoded_cap);
    output = room(bytes);
    exponents = room(bytes / 2);
    if (i + 2 == argc) {
        dtype = strcmp(argv[i], "bf16") == 0 ? SLUICE_BF16 : SLUICE_F32;
        if (fill_from(argv[i + 1]) != 0)
            return 1;
        measure_all(argv[i + 1]);
        return 0;
    }
    for (unsigned t = 0; t < SL_ARRAY_LEN(dtypes); t++)
        for (unsigned zeros = 0; zeros < 2; zeros++) {
            dtype = dtypes[t];
            fill(zeros);
            measure_all(zeros ? "N(0,1), a third is 0" : "N(0,1)");
        }
    return 0;
}
