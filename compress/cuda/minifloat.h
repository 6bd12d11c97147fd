/* SPDX-License-Identifier: Apache-2.0 */
/* Small floats on a GPU: compress/minifloat.h, which says what they are, in CUDA's words. */
#ifndef SL_COMPRESS_CUDA_MINIFLOAT_H
#define SL_COMPRESS_CUDA_MINIFLOAT_H

#include "compress/cuda/device.h"

/* LEAST: exponent of the least normal value. MOST: code of the largest finite one. NOT_A_NUMBER:
 * the first code that is none. */
template <unsigned MANTISSA_, int LEAST_, unsigned BITS_, uint32_t MOST_, uint32_t NOT_A_NUMBER_>
struct sl_minifloat {
    static const unsigned MANTISSA = MANTISSA_, BITS = BITS_;
    static const int LEAST = LEAST_;
    static const uint32_t MOST = MOST_, NOT_A_NUMBER = NOT_A_NUMBER_;
};
typedef sl_minifloat<3, -6, 8, 0x7e, 0x7f> sl_e4m3;
typedef sl_minifloat<2, -14, 8, 0x7b, 0x7d> sl_e5m2;
typedef sl_minifloat<1, 0, 4, 7, 0x80> sl_e2m1;
typedef sl_minifloat<0, -2, 4, 7, 0x80> sl_e3m0;

/* Of a finite x. A sum with the power of two whose last place is the step near x rounds it. */
template <class M>
SL_DEVICE uint32_t minifloat_code(float x)
{
    constexpr uint32_t least = (uint32_t)(M::LEAST + 127) << 23;
    uint32_t bits = __float_as_uint(x), mag = bits & SL_MAGNITUDE, exp = mag & SL_INFINITE;
    uint32_t step, code;

    exp = exp < least ? least : exp;
    step = exp + ((23u - M::MANTISSA) << 23);
    code = __float_as_uint(__fadd_rn(__uint_as_float(mag), __uint_as_float(step))) - step +
           ((exp - least) >> (23 - M::MANTISSA));
    code = code > M::MOST ? M::MOST : code;
    return code | bits >> 31 << (M::BITS - 1);
}

/* Its bits where a float has them, times what is between the two exponents. */
template <class M>
SL_DEVICE float minifloat_value(uint32_t code)
{
    constexpr uint32_t top = 1u << (M::BITS - 1);
    constexpr uint32_t power = (uint32_t)(M::LEAST + 126 + 127) << 23;
    uint32_t mag = code & (top - 1), sign = (code & top) << (32 - M::BITS);
    float value =
        __fmul_rn(__uint_as_float(sign | mag << (23 - M::MANTISSA)), __uint_as_float(power));

    if (M::LEAST == -14) /* the upper half of an f16, infinities and all */
        return f16_to_f32((uint16_t)(code << 8));
    if (M::NOT_A_NUMBER < top && mag >= M::NOT_A_NUMBER)
        return __uint_as_float(SL_NAN_BITS);
    return value;
}

#endif
