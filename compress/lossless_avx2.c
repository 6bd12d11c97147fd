/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless codecs: the inner loops with 256-bit vectors. */
#include "compress/lossless.h"

#include "compress/palette_escapes.h"
#include "compress/rans_avx2.h"

#include <immintrin.h>
#include <string.h>

#define VECTOR 32 /* bytes */
#define PATH sl_lossless_avx2
#define PATH_NAME "avx2"
#define RANS_ENCODE sl_rans_encode_avx2
#define RANS_DECODE sl_rans_decode_avx2

static const char *lacks(void)
{
    __builtin_cpu_init();
    return !__builtin_cpu_supports("avx2") ? "AVX2" : NULL;
}

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline void store(void *p, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256(p, v);
    else
        _mm256_storeu_si256(p, v);
}

static inline __m256i splat(unsigned byte)
{
    return _mm256_set1_epi8((char)byte);
}

/* Bit b of each of 32 bytes. */
static inline uint32_t bits_of(__m256i bytes, unsigned b)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16(bytes, _mm_cvtsi32_si128(7 - (int)b)));
}

/* value in each byte whose bit of the next 32 of a plane is set. */
static inline __m256i bytes_of(const uint8_t *plane, size_t at, unsigned value)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    int bits;

    memcpy(&bits, plane + at / 8, 4);
    __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), bit);

    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), splat(value));
}

static inline __m256i codes_of(const uint8_t *planes, size_t n, size_t at)
{
    __m256i code = _mm256_or_si256(bytes_of(planes, at, 1), bytes_of(planes + n / 8, at, 2));

    return _mm256_or_si256(code, bytes_of(planes + 2 * (n / 8), at, 4));
}

/* ---- taking apart ---- */

/* The low bytes of 32 numbers below 256. */
static inline __m256i narrow_16(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}

static inline __m256i rotate_16(__m256i x)
{
    return _mm256_or_si256(_mm256_add_epi16(x, x), _mm256_srli_epi16(x, 15));
}

static void split_16(unsigned dtype, const char *in, size_t n, uint8_t *raw, uint8_t *exponents,
                     bool stream)
{
    const __m256i byte = _mm256_set1_epi16(255);

    for (size_t i = 0; i < n; i += 32) {
        __m256i a = rotate_16(load(in + 2 * i)), b = rotate_16(load(in + 2 * i + 32));
        __m256i high = narrow_16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));

        store(raw + i, narrow_16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)), stream);
        if (dtype == SLUICE_F16) {
            for (unsigned bit = 0; bit < 3; bit++) {
                uint32_t bits = bits_of(high, bit);

                memcpy(raw + n + bit * (n / 8) + i / 8, &bits, 4);
            }
            high = _mm256_and_si256(_mm256_srli_epi16(high, 3), splat(31));
        }
        store(exponents + i, high, false);
    }
}

/* 16 numbers of 16 bits from as many of 32. */
static inline __m256i words_of_32(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

static inline __m256i bytes_of_32(const __m256i x[4])
{
    __m256i v =
        _mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]), _mm256_packus_epi32(x[2], x[3]));

    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static void split_32(const char *in, size_t n, uint8_t *raw, uint8_t *exponents, bool stream)
{
    const __m256i word = _mm256_set1_epi32(0xffff), byte = _mm256_set1_epi32(0xff);

    for (size_t i = 0; i < n; i += 32) {
        __m256i x[4], low[4], third[4];

        for (unsigned k = 0; k < 4; k++) {
            x[k] = load(in + 4 * i + 32 * k);
            x[k] = _mm256_or_si256(_mm256_add_epi32(x[k], x[k]), _mm256_srli_epi32(x[k], 31));
            low[k] = _mm256_and_si256(x[k], word);
            third[k] = _mm256_and_si256(_mm256_srli_epi32(x[k], 16), byte);
            x[k] = _mm256_srli_epi32(x[k], 24);
        }
        store(raw + 2 * i, words_of_32(low[0], low[1]), stream);
        store(raw + 2 * i + 32, words_of_32(low[2], low[3]), stream);
        store(raw + 2 * n + i, bytes_of_32(third), stream);
        store(exponents + i, bytes_of_32(x), false);
    }
}

/* ---- putting together ---- */

static inline __m256i wide_16(const void *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(p));
}

/* 16 elements: their high bytes above their low ones, rotated back. */
static inline __m256i whole_16(__m128i high, const uint8_t *low)
{
    __m256i x = _mm256_or_si256(_mm256_slli_epi16(_mm256_cvtepu8_epi16(high), 8), wide_16(low));

    return _mm256_or_si256(_mm256_srli_epi16(x, 1), _mm256_slli_epi16(x, 15));
}

static void join_16(unsigned dtype, const uint8_t *raw, const uint8_t *exponents, size_t n,
                    char *out, bool stream)
{
    for (size_t i = 0; i < n; i += 32) {
        __m256i high = load(exponents + i);

        if (dtype == SLUICE_F16)
            high = _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(high, splat(31)), 3),
                                   codes_of(raw + n, n, i));
        store(out + 2 * i, whole_16(_mm256_castsi256_si128(high), raw + i), stream);
        store(out + 2 * i + 32, whole_16(_mm256_extracti128_si256(high, 1), raw + i + 16), stream);
    }
}

static inline __m256i wide_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}

static void join_32(const uint8_t *raw, const uint8_t *exponents, size_t n, char *out, bool stream)
{
    for (size_t i = 0; i < n; i += 8) {
        __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(raw + 2 * i)));

        x = _mm256_or_si256(x, _mm256_slli_epi32(wide_bytes(raw + 2 * n + i), 16));
        x = _mm256_or_si256(x, _mm256_slli_epi32(wide_bytes(exponents + i), 24));
        x = _mm256_or_si256(_mm256_srli_epi32(x, 1), _mm256_slli_epi32(x, 31));
        store(out + 4 * i, x, stream);
    }
}

/* ---- codes of three bits ---- */

/* Returns the escapes among 64 codes. */
static inline size_t put_codes(uint64_t *planes, size_t words, size_t w, __m256i low, __m256i high)
{
    uint64_t all = UINT64_MAX;

    for (unsigned b = 0; b < 3; b++) {
        uint64_t bits = bits_of(low, b) | (uint64_t)bits_of(high, b) << 32;

        planes[b * words + w] = bits;
        all &= bits;
    }
    return (size_t)__builtin_popcountll(all);
}

static inline uint8_t largest(__m256i v)
{
    __m128i m = _mm_max_epu8(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    m = _mm_max_epu8(m, _mm_srli_si128(m, 1)); /* the pairs' larger in the even bytes */
    m = _mm_sub_epi16(_mm_set1_epi16(255), _mm_and_si128(m, _mm_set1_epi16(255)));
    return (uint8_t)(255 - _mm_extract_epi16(_mm_minpos_epu16(m), 0));
}

static size_t window(const uint8_t *exponents, size_t n, uint8_t bases[SL_PALETTE_BLOCKS],
                     uint64_t *planes)
{
    const __m256i escape = splat(SL_PALETTE_CODES);
    size_t escapes = 0;

    memset(bases, 0, SL_PALETTE_BLOCKS);
    for (size_t first = 0; first < n; first += SL_PALETTE_BLOCK) {
        size_t end = n - first < SL_PALETTE_BLOCK ? n : first + SL_PALETTE_BLOCK;
        __m256i most = load(exponents + first);

        for (size_t i = first + 32; i < end; i += 32)
            most = _mm256_max_epu8(most, load(exponents + i));
        bases[first / SL_PALETTE_BLOCK] = largest(most);
        most = splat(bases[first / SL_PALETTE_BLOCK]);
        for (size_t i = first; i < end; i += 64) {
            __m256i low = _mm256_sub_epi8(most, load(exponents + i));
            __m256i high = _mm256_sub_epi8(most, load(exponents + i + 32));

            escapes += put_codes(planes, n / 64, i / 64, _mm256_min_epu8(low, escape),
                                 _mm256_min_epu8(high, escape));
        }
    }
    return escapes;
}

static inline __m256i place_of(__m256i x, const uint8_t palette[SL_PALETTE_CODES])
{
    __m256i code = splat(SL_PALETTE_CODES);

    for (int c = SL_PALETTE_CODES - 1; c >= 0; c--)
        code =
            _mm256_blendv_epi8(code, splat((unsigned)c), _mm256_cmpeq_epi8(x, splat(palette[c])));
    return code;
}

static size_t match(const uint8_t *exponents, size_t n, const uint8_t palette[SL_PALETTE_CODES],
                    uint64_t *planes)
{
    size_t escapes = 0;

    for (size_t i = 0; i < n; i += 64)
        escapes += put_codes(planes, n / 64, i / 64, place_of(load(exponents + i), palette),
                             place_of(load(exponents + i + 32), palette));
    return escapes;
}

static void expand(const uint8_t *planes, size_t n, const uint8_t tables[][8], uint8_t *exponents)
{
    for (size_t first = 0; first < n; first += SL_PALETTE_BLOCK) {
        size_t end = n - first < SL_PALETTE_BLOCK ? n : first + SL_PALETTE_BLOCK;
        long long word;

        memcpy(&word, tables[first / SL_PALETTE_BLOCK], 8);
        __m256i table = _mm256_set1_epi64x(word);

        for (size_t i = first; i < end; i += 32)
            store(exponents + i, _mm256_shuffle_epi8(table, codes_of(planes, n, i)), false);
    }
}

#include "compress/lossless_simd.h"
