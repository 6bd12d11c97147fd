/* SPDX-License-Identifier: Apache-2.0 */
/* What the API answers, by the agent that it asks. */
#include "core/err.h"
#include "monitor/api_answer.h"
#include "tests/unit/monitor/bed.h"

#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct sl_http_answer answer;
static struct json_object *json; /* of the answer; NULL: it is no JSON */
static bool may_write = true, openmetrics;

static int ask(const char *method, const char *target)
{
    const struct sl_api_asker asker = {
        .may_write = may_write, .openmetrics = openmetrics, .by = "uid 7", .refusal = "not here"};
    struct sl_api_request request;

    json_object_put(json);
    free(answer.body);
    sl_api_parse(method, target, &request);
    assert_int_equal(sl_api_answer(bed.agent, &request, &asker, &answer), 0);
    assert_int_equal(strlen(answer.body), answer.len);
    json = json_tokener_parse(answer.body);
    if (strcmp(answer.type, "application/json") == 0) {
        assert_non_null(json);
        assert_int_equal(json_object_get_int(json_object_object_get(json, "version")), 1);
    }
    return answer.status;
}

static struct json_object *part(struct json_object *object, const char *key)
{
    struct json_object *value;

    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("there is no %s in %s", key, answer.body);
    return value;
}

static const char *text(struct json_object *object, const char *key)
{
    return json_object_get_string(part(object, key)) ?: "null";
}

static int64_t number(struct json_object *object, const char *key)
{
    return json_object_get_int64(part(object, key));
}

static int end(void **state)
{
    json_object_put(json);
    free(answer.body);
    json = NULL;
    answer.body = NULL;
    may_write = true;
    openmetrics = false;
    return bed_end(state);
}

static void break_port(void)
{
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
}

static void health_names_what_is_stale(void **state)
{
    (void)state;
    bed_second();
    assert_int_equal(ask("GET", "/healthz"), 200);
    assert_true(json_object_get_boolean(part(json, "healthy")));
    bed.now.mono_ns += 6 * SL_MON_S;
    assert_int_equal(ask("GET", "/healthz"), 503);
    assert_false(json_object_get_boolean(part(json, "healthy")));
    assert_string_equal(answer.body,
                        "{\"version\":1,\"healthy\":false,\"why\":\"rdma: was not read "
                        "in time\",\"stale\":[\"rdma\"]}\n");
}

static void metrics_are_of_the_format_that_is_asked_for(void **state)
{
    (void)state;
    bed_second();
    assert_int_equal(ask("GET", "/metrics"), 200);
    assert_string_equal(answer.type, "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(answer.body, "sluice_port_up{device=\"mlx5_0\",port=\"1\"} 1\n"));
    assert_null(strstr(answer.body, "# EOF"));
    openmetrics = true;
    assert_int_equal(ask("GET", "/metrics"), 200);
    assert_string_equal(answer.type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_string_equal(answer.body + answer.len - 6, "# EOF\n");
}

static void status_says_what_is_wrong_since_when(void **state)
{
    struct json_object *one;

    (void)state;
    assert_int_equal(ask("GET", "/v1/status"), 200);
    assert_string_equal(text(json, "health"), "ok");
    assert_int_equal(json_object_array_length(part(json, "conditions")), 0);
    break_port();
    assert_int_equal(ask("GET", "/v1/status"), 200);
    assert_string_equal(text(json, "health"), "bad");
    assert_string_equal(text(json, "boot_id"), "boot-1");
    assert_string_equal(text(json, "agent_version"), "1.2");
    assert_string_equal(text(json, "agent_up_s"), "4.000");
    assert_string_equal(text(json, "host_up_s"), "3604.000");
    assert_string_equal(text(json, "time"), "2025-11-25T20:39:15.123Z");
    assert_int_equal(number(json, "last_event"), 1);
    assert_int_equal(number(part(part(json, "counts"), "subjects"), "port"), 1);
    assert_int_equal(number(part(part(json, "counts"), "conditions"), "bad"), 1);
    assert_int_equal(json_object_array_length(part(json, "conditions")), 1);
    one = json_object_array_get_idx(part(json, "conditions"), 0);
    assert_string_equal(text(one, "kind"), "port");
    assert_string_equal(text(one, "subject"), "mlx5_0:1");
    assert_string_equal(text(one, "check"), "link_down");
    assert_string_equal(text(one, "class"), "NICDown");
    assert_string_equal(text(one, "severity"), "fatal");
    assert_string_equal(text(one, "state"), "bad");
    assert_string_equal(text(one, "since"), "2025-11-25T20:39:15.123Z");
    assert_string_equal(text(one, "for_s"), "0.000");
    assert_string_equal(text(one, "source"), "sysfs");
    assert_non_null(strstr(text(one, "text"), "the port is down"));
}

/* The date was set while it was bad: what is told is the time as it goes now. */
static void a_clock_that_was_set_moves_the_times_with_it(void **state)
{
    struct json_object *one;

    (void)state;
    break_port();
    bed.now.wall_ns += 86400 * SL_MON_S;
    bed_second();
    assert_int_equal(ask("GET", "/v1/status"), 200);
    one = json_object_array_get_idx(part(json, "conditions"), 0);
    assert_string_equal(text(one, "since"), "2025-11-26T20:39:15.123Z");
    assert_string_equal(text(one, "for_s"), "1.000");
}

static void a_source_that_is_down_makes_it_degraded_and_has_a_reason(void **state)
{
    struct json_object *probes, *one = NULL;

    (void)state;
    bed.config.kmsg = SL_MON_ON;
    snprintf(bed.config.kmsg_path, sizeof(bed.config.kmsg_path), "%s/none", bed.folder);
    bed_restart();
    assert_int_equal(ask("GET", "/v1/status"), 200);
    assert_string_equal(text(json, "health"), "degraded");
    assert_false(json_object_get_boolean(part(json, "fresh")));
    assert_int_equal(ask("GET", "/v1/probes"), 200);
    probes = part(json, "probes");
    for (unsigned i = 0; i < json_object_array_length(probes); i++) {
        struct json_object *at = json_object_array_get_idx(probes, i);

        if (strcmp(text(at, "name"), "kmsg") == 0)
            one = at;
        else if (strcmp(text(at, "how"), "sysfs") == 0 && strcmp(text(at, "name"), "rdma") == 0)
            assert_string_equal(text(at, "state"), "up");
        else
            assert_string_equal(text(at, "state"), "off");
    }
    assert_string_equal(text(one, "state"), "down");
    assert_true(json_object_get_boolean(part(one, "is_alarm")));
    assert_non_null(strstr(text(one, "why"), "none"));
    assert_string_equal(text(one, "sampled"), "null");
}

static void ports_have_their_counters_and_what_is_wrong(void **state)
{
    struct json_object *port;

    (void)state;
    bed_second();
    bed_put("counters/symbol_error", "5\n");
    break_port();
    assert_int_equal(ask("GET", "/v1/ports"), 200);
    assert_true(text(json, "host")[0] != '\0');
    assert_int_equal(json_object_array_length(part(json, "ports")), 1);
    port = json_object_array_get_idx(part(json, "ports"), 0);
    assert_string_equal(text(port, "subject"), "mlx5_0:1");
    assert_false(json_object_get_boolean(part(port, "up")));
    assert_true(json_object_get_boolean(part(port, "in_use")));
    assert_true(number(port, "speed_bits_per_s") == 400000000000);
    assert_int_equal(number(part(port, "errors"), "symbol"), 5);
    assert_int_equal(number(part(port, "errors"), "receive"), 0);
    assert_string_equal(text(port, "state"), "bad");
    assert_int_equal(json_object_array_length(part(port, "conditions")), 1);
}

static void events_go_on_where_the_last_answer_ended(void **state)
{
    char target[64];

    (void)state;
    assert_int_equal(ask("GET", "/v1/events"), 200);
    assert_int_equal(number(json, "next"), 0);
    assert_false(sl_api_has_news(bed.agent, 0));
    break_port();
    assert_true(sl_api_has_news(bed.agent, 0));
    assert_false(sl_api_has_news(bed.agent, 1));
    assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_0:1"), 200);
    bed_second();
    assert_int_equal(ask("GET", "/v1/events?since=0&limit=2"), 200);
    assert_int_equal(json_object_array_length(part(json, "events")), 2);
    assert_int_equal(number(json, "next"), 2);
    assert_int_equal(number(json, "last"), 3);
    assert_string_equal(text(json_object_array_get_idx(part(json, "events"), 1), "to"), "ok");
    snprintf(target, sizeof(target), "/v1/events?since=%d", (int)number(json, "next"));
    assert_int_equal(ask("GET", target), 200);
    assert_int_equal(json_object_array_length(part(json, "events")), 1);
    assert_int_equal(number(json_object_array_get_idx(part(json, "events"), 0), "id"), 3);
    assert_int_equal(number(json, "next"), 3);
    assert_false(json_object_get_boolean(part(json, "reset")));
    /* A number of another store: that is said, and nobody asks for ever. */
    assert_int_equal(ask("GET", "/v1/events?since=1000"), 200);
    assert_int_equal(json_object_array_length(part(json, "events")), 0);
    assert_int_equal(number(json, "next"), 3);
    assert_true(json_object_get_boolean(part(json, "reset")));
    assert_true(text(json, "host")[0] != '\0' && text(json, "boot_id")[0] != '\0');
    assert_int_equal(ask("GET", "/v1/verdicts"), 200);
    assert_true(text(json, "host")[0] != '\0' && text(json, "boot_id")[0] != '\0');
    assert_true(sl_api_has_news(bed.agent, 1000));
}

static void many_events_are_read_in_parts(void **state)
{
    (void)state;
    break_port();
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_0:1"), 200);
        bed_second();
    }
    assert_int_equal(ask("GET", "/v1/events"), 200);
    assert_int_equal(json_object_array_length(part(json, "events")), 101);
    assert_int_equal(number(json, "next"), 101);
    assert_int_equal(ask("GET", "/v1/events?limit=64"), 200);
    assert_int_equal(json_object_array_length(part(json, "events")), 64);
    assert_int_equal(number(json, "next"), 64);
    assert_int_equal(ask("GET", "/v1/verdicts?limit=40"), 200);
    assert_int_equal(json_object_array_length(part(json, "verdicts")), 40);
    assert_true(json_object_get_boolean(part(json, "more")));
    assert_int_equal(ask("GET", "/v1/verdicts?since=79"), 200);
    assert_int_equal(json_object_array_length(part(json, "verdicts")), 11);
    assert_false(json_object_get_boolean(part(json, "more")));
    assert_int_equal(ask("GET", "/v1/verdicts?open=1"), 200);
    assert_int_equal(json_object_array_length(part(json, "verdicts")), 1);
}

static void a_verdict_is_acknowledged_once_and_ends_when_it_is_cleared(void **state)
{
    struct json_object *one;

    (void)state;
    break_port();
    assert_int_equal(ask("POST", "/v1/verdicts/1/ack?by=jane"), 200);
    assert_int_equal(ask("POST", "/v1/verdicts/1/ack?by=joe"), 200);
    assert_int_equal(ask("POST", "/v1/verdicts/2/ack"), 404);
    assert_string_equal(text(json, "error"), "there is no verdict 2");
    assert_int_equal(ask("GET", "/v1/verdicts?open=1"), 200);
    one = json_object_array_get_idx(part(json, "verdicts"), 0);
    assert_string_equal(text(one, "acked_by"), "jane (uid 7)");
    assert_string_equal(text(one, "acked"), "2025-11-25T20:39:15.123Z");
    assert_string_equal(text(one, "closed"), "null");
    assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_0:1"), 200);
    assert_true(json_object_get_boolean(part(json, "cleared")));
    assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_0:1"), 200);
    assert_false(json_object_get_boolean(part(json, "cleared")));
    assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_1:1"), 404);
    assert_string_equal(text(json, "error"), "no port is named mlx5_1:1");
    assert_int_equal(ask("GET", "/v1/verdicts?open=1"), 200);
    assert_int_equal(json_object_array_length(part(json, "verdicts")), 0);
    assert_int_equal(ask("GET", "/v1/verdicts"), 200);
    one = json_object_array_get_idx(part(json, "verdicts"), 0);
    assert_false(json_object_get_boolean(part(one, "open")));
}

static void who_may_only_read_changes_nothing(void **state)
{
    (void)state;
    break_port();
    may_write = false;
    assert_int_equal(ask("POST", "/v1/clear?kind=port&subject=mlx5_0:1"), 403);
    assert_string_equal(text(json, "error"), "not here");
    assert_int_equal(ask("POST", "/v1/verdicts/1/ack"), 403);
    assert_int_equal(ask("GET", "/v1/verdicts?open=1"), 200);
    assert_int_equal(json_object_array_length(part(json, "verdicts")), 1);
    assert_string_equal(text(json_object_array_get_idx(part(json, "verdicts"), 0), "acked"),
                        "null");
}

static void the_configuration_is_what_is_in_force(void **state)
{
    struct json_object *config;

    (void)state;
    assert_int_equal(ask("GET", "/v1/config"), 200);
    config = part(json, "config");
    assert_string_equal(text(part(config, "api"), "mode"), "0660");
    assert_string_equal(text(part(config, "sources"), "rdma"), "on");
    assert_string_equal(text(part(config, "sources"), "link"), "off");
    assert_int_equal(number(part(config, "sources"), "period_ms"), 1000);
    assert_string_equal(text(part(config, "store"), "path"), bed.config.store_path);
    assert_true(json_object_get_boolean(part(json, "last_reload_is_good")));
    sl_agent_reloaded(bed.agent, false);
    assert_int_equal(ask("GET", "/v1/config"), 200);
    assert_false(json_object_get_boolean(part(json, "last_reload_is_good")));
}

static void what_is_refused_is_json_too(void **state)
{
    (void)state;
    assert_int_equal(ask("GET", "/v1/events?since=x"), 400);
    assert_non_null(strstr(text(json, "error"), "since is to be a number"));
    assert_int_equal(ask("GET", "/v1/rdma_has_no_answer"), 404);
    assert_non_null(strstr(text(json, "error"), "no source 'rdma_has_no_answer'"));
    assert_int_equal(ask("GET", "/"), 200);
    assert_non_null(json_object_object_get(part(json, "endpoints"), "/v1/events"));
    assert_int_equal(ask("GET", "/v1/ranks"), 200);
    assert_int_equal(json_object_array_length(part(json, "processes")), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_begin, end)
    const struct CMUnitTest tests[] = {
        CASE(health_names_what_is_stale),
        CASE(metrics_are_of_the_format_that_is_asked_for),
        CASE(status_says_what_is_wrong_since_when),
        CASE(a_clock_that_was_set_moves_the_times_with_it),
        CASE(a_source_that_is_down_makes_it_degraded_and_has_a_reason),
        CASE(ports_have_their_counters_and_what_is_wrong),
        CASE(events_go_on_where_the_last_answer_ended),
        CASE(many_events_are_read_in_parts),
        CASE(a_verdict_is_acknowledged_once_and_ends_when_it_is_cleared),
        CASE(who_may_only_read_changes_nothing),
        CASE(the_configuration_is_what_is_in_force),
        CASE(what_is_refused_is_json_too)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
