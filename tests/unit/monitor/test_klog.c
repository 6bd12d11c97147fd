/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's log as a source: gaps are counted, and a flood costs nobody anything else. */
#include "core/err.h"
#include "monitor/klog.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_mon_klog klog;
static int writer = -1;
static unsigned taken, found;
static char last[SL_MON_KMSG_TEXT];

static void take(void *arg, const struct sl_mon_kmsg *record)
{
    struct sl_mon_finding finding;

    (void)arg;
    taken++;
    found += sl_mon_kmsg_find(record->text, &finding);
    strcpy(last, record->text);
}

/* A record with each read, as /dev/kmsg has it. */
static int begin(void **state)
{
    int fds[2];

    (void)state;
    taken = found = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    sl_mon_klog_adopt(&klog, fds[0]);
    writer = fds[1];
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_klog_close(&klog);
    if (writer >= 0)
        close(writer);
    writer = -1;
    return 0;
}

static void say(uint64_t number, const char *text)
{
    char record[512];
    int len = snprintf(record, sizeof(record), "4,%llu,1000,-;%s\n SUBSYSTEM=pci\n",
                       (unsigned long long)number, text);

    assert_int_equal(send(writer, record, (size_t)len, 0), len);
}

static void records_are_read_in_their_order(void **state)
{
    (void)state;
    say(10, "one");
    say(11, "two");
    assert_int_equal(sl_mon_klog_read(&klog, 100, take, NULL), 2);
    assert_string_equal(last, "two");
    assert_int_equal(sl_mon_klog_read(&klog, 100, take, NULL), 0);
    assert_int_equal(klog.lost, 0);
}

static void what_the_kernel_overwrote_is_counted(void **state)
{
    (void)state;
    say(10, "one");
    say(15, "six");
    say(16, "seven");
    sl_mon_klog_read(&klog, 100, take, NULL);
    assert_int_equal(klog.lost, 4);
    say(3, "the log was cleared"); /* and nobody knows what was in it */
    say(4, "and goes on");
    sl_mon_klog_read(&klog, 100, take, NULL);
    assert_int_equal(klog.lost, 4);
    assert_int_equal(klog.records, 5);
}

static void rubbish_is_passed_over(void **state)
{
    (void)state;
    assert_int_equal(send(writer, "x", 1, 0), 1);
    assert_int_equal(send(writer, "\0\0\0", 3, 0), 3);
    say(1, "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.");
    assert_int_equal(sl_mon_klog_read(&klog, 100, take, NULL), 3);
    assert_int_equal(taken, 1);
    assert_int_equal(found, 1);
}

/* node-problem-detector 1168: a flood closes the channel, and the monitor is green. */
static void a_flood_is_read_in_portions_to_its_end(void **state)
{
    unsigned written = 0, rounds = 0;

    (void)state;
    while (taken < 100000) {
        for (unsigned i = 0; i < 100 && written < 100000; i++) {
            char text[64];

            snprintf(text, sizeof(text),
                     written == 77777 ? "NVRM: Xid (PCI:0000:9b:00): 79, pid=1"
                                      : "usb 1-1: device not accepting address %u",
                     written);
            say(++written, text);
        }
        assert_true(sl_mon_klog_read(&klog, 64, take, NULL) <= 64);
        if (written == 100000)
            sl_mon_klog_read(&klog, 100000, take, NULL);
        else
            sl_mon_klog_read(&klog, 64, take, NULL);
        assert_true(++rounds < 10000);
    }
    assert_int_equal(found, 1);
    assert_int_equal(klog.lost, 0);
}

static void one_that_ends_is_closed_and_says_so(void **state)
{
    (void)state;
    close(writer);
    writer = -1;
    assert_int_equal(sl_mon_klog_read(&klog, 100, take, NULL), -ENODEV);
    assert_int_equal(klog.fd, -1);
    assert_int_equal(sl_mon_klog_read(&klog, 100, take, NULL), 0);
}

static void what_cannot_be_opened_says_what_to_do(void **state)
{
    struct sl_mon_klog none;

    (void)state;
    assert_int_equal(sl_mon_klog_open(&none, "/no/such/log", false), -ENOENT);
    assert_non_null(strstr(sluice_last_error(), "/no/such/log"));
}

/* Where it may be read, and only read. */
static void this_machines_own_log_is_read(void **state)
{
    struct sl_mon_klog own;
    int n;

    (void)state;
    if (sl_mon_klog_open(&own, "/dev/kmsg", true) != 0) {
        print_message("%s: skipped\n", sluice_last_error());
        skip();
    }
    n = sl_mon_klog_read(&own, 50, take, NULL);
    assert_true(n >= 0);
    assert_int_equal(taken, n);
    sl_mon_klog_close(&own);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(records_are_read_in_their_order),
                                       CASE(what_the_kernel_overwrote_is_counted),
                                       CASE(rubbish_is_passed_over),
                                       CASE(a_flood_is_read_in_portions_to_its_end),
                                       CASE(one_that_ends_is_closed_and_says_so),
                                       CASE(what_cannot_be_opened_says_what_to_do),
                                       CASE(this_machines_own_log_is_read)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
