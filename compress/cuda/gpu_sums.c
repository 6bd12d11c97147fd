/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the kernels of sums. */
#include "compress/cuda/gpu_sums.h"

#include "compress/cuda/args.h"
#include "compress/cuda/gpu.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <stdlib.h>

enum { SCALE, NARROW_BF16, NARROW_F16, KERNELS };

struct sl_gpu_sums {
    const struct sl_cuda *cuda;
    void *module;
    void *kernels[KERNELS];
};

static int load(struct sl_gpu_sums *sums, const void *image)
{
    static const char *const names[KERNELS] = {"sl_sums_scale", "sl_sums_narrow_bf16",
                                               "sl_sums_narrow_f16"};
    int result = sums->cuda->cuModuleLoadData(&sums->module, image);

    if (result != SL_CUDA_SUCCESS) {
        sums->module = NULL;
        return sl_cuda_fail(sums->cuda, -EIO, "cuModuleLoadData", result);
    }
    for (unsigned k = 0; k < KERNELS; k++) {
        result = sums->cuda->cuModuleGetFunction(&sums->kernels[k], sums->module, names[k]);
        if (result != SL_CUDA_SUCCESS)
            return sl_cuda_fail(sums->cuda, -EIO, "cuModuleGetFunction", result);
    }
    return 0;
}

int sl_gpu_sums_create(struct sl_gpu_sums **out)
{
    const struct sl_gpu_image *image = sl_gpu_image_find("sums");
    struct sl_gpu_sums *sums;
    const struct sl_cuda *cuda;
    int err = sl_cuda_get(&cuda);

    if (err == 0 && image == NULL)
        err = sl_fail(-ENOTSUP, "this build has no kernels for a GPU");
    if (err != 0)
        return err;
    sums = calloc(1, sizeof(*sums));
    if (sums == NULL)
        return sl_fail(-ENOMEM, "there is no memory for a table of kernels");
    sums->cuda = cuda;
    err = load(sums, image->bytes);
    if (err != 0) {
        sl_gpu_sums_destroy(sums);
        return err;
    }
    *out = sums;
    return 0;
}

void sl_gpu_sums_destroy(struct sl_gpu_sums *sums)
{
    if (sums == NULL)
        return;
    if (sums->module != NULL)
        (void)sums->cuda->cuModuleUnload(sums->module);
    free(sums);
}

static int launch(const struct sl_gpu_sums *sums, unsigned kernel, struct sl_gpu_args *args,
                  void *stream)
{
    uint64_t tiles = (args->count + SL_GPU_TILE - 1) / SL_GPU_TILE;
    void *params[] = {args};
    int result;

    if (tiles == 0)
        return 0;
    if (tiles > INT32_MAX)
        return sl_fail(-EINVAL, "%llu sums are too many for one kernel",
                       (unsigned long long)args->count);
    result = sums->cuda->cuLaunchKernel(sums->kernels[kernel], (unsigned)tiles, 1, 1,
                                        SL_GPU_THREADS, 1, 1, 0, stream, params, NULL);
    return result == SL_CUDA_SUCCESS ? 0 : sl_cuda_fail(sums->cuda, -EIO, "cuLaunchKernel", result);
}

int sl_gpu_sums_scale(const struct sl_gpu_sums *sums, float *sum, size_t count, float factor,
                      void *stream)
{
    struct sl_gpu_args args = {.out = sum, .count = count, .factor = factor};

    return launch(sums, SCALE, &args, stream);
}

int sl_gpu_sums_narrow(const struct sl_gpu_sums *sums, enum sluice_dtype dtype, const float *sum,
                       size_t count, void *out, void *stream)
{
    struct sl_gpu_args args = {.in = sum, .out = out, .count = count};

    if ((uintptr_t)out % sizeof(uint16_t) != 0)
        return sl_fail(-EINVAL, "elements of %s at %p are not aligned", sluice_dtype_name(dtype),
                       out);
    return launch(sums, dtype == SLUICE_BF16 ? NARROW_BF16 : NARROW_F16, &args, stream);
}
