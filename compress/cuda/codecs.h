/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs as tile.h wants them: how scales come from maxima, codes from values, and back. */
#ifndef SL_COMPRESS_CUDA_CODECS_H
#define SL_COMPRESS_CUDA_CODECS_H

#include "compress/cuda/minifloat.h"
#include "compress/cuda/tile.h"

#define SL_TINY 0x00800000u /* 2^-126: blocks whose maximum is below are zero */

SL_DEVICE bool is_usable(uint32_t max)
{
    return max >= SL_TINY && max < SL_INFINITE;
}

/* The bits of a number without the last DROP, which become 0 but for a carry. */
template <unsigned DROP, bool UP>
SL_DEVICE uint32_t rounded_bits(uint32_t bits)
{
    constexpr uint32_t bias = UP ? (1u << DROP) - 1 : (1u << (DROP - 1)) - 1;

    return (bits + bias + (UP ? 0 : bits >> DROP & 1)) & ~((1u << DROP) - 1);
}

/* A product with a scale; a NaN is always the same one. */
SL_DEVICE float scaled(float code, const sl_scale &scale)
{
    return scale.is_nan ? __uint_as_float(SL_NAN_BITS) : __fmul_rn(code, scale.value);
}

/* As a summand, where a NaN is a NaN. */
SL_DEVICE float scaled_any(float code, const sl_scale &scale)
{
    return __fmul_rn(code, scale.value);
}

struct sl_no_head {
    static const unsigned HEAD = 0;
    static const bool OF_TILE = false;

    static SL_DEVICE_MEMBER bool counts(uint32_t)
    {
        return true;
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_head head_of(uint32_t)
    {
        return sl_head();
    }
    static SL_DEVICE_MEMBER sl_head read_head(const uint8_t *)
    {
        return sl_head();
    }
};

/* ---- casts ---- */

SL_DEVICE float widen_any(sl_bf16, uint16_t half)
{
    return widen(sl_bf16(), half);
}
SL_DEVICE float widen_any(sl_f16, uint16_t half)
{
    return f16_to_f32(half);
}

template <class T>
struct sl_cast : sl_no_head {
    static const unsigned BLOCK = 0, BITS = 16, SCALE = 0;

    static SL_DEVICE_MEMBER sl_scale read_scale(uint32_t, const sl_head &)
    {
        return sl_scale();
    }
    static SL_DEVICE_MEMBER uint32_t code_of(float x, const sl_scale &)
    {
        return narrow(T(), x);
    }
    static SL_DEVICE_MEMBER float value_of(uint32_t code, const sl_scale &)
    {
        return widen(T(), (uint16_t)code);
    }
    static SL_DEVICE_MEMBER float summand_of(uint32_t code, const sl_scale &)
    {
        return widen_any(T(), (uint16_t)code);
    }
    static SL_DEVICE_MEMBER uint32_t random_code_of(float x, const sl_scale &, uint32_t random)
    {
        return random_narrow(T(), x, random);
    }
};

/* ---- a scale in bf16 for each 128 elements ---- */

/* MOST: largest value of a code. LARGEST: scale whose product with it is finite. */
template <uint32_t MOST, uint32_t LARGEST>
struct sl_scale_bf16 : sl_no_head {
    static const unsigned BLOCK = 128, SCALE = 2;

    template <bool UP>
    static SL_DEVICE_MEMBER sl_scale scale_of(uint32_t max, const sl_head &)
    {
        uint32_t bits = __float_as_uint(__fdiv_rn(__uint_as_float(max), (float)MOST));
        sl_scale out;

        bits = rounded_bits<16, UP>(bits);
        bits = bits < SL_TINY ? SL_TINY : bits > LARGEST << 16 ? LARGEST << 16 : bits;
        bits = is_usable(max) ? bits : max >= SL_INFINITE ? SL_NAN_BITS : 0;
        out.value = __uint_as_float(bits);
        out.is_nan = max >= SL_INFINITE;
        out.inverse = is_usable(max) ? __fdiv_rn(1, out.value) : 0;
        out.stored = bits >> 16;
        return out;
    }
    static SL_DEVICE_MEMBER sl_scale read_scale(uint32_t stored, const sl_head &)
    {
        sl_scale out = {};

        out.value = __uint_as_float(stored << 16);
        out.is_nan = (stored & 0x7fff) >= SL_INFINITE >> 16;
        return out;
    }
};

template <class M>
struct sl_small_codes {
    static const unsigned BITS = M::BITS;

    static SL_DEVICE_MEMBER uint32_t code_of(float x, const sl_scale &scale)
    {
        return minifloat_code<M>(__fmul_rn(x, scale.inverse));
    }
    static SL_DEVICE_MEMBER float value_of(uint32_t code, const sl_scale &scale)
    {
        float value = scaled(minifloat_value<M>(code), scale);

        if (M::NOT_A_NUMBER < 1u << (M::BITS - 1)) /* from others: no encoder makes it */
            value = value == value ? value : __uint_as_float(SL_NAN_BITS);
        return value;
    }
    static SL_DEVICE_MEMBER float summand_of(uint32_t code, const sl_scale &scale)
    {
        return scaled_any(minifloat_value<M>(code), scale);
    }
};

struct sl_codec_e4m3 : sl_scale_bf16<448, 0x7b12>, sl_small_codes<sl_e4m3> {
};
struct sl_codec_e5m2 : sl_scale_bf16<57344, 0x7792>, sl_small_codes<sl_e5m2> {
};
struct sl_codec_e3m0 : sl_scale_bf16<16, 0x7d7f>, sl_small_codes<sl_e3m0> {
};

/* ---- OCP MX: powers of two ---- */

/* MOST: exponent of the format's largest value. */
template <uint32_t MOST>
struct sl_scale_e8m0 : sl_no_head {
    static const unsigned BLOCK = 32, SCALE = 1;

    static SL_DEVICE_MEMBER float power(uint32_t stored)
    {
        return __uint_as_float(stored == 0 ? 0x00400000 : stored << 23);
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_scale scale_of(uint32_t max, const sl_head &)
    {
        uint32_t exp = max >> 23, stored = exp > MOST ? exp - MOST : 0;
        sl_scale out;

        out.is_nan = max >= SL_INFINITE;
        out.inverse = is_usable(max) ? __uint_as_float((254 - stored) << 23) : 0;
        out.stored = out.is_nan ? 0xff : stored;
        out.value = power(stored);
        return out;
    }
    static SL_DEVICE_MEMBER sl_scale read_scale(uint32_t stored, const sl_head &)
    {
        sl_scale out = {};

        out.value = power(stored);
        out.is_nan = stored == 0xff;
        return out;
    }
};

struct sl_codec_mxfp8 : sl_scale_e8m0<8>, sl_small_codes<sl_e4m3> {
};
struct sl_codec_mxfp4 : sl_scale_e8m0<2>, sl_small_codes<sl_e2m1> {
};

/* ---- NVFP4: a scale in E4M3 under one in f32 of the tile ---- */

struct sl_codec_nvfp4 : sl_small_codes<sl_e2m1> {
    static const unsigned HEAD = 16, BLOCK = 16, SCALE = 1;
    static const bool OF_TILE = true;

    static SL_DEVICE_MEMBER bool counts(uint32_t max)
    {
        return is_usable(max);
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_head head_of(uint32_t most)
    {
        float scale = __fdiv_rn(__uint_as_float(most), 6 * 448);
        sl_head head = {};

        scale = scale > 0x1.86p116f ? 0x1.86p116f : scale < 0x1p-117f ? 0x1p-117f : scale;
        head.scale = most == 0 ? 0 : scale;
        head.stored[0] = __float_as_uint(head.scale);
        return head;
    }
    static SL_DEVICE_MEMBER sl_head read_head(const uint8_t *in)
    {
        sl_head head = {};

        head.scale = *(const float *)in;
        return head;
    }
    /* Of the nearest E4M3 that is above 0. */
    static SL_DEVICE_MEMBER uint32_t e4m3_of(float x)
    {
        uint32_t code = minifloat_code<sl_e4m3>(x);

        return code == 0 ? 1 : code;
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_scale scale_of(uint32_t max, const sl_head &head)
    {
        bool usable = is_usable(max);
        uint32_t code =
            usable ? e4m3_of(__fdiv_rn(__uint_as_float(max), __fmul_rn(6, head.scale))) : 0;
        sl_scale out;

        out.value = __fmul_rn(minifloat_value<sl_e4m3>(code), head.scale);
        out.inverse = usable ? __fdiv_rn(1, out.value) : 0;
        out.is_nan = max >= SL_INFINITE;
        out.stored = out.is_nan ? 0x7f : code;
        return out;
    }
    static SL_DEVICE_MEMBER sl_scale read_scale(uint32_t stored, const sl_head &head)
    {
        sl_scale out = {};

        out.value = __fmul_rn(minifloat_value<sl_e4m3>(stored), head.scale);
        out.is_nan = (__float_as_uint(out.value) & SL_MAGNITUDE) >= SL_INFINITE;
        return out;
    }
};

#endif
