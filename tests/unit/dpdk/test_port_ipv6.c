/* SPDX-License-Identifier: Apache-2.0 */
/* Ports with IPv6: headers and checksums as they are on the wire, and wires between processes and
 * to the kernel. test_port_ipv6 PORT_PEER */
#include "core/clock.h"
#include "core/err.h"
#include "core/rng.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/nd.h"
#include "dpdk/port/ports.h"
#include "dpdk/port/sum.h"
#include "dpdk/proto/wire.h"
#include "tests/unit/dpdk/port_spawn.h"
#include "tests/unit/dpdk/six_wire.h"

#include <arpa/inet.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include <rte_config.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define WAIT_MS 5000
#define PAYLOAD_AT 62

static const char *program;

/* ---- checksums ---- */

static void sums_are_those_of_rfc_1071(void **state)
{
    static uint8_t bytes[2048];
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 7);
    for (unsigned i = 0; i < 20000; i++) {
        size_t at = sl_rng_below(&rng, 64), len = sl_rng_below(&rng, i % 8 == 0 ? 1900 : 300);

        for (size_t j = 0; j < len; j++)
            bytes[at + j] = i % 3 == 0 ? 0xff : (uint8_t)sl_rng_u64(&rng);
        uint32_t sum = sl_dpdk_sum(bytes + at, len);
        assert_true(sum <= 0xffff);
        assert_int_equal(rte_cpu_to_be_16((uint16_t)sum) % 0xffff,
                         six_sum(bytes + at, len, 0) % 0xffff);
    }
}

static void packets_of_every_size_pass_with_a_right_checksum(void **state)
{
    static const uint32_t tail = 0x12345678;
    struct six_frame frame;
    uint64_t left = 0;

    (void)state;
    six_join(SIX_WIRE);
    for (size_t len = 0; len < 8900; len += len < 700 ? 1 : 97) {
        assert_int_equal(six_sum_of(six_sent(len)->bytes, 17), 0xffff);
        for (unsigned lent = 0; lent < 2; lent++, left++)
            assert_true(port_end_send(&six.a, six.payload, len, lent != 0) >= 0);
        port_end_poll(&six.a);
        assert_true(port_end_wait(&six.b, &six.b.came, left, WAIT_MS));
        assert_int_equal(six.b.last_len, len);
    }
    assert_int_equal(six.b.damaged, 0);
    assert_int_equal(six_stats(&six.b).damaged, 0);
    assert_true(six.a.returned > 0);        /* something was lent */
    for (size_t len = 0; len < 40; len++) { /* a checksum of the protocol's behind it */
        uint8_t head[PORT_END_HEAD] = {SL_DP_DATA << 4 | SL_DP_VERSION};

        assert_int_equal(sl_dpdk_send(six.a.user, six.a.port, &six.a.way, head, sizeof(head),
                                      six.payload, len, &tail, true, 0),
                         0);
        port_end_poll(&six.a);
        assert_true(six_take(1, &frame));
        assert_int_equal(six_sum_of(frame.bytes, 17), 0xffff);
        assert_memory_equal(frame.bytes + frame.len - 4, &tail, 4);
    }
    six_part();
}

/* Bytes that make the sum 0: 0 on the wire would say that there is no checksum. */
static void a_checksum_of_zero_is_sent_as_its_other_form(void **state)
{
    struct six_frame *frame;
    uint8_t two[2] = {0};
    uint16_t check;

    (void)state;
    six_join(SIX_WIRE);
    six.a.sent = 0;
    memcpy(six.payload, two, 2);
    frame = six_sent(2);
    memcpy(six.payload, frame->bytes + 60, 2); /* the checksum itself, in the place of two zeros */
    six.a.sent = 0;
    frame = six_sent(2);
    memcpy(&check, frame->bytes + 60, 2);
    assert_int_equal(check, 0xffff);
    port_end_fill(six.payload, sizeof(six.payload));
    six_part();
}

static void a_damaged_packet_is_thrown_away_and_counted(void **state)
{
    struct sl_rng rng;
    struct six_frame frame;

    (void)state;
    six_join(SIX_WIRE);
    sl_rng_init(&rng, 3);
    for (unsigned i = 0; i < 300; i++) {
        frame = *six_sent(i * 4);
        size_t at = 22 + sl_rng_below(&rng, frame.len - 22);
        frame.bytes[at] ^= (uint8_t)(1u << sl_rng_below(&rng, 8));
        six_put(1, frame.bytes, frame.len);
        port_end_poll(&six.b);
    }
    assert_int_equal(six.b.came, 0);
    struct sl_dpdk_port_stats stats = six_stats(&six.b);
    assert_int_equal(stats.damaged + stats.foreign + stats.unknown, 300);
    assert_true(stats.damaged > 150);
    frame = *six_sent(100);
    memset(frame.bytes + 60, 0, 2); /* no checksum */
    six_put(1, frame.bytes, frame.len);
    port_end_poll(&six.b);
    assert_int_equal(six.b.came, 0);
    assert_int_equal(six_stats(&six.b).foreign, stats.foreign + 1);
    six_part();
}

/* The NIC is given the sum of the pseudo header, and its word counts for what comes. */
static void a_nic_that_computes_checksums_is_left_to_it(void **state)
{
    struct rte_ipv6_hdr ip;
    struct six_frame frame;
    uint16_t check;

    (void)state;
    six_join(SIX_WIRE);
    six.a.port->sums = true;
    frame = *six_sent(100);
    memcpy(&ip, frame.bytes + 14, sizeof(ip));
    memcpy(&check, frame.bytes + 60, 2);
    assert_int_equal(check, rte_ipv6_phdr_cksum(&ip, 0));
    six_put_seen(1, frame.bytes, frame.len, RTE_MBUF_F_RX_L4_CKSUM_GOOD);
    assert_true(port_end_wait(&six.b, &six.b.came, 1, WAIT_MS));
    six_put(1, frame.bytes, frame.len); /* nobody has looked */
    port_end_poll(&six.b);
    six.a.port->sums = false;
    frame = *six_sent(100);
    six_put_seen(1, frame.bytes, frame.len, RTE_MBUF_F_RX_L4_CKSUM_BAD);
    port_end_poll(&six.b);
    assert_int_equal(six.b.came, 1);
    assert_int_equal(six_stats(&six.b).damaged, 2);
    six_part();
}

/* ---- headers ---- */

static void headers_are_as_rfc_8200_has_them(void **state)
{
    static const uint8_t from[16] = {0xfd, 0, 0, 1, [15] = 1}, to[16] = {0xfd, 0, 0, 1, [15] = 2};
    const uint8_t *frame;

    (void)state;
    six_join(SIX_WIRE);
    assert_int_equal(sl_dpdk_way_make(six.a.port, &six.b.own.address, 0xc123, 0x68, &six.a.way), 0);
    assert_true(six.a.way.is_ip6);
    sl_dpdk_way_label(&six.a.way, 0xabcde);
    frame = six_sent(100)->bytes;
    assert_memory_equal(frame, six.b.own.address.mac, 6);
    assert_memory_equal(frame + 6, six.a.own.address.mac, 6);
    /* type, version 6, class 0x6a (ECT(0)), label; 8 + 32 + 100 bytes, UDP, 64 hops */
    assert_memory_equal(frame + 12, "\x86\xdd\x66\xaa\xbc\xde\x00\x8c\x11\x40", 10);
    assert_memory_equal(frame + 22, from, 16);
    assert_memory_equal(frame + 38, to, 16);
    assert_memory_equal(frame + 54, "\xc1\x23\xba\xc1\x00\x8c", 6);
    assert_int_equal(six_sum_of(frame, 17), 0xffff); /* the label is not in it */
    six_part();
}

static void a_packet_that_was_marked_on_its_way_is_told(void **state)
{
    struct six_frame frame;

    (void)state;
    six_join(SIX_WIRE);
    for (unsigned i = 0; i < 4; i++) {
        frame = *six_sent(100);
        frame.bytes[15] = (uint8_t)((frame.bytes[15] & ~0x30) | i << 4);
        six_put(1, frame.bytes, frame.len);
        port_end_poll(&six.b);
    }
    assert_int_equal(six.b.came, 4);
    assert_int_equal(six.b.marked, 1);
    assert_int_equal(six.b.damaged, 0);
    six_part();
}

static void what_is_not_for_the_port_is_counted_and_dropped(void **state)
{
    static const struct {
        unsigned at;
        uint8_t value;
        const char *what;
    } cases[] = {
        {12, 0x08, "another type"},      {14, 0x46, "another version"},
        {20, 0, "hop-by-hop options"},   {20, 44, "a fragment"},
        {20, 43, "a routing header"},    {20, 6, "TCP"},
        {20, 58, "no ICMPv6"},           {53, 9, "another host"},
        {56, 1, "another UDP port"},     {19, 0x82, "IP shorter than UDP"},
        {18, 0x7f, "longer than it is"}, {58, 0x7f, "UDP longer than IP"},
        {59, 39, "too short for ours"},  {59, 7, "shorter than a header"},
    };
    struct six_frame frame;

    (void)state;
    six_join(SIX_WIRE);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        uint64_t foreign = six_stats(&six.b).foreign;

        frame = *six_sent(100);
        frame.bytes[cases[i].at] = cases[i].value;
        six_put(1, frame.bytes, frame.len);
        port_end_poll(&six.b);
        if (six_stats(&six.b).foreign != foreign + 1)
            fail_msg("%s is not foreign", cases[i].what);
    }
    for (size_t len = 0; len < PAYLOAD_AT + 32; len++) { /* cut off */
        six_put(1, frame.bytes, len);
        port_end_poll(&six.b);
    }
    assert_int_equal(six.b.came, 0);
    six_part();
}

/* IPv4 at a port that has none, also to nobody, and the reverse. */
static void a_port_hears_the_families_that_it_has(void **state)
{
    struct six_frame frame, whole;
    struct rte_ipv4_hdr ip = {.version_ihl = 0x45, .next_proto_id = 17, .time_to_live = 9};

    (void)state;
    six_join(SIX_WIRE);
    whole = *six_sent(100);
    frame = whole;
    memcpy(frame.bytes + 12, "\x08\x00", 2);
    ip.total_length = rte_cpu_to_be_16(20 + 8 + 132);
    ip.hdr_checksum = rte_ipv4_cksum(&ip);
    memcpy(frame.bytes + 14, &ip, 20);
    memmove(frame.bytes + 34, frame.bytes + 54, 8 + 132);
    six_put(1, frame.bytes, 42 + 132);
    port_end_poll(&six.b);
    assert_int_equal(six.b.came, 0);
    assert_int_equal(six_stats(&six.b).foreign, 1);
    six_part();
    six_join("ring:six/0 ring:six/1");
    assert_false(six.a.way.is_ip6);
    memset(whole.bytes + 38, 0, 16);
    six_put(1, whole.bytes, whole.len);
    port_end_poll(&six.b);
    assert_int_equal(six_stats(&six.b).foreign, 1);
    six_part();
}

static void both_families_serve_one_port(void **state)
{
    struct sl_dpdk_address only6, only4;

    (void)state;
    six_join("ring:six/0@ip=10.3.0.1/24@ip=fd00:1::1/64 ring:six/1@ip=fd00:1::2/64@ip=10.3.0.2/24");
    assert_false(six.a.way.is_ip6); /* the shorter headers */
    only6 = six.b.own.address;
    memset(only6.ip, 0, 4);
    only4 = six.b.own.address;
    memset(only4.ip6, 0, 16);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            sl_dpdk_way_make(six.a.port, i == 0 ? &only6 : &only4, 50000, 0, &six.a.way), 0);
        assert_int_equal(six.a.way.is_ip6, i == 0);
        assert_int_equal(port_end_send(&six.a, six.payload, 500, false), 0);
    }
    port_end_poll(&six.a);
    assert_true(port_end_wait(&six.b, &six.b.came, 2, WAIT_MS));
    assert_int_equal(six.b.damaged, 0);
    six_part();
    six_join("ring:six/0@ip=fd00:1::1/64 ring:six/1@ip=10.3.0.2/24@ip=fd00:1::2/64");
    assert_true(six.a.way.is_ip6 && six.b.way.is_ip6);
    six_part();
    six_open("ring:six/0@ip=10.3.0.1/24 ring:six/1@ip=fd00:1::2/64");
    assert_int_equal(port_end_connect(&six.a, &six.b.own, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "fd00:1::2 and DPDK port 'ring:six/0'"));
    six_part();
}

static void a_port_with_ipv6_takes_packets_of_1280_bytes(void **state)
{
    struct sl_dpdk_port_settings settings = {
        .list = "ring:six/0@ip=fd00:1::1/64@mtu=1279", .rank = -1, .local_rank = -1};
    struct sl_dpdk_port *port;
    size_t count;

    (void)state;
    assert_int_equal(sl_dpdk_ports_get(&settings, &port, 1, &count), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "1280 are the least with an IPv6 address"));
    settings.list = "ring:six/0@ip=fd00:1::1/64@mtu=1280";
    assert_int_equal(sl_dpdk_ports_get(&settings, &port, 1, &count), 0);
    sl_dpdk_ports_put(&port, 1);
}

static void faults_of_one_source_port_are_injected(void **state)
{
    struct sl_dpdk_port_settings settings = {.list = SIX_WIRE, .rank = -1, .local_rank = -1};

    (void)state;
    settings.inject = "loss=1,port=50000";
    assert_int_equal(port_end_open(&six.a, &settings, 0), 0);
    assert_int_equal(port_end_open(&six.b, &settings, 1), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(port_end_connect(&six.a, &six.b.own, (uint16_t)(50000 + i)), 0);
        assert_int_equal(port_end_send(&six.a, six.payload, 100, false), 0);
    }
    port_end_poll(&six.a);
    assert_true(port_end_wait(&six.b, &six.b.came, 1, WAIT_MS));
    assert_int_equal(six_stats(&six.b).injected, 1);
    six_part();
}

/* ---- between processes ---- */

static void a_wire_of_memif_carries_ipv6(void **state)
{
    char dir[] = "/tmp/sluice-ipv6-XXXXXX", list[160];
    struct port_spawned peer;
    struct port_end end;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(list, sizeof(list), "net_memif0,role=server,socket=%s/s@ip=fd00:2::1/64", dir);
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};
    if (port_end_open(&end, &settings, 0) != 0)
        fail_msg("%s", sluice_last_error());
    snprintf(list, sizeof(list), "net_memif0,role=client,socket=%s/s@ip=fd00:2::2/64", dir);
    port_spawn(&peer, program, list, "echo", 0);
    assert_true(port_spawn_meet(&peer, &end, 50000));
    assert_true(end.way.is_ip6);
    assert_true(port_end_wait_up(&end, WAIT_MS));
    for (unsigned i = 0; i < 200; i++) {
        uint64_t came = end.came;

        for (unsigned try = 0; try < 200 && end.came == came; try++) {
            (void)port_end_send(&end, six.payload, 100 + i * 37 % 8000, i % 2);
            port_end_wait(&end, &end.came, came + 1, 50);
        }
        assert_true(end.came > came);
    }
    assert_int_equal(end.damaged, 0);
    assert_int_equal(six_stats(&end).damaged, 0);
    assert_int_equal(port_spawn_end(&peer), 0);
    port_end_close(&end);
    snprintf(list, sizeof(list), "%s/s", dir);
    unlink(list);
    rmdir(dir);
}

/* ---- with the kernel ---- */

static bool has_namespace; /* the process's own, for interfaces */

/* A datagram of the kernel's to the port's flow. */
static void kernel_sends(int fd, const struct port_end *end, size_t len)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6,
                              .sin6_port = htons(end->own.address.udp_port)};
    uint8_t bytes[PORT_END_HEAD + 1400] = {SL_DP_DATA << 4 | SL_DP_VERSION};

    memcpy(&to.sin6_addr, end->own.address.ip6, 16);
    memcpy(bytes + offsetof(struct sl_dp_head, flow), &end->own.flow, 4);
    memcpy(bytes + PORT_END_HEAD, six.payload, len);
    assert_int_equal(sendto(fd, bytes, PORT_END_HEAD + len, 0, (struct sockaddr *)&to, sizeof(to)),
                     PORT_END_HEAD + len);
}

/* A driver that computes checksums: what it sends the kernel looks at, and what the kernel sends it
 * says is right. The kernel asks for the port's MAC, and is asked for its own. */
static void a_driver_that_computes_checksums_agrees_with_the_kernel(void **state)
{
    struct sl_dpdk_port_settings settings = {
        .list = "net_tap0,iface=six0@ip=fd00:5::2/64", .rank = -1, .local_rank = -1};
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(5555)};
    struct port_hello kernel = {.address = {.udp_port = 5555, .ip6 = {0xfd, 0, 0, 5, [15] = 1}}};
    uint8_t bytes[2048];
    struct port_end end;
    int fd, err = -EAGAIN;

    (void)state;
    if (!has_namespace || access("/dev/net/tun", W_OK) != 0) {
        print_message("# skipped: a tap interface needs root and /dev/net/tun\n");
        skip();
    }
    if (port_end_open(&end, &settings, 0) != 0) {
        print_message("# skipped: %s\n", sluice_last_error());
        skip();
    }
    if (system("ip -6 addr add fd00:5::1/64 dev six0 nodad && ip link set six0 up") != 0) {
        port_end_close(&end);
        print_message("# skipped: there is no program ip\n");
        skip();
    }
    assert_true(end.port->sums);
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    for (unsigned i = 0; i < 2000 && (err = port_end_connect(&end, &kernel, 50000)) != 0; i++) {
        port_end_poll(&end);
        usleep(1000);
    }
    assert_int_equal(err, 0);
    for (size_t len = 0; len < 1400; len += 131) {
        uint64_t came = end.came;
        ssize_t took = -1;

        assert_true(port_end_send(&end, six.payload, len, true) >= 0);
        for (unsigned i = 0; i < 2000 && took < 0; i++) {
            port_end_poll(&end);
            took = recv(fd, bytes, sizeof(bytes), 0);
            usleep(took < 0 ? 1000 : 0);
        }
        assert_int_equal(took, PORT_END_HEAD + len);
        assert_memory_equal(bytes + PORT_END_HEAD, six.payload, len);
        kernel_sends(fd, &end, len);
        assert_true(port_end_wait(&end, &end.came, came + 1, WAIT_MS));
        assert_int_equal(end.last_len, len);
    }
    assert_int_equal(end.damaged, 0);
    assert_int_equal(six_stats(&end).damaged, 0);
    close(fd);
    port_end_close(&end);
}

static int set_up(void **state)
{
    (void)state;
    has_namespace = geteuid() == 0 && unshare(CLONE_NEWNET) == 0;
    return six_start();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_rfc_1071),
        cmocka_unit_test(packets_of_every_size_pass_with_a_right_checksum),
        cmocka_unit_test(a_checksum_of_zero_is_sent_as_its_other_form),
        cmocka_unit_test(a_damaged_packet_is_thrown_away_and_counted),
        cmocka_unit_test(a_nic_that_computes_checksums_is_left_to_it),
        cmocka_unit_test(headers_are_as_rfc_8200_has_them),
        cmocka_unit_test(a_packet_that_was_marked_on_its_way_is_told),
        cmocka_unit_test(what_is_not_for_the_port_is_counted_and_dropped),
        cmocka_unit_test(a_port_hears_the_families_that_it_has),
        cmocka_unit_test(both_families_serve_one_port),
        cmocka_unit_test(a_port_with_ipv6_takes_packets_of_1280_bytes),
        cmocka_unit_test(faults_of_one_source_port_are_injected),
        cmocka_unit_test(a_wire_of_memif_carries_ipv6),
        cmocka_unit_test(a_driver_that_computes_checksums_agrees_with_the_kernel),
    };

    if (argc < 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, set_up, NULL);
}
