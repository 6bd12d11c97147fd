/* SPDX-License-Identifier: Apache-2.0 */
/* What readings of a port say: counters, state, speed; and a day in which nothing is wrong. */
#include "core/rng.h"
#include "monitor/port.h"
#include "tests/unit/monitor/engine_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct sl_mon_port port;
static struct sl_mon_reading reading;

static int begin(void **state)
{
    (void)state;
    engine_begin(8);
    sl_mon_set_boot(mon, "a");
    sl_mon_port_init(&port, sl_mon_subject(mon, SL_MON_PORT, "mlx5_0:1"));
    reading = (struct sl_mon_reading){.has = (UINT64_C(1) << SL_MON_COUNTER_COUNT) - 1,
                                      .has_state = true,
                                      .is_up = true,
                                      .speed = UINT64_C(400000000000)};
    return 0;
}

/* A second in which so many packets go each way. */
static void second(uint64_t packets)
{
    now.mono_ns += SL_MON_S;
    now.wall_ns += SL_MON_S;
    now.boot_ns += SL_MON_S;
    sl_mon_set_time(mon, &now);
    reading.counters[SL_MON_COUNTER_TRANSMIT_PACKETS] += packets;
    reading.counters[SL_MON_COUNTER_RECEIVE_PACKETS] += packets;
    reading.counters[SL_MON_COUNTER_TRANSMIT_WORDS] += 1024 * packets;
    reading.counters[SL_MON_COUNTER_RECEIVE_WORDS] += 1024 * packets;
    sl_mon_port_read(mon, &port, "sysfs", &reading);
}

static enum sl_mon_state state_of(enum sl_mon_check check)
{
    return (enum sl_mon_state)sl_mon_condition(port.subject, check)->state;
}

/* ---- counters ---- */

static void a_counter_says_how_far_it_went_or_nothing(void **state)
{
    uint64_t delta;

    (void)state;
    assert_true(sl_mon_counter_delta(SL_MON_COUNTER_SYMBOL, 5, 9, &delta));
    assert_int_equal(delta, 4);
    assert_true(sl_mon_counter_delta(SL_MON_COUNTER_SYMBOL, 5, 5, &delta));
    assert_int_equal(delta, 0);
    assert_false(sl_mon_counter_delta(SL_MON_COUNTER_SYMBOL, 9, 5, &delta)); /* reset */
    assert_true(sl_mon_counter_delta(SL_MON_COUNTER_RNR, 0xfffffff0, 0x10, &delta));
    assert_int_equal(delta, 0x20); /* of 32 bits: it wrapped */
    assert_false(sl_mon_counter_delta(SL_MON_COUNTER_RNR, 1000, 10, &delta));
    assert_false(sl_mon_counter_delta(SL_MON_COUNTER_RNR, UINT64_C(1) << 40, 10, &delta));
}

static void the_first_reading_says_nothing_of_counters(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SL_MON_COUNTER_COUNT; i++)
        reading.counters[i] = 1000000;
    second(0);
    assert_int_equal(told, 0);
    second(1000);
    assert_int_equal(told, 0);
}

static void a_reset_is_no_evidence_and_is_counted(void **state)
{
    (void)state;
    reading.counters[SL_MON_COUNTER_SYMBOL] = 1000000;
    second(1000);
    second(1000);
    reading.counters[SL_MON_COUNTER_SYMBOL] = 5;
    second(1000);
    assert_int_equal(told, 0);
    assert_int_equal(port.resets, 1);
}

static void symbols_that_are_wrong_for_seconds_are_told(void **state)
{
    (void)state;
    second(1000);
    for (unsigned i = 0; i < 3; i++) {
        reading.counters[SL_MON_COUNTER_SYMBOL] += 20;
        second(1000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SYMBOL), SL_MON_BAD);
    assert_int_equal(told, 2); /* suspect, bad */
    assert_string_equal(last_text, "symbol_error went from 40 to 60 in 1.0 s, beside 2000 packets");
    assert_int_equal(last_check, SL_MON_CHECK_PORT_SYMBOL);
    assert_int_equal(port.totals[SL_MON_COUNTER_SYMBOL], 60);
}

static void few_in_a_second_but_many_in_an_hour_are_told(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 600 && state_of(SL_MON_CHECK_PORT_SYMBOL) != SL_MON_BAD; i++) {
        reading.counters[SL_MON_COUNTER_SYMBOL] += 1;
        second(1000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SYMBOL), SL_MON_BAD);
    assert_true(port.totals[SL_MON_COUNTER_SYMBOL] >= 120);
}

static void what_a_busy_port_loses_now_and_then_is_no_evidence(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        reading.counters[SL_MON_COUNTER_OUT_OF_SEQUENCE] += 50;
        reading.counters[SL_MON_COUNTER_DISCARDS] += 150;
        second(100000000); /* one in a million, and less */
    }
    assert_int_equal(told, 0);
    for (unsigned i = 0; i < 6; i++) {
        reading.counters[SL_MON_COUNTER_OUT_OF_SEQUENCE] += 50;
        second(10000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PORT_LOSS), SL_MON_BAD);
}

static void a_counter_that_is_not_there_is_not_good_either(void **state)
{
    (void)state;
    second(1000);
    for (unsigned i = 0; i < 3; i++) {
        reading.counters[SL_MON_COUNTER_SYMBOL] += 20;
        second(1000);
    }
    reading.has &= ~(UINT64_C(1) << SL_MON_COUNTER_SYMBOL);
    uint64_t good = sl_mon_condition(port.subject, SL_MON_CHECK_PORT_SYMBOL)->good;

    for (unsigned i = 0; i < 4000; i++)
        second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SYMBOL), SL_MON_BAD); /* nobody knows better */
    assert_int_equal(sl_mon_condition(port.subject, SL_MON_CHECK_PORT_SYMBOL)->good, good);
}

static void any_integrity_error_is_told(void **state)
{
    (void)state;
    second(1000);
    reading.counters[SL_MON_COUNTER_OVERRUN]++;
    second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_INTEGRITY), SL_MON_BAD);
}

/* Two readings an hour apart: many errors, and no rate. */
static void a_long_gap_between_readings_gives_no_rates(void **state)
{
    (void)state;
    second(1000);
    now.mono_ns += SL_MON_HOUR;
    reading.counters[SL_MON_COUNTER_SYMBOL] += 1000;
    second(1000);
    assert_int_equal(told, 0);
    assert_int_equal(port.totals[SL_MON_COUNTER_SYMBOL], 1000);
}

/* ---- the link ---- */

static void a_port_in_use_that_is_down_twice_is_told(void **state)
{
    (void)state;
    second(1000);
    second(1000);
    reading.is_up = false;
    second(0);
    assert_int_equal(told, 0);
    second(0);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_DOWN), SL_MON_BAD);
    assert_string_equal(last_text, "the port is down; it was in use 2 s ago");
}

static void a_port_that_never_carried_anything_may_be_down(void **state)
{
    (void)state;
    reading.is_up = false;
    for (unsigned i = 0; i < 100; i++)
        second(0);
    assert_int_equal(told, 0);
}

static void flaps_are_found_by_their_counts(void **state)
{
    (void)state;
    reading.has_downs = true;
    second(1000);
    second(1000);
    reading.downs += 3; /* of which no message told */
    second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_FLAP), SL_MON_BAD);
    assert_int_equal(port.flaps, 3);
    assert_string_equal(last_text, "the link went down and came back 3 times");
    reading.counters[SL_MON_COUNTER_LINK_DOWNED]++;
    second(1000);
    assert_int_equal(port.flaps, 4);
}

static void one_that_stays_down_is_no_flap(void **state)
{
    (void)state;
    reading.has_downs = true;
    second(1000);
    second(1000);
    reading.downs++;
    reading.is_up = false;
    second(0);
    second(0);
    assert_int_equal(port.flaps, 0);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_DOWN), SL_MON_BAD);
}

static void an_event_tells_how_long_a_flap_was(void **state)
{
    (void)state;
    second(1000);
    second(1000);
    sl_mon_port_flapped(mon, &port, "rtnetlink", 1, 12000000);
    assert_string_equal(last_text, "the link went down and came back 1 time, 12 ms the last time");
}

/* It is to be so from now on, says an operator. */
static void a_speed_that_was_cleared_is_the_new_one(void **state)
{
    (void)state;
    second(1000);
    reading.speed = UINT64_C(200000000000);
    for (unsigned i = 0; i < 3; i++)
        second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SPEED), SL_MON_BAD);
    assert_true(sl_mon_clear(mon, port.subject));
    for (unsigned i = 0; i < 10; i++)
        second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SPEED), SL_MON_OK);
    reading.speed = UINT64_C(100000000000);
    for (unsigned i = 0; i < 3; i++)
        second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SPEED), SL_MON_BAD);
}

static void a_link_that_trained_to_less_is_told(void **state)
{
    (void)state;
    second(1000);
    reading.speed = UINT64_C(200000000000);
    for (unsigned i = 0; i < 3; i++)
        second(1000);
    assert_int_equal(state_of(SL_MON_CHECK_PORT_SPEED), SL_MON_BAD);
    assert_string_equal(last_text, "the link runs at 200.0 Gbit/s, and did at 400.0");
    reading.is_up = false; /* and one without a link has no speed */
    reading.speed = 2500000000;
    uint64_t bads = sl_mon_condition(port.subject, SL_MON_CHECK_PORT_SPEED)->bads;

    second(0);
    assert_int_equal(sl_mon_condition(port.subject, SL_MON_CHECK_PORT_SPEED)->bads, bads);
}

/* Traffic that comes and goes, now and then an error as each cable has some. */
static void a_healthy_day_is_quiet(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 7);
    reading.has_downs = true;
    for (unsigned i = 0; i < 86400; i++) {
        bool is_busy = i / 600 % 3 != 0;

        if (sl_rng_below(&rng, 3600) == 0)
            reading.counters[SL_MON_COUNTER_SYMBOL] += sl_rng_below(&rng, 3);
        if (is_busy && sl_rng_below(&rng, 60) == 0)
            reading.counters[SL_MON_COUNTER_OUT_OF_SEQUENCE] += sl_rng_below(&rng, 30);
        if (is_busy && sl_rng_below(&rng, 600) == 0)
            reading.counters[SL_MON_COUNTER_ADAPTIVE] += 1;
        if (is_busy) {
            reading.counters[SL_MON_COUNTER_CNP_SENT] += sl_rng_below(&rng, 5000);
            reading.counters[SL_MON_COUNTER_ECN] += sl_rng_below(&rng, 20000);
            reading.counters[SL_MON_COUNTER_TRANSMIT_WAIT] += sl_rng_below(&rng, 1000000);
        }
        second(is_busy ? 5000000 + sl_rng_below(&rng, 5000000) : sl_rng_below(&rng, 100));
    }
    if (told != 0)
        fail_msg("%u transitions, the last: %s", told, last_text);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, engine_end)
    const struct CMUnitTest tests[] = {CASE(a_counter_says_how_far_it_went_or_nothing),
                                       CASE(the_first_reading_says_nothing_of_counters),
                                       CASE(a_reset_is_no_evidence_and_is_counted),
                                       CASE(symbols_that_are_wrong_for_seconds_are_told),
                                       CASE(few_in_a_second_but_many_in_an_hour_are_told),
                                       CASE(what_a_busy_port_loses_now_and_then_is_no_evidence),
                                       CASE(a_counter_that_is_not_there_is_not_good_either),
                                       CASE(any_integrity_error_is_told),
                                       CASE(a_long_gap_between_readings_gives_no_rates),
                                       CASE(a_port_in_use_that_is_down_twice_is_told),
                                       CASE(a_port_that_never_carried_anything_may_be_down),
                                       CASE(flaps_are_found_by_their_counts),
                                       CASE(one_that_stays_down_is_no_flap),
                                       CASE(an_event_tells_how_long_a_flap_was),
                                       CASE(a_link_that_trained_to_less_is_told),
                                       CASE(a_speed_that_was_cleared_is_the_new_one),
                                       CASE(a_healthy_day_is_quiet)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
