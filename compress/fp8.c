/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs e4m3 and e5m2: eight-bit floats in blocks of 128 with a scale in bf16. */
#include "compress/codecs.h"
#include "compress/scaled.h"

const struct sl_scaled sl_scaled_e4m3 = {.kind = SL_MINI_E4M3,
                                         .block = 128,
                                         .scale_bytes = 2,
                                         .halves = {.drop = 16, .most = 0x7b12, .quantile = 448},
                                         .read = sl_scaled_read_bf16};
const struct sl_scaled sl_scaled_e5m2 = {.kind = SL_MINI_E5M2,
                                         .block = 128,
                                         .scale_bytes = 2,
                                         .halves = {.drop = 16, .most = 0x7792, .quantile = 57344},
                                         .read = sl_scaled_read_bf16};

const struct sl_codec sl_codec_e4m3 = {
    .name = "e4m3",
    .help = "8-bit floats with 3 bits of mantissa, in blocks of 128 with a scale in bf16",
    .id = SL_CODEC_E4M3,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};

const struct sl_codec sl_codec_e5m2 = {
    .name = "e5m2",
    .help = "8-bit floats with 2 bits of mantissa, in blocks of 128 with a scale in bf16",
    .id = SL_CODEC_E5M2,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};
