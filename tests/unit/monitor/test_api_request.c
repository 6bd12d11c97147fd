/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the API: what it is taken for, and what is refused. */
#include "core/err.h"
#include "monitor/api_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_api_request got;

static int parse(const char *method, const char *target)
{
    sl_api_parse(method, target, &got);
    return got.status;
}

static void each_endpoint_is_known(void **state)
{
    static const struct {
        const char *method, *target;
        enum sl_api_what what;
        bool is_write;
    } rows[] = {{"GET", "/", SL_API_INDEX, false},
                {"GET", "/healthz", SL_API_HEALTH, false},
                {"HEAD", "/healthz", SL_API_HEALTH, false},
                {"GET", "/metrics", SL_API_METRICS, false},
                {"GET", "/v1/status", SL_API_STATUS, false},
                {"GET", "/v1/ports", SL_API_PORTS, false},
                {"GET", "/v1/ranks", SL_API_RANKS, false},
                {"GET", "/v1/calls", SL_API_CALLS, false},
                {"GET", "/v1/events", SL_API_EVENTS, false},
                {"GET", "/v1/verdicts", SL_API_VERDICTS, false},
                {"GET", "/v1/config", SL_API_CONFIG, false},
                {"GET", "/v1/probes", SL_API_PROBES, false},
                {"GET", "/v1/observation", SL_API_OBSERVATION, false},
                {"GET", "/v1/tcp", SL_API_SOURCE, false},
                {"GET", "/v1/%74cp", SL_API_SOURCE, false},
                {"POST", "/v1/verdicts/7/ack", SL_API_ACK, true},
                {"POST", "/v1/clear?kind=gpu&subject=0000:0c:00.0", SL_API_CLEAR, true},
                {"POST", "/v1/probe?to=192.0.2.2:9495", SL_API_PROBE, true}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        if (parse(rows[i].method, rows[i].target) != 200)
            fail_msg("%s: %s", rows[i].target, got.why);
        assert_int_equal(got.what, rows[i].what);
        assert_int_equal(got.is_write, rows[i].is_write);
    }
}

/* The list that is shown has what is known, and nothing else. */
static void each_endpoint_is_in_the_list(void **state)
{
    const char *path, *help;
    unsigned count = 0;

    (void)state;
    while ((path = sl_api_endpoint(count, &help)) != NULL) {
        assert_true(help[0] != '\0');
        assert_true(parse("GET", path) != 404);
        count++;
    }
    assert_int_equal(count, SL_API_PROBE + 1 - 1); /* all but a source's */
}

static void parameters_are_taken(void **state)
{
    (void)state;
    assert_int_equal(parse("GET", "/v1/events?since=9223372036854775807&wait=60&limit=1000"), 200);
    assert_true(got.since == INT64_MAX && got.wait_s == 60 && got.limit == 1000);
    assert_int_equal(parse("GET", "/v1/events"), 200);
    assert_true(got.since == 0 && got.wait_s == 0 && got.limit == SL_API_LIMIT);
    assert_int_equal(parse("GET", "/v1/events?&wait=3&"), 200);
    assert_true(got.wait_s == 3);
    assert_int_equal(parse("GET", "/v1/calls"), 200);
    assert_true(got.since == 0 && got.limit == SL_API_CALLS_LIMIT);
    assert_int_equal(parse("GET", "/v1/calls?limit=65536&since=5"), 200);
    assert_true(got.since == 5 && got.limit == 65536);
    assert_int_equal(parse("GET", "/v1/calls?limit=65537"), 400);
    assert_int_equal(parse("GET", "/v1/calls?wait=1"), 400);
    assert_int_equal(parse("GET", "/v1/events?limit=65536"), 400);
    assert_int_equal(parse("GET", "/v1/verdicts?open=1&since=4"), 200);
    assert_true(got.is_open_only && got.since == 4);
    assert_int_equal(parse("GET", "/v1/verdicts?open=0"), 200);
    assert_false(got.is_open_only);
    assert_int_equal(parse("POST",
                           "/v1/probe?to=%5bfd00::2%5d:9495&rail=mlx5_0:1&from=fd00::1&count=7&"
                           "gap_us=300&bytes=1400"),
                     200);
    assert_string_equal(got.probe.to, "[fd00::2]:9495");
    assert_string_equal(got.probe.rail, "mlx5_0:1");
    assert_string_equal(got.probe.from, "fd00::1");
    assert_true(got.probe.count == 7 && got.probe.gap_us == 300 && got.probe.bytes == 1400);
    assert_int_equal(parse("POST", "/v1/clear?subject=rank+3%3a1&kind=process"), 200);
    assert_string_equal(got.subject, "rank 3:1");
    assert_int_equal(got.kind, SL_MON_PROCESS);
    assert_int_equal(parse("POST", "/v1/verdicts/12/ack?by=jane%20d"), 200);
    assert_true(got.id == 12);
    assert_string_equal(got.by, "jane d");
}

static void what_makes_no_sense_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *method, *target;
        int status;
        const char *why;
    } rows[] = {
        {"GET", "", 404, "there is no such thing here"},
        {"GET", "/v1", 404, "there is no such thing here"},
        {"GET", "/v1/", 404, "there is no such thing here"},
        {"GET", "/v1/a/b", 404, "there is no such thing here"},
        {"GET", "/v1/../etc", 404, "there is no such thing here"},
        {"GET", "/v1/%2", 404, "there is no such thing here"},
        {"GET", "/v1/%00", 404, "there is no such thing here"},
        {"GET", "/v1/\x1b[2J", 404, "there is no such thing here"},
        {"POST", "/v1/status", 405, "this is asked for by GET"},
        {"DELETE", "/v1/status", 405, "this is asked for by GET"},
        {"GET", "/v1/clear?kind=port&subject=a", 405, "this is asked for by POST"},
        {"HEAD", "/v1/verdicts/7/ack", 405, "this is asked for by POST"},
        {"GET", "/v1/events?since=", 400, "since is to be a number from 0 to"},
        {"GET", "/v1/events?since=-1", 400, "since is to be a number from 0 to"},
        {"GET", "/v1/events?since=+1", 400, "since is to be a number from 0 to"},
        {"GET", "/v1/events?since=0x1", 400, "since is to be a number from 0 to"},
        {"GET", "/v1/events?since=9223372036854775808", 400, "since is to be a number from 0 to"},
        {"GET", "/v1/events?since=99999999999999999999999", 400, "since is to be a number from"},
        {"GET", "/v1/events?wait=61", 400, "wait is to be a number from 0 to 60, and is '61'"},
        {"GET", "/v1/events?limit=0", 400, "limit is to be a number from 1 to 1000, and is '0'"},
        {"GET", "/v1/events?limit=1001", 400, "limit is to be a number from 1 to 1000"},
        {"GET", "/v1/events?wait=1&wait=1", 400, "wait is said twice"},
        {"GET", "/v1/events?wait", 400, "the value of wait cannot be read"},
        {"GET", "/v1/events?wait=%zz", 400, "the value of wait cannot be read"},
        {"GET", "/v1/events?wait=1%0a", 400, "the value of wait cannot be read"},
        {"GET", "/v1/events?open=1", 400, "there is no such parameter here: 'open'"},
        {"GET", "/v1/status?a=b", 400, "there is no such parameter here: 'a'"},
        {"GET", "/v1/verdicts?open=2", 400, "open is to be a number from 0 to 1"},
        {"GET", "/v1/probe?to=a", 405, "this is asked for by POST"},
        {"POST", "/v1/probe", 400, "to=... is needed"},
        {"POST", "/v1/probe?to=a&count=0", 400, "count is to be a number from 1"},
        {"POST", "/v1/clear", 400, "kind=... is needed"},
        {"POST", "/v1/clear?kind=port", 400, "subject=... is needed"},
        {"POST", "/v1/clear?kind=disk&subject=a", 400, "there is no kind 'disk'"},
        {"POST", "/v1/clear?kind=port&subject=", 400, "subject is to be a name of at most 63"},
        {"POST", "/v1/verdicts//ack", 400, "a verdict's id is a number"},
        {"POST", "/v1/verdicts/0/ack", 400, "a verdict's id is a number"},
        {"POST", "/v1/verdicts/1e3/ack", 400, "a verdict's id is a number"},
        {"POST", "/v1/verdicts/99999999999999999999/ack", 400, "a verdict's id is a number"},
        {"POST", "/v1/verdicts/1/ack?by=0123456789012345678901234567890123456789", 400,
         "by is longer"},
        {"POST", "/v1/verdicts/1/acks", 404, "there is no such thing here"}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++)
        if (parse(rows[i].method, rows[i].target) != rows[i].status ||
            strncmp(got.why, rows[i].why, strlen(rows[i].why)) != 0)
            fail_msg("%s %s: %d %s", rows[i].method, rows[i].target, got.status, got.why);
}

static void a_target_that_is_too_long_is_refused(void **state)
{
    char target[SL_API_TARGET_MAX + 16] = "/v1/events?since=";

    (void)state;
    memset(target + 17, '0', SL_API_TARGET_MAX - 17);
    target[SL_API_TARGET_MAX] = '\0';
    assert_int_equal(parse("GET", target), 414);
    target[SL_API_TARGET_MAX - 1] = '\0';
    assert_int_equal(parse("GET", target), 400); /* no value is so long */
}

static void openmetrics_are_for_whoever_prefers_them(void **state)
{
    /* Prometheus 2.42, 2.53, 3; curl; a browser. */
    static const char *const open[] = {
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q="
         "0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "application/openmetrics-text", "text/plain;q=0.3, Application/OpenMetrics-Text;q=0.31",
        "text/plain;q=0.5,application/openmetrics-text;q=0.5"};
    static const char *const plain[] = {
        "",
        "*/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-textual",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.000",
        "application/openmetrics-text;q=0.4,text/plain;q=0.5",
        "application/openmetrics-text;q=",
        ",,;;q"};

    (void)state;
    assert_false(sl_api_wants_openmetrics(NULL));
    for (unsigned i = 0; i < SL_ARRAY_LEN(open); i++)
        if (!sl_api_wants_openmetrics(open[i]))
            fail_msg("%s", open[i]);
    for (unsigned i = 0; i < SL_ARRAY_LEN(plain); i++)
        if (sl_api_wants_openmetrics(plain[i]))
            fail_msg("%s", plain[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_endpoint_is_known),
        cmocka_unit_test(each_endpoint_is_in_the_list),
        cmocka_unit_test(parameters_are_taken),
        cmocka_unit_test(what_makes_no_sense_is_refused_with_a_sentence),
        cmocka_unit_test(a_target_that_is_too_long_is_refused),
        cmocka_unit_test(openmetrics_are_for_whoever_prefers_them)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
