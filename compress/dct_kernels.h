/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the codec "dct", which compilers make vectors of, for each set of these. */
#ifndef SL_COMPRESS_DCT_KERNELS_H
#define SL_COMPRESS_DCT_KERNELS_H

#include "compress/dct.h"
#include "compress/elements.h"

#include <stdbool.h>

/* of[k % 2][j][k / 2] of coefficient k: even ones see sums of elements j and 63 - j, odd ones
 * differences. */
struct sl_dct_weights {
    float of[2][SL_DCT_CHUNK / 2][SL_DCT_CHUNK / 2];
};

/* x becomes its coefficients, all NaN if one is not finite. Returns the places of the k largest, a
 * bit each. */
typedef uint64_t sl_dct_forward(const struct sl_dct_weights *w, float x[SL_DCT_CHUNK], unsigned k);

sl_dct_forward sl_dct_forward_c, sl_dct_forward_avx2, sl_dct_forward_avx512;

static inline void sl_dct_transform(const struct sl_dct_weights *w, float x[SL_DCT_CHUNK])
{
    enum { HALF = SL_DCT_CHUNK / 2 };
    float even[HALF] = {0}, odd[HALF] = {0};
    uint32_t wild = 0;

    for (unsigned j = 0; j < HALF; j++) {
        float sum = x[j] + x[SL_DCT_CHUNK - 1 - j], difference = x[j] - x[SL_DCT_CHUNK - 1 - j];

        for (unsigned k = 0; k < HALF; k++)
            even[k] += sum * w->of[0][j][k];
        for (unsigned k = 0; k < HALF; k++)
            odd[k] += difference * w->of[1][j][k];
    }
    for (unsigned k = 0; k < HALF; k++) {
        wild |= (sl_f32_bits(even[k]) & SL_BITS_ABS) >= SL_BITS_INF;
        wild |= (sl_f32_bits(odd[k]) & SL_BITS_ABS) >= SL_BITS_INF;
    }
    for (unsigned k = 0; k < HALF; k++) {
        x[2 * k] = wild ? sl_f32_of(SL_BITS_NAN) : even[k];
        x[2 * k + 1] = wild ? sl_f32_of(SL_BITS_NAN) : odd[k];
    }
}

/* The k largest. Bit by bit from above, a bit of the least magnitude of them stays if k are still
 * as large, and all is known when no more are. */
static inline uint64_t sl_dct_choose(const float x[SL_DCT_CHUNK], unsigned k)
{
    uint32_t magnitude[SL_DCT_CHUNK], least = 0, reach = SL_DCT_CHUNK;
    uint64_t larger = 0, equal = 0;

    for (unsigned i = 0; i < SL_DCT_CHUNK; i++)
        magnitude[i] = sl_f32_bits(x[i]) & SL_BITS_ABS;
    for (int bit = 30; bit >= 0 && reach > k; bit--) {
        uint32_t tried = least | 1u << bit, here = 0;

        for (unsigned i = 0; i < SL_DCT_CHUNK; i++)
            here += (int32_t)magnitude[i] >= (int32_t)tried;
        least = here >= k ? tried : least;
        reach = here >= k ? here : reach;
    }
    for (unsigned i = 0; i < SL_DCT_CHUNK; i++) {
        larger |= (uint64_t)(magnitude[i] > least) << i;
        equal |= (uint64_t)(magnitude[i] == least) << i;
    }
    /* Of equals the first ones. */
    for (unsigned have = (unsigned)__builtin_popcountll(larger); have < k; have++) {
        larger |= equal & -equal;
        equal &= equal - 1;
    }
    return larger;
}

#define SL_DCT_FORWARD(isa)                                                                        \
    uint64_t sl_dct_forward_##isa(const struct sl_dct_weights *w, float x[SL_DCT_CHUNK],           \
                                  unsigned k)                                                      \
    {                                                                                              \
        sl_dct_transform(w, x);                                                                    \
        return sl_dct_choose(x, k);                                                                \
    }

#endif
