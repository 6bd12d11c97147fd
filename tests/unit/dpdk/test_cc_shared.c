/* SPDX-License-Identifier: Apache-2.0 */
/* What flows make of a queue that they share, by each algorithm: bottleneck.h. The figures are of
 * virtual time, and the same on any machine. tests/bench/bench_cc.c prints more of them. */
#include "bottleneck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define MS UINT64_C(1000000)
#define GBIT UINT64_C(125000000)
#define MARKS 200000 /* bytes of the phantom queue at 100 Gbit/s */

/* assert_true() does not say what the value was. */
#define assert_at_least(low, value) check(low, value, 1e30, #value, __LINE__)
#define assert_at_most(high, value) check(-1e30, value, high, #value, __LINE__)

static void check(double low, double value, double high, const char *what, int line)
{
    if (value < low || value > high)
        print_message("# line %d: %s is %g\n", line, what, value);
    assert_true(value >= low && value <= high);
}

static const struct {
    uint32_t packet_bytes, mark_bytes;
} wires[] = {{1500, 0}, {9000, 0}, {1500, MARKS}, {9000, MARKS}};
#define WIRES (sizeof(wires) / sizeof(wires[0]))

static void wire_init(struct bn *bn, size_t count, const struct sl_dp_cc *cc, size_t wire)
{
    bn_init(bn, count, cc, 1);
    bn->packet_bytes = wires[wire].packet_bytes;
    bn->mark_bytes = wires[wire].mark_bytes;
}

static void warm(struct bn *bn, uint64_t warm_ns, uint64_t until_ns)
{
    bn_run(bn, warm_ns);
    bn_measure(bn);
    bn_run(bn, until_ns);
}

/* What is beyond the target in the figures below: an RTT without queues is taken for 20 us, and is
 * 10 here; a bucket of bn_delay() is up to a quarter wide; and flows with few packets may more. */

static void one_flow_fills_10_25_and_100_gbit(void **state)
{
    for (size_t wire = 0; wire < WIRES; wire++) {
        for (unsigned i = 0; i < 3; i++) {
            struct bn bn;
            wire_init(&bn, 1, &sl_dp_swift, wire);
            bn.rate = (const uint64_t[]){10 * GBIT, 25 * GBIT, 100 * GBIT}[i];
            warm(&bn, 10 * MS, 40 * MS);
            /* The phantom queue is drained at 95 %. */
            assert_at_least(bn.mark_bytes == 0 ? 0.99 : 0.91, bn_used(&bn));
            assert_at_most(bn.mark_bytes == 0 ? 64000 : 12000, (double)bn_delay(&bn, 0.5));
            assert_at_most(bn.mark_bytes == 0 ? 80000 : 40000, (double)bn_delay(&bn, 0.99));
            assert_at_most(0, (double)bn.dropped);
            bn_fini(&bn);
        }
    }
}

static void two_and_eight_flows_get_the_same(void **state)
{
    for (size_t wire = 0; wire < WIRES; wire++) {
        for (size_t count = 2; count <= 8; count *= 4) {
            struct bn bn;
            wire_init(&bn, count, &sl_dp_swift, wire);
            /* Windows of two or three packets wander for some 10 ms at a time. */
            warm(&bn, 20 * MS, wire == 3 ? 320 * MS : 70 * MS);
            assert_at_least(0.94, bn_used(&bn));
            assert_at_least(0.99, bn_jain(&bn));
            assert_at_least(0.90, bn_least(&bn));
            assert_at_most(1.11, bn_most(&bn));
            assert_at_most(bn.mark_bytes == 0 ? 64000 : 12000, (double)bn_delay(&bn, 0.5));
            bn_fini(&bn);
        }
    }
}

static void an_incast_of_8_and_64_into_a_shallow_buffer_settles_without_a_loss(void **state)
{
    for (size_t count = 8; count <= 64; count *= 8) {
        struct bn bn;
        wire_init(&bn, count, &sl_dp_swift, 3);
        bn.limit_bytes = 1 << 20;
        warm(&bn, 20 * MS, 320 * MS);
        assert_at_least(0.94, bn_used(&bn));
        assert_at_least(0.99, bn_jain(&bn));
        assert_at_least(0.90, bn_least(&bn));
        assert_at_most(1.11, bn_most(&bn));
        assert_at_most(50000, (double)bn_delay(&bn, 0.99));
        assert_at_most(0, (double)bn.dropped);
        bn_fini(&bn);
    }
}

static void an_incast_without_marks_fills_the_wire_and_starves_nobody(void **state)
{
    for (size_t count = 8; count <= 64; count *= 8) {
        struct bn bn;
        wire_init(&bn, count, &sl_dp_swift, 1);
        bn.limit_bytes = 2 << 20;
        warm(&bn, 20 * MS, 60 * MS);
        assert_at_least(0.98, bn_used(&bn));
        assert_at_least(0.98, bn_jain(&bn));
        assert_at_least(0.60, bn_least(&bn));
        bn_fini(&bn);
    }
}

static void more_senders_than_packets_fit_send_less_than_one_in_a_round_trip(void **state)
{
    struct bn bn;
    uint64_t small = 0;

    /* 64 packets of 9000 bytes take 460 us at 10 Gbit/s. */
    wire_init(&bn, 64, &sl_dp_swift, 3);
    bn.rate = 10 * GBIT;
    warm(&bn, 200 * MS, 700 * MS);
    assert_at_least(0.90, bn_used(&bn));
    assert_at_least(0.98, bn_jain(&bn));
    assert_at_most(512000, (double)bn_delay(&bn, 0.5));
    assert_at_most(0, (double)bn.dropped);
    for (size_t i = 0; i < bn.count; i++)
        small += bn.flows[i].state.window < SL_DP_CC_ONE;
    assert_at_least(8, (double)small);
    bn_fini(&bn);
}

static void a_newcomer_to_a_standing_queue_has_its_share_soon_and_no_more(void **state)
{
    for (size_t wire = 0; wire < WIRES; wire++) {
        for (size_t count = 2; count <= 8; count *= 4) {
            struct bn bn;
            wire_init(&bn, count, &sl_dp_swift, wire);
            bn.flows[count - 1].start_ns = 20 * MS;
            bn.flows[count - 1].is_late = true;
            warm(&bn, 25 * MS, 30 * MS);
            double first = (double)bn.flows[count - 1].received * (double)count;
            for (size_t i = 0; i < count; i++)
                first -= 0.5 * (double)bn.flows[i].received;
            assert_at_least(0, first); /* half of its share, from the fifth millisecond on */
            warm(&bn, 40 * MS, 80 * MS);
            assert_at_least(0.85, bn_least(&bn));
            assert_at_most(1.2, bn_most(&bn));
            bn_fini(&bn);
        }
    }
}

static void what_others_leave_is_taken_within_two_milliseconds(void **state)
{
    for (size_t wire = 0; wire < WIRES; wire++) {
        struct bn bn;
        wire_init(&bn, 8, &sl_dp_swift, wire);
        for (unsigned i = 0; i < 6; i++)
            bn.flows[i].stop_ns = 30 * MS;
        warm(&bn, 30 * MS + MS / 10, 32 * MS);
        assert_at_least(0.80, bn_used(&bn));
        warm(&bn, 32 * MS, 40 * MS);
        assert_at_least(0.92, bn_used(&bn));
        bn_fini(&bn);
    }
}

static double goodput(size_t count, size_t wire, uint32_t loss_ppm, uint64_t rtt_ns)
{
    struct bn bn;
    double used;

    wire_init(&bn, count, &sl_dp_swift, wire);
    bn.loss_ppm = loss_ppm;
    for (size_t i = 0; i < count; i++)
        bn.flows[i].rtt_ns = rtt_ns;
    warm(&bn, 5 * MS, 25 * MS);
    used = bn_used(&bn);
    bn_fini(&bn);
    return used;
}

static void random_loss_of_a_percent_costs_less_than_a_tenth_of_the_goodput(void **state)
{
    for (size_t wire = 0; wire < WIRES; wire++) {
        for (size_t count = 1; count <= 4; count *= 4) {
            for (uint64_t rtt_ns = 10000; rtt_ns <= 40000 / count; rtt_ns *= 4) {
                double whole = goodput(count, wire, 0, rtt_ns);
                assert_at_least(0.98, goodput(count, wire, 1000, rtt_ns) / whole);
                assert_at_least(0.90, goodput(count, wire, 10000, rtt_ns) / whole);
            }
        }
    }
}

static void a_buffer_too_shallow_for_the_target_is_kept_full_at_few_losses(void **state)
{
    struct bn bn;

    wire_init(&bn, 2, &sl_dp_swift, 0);
    bn.limit_bytes = 100000; /* 8 us */
    warm(&bn, 20 * MS, 70 * MS);
    assert_at_least(0.98, bn_used(&bn));
    assert_at_least(0.95, bn_least(&bn));
    assert_at_most(0.04, (double)bn.dropped / (double)(bn.flows[0].sent + bn.flows[1].sent));
    bn_fini(&bn);
}

static void a_long_way_is_filled_too(void **state)
{
    for (size_t wire = 1; wire < WIRES; wire += 2) {
        for (uint64_t rtt_ns = 50000; rtt_ns <= 200000; rtt_ns *= 2) {
            struct bn bn;
            wire_init(&bn, 1, &sl_dp_swift, wire);
            bn.flows[0].rtt_ns = rtt_ns;
            bn.most = 4096;
            warm(&bn, 30 * MS, 80 * MS);
            assert_at_least(bn.mark_bytes == 0 ? 0.90 : 0.84, bn_used(&bn));
            assert_at_most(80000, (double)bn_delay(&bn, 0.99));
            bn_fini(&bn);
        }
    }
}

static void a_wire_where_one_packet_takes_longer_than_the_target_is_filled(void **state)
{
    for (size_t wire = 1; wire < WIRES; wire += 2) {
        struct bn bn;
        wire_init(&bn, 1, &sl_dp_swift, wire);
        bn.rate = 500 * GBIT / 1000; /* 144 us */
        warm(&bn, 100 * MS, 600 * MS);
        assert_at_least(0.93, bn_used(&bn));
        assert_at_most(900000, (double)bn_delay(&bn, 0.99));
        bn_fini(&bn);
    }
}

static void a_way_that_becomes_longer_is_filled_again(void **state)
{
    const struct {
        uint64_t to_ns, after_ns;
    } steps[] = {{40000, 1 * MS}, {100000, 10 * MS}, {150000, 20 * MS}, {400000, 60 * MS}};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct bn bn;
        wire_init(&bn, 1, &sl_dp_swift, 1);
        bn_run(&bn, 10 * MS);
        bn.flows[0].rtt_ns = steps[i].to_ns;
        warm(&bn, 10 * MS + steps[i].after_ns, 50 * MS + steps[i].after_ns);
        assert_at_least(0.85, bn_used(&bn));
        bn_fini(&bn);
    }
}

static void a_way_that_becomes_shorter_is_not_filled_with_a_queue_for_ever(void **state)
{
    struct bn bn;

    wire_init(&bn, 1, &sl_dp_swift, 1);
    bn.rate = 10 * GBIT;
    bn.flows[0].rtt_ns = 300000;
    bn_run(&bn, 100 * MS);
    bn.flows[0].rtt_ns = 10000;
    warm(&bn, 2200 * MS, 2600 * MS);
    assert_at_least(0.95, bn_used(&bn));
    assert_at_most(100000, (double)bn_delay(&bn, 0.5));
    bn_fini(&bn);
}

/* memif on hosts with more processes than cores: 70 Gbit/s, an RTT of 2 us, answers for 32 packets,
 * and a wire that loses nothing. */
static double local(const struct sl_dp_cc *cc, struct bn_end sender, struct bn_end receiver)
{
    struct bn bn;
    double used;

    bn_init(&bn, 1, cc, 1);
    bn.rate = 70 * GBIT;
    bn.limit_bytes = UINT64_C(1) << 40;
    bn.flows[0].rtt_ns = 2000;
    bn.flows[0].answer_packets = 32;
    bn.flows[0].sender = sender;
    bn.flows[0].receiver = receiver;
    warm(&bn, 100 * MS, 400 * MS);
    used = bn_used(&bn);
    assert_at_most(0, (double)bn.flows[0].timeouts);
    bn_fini(&bn);
    return used;
}

static void ends_that_are_off_their_core_cost_no_more_than_their_absence(void **state)
{
    const struct bn_end always = {.on_ns = 1};
    const struct bn_end half = {.on_ns = 4 * MS, .off_ns = 4 * MS};
    const struct bn_end other = {.on_ns = 4 * MS, .off_ns = 4 * MS, .phase_ns = 4 * MS};
    const struct bn_end brief = {.on_ns = MS / 20, .off_ns = MS / 20};
    const struct bn_end between = {.on_ns = MS / 20, .off_ns = MS / 20, .phase_ns = MS / 20};

    assert_at_least(0.99, local(&sl_dp_swift, always, always));
    assert_at_least(0.49, local(&sl_dp_swift, always, half));
    assert_at_least(0.49, local(&sl_dp_swift, half, always));
    /* One core for both: never there together. What the window holds goes in each turn. */
    assert_at_least(0.99 * local(&sl_dp_fixed, half, other), local(&sl_dp_swift, half, other));
    assert_at_least(0.99 * local(&sl_dp_fixed, brief, between),
                    local(&sl_dp_swift, brief, between));
}

static void timely_fills_and_shares_short_ways(void **state)
{
    for (size_t count = 1; count <= 8; count *= 8) {
        for (size_t wire = 0; wire < 2; wire++) {
            struct bn bn;
            wire_init(&bn, count, &sl_dp_timely, wire);
            warm(&bn, 20 * MS, 70 * MS);
            assert_at_least(0.97, bn_used(&bn));
            assert_at_least(0.98, bn_jain(&bn));
            assert_at_most(64000, (double)bn_delay(&bn, 0.5));
            bn_fini(&bn);
        }
    }
}

static void a_fixed_window_stays_full_and_yields_to_nobody(void **state)
{
    struct bn bn;

    wire_init(&bn, 2, &sl_dp_fixed, 3);
    warm(&bn, 20 * MS, 40 * MS);
    assert_at_least(0.99, bn_used(&bn));
    assert_at_least(500000, (double)bn_delay(&bn, 0.5));
    assert_at_least(100, (double)bn.dropped);
    bn_fini(&bn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_flow_fills_10_25_and_100_gbit),
        cmocka_unit_test(two_and_eight_flows_get_the_same),
        cmocka_unit_test(an_incast_of_8_and_64_into_a_shallow_buffer_settles_without_a_loss),
        cmocka_unit_test(an_incast_without_marks_fills_the_wire_and_starves_nobody),
        cmocka_unit_test(more_senders_than_packets_fit_send_less_than_one_in_a_round_trip),
        cmocka_unit_test(a_newcomer_to_a_standing_queue_has_its_share_soon_and_no_more),
        cmocka_unit_test(what_others_leave_is_taken_within_two_milliseconds),
        cmocka_unit_test(random_loss_of_a_percent_costs_less_than_a_tenth_of_the_goodput),
        cmocka_unit_test(a_buffer_too_shallow_for_the_target_is_kept_full_at_few_losses),
        cmocka_unit_test(a_long_way_is_filled_too),
        cmocka_unit_test(a_wire_where_one_packet_takes_longer_than_the_target_is_filled),
        cmocka_unit_test(a_way_that_becomes_longer_is_filled_again),
        cmocka_unit_test(a_way_that_becomes_shorter_is_not_filled_with_a_queue_for_ever),
        cmocka_unit_test(ends_that_are_off_their_core_cost_no_more_than_their_absence),
        cmocka_unit_test(timely_fills_and_shares_short_ways),
        cmocka_unit_test(a_fixed_window_stays_full_and_yields_to_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
