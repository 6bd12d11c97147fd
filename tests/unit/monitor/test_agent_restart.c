/* SPDX-License-Identifier: Apache-2.0 */
/* The agent killed in every state, clocks that are set, sources that fail, a disk that is full. */
#include "monitor/store.h"
#include "tests/unit/monitor/bed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define PORT "mlx5_0:1"
#define SYMBOL SL_MON_CHECK_PORT_SYMBOL

static unsigned long symbols;

static void bad_second(void)
{
    char text[32];

    snprintf(text, sizeof(text), "%lu\n", symbols += 50);
    bed_put("counters/symbol_error", text);
    bed_second();
}

static void good_seconds(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        bed_second();
}

static void to_ok(void)
{
    good_seconds(3);
}

static void to_suspect(void)
{
    good_seconds(3);
    bad_second();
}

static void to_bad(void)
{
    good_seconds(3);
    for (unsigned i = 0; i < 3; i++)
        bad_second();
}

static void to_recovering(void)
{
    to_bad();
    good_seconds(11 * 60);
}

static void to_relapse(void)
{
    to_recovering();
    bad_second();
}

static const struct {
    void (*go)(void);
    enum sl_mon_state state;
    unsigned events;
    bool was_bad;
} ways[] = {{to_ok, SL_MON_OK, 0, false},
            {to_suspect, SL_MON_SUSPECT, 1, false},
            {to_bad, SL_MON_BAD, 2, true},
            {to_recovering, SL_MON_RECOVERING, 3, true},
            {to_relapse, SL_MON_BAD, 4, true}};

/* What the child's agent moved, the parent must know: counters and clocks. */
struct moved {
    struct sl_mon_time now;
    unsigned packets;
    unsigned long symbols;
    enum sl_mon_state state;
};

/* An agent in a process of its own goes that way, and is killed there. */
static void killed_after(void (*go)(void), enum sl_mon_state expected)
{
    struct moved moved;
    int ends[2], status;
    pid_t pid;

    bed_stop();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bed_restart();
        go();
        moved = (struct moved){.now = bed.now,
                               .packets = bed.packets,
                               .symbols = symbols,
                               .state = bed_state(SYMBOL, PORT)};
        if (write(ends[1], &moved, sizeof(moved)) == (ssize_t)sizeof(moved))
            raise(SIGKILL);
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &moved, sizeof(moved)), sizeof(moved));
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(moved.state, expected);
    bed.now = moved.now;
    bed.packets = moved.packets;
    symbols = moved.symbols;
}

static unsigned told(void)
{
    char last[2048];

    return bed_lines(last, sizeof(last));
}

static int begin(void **state)
{
    symbols = 0;
    return bed_begin(state);
}

/* In each state nothing is told again, the state is the same, and from there the way is the same
 * as without the kill: to BAD by evidence, to OK by time. */
static void an_agent_killed_in_any_state_goes_on_from_there(void **state)
{
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        killed_after(ways[i].go, ways[i].state);
        bed_restart();
        assert_int_equal(bed_state(SYMBOL, PORT), ways[i].state);
        good_seconds(1);
        assert_int_equal(bed_state(SYMBOL, PORT), ways[i].state);
        assert_int_equal(told(), ways[i].events);
        for (unsigned j = 0; j < 4; j++)
            bad_second();
        assert_int_equal(bed_state(SYMBOL, PORT), SL_MON_BAD);
        good_seconds(60 * 60);
        assert_int_equal(bed_state(SYMBOL, PORT), SL_MON_OK);
        bed_end(state);
        begin(state);
    }
}

/* One verdict from the first BAD to OK, whatever became of agents in between. */
static void its_verdict_is_the_same_over_kills(void **state)
{
    struct sl_mon_verdict verdicts[4];

    (void)state;
    killed_after(to_bad, SL_MON_BAD);
    killed_after(to_ok, SL_MON_BAD);
    bed_restart();
    assert_int_equal(sl_mon_store_verdicts(sl_agent_store(bed.agent), 0, true, verdicts, 4), 1);
    good_seconds(60 * 60);
    assert_int_equal(sl_mon_store_verdicts(sl_agent_store(bed.agent), 0, false, verdicts, 4), 1);
    assert_true(verdicts[0].closed_ns > verdicts[0].opened_ns);
}

/* NTP, an operator, a leap: what is told has the new time, and nothing else comes of it. */
static void the_wall_clock_may_be_set(void **state)
{
    char why[512];

    (void)state;
    to_bad();
    for (int i = 0; i < 4; i++) {
        bed.now.wall_ns += (i % 2 == 0 ? -1 : 3) * (int64_t)(24 * SL_MON_HOUR);
        good_seconds(20);
        assert_int_equal(bed_state(SYMBOL, PORT), SL_MON_BAD);
        assert_true(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
    }
    assert_int_equal(told(), 2);
}

/* A host that slept for a day: no counter is a rate over it, no link has trained in it. */
static void a_host_that_slept_accuses_nobody(void **state)
{
    (void)state;
    to_ok();
    bed.now.wall_ns += 24 * SL_MON_HOUR;
    bed.now.boot_ns += 24 * SL_MON_HOUR;
    bad_second();
    good_seconds(30);
    assert_true(told() <= 2); /* a suspicion that came to nothing */
    assert_int_equal(bed_state(SYMBOL, PORT), SL_MON_OK);
}

static void with_other_sources_gone_the_rest_goes_on(void **state)
{
    char why[512];

    (void)state;
    bed.config.kmsg = SL_MON_ON;
    snprintf(bed.config.kmsg_path, sizeof(bed.config.kmsg_path), "%s/none", bed.folder);
    bed_restart();
    to_bad();
    assert_int_equal(bed_state(SYMBOL, PORT), SL_MON_BAD);
    assert_false(sl_agent_is_fresh(bed.agent, why, sizeof(why)));
    assert_non_null(strstr(why, "kmsg"));
    bed_expect_metric("sluice_probe_stale{probe=\"kmsg\",how=\"/dev/kmsg\"} 1\n", true);
    bed_expect_metric("sluice_probe_stale{probe=\"rdma\",how=\"sysfs\"} 0\n", true);
}

/* NVSentinel 1492: an event is lost if it cannot be published; a port that cannot be read for a
 * moment is a "device that is gone". */
static void a_disk_that_is_full_loses_nothing(void **state)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    struct rlimit before;

    (void)state;
    to_ok();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    bed_put("state", "1: DOWN\n");
    good_seconds(1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    bed_pass(SL_MON_S); /* files of the test cannot be written, either */
    sl_agent_tick(bed.agent);
    bed_pass(SL_MON_S);
    sl_agent_tick(bed.agent);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_DOWN, PORT), SL_MON_BAD);
    assert_int_equal(told(), 0); /* what is not stored is not told */
    good_seconds(15);
    assert_int_equal(told(), 1);
    bed_restart();
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_DOWN, PORT), SL_MON_BAD);
}

static void a_port_that_cannot_be_read_for_a_moment_is_not_gone(void **state)
{
    (void)state;
    to_ok();
    bed_put("state", "");
    good_seconds(3);
    bed_put("state", "4: ACTIVE\n");
    good_seconds(30);
    assert_int_equal(told(), 0);
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_DOWN, PORT), SL_MON_OK);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, bed_end)
    const struct CMUnitTest tests[] = {CASE(an_agent_killed_in_any_state_goes_on_from_there),
                                       CASE(its_verdict_is_the_same_over_kills),
                                       CASE(the_wall_clock_may_be_set),
                                       CASE(a_host_that_slept_accuses_nobody),
                                       CASE(with_other_sources_gone_the_rest_goes_on),
                                       CASE(a_disk_that_is_full_loses_nothing),
                                       CASE(a_port_that_cannot_be_read_for_a_moment_is_not_gone)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
