/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the CUDA driver for the dma-buf of a range. */
#include "gdr/dmabuf.h"

#include "core/err.h"
#include "gdr/cuda_dl.h"
#include "gdr/gpu.h"

#include <unistd.h>

static int check(const struct sl_gpu_memory *memory, uintptr_t at, size_t len)
{
    const struct sl_cuda *cuda = memory->cuda;
    int can = 0, device = 0;
    char name[160];

    sl_gpu_name(memory, name, sizeof(name));
    if (memory->is_managed)
        return sl_fail(-ENOTSUP,
                       "managed memory moves between %s and the host, so it cannot be lent to "
                       "another device: allocate it with cudaMalloc or cuMemCreate",
                       name);
    if (memory->len == 0 || at < memory->base || len > memory->len ||
        at - memory->base > memory->len - len)
        return sl_fail(-EINVAL, "%zu bytes at %p are not within one allocation of %s", len,
                       (void *)at, name);
    if (cuda->cuMemGetHandleForAddressRange == NULL)
        return sl_fail(-ENOTSUP,
                       "the CUDA driver exports no dma-buf: it is older than that of CUDA 11.7");
    if (cuda->cuDeviceGet(&device, memory->device) != SL_CUDA_SUCCESS ||
        cuda->cuDeviceGetAttribute(&can, SL_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) !=
            SL_CUDA_SUCCESS ||
        can == 0)
        return sl_fail(-ENOTSUP,
                       "the driver of %s exports no dma-buf: that takes the open kernel modules of "
                       "CUDA 11.7 or later on Linux 5.12 or later",
                       name);
    if (memory->context == NULL)
        return sl_fail(-ENOTSUP, "%s has no context through which its memory could be exported",
                       name);
    return 0;
}

int sl_gpu_export(const struct sl_gpu_memory *memory, const void *addr, size_t len,
                  struct sl_mem *out)
{
    const struct sl_cuda *cuda = memory->cuda;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)addr;
    uintptr_t start = at & ~(page - 1), end = (at + len + page - 1) & ~(page - 1);
    struct sl_gpu_visit visit;
    unsigned yes = 1;
    int fd = -1, err = check(memory, at, len), result;

    if (err == 0)
        err = sl_gpu_enter(cuda, memory->context, &visit);
    if (err != 0)
        return err;
    result = cuda->cuMemGetHandleForAddressRange(&fd, start, end - start,
                                                 SL_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    /* Copies that the driver calls synchronous are so for others' eyes only when told; not all
     * memory can be. */
    if (result == SL_CUDA_SUCCESS)
        (void)cuda->cuPointerSetAttribute(&yes, SL_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    sl_gpu_leave(&visit);
    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -ENOTSUP, "cuMemGetHandleForAddressRange", result);
    *out = (struct sl_mem){
        .addr = (void *)at, .len = len, .kind = SL_MEM_DMABUF, .fd = fd, .fd_off = at - start};
    return 0;
}
