/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as lost, and when; what the congestion control hears. */
#include "tests/unit/dpdk/hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hand hand;

#define RTT_NS UINT64_C(100000)

/* One message of so many packets, and an RTT that is known: packet 0 was acknowledged. */
static void start(unsigned packets, unsigned routes)
{
    struct sl_dp_ends ends = hand_ends;

    ends.routes = (uint8_t)routes;
    hand_start(&hand, &ends);
    hand_post(&hand, 1, 10);
    hand.now_ns += RTT_NS;
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    hand_run(&hand, 0);
    assert_int_equal(hand.retired, 1);
    hand_post(&hand, 2, packets * 1000);
    assert_int_equal(hand.count, 1 + packets);
}

static unsigned again(void)
{
    struct sl_dp_flow_stats stats;

    sl_dp_flow_stats(hand.flow, &stats);
    return (unsigned)stats.resent_packets;
}

static void a_packet_is_lost_when_three_later_ones_came(void **state)
{
    start(5, 1); /* 1 to 5 */
    hand.now_ns += RTT_NS / 2;
    hand_ack(&hand, 0, 1, 3, 3, 3, 3); /* 2 and 3 */
    hand_run(&hand, 0);
    assert_int_equal(again(), 0);
    hand_ack(&hand, 0, 1, 4, 4, 4, 7);
    hand_run(&hand, 0);
    assert_int_equal(again(), 1);
    assert_int_equal(hand_last(&hand, SL_DP_DATA, 0)->head.seq, 1);
    assert_true((hand_last(&hand, SL_DP_DATA, 0)->head.flags & SL_DP_FLAG_AGAIN) != 0);
    assert_int_equal(hand_cc_log.lost, 1);
    hand_ack(&hand, 0, 6, 6, 1, 6, 0);
    assert_int_equal(hand.retired, 2);
    hand_stop(&hand);
}

static void fewer_later_ones_are_enough_after_a_round_trip_and_more(void **state)
{
    start(3, 1);
    hand.now_ns += RTT_NS;
    hand_ack(&hand, 0, 1, 3, 3, 3, 3);
    hand_run(&hand, 0);
    assert_int_equal(again(), 0);
    hand_run(&hand, RTT_NS / 4);
    assert_int_equal(again(), 0);
    hand_run(&hand, RTT_NS / 4);
    assert_int_equal(again(), 1);
    hand_stop(&hand);
}

static void what_went_by_another_route_is_no_sign_of_loss(void **state)
{
    struct sl_dp_ends ends = hand_ends;

    ends.routes = 2;
    hand_start(&hand, &ends);
    hand_post(&hand, 1, 8000); /* 0 to 3 by one route, 4 to 7 by the other */
    assert_int_equal(hand.sent[0].route, 0);
    assert_int_equal(hand.sent[4].route, 1);
    hand.now_ns += RTT_NS;
    hand_ack(&hand, 1, 0, 3, 7, 4, 0x78); /* 4 to 7 */
    hand_run(&hand, RTT_NS / 2);
    assert_int_equal(again(), 0);
    hand_ack(&hand, 0, 8, 3, 3, 4, 0);
    assert_int_equal(hand.retired, 1);
    hand_stop(&hand);
}

static void a_probe_goes_after_two_round_trips_of_silence_and_asks_for_an_answer(void **state)
{
    unsigned sent;

    start(2, 1);
    sent = hand.count;
    hand_idle(&hand, 2 * RTT_NS - 2000, 10000);
    assert_int_equal(hand.count, sent);
    hand_idle(&hand, 5000, 1000);
    assert_int_equal(hand.count, sent + 1);
    assert_int_equal(hand.sent[sent].head.seq, 1);
    assert_true((hand.sent[sent].head.flags & SL_DP_FLAG_NOW) != 0);
    hand_idle(&hand, 10 * RTT_NS, 10000);
    assert_int_equal(hand.count, sent + 1); /* one */
    assert_int_equal(hand_cc_log.timeouts, 0);
    /* Its answer shows that packet 2, sent before it, is lost. */
    hand_ack(&hand, 0, 2, 3, 1, 2, 0);
    hand_run(&hand, 0);
    assert_int_equal(hand.count, sent + 2);
    assert_int_equal(hand.sent[sent + 1].head.seq, 2);
    hand_stop(&hand);
}

static void timeouts_begin_at_their_floor_and_double(void **state)
{
    uint64_t last_ns;

    start(3, 1);
    for (unsigned i = 0; i < 4; i++) {
        last_ns = hand.now_ns;
        while (hand_cc_log.timeouts == i)
            hand_run(&hand, 100000);
        assert_in_range(hand.now_ns - last_ns, (20 * HAND_MS << i) - HAND_MS,
                        (20 * HAND_MS << i) + 2 * HAND_MS);
    }
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 0), 4);
    /* Up to a second, however long it lasts. */
    hand.engine.settings.dead_ns = UINT64_C(1000000) * HAND_MS;
    for (unsigned i = 0; i < 300; i++) {
        last_ns = hand.now_ns;
        while (hand_cc_log.timeouts == 4 + i)
            hand_run(&hand, HAND_MS);
        assert_in_range(hand.now_ns - last_ns, 300 * HAND_MS, 1005 * HAND_MS);
    }
    hand_stop(&hand);
}

static void wait_for_timeout(unsigned number, uint64_t least_ms, uint64_t most_ms)
{
    uint64_t from_ns = hand.now_ns;

    while (hand_cc_log.timeouts < number)
        hand_run(&hand, 100000);
    assert_in_range(hand.now_ns - from_ns, least_ms * HAND_MS, most_ms * HAND_MS);
}

static void they_begin_anew_when_something_arrives_and_double_not_while_the_peer_lives(void **state)
{
    start(3, 1);
    wait_for_timeout(1, 19, 22);
    wait_for_timeout(2, 39, 42);
    hand_ack(&hand, 0, 4, hand.flow->route[0].sent - 1, 3, 4, 0);
    assert_int_equal(hand.flow->route[0].timeouts, 0);
    hand_post(&hand, 3, 1000);
    wait_for_timeout(3, 19, 22);
    /* It answers probes, and may have no memory for a frame. */
    for (unsigned i = 4; i < 8; i++) {
        hand_run(&hand, 1000);
        hand_probe_reply(&hand, 0, hand_last(&hand, SL_DP_PROBE, 0)->head.stamp, 0);
        wait_for_timeout(i, 19, 22);
    }
    hand_stop(&hand);
}

static void what_was_sent_twice_shows_nothing_of_its_second_stamp(void **state)
{
    start(1, 1);
    hand_idle(&hand, 3 * RTT_NS, 10000);
    assert_int_equal(hand.flow->route[0].sent, 3); /* the tail-loss probe */
    hand_post(&hand, 3, 1000);
    hand_ack(&hand, 0, 2, 1, 1, 2, 0); /* the first transmission came */
    assert_int_equal(hand.retired, 2);
    assert_int_equal(hand.flow->route[0].high, 2);
    hand_stop(&hand);
}

static void a_timeout_is_put_off_once_when_this_end_had_not_run(void **state)
{
    start(3, 1);
    hand_run(&hand, 500 * HAND_MS);
    assert_int_equal(hand_cc_log.timeouts, 0);
    hand_run(&hand, HAND_MS / 2);
    assert_int_equal(hand_cc_log.timeouts, 1);
    hand_stop(&hand);
}

static void without_an_answer_the_flow_fails_in_time(void **state)
{
    start(3, 1);
    hand_idle(&hand, 995 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 0);
    hand_idle(&hand, 10 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 1);
    assert_int_equal(hand.status, -ETIMEDOUT);
    assert_true(sl_dp_engine_next(&hand.engine) == UINT64_MAX);
    hand_stop(&hand);
    /* Nor does it help to post more. */
    start(3, 1);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(hand.failures, i * 50 >= 1000);
        hand_post(&hand, 3 + i, 10);
        hand_idle(&hand, 50 * HAND_MS, HAND_MS);
    }
    hand_idle(&hand, 10 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
}

static void time_in_which_this_end_was_stopped_does_not_count_for_a_death(void **state)
{
    start(3, 1);
    hand_idle(&hand, 500 * HAND_MS, HAND_MS);
    hand_run(&hand, 5000 * HAND_MS);
    hand_idle(&hand, 50 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 0);
    hand_idle(&hand, 450 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
    /* But one that looks now and then only has time enough. */
    start(3, 1);
    hand_idle(&hand, 1100 * HAND_MS, 50 * HAND_MS);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
}

static void an_idle_flow_does_not_fail_and_wants_nothing(void **state)
{
    start(1, 1);
    hand_ack(&hand, 0, 2, 1, 1, 2, 0);
    hand_idle(&hand, 3000 * HAND_MS, 10 * HAND_MS);
    assert_int_equal(hand.failures, 0);
    assert_true(sl_dp_engine_next(&hand.engine) == UINT64_MAX);
    hand_stop(&hand);
}

static void an_old_answer_again_is_no_sign_of_life(void **state)
{
    start(3, 1);
    for (unsigned i = 0; i < 1010; i++) {
        hand_ack(&hand, 0, 1, 0, 0, 1, 0);
        hand_run(&hand, HAND_MS);
    }
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
    /* Nor is an old packet. */
    start(3, 1);
    for (unsigned i = 0; i < 1010; i++) {
        hand_data(&hand, (struct sl_dp_head){.flags = SL_DP_FLAG_LAST}, 1, 10);
        hand_run(&hand, HAND_MS);
    }
    assert_int_equal(hand.arrivals, 1);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
}

static void what_the_peer_counts_shows_repetitions_in_vain(void **state)
{
    struct sl_dp_flow_stats stats;

    start(5, 1);
    assert_int_equal(hand.flow->route[0].reorder, 3);
    hand_ack(&hand, 0, 1, 4, 4, 4, 7); /* 2, 3 and 4: 1 is lost */
    hand_run(&hand, 0);
    assert_int_equal(again(), 1);
    hand_ack(&hand, 0, 5, 4, 4, 5, 0); /* but 1 came late */
    sl_dp_flow_stats(hand.flow, &stats);
    assert_int_equal(stats.spurious_packets, 1);
    assert_int_equal(hand.flow->route[0].reorder, 6);
    hand_stop(&hand);
    /* And a loss that was one is none of them. */
    start(5, 1);
    hand_ack(&hand, 0, 1, 4, 4, 4, 7);
    hand_run(&hand, 0);
    hand_ack(&hand, 0, 6, 6, 1, 6, 0);
    sl_dp_flow_stats(hand.flow, &stats);
    assert_int_equal(stats.spurious_packets, 0);
    assert_int_equal(hand.flow->route[0].reorder, 3);
    hand_stop(&hand);
}

/* An answer to packet 0 that says how long the peer had kept it, and not looked before. */
static void answer_first(uint32_t kept_ns, uint16_t away_us)
{
    struct sl_dp_head head = {.flags = SL_DP_FLAG_CRC, .seq = 1, .imm = 1025, .offset = kept_ns};
    struct sl_dp_ack ack = {.came = 1, .ce = 1, .away_us = away_us};
    uint8_t packet[SL_DP_HEAD_BYTES + SL_DP_ACK_HEAD + SL_DP_CRC_BYTES];
    uint32_t sum;

    head.kind_version = SL_DP_ACK << 4 | SL_DP_VERSION;
    head.flow = hand_ends.own_number;
    head.secret = hand_ends.own_secret;
    sl_dp_head_seal(&head);
    sum = sl_dp_payload_crc(&head, &ack, SL_DP_ACK_HEAD);
    memcpy(packet, &head, sizeof(head));
    memcpy(packet + sizeof(head), &ack, SL_DP_ACK_HEAD);
    memcpy(packet + sizeof(head) + SL_DP_ACK_HEAD, &sum, sizeof(sum));
    assert_true(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
}

static void the_congestion_control_hears_of_the_fabric_alone(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 3000);
    hand_run(&hand, 150000); /* looked 50 us ago when the answer comes */
    hand.now_ns += 50000;
    answer_first(30000, 20);
    assert_int_equal(hand_cc_log.acks, 1);
    assert_int_equal(hand_cc_log.last.acked, 1);
    assert_int_equal(hand_cc_log.last.under_way, 3);
    assert_int_equal(hand_cc_log.last.marked, 1);
    assert_in_range(hand_cc_log.last.rtt_ns, 169999, 170001);   /* 200 us less 30 kept */
    assert_in_range(hand_cc_log.last.fabric_ns, 99999, 100001); /* less 50 and 20 */
    assert_in_range(hand.flow->route[0].srtt_ns, 199999, 200001);
    /* The same once more measures nothing. */
    answer_first(30000, 20);
    assert_int_equal(hand_cc_log.acks, 1);
    hand_stop(&hand);
    /* A peer that was stopped, for longer than an answer can say. */
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 3000);
    hand_run(&hand, 400 * HAND_MS);
    hand.now_ns += 50000;
    answer_first(0, UINT16_MAX);
    assert_int_equal(hand_cc_log.acks, 1);
    assert_in_range(hand_cc_log.last.rtt_ns, 400 * HAND_MS, 401 * HAND_MS);
    assert_int_equal(hand_cc_log.last.fabric_ns, 1);
    hand_stop(&hand);
}

static void an_end_that_was_stopped_for_long_changes_no_timeout_for_long(void **state)
{
    unsigned from;

    start(1, 1);
    hand.engine.settings.dead_ns = 5000 * HAND_MS;
    hand.now_ns += 60000 * HAND_MS; /* its answer lay in the port's queue */
    hand_ack(&hand, 0, 2, 1, 1, 2, 0);
    hand_run(&hand, 0);
    assert_int_equal(hand.retired, 2);
    hand_post(&hand, 3, 1000); /* lost */
    from = hand.count;
    hand_idle(&hand, 400 * HAND_MS, HAND_MS / 2);
    assert_int_equal(hand_count(&hand, SL_DP_DATA, from), 1); /* the tail-loss probe */
    hand_idle(&hand, 1000 * HAND_MS, HAND_MS / 2);
    assert_int_equal(hand.flow->stats.timeouts, 1);
    assert_int_equal(hand.failures, 0);
    hand_stop(&hand);
}

static void an_answer_to_what_was_not_sent_is_dropped(void **state)
{
    start(3, 1);
    hand_ack(&hand, 0, 5, 4, 4, 5, 0);
    assert_int_equal(hand.engine.dropped_bad, 1);
    assert_int_equal(hand.retired, 1);
    hand_ack(&hand, 1, 4, 3, 3, 4, 0); /* of a route that there is not */
    assert_int_equal(hand.engine.dropped_bad, 2);
    hand_ack(&hand, 0, 1, 1, 1, 1, UINT64_MAX); /* more than there are */
    assert_int_equal(hand.retired, 1);
    assert_int_equal(hand.flow->route[0].flying.count, 1);
    hand_post(&hand, 3, 3000);
    assert_int_equal(hand.flow->route[0].flying.count, 4);
    hand_ack(&hand, 0, 7, 6, 6, 7, 0);
    assert_int_equal(hand.retired, 3);
    assert_int_equal(hand.flow->route[0].flying.count, 0);
    hand_stop(&hand);
}

/* Messages of 60 packets, each answered by the last of them: nothing was in vain. */
static void calm(unsigned messages)
{
    const struct sl_dp_flow *flow = hand.flow;

    for (unsigned i = 0; i < messages; i++) {
        hand_post(&hand, 9, 60000);
        hand_ack(&hand, 0, flow->next, flow->route[0].sent - 1, flow->next - 1, flow->route[0].sent,
                 0);
    }
}

static void what_may_pass_another_becomes_less_again_after_calm(void **state)
{
    const struct sl_dp_route *route;

    start(5, 1);
    route = &hand.flow->route[0];
    hand_ack(&hand, 0, 1, 4, 4, 4, 7); /* 2, 3 and 4: 1 is lost */
    hand_run(&hand, 0);
    hand_ack(&hand, 0, 5, 4, 4, 5, 0); /* but came late */
    hand_ack(&hand, 0, 6, 6, 5, 7, 0); /* and again */
    assert_int_equal(route->reorder, 6);
    calm(68); /* 4,080 packets, and a few before */
    assert_int_equal(route->reorder, 6);
    calm(3);
    assert_int_equal(route->reorder, 5);
    calm(67); /* each step takes as many */
    assert_int_equal(route->reorder, 5);
    calm(3);
    assert_int_equal(route->reorder, 4);
    calm(210);
    assert_int_equal(route->reorder, 3); /* and no less */
    hand_stop(&hand);
}

static void timeouts_double_six_times_at_most(void **state)
{
    start(3, 1);
    hand.engine.settings.rto_least_ns = HAND_MS;
    hand.engine.settings.dead_ns = UINT64_C(1000000) * HAND_MS;
    for (unsigned i = 0; i < 10; i++) {
        uint64_t last_ns = hand.now_ns, wait_ns = HAND_MS << (i < 6 ? i : 6);

        while (hand_cc_log.timeouts == i)
            hand_run(&hand, 100000);
        assert_in_range(hand.now_ns - last_ns, wait_ns - HAND_MS / 5, wait_ns + HAND_MS / 2);
    }
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_is_lost_when_three_later_ones_came),
        cmocka_unit_test(fewer_later_ones_are_enough_after_a_round_trip_and_more),
        cmocka_unit_test(what_went_by_another_route_is_no_sign_of_loss),
        cmocka_unit_test(a_probe_goes_after_two_round_trips_of_silence_and_asks_for_an_answer),
        cmocka_unit_test(timeouts_begin_at_their_floor_and_double),
        cmocka_unit_test(
            they_begin_anew_when_something_arrives_and_double_not_while_the_peer_lives),
        cmocka_unit_test(what_was_sent_twice_shows_nothing_of_its_second_stamp),
        cmocka_unit_test(a_timeout_is_put_off_once_when_this_end_had_not_run),
        cmocka_unit_test(without_an_answer_the_flow_fails_in_time),
        cmocka_unit_test(time_in_which_this_end_was_stopped_does_not_count_for_a_death),
        cmocka_unit_test(an_idle_flow_does_not_fail_and_wants_nothing),
        cmocka_unit_test(an_old_answer_again_is_no_sign_of_life),
        cmocka_unit_test(what_the_peer_counts_shows_repetitions_in_vain),
        cmocka_unit_test(the_congestion_control_hears_of_the_fabric_alone),
        cmocka_unit_test(an_end_that_was_stopped_for_long_changes_no_timeout_for_long),
        cmocka_unit_test(an_answer_to_what_was_not_sent_is_dropped),
        cmocka_unit_test(what_may_pass_another_becomes_less_again_after_calm),
        cmocka_unit_test(timeouts_double_six_times_at_most),
    };

    return cmocka_run_group_tests_name("dpdk_recover", tests, NULL, NULL);
}
