/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host bytes into GPU memory, by the GPU's copy engine: for short messages, whose bytes arrive in a
 * receive buffer.
 *
 * Bytes pass through pinned buffers and a stream that waits for no other, so that a kernel which
 * waits for these very bytes does not hold them up. One thread: no locks.
 */
#ifndef SL_GDR_STAGING_H
#define SL_GDR_STAGING_H

#include "gdr/gpu.h"

#include <stdint.h>

struct sl_clock;
struct sl_gpu_stage;

/* A copy that has ended: 0, or -EIO. number is the caller's. */
typedef void sl_gpu_copied(void *owner, uint32_t number, int status);

/* For memory of that context: so many buffers of len bytes. -ENOTSUP: it has no context. -EIO;
 * -ENOMEM. */
int sl_gpu_stage_create(const struct sl_gpu_memory *memory, const struct sl_clock *clock,
                        size_t len, unsigned count, struct sl_gpu_stage **out);
/* No copy may be under way. Takes NULL. */
void sl_gpu_stage_destroy(struct sl_gpu_stage *stage);

/* Does it serve memory of that context? */
bool sl_gpu_stage_serves(const struct sl_gpu_stage *stage, const struct sl_gpu_memory *memory);

/* Copies len bytes (at most a buffer's) of src, which is borrowed, to dst; done comes from
 * progress. -EAGAIN: all buffers are under way. -EIO: the driver failed, nothing was taken. */
int sl_gpu_stage_copy(struct sl_gpu_stage *stage, void *dst, const void *src, size_t len,
                      sl_gpu_copied *done, void *owner, uint32_t number);

/* Ends copies that are complete; how many. */
unsigned sl_gpu_stage_progress(struct sl_gpu_stage *stage);

/* How many copies are under way. */
unsigned sl_gpu_stage_busy(const struct sl_gpu_stage *stage);

/* Waits until no copy of that owner touches memory any more, and forgets them: done is not called.
 * A GPU that does not finish within seconds is lost, and is not waited for. */
void sl_gpu_stage_forget(struct sl_gpu_stage *stage, const void *owner);

#endif
