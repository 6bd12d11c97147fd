/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of tests/hw: calls of the driver that the library itself does not make are looked up
 * here. */
#include "tests/hw/hw_gpu.h"

#include "core/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*mem_alloc)(sl_cu_ptr *, size_t);
static int (*copy_in)(sl_cu_ptr, const void *, size_t);
static int (*copy_out)(void *, sl_cu_ptr, size_t);
static int (*copy_on)(sl_cu_ptr, sl_cu_ptr, size_t, void *);
static int (*fill)(sl_cu_ptr, unsigned char, size_t, void *);
static int (*stream_wait)(void *);
static int (*event_wait)(void *);
static int (*event_ms)(float *, void *, void *);
static void *events[2];

static void need(const struct sl_cuda *cuda, const char *call, int result)
{
    if (result == SL_CUDA_SUCCESS)
        return;
    sl_cuda_fail(cuda, -EIO, call, result);
    printf("%s\n", sluice_last_error());
    exit(1);
}

static void skip(const char *why)
{
    printf("%s\n", why);
    exit(77);
}

static void find(const char *name, void *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW),
         *function = library == NULL ? NULL : dlsym(library, name);

    if (function == NULL)
        skip(dlerror());
    memcpy(out, &function, sizeof(function));
}

void hw_gpu_open(struct hw_gpu *gpu)
{
    int device = 0, result;
    void *context = NULL;

    if (sl_cuda_get(&gpu->cuda) != 0)
        skip(sluice_last_error());
    result = gpu->cuda->cuInit(0);
    if (result != SL_CUDA_SUCCESS || gpu->cuda->cuDeviceGet(&device, 0) != SL_CUDA_SUCCESS) {
        sl_cuda_fail(gpu->cuda, -ENODEV, "cuInit", result);
        skip(sluice_last_error());
    }
    find("cuMemAlloc_v2", &mem_alloc);
    find("cuMemcpyHtoD_v2", &copy_in);
    find("cuMemcpyDtoH_v2", &copy_out);
    find("cuMemcpyDtoDAsync_v2", &copy_on);
    find("cuMemsetD8Async", &fill);
    find("cuStreamSynchronize", &stream_wait);
    find("cuEventSynchronize", &event_wait);
    find("cuEventElapsedTime", &event_ms);
    need(gpu->cuda, "cuDevicePrimaryCtxRetain",
         gpu->cuda->cuDevicePrimaryCtxRetain(&context, device));
    need(gpu->cuda, "cuCtxPushCurrent", gpu->cuda->cuCtxPushCurrent_v2(context));
    need(gpu->cuda, "cuStreamCreate",
         gpu->cuda->cuStreamCreate(&gpu->stream, SL_CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 2; i++)
        need(gpu->cuda, "cuEventCreate", gpu->cuda->cuEventCreate(&events[i], 0));
    (void)gpu->cuda->cuDeviceGetName(gpu->name, sizeof(gpu->name), device);
}

void *hw_gpu_alloc(size_t len)
{
    sl_cu_ptr at = 0;

    return mem_alloc(&at, len) == SL_CUDA_SUCCESS ? (void *)(uintptr_t)at : NULL;
}

void hw_gpu_put(const struct hw_gpu *gpu, void *to, const void *from, size_t len)
{
    hw_gpu_wait(gpu);
    if (len > 0)
        need(gpu->cuda, "cuMemcpyHtoD", copy_in((uintptr_t)to, from, len));
    /* It returns when the driver has taken the bytes. Streams that do not wait for the default one,
     * as this one, would find some that are not there yet. */
    need(gpu->cuda, "cuStreamSynchronize", stream_wait(NULL));
}

void hw_gpu_get(const struct hw_gpu *gpu, void *to, const void *from, size_t len)
{
    hw_gpu_wait(gpu);
    if (len > 0)
        need(gpu->cuda, "cuMemcpyDtoH", copy_out(to, (uintptr_t)from, len));
}

void hw_gpu_copy(const struct hw_gpu *gpu, void *to, const void *from, size_t len)
{
    need(gpu->cuda, "cuMemcpyDtoDAsync", copy_on((uintptr_t)to, (uintptr_t)from, len, gpu->stream));
}

void hw_gpu_fill(const struct hw_gpu *gpu, void *at, uint8_t byte, size_t len)
{
    need(gpu->cuda, "cuMemsetD8Async", fill((uintptr_t)at, byte, len, gpu->stream));
}

void hw_gpu_wait(const struct hw_gpu *gpu)
{
    need(gpu->cuda, "cuStreamSynchronize", stream_wait(gpu->stream));
}

void hw_gpu_start(const struct hw_gpu *gpu)
{
    need(gpu->cuda, "cuEventRecord", gpu->cuda->cuEventRecord(events[0], gpu->stream));
}

double hw_gpu_stop_us(const struct hw_gpu *gpu)
{
    float ms = 0;

    need(gpu->cuda, "cuEventRecord", gpu->cuda->cuEventRecord(events[1], gpu->stream));
    need(gpu->cuda, "cuEventSynchronize", event_wait(events[1]));
    need(gpu->cuda, "cuEventElapsedTime", event_ms(&ms, events[0], events[1]));
    return (double)ms * 1000;
}
