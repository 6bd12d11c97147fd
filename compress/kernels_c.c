/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs' kernels in plain C, an element at a time: what all others are compared with. */
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/philox.h"
#include "compress/scales.h"

static inline void maxima_of(unsigned dtype, const void *in, size_t count, unsigned size,
                             uint32_t *max)
{
    for (size_t b = 0; b < count / size; b++) {
        uint32_t largest = 0;

        for (size_t i = b * size; i < (b + 1) * size; i++) {
            uint32_t abs = sl_f32_bits(sl_element(dtype, in, i)) & SL_BITS_ABS;

            largest = abs > largest ? abs : largest;
        }
        max[b] = largest;
    }
}

static void maxima(const struct sl_input *in, size_t count, unsigned size, uint32_t *max)
{
    SL_BY_DTYPE(maxima_of, in->dtype, in->at, count, size, max);
}

/* Where |x| < 2^22, the sum's last bit is worth 1. */
static int32_t nearest(float x)
{
    return (int32_t)(sl_f32_bits(x + 0x1.8p23f) - 0x4b400000);
}

static int32_t floor_of(float x)
{
    int32_t whole = x == x ? (int32_t)x : 0;

    return whole - ((float)whole > x);
}

static int8_t held(unsigned bits, int32_t code)
{
    int32_t most = (1 << (bits - 1)) - 1;

    code = code > most ? most : code;
    return (int8_t)(code < -most ? -most : code);
}

/* Codes of a byte each, as they are sent, and back. */
static inline void pack(unsigned bits, const int8_t *code, size_t count, uint8_t *out)
{
    const uint8_t *from = (const uint8_t *)code;

    for (size_t i = 0; bits == 8 && i < count; i++)
        out[i] = from[i];
    for (size_t i = 0; bits == 4 && i < count / 2; i++)
        out[i] = (uint8_t)((from[2 * i] & 15) | from[2 * i + 1] << 4);
    for (size_t i = 0; bits == 2 && i < count / 4; i++)
        out[i] = (uint8_t)((from[4 * i] & 3) | (from[4 * i + 1] & 3) << 2 |
                           (from[4 * i + 2] & 3) << 4 | from[4 * i + 3] << 6);
}

static inline void unpack(unsigned bits, const uint8_t *in, size_t count, int8_t *code)
{
    for (size_t i = 0; bits == 8 && i < count; i++)
        code[i] = (int8_t)in[i];
    for (size_t i = 0; bits == 4 && i < count / 2; i++) {
        code[2 * i] = (int8_t)(in[i] << 4) >> 4;
        code[2 * i + 1] = (int8_t)in[i] >> 4;
    }
    for (size_t i = 0; bits == 2 && i < count / 4; i++)
        for (unsigned j = 0; j < 4; j++)
            code[4 * i + j] = (int8_t)(in[i] << (6 - 2 * j)) >> 6;
}

static int scales(const struct sl_scales *s, const uint32_t *max, size_t blocks, float *value,
                  float *inverse, void *out)
{
    return sl_scales_make(s, max, blocks, value, inverse, out);
}

/* A block at a time, and with the numbers known: so that compilers make vectors of the loops. */
static inline void codes_for(unsigned dtype, unsigned bits, unsigned size, const void *in,
                             size_t count, const float *inverse, const uint16_t *random, void *out)
{
    for (size_t b = 0; b < count; b += size) {
        float factor = inverse[b / size];
        int8_t code[SL_UNIT];

        for (size_t i = 0; random == NULL && i < size; i++)
            code[i] = held(bits, nearest(sl_element(dtype, in, b + i) * factor));
        for (size_t i = 0; random != NULL && i < size; i++)
            code[i] = held(bits, floor_of(sl_element(dtype, in, b + i) * factor +
                                          (float)random[b + i] * 0x1p-16f));
        pack(bits, code, size, (uint8_t *)out + b * bits / 8);
    }
}

static void codes(unsigned bits, const struct sl_input *in, size_t count, unsigned size,
                  const float *inverse, const uint16_t *random, bool stream, void *out)
{
    if (bits == 8)
        SL_BY_DTYPE(codes_for, in->dtype, 8, 128, in->at, count, inverse, random, out);
    else if (bits == 4)
        SL_BY_DTYPE(codes_for, in->dtype, 4, 32, in->at, count, inverse, random, out);
    else
        SL_BY_DTYPE(codes_for, in->dtype, 2, 32, in->at, count, inverse, random, out);
}

/* To element i, narrowed. */
static inline void put_to(unsigned dtype, enum sl_put put, float x, void *out, size_t i)
{
    if (put == SL_PUT_ADD)
        ((float *)out)[i] += x;
    else
        sl_element_put(dtype, x, out, i);
}

static inline void decode_for(unsigned dtype, unsigned bits, unsigned size, const uint8_t *in,
                              size_t count, const float *scale, enum sl_put put, void *out)
{
    for (size_t b = 0; b < count; b += size) {
        float factor = scale[b / size];
        int8_t code[SL_UNIT];

        unpack(bits, in + b * bits / 8, size, code);
        for (size_t i = 0; put == SL_PUT_ADD && i < size; i++)
            put_to(dtype, SL_PUT_ADD, (float)code[i] * factor, out, b + i);
        for (size_t i = 0; put != SL_PUT_ADD && i < size; i++)
            put_to(dtype, SL_PUT_STORE, (float)code[i] * factor, out, b + i);
    }
}

static void decode(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   const struct sl_output *out)
{
    if (bits == 8)
        SL_BY_DTYPE(decode_for, out->dtype, 8, 128, in, count, scale, out->put, out->at);
    else if (bits == 4)
        SL_BY_DTYPE(decode_for, out->dtype, 4, 32, in, count, scale, out->put, out->at);
    else
        SL_BY_DTYPE(decode_for, out->dtype, 2, 32, in, count, scale, out->put, out->at);
}

static void rotate(const float *in, size_t count, unsigned size, float factor, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] * factor;
    for (unsigned far = 1; far < size; far *= 2)
        for (size_t i = 0; i < count; i++)
            if ((i & far) == 0) {
                float a = out[i], b = out[i + far];

                out[i] = a + b;
                out[i + far] = a - b;
            }
}

static inline uint32_t sign_encode_of(unsigned dtype, const void *in, size_t count,
                                      double lanes[16], void *bits)
{
    uint32_t largest = 0;
    uint8_t *bytes = bits;

    for (unsigned i = 0; i < 16; i++)
        lanes[i] = 0;
    for (size_t i = 0; i < count; i++) {
        float x = sl_element(dtype, in, i);
        uint32_t abs = sl_f32_bits(x) & SL_BITS_ABS;

        largest = abs > largest ? abs : largest;
        lanes[i % 16] += sl_f32_of(abs);
        if (i % 8 == 0)
            bytes[i / 8] = 0;
        bytes[i / 8] |= (uint8_t)((x < 0) << i % 8);
    }
    return largest;
}

static uint32_t sign_encode(const struct sl_input *in, size_t count, double lanes[16], void *bits)
{
    return SL_BY_DTYPE(sign_encode_of, in->dtype, in->at, count, lanes, bits);
}

static inline void sign_decode_to(unsigned dtype, const uint8_t *bits, size_t count, float mean,
                                  enum sl_put put, void *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sign = (uint32_t)(bits[i / 8] >> i % 8 & 1) << 31;

        put_to(dtype, put, sl_f32_of(sl_f32_bits(mean) ^ sign), out, i);
    }
}

static void sign_decode(const void *bits, size_t count, float mean, const struct sl_output *out)
{
    SL_BY_DTYPE(sign_decode_to, out->dtype, bits, count, mean, out->put, out->at);
}

static uint16_t bf16_at_random(float x, uint16_t random)
{
    uint32_t bits = sl_f32_bits(x);

    return (bits & SL_BITS_ABS) > SL_BITS_INF ? SL_BITS_NAN >> 16
                                              : (uint16_t)((bits + random) >> 16);
}

static uint16_t f16_at_random(float x, uint16_t random)
{
    uint32_t bits = sl_f32_bits(x), abs = bits & SL_BITS_ABS, sign = bits >> 16 & 0x8000, half;

    if (abs > SL_BITS_INF)
        return 0x7e00;
    if (abs < 0x38800000) /* in units of 2^-24 */
        half = (uint32_t)(sl_f32_of(abs) * 0x1p24f + (float)random * 0x1p-16f);
    else
        half = ((abs + (random >> 3)) >> 13) - (112u << 10);
    return (uint16_t)(sign | (half > 0x7c00 ? 0x7c00 : half));
}

static void narrow(unsigned dtype, const float *in, size_t count, const uint16_t *random,
                   bool stream, void *out)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half = dtype == SLUICE_BF16
                            ? random != NULL ? bf16_at_random(in[i], random[i]) : sl_bf16_of(in[i])
                        : random != NULL ? f16_at_random(in[i], random[i])
                                         : sl_f16_of(in[i]);

        memcpy((char *)out + i * sizeof(half), &half, sizeof(half));
    }
}

static void widen(unsigned dtype, const void *in, size_t count, enum sl_put put, float *out)
{
    for (size_t i = 0; i < count; i++)
        put_to(SLUICE_F32, put, sl_element(dtype, in, i), out, i);
}

static void random_bits(uint64_t first, size_t count, uint32_t stream, uint32_t step, uint64_t seed,
                        uint16_t *out)
{
    for (size_t i = 0; i < count; i += 8) {
        uint64_t eight = (first + i) / 8;
        const uint32_t counter[4] = {(uint32_t)eight, (uint32_t)(eight >> 32), stream, step};
        uint32_t words[4];

        sl_philox(counter, seed, words);
        for (unsigned j = 0; j < 8; j++)
            out[i + j] = (uint16_t)(words[j >> 1] >> (j & 1) * 16);
    }
}

static void times(float *x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

static void feedback_sum(const float *in, const float *residual, size_t count, float *sum)
{
    for (size_t i = 0; i < count; i++)
        sum[i] = in[i] + residual[i];
}

static void feedback_rest(const float *sum, const float *sent, size_t count, float *residual)
{
    for (size_t i = 0; i < count; i++) {
        float rest = sum[i] - sent[i];

        residual[i] = (sl_f32_bits(rest) & SL_BITS_INF) == SL_BITS_INF ? 0.0f : rest;
    }
}

static inline void add_to(unsigned dtype, const void *in, size_t count, float *residual)
{
    for (size_t i = 0; i < count; i++)
        residual[i] = sl_element(dtype, in, i) + residual[i];
}

static void feedback_maxima(const struct sl_input *in, size_t count, unsigned size, float *residual,
                            uint32_t *max)
{
    SL_BY_DTYPE(add_to, in->dtype, in->at, count, residual);
    maxima_of(SLUICE_F32, residual, count, size, max);
}

static void feedback_codes(unsigned bits, float *residual, size_t count, unsigned size,
                           const float *inverse, const float *scale, const uint16_t *random,
                           bool stream, void *out)
{
    for (size_t i = 0; i < count; i += SL_UNIT) {
        char *to = (char *)out + i * bits / 8;
        float sent[SL_UNIT];

        codes(bits, &(struct sl_input){.at = residual + i, .dtype = SLUICE_F32}, SL_UNIT, size,
              inverse + i / size, random != NULL ? random + i : NULL, false, to);
        decode(bits, to, SL_UNIT, size, scale + i / size,
               &(struct sl_output){sent, SLUICE_F32, SL_PUT_STORE});
        feedback_rest(residual + i, sent, SL_UNIT, residual + i);
    }
}

static void feedback_sign(float *residual, size_t count, float mean, const void *next)
{
    for (size_t i = 0; i < count; i++) {
        float sent = residual[i] < 0 ? -mean : mean;

        feedback_rest(&residual[i], &sent, 1, &residual[i]);
    }
}

static uint32_t feedback_sign_sum(const struct sl_input *in, float *residual, size_t count,
                                  double lanes[16], void *bits)
{
    SL_BY_DTYPE(add_to, in->dtype, in->at, count, residual);
    return sign_encode_of(SLUICE_F32, residual, count, lanes, bits);
}

static void feedback_narrow(unsigned dtype, const float *in, float *residual, size_t count,
                            const uint16_t *random, bool stream, void *out)
{
    for (size_t i = 0; i < count; i++) {
        char *half = (char *)out + i * 2;
        float sum = in[i] + residual[i], sent;

        narrow(dtype, &sum, 1, random != NULL ? random + i : NULL, false, half);
        widen(dtype, half, 1, SL_PUT_STORE, &sent);
        feedback_rest(&sum, &sent, 1, &residual[i]);
    }
}

static void fence(void)
{
}

#define KERNELS sl_codec_kernels_c
#define KERNELS_NAME "c"
#include "compress/kernels_row.h"
