/* SPDX-License-Identifier: Apache-2.0 */
/* Selects by a threshold with AVX2: compares 32 elements, and moves those of eight that are above
 * together by a table of permutations. */
#include "compress/topk_kernels.h"

#include <immintrin.h>
#include <string.h>

#define LANES 8

/* Byte i of PERMUTATION(mask): the lane of the i-th set bit. */
#define PLACE(mask, bit)                                                                           \
    ((mask) >> (bit)&1 ? (uint64_t)(bit) << 8 * __builtin_popcount((mask) & ((1u << (bit)) - 1))   \
                       : 0)
#define PERMUTATION(mask)                                                                          \
    (PLACE(mask, 0) | PLACE(mask, 1) | PLACE(mask, 2) | PLACE(mask, 3) | PLACE(mask, 4) |          \
     PLACE(mask, 5) | PLACE(mask, 6) | PLACE(mask, 7))
#define FOUR(mask)                                                                                 \
    PERMUTATION(mask), PERMUTATION((mask) + 1u), PERMUTATION((mask) + 2u), PERMUTATION((mask) + 3u)
#define SIXTEEN(mask) FOUR(mask), FOUR((mask) + 4u), FOUR((mask) + 8u), FOUR((mask) + 12u)
#define SIXTY_FOUR(mask)                                                                           \
    SIXTEEN(mask), SIXTEEN((mask) + 16u), SIXTEEN((mask) + 32u), SIXTEEN((mask) + 48u)

static const uint64_t permutations[256] = {SIXTY_FOUR(0u), SIXTY_FOUR(64u), SIXTY_FOUR(128u),
                                           SIXTY_FOUR(192u)};

static size_t keep(__m256i bits, unsigned mask, uint32_t at, size_t found,
                   const struct sl_topk_out *out)
{
    unsigned n = (unsigned)__builtin_popcount(mask);
    const __m256i ascending = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)permutations[mask]));
    __m256i index = _mm256_add_epi32(lanes, _mm256_set1_epi32((int)at));
    __m256i value = _mm256_permutevar8x32_epi32(bits, lanes);

    if (found + LANES <= out->cap) {
        _mm256_storeu_si256((__m256i *)(out->index + found), index);
        _mm256_storeu_si256((__m256i *)(out->value + found), value);
    } else if (found < out->cap) {
        size_t room = out->cap - found;
        __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < room ? n : room)), ascending);

        _mm256_maskstore_epi32((int *)(out->index + found), some, index);
        _mm256_maskstore_epi32((int *)(out->value + found), some, value);
    }
    return found + n;
}

/* Both magnitudes and thresholds are below 2^31, so that signed comparison will do. */
static unsigned above(__m256i bits, __m256i below)
{
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));

    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, below)));
}

size_t sl_topk_select_avx2(const float *in, size_t count, uint32_t threshold, uint32_t base,
                           const struct sl_topk_out *out)
{
    const __m256i below = _mm256_set1_epi32((int)threshold - 1);
    size_t found = 0, i = 0;

    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        __m256i bits[4];
        unsigned mask[4];

        for (unsigned v = 0; v < 4; v++) {
            bits[v] = _mm256_loadu_si256((const __m256i *)(in + i + v * LANES));
            mask[v] = above(bits[v], below);
        }
        if ((mask[0] | mask[1] | mask[2] | mask[3]) == 0)
            continue;
        for (unsigned v = 0; v < 4; v++)
            if (mask[v] != 0)
                found = keep(bits[v], mask[v], base + (uint32_t)(i + v * LANES), found, out);
    }
    for (; i < count; i += LANES) {
        size_t left = count - i < LANES ? count - i : LANES;
        float last[LANES] = {0};
        unsigned mask;

        memcpy(last, in + i, left * sizeof(float));
        __m256i bits = _mm256_loadu_si256((const __m256i *)last);

        mask = above(bits, below) & ((1u << left) - 1);
        if (mask != 0)
            found = keep(bits, mask, base + (uint32_t)i, found, out);
    }
    return found;
}
