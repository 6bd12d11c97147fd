/* SPDX-License-Identifier: Apache-2.0 */
/* When paths of ranks accuse a port, and when they do not. */
#include "monitor/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_mon_path paths[8];
static struct sl_state_path records[8];
static struct sl_mon_path_verdict ports[2];
static uint64_t now_ns;

static int begin(void **state)
{
    (void)state;
    memset(paths, 0, sizeof(paths));
    memset(records, 0, sizeof(records));
    now_ns = SL_MON_HOUR;
    for (unsigned i = 0; i < 4; i++) {
        records[i] = (struct sl_state_path){
            .turn = 2, .comm = 1, .peer = (int32_t)(i / 2), .ups = 1, .state = "up"};
        sl_mon_path_read(&paths[i], now_ns, (int16_t)(i % 2), &records[i]);
    }
    return 0;
}

/* A second in which the paths with these bits carry. */
static void second(unsigned carry)
{
    uint64_t since_ns = now_ns;

    now_ns += SL_MON_S;
    for (unsigned i = 0; i < 4; i++) {
        records[i].turn += 2;
        if ((carry >> i & 1) != 0)
            records[i].sent_bytes += 1000;
        sl_mon_path_read(&paths[i], now_ns, (int16_t)(i % 2), &records[i]);
    }
    memset(ports, 0, sizeof(ports));
    sl_mon_path_judge(paths, 4, now_ns, since_ns, ports, 2);
}

static void fail_path(unsigned i, const char *state)
{
    records[i].failures++;
    strcpy(records[i].state, state);
}

static void paths_that_carry_accuse_nobody(void **state)
{
    (void)state;
    second(15);
    second(15);
    assert_int_equal(ports[0].paths, 2);
    assert_int_equal(ports[0].carries, 2);
    assert_int_equal(ports[0].accuse + ports[1].accuse + ports[0].down, 0);
}

static void a_path_that_is_down_while_the_other_carries_accuses_its_port(void **state)
{
    (void)state;
    second(15);
    fail_path(0, "down");
    second(14);
    second(14);
    assert_int_equal(ports[0].accuse, 1);
    assert_int_equal(ports[0].down, 1);
    assert_int_equal(ports[1].accuse, 0);
    second(14);
    assert_int_equal(ports[0].accuse, 1); /* for as long as it is so */
    strcpy(records[0].state, "up");
    second(15);
    assert_int_equal(ports[0].accuse, 0);
}

static void a_peer_that_died_accuses_nobody(void **state)
{
    (void)state;
    second(15);
    fail_path(0, "failing"); /* one after the other */
    second(12);
    assert_int_equal(ports[0].accuse + ports[1].accuse, 0);
    fail_path(1, "down");
    for (unsigned i = 0; i < 10; i++) {
        second(12);
        assert_int_equal(ports[0].accuse + ports[1].accuse, 0);
    }
    assert_int_equal(ports[0].down, 1);
}

static void a_job_that_stands_still_accuses_nobody(void **state)
{
    (void)state;
    second(15);
    fail_path(0, "down");
    for (unsigned i = 0; i < 10; i++) {
        second(0);
        assert_int_equal(ports[0].accuse, 0);
    }
}

static void a_path_that_never_was_up_is_on_its_way(void **state)
{
    (void)state;
    records[0].ups = 0;
    strcpy(records[0].state, "connecting");
    second(14);
    second(14);
    assert_int_equal(ports[0].accuse + ports[0].down, 0);
}

static void a_path_beside_it_over_the_same_port_is_no_witness(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        paths[i].port = 0; /* all are over it */
    paths[0].is_up = false;
    paths[1].moved_ns = now_ns;
    memset(ports, 0, sizeof(ports));
    sl_mon_path_judge(paths, 4, now_ns, now_ns - SL_MON_S, ports, 2);
    assert_int_equal(ports[0].down, 1);
    assert_int_equal(ports[0].accuse, 0);
}

static void what_is_the_first_reading_is_not_new(void **state)
{
    struct sl_mon_path path = {.comm = 0};
    struct sl_state_path record = {.turn = 8, .comm = 4, .sent_bytes = 1000, .failures = 9};
    struct sl_mon_path_change change = sl_mon_path_read(&path, now_ns, 0, &record);

    (void)state;
    assert_int_equal(change.bytes + change.failures, 0);
    record.failures = 10;
    record.resent = 3;
    change = sl_mon_path_read(&path, now_ns, 0, &record);
    assert_int_equal(change.failures, 1);
    assert_int_equal(change.resent, 3);
    record.comm = 5; /* another one in its place */
    record.failures = 20;
    assert_int_equal(sl_mon_path_read(&path, now_ns, 0, &record).failures, 0);
}

static void the_port_is_the_begin_of_the_name(void **state)
{
    static const char *const none[] = {"tcp (fallback)", "",       ":1 > x", "rxe0: > x",
                                       "rxe0:1x > y",    " rxe0:1"};
    char name[16];

    (void)state;
    assert_true(sl_mon_path_port("rxe0:1 > 198.51.100.2", name, sizeof(name)));
    assert_string_equal(name, "rxe0:1");
    assert_true(sl_mon_path_port("mlx5_bond_0:1@2 > fe80::1", name, sizeof(name)));
    assert_string_equal(name, "mlx5_bond_0:1");
    assert_false(sl_mon_path_port("a_name_that_is_longer:1 > x", name, sizeof(name)));
    for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_false(sl_mon_path_port(none[i], name, sizeof(name)));
}

/* ---- what the engine hears ---- */

static void ignore(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    (void)transition;
}

static void three_seconds_of_six_make_it_bad(void **state)
{
    const struct sl_mon_options options = {.subjects_max = 4, .on_transition = ignore};
    struct sl_mon_time time = {.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};
    const struct sl_mon_path_verdict good = {.paths = 4, .carries = 4},
                                     bad = {.paths = 4, .carries = 2, .down = 2, .accuse = 2},
                                     silent = {.paths = 4};
    struct sl_mon_subject *port;
    struct sl_mon *mon;

    (void)state;
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    sl_mon_set_time(mon, &time);
    port = sl_mon_subject(mon, SL_MON_PORT, "rxe0:1");
    sl_mon_use(mon, port);
    sl_mon_path_sample(mon, port, &good, 0, 0);
    sl_mon_path_sample(mon, port, &bad, 0, 2);
    sl_mon_path_sample(mon, port, &silent, 2, 2);
    sl_mon_path_sample(mon, port, &bad, 2, 2);
    assert_int_equal(sl_mon_subject_state(port), SL_MON_SUSPECT);
    assert_int_equal(sl_mon_condition(port, SL_MON_CHECK_PORT_PATHS)->good, 1);
    sl_mon_path_sample(mon, port, &bad, 2, 2);
    assert_int_equal(sl_mon_subject_state(port), SL_MON_BAD);
    assert_non_null(strstr(port->evidence[SL_MON_CHECK_PORT_PATHS].text,
                           "2 of 4 paths of ranks over this port fail"));
    sl_mon_destroy(mon);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        CASE(paths_that_carry_accuse_nobody),
        CASE(a_path_that_is_down_while_the_other_carries_accuses_its_port),
        CASE(a_peer_that_died_accuses_nobody),
        CASE(a_job_that_stands_still_accuses_nobody),
        CASE(a_path_that_never_was_up_is_on_its_way),
        CASE(a_path_beside_it_over_the_same_port_is_no_witness),
        CASE(what_is_the_first_reading_is_not_new),
        CASE(the_port_is_the_begin_of_the_name),
        CASE(three_seconds_of_six_make_it_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
