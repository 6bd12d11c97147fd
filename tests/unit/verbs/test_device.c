/* SPDX-License-Identifier: Apache-2.0 */
/* Ports as the library shows them, the order of the list, names that may be used, and the reasons
 * of the rest. */
#include "core/config.h"
#include "verbs/config.h"
#include "core/err.h"
#include "tests/unit/verbs/fake_ports.h"
#include "verbs/memlock.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_config config;
static struct sl_verbs_port ports[SL_VERBS_PORTS_MAX];
static size_t count;

static int fresh(void **state)
{
    fake_ports_start(false);
    sl_config_defaults(&config);
    count = 0;
    return 0;
}

/* Nothing that was opened stays open. */
static int closed(void **state)
{
    for (int i = 0; i < fake_device_count; i++)
        assert_int_equal(fake_devices[i].open_count, 0);
    assert_int_equal(fake_lists_open, 0);
    return 0;
}

static struct fake_device *device_with_address(const char *name)
{
    struct fake_device *fake = fake_device_add(name);

    for (int i = 0; i < FAKE_PORTS_MAX; i++)
        fake_gid_set(&fake->ports[i], 1, IBV_GID_TYPE_ROCE_V2, "192.0.2.1");
    return fake;
}

static void list(void)
{
    assert_int_equal(sl_verbs_ports_list(&config, ports, SL_VERBS_PORTS_MAX, &count), 0);
}

static void list_only(const char *names)
{
    assert_int_equal(sl_config_set(&config, "VERBS_DEVICES", names), 0);
    list();
}

/* The list as "a:1 b:1 | c:1": usable ones before the bar. */
static const char *names(void)
{
    static char text[512];
    bool bar = false;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (ports[i].why[0] != '\0' && !bar) {
            strcat(text, i == 0 ? "|" : " |");
            bar = true;
        }
        if (i > 0 || bar)
            strcat(text, " ");
        strcat(text, ports[i].name);
    }
    return text;
}

static void why_has(size_t i, const char *part)
{
    assert_true(i < count);
    if (strstr(ports[i].why, part) == NULL)
        fail_msg("%s: '%s' lacks '%s'", ports[i].name, ports[i].why, part);
}

static struct sl_verbs_port read_port(struct fake_device *fake, uint8_t num)
{
    const struct sl_ibv *ibv;
    struct sl_verbs_port port;

    assert_int_equal(sl_ibv_get(&ibv), 0);
    assert_int_equal(sl_verbs_port_read(ibv, &fake->context, num, &port), 0);
    return port;
}

/* --- a port
 * ------------------------------------------------------------------------------------ */

static void a_port_is_read_whole(void **state)
{
    struct fake_device *fake = fake_device_add("rxe0");
    struct sl_verbs_port port;

    fake->port_count = 2;
    fake_gid_set(&fake->ports[1], 0, IBV_GID_TYPE_ROCE_V1, "fe80::1");
    fake_gid_set(&fake->ports[1], 5, IBV_GID_TYPE_ROCE_V2, "192.0.2.7");
    fake->ports[1].gids[5].ndev_ifindex = 4711;
    port = read_port(fake, 2);
    assert_string_equal(port.name, "rxe0:2");
    assert_string_equal(port.device, "rxe0");
    assert_string_equal(port.why, "");
    assert_int_equal(port.num, 2);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(port.mtu, IBV_MTU_4096);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(port.node_type, IBV_NODE_CA);
    assert_int_equal(port.speed, UINT64_C(12500000000));
    assert_int_equal(port.gid_count, 2);
    assert_int_equal(port.gids[0].index, 0);
    assert_int_equal(port.gids[0].type, SL_VERBS_GID_ROCE_V1);
    assert_true(port.gids[0].is_link_local);
    assert_false(port.gids[0].is_v4);
    assert_int_equal(port.gids[1].index, 5);
    assert_int_equal(port.gids[1].type, SL_VERBS_GID_ROCE_V2);
    assert_true(port.gids[1].is_v4);
    assert_false(port.gids[1].is_link_local);
    assert_int_equal(port.gids[1].netdev, 4711);
    assert_int_equal(port.gids[1].prefix_len, 0); /* no interface has that address */
}

static void an_address_of_this_host_gives_interface_and_prefix(void **state)
{
    struct fake_device *fake = fake_device_add("rxe0");
    struct sl_verbs_port port;

    fake_gid_set(&fake->ports[0], 0, IBV_GID_TYPE_ROCE_V2, "127.0.0.1");
    fake_gid_set(&fake->ports[0], 1, IBV_GID_TYPE_ROCE_V2, "127.0.0.1");
    fake->ports[0].gids[1].ndev_ifindex = 4711; /* another one's */
    port = read_port(fake, 1);
    assert_int_equal(port.gids[0].netdev, if_nametoindex("lo"));
    assert_int_equal(port.gids[0].prefix_len, 8);
    assert_int_equal(port.gids[1].netdev, 4711);
    assert_int_equal(port.gids[1].prefix_len, 0);
}

static void speeds_are_lanes_times_width(void **state)
{
    static const struct {
        uint8_t speed, width;
        uint64_t mbit;
    } cases[] = {{1, 1, 2500},     {2, 2, 20000},   {4, 1, 10000},    {4, 2, 40000},
                 {8, 1, 10000},    {16, 2, 56248},  {32, 1, 25000},   {32, 2, 100000},
                 {64, 16, 100000}, {64, 2, 200000}, {128, 2, 400000}, {128, 8, 1200000},
                 {32, 4, 200000},  {0, 2, 0},       {128, 0, 0},      {3, 2, 0},
                 {32, 3, 0}};
    struct fake_device *fake = device_with_address("mlx5_0");

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        fake->ports[0].attr.active_speed = cases[i].speed;
        fake->ports[0].attr.active_width = cases[i].width;
        assert_int_equal(read_port(fake, 1).speed, cases[i].mbit * 125000);
    }
}

static void a_table_with_more_gids_than_fit_is_cut(void **state)
{
    struct fake_device *fake = fake_device_add("mlx5_0");
    struct sl_verbs_port port;

    fake->ports[0].attr.gid_tbl_len = 1000;
    for (unsigned i = 0; i < FAKE_GIDS_MAX; i++)
        fake_gid_set(&fake->ports[0], i, IBV_GID_TYPE_ROCE_V2, "192.0.2.1");
    port = read_port(fake, 1);
    assert_int_equal(port.gid_count, SL_VERBS_GIDS_MAX);
    assert_int_equal(port.gids[SL_VERBS_GIDS_MAX - 1].index, SL_VERBS_GIDS_MAX - 1);
}

static void a_table_with_a_negative_length_is_empty(void **state)
{
    struct fake_device *fake = device_with_address("mlx5_0");

    fake->ports[0].attr.gid_tbl_len = -1;
    assert_int_equal(read_port(fake, 1).gid_count, 0);
}

static void a_port_that_cannot_be_queried_is_gone(void **state)
{
    struct fake_device *fake = device_with_address("rxe0");
    struct sl_verbs_port port = {.num = 77};
    const struct sl_ibv *ibv;

    fake->ports[0].query_error = ENODEV;
    assert_int_equal(sl_ibv_get(&ibv), 0);
    assert_int_equal(sl_verbs_port_read(ibv, &fake->context, 1, &port), -ENODEV);
    assert_non_null(strstr(sluice_last_error(), "rxe0:1 is gone"));
    assert_int_equal(port.num, 77);
    list();
    why_has(0, "is gone");
    assert_string_equal(ports[0].name, "rxe0:1");
}

/* --- an old library: types and interfaces come from sysfs ------------------------------------- */

static void write_file(const char *folder, const char *path, const char *text)
{
    char full[256], command[300];
    FILE *file;

    snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s)", folder, path);
    assert_int_equal(system(command), 0);
    snprintf(full, sizeof(full), "%s/%s", folder, path);
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void without_gid_ex_types_and_interfaces_come_from_sysfs(void **state)
{
    char folder[] = "/tmp/test_device.XXXXXX", command[64];
    struct fake_device *fake;
    struct sl_verbs_port port;

    assert_non_null(mkdtemp(folder));
    fake_ports_start(true);
    fake = fake_device_add("mlx4_0");
    snprintf(fake->device.ibdev_path, sizeof(fake->device.ibdev_path), "%s", folder);
    fake_gid_set(&fake->ports[0], 0, IBV_GID_TYPE_IB, "fe80::1");
    fake_gid_set(&fake->ports[0], 3, IBV_GID_TYPE_IB, "192.0.2.1");
    write_file(folder, "ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
    write_file(folder, "ports/1/gid_attrs/types/3", "RoCE v2\n");
    write_file(folder, "ports/1/gid_attrs/ndevs/3", "lo\n");
    write_file(folder, "ports/1/rate", "800 Gb/sec (4X XDR)\n");
    fake->ports[0].attr.active_speed = 0;
    port = read_port(fake, 1);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);

    assert_int_equal(port.gid_count, 2);
    assert_int_equal(port.gids[0].type, SL_VERBS_GID_ROCE_V1);
    assert_int_equal(port.gids[0].netdev, 0);
    assert_int_equal(port.gids[1].index, 3);
    assert_int_equal(port.gids[1].type, SL_VERBS_GID_ROCE_V2);
    assert_int_equal(port.gids[1].netdev, if_nametoindex("lo"));
    assert_int_equal(port.speed, UINT64_C(100000000000));
}

static void without_those_files_ethernet_means_roce_v1(void **state)
{
    struct fake_device *fake;

    fake_ports_start(true);
    fake = fake_device_add("mlx4_0");
    snprintf(fake->device.ibdev_path, sizeof(fake->device.ibdev_path), "/nowhere");
    fake_gid_set(&fake->ports[0], 0, IBV_GID_TYPE_IB, "192.0.2.1");
    assert_int_equal(read_port(fake, 1).gids[0].type, SL_VERBS_GID_ROCE_V1);
    fake->ports[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    assert_int_equal(read_port(fake, 1).gids[0].type, SL_VERBS_GID_IB);
}

/* --- reasons
 * ----------------------------------------------------------------------------------- */

static void a_port_that_is_down_says_what_to_check(void **state)
{
    struct fake_device *fake = device_with_address("mlx5_0");

    fake->ports[0].attr.state = IBV_PORT_DOWN;
    list();
    why_has(0, "port is DOWN: check the cable, the switch port, and `ip link`");
    fake->ports[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    fake->ports[0].attr.lid = 3;
    list();
    why_has(0, "port is DOWN: check the cable, the switch port, and `ibstat`");
}

static void infiniband_without_a_subnet_manager_says_so(void **state)
{
    struct fake_device *fake = device_with_address("mlx5_0");
    struct ibv_port_attr *attr = &fake->ports[0].attr;

    fake_gid_set(&fake->ports[0], 0, IBV_GID_TYPE_IB, "fe80::2:c903:a:1");
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->state = IBV_PORT_INIT;
    list();
    why_has(0, "port is INIT");
    why_has(0, "subnet manager");
    attr->state = IBV_PORT_ACTIVE;
    list();
    why_has(0, "no LID: no subnet manager");
    attr->lid = 7;
    list();
    assert_string_equal(ports[0].why, "");
    assert_int_equal(ports[0].lid, 7);
    assert_false(ports[0].gids[0].is_link_local);
}

static void a_device_that_does_not_tell_its_link_layer_is_infiniband(void **state)
{
    struct fake_device *fake = device_with_address("mthca0");

    fake->ports[0].attr.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
    assert_int_equal(read_port(fake, 1).link_layer, IBV_LINK_LAYER_INFINIBAND);
}

static void a_port_without_a_gid_asks_for_an_address(void **state)
{
    fake_device_add("rxe0");
    list();
    why_has(0, "no GID yet: give its network interface an address");
}

static void a_port_whose_gids_nobody_answers_for_asks_for_an_address(void **state)
{
    struct fake_port *port = &fake_device_add("rxe0")->ports[0];

    fake_gid_set(port, 0, IBV_GID_TYPE_ROCE_V2, "fe80::b4aa:2ff:fe8b:a5a8");
    port->gids[0].ndev_ifindex = if_nametoindex("lo"); /* which does not have it */
    list();
    why_has(0, "no GID that its network interface answers for");
    port->gids[0].gid_type = IBV_GID_TYPE_ROCE_V1;
    list();
    assert_string_equal(ports[0].why, "");
    port->gids[0].gid_type = IBV_GID_TYPE_ROCE_V2;
    port->gids[0].ndev_ifindex = 4711; /* not to be seen from here */
    list();
    assert_string_equal(ports[0].why, "");
    fake_gid_set(port, 1, IBV_GID_TYPE_ROCE_V2, "127.0.0.1");
    port->gids[0].ndev_ifindex = port->gids[1].ndev_ifindex = if_nametoindex("lo");
    list();
    assert_string_equal(ports[0].why, "");
    assert_true(ports[0].gids[0].is_orphan);
    assert_false(ports[0].gids[1].is_orphan);
}

static void iwarp_is_out(void **state)
{
    device_with_address("siw0")->device.node_type = IBV_NODE_RNIC;
    device_with_address("usnic0")->device.node_type = IBV_NODE_USNIC_UDP;
    list();
    why_has(0, "iWARP");
    why_has(0, "rdma_cm");
    why_has(1, "node type");
}

static void a_device_that_cannot_be_opened_names_its_file(void **state)
{
    static const int errors[] = {EACCES, EPERM, ENOENT, ENOMEM};
    struct fake_device *fake;

    for (size_t i = 0; i < SL_ARRAY_LEN(errors); i++)
        device_with_address((const char *[]){"a0", "b0", "c0", "d0"}[i])->open_error = errors[i];
    fake = device_with_address("good0");
    list();
    assert_string_equal(names(), "good0:1 | a0 b0 c0 d0");
    why_has(1, "no permission for /dev/infiniband/uverbs90");
    why_has(2, "no permission for /dev/infiniband/uverbs91");
    why_has(3, "no /dev/infiniband/uverbs92");
    why_has(4, "/dev/infiniband/uverbs93: Cannot allocate memory");
    assert_int_equal(ports[1].num, 0);
    assert_int_equal(fake->open_count, 0);
}

static void a_gid_that_was_asked_for_and_is_not_there_is_a_reason(void **state)
{
    device_with_address("rxe0");
    sl_verbs_config_edit(&config)->gid_index = 3;
    list();
    why_has(0, "SLUICE_VERBS_GID_INDEX 3");
    sl_verbs_config_edit(&config)->gid_index = 1;
    list();
    assert_string_equal(ports[0].why, "");
}

static void no_device_names_the_modules(void **state)
{
    assert_int_equal(sl_verbs_ports_list(&config, ports, SL_VERBS_PORTS_MAX, &count), -ENODEV);
    /* A machine that has devices gets another sentence, tested in tests/vm/. */
    if (access("/sys/class/infiniband", F_OK) == 0) {
        print_message("this machine has RDMA devices\n");
        skip();
    }
    assert_non_null(strstr(sluice_last_error(), "ib_uverbs"));
    assert_non_null(strstr(sluice_last_error(), "mlx5_ib"));
    assert_non_null(strstr(sluice_last_error(), "rdma_rxe"));
}

/* --- locked memory
 * ----------------------------------------------------------------------------- */

/* Without CAP_IPC_LOCK, and with that soft limit. */
static void limit_locked_memory(rlim_t bytes)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    assert_int_equal(syscall(SYS_capset, &header, data), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

static void give_capability_back(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    assert_int_equal(syscall(SYS_capget, &header, data), 0);
    data[0].effective |= data[0].permitted & 1u << CAP_IPC_LOCK;
    assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static void a_limit_of_locked_memory_that_is_too_small_is_a_reason_with_numbers(void **state)
{
    struct rlimit before;
    char why[256] = "";

    device_with_address("rxe0");
    device_with_address("rxe1")->ports[0].attr.state = IBV_PORT_DOWN;
    device_with_address("rxe2");
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    sl_verbs_config_edit(&config)->mp.staging_bytes = 16 << 20;
    limit_locked_memory(0);
    fake_limit_counts = true;
    assert_false(sl_verbs_memlock_fits(1, why, sizeof(why)));
    list();
    (void)setrlimit(RLIMIT_MEMLOCK, &before);
    give_capability_back();
    /* For each of the three ports, as the one that is down may return: the staging memory and 6
     * MiB. */
    why_has(0, "locked memory is limited to 0 KiB, but 67584 KiB are needed");
    why_has(1, "port is DOWN");
    why_has(2, "locked memory is limited");
    why_has(0, "ulimit -l");
    assert_non_null(strstr(why, "but 1 KiB are needed"));
    assert_non_null(strstr(why, "LimitMEMLOCK"));
    assert_non_null(strstr(why, "--ulimit memlock=-1"));
}

/* --- the order of the list
 * --------------------------------------------------------------------- */

static void ports_come_by_name_with_numbers_as_numbers(void **state)
{
    device_with_address("mlx5_10");
    device_with_address("mlx5_2")->port_count = 2;
    device_with_address("mlx5_1");
    list();
    assert_string_equal(names(), "mlx5_1:1 mlx5_2:1 mlx5_2:2 mlx5_10:1");
}

static void usable_ports_come_first_and_much_slower_ones_last_of_them(void **state)
{
    device_with_address("a0")->ports[0].attr.state = IBV_PORT_DOWN;
    device_with_address("b0")->ports[0].attr.active_speed = 4;  /* 40 Gbit/s */
    device_with_address("c0")->ports[0].attr.active_speed = 64; /* 200 */
    device_with_address("d0")->ports[0].attr.active_speed =
        16; /* 56: trained down, but still a rail */
    list();
    assert_string_equal(names(), "c0:1 d0:1 b0:1 | a0:1");
}

static void a_fast_port_that_is_out_slows_no_other(void **state)
{
    device_with_address("a0")->ports[0].attr.active_speed = 4;
    device_with_address("b0");
    device_with_address("c0")->ports[0].attr.active_speed = 128;
    fake_devices[2].ports[0].attr.state = IBV_PORT_DOWN;
    list();
    assert_string_equal(names(), "a0:1 b0:1 | c0:1");
}

static void the_list_of_devices_gives_the_order(void **state)
{
    device_with_address("mlx5_0")->port_count = 2;
    device_with_address("mlx5_1");
    device_with_address("mlx5_2");
    list_only("mlx5_2,mlx5_0:2");
    assert_string_equal(names(), "mlx5_2:1 mlx5_0:2 | mlx5_0:1 mlx5_1:1");
    why_has(2, "left out by SLUICE_VERBS_DEVICES 'mlx5_2,mlx5_0:2'");
    list_only("^mlx5_0");
    assert_string_equal(names(), "mlx5_1:1 mlx5_2:1 | mlx5_0:1 mlx5_0:2");
}

static void a_short_buffer_gets_the_best_and_the_whole_count(void **state)
{
    struct sl_verbs_port two[3] = {{.num = 0}, {.num = 0}, {.num = 99}};

    device_with_address("a0")->ports[0].attr.state = IBV_PORT_DOWN;
    device_with_address("b0");
    device_with_address("c0");
    assert_int_equal(sl_verbs_ports_list(&config, two, 2, &count), 0);
    assert_int_equal(count, 3);
    assert_string_equal(two[0].name, "b0:1");
    assert_string_equal(two[1].name, "c0:1");
    assert_int_equal(two[2].num, 99);
}

/* --- names
 * ------------------------------------------------------------------------------------- */

static void the_list_of_names_means_what_the_table_says(void **state)
{
    static const struct {
        const char *list, *name;
        bool allowed;
    } cases[] = {
        {"", "mlx5_0:1", true},
        {"mlx5_0", "mlx5_0:1", true},
        {"mlx5_0", "mlx5_0:2", true},
        {"mlx5_0:1", "mlx5_0:1", true},
        {"mlx5_0:1", "mlx5_0:2", false},
        {"mlx5_0:1", "mlx5_0:11", false},
        {"mlx5_0:11", "mlx5_0:1", false},
        {"mlx5_0", "mlx5_01:1", false},
        {"mlx5_01", "mlx5_0:1", false},
        {"mlx5_*", "mlx5_7:1", true},
        {"mlx5_*", "rxe0:1", false},
        {"*", "rxe0:1", true},
        {"mlx5_0:*", "mlx5_0:3", true},
        {"mlx5_0:*", "mlx5_1:3", false},
        {"rxe0,mlx5_0:2", "mlx5_0:2", true},
        {"rxe0,mlx5_0:2", "mlx5_0:1", false},
        {"^mlx5_3", "mlx5_3:1", false},
        {"^mlx5_3", "mlx5_2:1", true},
        {"^mlx5_3:1", "mlx5_3:2", true},
        {"^mlx5_*", "mlx5_2:1", false},
        {"^mlx5_*", "rxe0:1", true},
        {"mlx5_*,^mlx5_3", "mlx5_3:1", false},
        {"^mlx5_3,mlx5_*", "mlx5_3:1", false},
        {"mlx5_*,^mlx5_3", "mlx5_4:1", true},
        {"mlx5_*,^mlx5_3", "rxe0:1", false},
        {",,", "rxe0:1", true},
        {"^", "rxe0:1", true},
        {"mlx5_0,", "rxe0:1", false},
        {"^*", "rxe0:1", false},
        /* A device whose ports are not known yet. */
        {"mlx5_0:2", "mlx5_0", true},
        {"mlx5_0:*", "mlx5_0", true},
        {"^mlx5_0:2", "mlx5_0", true},
        {"^mlx5_0:*", "mlx5_0", true},
        {"^mlx5_0", "mlx5_0", false},
        {"mlx5_1:2", "mlx5_0", false},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        if (sl_verbs_name_allowed(cases[i].list, cases[i].name) != cases[i].allowed)
            fail_msg("'%s' with %s", cases[i].list, cases[i].name);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, closed)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_port_is_read_whole),
        CASE(an_address_of_this_host_gives_interface_and_prefix),
        CASE(speeds_are_lanes_times_width),
        CASE(a_table_with_more_gids_than_fit_is_cut),
        CASE(a_table_with_a_negative_length_is_empty),
        CASE(a_port_that_cannot_be_queried_is_gone),
        CASE(without_gid_ex_types_and_interfaces_come_from_sysfs),
        CASE(without_those_files_ethernet_means_roce_v1),
        CASE(a_port_that_is_down_says_what_to_check),
        CASE(infiniband_without_a_subnet_manager_says_so),
        CASE(a_device_that_does_not_tell_its_link_layer_is_infiniband),
        CASE(a_port_without_a_gid_asks_for_an_address),
        CASE(a_port_whose_gids_nobody_answers_for_asks_for_an_address),
        CASE(iwarp_is_out),
        CASE(a_device_that_cannot_be_opened_names_its_file),
        CASE(a_gid_that_was_asked_for_and_is_not_there_is_a_reason),
        CASE(no_device_names_the_modules),
        CASE(a_limit_of_locked_memory_that_is_too_small_is_a_reason_with_numbers),
        CASE(ports_come_by_name_with_numbers_as_numbers),
        CASE(usable_ports_come_first_and_much_slower_ones_last_of_them),
        CASE(a_fast_port_that_is_out_slows_no_other),
        CASE(the_list_of_devices_gives_the_order),
        CASE(a_short_buffer_gets_the_best_and_the_whole_count),
        CASE(the_list_of_names_means_what_the_table_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
