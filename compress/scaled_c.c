/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats in plain C: what the others are compared with. */
#include "compress/mx_scales.h"
#include "compress/nvfp4_scales.h"
#include "compress/scaled.h"

static void maxima16(const struct sl_input *in, size_t count, uint32_t *maxima)
{
    for (size_t i = 0; i < count / 16; i++) {
        uint32_t most = 0;

        for (size_t j = 0; j < 16; j++) {
            uint32_t mag = sl_f32_bits(sl_element(in->dtype, in->at, 16 * i + j)) & SL_BITS_ABS;

            most = mag > most ? mag : most;
        }
        maxima[i] = most;
    }
}

static inline uint32_t code_of(enum sl_minifloat kind, float x, float inverse)
{
    return inverse == 0 ? 0 : sl_minifloat_encode(kind, x * inverse);
}

static inline void encode(unsigned dtype, enum sl_minifloat kind, const void *in, size_t count,
                          unsigned block, const float *inverses, uint8_t *codes)
{
    bool nibbles = sl_minifloat_format(kind).bits == 4;

    for (size_t i = 0; i < count; i += 2) {
        uint32_t low = code_of(kind, sl_element(dtype, in, i), inverses[i / block]);
        uint32_t high = code_of(kind, sl_element(dtype, in, i + 1), inverses[i / block]);

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

static inline void decode(unsigned dtype, enum sl_minifloat kind, const uint8_t *codes,
                          size_t count, unsigned block, const float *scales, enum sl_put put,
                          void *out)
{
    for (size_t i = 0; i < count; i++) {
        float x = value_of(kind, codes, i) * scales[i / block];

        if (put == SL_PUT_ADD)
            ((float *)out)[i] += x;
        else
            sl_element_put(dtype, x, out, i);
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
    static void encode_##name(const struct sl_input *in, size_t count, unsigned block,             \
                              const float *inverses, bool stream, uint8_t *codes)                  \
    {                                                                                              \
        SL_BY_DTYPE(encode, in->dtype, kind, in->at, count, block, inverses, codes);               \
    }                                                                                              \
    static void decode_##name(const uint8_t *codes, size_t count, unsigned block,                  \
                              const float *scales, const struct sl_output *out)                    \
    {                                                                                              \
        SL_BY_DTYPE(decode, out->dtype, kind, codes, count, block, scales, out->put, out->at);     \
    }                                                                                              \
    static void feedback_##name(const void *next, float *residual, size_t count, unsigned block,   \
                                const float *inverses, const float *scales, bool stream,           \
                                uint8_t *codes)                                                    \
    {                                                                                              \
        encode(SLUICE_F32, kind, residual, count, block, inverses, codes);                         \
        take_off(kind, codes, count, block, scales, residual);                                     \
    }

KERNELS(e4m3, SL_MINI_E4M3)
KERNELS(e5m2, SL_MINI_E5M2)
KERNELS(e2m1, SL_MINI_E2M1)
KERNELS(e3m0, SL_MINI_E3M0)

static void nvfp4(const uint32_t *maxima, size_t blocks, float tile, uint8_t *codes, float *values,
                  float *inverses)
{
    sl_nvfp4_make(maxima, blocks, tile, codes, values, inverses);
}

static void mx(const uint32_t *maxima, size_t blocks, uint32_t most, uint8_t *codes, float *values,
               float *inverses)
{
    sl_mx_make(maxima, blocks, most, codes, values, inverses);
}

const struct sl_scaled_kernels sl_scaled_c = {
    .mx = mx,
    .nvfp4 = nvfp4,
    .maxima16 = maxima16,
    .encode = {encode_e4m3, encode_e5m2, encode_e2m1, encode_e3m0},
    .decode = {decode_e4m3, decode_e5m2, decode_e2m1, decode_e3m0},
    .feedback = {feedback_e4m3, feedback_e5m2, feedback_e2m1, feedback_e3m0},
};
