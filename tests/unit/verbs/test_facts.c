/* SPDX-License-Identifier: Apache-2.0 */
/* Where an RDMA port sits, out of a sysfs that the cases write. */
#include "tests/util/fake_sysfs.h"
#include "verbs/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BUS "/sys/devices/pci0000:00/0000:00:03.0"

/* soft-RoCE over an interface of virtio, whose PCI device is one above it. */
static void a_software_device_is_where_its_interface_is(void **state)
{
    static const struct sysfs_entry texts[] = {
        {"/sys/class/infiniband/soft0/parent", "eth7\n"},
        {"/sys/class/infiniband/soft0/node_guid", "0123:4567:89ab:cdef\n"},
        {BUS "/numa_node", "0\n"},
        {NULL, NULL}};
    static const struct sysfs_entry leads[] = {{"/sys/class/net/eth7/device", BUS "/virtio1"},
                                               {BUS "/virtio1/subsystem", "/sys/bus/virtio"},
                                               {BUS "/subsystem", "/sys/bus/pci"},
                                               {NULL, NULL}};
    struct sl_device dev = {0};

    (void)state;
    sysfs_files = texts;
    sysfs_links = leads;
    sl_verbs_facts("soft0", 2, &dev);
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.numa_node, 0);
    assert_int_equal(dev.port, 2);
    assert_true(dev.guid == UINT64_C(0x0123456789abcdef));
}

static void a_device_has_the_bus_that_it_is_on(void **state)
{
    static const struct sysfs_entry leads[] = {{"/sys/class/infiniband/mlx5_0/device", BUS},
                                               {BUS "/subsystem", "/sys/bus/pci"},
                                               {NULL, NULL}};
    struct sl_device dev = {0};

    (void)state;
    sysfs_files = NULL;
    sysfs_links = leads;
    sl_verbs_facts("mlx5_0", 1, &dev);
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.guid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_software_device_is_where_its_interface_is),
        cmocka_unit_test(a_device_has_the_bus_that_it_is_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
