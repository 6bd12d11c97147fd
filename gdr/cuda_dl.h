/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as a table of functions, found at run time. Tests fill the table with fakes.
 *
 * What is called is declared here, so that no CUDA is needed to build;
 * tests/unit/gdr/test_cuda_header.c compares it with cuda.h where that is installed. Enumerations
 * travel as int, handles as void *.
 */
#ifndef SL_GDR_CUDA_DL_H
#define SL_GDR_CUDA_DL_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long sl_cu_ptr; /* CUdeviceptr */

/* Values of cuda.h, SL_ in front. */
enum {
    SL_CUDA_SUCCESS = 0,
    SL_CUDA_ERROR_NOT_FOUND = 500,
    SL_CUDA_ERROR_NOT_READY = 600,
    SL_CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    SL_CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    SL_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    SL_CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    SL_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    SL_CU_MEMORYTYPE_DEVICE = 2,
    SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
    SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
    SL_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST = 1,
    SL_CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER = 100,
    SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX = 0,
    SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER = 100,
    SL_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
    SL_CU_MEMHOSTALLOC_PORTABLE = 1,
    SL_CU_STREAM_NON_BLOCKING = 1,
    SL_CU_EVENT_DISABLE_TIMING = 2,
    SL_CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* X(name, arguments), O(…) for what an old driver may lack. All return a CUresult. */
#define SL_CUDA_FUNCTIONS(X, O)                                                                    \
    X(cuInit, (unsigned))                                                                          \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (int, const char **))                                                        \
    X(cuGetErrorString, (int, const char **))                                                      \
    X(cuDeviceGet, (int *, int))                                                                   \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGetName, (char *, int, int))                                                         \
    X(cuDeviceGetPCIBusId, (char *, int, int))                                                     \
    X(cuDeviceGetAttribute, (int *, int, int))                                                     \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                    \
    X(cuCtxGetDevice, (int *))                                                                     \
    X(cuCtxPushCurrent_v2, (void *))                                                               \
    X(cuCtxPopCurrent_v2, (void **))                                                               \
    X(cuThreadExchangeStreamCaptureMode, (int *))                                                  \
    X(cuPointerGetAttribute, (void *, int, sl_cu_ptr))                                             \
    X(cuPointerSetAttribute, (const void *, int, sl_cu_ptr))                                       \
    X(cuMemGetAddressRange_v2, (sl_cu_ptr *, size_t *, sl_cu_ptr))                                 \
    O(cuMemGetHandleForAddressRange, (void *, sl_cu_ptr, size_t, int, unsigned long long))         \
    O(cuFlushGPUDirectRDMAWrites, (int, int))                                                      \
    X(cuMemAlloc_v2, (sl_cu_ptr *, size_t))                                                        \
    X(cuMemFree_v2, (sl_cu_ptr))                                                                   \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemcpyHtoDAsync_v2, (sl_cu_ptr, const void *, size_t, void *))                             \
    X(cuMemcpyDtoDAsync_v2, (sl_cu_ptr, sl_cu_ptr, size_t, void *))                                \
    X(cuStreamCreate, (void **, unsigned))                                                         \
    X(cuStreamDestroy_v2, (void *))                                                                \
    X(cuStreamWaitEvent, (void *, void *, unsigned))                                               \
    X(cuEventCreate, (void **, unsigned))                                                          \
    X(cuEventDestroy_v2, (void *))                                                                 \
    X(cuEventRecord, (void *, void *))                                                             \
    X(cuEventQuery, (void *))                                                                      \
    X(cuModuleLoadData, (void **, const void *))                                                   \
    X(cuModuleGetFunction, (void **, void *, const char *))                                        \
    X(cuModuleUnload, (void *))                                                                    \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                       unsigned, void *, void **, void **))

#define SL_CUDA_POINTER(name, args) int(*name) args;

struct sl_cuda {
    SL_CUDA_FUNCTIONS(SL_CUDA_POINTER, SL_CUDA_POINTER)
};

/* The table of this process; opened once, then shared and read-only. *out stays untouched on
 * failure.
 * -ENOTSUP: no driver here, or one too old; the text says which. */
int sl_cuda_get(const struct sl_cuda **out);

/* The same, where this process has the driver loaded already, otherwise NULL: then no pointer in it
 * can be one of CUDA's. Loads nothing. */
const struct sl_cuda *sl_cuda_loaded(void);

/* Keeps "CALL failed: NAME (text)" as the last error. Returns err. */
int sl_cuda_fail(const struct sl_cuda *cuda, int err, const char *call, int result);

/* For tests: from now on both give this; NULL: as if no driver were installed. */
void sl_cuda_replace(const struct sl_cuda *cuda);

#endif
