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
#include "compress/scaled.h"
#include "compress/scales.h"

#define NAN_SCALE 0xff

/* 2^(scale - 127), of which that for 0 is too small for an f32 with a leading 1. */
static uint32_t power_bits(uint32_t scale)
{
    return scale == 0 ? 0x00400000 : scale << 23;
}

/* most: the exponent of the largest value. */
static void make(const uint32_t *maxima, size_t blocks, uint32_t most, uint8_t *out, float *values,
                 float *inverses)
{
    for (size_t i = 0; i < blocks; i++) {
        uint32_t exp = maxima[i] >> 23, scale = exp > most ? exp - most : 0;

        out[i] = maxima[i] >= SL_BITS_INF ? NAN_SCALE : (uint8_t)scale;
        /* At most 2^127, and never below 2^-125. */
        inverses[i] = maxima[i] >= SL_BITS_INF || maxima[i] < SL_SCALE_LEAST
                          ? 0
                          : sl_f32_of((254 - scale) << 23);
        values[i] = sl_f32_of(maxima[i] >= SL_BITS_INF ? SL_BITS_NAN : power_bits(scale));
    }
}

static void make_e4m3(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                      float *inverses)
{
    make(maxima, blocks, 8, out, values, inverses);
}

static void make_e2m1(const uint32_t *maxima, size_t blocks, uint8_t *out, float *values,
                      float *inverses)
{
    make(maxima, blocks, 2, out, values, inverses);
}

static void read_scales(const uint8_t *in, size_t blocks, float *scales)
{
    for (size_t i = 0; i < blocks; i++)
        scales[i] = sl_f32_of(in[i] == NAN_SCALE ? SL_BITS_NAN : power_bits(in[i]));
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
