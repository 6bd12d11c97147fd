/* SPDX-License-Identifier: Apache-2.0 */
/* Makes test data and judges results. */
#include "verify.h"

#include <math.h>
#include <string.h>

/* Elements handled at a time: small enough that all tables stay in the first cache. */
#define PIECE 256

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

static void random_bits(uint64_t *out, uint64_t seed, int rank, uint64_t first, size_t count)
{
    uint64_t base = mix(seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)rank + 1);

    for (size_t i = 0; i < count; i++)
        out[i] = mix(base + (first + i) * UINT64_C(0x9e3779b97f4a7c15));
}

/* Floats: places of sign, exponent and fraction. */
struct layout {
    unsigned fraction_bits, sign_bit;
    uint64_t half; /* bits of 0.5: fraction zero */
    uint64_t one;  /* bits of 1.0 */
};

static struct layout layout_of(enum sluice_dtype dtype)
{
    switch (dtype) {
    case SLUICE_F16: return (struct layout){10, 15, 0x3800, 0x3c00};
    case SLUICE_BF16: return (struct layout){7, 15, 0x3f00, 0x3f80};
    case SLUICE_F32: return (struct layout){23, 31, 0x3f000000, 0x3f800000};
    default:
        return (struct layout){52, 63, UINT64_C(0x3fe0000000000000), UINT64_C(0x3ff0000000000000)};
    }
}

static bool is_float(enum sluice_dtype dtype)
{
    return dtype == SLUICE_F16 || dtype == SLUICE_BF16 || dtype == SLUICE_F32 ||
           dtype == SLUICE_F64;
}

static bool is_signed(enum sluice_dtype dtype)
{
    return dtype == SLUICE_I8 || dtype == SLUICE_I32 || dtype == SLUICE_I64;
}

/*
 * Bits of one operand of a float reduction. Sums: ±[0.5, 1), away from zero, so that a missing
 * operand shows. Products: ±[1, 1.25) on ranks with an even number of set bits and ±[0.75, 1) on
 * the others, so that the product of any aligned group of ranks stays near one, in range even for
 * f16.
 */
static void float_operands(uint64_t *bits, size_t count, struct layout l, int op, int rank)
{
    uint64_t fraction = (UINT64_C(1) << l.fraction_bits) - 1;
    uint64_t base = l.half, mask = fraction;

    if (op == SLUICE_PROD) {
        bool above = __builtin_popcount((unsigned)rank) % 2 == 0;

        mask = above ? fraction >> 2 : fraction >> 1;
        base = above ? l.one : l.half | (UINT64_C(1) << (l.fraction_bits - 1));
    }
    for (size_t i = 0; i < count; i++)
        bits[i] = base | (bits[i] & mask) | ((bits[i] >> 63) << l.sign_bit);
}

/* Integers wrap, so any bits will do, except: a product must not vanish, and an average is only
 * defined while the sum fits. */
static void integer_operands(uint64_t *bits, size_t count, enum sluice_dtype dtype, int op,
                             int size)
{
    unsigned width = (unsigned)sluice_dtype_size(dtype) * 8;

    if (op == SLUICE_PROD) {
        for (size_t i = 0; i < count; i++)
            bits[i] |= 1;
    } else if (op == SLUICE_AVG) {
        uint64_t top = (UINT64_MAX >> (64 - width)) >> is_signed(dtype);
        uint64_t limit = top / (uint64_t)size;

        if (limit == UINT64_MAX)
            limit--; /* keeps the modulus below in range */
        for (size_t i = 0; i < count; i++) {
            uint64_t value = (bits[i] >> 1) % (limit + 1);

            bits[i] = is_signed(dtype) && (bits[i] & 1) != 0 ? -value : value;
        }
    }
}

/* The bits of elements first … of rank, each in the low end of a word. */
static void operand_bits(uint64_t *bits, enum sluice_dtype dtype, int op, uint64_t seed, int rank,
                         int size, uint64_t first, size_t count)
{
    random_bits(bits, seed, rank, first, count);
    if (op == SB_NO_OP)
        return;
    if (is_float(dtype))
        float_operands(bits, count, layout_of(dtype), op, rank);
    else
        integer_operands(bits, count, dtype, op, size);
}

/* The low esize bytes of each word, packed. */
static void pack(void *dst, const uint64_t *bits, size_t esize, size_t count)
{
    switch (esize) {
    case 1:
        for (size_t i = 0; i < count; i++)
            ((uint8_t *)dst)[i] = (uint8_t)bits[i];
        break;
    case 2:
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)dst)[i] = (uint16_t)bits[i];
        break;
    case 4:
        for (size_t i = 0; i < count; i++)
            ((uint32_t *)dst)[i] = (uint32_t)bits[i];
        break;
    default: memcpy(dst, bits, count * 8); break;
    }
}

static void unpack(uint64_t *bits, const void *src, size_t esize, size_t count)
{
    switch (esize) {
    case 1:
        for (size_t i = 0; i < count; i++)
            bits[i] = ((const uint8_t *)src)[i];
        break;
    case 2:
        for (size_t i = 0; i < count; i++)
            bits[i] = ((const uint16_t *)src)[i];
        break;
    case 4:
        for (size_t i = 0; i < count; i++)
            bits[i] = ((const uint32_t *)src)[i];
        break;
    default: memcpy(bits, src, count * 8); break;
    }
}

void sb_fill(void *dst, enum sluice_dtype dtype, int op, uint64_t seed, int rank, int size,
             uint64_t first, size_t count)
{
    size_t esize = sluice_dtype_size(dtype);
    uint64_t bits[PIECE], packed[PIECE];
    char *to = dst;

    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;

        operand_bits(bits, dtype, op, seed, rank, size, first + at, n);
        pack(packed, bits, esize, n);
        memcpy(to + at * esize, packed, n * esize);
    }
}

uint64_t sb_check_copy(const void *got, enum sluice_dtype dtype, int op, uint64_t seed, int rank,
                       int size, uint64_t first, size_t count)
{
    size_t esize = sluice_dtype_size(dtype);
    uint64_t bits[PIECE], packed[PIECE];
    const char *from = got;
    uint64_t wrong = 0;

    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;

        operand_bits(bits, dtype, op, seed, rank, size, first + at, n);
        pack(packed, bits, esize, n);
        if (memcmp(from + at * esize, packed, n * esize) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += memcmp(from + (at + i) * esize, (char *)packed + i * esize, esize) != 0;
    }
    return wrong;
}

static double f16_value(uint64_t bits)
{
    unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, (int)exponent - 25);

    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/* What the bits of float elements mean. */
static void float_values(double *out, const uint64_t *bits, enum sluice_dtype dtype, size_t count)
{
    switch (dtype) {
    case SLUICE_F16:
        for (size_t i = 0; i < count; i++)
            out[i] = f16_value(bits[i]);
        break;
    case SLUICE_F64: memcpy(out, bits, count * sizeof(double)); break;
    default:
        for (size_t i = 0; i < count; i++) {
            uint32_t word = (uint32_t)(dtype == SLUICE_BF16 ? bits[i] << 16 : bits[i]);
            float value;

            memcpy(&value, &word, sizeof(value));
            out[i] = (double)value;
        }
    }
}

static double unit_roundoff(enum sluice_dtype dtype)
{
    return ldexp(1, -(int)layout_of(dtype).fraction_bits - 1);
}

static void combine_floats(double *acc, double *size_sum, const double *x, enum sluice_op op,
                           size_t count)
{
    switch (op) {
    case SLUICE_PROD:
        for (size_t i = 0; i < count; i++)
            acc[i] *= x[i];
        break;
    case SLUICE_MAX:
        for (size_t i = 0; i < count; i++)
            acc[i] = x[i] > acc[i] ? x[i] : acc[i];
        break;
    case SLUICE_MIN:
        for (size_t i = 0; i < count; i++)
            acc[i] = x[i] < acc[i] ? x[i] : acc[i];
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            acc[i] += x[i];
            size_sum[i] += fabs(x[i]);
        }
    }
}

/* The widest |got - acc| that rounding explains. */
static double float_bound(double acc, double size_sum, enum sluice_dtype dtype, enum sluice_op op,
                          int size)
{
    double u = unit_roundoff(dtype), roundings = size - 1;

    /* f64 is checked in f64, so the reference rounds as often as the result does. */
    if (dtype == SLUICE_F64)
        roundings *= 2;
    switch (op) {
    case SLUICE_PROD: return roundings * u * fabs(acc) * 1.01;
    case SLUICE_AVG: return (roundings * u * size_sum * 1.01 / size) + u * fabs(acc / size);
    case SLUICE_SUM: return roundings * u * size_sum * 1.01;
    default: return 0;
    }
}

/* What is reduced of all ranks' operands, averages not divided yet, and the sum of magnitudes. */
static void reduce_floats(double *acc, double *size_sum, enum sluice_dtype dtype, enum sluice_op op,
                          uint64_t seed, int size, uint64_t first, size_t count)
{
    uint64_t bits[PIECE];
    double x[PIECE];

    operand_bits(bits, dtype, (int)op, seed, 0, size, first, count);
    float_values(acc, bits, dtype, count);
    for (size_t i = 0; i < count; i++)
        size_sum[i] = fabs(acc[i]);
    for (int rank = 1; rank < size; rank++) {
        operand_bits(bits, dtype, (int)op, seed, rank, size, first, count);
        float_values(x, bits, dtype, count);
        combine_floats(acc, size_sum, x, op, count);
    }
}

static uint64_t check_floats(const uint64_t *got_bits, enum sluice_dtype dtype, enum sluice_op op,
                             uint64_t seed, int size, uint64_t first, size_t count)
{
    double acc[PIECE], size_sum[PIECE], x[PIECE];
    uint64_t wrong = 0;

    reduce_floats(acc, size_sum, dtype, op, seed, size, first, count);
    float_values(x, got_bits, dtype, count);
    for (size_t i = 0; i < count; i++) {
        double exact = op == SLUICE_AVG ? acc[i] / size : acc[i];

        /* Written so that a NaN is wrong. */
        wrong += !(fabs(x[i] - exact) <= float_bound(acc[i], size_sum[i], dtype, op, size));
    }
    return wrong;
}

/* As 64-bit words that compare as their type does: signed ones widened. */
static void widen_integers(uint64_t *bits, enum sluice_dtype dtype, size_t count)
{
    unsigned shift = 64 - (unsigned)sluice_dtype_size(dtype) * 8;

    for (size_t i = 0; i < count; i++)
        bits[i] = is_signed(dtype) ? (uint64_t)((int64_t)(bits[i] << shift) >> shift)
                                   : bits[i] << shift >> shift;
}

static void combine_integers(uint64_t *acc, const uint64_t *x, enum sluice_dtype dtype,
                             enum sluice_op op, size_t count)
{
    /* Flipping the top bit turns signed order into unsigned order. */
    uint64_t flip = is_signed(dtype) ? UINT64_C(1) << 63 : 0;

    switch (op) {
    case SLUICE_PROD:
        for (size_t i = 0; i < count; i++)
            acc[i] *= x[i];
        break;
    case SLUICE_MAX:
        for (size_t i = 0; i < count; i++)
            acc[i] = (x[i] ^ flip) > (acc[i] ^ flip) ? x[i] : acc[i];
        break;
    case SLUICE_MIN:
        for (size_t i = 0; i < count; i++)
            acc[i] = (x[i] ^ flip) < (acc[i] ^ flip) ? x[i] : acc[i];
        break;
    default:
        for (size_t i = 0; i < count; i++)
            acc[i] += x[i];
    }
}

static uint64_t check_integers(uint64_t *got, enum sluice_dtype dtype, enum sluice_op op,
                               uint64_t seed, int size, uint64_t first, size_t count)
{
    uint64_t acc[PIECE], x[PIECE], wrong = 0;

    operand_bits(acc, dtype, (int)op, seed, 0, size, first, count);
    widen_integers(acc, dtype, count);
    for (int rank = 1; rank < size; rank++) {
        operand_bits(x, dtype, (int)op, seed, rank, size, first, count);
        widen_integers(x, dtype, count);
        combine_integers(acc, x, dtype, op, count);
    }
    if (op == SLUICE_AVG)
        for (size_t i = 0; i < count; i++)
            acc[i] =
                is_signed(dtype) ? (uint64_t)((int64_t)acc[i] / size) : acc[i] / (uint64_t)size;
    widen_integers(acc, dtype, count);
    widen_integers(got, dtype, count);
    for (size_t i = 0; i < count; i++)
        wrong += got[i] != acc[i];
    return wrong;
}

uint64_t sb_check_reduce(const void *got, enum sluice_dtype dtype, enum sluice_op op, uint64_t seed,
                         int size, uint64_t first, size_t count)
{
    size_t esize = sluice_dtype_size(dtype);
    uint64_t bits[PIECE], packed[PIECE], wrong = 0;
    const char *from = got;

    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;

        memcpy(packed, from + at * esize, n * esize);
        unpack(bits, packed, esize, n);
        wrong += is_float(dtype) ? check_floats(bits, dtype, op, seed, size, first + at, n)
                                 : check_integers(bits, dtype, op, seed, size, first + at, n);
    }
    return wrong;
}

/* What lies at from, as numbers. */
static void read_floats(double *out, const char *from, enum sluice_dtype dtype, size_t count)
{
    uint64_t bits[PIECE], packed[PIECE];

    memcpy(packed, from, count * sluice_dtype_size(dtype));
    unpack(bits, packed, sluice_dtype_size(dtype), count);
    float_values(out, bits, dtype, count);
}

static void add_errors(struct sb_error *sum, const double *exact, const double *got, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum->power += exact[i] * exact[i];
        sum->error += (got[i] - exact[i]) * (got[i] - exact[i]);
    }
}

void sb_error_copy(const void *got, enum sluice_dtype dtype, int op, uint64_t seed, int rank,
                   int size, uint64_t first, size_t count, struct sb_error *sum)
{
    for (size_t at = 0; at < count && is_float(dtype); at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        double exact[PIECE], x[PIECE];
        uint64_t bits[PIECE];

        operand_bits(bits, dtype, op, seed, rank, size, first + at, n);
        float_values(exact, bits, dtype, n);
        read_floats(x, (const char *)got + at * sluice_dtype_size(dtype), dtype, n);
        add_errors(sum, exact, x, n);
    }
}

void sb_error_reduce(const void *got, enum sluice_dtype dtype, enum sluice_op op, uint64_t seed,
                     int size, uint64_t first, size_t count, struct sb_error *sum)
{
    for (size_t at = 0; at < count && is_float(dtype); at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        double exact[PIECE], magnitudes[PIECE], x[PIECE];

        reduce_floats(exact, magnitudes, dtype, op, seed, size, first + at, n);
        for (size_t i = 0; op == SLUICE_AVG && i < n; i++)
            exact[i] /= size;
        read_floats(x, (const char *)got + at * sluice_dtype_size(dtype), dtype, n);
        add_errors(sum, exact, x, n);
    }
}

uint64_t sb_hash(const void *bytes, size_t len)
{
    const char *at = bytes;
    uint64_t hash = len, word;

    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, at, len);
    return mix(hash ^ word);
}
