/* SPDX-License-Identifier: Apache-2.0 */
/* Template: the vectors of AVX2 and F16C, and what differs between instruction sets, for
 * kernels_simd.h and scaled_simd.h. */
#include <immintrin.h>

#define SL_INLINE static inline __attribute__((always_inline))
#define LANES 8
#define MM(name) _mm256_##name

typedef __m256 ps;
typedef __m256i vec;
typedef __m128i half_vec;
#define ps_of _mm256_castsi256_ps
#define vec_of _mm256_castps_si256
#define vec_and _mm256_and_si256
#define vec_or _mm256_or_si256
#define vec_xor _mm256_xor_si256
#define vec_store(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define vec_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define half_vec_load(p) _mm_loadu_si128((const __m128i *)(p))

/* The first n lanes, the others 0; and these alone. */
SL_INLINE vec first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

SL_INLINE vec vec_load_some(const void *from, size_t n)
{
    return _mm256_maskload_epi32(from, first_lanes(n));
}

SL_INLINE void vec_store_some(void *to, size_t n, vec x)
{
    _mm256_maskstore_epi32(to, first_lanes(n), x);
}

SL_INLINE ps ps_floor(ps x)
{
    return _mm256_floor_ps(x);
}

/* All ones where a > b, of signed numbers. */
SL_INLINE vec vec_greater(vec a, vec b)
{
    return _mm256_cmpgt_epi32(a, b);
}

SL_INLINE vec vec_select(vec which, vec yes, vec no)
{
    return _mm256_blendv_epi8(no, yes, which);
}

/* v, but nan where x is one. */
SL_INLINE vec vec_unless_nan(ps x, vec v, uint32_t nan)
{
    vec is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(v, _mm256_set1_epi32((int)nan), is_nan);
}

/* Bit by bit. */
SL_INLINE vec vec_bits(vec which, vec yes, vec no)
{
    return _mm256_or_si256(_mm256_and_si256(which, yes), _mm256_andnot_si256(which, no));
}

SL_INLINE unsigned below_zero(ps x)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}

SL_INLINE vec vec_below_zero(ps x)
{
    return _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}

/* The larger of both halves, of 16 bits each. */
SL_INLINE half_vec larger_half(vec x)
{
    return _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

SL_INLINE uint32_t vec_largest(vec x)
{
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(y);
}

/* 8 bytes each, in the order of the elements. */
SL_INLINE vec pack_bytes(vec a, vec b, vec c, vec d)
{
    const vec order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

    return _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)), order);
}

SL_INLINE void put_codes(unsigned bits, vec bytes, bool stream, void *out)
{
    __m128i *to = out;

    if (bits == 8 && stream) {
        _mm_stream_si128(to, _mm256_castsi256_si128(bytes));
        _mm_stream_si128(to + 1, _mm256_extracti128_si256(bytes, 1));
    } else if (bits == 8) {
        _mm256_storeu_si256(out, bytes);
    } else if (bits == 4) {
        vec two = _mm256_maddubs_epi16(_mm256_and_si256(bytes, _mm256_set1_epi8(15)),
                                       _mm256_set1_epi16(0x1001));
        __m128i half =
            _mm_packus_epi16(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));

        _mm_storeu_si128(to, half);
    } else {
        vec two = _mm256_maddubs_epi16(_mm256_and_si256(bytes, _mm256_set1_epi8(3)),
                                       _mm256_set1_epi16(0x0401));
        vec four = _mm256_madd_epi16(two, _mm256_set1_epi32(0x00100001));
        __m128i half =
            _mm_packs_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));

        _mm_storel_epi64(to, _mm_packus_epi16(half, half));
    }
}

/* LANES codes from element i on, a multiple of LANES. */
SL_INLINE vec get_codes(unsigned bits, const uint8_t *in, size_t i)
{
    const vec fours = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const vec twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    uint32_t word;
    uint16_t half;
    vec v;

    if (bits == 8)
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(in + i)));
    if (bits == 4) {
        memcpy(&word, in + i / 2, sizeof(word));
        v = _mm256_srlv_epi32(_mm256_set1_epi32((int)word), fours);
        return _mm256_srai_epi32(_mm256_slli_epi32(v, 28), 28);
    }
    memcpy(&half, in + i / 4, sizeof(half));
    v = _mm256_srlv_epi32(_mm256_set1_epi32(half), twos);
    return _mm256_srai_epi32(_mm256_slli_epi32(v, 30), 30);
}

/* The sign bits of LANES elements from element i on. */
SL_INLINE vec get_signs(const uint8_t *in, size_t i)
{
    const vec left = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);

    return _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(in[i / 8]), left),
                            _mm256_set1_epi32(INT32_MIN));
}

SL_INLINE void put_signs(unsigned signs, size_t i, uint8_t *out)
{
    out[i / 8] = (uint8_t)signs;
}

/* The lower half of each lane. */
SL_INLINE half_vec narrow_lanes(vec x)
{
    const vec low = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1,
                                     4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);

    x = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, low), 0x08);
    return _mm256_castsi256_si128(x);
}

/* The lowest byte of each lane, the others are 0. */
SL_INLINE void put_low_bytes(vec x, void *out)
{
    __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

    _mm_storel_epi64(out, _mm_packus_epi16(halves, halves));
}

SL_INLINE void half_store(void *out, half_vec v, bool stream)
{
    if (stream)
        _mm_stream_si128(out, v);
    else
        _mm_storeu_si128(out, v);
}

/* By element number modulo 16: odd vectors use the second two. */
typedef __m256d magnitudes[4];
#define MAGNITUDE_LANES 4

SL_INLINE void sum_magnitudes(__m256d lanes[2], ps abs)
{
    lanes[0] = _mm256_add_pd(lanes[0], _mm256_cvtps_pd(_mm256_castps256_ps128(abs)));
    lanes[1] = _mm256_add_pd(lanes[1], _mm256_cvtps_pd(_mm256_extractf128_ps(abs, 1)));
}

/* The element whose number differs by far, of a vector. */
SL_INLINE ps partner(ps x, unsigned far)
{
    return far == 1   ? _mm256_permute_ps(x, 0xb1)
           : far == 2 ? _mm256_permute_ps(x, 0x4e)
                      : _mm256_permute2f128_ps(x, x, 1);
}

/* Numbers of eight of elements: as transpose() then lays them in order. */
SL_INLINE vec first_eights(void)
{
    return _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
}

SL_INLINE vec blend_odd(vec even, vec odd)
{
    return _mm256_blend_epi32(even, odd, 0xaa);
}
