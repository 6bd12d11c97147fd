/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast codecs are on a GPU, against the bytes that they must move at the speed of a copy.
 *
 * Cold: buffers change from launch to launch, over more than 512 MiB of elements, so that no cache
 * has them. Short kernels are timed a few in a row, between two events; medians of 20.
 */
#include "tests/hw/hw_gpu_codec.h"

#include "core/err.h"
#include "tests/unit/compress/cuda_inputs.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define COLD (576 * MIB)
#define RANKS 8
#define SEEDS (16 * MIB) /* bytes of inputs that are drawn; the others are copies */

enum op { ENCODE, DECODE, DECODE_ADD, FEEDBACK, REDUCE, OPS };
static const char *const op_names[] = {"encode", "decode", "decode+add", "feedback", "reduce of 8"};

static const struct hw_gpu *gpu;
static struct sl_gpu_codecs *codecs;
static char *elements, *code, *residuals;
static size_t elements_len, code_len, residuals_len;
static double copy_gbs; /* bytes read and written each second */
static FILE *json;

static void sort(double *v, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        for (unsigned j = i; j > 0 && v[j] < v[j - 1]; j--) {
            double swap = v[j];

            v[j] = v[j - 1];
            v[j - 1] = swap;
        }
}

static void need(int err)
{
    if (err == 0)
        return;
    printf("%s\n", sluice_last_error());
    exit(1);
}

/* One shape of launch: where its buffers lie, and how many there are to change between. */
struct shape {
    struct sl_codec_spec spec;
    enum op op;
    size_t count, bytes, len; /* elements, their bytes, those of the code */
    size_t buffers;
};

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t round256(size_t len)
{
    return (len + 255) & ~(size_t)255;
}

static void shape_init(struct shape *s)
{
    size_t messages = s->op == REDUCE ? RANKS : 1;
    size_t buffers = COLD / (s->op == REDUCE ? s->len * messages : s->bytes) + 1;

    buffers = buffers < 2 ? 2 : buffers;
    if (s->op != REDUCE)
        buffers = at_most(buffers, elements_len / s->bytes);
    buffers = at_most(buffers, code_len / round256(s->len) / (messages + (s->op == REDUCE)));
    if (s->op != ENCODE && s->op != REDUCE)
        buffers = at_most(buffers, residuals_len / (s->count * 4));
    s->buffers = buffers;
}

/* Codes that an encoder made, and no residual yet. */
static void prepare(const struct shape *s)
{
    size_t messages = s->buffers * (s->op == REDUCE ? RANKS + 1 : 1);
    static const struct sl_codec_at at = {.first = 0};

    if (s->op == FEEDBACK || s->op == DECODE_ADD)
        hw_gpu_fill(gpu, residuals, 0, s->buffers * s->count * 4);
    if (s->op == ENCODE || s->op == FEEDBACK)
        return;
    for (size_t i = 0; i < messages; i++)
        need(sl_gpu_encode(codecs, &s->spec, &at, elements, s->count, code + i * round256(s->len),
                           gpu->stream));
}

static void launch(const struct shape *s, size_t number)
{
    static const struct sl_codec_at at = {.first = 0};
    size_t i = number % s->buffers, step = round256(s->len);
    char *mine = elements + i * s->bytes, *bytes = code + i * step;
    char *decoded = residuals + i * s->bytes;
    const void *in[RANKS];

    switch (s->op) {
    case ENCODE:
        need(sl_gpu_encode(codecs, &s->spec, &at, mine, s->count, bytes, gpu->stream));
        break;
    case DECODE:
        need(sl_gpu_decode(codecs, &s->spec, bytes, s->len, s->count, decoded, gpu->stream));
        break;
    case DECODE_ADD:
        need(sl_gpu_decode_add(codecs, &s->spec, bytes, s->len, s->count, (float *)(void *)decoded,
                               gpu->stream));
        break;
    case FEEDBACK:
        need(sl_gpu_encode_feedback(codecs, &s->spec, &at, mine,
                                    (float *)(void *)(residuals + i * s->count * 4), s->count,
                                    bytes, gpu->stream));
        break;
    default:
        bytes = code + i * step * (RANKS + 1);
        for (unsigned w = 0; w < RANKS; w++)
            in[w] = bytes + (w + 1) * step;
        need(sl_gpu_reduce(codecs, &s->spec, &at, in, RANKS, s->len, 1.0f / RANKS, s->count, bytes,
                           gpu->stream));
    }
}

/* What a launch reads and writes. */
static double moved(const struct shape *s)
{
    double bytes = (double)s->bytes, len = (double)s->len, floats = (double)s->count * 4;

    switch (s->op) {
    case ENCODE:
    case DECODE: return bytes + len;
    case DECODE_ADD: return 2 * floats + len;
    case FEEDBACK: return bytes + 2 * floats + len;
    default: return (RANKS + 1) * len;
    }
}

void hw_times_begin(struct hw_times *times, size_t bytes)
{
    *times = (struct hw_times){.batch = bytes >= 256 * MIB ? 1 : bytes >= 32 * MIB ? 4 : 16};
}

bool hw_times_next(struct hw_times *times, const struct hw_gpu *on)
{
    if (times->in_batch == times->batch) {
        double us = hw_gpu_stop_us(on) / times->batch;

        if (times->repeat >= HW_WARM_UP)
            times->us[times->repeat - HW_WARM_UP] = us;
        times->repeat++;
        times->in_batch = 0;
    }
    if (times->repeat == HW_REPEATS + HW_WARM_UP) {
        sort(times->us, HW_REPEATS);
        return false;
    }
    if (times->in_batch == 0)
        hw_gpu_start(on);
    times->launch += times->repeat + times->in_batch > 0;
    times->in_batch++;
    return true;
}

static void report(const char *codec, bool random, unsigned dtype, const char *op, size_t bytes,
                   double moved, const struct hw_times *times)
{
    double us = times->us[HW_REPEATS / 2], gbs = (double)bytes / us / 1e3;
    double spread = times->us[HW_REPEATS * 3 / 4] / times->us[HW_REPEATS / 4] - 1;
    const char *type = dtype == SLUICE_F32 ? "f32" : "bf16";

    printf("%-7s %-3s %-4s %-12s %3zu MiB %8.1f us %6.0f GB/s, moved %5.0f, %4.2f of copy "
           "(%.0f%%)\n",
           codec, random ? "rnd" : "", type, op, bytes / MIB, us, gbs, moved / us / 1e3,
           moved / us / 1e3 / copy_gbs, spread * 100);
    if (json != NULL)
        fprintf(json,
                "{\"gpu\": \"%s\", \"codec\": \"%s\", \"random\": %s, \"dtype\": \"%s\", "
                "\"op\": \"%s\", \"mib\": %zu, \"us\": %.2f, \"gbs\": %.1f, \"moved_gbs\": "
                "%.1f, \"of_copy\": %.4f, \"spread\": %.3f}\n",
                gpu->name, codec, random ? "true" : "false", type, op, bytes / MIB, us, gbs,
                moved / us / 1e3, moved / us / 1e3 / copy_gbs, spread);
}

static void fill(unsigned dtype)
{
    char *seeds = malloc(SEEDS);

    if (seeds == NULL)
        exit(1);
    inputs_fill(INPUT_NORMAL, dtype, SEEDS / (dtype == SLUICE_F32 ? 4 : 2), 1, seeds);
    hw_gpu_put(gpu, elements, seeds, SEEDS);
    for (size_t at = SEEDS; at < elements_len; at += SEEDS)
        hw_gpu_copy(gpu, elements + at, elements, at_most(SEEDS, elements_len - at));
    free(seeds);
}

static void measure(const struct hw_trial *trial, unsigned dtype, size_t bytes)
{
    for (unsigned op = 0; op < OPS; op++) {
        struct shape s = {.op = (enum op)op};
        struct hw_times times;

        hw_spec(codecs, trial, dtype, &s.spec);
        if (dtype != SLUICE_F32 && (op == DECODE_ADD || op == REDUCE))
            continue; /* in f32, whatever the elements are */
        s.bytes = bytes;
        s.count = s.bytes / (dtype == SLUICE_F32 ? 4 : 2);
        s.len = sl_codec_by_id(s.spec.id)->size(&s.spec, s.count);
        shape_init(&s);
        prepare(&s);
        hw_times_begin(&times, bytes);
        while (hw_times_next(&times, gpu))
            launch(&s, times.launch);
        report(trial->codec, trial->flags != 0, dtype, op_names[op], bytes, moved(&s), &times);
    }
}

/* Returns bytes read and written each second, in GB. */
static double measure_copy(size_t len)
{
    size_t buffers = elements_len / len;
    struct hw_times times;
    double gbs;

    hw_times_begin(&times, len);
    while (hw_times_next(&times, gpu))
        hw_gpu_copy(gpu, elements + (times.launch + 1) % buffers * len,
                    elements + times.launch % buffers * len, len);
    gbs = 2 * (double)len / times.us[HW_REPEATS / 2] / 1e3;
    printf("a copy of %zu MiB: %.1f us, %.0f GB/s read and written\n", len / MIB,
           times.us[HW_REPEATS / 2], gbs);
    return gbs;
}

void hw_codec_speed(const struct hw_gpu *on, struct sl_gpu_codecs *of, const char *only,
                    FILE *json_file)
{
    static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16};
    static const size_t mibs[] = {4, 64, 512};

    gpu = on;
    codecs = of;
    json = json_file;
    elements_len = 1280 * MIB;
    code_len = 5200 * MIB;
    residuals_len = 2560 * MIB;
    elements = hw_gpu_alloc(elements_len);
    code = hw_gpu_alloc(code_len);
    residuals = hw_gpu_alloc(residuals_len);
    if (elements == NULL || code == NULL || residuals == NULL) {
        printf("no speeds: the GPU has not 9 GiB of memory to spare\n");
        return;
    }
    hw_gpu_fill(gpu, code, 0, code_len);
    hw_gpu_fill(gpu, residuals, 0, residuals_len);
    for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++) {
        fill(dtypes[d]);
        if (d == 0) {
            copy_gbs = measure_copy(elements_len / 2 / 256 * 256);
            for (unsigned m = 0; m < SL_ARRAY_LEN(mibs); m++)
                (void)measure_copy(mibs[m] * MIB); /* what is lost where launches are short */
            fill(dtypes[d]);
        }
        for (unsigned m = 0; m < SL_ARRAY_LEN(mibs); m++) {
            for (unsigned t = 0; t < HW_TRIALS; t++)
                if (only == NULL || strcmp(only, hw_trials[t].codec) == 0)
                    measure(&hw_trials[t], dtypes[d], mibs[m] * MIB);
            if (only == NULL || strcmp(only, "topk") == 0)
                hw_topk_speed(gpu, elements, elements_len, residuals, dtypes[d], mibs[m] * MIB,
                              report);
            if (only == NULL || strcmp(only, "palette") == 0)
                hw_palette_speed(gpu, elements, elements_len, code, residuals, dtypes[d],
                                 mibs[m] * MIB, report);
            fflush(stdout);
        }
    }
}
