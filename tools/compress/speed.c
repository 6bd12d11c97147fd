/* SPDX-License-Identifier: Apache-2.0 */
/* Measures codecs on this machine, over one large message. */
#include "tools/compress/speed.h"

#include "compress/work.h"
#include "core/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS_MAX 41
#define RUN_SECONDS 0.1
#define UNIT_BYTES ((size_t)128 << 10) /* as the engine measures it */
#define UNITS 32

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

/* The input in the type of the codec comes from a codec, too: it rounds f32. */
static int fill_input(const struct sl_codec_spec *spec, const struct speed_buffers *b, size_t count)
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

int speed_measure(const struct speed_buffers *b, const struct sl_codec_spec *spec,
                  struct speed *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t count = b->bytes / sluice_dtype_size((enum sluice_dtype)spec->dtype), len = 0;
    const struct sl_codec_at at = {0};
    double encodes[RUNS_MAX], decodes[RUNS_MAX], adds[RUNS_MAX], begin = now();
    int err = fill_input(spec, b, count);
    unsigned n = 0;

    while (err == 0 && n < RUNS_MAX && (n < 3 || now() - begin < RUN_SECONDS)) {
        double t0 = now();

        len = codec->encode(spec, &at, b->in, count, b->encoded);
        double t1 = now();

        err = codec->decode(spec, &at, b->encoded, len, count, b->out);
        double t2 = now();

        err = err ?: codec->decode_add(spec, &at, b->encoded, len, count, b->sum);
        encodes[n] = t1 - t0;
        decodes[n] = t2 - t1;
        adds[n++] = now() - t2;
    }
    if (err != 0)
        return err;
    *out = (struct speed){.encode = (double)b->bytes / median(encodes, n),
                          .decode = (double)b->bytes / median(decodes, n),
                          .add = (double)b->bytes / median(adds, n),
                          .wire = (double)len / (double)b->bytes};
    return 0;
}

double speed_of_copy(const struct speed_buffers *b)
{
    double least = HUGE_VAL;

    for (unsigned i = 0; i < UNITS; i++) {
        double start = now();

        memcpy(b->out, b->floats, UNIT_BYTES);
        __asm__ volatile("" ::"r"(b->out) : "memory");
        least = fmin(least, now() - start);
    }
    return least / UNIT_BYTES;
}

double speed_of_unit(const struct speed_buffers *b)
{
    double least = HUGE_VAL;

    for (unsigned i = 0; i < UNITS; i++) {
        double start = now();

        sl_codec_work_unit(b->floats, UNIT_BYTES, b->encoded);
        least = fmin(least, now() - start);
    }
    return least / UNIT_BYTES;
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

/* No codec here makes more of its input than some tables and a half. */
static size_t room(const struct speed_buffers *b)
{
    return b->bytes + b->bytes / 2 + (1 << 16);
}

int speed_init(struct speed_buffers *b, size_t bytes)
{
    b->bytes = bytes;
    b->floats = aligned_alloc(64, 2 * bytes);
    b->sum = aligned_alloc(64, 2 * bytes);
    b->in = aligned_alloc(64, bytes);
    b->encoded = aligned_alloc(64, (room(b) + 63) / 64 * 64);
    b->out = aligned_alloc(64, bytes);
    if (b->floats == NULL || b->sum == NULL || b->in == NULL || b->encoded == NULL ||
        b->out == NULL)
        return sl_fail(-ENOMEM, "there is no memory for messages of %zu MiB", bytes >> 20);
    fill_floats(b->floats, bytes / 2);
    memset(b->sum, 0, 2 * bytes);
    memset(b->in, 0, bytes);
    memset(b->encoded, 0, room(b));
    memset(b->out, 0, bytes);
    return 0;
}

void speed_fini(struct speed_buffers *b)
{
    free(b->floats);
    free(b->sum);
    free(b->in);
    free(b->encoded);
    free(b->out);
}

bool speed_fits(const struct speed_buffers *b, const struct sl_codec_spec *spec)
{
    size_t count = b->bytes / sluice_dtype_size((enum sluice_dtype)spec->dtype);

    return sl_codec_by_id(spec->id)->size(spec, count) <= room(b);
}
