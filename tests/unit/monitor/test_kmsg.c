/* SPDX-License-Identifier: Apache-2.0 */
/* What lines of the kernel's log accuse: lines of our own, and recorded logs where they are. */
#include "core/err.h"
#include "monitor/kmsg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_mon_kmsg record;

static bool parse(const char *text)
{
    return sl_mon_kmsg_parse(text, strlen(text), &record);
}

static void records_of_dev_kmsg_are_read(void **state)
{
    (void)state;
    assert_true(parse("6,3964,206764307,-;nvidia-nvswitch2: open (major=510)\n SUBSYSTEM=pci\n"));
    assert_int_equal(record.number, 3964);
    assert_int_equal(record.time_us, 206764307);
    assert_int_equal(record.priority, 6);
    assert_true(record.has_number);
    assert_string_equal(record.text, "nvidia-nvswitch2: open (major=510)");
    assert_true(parse("30,1,2,c,caller=T17;systemd[1]: hello"));
    assert_int_equal(record.priority, 6); /* without its facility */
}

static void lines_of_dmesg_and_pstore_are_read(void **state)
{
    (void)state;
    assert_true(parse("<3>[    2.962781] mlx5_core 0000:41:00.1: Port module event"));
    assert_int_equal(record.priority, 3);
    assert_int_equal(record.time_us, 2962781);
    assert_false(record.has_number);
    assert_string_equal(record.text, "mlx5_core 0000:41:00.1: Port module event");
    assert_true(parse("[Sun Feb 23 16:24:18 2025] NVRM: hello"));
    assert_string_equal(record.text, "NVRM: hello");
}

static void what_is_no_record_is_refused(void **state)
{
    static const char *const bad[] = {
        "",          ";",        "6",         "6,",         "6,1,",
        "6,1,2",     "6,1,2,-",  "a,1,2,-;x", "-1,1,2,-;x", "6;x",
        "6,1;x,2,-", "6,1,2,-;", "<6>",       "<6>x",       "<x>[1.0] x",
        "[1.0",      "[1.0]",    "[] ",       "<6[1]",      "99999999999999999999999,1,2,-;x",
        NULL};

    (void)state;
    for (const char *const *at = bad; *at != NULL; at++)
        if (parse(*at))
            fail_msg("'%s' was read as '%s'", *at, record.text);
}

static void long_lines_and_control_characters_do_no_harm(void **state)
{
    char line[4096];

    (void)state;
    memset(line, 'x', sizeof(line));
    memcpy(line, "6,1,2,-;a\001b\033[31m", 16);
    assert_true(sl_mon_kmsg_parse(line, sizeof(line), &record));
    assert_int_equal(strlen(record.text), SL_MON_KMSG_TEXT - 1);
    assert_memory_equal(record.text, "a?b?[31m", 8);
}

static void expect(const char *text, enum sl_mon_check check, const char *name, uint32_t code)
{
    struct sl_mon_finding finding;

    if (!sl_mon_kmsg_find(text, &finding))
        fail_msg("nothing found in: %s", text);
    assert_string_equal(sl_mon_checks[finding.check].name, sl_mon_checks[check].name);
    assert_string_equal(finding.name, name);
    assert_int_equal(finding.code, code);
}

static void xids_name_their_gpu(void **state)
{
    bool fatal;

    (void)state;
    expect("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s",
           SL_MON_CHECK_GPU_FATAL, "0000:9b:00.0", 119);
    expect("NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101", SL_MON_CHECK_GPU_ERROR,
           "0000:03:00.0", 31);
    expect("NVRM: Xid (PCI:0001:00:00): 79, GPU has fallen off the bus.", SL_MON_CHECK_GPU_FATAL,
           "0001:00:00.0", 79);
    /* One that nobody has heard of is shown, and takes no node out. */
    expect("NVRM: Xid (PCI:0000:9b:00): 9999, what", SL_MON_CHECK_GPU_ERROR, "0000:9b:00.0", 9999);
    assert_null(sl_mon_xid(9999, &fatal));
    assert_false(fatal);
    expect("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
           SL_MON_CHECK_GPU_ERROR, "0000:05:00.0", 12028);
    expect("nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
           SL_MON_CHECK_GPU_FATAL, "0000:08:00.0", 20034);
}

static void drivers_of_nics_name_their_device(void **state)
{
    (void)state;
    expect("mlx5_core 0000:0c:00.0: poll_health:955:(pid 0): device's health compromised - reached "
           "miss count",
           SL_MON_CHECK_NIC_DRIVER, "0000:0c:00.0", 0);
    expect("mlx5_core 0000:5e:00.1: wait_func_handle_exec_timeout:1122:(pid 1): cmd[0]: "
           "CREATE_MKEY(0x200) No done completion",
           SL_MON_CHECK_NIC_DRIVER, "0000:5e:00.1", 0);
    expect("mlx5_core 0000:5e:00.1 ens1f1: TX timeout detected", SL_MON_CHECK_NIC_DRIVER,
           "0000:5e:00.1", 0);
    expect("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", SL_MON_CHECK_NIC_DRIVER,
           "eth0", 0);
}

/* As kernels from 5.10 to 6.18 say it. */
static void errors_of_a_pcie_link_are_told_apart(void **state)
{
    (void)state;
    expect("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
           SL_MON_CHECK_NIC_BUS_CORRECTED, "0000:01:00.0", 0);
    expect("pcieport 0000:00:01.0: AER: Multiple Corrected error received: 0000:01:00.0",
           SL_MON_CHECK_NIC_BUS_CORRECTED, "0000:01:00.0", 0);
    expect("pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0",
           SL_MON_CHECK_NIC_BUS_CORRECTED, "0000:01:00.0", 0);
    expect("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, "
           "(Transmitter ID)",
           SL_MON_CHECK_NIC_BUS_CORRECTED, "0000:01:00.0", 0);
    expect("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, "
           "(Receiver ID)",
           SL_MON_CHECK_NIC_BUS_CORRECTED, "0000:01:00.0", 0);
    expect("pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0",
           SL_MON_CHECK_NIC_BUS, "0000:01:00.0", 0);
    expect("mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), "
           "type=Transaction Layer, (Requester ID)",
           SL_MON_CHECK_NIC_BUS, "0000:01:00.0", 0);
    expect("pcieport 0000:00:01.0: AER: Multiple Uncorrected (Fatal) error received: 0000:01:00.0",
           SL_MON_CHECK_NIC_BUS_FATAL, "0000:01:00.0", 0);
    expect("pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from "
           "0000:01:00.0",
           SL_MON_CHECK_NIC_BUS_FATAL, "0000:01:00.0", 0);
    expect(
        "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, "
        "(Unregistered Agent ID)",
        SL_MON_CHECK_NIC_BUS_FATAL, "0000:01:00.0", 0);
}

static void the_host_is_named_for_what_is_its_own(void **state)
{
    (void)state;
    expect("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: bea0000000000108",
           SL_MON_CHECK_HOST_MACHINE, "host", 0);
    expect("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", SL_MON_CHECK_HOST_MACHINE, "host", 0);
    expect("INFO: task python:12345 blocked for more than 120 seconds.", SL_MON_CHECK_HOST_HUNG,
           "host", 0);
    expect("Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB",
           SL_MON_CHECK_HOST_MEMORY, "host", 0);
    expect("Out of memory: Killed process 77 (python)", SL_MON_CHECK_HOST_MEMORY, "host", 0);
}

static void what_is_ordinary_accuses_nobody(void **state)
{
    static const char *const lines[] = {
        "mlx5_core 0000:41:00.1: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
        "mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged",
        "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
        "MCE: In-kernel MCE decoding enabled.",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: GPU4 RPC history (CPU -> GSP):",
        "a user wrote: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus",
        "NVRM: Xid (nonsense): 79",
        "NVRM: Xid (PCI:0000:9b:00): x",
        "NVRM: Xid (PCI:0000:9b:00)",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 122",
        "AER: Corrected error received: nobody",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
        "mce: [Hardware Error]: Machine Check: corrected error",
        NULL};
    struct sl_mon_finding finding;

    (void)state;
    for (const char *const *at = lines; *at != NULL; at++)
        if (sl_mon_kmsg_find(*at, &finding))
            fail_msg("%s is found in: %s", sl_mon_checks[finding.check].name, *at);
}

/* ---- recorded logs ---- */

struct found {
    unsigned lines, unread, checks[SL_MON_CHECK_COUNT];
    uint32_t codes[64];
    unsigned code_count;
};

/* False: it is not there. */
static bool read_log(const char *name, struct found *out)
{
    const char *root = getenv("SLUICE_TEST_DATA");
    char path[512], *line = NULL;
    struct sl_mon_finding finding;
    size_t cap = 0;
    ssize_t len;
    FILE *file;

    memset(out, 0, sizeof(*out));
    snprintf(path, sizeof(path), "%s/kernel-log/%s", root != NULL ? root : "", name);
    file = fopen(path, "re");
    if (file == NULL) {
        print_message("no %s: skipped\n", path);
        return false;
    }
    while ((len = getline(&line, &cap, file)) > 0) {
        out->lines++;
        if (!sl_mon_kmsg_parse(line, (size_t)len, &record)) {
            out->unread++;
            continue;
        }
        if (!sl_mon_kmsg_find(record.text, &finding))
            continue;
        out->checks[finding.check]++;
        if (finding.code != 0 && out->code_count < SL_ARRAY_LEN(out->codes))
            out->codes[out->code_count++] = finding.code;
    }
    free(line);
    fclose(file);
    return true;
}

static void a_recorded_xid_is_found_and_nothing_else(void **state)
{
    struct found found;

    (void)state;
    if (!read_log("dmesg-xid-119.log", &found))
        skip();
    assert_int_equal(found.unread, 0);
    assert_true(found.code_count > 0);
    for (unsigned i = 0; i < found.code_count; i++)
        assert_int_equal(found.codes[i], 119);
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (i != SL_MON_CHECK_GPU_FATAL)
            assert_int_equal(found.checks[i], 0);
}

static void healthy_recorded_logs_accuse_nobody(void **state)
{
    static const char *const names[] = {"kmsg.1.log", "kmsg.2.peermem.log", "pstore-dmesg.txt",
                                        NULL};
    struct found found;

    (void)state;
    for (const char *const *name = names; *name != NULL; name++) {
        if (!read_log(*name, &found))
            skip();
        assert_true(found.lines > 5);
        for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
            if (found.checks[i] != 0)
                fail_msg("%s: %s %u times", *name, sl_mon_checks[i].name, found.checks[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_dev_kmsg_are_read),
        cmocka_unit_test(lines_of_dmesg_and_pstore_are_read),
        cmocka_unit_test(what_is_no_record_is_refused),
        cmocka_unit_test(long_lines_and_control_characters_do_no_harm),
        cmocka_unit_test(xids_name_their_gpu),
        cmocka_unit_test(drivers_of_nics_name_their_device),
        cmocka_unit_test(errors_of_a_pcie_link_are_told_apart),
        cmocka_unit_test(the_host_is_named_for_what_is_its_own),
        cmocka_unit_test(what_is_ordinary_accuses_nobody),
        cmocka_unit_test(a_recorded_xid_is_found_and_nothing_else),
        cmocka_unit_test(healthy_recorded_logs_accuse_nobody)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
