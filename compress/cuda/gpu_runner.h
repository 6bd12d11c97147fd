/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner of a codec's steps (core/step.h) where elements are in a GPU's memory: kernels encode
 * from there into the wire buffer, which is pinned memory of the host that any transport sends, and
 * decode and add from there.
 *
 * Steps that it takes wait in a queue until the next progress, or until there is one for each of
 * its streams. They share out streams then, and an event of each stream tells when its share is
 * done: no call waits for the GPU. A step that is after another one goes behind it on its stream,
 * and so a chain of them is on its way at once. One thread at a time.
 */
#ifndef SL_COMPRESS_CUDA_GPU_RUNNER_H
#define SL_COMPRESS_CUDA_GPU_RUNNER_H

#include "compress/runner.h"
#include "gdr/gpu.h"

struct sl_clock;
struct sl_gpu_runner;

/* On the GPU of that memory, with the codec and parameters of plain, whose tally it adds to; plain
 * must live on. Loads kernels: at setup. -ENOTSUP, with the reason: the codec has no kernels, or
 * the memory no context. -ENOMEM, -EIO. */
int sl_gpu_runner_create(const struct sl_gpu_memory *memory, struct sl_code_runner *plain,
                         const struct sl_clock *clock, struct sl_gpu_runner **out);
/* Nothing may be under way. Takes NULL. */
void sl_gpu_runner_destroy(struct sl_gpu_runner *runner);

struct sl_runner *sl_gpu_runner_base(struct sl_gpu_runner *runner);

/* Memory of the host that its kernels read and write, too, all 0: for what operations keep
 * (compress/feedback_state.h). Of -ENOMEM, -EIO the sentence says which bytes. */
int sl_gpu_runner_take_pinned(struct sl_gpu_runner *runner, size_t len, void **out);
void sl_gpu_runner_give_pinned(struct sl_gpu_runner *runner, void *memory);

/* Does it work on memory of that context? */
bool sl_gpu_runner_serves(const struct sl_gpu_runner *runner, const struct sl_gpu_memory *memory);

/* What it is given from now on begins after all that is on that stream of the caller's now; NULL:
 * on the default stream. -EIO. */
int sl_gpu_runner_after(struct sl_gpu_runner *runner, void *stream);

#endif
