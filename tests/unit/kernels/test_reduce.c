/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel set against a naive reference of this file, bit for bit, over types, operators,
 * counts, alignments, aliases and special numbers. */
#include "kernels/reduce.h"

#include "core/cache.h"
#include "core/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#define SRC_MAX 9
#define COUNT_MAX 1100
#define SLACK 128 /* room for misalignment, and canaries behind it */
#define BYTES_MAX (COUNT_MAX * 8 + 2 * SLACK)
#define CANARY 0xa5

static const struct {
    enum sl_kernel kind;
    const char *name;
} kernel_kinds[] = {{SL_KERNEL_C, "c"},
                    {SL_KERNEL_NEON, "neon"},
                    {SL_KERNEL_AVX2, "avx2"},
                    {SL_KERNEL_AVX512, "avx512"}};

/* NULL: this CPU or build lacks it. */
static const struct sl_kernels *kernels_of(enum sl_kernel kind)
{
    const struct sl_kernels *kernels = NULL;
    int err = sl_kernels_select(kind, &kernels);

    assert_true(err == 0 || err == -ENOTSUP);
    return kernels;
}

static size_t size_of(enum sluice_dtype t)
{
    static const size_t sizes[SLUICE_DTYPE_COUNT] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return sizes[t];
}

static const char *name_of(enum sluice_dtype t)
{
    static const char *const names[SLUICE_DTYPE_COUNT] = {"i8",  "u8",  "i32", "u32", "i64",
                                                          "u64", "f16", "f32", "f64", "bf16"};

    return names[t];
}

static const char *op_name(enum sluice_op op)
{
    static const char *const names[] = {"sum", "prod", "max", "min"};

    return names[op];
}

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1d;
}

/* ---- The reference: one element at a time, through mathematics instead of bits. ---- */

static bool is_float(enum sluice_dtype t)
{
    return t == SLUICE_F16 || t == SLUICE_BF16 || t == SLUICE_F32 || t == SLUICE_F64;
}

/* A binary float of 1 + exponent + mantissa bits. */
static double decode_small(unsigned bits, int exp_bits, int man_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, exp = (int)(bits >> man_bits) & ((1 << exp_bits) - 1);
    double man = bits & ((1u << man_bits) - 1);
    double sign = bits >> (exp_bits + man_bits) & 1 ? -1.0 : 1.0;

    if (exp == (1 << exp_bits) - 1)
        return man != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exp == 0)
        return sign * ldexp(man, 1 - bias - man_bits);
    return sign * ldexp(man + (1 << man_bits), exp - bias - man_bits);
}

/* To nearest even, which is what nearbyint() does in units of the last place. */
static unsigned encode_small(double x, int exp_bits, int man_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, exp_max = (1 << exp_bits) - 1, exp;
    unsigned sign = (signbit(x) ? 1u : 0u) << (exp_bits + man_bits);
    double units;

    if (isnan(x))
        return ((unsigned)exp_max << man_bits) | 1u << (man_bits - 1);
    if (isinf(x))
        return sign | (unsigned)exp_max << man_bits;
    x = fabs(x);
    if (x == 0)
        return sign;
    exp = ilogb(x) < 1 - bias ? 1 - bias : ilogb(x);
    units = nearbyint(ldexp(x, man_bits - exp));
    if (units == ldexp(1, man_bits + 1)) {
        units /= 2;
        exp++;
    }
    if (exp > bias)
        return sign | (unsigned)exp_max << man_bits;
    if (units < ldexp(1, man_bits))
        return sign | (unsigned)units;
    return sign | (((unsigned)(exp + bias) << man_bits) + (unsigned)units - (1u << man_bits));
}

static double load_float(enum sluice_dtype t, const void *p)
{
    uint16_t half;
    float f;
    double d;

    memcpy(&half, p, sizeof(half));
    if (t == SLUICE_F16)
        return decode_small(half, 5, 10);
    if (t == SLUICE_BF16)
        return decode_small(half, 8, 7);
    if (t == SLUICE_F64) {
        memcpy(&d, p, sizeof(d));
        return d;
    }
    memcpy(&f, p, sizeof(f));
    return f;
}

static void store_float(enum sluice_dtype t, void *p, double x)
{
    uint16_t half = (uint16_t)(t == SLUICE_F16 ? encode_small(x, 5, 10) : encode_small(x, 8, 7));
    uint32_t nan32 = 0x7fc00000;
    uint64_t nan64 = 0x7ff8000000000000;
    float f = (float)x;

    if (t == SLUICE_F16 || t == SLUICE_BF16)
        memcpy(p, &half, 2);
    else if (t == SLUICE_F32)
        memcpy(p, isnan(x) ? (void *)&nan32 : (void *)&f, 4);
    else
        memcpy(p, isnan(x) ? (void *)&nan64 : (void *)&x, 8);
}

static double combine_float(enum sluice_op op, double a, double b, bool wide)
{
    double r;

    if (op == SLUICE_SUM || op == SLUICE_PROD) {
        /* One rounding to f32 after an f64 operation on f32 values is the f32 operation. */
        r = op == SLUICE_SUM ? a + b : a * b;
        return wide ? r : (double)(float)r;
    }
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return (op == SLUICE_MAX) == (signbit(a) != 0) ? b : a;
    return (op == SLUICE_MAX) == (a > b) ? a : b;
}

static uint64_t load_int(size_t size, bool has_sign, const void *p)
{
    uint64_t x = 0;

    memcpy(&x, p, size);
    if (has_sign && size < 8 && (x >> (size * 8 - 1)) != 0)
        x |= ~UINT64_C(0) << (size * 8);
    return x;
}

static uint64_t combine_int(enum sluice_op op, uint64_t a, uint64_t b, bool has_sign)
{
    bool less = has_sign ? (int64_t)a < (int64_t)b : a < b;

    return op == SLUICE_SUM    ? a + b
           : op == SLUICE_PROD ? a * b
           : op == SLUICE_MAX  ? (less ? b : a)
                               : (less ? a : b);
}

static void reference(enum sluice_dtype t, enum sluice_op op, void *dst, const void *const *src,
                      unsigned nsrc, size_t count, unsigned divisor)
{
    size_t size = size_of(t);
    bool has_sign = t == SLUICE_I8 || t == SLUICE_I32 || t == SLUICE_I64;

    for (size_t i = 0; i < count; i++) {
        size_t at = i * size;

        if (is_float(t)) {
            double x = load_float(t, (const char *)src[0] + at);

            for (unsigned k = 1; k < nsrc; k++)
                x = combine_float(op, x, load_float(t, (const char *)src[k] + at), t == SLUICE_F64);
            if (divisor > 1)
                x = t == SLUICE_F64 ? x / divisor : (double)((float)x / (float)divisor);
            store_float(t, (char *)dst + at, x);
        } else {
            uint64_t x = load_int(size, has_sign, (const char *)src[0] + at);

            for (unsigned k = 1; k < nsrc; k++)
                x = combine_int(op, x, load_int(size, has_sign, (const char *)src[k] + at),
                                has_sign);
            x = load_int(size, has_sign, &x); /* wraps around to the type's width */
            if (divisor > 1)
                x = has_sign ? (uint64_t)((int64_t)x / (int64_t)divisor) : x / divisor;
            memcpy((char *)dst + at, &x, size);
        }
    }
}

/* ---- Inputs and the comparison. ---- */

/* Numbers that kernels get wrong: zeros of both signs, denormals, extremes, infinities, NaNs of
 * both signs, quiet and signalling, with payloads. */
static const uint16_t special_f16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400,
                                       0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe00,
                                       0x7c01, 0xfd55, 0x3c00, 0x3c01};
static const uint16_t special_bf16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080,
                                        0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0,
                                        0x7f81, 0xffaa, 0x3f80, 0x3f81};

static void fill_element(enum sluice_dtype t, void *p)
{
    uint64_t r = random_u64(), bits = random_u64();
    unsigned pick = (unsigned)(r >> 8) % 16;
    uint64_t as_f64 = (uint64_t)(special_bf16[pick] & 0x8000) << 48;

    switch (r % 4) {
    case 0: /* a special number */
        if (t == SLUICE_F16)
            bits = special_f16[pick];
        else if (t == SLUICE_BF16)
            bits = special_bf16[pick];
        else if (t == SLUICE_F32)
            bits = (uint64_t)special_bf16[pick] << 16 | (pick & 1);
        else if (t == SLUICE_F64)
            bits = as_f64 | (uint64_t)(special_f16[pick] & 0x7c00) << 48 |
                   (special_f16[pick] >= 0x7c00 ? UINT64_C(0x7ff) << 52 : 0) |
                   special_f16[pick] % 3;
        else
            bits = pick < 8 ? (uint64_t)pick - 4 : UINT64_C(1) << (8 * size_of(t) - 1);
        break;
    case 1: /* any bits */ break;
    default: /* a moderate number, whose sums round */
        if (is_float(t)) {
            store_float(t, p, ((double)(int64_t)bits / 0x1p63) * 4);
            return;
        }
        break;
    }
    memcpy(p, &bits, size_of(t));
}

static void fill(enum sluice_dtype t, void *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fill_element(t, (char *)p + i * size_of(t));
}

struct arena {
    char src[SRC_MAX][BYTES_MAX] __attribute__((aligned(64)));
    char dst[BYTES_MAX] __attribute__((aligned(64)));
    char copy[BYTES_MAX] __attribute__((aligned(64)));
    char want[BYTES_MAX] __attribute__((aligned(64)));
    const void *from[SRC_MAX];
};
static struct arena arena;

static void fill_arena(enum sluice_dtype t)
{
    for (unsigned k = 0; k < SRC_MAX; k++) {
        fill(t, arena.src[k], COUNT_MAX);
        arena.from[k] = arena.src[k];
    }
}

static void check_same(const void *got, const void *want, size_t count, enum sluice_dtype t,
                       const char *what)
{
    size_t size = size_of(t);

    for (size_t i = 0; i < count; i++)
        if (memcmp((const char *)got + i * size, (const char *)want + i * size, size) != 0) {
            uint64_t g = 0, w = 0;

            memcpy(&g, (const char *)got + i * size, size);
            memcpy(&w, (const char *)want + i * size, size);
            fail_msg("%s: element %zu of %zu %s is 0x%llx, not 0x%llx", what, i, count, name_of(t),
                     (unsigned long long)g, (unsigned long long)w);
        }
}

static void check_canaries(const char *area, size_t begin, size_t end, const char *what)
{
    for (size_t i = 0; i < begin + SLACK; i++)
        if (i < begin && (unsigned char)area[i] != CANARY)
            fail_msg("%s: wrote %zu bytes before its start", what, begin - i);
    for (size_t i = end; i < end + SLACK; i++)
        if ((unsigned char)area[i] != CANARY)
            fail_msg("%s: wrote %zu bytes past its end", what, i - end);
}

struct shape {
    enum sluice_dtype t;
    enum sluice_op op;
    unsigned nsrc, divisor;
    size_t count, dst_off, copy_off;
    bool stream, copy;
};

/* Runs one shape from arena.from[] into arena.dst and arena.copy, and compares with arena.want. */
static void check_shape(const struct sl_kernels *kernels, const struct shape *s)
{
    size_t len = s->count * size_of(s->t);
    sl_reduce_fn *fn =
        s->stream ? kernels->reduce_stream[s->t][s->op] : kernels->reduce[s->t][s->op];
    char what[160];

    snprintf(what, sizeof(what), "%s %s of %u, count %zu, divisor %u, offsets %zu %zu%s%s",
             kernels->name, op_name(s->op), s->nsrc, s->count, s->divisor, s->dst_off, s->copy_off,
             s->stream ? ", stream" : "", s->copy ? ", copy" : "");
    memset(arena.dst, CANARY, s->dst_off + len + SLACK);
    memset(arena.copy, CANARY, s->copy_off + len + SLACK);
    fn(arena.dst + s->dst_off, s->copy ? arena.copy + s->copy_off : NULL, arena.from, s->nsrc,
       s->count, s->divisor);
    check_same(arena.dst + s->dst_off, arena.want, s->count, s->t, what);
    check_canaries(arena.dst, s->dst_off, s->dst_off + len, what);
    if (s->copy) {
        check_same(arena.copy + s->copy_off, arena.want, s->count, s->t, what);
        check_canaries(arena.copy, s->copy_off, s->copy_off + len, what);
    }
}

static void check_all_counts(const struct sl_kernels *kernels, struct shape *s)
{
    static const size_t larger[] = {255, 256, 257, 511, 513, 800, 1023, 1024, COUNT_MAX};

    reference(s->t, s->op, arena.want, arena.from, s->nsrc, COUNT_MAX, s->divisor);
    for (s->count = 0; s->count <= 200; s->count++) {
        s->stream = s->count & 1;
        s->copy = s->count & 2;
        check_shape(kernels, s);
        s->stream = !s->stream;
        check_shape(kernels, s);
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(larger); i++) {
        s->count = larger[i];
        s->stream = i & 1;
        s->copy = i & 2;
        check_shape(kernels, s);
    }
}

static void every_type(void (*check)(const struct sl_kernels *, enum sluice_dtype))
{
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

        for (unsigned t = 0; kernels != NULL && t < SLUICE_DTYPE_COUNT; t++) {
            fill_arena((enum sluice_dtype)t);
            check(kernels, (enum sluice_dtype)t);
        }
    }
}

static void check_sources(const struct sl_kernels *kernels, enum sluice_dtype t)
{
    for (unsigned op = SLUICE_SUM; op <= SLUICE_MIN; op++) {
        for (unsigned nsrc = 1; nsrc <= SRC_MAX; nsrc++) {
            struct shape s = {.t = t, .op = (enum sluice_op)op, .nsrc = nsrc, .divisor = 1};

            check_all_counts(kernels, &s);
        }
    }
}

static void every_operator_and_count_equals_the_reference(void **state)
{
    every_type(check_sources);
}

static void check_divisors(const struct sl_kernels *kernels, enum sluice_dtype t)
{
    static const unsigned divisors[] = {2, 3, 7, 64, 129, 1000003, 0x80000001, 0xffffffff};

    for (size_t i = 0; i < SL_ARRAY_LEN(divisors); i++) {
        struct shape s = {.t = t, .nsrc = 1 + (unsigned)i, .divisor = divisors[i]};

        check_all_counts(kernels, &s);
    }
}

static void averages_divide_the_sum_once(void **state)
{
    every_type(check_divisors);
}

static void check_alignments(const struct sl_kernels *kernels, enum sluice_dtype t)
{
    static const size_t counts[] = {1, 3, 40, 333};
    size_t size = size_of(t);

    for (unsigned off = 0; off < 64; off++) {
        struct shape s = {.t = t, .nsrc = 2 + off % 2, .divisor = 1, .copy = true};

        s.dst_off = off;
        s.copy_off = (off * 7 + size) % 64;
        for (unsigned k = 0; k < SRC_MAX; k++)
            arena.from[k] = arena.src[k] + (off * (k + 3)) % 64;
        reference(t, s.op, arena.want, arena.from, s.nsrc, 333, 1);
        for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
            s.count = counts[i];
            s.stream = false;
            check_shape(kernels, &s);
            s.stream = true;
            check_shape(kernels, &s);
        }
    }
}

static void any_alignment_gives_the_same_bytes(void **state)
{
    every_type(check_alignments);
}

static void check_aliases(const struct sl_kernels *kernels, enum sluice_dtype t)
{
    static char area[4][BYTES_MAX];

    for (unsigned i = 0; i < 5 * 5 * 2 * 3; i++) {
        /* As dst and as copy: source 0 to 3, or a place of its own; never the same for both. */
        unsigned dst = i % 5, copy = i / 5 % 5, nsrc = i / 25 % 2 == 0 ? 2 : 4;
        size_t counts[] = {5, 190, COUNT_MAX}, count = counts[i / 50];
        char *dst_at, *copy_at;

        if (dst == copy || (dst < 4 && dst >= nsrc) || (copy < 4 && copy >= nsrc))
            continue;
        for (unsigned k = 0; k < nsrc; k++) {
            memcpy(area[k], arena.src[k], COUNT_MAX * size_of(t));
            arena.from[k] = area[k];
        }
        reference(t, SLUICE_SUM, arena.want, arena.from, nsrc, count, 1);
        dst_at = dst < 4 ? area[dst] : arena.dst;
        copy_at = copy < 4 ? area[copy] : NULL;
        kernels->reduce[t][SLUICE_SUM](dst_at, copy_at, arena.from, nsrc, count, 1);
        check_same(dst_at, arena.want, count, t, "result over a source");
        if (copy_at != NULL)
            check_same(copy_at, arena.want, count, t, "copy over a source");
    }
}

static void result_and_copy_may_lie_on_sources(void **state)
{
    every_type(check_aliases);
}

static void many_sources_keep_their_order(void **state)
{
    enum { SOURCES = 67, COUNT = 5000 };
    const void *src[SOURCES];
    char *all = calloc(SOURCES, COUNT * 8), *want = calloc(COUNT, 8), *got = calloc(COUNT, 8);

    for (unsigned t = 0; t < SLUICE_DTYPE_COUNT; t++) {
        size_t size = size_of((enum sluice_dtype)t);

        for (unsigned k = 0; k < SOURCES; k++) {
            src[k] = all + k * COUNT * size;
            fill((enum sluice_dtype)t, all + k * COUNT * size, COUNT);
        }
        reference((enum sluice_dtype)t, SLUICE_SUM, want, src, SOURCES, COUNT, 1);
        for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
            const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

            if (kernels == NULL)
                continue;
            memset(got, CANARY, COUNT * size);
            kernels->reduce[t][SLUICE_SUM](got, NULL, src, SOURCES, COUNT, 1);
            check_same(got, want, COUNT, (enum sluice_dtype)t, kernels->name);
        }
    }
    free(all);
    free(want);
    free(got);
}

/* Every 16-bit float with a partner, by every operator. */
static void check_every_half(const struct sl_kernels *kernels, enum sluice_dtype t,
                             uint16_t partner, unsigned divisor)
{
    static uint16_t all[65536], others[65536], want[65536], got[65536];
    const void *src[2] = {all, others};
    char what[80];

    for (unsigned i = 0; i < 65536; i++) {
        all[i] = (uint16_t)i;
        others[i] = partner;
    }
    for (unsigned op = SLUICE_SUM; op <= SLUICE_MIN; op++) {
        snprintf(what, sizeof(what), "%s %s with 0x%x", kernels->name, op_name((enum sluice_op)op),
                 partner);
        reference(t, (enum sluice_op)op, want, src, 2, 65536, divisor);
        kernels->reduce[t][op](got, NULL, src, 2, 65536, divisor);
        check_same(got, want, 65536, t, what);
    }
}

static void every_half_float_is_widened_and_rounded_right(void **state)
{
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

        for (unsigned i = 0; kernels != NULL && i < SL_ARRAY_LEN(special_f16); i++) {
            check_every_half(kernels, SLUICE_F16, special_f16[i], 1);
            check_every_half(kernels, SLUICE_BF16, special_bf16[i], 1);
        }
        for (unsigned i = 0; kernels != NULL && i < 8; i++) {
            check_every_half(kernels, SLUICE_F16, (uint16_t)random_u64(), 3 + i);
            check_every_half(kernels, SLUICE_BF16, (uint16_t)random_u64(), 3 + i);
        }
    }
}

/* The reference itself, against values known from the formats' definitions. */
static void the_reference_knows_the_formats(void **state)
{
    assert_true(decode_small(0x3c00, 5, 10) == 1.0);
    assert_true(decode_small(0x0001, 5, 10) == 0x1p-24);
    assert_true(decode_small(0xfbff, 5, 10) == -65504.0);
    assert_int_equal(encode_small(65519.0, 5, 10), 0x7bff);
    assert_int_equal(encode_small(65520.0, 5, 10), 0x7c00);
    assert_int_equal(encode_small(0x1p-25, 5, 10), 0);
    assert_int_equal(encode_small(0x1.8p-24, 5, 10), 2);
    assert_int_equal(encode_small(-0.0, 5, 10), 0x8000);
    assert_int_equal(encode_small(1.00390625, 8, 7), 0x3f80);
    assert_int_equal(encode_small(1.01171875, 8, 7), 0x3f82);
    assert_int_equal(encode_small((double)NAN, 8, 7), 0x7fc0);
}

static void copies_move_exactly_their_bytes(void **state)
{
    enum { LEN = 3000 };
    static char from[LEN + 2 * SLACK], to[LEN + 2 * SLACK];

    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (char)random_u64();
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

        for (unsigned i = 0; kernels != NULL && i < 4 * 1200; i++) {
            size_t len = i < 4 * 600 ? i / 4 : 600 + i * 7919u % (LEN - 600);
            size_t to_off = i * 13 % 64, from_off = i * 29 % 64;
            sl_copy_fn *copy = i % 2 ? kernels->copy_stream : kernels->copy;

            memset(to, CANARY, to_off + len + SLACK);
            copy(to + to_off, from + from_off, len);
            assert_memory_equal(to + to_off, from + from_off, len);
            check_canaries(to, to_off, to_off + len, kernels->name);
        }
    }
}

static void large_copies_are_whole(void **state)
{
    size_t len = ((size_t)3 << 20) + 77;
    char *from = malloc(len + 64), *to = malloc(len + 64);

    for (size_t i = 0; i < len + 64; i++)
        from[i] = (char)random_u64();
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

        if (kernels == NULL)
            continue;
        memset(to, 0, len + 64);
        kernels->copy(to + 3, from + 7, len);
        assert_memory_equal(to + 3, from + 7, len);
        memset(to, 0, len + 64);
        kernels->copy_stream(to + 5, from, len);
        assert_memory_equal(to + 5, from, len);
        assert_int_equal(to[len + 5], 0);
    }
    free(from);
    free(to);
}

/* The end of count elements is the end of memory: a page behind it that nobody may touch. */
static char *guarded(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (len + page - 1) / page * page;
    char *p = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + pages, page, PROT_NONE), 0);
    return p + pages;
}

static void nothing_past_the_end_of_memory_is_touched(void **state)
{
    enum { SOURCES = 3, LEN = 65536 }; /* whole pages, of any machine */
    char *ends[SOURCES + 2];

    for (unsigned k = 0; k < SOURCES + 2; k++) {
        ends[k] = guarded(LEN);
        memset(ends[k] - LEN, 1, LEN);
    }
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        const struct sl_kernels *kernels = kernels_of(kernel_kinds[k].kind);

        for (unsigned i = 0; kernels != NULL && i < SLUICE_DTYPE_COUNT * 150; i++) {
            unsigned t = i % SLUICE_DTYPE_COUNT, step = i / SLUICE_DTYPE_COUNT;
            size_t count = step < 140 ? step : 500 + step;
            size_t len = count * size_of((enum sluice_dtype)t);
            const void *src[SOURCES] = {ends[0] - len, ends[1] - len, ends[2] - len};

            kernels->reduce[t][SLUICE_SUM](ends[3] - len, ends[4] - len, src, 2 + step % 2, count,
                                           1);
            kernels->reduce_stream[t][SLUICE_MAX](ends[3] - len, ends[4] - len, src, 3, count, 1);
            kernels->copy(ends[3] - len, src[0], len);
            kernels->copy_stream(ends[3] - len, src[1], len);
        }
    }
    for (unsigned k = 0; k < SOURCES + 2; k++)
        assert_int_equal(munmap(ends[k] - LEN, LEN + (size_t)sysconf(_SC_PAGESIZE)), 0);
}

static void kernels_are_chosen_by_name(void **state)
{
    const struct sl_kernels *kernels = NULL, *automatic = NULL;

    assert_int_equal(sl_kernels_select(SL_KERNEL_C, &kernels), 0);
    assert_string_equal(kernels->name, "c");
    assert_int_equal(sl_kernels_select(SL_KERNEL_AUTO, &automatic), 0);
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++)
        if ((kernels = kernels_of(kernel_kinds[k].kind)) != NULL)
            assert_string_equal(kernels->name, kernel_kinds[k].name);
    /* auto takes the best there is: the last name of the list that this CPU runs */
    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++)
        kernels =
            kernels_of(kernel_kinds[k].kind) != NULL ? kernels_of(kernel_kinds[k].kind) : kernels;
    assert_ptr_equal(automatic, kernels);
}

static void kernels_of_another_processor_are_refused_with_a_way_out(void **state)
{
    const struct sl_kernels *kernels = NULL;
    unsigned refused = 0;

    for (size_t k = 0; k < SL_ARRAY_LEN(kernel_kinds); k++) {
        if (sl_kernels_select(kernel_kinds[k].kind, &kernels) == 0)
            continue;
        refused++;
        assert_non_null(strstr(sluice_last_error(), kernel_kinds[k].name));
        assert_non_null(strstr(sluice_last_error(), "set SLUICE_KERNEL to auto"));
    }
    assert_true(refused > 0); /* no processor runs both families */
}

static void the_last_cache_has_a_plausible_size(void **state)
{
    size_t len = sl_cache_last_level();

    assert_in_range(len, 128 << 10, (size_t)4 << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_knows_the_formats),
        cmocka_unit_test(every_operator_and_count_equals_the_reference),
        cmocka_unit_test(averages_divide_the_sum_once),
        cmocka_unit_test(any_alignment_gives_the_same_bytes),
        cmocka_unit_test(result_and_copy_may_lie_on_sources),
        cmocka_unit_test(many_sources_keep_their_order),
        cmocka_unit_test(every_half_float_is_widened_and_rounded_right),
        cmocka_unit_test(copies_move_exactly_their_bytes),
        cmocka_unit_test(large_copies_are_whole),
        cmocka_unit_test(nothing_past_the_end_of_memory_is_touched),
        cmocka_unit_test(kernels_are_chosen_by_name),
        cmocka_unit_test(kernels_of_another_processor_are_refused_with_a_way_out),
        cmocka_unit_test(the_last_cache_has_a_plausible_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
