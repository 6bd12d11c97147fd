/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs' kernels in plain C, an element at a time: what all others are compared with. */
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/philox.h"

static void maxima(const float *in, size_t count, unsigned size, uint32_t *max)
{
    for (size_t b = 0; b < count / size; b++) {
        uint32_t largest = 0;

        for (size_t i = b * size; i < (b + 1) * size; i++) {
            uint32_t abs = sl_f32_bits(in[i]) & SL_BITS_ABS;

            largest = abs > largest ? abs : largest;
        }
        max[b] = largest;
    }
}

/* Where |x| < 2^22, the sum's last bit is worth 1. */
static int32_t nearest(float x)
{
    return (int32_t)(sl_f32_bits(x + 0x1.8p23f) - 0x4b400000);
}

static int32_t floor_of(float x)
{
    int32_t whole = (int32_t)x;

    return whole - ((float)whole > x);
}

static void codes(unsigned bits, const float *in, size_t count, unsigned size, const float *inverse,
                  const uint16_t *random, const void *ahead, bool stream, void *out)
{
    int32_t most = (1 << (bits - 1)) - 1;
    unsigned each = 8 / bits; /* of a byte */
    uint8_t *bytes = out;

    for (size_t i = 0; i < count; i++) {
        /* What is NaN or infinite has the inverse 0. */
        float x = inverse[i / size] != 0 ? in[i] * inverse[i / size] : 0;
        int32_t code = random != NULL ? floor_of(x + (float)random[i] * 0x1p-16f) : nearest(x);

        code = code > most ? most : code < -most ? -most : code;
        if (i % each == 0)
            bytes[i / each] = 0;
        bytes[i / each] |= (uint8_t)((code & ((1 << bits) - 1)) << i % each * bits);
    }
}

static void put_one(enum sl_put put, float x, float *out)
{
    *out = put == SL_PUT_ADD ? *out + x : x;
}

static void decode(unsigned bits, const void *in, size_t count, unsigned size, const float *scale,
                   enum sl_put put, float *out)
{
    unsigned each = 8 / bits;
    const uint8_t *bytes = in;

    for (size_t i = 0; i < count; i++) {
        uint8_t code = (uint8_t)(bytes[i / each] >> i % each * bits << (8 - bits));

        put_one(put, (float)((int8_t)code >> (8 - bits)) * scale[i / size], &out[i]);
    }
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

static uint32_t sign_encode(const float *in, size_t count, double lanes[16], void *bits)
{
    uint32_t largest = 0;
    uint8_t *bytes = bits;

    for (unsigned i = 0; i < 16; i++)
        lanes[i] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t abs = sl_f32_bits(in[i]) & SL_BITS_ABS;

        largest = abs > largest ? abs : largest;
        lanes[i % 16] += sl_f32_of(abs);
        if (i % 8 == 0)
            bytes[i / 8] = 0;
        bytes[i / 8] |= (uint8_t)((in[i] < 0) << i % 8);
    }
    return largest;
}

static void sign_decode(const void *bits, size_t count, float mean, enum sl_put put, float *out)
{
    const uint8_t *bytes = bits;

    for (size_t i = 0; i < count; i++) {
        uint32_t sign = (uint32_t)(bytes[i / 8] >> i % 8 & 1) << 31;

        put_one(put, sl_f32_of(sl_f32_bits(mean) ^ sign), &out[i]);
    }
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
    for (size_t i = 0; i < count; i++) {
        uint16_t half;

        memcpy(&half, (const char *)in + i * sizeof(half), sizeof(half));
        put_one(put, dtype == SLUICE_BF16 ? sl_f32_of_bf16(half) : sl_f32_of_f16(half), &out[i]);
    }
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

const struct sl_codec_kernels sl_codec_kernels_c = {
    .name = "c",
    .maxima = maxima,
    .codes = codes,
    .decode = decode,
    .rotate = rotate,
    .sign_encode = sign_encode,
    .sign_decode = sign_decode,
    .narrow = narrow,
    .widen = widen,
    .random = random_bits,
    .feedback_sum = feedback_sum,
    .feedback_rest = feedback_rest,
};
