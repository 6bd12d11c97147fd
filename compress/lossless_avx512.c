/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless codecs: the inner loops with 512-bit vectors. */
#include "compress/lossless.h"

#include "compress/palette_escapes.h"
#include "compress/rans_avx512.h"

#include <immintrin.h>
#include <string.h>

#define VECTOR 64 /* bytes */
#define PATH sl_lossless_avx512
#define PATH_NAME "avx512"
#define RANS_ENCODE sl_rans_encode_avx512
#define RANS_DECODE sl_rans_decode_avx512

static const char *lacks(void)
{
    __builtin_cpu_init();
    return !__builtin_cpu_supports("avx512f")    ? "AVX512F"
           : !__builtin_cpu_supports("avx512bw") ? "AVX512BW"
           : !__builtin_cpu_supports("avx512dq") ? "AVX512DQ"
           : !__builtin_cpu_supports("avx512vl") ? "AVX512VL"
                                                 : NULL;
}

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void store(void *p, __m512i v, bool stream)
{
    if (stream)
        _mm512_stream_si512(p, v);
    else
        _mm512_storeu_si512(p, v);
}

/* ---- taking apart ---- */

static inline __m512i rotate_16(__m512i x)
{
    return _mm512_or_si512(_mm512_add_epi16(x, x), _mm512_srli_epi16(x, 15));
}

static inline __m512i bytes_of_16(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                              _mm512_cvtepi16_epi8(b), 1);
}

static inline void put_bits(uint8_t *plane, size_t at, uint64_t bits)
{
    memcpy(plane + at / 8, &bits, 8);
}

static inline uint64_t get_bits(const uint8_t *plane, size_t at)
{
    uint64_t bits;

    memcpy(&bits, plane + at / 8, 8);
    return bits;
}

static void split_16(unsigned dtype, const char *in, size_t n, uint8_t *raw, uint8_t *exponents,
                     bool stream)
{
    for (size_t i = 0; i < n; i += 64) {
        __m512i a = rotate_16(load(in + 2 * i)), b = rotate_16(load(in + 2 * i + 64));

        store(raw + i, bytes_of_16(a, b), stream);
        a = _mm512_srli_epi16(a, 8);
        b = _mm512_srli_epi16(b, 8);
        __m512i high = bytes_of_16(a, b);

        if (dtype == SLUICE_F16) {
            for (unsigned bit = 0; bit < 3; bit++)
                put_bits(raw + n + bit * (n / 8), i,
                         _mm512_test_epi8_mask(high, _mm512_set1_epi8((char)(1 << bit))));
            high = _mm512_and_si512(_mm512_srli_epi16(high, 3), _mm512_set1_epi8(31));
        }
        store(exponents + i, high, false);
    }
}

static inline __m512i bytes_of_32(const __m512i x[4])
{
    __m512i v = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(x[0]));

    v = _mm512_inserti32x4(v, _mm512_cvtepi32_epi8(x[1]), 1);
    v = _mm512_inserti32x4(v, _mm512_cvtepi32_epi8(x[2]), 2);
    return _mm512_inserti32x4(v, _mm512_cvtepi32_epi8(x[3]), 3);
}

static inline __m512i words_of_32(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
                              _mm512_cvtepi32_epi16(b), 1);
}

static void split_32(const char *in, size_t n, uint8_t *raw, uint8_t *exponents, bool stream)
{
    for (size_t i = 0; i < n; i += 64) {
        __m512i x[4];

        for (unsigned k = 0; k < 4; k++)
            x[k] = _mm512_rol_epi32(load(in + 4 * i + 64 * k), 1);
        store(raw + 2 * i, words_of_32(x[0], x[1]), stream);
        store(raw + 2 * i + 64, words_of_32(x[2], x[3]), stream);
        for (unsigned k = 0; k < 4; k++)
            x[k] = _mm512_srli_epi32(x[k], 16);
        store(raw + 2 * n + i, bytes_of_32(x), stream);
        for (unsigned k = 0; k < 4; k++)
            x[k] = _mm512_srli_epi32(x[k], 8);
        store(exponents + i, bytes_of_32(x), false);
    }
}

/* ---- putting together ---- */

static inline __m512i wide_16(const void *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(p));
}

static inline __m512i bits_of(const uint8_t *plane, size_t at, unsigned value)
{
    return _mm512_maskz_set1_epi8(get_bits(plane, at), (char)value);
}

static inline __m512i codes_of(const uint8_t *planes, size_t n, size_t at)
{
    __m512i code = _mm512_or_si512(bits_of(planes, at, 1), bits_of(planes + n / 8, at, 2));

    return _mm512_or_si512(code, bits_of(planes + 2 * (n / 8), at, 4));
}

/* 32 elements: their high bytes above their low ones, rotated back. */
static inline __m512i whole_16(__m512i high, __m512i low)
{
    __m512i x = _mm512_or_si512(_mm512_slli_epi16(high, 8), low);

    return _mm512_or_si512(_mm512_srli_epi16(x, 1), _mm512_slli_epi16(x, 15));
}

static void join_16(unsigned dtype, const uint8_t *raw, const uint8_t *exponents, size_t n,
                    char *out, bool stream)
{
    for (size_t i = 0; i < n; i += 64) {
        __m512i high = load(exponents + i);

        if (dtype == SLUICE_F16)
            high =
                _mm512_or_si512(_mm512_slli_epi16(_mm512_and_si512(high, _mm512_set1_epi8(31)), 3),
                                codes_of(raw + n, n, i));
        __m512i a = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(high));
        __m512i b = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(high, 1));

        store(out + 2 * i, whole_16(a, wide_16(raw + i)), stream);
        store(out + 2 * i + 64, whole_16(b, wide_16(raw + i + 32)), stream);
    }
}

static void join_32(const uint8_t *raw, const uint8_t *exponents, size_t n, char *out, bool stream)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(raw + 2 * i)));
        __m512i third = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(raw + 2 * n + i)));
        __m512i high = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(exponents + i)));

        x = _mm512_or_si512(x, _mm512_slli_epi32(third, 16));
        x = _mm512_or_si512(x, _mm512_slli_epi32(high, 24));
        store(out + 4 * i, _mm512_ror_epi32(x, 1), stream);
    }
}

/* ---- codes of three bits ---- */

/* Returns the escapes among 64 codes. */
static inline size_t put_codes(uint64_t *planes, size_t words, size_t w, __m512i code)
{
    uint64_t all = UINT64_MAX;

    for (unsigned b = 0; b < 3; b++) {
        uint64_t bits = _mm512_test_epi8_mask(code, _mm512_set1_epi8((char)(1 << b)));

        planes[b * words + w] = bits;
        all &= bits;
    }
    return (size_t)__builtin_popcountll(all);
}

static inline uint8_t largest(__m512i v)
{
    __m256i h = _mm256_max_epu8(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i m = _mm_max_epu8(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));

    m = _mm_max_epu8(m, _mm_srli_si128(m, 1)); /* the pairs' larger in the even bytes */
    m = _mm_sub_epi16(_mm_set1_epi16(255), _mm_and_si128(m, _mm_set1_epi16(255)));
    return (uint8_t)(255 - _mm_extract_epi16(_mm_minpos_epu16(m), 0));
}

static size_t window(const uint8_t *exponents, size_t n, uint8_t bases[SL_PALETTE_BLOCKS],
                     uint64_t *planes)
{
    size_t escapes = 0;

    memset(bases, 0, SL_PALETTE_BLOCKS);
    for (size_t first = 0; first < n; first += SL_PALETTE_BLOCK) {
        size_t end = n - first < SL_PALETTE_BLOCK ? n : first + SL_PALETTE_BLOCK;
        __m512i most = load(exponents + first);

        for (size_t i = first + 64; i < end; i += 64)
            most = _mm512_max_epu8(most, load(exponents + i));
        bases[first / SL_PALETTE_BLOCK] = largest(most);
        most = _mm512_set1_epi8((char)bases[first / SL_PALETTE_BLOCK]);
        for (size_t i = first; i < end; i += 64) {
            __m512i code = _mm512_sub_epi8(most, load(exponents + i));

            code = _mm512_min_epu8(code, _mm512_set1_epi8(SL_PALETTE_CODES));
            escapes += put_codes(planes, n / 64, i / 64, code);
        }
    }
    return escapes;
}

static size_t match(const uint8_t *exponents, size_t n, const uint8_t palette[SL_PALETTE_CODES],
                    uint64_t *planes)
{
    size_t escapes = 0;

    for (size_t i = 0; i < n; i += 64) {
        __m512i x = load(exponents + i), code = _mm512_set1_epi8(SL_PALETTE_CODES);

        for (int c = SL_PALETTE_CODES - 1; c >= 0; c--)
            code = _mm512_mask_set1_epi8(
                code, _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8((char)palette[c])), (char)c);
        escapes += put_codes(planes, n / 64, i / 64, code);
    }
    return escapes;
}

static void expand(const uint8_t *planes, size_t n, const uint8_t tables[][8], uint8_t *exponents)
{
    for (size_t first = 0; first < n; first += SL_PALETTE_BLOCK) {
        size_t end = n - first < SL_PALETTE_BLOCK ? n : first + SL_PALETTE_BLOCK;
        long long word;

        memcpy(&word, tables[first / SL_PALETTE_BLOCK], 8);
        __m512i table = _mm512_set1_epi64(word);

        for (size_t i = first; i < end; i += 64)
            store(exponents + i, _mm512_shuffle_epi8(table, codes_of(planes, n, i)), false);
    }
}

#include "compress/lossless_simd.h"
