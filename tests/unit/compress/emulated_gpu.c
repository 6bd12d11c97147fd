/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated GPU: contexts and modules, and the test's side of it. */
#include "tests/unit/compress/emulated_gpu.h"

#include "core/err.h"
#include "tests/unit/compress/emulated_driver.h"
#include "tests/unit/compress/emulated_gpu_inside.h"

#include <stdio.h>
#include <string.h>

struct emulated_gpu emulated_gpu;
char emulated_contexts[EMULATED_GPUS];

void emulated_misused(const char *what)
{
    if (emulated_gpu.misuse[0] == '\0')
        snprintf(emulated_gpu.misuse, sizeof(emulated_gpu.misuse), "%s", what);
}

int emulated_asked(const char *call)
{
    if (emulated_gpu.fail_call == NULL || strcmp(emulated_gpu.fail_call, call) != 0 ||
        --emulated_gpu.fail_nth != 0)
        return emulated_gpu.sticky;
    emulated_gpu.fail_call = NULL;
    return emulated_gpu.fail_result;
}

int emulated_asked_inside(const char *call)
{
    if (emulated_gpu.entered == 0)
        emulated_misused(call);
    return emulated_asked(call);
}

/* ---- emulated_contexts and modules ---- */

static int push(void *context)
{
    int lost = emulated_gpu.sticky, result;

    emulated_gpu.sticky = 0; /* a context that is lost can still be entered, to tidy up */
    result = emulated_asked("cuCtxPushCurrent");
    emulated_gpu.sticky = lost;
    if (context != &emulated_contexts[0] && context != &emulated_contexts[1])
        return EMULATED_INVALID_VALUE;
    if (result != 0)
        return result;
    emulated_gpu.entered++;
    emulated_gpu.live++;
    return 0;
}

static int pop(void **out)
{
    (void)out;
    emulated_gpu.entered--;
    emulated_gpu.live--;
    return 0;
}

static int capture_mode(int *mode)
{
    (void)mode;
    return 0;
}

static int device_get(int *out, int ordinal)
{
    *out = ordinal;
    return 0;
}

static int device_attribute(int *out, int which, int device)
{
    (void)which;
    (void)device;
    *out = 0;
    return 0;
}

static int error_name(int result, const char **out)
{
    *out = result == EMULATED_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : result == EMULATED_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                              : NULL;
    return *out == NULL;
}

static int load_data(void **module, const void *image)
{
    int result = emulated_asked_inside("cuModuleLoadData");

    if (result == 0)
        result = emulated_driver_table()->cuModuleLoadData(module, image);
    emulated_gpu.live += result == 0;
    return result;
}

static int unload(void *module)
{
    emulated_gpu.live--;
    return emulated_driver_table()->cuModuleUnload(module);
}

void emulated_gpu_use(uint64_t seed)
{
    struct sl_cuda *table = &emulated_gpu.table;

    *table = *emulated_driver_table();
    table->cuGetErrorName = table->cuGetErrorString = error_name;
    table->cuDeviceGet = device_get;
    table->cuDeviceGetAttribute = device_attribute;
    table->cuCtxPushCurrent_v2 = push;
    table->cuCtxPopCurrent_v2 = pop;
    table->cuThreadExchangeStreamCaptureMode = capture_mode;
    table->cuModuleLoadData = load_data;
    table->cuModuleUnload = unload;
    emulated_memory_calls(table);
    emulated_stream_calls(table);
    emulated_streams_init();
    if (emulated_gpu.memory.next == NULL)
        sl_list_init(&emulated_gpu.memory);
    sl_rng_init(&emulated_gpu.rng, seed);
    emulated_gpu.kernels = emulated_gpu.launched = 0;
    emulated_gpu.sticky = 0;
    emulated_gpu.misuse[0] = '\0';
    emulated_gpu.fail_call = NULL;
    sl_cuda_replace(table);
}

void *emulated_gpu_alloc(unsigned which, size_t len)
{
    return emulated_take((int)which, len);
}

void emulated_gpu_free(void *ptr)
{
    (void)emulated_release(ptr, false);
}

void emulated_gpu_put(void *to, const void *from, size_t len)
{
    emulated_let(true);
    memcpy(to, from, len);
    emulated_let(false);
}

void emulated_gpu_get(void *to, const void *from, size_t len)
{
    emulated_gpu_put(to, from, len);
}

void *emulated_gpu_stream(void)
{
    void *out = NULL;

    emulated_gpu.entered++;
    sl_assert(emulated_stream_create(&out, 0) == 0);
    emulated_gpu.entered--;
    return out;
}

void emulated_gpu_stream_end(void *stream)
{
    emulated_gpu.entered++;
    if (stream != NULL)
        (void)emulated_stream_destroy(stream);
    emulated_gpu.entered--;
}

void emulated_gpu_fail(const char *call, unsigned nth, int result)
{
    emulated_gpu.fail_call = nth != 0 ? call : NULL;
    emulated_gpu.fail_nth = nth;
    emulated_gpu.fail_result = result;
}

void emulated_gpu_hang(bool hangs)
{
    emulated_gpu.hangs = hangs;
}

unsigned emulated_gpu_launched(void)
{
    return emulated_gpu.launched;
}

unsigned emulated_gpu_kernels(void)
{
    return emulated_gpu.kernels;
}

const char *emulated_gpu_misuse(void)
{
    return emulated_gpu.misuse[0] != '\0' ? emulated_gpu.misuse : NULL;
}

unsigned emulated_gpu_live(void)
{
    return emulated_gpu.live;
}
