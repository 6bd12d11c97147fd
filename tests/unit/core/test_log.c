/* SPDX-License-Identifier: Apache-2.0 */
#include "core/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct {
    unsigned count;
    enum sl_log_level level;
    char area[32], line[4096];
    void *arg;
} last;

static void keep_line(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    last.count++;
    last.level = level;
    last.arg = arg;
    snprintf(last.area, sizeof(last.area), "%s", area);
    snprintf(last.line, sizeof(last.line), "%s", line);
}

static int start(void **state)
{
    (void)state;
    memset(&last, 0, sizeof(last));
    sl_log_set_sink(keep_line, &last);
    sl_log_set_rank(-1);
    return sl_log_configure("");
}

static int stop(void **state)
{
    (void)state;
    sl_log_set_sink(NULL, NULL);
    return 0;
}

static void without_a_setting_warnings_pass_and_information_does_not(void **state)
{
    (void)state;
    sl_info("tcp", "not seen");
    assert_int_equal(last.count, 0);
    sl_warn("tcp", "port %d is taken", 4711);
    assert_int_equal(last.count, 1);
    assert_int_equal(last.level, SL_LOG_WARN);
    assert_string_equal(last.area, "tcp");
    assert_string_equal(last.line, "tcp: port 4711 is taken");
    assert_ptr_equal(last.arg, &last);
}

static void a_level_lets_through_itself_and_what_is_worse(void **state)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};

    (void)state;
    for (int setting = SL_LOG_ERROR; setting <= SL_LOG_TRACE; setting++) {
        assert_int_equal(sl_log_configure(names[setting]), 0);
        for (int level = SL_LOG_ERROR; level <= SL_LOG_TRACE; level++)
            assert_int_equal(!!sl_log_enabled("shm", (enum sl_log_level)level), level <= setting);
    }
}

static void an_area_has_a_level_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(sl_log_configure("verbs:debug,shm:error,info"), 0);
    assert_true(sl_log_enabled("verbs", SL_LOG_DEBUG));
    assert_false(sl_log_enabled("verbs", SL_LOG_TRACE));
    assert_false(sl_log_enabled("shm", SL_LOG_WARN));
    assert_true(sl_log_enabled("tcp", SL_LOG_INFO));
    assert_false(sl_log_enabled("tcp", SL_LOG_DEBUG));
    assert_false(sl_log_enabled("verb", SL_LOG_DEBUG)); /* names are whole */
}

static void the_order_of_areas_and_level_does_not_matter(void **state)
{
    (void)state;
    assert_int_equal(sl_log_configure("trace,shm:error"), 0);
    assert_false(sl_log_enabled("shm", SL_LOG_WARN));
    assert_true(sl_log_enabled("tcp", SL_LOG_TRACE));
}

static void what_is_not_understood_is_quoted_and_what_came_before_is_in_force(void **state)
{
    (void)state;
    assert_int_equal(sl_log_configure("info,tcp:loud,trace"), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "'tcp:loud'"));
    assert_true(sl_log_enabled("shm", SL_LOG_INFO));
    assert_false(sl_log_enabled("shm", SL_LOG_TRACE));
    assert_int_equal(sl_log_configure(":info"), -EINVAL);
    assert_int_equal(sl_log_configure("a-name-that-is-longer-than-any:info"), -EINVAL);
    assert_int_equal(sl_log_configure("information"), -EINVAL);
    assert_int_equal(sl_log_configure("tcp:"), -EINVAL);
}

static void more_areas_than_there_is_room_for_are_refused(void **state)
{
    char spec[1024] = "";

    (void)state;
    for (int i = 0; i < 17; i++)
        snprintf(spec + strlen(spec), sizeof(spec) - strlen(spec), "area%d:debug,", i);
    assert_int_equal(sl_log_configure(spec), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "area16:debug"));
}

static void a_new_setting_forgets_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(sl_log_configure("shm:trace,debug"), 0);
    assert_int_equal(sl_log_configure("error"), 0);
    assert_false(sl_log_enabled("shm", SL_LOG_WARN));
}

static void lines_carry_the_rank_of_their_thread(void **state)
{
    (void)state;
    sl_log_set_rank(3);
    sl_error("tcp", "connected to rank %d", 5);
    assert_string_equal(last.line, "tcp rank 3: connected to rank 5");
}

static void long_lines_are_cut_and_not_lost(void **state)
{
    char text[5000];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    sl_error("shm", "%s", text);
    assert_int_equal(last.count, 1);
    assert_int_equal(strlen(last.line), 2047);
    assert_memory_equal(last.line, "shm: xxx", 8);
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void what_is_not_logged_is_not_computed(void **state)
{
    (void)state;
    evaluated = 0;
    sl_debug("shm", "%d", evaluate());
    assert_int_equal(evaluated, 0);
    sl_warn("shm", "%d", evaluate());
    assert_int_equal(evaluated, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_setting_warnings_pass_and_information_does_not,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_level_lets_through_itself_and_what_is_worse, start, stop),
        cmocka_unit_test_setup_teardown(an_area_has_a_level_of_its_own, start, stop),
        cmocka_unit_test_setup_teardown(the_order_of_areas_and_level_does_not_matter, start, stop),
        cmocka_unit_test_setup_teardown(
            what_is_not_understood_is_quoted_and_what_came_before_is_in_force, start, stop),
        cmocka_unit_test_setup_teardown(more_areas_than_there_is_room_for_are_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_new_setting_forgets_the_old_one, start, stop),
        cmocka_unit_test_setup_teardown(lines_carry_the_rank_of_their_thread, start, stop),
        cmocka_unit_test_setup_teardown(long_lines_are_cut_and_not_lost, start, stop),
        cmocka_unit_test_setup_teardown(what_is_not_logged_is_not_computed, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
