/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of the driver, and how far it has come: what is put there at once is a share, with an
 * event behind it. The context is entered for each call. */
#ifndef SL_COMPRESS_CUDA_GPU_LANE_H
#define SL_COMPRESS_CUDA_GPU_LANE_H

#include "core/list.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_GPU_SHARES 32 /* under way */

struct sl_cuda;

struct sl_gpu_lane {
    void *stream, *events[SL_GPU_SHARES];
    uint32_t first, next; /* shares under way: from first to before next */
    unsigned count;       /* jobs */
    bool open;            /* of the share `next` there are jobs, and no event yet */
    struct sl_node jobs;  /* in their order; the owner's */
};

/* A result of the driver; what there is of it goes by fini in any case. The lane was all 0. */
int sl_gpu_lane_init(struct sl_gpu_lane *lane, const struct sl_cuda *cuda);
void sl_gpu_lane_fini(struct sl_gpu_lane *lane, const struct sl_cuda *cuda);

static inline bool sl_gpu_lane_is_full(const struct sl_gpu_lane *lane)
{
    return lane->next - lane->first == SL_GPU_SHARES;
}

/* Nothing that is put there from now on begins before that event, as it is recorded now. -EIO. */
int sl_gpu_lane_follow(const struct sl_gpu_lane *lane, const struct sl_cuda *cuda, void *event);

/* Ends the open share. -EIO: there is no event behind it, and its number is the next one's. */
int sl_gpu_lane_close(struct sl_gpu_lane *lane, const struct sl_cuda *cuda);

/* Up to which share, before it, all is done; *failed: the one there has failed, and the last error
 * says why. */
uint32_t sl_gpu_lane_reached(const struct sl_gpu_lane *lane, const struct sl_cuda *cuda,
                             bool *failed);

#endif
