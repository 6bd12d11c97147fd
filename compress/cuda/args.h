/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel is started with: the same for the driver, for nvcc and for the emulation. */
#ifndef SL_COMPRESS_CUDA_ARGS_H
#define SL_COMPRESS_CUDA_ARGS_H

#include <stdint.h>

#define SL_GPU_TILE 4096u  /* SL_TILE of compress/codec.h, which C++ does not read */
#define SL_GPU_THREADS 128 /* of the block that works on one tile: 32 elements each */
#define SL_GPU_RANKS_MOST 64

#define SL_GPU_TOPK_HEAD 8256 /* bytes of work before the statuses of tiles */

/* Of lossless messages, whose length is known when they are made (palette.h). */
struct sl_gpu_palette_args {
    unsigned long long *len; /* encoder: bytes of the message */
    uint32_t *error;         /* decoder: not 0, the message is none */
    uint64_t in_len;         /* decoder: bytes that there are */
};

/* Of the largest elements (topk.h). */
struct sl_gpu_topk_args {
    uint32_t *index;
    float *value;
    uint32_t *found; /* [0] how many, [1] the least magnitude taken, if exact */
    uint64_t k;
    uint32_t cap; /* of index and value */
    uint32_t threshold;
    uint32_t level; /* of the histogram */
};

struct sl_gpu_args {
    const void *in; /* elements to encode, or bytes to decode */
    void *out;      /* bytes, or elements, or sums in f32 */
    float *residual;
    uint64_t count; /* elements of the message */
    uint64_t first; /* what struct sl_codec_at and the spec say of random numbers */
    uint64_t seed;
    uint32_t stream, step;
    uint32_t ranks; /* messages to reduce */
    float factor;
    void *work; /* of kernels whose blocks wait for each other (work.h) */
    union {
        const void *ranks_in[SL_GPU_RANKS_MOST]; /* the messages to reduce */
        struct sl_gpu_topk_args topk;
        struct sl_gpu_palette_args palette;
    };
};

#endif
