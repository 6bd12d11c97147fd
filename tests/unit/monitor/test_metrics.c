/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics: its form, what is there from the start, and what users complain about. */
#include "core/err.h"
#include "monitor/metrics.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_mon *mon;
static struct sl_mon_port port;
static const struct sl_mon_port *ports[] = {&port};
static struct sl_mon_probe probes[] = {
    {.name = "link", .how = "rtnetlink", .is_up = true, .cpu_ns = 2500000},
    {.name = "kmsg", .how = "/dev/kmsg", .is_stale = true}};
static struct sl_mon_metrics metrics;
static char *text;
static size_t len;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    if (transition->step.from != transition->step.to)
        metrics.transitions[transition->check][transition->step.to]++;
}

static int begin(void **state)
{
    const struct sl_mon_options options = {.subjects_max = 8, .on_transition = on_transition};
    const struct sl_mon_time now = {.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};

    (void)state;
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    sl_mon_set_time(mon, &now);
    sl_mon_port_init(&port, sl_mon_subject(mon, SL_MON_PORT, "mlx5_0:1"));
    metrics = (struct sl_mon_metrics){.mon = mon,
                                      .ports = ports,
                                      .port_count = 1,
                                      .probes = probes,
                                      .probe_count = 2,
                                      .version = "1.2",
                                      .config_is_good = true};
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_destroy(mon);
    free(text);
    text = NULL;
    return 0;
}

static void write_it(void)
{
    FILE *out;

    free(text);
    out = open_memstream(&text, &len);
    assert_true(sl_mon_metrics_write(&metrics, out));
    fclose(out);
}

static void expect(const char *line)
{
    char whole[512];

    snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (strstr(text, whole) == NULL)
        fail_msg("no such line: %s", line);
}

/* dcgm-exporter 646, 700: error metrics are blank instead of 0. */
static void everything_is_there_from_the_start(void **state)
{
    (void)state;
    write_it();
    expect("sluice_port_errors_total{device=\"mlx5_0\",port=\"1\",kind=\"symbol\"} 0");
    expect("sluice_port_link_down_total{device=\"mlx5_0\",port=\"1\"} 0");
    expect("sluice_verdict_active{class=\"NICDown\",check=\"link_down\",kind=\"port\","
           "subject=\"mlx5_0:1\"} 0");
    expect("sluice_verdicts_total{class=\"GPUUnhealthy\",check=\"gpu_fatal\",state=\"bad\"} 0");
    expect("sluice_evidence_total{check=\"link_down\",kind=\"port\",subject=\"mlx5_0:1\"} 0");
    expect("sluice_port_flap_duration_seconds_bucket{device=\"mlx5_0\",port=\"1\",le=\"+Inf\"} 0");
    expect("sluice_probe_up{probe=\"kmsg\",how=\"/dev/kmsg\"} 0");
    expect("sluice_probe_stale{probe=\"link\",how=\"rtnetlink\"} 0");
    expect("sluice_probe_stale{probe=\"kmsg\",how=\"/dev/kmsg\"} 1");
    expect("sluice_agent_source_seconds_total{probe=\"link\",how=\"rtnetlink\"} 0.002500");
    expect("sluice_build_info{version=\"1.2\"} 1");
    assert_string_equal(text + len - 6, "# EOF\n");
}

static void flaps_are_a_histogram_of_their_durations(void **state)
{
    (void)state;
    sl_mon_port_flapped(mon, &port, "rtnetlink", 1, 12000000);
    sl_mon_port_flapped(mon, &port, "rtnetlink", 2, 0); /* nobody knows how long */
    sl_mon_port_flapped(mon, &port, "rtnetlink", 1, 25 * SL_MON_S);
    write_it();
    expect("sluice_port_flap_duration_seconds_bucket{device=\"mlx5_0\",port=\"1\",le=\"0.01\"} 0");
    expect("sluice_port_flap_duration_seconds_bucket{device=\"mlx5_0\",port=\"1\",le=\"0.1\"} 1");
    expect("sluice_port_flap_duration_seconds_bucket{device=\"mlx5_0\",port=\"1\",le=\"60.0\"} 2");
    expect("sluice_port_flap_duration_seconds_count{device=\"mlx5_0\",port=\"1\"} 2");
    expect("sluice_port_flap_duration_seconds_sum{device=\"mlx5_0\",port=\"1\"} 25.012000");
}

/* dcgm-exporter 190, 500, 502: counts are reset, and equal errors are one. */
static void counters_go_up_and_health_is_beside_them(void **state)
{
    const struct sl_mon_evidence evidence = {.source = "kmsg"};
    struct sl_mon_subject *gpu = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0");

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        sl_mon_sample(mon, gpu, SL_MON_CHECK_GPU_ERROR, true, &evidence);
    sl_mon_clear(mon, gpu);
    write_it();
    expect("sluice_evidence_total{check=\"gpu_error\",kind=\"gpu\",subject=\"0000:9b:00.0\"} 3");
    expect("sluice_verdicts_total{class=\"GPUSuspect\",check=\"gpu_error\",state=\"bad\"} 1");
    expect("sluice_verdict_active{class=\"GPUSuspect\",check=\"gpu_error\",kind=\"gpu\","
           "subject=\"0000:9b:00.0\"} 0");
}

static void what_stands_in_labels_is_escaped(void **state)
{
    (void)state;
    sl_mon_subject(mon, SL_MON_HOST, "a\"b\\c\nd");
    write_it();
    expect("sluice_evidence_total{check=\"hung_task\",kind=\"host\",subject=\"a\\\"b\\\\c\\nd\"} "
           "0");
}

static void a_process_has_series_once_something_was_said_of_it(void **state)
{
    struct sl_mon_subject *process = sl_mon_subject(mon, SL_MON_PROCESS, "pid 4711");
    const struct sl_mon_evidence evidence = {.source = "test", .text = "it is stopped"};

    (void)state;
    write_it();
    assert_null(strstr(text, "pid 4711"));
    sl_mon_sample(mon, process, SL_MON_CHECK_PROCESS_STOPPED, true, &evidence);
    write_it();
    expect("sluice_verdict_active{class=\"RankSlow\",check=\"stopped\",kind=\"process\","
           "subject=\"pid 4711\"} 1");
    expect("sluice_evidence_total{check=\"stopped\",kind=\"process\",subject=\"pid 4711\"} 1");
    assert_null(strstr(text, "check=\"starved\",kind=\"process\",subject=\"pid 4711\""));
}

/* What may follow the name of a family: of histograms in both forms, else only in OpenMetrics. */
static bool is_of_family(const char *rest, size_t bytes, bool is_plain)
{
    static const char *const of_histograms[] = {"_bucket", "_count", "_sum"};
    static const char *const others[] = {"_total", "_info"};

    if (bytes == 0)
        return true;
    for (unsigned i = 0; i < 3; i++)
        if (bytes == strlen(of_histograms[i]) && strncmp(rest, of_histograms[i], bytes) == 0)
            return true;
    for (unsigned i = 0; i < 2; i++)
        if (!is_plain && bytes == strlen(others[i]) && strncmp(rest, others[i], bytes) == 0)
            return true;
    return false;
}

/* Each family once, and all its samples after it; names and values of the form. */
static void judge_form(bool is_plain)
{
    char family[128] = "", seen[64][128];
    unsigned count = 0;
    char *copy = strdup(text);

    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strcmp(line, "# EOF") == 0 || strncmp(line, "# TYPE", 6) == 0 ||
            strncmp(line, "# UNIT", 6) == 0)
            continue;
        if (strncmp(line, "# HELP ", 7) == 0) {
            snprintf(family, sizeof(family), "%.*s", (int)strcspn(line + 7, " "), line + 7);
            for (unsigned i = 0; i < count; i++)
                assert_string_not_equal(seen[i], family);
            assert_true(count < 64);
            strcpy(seen[count++], family);
            continue;
        }
        size_t name = strcspn(line, "{ ");
        const char *value = strrchr(line, ' ');

        assert_true(strncmp(line, family, strlen(family)) == 0);
        assert_true(is_of_family(line + strlen(family), name - strlen(family), is_plain));
        assert_non_null(value);
        assert_true(isdigit((unsigned char)value[1]));
    }
    free(copy);
    assert_true(count >= 14);
}

static void families_are_whole_in_both_forms(void **state)
{
    (void)state;
    write_it();
    judge_form(false);
    metrics.format = SL_MON_TEXT_FORMAT;
    write_it();
    judge_form(true);
    assert_null(strstr(text, "# EOF"));
}

static void promtool_finds_nothing_wrong(void **state)
{
    FILE *tool;

    (void)state;
    if (system("command -v promtool >/dev/null 2>&1") != 0) {
        print_message("no promtool (package prometheus): skipped\n");
        skip();
    }
    metrics.format = SL_MON_TEXT_FORMAT;
    write_it();
    tool = popen("promtool check metrics", "w");
    assert_non_null(tool);
    fputs(text, tool);
    assert_int_equal(pclose(tool), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(everything_is_there_from_the_start),
                                       CASE(flaps_are_a_histogram_of_their_durations),
                                       CASE(counters_go_up_and_health_is_beside_them),
                                       CASE(what_stands_in_labels_is_escaped),
                                       CASE(a_process_has_series_once_something_was_said_of_it),
                                       CASE(families_are_whole_in_both_forms),
                                       CASE(promtool_finds_nothing_wrong)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
