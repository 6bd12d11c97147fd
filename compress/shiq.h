/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-scale integers: all ranks quantise with the same scales, so that sums of codes are codes
 * of the sum, exactly, in any order and over any topology, a switch included.
 *
 * First each rank's scales go through an all-reduce of SLUICE_U32 and SLUICE_MAX: they are bits of
 * floats that are not negative, and NaN is above all numbers. Then codes go through an all-reduce
 * of SLUICE_SUM. A code is at most 127 / ranks (32767 / ranks with bits=16), so no sum overflows.
 *
 * spec: a checked one of SL_CODEC_SHIQ. ranks 0: 1, and in a collective as many as it has.
 *
 * Source: A. Sapio et al., "Scaling distributed machine learning with in-network aggregation", NSDI
 * 2021.
 */
#ifndef SL_COMPRESS_SHIQ_H
#define SL_COMPRESS_SHIQ_H

#include "compress/codec.h"

#define SL_SHIQ_BLOCK 128 /* elements that share a scale */

/* Scales of count elements: as many as there are blocks, the last of which may not be full. */
static inline size_t sl_shiq_scale_count(size_t count)
{
    return count / SL_SHIQ_BLOCK + (count % SL_SHIQ_BLOCK != 0);
}

/* The scales that this rank's elements need. */
void sl_shiq_scales(const struct sl_codec_spec *spec, const void *in, size_t count,
                    uint32_t *scales);

/* codes: count of int8_t, or of int16_t with bits=16. What scales are too small for is clipped;
 * where a scale is no number, codes are 0. */
void sl_shiq_quantise(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, const uint32_t *scales, void *codes);

/* out[i] = code * scale * factor; NaN where the scale is no number. */
void sl_shiq_dequantise(const struct sl_codec_spec *spec, const void *codes, size_t count,
                        const uint32_t *scales, float factor, void *out);

/* A message of the codec "shiq" with these scales. Messages with the same ones can be added. */
size_t sl_shiq_encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, const uint32_t *scales, void *out);

#endif
