/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats for AVX2. Built with flags of its own: nothing here may run before
 * kernels_x86.c has looked at the CPU. */
#include "compress/mx_scales.h"
#include "compress/nvfp4_scales.h"
#include "compress/scaled.h"

#define KERNELS sl_scaled_avx2

#include "compress/simd_avx2.h"

/* yes where v is below limit, which both are below 2^31. */
SL_INLINE ps ps_below(vec v, uint32_t limit, ps yes, ps no)
{
    return _mm256_blendv_ps(no, yes, ps_of(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)limit), v)));
}

/* The instruction looks at three bits: the values are those of eight magnitudes, and bit 3 is the
 * sign. */
SL_INLINE ps pick(vec code, const float values[16])
{
    ps value = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), code);
    vec sign = _mm256_slli_epi32(vec_and(code, _mm256_set1_epi32(8)), 28);

    return ps_of(vec_or(vec_of(value), sign));
}

/* 32 codes in order: packing works within halves, whose words are put right at the end. */
SL_INLINE vec bytes_of(const vec code[4])
{
    const vec order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    vec low = _mm256_packus_epi32(code[0], code[1]), high = _mm256_packus_epi32(code[2], code[3]);

    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
}

SL_INLINE void put(vec bytes, bool stream, uint8_t *out)
{
    __m128i *to = (__m128i *)(void *)out;

    if (stream) {
        _mm_stream_si128(to, _mm256_castsi256_si128(bytes));
        _mm_stream_si128(to + 1, _mm256_extracti128_si256(bytes, 1));
    } else {
        _mm256_storeu_si256((__m256i *)(void *)out, bytes);
    }
}

SL_INLINE void put_bytes(const vec code[8], bool stream, uint8_t *out)
{
    put(bytes_of(code), stream, out);
    put(bytes_of(code + 4), stream, out + 32);
}

SL_INLINE void put_nibbles(const vec code[8], bool stream, uint8_t *out)
{
    const vec weights = _mm256_set1_epi16(0x1001);
    vec low = _mm256_maddubs_epi16(bytes_of(code), weights);
    vec high = _mm256_maddubs_epi16(bytes_of(code + 4), weights);

    put(_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8), stream, out);
}

SL_INLINE void get_bytes(const uint8_t *from, vec code[8])
{
    for (int i = 0; i < 8; i++)
        code[i] = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(from + 8 * i)));
}

SL_INLINE void get_nibbles(const uint8_t *from, vec code[8])
{
    for (int i = 0; i < 2; i++) {
        vec pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(from + 16 * i)));
        vec bytes = _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)),
                                     _mm256_set1_epi16(0x0f0f));
        __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);

        code[4 * i] = _mm256_cvtepu8_epi32(low);
        code[4 * i + 1] = _mm256_cvtepu8_epi32(_mm_srli_si128(low, 8));
        code[4 * i + 2] = _mm256_cvtepu8_epi32(high);
        code[4 * i + 3] = _mm256_cvtepu8_epi32(_mm_srli_si128(high, 8));
    }
}

#include "compress/scaled_simd.h"
