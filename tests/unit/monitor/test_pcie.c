/* SPDX-License-Identifier: Apache-2.0 */
/* PCIe links: what files say, what follows, and a tree as sysfs has it. */
#include "core/err.h"
#include "monitor/pcie.h"
#include "monitor/source.h"
#include "tests/unit/monitor/engine_bed.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define NIC "0000:0c:00.0"
#define GPU "0000:9b:00.0"

static void words_are_read(void **state)
{
    enum sl_mon_kind kind;

    (void)state;
    assert_int_equal(sl_mon_pcie_speed("32.0 GT/s PCIe\n"), 32000);
    assert_int_equal(sl_mon_pcie_speed("2.5 GT/s"), 2500);
    assert_int_equal(sl_mon_pcie_speed("8 GT/s"), 8000); /* as older kernels say */
    assert_int_equal(sl_mon_pcie_speed("Unknown\n"), 0);
    assert_int_equal(sl_mon_pcie_speed("Unknown speed"), 0);
    assert_int_equal(sl_mon_pcie_speed(""), 0);
    assert_int_equal(sl_mon_pcie_speed("nan GT/s"), 0);
    assert_int_equal(sl_mon_pcie_speed("1e9 GT/s"), 0);
    assert_int_equal(sl_mon_pcie_lanes("16\n"), 16);
    assert_int_equal(sl_mon_pcie_lanes("255\n"), 0); /* of ports of virtual machines */
    assert_int_equal(sl_mon_pcie_lanes("0\n"), 0);
    assert_int_equal(sl_mon_pcie_lanes("x16"), 0);
    assert_int_equal(sl_mon_pcie_lanes("-1"), 0);
    assert_true(sl_mon_pcie_kind("0x020700\n", &kind) && kind == SL_MON_NIC);
    assert_true(sl_mon_pcie_kind("0x030200\n", &kind) && kind == SL_MON_GPU);
    assert_true(sl_mon_pcie_kind("0x120000\n", &kind) && kind == SL_MON_GPU);
    assert_false(sl_mon_pcie_kind("0x010802\n", &kind));
    assert_false(sl_mon_pcie_kind("", &kind));
}

static void both_ends_count(void **state)
{
    struct sl_mon_pcie_link device = {.mega_transfers = 32000, .lanes = 16};
    struct sl_mon_pcie_link slot = {.mega_transfers = 16000, .lanes = 16};
    struct sl_mon_pcie_link none = {.lanes = 0}, both;

    (void)state;
    both = sl_mon_pcie_common(device, slot);
    assert_true(both.mega_transfers == 16000 && both.lanes == 16);
    both = sl_mon_pcie_common(device, none);
    assert_true(both.mega_transfers == 32000 && both.lanes == 16);
}

/* ---- a tree ---- */

static char dir[64];
static struct sl_mon_config config;
static void *source;

__attribute__((format(printf, 1, 2))) static void run(const char *fmt, ...)
{
    char command[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* A device below a port of its own, and what both can. */
static void add(const char *name, const char *port, const char *class)
{
    run("cd %s && d=devices/%s/%s && mkdir -p $d bus && echo %s >$d/class && "
        "for f in current max; do echo '32.0 GT/s PCIe' >$d/${f}_link_speed; "
        "echo 16 >$d/${f}_link_width; done && "
        "cp $d/max_* devices/%s && printf '\\335\\025' >$d/config && "
        "ln -s ../$d bus/%s",
        dir, port, name, class, port, name);
}

static int begin(void **state)
{
    struct sl_source_host host;

    (void)state;
    strcpy(dir, "/tmp/sluice-pcie-XXXXXX");
    assert_non_null(mkdtemp(dir));
    engine_begin(8);
    sl_mon_config_defaults(&config);
    snprintf(config.pci_root, sizeof(config.pci_root), "%s/bus", dir);
    snprintf(config.rdma_root, sizeof(config.rdma_root), "%s/infiniband", dir);
    add(NIC, "0000:00:01.0", "0x020700");
    add(GPU, "0000:00:02.0", "0x030200");
    run("cd %s/bus/" NIC " && mkdir -p infiniband/mlx5_0/ports/1/counters %s/infiniband && "
        "echo 0 >infiniband/mlx5_0/ports/1/counters/port_xmit_data && "
        "ln -s $PWD/infiniband/mlx5_0 %s/infiniband",
        dir, dir, dir);
    host = (struct sl_source_host){.mon = mon, .config = &config};
    assert_int_equal(sl_source_pcie.create(&host, &source), 0);
    assert_int_equal(sl_source_pcie.open(source), 0);
    return 0;
}

static int end(void **state)
{
    sl_source_pcie.close(source);
    sl_source_pcie.destroy(source);
    run("rm -rf %s", dir);
    return engine_end(state);
}

static void tick(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        now.mono_ns += 10 * SL_MON_S;
        now.boot_ns += 10 * SL_MON_S;
        sl_mon_set_time(mon, &now);
        assert_int_equal(sl_source_pcie.tick(source), 0);
    }
}

static void a_link_as_it_should_be_is_quiet(void **state)
{
    (void)state;
    tick(10);
    assert_int_equal(told, 0);
    assert_int_equal(engine_state(SL_MON_NIC, NIC, SL_MON_CHECK_NIC_PCIE), SL_MON_OK);
    assert_int_equal(engine_state(SL_MON_GPU, GPU, SL_MON_CHECK_GPU_PCIE), SL_MON_OK);
}

static void a_narrow_link_is_told(void **state)
{
    (void)state;
    run("echo 8 >%s/bus/" NIC "/current_link_width", dir);
    tick(3);
    assert_int_equal(engine_state(SL_MON_NIC, NIC, SL_MON_CHECK_NIC_PCIE), SL_MON_BAD);
    assert_string_equal(last_text, "its PCIe link has 8 lanes of 32.0 GT/s, and both ends can 16 "
                                   "of 32.0");
    run("echo 4 >%s/bus/" GPU "/current_link_width", dir);
    tick(3);
    assert_int_equal(engine_state(SL_MON_GPU, GPU, SL_MON_CHECK_GPU_PCIE), SL_MON_BAD);
}

static void a_slot_that_can_no_more_is_no_fault(void **state)
{
    (void)state;
    sl_source_pcie.close(source);
    run("echo 8 >%s/devices/0000:00:01.0/max_link_width", dir);
    run("echo 8 >%s/bus/" NIC "/current_link_width", dir);
    assert_int_equal(sl_source_pcie.open(source), 0);
    tick(5);
    assert_int_equal(told, 0);
}

/* GPUs that have nothing to do save power so. */
static void an_idle_gpu_may_be_slow(void **state)
{
    struct sl_mon_subject *gpu;

    (void)state;
    run("echo '2.5 GT/s PCIe' >%s/bus/" GPU "/current_link_speed", dir);
    tick(5);
    assert_int_equal(told, 0);
    gpu = sl_mon_find(mon, SL_MON_GPU, GPU);
    for (unsigned i = 0; i < 3; i++) {
        sl_mon_use(mon, gpu);
        tick(1);
    }
    assert_int_equal(engine_state(SL_MON_GPU, GPU, SL_MON_CHECK_GPU_PCIE), SL_MON_BAD);
}

static void what_is_not_known_is_no_evidence(void **state)
{
    (void)state;
    run("echo 'Unknown' >%s/bus/" NIC "/current_link_speed", dir);
    run("echo 0 >%s/bus/" NIC "/current_link_width", dir);
    tick(5);
    assert_int_equal(told, 0);
}

/* ---- gone ---- */

static void carry(void)
{
    static unsigned words;

    run("echo %u >%s/bus/" NIC "/infiniband/mlx5_0/ports/1/counters/port_xmit_data", ++words, dir);
    tick(1);
}

static void a_device_that_is_gone_from_both_lists_is_told(void **state)
{
    (void)state;
    tick(1);
    carry();
    run("rm %s/bus/" NIC " %s/infiniband/mlx5_0", dir, dir);
    tick(2);
    assert_int_equal(engine_state(SL_MON_NIC, NIC, SL_MON_CHECK_NIC_GONE), SL_MON_BAD);
    run("ln -s ../devices/0000:00:01.0/" NIC " %s/bus/" NIC, dir);
    run("ln -s ../bus/" NIC "/infiniband/mlx5_0 %s/infiniband", dir);
    tick(40);
    assert_int_equal(engine_state(SL_MON_NIC, NIC, SL_MON_CHECK_NIC_GONE), SL_MON_OK);
}

static void one_list_is_not_believed(void **state)
{
    (void)state;
    tick(1);
    carry();
    run("rm %s/infiniband/mlx5_0", dir); /* its driver was unbound */
    tick(3);
    run("ln -s ../bus/" NIC "/infiniband/mlx5_0 %s/infiniband", dir);
    run("mv %s/bus/" NIC " %s/aside", dir, dir); /* one list is not to be read as it should */
    run("rm %s/infiniband/mlx5_0 && mkdir %s/infiniband/mlx5_0", dir, dir);
    tick(3);
    assert_int_equal(told, 0);
}

static void a_device_off_the_bus_reads_as_ones(void **state)
{
    (void)state;
    tick(1);
    carry();
    run("printf '\\377\\377' >%s/bus/" NIC "/config", dir);
    tick(3);
    assert_int_equal(told, 0); /* one source */
    run("rm %s/infiniband/mlx5_0", dir);
    tick(2);
    assert_int_equal(engine_state(SL_MON_NIC, NIC, SL_MON_CHECK_NIC_GONE), SL_MON_BAD);
}

/* An administrator drains a NIC and takes it out. */
static void what_carried_nothing_may_be_taken_away(void **state)
{
    (void)state;
    tick(1);
    carry();
    tick(10);
    run("rm %s/bus/" NIC " %s/infiniband/mlx5_0", dir, dir);
    tick(5);
    assert_int_equal(told, 0);
}

static void a_virtual_function_is_none(void **state)
{
    (void)state;
    add("0000:0c:00.1", "0000:00:03.0", "0x020000");
    run("mkdir %s/bus/0000:0c:00.1/physfn", dir);
    tick(2);
    assert_null(sl_mon_find(mon, SL_MON_NIC, "0000:0c:00.1"));
}

static void without_a_tree_it_says_so(void **state)
{
    (void)state;
    sl_source_pcie.close(source);
    snprintf(config.pci_root, sizeof(config.pci_root), "%s/none", dir);
    assert_int_equal(sl_source_pcie.open(source), -ENODEV);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_read),
                                       cmocka_unit_test(both_ends_count),
                                       CASE(a_link_as_it_should_be_is_quiet),
                                       CASE(a_narrow_link_is_told),
                                       CASE(a_slot_that_can_no_more_is_no_fault),
                                       CASE(an_idle_gpu_may_be_slow),
                                       CASE(what_is_not_known_is_no_evidence),
                                       CASE(a_device_that_is_gone_from_both_lists_is_told),
                                       CASE(one_list_is_not_believed),
                                       CASE(a_device_off_the_bus_reads_as_ones),
                                       CASE(what_carried_nothing_may_be_taken_away),
                                       CASE(a_virtual_function_is_none),
                                       CASE(without_a_tree_it_says_so)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
