/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of lossless codecs encode: floats of all kinds, by their bits. */
#ifndef SL_TESTS_COMPRESS_FLOATS_H
#define SL_TESTS_COMPRESS_FLOATS_H

#include "compress/elements.h"
#include "compress/lossless.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum floats_kind {
    FLOATS_RANDOM, /* any bits: NaN with payloads, infinities, denormals */
    FLOATS_GAUSS,
    FLOATS_CONSTANT,
    FLOATS_ZERO,
    FLOATS_DENORMAL,
    FLOATS_SPARSE,  /* a third is 0 */
    FLOATS_OUTLIER, /* each 500th is infinite */
    FLOATS_WIDE,    /* exponents in a row: more than a table holds */
    FLOATS_RARE,    /* mostly two exponents, each 97th another: some escapes everywhere */
    FLOATS_KINDS
};

static const uint8_t floats_dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};

static uint64_t floats_state = 0x9e3779b97f4a7c15; /* not 0 */

static inline uint32_t floats_random(void)
{
    floats_state ^= floats_state << 13;
    floats_state ^= floats_state >> 7;
    floats_state ^= floats_state << 17;
    return (uint32_t)(floats_state * 0x2545f4914f6cdd1d >> 32);
}

/* FNV-1a of an encoded message, by which a change of its format shows. */
static inline uint64_t floats_hash(const uint8_t *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

static inline float floats_gauss(void)
{
    double u = (floats_random() + 1.0) * 0x1p-32, v = floats_random() * 0x1p-32;

    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* The bits of an f32. */
static inline uint32_t floats_one(enum floats_kind kind, size_t i)
{
    uint32_t random = floats_random(), mantissa = random & 0x807fffff;

    switch (kind) {
    case FLOATS_GAUSS: return sl_f32_bits(floats_gauss());
    case FLOATS_CONSTANT: return 0x3fc12345;
    case FLOATS_ZERO: return 0;
    case FLOATS_DENORMAL: return mantissa;
    case FLOATS_SPARSE: return random % 3 == 0 ? 0 : sl_f32_bits(floats_gauss());
    case FLOATS_OUTLIER: return i % 500 == 77 ? 0x7f800000 : sl_f32_bits(floats_gauss());
    case FLOATS_WIDE: return mantissa | (uint32_t)(i % 97 + 40) << 23;
    case FLOATS_RARE:
        return mantissa | (i % 97 == 5 ? random & 0x7f800000 : 0x3f000000 + (random & 0x00800000));
    default: return random;
    }
}

/* The bits of one element of dtype. */
static inline uint32_t floats_bits(unsigned dtype, enum floats_kind kind, size_t i)
{
    uint32_t bits = floats_one(kind, i);

    if (dtype == SLUICE_F32)
        return bits;
    if (dtype == SLUICE_BF16 || kind == FLOATS_RANDOM || kind == FLOATS_DENORMAL)
        return dtype == SLUICE_F16 && kind == FLOATS_DENORMAL ? bits >> 16 & 0x83ff : bits >> 16;
    if (kind == FLOATS_WIDE)
        return (bits >> 16 & 0x83ff) | (uint32_t)(i % 32) << 10;
    return sl_f16_of(sl_f32_of(bits));
}

static inline void floats_fill(unsigned dtype, enum floats_kind kind, size_t count, void *out)
{
    size_t width = sl_lossless_width(dtype);

    for (size_t i = 0; i < count; i++) {
        uint32_t bits = floats_bits(dtype, kind, i);

        memcpy((char *)out + i * width, &bits, width);
    }
}

#endif
