/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow and its routes tell of themselves. */
#include "tests/unit/dpdk/hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct hand hand;

static void a_flow_counts_what_it_sent_and_got(void **state)
{
    struct sl_dp_flow_stats stats;

    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 2500);
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 0, 2, 2, 1, 2); /* 2 came, 0 and 1 did not */
    hand_run(&hand, 200000);
    hand_data(&hand, (struct sl_dp_head){.flags = SL_DP_FLAG_LAST}, 1, 10);
    hand_data(&hand, (struct sl_dp_head){.flags = SL_DP_FLAG_LAST}, 1, 10);
    hand_run(&hand, 1000);
    sl_dp_flow_stats(hand.flow, &stats);
    assert_int_equal(stats.sent_packets, 5);
    assert_int_equal(stats.resent_packets, 2);
    assert_int_equal(stats.sent_bytes, 4500);
    assert_int_equal(stats.received_packets, 2);
    assert_int_equal(stats.repeated_packets, 1);
    assert_int_equal(stats.acks_sent, 1);
    assert_int_equal(stats.acks_received, 1);
    assert_int_equal(stats.payload_bytes, 1000);
    hand_stop(&hand);
}

static void a_route_tells_its_time_loss_and_window(void **state)
{
    struct sl_dp_route_stats route;

    hand_cc_log.window = 10;
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 2500);
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 0, 2, 2, 1, 2);
    hand_run(&hand, 200000);
    sl_dp_route_stats(hand.flow, 0, &route);
    assert_true(route.is_up);
    assert_in_range(route.rtt_ns, 99999, 100001);
    assert_in_range(route.rtt_least_ns, 99999, 100001);
    assert_int_equal(route.window_bytes, 10000);
    assert_int_equal(route.sent_packets, 5);
    assert_int_equal(route.lost_packets, 2);
    assert_in_range(route.loss_ppm, 3800, 3910); /* 2 of the last 512 */
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_counts_what_it_sent_and_got),
        cmocka_unit_test(a_route_tells_its_time_loss_and_window),
    };

    return cmocka_run_group_tests_name("dpdk_stats", tests, NULL, NULL);
}
