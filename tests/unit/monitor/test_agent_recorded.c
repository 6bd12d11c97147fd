/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent over /sys/class/infiniband of a real H100 host (9 ports), with counters that a script
 * moves and a clock that it sets: hours without an alarm, then one fault of each kind.
 *
 * SLUICE_MONITOR_HOURS: how many of them (1; a day in ./dev test --long).
 */
#include "tests/unit/monitor/bed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define PORTS 9
#define FILES 16
#define IDLE 8 /* mlx5_bond_0: it carries nothing */

static const char *const devices[PORTS] = {"mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5",     "mlx5_6",
                                           "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_bond_0"};

enum file {
    SENT_WORDS,
    SENT_PACKETS,
    GOT_WORDS,
    GOT_PACKETS,
    WAIT,
    SYMBOL,
    RECOVERED,
    DOWNED,
    INTEGRITY,
    DAMAGED,
    DISCARDED,
    TIMEOUT,
    SEQUENCE,
    NOT_READY,
    ADAPTIVE,
    RESTARTED
};

static const char *const files[FILES] = {
    "counters/port_xmit_data",
    "counters/port_xmit_packets",
    "counters/port_rcv_data",
    "counters/port_rcv_packets",
    "counters/port_xmit_wait",
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/local_link_integrity_errors",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/out_of_sequence",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_adp_retrans",
    "hw_counters/roce_slow_restart",
};

static uint64_t counters[PORTS][FILES];
static int fds[PORTS][FILES];
static uint64_t rng;

static unsigned chance(unsigned of)
{
    rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((rng >> 33) % of);
}

/* Numbers only get longer, but for those that wrap: the rest of the file is cut. */
static void show(unsigned port, enum file file)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%" PRIu64 "\n", counters[port][file]);

    assert_int_equal(pwrite(fds[port][file], text, (size_t)len, 0), len);
    if (len <= 2)
        assert_int_equal(ftruncate(fds[port][file], len), 0);
}

static void add(unsigned port, enum file file, uint64_t more)
{
    counters[port][file] += more;
    if (file >= TIMEOUT)
        counters[port][file] &= UINT32_MAX; /* hw_counters are of 32 bits */
    show(port, file);
}

static void put(unsigned port, const char *file, const char *text)
{
    bed_run("printf '%s\\n' >%s/rdma/%s/ports/1/%s", text, bed.folder, devices[port], file);
}

static void open_files(unsigned port)
{
    for (unsigned i = 0; i < FILES; i++) {
        char path[512], text[32] = "";

        snprintf(path, sizeof(path), "%s/rdma/%s/ports/1/%s", bed.folder, devices[port], files[i]);
        fds[port][i] = open(path, O_RDWR | O_CLOEXEC);
        if (fds[port][i] < 0)
            fail_msg("%s cannot be opened", path);
        assert_true(pread(fds[port][i], text, sizeof(text) - 1, 0) > 0);
        counters[port][i] = strtoull(text, NULL, 10);
    }
}

static int begin(void **state)
{
    const char *data = getenv("SLUICE_TEST_DATA");
    char path[512];
    int err = bed_begin(state);

    snprintf(path, sizeof(path), "%s/sysfs/sys-class-infiniband-h100.tar.gz",
             data != NULL ? data : "");
    if (err != 0 || access(path, R_OK) != 0)
        return err;
    bed_stop();
    bed_run("rm -r %s/rdma && mkdir %s/rdma && tar -xzf %s -C %s/rdma --strip-components=1 "
            "--no-same-permissions && chmod -R u+w %s/rdma",
            bed.folder, bed.folder, path, bed.folder, bed.folder);
    for (unsigned i = 0; i < PORTS; i++)
        open_files(i);
    rng = 42;
    add(3, SEQUENCE, UINT32_MAX - 200 - counters[3][SEQUENCE]); /* within the hour it wraps */
    bed_restart();
    return 0;
}

static int end(void **state)
{
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned j = 0; j < FILES && fds[i][j] > 0; j++)
            close(fds[i][j]);
    memset(fds, 0, sizeof(fds));
    return bed_end(state);
}

static void need_data(void)
{
    if (fds[0][0] > 0)
        return;
    print_message("no recorded /sys/class/infiniband (SLUICE_TEST_DATA): skipped\n");
    skip();
}

/* A second of a training job: steps of some 30 s that use the links and some that do not, and the
 * errors that healthy hardware has. */
static void healthy_second(unsigned at)
{
    for (unsigned port = 0; port < PORTS; port++) {
        uint64_t packets = port == IDLE || at % 30 >= 24 ? 0 : 6000000 + chance(4000000);

        if (packets != 0) {
            add(port, SENT_PACKETS, packets);
            add(port, SENT_WORDS, packets * 1024);
            add(port, GOT_PACKETS, packets);
            add(port, GOT_WORDS, packets * 1024);
            add(port, WAIT, chance(1000000));
            add(port, ADAPTIVE, chance(3));
            if (chance(20) == 0)
                add(port, SEQUENCE, 1 + chance(5));
        }
        if (chance(3600) == 0)
            add(port, SYMBOL, 1);
        if (chance(7200) == 0)
            add(port, DAMAGED, 1);
        if (chance(7200) == 0)
            add(port, DISCARDED, 1 + chance(20));
    }
    bed_pass(SL_MON_S);
    sl_agent_tick(bed.agent);
}

static void expect_no_event(unsigned at)
{
    char last[2048] = "";

    if (bed_lines(last, sizeof(last)) != 0)
        fail_msg("at %u s: %s", at, last);
}

/* Also with what a day brings: counters that wrap, a driver that is loaded again, a cable that is
 * pulled from a port that nobody uses. */
static void healthy_hours_pass_without_an_alarm(void **state)
{
    const char *text = getenv("SLUICE_MONITOR_HOURS");
    unsigned seconds = 3600 * (text != NULL ? (unsigned)strtoul(text, NULL, 10) : 1);

    (void)state;
    need_data();
    assert_true(seconds >= 3600);
    for (unsigned i = 0; i < seconds; i++) {
        if (i % 3600 == 900)
            for (unsigned j = 0; j < FILES; j++) {
                counters[4][j] = 0;
                show(4, (enum file)j);
            }
        if (i % 3600 == 1200)
            put(IDLE, "state", "1: DOWN");
        if (i % 3600 == 1500)
            put(IDLE, "state", "4: ACTIVE");
        healthy_second(i);
        if (i % 600 == 0)
            expect_no_event(i);
    }
    expect_no_event(seconds);
    assert_true(counters[3][SEQUENCE] < UINT32_MAX / 2);
}

/* ---- faults ---- */

struct fault {
    const char *name;
    enum sl_mon_check check;
    enum file file;
    uint64_t more;    /* a second */
    unsigned seconds; /* so long */
};

static const struct fault faults[] = {
    {"a dirty cable", SL_MON_CHECK_PORT_SYMBOL, SYMBOL, 40, 4},
    {"a link that trains again", SL_MON_CHECK_PORT_RECOVERY, RECOVERED, 6, 3},
    {"a flap between two readings", SL_MON_CHECK_PORT_FLAP, DOWNED, 1, 1},
    {"a buffer that cannot be trusted", SL_MON_CHECK_PORT_INTEGRITY, INTEGRITY, 1, 1},
    {"packets that arrive damaged", SL_MON_CHECK_PORT_RECEIVE, DAMAGED, 5000, 4},
    {"a switch that takes nothing", SL_MON_CHECK_PORT_DISCARD, DISCARDED, 20000, 4},
    {"requests that are not answered", SL_MON_CHECK_PORT_LOSS, TIMEOUT, 2, 4},
    {"packets that are lost", SL_MON_CHECK_PORT_LOSS, SEQUENCE, 2000, 4},
    {"a receiver without buffers", SL_MON_CHECK_PORT_NOT_READY, NOT_READY, 3, 4},
    {"congestion control that begins anew", SL_MON_CHECK_PORT_LOSS, RESTARTED, 50, 4},
};

static void expect_only(const char *name, unsigned port, enum sl_mon_check check)
{
    char subject[64];

    snprintf(subject, sizeof(subject), "%s:1", devices[port]);
    if (bed_state(check, subject) != SL_MON_BAD)
        fail_msg("%s was not found", name);
    for (unsigned i = 0; i < PORTS; i++)
        for (unsigned j = 0; j < SL_MON_CHECK_COUNT; j++) {
            snprintf(subject, sizeof(subject), "%s:1", devices[i]);
            if (sl_mon_checks[j].kind == SL_MON_PORT && (i != port || j != check) &&
                bed_state((enum sl_mon_check)j, subject) != SL_MON_OK)
                fail_msg("%s: %s of %s is accused, too", name, sl_mon_checks[j].name, subject);
        }
}

/* A fresh agent for each: conditions are held for minutes. */
static void anew(void)
{
    bed_stop();
    bed_run("rm -f %s/state.db* %s/events", bed.folder, bed.folder);
    bed_restart();
    for (unsigned i = 0; i < 3; i++)
        healthy_second(i);
}

static void each_fault_of_counters_is_found(void **state)
{
    (void)state;
    need_data();
    for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        unsigned port = i % IDLE;

        anew();
        for (unsigned at = 0; at < faults[i].seconds; at++) {
            add(port, faults[i].file, faults[i].more);
            healthy_second(at);
        }
        expect_only(faults[i].name, port, faults[i].check);
    }
}

static void a_port_that_goes_down_or_slower_is_found(void **state)
{
    (void)state;
    need_data();
    anew();
    put(5, "state", "1: DOWN");
    for (unsigned i = 0; i < 2; i++)
        healthy_second(i);
    expect_only("a port that is down", 5, SL_MON_CHECK_PORT_DOWN);
    put(5, "state", "4: ACTIVE");
    anew();
    put(6, "rate", "100 Gb/sec (1X NDR)");
    for (unsigned i = 0; i < 3; i++)
        healthy_second(i);
    expect_only("a link of one lane", 6, SL_MON_CHECK_PORT_SPEED);
}

/* gpud 381: a fault that is there is there after a restart, though its history is not. */
static void a_link_of_one_lane_is_slow_after_a_restart(void **state)
{
    (void)state;
    need_data();
    anew();
    put(6, "rate", "100 Gb/sec (1X NDR)");
    for (unsigned i = 0; i < 3; i++)
        healthy_second(i);
    bed_restart();
    for (unsigned i = 0; i < 1200; i++)
        healthy_second(i);
    expect_only("a link of one lane", 6, SL_MON_CHECK_PORT_SPEED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(healthy_hours_pass_without_an_alarm),
                                       CASE(each_fault_of_counters_is_found),
                                       CASE(a_port_that_goes_down_or_slower_is_found),
                                       CASE(a_link_of_one_lane_is_slow_after_a_restart)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
