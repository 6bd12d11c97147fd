/* SPDX-License-Identifier: Apache-2.0 */
/* Flows over the simulated wire: what is promised of them, one thing a case. */
#include "dpdk/cc/cc.h"
#include "tests/sim/dp_traffic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static struct dp_wire wire;
static struct dp_traffic traffic;
static struct dp_end *ends[2];

static const struct sl_dp_settings settings = {.window = 1024,
                                               .rto_least_ns = 20 * MS,
                                               .dead_ns = 2 * SECOND,
                                               .target_ns = 50000,
                                               .cc = &sl_dp_fixed};
static const struct sl_dp_ends plain = {
    .version = 1, .routes = 1, .payload_least = 1400, .payload_most = 1400};

static void begin(uint64_t seed, const struct sl_dp_settings *s, const struct sl_dp_ends *e)
{
    dp_wire_init(&wire, seed);
    dp_traffic_init(&traffic, &wire);
    dp_flow_add(&wire, dp_node_add(&wire, s), dp_node_add(&wire, s), e, &dp_traffic_user, ends);
    for (unsigned i = 0; i < 2; i++)
        wire.node[i].rate = UINT64_C(12500000000) / 4;
}

static void end(void)
{
    dp_wire_fini(&wire);
    assert_int_equal(wire.node[0].memory, 0);
    assert_int_equal(wire.node[1].memory, 0);
    dp_traffic_fini(&traffic);
}

static struct dp_stream *send_each_way(unsigned count, uint32_t len_most)
{
    for (unsigned i = 0; i < 2; i++) {
        struct dp_stream *stream = dp_stream_add(&traffic, ends[i], count, 16);

        for (unsigned m = 0; m < count; m++)
            dp_message_size(stream, m, (uint32_t)sl_rng_below(&wire.rng, len_most + 1), m % 3 != 0);
    }
    return &traffic.stream[0];
}

static void run_to_end(uint64_t within_ns)
{
    bool done = dp_traffic_run(&traffic, wire.now_ns + within_ns);

    if (!done || traffic.wrong[0] != '\0')
        print_message("# %s; %u of %u arrived, %u retired; back %u, %u; %.3f ms\n", traffic.wrong,
                      traffic.stream[0].arrived, traffic.stream[0].count, traffic.stream[0].retired,
                      traffic.stream[1].arrived, traffic.stream[1].retired,
                      (double)wire.now_ns / 1e6);
    assert_true(done);
    assert_string_equal(traffic.wrong, "");
}

static void messages_of_any_size_arrive_in_order_both_ways(void **state)
{
    struct sl_dp_flow_stats stats;

    begin(1, &settings, &plain);
    send_each_way(200, 100000);
    run_to_end(SECOND);
    sl_dp_flow_stats(ends[0]->flow, &stats);
    assert_int_equal(stats.resent_packets, 0);
    assert_int_equal(stats.timeouts, 0);
    end();
}

static void lost_doubled_late_and_damaged_packets_do_no_harm(void **state)
{
    struct sl_dp_ends with_crc = plain;

    with_crc.crc = true;
    with_crc.routes = 3;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed, &settings, &with_crc);
        for (unsigned i = 0; i < 2; i++)
            for (unsigned r = 0; r < 3; r++) {
                struct dp_path *path = &ends[i]->path[r];

                path->loss_ppm = 20000;
                path->double_ppm = 10000;
                path->damage_ppm = path->payload_damage_ppm = 5000;
                path->reorder_ppm = 20000;
                path->jitter_ns = 500;
            }
        send_each_way(100, 60000);
        run_to_end(20 * SECOND);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_any_size_arrive_in_order_both_ways),
        cmocka_unit_test(lost_doubled_late_and_damaged_packets_do_no_harm),
    };

    return cmocka_run_group_tests_name("dpdk_flow", tests, NULL, NULL);
}
