/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events of a lane. */
#include "compress/cuda/gpu_lane.h"

#include "core/err.h"
#include "gdr/cuda_dl.h"

int sl_gpu_lane_init(struct sl_gpu_lane *lane, const struct sl_cuda *cuda)
{
    int result = cuda->cuStreamCreate(&lane->stream, SL_CU_STREAM_NON_BLOCKING);

    for (unsigned i = 0; i < SL_GPU_SHARES && result == SL_CUDA_SUCCESS; i++)
        result = cuda->cuEventCreate(&lane->events[i], SL_CU_EVENT_DISABLE_TIMING);
    return result;
}

void sl_gpu_lane_fini(struct sl_gpu_lane *lane, const struct sl_cuda *cuda)
{
    for (unsigned i = 0; i < SL_GPU_SHARES; i++)
        if (lane->events[i] != NULL)
            (void)cuda->cuEventDestroy_v2(lane->events[i]);
    if (lane->stream != NULL)
        (void)cuda->cuStreamDestroy_v2(lane->stream);
}

int sl_gpu_lane_follow(const struct sl_gpu_lane *lane, const struct sl_cuda *cuda, void *event)
{
    int result = cuda->cuStreamWaitEvent(lane->stream, event, 0);

    return result == SL_CUDA_SUCCESS ? 0 : sl_cuda_fail(cuda, -EIO, "cuStreamWaitEvent", result);
}

int sl_gpu_lane_close(struct sl_gpu_lane *lane, const struct sl_cuda *cuda)
{
    int result = cuda->cuEventRecord(lane->events[lane->next % SL_GPU_SHARES], lane->stream);

    lane->open = false;
    if (result != SL_CUDA_SUCCESS)
        return sl_cuda_fail(cuda, -EIO, "cuEventRecord", result);
    lane->next++;
    return 0;
}

static int ask(const struct sl_gpu_lane *lane, const struct sl_cuda *cuda, uint32_t share)
{
    return cuda->cuEventQuery(lane->events[share % SL_GPU_SHARES]);
}

/* The last event of all is asked for first: to be told that one is reached costs several times
 * what it costs that it is not. */
uint32_t sl_gpu_lane_reached(const struct sl_gpu_lane *lane, const struct sl_cuda *cuda,
                             bool *failed)
{
    uint32_t share = lane->first;
    int result = SL_CUDA_SUCCESS;

    *failed = false;
    if (lane->next - share > 1 && ask(lane, cuda, lane->next - 1) == SL_CUDA_SUCCESS)
        return lane->next;
    for (; share != lane->next; share++) {
        result = ask(lane, cuda, share);
        if (result != SL_CUDA_SUCCESS)
            break;
    }
    if (result != SL_CUDA_SUCCESS && result != SL_CUDA_ERROR_NOT_READY) {
        sl_cuda_fail(cuda, -EIO, "a codec's kernel on the GPU", result);
        *failed = true;
    }
    return share;
}
