/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch of a codec on a GPU: memory of the GPU, and pinned memory of the host, which its kernels
 * read and write, too. At setup: taking it is slow, and giving it back waits for the GPU. */
#ifndef SL_COMPRESS_CUDA_GPU_MEMORY_H
#define SL_COMPRESS_CUDA_GPU_MEMORY_H

#include <stddef.h>

struct sl_cuda;

/* len bytes, more than none, by that context. -ENOMEM, -EIO; *out is untouched then. */
int sl_gpu_take(const struct sl_cuda *cuda, void *context, size_t len, void **out);
/* All 0. */
int sl_gpu_take_pinned(const struct sl_cuda *cuda, void *context, size_t len, void **out);

/* Take NULL. */
void sl_gpu_give(const struct sl_cuda *cuda, void *context, void *memory);
void sl_gpu_give_pinned(const struct sl_cuda *cuda, void *context, void *memory);

#endif
