/* SPDX-License-Identifier: Apache-2.0 */
/* Template: maxima of small blocks, in halves of vectors on AVX-512 as well: loads of 32 bytes, one
 * after another, measure half as fast again there as those of 64. */

SL_INLINE __m256i larger(__m256i a, __m256i b)
{
    return _mm256_max_epu32(a, b);
}

/* Blocks are halved into one another: what is left has the maximum of a block in each word. */
SL_INLINE __m256i four_blocks(const __m256i v[4])
{
    __m256i ab = larger(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i cd = larger(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));

    return larger(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

SL_INLINE void store_four(const __m256i v[4], uint32_t *max)
{
    __m256i four = four_blocks(v);

    _mm_storeu_si128((__m128i *)(void *)max, _mm_max_epu32(_mm256_castsi256_si128(four),
                                                           _mm256_extracti128_si256(four, 1)));
}

/* Of eight blocks. */
SL_INLINE void store_eight(const __m256i v[8], uint32_t *max)
{
    __m256i low = four_blocks(v), high = four_blocks(v + 4);

    _mm256_storeu_si256((__m256i *)(void *)max, larger(_mm256_permute2x128_si256(low, high, 0x20),
                                                       _mm256_permute2x128_si256(low, high, 0x31)));
}

SL_INLINE uint32_t largest_eight(__m256i x)
{
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(y);
}

SL_INLINE __m256 widen_eight(unsigned dtype, __m128i half)
{
    return dtype == SLUICE_BF16
               ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))
               : _mm256_cvtph_ps(half);
}

SL_INLINE __m256 load_eight(unsigned dtype, const void *in, size_t i)
{
    const __m128i *half = (const __m128i *)(const void *)((const char *)in + i * 2);

    return dtype == SLUICE_F32 ? _mm256_loadu_ps((const float *)in + i)
                               : widen_eight(dtype, _mm_loadu_si128(half));
}

/* Of eight elements. */
SL_INLINE __m256i eight_magnitudes(unsigned dtype, const void *in, size_t i)
{
    return _mm256_and_si256(_mm256_castps_si256(load_eight(dtype, in, i)),
                            _mm256_set1_epi32(SL_BITS_ABS));
}

/* Of 32. Halves are compared as they lie: without their signs, larger ones have larger bits. */
SL_INLINE __m256i largest_of_32(unsigned dtype, const void *in, size_t i)
{
    const __m256i *from = (const __m256i *)(const void *)((const char *)in + i * 2);
    const __m256i abs = _mm256_set1_epi16(0x7fff);
    __m256i x;

    if (dtype == SLUICE_F32)
        return larger(
            larger(eight_magnitudes(dtype, in, i), eight_magnitudes(dtype, in, i + 8)),
            larger(eight_magnitudes(dtype, in, i + 16), eight_magnitudes(dtype, in, i + 24)));
    x = _mm256_max_epu16(_mm256_and_si256(_mm256_loadu_si256(from), abs),
                         _mm256_and_si256(_mm256_loadu_si256(from + 1), abs));
    return _mm256_castps_si256(widen_eight(
        dtype, _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1))));
}
