/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scales of MX from the maxima of blocks: a plain loop, which each file of kernels turns into
 * the instructions that it may use. mx.c says what they are.
 */
#ifndef SL_COMPRESS_MX_SCALES_H
#define SL_COMPRESS_MX_SCALES_H

#include "compress/scales.h"

#define SL_MX_NAN 0xffu

/* 2^(scale - 127), of which that for 0 is too small for an f32 with a leading 1. */
static inline uint32_t sl_mx_bits(uint32_t scale)
{
    return scale == 0 ? 0x00400000 : scale << 23;
}

/* most: the exponent of the format's largest value. Codes of the scales, what they mean, and their
 * inverses: at most 2^127, and never below 2^-125. */
static inline void sl_mx_make(const uint32_t *restrict maxima, size_t blocks, uint32_t most,
                              uint8_t *restrict codes, float *restrict values,
                              float *restrict inverses)
{
    for (size_t i = 0; i < blocks; i++) {
        uint32_t max = maxima[i], exp = max >> 23, scale = exp > most ? exp - most : 0;
        uint32_t wild = max >= SL_BITS_INF, none = wild | (max < SL_SCALE_LEAST);
        uint32_t inverse = (254 - scale) << 23, value = sl_mx_bits(scale);

        codes[i] = (uint8_t)(wild ? SL_MX_NAN : scale);
        inverses[i] = sl_f32_of(none ? 0 : inverse);
        values[i] = sl_f32_of(wild ? SL_BITS_NAN : value);
    }
}

#endif
