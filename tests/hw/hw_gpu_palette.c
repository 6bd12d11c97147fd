/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless messages on a real GPU: against the CPU's, and against the bytes that they move. */
#include "tests/hw/hw_gpu_codec.h"

#include "compress/cuda/gpu_palette.h"
#include "core/err.h"
#include "tests/unit/compress/cuda_inputs.h"

#include <stdlib.h>
#include <string.h>

#define LARGE ((size_t)(1 << 20) + 4097) /* elements */

static const struct hw_gpu *gpu;
static struct sl_gpu_palette *palette;

static void *device(size_t len)
{
    void *at = hw_gpu_alloc(len + 16);

    if (at == NULL) {
        printf("the GPU has not %zu bytes of memory left\n", len);
        exit(77);
    }
    return at;
}

static void need(int err)
{
    if (err == 0)
        return;
    printf("palette: %s\n", sluice_last_error());
    exit(1);
}

struct buffers {
    char *in, *want, *got, *g_in, *g_code, *g_out, *g_told, *g_work;
};

static unsigned trial(const struct buffers *b, const struct sl_codec *codec, unsigned dtype,
                      unsigned kind, size_t count)
{
    const struct sl_codec_spec spec = {.id = codec->id, .dtype = (uint8_t)dtype};
    const struct sl_codec_at at = {.first = 0};
    size_t bytes = count * (dtype == SLUICE_F32 ? 4 : 2), len;
    unsigned long long told[2] = {0};
    const char *wrong = NULL;
    unsigned long long coded;

    inputs_fill(kind, dtype, count, count + kind, b->in);
    len = codec->encode(&spec, &at, b->in, count, b->want);
    hw_gpu_put(gpu, b->g_in, b->in, bytes);
    hw_gpu_fill(gpu, b->g_told, 0, sizeof(told));
    need(sl_gpu_palette_encode(palette, dtype, b->g_in, count, b->g_code,
                               (unsigned long long *)(void *)b->g_told, b->g_work, gpu->stream));
    hw_gpu_get(gpu, told, b->g_told, sizeof(told));
    hw_gpu_get(gpu, b->got, b->g_code, len);
    coded = told[0];
    if (coded != len)
        wrong = "another length";
    else if (memcmp(b->got, b->want, len) != 0)
        wrong = "other bytes";
    hw_gpu_put(gpu, b->g_code, b->want, len);
    need(sl_gpu_palette_decode(palette, dtype, b->g_code, len, count, b->g_out,
                               (uint32_t *)(void *)(b->g_told + 8), b->g_work, gpu->stream));
    hw_gpu_get(gpu, told, b->g_told, sizeof(told));
    hw_gpu_get(gpu, b->got, b->g_out, bytes);
    if (wrong == NULL && told[1] != 0)
        wrong = "a good message refused";
    else if (wrong == NULL && memcmp(b->got, b->in, bytes) != 0)
        wrong = "other elements";
    if (wrong != NULL)
        printf("palette of %zu elements, dtype %u, kind %u: %s (%llu bytes, not %zu)\n", count,
               dtype, kind, wrong, coded, len);
    return wrong != NULL;
}

unsigned hw_palette_bytes(const struct hw_gpu *on)
{
    static const unsigned dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    static const size_t counts[] = {1, 65, 4096, 4097, 100001, LARGE};
    const struct sl_codec *codec = sl_codec_by_name("palette");
    const struct sl_codec_spec spec = {.id = SL_CODEC_PALETTE, .dtype = SLUICE_F32};
    unsigned failed = 0, trials = 0;
    struct buffers b;
    size_t most;

    if (codec == NULL) {
        printf("codec palette: this build has none\n");
        return 1;
    }
    gpu = on;
    need(sl_gpu_palette_create(&palette));
    most = codec->size(&spec, LARGE);
    b = (struct buffers){malloc(LARGE * 4), malloc(most),
                         malloc(most),      device(LARGE * 4),
                         device(most),      device(LARGE * 4),
                         device(16),        device(sl_gpu_palette_work_size(LARGE))};
    if (b.in == NULL || b.want == NULL || b.got == NULL)
        exit(1);
    hw_gpu_fill(gpu, b.g_work, 0, sl_gpu_palette_work_size(LARGE));
    for (unsigned d = 0; d < SL_ARRAY_LEN(dtypes); d++)
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++)
            for (unsigned kind = 0; kind < INPUT_COUNT; kind++) {
                failed += trial(&b, codec, dtypes[d], kind, counts[c]);
                trials++;
            }
    printf("palette: %u messages as the CPU's, %u failed\n", trials, failed);
    return failed;
}

/* ---- speed ---- */

void hw_palette_speed(const struct hw_gpu *on, char *elements, size_t elements_len, char *code,
                      char *decoded, unsigned dtype, size_t bytes, hw_report *report)
{
    const size_t elem = dtype == SLUICE_F32 ? 4 : 2, count = bytes / elem, tiles = count / SL_TILE;
    const size_t most = count * (dtype == SLUICE_F32 ? 3 : 1) + tiles * 16 + count;
    const size_t buffers = elements_len / bytes;
    static char *work, *told;
    unsigned long long len = 0;
    struct hw_times times;

    gpu = on;
    if (palette == NULL)
        need(sl_gpu_palette_create(&palette));
    if (work == NULL) {
        work = device(sl_gpu_palette_work_size((size_t)1 << 28));
        told = device(16);
        hw_gpu_fill(gpu, work, 0, sl_gpu_palette_work_size((size_t)1 << 28));
    }
    hw_times_begin(&times, bytes);
    while (hw_times_next(&times, gpu)) {
        size_t i = times.launch % buffers;

        need(sl_gpu_palette_encode(palette, dtype, elements + i * bytes, count, code + i * most,
                                   (unsigned long long *)(void *)told, work, gpu->stream));
    }
    hw_gpu_get(gpu, &len, told, sizeof(len));
    report("palette", false, dtype, "encode", bytes, (double)bytes + (double)len, &times);
    /* Inputs repeat, so that all messages have the same length; those not made yet are made. */
    for (size_t i = 0; i < buffers; i++)
        need(sl_gpu_palette_encode(palette, dtype, elements, count, code + i * most,
                                   (unsigned long long *)(void *)told, work, gpu->stream));
    hw_gpu_get(gpu, &len, told, sizeof(len));
    hw_gpu_fill(gpu, told, 0, 16);
    hw_times_begin(&times, bytes);
    while (hw_times_next(&times, gpu)) {
        size_t i = times.launch % buffers;

        need(sl_gpu_palette_decode(palette, dtype, code + i * most, len, count, decoded + i * bytes,
                                   (uint32_t *)(void *)told, work, gpu->stream));
    }
    report("palette", false, dtype, "decode", bytes, (double)bytes + (double)len, &times);
    printf("palette: %.4f of the size\n", (double)len / (double)bytes);
}
