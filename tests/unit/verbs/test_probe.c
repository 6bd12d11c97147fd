/* SPDX-License-Identifier: Apache-2.0 */
/* What sluice-bench --list gets to show of RDMA ports. */
#include "core/config.h"
#include "core/err.h"
#include "tests/unit/verbs/fake_ports.h"
#include "verbs/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define CAP 4

static struct sl_config config;
static struct sl_device devices[CAP];
static size_t count;

static int fresh(void **state)
{
    fake_ports_start(false);
    sl_config_defaults(&config);
    memset(devices, 'x', sizeof(devices));
    count = 0;
    return 0;
}

static void probe(void)
{
    assert_int_equal(sl_verbs_probe(&config, devices, CAP, &count), 0);
}

static void a_usable_port_shows_its_gids_and_the_chosen_one(void **state)
{
    struct fake_port *port = &fake_device_add("mlx5_0")->ports[0];

    fake_gid_set(port, 0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
    fake_gid_set(port, 11, IBV_GID_TYPE_ROCE_V2, "127.0.0.1"); /* on lo everywhere */
    probe();
    assert_int_equal(count, 1);
    assert_string_equal(devices[0].name, "mlx5_0:1");
    assert_string_equal(devices[0].detail, "ACTIVE, Ethernet, MTU 4096");
    assert_int_equal(devices[0].speed, UINT64_C(12500000000));
    assert_string_equal(devices[0].more, "GID 0   fe80::1 (RoCE v1)\n"
                                         "GID 11  127.0.0.1/8 (RoCE v2) on lo, chosen\n");
    assert_string_equal(devices[0].why, "");
}

static void infiniband_shows_its_lid(void **state)
{
    struct fake_port *port = &fake_device_add("mlx5_0")->ports[0];

    port->attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port->attr.lid = 17;
    port->attr.active_mtu = IBV_MTU_2048;
    fake_gid_set(port, 0, IBV_GID_TYPE_IB, "fe80::2:c903:a:1");
    probe();
    assert_string_equal(devices[0].detail,
                        "ACTIVE, InfiniBand, MTU 2048, LID 17, P_Key 0xffff at index 0");
    assert_string_equal(devices[0].more, "GID 0   fe80::2:c903:a:1 (InfiniBand), chosen\n");
    port->attr.lid = 16;
    port->attr.lmc = 2;
    probe();
    assert_non_null(strstr(devices[0].detail, ", LID 16 to 19, P_Key 0xffff at index 0"));
}

static void a_port_that_is_out_shows_why_and_no_chosen_gid(void **state)
{
    struct fake_port *port = &fake_device_add("rxe0")->ports[0];

    port->attr.state = IBV_PORT_DOWN;
    fake_gid_set(port, 1, IBV_GID_TYPE_ROCE_V2, "192.0.2.1");
    probe();
    assert_non_null(strstr(devices[0].why, "port is DOWN"));
    assert_string_equal(devices[0].detail, "DOWN, Ethernet, MTU 4096");
    assert_string_equal(devices[0].more, "GID 1   192.0.2.1 (RoCE v2)\n");
}

static void a_device_that_cannot_be_opened_shows_only_why(void **state)
{
    fake_device_add("rxe0")->open_error = EACCES;
    probe();
    assert_string_equal(devices[0].name, "rxe0");
    assert_non_null(strstr(devices[0].why, "no permission"));
    assert_string_equal(devices[0].detail, "");
    assert_string_equal(devices[0].more, "");
    assert_int_equal(devices[0].speed, 0);
}

static void more_gids_than_there_is_room_for_are_counted(void **state)
{
    struct fake_port *port = &fake_device_add("mlx5_0")->ports[0];
    unsigned lines = 0, left = 0;
    const char *last = devices[0].more;

    port->attr.gid_tbl_len = SL_VERBS_GIDS_MAX;
    for (unsigned i = 0; i < SL_VERBS_GIDS_MAX; i++)
        fake_gid_set(port, i, IBV_GID_TYPE_ROCE_V2, "2001:db8:1111:2222:3333:4444:5555:6666");
    probe();
    assert_true(memchr(devices[0].more, '\0', sizeof(devices[0].more)) != NULL);
    for (const char *at = devices[0].more; *at != '\0'; at = strchr(at, '\n') + 1) {
        last = at;
        lines++;
    }
    assert_int_equal(sscanf(last, "and %u more GIDs", &left), 1);
    assert_int_equal(lines - 1 + left, SL_VERBS_GIDS_MAX);
}

static void a_short_list_still_counts_all(void **state)
{
    for (int i = 0; i < CAP + 1; i++)
        fake_device_add((const char *[]){"a0", "b0", "c0", "d0", "e0"}[i]);
    probe();
    assert_int_equal(count, CAP + 1);
    assert_string_equal(devices[CAP - 1].name, "d0:1");
    assert_int_equal(sl_verbs_probe(&config, NULL, 0, &count), 0);
    assert_int_equal(count, CAP + 1);
}

static void no_device_is_an_error(void **state)
{
    assert_int_equal(sl_verbs_probe(&config, devices, CAP, &count), -ENODEV);
    assert_int_equal(count, 0);
}

#define CASE(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_usable_port_shows_its_gids_and_the_chosen_one),
        CASE(infiniband_shows_its_lid),
        CASE(a_port_that_is_out_shows_why_and_no_chosen_gid),
        CASE(a_device_that_cannot_be_opened_shows_only_why),
        CASE(more_gids_than_there_is_room_for_are_counted),
        CASE(a_short_list_still_counts_all),
        CASE(no_device_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
