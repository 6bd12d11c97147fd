/* SPDX-License-Identifier: Apache-2.0 */
/* How large packets become, and small again. */
#include "tests/unit/dpdk/hand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hand hand;

static void start(unsigned routes, bool crc)
{
    struct sl_dp_ends ends = hand_ends;

    ends.routes = (uint8_t)routes;
    ends.payload_least = 1400;
    ends.payload_most = 8900;
    ends.crc = crc;
    hand_start(&hand, &ends);
}

static uint32_t payload(void)
{
    struct sl_dp_flow_stats stats;

    sl_dp_flow_stats(hand.flow, &stats);
    return stats.payload_bytes;
}

static void small_messages_ask_for_no_larger_packets(void **state)
{
    start(1, false);
    hand_post(&hand, 1, 1400);
    hand_idle(&hand, 3 * HAND_MS, 100000);
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 0), 0);
    hand_stop(&hand);
}

static void the_largest_size_is_tried_first_and_taken_when_all_routes_pass_it(void **state)
{
    start(2, true);
    hand_post(&hand, 1, 3000);
    assert_int_equal(hand.sent[0].payload_len, 1400);
    hand_run(&hand, 1000);
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 0), 2);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, 0)->payload_len, 8904); /* and the CRC */
    hand_probe_reply(&hand, 0, 1, 8904);
    assert_int_equal(payload(), 1400);
    hand_probe_reply(&hand, 1, 1, 8904);
    assert_int_equal(payload(), 8900);
    hand_post(&hand, 2, 9000);
    assert_int_equal(hand.sent[hand.count - 2].payload_len, 8900);
    assert_int_equal(hand.sent[hand.count - 1].payload_len, 100);
    hand_idle(&hand, 100 * HAND_MS, HAND_MS);
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, 5), hand.flow->stats.timeouts);
    hand_stop(&hand);
}

static void smaller_sizes_follow_when_a_size_is_not_answered_three_times(void **state)
{
    static const uint32_t sizes[] = {8900, 8192, 4096, 3072};
    unsigned tries[SL_ARRAY_LEN(sizes)] = {0};

    start(1, false);
    hand_post(&hand, 1, 3000);
    for (unsigned i = 0; i < 2500 && payload() == 1400; i++) {
        unsigned from = hand.count;
        const struct hand_packet *probe;

        hand_run(&hand, 100000);
        probe = hand_last(&hand, SL_DP_PROBE, from);
        if (probe == NULL || probe->payload_len == 0)
            continue;
        for (unsigned s = 0; s < SL_ARRAY_LEN(sizes); s++)
            tries[s] += probe->payload_len == sizes[s];
        if (probe->payload_len == 3072)
            hand_probe_reply(&hand, 0, probe->head.stamp, 3072);
    }
    assert_int_equal(payload(), 3072);
    assert_int_equal(tries[0], 3);
    assert_int_equal(tries[1], 3);
    assert_int_equal(tries[2], 3);
    assert_int_equal(tries[3], 1);
    hand_stop(&hand);
}

/* Packets of 8,900 bytes pass; two were sent. */
static void start_large(uint32_t len)
{
    start(1, false);
    hand_post(&hand, 1, 2000);
    hand_run(&hand, 100000);
    hand_probe_reply(&hand, 0, 1, 8900);
    hand_ack(&hand, 0, 2, 1, 1, 2, 0);
    assert_int_equal(payload(), 8900);
    hand_post(&hand, 2, len);
    assert_int_equal(hand.sent[2 + 1].payload_len, 8900);
}

/* Until there were so many timeouts; the probe of no payload that then went is answered. */
static void time_out(unsigned timeouts)
{
    const struct hand_packet *probe;

    while (hand.flow->stats.timeouts < timeouts)
        hand_run(&hand, 100000);
    probe = hand_last(&hand, SL_DP_PROBE, 0);
    assert_int_equal(probe->payload_len, 0);
    hand_run(&hand, 1000);
    hand_probe_reply(&hand, 0, probe->head.stamp, 0);
}

/* They are lost, and lost again, while a small probe passes. */
static void shrink(void)
{
    start_large(17000);
    time_out(1);
    assert_int_equal(payload(), 8900); /* it went before they went again */
    time_out(2);
    assert_int_equal(payload(), 1400);
}

/* Seven parts of packet 2, from any of them on in turn: from which. */
static unsigned first_of_seven(unsigned from)
{
    unsigned first = hand.sent[from].head.part & 0xf;

    for (unsigned i = 0; i < 7; i++) {
        const struct hand_packet *part = &hand.sent[from + i];
        unsigned number = (first + i) % 7;

        assert_int_equal(part->head.seq, 2);
        assert_int_equal(part->head.part, 0x60 | number);
        assert_int_equal(part->head.offset, 1400 * number);
        assert_int_equal(part->payload_len, number == 6 ? 500 : 1400);
    }
    return first;
}

static void when_large_packets_are_lost_and_small_ones_pass_they_go_in_parts(void **state)
{
    unsigned from;

    shrink();
    from = hand.count;
    while (hand_count(&hand, SL_DP_DATA, from) == 0)
        hand_run(&hand, 100000);
    first_of_seven(from); /* first the one that waits longest */
    hand_stop(&hand);
}

/* sim_dpdk, seed 1008953: a short queue dropped the last parts of each burst, the same ones for
 * 30 s and two million times. */
static void another_part_goes_first_each_time(void **state)
{
    unsigned from, first, next;

    shrink();
    from = hand.count;
    while (hand_count(&hand, SL_DP_DATA, from) == 0)
        hand_run(&hand, 100000);
    first = first_of_seven(from);
    for (next = from + 7; next + 7 > hand.count || hand.sent[next].head.seq != 2; next++)
        while (next + 7 > hand.count)
            hand_run(&hand, 100000);
    assert_int_equal(first_of_seven(next), (first + 1) % 7);
    hand_stop(&hand);
}

static void parts_go_on_where_a_full_port_stopped_them(void **state)
{
    unsigned from;

    shrink();
    from = hand.count;
    for (unsigned i = 0; i < 2000 && hand.count < from + 7; i++) {
        hand.room = i % 3 == 0;
        hand_run(&hand, 100000);
    }
    first_of_seven(from);
    hand_stop(&hand);
}

static uint64_t bits(unsigned from, unsigned to)
{
    return (UINT64_C(2) << to) - (UINT64_C(1) << from);
}

static void a_queue_that_loses_many_large_ones_at_once_makes_none_small(void **state)
{
    start_large(10 * 8900); /* 2 to 11 */
    for (unsigned i = 0; i < 4; i++)
        hand_post(&hand, 3 + i, 8); /* 12 to 15 */
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 2, 14, 14, 5, bits(9, 11)); /* only what is small passes */
    hand_run(&hand, 0);
    assert_int_equal(hand.flow->stats.resent_packets, 10);
    hand_ack(&hand, 0, 2, 15, 15, 6, bits(9, 12));
    assert_int_equal(payload(), 8900);
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 2, 20, 6, 11, bits(0, 4) | bits(9, 12)); /* of the repeated ones a half */
    hand_run(&hand, 0);
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 16, 26, 7, 17, 0);
    for (unsigned i = 0; i < 10; i++) {
        hand_post(&hand, 7 + i, 8);
        hand_run(&hand, 100000);
        hand_ack(&hand, 0, 17 + i, hand.flow->route[0].sent - 1, 16 + i, 18 + i, 0);
        assert_int_equal(payload(), 8900);
    }
    hand_stop(&hand);
}

static void large_ones_that_pass_at_the_second_try_make_none_small(void **state)
{
    start_large(8900);
    hand_ack(&hand, 0, 3, 2, 2, 3, 0);
    for (unsigned i = 0; i < 10; i++) {
        unsigned from = hand.count;

        hand_post(&hand, 3 + i, 8000);
        hand_idle(&hand, HAND_MS, 10000);
        assert_int_equal(hand_count(&hand, SL_DP_DATA, from), 2); /* the tail-loss probe, too */
        hand_ack(&hand, 0, 4 + i, hand.flow->route[0].sent - 1, 3 + i, 4 + i, 0);
    }
    hand_post(&hand, 13, 8);
    hand_ack(&hand, 0, 14, hand.flow->route[0].sent - 1, 13, 14, 0);
    assert_int_equal(hand.retired, 13);
    assert_int_equal(payload(), 8900);
    hand_stop(&hand);
}

static void large_ones_that_are_lost_again_make_packets_small(void **state)
{
    start_large(10 * 8900); /* 2 to 11 */
    for (unsigned i = 0; i < 4; i++)
        hand_post(&hand, 3 + i, 8); /* 12 to 15 */
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 2, 12, 12, 3, bits(9, 9));
    hand_run(&hand, 0); /* with stamps from 16 on */
    for (unsigned i = 0; i < 4; i++)
        hand_post(&hand, 7 + i, 8); /* 16 to 19, 26 to 29 */
    hand_run(&hand, 100000);
    hand_ack(&hand, 0, 2, 28, 18, 9, bits(9, 15)); /* up to 18 */
    assert_int_equal(hand.flow->stats.resent_packets, 10);
    hand_run(&hand, 0);
    assert_int_equal(payload(), 8900);
    hand_ack(&hand, 0, 2, 29, 19, 10, bits(9, 16));
    assert_int_equal(payload(), 1400);
    hand_stop(&hand);
}

static void larger_ones_are_tried_again_later(void **state)
{
    unsigned from;

    shrink();
    hand_ack(&hand, 0, 4, hand.flow->route[0].sent - 1, 3, 4, 0);
    from = hand.count;
    for (unsigned i = 0; i < 15; i++) { /* not before a second has passed */
        hand_post(&hand, 3 + i, 5000);
        hand_run(&hand, 60 * HAND_MS);
        hand_ack(&hand, 0, hand.flow->next, hand.flow->route[0].sent - 1, hand.flow->next - 1,
                 hand.flow->route[0].sent, 0);
        hand_run(&hand, 1000);
    }
    assert_int_equal(hand_count(&hand, SL_DP_PROBE, from), 0);
    hand_run(&hand, 200 * HAND_MS);
    hand_post(&hand, 90, 5000);
    hand_idle(&hand, HAND_MS, 100000);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, from)->payload_len, 8900);
    hand_stop(&hand);
}

static void a_probe_is_answered_with_the_length_that_came(void **state)
{
    struct sl_dp_head head = {.kind_version = SL_DP_PROBE << 4 | SL_DP_VERSION,
                              .route = 3,
                              .flow = 11,
                              .secret = hand_ends.own_secret,
                              .stamp = 77};
    static uint8_t packet[SL_DP_HEAD_BYTES + 5000];

    start(2, false);
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_true(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.count, 1);
    assert_int_equal(hand.sent[0].head.kind_version >> 4, SL_DP_PROBE_REPLY);
    assert_int_equal(hand.sent[0].head.offset, 5000);
    assert_int_equal(hand.sent[0].head.stamp, 77);
    assert_int_equal(hand.sent[0].head.route, 3);
    assert_int_equal(hand.sent[0].route, 1); /* of two */
    hand_stop(&hand);
}

static void an_answer_that_is_shorter_than_the_probe_shows_nothing(void **state)
{
    start(1, false);
    hand_post(&hand, 1, 3000);
    hand_run(&hand, 1000);
    assert_int_equal(hand_last(&hand, SL_DP_PROBE, 0)->payload_len, 8900);
    hand_probe_reply(&hand, 0, 1, 8899);
    assert_int_equal(payload(), 1400);
    assert_true(hand.flow->route[0].probe.is_out);
    hand_probe_reply(&hand, 0, 1, 8900);
    assert_int_equal(payload(), 8900);
    assert_false(hand.flow->route[0].probe.is_out);
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_messages_ask_for_no_larger_packets),
        cmocka_unit_test(the_largest_size_is_tried_first_and_taken_when_all_routes_pass_it),
        cmocka_unit_test(smaller_sizes_follow_when_a_size_is_not_answered_three_times),
        cmocka_unit_test(when_large_packets_are_lost_and_small_ones_pass_they_go_in_parts),
        cmocka_unit_test(another_part_goes_first_each_time),
        cmocka_unit_test(parts_go_on_where_a_full_port_stopped_them),
        cmocka_unit_test(a_queue_that_loses_many_large_ones_at_once_makes_none_small),
        cmocka_unit_test(large_ones_that_pass_at_the_second_try_make_none_small),
        cmocka_unit_test(large_ones_that_are_lost_again_make_packets_small),
        cmocka_unit_test(larger_ones_are_tried_again_later),
        cmocka_unit_test(a_probe_is_answered_with_the_length_that_came),
        cmocka_unit_test(an_answer_that_is_shorter_than_the_probe_shows_nothing),
    };

    return cmocka_run_group_tests_name("dpdk_mtu", tests, NULL, NULL);
}
