/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Escapes of a tile of palette-3, out of the exponents and back in; compiled with the instructions
 * of the file that includes it.
 *
 * Of 64 codes none to three are escapes, mostly, and how many is not to be predicted: so four are
 * moved in any case, and what is too many is written again by the next 64.
 */
#ifndef SL_COMPRESS_PALETTE_ESCAPES_H
#define SL_COMPRESS_PALETTE_ESCAPES_H

#include "compress/lossless.h"

#define SL_ESCAPES_AT_ONCE 4

static inline unsigned sl_lowest(uint64_t mask)
{
    return (unsigned)__builtin_ctzll(mask | 1ull << 63);
}

/* Returns how many. escapes: room for n, and SL_ESCAPES_AT_ONCE more. */
static size_t sl_palette_take(const uint8_t *exponents, const uint64_t *planes, size_t n,
                              uint8_t *escapes)
{
    size_t words = n / 64, taken = 0;

    for (size_t w = 0; w < words; w++, exponents += 64) {
        uint64_t mask = planes[w] & planes[words + w] & planes[2 * words + w];
        size_t end = taken + (size_t)__builtin_popcountll(mask);

        for (unsigned k = 0; k < SL_ESCAPES_AT_ONCE; k++, mask &= mask - 1)
            escapes[taken + k] = exponents[sl_lowest(mask)];
        for (taken += SL_ESCAPES_AT_ONCE; taken < end; mask &= mask - 1)
            escapes[taken++] = exponents[sl_lowest(mask)];
        taken = end;
    }
    return taken;
}

/* Returns how many the codes ask for; none beyond have is read. exponents: room for one more than
 * n, which takes what is too many. */
static size_t sl_palette_put(uint8_t *exponents, const uint8_t *planes, size_t n,
                             const uint8_t *escapes, size_t have)
{
    size_t asked = 0;

    for (size_t w = 0; w < n / 64; w++) {
        uint64_t mask, p[3];

        for (unsigned b = 0; b < 3; b++)
            __builtin_memcpy(&p[b], planes + b * (n / 8) + 8 * w, 8);
        mask = p[0] & p[1] & p[2];
        size_t end = asked + (size_t)__builtin_popcountll(mask);

        if (have - asked >= SL_ESCAPES_AT_ONCE)
            for (unsigned k = 0; k < SL_ESCAPES_AT_ONCE; k++, mask &= mask - 1)
                exponents[mask != 0 ? 64 * w + sl_lowest(mask) : n] = escapes[asked++];
        for (; asked < end && asked < have; mask &= mask - 1)
            exponents[64 * w + sl_lowest(mask)] = escapes[asked++];
        if (end > have)
            return end;
        asked = end;
    }
    return asked;
}

#endif
