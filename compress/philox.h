/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10: random numbers by index, so that each element's number does not depend on who
 * draws it, or in which order.
 *
 * Counter: (element / 8 low, element / 8 high, stream, step); key: the seed of the plan. The four
 * words are eight numbers of 16 bits: element j of eight has half j & 1 (0 the low one) of word
 * j >> 1.
 *
 * Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef SL_COMPRESS_PHILOX_H
#define SL_COMPRESS_PHILOX_H

#include <stdint.h>

#define SL_PHILOX_M0 0xD2511F53u
#define SL_PHILOX_M1 0xCD9E8D57u
#define SL_PHILOX_W0 0x9E3779B9u
#define SL_PHILOX_W1 0xBB67AE85u
#define SL_PHILOX_ROUNDS 10

static inline void sl_philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (unsigned i = 0; i < SL_PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)SL_PHILOX_M0 * c0, p1 = (uint64_t)SL_PHILOX_M1 * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += SL_PHILOX_W0;
        k1 += SL_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* 16 random bits of one element. */
static inline uint32_t sl_philox_16(uint64_t element, uint32_t stream, uint32_t step, uint64_t seed)
{
    const uint32_t counter[4] = {(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), stream,
                                 step};
    uint32_t words[4];
    unsigned j = element % 8;

    sl_philox(counter, seed, words);
    return words[j >> 1] >> (j & 1) * 16 & 0xffff;
}

#endif
