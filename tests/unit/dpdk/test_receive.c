/* SPDX-License-Identifier: Apache-2.0 */
/* Placing, order and answers. */
#include "tests/unit/dpdk/hand.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hand hand;

#define WRITE SL_DP_FLAG_WRITE
#define LAST (SL_DP_FLAG_WRITE | SL_DP_FLAG_LAST)

/* Packet seq of a message, 100 bytes each. */
static struct sl_dp_head head_of(uint32_t seq, uint8_t flags)
{
    return (struct sl_dp_head){
        .flags = flags, .seq = seq, .imm = 0x30007, .offset = 100 * seq, .stamp = (uint16_t)seq};
}

static void packets_in_any_order_are_placed_at_once_and_told_in_order(void **state)
{
    static const uint32_t order[] = {3, 1, 2, 0};

    hand_start(&hand, &hand_ends);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(hand.arrivals, 0);
        hand_data(&hand, head_of(order[i], order[i] == 3 ? LAST : WRITE), (uint8_t)order[i] + 1,
                  100);
        assert_int_equal(hand.places, i + 1);
        assert_int_equal(hand.memory[100 * order[i]], order[i] + 1);
        assert_int_equal(hand.memory[100 * order[i] + 99], order[i] + 1);
    }
    assert_int_equal(hand.arrivals, 1);
    assert_int_equal(hand.arrived_imm, 0x30007);
    assert_int_equal(hand.arrived_len, 400);
    hand_stop(&hand);
}

static void an_answer_shows_what_came_and_what_did_not(void **state)
{
    const struct hand_packet *answer;

    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(0, WRITE), 1, 100);
    hand_data(&hand, head_of(2, WRITE), 1, 100);
    hand_data(&hand, head_of(70, WRITE), 1, 100); /* beyond the first places, too */
    hand_run(&hand, 700);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1);
    answer = hand_last(&hand, SL_DP_ACK, 0);
    assert_int_equal(answer->head.seq, 1);
    assert_int_equal(answer->head.imm, 1 + 1024);
    assert_int_equal(answer->head.stamp, 70);
    assert_int_equal(answer->head.offset, 700); /* kept for so long */
    assert_true((answer->head.flags & SL_DP_FLAG_CRC) != 0);
    assert_int_equal(answer->ack.echo, 70);
    assert_int_equal(answer->ack.came, 3);
    assert_int_equal(answer->ack.words, 2);
    assert_true(answer->ack.sack[0] == 1); /* 2 */
    assert_true(answer->ack.sack[1] == UINT64_C(1) << (70 - 2 - 64));
    hand_run(&hand, 1000);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1); /* once */
    hand_stop(&hand);
}

static void it_still_does_after_half_of_all_numbers_came_in_order(void **state)
{
    const uint32_t steps[] = {0x40000000, 0x7fffffff, 0xbfffffff};
    const struct hand_packet *answer;

    hand_start(&hand, &hand_ends);
    for (unsigned i = 0; i < SL_ARRAY_LEN(steps); i++) {
        hand.flow->due = steps[i]; /* as if all before had come, one after the other */
        hand_data(&hand, (struct sl_dp_head){.flags = LAST, .seq = steps[i]}, 1, 10);
        assert_int_equal(hand.flow->due, steps[i] + 1);
    }
    hand_data(&hand, (struct sl_dp_head){.flags = LAST, .seq = steps[2] + 3}, 1, 10);
    hand_run(&hand, 0);
    answer = hand_last(&hand, SL_DP_ACK, 0);
    assert_int_equal(answer->head.seq, steps[2] + 1);
    assert_int_equal(answer->ack.words, 1);
    assert_true(answer->ack.sack[0] == 2);
    hand_stop(&hand);
}

static void stamps_wrap(void **state)
{
    static const uint16_t stamps[] = {UINT16_MAX - 1, UINT16_MAX, 1, 0};
    static const uint16_t latest[] = {UINT16_MAX - 1, UINT16_MAX, 1, 1};

    hand_start(&hand, &hand_ends);
    for (uint32_t seq = 0; seq < 4; seq++) {
        struct sl_dp_head head = head_of(seq, WRITE);

        head.stamp = stamps[seq];
        hand_data(&hand, head, 1, 100);
        hand_run(&hand, 100);
        assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.stamp, latest[seq]);
    }
    hand_stop(&hand);
}

static void each_route_is_answered_by_itself(void **state)
{
    struct sl_dp_ends ends = hand_ends;
    struct sl_dp_head head = head_of(0, WRITE);

    ends.routes = 2;
    hand_start(&hand, &ends);
    hand_data(&hand, head, 1, 100);
    head = head_of(1, WRITE);
    head.route = 5; /* the peer has more routes */
    head.stamp = 0;
    hand_data(&hand, head, 1, 100);
    hand_run(&hand, 0);
    hand_run(&hand, 100);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 2);
    assert_int_equal(hand.sent[0].head.route, 0);
    assert_int_equal(hand.sent[0].route, 0);
    assert_int_equal(hand.sent[0].ack.came, 1);
    assert_int_equal(hand.sent[1].head.route, 5);
    assert_int_equal(hand.sent[1].route, 1); /* by a route that there is */
    assert_int_equal(hand.sent[1].ack.came, 1);
    hand_stop(&hand);
}

static void what_came_before_is_not_placed_again_but_answered(void **state)
{
    struct sl_dp_head head = head_of(0, WRITE);

    hand_start(&hand, &hand_ends);
    hand_data(&hand, head, 1, 100);
    hand_data(&hand, head_of(2, WRITE), 1, 100);
    hand_run(&hand, 100);
    head.stamp = 3; /* repeated */
    hand_data(&hand, head, 9, 100);
    head = head_of(2, WRITE);
    head.stamp = 4;
    hand_data(&hand, head, 9, 100);
    assert_int_equal(hand.places, 2);
    assert_int_equal(hand.memory[0], 1);
    assert_int_equal(hand.memory[200], 1);
    hand_run(&hand, 100);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 2);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.came, 4);
    /* The network doubles it: no repetition of the sender's. */
    hand_data(&hand, head, 9, 100);
    hand_run(&hand, 100);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.came, 4);
    hand_stop(&hand);
}

static void what_there_is_no_memory_for_counts_as_lost(void **state)
{
    hand_start(&hand, &hand_ends);
    hand.refuses = true;
    hand.refuse = SL_DP_LATER;
    hand_data(&hand, head_of(0, LAST), 1, 100);
    hand_run(&hand, 100);
    assert_int_equal(hand.arrivals, 0);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.seq, 0);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.came, 0);
    hand.refuses = false;
    hand_data(&hand, head_of(0, LAST), 1, 100);
    assert_int_equal(hand.arrivals, 1);
    hand_stop(&hand);
}

static void a_packet_with_no_place_ends_the_flow(void **state)
{
    hand_start(&hand, &hand_ends);
    hand.refuses = true;
    hand_data(&hand, head_of(0, LAST), 1, 100);
    assert_int_equal(hand.failures, 1);
    assert_int_equal(hand.status, -EPROTO);
    hand_data(&hand, head_of(1, LAST), 1, 100);
    hand_post(&hand, 1, 100);
    hand_idle(&hand, 3000 * HAND_MS, 100 * HAND_MS);
    assert_int_equal(hand.count, 0);
    assert_int_equal(hand.failures, 1);
    hand_stop(&hand);
}

static void packets_of_a_message_that_do_not_follow_end_the_flow(void **state)
{
    for (unsigned i = 0; i < 3; i++) {
        struct sl_dp_head head = head_of(1, LAST);

        hand_start(&hand, &hand_ends);
        hand_data(&hand, head_of(0, WRITE), 1, 100);
        switch (i) {
        case 0: head.offset++; break;
        case 1: head.imm++; break;
        case 2: head.flags = SL_DP_FLAG_LAST; break;
        }
        hand_data(&hand, head, 1, 100);
        assert_int_equal(hand.failures, 1);
        assert_int_equal(hand.arrivals, 0);
        hand_stop(&hand);
    }
}

/* sim_dpdk, seed 206031: a peer that breaks the rules sets LAST amid a message. How long it should
 * have been is known above: sl_mp_on_write() checks it. */
static void a_message_that_its_peer_ends_early_is_told_as_long_as_it_came(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(0, WRITE), 1, 100);
    hand_data(&hand, head_of(1, LAST), 2, 100);
    assert_int_equal(hand.arrivals, 1);
    assert_int_equal(hand.arrived_len, 200);
    hand_data(&hand, head_of(2, LAST), 3, 100); /* the rest is a message of its own */
    assert_int_equal(hand.arrivals, 2);
    assert_int_equal(hand.arrived_len, 100);
    assert_int_equal(hand.failures, 0);
    hand_stop(&hand);
}

static void what_lies_outside_of_the_window_is_dropped(void **state)
{
    struct sl_dp_head head = head_of(0, WRITE);

    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(1024, WRITE), 1, 10);
    hand_data(&hand, head_of(0x7fffffff, WRITE), 1, 10);
    assert_int_equal(hand.places, 0);
    assert_int_equal(hand.engine.dropped_bad, 2);
    head.offset = UINT32_MAX - 9;
    hand_data(&hand, head, 1, 10); /* would end beyond 32 bits */
    assert_int_equal(hand.places, 0);
    assert_int_equal(hand.engine.dropped_bad, 3);
    hand_data(&hand, head_of(500, WRITE), 1, 10);
    assert_int_equal(hand.places, 1);
    hand_stop(&hand);
}

static void without_memory_for_its_records_a_packet_counts_as_lost(void **state)
{
    size_t before;

    hand_start(&hand, &hand_ends);
    before = hand.held;
    hand_data(&hand, head_of(63, WRITE), 1, 10);
    assert_int_equal(hand.held, before); /* there is a place */
    hand.allocations_left = 1;
    hand_data(&hand, head_of(64, WRITE), 1, 10);
    assert_int_equal(hand.places, 1);
    assert_int_equal(hand.engine.dropped_later, 1);
    assert_int_equal(hand.held, before);
    hand.allocations_left = UINT_MAX;
    hand_data(&hand, head_of(64, WRITE), 1, 10);
    assert_int_equal(hand.places, 2);
    hand_stop(&hand);
}

static void a_stranger_changes_nothing_but_a_counter(void **state)
{
    struct sl_dp_head head = head_of(0, LAST);
    uint8_t packet[SL_DP_HEAD_BYTES + 10] = {0};

    hand_start(&hand, &hand_ends);
    head.kind_version = SL_DP_DATA << 4 | SL_DP_VERSION;
    head.flow = hand_ends.own_number;
    head.secret = hand_ends.own_secret ^ 1;
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_false(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.engine.dropped_secret, 1);
    head.secret = hand_ends.own_secret;
    head.flow++;
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_false(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.engine.dropped_secret, 2);
    head.flow--;
    head.kind_version++;
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_false(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.engine.dropped_bad, 1);
    hand_run(&hand, 100);
    assert_int_equal(hand.count, 0);
    assert_int_equal(hand.places, 0);
    hand_stop(&hand);
}

static void a_packet_in_parts_is_whole_when_all_of_them_came(void **state)
{
    static const uint8_t order[] = {2, 0, 0, 1};
    struct sl_dp_head head = head_of(0, LAST);

    hand_start(&hand, &hand_ends);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(hand.arrivals, 0);
        head.part = 0x20 | order[i];
        head.offset = 50 * order[i];
        head.stamp = (uint16_t)i;
        hand_data(&hand, head, (uint8_t)(1 + order[i]), order[i] == 2 ? 30 : 50);
    }
    assert_int_equal(hand.places, 3);
    assert_int_equal(hand.arrivals, 1);
    assert_int_equal(hand.arrived_len, 130);
    assert_int_equal(hand.memory[129], 3);
    /* Some parts, and then the whole of it. */
    head = head_of(1, LAST);
    head.part = 0x21;
    head.offset = 150;
    hand_data(&hand, head, 7, 50);
    assert_int_equal(hand.arrivals, 1);
    head.part = 0;
    head.offset = 100;
    head.stamp = 8;
    hand_data(&hand, head, 8, 130);
    assert_int_equal(hand.arrivals, 2);
    assert_int_equal(hand.arrived_len, 130);
    /* The next packet at that place begins afresh. */
    head = head_of(65, LAST);
    head.part = 0x10;
    hand_data(&hand, head, 7, 50);
    assert_int_equal(hand.arrivals, 2);
    hand_run(&hand, 100);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.seq, 2);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.words, 0);
    /* There is no part 2 of 2, and there are no 9. */
    head = head_of(2, LAST);
    head.part = 0x12;
    hand_data(&hand, head, 7, 50);
    head.part = 0x80;
    hand_data(&hand, head, 7, 50);
    assert_int_equal(hand.engine.dropped_bad, 2);
    hand_stop(&hand);
}

static void a_packet_that_asks_for_it_is_answered_at_once(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(0, WRITE | SL_DP_FLAG_NOW), 1, 10);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1);
    hand.engine.settings.ack_packets = 3;
    for (uint32_t seq = 1; seq <= 3; seq++)
        hand_data(&hand, head_of(seq, WRITE), 1, 100);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1); /* packet 1 did not follow: dead */
    hand_stop(&hand);
    hand_start(&hand, &hand_ends);
    hand.engine.settings.ack_packets = 3;
    for (uint32_t seq = 0; seq < 3; seq++) {
        assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 0);
        hand_data(&hand, head_of(seq, WRITE), 1, 100);
    }
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1);
    hand_stop(&hand);
}

static void an_answer_that_found_the_port_full_goes_in_the_next_run(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(0, WRITE), 1, 100);
    hand.room = 0;
    hand_run(&hand, 100);
    assert_int_equal(sl_dp_engine_next(&hand.engine), hand.now_ns);
    hand.room = UINT_MAX;
    hand_run(&hand, 100);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 1);
    hand_stop(&hand);
}

static void a_damaged_payload_or_one_without_the_crc_agreed_on_is_dropped(void **state)
{
    struct sl_dp_ends ends = hand_ends;
    struct sl_dp_head head = head_of(0, LAST);
    uint8_t packet[SL_DP_HEAD_BYTES + 100 + SL_DP_CRC_BYTES] = {0};

    ends.crc = true;
    hand_start(&hand, &ends);
    hand_data(&hand, head, 1, 100);
    assert_int_equal(hand.engine.dropped_bad, 1);
    head.kind_version = SL_DP_DATA << 4 | SL_DP_VERSION;
    head.flags |= SL_DP_FLAG_CRC;
    head.flow = hand_ends.own_number;
    head.secret = hand_ends.own_secret;
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_true(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.engine.dropped_crc, 1);
    assert_int_equal(hand.places, 0);
    hand_data(&hand, head_of(0, LAST | SL_DP_FLAG_CRC), 1, 100);
    assert_int_equal(hand.arrivals, 1);
    hand_stop(&hand);
}

static void marks_are_counted_and_echoed(void **state)
{
    struct sl_dp_head head = head_of(0, WRITE);
    uint8_t packet[SL_DP_HEAD_BYTES + 100] = {0};

    hand_start(&hand, &hand_ends);
    head.kind_version = SL_DP_DATA << 4 | SL_DP_VERSION;
    head.flow = hand_ends.own_number;
    head.secret = hand_ends.own_secret;
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    assert_true(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), true, hand.now_ns));
    hand_data(&hand, head_of(1, WRITE), 1, 100);
    hand_run(&hand, 10);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.came, 2);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->ack.ce, 1);
    hand_stop(&hand);
}

/* ---- answers that wait for a reply ---- */

#define FRAME SL_DP_FLAG_LAST

/* One that comes; the next run is at once. Answers of that run. */
static unsigned answers_to(uint32_t seq, uint8_t flags)
{
    unsigned from = hand.count;

    hand_data(&hand, head_of(seq, flags), 1, 100);
    hand_run(&hand, 0);
    return hand_count(&hand, SL_DP_ACK, from);
}

/* The owner has replied at once to frame 0: it takes turns with its peer. */
static void start_with_turns(void)
{
    hand_start(&hand, &hand_ends);
    assert_int_equal(answers_to(0, FRAME), 1);
    hand_run(&hand, SL_DP_TURN_NS - 1);
    hand_post(&hand, 0, 100);
}

static unsigned answers_of_a_run(uint64_t ns)
{
    unsigned from = hand.count;

    hand_run(&hand, ns);
    return hand_count(&hand, SL_DP_ACK, from);
}

static void the_answer_to_a_frame_alone_waits_one_run_for_the_reply(void **state)
{
    start_with_turns();
    for (uint32_t seq = 1; seq < 4; seq++) {
        assert_int_equal(answers_to(seq, FRAME), 0);
        assert_int_equal(sl_dp_engine_next(&hand.engine), hand.engine.now_ns); /* at once */
        hand_post(&hand, seq << 16, 100);
        assert_int_equal(answers_of_a_run(700), 1);
        assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.seq, seq + 1);
        assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.offset, 700); /* kept */
        assert_int_equal(answers_of_a_run(700), 0);
    }
    hand_stop(&hand);
}

static void no_answer_waits_for_a_second_packet_or_a_write(void **state)
{
    struct sl_dp_head part = head_of(2, FRAME);

    start_with_turns();
    assert_int_equal(answers_to(1, LAST), 1); /* a write */
    part.part = 1 << 4;
    hand_data(&hand, part, 1, 100); /* the rest of it does not come */
    assert_int_equal(answers_of_a_run(0), 1);
    assert_int_equal(answers_to(2, FRAME), 0);
    assert_int_equal(answers_to(3, FRAME), 1); /* comes while that of 2 waits */
    hand_data(&hand, head_of(4, FRAME), 1, 100);
    hand_data(&hand, head_of(5, FRAME), 1, 100);
    assert_int_equal(answers_of_a_run(0), 1);  /* two in a run */
    assert_int_equal(answers_to(7, FRAME), 1); /* 6 is missing */
    assert_int_equal(answers_to(6, FRAME), 1); /* and came late */
    assert_int_equal(answers_to(8, FRAME | SL_DP_FLAG_AGAIN), 1);
    assert_int_equal(answers_to(9, FRAME | SL_DP_FLAG_NOW), 1);
    assert_int_equal(answers_to(10, FRAME), 0);
    assert_int_equal(answers_to(10, FRAME), 1); /* the peer repeats it */
    hand.room = 0;
    hand_post(&hand, 1, 100);
    hand.room = UINT_MAX;
    assert_int_equal(answers_to(11, FRAME), 1); /* the flow runs anyway */
    assert_int_equal(answers_to(12, 0), 1);     /* more of the frame follows */
    assert_int_equal(answers_to(13, FRAME), 1); /* and this is it */
    hand_stop(&hand);
}

static void no_answer_waits_where_the_owner_computes(void **state)
{
    start_with_turns();
    assert_int_equal(answers_to(1, FRAME), 0);
    assert_int_equal(answers_of_a_run(0), 1);
    hand_run(&hand, 2 * SL_DP_TURN_NS);
    assert_int_equal(answers_to(2, LAST), 1); /* which says nothing about replies */
    assert_int_equal(answers_to(3, FRAME), 0);
    assert_int_equal(answers_of_a_run(SL_DP_TURN_NS + 1), 1);
    assert_int_equal(answers_to(4, FRAME), 1);
    hand_run(&hand, SL_DP_TURN_NS + 1);
    hand_post(&hand, 1 << 16, 100); /* that is no reply */
    assert_int_equal(answers_to(5, FRAME), 1);
    hand_post(&hand, 2 << 16, 100);
    assert_int_equal(answers_to(6, FRAME), 0);
    hand_stop(&hand);
}

static void an_answer_without_a_checksum_is_dropped(void **state)
{
    struct sl_dp_head head = {.kind_version = SL_DP_ACK << 4 | SL_DP_VERSION,
                              .flow = hand_ends.own_number,
                              .secret = hand_ends.own_secret,
                              .seq = 1,
                              .imm = 1025};
    struct sl_dp_ack ack = {.came = 1};
    uint8_t packet[SL_DP_HEAD_BYTES + SL_DP_ACK_HEAD];

    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 100);
    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    memcpy(packet + sizeof(head), &ack, SL_DP_ACK_HEAD);
    assert_true(sl_dp_flow_receive(hand.flow, packet, sizeof(packet), false, hand.now_ns));
    assert_int_equal(hand.engine.dropped_bad, 1);
    assert_int_equal(hand.retired, 0);
    hand_ack(&hand, 0, 1, 0, 0, 1, 0);
    assert_int_equal(hand.retired, 1);
    hand_stop(&hand);
}

/* Something is under way when the peer breaks the rules: nothing wakes for that any more. */
static void a_flow_that_has_failed_wants_nothing(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_post(&hand, 1, 100);
    assert_true(sl_dp_engine_next(&hand.engine) < UINT64_MAX);
    hand.refuses = true;
    hand_data(&hand, head_of(0, LAST), 1, 100);
    assert_int_equal(hand.failures, 1);
    assert_true(sl_dp_engine_next(&hand.engine) == UINT64_MAX);
    hand_stop(&hand);
}

/* Frames of a stream from packet seq on, each with more behind it, and a run after each: how many
 * answers. */
static unsigned answers_to_stream(uint32_t seq, unsigned count, uint64_t ns)
{
    unsigned from = hand.count;

    for (unsigned i = 0; i < count; i++) {
        hand_data(&hand, head_of(seq + i, WRITE | SL_DP_FLAG_MORE), 1, 100);
        hand_run(&hand, ns);
    }
    return hand_count(&hand, SL_DP_ACK, from);
}

/* Packets of a route are answered one by one until it has shown that none is missing. */
static uint32_t start_of_stream(void)
{
    const uint32_t first = SL_DP_REORDER_LEAST + 1;

    hand_start(&hand, &hand_ends);
    assert_int_equal(answers_to_stream(0, first, 100), first);
    assert_int_equal(answers_to_stream(first, 1, 100), 0);
    return first + 1;
}

static void the_answer_waits_while_more_follows(void **state)
{
    uint32_t next = start_of_stream();

    assert_int_equal(answers_to_stream(next, SL_DP_HELD_MOST - 2, 100), 0);
    assert_int_equal(answers_to_stream(next + SL_DP_HELD_MOST - 2, 1, 100), 1);
    next += SL_DP_HELD_MOST - 1;
    assert_int_equal(hand_last(&hand, SL_DP_ACK, 0)->head.seq, next);
    assert_int_equal(answers_to_stream(next, 2, 100), 0);
    unsigned from = hand.count;
    hand_data(&hand, head_of(next + 2, WRITE), 1, 100); /* nothing follows this one */
    hand_run(&hand, 0);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, from), 1);
    hand_stop(&hand);
}

static void no_answer_waits_for_longer_than_its_time_or_for_a_sleeper(void **state)
{
    uint32_t next = start_of_stream();
    unsigned from = hand.count;

    assert_int_equal(sl_dp_engine_next(&hand.engine), hand.now_ns - 100 + SL_DP_HELD_NS);
    hand_run(&hand, SL_DP_HELD_NS - 200);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, from), 0);
    hand_run(&hand, 200);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, from), 1);
    assert_true(sl_dp_engine_next(&hand.engine) > hand.now_ns + SL_DP_HELD_NS);
    assert_int_equal(answers_to_stream(next, 1, 100), 0);
    sl_dp_engine_hurry(&hand.engine);
    hand_run(&hand, 0);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, from), 2);
    hand_stop(&hand);
}

static void no_answer_waits_while_a_route_misses_packets(void **state)
{
    const uint32_t wary = SL_DP_REORDER_LEAST + 1;
    uint32_t next = start_of_stream() + 1; /* one is missing */

    assert_int_equal(answers_to_stream(next, wary, 100), wary);
    assert_int_equal(answers_to_stream(next + wary, 2, 100), 0);
    unsigned from = hand.count;
    hand_data(&hand, head_of(next - 1, WRITE | SL_DP_FLAG_AGAIN), 1, 100);
    hand_run(&hand, 0);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, from), 1);
    assert_int_equal(hand_last(&hand, SL_DP_ACK, from)->head.seq, next + wary + 2);
    hand_stop(&hand);
}

static void answers_go_first_but_those_to_what_is_repeated(void **state)
{
    hand_start(&hand, &hand_ends);
    hand_data(&hand, head_of(0, WRITE), 1, 100);
    hand_run(&hand, 0);
    assert_true(hand_last(&hand, SL_DP_ACK, 0)->is_high);
    hand_data(&hand, head_of(0, WRITE | SL_DP_FLAG_AGAIN), 1, 100);
    hand_data(&hand, head_of(1, WRITE), 1, 100);
    hand_run(&hand, 0);
    assert_int_equal(hand_count(&hand, SL_DP_ACK, 0), 2);
    assert_false(hand_last(&hand, SL_DP_ACK, 0)->is_high);
    hand_data(&hand, head_of(2, WRITE), 1, 100);
    hand_run(&hand, 0);
    assert_true(hand_last(&hand, SL_DP_ACK, 0)->is_high);
    hand_stop(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_in_any_order_are_placed_at_once_and_told_in_order),
        cmocka_unit_test(an_answer_shows_what_came_and_what_did_not),
        cmocka_unit_test(it_still_does_after_half_of_all_numbers_came_in_order),
        cmocka_unit_test(stamps_wrap),
        cmocka_unit_test(each_route_is_answered_by_itself),
        cmocka_unit_test(what_came_before_is_not_placed_again_but_answered),
        cmocka_unit_test(what_there_is_no_memory_for_counts_as_lost),
        cmocka_unit_test(a_packet_with_no_place_ends_the_flow),
        cmocka_unit_test(packets_of_a_message_that_do_not_follow_end_the_flow),
        cmocka_unit_test(a_message_that_its_peer_ends_early_is_told_as_long_as_it_came),
        cmocka_unit_test(what_lies_outside_of_the_window_is_dropped),
        cmocka_unit_test(without_memory_for_its_records_a_packet_counts_as_lost),
        cmocka_unit_test(a_stranger_changes_nothing_but_a_counter),
        cmocka_unit_test(a_packet_in_parts_is_whole_when_all_of_them_came),
        cmocka_unit_test(a_packet_that_asks_for_it_is_answered_at_once),
        cmocka_unit_test(an_answer_that_found_the_port_full_goes_in_the_next_run),
        cmocka_unit_test(a_damaged_payload_or_one_without_the_crc_agreed_on_is_dropped),
        cmocka_unit_test(marks_are_counted_and_echoed),
        cmocka_unit_test(the_answer_to_a_frame_alone_waits_one_run_for_the_reply),
        cmocka_unit_test(no_answer_waits_for_a_second_packet_or_a_write),
        cmocka_unit_test(no_answer_waits_where_the_owner_computes),
        cmocka_unit_test(an_answer_without_a_checksum_is_dropped),
        cmocka_unit_test(a_flow_that_has_failed_wants_nothing),
        cmocka_unit_test(answers_go_first_but_those_to_what_is_repeated),
        cmocka_unit_test(the_answer_waits_while_more_follows),
        cmocka_unit_test(no_answer_waits_for_longer_than_its_time_or_for_a_sleeper),
        cmocka_unit_test(no_answer_waits_while_a_route_misses_packets),
    };

    return cmocka_run_group_tests_name("dpdk_receive", tests, NULL, NULL);
}
