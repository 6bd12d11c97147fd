/* SPDX-License-Identifier: Apache-2.0 */
/* Each algorithm by itself, answer by answer. */
#include "core/rng.h"
#include "dpdk/cc/cc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define ONE SL_DP_CC_ONE
#define US UINT64_C(1000)

static const struct sl_dp_cc *const all[] = {&sl_dp_swift, &sl_dp_timely, &sl_dp_fixed};
#define ALL (sizeof(all) / sizeof(all[0]))

static struct sl_dp_cc_state state;
static uint64_t now_ns;

static void start(const struct sl_dp_cc *cc, uint32_t most)
{
    memset(&state, 0, sizeof(state));
    state.most = most;
    state.target_ns = 50 * US;
    now_ns = 1000;
    cc->init(&state);
}

/* An answer for all packets that the window lets go: a whole round trip. */
static void round_trip(const struct sl_dp_cc *cc, uint64_t rtt_ns, uint32_t marked)
{
    uint32_t packets = sl_dp_cc_packets(&state);
    struct sl_dp_cc_ack ack = {.now_ns = now_ns += rtt_ns,
                               .rtt_ns = rtt_ns,
                               .fabric_ns = rtt_ns,
                               .acked = packets,
                               .marked = marked < packets ? marked : packets,
                               .under_way = packets};
    cc->ack(&state, &ack);
}

static void one_answer(const struct sl_dp_cc *cc, uint64_t rtt_ns, uint64_t fabric_ns,
                       uint32_t under_way)
{
    struct sl_dp_cc_ack ack = {.now_ns = now_ns += 1000,
                               .rtt_ns = rtt_ns,
                               .fabric_ns = fabric_ns,
                               .acked = 1,
                               .under_way = under_way};
    cc->ack(&state, &ack);
}

/* Swift with a window of so many packets, and without one round trip's history. */
static void swift_at(uint32_t packets)
{
    start(&sl_dp_swift, packets);
    for (unsigned i = 0; i < 100 && state.window < packets * ONE; i++)
        round_trip(&sl_dp_swift, 12 * US, 0);
    assert_int_equal(packets * ONE, state.window);
    state.most = 1024;
}

static void swift_starts_by_doubling_until_half_of_the_target_is_seen(void **unused)
{
    start(&sl_dp_swift, 1024);
    assert_int_equal(16 * ONE, state.window);
    round_trip(&sl_dp_swift, 12 * US, 0);
    assert_int_equal(32 * ONE, state.window);
    round_trip(&sl_dp_swift, 40 * US, 0); /* 20 us of them are taken for the way */
    assert_int_equal(64 * ONE, state.window);
    round_trip(&sl_dp_swift, 50 * US, 0);
    assert_in_range(state.window, 64 * ONE + 1, 68 * ONE);
    round_trip(&sl_dp_swift, 12 * US, 0);
    assert_in_range(state.window, 65 * ONE, 72 * ONE);
}

static void swift_leaves_a_window_alone_that_is_not_used(void **unused)
{
    start(&sl_dp_swift, 1024);
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 5);
    assert_int_equal(16 * ONE, state.window);
    /* Used once, it may grow in this round trip and the next, as answers come in bursts. */
    one_answer(&sl_dp_swift, 12 * US, 12 * US, 16);
    for (unsigned i = 0; i < 10; i++)
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 5);
    assert_int_equal(27 * ONE, state.window);
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 5);
    uint32_t window = state.window;
    assert_in_range(window, 55 * ONE, 57 * ONE);
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 5);
    assert_int_equal(window, state.window);
}

static void swift_grows_a_spaced_window_though_it_is_seldom_all_under_way(void **unused)
{
    start(&sl_dp_swift, 4);
    state.most = 1024;
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 1);
    assert_true(state.window >= 8 * ONE);
}

static void swift_takes_no_single_delay_for_a_queue(void **unused)
{
    swift_at(64);
    for (unsigned i = 0; i < 640; i++) {
        uint64_t rtt_ns = i % 8 == 0 ? 12 * US : 900 * US; /* seven of eight are late */
        one_answer(&sl_dp_swift, rtt_ns, rtt_ns, 64);
    }
    assert_true(state.window >= 64 * ONE);
}

static void swift_cuts_a_window_to_half_of_the_target_and_once_per_round_trip(void **unused)
{
    swift_at(100);
    /* 60 us of queue with a way of 20: to leave 25, the window is 45/80 of what it was. */
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 80 * US, 80 * US, 100);
    assert_in_range(state.window, 55 * ONE, 58 * ONE);
    /* The others that were under way then say nothing new. */
    uint32_t window = state.window;
    for (unsigned i = 0; i < 99; i++)
        one_answer(&sl_dp_swift, 80 * US, 80 * US, 100 - i);
    assert_int_equal(window, state.window);
    for (unsigned i = 0; i < 58; i++)
        one_answer(&sl_dp_swift, 80 * US, 80 * US, 57);
    assert_in_range(state.window, window * 45 / 100, window * 75 / 100);
}

static void swift_never_halves_more_than_once_by_one_round_trip(void **unused)
{
    swift_at(100);
    round_trip(&sl_dp_swift, 50000 * US, 0);
    assert_int_equal(50 * ONE, state.window);
}

static void swift_does_not_count_the_time_that_an_end_was_away(void **unused)
{
    swift_at(100);
    for (unsigned i = 0; i < 1000; i++)
        one_answer(&sl_dp_swift, 8000 * US, 14 * US, 100);
    assert_true(state.window >= 100 * ONE);
    /* Nor is what was counted too much a shorter way than there is. */
    for (unsigned i = 0; i < 1000; i++)
        one_answer(&sl_dp_swift, 8000 * US, 1, 100);
    assert_int_equal(12 * US, state.least_ns);
}

static void swift_goes_down_by_half_of_the_share_of_marks(void **unused)
{
    swift_at(256);
    for (unsigned i = 0; i < 40; i++) /* a mark in a round trip without a queue */
        round_trip(&sl_dp_swift, 12 * US, 1);
    uint32_t few = state.window;
    assert_in_range(few, 100 * ONE, 1024 * ONE);
    for (unsigned i = 0; i < 100; i++)
        round_trip(&sl_dp_swift, 12 * US, 1024);
    assert_in_range(state.window, ONE / 2, 2 * ONE); /* marks alone do not go below one */
}

static void swift_does_not_answer_a_percent_of_loss(void **unused)
{
    swift_at(100);
    for (unsigned i = 0; i < 200; i++) {
        sl_dp_swift.loss(&state, 1, now_ns);
        round_trip(&sl_dp_swift, 12 * US, 0);
    }
    assert_true(state.window >= 100 * ONE);
}

static void swift_answers_more_loss_by_its_share_and_keeps_two_packets(void **unused)
{
    uint32_t before = 1024 * ONE;

    for (unsigned of = 20; of >= 5; of -= 5) { /* 5, 7, 10 and 20 % */
        start(&sl_dp_swift, 1024);
        for (unsigned i = 0; i < 20000; i++) {
            one_answer(&sl_dp_swift, 12 * US, 12 * US, sl_dp_cc_packets(&state));
            if (i % of == 0)
                sl_dp_swift.loss(&state, 1, now_ns);
        }
        assert_true(state.window <= before);
        assert_true(state.window >= 2 * ONE);
        before = state.window;
    }
    assert_true(before < 8 * ONE);
}

static void swift_takes_losses_with_a_queue_for_the_end_of_the_queue(void **unused)
{
    swift_at(100);
    for (unsigned i = 0; i < 50; i++)
        one_answer(&sl_dp_swift, 65 * US, 65 * US, 100); /* 45 us: below the target */
    assert_true(state.window >= 100 * ONE);
    sl_dp_swift.loss(&state, 1, now_ns);
    assert_in_range(state.window, 65 * ONE, 72 * ONE); /* to 25 us of queue */
    uint32_t window = state.window;
    sl_dp_swift.loss(&state, 5, now_ns); /* of the same round trip */
    assert_int_equal(window, state.window);
}

/* ---- packets that left before a cut ---- */

/* With a window of 100, and a queue below the target: a loss cuts it. */
static void swift_cut_by_loss(void)
{
    swift_at(100);
    for (unsigned i = 0; i < 50; i++)
        one_answer(&sl_dp_swift, 65 * US, 65 * US, 100);
    sl_dp_swift.loss(&state, 1, now_ns);
    assert_in_range(state.window, 65 * ONE, 72 * ONE);
}

static void swift_waits_for_no_answer_to_what_was_lost(void **unused)
{
    uint32_t window;

    swift_cut_by_loss();
    sl_dp_swift.loss(&state, 60, now_ns); /* some 40 of those that left before are to come */
    window = state.window;
    for (unsigned i = 0; i < 35; i++)
        one_answer(&sl_dp_swift, 90 * US, 90 * US, 68);
    assert_int_equal(window, state.window);
    for (unsigned i = 0; i < 25; i++)
        one_answer(&sl_dp_swift, 90 * US, 90 * US, 68);
    assert_true(state.window < window);
}

static void swift_hears_a_loss_once_they_are_all_answered(void **unused)
{
    uint32_t window;

    swift_cut_by_loss();
    for (unsigned i = 0; i < 2; i++) /* of more than are left of them */
        round_trip(&sl_dp_swift, 65 * US, 0);
    window = state.window;
    sl_dp_swift.loss(&state, 1, now_ns);
    assert_in_range(state.window, window * 6 / 10, window * 8 / 10);
}

static void swift_judges_no_round_by_what_left_before_it(void **unused)
{
    uint32_t window;

    swift_at(100);
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_swift, 80 * US, 80 * US, 100);
    window = state.window;
    assert_in_range(window, 55 * ONE, 58 * ONE);
    for (unsigned i = 0; i < 98; i++) /* without a queue */
        one_answer(&sl_dp_swift, 12 * US, 12 * US, 99 - i);
    for (unsigned i = 0; i < 60; i++)
        one_answer(&sl_dp_swift, 80 * US, 80 * US, 57);
    assert_true(state.window < window * 8 / 10);
}

/* ---- timeouts, pace and ways ---- */

static void swift_halves_at_a_timeout_and_starts_again_at_the_second(void **unused)
{
    swift_at(100);
    sl_dp_swift.timeout(&state, now_ns);
    assert_int_equal(50 * ONE, state.window);
    sl_dp_swift.timeout(&state, now_ns);
    assert_int_equal(ONE, state.window);
    one_answer(&sl_dp_swift, 12 * US, 12 * US, 1);
    assert_int_equal(2 * ONE, state.window);
    one_answer(&sl_dp_swift, 12 * US, 12 * US, 2);
    assert_int_equal(3 * ONE, state.window);
    /* The next one is a first one again. */
    sl_dp_swift.timeout(&state, now_ns);
    assert_int_equal(3 * ONE / 2, state.window);
}

static void swift_takes_back_a_timeout_when_an_end_was_away(void **unused)
{
    swift_at(100);
    sl_dp_swift.timeout(&state, now_ns);
    sl_dp_swift.timeout(&state, now_ns);
    one_answer(&sl_dp_swift, 60000 * US, 15 * US, 100);
    assert_true(state.window >= 100 * ONE);
}

static void swift_spaces_the_packets_of_a_small_window(void **unused)
{
    start(&sl_dp_swift, 16);
    for (unsigned i = 0; i < 30; i++)
        one_answer(&sl_dp_swift, 40 * US, 40 * US, 16);
    assert_int_equal(0, state.pace_ns);
    for (unsigned i = 0; i < 4000; i++)
        one_answer(&sl_dp_swift, 500 * US, (i & 1) != 0 ? 400 * US : 600 * US, 2);
    assert_int_equal(2 * ONE, state.window); /* no less by delay alone */
    assert_int_equal(2, sl_dp_cc_packets(&state));
    assert_in_range(state.pace_ns, 200 * US, 250 * US);
    for (unsigned i = 0; i < 4000; i++)
        round_trip(&sl_dp_swift, (i & 1) != 0 ? 400 * US : 600 * US, 1);
    assert_true(state.window < ONE);
    assert_int_equal(1, sl_dp_cc_packets(&state));
    /* As many round trips as the window's part says. */
    assert_in_range(state.pace_ns * state.window / ONE, 400 * US, 500 * US);
}

static void swift_believes_a_longer_way_when_round_trips_are_all_alike(void **unused)
{
    swift_at(100);
    unsigned rounds = 0;
    for (; rounds < 200 && state.window < 200 * ONE; rounds++)
        round_trip(&sl_dp_swift, 300 * US + rounds % 3 * 5 * US, 0);
    assert_in_range(rounds, 16, 24);
    /* But not when they go up and down as a queue does. */
    swift_at(100);
    for (rounds = 0; rounds < 400; rounds++)
        round_trip(&sl_dp_swift, 200 * US + rounds % 4 * 50 * US, 0);
    assert_true(state.window <= 2 * ONE);
    /* Nor with losses, a few now and then. */
    swift_at(100);
    for (rounds = 0; rounds < 400; rounds++) {
        round_trip(&sl_dp_swift, 300 * US, 0);
        if (rounds % 12 == 0)
            sl_dp_swift.loss(&state, 1, now_ns);
    }
    assert_true(state.window <= 2 * ONE);
    /* Nor with marks. */
    swift_at(100);
    for (rounds = 0; rounds < 400; rounds++)
        round_trip(&sl_dp_swift, 300 * US, 1);
    assert_true(state.window < ONE);
}

static void the_least_rtt_is_forgotten_after_a_while(void **unused)
{
    const struct sl_dp_cc *windowed[] = {&sl_dp_swift, &sl_dp_timely};

    for (unsigned i = 0; i < 2; i++) {
        start(windowed[i], 64);
        round_trip(windowed[i], 10 * US, 0);
        for (unsigned second = 0; second < 18; second++) {
            now_ns += 1000000 * US;
            round_trip(windowed[i], 17 * US, 0);
            assert_int_equal(10 * US, state.least_ns);
        }
        for (unsigned second = 0; second < 3; second++) {
            now_ns += 1000000 * US;
            round_trip(windowed[i], 17 * US, 0);
        }
        assert_int_equal(17 * US, state.least_ns);
    }
}

static void timely_goes_by_how_the_rtt_changes(void **unused)
{
    start(&sl_dp_timely, 1024);
    /* Below the target it grows, by more after five round trips. */
    round_trip(&sl_dp_timely, 12 * US, 0);
    assert_int_equal(17 * ONE, state.window);
    for (unsigned i = 0; i < 4; i++)
        round_trip(&sl_dp_timely, 12 * US, 0);
    uint32_t window = state.window;
    assert_int_equal(25 * ONE, window);
    round_trip(&sl_dp_timely, 12 * US, 0);
    assert_int_equal(window + 5 * ONE, state.window);
    /* Above, it shrinks while the RTT grows, and grows while it falls. */
    round_trip(&sl_dp_timely, 100 * US, 0);
    window = state.window;
    assert_true(window < 30 * ONE);
    round_trip(&sl_dp_timely, 80 * US, 0);
    assert_int_equal(window + ONE, state.window);
    /* Not used it does not grow. */
    window = state.window;
    for (unsigned i = 0; i < 100; i++)
        one_answer(&sl_dp_timely, 12 * US, 12 * US, 1);
    assert_int_equal(window, state.window);
    /* Above ten targets it shrinks anyhow. */
    for (unsigned i = 0; i < 20; i++)
        round_trip(&sl_dp_timely, 600 * US, 0);
    window = state.window;
    round_trip(&sl_dp_timely, 600 * US, 0);
    assert_true(state.window < window);
}

static void timely_takes_half_a_packet_off_for_each_that_is_lost(void **unused)
{
    start(&sl_dp_timely, 1024);
    sl_dp_timely.loss(&state, 3, now_ns);
    assert_int_equal(16 * ONE - 3 * ONE / 2, state.window);
    sl_dp_timely.loss(&state, 1000, now_ns);
    assert_int_equal((16 * ONE - 3 * ONE / 2) / 2, state.window);
    sl_dp_timely.timeout(&state, now_ns);
    assert_int_equal(ONE, state.window);
}

static void fixed_lets_go_what_the_flow_may_have_whatever_happens(void **unused)
{
    start(&sl_dp_fixed, 512);
    for (unsigned i = 0; i < 100; i++)
        round_trip(&sl_dp_fixed, 9000 * US, 512);
    sl_dp_fixed.loss(&state, 100, now_ns);
    sl_dp_fixed.timeout(&state, now_ns);
    assert_int_equal(512, sl_dp_cc_packets(&state));
    assert_int_equal(0, state.pace_ns);
    assert_int_equal(9000 * US, state.least_ns);
}

static void more_answered_than_was_sent_is_taken_for_all(void **unused)
{
    for (size_t i = 0; i < ALL; i++) {
        start(all[i], 64);
        one_answer(all[i], 12 * US, 12 * US, 16);
        struct sl_dp_cc_ack ack = {.now_ns = now_ns,
                                   .rtt_ns = 12 * US,
                                   .fabric_ns = 12 * US,
                                   .acked = UINT32_MAX,
                                   .under_way = 16};
        all[i]->ack(&state, &ack);
        ack.marked = UINT32_MAX;
        all[i]->ack(&state, &ack);
        all[i]->loss(&state, UINT32_MAX, now_ns);
        assert_in_range(state.window, ONE, 64 * ONE);
    }
}

/* A number of any size, small ones as often as large ones. */
static uint64_t any(struct sl_rng *rng)
{
    return sl_rng_u64(rng) >> sl_rng_below(rng, 64);
}

static void whatever_is_told_a_window_keeps_its_limits(void **unused)
{
    struct sl_rng rng;

    for (size_t i = 0; i < ALL; i++) {
        sl_rng_init(&rng, 7);
        for (unsigned run = 0; run < 50; run++) {
            start(all[i], (uint32_t)sl_rng_range(&rng, 1, 1024));
            state.target_ns = any(&rng) >> 16;
            all[i]->init(&state);
            for (unsigned step = 0; step < 2000; step++) {
                struct sl_dp_cc_ack ack = {.now_ns = now_ns += any(&rng) >> 24,
                                           .rtt_ns = any(&rng),
                                           .fabric_ns = any(&rng),
                                           .acked = (uint32_t)any(&rng),
                                           .marked = (uint32_t)any(&rng),
                                           .under_way = (uint32_t)any(&rng)};
                switch (sl_rng_below(&rng, 16)) {
                case 0: all[i]->loss(&state, (uint32_t)any(&rng), now_ns); break;
                case 1: all[i]->timeout(&state, now_ns); break;
                default: all[i]->ack(&state, &ack); break;
                }
                assert_in_range(state.window, ONE / 64, state.most * ONE);
                assert_true(state.pace_ns <= 64 * (uint64_t)UINT32_MAX);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swift_starts_by_doubling_until_half_of_the_target_is_seen),
        cmocka_unit_test(swift_leaves_a_window_alone_that_is_not_used),
        cmocka_unit_test(swift_grows_a_spaced_window_though_it_is_seldom_all_under_way),
        cmocka_unit_test(swift_takes_no_single_delay_for_a_queue),
        cmocka_unit_test(swift_cuts_a_window_to_half_of_the_target_and_once_per_round_trip),
        cmocka_unit_test(swift_never_halves_more_than_once_by_one_round_trip),
        cmocka_unit_test(swift_does_not_count_the_time_that_an_end_was_away),
        cmocka_unit_test(swift_goes_down_by_half_of_the_share_of_marks),
        cmocka_unit_test(swift_does_not_answer_a_percent_of_loss),
        cmocka_unit_test(swift_answers_more_loss_by_its_share_and_keeps_two_packets),
        cmocka_unit_test(swift_takes_losses_with_a_queue_for_the_end_of_the_queue),
        cmocka_unit_test(swift_waits_for_no_answer_to_what_was_lost),
        cmocka_unit_test(swift_hears_a_loss_once_they_are_all_answered),
        cmocka_unit_test(swift_judges_no_round_by_what_left_before_it),
        cmocka_unit_test(swift_halves_at_a_timeout_and_starts_again_at_the_second),
        cmocka_unit_test(swift_takes_back_a_timeout_when_an_end_was_away),
        cmocka_unit_test(swift_spaces_the_packets_of_a_small_window),
        cmocka_unit_test(swift_believes_a_longer_way_when_round_trips_are_all_alike),
        cmocka_unit_test(the_least_rtt_is_forgotten_after_a_while),
        cmocka_unit_test(timely_goes_by_how_the_rtt_changes),
        cmocka_unit_test(timely_takes_half_a_packet_off_for_each_that_is_lost),
        cmocka_unit_test(fixed_lets_go_what_the_flow_may_have_whatever_happens),
        cmocka_unit_test(more_answered_than_was_sent_is_taken_for_all),
        cmocka_unit_test(whatever_is_told_a_window_keeps_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
