/* SPDX-License-Identifier: Apache-2.0 */
/* The sequential test: what its false alarms cost, and how soon it sees slowness. */
#include "core/rng.h"
#include "monitor/diagnosis/change.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Student's distribution with 3 degrees of freedom: normal over the root of a mean of squares. */
static double normal_of(struct sl_rng *rng)
{
    double a = ((double)sl_rng_below(rng, 1u << 30) + 1) / (1u << 30);
    double b = (double)sl_rng_below(rng, 1u << 30) / (1u << 30);

    return sqrt(-2 * log(a)) * cos(2 * M_PI * b);
}

static double student_of(struct sl_rng *rng)
{
    double top = normal_of(rng), sum = 0;

    for (int i = 0; i < 3; i++) {
        double x = normal_of(rng);

        sum += x * x;
    }
    return top / sqrt(sum / 3);
}

static void the_threshold_is_that_of_the_budget(void **state)
{
    (void)state;
    assert_true(fabs(sl_change_threshold(10000, 8, 2, 1) - 23.35) < 0.01);
    assert_true(fabs(sl_change_threshold(10000, 8, 2, 46) - 19.52) < 0.01);
}

static void is_fair(unsigned bet, double pauses)
{
    struct sl_change change;
    double mean, last = -10;

    sl_change_begin(&change, 1000, pauses, 300);
    mean = bet > 0 ? pauses * exp(sl_change_gain(&change, bet, 1e6)) : 0;
    for (double z = -2000.005; z < 2000; z += 0.01) {
        double square = 1 + z * z / 3, gain = sl_change_gain(&change, bet, z);

        assert_true(gain >= last); /* so a lighter tail is safe as well */
        last = gain;
        mean += (1 - pauses) * exp(gain) * 2 / (M_PI * sqrt(3) * square * square) * 0.01;
    }
    /* Of the bet on any slowness, pauses are spread as slowness is: half of it is theirs. */
    assert_true(mean <= 1.01 && mean > (bet == 0 && pauses > 0 ? 0.4 : 0.9));
}

static void each_bet_is_fair_while_the_rank_is_healthy(void **state)
{
    (void)state;
    for (unsigned bet = 0; bet < SL_CHANGE_BETS; bet++) {
        is_fair(bet, 0);
        is_fair(bet, 0.01);
    }
}

static void false_alarms_are_rarer_than_the_threshold_says(void **state)
{
    struct sl_rng rng;
    double steps = 0;
    enum { RUNS = 200 };

    (void)state;
    sl_rng_init(&rng, 7);
    for (int run = 0; run < RUNS; run++) {
        struct sl_change change;

        sl_change_begin(&change, 5, 0, 300); /* e^5: once in 148 steps */
        while (!change.is_alarm && change.steps < 3000)
            sl_change_step(&change, student_of(&rng));
        steps += change.steps;
    }
    assert_true(steps / RUNS > 148);
}

static void slowness_by_half_is_seen_in_the_third_step(void **state)
{
    struct sl_change change;

    (void)state;
    sl_change_begin(&change, 19.5, 0, 300);
    for (int i = 0; i < 100; i++)
        sl_change_step(&change, 0.5);
    assert_true(change.sum <= 0 && !change.is_alarm);
    for (int i = 0; i < 5; i++)
        sl_change_step(&change, 40);
    assert_true(change.is_alarm);
    assert_int_equal(change.onset, 100);
    assert_int_equal(change.alarm, 102);
}

static void two_pauses_are_no_alarm_however_long(void **state)
{
    struct sl_change change;

    (void)state;
    sl_change_begin(&change, 19.5, 0, 300);
    sl_change_step(&change, 1e9);
    sl_change_step(&change, 1e9);
    assert_false(change.is_alarm);
    for (int i = 0; i < 20; i++)
        sl_change_step(&change, 0);
    assert_true(change.sum <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_threshold_is_that_of_the_budget),
        cmocka_unit_test(each_bet_is_fair_while_the_rank_is_healthy),
        cmocka_unit_test(false_alarms_are_rarer_than_the_threshold_says),
        cmocka_unit_test(slowness_by_half_is_seen_in_the_third_step),
        cmocka_unit_test(two_pauses_are_no_alarm_however_long),
    };

    return cmocka_run_group_tests_name("diagnosis_change", tests, NULL, NULL);
}
