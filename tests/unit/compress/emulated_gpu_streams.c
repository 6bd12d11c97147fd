/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the emulated GPU: work that is done some time, one piece of some stream whenever
 * somebody asks for an event. */
#include "tests/unit/compress/emulated_gpu_inside.h"

#include "compress/cuda/args.h"
#include "core/err.h"
#include "tests/unit/compress/emulated_driver.h"

#include <stdlib.h>
#include <string.h>

enum kind { KERNEL, COPY, RECORD, WAIT };

struct event {
    uint64_t recorded; /* number of its last record, of all events'; 0: there was none */
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
    uint64_t number; /* of the record that it is, or waits for */
};

/* A pointer of a kernel's lies where a GPU can read and write. */
static bool is_known(const void *ptr)
{
    return ptr == NULL || emulated_memory_of(ptr) != NULL;
}

static int run_kernel(struct work *w)
{
    void *params[] = {&w->args};
    int result = emulated_asked("kernel");

    if (!is_known(w->args.in) || !is_known(w->args.out) || !is_known(w->args.residual)) {
        emulated_misused("a kernel touches memory that the GPU does not know, or no more");
        result = result != 0 ? result : EMULATED_ILLEGAL_ADDRESS;
    }
    if (result != 0)
        return result;
    emulated_let(true);
    result = emulated_driver_table()->cuLaunchKernel(w->function, w->blocks, 1, 1, w->threads, 1, 1,
                                                     0, NULL, params, NULL);
    emulated_let(false);
    emulated_gpu.kernels++;
    return result;
}

static int run_copy(struct work *w)
{
    if (!is_known(w->to) || (w->function == NULL && !is_known(w->from))) {
        emulated_misused("a copy touches memory that the GPU does not know, or no more");
        return EMULATED_ILLEGAL_ADDRESS;
    }
    emulated_let(true);
    memcpy(w->to, w->from, w->len);
    emulated_let(false);
    return 0;
}

/* An event may be recorded anew, on another stream: who waits, waits for the record there was. */
static bool is_reached(uint64_t number)
{
    sl_list_foreach(&emulated_gpu.streams, node)
    {
        struct emulated_stream *stream = sl_container_of(node, struct emulated_stream, link);

        sl_list_foreach(&stream->work, piece)
        {
            const struct work *w = sl_container_of(piece, struct work, link);

            if (w->kind == RECORD && w->number == number)
                return false;
        }
    }
    return true;
}

/* The first of its work. False: there is none, or it waits for another stream. */
static bool run_one(struct emulated_stream *stream)
{
    struct work *w = sl_container_of(stream->work.next, struct work, link);
    int result = 0;

    if (sl_list_empty(&stream->work) || (w->kind == WAIT && !is_reached(w->number)))
        return false;
    sl_list_remove(&w->link);
    switch (w->kind) {
    case KERNEL: result = emulated_gpu.sticky != 0 ? 0 : run_kernel(w); break;
    case COPY: result = emulated_gpu.sticky != 0 ? 0 : run_copy(w); break;
    case RECORD:
    case WAIT: break;
    }
    if (result != 0)
        emulated_gpu.sticky = result;
    free(w);
    return true;
}

/* Of a stream that chance names, or of the next one that has any. */
static void go_on(void)
{
    unsigned count = 0, which;

    sl_list_foreach(&emulated_gpu.streams, node)
    {
        count += node != NULL;
    }
    which = (unsigned)sl_rng_below(&emulated_gpu.rng, count);
    for (unsigned round = 0; round < 2; round++) {
        sl_list_foreach(&emulated_gpu.streams, node)
        {
            if (which != 0 && round == 0) {
                which--;
                continue;
            }
            if (run_one(sl_container_of(node, struct emulated_stream, link)))
                return;
        }
    }
}

static void put_on(void *stream, const struct work *w)
{
    struct emulated_stream *to = stream != NULL ? stream : &emulated_gpu.default_stream;
    struct work *made = malloc(sizeof(*made));

    sl_assert(made != NULL);
    *made = *w;
    sl_list_push_back(&to->work, &made->link);
}

int emulated_stream_create(void **out, unsigned flags)
{
    int result = emulated_asked_inside("cuStreamCreate");
    struct emulated_stream *stream = calloc(1, sizeof(*stream));

    (void)flags;
    if (result != 0) {
        free(stream);
        return result;
    }
    sl_assert(stream != NULL);
    sl_list_init(&stream->work);
    sl_list_push_back(&emulated_gpu.streams, &stream->link);
    emulated_gpu.live++;
    *out = stream;
    return 0;
}

/* Such a stream has nothing more to do. */
static bool only_waits(struct emulated_stream *stream)
{
    sl_list_foreach(&stream->work, node)
    {
        if (sl_container_of(node, struct work, link)->kind != WAIT)
            return false;
    }
    return true;
}

int emulated_stream_destroy(void *arg)
{
    struct emulated_stream *stream = arg;

    (void)emulated_asked_inside("cuStreamDestroy");
    if (!only_waits(stream) && emulated_gpu.sticky == 0)
        emulated_misused("a stream is destroyed that has work");
    while (!sl_list_empty(&stream->work))
        free(sl_container_of(sl_list_pop_front(&stream->work), struct work, link));
    sl_list_remove(&stream->link);
    free(stream);
    emulated_gpu.live--;
    return 0;
}

static int stream_wait(void *stream, void *event, unsigned flags)
{
    int result = emulated_asked_inside("cuStreamWaitEvent");
    const struct event *e = event;

    (void)flags;
    if (result == 0)
        put_on(stream, &(struct work){.kind = WAIT, .number = e->recorded});
    return result;
}

static int event_create(void **out, unsigned flags)
{
    int result = emulated_asked_inside("cuEventCreate");

    (void)flags;
    if (result != 0)
        return result;
    *out = calloc(1, sizeof(struct event));
    sl_assert(*out != NULL);
    emulated_gpu.live++;
    return 0;
}

/* Records of it that are not reached stay so, for those who wait. */
static int event_destroy(void *event)
{
    (void)emulated_asked_inside("cuEventDestroy");
    free(event);
    emulated_gpu.live--;
    return 0;
}

static int event_record(void *event, void *stream)
{
    int result = emulated_asked_inside("cuEventRecord");
    static uint64_t records;
    struct event *e = event;

    if (result != 0)
        return result;
    e->recorded = ++records;
    put_on(stream, &(struct work){.kind = RECORD, .number = e->recorded});
    return result;
}

static int event_query(void *event)
{
    const struct event *e = event;

    if (!emulated_gpu.hangs && emulated_gpu.sticky == 0 && !is_reached(e->recorded))
        go_on();
    int result = emulated_asked_inside("cuEventQuery");

    return result != 0 ? result : is_reached(e->recorded) ? 0 : SL_CUDA_ERROR_NOT_READY;
}

static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **params, void **extra)
{
    int result = emulated_asked_inside("cuLaunchKernel");
    struct work w = {.kind = KERNEL, .function = function, .blocks = grid_x, .threads = block_x};

    if (grid_y * grid_z * block_y * block_z != 1 || shared != 0 || extra != NULL)
        return EMULATED_INVALID_VALUE;
    w.args = *(const struct sl_gpu_args *)params[0];
    emulated_gpu.launched++;
    if (result == 0)
        put_on(stream, &w);
    return result;
}

static int copy_on(sl_cu_ptr to, sl_cu_ptr from, size_t len, void *stream)
{
    int result = emulated_asked_inside("cuMemcpyDtoDAsync");

    if (result == 0)
        put_on(stream, &(struct work){.kind = COPY,
                                      .to = (void *)(uintptr_t)to,
                                      .from = (const void *)(uintptr_t)from,
                                      .len = len});
    return result;
}

void emulated_gpu_copy_later(void *stream, void *to, const void *from, size_t len)
{
    put_on(stream,
           &(struct work){
               .kind = COPY, .function = &emulated_gpu, .to = to, .from = from, .len = len});
}

/* Without work of an earlier use. */
void emulated_streams_init(void)
{
    struct emulated_stream *stream = &emulated_gpu.default_stream;

    if (emulated_gpu.streams.next == NULL) {
        sl_list_init(&emulated_gpu.streams);
        sl_list_init(&stream->work);
        sl_list_push_back(&emulated_gpu.streams, &stream->link);
    }
    while (!sl_list_empty(&stream->work))
        free(sl_container_of(sl_list_pop_front(&stream->work), struct work, link));
}

void emulated_stream_calls(struct sl_cuda *table)
{
    table->cuMemcpyDtoDAsync_v2 = copy_on;
    table->cuStreamCreate = emulated_stream_create;
    table->cuStreamDestroy_v2 = emulated_stream_destroy;
    table->cuStreamWaitEvent = stream_wait;
    table->cuEventCreate = event_create;
    table->cuEventDestroy_v2 = event_destroy;
    table->cuEventRecord = event_record;
    table->cuEventQuery = event_query;
    table->cuLaunchKernel = launch;
}
