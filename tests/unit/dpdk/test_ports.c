/* SPDX-License-Identifier: Apache-2.0 */
#include "core/err.h"
#include "dpdk/port/ports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct sl_dpdk_spec specs[SL_DPDK_PORTS_MAX];
static size_t count;

static int parse_as(const char *list, int rank, int local_rank, int local_count)
{
    struct sl_dpdk_port_settings settings = {
        .list = list, .rank = rank, .local_rank = local_rank, .local_count = local_count};

    memset(specs, 0, sizeof(specs));
    return sl_dpdk_specs_parse(&settings, specs, SL_DPDK_PORTS_MAX, &count);
}

static int parse(const char *list)
{
    return parse_as(list, 7, 1, 4);
}

/* Refused, with a sentence that has this part. */
static void refused(const char *list, const char *part)
{
    assert_int_equal(parse(list), -EINVAL);
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("'%s' is refused with: %s", list, sluice_last_error());
}

static void an_empty_list_has_no_ports(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(count, 0);
    assert_int_equal(parse(" \t\n "), 0);
    assert_int_equal(count, 0);
}

static void a_pci_address_is_completed_and_keeps_its_arguments(void **state)
{
    (void)state;
    assert_int_equal(parse("3b:00.1,dv_flow_en=1 0000:5e:00.0@mtu=1500"), 0);
    assert_int_equal(count, 2);
    assert_int_equal(specs[0].kind, SL_DPDK_PCI);
    assert_string_equal(specs[0].name, "0000:3b:00.1");
    assert_string_equal(specs[0].args, "dv_flow_en=1");
    assert_int_equal(specs[1].kind, SL_DPDK_PCI);
    assert_string_equal(specs[1].name, "0000:5e:00.0");
    assert_int_equal(specs[1].mtu, 1500);
}

/* EAL would find no device of the other spellings. */
static void a_pci_address_is_spelled_as_dpdk_does(void **state)
{
    (void)state;
    assert_int_equal(parse("0000:3B:00.1 5e:0.0 10000:3b:00.1"), -EINVAL);
    assert_int_equal(parse("0000:3B:00.1 5e:0.0 1:3b:00.1"), 0);
    assert_string_equal(specs[0].name, "0000:3b:00.1");
    assert_string_equal(specs[1].name, "0000:5e:00.0");
    assert_string_equal(specs[2].name, "0001:3b:00.1");
    refused("3b:00.0 0000:3B:0.0", "twice");
    refused("+3b:00.0", "no PCI address");
}

static void options_follow_the_device(void **state)
{
    static const uint8_t ip[4] = {10, 1, 0, 2}, gateway[4] = {10, 1, 0, 1};

    (void)state;
    assert_int_equal(parse("net_af_packet0,iface=veth0@ip=10.1.0.2/24@gw=10.1.0.1@mtu=9000"
                           "@segment=blue"),
                     0);
    assert_int_equal(count, 1);
    assert_int_equal(specs[0].kind, SL_DPDK_VDEV);
    assert_string_equal(specs[0].name, "net_af_packet0");
    assert_string_equal(specs[0].args, "iface=veth0");
    assert_memory_equal(specs[0].ip, ip, 4);
    assert_memory_equal(specs[0].gateway, gateway, 4);
    assert_int_equal(specs[0].prefix, 24);
    assert_int_equal(specs[0].mtu, 9000);
    assert_string_equal(specs[0].segment, "blue");
}

static void an_address_is_of_ipv4_of_ipv6_or_one_of_each(void **state)
{
    static const uint8_t ip6[16] = {0xfd, 0, 0, 1, [15] = 2}, gateway6[16] = {0xfe, 0x80, [15] = 1};
    static const uint8_t none[16], ip[4] = {10, 1, 0, 2};

    (void)state;
    assert_int_equal(parse("net_ring0@ip=fd00:1::2/64@gw=fe80::1"), 0);
    assert_memory_equal(specs[0].ip6, ip6, 16);
    assert_memory_equal(specs[0].gateway6, gateway6, 16);
    assert_int_equal(specs[0].prefix6, 64);
    assert_memory_equal(specs[0].ip, none, 4);
    assert_int_equal(specs[0].prefix, 0);
    assert_int_equal(parse("net_ring0@ip=fd00:1::2/128@gw=10.1.0.1@ip=10.1.0.2/24@gw=fe80::1"), 0);
    assert_memory_equal(specs[0].ip6, ip6, 16);
    assert_int_equal(specs[0].prefix6, 128);
    assert_memory_equal(specs[0].ip, ip, 4);
    assert_int_equal(specs[0].prefix, 24);
    refused("net_ring0@ip=fd00::1/64@ip=10.1.0.2/24@ip=fd00::2/64", "@ip= twice");
    refused("net_ring0@gw=fd00::1@gw=fd00::2", "@gw= twice");
    refused("net_ring0@segment=a:b@segment=c", "@segment= twice");
    refused("mesh:/run/m@ip=fd00::1/64", "many ports");
    refused("mesh:/run/m@gw=fd00::1", "many ports");
}

static void addresses_are_compared_by_bits_and_written(void **state)
{
    static const uint8_t a[16] = {0xfd, 1, 0x80}, b[16] = {0xfd, 1, 0xa0};
    struct sl_dpdk_address address = {.ip6 = {0xfd, 1, [15] = 9}};
    char text[SL_DPDK_ADDRESS_TEXT];

    (void)state;
    for (unsigned bits = 0; bits <= 128; bits++)
        assert_int_equal(sl_dpdk_same_subnet(a, b, bits), bits <= 18);
    assert_true(sl_dpdk_same_subnet(a, a, 128));
    assert_false(sl_dpdk_has_ip4(&address));
    assert_true(sl_dpdk_has_ip6(&address));
    assert_string_equal(sl_dpdk_address_text(&address, text), "fd01::9");
    memcpy(address.ip, (const uint8_t[]){10, 1, 0, 2}, 4);
    assert_string_equal(sl_dpdk_address_text(&address, text), "10.1.0.2");
    memset(address.ip6, 0, 16);
    assert_false(sl_dpdk_has_ip6(&address));
}

static void memif_gets_a_buffer_for_a_whole_frame_and_a_socket_in_the_file_system(void **state)
{
    char text[16];

    (void)state;
    assert_int_equal(parse("net_memif0,role=client,socket=/run/a.sock,id=3"), 0);
    assert_string_equal(specs[0].args,
                        "role=client,socket=/run/a.sock,id=3,bsize=10240,socket-abstract=no");
    /* A switch may hand on others' longer frames: docs/design/0048-dpdk.md. */
    assert_int_equal(parse("net_memif0,role=client@mtu=1500"), 0);
    assert_true(sl_dpdk_arg(specs[0].args, "bsize", text, sizeof(text)));
    assert_string_equal(text, "10240");
    assert_int_equal(parse("net_memif0,role=client@mtu=16000"), 0);
    assert_true(sl_dpdk_arg(specs[0].args, "bsize", text, sizeof(text)));
    assert_string_equal(text, "16128");
    assert_int_equal(parse("net_memif0,bsize=2048,socket-abstract=yes"), 0);
    assert_string_equal(specs[0].args, "bsize=2048,socket-abstract=yes");
    refused("net_memif0,bsize=2048@mtu=9000", "bsize=2048");
}

static void what_memif_would_overlook_or_do_wrong_is_refused(void **state)
{
    char list[256];

    (void)state;
    refused("net_memif0,rol=server,socket=/run/a.sock", "'rol=server'");
    refused("net_memif0,role=server,socket", "'socket'");
    refused("net_memif0,role=client,zero-copy=yes", "zero-copy=yes");
    assert_int_equal(parse("net_memif0,role=client,zero-copy=no,secret=x,owner-uid=1"), 0);
    snprintf(list, sizeof(list), "net_memif0,socket=/%0107d", 0);
    refused(list, "108 bytes, and 107");
    snprintf(list, sizeof(list), "net_memif0,socket=/%0106d", 0);
    assert_int_equal(parse(list), 0);
}

/* When the variables are read nobody knows how many ranks the host has. */
static void a_list_is_looked_at_without_a_launcher(void **state)
{
    (void)state;
    assert_int_equal(sl_dpdk_ports_check("mesh:/run/m@rank=5"), 0);
    assert_int_equal(sl_dpdk_ports_check("mesh:/run/m@rank=0"), 0);
    assert_int_equal(sl_dpdk_ports_check("mesh:/run/m mesh:/run/n net_memif%l,id=%r"), 0);
    assert_int_equal(sl_dpdk_ports_check("mesh:/run/m@rank=5@ranks=5"), -EINVAL);
}

static void placeholders_become_numbers(void **state)
{
    (void)state;
    assert_int_equal(parse("net_memif0,socket=/run/%l.sock,id=%r@segment=100%%"), 0);
    assert_non_null(strstr(specs[0].args, "socket=/run/1.sock,id=7"));
    assert_string_equal(specs[0].segment, "100%");
    assert_int_equal(parse_as("net_ring%l", -1, -1, 0), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "%l"));
    refused("net_ring%x", "percent");
    refused("net_ring%", "percent");
}

static void a_mesh_is_a_port_to_each_other_rank(void **state)
{
    (void)state;
    assert_int_equal(parse("mesh:/run/m"), 0);
    assert_int_equal(count, 3);
    assert_non_null(strstr(specs[0].args, "role=client,id=1,socket=/run/m/0,"));
    assert_non_null(strstr(specs[1].args, "role=server,id=2,socket=/run/m/1,"));
    assert_non_null(strstr(specs[2].args, "role=server,id=3,socket=/run/m/1,"));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(strncmp(specs[i].name, "net_memif_", 10), 0);
        assert_non_null(strstr(specs[i].args, "bsize=9216"));
    }
}

static void both_ends_of_a_mesh_name_the_same_sockets(void **state)
{
    struct sl_dpdk_spec all[5][SL_DPDK_PORTS_MAX];

    (void)state;
    for (int rank = 0; rank < 5; rank++) {
        assert_int_equal(parse_as("mesh:/run/m", -1, rank, 5), 0);
        assert_int_equal(count, 4);
        memcpy(all[rank], specs, sizeof(specs));
    }
    for (int low = 0; low < 5; low++) {
        for (int high = low + 1; high < 5; high++) {
            const char *server = all[low][high - 1].args, *client = all[high][low].args;

            assert_int_equal(strncmp(server, "role=server,", 12), 0);
            assert_int_equal(strncmp(client, "role=client,", 12), 0);
            assert_string_equal(server + 12, client + 12);
        }
    }
}

static void a_mesh_may_be_told_its_ranks(void **state)
{
    (void)state;
    assert_int_equal(parse_as("mesh:/run/m@rank=16@ranks=17@mtu=1500", -1, -1, 0), 0);
    assert_int_equal(count, 16);
    assert_non_null(strstr(specs[0].args, "bsize=1536"));
    assert_int_equal(parse_as("mesh:/run/m", -1, -1, 0), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "@rank"));
    refused("mesh:/run/m@ranks=18", "2 to 17");
    refused("mesh:/run/m@ranks=1", "2 to 17");
    refused("mesh:/run/m@rank=4", "4 of 4");
    refused("mesh:run/m", "whole path");
    refused("mesh:/a,b", "without commas");
    refused("mesh:/run/m@segment=a", "many ports");
    refused("mesh:/run/m net_ring0 mesh:/run/n mesh:/run/o mesh:/run/p mesh:/run/q mesh:/run/s",
            "more than 16");
}

static void a_ring_has_two_ends(void **state)
{
    (void)state;
    assert_int_equal(parse("ring:a/0 ring:a/1"), 0);
    assert_int_equal(count, 2);
    assert_int_equal(specs[0].kind, SL_DPDK_RING);
    assert_string_equal(specs[1].name, "ring:a/1");
    refused("ring:a", "ring:NAME/0");
    refused("ring:a/2", "ring:NAME/0");
    refused("ring:/0", "ring:NAME/0");
    refused("ring:a_name_of_twenty_five_l/0", "ring:NAME/0");
}

static void what_is_written_wrongly_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *list, *part;
    } cases[] = {
        {"@mtu=1500", "no device"},
        {"/dev/x", "no PCI address"},
        {"3b:00", "no PCI address"},
        {"net_ring0,", "empty one"},
        {"net_ring0,,a=1", "empty one"},
        {"net_ring0,a=1,", "empty one"},
        {"net_ring0@", "none of ip gw"},
        {"net_ring0@color=1", "none of ip gw"},
        {"net_ring0@mtu=", "576 to 16384"},
        {"net_ring0@mtu", "576 to 16384"},
        {"net_ring0@mtu=575", "576 to 16384"},
        {"net_ring0@mtu=16385", "576 to 16384"},
        {"net_ring0@mtu=1500x", "576 to 16384"},
        {"net_ring0@mtu=-1500", "576 to 16384"},
        {"net_ring0@mtu=1500@mtu=1500", "twice"},
        {"net_ring0@ip=10.0.0.1", "10.1.0.2/24"},
        {"net_ring0@ip=10.0.0.1/0", "10.1.0.2/24"},
        {"net_ring0@ip=10.0.0.1/33", "10.1.0.2/24"},
        {"net_ring0@ip=10.0.0/24", "10.1.0.2/24"},
        {"net_ring0@ip=224.0.0.1/24", "10.1.0.2/24"},
        {"net_ring0@ip=127.0.0.1/8", "10.1.0.2/24"},
        {"net_ring0@ip=0.0.0.1/8", "10.1.0.2/24"},
        {"net_ring0@ip=1000.1000.1000.1000/24", "10.1.0.2/24"},
        {"net_ring0@gw=10.0.0", "10.1.0.1"},
        {"net_ring0@ip=fd00::1", "fd00:1::2/64"},
        {"net_ring0@ip=fd00::1/0", "fd00:1::2/64"},
        {"net_ring0@ip=fd00::1/129", "fd00:1::2/64"},
        {"net_ring0@ip=::1/64", "fd00:1::2/64"},
        {"net_ring0@ip=::/64", "fd00:1::2/64"},
        {"net_ring0@ip=ff02::1/64", "fd00:1::2/64"},
        {"net_ring0@ip=::ffff:10.0.0.1/96", "fd00:1::2/64"},
        {"net_ring0@ip=fd00::1::2/64", "fd00:1::2/64"},
        {"net_ring0@gw=ff02::2", "fe80::1"},
        {"net_ring0@segment=", "1 to 63"},
        {"net_ring0@rank=0", "only a mesh"},
        {"net_ring0 net_ring0", "twice"},
        {"net_ring0\x01", "0x01"},
        {"net_ring\xc3\xa4", "0xc3"},
    };

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++)
        refused(cases[i].list, cases[i].part);
}

static void what_is_too_long_is_refused(void **state)
{
    char list[4096];

    (void)state;
    snprintf(list, sizeof(list), "net_ring0,%0600d=1", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "net_ring0@segment=%064d", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "net_ring0@segment=%0600d", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "net_ring0@segment=%01200d", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "net_%062d", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "mesh:/%0120d", 0);
    assert_int_equal(parse(list), -EINVAL);
    snprintf(list, sizeof(list), "net_memif0,socket=/%0480d", 0);
    assert_int_equal(parse(list), -EINVAL);
}

static void an_argument_is_found_by_its_whole_name(void **state)
{
    char text[8];

    (void)state;
    assert_true(sl_dpdk_arg("idx=1,id=2", "id", text, sizeof(text)));
    assert_string_equal(text, "2");
    assert_false(sl_dpdk_arg("idx=1,xid=2", "id", text, sizeof(text)));
    assert_string_equal(text, "");
    assert_true(sl_dpdk_arg("id=", "id", text, sizeof(text)));
    assert_string_equal(text, "");
    assert_true(sl_dpdk_arg("id=123456789", "id", text, sizeof(text)));
    assert_string_equal(text, "1234567");
}

static void a_list_is_checked_without_a_rank(void **state)
{
    (void)state;
    assert_int_equal(sl_dpdk_ports_check("mesh:/run/m net_ring%l net_memif0,id=%r"), 0);
    assert_int_equal(sl_dpdk_ports_check("net_ring0@mtu=1"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_list_has_no_ports),
        cmocka_unit_test(a_pci_address_is_completed_and_keeps_its_arguments),
        cmocka_unit_test(a_pci_address_is_spelled_as_dpdk_does),
        cmocka_unit_test(options_follow_the_device),
        cmocka_unit_test(an_address_is_of_ipv4_of_ipv6_or_one_of_each),
        cmocka_unit_test(addresses_are_compared_by_bits_and_written),
        cmocka_unit_test(memif_gets_a_buffer_for_a_whole_frame_and_a_socket_in_the_file_system),
        cmocka_unit_test(what_memif_would_overlook_or_do_wrong_is_refused),
        cmocka_unit_test(a_list_is_looked_at_without_a_launcher),
        cmocka_unit_test(placeholders_become_numbers),
        cmocka_unit_test(a_mesh_is_a_port_to_each_other_rank),
        cmocka_unit_test(both_ends_of_a_mesh_name_the_same_sockets),
        cmocka_unit_test(a_mesh_may_be_told_its_ranks),
        cmocka_unit_test(a_ring_has_two_ends),
        cmocka_unit_test(what_is_written_wrongly_is_refused_with_the_reason),
        cmocka_unit_test(what_is_too_long_is_refused),
        cmocka_unit_test(an_argument_is_found_by_its_whole_name),
        cmocka_unit_test(a_list_is_checked_without_a_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
