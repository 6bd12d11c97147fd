/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the CUDA driver (libcuda.so.1) on machines without a GPU: as much of it as the
 * shim and its tests use. Streams are threads, so that work is as asynchronous as on a GPU; device
 * memory has addresses that the processor cannot touch, so that code which does is caught at once.
 */
#ifndef SL_TESTS_STANDIN_CUDA_H
#define SL_TESTS_STANDIN_CUDA_H

#include <stddef.h>

struct CUstream_st;
struct CUevent_st;
struct CUctx_st;
typedef unsigned long long CUdeviceptr;

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device);
int cuCtxGetCurrent(struct CUctx_st **out);
int cuCtxSetCurrent(struct CUctx_st *ctx);
int cuMemAlloc_v2(CUdeviceptr *out, size_t len);
int cuMemFree_v2(CUdeviceptr ptr);
int cuMemHostAlloc(void **out, size_t len, unsigned flags);
int cuMemFreeHost(void *ptr);
int cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *ptr, unsigned flags);
int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, struct CUstream_st *stream);
int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, struct CUstream_st *stream);
int cuStreamCreate(struct CUstream_st **out, unsigned flags);
int cuStreamDestroy_v2(struct CUstream_st *stream);
int cuStreamSynchronize(struct CUstream_st *stream);
int cuStreamQuery(struct CUstream_st *stream);
int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int cuStreamWaitValue32_v2(struct CUstream_st *stream, CUdeviceptr addr, unsigned value,
                           unsigned flags);
int cuStreamIsCapturing(struct CUstream_st *stream, int *status);
int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode);
int cuStreamEndCapture(struct CUstream_st *stream, void **graph);
int cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *), void *arg);
int cuEventCreate(struct CUevent_st **out, unsigned flags);
int cuEventDestroy_v2(struct CUevent_st *event);
int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cuEventQuery(struct CUevent_st *event);
int cuEventSynchronize(struct CUevent_st *event);
int cuGetErrorString(int error, const char **out);
int cuPointerGetAttribute(void *out, int attribute, CUdeviceptr ptr);

/* Where a "kernel" (a function for cuLaunchHostFunc) finds device memory. */
void *standin_cuda_view(CUdeviceptr ptr);

/* How many streams stand at a value that is not there yet. */
unsigned standin_cuda_held(void);

#endif
