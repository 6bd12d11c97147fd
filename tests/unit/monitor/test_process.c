/* SPDX-License-Identifier: Apache-2.0 */
/* What readings of a process say: who is slowed by what, and who is not. */
#include "core/err.h"
#include "monitor/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MS UINT64_C(1000000)

static struct sl_mon *mon;
static struct sl_mon_time now;
static struct sl_mon_process process;
static struct sl_mon_process_reading reading;
static unsigned bad[SL_MON_CHECK_COUNT]; /* how often it became so */
static char text[SL_MON_TEXT];

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    if (transition->step.to == SL_MON_BAD && transition->step.from != SL_MON_BAD) {
        bad[transition->check]++;
        snprintf(text, sizeof(text), "%s", transition->evidence->text);
    }
}

static void set_time(uint64_t ns)
{
    now.mono_ns += ns;
    now.wall_ns += ns;
    now.boot_ns += ns;
    sl_mon_set_time(mon, &now);
}

static int begin(void **state)
{
    const struct sl_mon_options options = {.subjects_max = 16, .on_transition = on_transition};

    (void)state;
    assert_int_equal(sl_mon_create(&options, &mon), 0);
    now = (struct sl_mon_time){.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};
    set_time(0);
    memset(bad, 0, sizeof(bad));
    text[0] = '\0';
    sl_mon_process_init(&process, sl_mon_subject(mon, SL_MON_PROCESS, "pid 4711"), SL_MON_MIN);
    reading = (struct sl_mon_process_reading){
        .thread_count = 1, .has_sched = true, .cpus = 8, .has_quotas = true, .has_stall = true};
    reading.threads[0] = (struct sl_mon_thread_reading){.tid = 4711, .state = 'S'};
    sl_mon_process_read(mon, &process, "procfs", &reading);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_destroy(mon);
    return 0;
}

/* A second in which its first thread runs and waits for so long. */
static void second(uint64_t run_ms, uint64_t wait_ms)
{
    reading.threads[0].run_ns += run_ms * MS;
    reading.threads[0].wait_ns += wait_ms * MS;
    reading.threads[0].slices += run_ms > 0 ? 100 : 0;
    reading.cpu_ns += run_ms * MS;
    set_time(SL_MON_S);
    sl_mon_process_read(mon, &process, "procfs", &reading);
}

static void quota(uint64_t id)
{
    reading.quota_count = 1;
    reading.quotas[0] =
        (struct sl_mon_quota_reading){.id = id, .quota_us = 30000, .period_us = 100000};
}

static void throttle(unsigned times, uint64_t ms)
{
    reading.quotas[0].periods += 10;
    reading.quotas[0].throttled += times;
    reading.quotas[0].throttled_ns += ms * MS;
}

/* Only of that check was anything said; SL_MON_CHECK_COUNT: of none. */
static void expect_only(enum sl_mon_check check)
{
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (bad[i] != (i == check))
            fail_msg("%s became bad %u times: %s", sl_mon_checks[i].name, bad[i], text);
}

static enum sl_mon_state state_of(enum sl_mon_check check)
{
    return sl_mon_condition(process.subject, check)->state;
}

static void a_healthy_process_is_not_accused(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 100; i++) {
        throttle(0, 0);
        second(950, 40);
    }
    expect_only(SL_MON_CHECK_COUNT);
    assert_int_equal(process.run_share, 950);
    assert_int_equal(process.wait_share, 40);
    assert_true(sl_mon_process_is_busy(&process));
}

static void an_idle_process_in_a_throttled_cgroup_is_not(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 20; i++) {
        throttle(9, 700);
        second(1, 1);
    }
    expect_only(SL_MON_CHECK_COUNT);
    assert_false(sl_mon_process_is_busy(&process));
}

static void one_that_its_quota_stops_is_throttled_and_not_starved(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 10; i++) {
        throttle(10, 660);
        second(300, 690);
    }
    expect_only(SL_MON_CHECK_PROCESS_THROTTLED);
    assert_non_null(strstr(text, "30 ms in each 100 ms, stopped it in 10 of 10 periods"));
    assert_int_equal(state_of(SL_MON_CHECK_PROCESS_STARVED), SL_MON_OK);
    reading.quota_count = 0; /* the quota is taken away */
    for (unsigned i = 0; i < 50; i++)
        second(990, 0);
    assert_int_equal(state_of(SL_MON_CHECK_PROCESS_THROTTLED), SL_MON_OK);
    expect_only(SL_MON_CHECK_PROCESS_THROTTLED);
}

static void a_quota_that_stops_it_now_and_then_is_no_trouble(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 50; i++) {
        throttle(1, 40);
        second(900, 45);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

static void another_cgroup_is_no_evidence(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        quota(i + 1);
        reading.quotas[0].periods = reading.quotas[0].throttled = 1000 * i;
        reading.quotas[0].throttled_ns = 1000 * i * SL_MON_S;
        second(500, 0);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

static void one_whose_processor_others_have_is_starved(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        second(480, 510);
    expect_only(SL_MON_CHECK_PROCESS_STARVED);
    assert_non_null(strstr(text, "its thread 4711 was ready to run for 0.51 s of 1.00 s"));
    for (unsigned i = 0; i < 60; i++)
        second(980, 10);
    assert_int_equal(state_of(SL_MON_CHECK_PROCESS_STARVED), SL_MON_OK);
}

static void starved_by_others_inside_a_throttled_cgroup_is_said_of_the_rest(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 10; i++) {
        throttle(1, 40); /* too little to explain it */
        second(200, 780);
    }
    expect_only(SL_MON_CHECK_PROCESS_STARVED);
}

static void while_the_quota_is_at_fault_nothing_is_said_of_the_rest(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 10; i++) {
        throttle(10, 200);
        second(300, 690);
    }
    expect_only(SL_MON_CHECK_PROCESS_THROTTLED);
    assert_int_equal(process.subject->conditions[2].bads, 0);
}

static void two_bad_seconds_are_no_verdict(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        for (unsigned k = 0; k < 6; k++)
            second(900, 50);
        second(300, 690);
        second(300, 690);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

static void threads_that_crowd_each_other_have_their_processors(void **state)
{
    (void)state;
    reading.cpus = 2;
    for (unsigned i = 0; i < 20; i++) {
        reading.cpu_ns += 1500 * MS; /* by other threads than the first */
        second(480, 510);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

static void ranks_that_are_more_than_processors_wait_by_design(void **state)
{
    (void)state;
    reading.crowd_share = 950;
    for (unsigned i = 0; i < 20; i++)
        second(250, 740);
    expect_only(SL_MON_CHECK_COUNT);
    reading.crowd_share = 600; /* somebody else takes the rest */
    for (unsigned i = 0; i < 20; i++)
        second(150, 840);
    expect_only(SL_MON_CHECK_PROCESS_STARVED);
}

static void another_thread_may_be_the_one_that_starves(void **state)
{
    (void)state;
    reading.thread_count = 2;
    reading.threads[1] = (struct sl_mon_thread_reading){.tid = 4800};
    second(0, 0);
    for (unsigned i = 0; i < 10; i++) {
        reading.threads[1].run_ns += 300 * MS;
        reading.threads[1].wait_ns += 600 * MS;
        second(10, 5);
    }
    expect_only(SL_MON_CHECK_PROCESS_STARVED);
    assert_non_null(strstr(text, "thread 4800"));
}

static void one_that_is_stopped_is_only_that_and_at_once(void **state)
{
    (void)state;
    second(900, 10);
    reading.threads[0].state = 'T';
    second(100, 0);
    expect_only(SL_MON_CHECK_PROCESS_STOPPED);
    for (unsigned i = 0; i < 10; i++)
        second(0, 0);
    expect_only(SL_MON_CHECK_PROCESS_STOPPED);
    reading.threads[0].state = 'S';
    for (unsigned i = 0; i < 10; i++)
        second(900, 10);
    assert_int_equal(state_of(SL_MON_CHECK_PROCESS_STOPPED), SL_MON_OK);
    expect_only(SL_MON_CHECK_PROCESS_STOPPED);
}

static void a_debugger_that_looks_for_a_moment_is_no_stop(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        reading.threads[0].state = 't';
        second(900, 10);
        reading.threads[0].state = 'R';
        second(900, 10);
    }
    expect_only(SL_MON_CHECK_COUNT);
    reading.threads[0].state = 't';
    second(900, 10);
    second(0, 0); /* it holds it */
    expect_only(SL_MON_CHECK_PROCESS_STOPPED);
    assert_non_null(strstr(text, "debugger"));
}

static void one_that_hangs_in_the_kernel_is_blocked_after_five_seconds(void **state)
{
    (void)state;
    reading.threads[0].state = 'D';
    second(1, 0);
    for (unsigned i = 0; i < 4; i++)
        second(0, 0);
    expect_only(SL_MON_CHECK_COUNT);
    second(0, 0);
    expect_only(SL_MON_CHECK_PROCESS_BLOCKED);
    assert_non_null(strstr(text, "for 5.0 s"));
}

static void one_that_reads_a_disk_is_in_d_often_and_not_blocked(void **state)
{
    (void)state;
    reading.threads[0].state = 'D';
    for (unsigned i = 0; i < 30; i++)
        second(20, 1);
    expect_only(SL_MON_CHECK_COUNT);
}

/* ---- memory ---- */

static void remember(uint64_t stall_ms, uint64_t hits, uint64_t faults)
{
    reading.stall_ns += stall_ms * MS;
    reading.memory_hits += hits;
    reading.major_faults += faults;
    second(300, 20);
}

static void a_full_cgroup_whose_tasks_wait_is_memory_pressure(void **state)
{
    (void)state;
    reading.memory_id = 7;
    reading.is_only_full = true;
    for (unsigned i = 0; i < 10; i++)
        remember(180, 21508, 0);
    expect_only(SL_MON_CHECK_PROCESS_MEMORY);
    assert_non_null(strstr(text, "reached its memory limit 21508 times"));
}

static void reading_files_through_a_full_cgroup_is_not(void **state)
{
    (void)state;
    reading.memory_id = 7;
    reading.is_only_full = true;
    for (unsigned i = 0; i < 30; i++)
        remember(80, 1700, 0); /* as it was measured */
    expect_only(SL_MON_CHECK_COUNT);
}

static void a_host_that_waits_accuses_only_who_reads_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        remember(300, 0, 0); /* others do */
    expect_only(SL_MON_CHECK_COUNT);
    reading.memory_id = 7;
    for (unsigned i = 0; i < 10; i++)
        remember(300, 500, 0); /* two cgroups are full, and this one does not read again */
    expect_only(SL_MON_CHECK_COUNT);
    for (unsigned i = 0; i < 10; i++)
        remember(300, 0, 30);
    expect_only(SL_MON_CHECK_PROCESS_MEMORY);
}

static void its_own_pressure_is_enough(void **state)
{
    (void)state;
    reading.is_stall_own = true;
    second(300, 0);
    for (unsigned i = 0; i < 10; i++)
        remember(150, 0, 0);
    expect_only(SL_MON_CHECK_PROCESS_MEMORY);
}

static void where_the_kernel_does_not_count_stalls_faults_must_do(void **state)
{
    (void)state;
    reading.has_stall = false;
    reading.memory_id = 7;
    for (unsigned i = 0; i < 30; i++)
        remember(0, 2000, 2);
    expect_only(SL_MON_CHECK_COUNT);
    for (unsigned i = 0; i < 10; i++)
        remember(0, 2000, 20);
    expect_only(SL_MON_CHECK_PROCESS_MEMORY);
}

/* ---- times ---- */

static void a_process_that_starts_has_three_seconds(void **state)
{
    (void)state;
    process.started_ns = now.boot_ns - SL_MON_S / 2;
    quota(1);
    for (unsigned i = 0; i < 2; i++) {
        throttle(10, 660);
        second(300, 690);
    }
    assert_int_equal(process.subject->conditions[1].bads + process.subject->conditions[2].bads, 0);
    reading.threads[0].state = 'T';
    second(0, 0);
    expect_only(SL_MON_CHECK_PROCESS_STOPPED);
}

static void readings_far_apart_say_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        set_time(SL_MON_MIN);
        second(10000, 50000);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

static void counters_that_go_back_say_nothing(void **state)
{
    (void)state;
    quota(1);
    for (unsigned i = 0; i < 20; i++) {
        reading.quotas[0].throttled_ns = i % 2 == 0 ? 100 * SL_MON_S : 0;
        reading.stall_ns = i % 2 == 0 ? 0 : 100;
        reading.threads[0].wait_ns = i % 2 == 0 ? 100 * SL_MON_S : 0;
        reading.threads[0].run_ns = i % 2 == 0 ? 0 : 100 * SL_MON_S;
        reading.cpu_ns = 0;
        second(0, 0);
    }
    expect_only(SL_MON_CHECK_COUNT);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_healthy_process_is_not_accused),
        CASE(an_idle_process_in_a_throttled_cgroup_is_not),
        CASE(one_that_its_quota_stops_is_throttled_and_not_starved),
        CASE(a_quota_that_stops_it_now_and_then_is_no_trouble),
        CASE(another_cgroup_is_no_evidence),
        CASE(one_whose_processor_others_have_is_starved),
        CASE(starved_by_others_inside_a_throttled_cgroup_is_said_of_the_rest),
        CASE(while_the_quota_is_at_fault_nothing_is_said_of_the_rest),
        CASE(two_bad_seconds_are_no_verdict),
        CASE(threads_that_crowd_each_other_have_their_processors),
        CASE(ranks_that_are_more_than_processors_wait_by_design),
        CASE(another_thread_may_be_the_one_that_starves),
        CASE(one_that_is_stopped_is_only_that_and_at_once),
        CASE(a_debugger_that_looks_for_a_moment_is_no_stop),
        CASE(one_that_hangs_in_the_kernel_is_blocked_after_five_seconds),
        CASE(one_that_reads_a_disk_is_in_d_often_and_not_blocked),
        CASE(a_full_cgroup_whose_tasks_wait_is_memory_pressure),
        CASE(reading_files_through_a_full_cgroup_is_not),
        CASE(a_host_that_waits_accuses_only_who_reads_again),
        CASE(its_own_pressure_is_enough),
        CASE(where_the_kernel_does_not_count_stalls_faults_must_do),
        CASE(a_process_that_starts_has_three_seconds),
        CASE(readings_far_apart_say_nothing),
        CASE(counters_that_go_back_say_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
