/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of /proc and of cgroups: real ones, and what a process may put there. */
#include "monitor/proctext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define STAT                                                                                       \
    "25251 (cat) R 25213 25213 10027 0 -1 4194304 97 0 12 0 31 7 0 0 20 0 3 0 2571197 3133440 "    \
    "366 18446744073709551615 94462716764160 94462716784041 140730104694816 0 0 0 0 0 0 0 0 0 17 " \
    "1 0 0 0 0 0 94462716800048 94462716801664 94462910828544 140730104699532\n"

static void the_fields_of_a_stat_are_found(void **state)
{
    struct sl_proc_stat stat;

    (void)state;
    assert_true(sl_proc_stat(STAT, &stat));
    assert_int_equal(stat.pid, 25251);
    assert_int_equal(stat.parent, 25213);
    assert_string_equal(stat.comm, "cat");
    assert_int_equal(stat.state, 'R');
    assert_int_equal(stat.major_faults, 12);
    assert_int_equal(stat.user_ticks, 31);
    assert_int_equal(stat.system_ticks, 7);
    assert_int_equal(stat.threads, 3);
    assert_int_equal(stat.start_ticks, 2571197);
}

static void a_name_may_hold_anything(void **state)
{
    static const char *const names[] = {"a) R 1 (b", ") S 9", "((", "a b c", "))))", ""};
    struct sl_proc_stat stat;
    char text[1024];

    (void)state;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(text, sizeof(text), "4 (%s) D 1 1 1 0 -1 0 0 0 5 0 6 7 0 0 20 0 1 0 99 0",
                 names[i]);
        assert_true(sl_proc_stat(text, &stat));
        assert_string_equal(stat.comm, names[i]);
        assert_int_equal(stat.state, 'D');
        assert_int_equal(stat.start_ticks, 99);
    }
}

static void a_stat_that_is_cut_is_none(void **state)
{
    struct sl_proc_stat stat;
    char text[sizeof(STAT)];

    (void)state;
    /* Up to the start's first digit: a number that is cut cannot be told from a whole one. */
    for (size_t len = 0; len < (size_t)(strstr(STAT, "2571197") - STAT); len++) {
        memcpy(text, STAT, len);
        text[len] = '\0';
        if (sl_proc_stat(text, &stat))
            fail_msg("taken: %s", text);
    }
}

static void the_stat_of_this_process_is_one(void **state)
{
    struct sl_proc_stat stat;
    uint64_t run_ns, wait_ns, slices;
    uint32_t user;
    int32_t own;
    char text[4096];
    FILE *file = fopen("/proc/self/stat", "re");

    (void)state;
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_true(sl_proc_stat(text, &stat));
    assert_int_equal(stat.pid, getpid());
    assert_int_equal(stat.parent, getppid());
    file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_true(sl_proc_status(text, &user, &own));
    assert_int_equal(user, geteuid());
    assert_int_equal(own, getpid());
    file = fopen("/proc/self/schedstat", "re");
    if (file == NULL)
        return; /* a kernel without it */
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_true(sl_proc_schedstat(text, &run_ns, &wait_ns, &slices));
    assert_true(slices > 0);
}

static void numbers_that_are_none_are_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "1",
                                        "1 2",
                                        "1 2 ",
                                        "-1 2 3",
                                        " 1 2 3",
                                        "1 2 x",
                                        "1 2 3x",
                                        "1  2 3",
                                        "a 2 3",
                                        "99999999999999999999 2 3"};
    uint64_t a, b, c;

    (void)state;
    assert_true(sl_proc_schedstat("1 2 3\n", &a, &b, &c));
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (sl_proc_schedstat(texts[i], &a, &b, &c))
            fail_msg("taken: '%s'", texts[i]);
}

static void a_process_of_a_container_has_two_numbers(void **state)
{
    uint32_t user;
    int32_t own;

    (void)state;
    assert_true(
        sl_proc_status("Name:\tx\nUid:\t0\t1000\t0\t0\nNSpid:\t4711\t12\t1\nx", &user, &own));
    assert_int_equal(user, 1000);
    assert_int_equal(own, 1);
    /* A name has no line of its own: the kernel escapes it. Only at the begin of a line. */
    assert_false(sl_proc_status("Name:\tUid:\t0\t0\nNSpid:\t1\n", &user, &own));
    assert_false(sl_proc_status("Uid:\t0\t0\t0\t0\nNSpid:\t\n", &user, &own));
    assert_false(sl_proc_status("Uid:\t0\t0\t0\t0\nNSpid:\t1 2\n", &user, &own));
    assert_false(sl_proc_status("Uid:\t0\nNSpid:\t1\n", &user, &own));
    assert_false(sl_proc_status("Uid:\t0\t5000000000\t0\t0\nNSpid:\t1\n", &user, &own));
}

static void the_path_of_a_controller_is_found(void **state)
{
    static const char text[] = "9:name=systemd:/s\n4:memory:/job/a:b\n3:cpu,cpuacct:/job\n"
                               "2:cpuset:/\n0::/unified/x\n";
    char path[64];

    (void)state;
    assert_true(sl_proc_cgroup(text, "cpu", path, sizeof(path)));
    assert_string_equal(path, "/job");
    assert_true(sl_proc_cgroup(text, "cpuacct", path, sizeof(path)));
    assert_true(sl_proc_cgroup(text, "memory", path, sizeof(path)));
    assert_string_equal(path, "/job/a:b");
    assert_true(sl_proc_cgroup(text, "", path, sizeof(path)));
    assert_string_equal(path, "/unified/x");
    assert_false(sl_proc_cgroup(text, "pids", path, sizeof(path)));
    assert_false(sl_proc_cgroup(text, "acct", path, sizeof(path)));
    assert_false(sl_proc_cgroup(text, "memory", path, 5));
}

static void a_path_that_leads_out_is_none(void **state)
{
    char path[64];

    (void)state;
    assert_false(sl_proc_cgroup("0::/../other\n", "", path, sizeof(path)));
    assert_false(sl_proc_cgroup("0::/a/..\n", "", path, sizeof(path)));
    assert_false(sl_proc_cgroup("0::../a\n", "", path, sizeof(path)));
    assert_true(sl_proc_cgroup("0::/a..b/...\n", "", path, sizeof(path)));
    assert_false(sl_proc_cgroup("4:memory\n0::/x", "memory", path, sizeof(path)));
}

static void fields_are_whole_words_at_the_begin_of_a_line(void **state)
{
    static const char text[] =
        "nr_periods 29\nnr_throttled 27\nthrottled_time 1234\nx nr_bursts 1\n";
    uint64_t value;

    (void)state;
    assert_true(sl_proc_field(text, "nr_throttled", &value));
    assert_int_equal(value, 27);
    assert_false(sl_proc_field(text, "nr_bursts", &value));
    assert_false(sl_proc_field(text, "throttled", &value));
    assert_false(sl_proc_field("max -1\n", "max", &value));
    assert_false(sl_proc_field("max 5 6\n", "max", &value));
}

static void pressure_is_that_of_its_line(void **state)
{
    static const char text[] = "some avg10=6.00 avg60=7.88 avg300=19.24 total=11387450834\n"
                               "full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";
    uint64_t us;

    (void)state;
    assert_true(sl_proc_pressure(text, "some", &us));
    assert_int_equal(us, UINT64_C(11387450834));
    assert_true(sl_proc_pressure(text, "full", &us));
    assert_int_equal(us, 17);
    assert_false(sl_proc_pressure("some avg10=1\nfull avg10=1 total=3\n", "some", &us));
    assert_false(sl_proc_pressure("", "some", &us));
}

static void limits_of_both_versions(void **state)
{
    uint64_t value, period;

    (void)state;
    assert_true(sl_proc_limit("max\n", &value) && value == UINT64_MAX);
    assert_true(sl_proc_limit("-1\n", &value) && value == UINT64_MAX);
    assert_true(sl_proc_limit("9223372036854771712\n", &value) && value == UINT64_MAX);
    assert_true(sl_proc_limit("83886080\n", &value) && value == 83886080);
    assert_false(sl_proc_limit("-2\n", &value));
    assert_false(sl_proc_limit("", &value));
    assert_true(sl_proc_cpu_max("max 100000\n", &value, &period) && value == UINT64_MAX);
    assert_true(sl_proc_cpu_max("30000 100000\n", &value, &period));
    assert_true(value == 30000 && period == 100000);
    assert_false(sl_proc_cpu_max("30000\n", &value, &period));
    assert_false(sl_proc_cpu_max("30000 0\n", &value, &period));
    assert_false(sl_proc_cpu_max("x 100000\n", &value, &period));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_of_a_stat_are_found),
        cmocka_unit_test(a_name_may_hold_anything),
        cmocka_unit_test(a_stat_that_is_cut_is_none),
        cmocka_unit_test(the_stat_of_this_process_is_one),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(a_process_of_a_container_has_two_numbers),
        cmocka_unit_test(the_path_of_a_controller_is_found),
        cmocka_unit_test(a_path_that_leads_out_is_none),
        cmocka_unit_test(fields_are_whole_words_at_the_begin_of_a_line),
        cmocka_unit_test(pressure_is_that_of_its_line),
        cmocka_unit_test(limits_of_both_versions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
