/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL is told of a device, out of a sysfs that the cases write. */
#include "core/config.h"
#include "core/registry.h"
#include "core/transport.h"
#include "tools/nccl/adapt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct entry {
    const char *path, *is; /* the text of a file, or where a link leads */
};

static const struct entry *files, *links; /* up to one without a path */
static struct sl_device device;           /* the one that there is */
static struct sl_transport_ops ops;

static const char *look_up(const struct entry *in, const char *path)
{
    for (; in != NULL && in->path != NULL; in++)
        if (strcmp(in->path, path) == 0)
            return in->is;
    return NULL;
}

/* With 64-bit offsets, as this tree is built, fopen() goes by this name. */
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    const char *text = look_up(files, path);

    if (strncmp(path, "/sys/", 5) != 0)
        return __real_fopen64(path, mode);
    return text != NULL ? fmemopen((char *)(uintptr_t)text, strlen(text), "r") : NULL;
}

char *__wrap_realpath(const char *path, char *out);

char *__wrap_realpath(const char *path, char *out)
{
    const char *target = look_up(links, path);

    return target != NULL ? strcpy(out, target) : NULL;
}

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config;
    assert_true(cap > 0);
    out[0] = device;
    *count = 1;
    return 0;
}

const struct sl_transport_ops *__wrap_sl_transport_find(const char *name, size_t len);

const struct sl_transport_ops *__wrap_sl_transport_find(const char *name, size_t len)
{
    return strlen(ops.name) == len && memcmp(ops.name, name, len) == 0 ? &ops : NULL;
}

static struct sl_nccl_device find(const char *transport, const char *name, uint64_t speed)
{
    static struct sl_nccl_device_list list;
    struct sl_config config;

    sl_config_defaults(&config);
    snprintf(config.transport, sizeof(config.transport), "%s", transport);
    ops = (struct sl_transport_ops){.name = transport, .probe = probe};
    device = (struct sl_device){.speed = speed};
    snprintf(device.name, sizeof(device.name), "%s", name);
    assert_int_equal(sl_nccl_devices_find(&config, &list), 0);
    assert_int_equal(list.count, 1);
    return list.items[0];
}

#define BUS "/sys/devices/pci0000:00/0000:00:03.0"

/* soft-RoCE over an interface of virtio, whose PCI device is one above it. */
static void a_software_device_is_where_its_interface_is(void **state)
{
    static const struct entry texts[] = {
        {"/sys/class/infiniband/soft0/parent", "eth7\n"},
        {"/sys/class/infiniband/soft0/node_guid", "0123:4567:89ab:cdef\n"},
        {NULL, NULL}};
    static const struct entry leads[] = {{"/sys/class/net/eth7/device", BUS "/virtio1"},
                                         {BUS "/virtio1/subsystem", "/sys/bus/virtio"},
                                         {BUS "/subsystem", "/sys/bus/pci"},
                                         {NULL, NULL}};
    struct sl_nccl_device dev;

    (void)state;
    files = texts;
    links = leads;
    dev = find("verbs", "soft0:2", UINT64_C(3125000000));
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.port, 2);
    assert_int_equal(dev.guid, UINT64_C(0x0123456789abcdef));
    assert_int_equal(dev.speed_mbit, 25000);
}

static void a_network_interface_has_its_address_for_a_guid(void **state)
{
    static const struct entry texts[] = {{"/sys/class/net/eth7/address", "02:00:5e:10:00:07\n"},
                                         {NULL, NULL}};
    static const struct entry leads[] = {
        {"/sys/class/net/eth7/device", BUS}, {BUS "/subsystem", "/sys/bus/pci"}, {NULL, NULL}};
    struct sl_nccl_device dev;

    (void)state;
    files = texts;
    links = leads;
    dev = find("tcp", "eth7", 0);
    assert_string_equal(dev.pci_path, BUS);
    assert_int_equal(dev.port, 1);
    assert_int_equal(dev.guid, UINT64_C(0x02005e100007));
    assert_int_equal(dev.speed_mbit, 10000); /* not known */
}

static void what_sysfs_does_not_know_is_virtual(void **state)
{
    struct sl_nccl_device dev;

    (void)state;
    files = links = NULL;
    dev = find("verbs", "soft0:1", UINT64_MAX);
    assert_string_equal(dev.pci_path, "");
    assert_int_equal(dev.guid, 1); /* NCCL takes equal ones for functions of one chip */
    assert_int_equal(dev.speed_mbit, INT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_software_device_is_where_its_interface_is),
        cmocka_unit_test(a_network_interface_has_its_address_for_a_guid),
        cmocka_unit_test(what_sysfs_does_not_know_is_virtual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
