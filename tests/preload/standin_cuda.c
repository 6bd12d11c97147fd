/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for the CUDA driver: streams as threads, device memory that the processor cannot
 * touch. */
#include "tests/preload/standin_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600 };
enum task_kind { COPY, RECORD, WAIT_EVENT, WAIT_VALUE, CALL };

struct task {
    struct task *next;
    enum task_kind kind;
    void *dst;
    const void *src;
    size_t len;
    struct CUevent_st *event;
    uint64_t count; /* of the event: the record to make or to wait for */
    const volatile uint32_t *value;
    uint32_t wanted;
    void (*fn)(void *);
    void *arg;
};

struct CUstream_st {
    pthread_t thread;
    struct task *head, **tail;
    uint64_t queued, done;
    bool capturing, ending;
};

struct CUevent_st {
    uint64_t recorded, reached;
};

struct region {
    struct region *next;
    char *device, *view; /* the same pages: untouchable, and for kernels */
    size_t len;
};

/* One lock and one condition for everything: plain, and fast enough for tests. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct region *regions;
static struct CUstream_st *legacy;
static _Atomic unsigned held; /* streams that wait for a value */
static _Thread_local struct CUctx_st *current;

static void *view_locked(const void *ptr)
{
    const char *at = ptr;

    for (struct region *r = regions; r != NULL; r = r->next)
        if (at >= r->device && at < r->device + r->len)
            return r->view + (at - r->device);
    return (void *)(uintptr_t)at;
}

void *standin_cuda_view(CUdeviceptr ptr)
{
    void *view;

    pthread_mutex_lock(&lock);
    view = view_locked((void *)(uintptr_t)ptr);
    pthread_mutex_unlock(&lock);
    return view;
}

static void poll_value(const volatile uint32_t *value, uint32_t wanted)
{
    while ((int32_t)(__atomic_load_n(value, __ATOMIC_ACQUIRE) - wanted) < 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void run(struct task *task)
{
    switch (task->kind) {
    case COPY:
        if (task->len >
            1 << 20) /* slower than a network: who reuses its source too early is seen */
            nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
        memcpy(task->dst, task->src, task->len);
        return;
    case RECORD:
        pthread_mutex_lock(&lock);
        if (task->event->reached < task->count)
            task->event->reached = task->count;
        pthread_mutex_unlock(&lock);
        return;
    case WAIT_EVENT:
        pthread_mutex_lock(&lock);
        while (task->event->reached < task->count)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        return;
    case WAIT_VALUE:
        held++;
        poll_value(task->value, task->wanted);
        held--;
        return;
    case CALL: task->fn(task->arg); return;
    }
}

static void *work(void *arg)
{
    struct CUstream_st *stream = arg;

    pthread_mutex_lock(&lock);
    while (!stream->ending || stream->head != NULL) {
        struct task *task = stream->head;

        if (task == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        stream->head = task->next;
        if (stream->head == NULL)
            stream->tail = &stream->head;
        pthread_mutex_unlock(&lock);
        run(task);
        free(task);
        pthread_mutex_lock(&lock);
        stream->done++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int cuStreamCreate(struct CUstream_st **out, unsigned flags)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    (void)flags;
    if (stream == NULL)
        return OUT_OF_MEMORY;
    stream->tail = &stream->head;
    if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
        free(stream);
        return OUT_OF_MEMORY;
    }
    *out = stream;
    return SUCCESS;
}

/* The legacy stream, without its waiting for all others: nobody here relies on that. */
static struct CUstream_st *of(struct CUstream_st *stream)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;

    if (stream != NULL)
        return stream;
    pthread_mutex_lock(&once);
    if (legacy == NULL)
        cuStreamCreate(&legacy, 0);
    pthread_mutex_unlock(&once);
    return legacy;
}

static int queue(struct CUstream_st *stream, const struct task *task)
{
    struct task *copy = malloc(sizeof(*copy));

    if (copy == NULL)
        return OUT_OF_MEMORY;
    stream = of(stream);
    *copy = *task;
    copy->next = NULL;
    pthread_mutex_lock(&lock);
    if (stream->capturing) {
        free(copy);
    } else {
        if (copy->kind == COPY) {
            copy->dst = view_locked(copy->dst);
            copy->src = view_locked(copy->src);
        } else if (copy->kind == RECORD) {
            copy->count = ++copy->event->recorded;
        } else if (copy->kind == WAIT_EVENT) {
            copy->count = copy->event->recorded;
        }
        *stream->tail = copy;
        stream->tail = &copy->next;
        stream->queued++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuStreamDestroy_v2(struct CUstream_st *stream)
{
    pthread_mutex_lock(&lock);
    stream->ending = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    return SUCCESS;
}

int cuStreamSynchronize(struct CUstream_st *stream)
{
    uint64_t until;

    stream = of(stream);
    pthread_mutex_lock(&lock);
    until = stream->queued;
    while (stream->done < until)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuStreamQuery(struct CUstream_st *stream)
{
    int result;

    stream = of(stream);
    pthread_mutex_lock(&lock);
    result = stream->done == stream->queued ? SUCCESS : NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

unsigned standin_cuda_held(void)
{
    return held;
}

int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    (void)flags;
    return queue(stream, &(struct task){.kind = WAIT_EVENT, .event = event});
}

int cuStreamWaitValue32_v2(struct CUstream_st *stream, CUdeviceptr addr, unsigned value,
                           unsigned flags)
{
    if (flags != 0) /* 0: greater or equal, cyclic; the only one in use */
        return INVALID_VALUE;
    return queue(stream, &(struct task){.kind = WAIT_VALUE,
                                        .value = (const volatile uint32_t *)(uintptr_t)addr,
                                        .wanted = value});
}

int cuStreamIsCapturing(struct CUstream_st *stream, int *status)
{
    *status = of(stream)->capturing;
    return SUCCESS;
}

int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode)
{
    (void)mode;
    of(stream)->capturing = true;
    return SUCCESS;
}

int cuStreamEndCapture(struct CUstream_st *stream, void **graph)
{
    of(stream)->capturing = false;
    *graph = NULL;
    return SUCCESS;
}

int cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *), void *arg)
{
    return queue(stream, &(struct task){.kind = CALL, .fn = fn, .arg = arg});
}

int cuEventCreate(struct CUevent_st **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(**out));
    return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

int cuEventDestroy_v2(struct CUevent_st *event)
{
    free(event);
    return SUCCESS;
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    return queue(stream, &(struct task){.kind = RECORD, .event = event});
}

int cuEventQuery(struct CUevent_st *event)
{
    int result;

    pthread_mutex_lock(&lock);
    result = event->reached == event->recorded ? SUCCESS : NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuEventSynchronize(struct CUevent_st *event)
{
    uint64_t until;

    pthread_mutex_lock(&lock);
    until = event->recorded;
    while (event->reached < until)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuMemAlloc_v2(CUdeviceptr *out, size_t len)
{
    struct region *region = calloc(1, sizeof(*region));
    int fd = memfd_create("device", MFD_CLOEXEC);

    len = (len + 4095) & ~(size_t)4095;
    if (region == NULL || fd < 0 || ftruncate(fd, (off_t)len) != 0)
        abort();
    region->len = len;
    region->view = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    region->device = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0);
    close(fd);
    if (region->view == MAP_FAILED || region->device == MAP_FAILED)
        abort();
    pthread_mutex_lock(&lock);
    region->next = regions;
    regions = region;
    pthread_mutex_unlock(&lock);
    *out = (uintptr_t)region->device;
    return SUCCESS;
}

int cuMemFree_v2(CUdeviceptr ptr)
{
    struct region **at, *region;

    pthread_mutex_lock(&lock);
    for (at = &regions; *at != NULL && (uintptr_t)(*at)->device != ptr; at = &(*at)->next)
        ;
    region = *at;
    if (region != NULL)
        *at = region->next;
    pthread_mutex_unlock(&lock);
    if (region == NULL)
        return INVALID_VALUE;
    munmap(region->view, region->len);
    munmap(region->device, region->len);
    free(region);
    return SUCCESS;
}

int cuMemHostAlloc(void **out, size_t len, unsigned flags)
{
    (void)flags;
    return posix_memalign(out, 4096, len) == 0 ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *ptr)
{
    free(ptr);
    return SUCCESS;
}

int cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *ptr, unsigned flags)
{
    (void)flags;
    *out = (uintptr_t)ptr;
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, struct CUstream_st *stream)
{
    return queue(stream, &(struct task){
                             .kind = COPY, .dst = dst, .src = (void *)(uintptr_t)src, .len = len});
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, struct CUstream_st *stream)
{
    return queue(stream, &(struct task){
                             .kind = COPY, .dst = (void *)(uintptr_t)dst, .src = src, .len = len});
}

int cuPointerGetAttribute(void *out, int attribute, CUdeviceptr ptr)
{
    bool device;

    if (attribute != 2) /* the kind of memory */
        return INVALID_VALUE;
    device = standin_cuda_view(ptr) != (void *)(uintptr_t)ptr;
    *(unsigned *)out = device ? 2 : 1;
    return device ? SUCCESS : INVALID_VALUE;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device)
{
    (void)device;
    *out = (struct CUctx_st *)&regions;
    return SUCCESS;
}

int cuCtxGetCurrent(struct CUctx_st **out)
{
    *out = current;
    return SUCCESS;
}

int cuCtxSetCurrent(struct CUctx_st *ctx)
{
    current = ctx;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **out)
{
    *out = error == NOT_READY ? "device not ready" : "an error of the stand-in";
    return SUCCESS;
}
