/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scales of a tile in nvfp4, from the maxima of its blocks: plain loops, which each file of
 * kernels turns into the instructions that it may use. nvfp4.c says what they are.
 */
#ifndef SL_COMPRESS_NVFP4_SCALES_H
#define SL_COMPRESS_NVFP4_SCALES_H

#include "compress/minifloat.h"
#include "compress/scales.h"

#define SL_NVFP4_TILE_LEAST 0x1p-117f
#define SL_NVFP4_TILE_MOST 0x1.86p116f
#define SL_NVFP4_NAN 0x7f

/* 0 for what is zero or not finite. */
static inline uint32_t sl_nvfp4_usable(uint32_t max)
{
    return ((max >= SL_SCALE_LEAST) & (max < SL_BITS_INF)) ? max : 0;
}

/* 0 where no block is usable. */
static inline float sl_nvfp4_tile(const uint32_t *maxima, size_t blocks)
{
    uint32_t most = 0;
    float scale;

    for (size_t i = 0; i < blocks; i++) {
        uint32_t max = sl_nvfp4_usable(maxima[i]);

        most = max > most ? max : most;
    }
    scale = sl_f32_of(most) / (6 * 448);
    scale = scale > SL_NVFP4_TILE_MOST ? SL_NVFP4_TILE_MOST : scale;
    return most == 0 ? 0 : scale < SL_NVFP4_TILE_LEAST ? SL_NVFP4_TILE_LEAST : scale;
}

/* Codes of the blocks' scales, what they mean, and their inverses. */
static inline void sl_nvfp4_make(const uint32_t *maxima, size_t blocks, float tile, uint8_t *codes,
                                 float *values, float *inverses)
{
    float divisor = tile == 0 ? 1 : 6 * tile;

    for (size_t i = 0; i < blocks; i++) {
        uint32_t max = sl_nvfp4_usable(maxima[i]);
        uint32_t near = sl_minifloat_encode(SL_MINI_E4M3, sl_f32_of(max) / divisor);
        uint32_t code = near < 1 ? 1 : near;
        float value = sl_minifloat_decode(SL_MINI_E4M3, code) * tile;
        uint32_t inverse = sl_f32_bits(1 / value), bits = sl_f32_bits(value);
        bool finite = maxima[i] < SL_BITS_INF;

        code = max == 0 ? 0 : code;
        bits = max == 0 ? 0 : bits;
        inverses[i] = sl_f32_of(max == 0 ? 0 : inverse);
        codes[i] = (uint8_t)(finite ? code : SL_NVFP4_NAN);
        values[i] = sl_f32_of(finite ? bits : SL_BITS_NAN);
    }
}

#endif
