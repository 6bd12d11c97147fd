/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver: allocations, contexts, exports, and copies that end late. */
#include "tests/fake/fake_cuda.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INVALID_VALUE 1
#define INVALID_CONTEXT 201
#define ALLOCS 64
#define DEPTH 8
#define PAGE 4096u

struct alloc {
    uint8_t *addr; /* nobody may touch it */
    uint8_t *bytes, *seen;
    size_t len, mapped;
    unsigned device;
    enum fake_cuda_kind kind;
    int fd;
};

struct stream;

struct event {
    struct stream *stream; /* recorded on it, or NULL */
    uint64_t at;           /* reached when so many copies of the stream are done */
    unsigned looks;
};

struct copy {
    struct copy *next;
    uint8_t *dst, *seen;
    const void *src;
    size_t len;
};

struct stream {
    struct copy *first, *last;
    uint64_t posted, done;
};

struct fake_cuda {
    struct sl_cuda table;
    struct fake_cuda_device devices[FAKE_CUDA_DEVICES];
    int contexts[FAKE_CUDA_DEVICES]; /* their addresses are the contexts */
    unsigned device_count;
    struct alloc allocs[ALLOCS];
    void *stack[DEPTH];
    unsigned depth;
    int capture_mode;
    unsigned live, delay, copies, flushes, exports;
    char fail_call[64];
    unsigned fail_nth;
    int fail_result;
    char misuse[256];
};

static struct fake_cuda *the;

__attribute__((format(printf, 1, 2))) static void misuse(const char *fmt, ...)
{
    va_list args;

    if (the->misuse[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(the->misuse, sizeof(the->misuse), fmt, args);
    va_end(args);
}

/* What a call is made to fail with, or 0. */
static int enter(const char *call)
{
    if (the->fail_nth != 0 && strcmp(call, the->fail_call) == 0 && --the->fail_nth == 0)
        return the->fail_result;
    return 0;
}

static int enter_context(const char *call, unsigned *device)
{
    int result = enter(call);

    if (result != 0)
        return result;
    if (the->depth == 0) {
        misuse("%s without a context", call);
        return INVALID_CONTEXT;
    }
    if (the->capture_mode != SL_CU_STREAM_CAPTURE_MODE_RELAXED)
        misuse("%s disturbs a capture of another thread", call);
    if (device != NULL)
        *device = (unsigned)((int *)the->stack[the->depth - 1] - the->contexts);
    return 0;
}

static struct alloc *alloc_of(sl_cu_ptr at)
{
    for (unsigned i = 0; i < ALLOCS; i++) {
        struct alloc *a = &the->allocs[i];

        if (a->addr != NULL && at >= (uintptr_t)a->addr && at < (uintptr_t)a->addr + a->len)
            return a;
    }
    return NULL;
}

/* ---- what the driver's functions do ---- */

static int f_cuInit(unsigned flags)
{
    return flags == 0 ? enter("cuInit") : INVALID_VALUE;
}

static int f_cuDriverGetVersion(int *version)
{
    *version = 12080;
    return 0;
}

static int f_cuGetErrorName(int result, const char **name)
{
    *name = result == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

static int f_cuGetErrorString(int result, const char **text)
{
    *text = result == INVALID_VALUE ? "invalid argument" : "unknown error";
    return 0;
}

static int f_cuDeviceGet(int *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= (int)the->device_count)
        return 101;
    *device = ordinal + 1000; /* a handle is not the ordinal */
    return enter("cuDeviceGet");
}

static int f_cuDeviceGetCount(int *count)
{
    *count = (int)the->device_count;
    return enter("cuDeviceGetCount");
}

static int f_cuDeviceGetName(char *name, int cap, int device)
{
    snprintf(name, (size_t)cap, "Fake %d", device - 1000);
    return 0;
}

static int f_cuDeviceGetPCIBusId(char *address, int cap, int device)
{
    const char *its = device < 1000 ? NULL : the->devices[device - 1000].address;

    if (its == NULL)
        return INVALID_VALUE;
    snprintf(address, (size_t)cap, "%s", its);
    return enter("cuDeviceGetPCIBusId");
}

static int f_cuDeviceGetAttribute(int *value, int which, int device)
{
    const struct fake_cuda_device *d;

    if (device < 1000 || device >= 1000 + (int)the->device_count)
        return 101;
    d = &the->devices[device - 1000];
    switch (which) {
    case SL_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = d->dma_buf; break;
    case SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = d->ordering; break;
    case SL_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
        *value = d->flush_options;
        break;
    default: return INVALID_VALUE;
    }
    return enter("cuDeviceGetAttribute");
}

static int f_cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device < 1000 || device >= 1000 + (int)the->device_count)
        return 101;
    *context = &the->contexts[device - 1000];
    return enter("cuDevicePrimaryCtxRetain");
}

static int f_cuCtxGetDevice(int *device)
{
    if (the->depth == 0)
        return INVALID_CONTEXT;
    *device = 1000 + (int)((int *)the->stack[the->depth - 1] - the->contexts);
    return enter("cuCtxGetDevice");
}

static int f_cuCtxPushCurrent_v2(void *context)
{
    int result = enter("cuCtxPushCurrent");

    if (result != 0)
        return result;
    if (context == NULL || the->depth == DEPTH)
        return INVALID_CONTEXT;
    the->stack[the->depth++] = context;
    return 0;
}

static int f_cuCtxPopCurrent_v2(void **context)
{
    if (the->depth == 0) {
        misuse("cuCtxPopCurrent without a context");
        return INVALID_CONTEXT;
    }
    *context = the->stack[--the->depth];
    return 0;
}

static int f_cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = the->capture_mode;

    the->capture_mode = *mode;
    *mode = before;
    return 0;
}

static int f_cuPointerGetAttribute(void *out, int which, sl_cu_ptr at)
{
    const struct alloc *a = alloc_of(at);
    int result = enter("cuPointerGetAttribute");

    if (result != 0 || a == NULL)
        return result != 0 ? result : INVALID_VALUE;
    switch (which) {
    case SL_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)out = SL_CU_MEMORYTYPE_DEVICE; return 0;
    case SL_CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = a->kind == FAKE_CUDA_MANAGED;
        return 0;
    case SL_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = (int)a->device; return 0;
    case SL_CU_POINTER_ATTRIBUTE_CONTEXT:
        *(void **)out = a->kind == FAKE_CUDA_POOLED ? NULL : &the->contexts[a->device];
        return 0;
    default: return INVALID_VALUE;
    }
}

static int f_cuPointerSetAttribute(const void *value, int which, sl_cu_ptr at)
{
    const struct alloc *a = alloc_of(at);

    if (which != SL_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || *(const unsigned *)value != 1 ||
        a == NULL || a->kind == FAKE_CUDA_POOLED)
        return INVALID_VALUE;
    return 0;
}

static int f_cuMemGetAddressRange_v2(sl_cu_ptr *base, size_t *len, sl_cu_ptr at)
{
    const struct alloc *a = alloc_of(at);
    int result = enter("cuMemGetAddressRange");

    if (result != 0 || a == NULL)
        return result != 0 ? result : INVALID_VALUE;
    *base = (uintptr_t)a->addr;
    *len = a->len;
    return 0;
}

static int f_cuMemGetHandleForAddressRange(void *out, sl_cu_ptr start, size_t len, int type,
                                           unsigned long long flags)
{
    const struct alloc *a = alloc_of(start);
    unsigned device = 0;
    int result = enter_context("cuMemGetHandleForAddressRange", &device), fd;
    char name[64];

    if (result != 0)
        return result;
    if (a == NULL || a->kind == FAKE_CUDA_MANAGED ||
        type != SL_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || start % PAGE != 0 ||
        len % PAGE != 0 || len == 0 || len > a->mapped - (start - (uintptr_t)a->addr) ||
        device != a->device)
        return INVALID_VALUE;
    if (!the->devices[a->device].dma_buf)
        return 801;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", a->fd);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0 || lseek(fd, (off_t)(start - (uintptr_t)a->addr), SEEK_SET) < 0)
        abort();
    *(int *)out = fd;
    the->exports++;
    return 0;
}

static int f_cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    unsigned device = 0;
    int result = enter_context("cuFlushGPUDirectRDMAWrites", &device);

    if (result != 0)
        return result;
    if (target != SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        scope != SL_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
        the->devices[device].flush_options == 0)
        return INVALID_VALUE;
    for (unsigned i = 0; i < ALLOCS; i++)
        if (the->allocs[i].addr != NULL && the->allocs[i].device == device)
            memcpy(the->allocs[i].seen, the->allocs[i].bytes, the->allocs[i].mapped);
    the->flushes++;
    return 0;
}

static int f_cuMemHostAlloc(void **out, size_t len, unsigned flags)
{
    int result = enter_context("cuMemHostAlloc", NULL);

    if (result != 0)
        return result;
    if (flags != SL_CU_MEMHOSTALLOC_PORTABLE)
        misuse("pinned memory is for one context only");
    *out = malloc(len);
    the->live++;
    return 0;
}

static int f_cuMemFreeHost(void *bytes)
{
    free(bytes);
    the->live--;
    return 0;
}

static int f_cuStreamCreate(void **out, unsigned flags)
{
    int result = enter_context("cuStreamCreate", NULL);

    if (result != 0)
        return result;
    if (flags != SL_CU_STREAM_NON_BLOCKING)
        misuse("a stream that waits for the program's own");
    *out = calloc(1, sizeof(struct stream));
    the->live++;
    return 0;
}

static int f_cuStreamDestroy_v2(void *stream)
{
    struct stream *s = stream;

    if (s->first != NULL)
        misuse("a stream is destroyed with copies under way");
    free(s);
    the->live--;
    return 0;
}

static int f_cuEventCreate(void **out, unsigned flags)
{
    int result = enter_context("cuEventCreate", NULL);

    if (result != 0)
        return result;
    if (flags != SL_CU_EVENT_DISABLE_TIMING)
        misuse("an event that takes the time");
    *out = calloc(1, sizeof(struct event));
    the->live++;
    return 0;
}

static int f_cuEventDestroy_v2(void *event)
{
    free(event);
    the->live--;
    return 0;
}

static int f_cuMemcpyHtoDAsync_v2(sl_cu_ptr dst, const void *src, size_t len, void *stream)
{
    struct stream *s = stream;
    struct alloc *a = alloc_of(dst);
    unsigned device = 0;
    int result = enter_context("cuMemcpyHtoDAsync", &device);
    struct copy *copy;

    if (result != 0)
        return result;
    if (s == NULL) {
        misuse("a copy on the default stream waits for the program's kernels");
        return INVALID_VALUE;
    }
    if (a == NULL || len > a->len - (dst - (uintptr_t)a->addr) || a->device != device) {
        misuse("a copy of %zu bytes leaves GPU memory", len);
        return INVALID_VALUE;
    }
    copy = calloc(1, sizeof(*copy));
    *copy = (struct copy){.dst = a->bytes + (dst - (uintptr_t)a->addr),
                          .seen = a->seen + (dst - (uintptr_t)a->addr),
                          .src = src,
                          .len = len};
    if (s->last != NULL)
        s->last->next = copy;
    else
        s->first = copy;
    s->last = copy;
    s->posted++;
    the->copies++;
    return 0;
}

static int f_cuEventRecord(void *event, void *stream)
{
    struct stream *s = stream;
    int result = enter_context("cuEventRecord", NULL);

    if (result != 0)
        return result;
    *(struct event *)event = (struct event){.stream = s, .at = s->posted};
    return 0;
}

static int f_cuEventQuery(void *event)
{
    struct event *e = event;
    int result = enter_context("cuEventQuery", NULL);

    if (result != 0)
        return result;
    if (e->stream == NULL || e->stream->done >= e->at)
        return 0;
    if (++e->looks < the->delay)
        return SL_CUDA_ERROR_NOT_READY;
    while (e->stream->done < e->at) {
        struct copy *copy = e->stream->first;

        memcpy(copy->dst, copy->src, copy->len);
        memcpy(copy->seen, copy->src, copy->len);
        e->stream->first = copy->next;
        if (copy->next == NULL)
            e->stream->last = NULL;
        free(copy);
        e->stream->done++;
    }
    return 0;
}

/* Kernels are another fake's: tests/unit/compress/test_cuda_emulated.c. */
#define NO_KERNELS 801 /* CUDA_ERROR_NOT_SUPPORTED */

static int f_cuModuleLoadData(void **module, const void *image)
{
    return NO_KERNELS;
}

static int f_cuModuleGetFunction(void **function, void *module, const char *name)
{
    return NO_KERNELS;
}

static int f_cuModuleUnload(void *module)
{
    return NO_KERNELS;
}

static int f_cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            void *stream, void **params, void **extra)
{
    return NO_KERNELS;
}

static int f_cuMemAlloc_v2(sl_cu_ptr *out, size_t len)
{
    return NO_KERNELS;
}

static int f_cuMemFree_v2(sl_cu_ptr ptr)
{
    return NO_KERNELS;
}

static int f_cuMemcpyDtoDAsync_v2(sl_cu_ptr to, sl_cu_ptr from, size_t len, void *stream)
{
    return NO_KERNELS;
}

static int f_cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return NO_KERNELS;
}

/* ---- the test's side ---- */

struct fake_cuda *fake_cuda_create(unsigned devices)
{
    struct fake_cuda *fake = calloc(1, sizeof(*fake));

    if (fake == NULL || devices > FAKE_CUDA_DEVICES)
        abort();
#define FILL(name, args) fake->table.name = f_##name;
    SL_CUDA_FUNCTIONS(FILL, FILL)
#undef FILL
    fake->device_count = devices;
    fake->delay = 3;
    for (unsigned i = 0; i < devices; i++)
        fake->devices[i] =
            (struct fake_cuda_device){.dma_buf = true,
                                      .ordering = SL_CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER,
                                      .flush_options = 1};
    the = fake;
    return fake;
}

void *fake_cuda_alloc(struct fake_cuda *fake, unsigned device, size_t len, enum fake_cuda_kind kind)
{
    struct alloc *a = fake->allocs;

    while (a < fake->allocs + ALLOCS && a->addr != NULL)
        a++;
    if (a == fake->allocs + ALLOCS)
        abort();
    *a = (struct alloc){.len = len,
                        .mapped = (len + PAGE - 1) / PAGE * PAGE,
                        .device = device,
                        .kind = kind,
                        .fd = memfd_create("gpu", MFD_CLOEXEC)};
    if (a->fd < 0 || ftruncate(a->fd, (off_t)a->mapped) != 0)
        abort();
    a->bytes = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    a->addr = mmap(NULL, a->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    a->seen = calloc(1, a->mapped);
    if (a->bytes == MAP_FAILED || a->addr == MAP_FAILED || a->seen == NULL)
        abort();
    fake->live++;
    return a->addr;
}

static void alloc_free(struct alloc *a)
{
    munmap(a->addr, a->mapped);
    munmap(a->bytes, a->mapped);
    free(a->seen);
    close(a->fd);
    a->addr = NULL;
}

void fake_cuda_free(struct fake_cuda *fake, void *ptr)
{
    alloc_free(alloc_of((uintptr_t)ptr));
    fake->live--;
}

uint8_t *fake_cuda_bytes(struct fake_cuda *fake, const void *ptr)
{
    struct alloc *a = alloc_of((uintptr_t)ptr);

    (void)fake;
    return a->bytes + ((const uint8_t *)ptr - a->addr);
}

const uint8_t *fake_cuda_seen(struct fake_cuda *fake, const void *ptr)
{
    struct alloc *a = alloc_of((uintptr_t)ptr);

    if (fake->devices[a->device].ordering >= SL_CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
        return fake_cuda_bytes(fake, ptr);
    return a->seen + ((const uint8_t *)ptr - a->addr);
}

void fake_cuda_destroy(struct fake_cuda *fake)
{
    for (unsigned i = 0; i < ALLOCS; i++)
        if (fake->allocs[i].addr != NULL)
            alloc_free(&fake->allocs[i]);
    if (the == fake)
        the = NULL;
    free(fake);
}

struct sl_cuda *fake_cuda_table(struct fake_cuda *fake)
{
    return &fake->table;
}

struct fake_cuda_device *fake_cuda_device(struct fake_cuda *fake, unsigned device)
{
    return &fake->devices[device];
}

void fake_cuda_fail(struct fake_cuda *fake, const char *call, unsigned nth, int result)
{
    snprintf(fake->fail_call, sizeof(fake->fail_call), "%s", call);
    fake->fail_nth = nth;
    fake->fail_result = result;
}

void fake_cuda_delay(struct fake_cuda *fake, unsigned looks)
{
    fake->delay = looks;
}

unsigned fake_cuda_copies(const struct fake_cuda *fake)
{
    return fake->copies;
}

unsigned fake_cuda_flushes(const struct fake_cuda *fake)
{
    return fake->flushes;
}

unsigned fake_cuda_exports(const struct fake_cuda *fake)
{
    return fake->exports;
}

const char *fake_cuda_misuse(const struct fake_cuda *fake)
{
    return fake->misuse[0] != '\0' ? fake->misuse : NULL;
}

unsigned fake_cuda_live(const struct fake_cuda *fake)
{
    return fake->live + fake->depth;
}
