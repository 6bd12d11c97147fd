/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rng.h"
#include "schedules/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 64

static bool near(double a, double b, double most)
{
    return a - b < most && b - a < most;
}

static double share_of(const uint64_t *ends, uint32_t i)
{
    return (double)(ends[i] - (i == 0 ? 0 : ends[i - 1])) / SL_SHARES_ONE;
}

/* How long a rank's links are busy with that share. */
static double busy(double share, double speed, uint32_t size, uint32_t own_parts)
{
    return (1.0 / own_parts + share * (size - 2)) / speed;
}

static void equal_links_have_equal_shares(void **state)
{
    uint64_t ends[RANKS], without[RANKS];
    uint16_t speed[RANKS];

    (void)state;
    for (uint32_t n = 2; n <= RANKS; n++) {
        for (uint32_t i = 0; i < n; i++)
            speed[i] = 700;
        sl_shares_level(speed, n, n % 2 == 0 ? 1 : n, ends);
        sl_shares_level(NULL, n, 1, without);
        assert_memory_equal(ends, without, n * sizeof(*ends));
        assert_int_equal(ends[n - 1], SL_SHARES_ONE);
        assert_true(near(share_of(ends, n / 2), 1.0 / n, 1e-5));
    }
}

static void one_link_of_eight_less_is_the_share_that_levels(void **state)
{
    const uint16_t speed[4] = {1000, 875, 1000, 1000};
    uint64_t ends[4];

    (void)state;
    sl_shares_level(speed, 4, 1, ends);
    /* T = 6 / 3.875; w = (T * 0.875 - 1) / 2 */
    assert_true(near(share_of(ends, 1), (6 / 3.875 * 0.875 - 1) / 2, 1e-5));
    assert_true(near(share_of(ends, 0), (6 / 3.875 - 1) / 2, 1e-5));
}

static void half_of_the_links_leave_no_share(void **state)
{
    const uint16_t speed[4] = {1000, 1000, 500, 1000};
    uint64_t ends[4];

    (void)state;
    sl_shares_level(speed, 4, 1, ends);
    assert_int_equal(ends[2], ends[1]);
    assert_true(near(share_of(ends, 3), 1.0 / 3, 1e-5));
    /* Of blocks it still sums some: its own costs a fourth of that. */
    sl_shares_level(speed, 4, 4, ends);
    assert_true(near(share_of(ends, 2), (12 / 3.5 * 0.5 - 1) / 2 / 4, 1e-5));
}

static void any_links_are_busy_for_the_same_time(void **state)
{
    uint64_t ends[RANKS];
    uint16_t speed[RANKS];
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 11);
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t n = (uint32_t)sl_rng_range(&rng, 3, RANKS);
        uint32_t own_parts = round % 2 == 0 ? 1 : n;
        double least = 1e9, most = 0, idle = 1e9;

        for (uint32_t i = 0; i < n; i++)
            speed[i] = (uint16_t)sl_rng_range(&rng, 1, SL_SPEED_MAX);
        sl_shares_level(speed, n, own_parts, ends);
        assert_int_equal(ends[n - 1], SL_SHARES_ONE);
        for (uint32_t i = 0; i < n; i++) {
            double share = share_of(ends, i), time = busy(share, speed[i], n, own_parts);

            assert_true(share >= 0);
            if (share > 0.002) {
                least = time < least ? time : least;
                most = time > most ? time : most;
            } else if (share == 0) {
                idle = time < idle ? time : idle;
            }
        }
        assert_true(most <= least * 1.02);
        assert_true(idle >= most * 0.98); /* none has time to spare */
    }
}

static void the_largest_inputs_do_not_overflow(void **state)
{
    static uint16_t speed[SL_SHARES_RANKS_MAX];
    static uint64_t ends[SL_SHARES_RANKS_MAX];

    (void)state;
    for (uint32_t i = 0; i < SL_SHARES_RANKS_MAX; i++)
        speed[i] = SL_SPEED_MAX;
    speed[0] = SL_SPEED_MAX - 1;
    sl_shares_level(speed, SL_SHARES_RANKS_MAX, SL_SHARES_RANKS_MAX, ends);
    for (uint32_t i = 0; i < SL_SHARES_RANKS_MAX; i++)
        assert_true(near(share_of(ends, i) * SL_SHARES_RANKS_MAX, 1, 0.01));
    assert_int_equal(ends[SL_SHARES_RANKS_MAX - 1], SL_SHARES_ONE);
}

static void cuts_are_exact_at_the_end_and_rise(void **state)
{
    const uint64_t counts[] = {1, 3, SL_SHARES_ONE - 1, SL_SHARES_ONE + 7, UINT64_C(1) << 40};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint64_t before = 0;

        for (uint64_t end = 0; end <= SL_SHARES_ONE; end += SL_SHARES_ONE / 16) {
            uint64_t cut = sl_shares_cut(counts[i], end);

            assert_true(cut >= before && cut <= counts[i]);
            before = cut;
        }
        assert_int_equal(before, counts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_links_have_equal_shares),
        cmocka_unit_test(one_link_of_eight_less_is_the_share_that_levels),
        cmocka_unit_test(half_of_the_links_leave_no_share),
        cmocka_unit_test(any_links_are_busy_for_the_same_time),
        cmocka_unit_test(the_largest_inputs_do_not_overflow),
        cmocka_unit_test(cuts_are_exact_at_the_end_and_rise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
