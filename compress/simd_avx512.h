/* SPDX-License-Identifier: Apache-2.0 */
/* Template: the vectors of AVX-512 (F, BW, DQ, VL), and what differs between instruction sets, for
 * kernels_simd.h and scaled_simd.h. */
#include <immintrin.h>

#define SL_INLINE static inline __attribute__((always_inline))
#define LANES 16
#define MM(name) _mm512_##name

typedef __m512 ps;
typedef __m512i vec;
typedef __m256i half_vec;
#define ps_of _mm512_castsi512_ps
#define vec_of _mm512_castps_si512
#define vec_and _mm512_and_si512
#define vec_or _mm512_or_si512
#define vec_xor _mm512_xor_si512
#define vec_store _mm512_storeu_si512
#define vec_load(p) _mm512_loadu_si512(p)
#define half_vec_load(p) _mm256_loadu_si256((const __m256i *)(p))

/* The first n lanes, the others 0; and these alone. */
SL_INLINE vec vec_load_some(const void *from, size_t n)
{
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), from);
}

SL_INLINE void vec_store_some(void *to, size_t n, vec x)
{
    _mm512_mask_storeu_epi32(to, (__mmask16)((1u << n) - 1), x);
}

SL_INLINE ps ps_floor(ps x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* All ones where a > b, of signed numbers. */
SL_INLINE vec vec_greater(vec a, vec b)
{
    return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(a, b));
}

SL_INLINE vec vec_select(vec which, vec yes, vec no)
{
    return _mm512_ternarylogic_epi32(which, yes, no, 0xca);
}

/* v, but nan where x is one. */
SL_INLINE vec vec_unless_nan(ps x, vec v, uint32_t nan)
{
    return _mm512_mask_set1_epi32(v, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), (int)nan);
}

/* Bit by bit. */
SL_INLINE vec vec_bits(vec which, vec yes, vec no)
{
    return _mm512_ternarylogic_epi32(which, yes, no, 0xca);
}

SL_INLINE unsigned below_zero(ps x)
{
    return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
}

SL_INLINE vec vec_below_zero(ps x)
{
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ));
}

/* The larger of both halves, of 16 bits each. */
SL_INLINE half_vec larger_half(vec x)
{
    return _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
}

SL_INLINE uint32_t vec_largest(vec x)
{
    return _mm512_reduce_max_epu32(x);
}

/* 16 bytes each, in the order of the elements. */
SL_INLINE vec pack_bytes(vec a, vec b, vec c, vec d)
{
    const vec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    return _mm512_permutexvar_epi32(
        order, _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

SL_INLINE void put_codes(unsigned bits, vec bytes, bool stream, void *out)
{
    __m128i *to = out;

    if (bits == 8 && stream) {
        _mm_stream_si128(to, _mm512_extracti32x4_epi32(bytes, 0));
        _mm_stream_si128(to + 1, _mm512_extracti32x4_epi32(bytes, 1));
        _mm_stream_si128(to + 2, _mm512_extracti32x4_epi32(bytes, 2));
        _mm_stream_si128(to + 3, _mm512_extracti32x4_epi32(bytes, 3));
    } else if (bits == 8) {
        _mm512_storeu_si512(out, bytes);
    } else if (bits == 4) {
        vec two = _mm512_maddubs_epi16(_mm512_and_si512(bytes, _mm512_set1_epi8(15)),
                                       _mm512_set1_epi16(0x1001));

        _mm256_storeu_si256(out, _mm512_cvtepi16_epi8(two));
    } else {
        vec two = _mm512_maddubs_epi16(_mm512_and_si512(bytes, _mm512_set1_epi8(3)),
                                       _mm512_set1_epi16(0x0401));
        vec four = _mm512_madd_epi16(two, _mm512_set1_epi32(0x00100001));

        _mm_storeu_si128(to, _mm512_cvtepi32_epi8(four));
    }
}

/* LANES codes from element i on, a multiple of LANES. */
SL_INLINE vec get_codes(unsigned bits, const uint8_t *in, size_t i)
{
    const vec fours = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const vec twos = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vec halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    uint32_t word;
    vec v;

    if (bits == 8)
        return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(in + i)));
    if (bits == 4) {
        v = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(in + i / 2)));
        v = _mm512_srlv_epi32(_mm512_permutexvar_epi32(halves, v), fours);
        return _mm512_srai_epi32(_mm512_slli_epi32(v, 28), 28);
    }
    memcpy(&word, in + i / 4, sizeof(word));
    v = _mm512_srlv_epi32(_mm512_set1_epi32((int)word), twos);
    return _mm512_srai_epi32(_mm512_slli_epi32(v, 30), 30);
}

/* The sign bits of LANES elements from element i on. */
SL_INLINE vec get_signs(const uint8_t *in, size_t i)
{
    const vec left =
        _mm512_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16);
    uint16_t word;

    memcpy(&word, in + i / 8, sizeof(word));
    return _mm512_and_si512(_mm512_sllv_epi32(_mm512_set1_epi32(word), left),
                            _mm512_set1_epi32(INT32_MIN));
}

SL_INLINE void put_signs(unsigned signs, size_t i, uint8_t *out)
{
    uint16_t word = (uint16_t)signs;

    memcpy(out + i / 8, &word, sizeof(word));
}

/* The lower half of each lane. */
SL_INLINE half_vec narrow_lanes(vec x)
{
    return _mm512_cvtepi32_epi16(x);
}

/* The lowest byte of each lane, the others are 0. */
SL_INLINE void put_low_bytes(vec x, void *out)
{
    _mm_storeu_si128(out, _mm512_cvtepi32_epi8(x));
}

SL_INLINE void half_store(void *out, half_vec v, bool stream)
{
    if (stream) {
        _mm_stream_si128(out, _mm256_castsi256_si128(v));
        _mm_stream_si128((__m128i *)out + 1, _mm256_extracti128_si256(v, 1));
    } else {
        _mm256_storeu_si256(out, v);
    }
}

SL_INLINE void sum_magnitudes(__m512d lanes[2], ps abs)
{
    lanes[0] = _mm512_add_pd(lanes[0], _mm512_cvtps_pd(_mm512_castps512_ps256(abs)));
    lanes[1] = _mm512_add_pd(lanes[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(abs, 1)));
}
typedef __m512d magnitudes[2];
#define MAGNITUDE_LANES 8

/* The element whose number differs by far, of a vector. */
SL_INLINE ps partner(ps x, unsigned far)
{
    return far == 1   ? _mm512_permute_ps(x, 0xb1)
           : far == 2 ? _mm512_permute_ps(x, 0x4e)
           : far == 4 ? _mm512_shuffle_f32x4(x, x, 0xb1)
                      : _mm512_shuffle_f32x4(x, x, 0x4e);
}

/* Numbers of eight of elements: as transpose() then lays them in order. */
SL_INLINE vec first_eights(void)
{
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

SL_INLINE vec blend_odd(vec even, vec odd)
{
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
