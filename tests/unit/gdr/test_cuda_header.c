/* SPDX-License-Identifier: Apache-2.0 */
/* gdr/cuda_dl.h says the same as cuda.h, where that is installed: mostly to the compiler. */
#include "gdr/cuda_dl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#if __has_include(<cuda.h>)
#include <cuda.h>

#define SAME(name) _Static_assert((int)SL_##name == (int)(name), #name)
SAME(CUDA_SUCCESS);
SAME(CUDA_ERROR_NOT_FOUND);
SAME(CUDA_ERROR_NOT_READY);
SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_MEMORYTYPE_DEVICE);
SAME(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
SAME(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
SAME(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
SAME(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
SAME(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
_Static_assert(SL_CU_MEMHOSTALLOC_PORTABLE == CU_MEMHOSTALLOC_PORTABLE, "a macro there");
SAME(CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DISABLE_TIMING);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int), "travel as int");
_Static_assert(sizeof(CUpointer_attribute) == sizeof(int) &&
                   sizeof(CUdevice_attribute) == sizeof(int) &&
                   sizeof(CUmemRangeHandleType) == sizeof(int) &&
                   sizeof(CUstreamCaptureMode) == sizeof(int) &&
                   sizeof(CUflushGPUDirectRDMAWritesTarget) == sizeof(int) &&
                   sizeof(CUflushGPUDirectRDMAWritesScope) == sizeof(int),
               "travel as int");
_Static_assert(__builtin_types_compatible_p(CUdeviceptr, sl_cu_ptr), "an address");
_Static_assert(sizeof(CUcontext) == sizeof(void *) && sizeof(CUstream) == sizeof(void *) &&
                   sizeof(CUevent) == sizeof(void *) && sizeof(CUmodule) == sizeof(void *) &&
                   sizeof(CUfunction) == sizeof(void *),
               "handles");

/* Each call with arguments of the types that our table declares: as many, and none that would not
 * fit. */
#define CALLS(call) _Static_assert(sizeof(call) == sizeof(int), #call)
CALLS(cuInit((unsigned)0));
CALLS(cuDriverGetVersion((int *)0));
CALLS(cuGetErrorName((CUresult)0, (const char **)0));
CALLS(cuGetErrorString((CUresult)0, (const char **)0));
CALLS(cuDeviceGet((int *)0, (int)0));
CALLS(cuDeviceGetCount((int *)0));
CALLS(cuDeviceGetName((char *)0, (int)0, (int)0));
CALLS(cuDeviceGetPCIBusId((char *)0, (int)0, (CUdevice)0));
CALLS(cuDeviceGetAttribute((int *)0, (CUdevice_attribute)0, (int)0));
CALLS(cuDevicePrimaryCtxRetain((CUcontext *)0, (int)0));
CALLS(cuCtxGetDevice((CUdevice *)0));
CALLS(cuCtxPushCurrent((CUcontext)0));
CALLS(cuCtxPopCurrent((CUcontext *)0));
CALLS(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)0));
CALLS(cuPointerGetAttribute((void *)0, (CUpointer_attribute)0, (sl_cu_ptr)0));
CALLS(cuPointerSetAttribute((const void *)0, (CUpointer_attribute)0, (sl_cu_ptr)0));
CALLS(cuMemGetAddressRange((sl_cu_ptr *)0, (size_t *)0, (sl_cu_ptr)0));
CALLS(cuMemGetHandleForAddressRange((void *)0, (sl_cu_ptr)0, (size_t)0, (CUmemRangeHandleType)0,
                                    (unsigned long long)0));
CALLS(cuFlushGPUDirectRDMAWrites((CUflushGPUDirectRDMAWritesTarget)0,
                                 (CUflushGPUDirectRDMAWritesScope)0));
CALLS(cuMemAlloc((sl_cu_ptr *)0, (size_t)0));
CALLS(cuMemFree((sl_cu_ptr)0));
CALLS(cuMemHostAlloc((void **)0, (size_t)0, (unsigned)0));
CALLS(cuMemFreeHost((void *)0));
CALLS(cuMemcpyHtoDAsync((sl_cu_ptr)0, (const void *)0, (size_t)0, (CUstream)0));
CALLS(cuMemcpyDtoDAsync((sl_cu_ptr)0, (sl_cu_ptr)0, (size_t)0, (CUstream)0));
CALLS(cuStreamCreate((CUstream *)0, (unsigned)0));
CALLS(cuStreamDestroy((CUstream)0));
CALLS(cuStreamWaitEvent((CUstream)0, (CUevent)0, 0u));
CALLS(cuEventCreate((CUevent *)0, (unsigned)0));
CALLS(cuEventDestroy((CUevent)0));
CALLS(cuEventRecord((CUevent)0, (CUstream)0));
CALLS(cuEventQuery((CUevent)0));
CALLS(cuModuleLoadData((CUmodule *)0, (const void *)0));
CALLS(cuModuleGetFunction((CUfunction *)0, (CUmodule)0, (const char *)0));
CALLS(cuModuleUnload((CUmodule)0));
CALLS(cuLaunchKernel((CUfunction)0, 0u, 0u, 0u, 0u, 0u, 0u, 0u, (CUstream)0, (void **)0,
                     (void **)0));

/* As cuda.h renames its functions: what a program that includes it would link with. */
#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

static void functions_have_the_names_of_the_versions_that_are_declared(void **state)
{
#define OURS(name, args) #name " "
    static const char ours[] = " " SL_CUDA_FUNCTIONS(OURS, OURS);
    static const char *const theirs[] = {NAME_OF(cuInit),
                                         NAME_OF(cuDriverGetVersion),
                                         NAME_OF(cuGetErrorName),
                                         NAME_OF(cuGetErrorString),
                                         NAME_OF(cuDeviceGet),
                                         NAME_OF(cuDeviceGetCount),
                                         NAME_OF(cuDeviceGetName),
                                         NAME_OF(cuDeviceGetPCIBusId),
                                         NAME_OF(cuDeviceGetAttribute),
                                         NAME_OF(cuDevicePrimaryCtxRetain),
                                         NAME_OF(cuCtxGetDevice),
                                         NAME_OF(cuCtxPushCurrent),
                                         NAME_OF(cuCtxPopCurrent),
                                         NAME_OF(cuThreadExchangeStreamCaptureMode),
                                         NAME_OF(cuPointerGetAttribute),
                                         NAME_OF(cuPointerSetAttribute),
                                         NAME_OF(cuMemGetAddressRange),
                                         NAME_OF(cuMemGetHandleForAddressRange),
                                         NAME_OF(cuFlushGPUDirectRDMAWrites),
                                         NAME_OF(cuMemAlloc),
                                         NAME_OF(cuMemFree),
                                         NAME_OF(cuMemHostAlloc),
                                         NAME_OF(cuMemFreeHost),
                                         NAME_OF(cuMemcpyHtoDAsync),
                                         NAME_OF(cuMemcpyDtoDAsync),
                                         NAME_OF(cuStreamCreate),
                                         NAME_OF(cuStreamDestroy),
                                         NAME_OF(cuStreamWaitEvent),
                                         NAME_OF(cuEventDestroy),
                                         NAME_OF(cuEventCreate),
                                         NAME_OF(cuEventRecord),
                                         NAME_OF(cuEventQuery),
                                         NAME_OF(cuModuleLoadData),
                                         NAME_OF(cuModuleGetFunction),
                                         NAME_OF(cuModuleUnload),
                                         NAME_OF(cuLaunchKernel)};
    unsigned count = 0;

    (void)state;
    for (unsigned i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++) {
        char word[64] = " ";

        strncat(word, theirs[i], sizeof(word) - 3);
        strcat(word, " ");
        assert_non_null(strstr(ours, word));
    }
    for (const char *at = ours + 1; (at = strchr(at, ' ')) != NULL; at++)
        count++;
    assert_int_equal(count, sizeof(theirs) / sizeof(theirs[0]));
}
#else
static void functions_have_the_names_of_the_versions_that_are_declared(void **state)
{
    (void)state;
    print_message("no cuda.h here\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_have_the_names_of_the_versions_that_are_declared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
