/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of pinned buffers in front of a stream: filled in order, copied in order, ended in
 * order. */
#include "gdr/staging.h"

#include "core/clock.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

#include <stdlib.h>
#include <string.h>

#define FORGET_NS (5 * SL_NS_PER_S)

struct copy {
    void *event;         /* of the driver; reached when the copy is done */
    sl_gpu_copied *done; /* NULL: forgotten */
    void *owner;
    uint32_t number;
};

struct sl_gpu_stage {
    const struct sl_cuda *cuda;
    const struct sl_clock *clock;
    void *context, *stream;
    uint8_t *bytes; /* pinned */
    size_t len;     /* of a buffer */
    unsigned count;
    uint64_t posted, ended; /* copy i uses buffer i % count */
    struct copy copies[];
};

static void parts_destroy(struct sl_gpu_stage *stage)
{
    const struct sl_cuda *cuda = stage->cuda;

    for (unsigned i = 0; i < stage->count; i++)
        if (stage->copies[i].event != NULL)
            (void)cuda->cuEventDestroy_v2(stage->copies[i].event);
    if (stage->stream != NULL)
        (void)cuda->cuStreamDestroy_v2(stage->stream);
    if (stage->bytes != NULL)
        (void)cuda->cuMemFreeHost(stage->bytes);
}

static int parts_create(struct sl_gpu_stage *stage)
{
    const struct sl_cuda *cuda = stage->cuda;
    void *bytes = NULL;
    int result =
        cuda->cuMemHostAlloc(&bytes, stage->len * stage->count, SL_CU_MEMHOSTALLOC_PORTABLE);

    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -ENOMEM, "cuMemHostAlloc", result);
    stage->bytes = bytes;
    result = cuda->cuStreamCreate(&stage->stream, SL_CU_STREAM_NON_BLOCKING);
    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -EIO, "cuStreamCreate", result);
    for (unsigned i = 0; i < stage->count; i++) {
        result = cuda->cuEventCreate(&stage->copies[i].event, SL_CU_EVENT_DISABLE_TIMING);
        if (result != SL_CUDA_SUCCESS)
            return sl_cuda_fail(cuda, -EIO, "cuEventCreate", result);
    }
    return 0;
}

int sl_gpu_stage_create(const struct sl_gpu_memory *memory, const struct sl_clock *clock,
                        size_t len, unsigned count, struct sl_gpu_stage **out)
{
    struct sl_gpu_stage *stage;
    struct sl_gpu_visit visit;
    int err;

    if (memory->context == NULL)
        return sl_fail(-ENOTSUP, "GPU %d has no context through which bytes could be copied to it",
                       memory->device);
    stage = calloc(1, sizeof(*stage) + count * sizeof(stage->copies[0]));
    if (stage == NULL)
        return sl_fail(-ENOMEM, "no memory for %u staging buffers", count);
    *stage = (struct sl_gpu_stage){.cuda = memory->cuda,
                                   .clock = clock,
                                   .context = memory->context,
                                   .len = len,
                                   .count = count};
    err = sl_gpu_enter(stage->cuda, stage->context, &visit);
    if (err == 0) {
        err = parts_create(stage);
        if (err != 0)
            parts_destroy(stage);
        sl_gpu_leave(&visit);
    }
    if (err != 0) {
        free(stage);
        return err;
    }
    *out = stage;
    return 0;
}

void sl_gpu_stage_destroy(struct sl_gpu_stage *stage)
{
    struct sl_gpu_visit visit;

    if (stage == NULL)
        return;
    sl_assert(stage->posted == stage->ended);
    if (sl_gpu_enter(stage->cuda, stage->context, &visit) == 0) {
        parts_destroy(stage);
        sl_gpu_leave(&visit);
    }
    free(stage);
}

bool sl_gpu_stage_serves(const struct sl_gpu_stage *stage, const struct sl_gpu_memory *memory)
{
    return stage->cuda == memory->cuda && stage->context == memory->context;
}

unsigned sl_gpu_stage_busy(const struct sl_gpu_stage *stage)
{
    return (unsigned)(stage->posted - stage->ended);
}

int sl_gpu_stage_copy(struct sl_gpu_stage *stage, void *dst, const void *src, size_t len,
                      sl_gpu_copied *done, void *owner, uint32_t number)
{
    const struct sl_cuda *cuda = stage->cuda;
    unsigned at = (unsigned)(stage->posted % stage->count);
    uint8_t *buffer = stage->bytes + at * stage->len;
    const char *call = "cuMemcpyHtoDAsync";
    struct sl_gpu_visit visit;
    int err, result;

    sl_assert(len <= stage->len);
    if (sl_gpu_stage_busy(stage) == stage->count)
        return -EAGAIN;
    err = sl_gpu_enter(cuda, stage->context, &visit);
    if (err != 0)
        return err;
    memcpy(buffer, src, len);
    result = cuda->cuMemcpyHtoDAsync_v2((uintptr_t)dst, buffer, len, stage->stream);
    if (result == SL_CUDA_SUCCESS) {
        call = "cuEventRecord";
        result = cuda->cuEventRecord(stage->copies[at].event, stage->stream);
    }
    sl_gpu_leave(&visit);
    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -EIO, call, result);
    stage->copies[at].done = done;
    stage->copies[at].owner = owner;
    stage->copies[at].number = number;
    stage->posted++;
    return 0;
}

/* How copy i stands: SL_CUDA_SUCCESS, SL_CUDA_ERROR_NOT_READY or what went wrong. */
static int look(const struct sl_gpu_stage *stage, uint64_t i)
{
    struct sl_gpu_visit visit;
    int result;

    if (sl_gpu_enter(stage->cuda, stage->context, &visit) != 0)
        return -1;
    result = stage->cuda->cuEventQuery(stage->copies[i % stage->count].event);
    sl_gpu_leave(&visit);
    return result;
}

unsigned sl_gpu_stage_progress(struct sl_gpu_stage *stage)
{
    unsigned count = 0;

    while (stage->ended != stage->posted) {
        struct copy copy = stage->copies[stage->ended % stage->count];
        int result = look(stage, stage->ended);

        if (result == SL_CUDA_ERROR_NOT_READY)
            break;
        stage->ended++;
        count++;
        if (copy.done == NULL)
            continue;
        if (result != SL_CUDA_SUCCESS)
            sl_cuda_fail(stage->cuda, -EIO, "a copy to GPU memory", result);
        copy.done(copy.owner, copy.number, result == SL_CUDA_SUCCESS ? 0 : -EIO);
    }
    return count;
}

void sl_gpu_stage_forget(struct sl_gpu_stage *stage, const void *owner)
{
    uint64_t deadline_ns = sl_now(stage->clock) + FORGET_NS, behind = stage->ended;

    for (uint64_t i = stage->ended; i != stage->posted; i++) {
        struct copy *copy = &stage->copies[i % stage->count];

        if (copy->owner != owner)
            continue;
        copy->done = NULL;
        behind = i + 1;
    }
    /* Progress is not made here: others' copies end in theirs. */
    while (behind != stage->ended && look(stage, behind - 1) == SL_CUDA_ERROR_NOT_READY &&
           sl_now(stage->clock) < deadline_ns)
        ;
}
