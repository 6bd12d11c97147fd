/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small floats of a sign, exponent bits and mantissa bits: what each format is, and one element.
 *
 *   format  bits  exponent, bias  values                          not a number    source
 *   E4M3      8   4, 7            2^-9 to 448                     0x7f, 0xff      OCP FP8
 *   E5M2      8   5, 15           2^-16 to 57344, infinity 0x7c   0x7d to 0x7f    OCP FP8
 *   E2M1      4   2, 1            0 0.5 1 1.5 2 3 4 6             none            OCP MX
 *   E3M0      4   3, 3            0 0.25 0.5 1 2 4 8 16           none            none
 *
 * Encoding rounds to nearest even and saturates; E3M0, which has but one digit, takes the larger of
 * two that are equally near, as IEEE 754-2019, 4.3.1, has it for such formats, and 0 between 0 and
 * 0.25. The sign of a zero is kept.
 *
 * Source: "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, 2023; "OCP Microscaling
 * Formats (MX) Specification", version 1.0, 2023. E3M0 as a format of gradients: A. Douillard et
 * al., "Streaming DiLoCo with overlapping communication", 2025.
 */
#ifndef SL_COMPRESS_MINIFLOAT_H
#define SL_COMPRESS_MINIFLOAT_H

#include "compress/elements.h"

#include <stdint.h>

enum sl_minifloat { SL_MINI_E4M3, SL_MINI_E5M2, SL_MINI_E2M1, SL_MINI_E3M0, SL_MINI_COUNT };

struct sl_minifloat_format {
    int mantissa; /* bits */
    int least;    /* exponent of the least normal value and of all below it */
    int bits;
    uint32_t most; /* code of the largest finite value */
    uint32_t nan;  /* the first code that is NaN; 0x80: none is */
};

/* A constant to the compiler wherever the format is one. */
static inline struct sl_minifloat_format sl_minifloat_format(enum sl_minifloat kind)
{
    switch (kind) {
    case SL_MINI_E4M3: return (struct sl_minifloat_format){3, -6, 8, 0x7e, 0x7f};
    case SL_MINI_E5M2: return (struct sl_minifloat_format){2, -14, 8, 0x7b, 0x7d};
    case SL_MINI_E2M1: return (struct sl_minifloat_format){1, 0, 4, 7, 0x80};
    default: return (struct sl_minifloat_format){0, -2, 4, 7, 0x80};
    }
}

/*
 * The code of a finite x. A sum with a power of two whose last place is the format's step near x
 * rounds x to whole steps; the exponent that gave the step goes on top of them, so that a carry
 * into the next exponent needs no care.
 */
static inline uint32_t sl_minifloat_encode(enum sl_minifloat kind, float x)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    const uint32_t least = (uint32_t)(f.least + 127) << 23;
    uint32_t bits = sl_f32_bits(x), mag = bits & SL_BITS_ABS, exp = mag & SL_BITS_INF;
    uint32_t step, code;

    exp = exp < least ? least : exp;
    step = exp + ((uint32_t)(23 - f.mantissa) << 23);
    code =
        sl_f32_bits(sl_f32_of(mag) + sl_f32_of(step)) - step + ((exp - least) >> (23 - f.mantissa));
    code = code > f.most ? f.most : code;
    return code | bits >> 31 << (f.bits - 1);
}

static inline float sl_minifloat_decode(enum sl_minifloat kind, uint32_t code)
{
    const struct sl_minifloat_format f = sl_minifloat_format(kind);
    uint32_t top = 1u << (f.bits - 1), mag = code & (top - 1), sign = (code & top) << (32 - f.bits);
    uint32_t normal = (mag << (23 - f.mantissa)) + ((uint32_t)(f.least + 126) << 23);
    /* In units of the least step, a power of two. */
    float small = (float)mag * sl_f32_of((uint32_t)(f.least - f.mantissa + 127) << 23);

    if (mag >= f.nan)
        return sl_f32_of(SL_BITS_NAN);
    if (kind == SL_MINI_E5M2 && mag == 0x7c)
        return sl_f32_of(sign | SL_BITS_INF);
    return sl_f32_of(sign | (mag >> f.mantissa == 0 ? sl_f32_bits(small) : normal));
}

#endif
