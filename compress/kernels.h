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
    SL_PUT_STREAM, /* stored past the caches, out is aligned to 64; fence() before it is shown */
    SL_PUT_ADD     /* added to what is there */
};

/* Elements as they lie in memory, widened as they are loaded: f32 aligned to 4, others anyhow. */
struct sl_input {
    const void *at;
    unsigned dtype;
    const void *next; /* what is wanted next, or NULL: long passes over a tile ask memory for it,
                       * which has then something to do all the time */
};

/* Where decoded numbers go, narrowed as they are stored; f32 aligned to 4, others anyhow. */
struct sl_output {
    void *at;
    unsigned dtype; /* not F32: put is SL_PUT_STORE */
    enum sl_put put;
};

static inline size_t sl_dtype_bytes(unsigned dtype)
{
    return dtype == SLUICE_F32 ? 4 : 2;
}

/* The same from element first on. */
static inline struct sl_input sl_input_from(const struct sl_input *in, size_t first)
{
    size_t off = first * sl_dtype_bytes(in->dtype);

    return (struct sl_input){(const char *)in->at + off, in->dtype,
                             in->next != NULL ? (const char *)in->next + off : NULL};
}

#define SL_BLOCKS_MAX (SL_TILE / 32)

/* Scales of blocks: bf16, or bytes that are an unsigned float of 5 and 3 bits over a base. */
struct sl_scales {
    bool bytes;
    uint8_t drop; /* bits of an f32 that a scale has not */
    uint32_t
        most; /* the largest scale, those bits dropped: its product by the quantile is finite */
    float quantile; /* the largest code */
    bool up;        /* rounded up, so that none is past the largest; otherwise to nearest even */
};
#define SL_SCALE_NAN 255        /* of bytes */
#define SL_SCALE_TOP 30         /* exponent, of bytes, that a tile's largest scale gets */
#define SL_SCALE_NO_BASE (-128) /* of bytes that are all 0 or NaN: below all bases */

struct sl_codec_kernels {
    const char *name; /* "avx512", "avx2", "c" */

    /* After stores past the caches, before any other thread may look: once a message, since it
     * waits for all stores. */
    void (*fence)(void);

    /* max[b]: the largest (bits & 0x7fffffff) of block b. size: 32 or 128, count: of elements. */
    void (*maxima)(const struct sl_input *in, size_t count, unsigned size, uint32_t *max);

    /* The scales of blocks with these maxima: their codes, as floats (NaN of what is not finite),
     * and their inverses (0 of 0 and NaN). Returns the base of bytes, or
     * SL_SCALE_NO_BASE. */
    int (*scales)(const struct sl_scales *scales, const uint32_t *max, size_t blocks, float *value,
                  float *inverse, void *codes);

    /* Codes of 8, 4 or 2 bits: in * inverse[block], rounded to nearest even, or at random, and held
     * to -most..most; anything for NaN and infinity. random: 16 bits an element, or NULL.
     * stream: past the caches, of 8 bits alone, since others share lines with scales, which are
     * stored the usual way. out is aligned to 16. */
    void (*codes)(unsigned bits, const struct sl_input *in, size_t count, unsigned size,
                  const float *inverse, const uint16_t *random, bool stream, void *out);
    void (*decode)(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   const struct sl_output *out);

    /* Blocks of 32 or 128: times factor, then butterflies. in may be out. */
    void (*rotate)(const float *in, size_t count, unsigned size, float factor, float *out);

    /* Returns the largest (bits & 0x7fffffff). lanes[i % 16] += |in[i]|, from 0, in order of i. */
    uint32_t (*sign_encode)(const struct sl_input *in, size_t count, double lanes[16], void *bits);
    void (*sign_decode)(const void *bits, size_t count, float mean, const struct sl_output *out);

    /* bf16 or f16. These take any count, and halves at any alignment, but of 16 to stream. random:
     * as above. */
    void (*narrow)(unsigned dtype, const float *in, size_t count, const uint16_t *random,
                   bool stream, void *out);
    void (*widen)(unsigned dtype, const void *in, size_t count, enum sl_put put, float *out);

    /* The 16 bits of each of count elements from first on, whole units both (philox.h). */
    void (*random)(uint64_t first, size_t count, uint32_t stream, uint32_t step, uint64_t seed,
                   uint16_t *out);

    /* residual += in, and its maxima. size: 16, 32 or 128. */
    void (*feedback_maxima)(const struct sl_input *in, size_t count, unsigned size, float *residual,
                            uint32_t *max);
    /* codes() of the residual, then residual -= code * scale[block]; of blocks that are not finite,
     * neither means anything. */
    void (*feedback_codes)(unsigned bits, float *residual, size_t count, unsigned size,
                           const float *inverse, const float *scale, const uint16_t *random,
                           bool stream, void *out);
    /* residual -= what the mean and its sign say, 0 where that is no number. */
    void (*feedback_sign)(float *residual, size_t count, float mean, const void *next);
    /* feedback_sum(), then sign_encode() of the residual. */
    uint32_t (*feedback_sign_sum)(const struct sl_input *in, float *residual, size_t count,
                                  double lanes[16], void *bits);
    /* All three of narrow(). Any count. */
    void (*feedback_narrow)(unsigned dtype, const float *in, float *residual, size_t count,
                            const uint16_t *random, bool stream, void *out);

    /* Any count. x *= factor. */
    void (*times)(float *x, size_t count, float factor);

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
