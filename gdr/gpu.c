/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: whose memory a pointer names, their contexts, and when what a NIC wrote is visible to
 * them. */
#include "gdr/gpu.h"

#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <pthread.h>
#include <stdio.h>

#define DEVICES_MAX 64

/* Primary contexts, retained at the first use of a device and kept: they are the program's own,
 * which has them anyway as long as it uses the device. */
static void *primary[DEVICES_MAX];
static const struct sl_cuda *primary_of; /* of which driver: tests play several */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static void *primary_context(const struct sl_cuda *cuda, int ordinal, int device)
{
    void *context = NULL;

    if (ordinal < 0 || ordinal >= DEVICES_MAX)
        return NULL;
    pthread_mutex_lock(&primary_lock);
    if (primary_of != cuda) {
        for (unsigned i = 0; i < DEVICES_MAX; i++)
            primary[i] = NULL;
        primary_of = cuda;
    }
    if (primary[ordinal] == NULL &&
        cuda->cuDevicePrimaryCtxRetain(&context, device) == SL_CUDA_SUCCESS)
        primary[ordinal] = context;
    context = primary[ordinal];
    pthread_mutex_unlock(&primary_lock);
    return context;
}

static int attribute(const struct sl_cuda *cuda, int device, int which, int otherwise)
{
    int value = otherwise;

    return cuda->cuDeviceGetAttribute(&value, which, device) == SL_CUDA_SUCCESS ? value : otherwise;
}

static enum sl_gpu_order order_of(const struct sl_cuda *cuda, int device)
{
    if (attribute(cuda, device, SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0) >=
        SL_CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
        return SL_GPU_ORDERED;
    if (cuda->cuFlushGPUDirectRDMAWrites != NULL &&
        (attribute(cuda, device, SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0) &
         SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0)
        return SL_GPU_FLUSH;
    return SL_GPU_UNORDERED;
}

bool sl_gpu_look(const void *addr, struct sl_gpu_memory *out)
{
    const struct sl_cuda *cuda = sl_cuda_loaded();
    sl_cu_ptr at = (uintptr_t)addr, base = 0;
    unsigned is_managed = 0;
    int type = 0, ordinal = -1, device = 0;
    void *context = NULL;
    size_t len = 0;

    if (cuda == NULL ||
        cuda->cuPointerGetAttribute(&type, SL_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) !=
            SL_CUDA_SUCCESS ||
        type != SL_CU_MEMORYTYPE_DEVICE)
        return false;
    if (out == NULL)
        return true;
    /* Unknown attributes stay 0: the code that needs one says that it is missing. */
    (void)cuda->cuPointerGetAttribute(&is_managed, SL_CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    (void)cuda->cuPointerGetAttribute(&ordinal, SL_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    (void)cuda->cuPointerGetAttribute(&context, SL_CU_POINTER_ATTRIBUTE_CONTEXT, at);
    if (cuda->cuMemGetAddressRange_v2(&base, &len, at) != SL_CUDA_SUCCESS)
        base = len = 0;
    *out = (struct sl_gpu_memory){.cuda = cuda,
                                  .base = base,
                                  .len = len,
                                  .device = ordinal,
                                  .context = context,
                                  .order = SL_GPU_UNORDERED,
                                  .is_managed = is_managed != 0};
    if (cuda->cuDeviceGet(&device, ordinal) != SL_CUDA_SUCCESS)
        return true;
    if (context == NULL)
        out->context = primary_context(cuda, ordinal, device);
    out->order = order_of(cuda, device);
    return true;
}

bool sl_gpu_address(char out[SL_GPU_ADDRESS_MAX])
{
    const struct sl_cuda *cuda = sl_cuda_loaded();
    char address[SL_GPU_ADDRESS_MAX];
    int device = 0, count = 0;

    if (cuda == NULL)
        return false;
    if (cuda->cuCtxGetDevice(&device) != SL_CUDA_SUCCESS &&
        (cuda->cuDeviceGetCount(&count) != SL_CUDA_SUCCESS || count != 1 ||
         cuda->cuDeviceGet(&device, 0) != SL_CUDA_SUCCESS))
        return false;
    if (cuda->cuDeviceGetPCIBusId(address, sizeof(address), device) != SL_CUDA_SUCCESS)
        return false;
    for (unsigned i = 0; i < SL_GPU_ADDRESS_MAX; i++)
        out[i] =
            (char)(address[i] >= 'A' && address[i] <= 'F' ? address[i] - 'A' + 'a' : address[i]);
    return true;
}

int sl_gpu_enter(const struct sl_cuda *cuda, void *context, struct sl_gpu_visit *out)
{
    int result = cuda->cuCtxPushCurrent_v2(context);

    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -EIO, "cuCtxPushCurrent", result);
    *out = (struct sl_gpu_visit){.cuda = cuda, .capture_mode = SL_CU_STREAM_CAPTURE_MODE_RELAXED};
    (void)cuda->cuThreadExchangeStreamCaptureMode(&out->capture_mode);
    return 0;
}

void sl_gpu_leave(struct sl_gpu_visit *visit)
{
    void *context;

    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): sl_gpu_enter() set it */
    (void)visit->cuda->cuThreadExchangeStreamCaptureMode(&visit->capture_mode);
    (void)visit->cuda->cuCtxPopCurrent_v2(&context);
}

int sl_gpu_flush(const struct sl_gpu_memory *memory)
{
    const struct sl_cuda *cuda = memory->cuda;
    struct sl_gpu_visit visit;
    int err = sl_gpu_enter(cuda, memory->context, &visit), result;

    if (err != 0)
        return err;
    result = cuda->cuFlushGPUDirectRDMAWrites(SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                              SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    sl_gpu_leave(&visit);
    return result == SL_CUDA_SUCCESS
               ? 0
               : sl_cuda_fail(cuda, -EIO, "cuFlushGPUDirectRDMAWrites", result);
}

void sl_gpu_name(const struct sl_gpu_memory *memory, char *out, size_t cap)
{
    char name[128] = "";
    int device;

    if (memory->cuda->cuDeviceGet(&device, memory->device) == SL_CUDA_SUCCESS)
        (void)memory->cuda->cuDeviceGetName(name, sizeof(name), device);
    snprintf(out, cap, "GPU %d (%s)", memory->device, name[0] != '\0' ? name : "of unknown kind");
}
