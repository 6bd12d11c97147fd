/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the kernels that find the largest elements. */
#include "compress/cuda/gpu_topk.h"

#include "compress/codec.h"
#include "compress/cuda/args.h"
#include "compress/cuda/gpu.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <stdio.h>
#include <stdlib.h>

/* Blocks that go from tile to tile: as many as a GPU of 132 processors has room for, and a few. */
#define HISTOGRAM_BLOCKS 1320
#define SELECT_BLOCKS 1056
#define SAMPLED 64 /* tiles that say where to look for the largest */
#define LONG 257   /* tiles of a message that this is worth while for */
#define LEVELS 3

enum { ABOVE, ABOVE_FEEDBACK, SAMPLE, HISTOGRAM, SELECT, KINDS };
enum { F32, BF16, F16, DTYPES };
enum { LIST_HISTOGRAM = KINDS * DTYPES, LIST_SELECT, KERNELS };

struct sl_gpu_topk {
    const struct sl_cuda *cuda;
    void *module;
    void *kernels[KERNELS];
};

static void name_of(unsigned kernel, char *out, size_t cap)
{
    static const char *const kinds[] = {"above", "above_feedback", "sample", "histogram", "select"};
    static const char *const dtypes[] = {"f32", "bf16", "f16"};

    if (kernel >= LIST_HISTOGRAM)
        snprintf(out, cap, "sl_topk_%s_list", kernel == LIST_SELECT ? "select" : "histogram");
    else
        snprintf(out, cap, "sl_topk_%s_%s", kinds[kernel / DTYPES], dtypes[kernel % DTYPES]);
}

int sl_gpu_topk_create(struct sl_gpu_topk **out)
{
    const struct sl_gpu_image *image = sl_gpu_image_find("topk");
    const struct sl_cuda *cuda;
    struct sl_gpu_topk *topk;
    char name[64];
    int err = sl_cuda_get(&cuda), result;

    if (err == 0 && image == NULL)
        err = sl_fail(-ENOTSUP, "this build has no kernels for a GPU that find the largest");
    if (err != 0)
        return err;
    topk = calloc(1, sizeof(*topk));
    if (topk == NULL)
        return sl_fail(-ENOMEM, "there is no memory for a table of kernels");
    topk->cuda = cuda;
    result = cuda->cuModuleLoadData(&topk->module, image->bytes);
    if (result != SL_CUDA_SUCCESS) {
        free(topk);
        return sl_cuda_fail(cuda, -EIO, "cuModuleLoadData", result);
    }
    for (unsigned k = 0; k < KERNELS; k++) {
        name_of(k, name, sizeof(name));
        result = cuda->cuModuleGetFunction(&topk->kernels[k], topk->module, name);
        if (result != SL_CUDA_SUCCESS) {
            sl_gpu_topk_destroy(topk);
            return sl_cuda_fail(cuda, -EIO, "cuModuleGetFunction", result);
        }
    }
    *out = topk;
    return 0;
}

void sl_gpu_topk_destroy(struct sl_gpu_topk *topk)
{
    if (topk == NULL)
        return;
    (void)topk->cuda->cuModuleUnload(topk->module);
    free(topk);
}

static size_t tiles_of(size_t count)
{
    return count == 0 ? 1 : (count + SL_TILE - 1) / SL_TILE;
}

size_t sl_gpu_topk_work_size(size_t count, uint32_t cap)
{
    size_t tiles = tiles_of(count > cap ? count : cap);

    return SL_GPU_TOPK_HEAD + tiles * 8 + (size_t)cap * 8;
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int check(unsigned dtype, const void *in, size_t count, const struct sl_gpu_topk_out *out,
                 const void *work)
{
    size_t elem = dtype == SLUICE_F32 ? 4 : 2;

    if (dtype != SLUICE_F32 && dtype != SLUICE_BF16 && dtype != SLUICE_F16)
        return sl_fail(-EINVAL, "the largest are found of f32, bf16 and f16, not of type %u",
                       dtype);
    if (count > SL_GPU_TOPK_COUNT_MOST || out->cap > SL_GPU_TOPK_COUNT_MOST)
        return sl_fail(-EINVAL, "a message of %zu elements is too long for one kernel", count);
    if ((uintptr_t)in % elem != 0 || (uintptr_t)work % 16 != 0 || (uintptr_t)out->index % 4 != 0 ||
        (uintptr_t)out->value % 4 != 0 || (uintptr_t)out->found % 4 != 0)
        return sl_fail(-EINVAL, "elements at %p or what is found in them is not aligned", in);
    return 0;
}

static int launch(const struct sl_gpu_topk *topk, unsigned kernel, size_t blocks,
                  struct sl_gpu_args *args, void *stream)
{
    void *params[] = {args};
    int result = topk->cuda->cuLaunchKernel(topk->kernels[kernel], (unsigned)blocks, 1, 1,
                                            SL_GPU_THREADS, 1, 1, 0, stream, params, NULL);

    return result == SL_CUDA_SUCCESS ? 0 : sl_cuda_fail(topk->cuda, -EIO, "cuLaunchKernel", result);
}

static struct sl_gpu_args args_of(const void *in, size_t count, const struct sl_gpu_topk_out *out,
                                  void *work)
{
    return (struct sl_gpu_args){
        .in = in,
        .count = count,
        .work = work,
        .topk = {.index = out->index, .value = out->value, .found = out->found, .cap = out->cap}};
}

static unsigned kernel_of(unsigned kind, unsigned dtype)
{
    return kind * DTYPES + (dtype == SLUICE_F32 ? F32 : dtype == SLUICE_BF16 ? BF16 : F16);
}

int sl_gpu_topk_above(const struct sl_gpu_topk *topk, unsigned dtype, const void *in,
                      float *residual, size_t count, uint32_t threshold,
                      const struct sl_gpu_topk_out *out, void *work, void *stream)
{
    unsigned kernel = kernel_of(residual == NULL ? ABOVE : ABOVE_FEEDBACK, dtype);
    struct sl_gpu_args args = args_of(in, count, out, work);
    int err = check(dtype, in, count, out, work);

    if (err == 0 && (uintptr_t)residual % 4 != 0)
        err = sl_fail(-EINVAL, "residuals at %p are not aligned", (void *)residual);
    if (err != 0)
        return err;
    args.residual = residual;
    args.topk.threshold = threshold;
    return launch(topk, kernel, at_most(tiles_of(count), SELECT_BLOCKS), &args, stream);
}

int sl_gpu_topk_exact(const struct sl_gpu_topk *topk, unsigned dtype, const void *in, size_t count,
                      size_t k, const struct sl_gpu_topk_out *out, void *work, void *stream)
{
    struct sl_gpu_args args = args_of(in, count, out, work);
    size_t tiles = tiles_of(count), list = tiles_of(out->cap), all = k < count ? k : count;
    int err = check(dtype, in, count, out, work);

    if (err == 0 && (all == 0 || out->cap < all))
        err = sl_fail(-EINVAL, "%zu of %zu elements do not fit room for %u", k, count, out->cap);
    args.topk.k = k;
    if (err == 0 && tiles >= LONG) {
        err = launch(topk, kernel_of(SAMPLE, dtype), SAMPLED, &args, stream);
        if (err == 0)
            err = launch(topk, kernel_of(HISTOGRAM, dtype), at_most(tiles, HISTOGRAM_BLOCKS), &args,
                         stream);
    }
    for (unsigned level = 0; err == 0 && level < LEVELS; level++) {
        args.topk.level = level;
        err = launch(topk, kernel_of(HISTOGRAM, dtype), at_most(tiles, HISTOGRAM_BLOCKS), &args,
                     stream);
    }
    if (err == 0)
        err = launch(topk, kernel_of(SELECT, dtype), at_most(tiles, SELECT_BLOCKS), &args, stream);
    for (unsigned level = 1; err == 0 && level < LEVELS; level++) {
        args.topk.level = level;
        err = launch(topk, LIST_HISTOGRAM, at_most(list, HISTOGRAM_BLOCKS), &args, stream);
    }
    return err == 0 ? launch(topk, LIST_SELECT, at_most(list, SELECT_BLOCKS), &args, stream) : err;
}
