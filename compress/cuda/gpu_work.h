/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a codec's steps (core/step.h) as kernels on a stream: the bytes of
 * compress/runner.c. */
#ifndef SL_COMPRESS_CUDA_GPU_WORK_H
#define SL_COMPRESS_CUDA_GPU_WORK_H

#include "compress/runner.h"

struct sl_cuda;
struct sl_gpu_codecs;
struct sl_gpu_sums;

/* One codec on one context. */
struct sl_gpu_work {
    const struct sl_cuda *cuda;
    const struct sl_code_runner *plain; /* codec and parameters; borrowed */
    struct sl_gpu_codecs *codecs;
    struct sl_gpu_sums *sums;
};

/* For the current context; loads kernels, which takes its time. plain must live on. -ENOTSUP, with
 * the choices there are: no kernels for this codec with these parameters. -ENOMEM, -EIO. */
int sl_gpu_work_init(struct sl_gpu_work *gpu, const struct sl_cuda *cuda,
                     const struct sl_code_runner *plain);
void sl_gpu_work_fini(struct sl_gpu_work *gpu);

/* Whether it can be done, before anything of it is; *len: the bytes that it will leave in the wire
 * buffer. -ENOTSUP, -EMSGSIZE, -EBADMSG, each with a sentence. */
int sl_gpu_work_check(const struct sl_gpu_work *gpu, const struct sl_work *work, uint64_t *len);

/* Puts it on the stream, of the current context. -EIO; -EINVAL: elements that are not aligned. */
int sl_gpu_work_launch(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream);

#endif
