/* SPDX-License-Identifier: Apache-2.0 */
/* An agent that tells ranks which ports to avoid: what it writes and tells, over restarts and with
 * a folder that is not there. */
#include "core/err.h"
#include "core/path_watch.h"
#include "tests/unit/monitor/bed.h"

#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static unsigned long symbols;
static char table[128];

static void begin_with(int mode)
{
    snprintf(table, sizeof(table), "%s/run/paths", bed.folder);
    bed_run("mkdir %s/run && cp -r %s/rdma/mlx5_0 %s/rdma/mlx5_1", bed.folder, bed.folder,
            bed.folder);
    bed.config.steer_mode = mode;
    snprintf(bed.config.steer_table, sizeof(bed.config.steer_table), "%s", table);
    symbols = 0;
    bed_restart();
    for (unsigned i = 0; i < 3; i++)
        bed_second();
}

static void bad_second(void)
{
    char text[32];

    snprintf(text, sizeof(text), "%lu\n", symbols += 50);
    bed_put("counters/symbol_error", text);
    bed_second();
}

static void bad(void)
{
    for (unsigned i = 0; i < 3; i++)
        bad_second();
}

static void good(unsigned seconds)
{
    while (seconds-- > 0)
        bed_second();
}

/* The table's lines but the first and that of its time, joined; "none": there is none. */
static const char *says(uint64_t *until_s)
{
    static char text[1024];
    char line[256];
    FILE *file = fopen(table, "re");
    unsigned long long until = 0;

    snprintf(text, sizeof(text), "none");
    if (file == NULL)
        return text;
    text[0] = '\0';
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "until %llu", &until) != 1 && strncmp(line, "sluice-paths", 12) != 0)
            strncat(text, line, sizeof(text) - strlen(text) - 1);
    fclose(file);
    if (until_s != NULL)
        *until_s = until;
    return text;
}

#define AVOID "port=mlx5_0:1 avoid\nend 1\n"
#define TRY "port=mlx5_0:1 weight=10\nend 1\n"

static void nobody_is_told_anything_unless_asked_for(void **state)
{
    (void)state;
    begin_with(0);
    bad();
    assert_string_equal(says(NULL), "none");
    bed_expect_metric("sluice_steer_mode{mode=\"off\"} 1\n", true);
    bed_expect_metric("sluice_steer_changes_total{to=\"avoided\"} 0\n", true);
}

static void a_bad_port_is_avoided_tried_and_given_back(void **state)
{
    char last[2048] = "";

    (void)state;
    begin_with(2);
    assert_string_equal(says(NULL), "none");
    bad();
    assert_string_equal(says(NULL), AVOID);
    (void)bed_lines(last, sizeof(last));
    /* The verdict itself is on the disk first or after: both lines are there. */
    bed_run("grep -q '\"type\":\"steer\".*\"port\":\"mlx5_0:1\".*\"to\":\"avoided\"' %s/events",
            bed.folder);
    bed_run("grep '\"type\":\"steer\"' %s/events | grep -q 'symbol_error went from'", bed.folder);
    bed_expect_metric("sluice_steer_ports{state=\"avoided\"} 1\n", true);
    bed_expect_metric("sluice_steer_up 1\n", true);
    good(59);
    assert_string_equal(says(NULL), AVOID);
    good(2);
    assert_string_equal(says(NULL), TRY);
    good(31);
    assert_string_equal(says(NULL), "end 0\n");
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_SYMBOL, "mlx5_0:1"), SL_MON_BAD); /* held */
    bed_expect_metric("sluice_steer_changes_total{to=\"in_use\"} 1\n", true);
}

/* An agent that died says nothing any more: what it said ends a minute later at most. */
static void the_table_says_until_when_and_is_written_again_before(void **state)
{
    uint64_t until_s = 0;

    (void)state;
    begin_with(2);
    bad();
    for (unsigned i = 0; i < 50; i++) {
        uint64_t wall_s = bed.now.wall_ns / SL_MON_S;

        assert_string_equal(says(&until_s), AVOID);
        assert_in_range(until_s, wall_s + 29, wall_s + 61);
        bed_second();
    }
    bed.now.wall_ns -= SL_MON_HOUR; /* somebody sets the clock */
    bed_second();
    (void)says(&until_s);
    assert_in_range(until_s, 0, bed.now.wall_ns / SL_MON_S + 61);
}

static void it_goes_on_after_a_restart_in_each_state(void **state)
{
    (void)state;
    begin_with(2);
    bad();
    assert_int_equal(unlink(table), 0);
    bed_restart();
    assert_string_equal(says(NULL), AVOID);
    good(62);
    assert_string_equal(says(NULL), TRY);
    bed_restart();
    assert_string_equal(says(NULL), TRY);
    good(32);
    assert_string_equal(says(NULL), "end 0\n");
    bed_restart();
    good(3);
    assert_string_equal(says(NULL), "end 0\n");
    bad();
    assert_string_equal(says(NULL), AVOID);
    /* In another boot nothing of it counts. */
    bed.boot_id = "boot-2";
    assert_int_equal(unlink(table), 0);
    bed_restart();
    good(3);
    assert_string_equal(says(NULL), "none");
}

static void rules_of_people_are_theirs(void **state)
{
    struct sl_path_watch watch;
    struct sl_path_setting is;
    char mine[128];

    (void)state;
    begin_with(2);
    snprintf(mine, sizeof(mine), "%s/mine", bed.folder);
    bed_run("printf 'sluice-paths 1\\n# by hand\\npath=3 weight=7\\nend 1\\n' >%s && chmod 600 %s",
            mine, mine);
    bed_run("cp -p %s %s.before", mine, mine);
    /* The test's clock says another year than the machine's. */
    bed.now.wall_ns = (uint64_t)time(NULL) * SL_MON_S;
    bad();
    sl_path_watch_init(&watch, mine, table, "job");
    assert_true(sl_path_watch_poll(&watch, 0, 1));
    is = sl_path_rules_apply(watch.rules, watch.count, 1, 3, "mlx5_0:1");
    assert_true(is.avoid);
    assert_int_equal(is.weight, 7);
    sl_path_watch_fini(&watch);
    good(100);
    bed_run("cmp %s %s.before", mine, mine);
}

static void a_folder_that_is_not_there_is_said_and_tried_again(void **state)
{
    (void)state;
    begin_with(2);
    bed_run("rmdir %s/run", bed.folder);
    bad();
    bed_expect_metric("sluice_steer_up 0\n", true);
    bed_run("mkdir %s/run", bed.folder);
    good(2);
    assert_string_equal(says(NULL), AVOID);
    bed_expect_metric("sluice_steer_up 1\n", true);
}

static void in_shadow_it_is_told_and_not_written(void **state)
{
    (void)state;
    begin_with(1);
    bad();
    assert_string_equal(says(NULL), "none");
    bed_run("grep -q '\"type\":\"steer\".*\"mode\":\"shadow\"' %s/events", bed.folder);
    bed_expect_metric("sluice_steer_ports{state=\"avoided\"} 1\n", true);
}

static void the_only_port_that_is_up_is_kept(void **state)
{
    (void)state;
    begin_with(2);
    bed_run("printf '1: DOWN\\n' >%s/rdma/mlx5_1/ports/1/state", bed.folder);
    bed_second();
    bad();
    assert_string_equal(says(NULL), "none");
    bed_expect_metric("sluice_steer_refused_total 1\n", true);
}

static void an_operator_ends_it(void **state)
{
    struct sl_mon_subject *subject;

    (void)state;
    begin_with(2);
    bad();
    subject = sl_mon_find(sl_agent_mon(bed.agent), SL_MON_PORT, "mlx5_0:1");
    assert_true(sl_mon_clear(sl_agent_mon(bed.agent), subject));
    bed_second();
    assert_string_equal(says(NULL), "end 0\n");
}

static void the_api_shows_it(void **state)
{
    struct json_object *out = json_object_new_object(), *own, *ports, *one;

    (void)state;
    begin_with(2);
    bad();
    assert_true(sl_agent_json(bed.agent, "steering", out));
    assert_true(json_object_object_get_ex(out, "steering", &own));
    assert_true(json_object_object_get_ex(own, "ports", &ports));
    assert_int_equal(json_object_array_length(ports), 1);
    assert_true(json_object_object_get_ex(json_object_array_get_idx(ports, 0), "state", &one));
    assert_string_equal(json_object_get_string(one), "avoided");
    assert_true(json_object_object_get_ex(own, "changes", &ports));
    assert_int_equal(json_object_array_length(ports), 1);
    json_object_put(out);
}

static void a_check_that_there_is_not_is_refused(void **state)
{
    struct sl_agent *agent = NULL;
    const struct sl_agent_options options = {.config = &bed.config, .version = "1.2"};

    (void)state;
    bed_stop();
    snprintf(bed.config.steer_checks, sizeof(bed.config.steer_checks), "packet_loss, gpu_fatal");
    assert_int_equal(sl_agent_open(&options, &agent), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "gpu_fatal"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_begin, bed_end)
    const struct CMUnitTest tests[] = {
        CASE(nobody_is_told_anything_unless_asked_for),
        CASE(a_bad_port_is_avoided_tried_and_given_back),
        CASE(the_table_says_until_when_and_is_written_again_before),
        CASE(it_goes_on_after_a_restart_in_each_state),
        CASE(rules_of_people_are_theirs),
        CASE(a_folder_that_is_not_there_is_said_and_tried_again),
        CASE(in_shadow_it_is_told_and_not_written),
        CASE(the_only_port_that_is_up_is_kept),
        CASE(an_operator_ends_it),
        CASE(the_api_shows_it),
        CASE(a_check_that_there_is_not_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
