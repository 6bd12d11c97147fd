/* SPDX-License-Identifier: Apache-2.0 */
/* The judge is judged: results computed here, one operand after the other, must pass; the same with
 * one element spoilt must fail with exactly one wrong element. */
#include "verify.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT 777 /* more than one piece, and not a multiple */
#define SEED 42

static float f16_to_float(uint16_t bits)
{
    unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                  : exponent == 0 ? ldexpf((float)fraction, -24)
                                  : ldexpf((float)(1024 + fraction), (int)exponent - 25);

    return (bits & 0x8000) != 0 ? -value : value;
}

/* Round to nearest, ties to even, by trying the neighbours: slow and plain. */
static uint16_t float_to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0, low = 0, high = 0x7c00;
    float magnitude = fabsf(value);

    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);

        if (f16_to_float(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    float below = magnitude - f16_to_float(low), above = f16_to_float(high) - magnitude;
    bool up = above < below || (above == below && (low & 1) != 0);

    return (uint16_t)(sign | (up ? high : low));
}

static float bf16_to_float(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

static uint16_t float_to_bf16(float value)
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

#define COMBINE(a, b, op)                                                                          \
    ((op) == SLUICE_PROD  ? (a) * (b)                                                              \
     : (op) == SLUICE_MAX ? ((a) > (b) ? (a) : (b))                                                \
     : (op) == SLUICE_MIN ? ((a) < (b) ? (a) : (b))                                                \
                          : (a) + (b))

#define REDUCE_AS(type)                                                                            \
    do {                                                                                           \
        type *a = acc;                                                                             \
        const type *b = x;                                                                         \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = (type)COMBINE(a[i], b[i], op);                                                  \
    } while (0)

#define REDUCE_HALVES(to_float, from_float)                                                        \
    do {                                                                                           \
        uint16_t *a = acc;                                                                         \
        const uint16_t *b = x;                                                                     \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = from_float(COMBINE(to_float(a[i]), to_float(b[i]), op));                        \
    } while (0)

static void reduce_one(void *acc, const void *x, enum sluice_dtype dtype, enum sluice_op op,
                       size_t count)
{
    switch (dtype) {
    case SLUICE_I8: REDUCE_AS(int8_t); break;
    case SLUICE_U8: REDUCE_AS(uint8_t); break;
    /* Unsigned, since overflow of int is undefined; same bits, but for order. */
    case SLUICE_I32:
        if (op == SLUICE_MAX || op == SLUICE_MIN)
            REDUCE_AS(int32_t);
        else
            REDUCE_AS(uint32_t);
        break;
    case SLUICE_U32: REDUCE_AS(uint32_t); break;
    case SLUICE_I64:
        if (op == SLUICE_MAX || op == SLUICE_MIN)
            REDUCE_AS(int64_t);
        else
            REDUCE_AS(uint64_t);
        break;
    case SLUICE_U64: REDUCE_AS(uint64_t); break;
    case SLUICE_F16: REDUCE_HALVES(f16_to_float, float_to_f16); break;
    case SLUICE_BF16: REDUCE_HALVES(bf16_to_float, float_to_bf16); break;
    case SLUICE_F32: REDUCE_AS(float); break;
    default: REDUCE_AS(double); break;
    }
}

#define DIVIDE_AS(type)                                                                            \
    for (size_t i = 0; i < count; i++)                                                             \
    ((type *)acc)[i] = (type)(((type *)acc)[i] / (type)size)

static void divide(void *acc, enum sluice_dtype dtype, int size, size_t count)
{
    uint16_t *halves = acc;

    switch (dtype) {
    case SLUICE_I8: DIVIDE_AS(int8_t); break;
    case SLUICE_U8: DIVIDE_AS(uint8_t); break;
    case SLUICE_I32: DIVIDE_AS(int32_t); break;
    case SLUICE_U32: DIVIDE_AS(uint32_t); break;
    case SLUICE_I64: DIVIDE_AS(int64_t); break;
    case SLUICE_U64: DIVIDE_AS(uint64_t); break;
    case SLUICE_F32: DIVIDE_AS(float); break;
    case SLUICE_F64: DIVIDE_AS(double); break;
    case SLUICE_F16:
        for (size_t i = 0; i < count; i++)
            halves[i] = float_to_f16(f16_to_float(halves[i]) / (float)size);
        break;
    default:
        for (size_t i = 0; i < count; i++)
            halves[i] = float_to_bf16(bf16_to_float(halves[i]) / (float)size);
    }
}

/* What a correct library could return; ranks in an order of its own. */
static void reduce_all(void *acc, enum sluice_dtype dtype, enum sluice_op op, int size,
                       int first_rank, uint64_t first)
{
    char x[COUNT * 8] __attribute__((aligned(16)));

    sb_fill(acc, dtype, (int)op, SEED, first_rank, size, first, COUNT);
    for (int i = 1; i < size; i++) {
        sb_fill(x, dtype, (int)op, SEED, (first_rank + i) % size, size, first, COUNT);
        reduce_one(acc, x, dtype, op, COUNT);
    }
    if (op == SLUICE_AVG)
        divide(acc, dtype, size, COUNT);
}

typedef void for_each_fn(enum sluice_dtype dtype, enum sluice_op op, int size);

static void for_each(for_each_fn *check)
{
    static const int sizes[] = {1, 2, 3, 8, 31, 64};

    for (int dtype = 0; dtype < SLUICE_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SLUICE_OP_COUNT; op++)
            for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++)
                check((enum sluice_dtype)dtype, (enum sluice_op)op, sizes[i]);
}

static uint64_t count_wrong(const void *got, enum sluice_dtype dtype, enum sluice_op op, int size)
{
    return sb_check_reduce(got, dtype, op, SEED, size, 5, COUNT);
}

static void check_right(enum sluice_dtype dtype, enum sluice_op op, int size)
{
    char got[COUNT * 8] __attribute__((aligned(16)));

    for (int first = 0; first < size; first += size / 2 + 1) {
        reduce_all(got, dtype, op, size, first, 5);
        if (count_wrong(got, dtype, op, size) != 0)
            fail_msg("%s %s of %d ranks from %d: %d right elements were called wrong",
                     sluice_dtype_name(dtype), sluice_op_name(op), size, first,
                     (int)count_wrong(got, dtype, op, size));
    }
}

static void right_results_of_every_type_and_operator_pass(void **state)
{
    (void)state;
    for_each(check_right);
}

/* The smallest change that rounding cannot explain: far beyond the bound of up to 64 roundings. */
static void check_spoilt(enum sluice_dtype dtype, enum sluice_op op, int size)
{
    size_t esize = sluice_dtype_size(dtype), at = (size_t)(17 * size) % COUNT;
    char got[COUNT * 8] __attribute__((aligned(16)));
    bool is_float =
        dtype == SLUICE_F16 || dtype == SLUICE_BF16 || dtype == SLUICE_F32 || dtype == SLUICE_F64;

    reduce_all(got, dtype, op, size, 0, 5);
    /* The lowest bit of integers and of exact results; a huge exponent for rounded ones. */
    if (!is_float || op == SLUICE_MIN || op == SLUICE_MAX || size == 1)
        got[at * esize] ^= 1;
    else
        got[at * esize + esize - 1] |= 0x7c;
    if (count_wrong(got, dtype, op, size) != 1)
        fail_msg("%s %s of %d ranks: a spoilt element was counted as %d", sluice_dtype_name(dtype),
                 sluice_op_name(op), size, (int)count_wrong(got, dtype, op, size));
}

static void one_spoilt_element_of_every_type_and_operator_is_one_wrong(void **state)
{
    (void)state;
    for_each(check_spoilt);
}

static void check_missing(enum sluice_dtype dtype, enum sluice_op op, int size)
{
    char got[COUNT * 8] __attribute__((aligned(16))), x[COUNT * 8] __attribute__((aligned(16)));

    if (size < 2 || size > 8)
        return;
    sb_fill(got, dtype, (int)op, SEED, 0, size, 5, COUNT);
    for (int rank = 1; rank < size - 1; rank++) { /* the last rank is left out */
        sb_fill(x, dtype, (int)op, SEED, rank, size, 5, COUNT);
        reduce_one(got, x, dtype, op, COUNT);
    }
    if (op == SLUICE_AVG)
        divide(got, dtype, size, COUNT);
    /* A minimum notices a missing rank where it had the smallest value: one place in `size`. An
     * average of small integers may be the same after truncation. */
    if (count_wrong(got, dtype, op, size) < COUNT / 16)
        fail_msg("%s %s of %d ranks: a rank that was left out gave only %d wrong elements",
                 sluice_dtype_name(dtype), sluice_op_name(op), size,
                 (int)count_wrong(got, dtype, op, size));
}

static void a_rank_that_was_left_out_shows(void **state)
{
    (void)state;
    for_each(check_missing);
}

static void a_nan_is_wrong(void **state)
{
    float got[COUNT];

    (void)state;
    reduce_all(got, SLUICE_F32, SLUICE_SUM, 4, 0, 5);
    got[3] = NAN;
    assert_int_equal(count_wrong(got, SLUICE_F32, SLUICE_SUM, 4), 1);
}

static void operands_reduce_without_overflow_or_vanishing(void **state)
{
    uint16_t got[COUNT];

    (void)state;
    reduce_all(got, SLUICE_F16, SLUICE_PROD, 64, 0, 5);
    for (size_t i = 0; i < COUNT; i++) {
        float value = fabsf(f16_to_float(got[i]));

        assert_true(value > 6.2e-5f && value < 65000);
    }
}

static void copies_are_compared_bit_for_bit_and_a_shifted_block_is_all_wrong(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < SLUICE_DTYPE_COUNT; dtype++) {
        size_t esize = sluice_dtype_size((enum sluice_dtype)dtype);
        char got[COUNT * 8];

        sb_fill(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED, 3, 4, 9, COUNT);
        assert_int_equal(
            sb_check_copy(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED, 3, 4, 9, COUNT), 0);
        got[400 * esize] ^= 0x10;
        assert_int_equal(
            sb_check_copy(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED, 3, 4, 9, COUNT), 1);
        /* From another rank, seed or place: nearly nothing fits. */
        assert_true(sb_check_copy(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED, 2, 4, 9, COUNT) >
                    COUNT * 9 / 10);
        assert_true(sb_check_copy(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED + 1, 3, 4, 9,
                                  COUNT) > COUNT * 9 / 10);
        assert_true(sb_check_copy(got, (enum sluice_dtype)dtype, SB_NO_OP, SEED, 3, 4, 10, COUNT) >
                    COUNT * 9 / 10);
    }
}

static void data_do_not_depend_on_how_they_are_cut(void **state)
{
    uint32_t whole[COUNT], part[COUNT];

    (void)state;
    sb_fill(whole, SLUICE_U32, SB_NO_OP, SEED, 1, 4, 100, COUNT);
    sb_fill(part, SLUICE_U32, SB_NO_OP, SEED, 1, 4, 100 + 301, COUNT - 301);
    assert_memory_equal(whole + 301, part, (COUNT - 301) * sizeof(*part));
}

static void errors_of_results_are_sums_of_squares(void **state)
{
    struct sb_error sum = {0, 0};
    float got[COUNT], exact[COUNT];
    double power = 0;

    (void)state;
    sb_fill(got, SLUICE_F32, SLUICE_SUM, SEED, 3, 4, 9, COUNT);
    sb_error_copy(got, SLUICE_F32, SLUICE_SUM, SEED, 3, 4, 9, COUNT, &sum);
    for (size_t i = 0; i < COUNT; i++)
        power += (double)got[i] * got[i];
    assert_true(sum.error == 0 && fabs(sum.power - power) < 1e-9 * power);
    got[COUNT - 1] += 0.5f;
    got[7] -= 0.25f;
    sb_error_copy(got, SLUICE_F32, SLUICE_SUM, SEED, 3, 4, 9, COUNT, &sum);
    assert_true(fabs(sum.error - 0.3125) < 1e-6);

    sum = (struct sb_error){0, 0};
    reduce_all(exact, SLUICE_F32, SLUICE_AVG, 4, 0, 5);
    exact[300] += 0.5f;
    sb_error_reduce(exact, SLUICE_F32, SLUICE_AVG, SEED, 4, 5, COUNT, &sum);
    assert_true(fabs(sum.error - 0.25) < 1e-6 && sum.power > 0);
    sb_error_reduce(got, SLUICE_I32, SLUICE_SUM, SEED, 4, 5, COUNT, &sum); /* no floats */
    assert_true(fabs(sum.error - 0.25) < 1e-6);
}

static void one_changed_bit_changes_the_hash(void **state)
{
    unsigned char bytes[77];

    (void)state;
    memset(bytes, 7, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        uint64_t before = sb_hash(bytes, sizeof(bytes));

        bytes[i] ^= 1;
        assert_true(sb_hash(bytes, sizeof(bytes)) != before);
    }
    assert_true(sb_hash(bytes, 76) != sb_hash(bytes, 77));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_results_of_every_type_and_operator_pass),
        cmocka_unit_test(one_spoilt_element_of_every_type_and_operator_is_one_wrong),
        cmocka_unit_test(a_rank_that_was_left_out_shows),
        cmocka_unit_test(a_nan_is_wrong),
        cmocka_unit_test(operands_reduce_without_overflow_or_vanishing),
        cmocka_unit_test(copies_are_compared_bit_for_bit_and_a_shifted_block_is_all_wrong),
        cmocka_unit_test(data_do_not_depend_on_how_they_are_cut),
        cmocka_unit_test(errors_of_results_are_sums_of_squares),
        cmocka_unit_test(one_changed_bit_changes_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
