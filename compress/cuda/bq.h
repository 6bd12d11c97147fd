/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of integers: bq8, bq4 and bq2. */
#ifndef SL_COMPRESS_CUDA_BQ_H
#define SL_COMPRESS_CUDA_BQ_H

#include "compress/cuda/codecs.h"

/* Codes of -MOST to MOST in two's complement. */
template <unsigned BITS_, uint32_t MOST>
struct sl_integer_codes {
    static const unsigned BITS = BITS_;

    static const uint32_t MASK = (1u << BITS) - 1, TOP = 1u << (BITS - 1);

    /* No scale is so small that a product would round past MOST. */
    static SL_DEVICE_MEMBER uint32_t code_of(float x, const sl_scale &scale)
    {
        return nearest_bits(__fmul_rn(x, scale.inverse)) & MASK;
    }
    static SL_DEVICE_MEMBER uint32_t random_code_of(float x, const sl_scale &scale, uint32_t random)
    {
        uint32_t code = below_bits(__fadd_rn(__fmul_rn(x, scale.inverse), fraction(random)));

        code = code > SL_WHOLE + MOST ? SL_WHOLE + MOST : code;
        return (code < SL_WHOLE - MOST ? SL_WHOLE - MOST : code) & MASK;
    }
    static SL_DEVICE_MEMBER float integer_of(uint32_t code)
    {
        return __fadd_rn(__uint_as_float((code ^ TOP) | 0x4b000000), -(float)(0x800000 + TOP));
    }
    static SL_DEVICE_MEMBER float value_of(uint32_t code, const sl_scale &scale)
    {
        return scaled(integer_of(code), scale);
    }
    static SL_DEVICE_MEMBER float summand_of(uint32_t code, const sl_scale &scale)
    {
        return scaled_any(integer_of(code), scale);
    }
};

/*
 * A byte of 5 exponent and 3 mantissa bits, over a base that the tile has in its head: that of its
 * largest scale. rank: the upper 11 bits of a positive f32 without its sign, which are in order as
 * the numbers are.
 */
template <uint32_t MOST, uint32_t LARGEST>
struct sl_scale_e5m3 {
    static const unsigned HEAD = 16, BLOCK = 32, SCALE = 1;
    static const bool OF_TILE = true;

    static SL_DEVICE_MEMBER bool counts(uint32_t max)
    {
        return is_usable(max);
    }
    /* UP: rounded up, otherwise to nearest even. */
    template <bool UP>
    static SL_DEVICE_MEMBER int rank_of(uint32_t max)
    {
        uint32_t bits = __float_as_uint(__fdiv_rn(__uint_as_float(max), (float)MOST));
        uint32_t rank = rounded_bits<20, UP>(bits) >> 20;

        return (int)(rank < SL_TINY >> 20 ? SL_TINY >> 20 : rank > LARGEST ? LARGEST : rank);
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_head head_of(uint32_t most)
    {
        sl_head head = {};

        head.base = most == 0 ? 0 : (rank_of<UP>(most) >> 3) - 127;
        head.stored[0] = (uint32_t)head.base & 0xff;
        return head;
    }
    static SL_DEVICE_MEMBER sl_head read_head(const uint8_t *in)
    {
        sl_head head = {};

        head.base = (int8_t)in[0];
        return head;
    }
    template <bool UP>
    static SL_DEVICE_MEMBER sl_scale scale_of(uint32_t max, const sl_head &head)
    {
        int rank = rank_of<UP>(max), stored = rank - 8 * (head.base + 97);
        bool codes = is_usable(max) && stored >= 1;
        sl_scale out;

        out.is_nan = max >= SL_INFINITE;
        out.value = codes ? __uint_as_float((uint32_t)rank << 20) : 0;
        out.inverse = codes ? __fdiv_rn(1, out.value) : 0;
        out.stored = out.is_nan ? 255 : codes ? (uint32_t)stored : 0;
        return out;
    }
    static SL_DEVICE_MEMBER sl_scale read_scale(uint32_t stored, const sl_head &head)
    {
        int rank = (int)stored + 8 * (head.base + 97);
        sl_scale out = {};

        out.is_nan = stored == 255 || (stored != 0 && rank >= (int)(SL_INFINITE >> 20));
        if (stored != 0 && rank >= (int)(SL_TINY >> 20) && !out.is_nan)
            out.value = __uint_as_float((uint32_t)rank << 20);
        return out;
    }
};

struct sl_codec_bq8 : sl_scale_bf16<127, 0x7c01>, sl_integer_codes<8, 127> {
};
struct sl_codec_bq4 : sl_scale_e5m3<7, 0x7e1>, sl_integer_codes<4, 7> {
};
struct sl_codec_bq2 : sl_scale_e5m3<1, 0x7f7>, sl_integer_codes<2, 1> {
};

#endif
