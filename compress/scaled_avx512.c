/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats for AVX-512 (F, BW, DQ, VL). Built with flags of its own: nothing
 * here may run before kernels_x86.c has looked at the CPU. */
#include "compress/mx_scales.h"
#include "compress/nvfp4_scales.h"
#include "compress/scaled.h"

#define KERNELS sl_scaled_avx512

#include "compress/simd_avx512.h"

/* yes where v is below limit, which both are unsigned. */
SL_INLINE ps ps_below(vec v, uint32_t limit, ps yes, ps no)
{
    return _mm512_mask_blend_ps(_mm512_cmplt_epu32_mask(v, _mm512_set1_epi32((int)limit)), no, yes);
}

SL_INLINE ps pick(vec code, const float values[16])
{
    return _mm512_permutexvar_ps(code, _mm512_loadu_ps(values));
}

/* Packing works within quarters, whose words are put right at the end. */
SL_INLINE vec bytes_of(const vec code[4])
{
    const vec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vec low = _mm512_packus_epi32(code[0], code[1]), high = _mm512_packus_epi32(code[2], code[3]);

    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

SL_INLINE void put_bytes(const vec code[4], bool stream, uint8_t *out)
{
    __m128i *to = (__m128i *)(void *)out;
    vec bytes = bytes_of(code);

    if (stream) {
        _mm_stream_si128(to, _mm512_castsi512_si128(bytes));
        _mm_stream_si128(to + 1, _mm512_extracti32x4_epi32(bytes, 1));
        _mm_stream_si128(to + 2, _mm512_extracti32x4_epi32(bytes, 2));
        _mm_stream_si128(to + 3, _mm512_extracti32x4_epi32(bytes, 3));
    } else {
        _mm512_storeu_si512(out, bytes);
    }
}

SL_INLINE void put_nibbles(const vec code[4], bool stream, uint8_t *out)
{
    __m128i *to = (__m128i *)(void *)out;
    __m256i half =
        _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(bytes_of(code), _mm512_set1_epi16(0x1001)));

    if (stream) {
        _mm_stream_si128(to, _mm256_castsi256_si128(half));
        _mm_stream_si128(to + 1, _mm256_extracti128_si256(half, 1));
    } else {
        _mm256_storeu_si256((__m256i *)(void *)out, half);
    }
}

SL_INLINE void get_bytes(const uint8_t *from, vec code[4])
{
    for (int i = 0; i < 4; i++)
        code[i] = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(from + 16 * i)));
}

SL_INLINE void get_nibbles(const uint8_t *from, vec code[4])
{
    vec pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
    vec bytes = _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4)),
                                 _mm512_set1_epi16(0x0f0f));

    code[0] = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bytes));
    code[1] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bytes, 1));
    code[2] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bytes, 2));
    code[3] = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(bytes, 3));
}

#include "compress/scaled_simd.h"
