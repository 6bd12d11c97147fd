/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scales of a tile's blocks, from their maxima: plain loops, which each file of kernels turns
 * into the instructions that it may use.
 */
#ifndef SL_COMPRESS_SCALES_H
#define SL_COMPRESS_SCALES_H

#include "compress/elements.h"
#include "compress/kernels.h"

#define SL_SCALE_LEAST 0x00800000u /* 2^-126, also of a block that is not tiny */

/* The scale of each block as bits without those dropped, 0 of what is tiny or not finite. Returns
 * the largest. */
static inline uint32_t sl_scales_find(const struct sl_scales *s, const uint32_t *max, size_t blocks,
                                      uint32_t *scale)
{
    const uint32_t even = s->up ? 0 : 1, bias = (1u << (s->drop - even)) - 1,
                   least = SL_SCALE_LEAST >> s->drop, most = s->most;
    uint32_t top = 0;

    for (size_t b = 0; b < blocks; b++) {
        uint32_t x = sl_f32_bits(sl_f32_of(max[b]) / s->quantile);

        x = (x + bias + (x >> s->drop & even)) >> s->drop;
        x = x < least ? least : x;
        x = x > most ? most : x;
        x = ((max[b] < SL_SCALE_LEAST) | (max[b] >= SL_BITS_INF)) ? 0 : x;
        scale[b] = x;
        top = x > top ? x : top;
    }
    return top;
}

/* Bytes over a base, those too small for it 0. Returns the base, or SL_SCALE_NO_BASE. */
static inline int sl_scales_bytes(const uint32_t *max, size_t blocks, uint32_t top, uint32_t *scale,
                                  uint8_t *bytes)
{
    int base = top > 0 ? (int)(top >> 3) - 127 : SL_SCALE_NO_BASE;
    int32_t lowest = 8 * (base + 127 - SL_SCALE_TOP);

    for (size_t b = 0; b < blocks; b++) {
        int32_t code = (int32_t)scale[b] - lowest;

        code = ((scale[b] == 0) | (code < 1)) ? 0 : code;
        scale[b] = code == 0 ? 0 : scale[b];
        bytes[b] = (uint8_t)(max[b] >= SL_BITS_INF ? SL_SCALE_NAN : code);
    }
    return base;
}

static inline void sl_scales_halves(const uint32_t *max, size_t blocks, const uint32_t *scale,
                                    uint16_t *halves)
{
    for (size_t b = 0; b < blocks; b++)
        halves[b] = (uint16_t)(max[b] >= SL_BITS_INF ? SL_BITS_NAN >> 16 : scale[b]);
}

/* As floats, NaN of what is not finite, and their inverses, correctly rounded, 0 of 0 and NaN. */
static inline void sl_scales_floats(const struct sl_scales *s, const uint32_t *max, size_t blocks,
                                    const uint32_t *scale, float *value, float *inverse)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t bits = scale[b] << s->drop;
        uint32_t one = sl_f32_bits(1.0f / sl_f32_of(bits));

        inverse[b] = sl_f32_of(bits != 0 ? one : 0);
        value[b] = sl_f32_of(max[b] >= SL_BITS_INF ? SL_BITS_NAN : bits);
    }
}

static inline int sl_scales_make(const struct sl_scales *s, const uint32_t *max, size_t blocks,
                                 float *value, float *inverse, void *codes)
{
    uint32_t scale[SL_BLOCKS_MAX], top = sl_scales_find(s, max, blocks, scale);
    int base = 0;

    if (s->bytes)
        base = sl_scales_bytes(max, blocks, top, scale, (uint8_t *)codes);
    else
        sl_scales_halves(max, blocks, scale, (uint16_t *)codes);
    sl_scales_floats(s, max, blocks, scale, value, inverse);
    return base;
}

#endif
