/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements of a message on a GPU: compress/topk.h as kernels on a stream of the
 * caller's. The same elements in the same order.
 *
 * All pointers are device pointers, lent until the stream is past the kernels, which allocate
 * nothing and wait for nothing: how many were found is told in device memory. The calling thread's
 * context must be that of create().
 */
#ifndef SL_COMPRESS_CUDA_GPU_TOPK_H
#define SL_COMPRESS_CUDA_GPU_TOPK_H

#include <stddef.h>
#include <stdint.h>

struct sl_gpu_topk; /* the kernels, loaded */

int sl_gpu_topk_create(struct sl_gpu_topk **out);
void sl_gpu_topk_destroy(struct sl_gpu_topk *topk);

/* Elements go to index[] and value[], which have room for cap; of more, the first cap are written.
 * found[0]: how many there are. found[1]: of exact(), the least magnitude taken. */
struct sl_gpu_topk_out {
    uint32_t *index;
    float *value;
    uint32_t *found;
    uint32_t cap;
};

/* Bytes of memory that kernels work in, aligned to 16. All zeros before the first call, and again
 * after each: one for each call that may run at the same time. */
size_t sl_gpu_topk_work_size(size_t count, uint32_t cap);

#define SL_GPU_TOPK_COUNT_MOST INT32_MAX

/* dtype: enum sluice_dtype of in: f32, bf16 or f16. All elements whose magnitude's bits as an f32
 * are threshold at least. residual: NULL, or count floats: those of residual + in; what is written
 * or no number becomes 0 there. */
int sl_gpu_topk_above(const struct sl_gpu_topk *topk, unsigned dtype, const void *in,
                      float *residual, size_t count, uint32_t threshold,
                      const struct sl_gpu_topk_out *out, void *work, void *stream);

/* The min(k, count) largest. cap: k at least; with twice as many, mostly two passes. */
int sl_gpu_topk_exact(const struct sl_gpu_topk *topk, unsigned dtype, const void *in, size_t count,
                      size_t k, const struct sl_gpu_topk_out *out, void *work, void *stream);

#endif
