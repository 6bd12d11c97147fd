/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs mxfp8 (E4M3) and mxfp4 (E2M1): blocks of 32 whose scale is a power of two, a byte E8M0.
 *
 * The scale is 2^(floor(log2 max) - exponent of the format's largest value): a maximum with a
 * larger mantissa than that value's saturates, by up to an eighth (E4M3) or a quarter (E2M1) of it.
 * Hardware and files of others have the same bytes.
 *
 * Source: "OCP Microscaling Formats (MX) Specification", version 1.0, 2023, sections 5 and 6.3.
 */
#include "compress/codecs.h"
#include "compress/mx_scales.h"
#include "compress/scaled.h"

static void make_e4m3(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                      float *inverses)
{
    sl_scaled_kernels_of(sl_codec_kernels())->mx(maxima, blocks, 8, out, values, inverses);
}

static void make_e2m1(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                      float *inverses)
{
    sl_scaled_kernels_of(sl_codec_kernels())->mx(maxima, blocks, 2, out, values, inverses);
}

static void read_scales(const uint8_t *in, size_t blocks, float *scales)
{
    for (size_t i = 0; i < blocks; i++)
        scales[i] = sl_f32_of(in[i] == SL_MX_NAN ? SL_BITS_NAN : sl_mx_bits(in[i]));
}

const struct sl_scaled sl_scaled_mxfp8 = {
    .kind = SL_MINI_E4M3, .block = 32, .scale_bytes = 1, .make = make_e4m3, .read = read_scales};
const struct sl_scaled sl_scaled_mxfp4 = {
    .kind = SL_MINI_E2M1, .block = 32, .scale_bytes = 1, .make = make_e2m1, .read = read_scales};

const struct sl_codec sl_codec_mxfp8 = {
    .name = "mxfp8",
    .help = "OCP MXFP8 (E4M3): 8-bit floats in blocks of 32 with a power of two as scale",
    .id = SL_CODEC_MXFP8,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};

const struct sl_codec sl_codec_mxfp4 = {
    .name = "mxfp4",
    .help = "OCP MXFP4 (E2M1): 4-bit floats in blocks of 32 with a power of two as scale",
    .id = SL_CODEC_MXFP4,
    .flags = SL_CODEC_FIXED,
    .size = sl_scaled_size,
    .encode = sl_scaled_encode,
    .decode = sl_scaled_decode,
    .decode_add = sl_scaled_decode_add,
    .feedback = sl_scaled_feedback,
};
