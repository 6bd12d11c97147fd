/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL is told of a transport's devices: no name is compared, so a transport that nobody knows
 * serves as well. */
#include "core/config.h"
#include "core/registry.h"
#include "core/transport.h"
#include "tools/nccl/adapt.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct sl_device devices[3]; /* those that there are */
static size_t device_count;
static struct sl_nccl_device_list list;

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config;
    assert_true(cap >= device_count);
    memcpy(out, devices, device_count * sizeof(*out));
    *count = device_count;
    return 0;
}

static const struct sl_transport_ops pigeon = {
    .abi = SL_TRANSPORT_ABI, .name = "pigeon", .number = 20, .place = -1, .probe = probe};
static const struct sl_transport_ops page = {.abi = SL_TRANSPORT_ABI,
                                             .name = "page",
                                             .number = 21,
                                             .place = -2,
                                             .traits = SL_TRAIT_LOCAL,
                                             .probe = probe};

static int find(const char *transport, const char *interface)
{
    struct sl_config config;

    sl_config_defaults(&config);
    snprintf(config.transport, sizeof(config.transport), "%s", transport);
    snprintf(config.interface, sizeof(config.interface), "%s", interface);
    return sl_nccl_devices_find(&config, &list);
}

static void a_device_is_what_its_transport_says(void **state)
{
    (void)state;
    devices[0] = (struct sl_device){.name = "p0",
                                    .speed = UINT64_C(3125000000),
                                    .pci_path = "/sys/devices/x",
                                    .guid = UINT64_C(0x0123456789abcdef),
                                    .port = 2};
    device_count = 1;
    assert_int_equal(find("pigeon", ""), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].found.pci_path, "/sys/devices/x");
    assert_int_equal(list.items[0].port, 2);
    assert_true(list.items[0].guid == UINT64_C(0x0123456789abcdef));
    assert_int_equal(list.items[0].speed_mbit, 25000);
}

static void what_is_not_known_of_a_device_is_as_nccl_assumes(void **state)
{
    (void)state;
    devices[0] = (struct sl_device){.name = "p0"};
    devices[1] = (struct sl_device){.name = "p1", .speed = UINT64_MAX};
    device_count = 2;
    assert_int_equal(find("pigeon", ""), 0);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[0].speed_mbit, 10000);
    assert_int_equal(list.items[0].port, 1);
    assert_int_equal(list.items[0].guid, 1); /* NCCL takes equal ones for functions of one chip */
    assert_int_equal(list.items[1].guid, 2);
    assert_int_equal(list.items[1].speed_mbit, INT32_MAX);
}

static void a_device_of_this_host_alone_is_left_out_where_there_are_others(void **state)
{
    (void)state;
    devices[0] = (struct sl_device){.name = "here", .reach = SL_REACH_HOST};
    devices[1] = (struct sl_device){.name = "broken", .why = "it is broken"};
    devices[2] = (struct sl_device){.name = "out"};
    device_count = 3;
    assert_int_equal(find("pigeon", ""), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].found.name, "out");
    assert_int_equal(find("pigeon", "here"), 0); /* it is asked for */
    assert_int_equal(list.count, 2);
    device_count = 2;
    assert_int_equal(find("pigeon", ""), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].found.name, "here");
}

static void a_transport_of_one_host_is_a_device_only_where_there_is_nothing_else(void **state)
{
    (void)state;
    devices[0] = (struct sl_device){.name = "d0"};
    device_count = 1;
    assert_int_equal(find("page,pigeon", ""), 0);
    assert_ptr_equal(list.items[0].ops, sl_transport_find("pigeon", 6));
    assert_int_equal(find("page", ""), 0);
    assert_ptr_equal(list.items[0].ops, sl_transport_find("page", 4));
    assert_int_equal(find("raven", ""), -ENODEV);
    device_count = 0;
    assert_int_equal(find("pigeon", ""), -ENODEV);
}

/* Both ends must mean the same transport by it. */
static void the_devices_own_way_counts_where_both_devices_are_of_one_transport(void **state)
{
    static struct sl_device device;
    const struct sl_nccl_engine engine = {
        .way_count = 3,
        .ways = {{.id = page.number, .ops = &page},
                 {.id = SL_NCCL_BY_DEVICE, .ops = &pigeon, .device = &device},
                 {.id = pigeon.number, .ops = &pigeon}}};
    const uint32_t by_any = 1u << pigeon.number, local = 1u << page.number;

    (void)state;
    assert_int_equal(sl_nccl_ways(&engine, false, pigeon.number), by_any | 1);
    assert_int_equal(sl_nccl_ways(&engine, false, page.number), by_any);
    assert_int_equal(sl_nccl_ways(&engine, false, 0), by_any);
    assert_int_equal(sl_nccl_ways(&engine, true, pigeon.number), by_any | 1 | local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_what_its_transport_says),
        cmocka_unit_test(what_is_not_known_of_a_device_is_as_nccl_assumes),
        cmocka_unit_test(a_device_of_this_host_alone_is_left_out_where_there_are_others),
        cmocka_unit_test(a_transport_of_one_host_is_a_device_only_where_there_is_nothing_else),
        cmocka_unit_test(the_devices_own_way_counts_where_both_devices_are_of_one_transport),
    };

    if (sl_transport_register(&pigeon) != 0 || sl_transport_register(&page) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
