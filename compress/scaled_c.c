/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats in plain C: what the others are compared with. */
#include "compress/scaled.h"

static void maxima16(const float *in, size_t count, uint32_t *maxima)
{
    for (size_t i = 0; i < count / 16; i++) {
        uint32_t most = 0;

        for (size_t j = 0; j < 16; j++) {
            uint32_t mag = sl_f32_bits(in[16 * i + j]) & SL_BITS_ABS;

            most = mag > most ? mag : most;
        }
        maxima[i] = most;
    }
}

static inline uint32_t code_of(enum sl_minifloat kind, float x, float inverse)
{
    return inverse == 0 ? 0 : sl_minifloat_encode(kind, x * inverse);
}

static inline void encode(enum sl_minifloat kind, const float *in, size_t count, unsigned block,
                          const float *inverses, uint8_t *codes)
{
    bool nibbles = sl_minifloat_format(kind).bits == 4;

    for (size_t i = 0; i < count; i += 2) {
        uint32_t low = code_of(kind, in[i], inverses[i / block]);
        uint32_t high = code_of(kind, in[i + 1], inverses[i / block]);

        if (nibbles) {
            codes[i / 2] = (uint8_t)(low | high << 4);
        } else {
            codes[i] = (uint8_t)low;
            codes[i + 1] = (uint8_t)high;
        }
    }
}

static inline float value_of(enum sl_minifloat kind, const uint8_t *codes, size_t i)
{
    if (sl_minifloat_format(kind).bits == 4)
        return sl_minifloat_decode(kind, codes[i / 2] >> i % 2 * 4 & 0xf);
    return sl_minifloat_decode(kind, codes[i]);
}

static inline void decode(enum sl_minifloat kind, const uint8_t *codes, size_t count,
                          unsigned block, const float *scales, enum sl_put put, float *out)
{
    for (size_t i = 0; i < count; i++) {
        float x = value_of(kind, codes, i) * scales[i / block];

        out[i] = put == SL_PUT_ADD ? out[i] + x : x;
    }
}

static inline void take_off(enum sl_minifloat kind, const uint8_t *codes, size_t count,
                            unsigned block, const float *scales, float *residual)
{
    for (size_t i = 0; i < count; i++) {
        float left = residual[i] - value_of(kind, codes, i) * scales[i / block];

        residual[i] = (sl_f32_bits(left) & SL_BITS_INF) == SL_BITS_INF ? 0 : left;
    }
}

/* Each format by itself, so that the compiler sees its constants. */
#define KERNELS(name, kind)                                                                        \
    static void encode_##name(const float *in, size_t count, unsigned block,                       \
                              const float *inverses, const void *next, bool stream,                \
                              uint8_t *codes)                                                      \
    {                                                                                              \
        encode(kind, in, count, block, inverses, codes);                                           \
    }                                                                                              \
    static void decode_##name(const uint8_t *codes, size_t count, unsigned block,                  \
                              const float *scales, enum sl_put put, float *out)                    \
    {                                                                                              \
        decode(kind, codes, count, block, scales, put, out);                                       \
    }                                                                                              \
    static void rest_##name(const uint8_t *codes, size_t count, unsigned block,                    \
                            const float *scales, float *residual)                                  \
    {                                                                                              \
        take_off(kind, codes, count, block, scales, residual);                                     \
    }

KERNELS(e4m3, SL_MINI_E4M3)
KERNELS(e5m2, SL_MINI_E5M2)
KERNELS(e2m1, SL_MINI_E2M1)
KERNELS(e3m0, SL_MINI_E3M0)

const struct sl_scaled_kernels sl_scaled_c = {
    .maxima16 = maxima16,
    .encode = {encode_e4m3, encode_e5m2, encode_e2m1, encode_e3m0},
    .decode = {decode_e4m3, decode_e5m2, decode_e2m1, decode_e3m0},
    .rest = {rest_e4m3, rest_e5m2, rest_e2m1, rest_e3m0},
};
