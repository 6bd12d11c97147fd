/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of the types that codecs take: f32, bf16 and f16.
 *
 * Widening is exact. Narrowing rounds to nearest even, overflows to infinity, and makes each NaN
 * the canonical one (0x7fc0, 0x7e00): which payload an instruction keeps differs.
 */
#ifndef SL_COMPRESS_ELEMENTS_H
#define SL_COMPRESS_ELEMENTS_H

#include <sluice/types.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SL_BITS_INF 0x7f800000u
#define SL_BITS_NAN 0x7fc00000u
#define SL_BITS_ABS 0x7fffffffu

static inline uint32_t sl_f32_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float sl_f32_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float sl_f32_of_bf16(uint16_t half)
{
    return sl_f32_of((uint32_t)half << 16);
}

static inline uint16_t sl_bf16_of(float x)
{
    uint32_t bits = sl_f32_bits(x);

    if ((bits & SL_BITS_ABS) > SL_BITS_INF)
        return SL_BITS_NAN >> 16;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float sl_f32_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;

    if (rest >= 0x7c00) /* infinity, and NaN with its payload, made quiet as F16C does */
        return sl_f32_of(sign | SL_BITS_INF | (rest > 0x7c00 ? 1u << 22 : 0) |
                         (rest & 0x3ff) << 13);
    if (rest < 0x400) /* rest * 2^-24 */
        return sl_f32_of(sign | sl_f32_bits((float)rest * 0x1p-24f));
    return sl_f32_of(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t sl_f16_of(float x)
{
    uint32_t bits = sl_f32_bits(x), abs = bits & SL_BITS_ABS, sign = bits >> 16 & 0x8000;

    if (abs > SL_BITS_INF)
        return 0x7e00;
    if (abs >= 0x477ff000) /* 65520 and more */
        return (uint16_t)(sign | 0x7c00);
    if (abs < 0x38800000) /* Below 2^-14: the sum's last bit is worth 2^-24. */
        return (uint16_t)(sign | (sl_f32_bits(sl_f32_of(abs) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (((abs + 0xfff + (abs >> 13 & 1)) >> 13) - (112u << 10)));
}

/* Element i, at any alignment of halves, as a float, and the float as element i. */
static inline float sl_element(unsigned dtype, const void *in, size_t i)
{
    uint16_t half;

    if (dtype == SLUICE_F32)
        return ((const float *)in)[i];
    memcpy(&half, (const char *)in + i * sizeof(half), sizeof(half));
    return dtype == SLUICE_BF16 ? sl_f32_of_bf16(half) : sl_f32_of_f16(half);
}

static inline void sl_element_put(unsigned dtype, float x, void *out, size_t i)
{
    uint16_t half;

    if (dtype == SLUICE_F32) {
        ((float *)out)[i] = x;
        return;
    }
    half = dtype == SLUICE_BF16 ? sl_bf16_of(x) : sl_f16_of(x);
    memcpy((char *)out + i * sizeof(half), &half, sizeof(half));
}

/* The loop f() with the type of its elements as a constant. */
#define SL_BY_DTYPE(f, dtype, ...)                                                                 \
    ((dtype) == SLUICE_F32    ? f(SLUICE_F32, __VA_ARGS__)                                         \
     : (dtype) == SLUICE_BF16 ? f(SLUICE_BF16, __VA_ARGS__)                                        \
                              : f(SLUICE_F16, __VA_ARGS__))

/* count elements of dtype, at any alignment, to floats and back. */
void sl_elements_widen(unsigned dtype, const void *in, size_t count, float *out);
void sl_elements_narrow(unsigned dtype, const float *in, size_t count, void *out);

/* The elements as floats: where they lie, if they are that already, otherwise widened to scratch,
 * which has room for count. */
const float *sl_elements_floats(unsigned dtype, const void *in, size_t count, float *scratch);

#endif
