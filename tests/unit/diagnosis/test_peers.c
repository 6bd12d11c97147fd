/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks beside those that do the same, in noise: who stands out, and who only seems to. */
#include "core/rng.h"
#include "monitor/diagnosis/peers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define RANKS 24
#define STEPS 400
#define SLOW 5
#define FROM 200

static double values[RANKS * STEPS];
static const uint64_t roles[RANKS];
static const struct sl_job_rank ranks[RANKS];

static double normal_of(struct sl_rng *rng)
{
    double a = ((double)sl_rng_below(rng, 1u << 30) + 1) / (1u << 30);
    double b = (double)sl_rng_below(rng, 1u << 30) / (1u << 30);

    return sqrt(-2 * log(a)) * cos(2 * M_PI * b);
}

/* Heavy tails: Student's, 3 degrees of freedom. memory: what each step inherits of the last one.
 * apart: what a rank is slower than the one before it, for ever. slow: of rank SLOW, since FROM. */
static void make(double noise, double memory, double apart, double slow)
{
    struct sl_rng rng;

    sl_rng_init(&rng, 3);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        double before = 0;

        for (uint32_t step = 0; step < STEPS; step++) {
            double top = normal_of(&rng), sum = 0;

            for (int i = 0; i < 3; i++) {
                double x = normal_of(&rng);

                sum += x * x;
            }
            before = memory * before + noise * top / sqrt(sum / 3);
            values[rank * STEPS + step] =
                exp(before + apart * rank + (rank == SLOW && step >= FROM ? slow : 0));
        }
    }
}

static struct sl_suspects judge(double threshold)
{
    struct sl_peers_table table = {
        .rank_count = RANKS, .step_count = STEPS, .values = values, .roles = roles, .ranks = ranks};
    struct sl_suspects found = {.list = NULL};

    assert_int_equal(sl_peers_judge(&table, threshold, 0.10, &found), 0);
    return found;
}

/* Even where a false alarm a rank is asked for every 403 steps: 24 ranks, two tests. */
static void healthy_ranks_in_noise_are_left_alone(void **state)
{
    (void)state;
    make(0.02, 0, 0, 0);
    assert_int_equal(judge(6).count, 0);
}

static void steps_that_inherit_noise_make_no_alarm(void **state)
{
    (void)state;
    make(0.02, 0.9, 0, 0);
    assert_int_equal(judge(6).count, 0);
}

/* From the fastest to the slowest 12 %. */
static void peers_may_differ_for_ever(void **state)
{
    (void)state;
    make(0.002, 0, 0.005, 0);
    assert_int_equal(judge(20).count, 0);
}

static void a_rank_that_becomes_slow_in_noise_is_found(void **state)
{
    struct sl_suspects found;

    (void)state;
    make(0.02, 0, 0, 0.2);
    found = judge(25);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].rank, SLOW);
    assert_true(found.list[0].onset >= FROM - 3 && found.list[0].onset <= FROM + 3);
    assert_true(found.list[0].alarm < FROM + 40);
    assert_true(fabs(found.list[0].ratio - exp(0.2)) < 0.05);
    assert_int_equal(found.list[0].peer_count, RANKS - 1);
    free(found.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_ranks_in_noise_are_left_alone),
        cmocka_unit_test(steps_that_inherit_noise_make_no_alarm),
        cmocka_unit_test(peers_may_differ_for_ever),
        cmocka_unit_test(a_rank_that_becomes_slow_in_noise_is_found),
    };

    return cmocka_run_group_tests_name("diagnosis_peers", tests, NULL, NULL);
}
