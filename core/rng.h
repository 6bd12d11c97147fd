/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, handed in as a seed: xoshiro256** (D. Blackman, S. Vigna, "Scrambled linear
 * pseudorandom number generators", ACM TOMS 47(4), 2021), seeded by splitmix64. */
#ifndef SL_CORE_RNG_H
#define SL_CORE_RNG_H

#include <stdint.h>

struct sl_rng {
    uint64_t s[4];
};

static inline void sl_rng_init(struct sl_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        rng->s[i] = z ^ (z >> 31);
    }
}

static inline uint64_t sl_rng_rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static inline uint64_t sl_rng_u64(struct sl_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = sl_rng_rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = sl_rng_rotl(s[3], 45);
    return result;
}

/* Uniform in [0, bound); bound must not be 0. */
static inline uint64_t sl_rng_below(struct sl_rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)sl_rng_u64(rng) * bound) >> 64);
}

/* Uniform in [low, high], both included. */
static inline uint64_t sl_rng_range(struct sl_rng *rng, uint64_t low, uint64_t high)
{
    return low + sl_rng_below(rng, high - low + 1);
}

/* True once in `in` tries on average; never when in is 0. */
static inline int sl_rng_chance(struct sl_rng *rng, uint64_t in)
{
    return in != 0 && sl_rng_below(rng, in) == 0;
}

#endif
