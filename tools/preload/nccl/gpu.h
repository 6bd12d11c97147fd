/* SPDX-License-Identifier: Apache-2.0 */
/* What the shim needs of the CUDA driver, which the program has loaded already. (gdr/cuda_dl.h
 * holds what the engine needs: kinds of memory, not streams of the program.) */
#ifndef SL_PRELOAD_NCCL_GPU_H
#define SL_PRELOAD_NCCL_GPU_H

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUevent_st;
struct CUstream_st;

enum {
    GPU_NOT_READY = 600,
    GPU_STREAM_NON_BLOCKING = 1,
    GPU_EVENT_QUIET = 1 | 2,
    GPU_HOST_MAPPED = 1 | 2
};

/* X(name here, symbol, parameters): each returns 0 or a CUresult. */
#define GPU_FUNCTIONS(X)                                                                           \
    X(context, "cuCtxGetCurrent", (struct CUctx_st * *out))                                        \
    X(use_context, "cuCtxSetCurrent", (struct CUctx_st * context))                                 \
    X(alloc, "cuMemAlloc_v2", (uint64_t * out, size_t len))                                        \
    X(free, "cuMemFree_v2", (uint64_t ptr))                                                        \
    X(alloc_host, "cuMemHostAlloc", (void **out, size_t len, unsigned flags))                      \
    X(free_host, "cuMemFreeHost", (void *ptr))                                                     \
    X(address_of_host, "cuMemHostGetDevicePointer_v2",                                             \
      (uint64_t * out, void *ptr, unsigned flags))                                                 \
    X(to_host, "cuMemcpyDtoHAsync_v2",                                                             \
      (void *dst, uint64_t src, size_t len, struct CUstream_st *stream))                           \
    X(to_device, "cuMemcpyHtoDAsync_v2",                                                           \
      (uint64_t dst, const void *src, size_t len, struct CUstream_st *stream))                     \
    X(stream_create, "cuStreamCreate", (struct CUstream_st * *out, unsigned flags))                \
    X(stream_destroy, "cuStreamDestroy_v2", (struct CUstream_st * stream))                         \
    X(stream_query, "cuStreamQuery", (struct CUstream_st * stream))                                \
    X(stream_wait_event, "cuStreamWaitEvent",                                                      \
      (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))                    \
    X(stream_wait_value, "cuStreamWaitValue32_v2",                                                 \
      (struct CUstream_st * stream, uint64_t addr, unsigned value, unsigned flags))                \
    X(stream_is_capturing, "cuStreamIsCapturing", (struct CUstream_st * stream, int *status))      \
    X(event_create, "cuEventCreate", (struct CUevent_st * *out, unsigned flags))                   \
    X(event_destroy, "cuEventDestroy_v2", (struct CUevent_st * event))                             \
    X(event_record, "cuEventRecord", (struct CUevent_st * event, struct CUstream_st * stream))     \
    X(event_query, "cuEventQuery", (struct CUevent_st * event))                                    \
    X(error_string, "cuGetErrorString", (int error, const char **out))

#define GPU_POINTER(name, symbol, params) int(*name) params;

struct gpu {
    GPU_FUNCTIONS(GPU_POINTER)
};

/* Filled by gpu_open(). */
extern struct gpu gpu;

/* -ENOTSUP: the driver is not there or too old. */
int gpu_open(void);

/* Passes 0; else keeps a sentence that names what was tried and returns -EIO. */
int gpu_check(int result, const char *what);

#endif
