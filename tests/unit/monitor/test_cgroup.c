/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas, limits and pressure of cgroups: version 1, version 2, both. */
#include "monitor/cgroup.h"

#include "pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define PRESSURE "some avg10=0.00 avg60=0.00 avg300=0.00 total=%u\nfull avg10=0.00 total=0\n"

static struct sl_mon_cgroups *cgroups;
static struct sl_mon_membership *one, *other;
static struct sl_mon_process_reading reading;

static int begin(void **state)
{
    (void)state;
    tree_begin();
    cgroups = NULL;
    one = other = NULL;
    memset(&reading, 0, sizeof(reading));
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (cgroups != NULL) {
        sl_mon_membership_free(cgroups, one);
        sl_mon_membership_free(cgroups, other);
    }
    sl_mon_cgroups_close(cgroups);
    tree_end();
    return 0;
}

static void version_1(const char *group, const char *quota, const char *limit)
{
    tree_put("", "cgroup/cpu/cgroup.procs");
    tree_put("", "cgroup/memory/cgroup.procs");
    tree_put(quota, "cgroup/cpu%s/cpu.cfs_quota_us", group);
    tree_put("100000\n", "cgroup/cpu%s/cpu.cfs_period_us", group);
    tree_put("nr_periods 29\nnr_throttled 27\nthrottled_time 1900000000\n", "cgroup/cpu%s/cpu.stat",
             group);
    tree_put(limit, "cgroup/memory%s/memory.limit_in_bytes", group);
    tree_put("12\n", "cgroup/memory%s/memory.failcnt", group);
}

static void pressure_of_host(unsigned us)
{
    char text[256];

    snprintf(text, sizeof(text), PRESSURE, us);
    tree_put(text, "proc/pressure/memory");
}

static void start(void)
{
    char root[128], proc[128];

    snprintf(root, sizeof(root), "%s/cgroup", tree);
    snprintf(proc, sizeof(proc), "%s/proc", tree);
    assert_int_equal(sl_mon_cgroups_open(root, proc, &cgroups), 0);
}

static void read_one(void)
{
    sl_mon_cgroups_begin(cgroups);
    sl_mon_membership_read(cgroups, one, &reading);
}

static void a_quota_and_a_limit_of_version_1(void **state)
{
    (void)state;
    version_1("/job", "30000\n", "83886080\n");
    pressure_of_host(1000);
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "4:memory:/job\n1:cpu:/job\n0::/\n"), 0);
    read_one();
    assert_true(reading.has_quotas);
    assert_int_equal(reading.quota_count, 1);
    assert_int_equal(reading.quotas[0].quota_us, 30000);
    assert_int_equal(reading.quotas[0].period_us, 100000);
    assert_int_equal(reading.quotas[0].periods, 29);
    assert_int_equal(reading.quotas[0].throttled, 27);
    assert_int_equal(reading.quotas[0].throttled_ns, 1900000000);
    assert_int_not_equal(reading.memory_id, 0);
    assert_int_equal(reading.memory_hits, 12);
    assert_true(reading.has_stall && !reading.is_stall_own);
    assert_int_equal(reading.stall_ns, 1000000);
}

static void no_quota_and_no_limit_is_nothing(void **state)
{
    (void)state;
    version_1("/job", "-1\n", "9223372036854771712\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "4:memory:/job\n1:cpu:/job\n"), 0);
    read_one();
    assert_true(reading.has_quotas);
    assert_int_equal(reading.quota_count, 0);
    assert_int_equal(reading.memory_id, 0);
    assert_false(reading.has_stall);
}

static void a_quota_that_is_set_later_is_seen(void **state)
{
    (void)state;
    version_1("/job", "-1\n", "-1\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/job\n"), 0);
    read_one();
    assert_int_equal(reading.quota_count, 0);
    tree_put("50000\n", "cgroup/cpu/job/cpu.cfs_quota_us");
    read_one();
    assert_int_equal(reading.quota_count, 1);
    assert_int_equal(reading.quotas[0].quota_us, 50000);
}

static void quotas_above_its_cgroup_hold_too(void **state)
{
    (void)state;
    version_1("/pod/container", "-1\n", "-1\n");
    version_1("/pod", "20000\n", "1000\n");
    start();
    assert_int_equal(
        sl_mon_membership_set(cgroups, &one, "4:memory:/pod/container\n1:cpu:/pod/container\n"), 0);
    read_one();
    assert_int_equal(reading.quota_count, 1);
    assert_int_equal(reading.quotas[0].quota_us, 20000);
    assert_int_equal(reading.memory_hits, 12);
}

static void version_2_has_pressure_of_its_own(void **state)
{
    char text[256];

    (void)state;
    tree_put("cpu memory\n", "cgroup/cgroup.controllers");
    tree_put("30000 100000\n", "cgroup/job/cpu.max");
    tree_put("usage_usec 1\nnr_periods 10\nnr_throttled 9\nthrottled_usec 700\n",
             "cgroup/job/cpu.stat");
    tree_put("low 0\nhigh 3\nmax 4\noom 0\noom_kill 0\n", "cgroup/job/memory.events");
    snprintf(text, sizeof(text), PRESSURE, 77);
    tree_put(text, "cgroup/job/memory.pressure");
    pressure_of_host(1000);
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "0::/job\n"), 0);
    read_one();
    assert_int_equal(reading.quota_count, 1);
    assert_int_equal(reading.quotas[0].throttled, 9);
    assert_int_equal(reading.quotas[0].throttled_ns, 700000);
    assert_int_equal(reading.memory_hits, 7);
    assert_true(reading.has_stall && reading.is_stall_own);
    assert_int_equal(reading.stall_ns, 77000);
}

static void a_process_that_moves_is_followed(void **state)
{
    (void)state;
    version_1("/a", "10000\n", "-1\n");
    version_1("/b", "20000\n", "-1\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/a\n"), 0);
    assert_int_equal(sl_mon_membership_set(cgroups, &other, "1:cpu:/a\n"), 0);
    read_one();
    uint64_t id = reading.quotas[0].id;

    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/b\n"), 0);
    read_one();
    assert_int_equal(reading.quotas[0].quota_us, 20000);
    assert_int_not_equal(reading.quotas[0].id, id);
    sl_mon_membership_read(cgroups, other,
                           &reading); /* what they shared stays open for the other */
    assert_int_equal(reading.quotas[0].quota_us, 10000);
    assert_int_equal(reading.quotas[0].id, id);
}

static void one_that_moves_below_a_quota_stays_under_it(void **state)
{
    (void)state;
    version_1("/pod/x", "-1\n", "-1\n");
    version_1("/pod/y", "-1\n", "-1\n");
    version_1("/pod", "20000\n", "-1\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/pod/x\n"), 0);
    read_one();
    uint64_t id = reading.quotas[0].id;

    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/pod/y\n"), 0);
    read_one();
    assert_int_equal(reading.quotas[0].id, id);
}

static void only_one_that_is_full_is_the_only_one(void **state)
{
    (void)state;
    version_1("/a", "-1\n", "1000\n");
    version_1("/b", "-1\n", "1000\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "4:memory:/a\n"), 0);
    assert_int_equal(sl_mon_membership_set(cgroups, &other, "4:memory:/b\n"), 0);
    read_one();
    tree_put("100\n", "cgroup/memory/a/memory.failcnt");
    read_one();
    assert_true(reading.is_only_full);
    tree_put("200\n", "cgroup/memory/a/memory.failcnt");
    tree_put("200\n", "cgroup/memory/b/memory.failcnt");
    read_one();
    assert_false(reading.is_only_full);
}

static void a_cgroup_that_is_not_there_is_left_out(void **state)
{
    (void)state;
    version_1("/a", "10000\n", "-1\n");
    start();
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/gone\n0::/x\nrubbish\n:::\n"), 0);
    read_one();
    assert_int_equal(reading.quota_count, 0);
    /* More than there is room for, one after the other. */
    for (unsigned i = 0; i < 600; i++) {
        char text[64];

        snprintf(text, sizeof(text), "1:cpu:/c%u/d\n", i);
        assert_int_equal(sl_mon_membership_set(cgroups, &one, text), 0);
    }
    assert_int_equal(sl_mon_membership_set(cgroups, &one, "1:cpu:/a\n"), 0);
    read_one();
    assert_int_equal(reading.quota_count, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(a_quota_and_a_limit_of_version_1),
                                       CASE(no_quota_and_no_limit_is_nothing),
                                       CASE(a_quota_that_is_set_later_is_seen),
                                       CASE(quotas_above_its_cgroup_hold_too),
                                       CASE(version_2_has_pressure_of_its_own),
                                       CASE(a_process_that_moves_is_followed),
                                       CASE(one_that_moves_below_a_quota_stays_under_it),
                                       CASE(only_one_that_is_full_is_the_only_one),
                                       CASE(a_cgroup_that_is_not_there_is_left_out)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
