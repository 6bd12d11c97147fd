/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lossless messages (codec palette) on a GPU: the bytes of compress/palette.h.
 *
 * All pointers are device pointers, lent until the stream is past the kernel, which allocates
 * nothing and waits for nothing: how long a message became, and whether one was good, is told in
 * device memory. The calling thread's context must be that of create().
 */
#ifndef SL_COMPRESS_CUDA_GPU_PALETTE_H
#define SL_COMPRESS_CUDA_GPU_PALETTE_H

#include <stddef.h>
#include <stdint.h>

struct sl_gpu_palette; /* the kernels, loaded */

int sl_gpu_palette_create(struct sl_gpu_palette **out);
void sl_gpu_palette_destroy(struct sl_gpu_palette *palette);

/* Bytes of memory that kernels work in, aligned to 16. All zeros before the first call, and again
 * after each. */
size_t sl_gpu_palette_work_size(size_t count);

/* dtype: enum sluice_dtype of in: f32, bf16 or f16. out: size() bytes of the codec's row, aligned
 * to 16. *len: what it became, an unsigned 64-bit number. */
int sl_gpu_palette_encode(const struct sl_gpu_palette *palette, unsigned dtype, const void *in,
                          size_t count, void *out, unsigned long long *len, void *work,
                          void *stream);

/* in: len bytes, aligned to 16. *error becomes 1 where they are no message of count elements, and
 * stays as it was otherwise; out is then unspecified. -EBADMSG: they are too few. */
int sl_gpu_palette_decode(const struct sl_gpu_palette *palette, unsigned dtype, const void *in,
                          size_t len, size_t count, void *out, uint32_t *error, void *work,
                          void *stream);

#endif
