/* SPDX-License-Identifier: Apache-2.0 */
/* Codec e3m0: a sign and a power of two, or zero, in blocks of 128 with a scale in bf16. */
#include "compress/codecs.h"
#include "compress/scaled.h"

const struct sl_scaled sl_scaled_e3m0 = {.kind = SL_MINI_E3M0,
                                         .block = 128,
                                         .scale_bytes = 2,
                                         .halves = {.drop = 16, .most = 0x7d7f, .quantile = 16},
                                         .read = sl_scaled_read_bf16};

const struct sl_codec sl_codec_e3m0 = {
    .name = "e3m0",
    .help = "4-bit floats without mantissa (powers of two), in blocks of 128 with a scale in bf16",
    .id = SL_CODEC_E3M0,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};
