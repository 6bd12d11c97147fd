/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that kernels of codecs are compared with: ordinary ones, and those that break them. */
#ifndef SL_TESTS_CUDA_INPUTS_H
#define SL_TESTS_CUDA_INPUTS_H

#include "compress/elements.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    INPUT_NORMAL,  /* bell-shaped */
    INPUT_BITS,    /* any bits: NaN and infinities here and there */
    INPUT_ZEROS,   /* of both signs */
    INPUT_EQUAL,   /* all -1.5 */
    INPUT_OUTLIER, /* one of a million among small ones */
    INPUT_TINY,    /* about 2^-126, denormals among them */
    INPUT_LARGEST, /* +-FLT_MAX */
    INPUT_WIDE,    /* exponents from one end to the other */
    INPUT_BROKEN,  /* bell-shaped, with a NaN or an infinity every few blocks */
    INPUT_TIES,    /* halves of a step: what rounding to even is seen by */
    INPUT_COUNT
};

static inline uint32_t inputs_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) * 0x9E3779B9u ^ (uint32_t)(*state >> 16);
}

static inline float inputs_normal(uint64_t *state)
{
    int32_t sum = 0;

    for (unsigned i = 0; i < 4; i++) {
        uint32_t r = inputs_random(state);

        sum += (int32_t)(r & 0xffff) + (int32_t)(r >> 16) - 65535;
    }
    return (float)sum / 53510; /* of variance 1 */
}

static inline float inputs_one(unsigned kind, size_t i, uint64_t *state)
{
    uint32_t r = inputs_random(state);
    float sign = (r & 1) != 0 ? -1 : 1;

    switch (kind) {
    case INPUT_BITS: return sl_f32_of(r);
    case INPUT_ZEROS: return sign * 0.0f;
    case INPUT_EQUAL: return -1.5f;
    case INPUT_OUTLIER: return i % 4096 == 77 ? -1e6f : inputs_normal(state) * 1e-3f;
    case INPUT_TINY: return sl_f32_of((r & 0x80000000u) | (r & 0x01ffffff) >> (r >> 25 & 7));
    case INPUT_LARGEST: return sign * FLT_MAX;
    case INPUT_WIDE: return sl_f32_of((r & 0x807fffff) | (1 + r / 7 % 253) << 23);
    case INPUT_BROKEN:
        return i % 300 == 42 ? sl_f32_of(0x7f800000 | (r & 0x803fffff) * (i & 1))
                             : inputs_normal(state);
    case INPUT_TIES: return i % 32 == 5 ? sign * 7 : (float)((int)(r % 29) - 14) / 2;
    default: return inputs_normal(state);
    }
}

/* count elements of dtype at out, which need not be aligned. */
static inline void inputs_fill(unsigned kind, unsigned dtype, size_t count, uint64_t seed,
                               void *out)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + kind;
    uint8_t *to = (uint8_t *)out;

    for (size_t i = 0; i < count; i++) {
        float x = inputs_one(kind, i, &state);
        uint32_t bits = sl_f32_bits(x);
        uint16_t half;

        if (dtype == SLUICE_F32) {
            memcpy(to + i * 4, &x, 4);
            continue;
        }
        half = kind == INPUT_BITS     ? (uint16_t)bits
               : dtype == SLUICE_BF16 ? (uint16_t)(bits >> 16)
                                      : sl_f16_of(kind == INPUT_TINY ? x * 0x1p110f : x);
        memcpy(to + i * 2, &half, 2);
    }
}

#endif
