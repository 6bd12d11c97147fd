/* SPDX-License-Identifier: Apache-2.0 */
#include "testing/sim/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static struct sl_sim *net(uint64_t latency_ns, uint64_t ns_per_kib,
                          const struct sl_sim_fault *fault)
{
    struct sl_sim_params params;
    struct sl_sim *sim;

    sl_sim_params_init(&params, 3, 1);
    params.latency_ns = latency_ns;
    params.ns_per_kib = ns_per_kib;
    params.faults = fault;
    params.fault_count = fault != NULL;
    assert_int_equal(sl_sim_create(&params, &sim), 0);
    return sim;
}

/* How long until it is there, counted from now. */
static uint64_t transit(struct sl_sim *sim, uint32_t from, uint32_t to, size_t len)
{
    return sl_sim_transit(sim, from, to, len) - sl_sim_now(sim);
}

static void a_message_takes_latency_and_its_bytes(void **state)
{
    struct sl_sim *sim = net(2000, 100, NULL);

    (void)state;
    assert_int_equal(transit(sim, 0, 1, 0), 2000);
    assert_int_equal(transit(sim, 0, 1, 10240), 3000);
    sl_sim_destroy(sim);
}

static void messages_of_one_link_share_its_rate_and_others_do_not(void **state)
{
    struct sl_sim *sim = net(2000, 100, NULL);

    (void)state;
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(transit(sim, 0, 1, 1024), 2000 + 100 * i);
    assert_int_equal(transit(sim, 1, 0, 1024), 2100);
    assert_int_equal(transit(sim, 0, 2, 1024), 2100);
    sl_sim_destroy(sim);
}

static void a_link_without_limit_has_latency_only(void **state)
{
    struct sl_sim *sim = net(500, 0, NULL);

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(transit(sim, 0, 1, 1u << 30), 500);
    sl_sim_destroy(sim);
}

static void a_cut_link_delivers_when_it_is_whole_again(void **state)
{
    const struct sl_sim_fault cut = {
        .kind = SL_SIM_CUT, .rank = 0, .peer = 1, .at_ns = 0, .for_ns = 9000};
    const struct sl_sim_fault for_good = {
        .kind = SL_SIM_CUT, .rank = 0, .peer = 1, .at_ns = 0, .for_ns = SL_NEVER};
    struct sl_sim *sim = net(2000, 0, &cut);

    (void)state;
    assert_true(sl_sim_step(sim));
    assert_int_equal(transit(sim, 0, 1, 8), 11000);
    assert_int_equal(transit(sim, 1, 0, 8), 2000);
    sl_sim_destroy(sim);
    sim = net(2000, 0, &for_good);
    assert_true(sl_sim_step(sim));
    assert_true(sl_sim_transit(sim, 0, 1, 8) == SL_NEVER);
    sl_sim_destroy(sim);
}

static uint64_t order;

static void note(struct sl_sim *sim, struct sl_sim_event *event)
{
    (void)sim;
    order = order * 10 + event->a;
}

static void events_happen_by_time_and_then_in_the_order_they_were_made(void **state)
{
    static const uint64_t at[] = {30, 10, 20, 10, 30, 10};
    struct sl_sim *sim = net(1, 0, NULL);
    uint64_t start = sl_sim_now(sim);

    (void)state;
    order = 0;
    for (unsigned i = 0; i < SL_ARRAY_LEN(at); i++)
        sl_sim_at(sim, start + at[i], note)->a = i + 1;
    while (sl_sim_step(sim))
        assert_true((sl_sim_now(sim) - start) % 10 == 0);
    assert_int_equal(order, 246315);
    assert_int_equal(sl_sim_now(sim) - start, 30);
    sl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_takes_latency_and_its_bytes),
        cmocka_unit_test(messages_of_one_link_share_its_rate_and_others_do_not),
        cmocka_unit_test(a_link_without_limit_has_latency_only),
        cmocka_unit_test(a_cut_link_delivers_when_it_is_whole_again),
        cmocka_unit_test(events_happen_by_time_and_then_in_the_order_they_were_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
