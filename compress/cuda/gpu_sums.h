/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in f32 on a GPU, on a stream of the caller's. As gpu.h. */
#ifndef SL_COMPRESS_CUDA_GPU_SUMS_H
#define SL_COMPRESS_CUDA_GPU_SUMS_H

#include <sluice/types.h>

#include <stddef.h>

struct sl_gpu_sums; /* the kernels, as one context has loaded them */

/* For the current context; loads them. -ENOTSUP: this build has none; -EIO. */
int sl_gpu_sums_create(struct sl_gpu_sums **out);
/* Takes NULL. */
void sl_gpu_sums_destroy(struct sl_gpu_sums *sums);

/* Each of count sums becomes its product with factor. */
int sl_gpu_sums_scale(const struct sl_gpu_sums *sums, float *sum, size_t count, float factor,
                      void *stream);

/* out: count elements of dtype, SLUICE_BF16 or SLUICE_F16, as sl_elements_narrow() has them.
 * -EINVAL: out is not aligned to them. */
int sl_gpu_sums_narrow(const struct sl_gpu_sums *sums, enum sluice_dtype dtype, const float *sum,
                       size_t count, void *out, void *stream);

#endif
