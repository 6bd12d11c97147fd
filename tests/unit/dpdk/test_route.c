/* SPDX-License-Identifier: Apache-2.0 */
/* Routes: which carries what, which is given up, and when it is back. */
#include "tests/unit/dpdk/hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct hand hand;
static uint32_t came[4]; /* packets by each route, as the peer counts */

static void start(unsigned routes)
{
    struct sl_dp_ends ends = hand_ends;

    ends.routes = (uint8_t)routes;
    hand_start(&hand, &ends);
    for (unsigned i = 0; i < 4; i++)
        came[i] = 0;
}

static unsigned by(unsigned route, unsigned from)
{
    unsigned count = 0;

    for (unsigned i = from; i < hand.count; i++)
        count += hand.sent[i % HAND_SENT].head.kind_version >> 4 == SL_DP_DATA &&
                 hand.sent[i % HAND_SENT].route == route;
    return count;
}

/* The peer answers all that went since `from`, but for one route's. */
static void answer_but(unsigned dead, unsigned from)
{
    uint32_t seq = hand.flow->una;

    for (unsigned i = from; i < hand.count; i++) {
        const struct hand_packet *packet = &hand.sent[i % HAND_SENT];
        uint32_t one = packet->head.seq;

        if (packet->head.kind_version >> 4 != SL_DP_DATA || packet->route == dead)
            continue;
        seq = hand.flow->una;
        came[packet->route]++;
        if (one == seq)
            hand_ack(&hand, packet->route, seq + 1, packet->head.stamp, one, came[packet->route],
                     0);
        else if (one > seq && one - seq <= 64)
            hand_ack(&hand, packet->route, seq, packet->head.stamp, one, came[packet->route],
                     UINT64_C(1) << (one - seq - 1));
    }
}

static void packets_are_spread_over_routes_that_are_alike(void **state)
{
    start(4);
    hand_post(&hand, 1, 32000);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(by(i, 0), 8);
    hand_stop(&hand);
}

static void a_route_of_less_weight_gets_less_and_one_that_is_avoided_nothing(void **state)
{
    start(3);
    sl_dp_route_weight(hand.flow, 1, 25, false);
    sl_dp_route_weight(hand.flow, 2, 100, true);
    hand_post(&hand, 1, 60000);
    assert_int_equal(by(2, 0), 0);
    assert_in_range(by(1, 0), 8, 16);
    assert_in_range(by(0, 0), 44, 52);
    hand_stop(&hand);
    start(2);
    sl_dp_route_weight(hand.flow, 0, 100, true);
    sl_dp_route_weight(hand.flow, 1, 100, true);
    hand_post(&hand, 1, 4000); /* nothing better is there */
    assert_int_equal(hand.count, 4);
    hand_stop(&hand);
}

static void the_route_with_the_shorter_way_is_taken(void **state)
{
    unsigned from;

    start(2);
    hand_post(&hand, 1, 8000);
    hand.now_ns += 10000;
    hand_ack(&hand, 0, 4, 3, 3, 4, 0);
    hand.now_ns += 990000;
    hand_ack(&hand, 1, 8, 3, 7, 4, 0);
    from = hand.count;
    for (unsigned i = 0; i < 10; i++)
        hand_post(&hand, 2 + i, 1000);
    assert_int_equal(by(0, from), 10);
    hand_stop(&hand);
}

/* Lets route 0 die while route 1 answers, until route 0 is given up. */
static void kill_first(void)
{
    struct sl_dp_route_stats route;
    unsigned from = 0;

    for (unsigned i = 0; i < 2000 && hand.downs == 0; i++) {
        if (!sl_dp_busy(hand.flow))
            hand_post(&hand, i, 16000);
        hand_run(&hand, 100000);
        answer_but(0, from);
        from = hand.count;
    }
    assert_int_equal(hand.downs, 1);
    assert_in_range(hand.flow->stats.timeouts, 2, 3);
    sl_dp_route_stats(hand.flow, 0, &route);
    assert_false(route.is_up);
    assert_int_equal(route.failures, 1);
    hand_run(&hand, 100000);
    answer_but(0, from);
    assert_int_equal(hand.flow->route[0].flying.count, 0);
}

static void a_route_that_times_out_twice_is_given_up_and_the_other_carries_its_packets(void **state)
{
    unsigned from;

    start(2);
    kill_first();
    from = hand.count;
    hand_post(&hand, 99, 8000);
    assert_int_equal(by(0, from), 0);
    assert_int_equal(by(1, from), 8);
    hand_stop(&hand);
}

static void it_is_back_when_three_probes_in_a_row_were_answered(void **state)
{
    unsigned inits;

    start(2);
    kill_first();
    inits = hand_cc_log.inits;
    for (unsigned i = 0; i < 3; i++) {
        unsigned from = hand.count;

        assert_int_equal(hand.ups, 0);
        hand_idle(&hand, i == 0 ? 12 * HAND_MS : 2 * HAND_MS, HAND_MS / 4);
        assert_int_equal(hand_count(&hand, SL_DP_PROBE, from), 1);
        assert_int_equal(hand_last(&hand, SL_DP_PROBE, from)->route, 0);
        hand_probe_reply(&hand, 0, hand_last(&hand, SL_DP_PROBE, from)->head.stamp, 1000);
    }
    assert_int_equal(hand.ups, 1);
    assert_int_equal(hand_cc_log.inits, inits + 1);
    hand_stop(&hand);
}

static void an_answer_that_is_old_or_short_counts_nothing(void **state)
{
    uint16_t stamp;

    start(2);
    kill_first();
    hand_idle(&hand, 30 * HAND_MS, HAND_MS / 2);
    stamp = hand_last(&hand, SL_DP_PROBE, 0)->head.stamp;
    hand_probe_reply(&hand, 0, stamp, 999);
    hand_probe_reply(&hand, 0, (uint16_t)(stamp - 1), 1000);
    assert_int_equal(hand.flow->route[0].answers, 0);
    hand_probe_reply(&hand, 0, stamp, 1000);
    hand_probe_reply(&hand, 0, stamp, 1000); /* doubled */
    assert_int_equal(hand.flow->route[0].answers, 1);
    hand_stop(&hand);
}

static void probes_become_rarer(void **state)
{
    unsigned first, second;

    start(2);
    kill_first();
    first = hand.count;
    hand_idle(&hand, 500 * HAND_MS, HAND_MS);
    second = hand.count;
    assert_in_range(hand_count(&hand, SL_DP_PROBE, first), 4, 6); /* 10, 20, 40 ... ms */
    hand_idle(&hand, 2000 * HAND_MS, HAND_MS);
    assert_in_range(hand_count(&hand, SL_DP_PROBE, second), 1, 3);
    hand_stop(&hand);
}

static void the_last_route_is_not_given_up(void **state)
{
    start(1);
    hand_post(&hand, 1, 3000);
    hand_idle(&hand, 900 * HAND_MS, HAND_MS);
    assert_true(hand.flow->stats.timeouts > 2);
    assert_int_equal(hand.downs, 0);
    hand_stop(&hand);
    /* Nor are all of several. */
    start(3);
    hand_post(&hand, 1, 30000);
    hand_idle(&hand, 900 * HAND_MS, HAND_MS);
    assert_int_equal(hand.downs, 0);
    hand_stop(&hand);
}

static void a_route_that_loses_much_more_than_the_others_is_given_up(void **state)
{
    unsigned from;

    start(2);
    hand_post(&hand, 1, 8000);
    from = hand.count;
    hand.flow->route[0].judged = 200;
    hand.flow->route[0].loss_ppm = 60000;
    hand.flow->route[1].loss_ppm = 20000;
    sl_dp_route_judge(hand.flow, &hand.flow->route[0]);
    assert_int_equal(hand.downs, 0); /* the other one is bad, too */
    hand.flow->route[1].loss_ppm = 5000;
    hand.flow->route[0].judged = 100;
    sl_dp_route_judge(hand.flow, &hand.flow->route[0]);
    assert_int_equal(hand.downs, 0); /* too early to tell */
    hand.flow->route[0].judged = 200;
    sl_dp_route_judge(hand.flow, &hand.flow->route[0]);
    assert_int_equal(hand.downs, 1);
    hand_run(&hand, 1000); /* what is under way there is not waited for */
    assert_int_equal(by(0, from), 0);
    assert_int_equal(by(1, from), 4);
    hand_stop(&hand);
}

static void given_up_again_soon_it_waits_longer(void **state)
{
    start(2);
    for (unsigned i = 0; i < 5; i++) {
        struct sl_dp_route *route = &hand.flow->route[0];

        route->judged = 200;
        route->loss_ppm = 200000;
        sl_dp_route_judge(hand.flow, route);
        assert_int_equal(hand.downs, i + 1);
        assert_true(route->patience_ns == 10 * HAND_MS << i);
        for (unsigned n = 0; n < 3; n++)
            sl_dp_route_answered(hand.flow, route);
        assert_int_equal(hand.ups, i + 1);
    }
    hand_idle(&hand, 64 * 160 * HAND_MS, 10 * HAND_MS);
    hand.flow->route[0].judged = 200;
    hand.flow->route[0].loss_ppm = 200000;
    sl_dp_route_judge(hand.flow, &hand.flow->route[0]);
    assert_true(hand.flow->route[0].patience_ns == 10 * HAND_MS);
    hand_stop(&hand);
}

/* It loses so much that it is given up now. */
static void give_up(unsigned idx)
{
    unsigned downs = hand.downs;

    hand.flow->route[idx].judged = 200;
    hand.flow->route[idx].loss_ppm = 200000;
    sl_dp_route_judge(hand.flow, &hand.flow->route[idx]);
    assert_int_equal(hand.downs, downs + 1);
}

static void a_route_that_is_back_has_its_weight_and_no_history(void **state)
{
    struct sl_dp_route *route;
    unsigned from;

    start(2);
    route = &hand.flow->route[0];
    sl_dp_route_weight(hand.flow, 0, 25, false);
    give_up(0);
    route->timeouts = 3;
    route->large_lost = 5;
    route->is_probed = true;
    for (unsigned i = 0; i < 3; i++)
        sl_dp_route_answered(hand.flow, route);
    assert_int_equal(hand.ups, 1);
    assert_int_equal(route->weight, 25);
    assert_int_equal(route->loss_ppm, 0);
    assert_int_equal(route->judged, 0);
    assert_int_equal(route->timeouts, 0);
    assert_int_equal(route->large_lost, 0);
    assert_false(route->is_probed);
    from = hand.count;
    hand_post(&hand, 1, 60000);
    assert_in_range(by(0, from), 8, 16);
    hand_stop(&hand);
}

/* Time goes on until a probe goes by that route, which is answered or not. */
static void next_probe(unsigned route, bool is_answered)
{
    unsigned from = hand.count;
    const struct hand_packet *probe = NULL;

    for (unsigned i = 0; i < 4000 && probe == NULL; i++) {
        hand_run(&hand, HAND_MS / 4);
        probe = hand_last(&hand, SL_DP_PROBE, from);
    }
    assert_non_null(probe);
    assert_int_equal(probe->route, route);
    assert_int_equal(probe->payload_len, 1000); /* as DATA would be */
    if (is_answered)
        hand_probe_reply(&hand, route, probe->head.stamp, 1000);
}

static void answers_count_in_a_row_alone(void **state)
{
    start(2);
    kill_first();
    next_probe(0, true);
    next_probe(0, true);
    next_probe(0, false);
    next_probe(0, true); /* the third, but one was missing */
    assert_int_equal(hand.flow->route[0].answers, 1);
    assert_int_equal(hand.ups, 0);
    next_probe(0, true);
    next_probe(0, true);
    assert_int_equal(hand.ups, 1);
    hand_stop(&hand);
}

/* The peer says that it has all that was sent. */
static void answer_all(unsigned route)
{
    const struct sl_dp_flow *flow = hand.flow;

    hand_ack(&hand, route, flow->next, flow->route[route].sent - 1, flow->next - 1,
             flow->route[route].sent, 0);
    assert_false(sl_dp_busy(flow));
}

static void probes_become_no_rarer_than_one_a_second(void **state)
{
    unsigned from;

    start(2);
    kill_first();
    answer_all(1);
    hand_idle(&hand, 20000 * HAND_MS, 10 * HAND_MS);
    from = hand.count;
    hand_idle(&hand, 10000 * HAND_MS, 10 * HAND_MS);
    assert_in_range(hand_count(&hand, SL_DP_PROBE, from), 9, 11);
    hand_stop(&hand);
}

static void of_several_that_were_given_up_each_is_probed_in_its_time(void **state)
{
    start(3);
    give_up(1);
    hand_idle(&hand, 5 * HAND_MS, HAND_MS / 4);
    give_up(0);
    hand_idle(&hand, 5 * HAND_MS + HAND_MS / 2, HAND_MS / 4);
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 0), 1);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, 0)->route, 1);
    hand_idle(&hand, 5 * HAND_MS, HAND_MS / 4);
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 0), 2);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, 0)->route, 0);
    hand_stop(&hand);
}

/* Until so many timeouts, while nothing by `dead` is answered. */
static void until_timeouts(unsigned dead, unsigned timeouts)
{
    unsigned from = hand.count;

    for (unsigned i = 0; i < 2000 && hand.flow->stats.timeouts < timeouts; i++) {
        if (!sl_dp_busy(hand.flow))
            hand_post(&hand, i, 16000);
        hand_run(&hand, 100000);
        if (hand.flow->stats.timeouts < timeouts)
            answer_but(dead, from);
        from = hand.count;
    }
    assert_int_equal(hand.flow->stats.timeouts, timeouts);
}

static void when_all_that_are_up_time_out_those_that_were_given_up_are_probed_at_once(void **state)
{
    const struct sl_dp_route *first;
    uint64_t retry_ns;
    unsigned from;

    start(2);
    first = &hand.flow->route[0];
    kill_first();
    answer_all(1);
    hand_idle(&hand, 1000 * HAND_MS, HAND_MS);
    assert_true(first->patience_ns > 100 * HAND_MS);
    hand_post(&hand, 99, 8000);
    from = hand.count;
    until_timeouts(1, hand.flow->stats.timeouts + 1);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, from)->route, 0);
    assert_true(first->patience_ns == 20 * HAND_MS); /* the one before was not answered */
    hand_stop(&hand);
    /* Not while another one works. */
    start(3);
    first = &hand.flow->route[0];
    kill_first();
    answer_all(1);
    hand_idle(&hand, 1000 * HAND_MS, HAND_MS);
    retry_ns = first->retry_ns;
    assert_true(retry_ns > hand.now_ns + 50 * HAND_MS);
    until_timeouts(1, hand.flow->stats.timeouts + 1);
    assert_true(first->retry_ns == retry_ns);
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_are_spread_over_routes_that_are_alike),
        cmocka_unit_test(a_route_of_less_weight_gets_less_and_one_that_is_avoided_nothing),
        cmocka_unit_test(the_route_with_the_shorter_way_is_taken),
        cmocka_unit_test(
            a_route_that_times_out_twice_is_given_up_and_the_other_carries_its_packets),
        cmocka_unit_test(it_is_back_when_three_probes_in_a_row_were_answered),
        cmocka_unit_test(an_answer_that_is_old_or_short_counts_nothing),
        cmocka_unit_test(probes_become_rarer),
        cmocka_unit_test(the_last_route_is_not_given_up),
        cmocka_unit_test(a_route_that_loses_much_more_than_the_others_is_given_up),
        cmocka_unit_test(given_up_again_soon_it_waits_longer),
        cmocka_unit_test(a_route_that_is_back_has_its_weight_and_no_history),
        cmocka_unit_test(answers_count_in_a_row_alone),
        cmocka_unit_test(probes_become_no_rarer_than_one_a_second),
        cmocka_unit_test(of_several_that_were_given_up_each_is_probed_in_its_time),
        cmocka_unit_test(when_all_that_are_up_time_out_those_that_were_given_up_are_probed_at_once),
    };

    return cmocka_run_group_tests_name("dpdk_route", tests, NULL, NULL);
}
