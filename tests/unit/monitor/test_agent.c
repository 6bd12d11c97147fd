/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as a whole, over files of our own and a clock of the test. */
#include "core/err.h"
#include "monitor/agent.h"
#include "monitor/source.h"
#include "tests/unit/monitor/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *word(struct json_object *line, const char *key)
{
    return json_object_get_string(json_object_object_get(line, key));
}

static void a_port_that_goes_down_is_a_line_of_json(void **state)
{
    struct json_object *line;
    char last[2048];

    (void)state;
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    line = json_tokener_parse(last);
    assert_non_null(line);
    assert_int_equal(json_object_get_int(json_object_object_get(line, "version")), 1);
    assert_int_equal(json_object_get_int(json_object_object_get(line, "id")), 1);
    assert_string_equal(word(line, "time"), "2025-11-25T20:39:15.123Z");
    assert_string_equal(word(line, "subject"), "mlx5_0:1");
    assert_string_equal(word(line, "check"), "link_down");
    assert_string_equal(word(line, "class"), "NICDown");
    assert_string_equal(word(line, "from"), "ok");
    assert_string_equal(word(line, "to"), "bad");
    assert_string_equal(word(line, "verdict"), "opened");
    assert_string_equal(word(line, "source"), "sysfs");
    assert_string_equal(word(line, "boot_id"), "boot-1");
    json_object_put(line);
}

static void a_restart_forgets_nothing_and_repeats_nothing(void **state)
{
    char last[2048];

    (void)state;
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
    bed_restart();
    for (unsigned i = 0; i < 10; i++)
        bed_second();
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    bed_put("state", "4: ACTIVE\n");
    for (unsigned i = 0; i < 70; i++)
        bed_second();
    assert_int_equal(bed_lines(last, sizeof(last)), 2);
    assert_non_null(strstr(last, "\"to\":\"recovering\""));
    assert_null(strstr(last, "\"verdict\""));
    assert_non_null(strstr(last, "\"id\":2"));
    for (unsigned i = 0; i < 300; i++)
        bed_second();
    assert_int_equal(bed_lines(last, sizeof(last)), 3);
    assert_non_null(strstr(last, "\"to\":\"ok\",\"verdict\":\"closed\""));
}

/* At least once: what was stored while nobody could be told is told later. */
static void events_that_could_not_be_written_come_later(void **state)
{
    char path[512], last[2048];

    (void)state;
    bed_second();
    bed_second();
    bed.config.events_path[0] = '\0';
    bed_restart();
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
    snprintf(path, sizeof(path), "%s/events", bed.folder);
    assert_int_equal(bed_lines(last, sizeof(last)), 0);
    strcpy(bed.config.events_path, path);
    bed_restart();
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "\"check\":\"link_down\""));
}

static void metrics_have_what_is_there(void **state)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    bed_second();
    bed_second();
    assert_true(sl_agent_metrics(bed.agent, SL_MON_OPENMETRICS, out));
    fclose(out);
    assert_non_null(strstr(text, "sluice_port_up{device=\"mlx5_0\",port=\"1\"} 1\n"));
    assert_non_null(strstr(text, "sluice_probe_up{probe=\"rdma\",how=\"sysfs\"} 1\n"));
    assert_non_null(strstr(text, "sluice_probe_up{probe=\"kmsg\",how=\"/dev/kmsg\"} 0\n"));
    assert_non_null(strstr(text, "sluice_config_last_reload_success 1\n"));
    free(text);
}

/* Dashboards that know node_exporter's names go on, if that is asked for. */
static void ports_have_node_exporters_names_if_asked(void **state)
{
    const char *line = "node_infiniband_symbol_error_total{device=\"mlx5_0\",port=\"1\"} 7\n";

    (void)state;
    bed_put("counters/symbol_error", "7\n");
    bed_second();
    bed_expect_metric(line, false);
    bed.config.node_names = SL_MON_ON;
    bed_restart();
    bed_second();
    bed_expect_metric(line, true);
    bed_expect_metric("node_infiniband_rate_bytes_per_second{device=\"mlx5_0\",port=\"1\"} "
                      "50000000000\n",
                      true);
    bed_expect_metric("# UNIT node_infiniband_port_data_transmitted_bytes bytes\n", true);
}

/* What is switched off is down, and is no alarm. */
static unsigned alarms(void)
{
    const struct sl_mon_probe *probes;
    unsigned count, stale = 0;

    probes = sl_agent_probes(bed.agent, &count);
    for (unsigned i = 0; i < count; i++)
        stale += probes[i].is_stale;
    return stale;
}

static void a_source_that_cannot_be_had_is_named(void **state)
{
    char why[512];

    (void)state;
    bed_second();
    assert_true(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
    assert_int_equal(alarms(), 0);
    bed.config.kmsg = SL_MON_ON;
    snprintf(bed.config.kmsg_path, sizeof(bed.config.kmsg_path), "%s/no-log", bed.folder);
    bed_restart();
    assert_false(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
    assert_non_null(strstr(why, "kmsg: "));
    assert_non_null(strstr(why, "no-log"));
    assert_int_equal(alarms(), 1);
}

/* An agent that is not called any more is not healthy, whatever it saw before. */
static void one_that_stands_still_is_stale(void **state)
{
    char why[512];

    (void)state;
    bed_second();
    bed.now.mono_ns += 6 * SL_MON_S;
    assert_false(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
    assert_string_equal(why, "rdma: was not read in time");
    bed_second();
    assert_true(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
}

static void a_device_that_comes_is_found(void **state)
{
    (void)state;
    bed_run("cp -r %s/rdma/mlx5_0 %s/rdma/mlx5_1", bed.folder, bed.folder);
    for (unsigned i = 0; i < 12; i++)
        bed_second();
    assert_non_null(sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PORT, "mlx5_1:1"));
    bed_run("rm -r %s/rdma/mlx5_1", bed.folder);
    for (unsigned i = 0; i < 12; i++)
        bed_second();
    assert_int_equal(
        sl_mon_subject_state(sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PORT, "mlx5_0:1")),
        SL_MON_OK);
}

static void a_store_that_was_damaged_is_said(void **state)
{
    char path[512];
    int fd;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        bed_second();
    sl_agent_close(bed.agent);
    bed.agent = NULL;
    snprintf(path, sizeof(path), "%s/state.db", bed.folder);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "rubbish rubbish rubbish", 23, 0), 23);
    close(fd);
    bed_restart();
    assert_non_null(strstr(sl_agent_note(bed.agent), "damaged"));
    bed_second();
}

static void without_a_place_for_its_store_it_does_not_begin(void **state)
{
    const struct sl_agent_options options = {
        .config = &bed.config, .version = "1.2", .boot_id = "x"};
    struct sl_agent *none = NULL;

    (void)state;
    strcpy(bed.config.store_path, "/no/such/folder/state.db");
    assert_int_equal(sl_agent_open(&options, &none), -EACCES);
    assert_null(none);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_begin, bed_end)
    const struct CMUnitTest tests[] = {CASE(a_port_that_goes_down_is_a_line_of_json),
                                       CASE(a_restart_forgets_nothing_and_repeats_nothing),
                                       CASE(events_that_could_not_be_written_come_later),
                                       CASE(metrics_have_what_is_there),
                                       CASE(ports_have_node_exporters_names_if_asked),
                                       CASE(a_source_that_cannot_be_had_is_named),
                                       CASE(one_that_stands_still_is_stale),
                                       CASE(a_device_that_comes_is_found),
                                       CASE(a_store_that_was_damaged_is_said),
                                       CASE(without_a_place_for_its_store_it_does_not_begin)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
