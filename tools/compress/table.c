/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-compress table: from which link rate and message size each codec pays on this machine.
 *
 * With a link of B bytes per second, a codec that leaves the part w of the bytes, and encodes and
 * decodes E and D of them per second, a byte takes 1/E + w/B + 1/D when each step waits for the one
 * before, and the largest of the three when pieces of a message overlap; raw it takes 1/B. Small
 * messages are measured, not computed: they pay for the calls.
 */
#include "tools/compress/tool.h"

#include "core/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMALLEST                                                                                   \
    ((size_t)1 << 10) /* bytes of the smallest message; each next one has 4 times more */
#define SIZES 16
#define RUNS_MAX 41
#define RUN_SECONDS 0.04

/* Where the text does not say: all codecs as they are by default, and these. */
static const char *const more[] = {"palette:dtype=bf16", "rans:dtype=bf16"};

struct buffers {
    float *floats;
    void *in, *encoded, *out;
};

struct line {
    char name[96];
    struct sl_codec_spec spec;
    double wire, encode, decode; /* of the largest message; bytes of elements per second */
    size_t sizes, bytes[SIZES];
    double seconds[SIZES]; /* encoding and decoding */
    double sent[SIZES];    /* bytes */
};

/* Of this thread's own time: another program on the core takes none of it. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The middle one of several runs. */
static double median(double *runs, unsigned n)
{
    qsort(runs, n, sizeof(runs[0]), by_value);
    return runs[n / 2];
}

static int measure(const struct sl_codec_spec *spec, const struct buffers *b, size_t count,
                   double *encode, double *decode, double *sent)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    const struct sl_codec_at at = {0};
    double encodes[RUNS_MAX], decodes[RUNS_MAX], begin = now();
    unsigned n = 0;

    while (n < RUNS_MAX && (n < 3 || now() - begin < RUN_SECONDS)) {
        double start = now(), middle;
        size_t len = codec->encode(spec, &at, b->in, count, b->encoded);
        int err;

        middle = now();
        err = codec->decode(spec, &at, b->encoded, len, count, b->out);
        if (err != 0)
            return err;
        decodes[n] = now() - middle;
        encodes[n++] = middle - start;
        *sent = (double)len;
    }
    *encode = median(encodes, n);
    *decode = median(decodes, n);
    return 0;
}

static double measure_copy(const struct buffers *b, size_t bytes)
{
    double runs[RUNS_MAX];

    for (unsigned i = 0; i < 9; i++) {
        double start = now();

        memcpy(b->out, b->floats, bytes);
        __asm__ volatile("" ::"r"(b->out) : "memory");
        runs[i] = now() - start;
    }
    return (double)bytes / median(runs, 9);
}

/* Normally distributed, as gradients nearly are; the scale changes along the way. */
static void fill_floats(float *out, size_t count)
{
    enum { KINDS = 1 << 16 };
    uint64_t x = 88172645463325252;

    for (size_t i = 0; i < count && i < KINDS; i++) {
        double u, v;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        u = (double)((x >> 32) + 1) * 0x1p-32;
        v = (double)(x & 0xffffffff) * 0x1p-32;
        out[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v)) * 0x1p-7f;
    }
    for (size_t i = KINDS; i < count; i++)
        out[i] = out[i % KINDS] / (float)(1 + i / KINDS % 5);
}

static bool make_line(const char *text, struct line *out)
{
    *out = (struct line){0};
    if (sl_codec_parse(text, &out->spec) != 0)
        return false;
    sl_codec_print(&out->spec, out->name, sizeof(out->name));
    return true;
}

/* The input in the type of the codec comes from a codec, too: it rounds f32. */
static int fill_input(const struct sl_codec_spec *spec, const struct buffers *b, size_t count)
{
    const char *cast = spec->dtype == SLUICE_BF16  ? "bf16"
                       : spec->dtype == SLUICE_F16 ? "fp16"
                                                   : "raw";
    const struct sl_codec_at at = {0};
    struct sl_codec_spec by;
    int err = sl_codec_parse(cast, &by);

    if (err == 0)
        sl_codec_by_id(by.id)->encode(&by, &at, b->floats, count, b->in);
    return err;
}

static int measure_line(struct line *line, const struct buffers *b, size_t most)
{
    size_t width = sluice_dtype_size((enum sluice_dtype)line->spec.dtype);
    double encode = 1, decode = 1;
    int err = fill_input(&line->spec, b, most / width);

    for (size_t bytes = SMALLEST; err == 0 && line->sizes < SIZES; bytes *= 4) {
        size_t n = line->sizes++;

        bytes = bytes < most ? bytes : most;
        line->bytes[n] = bytes;
        err = measure(&line->spec, b, bytes / width, &encode, &decode, &line->sent[n]);
        line->seconds[n] = encode + decode;
        if (bytes == most)
            break;
    }
    line->wire = line->sent[line->sizes - 1] / (double)line->bytes[line->sizes - 1];
    line->encode = (double)line->bytes[line->sizes - 1] / encode;
    line->decode = (double)line->bytes[line->sizes - 1] / decode;
    return err;
}

/* ---- what follows from it ---- */

/* Link rate below which a codec pays, when steps wait for each other, or overlap. 0: never. */
static double pays_below(const struct line *line, bool overlapped)
{
    if (line->wire >= 1)
        return 0;
    return overlapped ? fmin(line->encode, line->decode)
                      : (1 - line->wire) / (1 / line->encode + 1 / line->decode);
}

/* The least of the measured sizes from which on it pays. 0: none. */
static size_t pays_from(const struct line *line, double link)
{
    size_t from = 0;

    for (size_t n = line->sizes; n-- > 0;) {
        if (line->seconds[n] + line->sent[n] / link >= (double)line->bytes[n] / link)
            break;
        from = line->bytes[n];
    }
    return from;
}

/* How many times less time a large message takes. */
static double gain(const struct line *line, double link, bool overlapped)
{
    double wire = line->wire / link, encode = 1 / line->encode, decode = 1 / line->decode;

    return 1 / link / (overlapped ? fmax(wire, fmax(encode, decode)) : wire + encode + decode);
}

static void print_head(const struct tool_options *options, double copy)
{
    printf("One core of this machine: copies %.1f GB/s; messages of %zu MiB. Link: %g Gbit/s.\n"
           "serial: steps wait for each other; overlap: pieces of a message overlap.\n\n",
           copy * 1e-9, options->bytes >> 20, options->link_bytes_per_second * 8e-9);
    printf("%-22s %6s %7s %7s   %-16s  %s\n", "", "wire", "encode", "decode", "pays below Gbit/s",
           "at that link");
    printf("%-22s %6s %7s %7s   %8s %8s  %9s %7s %7s\n", "codec", "part", "GB/s", "GB/s", "serial",
           "overlap", "pays from", "serial", "overlap");
}

static void print_size(size_t bytes)
{
    if (bytes == 0)
        printf("  %9s", "never");
    else if (bytes >= 1 << 20)
        printf("  %5zu MiB", bytes >> 20);
    else
        printf("  %5zu KiB", bytes >> 10);
}

static void print_line(const struct line *line, double link)
{
    printf("%-22s %6.4f %7.2f %7.2f   %8.1f %8.1f", line->name, line->wire, line->encode * 1e-9,
           line->decode * 1e-9, pays_below(line, false) * 8e-9, pays_below(line, true) * 8e-9);
    print_size(pays_from(line, link));
    printf(" %6.2fx %6.2fx\n", gain(line, link, false), gain(line, link, true));
}

static void print_json_line(const struct line *line, double link, bool first)
{
    size_t from = pays_from(line, link);

    printf("%s\n  {\"codec\": \"%s\", \"wire\": %.6g, \"encode_bytes_per_second\": %.6g, "
           "\"decode_bytes_per_second\": %.6g, \"pays_below_serial\": %.6g, "
           "\"pays_below_overlapped\": %.6g, \"gain_serial\": %.6g, \"gain_overlapped\": %.6g, ",
           first ? "" : ",", line->name, line->wire, line->encode, line->decode,
           pays_below(line, false), pays_below(line, true), gain(line, link, false),
           gain(line, link, true));
    printf(from > 0 ? "\"pays_from_bytes\": %zu}" : "\"pays_from_bytes\": null}", from);
}

/* ---- the command ---- */

static int buffers_init(struct buffers *b, size_t bytes)
{
    /* No codec here makes more of its input than some tables and a half. */
    size_t most = bytes + bytes / 2 + (1 << 16);

    b->floats = aligned_alloc(64, 2 * bytes); /* as many as elements of 16 bits */
    b->in = aligned_alloc(64, bytes);
    b->encoded = aligned_alloc(64, (most + 63) / 64 * 64);
    b->out = aligned_alloc(64, bytes);
    if (b->floats == NULL || b->in == NULL || b->encoded == NULL || b->out == NULL)
        return sl_fail(-ENOMEM, "there is no memory for messages of %zu MiB", bytes >> 20);
    fill_floats(b->floats, bytes / 2);
    memset(b->in, 0, bytes);
    memset(b->encoded, 0, most);
    memset(b->out, 0, bytes);
    return 0;
}

static void buffers_fini(struct buffers *b)
{
    free(b->floats);
    free(b->in);
    free(b->encoded);
    free(b->out);
}

/* The idx-th text to measure; NULL: no more. */
static const char *text_of(const struct tool_options *options, unsigned idx)
{
    unsigned rows = 0;

    if (options->codec_count > 0)
        return idx < options->codec_count ? options->codecs[idx] : NULL;
    while (sl_codec_row(rows) != NULL)
        rows++;
    if (idx < rows)
        return sl_codec_row(idx)->name;
    return idx - rows < SL_ARRAY_LEN(more) ? more[idx - rows] : NULL;
}

static int measure_all(const struct tool_options *options, const struct buffers *b)
{
    double link = options->link_bytes_per_second, copy = measure_copy(b, options->bytes);
    bool first = true;
    int err = 0;

    if (options->json)
        printf("{\"link_bytes_per_second\": %.6g, \"copy_bytes_per_second\": %.6g, "
               "\"message_bytes\": %zu, \"codecs\": [",
               link, copy, options->bytes);
    else
        print_head(options, copy);
    for (unsigned i = 0; err == 0 && text_of(options, i) != NULL; i++) {
        struct line line;

        if (!make_line(text_of(options, i), &line)) {
            if (options->codec_count > 0)
                err = -EINVAL;
            continue; /* one that needs a parameter: it is measured when it is named */
        }
        if (line.spec.id == SL_CODEC_RAW)
            continue;
        if (sl_codec_by_id(line.spec.id)->size(&line.spec, options->bytes / 4) >
            options->bytes + options->bytes / 2 + (1 << 16))
            continue;
        err = measure_line(&line, b, options->bytes);
        if (err == 0 && options->json)
            print_json_line(&line, link, first);
        else if (err == 0)
            print_line(&line, link);
        fflush(stdout);
        first = false;
    }
    if (options->json)
        printf("\n]}\n");
    return err;
}

int tool_table(const struct tool_options *options)
{
    struct buffers b = {0};
    int err = buffers_init(&b, options->bytes);

    for (unsigned i = 0; err == 0 && i < options->codec_count; i++) {
        struct line line;

        if (!make_line(options->codecs[i], &line))
            err = -EINVAL;
    }
    if (err == 0)
        err = measure_all(options, &b);
    buffers_fini(&b);
    return err != 0 ? tool_complain() : TOOL_DONE;
}
