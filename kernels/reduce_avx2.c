/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction and copy kernels for AVX2 and F16C. Built with flags of its own: nothing here may run
 * before reduce_x86.c has looked at the CPU.
 */
#include "kernels/reduce_kernels.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef __m256i vec;
typedef __m256 ps;
typedef __m256d pd;
#define VEC_BYTES 32

#define MM(name) _mm256_##name
#define ps_of _mm256_castsi256_ps
#define pd_of _mm256_castsi256_pd
#define vec_of_ps _mm256_castps_si256
#define vec_of_pd _mm256_castpd_si256
#define vec_and _mm256_and_si256

SL_INLINE vec vec_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

SL_INLINE void vec_store(void *p, vec v)
{
    _mm256_storeu_si256(p, v);
}

SL_INLINE void vec_stream(void *p, vec v)
{
    _mm256_stream_si256(p, v);
}

SL_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

/* Moves len < VEC_BYTES bytes by the binary digits of len. */
SL_INLINE void move_part(char *dst, const char *src, size_t len, unsigned elem)
{
    size_t at = 0;

#pragma GCC unroll 5
    for (size_t n = VEC_BYTES / 2; n >= elem; n /= 2) {
        if ((len & n) != 0) {
            memcpy(dst + at, src + at, n);
            at += n;
        }
    }
}

/* Masked loads know 4-byte elements only. */
SL_INLINE vec vec_load_part(const void *p, size_t len, unsigned elem)
{
    static const int32_t ones_then_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    char part[VEC_BYTES] __attribute__((aligned(VEC_BYTES))) = {0};

    if (elem >= 4)
        return _mm256_maskload_epi32(p, vec_load(&ones_then_zeros[8 - len / 4]));
    move_part(part, p, len, elem);
    return vec_load(part);
}

/* Masked stores are slow on several CPUs: over the stack instead. */
SL_INLINE void vec_store_part(void *p, vec v, size_t len, unsigned elem)
{
    char part[VEC_BYTES] __attribute__((aligned(VEC_BYTES)));

    vec_store(part, v);
    move_part(p, part, len, elem);
}

SL_INLINE ps ps_replace(ps a, ps nan)
{
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(SL_NAN_F32)), nan);
}

SL_INLINE ps ps_canonical(ps a)
{
    return ps_replace(a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

/* Of two equal numbers, VMAXPS returns the second: asking both ways and joining the bits makes +0
 * of unlike zeros for max, -0 for min, and changes nothing else. */
SL_INLINE ps ps_range(ps a, ps b, bool max)
{
    ps r = max ? _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a))
               : _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));

    return ps_replace(r, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

/* Half-width types: two f32 vectors hold the elements of one vec. */

typedef struct {
    ps a, b;
} ps_pair;

SL_INLINE ps_pair f16_unpack(vec v)
{
    return (ps_pair){_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                     _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
}

/* Replaces what lies above infinity, sign aside, by a quiet NaN: half the work that it would be
 * before rounding. */
SL_INLINE vec half_canonical(vec v, int16_t infinity, int16_t nan)
{
    vec magnitude = _mm256_and_si256(v, _mm256_set1_epi16(0x7fff));
    vec is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(infinity));

    return _mm256_blendv_epi8(v, _mm256_set1_epi16(nan), is_nan);
}

SL_INLINE vec f16_pack(ps_pair x)
{
    __m128i low = _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT);

    return half_canonical(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), 0x7c00,
                          0x7e00);
}

/* To nearest even, in the upper 16 bits. A NaN does not overflow: its low bits are 0, like those of
 * the operands it came from. */
SL_INLINE __m256i bf16_round(ps x)
{
    __m256i a = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(a, 16), _mm256_set1_epi32(1));

    return _mm256_add_epi32(_mm256_add_epi32(a, _mm256_set1_epi32(0x7fff)), odd);
}

SL_INLINE vec bf16_pack(ps_pair x)
{
    vec v = _mm256_blend_epi16(_mm256_srli_epi32(bf16_round(x.a), 16), bf16_round(x.b), 0xaa);

    return half_canonical(v, 0x7f80, 0x7fc0);
}

/* f64 */

SL_INLINE pd pd_replace(pd a, pd nan)
{
    return _mm256_blendv_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x((int64_t)SL_NAN_F64)), nan);
}

SL_INLINE pd pd_canonical(pd a)
{
    return pd_replace(a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}

SL_INLINE pd pd_range(pd a, pd b, bool max)
{
    pd r = max ? _mm256_and_pd(_mm256_max_pd(a, b), _mm256_max_pd(b, a))
               : _mm256_or_pd(_mm256_min_pd(a, b), _mm256_min_pd(b, a));

    return pd_replace(r, _mm256_cmp_pd(a, b, _CMP_UNORD_Q));
}

/* Integers: the accumulator is the vec. */

/* There is no 8-bit multiplication: products of even and of odd bytes in 16 bits each. */
SL_INLINE vec epi8_product(vec a, vec b)
{
    vec even = _mm256_mullo_epi16(a, b);
    vec odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));

    return _mm256_blendv_epi8(even, _mm256_slli_epi16(odd, 8), _mm256_set1_epi16((short)0xff00));
}

/* Low 64 bits of 64-bit products, from 32-bit halves. */
SL_INLINE vec epi64_product(vec a, vec b)
{
    vec cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b),
                                 _mm256_mul_epu32(a, _mm256_srli_epi64(b, 32)));

    return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(cross, 32));
}

/* greater: all ones where a is the greater one. */
SL_INLINE vec epi64_choose(vec a, vec b, vec greater, bool max)
{
    return max ? _mm256_blendv_epi8(b, a, greater) : _mm256_blendv_epi8(a, b, greater);
}

SL_INLINE vec i64_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? _mm256_add_epi64(a, b)
           : op == SLUICE_PROD ? epi64_product(a, b)
                               : epi64_choose(a, b, _mm256_cmpgt_epi64(a, b), op == SLUICE_MAX);
}

SL_INLINE vec u64_combine(vec a, vec b, enum sluice_op op)
{
    vec top = _mm256_set1_epi64x(INT64_MIN); /* flipped, unsigned order becomes signed order */
    vec greater = _mm256_cmpgt_epi64(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top));

    return op == SLUICE_MAX || op == SLUICE_MIN ? epi64_choose(a, b, greater, op == SLUICE_MAX)
                                                : i64_combine(a, b, op);
}

#include "kernels/reduce_x86_types.h"

/* The C library copies as well as 32-byte vectors can. */
static void copy_cached(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

const struct sl_kernels sl_kernels_avx2 = {
    .name = "avx2",
    .reduce = SL_REDUCE_TABLE(SL_REDUCE_ROW),
    .reduce_stream = SL_REDUCE_TABLE(SL_REDUCE_STREAM_ROW),
    .copy = copy_cached,
    .copy_stream = copy_stream,
};
