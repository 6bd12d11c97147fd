/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/compress/emulated_gpu.h"

#include "compress/cuda/args.h"
#include "core/err.h"
#include "core/list.h"
#include "core/rng.h"
#include "tests/unit/compress/emulated_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define ILLEGAL_ADDRESS 700
#define PAGE 4096

enum kind { KERNEL, COPY, RECORD, WAIT };

struct event {
    uint64_t recorded, reached; /* how often */
    int result;                 /* of what was before it */
};

/* A piece of work of a stream. */
struct work {
    struct sl_node link;
    enum kind kind;
    void *function;
    unsigned blocks, threads;
    struct sl_gpu_args args;
    void *to;
    const void *from;
    size_t len;
    struct event *event;
    uint64_t number; /* of the event's records */
};

struct stream {
    struct sl_node link, work;
};

struct memory {
    struct sl_node link;
    uint8_t *at;
    size_t len, mapped;
    int gpu; /* -1: pinned memory of the host */
};

static struct {
    struct sl_cuda table;
    struct sl_rng rng;
    struct sl_node streams, memory;
    struct stream default_stream;
    unsigned live, kernels, entered;
    int sticky; /* all fail with it since a kernel has */
    char misuse[256];
    const char *fail_call;
    unsigned fail_nth;
    int fail_result;
} gpu;

static char contexts[EMULATED_GPUS];

static void misused(const char *what)
{
    if (gpu.misuse[0] == '\0')
        snprintf(gpu.misuse, sizeof(gpu.misuse), "%s", what);
}

/* What the call fails with, or 0. */
static int asked(const char *call)
{
    if (gpu.fail_call == NULL || strcmp(gpu.fail_call, call) != 0 || --gpu.fail_nth != 0)
        return gpu.sticky;
    gpu.fail_call = NULL;
    return gpu.fail_result;
}

static int inside(const char *call)
{
    if (gpu.entered == 0)
        misused(call);
    return asked(call);
}

/* ---- memory ---- */

static struct memory *memory_of(const void *ptr)
{
    sl_list_foreach(&gpu.memory, node)
    {
        struct memory *m = sl_container_of(node, struct memory, link);

        if ((uintptr_t)ptr - (uintptr_t)m->at < m->len)
            return m;
    }
    return NULL;
}

static void *take(int which, size_t len)
{
    struct memory *m = calloc(1, sizeof(*m));

    sl_assert(m != NULL);
    m->gpu = which;
    m->len = len;
    m->mapped = (len + PAGE - 1) / PAGE * PAGE;
    m->at = mmap(NULL, m->mapped, which < 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sl_assert(m->at != MAP_FAILED);
    sl_list_push_back(&gpu.memory, &m->link);
    gpu.live++;
    return m->at;
}

static int release(void *ptr, bool pinned)
{
    struct memory *m = memory_of(ptr);

    if (m == NULL || m->at != ptr || (m->gpu < 0) != pinned) {
        misused("memory is freed that is none");
        return INVALID_VALUE;
    }
    munmap(m->at, m->mapped);
    sl_list_remove(&m->link);
    free(m);
    gpu.live--;
    return 0;
}

/* Lets the processor at the GPU's memory, or no more. */
static void let(bool in)
{
    sl_list_foreach(&gpu.memory, node)
    {
        struct memory *m = sl_container_of(node, struct memory, link);

        if (m->gpu >= 0)
            sl_assert(mprotect(m->at, m->mapped, in ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
    }
}

static int mem_alloc(sl_cu_ptr *out, size_t len)
{
    int result = inside("cuMemAlloc");

    if (result == 0)
        *out = (uintptr_t)take(0, len);
    return result;
}

static int mem_free(sl_cu_ptr ptr)
{
    (void)inside("cuMemFree");
    return release((void *)(uintptr_t)ptr, false);
}

static int host_alloc(void **out, size_t len, unsigned flags)
{
    int result = inside("cuMemHostAlloc");

    (void)flags;
    if (result == 0)
        *out = take(-1, len);
    return result;
}

static int host_free(void *ptr)
{
    (void)inside("cuMemFreeHost");
    return release(ptr, true);
}

static int attribute_of(void *out, int which, sl_cu_ptr ptr)
{
    struct memory *m = memory_of((void *)(uintptr_t)ptr);

    if (m == NULL || m->gpu < 0)
        return INVALID_VALUE;
    switch (which) {
    case SL_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(int *)out = SL_CU_MEMORYTYPE_DEVICE; return 0;
    case SL_CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)out = 0; return 0;
    case SL_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = m->gpu; return 0;
    case SL_CU_POINTER_ATTRIBUTE_CONTEXT: *(void **)out = &contexts[m->gpu]; return 0;
    default: return INVALID_VALUE;
    }
}

static int range_of(sl_cu_ptr *base, size_t *len, sl_cu_ptr ptr)
{
    struct memory *m = memory_of((void *)(uintptr_t)ptr);

    if (m == NULL)
        return INVALID_VALUE;
    *base = (uintptr_t)m->at;
    *len = m->len;
    return 0;
}

/* ---- streams ---- */

/* A pointer of a kernel's lies where a GPU can read and write. */
static bool is_known(const void *ptr)
{
    return ptr == NULL || memory_of(ptr) != NULL;
}

static int run_kernel(struct work *w)
{
    void *params[] = {&w->args};
    int result = asked("kernel");

    if (!is_known(w->args.in) || !is_known(w->args.out) || !is_known(w->args.residual)) {
        misused("a kernel touches memory that the GPU does not know, or no more");
        result = result != 0 ? result : ILLEGAL_ADDRESS;
    }
    if (result != 0)
        return result;
    let(true);
    result = emulated_driver_table()->cuLaunchKernel(w->function, w->blocks, 1, 1, w->threads, 1, 1,
                                                     0, NULL, params, NULL);
    let(false);
    gpu.kernels++;
    return result;
}

static int run_copy(struct work *w)
{
    if (!is_known(w->to) || (w->function == NULL && !is_known(w->from))) {
        misused("a copy touches memory that the GPU does not know, or no more");
        return ILLEGAL_ADDRESS;
    }
    let(true);
    memcpy(w->to, w->from, w->len);
    let(false);
    return 0;
}

/* The first of its work. False: there is none, or it waits for another stream. */
static bool run_one(struct stream *stream)
{
    struct work *w = sl_container_of(stream->work.next, struct work, link);
    int result = 0;

    if (sl_list_empty(&stream->work) || (w->kind == WAIT && w->event->reached < w->number))
        return false;
    sl_list_remove(&w->link);
    switch (w->kind) {
    case KERNEL: result = gpu.sticky != 0 ? 0 : run_kernel(w); break;
    case COPY: result = gpu.sticky != 0 ? 0 : run_copy(w); break;
    case RECORD: w->event->reached = w->number; break;
    case WAIT: break;
    }
    if (result != 0)
        gpu.sticky = result;
    free(w);
    return true;
}

/* Of a stream that chance names, or of the next one that has any. */
static void go_on(void)
{
    unsigned count = 0, which;

    sl_list_foreach(&gpu.streams, node)
    {
        count += node != NULL;
    }
    which = (unsigned)sl_rng_below(&gpu.rng, count);
    for (unsigned round = 0; round < 2; round++) {
        sl_list_foreach(&gpu.streams, node)
        {
            if (which != 0 && round == 0) {
                which--;
                continue;
            }
            if (run_one(sl_container_of(node, struct stream, link)))
                return;
        }
    }
}

static void put_on(void *stream, const struct work *w)
{
    struct stream *to = stream != NULL ? stream : &gpu.default_stream;
    struct work *made = malloc(sizeof(*made));

    sl_assert(made != NULL);
    *made = *w;
    sl_list_push_back(&to->work, &made->link);
}

static int stream_create(void **out, unsigned flags)
{
    int result = inside("cuStreamCreate");
    struct stream *stream = calloc(1, sizeof(*stream));

    (void)flags;
    if (result != 0) {
        free(stream);
        return result;
    }
    sl_assert(stream != NULL);
    sl_list_init(&stream->work);
    sl_list_push_back(&gpu.streams, &stream->link);
    gpu.live++;
    *out = stream;
    return 0;
}

static int stream_destroy(void *arg)
{
    struct stream *stream = arg;

    (void)inside("cuStreamDestroy");
    if (!sl_list_empty(&stream->work) && gpu.sticky == 0)
        misused("a stream is destroyed that has work");
    while (!sl_list_empty(&stream->work))
        free(sl_container_of(sl_list_pop_front(&stream->work), struct work, link));
    sl_list_remove(&stream->link);
    free(stream);
    gpu.live--;
    return 0;
}

static int stream_wait(void *stream, void *event, unsigned flags)
{
    int result = inside("cuStreamWaitEvent");
    struct event *e = event;

    (void)flags;
    if (result == 0)
        put_on(stream, &(struct work){.kind = WAIT, .event = e, .number = e->recorded});
    return result;
}

static int event_create(void **out, unsigned flags)
{
    int result = inside("cuEventCreate");

    (void)flags;
    if (result != 0)
        return result;
    *out = calloc(1, sizeof(struct event));
    sl_assert(*out != NULL);
    gpu.live++;
    return 0;
}

/* What waits for it, or would record it, does without. */
static int event_destroy(void *event)
{
    static struct event gone;

    (void)inside("cuEventDestroy");
    sl_list_foreach(&gpu.streams, node)
    {
        struct stream *stream = sl_container_of(node, struct stream, link);

        sl_list_foreach(&stream->work, piece)
        {
            struct work *w = sl_container_of(piece, struct work, link);

            if (w->event != event)
                continue;
            w->event = &gone;
            w->number = 0;
        }
    }
    free(event);
    gpu.live--;
    return 0;
}

static int event_record(void *event, void *stream)
{
    int result = inside("cuEventRecord");
    struct event *e = event;

    if (result == 0)
        put_on(stream, &(struct work){.kind = RECORD, .event = e, .number = ++e->recorded});
    return result;
}

static int event_query(void *event)
{
    struct event *e = event;

    if (gpu.sticky == 0 && e->reached != e->recorded)
        go_on();
    int result = inside("cuEventQuery");

    return result != 0 ? result : e->reached == e->recorded ? 0 : SL_CUDA_ERROR_NOT_READY;
}

static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **params, void **extra)
{
    int result = inside("cuLaunchKernel");
    struct work w = {.kind = KERNEL, .function = function, .blocks = grid_x, .threads = block_x};

    if (grid_y * grid_z * block_y * block_z != 1 || shared != 0 || extra != NULL)
        return INVALID_VALUE;
    w.args = *(const struct sl_gpu_args *)params[0];
    if (result == 0)
        put_on(stream, &w);
    return result;
}

static int copy_on(sl_cu_ptr to, sl_cu_ptr from, size_t len, void *stream)
{
    int result = inside("cuMemcpyDtoDAsync");

    if (result == 0)
        put_on(stream, &(struct work){.kind = COPY,
                                      .to = (void *)(uintptr_t)to,
                                      .from = (const void *)(uintptr_t)from,
                                      .len = len});
    return result;
}

/* ---- contexts and modules ---- */

static int push(void *context)
{
    int lost = gpu.sticky, result;

    gpu.sticky = 0; /* a context that is lost can still be entered, to tidy up */
    result = asked("cuCtxPushCurrent");
    gpu.sticky = lost;
    if (context != &contexts[0] && context != &contexts[1])
        return INVALID_VALUE;
    if (result != 0)
        return result;
    gpu.entered++;
    gpu.live++;
    return 0;
}

static int pop(void **out)
{
    (void)out;
    gpu.entered--;
    gpu.live--;
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
    *out = result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                     : NULL;
    return *out == NULL;
}

static int load_data(void **module, const void *image)
{
    int result = inside("cuModuleLoadData");

    if (result == 0)
        result = emulated_driver_table()->cuModuleLoadData(module, image);
    gpu.live += result == 0;
    return result;
}

static int unload(void *module)
{
    gpu.live--;
    return emulated_driver_table()->cuModuleUnload(module);
}

void emulated_gpu_use(uint64_t seed)
{
    gpu.table = *emulated_driver_table();
    gpu.table.cuGetErrorName = gpu.table.cuGetErrorString = error_name;
    gpu.table.cuDeviceGet = device_get;
    gpu.table.cuDeviceGetAttribute = device_attribute;
    gpu.table.cuCtxPushCurrent_v2 = push;
    gpu.table.cuCtxPopCurrent_v2 = pop;
    gpu.table.cuThreadExchangeStreamCaptureMode = capture_mode;
    gpu.table.cuPointerGetAttribute = attribute_of;
    gpu.table.cuMemGetAddressRange_v2 = range_of;
    gpu.table.cuMemAlloc_v2 = mem_alloc;
    gpu.table.cuMemFree_v2 = mem_free;
    gpu.table.cuMemHostAlloc = host_alloc;
    gpu.table.cuMemFreeHost = host_free;
    gpu.table.cuMemcpyDtoDAsync_v2 = copy_on;
    gpu.table.cuStreamCreate = stream_create;
    gpu.table.cuStreamDestroy_v2 = stream_destroy;
    gpu.table.cuStreamWaitEvent = stream_wait;
    gpu.table.cuEventCreate = event_create;
    gpu.table.cuEventDestroy_v2 = event_destroy;
    gpu.table.cuEventRecord = event_record;
    gpu.table.cuEventQuery = event_query;
    gpu.table.cuModuleLoadData = load_data;
    gpu.table.cuModuleUnload = unload;
    gpu.table.cuLaunchKernel = launch;
    if (gpu.memory.next == NULL) {
        sl_list_init(&gpu.memory);
        sl_list_init(&gpu.streams);
        sl_list_init(&gpu.default_stream.work);
        sl_list_push_back(&gpu.streams, &gpu.default_stream.link);
    }
    sl_rng_init(&gpu.rng, seed);
    gpu.kernels = 0;
    gpu.sticky = 0;
    gpu.misuse[0] = '\0';
    gpu.fail_call = NULL;
    while (!sl_list_empty(&gpu.default_stream.work))
        free(sl_container_of(sl_list_pop_front(&gpu.default_stream.work), struct work, link));
    sl_cuda_replace(&gpu.table);
}

const struct sl_cuda *emulated_gpu_table(void)
{
    return &gpu.table;
}

void *emulated_gpu_alloc(unsigned which, size_t len)
{
    return take((int)which, len);
}

void emulated_gpu_free(void *ptr)
{
    (void)release(ptr, false);
}

void emulated_gpu_put(void *to, const void *from, size_t len)
{
    let(true);
    memcpy(to, from, len);
    let(false);
}

void emulated_gpu_get(void *to, const void *from, size_t len)
{
    emulated_gpu_put(to, from, len);
}

void *emulated_gpu_stream(void)
{
    void *out = NULL;

    gpu.entered++;
    sl_assert(stream_create(&out, 0) == 0);
    gpu.entered--;
    return out;
}

void emulated_gpu_stream_end(void *stream)
{
    gpu.entered++;
    if (stream != NULL)
        (void)stream_destroy(stream);
    gpu.entered--;
}

void emulated_gpu_copy_later(void *stream, void *to, const void *from, size_t len)
{
    put_on(stream,
           &(struct work){.kind = COPY, .function = &gpu, .to = to, .from = from, .len = len});
}

void emulated_gpu_fail(const char *call, unsigned nth, int result)
{
    gpu.fail_call = nth != 0 ? call : NULL;
    gpu.fail_nth = nth;
    gpu.fail_result = result;
}

unsigned emulated_gpu_kernels(void)
{
    return gpu.kernels;
}

const char *emulated_gpu_misuse(void)
{
    return gpu.misuse[0] != '\0' ? gpu.misuse : NULL;
}

unsigned emulated_gpu_live(void)
{
    return gpu.live;
}
