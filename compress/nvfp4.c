/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec nvfp4: E2M1 in blocks of 16 with a scale in E4M3, and one scale in f32 above them all.
 *
 * NVIDIA's recipe has that f32 once a tensor; here it is once a tile, in the head, since tiles are
 * independent. Values are code * (block scale * tile scale): the inner product is rounded first, so
 * that there is one factor for a block.
 *
 *   tile scale    T = max of the tile / (6 * 448), at least 2^-117, at most 195 * 2^109
 *   block scale   S = max of the block / (6 * T), rounded to E4M3, at most 448 and above 0
 *   codes         E2M1 of x * (1 / (S * T))
 *
 * S is at least 2^-9, so S * T is at least 2^-126 and its inverse finite; T * 448 * 6 is finite as
 * well, so that what is finite decodes to what is finite. Blocks that are not do not count in the
 * maximum of the tile: their S is NaN.
 *
 * Source: NVIDIA, "Pretraining large language models with NVFP4", 2025.
 */
#include "compress/codecs.h"
#include "compress/nvfp4_scales.h"
#include "compress/scaled.h"

#include <string.h>

#define HEAD 16

static void make(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                 float *inverses)
{
    float tile = sl_nvfp4_tile(maxima, blocks);

    memset(out, 0, HEAD);
    memcpy(out, &tile, sizeof(tile));
    sl_scaled_kernels_of(sl_codec_kernels())
        ->nvfp4(maxima, blocks, tile, out + HEAD, values, inverses);
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
