/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA ports in sysfs: a tree of our own, and a real one where it is. */
#include "core/err.h"
#include "monitor/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char root[] = "/tmp/sluice-rdma-XXXXXX";
static struct sl_mon_rdma *rdma;

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

/* In place, as the kernel's files are: who has it open sees it. */
static void put(const char *file, const char *text)
{
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, file);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void device(const char *name)
{
    char file[256];

    run("mkdir -p %s/%s/ports/1/counters %s/%s/ports/1/hw_counters", root, name, root, name);
    snprintf(file, sizeof(file), "%s/ports/1/state", name);
    put(file, "4: ACTIVE\n");
    snprintf(file, sizeof(file), "%s/ports/1/rate", name);
    put(file, "400 Gb/sec (4X NDR)\n");
    snprintf(file, sizeof(file), "%s/ports/1/counters/port_xmit_data", name);
    put(file, "1234567890123\n");
    snprintf(file, sizeof(file), "%s/ports/1/hw_counters/out_of_sequence", name);
    put(file, "7\n");
}

static int begin(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(sl_mon_rdma_open(root, &rdma), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sl_mon_rdma_close(rdma);
    rdma = NULL;
    run("rm -rf %s", root);
    return 0;
}

static void ports_are_listed_and_read(void **state)
{
    struct sl_mon_reading reading;

    (void)state;
    device("mlx5_10");
    device("mlx5_2");
    assert_int_equal(sl_mon_rdma_scan(rdma), 2);
    assert_string_equal(sl_mon_rdma_port(rdma, 0)->name, "mlx5_2:1");
    assert_string_equal(sl_mon_rdma_port(rdma, 1)->name, "mlx5_10:1");
    assert_null(sl_mon_rdma_port(rdma, 2));
    assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), 0);
    assert_true(reading.has_state && reading.is_up);
    assert_int_equal(reading.speed, UINT64_C(400000000000));
    assert_int_equal(reading.has, UINT64_C(1) << SL_MON_COUNTER_TRANSMIT_WORDS |
                                      UINT64_C(1) << SL_MON_COUNTER_OUT_OF_SEQUENCE);
    assert_int_equal(reading.counters[SL_MON_COUNTER_TRANSMIT_WORDS], UINT64_C(1234567890123));
    assert_int_equal(reading.counters[SL_MON_COUNTER_OUT_OF_SEQUENCE], 7);
}

static void what_changes_is_seen_by_the_same_descriptors(void **state)
{
    struct sl_mon_reading reading;

    (void)state;
    device("mlx5_0");
    sl_mon_rdma_scan(rdma);
    put("mlx5_0/ports/1/hw_counters/out_of_sequence", "8\n");
    put("mlx5_0/ports/1/state", "1: DOWN\n");
    put("mlx5_0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), 0);
    assert_int_equal(reading.counters[SL_MON_COUNTER_OUT_OF_SEQUENCE], 8);
    assert_false(reading.is_up);
    assert_int_equal(reading.speed, 2500000000);
}

static void devices_come_and_go(void **state)
{
    struct sl_mon_reading reading;

    (void)state;
    device("mlx5_0");
    assert_int_equal(sl_mon_rdma_scan(rdma), 1);
    device("mlx5_1");
    assert_int_equal(sl_mon_rdma_scan(rdma), 2);
    run("rm -r %s/mlx5_0", root);
    assert_int_equal(sl_mon_rdma_scan(rdma), 1);
    assert_string_equal(sl_mon_rdma_port(rdma, 0)->name, "mlx5_1:1");
    assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), 0);
    run("rm -r %s", root);
    assert_int_equal(sl_mon_rdma_scan(rdma), 0); /* no RDMA here is no error: gpud 140 */
}

static void names_of_soft_roce_count_too(void **state)
{
    struct sl_mon_reading reading;

    (void)state;
    device("rxe0");
    put("rxe0/ports/1/hw_counters/completer_retry_err", "3\n");
    put("rxe0/ports/1/hw_counters/sent_pkts", "100\n");
    sl_mon_rdma_scan(rdma);
    assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), 0);
    assert_int_equal(reading.counters[SL_MON_COUNTER_ACK_TIMEOUT], 3);
    assert_int_equal(reading.counters[SL_MON_COUNTER_TRANSMIT_PACKETS], 100);
}

static void rubbish_in_files_is_not_read_as_numbers(void **state)
{
    static const char *const texts[] = {
        "", "\n", "-1\n", "x\n", "1x\n", "0x10\n", "99999999999999999999999\n", " 5\n", NULL};
    struct sl_mon_reading reading;
    uint64_t bits;
    bool up;

    (void)state;
    device("mlx5_0");
    sl_mon_rdma_scan(rdma);
    for (const char *const *text = texts; *text != NULL; text++) {
        put("mlx5_0/ports/1/hw_counters/out_of_sequence", *text);
        assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), 0);
        if ((reading.has >> SL_MON_COUNTER_OUT_OF_SEQUENCE & 1) != 0)
            fail_msg("'%s' was read as a number", *text);
    }
    assert_false(sl_mon_rdma_state("ACTIVE", &up));
    assert_false(sl_mon_rdma_state("9: WHAT", &up));
    assert_false(sl_mon_rdma_rate("fast", &bits));
    assert_false(sl_mon_rdma_rate("-3 Gb/sec", &bits));
    assert_false(sl_mon_rdma_rate("nan Gb/sec", &bits));
    assert_false(sl_mon_rdma_rate("400 Mb/sec", &bits));
}

static void one_that_vanished_since_the_scan_says_so(void **state)
{
    struct sl_mon_reading reading;

    (void)state;
    device("mlx5_0");
    sl_mon_rdma_scan(rdma);
    put("mlx5_0/ports/1/state", "");
    assert_int_equal(sl_mon_rdma_read(rdma, 0, &reading), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "mlx5_0:1"));
}

/* ---- a real host's ---- */

static void a_real_hosts_tree_is_read_whole_and_is_healthy(void **state)
{
    const char *data = getenv("SLUICE_TEST_DATA");
    struct sl_mon_reading reading;
    char path[512];
    int count;

    (void)state;
    snprintf(path, sizeof(path), "%s/sysfs/sys-class-infiniband-h100.tar.gz",
             data != NULL ? data : "");
    if (access(path, R_OK) != 0) {
        print_message("no %s: skipped\n", path);
        skip();
    }
    run("tar -xzf %s -C %s --strip-components=1", path, root);
    count = sl_mon_rdma_scan(rdma);
    assert_int_equal(count, 9);
    for (int i = 0; i < count; i++) {
        assert_int_equal(sl_mon_rdma_read(rdma, (unsigned)i, &reading), 0);
        assert_true(reading.has_state && reading.is_up);
        assert_int_equal(reading.speed, i == 8 ? UINT64_C(200000000000) : UINT64_C(400000000000));
        assert_true(__builtin_popcountll(reading.has) >= 20);
        assert_true(reading.counters[SL_MON_COUNTER_TRANSMIT_WORDS] > 0);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(ports_are_listed_and_read),
                                       CASE(what_changes_is_seen_by_the_same_descriptors),
                                       CASE(devices_come_and_go),
                                       CASE(names_of_soft_roce_count_too),
                                       CASE(rubbish_in_files_is_not_read_as_numbers),
                                       CASE(one_that_vanished_since_the_scan_says_so),
                                       CASE(a_real_hosts_tree_is_read_whole_and_is_healthy)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
