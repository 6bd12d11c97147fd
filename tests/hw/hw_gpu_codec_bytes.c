/* SPDX-License-Identifier: Apache-2.0 */
/* Are the bytes of the GPU's kernels those of the CPU? Over lengths, types and inputs that break
 * what is careless; what lies behind a message must stay as it was. */
#include "tests/hw/hw_gpu_codec.h"

#include "core/err.h"
#include "tests/unit/compress/cuda_inputs.h"

#include <stdlib.h>
#include <string.h>

#define LARGE ((size_t)(1 << 20) + 4097) /* elements */
#define ROOM (LARGE * 4 + 4096)
#define BEHIND 256
#define RANKS 3
#define TOLD_MOST 40

static const struct hw_gpu *gpu;
static struct sl_gpu_codecs *codecs;
static const struct sl_codec_at place = {.first = 5 * (uint64_t)SL_TILE, .stream = 3, .step = 9};
/* Of the GPU, and of the host. */
static char *g_in, *g_code[RANKS], *g_out, *g_floats;
static char *in, *code[RANKS], *out, *floats, *got;
static unsigned compared, failed;

static bool is_nan(const char *at)
{
    float x;

    memcpy(&x, at, sizeof(x));
    return x != x;
}

/* Of any payload where sums made them. */
static bool same_nans(const char *a, const char *b)
{
    return is_nan(a) && is_nan(b);
}

/* want: len bytes, then 0xa5. */
static void compare(const struct sl_codec_spec *spec, const char *what, size_t count,
                    const char *g_bytes, const char *want, size_t len, bool sums)
{
    hw_gpu_get(gpu, got, g_bytes, len + BEHIND);
    compared++;
    for (size_t i = 0; i < len + BEHIND; i++) {
        uint8_t expected = i < len ? (uint8_t)want[i] : 0xa5;

        if ((uint8_t)got[i] == expected ||
            (sums && i < len && same_nans(got + i / 4 * 4, want + i / 4 * 4)))
            continue;
        if (failed++ < TOLD_MOST)
            printf("%s %s of %zu elements, dtype %u, flags %u: byte %zu of %zu is 0x%02x, not "
                   "0x%02x\n",
                   sl_codec_by_id(spec->id)->name, what, count, spec->dtype, spec->flags, i, len,
                   (uint8_t)got[i], expected);
        return;
    }
}

static void need(int err, const struct sl_codec_spec *spec, const char *what)
{
    if (err == 0)
        return;
    printf("%s %s: %s\n", sl_codec_by_id(spec->id)->name, what, sluice_last_error());
    exit(1);
}

static void clear(char *g_bytes, size_t len)
{
    hw_gpu_fill(gpu, g_bytes, 0xa5, len + BEHIND);
}

static void encode_and_decode(const struct sl_codec_spec *spec, const char *g_from,
                              const char *from, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t len = codec->size(spec, count), bytes = count * (spec->dtype == SLUICE_F32 ? 4 : 2);

    codec->encode(spec, &place, from, count, code[0]);
    clear(g_code[0], len);
    need(sl_gpu_encode(codecs, spec, &place, g_from, count, g_code[0], gpu->stream), spec,
         "encode");
    compare(spec, "encoded", count, g_code[0], code[0], len, false);
    hw_gpu_put(gpu, g_code[0], code[0], len);
    need(codec->decode(spec, &place, code[0], len, count, out), spec, "decode here");
    clear(g_out, bytes);
    need(sl_gpu_decode(codecs, spec, g_code[0], len, count, g_out, gpu->stream), spec, "decode");
    compare(spec, "decoded", count, g_out, out, bytes, false);
    for (size_t i = 0; i < count; i++)
        ((float *)(void *)floats)[i] = (float)(i % 100) / 7 - 3;
    clear(g_floats, count * 4);
    hw_gpu_put(gpu, g_floats, floats, count * 4);
    need(codec->decode_add(spec, &place, code[0], len, count, (float *)(void *)floats), spec,
         "add here");
    need(sl_gpu_decode_add(codecs, spec, g_code[0], len, count, (float *)(void *)g_floats,
                           gpu->stream),
         spec, "add");
    compare(spec, "added", count, g_floats, floats, count * 4, true);
}

static void with_feedback(const struct sl_codec_spec *spec, const char *g_from, const char *from,
                          size_t count)
{
    size_t len = sl_codec_by_id(spec->id)->size(spec, count);

    for (size_t i = 0; i < count; i++)
        ((float *)(void *)floats)[i] = (float)(i % 31) / 64 - 0.25f;
    clear(g_floats, count * 4);
    hw_gpu_put(gpu, g_floats, floats, count * 4);
    clear(g_code[0], len);
    sl_codec_encode_feedback(spec, &place, from, (float *)(void *)floats, count, code[0]);
    need(sl_gpu_encode_feedback(codecs, spec, &place, g_from, (float *)(void *)g_floats, count,
                                g_code[0], gpu->stream),
         spec, "feedback");
    compare(spec, "encoded with feedback", count, g_code[0], code[0], len, false);
    compare(spec, "residual", count, g_floats, floats, count * 4, false);
}

static void reduced(const struct sl_codec_spec *spec, const char *from, size_t count)
{
    size_t len = sl_codec_by_id(spec->id)->size(spec, count), out_len;
    struct sl_codec_at at = place;

    for (unsigned w = 0; w < RANKS; w++) {
        at.stream = 100 + w;
        sl_codec_by_id(spec->id)->encode(spec, &at, from, count, code[w]);
        hw_gpu_put(gpu, g_code[w], code[w], len);
    }
    need(sl_codec_reduce(spec, &place, (const void *const *)code, RANKS, len, 1.0f / 3, spec,
                         &place, count, out, &out_len),
         spec, "reduce here");
    clear(g_out, len);
    need(sl_gpu_reduce(codecs, spec, &place, (const void *const *)g_code, RANKS, len, 1.0f / 3,
                       count, g_out, gpu->stream),
         spec, "reduce");
    compare(spec, "reduced", count, g_out, out, len, false);
}

static void all_of(const struct sl_codec_spec *spec, unsigned kind, size_t count, unsigned seed)
{
    /* Now and then where no vector can be loaded. */
    size_t elem = spec->dtype == SLUICE_F32 ? 4 : 2, shift = seed % 3 == 2 ? elem : 0;

    inputs_fill(kind, spec->dtype, count, seed, in + shift);
    hw_gpu_put(gpu, g_in + shift, in + shift, count * elem);
    encode_and_decode(spec, g_in + shift, in + shift, count);
    with_feedback(spec, g_in + shift, in + shift, count);
    reduced(spec, in + shift, count);
}

static char *host(size_t len)
{
    char *at = aligned_alloc(64, (len + 63) / 64 * 64);

    if (at == NULL)
        exit(1);
    memset(at, 0, len);
    return at;
}

static char *device(size_t len)
{
    char *at = hw_gpu_alloc(len);

    if (at == NULL) {
        printf("the GPU has not %zu bytes of memory left\n", len);
        exit(77);
    }
    return at;
}

unsigned hw_codec_bytes(const struct hw_gpu *on, struct sl_gpu_codecs *of)
{
    static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    static const size_t counts[] = {
        0, 1, 3, 16, 33, 127, 128, 129, 1025, 4095, 4096, 4097, 3 * SL_TILE + 1};
    unsigned seed = 0;

    gpu = on;
    codecs = of;
    g_in = device(ROOM), g_out = device(ROOM), g_floats = device(ROOM);
    in = host(ROOM), out = host(ROOM), floats = host(ROOM), got = host(ROOM);
    for (unsigned w = 0; w < RANKS; w++)
        g_code[w] = device(ROOM), code[w] = host(ROOM);
    for (unsigned t = 0; t < HW_TRIALS; t++)
        for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++) {
            struct sl_codec_spec spec;

            hw_spec(codecs, &hw_trials[t], dtypes[d], &spec);
            /* Seen before the codec runs, should it end this program. */
            if (d == 0) {
                printf("%s%s ", hw_trials[t].codec, hw_trials[t].flags != 0 ? "/rnd" : "");
                fflush(stdout);
            }
            for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
                all_of(&spec, (t + d + c) % INPUT_COUNT, counts[c], ++seed);
            for (unsigned kind = 0; kind < INPUT_COUNT; kind++)
                all_of(&spec, kind, 2 * SL_TILE + 100, ++seed);
            if (d == 0)
                all_of(&spec, t % 2 == 0 ? INPUT_NORMAL : INPUT_BITS, LARGE, 3 * ++seed);
        }
    printf("\nbytes: %u comparisons with the CPU, %u failed\n", compared, failed);
    return failed;
}
