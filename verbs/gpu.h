/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory: registered, and written by what arrives. */
#ifndef SL_VERBS_GPU_H
#define SL_VERBS_GPU_H

#include "verbs/region.h"

struct sl_mp_conn;

#define SL_MP_STAGES_MAX 16 /* CUDA contexts whose memory is registered */

/* May GPU memory be registered with all rails, as far as they and the settings go? */
bool sl_verbs_gpu_possible(const struct sl_verbs_iface *iface);
/* On every rail, or none. -ENOTSUP, with the reason. */
int sl_verbs_gpu_reg(struct sl_verbs_iface *iface, const struct sl_mem *mem,
                     struct sl_verbs_mr *mr);
/* -EINVAL: its memory went away. */
int sl_mp_gpu_check(const struct sl_mem_region *region);
/* All that was written into it has arrived: it becomes visible to the GPU. -EIO. */
int sl_mp_gpu_arrived(const struct sl_verbs_mr *mr);
/* Bytes of a frame for a posted receive, borrowed: the receive ends in progress. -EAGAIN: later.
 * -EIO. */
int sl_mp_gpu_copy(struct sl_mp_conn *conn, uint32_t number, const uint8_t *bytes, size_t len);
int sl_mp_gpu_progress(struct sl_verbs_iface *iface);
bool sl_mp_gpu_busy(const struct sl_verbs_iface *iface);
/* No copy touches memory of this connection's receives any more, and none ends one. */
void sl_mp_gpu_forget(struct sl_mp_conn *conn);
void sl_mp_gpu_close(struct sl_verbs_iface *iface);

#endif
