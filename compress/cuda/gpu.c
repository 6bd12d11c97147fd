/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the kernels of codecs through the driver, and starts them. */
#include "compress/cuda/gpu.h"

#include "compress/cuda/args.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SL_GPU_TILE == SL_TILE && SL_GPU_REDUCE_MOST == SL_GPU_RANKS_MOST, "said twice");

enum { F32, BF16, F16, DTYPES };

/* By what a kernel does; RANDOM after the ones that round to nearest. */
enum {
    ENCODE = 0,
    ENCODE_RANDOM = ENCODE + DTYPES,
    FEEDBACK = ENCODE_RANDOM + DTYPES,
    FEEDBACK_RANDOM = FEEDBACK + DTYPES,
    DECODE = FEEDBACK_RANDOM + DTYPES,
    DECODE_ADD = DECODE + DTYPES,
    REDUCE,
    REDUCE_RANDOM,
    KERNELS
};

static const char *const kernel_names[KERNELS] = {"encode_f32",
                                                  "encode_bf16",
                                                  "encode_f16",
                                                  "encode_f32_random",
                                                  "encode_bf16_random",
                                                  "encode_f16_random",
                                                  "feedback_f32",
                                                  "feedback_bf16",
                                                  "feedback_f16",
                                                  "feedback_f32_random",
                                                  "feedback_bf16_random",
                                                  "feedback_f16_random",
                                                  "decode_f32",
                                                  "decode_bf16",
                                                  "decode_f16",
                                                  "decode_add",
                                                  "reduce",
                                                  "reduce_random"};

struct sl_gpu_codecs {
    const struct sl_cuda *cuda;
    struct {
        void *module;
        void *kernels[KERNELS]; /* NULL: the codec has no such thing */
    } of[SL_CODEC_ID_COUNT];
};

const struct sl_gpu_image *sl_gpu_image_find(const char *name)
{
    for (const struct sl_gpu_image *i = sl_gpu_images; i->codec != NULL; i++)
        if (strcmp(i->codec, name) == 0)
            return i;
    return NULL;
}

static const struct sl_gpu_image *image_of(unsigned id)
{
    const struct sl_codec *codec = sl_codec_by_id(id);

    /* These have launches of their own: gpu_topk.h, gpu_palette.h. */
    return codec == NULL || id == SL_CODEC_TOPK || id == SL_CODEC_PALETTE
               ? NULL
               : sl_gpu_image_find(codec->name);
}

bool sl_gpu_codecs_have(unsigned id)
{
    return image_of(id) != NULL;
}

int sl_gpu_codecs_create(struct sl_gpu_codecs **out)
{
    const struct sl_cuda *cuda;
    struct sl_gpu_codecs *codecs;
    int err = sl_cuda_get(&cuda);

    if (err != 0)
        return err;
    codecs = calloc(1, sizeof(*codecs));
    if (codecs == NULL)
        return sl_fail(-ENOMEM, "there is no memory for the table of a GPU's codecs");
    codecs->cuda = cuda;
    *out = codecs;
    return 0;
}

void sl_gpu_codecs_destroy(struct sl_gpu_codecs *codecs)
{
    if (codecs == NULL)
        return;
    for (unsigned i = 0; i < SL_CODEC_ID_COUNT; i++)
        if (codecs->of[i].module != NULL)
            (void)codecs->cuda->cuModuleUnload(codecs->of[i].module);
    free(codecs);
}

int sl_gpu_codecs_load(struct sl_gpu_codecs *codecs, unsigned id)
{
    const struct sl_gpu_image *image = image_of(id);
    char name[64];
    int result;

    if (image == NULL)
        return sl_fail(-ENOTSUP, "this build has no kernels for a GPU of codec number %u", id);
    if (codecs->of[id].module != NULL)
        return 0;
    result = codecs->cuda->cuModuleLoadData(&codecs->of[id].module, image->bytes);
    if (result != SL_CUDA_SUCCESS) {
        codecs->of[id].module = NULL;
        return sl_cuda_fail(codecs->cuda, -EIO, "cuModuleLoadData", result);
    }
    for (unsigned k = 0; k < KERNELS; k++) {
        snprintf(name, sizeof(name), "sl_%s_%s", image->codec, kernel_names[k]);
        result = codecs->cuda->cuModuleGetFunction(&codecs->of[id].kernels[k],
                                                   codecs->of[id].module, name);
        if (result == SL_CUDA_ERROR_NOT_FOUND)
            codecs->of[id].kernels[k] = NULL;
        else if (result != SL_CUDA_SUCCESS)
            return sl_cuda_fail(codecs->cuda, -EIO, "cuModuleGetFunction", result);
    }
    return 0;
}

/* ---- launches ---- */

static bool is_random(const struct sl_codec_spec *spec)
{
    return (spec->flags & SL_SPEC_STOCHASTIC) != 0;
}

static unsigned dtype_of(const struct sl_codec_spec *spec)
{
    return spec->dtype == SLUICE_F32 ? F32 : spec->dtype == SLUICE_BF16 ? BF16 : F16;
}

static bool is_aligned(const void *at, size_t to)
{
    return ((uintptr_t)at & (to - 1)) == 0;
}

static size_t elem_of(const struct sl_codec_spec *spec)
{
    return spec->dtype == SLUICE_F32 ? 4 : 2;
}

static int check(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                 unsigned kernel)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);

    if (codec == NULL || !sl_gpu_codecs_have(spec->id))
        return sl_fail(-ENOTSUP, "this build has no kernels for a GPU of codec number %u",
                       spec->id);
    if (codecs->of[spec->id].module == NULL)
        return sl_fail(-EINVAL, "the kernels of codec %s were not loaded", codec->name);
    if (codecs->of[spec->id].kernels[kernel] == NULL || (spec->flags & SL_SPEC_ROTATED) != 0)
        return sl_fail(-ENOTSUP, "codec %s has no kernel %s%s", codec->name, kernel_names[kernel],
                       (spec->flags & SL_SPEC_ROTATED) != 0 ? " with rotation" : "");
    return 0;
}

static int check_len(const struct sl_codec_spec *spec, size_t len, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t size = count <= SL_CODEC_COUNT_MOST ? codec->size(spec, count) : 0;

    if (count > SL_CODEC_COUNT_MOST || len != size)
        return sl_fail(-EBADMSG, "a %s message of %zu elements has %zu bytes, not %zu", codec->name,
                       count, size, len);
    return 0;
}

static int launch(const struct sl_gpu_codecs *codecs, unsigned id, unsigned kernel,
                  struct sl_gpu_args *args, void *stream)
{
    void *params[] = {args};
    size_t tiles = (args->count + SL_TILE - 1) / SL_TILE;
    int result;

    if (tiles == 0)
        return 0;
    if (tiles > INT32_MAX)
        return sl_fail(-EINVAL, "a message of %llu elements is too long for one kernel",
                       (unsigned long long)args->count);
    result = codecs->cuda->cuLaunchKernel(codecs->of[id].kernels[kernel], (unsigned)tiles, 1, 1,
                                          SL_GPU_THREADS, 1, 1, 0, stream, params, NULL);
    return result == SL_CUDA_SUCCESS ? 0
                                     : sl_cuda_fail(codecs->cuda, -EIO, "cuLaunchKernel", result);
}

static struct sl_gpu_args args_of(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                                  const void *in, size_t count, void *out)
{
    struct sl_gpu_args args = {.in = in, .out = out, .count = count, .seed = spec->seed};

    if (at != NULL) {
        args.first = at->first;
        args.stream = at->stream;
        args.step = at->step;
    }
    return args;
}

int sl_gpu_encode(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const struct sl_codec_at *at, const void *in, size_t count, void *out,
                  void *stream)
{
    unsigned kernel = (is_random(spec) ? ENCODE_RANDOM : ENCODE) + dtype_of(spec);
    struct sl_gpu_args args = args_of(spec, at, in, count, out);
    int err = check(codecs, spec, kernel);

    if (err != 0)
        return err;
    if (!is_aligned(in, elem_of(spec)) || !is_aligned(out, 16))
        return sl_fail(-EINVAL, "elements at %p and their code at %p are not aligned", in, out);
    return launch(codecs, spec->id, kernel, &args, stream);
}

int sl_gpu_encode_feedback(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                           const struct sl_codec_at *at, const void *in, float *residual,
                           size_t count, void *out, void *stream)
{
    unsigned kernel = (is_random(spec) ? FEEDBACK_RANDOM : FEEDBACK) + dtype_of(spec);
    struct sl_gpu_args args = args_of(spec, at, in, count, out);
    int err = check(codecs, spec, kernel);

    if (err != 0)
        return err;
    if (!is_aligned(in, elem_of(spec)) || !is_aligned(out, 16) || !is_aligned(residual, 4))
        return sl_fail(-EINVAL, "elements at %p, residuals at %p or code at %p are not aligned", in,
                       (void *)residual, out);
    args.residual = residual;
    return launch(codecs, spec->id, kernel, &args, stream);
}

int sl_gpu_decode(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const void *in, size_t len, size_t count, void *out, void *stream)
{
    unsigned kernel = DECODE + dtype_of(spec);
    struct sl_gpu_args args = args_of(spec, NULL, in, count, out);
    int err = check(codecs, spec, kernel);

    if (err == 0)
        err = check_len(spec, len, count);
    if (err != 0)
        return err;
    if (!is_aligned(in, 16) || !is_aligned(out, elem_of(spec)))
        return sl_fail(-EINVAL, "code at %p and its elements at %p are not aligned", in, out);
    return launch(codecs, spec->id, kernel, &args, stream);
}

int sl_gpu_decode_add(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                      const void *in, size_t len, size_t count, float *sum, void *stream)
{
    struct sl_gpu_args args = args_of(spec, NULL, in, count, sum);
    int err = check(codecs, spec, DECODE_ADD);

    if (err == 0)
        err = check_len(spec, len, count);
    if (err != 0)
        return err;
    if (!is_aligned(in, 16) || !is_aligned(sum, 4))
        return sl_fail(-EINVAL, "code at %p and sums at %p are not aligned", in, (void *)sum);
    return launch(codecs, spec->id, DECODE_ADD, &args, stream);
}

int sl_gpu_reduce(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const struct sl_codec_at *at, const void *const *in, unsigned ranks, size_t len,
                  float factor, size_t count, void *out, void *stream)
{
    unsigned kernel = is_random(spec) ? REDUCE_RANDOM : REDUCE;
    struct sl_gpu_args args = args_of(spec, at, NULL, count, out);
    bool aligned = is_aligned(out, 16);
    int err = check(codecs, spec, kernel);

    if (err == 0)
        err = check_len(spec, len, count);
    if (err != 0)
        return err;
    if (ranks == 0 || ranks > SL_GPU_RANKS_MOST)
        return sl_fail(-EINVAL, "a kernel reduces 1 to %u messages, not %u", SL_GPU_RANKS_MOST,
                       ranks);
    for (unsigned w = 0; w < ranks; w++) {
        aligned = aligned && is_aligned(in[w], 16);
        args.ranks_in[w] = in[w];
    }
    if (!aligned)
        return sl_fail(-EINVAL, "messages to reduce are aligned to 16 bytes");
    args.ranks = ranks;
    args.factor = factor;
    return launch(codecs, spec->id, kernel, &args, stream);
}
