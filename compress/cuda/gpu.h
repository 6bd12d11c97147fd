/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs on a GPU: kernels that give the bytes of compress/codec.h, started on a stream of the
 * caller's.
 *
 * Pointers to elements, bytes, residuals and sums are device pointers: encoded messages aligned to
 * 16 bytes, elements to their own size, fastest to 16 bytes. They are lent until the stream is past
 * the kernel. A launch allocates nothing and waits for nothing. Sizes are those of the codec's row.
 *
 * The calling thread's current context must be that of the table. All return 0, -EINVAL for
 * arguments that cannot be, -ENOTSUP for a codec without kernels, -EIO where the driver refuses.
 */
#ifndef SL_COMPRESS_CUDA_GPU_H
#define SL_COMPRESS_CUDA_GPU_H

#include "compress/codec.h"

#include <stddef.h>

struct sl_gpu_codecs; /* the kernels that one context has loaded */

/* For the current context. Loads nothing yet. */
int sl_gpu_codecs_create(struct sl_gpu_codecs **out);
void sl_gpu_codecs_destroy(struct sl_gpu_codecs *codecs);

/* Loads what the codec needs, once: at setup, since the driver takes its time and memory. A launch
 * of what is not loaded is -EINVAL. */
int sl_gpu_codecs_load(struct sl_gpu_codecs *codecs, unsigned id);

/* Does this build have kernels for it? */
bool sl_gpu_codecs_have(unsigned id);

int sl_gpu_encode(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const struct sl_codec_at *at, const void *in, size_t count, void *out,
                  void *stream);
int sl_gpu_encode_feedback(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                           const struct sl_codec_at *at, const void *in, float *residual,
                           size_t count, void *out, void *stream);
int sl_gpu_decode(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const void *in, size_t len, size_t count, void *out, void *stream);
int sl_gpu_decode_add(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                      const void *in, size_t len, size_t count, float *sum, void *stream);

/* As sl_codec_reduce(), of one spec: in is an array, of the host, of at most SL_GPU_RANKS_MOST
 * device pointers. */
#define SL_GPU_REDUCE_MOST 64
int sl_gpu_reduce(const struct sl_gpu_codecs *codecs, const struct sl_codec_spec *spec,
                  const struct sl_codec_at *at, const void *const *in, unsigned ranks, size_t len,
                  float factor, size_t count, void *out, void *stream);

/* What was compiled: a module for each codec, in the driver's format. Ends with a row of NULLs. */
struct sl_gpu_image {
    const char *codec;
    const void *bytes;
};
extern const struct sl_gpu_image sl_gpu_images[];
const struct sl_gpu_image *sl_gpu_image_find(const char *name); /* NULL: there is none */

#endif
