/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec nvfp4: E2M1 in blocks of 16 with a scale in E4M3, and one scale in f32 above them all.
 *
 * NVIDIA's recipe has that f32 once a tensor; here it is once a tile, in the head, since tiles are
 * independent. Values are code * (block scale * tile scale): the inner product is rounded first, so
 * that there is one factor for a block.
 *
 *   tile scale    T = max of the tile / (6 * 448), at least 2^-117, at most 195 * 2^109
 *   block scale   S = max of the block / (6 * T), rounded up to E4M3, at most 448
 *   codes         E2M1 of x * (1 / (S * T))
 *
 * S is at least 2^-9, so S * T is at least 2^-126 and its inverse finite; T * 448 * 6 is finite as
 * well, so that what is finite decodes to what is finite. Blocks that are not do not count in the
 * maximum of the tile: their S is NaN.
 *
 * Source: NVIDIA, "Pretraining large language models with NVFP4", 2025.
 */
#include "compress/codecs.h"
#include "compress/scaled.h"
#include "compress/scales.h"

#include <string.h>

#define HEAD 16
#define LEAST_TILE_SCALE 0x1p-117f
#define LARGEST_TILE_SCALE 0x1.86p116f
#define NAN_SCALE 0x7f

/* 0 for what is zero or not finite. */
static uint32_t usable(uint32_t max)
{
    return max >= SL_SCALE_LEAST && max < SL_BITS_INF ? max : 0;
}

/* The code of the least E4M3 that is not below x, but at least the least above 0 and at most the
 * largest. Without a branch, for vectors. */
static inline uint32_t e4m3_up(float x)
{
    uint32_t normal = ((sl_f32_bits(x) + 0xfffff) >> 20) - (120 << 3);
    int32_t whole = (int32_t)(x * 512); /* in units of the least */
    uint32_t small = (uint32_t)(whole + ((float)whole < x * 512));
    uint32_t code = x < 0x1p-6f ? small : normal;

    code = code > 0x7e ? 0x7e : code;
    return code < 1 ? 1 : code;
}

/* Of a code from 1 to 0x7e. */
static inline float e4m3_of(uint32_t code)
{
    return code < 8 ? (float)(int32_t)code * 0x1p-9f : sl_f32_of((code + (120 << 3)) << 20);
}

static float tile_scale(const uint32_t *maxima, size_t blocks)
{
    uint32_t most = 0;
    float scale;

    for (size_t i = 0; i < blocks; i++)
        most = usable(maxima[i]) > most ? usable(maxima[i]) : most;
    scale = sl_f32_of(most) / (6 * 448);
    scale = scale > LARGEST_TILE_SCALE ? LARGEST_TILE_SCALE : scale;
    return most == 0 ? 0 : scale < LEAST_TILE_SCALE ? LEAST_TILE_SCALE : scale;
}

static void make(const uint32_t *maxima, size_t blocks, uint8_t *out, float *inverses)
{
    float tile = tile_scale(maxima, blocks), divisor = tile == 0 ? 1 : 6 * tile;

    memset(out, 0, HEAD);
    memcpy(out, &tile, sizeof(tile));
    out += HEAD;
    for (size_t i = 0; i < blocks; i++) {
        uint32_t max = usable(maxima[i]), code = e4m3_up(sl_f32_of(max) / divisor);
        float inverse = 1 / (e4m3_of(code) * tile);

        inverses[i] = max == 0 ? 0 : inverse;
        out[i] = (uint8_t)(maxima[i] >= SL_BITS_INF ? NAN_SCALE : max == 0 ? 0 : code);
    }
}

static void read_scales(const uint8_t *in, size_t blocks, float *scales)
{
    float tile;

    memcpy(&tile, in, sizeof(tile));
    in += HEAD;
    for (size_t i = 0; i < blocks; i++) {
        float scale = sl_minifloat_decode(SL_MINI_E4M3, in[i]) * tile;

        scales[i] =
            (sl_f32_bits(scale) & SL_BITS_ABS) >= SL_BITS_INF ? sl_f32_of(SL_BITS_NAN) : scale;
    }
}

const struct sl_scaled sl_scaled_nvfp4 = {.kind = SL_MINI_E2M1,
                                          .block = 16,
                                          .head = HEAD,
                                          .scale_bytes = 1,
                                          .make = make,
                                          .read = read_scales};

const struct sl_codec sl_codec_nvfp4 = {
    .name = "nvfp4",
    .help =
        "NVFP4 (E2M1): 4-bit floats in blocks of 16 with a scale in E4M3, and one a tile in f32",
    .id = SL_CODEC_NVFP4,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};
