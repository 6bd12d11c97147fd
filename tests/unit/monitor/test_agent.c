/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as a whole, over files of our own and a clock of the test. */
#include "core/err.h"
#include "monitor/agent.h"
#include "monitor/source.h"

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

static char folder[] = "/tmp/sluice-agent-XXXXXX";
static struct sl_mon_config config;
static struct sl_mon_time now;
static struct sl_agent *agent;
static const char *boot_id;

static void tell_time(void *arg, struct sl_mon_time *out)
{
    (void)arg;
    *out = now;
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static void put(const char *file, const char *text)
{
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/rdma/mlx5_0/ports/1/%s", folder, file);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void restart(void)
{
    const struct sl_agent_options options = {
        .config = &config, .version = "1.2", .now = tell_time, .boot_id = boot_id};

    sl_agent_close(agent);
    agent = NULL;
    if (sl_agent_open(&options, &agent) != 0)
        fail_msg("%s", sluice_last_error());
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    run("mkdir -p %s/rdma/mlx5_0/ports/1/counters", folder);
    put("state", "4: ACTIVE\n");
    put("rate", "400 Gb/sec (4X NDR)\n");
    put("counters/port_xmit_packets", "0\n");
    put("counters/symbol_error", "0\n");
    sl_mon_config_defaults(&config);
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        size_t wanted = sl_source_classes[i]->wanted;

        *(enum sl_mon_wanted *)(void *)((char *)&config + wanted) = SL_MON_OFF;
    }
    config.rdma = SL_MON_ON;
    snprintf(config.rdma_root, sizeof(config.rdma_root), "%s/rdma", folder);
    snprintf(config.store_path, sizeof(config.store_path), "%s/state.db", folder);
    snprintf(config.events_path, sizeof(config.events_path), "%s/events", folder);
    now = (struct sl_mon_time){
        .mono_ns = SL_MON_HOUR, .wall_ns = UINT64_C(1764103151123000000), .boot_ns = SL_MON_HOUR};
    boot_id = "boot-1";
    restart();
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_agent_close(agent);
    agent = NULL;
    run("rm -rf %s", folder);
    return 0;
}

static void second(void)
{
    static unsigned packets;
    char text[32];

    snprintf(text, sizeof(text), "%u\n", packets += 1000);
    put("counters/port_xmit_packets", text);
    now.mono_ns += SL_MON_S;
    now.wall_ns += SL_MON_S;
    now.boot_ns += SL_MON_S;
    sl_agent_tick(agent);
}

static unsigned lines(char *last, size_t cap)
{
    char path[512], line[2048];
    unsigned count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/events", folder);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count++;
        snprintf(last, cap, "%s", line);
    }
    fclose(file);
    return count;
}

static const char *word(struct json_object *line, const char *key)
{
    return json_object_get_string(json_object_object_get(line, key));
}

static void a_port_that_goes_down_is_a_line_of_json(void **state)
{
    struct json_object *line;
    char last[2048];

    (void)state;
    second();
    second();
    put("state", "1: DOWN\n");
    second();
    second();
    assert_int_equal(lines(last, sizeof(last)), 1);
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
    assert_string_equal(word(line, "source"), "sysfs");
    assert_string_equal(word(line, "boot_id"), "boot-1");
    json_object_put(line);
}

static void a_restart_forgets_nothing_and_repeats_nothing(void **state)
{
    char last[2048];

    (void)state;
    second();
    second();
    put("state", "1: DOWN\n");
    second();
    second();
    restart();
    for (unsigned i = 0; i < 10; i++)
        second();
    assert_int_equal(lines(last, sizeof(last)), 1);
    put("state", "4: ACTIVE\n");
    for (unsigned i = 0; i < 70; i++)
        second();
    assert_int_equal(lines(last, sizeof(last)), 2);
    assert_non_null(strstr(last, "\"to\":\"recovering\""));
    assert_non_null(strstr(last, "\"id\":2"));
}

/* At least once: what was stored while nobody could be told is told later. */
static void events_that_could_not_be_written_come_later(void **state)
{
    char path[512], last[2048];

    (void)state;
    second();
    second();
    config.events_path[0] = '\0';
    restart();
    second();
    second();
    put("state", "1: DOWN\n");
    second();
    second();
    snprintf(path, sizeof(path), "%s/events", folder);
    assert_int_equal(lines(last, sizeof(last)), 0);
    strcpy(config.events_path, path);
    restart();
    assert_int_equal(lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "\"check\":\"link_down\""));
}

static void metrics_have_what_is_there(void **state)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    second();
    second();
    assert_true(sl_agent_metrics(agent, SL_MON_OPENMETRICS, out));
    fclose(out);
    assert_non_null(strstr(text, "sluice_port_up{device=\"mlx5_0\",port=\"1\"} 1\n"));
    assert_non_null(strstr(text, "sluice_probe_up{probe=\"rdma\",how=\"sysfs\"} 1\n"));
    assert_non_null(strstr(text, "sluice_probe_up{probe=\"kmsg\",how=\"/dev/kmsg\"} 0\n"));
    assert_non_null(strstr(text, "sluice_config_last_reload_success 1\n"));
    free(text);
}

/* What is switched off is down, and is no alarm. */
static unsigned alarms(void)
{
    const struct sl_mon_probe *probes;
    unsigned count, stale = 0;

    probes = sl_agent_probes(agent, &count);
    for (unsigned i = 0; i < count; i++)
        stale += probes[i].is_stale;
    return stale;
}

static void a_source_that_cannot_be_had_is_named(void **state)
{
    char why[512];

    (void)state;
    second();
    assert_true(sl_agent_is_fresh(agent, why, sizeof(why)));
    assert_int_equal(alarms(), 0);
    config.kmsg = SL_MON_ON;
    snprintf(config.kmsg_path, sizeof(config.kmsg_path), "%s/no-log", folder);
    restart();
    assert_false(sl_agent_is_fresh(agent, why, sizeof(why)));
    assert_non_null(strstr(why, "kmsg: "));
    assert_non_null(strstr(why, "no-log"));
    assert_int_equal(alarms(), 1);
}

/* An agent that is not called any more is not healthy, whatever it saw before. */
static void one_that_stands_still_is_stale(void **state)
{
    char why[512];

    (void)state;
    second();
    now.mono_ns += 6 * SL_MON_S;
    assert_false(sl_agent_is_fresh(agent, why, sizeof(why)));
    assert_string_equal(why, "rdma: was not read in time");
    second();
    assert_true(sl_agent_is_fresh(agent, why, sizeof(why)));
}

static void a_device_that_comes_is_found(void **state)
{
    (void)state;
    run("cp -r %s/rdma/mlx5_0 %s/rdma/mlx5_1", folder, folder);
    for (unsigned i = 0; i < 12; i++)
        second();
    assert_non_null(sl_mon_find(sl_agent_mon(agent), SL_MON_PORT, "mlx5_1:1"));
    run("rm -r %s/rdma/mlx5_1", folder);
    for (unsigned i = 0; i < 12; i++)
        second();
    assert_int_equal(
        sl_mon_subject_state(sl_mon_find(sl_agent_mon(agent), SL_MON_PORT, "mlx5_0:1")), SL_MON_OK);
}

static void a_store_that_was_damaged_is_said(void **state)
{
    char path[512];
    int fd;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        second();
    sl_agent_close(agent);
    agent = NULL;
    snprintf(path, sizeof(path), "%s/state.db", folder);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "rubbish rubbish rubbish", 23, 0), 23);
    close(fd);
    restart();
    assert_non_null(strstr(sl_agent_note(agent), "damaged"));
    second();
}

static void without_a_place_for_its_store_it_does_not_begin(void **state)
{
    const struct sl_agent_options options = {
        .config = &config, .version = "1.2", .now = tell_time, .boot_id = "x"};
    struct sl_agent *none = NULL;

    (void)state;
    strcpy(config.store_path, "/no/such/folder/state.db");
    assert_int_equal(sl_agent_open(&options, &none), -EACCES);
    assert_null(none);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(a_port_that_goes_down_is_a_line_of_json),
                                       CASE(a_restart_forgets_nothing_and_repeats_nothing),
                                       CASE(events_that_could_not_be_written_come_later),
                                       CASE(metrics_have_what_is_there),
                                       CASE(a_source_that_cannot_be_had_is_named),
                                       CASE(one_that_stands_still_is_stale),
                                       CASE(a_device_that_comes_is_found),
                                       CASE(a_store_that_was_damaged_is_said),
                                       CASE(without_a_place_for_its_store_it_does_not_begin)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
