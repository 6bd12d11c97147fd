/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that their owners number: several between two, awaited or not, finished by a call. */
#include "wire_two.h"

#include "core/err.h"
#include "core/log.h"
#include "core/wireup_addr.h"
#include "core/wireup_link.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/util/dead_place.h"

#define CONNECT_MS 1000

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static int start(void **state)
{
    sl_log_set_sink(no_log, NULL);
    sides_open_numbered(*state != NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sides_close();
    sl_log_set_sink(NULL, NULL);
    return 0;
}

static void dial(uint32_t number, bool patient)
{
    assert_int_equal(sl_wireup_connect(sides[0].wireup, number, patient), 0);
}

static bool finish(uint32_t number)
{
    int err = sl_wireup_finish(sides[1].wireup, number);

    assert_true(err == 0 || err == -EAGAIN);
    return err == 0;
}

/* Within so long. */
static bool finish_in(uint32_t number, uint64_t ms)
{
    uint64_t until_ns = now_ns + ms * SL_NS_PER_MS;
    bool done = false;

    while (!(done = finish(number)) && now_ns < until_ns)
        pump();
    return done;
}

static bool idle(void)
{
    return sl_wireup_busy(sides[0].wireup) == 0 && sl_wireup_busy(sides[1].wireup) == 0;
}

static uint64_t patience_ns(void)
{
    return (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
}

static void two_connections_of_one_pair_come_about_apart(void **state)
{
    (void)state;
    dial(1, false);
    dial(2, false);
    assert_true(finish_in(2, CONNECT_MS));
    PUMP_UNTIL(CONNECT_MS, sides[0].eps[2] != NULL);
    assert_null(sides[0].eps[1]);
    assert_true(finish_in(1, CONNECT_MS));
    PUMP_UNTIL(CONNECT_MS, idle());
    assert_int_equal(sides[0].ups, 2);
    assert_int_equal(sides[1].ups, 2);
    assert_int_equal(ep_count(), 4);
    assert_int_equal(transport_of(&sides[1], 1), 1); /* which its owner prefers */
}

/* The listening end's owner decides when, and may take its time. */
static void nothing_is_up_before_its_owner_finishes_it(void **state)
{
    uint64_t end_ns = now_ns + 3 * patience_ns();

    (void)state;
    dial(1, true);
    while (now_ns < end_ns) {
        pump();
        now_ns += 10 * SL_NS_PER_MS;
    }
    assert_int_equal(sides[0].ups + sides[0].failures + sides[1].ups + sides[1].failures, 0);
    assert_int_equal(sides[1].lefts, 0); /* it waits, and does not begin again */
    assert_true(finish(1));
    assert_int_equal(sides[1].ups, 1);
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 1);
    assert_false(finish(1));
}

static void who_is_not_awaited_is_refused(void **state)
{
    (void)state;
    sides[1].awaits = false;
    dial(1, true);
    PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1);
    assert_int_equal(sides[0].err, -ECONNREFUSED);
    assert_non_null(strstr(sides[0].why, "nobody awaits it"));
    assert_int_equal(sides[1].lefts + sides[1].failures, 0);
    PUMP_UNTIL(10, idle());
}

/* For its number, then for an endpoint of each transport; the call that listens cannot say so. */
static void who_lacks_memory_for_an_awaited_one_is_dialed_again(void **state)
{
    (void)state;
    sides[1].lacks = 1 + KINDS;
    dial(1, false);
    assert_true(finish_in(1, CONNECT_MS));
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 1 && idle());
    assert_int_equal(sides[1].lacks, 0);
    assert_int_equal(sides[0].failures, 0);
}

static void an_awaited_one_that_leaves_is_told_of_once(void **state)
{
    (void)state;
    dial(1, true);
    for (unsigned i = 0; i < 100 && ep_count() < 2; i++)
        pump();
    sl_wireup_drop(sides[0].wireup, 1);
    PUMP_UNTIL(CONNECT_MS, sides[1].lefts == 1);
    assert_true(idle());
    assert_int_equal(sides[0].failures + sides[1].failures, 0);
}

/* A listener that is not needed any more: whoever dials it hears so. */
static void one_that_its_owner_drops_dials_again_and_is_refused(void **state)
{
    (void)state;
    dial(1, true);
    for (unsigned i = 0; i < 100 && ep_count() < 2; i++)
        pump();
    sides[1].awaits = false;
    sl_wireup_drop(sides[1].wireup, 1);
    assert_int_equal(sides[1].lefts, 0);
    PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1);
    assert_int_equal(sides[0].err, -ECONNREFUSED);
}

static void another_secret_is_told_at_both_ends(void **state)
{
    (void)state;
    sides[1].worker.has_session = true;
    memset(sides[1].worker.session, 7, sizeof(sides[1].worker.session));
    dial(1, true);
    PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1);
    assert_int_equal(sides[0].err, -EACCES);
    assert_non_null(strstr(sides[0].why, "SLUICE_SECRET"));
    PUMP_UNTIL(10, sides[1].strangers == 1);
    assert_int_equal(sides[1].ups + sides[1].lefts + sides[1].failures, 0);
}

static void a_place_of_the_other_end_is_known_by_name(void **state)
{
    (void)state;
    dial(1, true);
    for (unsigned i = 0; i < 100 && ep_count() < 2; i++)
        pump();
    assert_non_null(strstr(sl_wireup_at(sides[0].wireup, 1), *state != NULL ? "127." : "process"));
    assert_non_null(strstr(sl_wireup_at(sides[1].wireup, 1), *state != NULL ? "127." : "process"));
    assert_string_equal(sl_wireup_at(sides[1].wireup, 2), "");
}

/* Its places share the time that there is. */
static void a_dead_first_place_leaves_time_for_the_second(void **state)
{
    struct sockaddr_in nowhere = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    struct sl_wireup_addr alive = addrs[1];
    struct sockaddr_storage second;
    struct dead_place dead;

    (void)state;
    nowhere.sin_port = htons(alive.port);
    dead_place_open(&dead, &nowhere, sizeof(nowhere));
    assert_true(sl_wireup_place_at(&alive, 0, &second));
    addrs[1].place_count = 0;
    assert_true(sl_wireup_place_add(&addrs[1], (struct sockaddr_storage *)&nowhere));
    assert_true(sl_wireup_place_add(&addrs[1], &second));
    sides[0].wireup->patience_ns = 3 * SL_NS_PER_S;
    dial(1, true);
    assert_true(finish_in(1, 2900));
    dead_place_close(&dead);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
#define TCP_CASE(name)                                                                             \
    {                                                                                              \
#name "_over_tcp", name, start, stop, sides                                                \
    }
    const struct CMUnitTest tests[] = {
        CASE(two_connections_of_one_pair_come_about_apart),
        TCP_CASE(two_connections_of_one_pair_come_about_apart),
        CASE(nothing_is_up_before_its_owner_finishes_it),
        CASE(who_is_not_awaited_is_refused),
        TCP_CASE(who_is_not_awaited_is_refused),
        CASE(who_lacks_memory_for_an_awaited_one_is_dialed_again),
        CASE(an_awaited_one_that_leaves_is_told_of_once),
        CASE(one_that_its_owner_drops_dials_again_and_is_refused),
        CASE(another_secret_is_told_at_both_ends),
        CASE(a_place_of_the_other_end_is_known_by_name),
        TCP_CASE(a_place_of_the_other_end_is_known_by_name),
        TCP_CASE(a_dead_first_place_leaves_time_for_the_second),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
