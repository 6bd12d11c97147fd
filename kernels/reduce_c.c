/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels in plain C: the truth that all others equal bit for bit, and what runs where no
 * others do. */
#include "kernels/reduce_kernels.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Elements that are reduced at a time. */
#define BLOCK ((size_t)512)

/* Buffers of users are aligned as they please. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef int8_t i8_elem;
typedef uint8_t u8_elem;
typedef int32_t ANYWHERE i32_elem;
typedef uint32_t ANYWHERE u32_elem;
typedef int64_t ANYWHERE i64_elem;
typedef uint64_t ANYWHERE u64_elem;
typedef uint16_t ANYWHERE f16_elem;
typedef float ANYWHERE f32_elem;
typedef double ANYWHERE f64_elem;
typedef uint16_t ANYWHERE bf16_elem;

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline double f64_of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* f32 */

typedef float f32_acc;

static inline float f32_widen(float x)
{
    return x;
}

static inline float f32_narrow(float x)
{
    return f32_of_bits(x == x ? bits_of_f32(x) : SL_NAN_F32);
}

/* Asking both ways and joining the bits makes +0 of unlike zeros for max, -0 for min, and changes
 * nothing else. No branches here or below, so that compilers make vectors. */
static inline float f32_max2(float a, float b)
{
    uint32_t r = bits_of_f32(a > b ? a : b) & bits_of_f32(b > a ? b : a);

    return f32_of_bits(((a == a) & (b == b)) ? r : SL_NAN_F32);
}

static inline float f32_min2(float a, float b)
{
    uint32_t r = bits_of_f32(a < b ? a : b) | bits_of_f32(b < a ? b : a);

    return f32_of_bits(((a == a) & (b == b)) ? r : SL_NAN_F32);
}

SL_INLINE float f32_combine(float a, float b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? a + b
           : op == SLUICE_PROD ? a * b
           : op == SLUICE_MAX  ? f32_max2(a, b)
                               : f32_min2(a, b);
}

static inline float f32_divide(float a, unsigned divisor)
{
    return a / (float)divisor;
}

/* f64 */

typedef double f64_acc;

static inline double f64_widen(double x)
{
    return x;
}

static inline double f64_narrow(double x)
{
    return f64_of_bits(x == x ? bits_of_f64(x) : SL_NAN_F64);
}

static inline double f64_max2(double a, double b)
{
    uint64_t r = bits_of_f64(a > b ? a : b) & bits_of_f64(b > a ? b : a);

    return f64_of_bits(((a == a) & (b == b)) ? r : SL_NAN_F64);
}

static inline double f64_min2(double a, double b)
{
    uint64_t r = bits_of_f64(a < b ? a : b) | bits_of_f64(b < a ? b : a);

    return f64_of_bits(((a == a) & (b == b)) ? r : SL_NAN_F64);
}

SL_INLINE double f64_combine(double a, double b, enum sluice_op op)
{
    return op == SLUICE_SUM    ? a + b
           : op == SLUICE_PROD ? a * b
           : op == SLUICE_MAX  ? f64_max2(a, b)
                               : f64_min2(a, b);
}

static inline double f64_divide(double a, unsigned divisor)
{
    return a / (double)divisor;
}

/* bf16: the upper half of an f32. */

typedef float bf16_acc;

static inline float bf16_widen(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}

/* To nearest even. */
static inline uint16_t bf16_narrow(float x)
{
    uint32_t bits = bits_of_f32(f32_narrow(x));

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define bf16_combine f32_combine
#define bf16_divide f32_divide

/* f16: 1 sign bit, 5 of exponent (bias 15), 10 of mantissa. */

typedef float f16_acc;

static inline uint32_t all_ones_if(bool x)
{
    return -(uint32_t)x;
}

/* Denormals are multiples of 2^-24, exact in f32. */
static inline float f16_widen(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    uint32_t low = x & 0x7fff;
    uint32_t normal = (low << 13) + ((127 - 15) << 23);
    uint32_t small = bits_of_f32((float)(int32_t)low * 0x1p-24f);
    uint32_t is_small = all_ones_if(low < 0x0400);
    /* The exponent of infinity and NaN, 31 + 127 - 15, becomes 255. */
    uint32_t special = all_ones_if(low >= 0x7c00) & ((255 - 31 - 127 + 15) << 23);

    return f32_of_bits(sign | (small & is_small) | ((normal + special) & ~is_small));
}

/* To nearest even: of the mantissa's last 13 bits where the result is normal (which may
 * carry into infinity); where it is not, the
 * f32 adder rounds, since 0.5 has just 2^-24 as its unit. */
static inline uint16_t f16_narrow(float x)
{
    uint32_t bits = bits_of_f32(x);
    uint32_t sign = bits >> 16 & 0x8000;
    int32_t low = (int32_t)(bits & 0x7fffffff);
    uint32_t odd = (uint32_t)low >> 13 & 1;
    uint32_t normal = ((uint32_t)low - ((127 - 15) << 23) + 0xfff + odd) >> 13;
    uint32_t small = bits_of_f32(f32_of_bits((uint32_t)low) + 0.5f) - bits_of_f32(0.5f);
    uint32_t is_small = all_ones_if(low < 0x38800000);  /* below 2^-14 */
    uint32_t is_large = all_ones_if(low >= 0x47800000); /* 2^16 and more */
    uint32_t is_nan = all_ones_if(low > 0x7f800000);
    uint32_t number = (small & is_small) | (normal & ~is_small & ~is_large) | (0x7c00 & is_large);

    return (uint16_t)(((sign | number) & ~is_nan) | (0x7e00 & is_nan));
}

#define f16_combine f32_combine
#define f16_divide f32_divide

/* Integers wrap around: computed without sign, where C defines that. */
#define DEFINE_INTEGER(type, elem, wide, quotient)                                                 \
    typedef elem type##_acc;                                                                       \
    static inline elem type##_widen(elem x)                                                        \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    static inline elem type##_narrow(elem x)                                                       \
    {                                                                                              \
        return x;                                                                                  \
    }                                                                                              \
    SL_INLINE elem type##_combine(elem a, elem b, enum sluice_op op)                               \
    {                                                                                              \
        if (op == SLUICE_SUM)                                                                      \
            return (elem)((wide)a + (wide)b);                                                      \
        if (op == SLUICE_PROD)                                                                     \
            return (elem)((wide)a * (wide)b);                                                      \
        return op == SLUICE_MAX ? (a > b ? a : b) : (a < b ? a : b);                               \
    }                                                                                              \
    static inline elem type##_divide(elem a, unsigned divisor)                                     \
    {                                                                                              \
        return (elem)(a / (quotient)divisor);                                                      \
    }

DEFINE_INTEGER(i8, int8_t, uint32_t, int64_t)
DEFINE_INTEGER(u8, uint8_t, uint32_t, uint32_t)
DEFINE_INTEGER(i32, int32_t, uint32_t, int64_t)
DEFINE_INTEGER(u32, uint32_t, uint32_t, uint32_t)
DEFINE_INTEGER(i64, int64_t, uint64_t, int64_t)
DEFINE_INTEGER(u64, uint64_t, uint64_t, uint64_t)

#define TYPE i8
#include "kernels/reduce_c_type.h"
#define TYPE u8
#include "kernels/reduce_c_type.h"
#define TYPE i32
#include "kernels/reduce_c_type.h"
#define TYPE u32
#include "kernels/reduce_c_type.h"
#define TYPE i64
#include "kernels/reduce_c_type.h"
#define TYPE u64
#include "kernels/reduce_c_type.h"
#define TYPE f16
#include "kernels/reduce_c_type.h"
#define TYPE f32
#include "kernels/reduce_c_type.h"
#define TYPE f64
#include "kernels/reduce_c_type.h"
#define TYPE bf16
#include "kernels/reduce_c_type.h"

static void copy_bytes(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
}

/* Plain C has no stores past the caches; its stores need no fence either. */
const struct sl_kernels sl_kernels_c = {
    .name = "c",
    .reduce = SL_REDUCE_TABLE(SL_REDUCE_ROW),
    .reduce_stream = SL_REDUCE_TABLE(SL_REDUCE_ROW),
    .copy = copy_bytes,
    .copy_stream = copy_bytes,
};
