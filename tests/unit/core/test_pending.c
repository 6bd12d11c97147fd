/* SPDX-License-Identifier: Apache-2.0 */
/* The limit, the deadline, who makes room, and what the log says. */
#include "core/pending.h"

#include "core/err.h"
#include "core/log.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#define MS SL_NS_PER_MS
#define MANY 64

static struct sl_pending_set set;
static struct sl_pending_log log_state;
static struct sl_pending pending[MANY];
static unsigned lines;
static char last[512];

static void keep_line(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area;
    lines++;
    snprintf(last, sizeof(last), "%s", line);
}

static int start(void **state)
{
    (void)state;
    lines = 0;
    memset(pending, 0, sizeof(pending));
    memset(&log_state, 0, sizeof(log_state));
    sl_log_set_sink(keep_line, NULL);
    sl_pending_init(&set, "tcp", 16, &log_state);
    assert_int_equal(set.limit, 16);
    assert_int_equal(set.share, 4);
    set.salt = 7; /* under it, the addresses below are of different sources */
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sl_log_set_sink(NULL, NULL);
    return 0;
}

/* The i-th connection, from 10.0.0.host, at so many milliseconds. */
static void come(unsigned i, unsigned host, uint64_t ms)
{
    struct sockaddr_storage from = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&from;

    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)(1000 + i));
    v4->sin_addr.s_addr = htonl(0x0a000000 + host);
    sl_pending_add(&set, &pending[i], &from, ms * MS);
}

static void the_limit_leaves_the_application_its_descriptors(void **state)
{
    static const struct {
        rlim_t files;
        unsigned most, limit;
    } rows[] = {
        {1024, 512, 128},
        {1024, 32, 32},
        {64, 512, 8},
        {12, 512, SL_PENDING_LEAST},
    };
    struct sl_pending_set other;
    struct rlimit old, low;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (size_t i = 0; i < SL_ARRAY_LEN(rows); i++) {
        low = (struct rlimit){rows[i].files, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        sl_pending_init(&other, "tcp", rows[i].most, &log_state);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(other.limit, rows[i].limit);
    }
}

static void a_deadline_ends_all_but_those_that_proved_themselves(void **state)
{
    (void)state;
    come(0, 1, 100);
    come(1, 1, 200);
    come(2, 2, 300);
    pending[0].standing = SL_PENDING_PROVED;
    pending[1].standing = SL_PENDING_HEARD;
    assert_true(sl_pending_next_ns(&set) == (200 + SL_PENDING_MS) * MS);
    assert_null(sl_pending_late(&set, (199 + SL_PENDING_MS) * MS));
    assert_ptr_equal(sl_pending_late(&set, (200 + SL_PENDING_MS) * MS), &pending[1]);
    sl_pending_remove(&set, &pending[1]);
    assert_null(sl_pending_late(&set, (299 + SL_PENDING_MS) * MS));
    assert_ptr_equal(sl_pending_late(&set, (300 + SL_PENDING_MS) * MS), &pending[2]);
    sl_pending_remove(&set, &pending[2]);
    assert_true(sl_pending_next_ns(&set) == SL_NEVER);
    assert_int_equal(set.count, 1);
}

static void who_waited_for_us_has_the_whole_deadline_from_then_on(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++)
        come(i, i, 100);
    for (unsigned i = 0; i < 16; i++)
        pending[i].standing = SL_PENDING_PROVED;
    sl_pending_ask(&set, &pending[3], 1000000 * MS);
    assert_true(sl_pending_full(&set));
    assert_true(sl_pending_next_ns(&set) == (1000000 + SL_PENDING_MS) * MS);
    assert_null(sl_pending_victim(&set, (999999 + SL_PENDING_MS) * MS));
    assert_null(sl_pending_late(&set, (999999 + SL_PENDING_MS) * MS));
    assert_ptr_equal(sl_pending_victim(&set, (1000000 + SL_PENDING_MS) * MS), &pending[3]);
    assert_ptr_equal(sl_pending_late(&set, (1000000 + SL_PENDING_MS) * MS), &pending[3]);
    /* It stands behind those that are older now. */
    pending[9].standing = SL_PENDING_HEARD;
    assert_ptr_equal(sl_pending_late(&set, (100 + SL_PENDING_MS) * MS), &pending[9]);
}

static void who_is_silent_makes_room_first_and_soon(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++)
        come(i, i, 100 + i);
    assert_true(sl_pending_full(&set));
    pending[0].standing = pending[1].standing = SL_PENDING_HEARD;
    assert_true(sl_pending_next_ns(&set) == (102 + SL_PENDING_GRACE_MS) * MS);
    assert_null(sl_pending_victim(&set, (101 + SL_PENDING_GRACE_MS) * MS));
    assert_ptr_equal(sl_pending_victim(&set, (102 + SL_PENDING_GRACE_MS) * MS), &pending[2]);
    /* Once none is silent, those that were heard go after their longer time. */
    for (unsigned i = 2; i < 16; i++)
        pending[i].standing = SL_PENDING_HEARD;
    assert_null(sl_pending_victim(&set, (99 + SL_PENDING_HEARD_MS) * MS));
    assert_ptr_equal(sl_pending_victim(&set, (100 + SL_PENDING_HEARD_MS) * MS), &pending[0]);
    for (unsigned i = 0; i < 16; i++)
        pending[i].standing = SL_PENDING_PROVED;
    assert_null(sl_pending_victim(&set, 1000000 * MS));
}

static void a_source_beyond_its_share_makes_room_before_others(void **state)
{
    uint64_t at = (200 + SL_PENDING_GRACE_MS) * MS;

    (void)state;
    for (unsigned i = 0; i < 11; i++)
        come(i, i, 100); /* older, silent, one of each */
    for (unsigned i = 11; i < 16; i++)
        come(i, 99, 200); /* five of one: a share is four */
    assert_ptr_equal(sl_pending_victim(&set, at), &pending[11]);
    sl_pending_remove(&set, &pending[11]);
    assert_ptr_equal(sl_pending_victim(&set, at), &pending[0]);
    come(11, 99, 200);
    for (unsigned i = 0; i < 16; i++)
        pending[i].standing = SL_PENDING_HEARD;
    assert_ptr_equal(sl_pending_victim(&set, at), &pending[12]); /* its words buy it no time */
}

static void addresses_of_one_host_are_one_source(void **state)
{
    static const char *const same[] = {"2001:db8::1", "2001:db8::ffff:2"};
    struct sockaddr_storage from = {0};
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&from;

    (void)state;
    v6->sin6_family = AF_INET6;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(inet_pton(AF_INET6, same[i], &v6->sin6_addr), 1);
        sl_pending_add(&set, &pending[i], &from, 0);
    }
    assert_int_equal(pending[0].source, pending[1].source);
    assert_string_equal(pending[0].from, "[2001:db8::1]:0");
    assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &v6->sin6_addr), 1);
    sl_pending_add(&set, &pending[2], &from, 0);
    come(3, 1, 0);
    assert_int_equal(pending[2].source, pending[3].source);
    sl_pending_add_user(&set, &pending[4], 65534, 77, 0);
    assert_string_equal(pending[4].from, "user 65534, process 77");
}

static void the_log_names_ten_in_ten_seconds_and_counts_the_rest(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5000; i++)
        sl_pending_refused(&set, "10.0.0.1:5", "it said nothing", (20000 + i) * MS);
    assert_int_equal(lines, SL_PENDING_LOG_LINES);
    assert_non_null(strstr(last, "refused a connection from 10.0.0.1:5: it said nothing"));
    sl_pending_refused(&set, "10.0.0.1:6", "again", (20001 + SL_PENDING_LOG_MS) * MS);
    assert_int_equal(lines, SL_PENDING_LOG_LINES + 2);
    assert_non_null(strstr(last, "10.0.0.1:6: again"));
    for (unsigned i = 0; i < 12; i++)
        sl_pending_refused(&set, "10.0.0.1:7", "and again", (20002 + SL_PENDING_LOG_MS) * MS);
    sl_pending_fini(&set);
    assert_non_null(strstr(last, "3 more connections were refused"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        CASE(the_limit_leaves_the_application_its_descriptors),
        CASE(a_deadline_ends_all_but_those_that_proved_themselves),
        CASE(who_waited_for_us_has_the_whole_deadline_from_then_on),
        CASE(who_is_silent_makes_room_first_and_soon),
        CASE(a_source_beyond_its_share_makes_room_before_others),
        CASE(addresses_of_one_host_are_one_source),
        CASE(the_log_names_ten_in_ten_seconds_and_counts_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
