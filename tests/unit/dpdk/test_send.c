/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting and sending: what goes out, and when it stops. */
#include "tests/unit/dpdk/hand.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct hand hand;

static void a_message_is_cut_into_packets_whose_offsets_follow(void **state)
{
    static const uint8_t bytes[2500] = {[0] = 1, [1000] = 2, [2000] = 3};

    hand_start(&hand, &hand_ends);
    sl_dp_flow_post(hand.flow, true, 0x70005, 5000, bytes, sizeof(bytes));
    assert_int_equal(hand.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct hand_packet *packet = &hand.sent[i];

        assert_int_equal(packet->head.kind_version, SL_DP_DATA << 4 | SL_DP_VERSION);
        assert_int_equal(packet->head.flags,
                         SL_DP_FLAG_WRITE | (i == 2 ? SL_DP_FLAG_LAST : SL_DP_FLAG_MORE));
        assert_int_equal(packet->head.flow, 22);
        assert_true(packet->head.secret == hand_ends.peer_secret);
        assert_int_equal(packet->head.seq, i);
        assert_int_equal(packet->head.stamp, i);
        assert_int_equal(packet->head.imm, 0x70005);
        assert_int_equal(packet->head.offset, 5000 + 1000 * i);
        assert_int_equal(packet->payload_len, i == 2 ? 500 : 1000);
        assert_int_equal(packet->first, i + 1);
    }
    hand_stop(&hand);
}

static void a_message_of_no_bytes_is_one_packet(void **state)
{
    hand_start(&hand, &hand_ends);
    sl_dp_flow_post(hand.flow, false, 9, 0, NULL, 0);
    assert_int_equal(hand.count, 1);
    assert_int_equal(hand.sent[0].head.flags, SL_DP_FLAG_LAST);
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    assert_int_equal(hand.retired, 1);
    hand_stop(&hand);
}

static void no_more_goes_out_than_the_window_lets(void **state)
{
    hand_cc_log.window = 5;
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 100000);
    assert_int_equal(hand.count, 5);
    assert_int_equal(sl_dp_flow_unsent(hand.flow), 95000);
    hand_run(&hand, 1000);
    assert_int_equal(hand.count, 5);
    hand_ack(&hand, 0, 2, 1, 1, 2, 0);
    hand_run(&hand, 1000);
    assert_int_equal(hand.count, 7);
    assert_int_equal(sl_dp_flow_unsent(hand.flow), 93000);
    hand_stop(&hand);
}

static void no_more_goes_out_than_the_peer_has_room_for(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 1 << 20);
    assert_int_equal(hand.count, 64); /* before it said anything */
    hand_ack(&hand, 0, 10, 9, 9, 10, 0);
    hand_idle(&hand, 40000, 1000);
    /* Its room is up to packet 10 + 1024: now this end's own places are the limit. */
    assert_int_equal(hand.count, 1034);
    hand_stop(&hand);
}

static void without_memory_for_more_places_it_goes_on_with_those_it_has(void **state)
{
    hand_start(&hand, &hand_ends);
    hand.allocations_left = 1;
    hand_post(&hand, 1, 1 << 20);
    hand_ack(&hand, 0, 10, 9, 9, 10, 0);
    hand_idle(&hand, 40000, 1000);
    assert_int_equal(hand.count, 74);
    hand.allocations_left = UINT_MAX;
    hand_stop(&hand);
}

static void a_full_port_stops_it_and_the_next_run_goes_on_where_it_was(void **state)
{
    hand_start(&hand, &hand_ends);
    hand.room = 2;
    hand_post(&hand, 1, 4000);
    assert_int_equal(hand.count, 2);
    assert_int_equal(sl_dp_engine_next(&hand.engine), hand.engine.now_ns);
    hand_run(&hand, 100);
    assert_int_equal(hand.count, 2);
    hand.room = UINT_MAX;
    hand_run(&hand, 100);
    assert_int_equal(hand.count, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(hand.sent[i].head.seq, i);
        assert_int_equal(hand.sent[i].head.offset, 1000 * i);
        assert_int_equal(hand.sent[i].head.stamp, i);
    }
    hand_stop(&hand);
}

static void a_message_is_retired_when_the_port_reads_it_no_more(void **state)
{
    hand_start(&hand, &hand_ends);
    hand.keeps = true;
    hand_post(&hand, 1, 1500);
    hand.keeps = false;
    hand_post(&hand, 2, 10);
    hand_ack(&hand, 0, 3, 2, 2, 3, 0);
    hand_run(&hand, 1000);
    assert_int_equal(hand.retired, 0);
    sl_dp_flow_sent(hand.flow, hand.sent[0].message);
    hand_run(&hand, 1000);
    assert_int_equal(hand.retired, 0);
    sl_dp_flow_sent(hand.flow, hand.sent[1].message);
    assert_int_equal(hand.retired, 0); /* told by the run alone */
    hand_run(&hand, 1000);
    assert_int_equal(hand.retired, 2);
    hand_stop(&hand);
}

static void spaced_packets_go_when_their_time_comes(void **state)
{
    hand_cc_log.window = 2;
    hand_cc_log.pace_ns = 100000;
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 4000);
    assert_int_equal(hand.count, 1);
    hand_run(&hand, 50000);
    assert_int_equal(hand.count, 1);
    assert_true(sl_dp_engine_next(&hand.engine) <= hand.now_ns + 50000 + 512);
    hand_run(&hand, 51000);
    assert_int_equal(hand.count, 2);
    hand_stop(&hand);
}

static bool post_early(uint32_t len)
{
    static const uint8_t bytes[2000];

    return sl_dp_flow_post_early(hand.flow, false, 0, 0, bytes, len);
}

static void a_message_that_left_early_was_sent_when_it_left(void **state)
{
    const uint64_t start_ns = 1000 * HAND_MS,
                   away_ns = 1200 * HAND_MS; /* it was not run for that */

    hand_start(&hand, &hand_ends);
    assert_true(post_early(8));
    assert_int_equal(hand.count, 1);
    assert_int_equal(hand.engine.now_ns, start_ns);
    sl_dp_flow_left(hand.flow, start_ns + away_ns);
    hand.now_ns = start_ns + away_ns + 3000;
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    assert_true(hand_cc_log.last.rtt_ns >= 2999 && hand_cc_log.last.rtt_ns <= 3000);
    /* A peer that says nothing has its whole time from then on. */
    hand_idle(&hand, 10 * HAND_MS, HAND_MS); /* no timer is late */
    hand.now_ns += 95 * HAND_MS;
    assert_true(post_early(8));
    sl_dp_flow_left(hand.flow, hand.now_ns);
    hand_idle(&hand, 990 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 0);
    hand_idle(&hand, 20 * HAND_MS, HAND_MS);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
}

static void no_message_leaves_early_that_depends_on_time_or_on_others(void **state)
{
    struct sl_dp_ends two = hand_ends;

    hand_start(&hand, &hand_ends);
    assert_false(post_early(1001)); /* more than a packet */
    hand.room = 0;
    assert_true(post_early(8)); /* the port is full: the next run sends it */
    sl_dp_flow_left(hand.flow, hand.now_ns + 5000);
    assert_false(post_early(8));
    hand.room = UINT_MAX;
    hand_run(&hand, 10000);
    assert_true(post_early(8));
    sl_dp_flow_left(hand.flow, hand.now_ns);
    for (uint32_t i = 0; i < 3; i++)
        hand_post(&hand, i, 8);
    hand_ack(&hand, 0, 0, 4, 4, 4, 0xf); /* the first one is lost, and goes before */
    assert_int_equal(hand.flow->lost.count, 1);
    assert_false(post_early(8));
    hand_stop(&hand);
    hand_cc_log.window = 1;
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 0, 2000); /* the second half waits for the window */
    assert_false(post_early(8));
    hand_stop(&hand);
    hand_cc_log.pace_ns = 1000;
    hand_start(&hand, &hand_ends);
    assert_false(post_early(8));
    hand_stop(&hand);
    two.routes = 2;
    hand_start(&hand, &two);
    assert_false(post_early(8));
    hand_stop(&hand);
}

static void the_budget_of_a_run_is_kept_and_shared(void **state)
{
    struct sl_dp_ends ends = hand_ends;
    struct sl_dp_flow *other;

    hand_start(&hand, &hand_ends);
    ends.own_number = 12;
    assert_int_equal(sl_dp_flow_open(&hand.engine, &ends, &hand, &other), 0);
    hand.room = 0;
    hand_post(&hand, 1, 60000);
    sl_dp_flow_post(other, true, 2, 0, hand.memory, 60000);
    hand.room = UINT_MAX;
    sl_dp_engine_run(&hand.engine, hand.now_ns + 100, 40);
    assert_int_equal(hand.count, 40);
    sl_dp_engine_run(&hand.engine, hand.now_ns + 200, 40);
    assert_int_equal(hand.count, 80);
    assert_int_equal(hand.flow->next, 60);
    assert_int_equal(other->next, 20); /* 8 and 12: what was left after 32 and 28 of the first */
    sl_dp_flow_close(other);
    hand_stop(&hand);
}

/* What a run's port has room for is less than each of three flows would send. */
static void a_port_that_is_always_full_is_shared(void **state)
{
    struct sl_dp_ends ends = hand_ends;
    struct sl_dp_flow *flow[3];
    uint32_t all = 0;

    hand_start(&hand, &hand_ends);
    flow[0] = hand.flow;
    for (unsigned i = 1; i < 3; i++) {
        ends.own_number++;
        assert_int_equal(sl_dp_flow_open(&hand.engine, &ends, &hand, &flow[i]), 0);
    }
    hand.room = 0;
    for (unsigned i = 0; i < 3; i++)
        sl_dp_flow_post(flow[i], true, i, 0, hand.memory, 60000);
    for (unsigned i = 0; i < 12; i++) {
        hand.room = 5;
        hand_run(&hand, 100);
        assert_int_equal(hand.room, 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_in_range(flow[i]->next, 15, 25);
        all += flow[i]->next;
    }
    assert_int_equal(all, 60);
    sl_dp_flow_close(flow[2]);
    sl_dp_flow_close(flow[1]);
    hand_stop(&hand);
}

static void a_flow_that_is_closed_leaves_no_timer(void **state)
{
    struct sl_dp_ends ends = hand_ends;
    struct sl_dp_flow *other;
    unsigned sent;

    hand_start(&hand, &hand_ends);
    ends.own_number = 12;
    assert_int_equal(sl_dp_flow_open(&hand.engine, &ends, &hand, &other), 0);
    sl_dp_flow_post(other, true, 2, 0, hand.memory, 3000);
    assert_true(sl_dp_engine_next(&hand.engine) < UINT64_MAX);
    sl_dp_flow_close(other);
    assert_true(sl_dp_engine_next(&hand.engine) == UINT64_MAX);
    sent = hand.count;
    hand_idle(&hand, 2000 * HAND_MS, HAND_MS);
    assert_int_equal(hand.count, sent);
    assert_int_equal(hand.failures, 0);
    hand_stop(&hand);
}

/* However often it was sent, its last stamp is no proof. */
static void repetitions_are_counted_up_to_255_and_never_forgotten(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 1000);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(sl_dp_transmit(hand.flow, 0, 0, 0), 0);
    assert_int_equal(hand.flow->stats.resent_packets, 256);
    assert_int_equal(sl_dp_tx_at(hand.flow, 0)->repeats, 255);
    hand_ack(&hand, 0, 1, 0, 0, 1, 0); /* the first transmission came */
    assert_int_equal(hand.retired, 1);
    assert_int_equal(hand.flow->route[0].high, 1);
    hand_stop(&hand);
}

static bool asks(unsigned packet)
{
    return (hand.sent[packet].head.flags & SL_DP_FLAG_MORE) == 0;
}

static void packets_ask_for_an_answer_in_time(void **state)
{
    hand_start(&hand, &hand_ends); /* room for 64 packets at the peer */
    hand_post(&hand, 1, 1 << 20);
    assert_int_equal(hand.count, 64);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(asks(i), (i + 1) % SL_DP_HELD_MOST == 0 || i == 63);
    hand_stop(&hand);
    hand_cc_log.window = 21; /* a quarter of it, and the last for which it has room */
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 1 << 20);
    assert_int_equal(hand.count, 21);
    for (unsigned i = 0; i < 21; i++)
        assert_int_equal(asks(i), (i + 1) % 5 == 0 || i == 20);
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    hand_run(&hand, 100);
    assert_int_equal(hand.count, 22);
    assert_true(asks(21));
    hand_stop(&hand);
    hand_cc_log.pace_ns = 10000;
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 4000);
    hand_idle(&hand, 60000, 1000);
    assert_int_equal(hand.count, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_true(asks(i));
    hand_stop(&hand);
}

/* As the pieces of one long message are posted. */
static void a_message_that_another_one_follows_asks_for_nothing(void **state)
{
    hand_start(&hand, &hand_ends);
    sl_dp_flow_expect(hand.flow, true);
    hand_post(&hand, 1, 3000);
    assert_int_equal(hand.count, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_false(asks(i));
    sl_dp_flow_expect(hand.flow, false);
    hand_post(&hand, 2, 2000);
    assert_int_equal(hand.count, 5);
    assert_false(asks(3));
    assert_true(asks(4));
    hand_stop(&hand);
}

/* ---- classes ---- */

static void a_short_message_goes_first_while_nothing_is_before_it(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 8);
    assert_true(hand.sent[0].is_high);
    hand_post(&hand, 2, 0);
    assert_true(hand.sent[1].is_high);
    hand_post(&hand, 3, 2000);
    assert_false(hand.sent[2].is_high);
    assert_false(hand.sent[3].is_high);
    hand_post(&hand, 4, 8); /* it would overtake */
    assert_false(hand.sent[4].is_high);
    hand_ack(&hand, 0, 4, 3, 3, 4, 0); /* and the next one would overtake that one */
    hand_post(&hand, 5, 8);
    assert_false(hand.sent[5].is_high);
    hand_ack(&hand, 0, 6, 5, 5, 6, 0);
    hand_post(&hand, 6, 8);
    assert_int_equal(hand.count, 7);
    assert_true(hand.sent[6].is_high);
    hand_stop(&hand);
}

static void a_message_that_is_not_short_does_not_go_first(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, SL_DP_HIGH_BYTES);
    assert_true(hand.sent[0].is_high);
    hand_stop(&hand);
    struct sl_dp_ends ends = hand_ends;
    ends.payload_least = ends.payload_most = 1400;
    hand_start(&hand, &ends);
    hand_post(&hand, 1, SL_DP_HIGH_BYTES + 1);
    assert_int_equal(hand.count, 1);
    assert_false(hand.sent[0].is_high);
    hand_stop(&hand);
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 1008); /* nor does the last packet of one */
    assert_int_equal(hand.sent[1].payload_len, 8);
    assert_false(hand.sent[1].is_high);
    hand_stop(&hand);
    hand_cc_log.window = 1; /* not even where nothing else is under way */
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 1008);
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    hand_run(&hand, 0);
    assert_int_equal(hand.sent[1].payload_len, 8);
    assert_false(hand.sent[1].is_high);
    hand_stop(&hand);
}

static void many_short_messages_at_a_time_do_not_go_first(void **state)
{
    hand_start(&hand, &hand_ends);
    for (unsigned i = 0; i < 20; i++) {
        hand_post(&hand, i, 8);
        assert_int_equal(hand.sent[i].is_high, i < SL_DP_HIGH_PACKETS);
    }
    hand_ack(&hand, 0, 19, 18, 18, 19, 0);
    hand_post(&hand, 20, 8);
    assert_false(hand.sent[20].is_high);
    hand_ack(&hand, 0, 21, 20, 20, 21, 0);
    hand_post(&hand, 21, 8);
    assert_true(hand.sent[21].is_high);
    hand_stop(&hand);
}

static void a_message_that_is_repeated_does_not_go_first_again(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 8);
    hand_idle(&hand, 6 * HAND_MS, 100000); /* the tail-loss probe */
    assert_int_equal(hand.count, 2);
    assert_true((hand.sent[1].head.flags & SL_DP_FLAG_AGAIN) != 0);
    assert_false(hand.sent[1].is_high);
    hand_post(&hand, 2, 8);
    assert_false(hand.sent[2].is_high);
    hand_stop(&hand);
}

static void of_several_routes_what_is_under_way_on_any_counts(void **state)
{
    struct sl_dp_ends ends = hand_ends;

    ends.routes = 4;
    hand_start(&hand, &ends);
    hand_post(&hand, 1, 4000);
    hand_post(&hand, 2, 8);
    assert_int_equal(hand.count, 5);
    assert_int_not_equal(hand.sent[4].route, hand.sent[3].route);
    assert_false(hand.sent[4].is_high);
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_cut_into_packets_whose_offsets_follow),
        cmocka_unit_test(a_message_of_no_bytes_is_one_packet),
        cmocka_unit_test(no_more_goes_out_than_the_window_lets),
        cmocka_unit_test(no_more_goes_out_than_the_peer_has_room_for),
        cmocka_unit_test(without_memory_for_more_places_it_goes_on_with_those_it_has),
        cmocka_unit_test(a_full_port_stops_it_and_the_next_run_goes_on_where_it_was),
        cmocka_unit_test(a_message_is_retired_when_the_port_reads_it_no_more),
        cmocka_unit_test(spaced_packets_go_when_their_time_comes),
        cmocka_unit_test(a_message_that_left_early_was_sent_when_it_left),
        cmocka_unit_test(no_message_leaves_early_that_depends_on_time_or_on_others),
        cmocka_unit_test(packets_ask_for_an_answer_in_time),
        cmocka_unit_test(a_message_that_another_one_follows_asks_for_nothing),
        cmocka_unit_test(a_short_message_goes_first_while_nothing_is_before_it),
        cmocka_unit_test(a_message_that_is_not_short_does_not_go_first),
        cmocka_unit_test(many_short_messages_at_a_time_do_not_go_first),
        cmocka_unit_test(a_message_that_is_repeated_does_not_go_first_again),
        cmocka_unit_test(of_several_routes_what_is_under_way_on_any_counts),
        cmocka_unit_test(the_budget_of_a_run_is_kept_and_shared),
        cmocka_unit_test(a_port_that_is_always_full_is_shared),
        cmocka_unit_test(a_flow_that_is_closed_leaves_no_timer),
        cmocka_unit_test(repetitions_are_counted_up_to_255_and_never_forgotten),
    };

    return cmocka_run_group_tests_name("dpdk_send", tests, NULL, NULL);
}
