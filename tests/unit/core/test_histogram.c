/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles from bins of powers of two. */
#include "core/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void a_time_falls_into_the_bin_of_its_power_of_two(void **state)
{
    (void)state;
    assert_int_equal(sl_histogram_bin(0), 0);
    assert_int_equal(sl_histogram_bin(1), 1);
    assert_int_equal(sl_histogram_bin(2), 2);
    assert_int_equal(sl_histogram_bin(3), 2);
    assert_int_equal(sl_histogram_bin(4), 3);
    assert_int_equal(sl_histogram_bin(1023), 10);
    assert_int_equal(sl_histogram_bin(1024), 11);
    assert_int_equal(sl_histogram_bin((UINT64_C(1) << 31) - 1), 31);
    assert_int_equal(sl_histogram_bin(UINT64_C(1) << 31), 31);
    assert_int_equal(sl_histogram_bin(UINT64_MAX), 31);
}

static void an_empty_histogram_says_0(void **state)
{
    uint64_t bins[SL_HISTOGRAM_BINS] = {0};

    (void)state;
    assert_int_equal(sl_histogram_total(bins), 0);
    assert_float_equal(sl_histogram_percentile(bins, 50), 0, 0);
    assert_float_equal(sl_histogram_percentile(bins, 100), 0, 0);
}

static void times_lie_evenly_in_their_bin(void **state)
{
    uint64_t bins[SL_HISTOGRAM_BINS] = {[11] = 100}; /* from 1024 to below 2048 */

    (void)state;
    assert_float_equal(sl_histogram_percentile(bins, 0), 1024, 0.01);
    assert_float_equal(sl_histogram_percentile(bins, 50), 1536, 0.01);
    assert_float_equal(sl_histogram_percentile(bins, 100), 2048, 0.01);
}

static void a_percentile_is_found_behind_empty_bins(void **state)
{
    uint64_t bins[SL_HISTOGRAM_BINS] = {[0] = 10, [5] = 80, [21] = 10};

    (void)state;
    assert_int_equal(sl_histogram_total(bins), 100);
    assert_float_equal(sl_histogram_percentile(bins, 10), 0, 0);
    assert_float_equal(sl_histogram_percentile(bins, 50), 16 + 16 * 0.5, 0.01);
    assert_float_equal(sl_histogram_percentile(bins, 90), 32, 0.01);
    assert_float_equal(sl_histogram_percentile(bins, 99), 1048576 * 1.9, 1);
}

/* Against all times sorted: never off by more than the width of a bin. */
static void a_percentile_is_right_within_a_factor_of_two(void **state)
{
    uint64_t bins[SL_HISTOGRAM_BINS] = {0};

    (void)state;
    for (uint64_t ns = 1; ns <= 100000; ns++)
        bins[sl_histogram_bin(ns)]++;
    for (unsigned percent = 1; percent <= 100; percent++) {
        double exact = percent * 1000.0, said = sl_histogram_percentile(bins, percent);

        assert_true(said > exact / 2 && said < exact * 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_falls_into_the_bin_of_its_power_of_two),
        cmocka_unit_test(an_empty_histogram_says_0),
        cmocka_unit_test(times_lie_evenly_in_their_bin),
        cmocka_unit_test(a_percentile_is_found_behind_empty_bins),
        cmocka_unit_test(a_percentile_is_right_within_a_factor_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
