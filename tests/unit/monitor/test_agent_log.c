/* SPDX-License-Identifier: Apache-2.0 */
/* The agent and the kernel's log, over restarts of the agent. */
#include "tests/unit/monitor/bed.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define GPU "0000:9b:00.0"
#define XID79 "NVRM: Xid (PCI:" GPU "): 79, pid=1234, name=python, GPU has fallen off the bus."
#define XID31 "NVRM: Xid (PCI:" GPU "): 31, pid=1234, name=python, MMU Fault"

static int ends[2];

/* A record with each read, as /dev/kmsg has it: a pipe of packets, opened by its name. */
static int begin(void **state)
{
    int err = bed_begin(state);

    assert_int_equal(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    snprintf(bed.config.kmsg_path, sizeof(bed.config.kmsg_path), "/proc/self/fd/%d", ends[0]);
    bed.config.kmsg = SL_MON_ON;
    bed_stop();
    return err;
}

static int end(void **state)
{
    close(ends[0]);
    close(ends[1]);
    return bed_end(state);
}

static void say(unsigned number, uint64_t age_ns, const char *text)
{
    char record[512];
    int len = snprintf(record, sizeof(record), "4,%u,%llu,-;%s\n", number,
                       (unsigned long long)((bed.now.mono_ns - age_ns) / 1000), text);

    assert_int_equal(write(ends[1], record, (size_t)len), len);
}

static unsigned told(void)
{
    char last[2048];

    return bed_lines(last, sizeof(last));
}

/* gpud 381: "after restart a real fault shows healthy for a while". */
static void what_was_said_while_no_agent_was_there_is_told(void **state)
{
    char last[2048];

    (void)state;
    say(7, 3 * SL_MON_MIN, "usb 1-1: new device");
    say(8, 30 * SL_MON_MIN, XID79);
    bed_restart();
    bed_second();
    assert_int_equal(bed_state(SL_MON_CHECK_GPU_FATAL, GPU), SL_MON_BAD);
    assert_int_equal(bed_lines(last, sizeof(last)), 1);
    assert_non_null(strstr(last, "30 min ago: NVRM: Xid"));
}

/* An error from which a GPU recovers is over an hour later, whoever comes to read of it. */
static void what_is_over_is_not_told(void **state)
{
    (void)state;
    say(8, 30 * SL_MON_MIN, XID31);
    bed_restart();
    bed_second();
    assert_int_equal(bed_state(SL_MON_CHECK_GPU_ERROR, GPU), SL_MON_OK);
    assert_int_equal(told(), 0);
    say(9, SL_MON_MIN, XID31);
    bed_second();
    assert_int_equal(bed_state(SL_MON_CHECK_GPU_ERROR, GPU), SL_MON_BAD);
}

static void a_restart_tells_no_line_twice(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        say(8, 0, XID79); /* the kernel has it still */
        say(9, 0, XID31);
        if (i == 2)
            say(10, 0, XID31);
        bed_restart();
        bed_second();
        assert_int_equal(told(), i < 2 ? 2 : 3);
    }
}

static void another_boot_numbers_anew(void **state)
{
    (void)state;
    say(800, 0, XID31);
    bed_restart();
    bed_second();
    bed.boot_id = "boot-2";
    say(9, 0, XID31);
    bed_restart();
    bed_second();
    assert_int_equal(bed_state(SL_MON_CHECK_GPU_ERROR, GPU), SL_MON_BAD);
    assert_int_equal(told(), 3); /* bad, the boot that ended it, bad */
}

/* gpud 1114: XIDs with labels; dcgm-exporter 500 and 190: a gauge of the last one hides the second
 * of two that are equal. */
static void xids_are_counted_with_their_gpu(void **state)
{
    (void)state;
    bed_restart();
    bed_expect_metric("# TYPE sluice_gpu_xid counter\n", true);
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"other\",xid=\"other\"} 0\n", true);
    say(7, 0, XID31);
    bed_second();
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"" GPU "\",xid=\"31\"} 1\n", true);
    say(8, 0, XID31);
    say(9, 0, XID79);
    bed_second();
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"" GPU "\",xid=\"31\"} 2\n", true);
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"" GPU "\",xid=\"79\"} 1\n", true);
    bed_expect_metric("sluice_gpu_xid_last_timestamp_seconds{gpu=\"" GPU "\",xid=\"79\"} "
                      "1764103153.123\n",
                      true);
}

/* Whatever is in the log, the metrics stay bounded. */
static void more_kinds_than_there_is_room_for_are_counted_as_other(void **state)
{
    char text[256];

    (void)state;
    bed_restart();
    for (unsigned i = 0; i < 130; i++) {
        snprintf(text, sizeof(text), "NVRM: Xid (PCI:0000:%02x:00.0): 31, pid=1, MMU Fault", i);
        say(i + 1, 0, text);
        if (i % 8 == 7)
            bed_second();
    }
    bed_second();
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"0000:7f:00.0\",xid=\"31\"} 1\n", true);
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"0000:80:00.0\",xid=\"31\"}", false);
    bed_expect_metric("sluice_gpu_xid_total{gpu=\"other\",xid=\"other\"} 2\n", true);
}

/* DCGM 235: XID 62 is in the kernel's log, and absent from the metric. */
static void every_xid_of_the_log_is_in_the_metric(void **state)
{
    char text[256], line[256];

    (void)state;
    bed_restart();
    for (unsigned xid = 1; xid < 120; xid++) {
        snprintf(text, sizeof(text), "NVRM: Xid (PCI:" GPU "): %u, pid=1234, something", xid);
        snprintf(line, sizeof(line), "sluice_gpu_xid_total{gpu=\"" GPU "\",xid=\"%u\"} 1\n", xid);
        say(xid, 0, text);
        bed_second();
        bed_expect_metric(line, true);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(what_was_said_while_no_agent_was_there_is_told),
                                       CASE(what_is_over_is_not_told),
                                       CASE(a_restart_tells_no_line_twice),
                                       CASE(another_boot_numbers_anew),
                                       CASE(xids_are_counted_with_their_gpu),
                                       CASE(more_kinds_than_there_is_room_for_are_counted_as_other),
                                       CASE(every_xid_of_the_log_is_in_the_metric)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
