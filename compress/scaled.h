/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs of small floats in blocks that share a scale: e4m3, e5m2, mxfp8, mxfp4, nvfp4, e3m0.
 *
 *   tile:  | head, scales of blocks, zeros up to 16 bytes | codes of whole blocks, to 16 bytes |
 *
 * They differ in the format of their elements and in how scales come from the maxima of blocks; a
 * tile is walked alike: maxima, scales and their inverses, codes of x * inverse.
 */
#ifndef SL_COMPRESS_SCALED_H
#define SL_COMPRESS_SCALED_H

#include "compress/codec.h"
#include "compress/kernels.h"
#include "compress/minifloat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_SCALED_BLOCKS_MAX (SL_TILE / 16)

struct sl_scaled {
    enum sl_minifloat kind;
    uint8_t block;       /* elements: 16, 32 or 128 */
    uint8_t head;        /* bytes before the scales */
    uint8_t scale_bytes; /* of each */
    /* Those in bf16, made as of bq8; or, where most is 0, what make() makes of them. */
    struct sl_scales halves;
    /* Writes head and scales of the blocks. A block gets inverse 0 if it is zero or not finite.
     * values: as read() gives them. */
    void (*make)(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                 float *inverses);
    /* What codes are multiplied by: finite or SL_BITS_NAN, whatever the bytes are. */
    void (*read)(const uint8_t *in, size_t blocks, float *scales);
};

extern const struct sl_scaled sl_scaled_e4m3, sl_scaled_e5m2, sl_scaled_mxfp8, sl_scaled_mxfp4,
    sl_scaled_nvfp4, sl_scaled_e3m0;

/* Members of their rows. */
size_t sl_scaled_size(const struct sl_codec_spec *spec, size_t count);
size_t sl_scaled_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                        const void *in, size_t count, void *out);
int sl_scaled_decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t len, size_t count, void *out);
int sl_scaled_decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t len, size_t count, float *sum);
size_t sl_scaled_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                          const void *in, float *residual, size_t count, void *out);

/* Scales in bf16: what is not finite, which is from others, is the one NaN. */
void sl_scaled_read_bf16(const uint8_t *in, size_t blocks, float *scales);

/* The loops over elements. count: whole units of SL_UNIT; block: of the codecs with that format. */
struct sl_scaled_kernels {
    /* Scales that are powers of two (mx_scales.h). */
    void (*mx)(const uint32_t *maxima, size_t blocks, uint32_t most, uint8_t *codes, float *values,
               float *inverses);
    /* Scales of blocks over that of their tile (nvfp4_scales.h). */
    void (*nvfp4)(const uint32_t *maxima, size_t blocks, float tile, uint8_t *codes, float *values,
                  float *inverses);
    /* Of each block of 16 the largest magnitude's bits. */
    void (*maxima16)(const struct sl_input *in, size_t count, uint32_t *maxima);
    /* Codes of a block with the inverse 0 mean nothing. It asks for what is wanted next. stream:
     * past the caches, without a fence; codes are aligned to 16. */
    void (*encode[SL_MINI_COUNT])(const struct sl_input *in, size_t count, unsigned block,
                                  const float *inverses, bool stream, uint8_t *codes);
    void (*decode[SL_MINI_COUNT])(const uint8_t *codes, size_t count, unsigned block,
                                  const float *scales, const struct sl_output *out);
    /* encode() of the residual, then residual -= what the codes mean; of blocks that are not
     * finite, neither means anything. next: of the input, or NULL; with it the residual behind the
     * tile is asked for. */
    void (*feedback[SL_MINI_COUNT])(const void *next, float *residual, size_t count, unsigned block,
                                    const float *inverses, const float *scales, bool stream,
                                    uint8_t *codes);
};

extern const struct sl_scaled_kernels sl_scaled_c, sl_scaled_avx2, sl_scaled_avx512;

/* Those of the same instructions. */
const struct sl_scaled_kernels *sl_scaled_kernels_of(const struct sl_codec_kernels *kernels);

#endif
