/* SPDX-License-Identifier: Apache-2.0 */
/* Takes and gives back what a codec on a GPU works in. */
#include "compress/cuda/gpu_memory.h"

#include "core/err.h"
#include "gdr/cuda_dl.h"
#include "gdr/gpu.h"

#include <string.h>

int sl_gpu_take(const struct sl_cuda *cuda, void *context, size_t len, void **out)
{
    struct sl_gpu_visit visit;
    sl_cu_ptr at = 0;
    int err = sl_gpu_enter(cuda, context, &visit), result;

    if (err != 0)
        return err;
    result = cuda->cuMemAlloc_v2(&at, len);
    sl_gpu_leave(&visit);
    if (result != SL_CUDA_SUCCESS) {
        sl_cuda_fail(cuda, -ENOMEM, "cuMemAlloc", result);
        return sl_fail(-ENOMEM, "no memory on the GPU for %zu bytes: %s", len, sluice_last_error());
    }
    *out = (void *)(uintptr_t)at;
    return 0;
}

int sl_gpu_take_pinned(const struct sl_cuda *cuda, void *context, size_t len, void **out)
{
    struct sl_gpu_visit visit;
    void *made = NULL;
    int err = sl_gpu_enter(cuda, context, &visit), result;

    if (err != 0)
        return err;
    result = cuda->cuMemHostAlloc(&made, len, SL_CU_MEMHOSTALLOC_PORTABLE);
    sl_gpu_leave(&visit);
    if (result != SL_CUDA_SUCCESS) {
        sl_cuda_fail(cuda, -ENOMEM, "cuMemHostAlloc", result);
        return sl_fail(-ENOMEM, "no pinned memory for %zu bytes: %s", len, sluice_last_error());
    }
    memset(made, 0, len);
    *out = made;
    return 0;
}

void sl_gpu_give(const struct sl_cuda *cuda, void *context, void *memory)
{
    struct sl_gpu_visit visit;

    if (memory == NULL || sl_gpu_enter(cuda, context, &visit) != 0)
        return;
    (void)cuda->cuMemFree_v2((uintptr_t)memory);
    sl_gpu_leave(&visit);
}

void sl_gpu_give_pinned(const struct sl_cuda *cuda, void *context, void *memory)
{
    struct sl_gpu_visit visit;

    if (memory == NULL || sl_gpu_enter(cuda, context, &visit) != 0)
        return;
    (void)cuda->cuMemFreeHost(memory);
    sl_gpu_leave(&visit);
}
