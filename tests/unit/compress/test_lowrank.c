/* SPDX-License-Identifier: Apache-2.0 */
/* Low rank: exact where the matrix has that rank, orthonormal, the same for ranks together as for
 * their sum, and able to recover. */
#include "draw.h"

#include "compress/codec.h"
#include "compress/lowrank.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define ROWS 150
#define COLUMNS 1100
#define RANK_MAX 4

static float m[ROWS * COLUMNS], out[ROWS * COLUMNS], rest[ROWS * COLUMNS];
static float p[ROWS * RANK_MAX], q[COLUMNS * RANK_MAX], p_sum[ROWS * RANK_MAX];
static float q_sum[COLUMNS * RANK_MAX];

static void draw_matrix(const struct sl_lowrank *l, unsigned rank, float noise)
{
    static float a[ROWS * RANK_MAX], b[COLUMNS * RANK_MAX];

    draw_fill(DRAW_GAUSSIAN, a, l->rows * rank);
    draw_fill(DRAW_GAUSSIAN, b, l->columns * rank);
    for (size_t i = 0; i < l->rows; i++)
        for (size_t j = 0; j < l->columns; j++) {
            double x = noise > 0 ? (double)noise * (double)draw_gaussian() : 0;

            for (unsigned c = 0; c < rank; c++)
                x += (double)a[c * l->rows + i] * (double)b[c * l->columns + j];
            m[i * l->columns + j] = (float)x;
        }
}

/* Of all the matrix, what part of its norm the approximation misses. */
static double step(const struct sl_lowrank *l)
{
    double error = 0, size = 0;

    sl_lowrank_left(l, m, q, p);
    sl_lowrank_orthogonalise(l, p);
    sl_lowrank_right(l, m, p, q);
    sl_lowrank_decode(l, p, q, out);
    sl_lowrank_residual(l, m, p, q, rest);
    for (size_t i = 0; i < l->rows * l->columns; i++) {
        assert_true(rest[i] == m[i] - out[i] || isnan(rest[i]));
        error += (double)rest[i] * (double)rest[i];
        size += (double)m[i] * (double)m[i];
    }
    return sqrt(error / size);
}

static void a_matrix_of_that_rank_is_exact(void **state)
{
    static const struct sl_lowrank shapes[] = {{1, 1, 1},     {5, 3, 2},         {17, 16, 4},
                                               {ROWS, 15, 3}, {3, COLUMNS, 3},   {ROWS, COLUMNS, 1},
                                               {64, 1025, 4}, {ROWS, COLUMNS, 4}};

    for (size_t s = 0; s < SL_ARRAY_LEN(shapes); s++) {
        draw_matrix(&shapes[s], shapes[s].rank, 0);
        memset(q, 0, sizeof(q));
        assert_int_equal(sl_lowrank_refill(&shapes[s], 7, 1, 2, q), shapes[s].rank);
        double error = step(&shapes[s]);

        if (!(error < 1e-5))
            fail_msg("%zu x %zu of rank %u misses %g", shapes[s].rows, shapes[s].columns,
                     shapes[s].rank, error);
    }
}

static void sums_run_in_their_order(void **state)
{
    const struct sl_lowrank l = {33, 77, 3};

    draw_matrix(&l, 2, 0.5f);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    sl_lowrank_left(&l, m, q, p);
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < l.rows; i++) {
            float lanes[16] = {0};

            for (size_t j = 0; j < l.columns; j++)
                lanes[j % 16] += m[i * l.columns + j] * q[c * l.columns + j];
            for (size_t j = 1; j < 16; j++)
                lanes[0] += lanes[j];
            assert_true(p[c * l.rows + i] == lanes[0]);
        }
    sl_lowrank_right(&l, m, p, q);
    for (size_t c = 0; c < 3; c++)
        for (size_t j = 0; j < l.columns; j++) {
            float sum = 0;

            for (size_t i = 0; i < l.rows; i++)
                sum += m[i * l.columns + j] * p[c * l.rows + i];
            assert_true(q[c * l.columns + j] == sum);
        }
}

static void columns_become_orthonormal(void **state)
{
    const struct sl_lowrank l = {ROWS, 20, 4};

    for (int kind = 0; kind < 2; kind++) { /* Gaussian, and of many magnitudes */
        draw_fill((enum draw_kind)kind, p, l.rows * 4);
        sl_lowrank_orthogonalise(&l, p);
        for (size_t a = 0; a < 4; a++)
            for (size_t b = 0; b <= a; b++) {
                double dot = 0;

                for (size_t i = 0; i < l.rows; i++)
                    dot += (double)p[a * l.rows + i] * (double)p[b * l.rows + i];
                assert_true(fabs(dot - (a == b)) < 1e-5);
            }
    }
}

static void columns_that_depend_on_others_become_zeros_and_recover(void **state)
{
    const struct sl_lowrank l = {40, 30, 3};

    draw_matrix(&l, 1, 0);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    assert_true(step(&l) < 1e-5);
    for (size_t i = l.rows; i < 3 * l.rows; i++)
        assert_true(p[i] == 0);
    for (size_t i = l.columns; i < 3 * l.columns; i++)
        assert_true(q[i] == 0);
    /* The next matrix has more to tell. */
    draw_matrix(&l, 3, 0);
    assert_int_equal(sl_lowrank_refill(&l, 7, 1, 3, q), 2);
    assert_true(step(&l) < 1e-4);
    assert_int_equal(sl_lowrank_refill(&l, 7, 1, 4, q), 0);
}

static void a_matrix_with_no_number_is_seen_and_does_no_lasting_harm(void **state)
{
    const struct sl_lowrank l = {40, 30, 2};

    draw_matrix(&l, 2, 0);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    m[17] = NAN;
    (void)step(&l);
    assert_true(isnan(out[0]) && isnan(out[40 * 30 - 1]));
    draw_matrix(&l, 2, 0);
    assert_int_equal(sl_lowrank_refill(&l, 7, 1, 3, q), 2);
    assert_true(step(&l) < 1e-5);
}

static void zeros_are_sent_as_zeros(void **state)
{
    const struct sl_lowrank l = {40, 30, 2};

    memset(m, 0, sizeof(m));
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    (void)step(&l);
    for (size_t i = 0; i < l.rows * l.columns; i++)
        assert_true(out[i] == 0 && rest[i] == 0);
}

static void warm_starts_come_nearer_step_by_step(void **state)
{
    const struct sl_lowrank l = {100, 90, 2};
    double first, last;

    draw_matrix(&l, 3, 1.0f);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    first = last = step(&l);
    for (unsigned i = 0; i < 8; i++)
        last = step(&l);
    assert_true(last < 0.95 * first);
}

static void ranks_together_approximate_their_sum(void **state)
{
    enum { RANKS = 4 };
    const struct sl_lowrank l = {60, 50, 3};
    static float all[RANKS][60 * 50], sum[60 * 50];
    double error = 0, size = 0;

    memset(sum, 0, sizeof(sum));
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    draw_matrix(&l, 3, 0); /* the sum has rank 3, its parts have none */
    for (unsigned r = 0; r < RANKS; r++)
        for (size_t i = 0; i < l.rows * l.columns; i++) {
            all[r][i] = r + 1 < RANKS ? draw_gaussian() : m[i] - sum[i];
            sum[i] += all[r][i];
        }
    memset(p_sum, 0, sizeof(p_sum));
    for (unsigned r = 0; r < RANKS; r++) {
        sl_lowrank_left(&l, all[r], q, p);
        for (size_t i = 0; i < sl_lowrank_p_count(&l); i++)
            p_sum[i] += p[i];
    }
    sl_lowrank_orthogonalise(&l, p_sum);
    memset(q_sum, 0, sizeof(q_sum));
    for (unsigned r = 0; r < RANKS; r++) {
        sl_lowrank_right(&l, all[r], p_sum, q);
        for (size_t i = 0; i < sl_lowrank_q_count(&l); i++)
            q_sum[i] += q[i];
    }
    sl_lowrank_decode(&l, p_sum, q_sum, out);
    for (size_t i = 0; i < l.rows * l.columns; i++) {
        error += pow((double)out[i] - (double)m[i], 2);
        size += pow((double)m[i], 2);
    }
    assert_true(error < 1e-9 * size);
}

static void residuals_may_take_the_place_of_the_matrix(void **state)
{
    const struct sl_lowrank l = {20, 1030, 2};

    draw_matrix(&l, 3, 0.1f);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    (void)step(&l);
    sl_lowrank_residual(&l, m, p, q, m);
    assert_memory_equal(m, rest, l.rows * l.columns * sizeof(*m));
}

/* A factor as its receivers have it. Returns the bytes that travel. */
static size_t send(const struct sl_codec_spec *spec, float *factor, size_t count)
{
    static _Alignas(64) uint8_t wire[sizeof(q) + 4096];
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    const struct sl_codec_at at = {0};
    size_t len = codec->encode(spec, &at, factor, count, wire);

    assert_true(len <= sizeof(wire));
    assert_int_equal(codec->decode(spec, &at, wire, len, count, factor), 0);
    return len;
}

static void factors_may_travel_in_four_bits(void **state)
{
    const struct sl_lowrank l = {ROWS, COLUMNS, 4};
    double error = 0, size = 0;
    struct sl_codec_spec spec;
    size_t len;

    assert_int_equal(sl_codec_parse("bq4", &spec), 0);
    draw_matrix(&l, 4, 0);
    memset(q, 0, sizeof(q));
    (void)sl_lowrank_refill(&l, 7, 1, 2, q);
    sl_lowrank_left(&l, m, q, p);
    sl_lowrank_orthogonalise(&l, p);
    len = send(&spec, p, sl_lowrank_p_count(&l));
    sl_lowrank_right(&l, m, p, q);
    len += send(&spec, q, sl_lowrank_q_count(&l));
    assert_true(len * 8 < (sl_lowrank_p_count(&l) + sl_lowrank_q_count(&l)) * 4.4 + 512);
    sl_lowrank_residual(&l, m, p, q, rest);
    for (size_t i = 0; i < l.rows * l.columns; i++) {
        error += (double)rest[i] * (double)rest[i];
        size += (double)m[i] * (double)m[i];
    }
    /* Each factor has the error of bq4, 1.1e-2; that of P counts twice, once by way of Q. */
    assert_true(error < 0.05 * size);
    assert_true(error > 0.005 * size);
}

static void it_pays_where_the_factors_are_smaller(void **state)
{
    assert_true(sl_lowrank_pays(&(struct sl_lowrank){512, 4608, 4}, 2));
    assert_false(sl_lowrank_pays(&(struct sl_lowrank){64, 1, 1}, 1));
    assert_false(sl_lowrank_pays(&(struct sl_lowrank){10, 10, 5}, 1));
    assert_true(sl_lowrank_pays(&(struct sl_lowrank){10, 10, 4}, 1));
    assert_false(sl_lowrank_pays(&(struct sl_lowrank){10, 10, 4}, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_of_that_rank_is_exact),
        cmocka_unit_test(sums_run_in_their_order),
        cmocka_unit_test(columns_become_orthonormal),
        cmocka_unit_test(columns_that_depend_on_others_become_zeros_and_recover),
        cmocka_unit_test(a_matrix_with_no_number_is_seen_and_does_no_lasting_harm),
        cmocka_unit_test(zeros_are_sent_as_zeros),
        cmocka_unit_test(warm_starts_come_nearer_step_by_step),
        cmocka_unit_test(ranks_together_approximate_their_sum),
        cmocka_unit_test(residuals_may_take_the_place_of_the_matrix),
        cmocka_unit_test(factors_may_travel_in_four_bits),
        cmocka_unit_test(it_pays_where_the_factors_are_smaller),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
