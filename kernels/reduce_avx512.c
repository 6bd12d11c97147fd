/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction and copy kernels for AVX-512 (F, BW, DQ, VL). Built with flags of its own: nothing here
 * may run before reduce_x86.c has looked at the CPU.
 */
#include "kernels/reduce_kernels.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef __m512i vec;
typedef __m512 ps;
typedef __m512d pd;
#define VEC_BYTES 64

#define MM(name) _mm512_##name
#define ps_of _mm512_castsi512_ps
#define pd_of _mm512_castsi512_pd
#define vec_of_ps _mm512_castps_si512
#define vec_of_pd _mm512_castpd_si512
#define vec_and _mm512_and_si512

SL_INLINE vec vec_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

SL_INLINE void vec_store(void *p, vec v)
{
    _mm512_storeu_si512(p, v);
}

SL_INLINE void vec_stream(void *p, vec v)
{
    _mm512_stream_si512(p, v);
}

SL_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

/* One bit per byte. */
SL_INLINE __mmask64 first_bytes(size_t len)
{
    return _bzhi_u64(~UINT64_C(0), (unsigned)len);
}

SL_INLINE vec vec_load_part(const void *p, size_t len, unsigned elem)
{
    return _mm512_maskz_loadu_epi8(first_bytes(len), p);
}

SL_INLINE void vec_store_part(void *p, vec v, size_t len, unsigned elem)
{
    _mm512_mask_storeu_epi8(p, first_bytes(len), v);
}

SL_INLINE ps ps_canonical(ps a)
{
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);

    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(_mm512_castps_si512(a), nan, _mm512_set1_epi32(SL_NAN_F32)));
}

/* VRANGEPS orders zeros as the contract wants, but prefers a number to a NaN. */
SL_INLINE ps ps_range(ps a, ps b, bool max)
{
    __mmask16 nan = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    ps r = max ? _mm512_range_ps(a, b, 5) : _mm512_range_ps(a, b, 4);

    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(_mm512_castps_si512(r), nan, _mm512_set1_epi32(SL_NAN_F32)));
}

/* Half-width types: two f32 vectors hold the elements of one vec. */

typedef struct {
    ps a, b;
} ps_pair;

SL_INLINE ps_pair f16_unpack(vec v)
{
    return (ps_pair){_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
                     _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))};
}

/* Replaces what lies above infinity, sign aside, by a quiet NaN: half the work that it would be
 * before rounding. */
SL_INLINE vec half_canonical(vec v, uint16_t infinity, uint16_t nan)
{
    __mmask32 is_nan = _mm512_cmpgt_epu16_mask(_mm512_slli_epi16(v, 1),
                                               _mm512_set1_epi16((int16_t)(infinity << 1)));

    return _mm512_mask_mov_epi16(v, is_nan, _mm512_set1_epi16((int16_t)nan));
}

SL_INLINE vec f16_pack(ps_pair x)
{
    __m256i low = _mm512_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT);

    return half_canonical(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), 0x7c00, 0x7e00);
}

/* To nearest even, in the upper 16 bits: adds just less than half a unit, and one more to odd ones.
 * A NaN does not overflow: its low bits are 0, like those of the operands it came from.
 * (VCVTNEPS2BF16 would flush denormals.) */
SL_INLINE __m512i bf16_round(ps x)
{
    __m512i a = _mm512_castps_si512(x);
    __mmask16 odd = _mm512_test_epi32_mask(a, _mm512_set1_epi32(0x10000));
    __m512i r = _mm512_add_epi32(a, _mm512_set1_epi32(0x7fff));

    return _mm512_mask_sub_epi32(r, odd, r, _mm512_set1_epi32(-1));
}

SL_INLINE vec bf16_pack(ps_pair x)
{
    vec v =
        _mm512_mask_mov_epi16(_mm512_srli_epi32(bf16_round(x.a), 16), 0xaaaaaaaa, bf16_round(x.b));

    return half_canonical(v, 0x7f80, 0x7fc0);
}

/* f64 */

SL_INLINE pd pd_replace(pd a, __mmask8 nan)
{
    return _mm512_castsi512_pd(
        _mm512_mask_mov_epi64(_mm512_castpd_si512(a), nan, _mm512_set1_epi64((int64_t)SL_NAN_F64)));
}

SL_INLINE pd pd_canonical(pd a)
{
    return pd_replace(a, _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q));
}

SL_INLINE pd pd_range(pd a, pd b, bool max)
{
    __mmask8 nan = _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);

    return pd_replace(max ? _mm512_range_pd(a, b, 5) : _mm512_range_pd(a, b, 4), nan);
}

/* Integers: the accumulator is the vec. */

/* There is no 8-bit multiplication: products of even and of odd bytes in 16 bits each. */
SL_INLINE vec epi8_product(vec a, vec b)
{
    vec even = _mm512_mullo_epi16(a, b);
    vec odd = _mm512_mullo_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));

    return _mm512_mask_mov_epi8(even, 0xaaaaaaaaaaaaaaaa, _mm512_slli_epi16(odd, 8));
}

SL_INLINE vec i64_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? _mm512_add_epi64(a, b)
           : op == SLUICE_PROD ? _mm512_mullo_epi64(a, b)
           : op == SLUICE_MAX  ? _mm512_max_epi64(a, b)
                               : _mm512_min_epi64(a, b);
}

SL_INLINE vec u64_combine(vec a, vec b, enum sluice_op op)
{
    return op == SLUICE_MAX   ? _mm512_max_epu64(a, b)
           : op == SLUICE_MIN ? _mm512_min_epu64(a, b)
                              : i64_combine(a, b, op);
}

#include "kernels/reduce_x86_types.h"

/* Measured on Zen 5: vectors are up to 1.6 times faster than the C library's copy while both
 * buffers fit the innermost cache, 1.4 times slower past it. */
#define COPY_VECTORS_MAX ((size_t)16 << 10)

/*
 * Less than a vector: by two moves that overlap. A masked vector would span the line behind the
 * copy, and take it from the core that uses it: behind a short message in a window or a ring lies
 * the next one.
 */
SL_INLINE void copy_short(char *dst, const char *src, size_t len)
{
    if (len >= 32) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)src);
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + len - 32));

        _mm256_storeu_si256((__m256i *)(void *)dst, a);
        _mm256_storeu_si256((__m256i *)(void *)(dst + len - 32), b);
    } else if (len >= 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + len - 16));

        _mm_storeu_si128((__m128i *)(void *)dst, a);
        _mm_storeu_si128((__m128i *)(void *)(dst + len - 16), b);
    } else if (len >= 8) {
        uint64_t a, b;

        memcpy(&a, src, 8);
        memcpy(&b, src + len - 8, 8);
        memcpy(dst, &a, 8);
        memcpy(dst + len - 8, &b, 8);
    } else if (len >= 4) {
        uint32_t a, b;

        memcpy(&a, src, 4);
        memcpy(&b, src + len - 4, 4);
        memcpy(dst, &a, 4);
        memcpy(dst + len - 4, &b, 4);
    } else {
        for (size_t at = 0; at < len; at++)
            dst[at] = src[at];
    }
}

static void copy_cached(void *dst, const void *src, size_t len)
{
    if (len < VEC_BYTES)
        copy_short(dst, src, len);
    else if (len <= 4 * VEC_BYTES)
        copy_rest(dst, src, 0, len);
    else if (len <= COPY_VECTORS_MAX)
        copy_vectors(dst, src, len, false);
    else
        memcpy(dst, src, len);
}

const struct sl_kernels sl_kernels_avx512 = {
    .name = "avx512",
    .reduce = SL_REDUCE_TABLE(SL_REDUCE_ROW),
    .reduce_stream = SL_REDUCE_TABLE(SL_REDUCE_STREAM_ROW),
    .copy = copy_cached,
    .copy_stream = copy_stream,
};
