/* SPDX-License-Identifier: Apache-2.0 */
/* What arrives for GPU memory: made visible, or copied there out of a frame. */
#ifndef SL_MULTIPATH_GPU_COPY_H
#define SL_MULTIPATH_GPU_COPY_H

#include "core/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_mp_channel;
struct sl_mp_iface;
struct sl_mp_region;
struct sl_mp_rx_msg;

/* The copy engine for the memory of region->gpu's context, made when it is the first. -ENOTSUP. */
int sl_mp_gpu_stage(struct sl_mp_iface *iface, struct sl_mp_region *region);
/* -EINVAL: its memory went away. */
int sl_mp_gpu_check(const struct sl_mem_region *region);
/* All that was written into it has arrived: it becomes visible to the GPU. -EIO. */
int sl_mp_gpu_arrived(const struct sl_mp_region *region);
/* Bytes of a frame for a posted receive, borrowed: the receive ends in progress. -EAGAIN: later.
 * -EIO. */
int sl_mp_gpu_copy(const struct sl_mp_rx_msg *msg, const uint8_t *bytes, size_t len);
int sl_mp_gpu_progress(struct sl_mp_iface *iface);
bool sl_mp_gpu_busy(const struct sl_mp_iface *iface);
/* No copy touches memory of this channel's receives any more, and none ends one. */
void sl_mp_gpu_forget(struct sl_mp_channel *channel);
void sl_mp_gpu_close(struct sl_mp_iface *iface);

#endif
