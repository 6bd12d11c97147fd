/* SPDX-License-Identifier: Apache-2.0 */
/* Selects by a threshold with AVX-512: compares 64 elements, compresses where any is above. */
#include "compress/topk_kernels.h"

#include <immintrin.h>
#include <stdbool.h>

#define LANES 16

/* Compresses in a register: storing compressed lanes straight to memory takes some CPUs hundreds of
 * cycles. */
static size_t keep(__m512i bits, __mmask16 mask, uint32_t at, size_t found,
                   const struct sl_topk_out *out)
{
    unsigned n = (unsigned)__builtin_popcount(mask);
    const __m512i ascending =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i index =
        _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(ascending, _mm512_set1_epi32((int)at)));
    __m512i value = _mm512_maskz_compress_epi32(mask, bits);

    if (found + LANES <= out->cap) {
        _mm512_storeu_si512(out->index + found, index);
        _mm512_storeu_si512(out->value + found, value);
    } else if (found < out->cap) {
        size_t room = out->cap - found;
        __mmask16 lanes = (__mmask16)((1u << (n < room ? n : room)) - 1);

        _mm512_mask_storeu_epi32(out->index + found, lanes, index);
        _mm512_mask_storeu_epi32(out->value + found, lanes, value);
    }
    return found + n;
}

size_t sl_topk_select_avx512(const float *in, size_t count, uint32_t threshold, uint32_t base,
                             const struct sl_topk_out *out)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff), least = _mm512_set1_epi32((int)threshold);
    size_t found = 0, i = 0;

    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        __m512i bits[4];
        __mmask16 mask[4];

        for (unsigned v = 0; v < 4; v++) {
            bits[v] = _mm512_loadu_si512(in + i + v * LANES);
            mask[v] = _mm512_cmpge_epu32_mask(_mm512_and_si512(bits[v], abs), least);
        }
        if (_mm512_kortestz(mask[0] | mask[1], mask[2] | mask[3]))
            continue;
        for (unsigned v = 0; v < 4; v++)
            if (mask[v] != 0)
                found = keep(bits[v], mask[v], base + (uint32_t)(i + v * LANES), found, out);
    }
    for (; i < count; i += LANES) {
        size_t left = count - i;
        __mmask16 lanes = left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
        __m512i bits = _mm512_maskz_loadu_epi32(lanes, in + i);
        __mmask16 mask = _mm512_mask_cmpge_epu32_mask(lanes, _mm512_and_si512(bits, abs), least);

        if (mask != 0)
            found = keep(bits, mask, base + (uint32_t)i, found, out);
    }
    return found;
}
