/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs for codecs: random, Gaussian, and those that hurt. */
#ifndef SL_TESTS_COMPRESS_DRAW_H
#define SL_TESTS_COMPRESS_DRAW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t draw_state = 0x9e3779b97f4a7c15;

static inline uint64_t draw_u64(void)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return draw_state * 0x2545f4914f6cdd1d;
}

static inline uint32_t draw_below(uint32_t most)
{
    return (uint32_t)((draw_u64() >> 32) * most >> 32);
}

static inline double draw_unit(void)
{
    return (double)((draw_u64() >> 12) + 1) * 0x1p-52;
}

static inline float draw_gaussian(void)
{
    return (float)(sqrt(-2 * log(draw_unit())) * cos(6.283185307179586 * draw_unit()));
}

static inline float draw_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

enum draw_kind {
    DRAW_GAUSSIAN,
    DRAW_SPREAD, /* magnitudes of many powers of two */
    DRAW_FEW,    /* few values, so that many are equal */
    DRAW_EQUAL,
    DRAW_ZEROS, /* of both signs */
    DRAW_DENORMAL,
    DRAW_OUTLIER,            /* zeros and one that is not */
    DRAW_FINITE,             /* kinds before this one have numbers alone */
    DRAW_WILD = DRAW_FINITE, /* any bits at all */
    DRAW_INFINITE,           /* Gaussian with some NaN, infinities, largest numbers */
    DRAW_KINDS
};

static inline float draw_one(enum draw_kind kind, size_t i)
{
    static const uint32_t odd[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x7f7fffff};

    switch (kind) {
    case DRAW_SPREAD: return ldexpf(draw_gaussian(), (int)draw_below(60) - 30);
    case DRAW_FEW: return (float)((int)draw_below(5) - 2);
    case DRAW_EQUAL: return 0.375f;
    case DRAW_ZEROS: return draw_bits(draw_below(2) << 31);
    case DRAW_DENORMAL: return draw_bits((uint32_t)draw_u64() & 0x807fffff);
    case DRAW_OUTLIER: return i == 3 ? -1000.0f : 0.0f;
    case DRAW_WILD: return draw_bits((uint32_t)draw_u64());
    case DRAW_INFINITE:
        return draw_below(40) == 0 ? draw_bits(odd[draw_below(5)]) : draw_gaussian();
    default: return draw_gaussian();
    }
}

static inline void draw_fill(enum draw_kind kind, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = draw_one(kind, i);
}

#endif
