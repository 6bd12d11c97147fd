/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the kernels of lossless messages. */
#include "compress/cuda/gpu_palette.h"

#include "compress/codec.h"
#include "compress/cuda/args.h"
#include "compress/cuda/gpu.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <stdlib.h>

#define HEAD 16  /* bytes of each tile */
#define GROUP 64 /* elements that a message is filled up to */

enum { ENCODE, ADD = 3, DECODE = 6, KERNELS = 9 };

struct sl_gpu_palette {
    const struct sl_cuda *cuda;
    void *module;
    void *kernels[KERNELS];
};

int sl_gpu_palette_create(struct sl_gpu_palette **out)
{
    static const char *const names[KERNELS] = {
        "sl_palette_encode_f32", "sl_palette_encode_bf16", "sl_palette_encode_f16",
        "sl_palette_add_f32",    "sl_palette_add_bf16",    "sl_palette_add_f16",
        "sl_palette_decode_f32", "sl_palette_decode_bf16", "sl_palette_decode_f16"};
    const struct sl_gpu_image *image = sl_gpu_image_find("palette");
    struct sl_gpu_palette *palette;
    const struct sl_cuda *cuda;
    int err = sl_cuda_get(&cuda), result;

    if (err == 0 && image == NULL)
        err = sl_fail(-ENOTSUP, "this build has no kernels for a GPU of codec palette");
    if (err != 0)
        return err;
    palette = calloc(1, sizeof(*palette));
    if (palette == NULL)
        return sl_fail(-ENOMEM, "there is no memory for a table of kernels");
    palette->cuda = cuda;
    result = cuda->cuModuleLoadData(&palette->module, image->bytes);
    if (result != SL_CUDA_SUCCESS) {
        free(palette);
        return sl_cuda_fail(cuda, -EIO, "cuModuleLoadData", result);
    }
    for (unsigned k = 0; k < KERNELS; k++) {
        result = cuda->cuModuleGetFunction(&palette->kernels[k], palette->module, names[k]);
        if (result != SL_CUDA_SUCCESS) {
            sl_gpu_palette_destroy(palette);
            return sl_cuda_fail(cuda, -EIO, "cuModuleGetFunction", result);
        }
    }
    *out = palette;
    return 0;
}

void sl_gpu_palette_destroy(struct sl_gpu_palette *palette)
{
    if (palette == NULL)
        return;
    (void)palette->cuda->cuModuleUnload(palette->module);
    free(palette);
}

static size_t tiles_of(size_t count)
{
    return count == 0 ? 1 : (count + SL_TILE - 1) / SL_TILE;
}

size_t sl_gpu_palette_work_size(size_t count)
{
    return 16 + tiles_of(count) * 16; /* of each a status, and how much is before it */
}

static int check(unsigned dtype, const void *elements, size_t count, const void *bytes,
                 const void *work)
{
    size_t elem = dtype == SLUICE_F32 ? 4 : 2;

    if (dtype != SLUICE_F32 && dtype != SLUICE_BF16 && dtype != SLUICE_F16)
        return sl_fail(-EINVAL, "codec palette takes f32, bf16 and f16, not type %u", dtype);
    if (tiles_of(count) > INT32_MAX)
        return sl_fail(-EINVAL, "a message of %zu elements is too long for one kernel", count);
    if ((uintptr_t)elements % elem != 0 || (uintptr_t)bytes % 16 != 0 || (uintptr_t)work % 16 != 0)
        return sl_fail(-EINVAL, "elements at %p and their code at %p are not aligned", elements,
                       bytes);
    return 0;
}

static int launch(const struct sl_gpu_palette *palette, unsigned kernel, unsigned dtype,
                  struct sl_gpu_args *args, void *stream)
{
    void *params[] = {args};
    size_t tiles = tiles_of(args->count);
    size_t blocks = kernel == ADD ? (tiles + SL_GPU_THREADS - 1) / SL_GPU_THREADS : tiles;
    unsigned of = dtype == SLUICE_F32 ? 0 : dtype == SLUICE_BF16 ? 1 : 2;
    int result = palette->cuda->cuLaunchKernel(palette->kernels[kernel + of], (unsigned)blocks, 1,
                                               1, SL_GPU_THREADS, 1, 1, 0, stream, params, NULL);

    return result == SL_CUDA_SUCCESS ? 0
                                     : sl_cuda_fail(palette->cuda, -EIO, "cuLaunchKernel", result);
}

int sl_gpu_palette_encode(const struct sl_gpu_palette *palette, unsigned dtype, const void *in,
                          size_t count, void *out, unsigned long long *len, void *work,
                          void *stream)
{
    struct sl_gpu_args args = {
        .in = in, .out = out, .count = count, .work = work, .palette = {.len = len}};
    int err = check(dtype, in, count, out, work);

    return err == 0 ? launch(palette, ENCODE, dtype, &args, stream) : err;
}

/* What every message of so many elements has at least. */
static size_t least(unsigned dtype, size_t count)
{
    size_t n = (count + GROUP - 1) / GROUP * GROUP;
    size_t raw = dtype == SLUICE_F32 ? 3 * n : dtype == SLUICE_BF16 ? n : n + 3 * (n / 8);

    return raw + (count + SL_TILE - 1) / SL_TILE * HEAD;
}

int sl_gpu_palette_decode(const struct sl_gpu_palette *palette, unsigned dtype, const void *in,
                          size_t len, size_t count, void *out, uint32_t *error, void *work,
                          void *stream)
{
    struct sl_gpu_args args = {.in = in,
                               .out = out,
                               .count = count,
                               .work = work,
                               .palette = {.error = error, .in_len = len}};
    int err = check(dtype, out, count, in, work);

    if (err == 0 && (len < least(dtype, count) || (count == 0 && len > 0)))
        err = sl_fail(-EBADMSG, "a palette message of %zu elements has %zu bytes, not %zu or more",
                      count, len, least(dtype, count));
    if (err == 0 && count > 0)
        err = launch(palette, ADD, dtype, &args, stream);
    return err == 0 && count > 0 ? launch(palette, DECODE, dtype, &args, stream) : err;
}
