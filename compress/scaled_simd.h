/* SPDX-License-Identifier: Apache-2.0 */
/* Template: the kernels of small floats over vectors of LANES floats, written once. The including
 * file defines the vectors and what differs between instruction sets. */
#include "compress/simd_memory.h"

#include "compress/simd_maxima.h"

#define VECTORS (64 / LANES) /* codes are packed and unpacked 64 at a time */

SL_INLINE void maxima16_of(unsigned dtype, const void *in, size_t count, uint32_t *maxima)
{
    for (size_t i = 0; i < count; i += 128, maxima += 8) {
        __m256i v[8];

#pragma GCC unroll 8
        for (unsigned j = 0; j < 8; j++)
            v[j] = larger(eight_magnitudes(dtype, in, i + 16 * j),
                          eight_magnitudes(dtype, in, i + 16 * j + 8));
        store_eight(v, maxima);
    }
}

static void maxima16(const struct sl_input *in, size_t count, uint32_t *maxima)
{
    SL_BY_DTYPE(maxima16_of, in->dtype, in->at, count, maxima);
}

/*
 * What sl_minifloat_encode() makes, in its lowest byte, in fewer steps. value: of the code.
 *
 * A magnitude of exponent E and the power of two whose last place is the format's step there,
 * 2^(E + 23 - mantissa), have a sum that counts such steps in its last bits, and E in its exponent.
 * The code is that count and 2^mantissa * (E - least), so it is the sum of those bits and of the
 * exponent, brought down to them, and a number that is always the same. That number is added to the
 * power of two beforehand: it is even, so that what lies half way goes where it went.
 */
SL_INLINE vec code_of(enum sl_minifloat kind, vec bits, ps *value)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    const uint32_t up = 23 - f.mantissa, top = 1u << (f.bits - 1);
    const uint32_t same = (0u - ((uint32_t)(f.least + 127 + (int)up) << f.mantissa)) & (top - 1);
    const vec least = vec_set((uint32_t)(f.least + 127) << 23);
    ps mag = MM(min_ps)(ps_of(vec_and(bits, vec_set(SL_BITS_ABS))),
                        MM(set1_ps)(sl_minifloat_decode(kind, f.most)));
    vec exp = MM(max_epu32)(vec_and(vec_of(mag), vec_set(SL_BITS_INF)), least);
    ps power = ps_of(MM(add_epi32)(exp, vec_set((up << 23) + same)));
    ps sum = MM(add_ps)(mag, power);
    vec code = MM(add_epi32)(vec_of(sum), MM(srli_epi32)(vec_of(sum), up));

    *value = ps_of(vec_bits(vec_set(SL_BITS_ABS), vec_of(MM(sub_ps)(sum, power)), bits));
    return vec_bits(vec_set(top - 1), code, MM(srli_epi32)(bits, 32 - f.bits));
}

SL_INLINE void put_packed(enum sl_minifloat kind, const vec code[VECTORS], bool stream, size_t i,
                          uint8_t *codes)
{
    if (sl_minifloat_format(kind).bits == 4)
        put_nibbles(code, stream, codes + i / 2);
    else
        put_bytes(code, stream, codes + i);
}

SL_INLINE void encode(unsigned dtype, enum sl_minifloat kind, const struct sl_input *in,
                      size_t count, unsigned block, const float *inverses, bool stream,
                      uint8_t *codes)
{
    const struct sl_input from = *in; /* which no store changes */
    const size_t bytes = sl_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i += 64) {
        vec code[VECTORS];

        fetch(from.next, i * bytes, 64 * bytes);
#pragma GCC unroll 8
        for (unsigned j = 0; j < VECTORS; j++) {
            ps inverse = MM(set1_ps)(inverses[(i + j * LANES) / block]), value;
            ps x = MM(mul_ps)(load_ps(dtype, from.at, i + j * LANES), inverse);

            code[j] = code_of(kind, vec_of(x), &value);
        }
        put_packed(kind, code, stream, i, codes);
    }
}

SL_INLINE void feedback(enum sl_minifloat kind, unsigned block, const void *next, float *residual,
                        size_t count, const float *inverses, const float *scales, bool stream,
                        uint8_t *codes)
{
    for (size_t i = 0; i < count; i += 64) {
        vec code[VECTORS];

        fetch(next, i * sizeof(float), 256);
        fetch(next != NULL ? residual + SL_TILE : NULL, i * sizeof(float), 256);
#pragma GCC unroll 8
        for (unsigned j = 0; j < VECTORS; j++) {
            float *at = residual + i + j * LANES;
            ps inverse = MM(set1_ps)(inverses[(i + j * LANES) / block]), sum = MM(loadu_ps)(at);
            ps scale = MM(set1_ps)(scales[(i + j * LANES) / block]), value;

            code[j] = code_of(kind, vec_of(MM(mul_ps)(sum, inverse)), &value);
            MM(storeu_ps)(at, MM(sub_ps)(sum, MM(mul_ps)(value, scale)));
        }
        put_packed(kind, code, stream, i, codes);
    }
}

static const float e2m1_values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                      -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
static const float e3m0_values[16] = {0,    0.25f,  0.5f,  1,  2,  4,  8,  16,
                                      -0.f, -0.25f, -0.5f, -1, -2, -4, -8, -16};

/* sl_minifloat_decode(), all cases at once. */
SL_INLINE ps value_of(enum sl_minifloat kind, vec code)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    vec mag = vec_and(code, vec_set(0x7f));
    vec sign = MM(slli_epi32)(vec_and(code, vec_set(0x80)), 24);
    vec normal = MM(add_epi32)(MM(slli_epi32)(mag, 23 - f.mantissa),
                               vec_set((uint32_t)(f.least + 126) << 23));
    ps unit = ps_of(vec_set((uint32_t)(f.least - f.mantissa + 127) << 23));
    ps value;

    if (kind == SL_MINI_E2M1)
        return pick(code, e2m1_values);
    if (kind == SL_MINI_E3M0)
        return pick(code, e3m0_values);
    value = ps_below(mag, 1u << f.mantissa, MM(mul_ps)(MM(cvtepi32_ps)(mag), unit), ps_of(normal));
    if (kind == SL_MINI_E5M2)
        value = ps_below(mag, 0x7c, value, ps_of(vec_set(SL_BITS_INF)));
    value = ps_of(vec_or(vec_of(value), sign));
    return ps_below(mag, f.nan, value, ps_of(vec_set(SL_BITS_NAN)));
}

SL_INLINE void decode(unsigned dtype, enum sl_put put, enum sl_minifloat kind, const uint8_t *codes,
                      size_t count, unsigned block, const float *scales, void *out)
{
    for (size_t i = 0; i < count; i += 64) {
        vec code[VECTORS];

        if (sl_minifloat_format(kind).bits == 4)
            get_nibbles(codes + i / 2, code);
        else
            get_bytes(codes + i, code);
#pragma GCC unroll 8
        for (unsigned j = 0; j < VECTORS; j++) {
            ps scale = MM(set1_ps)(scales[(i + j * LANES) / block]);

            put_ps(dtype, put, MM(mul_ps)(value_of(kind, code[j]), scale), out, i + j * LANES);
        }
    }
}

SL_INLINE void encode_any(unsigned dtype, enum sl_minifloat kind, unsigned block,
                          const struct sl_input *in, size_t count, const float *inverses,
                          bool stream, uint8_t *codes)
{
    if (stream)
        encode(dtype, kind, in, count, block, inverses, true, codes);
    else
        encode(dtype, kind, in, count, block, inverses, false, codes);
}

SL_INLINE void decode_any(unsigned dtype, enum sl_minifloat kind, unsigned block,
                          const uint8_t *codes, size_t count, const float *scales, enum sl_put put,
                          void *out)
{
    if (put == SL_PUT_STREAM)
        decode(dtype, SL_PUT_STREAM, kind, codes, count, block, scales, out);
    else if (put == SL_PUT_ADD)
        decode(SLUICE_F32, SL_PUT_ADD, kind, codes, count, block, scales, out);
    else
        decode(dtype, SL_PUT_STORE, kind, codes, count, block, scales, out);
}

SL_INLINE void feedback_any(enum sl_minifloat kind, unsigned block, const void *next,
                            float *residual, size_t count, const float *inverses,
                            const float *scales, bool stream, uint8_t *codes)
{
    if (stream)
        feedback(kind, block, next, residual, count, inverses, scales, true, codes);
    else
        feedback(kind, block, next, residual, count, inverses, scales, false, codes);
}

/* Of each format the two sizes of blocks that codecs have: constants, as the format is one. */
#define FORMAT(name, kind, large, small)                                                           \
    static void encode_##name(const struct sl_input *in, size_t count, unsigned block,             \
                              const float *inverses, bool stream, uint8_t *codes)                  \
    {                                                                                              \
        if (block == (large))                                                                      \
            SL_BY_DTYPE(encode_any, in->dtype, kind, large, in, count, inverses, stream, codes);   \
        else                                                                                       \
            SL_BY_DTYPE(encode_any, in->dtype, kind, small, in, count, inverses, stream, codes);   \
    }                                                                                              \
    static void decode_##name(const uint8_t *codes, size_t count, unsigned block,                  \
                              const float *scales, const struct sl_output *out)                    \
    {                                                                                              \
        if (block == (large))                                                                      \
            SL_BY_DTYPE(decode_any, out->dtype, kind, large, codes, count, scales, out->put,       \
                        out->at);                                                                  \
        else                                                                                       \
            SL_BY_DTYPE(decode_any, out->dtype, kind, small, codes, count, scales, out->put,       \
                        out->at);                                                                  \
    }                                                                                              \
    static void feedback_##name(const void *next, float *residual, size_t count, unsigned block,   \
                                const float *inverses, const float *scales, bool stream,           \
                                uint8_t *codes)                                                    \
    {                                                                                              \
        if (block == (large))                                                                      \
            feedback_any(kind, large, next, residual, count, inverses, scales, stream, codes);     \
        else                                                                                       \
            feedback_any(kind, small, next, residual, count, inverses, scales, stream, codes);     \
    }

FORMAT(e4m3, SL_MINI_E4M3, 128, 32)
FORMAT(e5m2, SL_MINI_E5M2, 128, 128)
FORMAT(e2m1, SL_MINI_E2M1, 32, 16)
FORMAT(e3m0, SL_MINI_E3M0, 128, 128)

/* sl_nvfp4_make(), LANES blocks at a time. blocks may end anywhere. */
static void nvfp4(const uint32_t *maxima, size_t blocks, float tile, uint8_t *codes, float *values,
                  float *inverses)
{
    const ps divisor = MM(set1_ps)(tile == 0 ? 1 : 6 * tile);
    size_t whole = blocks / LANES * LANES;

    for (size_t b = 0; b < whole; b += LANES) {
        vec max = vec_load(maxima + b), wild = vec_greater(max, vec_set(SL_BITS_INF - 1));
        vec usable = vec_and(vec_greater(max, vec_set(SL_SCALE_LEAST - 1)),
                             vec_greater(vec_set(SL_BITS_INF), max));
        ps x = MM(div_ps)(ps_of(vec_and(max, usable)), divisor), value;
        vec code = MM(max_epi32)(code_of(SL_MINI_E4M3, vec_of(x), &value), vec_set(1));

        value = MM(mul_ps)(MM(max_ps)(value, MM(set1_ps)(0x1p-9f)), MM(set1_ps)(tile));
        vec_store(inverses + b, vec_and(usable, vec_of(MM(div_ps)(MM(set1_ps)(1), value))));
        vec_store(values + b,
                  vec_select(wild, vec_set(SL_BITS_NAN), vec_and(usable, vec_of(value))));
        put_low_bytes(vec_select(wild, vec_set(SL_NVFP4_NAN), vec_and(usable, code)), codes + b);
    }
    sl_nvfp4_make(maxima + whole, blocks - whole, tile, codes + whole, values + whole,
                  inverses + whole);
}

static void mx(const uint32_t *maxima, size_t blocks, uint32_t most, uint8_t *codes, float *values,
               float *inverses)
{
    sl_mx_make(maxima, blocks, most, codes, values, inverses);
}

const struct sl_scaled_kernels KERNELS = {
    .mx = mx,
    .nvfp4 = nvfp4,
    .maxima16 = maxima16,
    .encode = {encode_e4m3, encode_e5m2, encode_e2m1, encode_e3m0},
    .decode = {decode_e4m3, decode_e5m2, decode_e2m1, decode_e3m0},
    .feedback = {feedback_e4m3, feedback_e5m2, feedback_e2m1, feedback_e3m0},
};
