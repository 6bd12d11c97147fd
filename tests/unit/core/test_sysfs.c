/* SPDX-License-Identifier: Apache-2.0 */
/* Where a network interface sits, out of a sysfs that the cases write. */
#include "core/sysfs.h"
#include "core/transport.h"
#include "tests/util/fake_sysfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BUS "/sys/devices/pci0000:00/0000:00:03.0"

static void a_network_interface_has_its_address_for_a_guid(void **state)
{
    static const struct sysfs_entry texts[] = {
        {"/sys/class/net/eth7/address", "02:00:5e:10:00:07\n"},
        {BUS "/numa_node", "1\n"},
        {NULL, NULL}};
    static const struct sysfs_entry leads[] = {
        {"/sys/class/net/eth7/device", BUS}, {BUS "/subsystem", "/sys/bus/pci"}, {NULL, NULL}};
    struct sl_device dev = {0};

    (void)state;
    sysfs_files = texts;
    sysfs_links = leads;
    sl_sysfs_netif("eth7", &dev);
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.numa_node, 1);
    assert_int_equal(dev.guid, UINT64_C(0x02005e100007));
}

/* virtio's device lies under the PCI device. */
static void the_nearest_device_of_the_bus_counts(void **state)
{
    static const struct sysfs_entry leads[] = {{"/sys/class/net/eth7/device", BUS "/virtio1"},
                                               {BUS "/virtio1/subsystem", "/sys/bus/virtio"},
                                               {BUS "/subsystem", "/sys/bus/pci"},
                                               {NULL, NULL}};
    struct sl_device dev = {0};

    (void)state;
    sysfs_files = NULL;
    sysfs_links = leads;
    sl_sysfs_netif("eth7", &dev);
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.numa_node, -1);
    assert_int_equal(dev.guid, 0);
}

static void what_sysfs_does_not_know_is_on_no_bus(void **state)
{
    static const struct sysfs_entry leads[] = {
        {"/sys/class/net/br0/device", "/sys/devices/virtual/net/br0"}, {NULL, NULL}};
    struct sl_device dev = {.pci_path = "before", .numa_node = 7};

    (void)state;
    sysfs_files = NULL;
    sysfs_links = leads;
    sl_sysfs_netif("br0", &dev);
    assert_string_equal(dev.pci_path, "");
    assert_int_equal(dev.numa_node, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_interface_has_its_address_for_a_guid),
        cmocka_unit_test(the_nearest_device_of_the_bus_counts),
        cmocka_unit_test(what_sysfs_does_not_know_is_on_no_bus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
