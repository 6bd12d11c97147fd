/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the codecs, once in plain C, which is the reference, and once for each set of
 * wide instructions. All give the same bytes. Which runs is chosen once, by what the CPU has.
 */
#ifndef SL_COMPRESS_KERNELS_H
#define SL_COMPRESS_KERNELS_H

#include "compress/codec.h"

/* Kernels take whole units of elements; what is less is filled up with zeros by the caller. A tile,
 * and a block of any size, is so many units or fits one so many times. */
#define SL_UNIT 128

/* What becomes of decoded numbers. */
enum sl_put {
    SL_PUT_STORE,
    SL_PUT_STREAM, /* stored past the caches, then fenced; out is aligned to 64 */
    SL_PUT_ADD     /* added to what is there */
};

struct sl_codec_kernels {
    const char *name; /* "avx512", "avx2", "c" */

    /* max[b]: the largest (bits & 0x7fffffff) of block b. size: 32 or 128, count: of elements. */
    void (*maxima)(const float *in, size_t count, unsigned size, uint32_t *max);

    /* Codes of 8, 4 or 2 bits: in * inverse[block], rounded to nearest even, or at random, and held
     * to -most..most. random: 16 bits an element, or NULL. ahead: memory of the same length that is
     * wanted next, or NULL. stream: past the caches (not 2 bits); out is aligned to 16. */
    void (*codes)(unsigned bits, const float *in, size_t count, unsigned size, const float *inverse,
                  const uint16_t *random, const void *ahead, bool stream, void *out);
    void (*decode)(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   enum sl_put put, float *out);

    /* Blocks of 32 or 128: times factor, then butterflies. in may be out. */
    void (*rotate)(const float *in, size_t count, unsigned size, float factor, float *out);

    /* Returns the largest (bits & 0x7fffffff). lanes[i % 16] += |in[i]|, from 0, in order of i. */
    uint32_t (*sign_encode)(const float *in, size_t count, double lanes[16], void *bits);
    void (*sign_decode)(const void *bits, size_t count, float mean, enum sl_put put, float *out);

    /* bf16 or f16. These take any count, and halves at any alignment, but of 16 to stream. random:
     * as above. */
    void (*narrow)(unsigned dtype, const float *in, size_t count, const uint16_t *random,
                   bool stream, void *out);
    void (*widen)(unsigned dtype, const void *in, size_t count, enum sl_put put, float *out);

    /* The 16 bits of each of count elements from first on, a multiple of SL_TILE (philox.h). */
    void (*random)(uint64_t first, size_t count, uint32_t stream, uint32_t step, uint64_t seed,
                   uint16_t *out);

    /* Any count. sum = in + residual; residual = sum - sent, 0 where that is no number. */
    void (*feedback_sum)(const float *in, const float *residual, size_t count, float *sum);
    void (*feedback_rest)(const float *sum, const float *sent, size_t count, float *residual);
};

/* The best that this CPU has, or what was forced. */
const struct sl_codec_kernels *sl_codec_kernels(void);

/* For tests and benches: "c", "avx2", "avx512"; NULL: the best again. -ENOTSUP and a sentence where
 * this CPU or build lacks it. */
int sl_codec_kernels_force(const char *name);

/* What the build has, best first; lacks() says what the CPU has not. Ends with the plain one. */
struct sl_codec_kernels_choice {
    const struct sl_codec_kernels *kernels;
    const char *(*lacks)(void);
};
extern const struct sl_codec_kernels_choice sl_codec_kernels_choices[];
extern const size_t sl_codec_kernels_choice_count;
extern const struct sl_codec_kernels sl_codec_kernels_c, sl_codec_kernels_avx2,
    sl_codec_kernels_avx512;

/* Outputs of a call from this size on go past the caches: they would throw out all else, and cost a
 * read of what they overwrite. Smaller ones are pieces of a pipeline, sent from the cache. */
#define SL_STREAM_BYTES ((size_t)4 << 20)

#endif
