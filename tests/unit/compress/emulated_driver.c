/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/compress/emulated_driver.h"

#include "compress/cuda/emulated.h"
#include "compress/cuda/gpu.h"
#include "gdr/cuda_dl.h"

#include <string.h>

#define INVALID_VALUE 1
#define INVALID_IMAGE 200

struct emulated_driver emulated_driver;

static int load_data(void **module, const void *image)
{
    static char the_module;

    if (strcmp(image, "emulated") != 0)
        return INVALID_IMAGE;
    *module = &the_module;
    emulated_driver.loaded++;
    return SL_CUDA_SUCCESS;
}

static int get_function(void **function, void *module, const char *name)
{
    sl_emu_kernel kernel = sl_emu_find(name);

    (void)module;
    memcpy(function, &kernel, sizeof(kernel));
    return kernel == NULL ? SL_CUDA_ERROR_NOT_FOUND : SL_CUDA_SUCCESS;
}

static int unload(void *module)
{
    (void)module;
    emulated_driver.loaded--;
    return SL_CUDA_SUCCESS;
}

static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **params, void **extra)
{
    sl_emu_kernel kernel;

    (void)stream;
    if (grid_y * grid_z * block_y * block_z != 1 || shared != 0 || extra != NULL)
        return INVALID_VALUE;
    emulated_driver.launches++;
    if (emulated_driver.launch_result != 0)
        return emulated_driver.launch_result;
    memcpy(&kernel, &function, sizeof(kernel));
    sl_emu_run(kernel, grid_x, block_x, params[0]);
    return SL_CUDA_SUCCESS;
}

static int error_name(int result, const char **out)
{
    *out = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
    return *out == NULL;
}

static const struct sl_cuda driver = {
    .cuGetErrorName = error_name,
    .cuGetErrorString = error_name,
    .cuModuleLoadData = load_data,
    .cuModuleGetFunction = get_function,
    .cuModuleUnload = unload,
    .cuLaunchKernel = launch,
};

/* In the place of what nvcc makes. */
#define IMAGE(name)                                                                                \
    {                                                                                              \
#name, "emulated"                                                                          \
    }
const struct sl_gpu_image sl_gpu_images[] = {
    IMAGE(bf16), IMAGE(fp16),    IMAGE(bq8),   IMAGE(bq4),   IMAGE(bq2),  IMAGE(e4m3),
    IMAGE(e5m2), IMAGE(mxfp8),   IMAGE(mxfp4), IMAGE(nvfp4), IMAGE(e3m0), IMAGE(sign),
    IMAGE(topk), IMAGE(palette), IMAGE(sums),  {0}};

void emulated_driver_use(void)
{
    sl_cuda_replace(&driver);
}

const struct sl_cuda *emulated_driver_table(void)
{
    return &driver;
}
