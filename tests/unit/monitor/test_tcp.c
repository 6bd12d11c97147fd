/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections: messages of inet_diag, counters of /proc, and what a second of a flow says, by
 * what was measured of each fault over veth pairs. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/tcp.h"
#include "tests/unit/monitor/engine_bed.h"

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* ---- messages ---- */

static char bytes[2048] __attribute__((aligned(8)));

static struct nlmsghdr *message(uint8_t family, const char *local, const char *remote)
{
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);
    struct tcp_info info = {.tcpi_ca_state = TCP_CA_Loss,
                            .tcpi_backoff = 2,
                            .tcpi_rtt = 1100,
                            .tcpi_unacked = 3,
                            .tcpi_data_segs_out = 1000,
                            .tcpi_total_retrans = 30,
                            .tcpi_dsack_dups = 20,
                            .tcpi_bytes_acked = 1 << 20,
                            .tcpi_busy_time = 900000,
                            .tcpi_rwnd_limited = 100000,
                            .tcpi_snd_wnd = 65536};
    struct inet_diag_msg *diag;

    header->nlmsg_type = SOCK_DIAG_BY_FAMILY;
    diag = mnl_nlmsg_put_extra_header(header, sizeof(*diag));
    memset(diag, 0, sizeof(*diag));
    diag->idiag_family = family;
    diag->id.idiag_sport = htons(40000);
    diag->id.idiag_dport = htons(7001);
    diag->id.idiag_cookie[0] = 7;
    diag->id.idiag_cookie[1] = 1;
    assert_int_equal(inet_pton(family, local, diag->id.idiag_src), 1);
    assert_int_equal(inet_pton(family, remote, diag->id.idiag_dst), 1);
    mnl_attr_put_u8(header, INET_DIAG_SHUTDOWN, 0);
    mnl_attr_put(header, INET_DIAG_INFO, sizeof(info), &info);
    return header;
}

static void a_connection_is_read(void **state)
{
    struct nlmsghdr *header = message(AF_INET, "10.0.0.1", "10.0.0.2");
    struct sl_mon_tcp_flow read;
    char text[48];

    (void)state;
    assert_true(sl_mon_tcp_parse(header, header->nlmsg_len, &read));
    assert_true(read.cookie == ((UINT64_C(1) << 32) | 7));
    sl_mon_tcp_address(read.remote, text, sizeof(text));
    assert_string_equal(text, "10.0.0.2");
    assert_int_equal(read.ports[0], 40000);
    assert_int_equal(read.ports[1], 7001);
    assert_true(read.in_loss && read.backoff == 2 && read.unacked == 3 && read.window == 65536);
    assert_true(read.segments == 1000 && read.again == 30 && read.twice == 20);
    assert_true(read.acked == 1 << 20 && read.busy == 900000 && read.closed_for == 100000);
    header = message(AF_INET6, "fd00::1", "fd00::2");
    assert_true(sl_mon_tcp_parse(header, header->nlmsg_len, &read));
    sl_mon_tcp_address(read.remote, text, sizeof(text));
    assert_string_equal(text, "fd00::2");
    header->nlmsg_type = NLMSG_DONE;
    assert_false(sl_mon_tcp_parse(header, header->nlmsg_len, &read));
}

/* IPv4 in a socket of IPv6 is the same host. */
static void an_address_has_one_form(void **state)
{
    struct sl_mon_tcp_flow four, six;
    struct nlmsghdr *header = message(AF_INET, "10.0.0.1", "10.0.0.2");

    (void)state;
    assert_true(sl_mon_tcp_parse(header, header->nlmsg_len, &four));
    header = message(AF_INET6, "::ffff:10.0.0.1", "::ffff:10.0.0.2");
    assert_true(sl_mon_tcp_parse(header, header->nlmsg_len, &six));
    assert_memory_equal(four.remote, six.remote, 16);
    assert_memory_equal(four.local, six.local, 16);
}

static void damaged_messages_do_no_harm(void **state)
{
    struct sl_mon_tcp_flow read;
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 3);
    for (unsigned i = 0; i < 20000; i++) {
        struct nlmsghdr *header = message(AF_INET, "10.0.0.1", "10.0.0.2");
        size_t len = header->nlmsg_len;

        for (unsigned n = 0; n < 4; n++)
            bytes[sl_rng_below(&rng, len)] = (char)sl_rng_u64(&rng);
        (void)sl_mon_tcp_parse(header, sl_rng_below(&rng, len + 1), &read);
    }
}

static void an_address_of_this_host_is_read(void **state)
{
    struct nlmsghdr *header = mnl_nlmsg_put_header(bytes);
    struct ifaddrmsg *own;
    uint8_t address[16];
    unsigned ifindex;
    char text[48];

    (void)state;
    header->nlmsg_type = RTM_NEWADDR;
    own = mnl_nlmsg_put_extra_header(header, sizeof(*own));
    *own = (struct ifaddrmsg){.ifa_family = AF_INET, .ifa_index = 4};
    mnl_attr_put_u32(header, IFA_LOCAL, htonl(0x0a000001));
    mnl_attr_put_u32(header, IFA_ADDRESS, htonl(0x0a000002)); /* the other end of a tunnel */
    assert_true(sl_mon_tcp_parse_own(header, header->nlmsg_len, address, &ifindex));
    sl_mon_tcp_address(address, text, sizeof(text));
    assert_string_equal(text, "10.0.0.1");
    assert_int_equal(ifindex, 4);
    assert_false(sl_mon_tcp_parse_own(header, 20, address, &ifindex));
}

static void counters_are_read_by_their_names(void **state)
{
    struct sl_mon_tcp_counters read = {.has = 0};

    (void)state;
    sl_mon_tcp_read_counters("Ip: Forwarding InSegs\nIp: 1 77\n"
                             "Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InCsumErrors\n"
                             "Tcp: 1 -1 1000 2000 30 4\n",
                             &read);
    sl_mon_tcp_read_counters("TcpExt: ListenDrops TCPTimeouts New\nTcpExt: 5 6 7\nIpExt: A\n",
                             &read);
    assert_true(read.values[SL_MON_TCP_IN] == 1000 && read.values[SL_MON_TCP_OUT] == 2000);
    assert_true(read.values[SL_MON_TCP_AGAIN] == 30 && read.values[SL_MON_TCP_DAMAGED] == 4);
    assert_true(read.values[SL_MON_TCP_LISTEN_DROPS] == 5);
    assert_true(read.values[SL_MON_TCP_TIMEOUTS] == 6);
    assert_int_equal(__builtin_popcount(read.has), 6);
    read.has = 0;
    sl_mon_tcp_read_counters("Tcp: InSegs OutSegs\nTcp: 12", &read);
    assert_int_equal(read.has, 1u << SL_MON_TCP_IN);
    sl_mon_tcp_read_counters("Tcp: InSegs", &read);
    sl_mon_tcp_read_counters("Tcp:\nTcp:", &read);
}

/* ---- flows ---- */

static struct sl_mon_tcp *tcp;
static struct sl_mon_tcp_flow flow;
static struct sl_mon_tcp_counters host;

static int begin(void **state)
{
    static const uint8_t remote[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};

    (void)state;
    engine_begin(16);
    sl_mon_set_boot(mon, "a");
    assert_int_equal(sl_mon_tcp_create(mon, &tcp), 0);
    flow = (struct sl_mon_tcp_flow){.cookie = 1,
                                    .ports = {40000, 7001},
                                    .has_rtos = true,
                                    .rtt = 100,
                                    .unacked = 10,
                                    .window = 1 << 20};
    memcpy(flow.remote, remote, 16);
    host = (struct sl_mon_tcp_counters){.has = (1u << SL_MON_TCP_COUNTER_COUNT) - 1};
    return 0;
}

static int end(void **state)
{
    sl_mon_tcp_destroy(tcp);
    return engine_end(state);
}

/* The same flow so many times, by their cookies. */
static void list(unsigned copies)
{
    now.mono_ns += SL_MON_S;
    now.wall_ns += SL_MON_S;
    now.boot_ns += SL_MON_S;
    sl_mon_set_time(mon, &now);
    sl_mon_tcp_begin(tcp);
    for (unsigned i = 0; i < copies; i++) {
        struct sl_mon_tcp_flow copy = flow;

        copy.cookie += i;
        sl_mon_tcp_flow(tcp, "eth0", &copy);
    }
    sl_mon_tcp_end(tcp, &host);
}

/* A second in which so many bytes are acknowledged, all of which it had something to send. */
static void second(uint64_t acked)
{
    flow.acked += acked;
    flow.segments += (uint32_t)(acked / 1448);
    flow.busy += 1000000;
    host.values[SL_MON_TCP_IN] += 1000;
    list(1);
}

static void healthy(unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++)
        second(1000000000);
}

static enum sl_mon_state state_of(enum sl_mon_check check)
{
    return engine_state(SL_MON_PEER, "eth0 to 10.0.0.2", check);
}

static void a_healthy_flow_is_quiet(void **state)
{
    (void)state;
    healthy(60);
    assert_int_equal(told, 0);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_OK);
}

static void who_was_hardly_sent_anything_is_no_subject(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        second(10000);
    assert_null(sl_mon_find(mon, SL_MON_PEER, "eth0 to 10.0.0.2"));
}

/* As measured of 1 %: 430 sent again in 2 s, 368 recoveries, 16 timeouts. */
static void loss_is_told(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 6; i++) {
        flow.rtt = 5400;
        flow.again += 215;
        flow.rtos += 8;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += 207;
        host.values[SL_MON_TCP_TIMEOUTS] += 8;
        second(31000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_OK);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_OK);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_SLOW), SL_MON_OK);
}

static void loss_that_slows_down_is_loss(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 10; i++) {
        flow.rtt = 5400;
        flow.again += 215;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += 215;
        second(31000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_OK);
}

/* veth without GRO: thousands are sent again, and the receiver had them all. */
static void what_was_sent_again_in_vain_is_no_loss(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 20; i++) {
        flow.again += 30000;
        flow.twice += 29000;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += 30000;
        second(1500000000);
    }
    assert_int_equal(told, 0);
}

static void a_few_lost_of_a_million_are_no_loss(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 20; i++) {
        flow.again += 100;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += 100;
        second(1000000000);
    }
    assert_int_equal(told, 0);
}

/* 200 ms of each 1.5 s: all in flight is lost, and no acknowledgement tells. */
static void blackouts_are_told(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 6; i++) {
        if (i % 3 != 2) {
            flow.again += 60;
            flow.rtos++;
            host.values[SL_MON_TCP_TIMEOUTS]++;
        }
        second(600000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_OK);
}

/*
 * As measured, second by second, of a flow of 300,000 segments a second (200 ms dark in each
 * 1.5 s): recoveries in which nothing was lost, before and beside the timeouts.
 */
static void blackouts_of_a_quick_flow_are_told(void **state)
{
    static const struct {
        uint32_t again, twice, rtos, recoveries, by_recovery, by_timeout;
    } seconds[] = {
        {91, 3, 0, 4, 91, 0},      {106, 3, 0, 3, 106, 0},   {1028, 3, 1, 3, 113, 914},
        {0, 0, 0, 1, 0, 0},        {1001, 2, 1, 2, 68, 932}, {1323, 2, 1, 2, 90, 1232},
        {180, 4, 0, 5, 180, 0},    {1193, 0, 1, 2, 0, 1192}, {0, 0, 0, 1, 0, 0},
        {1654, 1, 1, 2, 45, 1608}, {45, 1, 0, 2, 45, 0},     {2083, 0, 1, 1, 1319, 763},
        {1136, 1, 1, 2, 45, 1090}, {90, 1, 0, 2, 90, 0},     {1527, 1, 1, 2, 68, 1458},
    };

    (void)state;
    healthy(10);
    for (unsigned i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        flow.again += seconds[i].again;
        flow.twice += seconds[i].twice;
        flow.rtos += seconds[i].rtos;
        host.values[SL_MON_TCP_TIMEOUTS] += seconds[i].rtos;
        host.values[SL_MON_TCP_SACK_RECOVERY] += seconds[i].recoveries;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += seconds[i].by_recovery;
        host.values[SL_MON_TCP_AGAIN_BY_TIMEOUT] += seconds[i].by_timeout;
        second(400000000);
        assert_int_not_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_BAD);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_BAD);
}

/* The same flow at 1 and 5 % of long packets: timeouts in most seconds, but few wait for them. */
static void loss_of_a_quick_flow_is_told(void **state)
{
    static const struct {
        uint32_t again, rtos, recoveries, by_recovery, by_timeout;
    } seconds[] = {
        {3541, 2, 79, 3449, 88},  {4366, 1, 106, 4334, 30}, {3681, 0, 82, 3679, 0},
        {3492, 4, 68, 3362, 126}, {1092, 3, 19, 1001, 88},  {3260, 4, 59, 3058, 198},
    };

    (void)state;
    healthy(10);
    for (unsigned i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        flow.again += seconds[i].again;
        flow.rtos += seconds[i].rtos;
        host.values[SL_MON_TCP_TIMEOUTS] += seconds[i].rtos;
        host.values[SL_MON_TCP_SACK_RECOVERY] += seconds[i].recoveries;
        host.values[SL_MON_TCP_AGAIN_BY_RECOVERY] += seconds[i].by_recovery;
        host.values[SL_MON_TCP_AGAIN_BY_TIMEOUT] += seconds[i].by_timeout;
        second(500000000);
        assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_OK);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_BAD);
}

/* A wrong MAC: nothing is acknowledged, it backs off; a kernel without counts of timeouts too. */
static void nothing_that_arrives_is_told(void **state)
{
    (void)state;
    healthy(10);
    flow.has_rtos = false;
    for (unsigned i = 0; i < 4; i++) {
        flow.backoff++;
        flow.again++;
        flow.in_loss = true;
        host.values[SL_MON_TCP_TIMEOUTS]++;
        second(0);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_SLOW), SL_MON_OK);
    assert_string_equal(last_text,
                        "nothing arrives on 1 of 1 connections (port 40000 to port 7001), "
                        "which repeat what they sent");
}

/* One connection of eight met a timeout at the end of what it sent: that is no blackout. */
static void one_timeout_among_many_flows_is_none(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 30; i++) {
        struct sl_mon_tcp_flow other;

        flow.acked += 100000000;
        flow.segments += 69060;
        flow.busy += 1000000;
        host.values[SL_MON_TCP_TIMEOUTS] += i > 5;
        other = flow;
        other.cookie = 99;
        other.rtos = other.again = i > 5 ? i : 0;
        now.mono_ns += SL_MON_S;
        sl_mon_set_time(mon, &now);
        sl_mon_tcp_begin(tcp);
        sl_mon_tcp_flow(tcp, "eth0", &other);
        for (unsigned n = 0; n < 7; n++) {
            sl_mon_tcp_flow(tcp, "eth0", &flow);
            flow.cookie++;
        }
        flow.cookie -= 7;
        sl_mon_tcp_end(tcp, &host);
    }
    assert_int_equal(told, 0);
}

static void a_receiver_that_stopped_is_told(void **state)
{
    (void)state;
    healthy(10);
    for (unsigned i = 0; i < 4; i++) {
        flow.closed_for += 1000000;
        flow.window = 0;
        flow.unacked = 1;
        flow.backoff = (uint8_t)(i + 1); /* of probes of the window */
        second(0);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_SLOW), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_OK);
    flow.window = 1 << 20;
    flow.backoff = 0;
    healthy(80);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_SLOW), SL_MON_OK);
}

/* Its window is closed all the time, by design: it always read so. */
static void a_receiver_that_was_always_slow_is_quiet(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        flow.closed_for += 990000;
        second(20000000);
    }
    assert_int_equal(told, 0);
}

/* tbf at 200 Mbit/s: no loss, 5.4 ms of round trip, busy all the time. */
static void a_way_that_became_slow_is_told(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 10; i++) {
        flow.rtt = 5400;
        second(24000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_BAD);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_LOSS), SL_MON_OK);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_SLOW), SL_MON_OK);
}

/* 50 MB every 1.5 s, which took 20 ms: all of the time is not enough now. */
static void a_way_that_became_slow_for_bursts_is_told(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        flow.acked += 33000000;
        flow.segments += 22790;
        flow.busy += 20000;
        list(1);
    }
    for (unsigned i = 0; i < 6; i++) {
        flow.rtt = 5400;
        second(12000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_BAD);
}

/* Seed 21 of the campaign: 256 KiB each 40 ms pass a shaper of 1 Gbit/s at the speed of memory, in
 * less than a tick; what follows without a pause goes as fast as that link can. */
static void bursts(void)
{
    for (unsigned i = 0; i < 20; i++) {
        flow.acked += 6500000;
        flow.segments += 4500;
        flow.busy += 8000;
        list(1);
    }
}

static void what_fits_into_a_shapers_bucket_is_no_speed(void **state)
{
    (void)state;
    bursts();
    for (unsigned i = 0; i < 20; i++) {
        flow.rtt = 5000;
        second(30000000);
    }
    assert_int_equal(told, 0);
}

static void a_way_that_became_slow_after_bursts_is_told_by_its_own_speed(void **state)
{
    (void)state;
    bursts();
    for (unsigned i = 0; i < 40; i++) {
        flow.rtt = 5000;
        second(30000000);
    }
    for (unsigned i = 0; i < 10; i++) {
        flow.rtt = 40000;
        second(3000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_BAD);
    assert_non_null(strstr(last_text, "it was 240 at"));
}

/* What is usual is forgotten in hours, but not while it is told that it is missing. */
static void a_slow_way_is_told_as_long_as_it_is_one(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 4 * 3600; i++) {
        flow.rtt = 5400;
        second(24000000);
    }
    assert_int_equal(state_of(SL_MON_CHECK_PEER_RATE), SL_MON_BAD);
}

/* Eight connections where one was: they share what there is. */
static void more_connections_are_no_slow_way(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 20; i++) {
        flow.acked += 125000000;
        flow.segments += 86000;
        flow.busy += 1000000;
        flow.rtt = 800;
        list(8);
    }
    assert_int_equal(told, 0);
}

/* The sender was stopped, or computes: it has nothing to send. */
static void who_sends_little_is_no_slow_way(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 30; i++) {
        flow.rtt = 5400;
        flow.acked += 2000000;
        flow.busy += 20000;
        list(1);
    }
    for (unsigned i = 0; i < 30; i++)
        list(1); /* idle */
    assert_int_equal(told, 0);
}

/* It has something to send for half of the time: what it gets then is less, and says little. */
static void who_sends_half_of_the_time_is_no_slow_way(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 30; i++) {
        flow.rtt = 5400;
        flow.acked += 60000000;
        flow.busy += 600000;
        list(1);
    }
    assert_int_equal(told, 0);
}

/* The receiver keeps it waiting for half of the time. */
static void a_receiver_that_became_slower_is_no_slow_way(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 20; i++) {
        flow.rtt = 5400;
        flow.closed_for += 500000;
        second(100000000);
    }
    assert_int_equal(told, 0);
}

static void a_round_trip_as_usual_is_no_slow_way(void **state)
{
    (void)state;
    healthy(20);
    for (unsigned i = 0; i < 20; i++)
        second(100000000); /* another job, whose processor is the limit */
    assert_int_equal(told, 0);
}

static void damage_is_of_the_host(void **state)
{
    const struct sl_mon_subject *subject;

    (void)state;
    healthy(5);
    for (unsigned i = 0; i < 6; i++) {
        host.values[SL_MON_TCP_DAMAGED] += 580;
        second(500000000);
    }
    subject = sl_mon_find(mon, SL_MON_HOST, "host");
    assert_non_null(subject);
    assert_int_equal(sl_mon_condition(subject, SL_MON_CHECK_HOST_DAMAGE)->state, SL_MON_BAD);
}

/* A segment a second among them is chance. */
static void a_little_damage_is_quiet(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 30; i++) {
        host.values[SL_MON_TCP_DAMAGED] += 1;
        second(500000000);
    }
    assert_int_equal(told, 0);
}

/* The process ended: no connection, no evidence. */
static void a_blackout_ends_with_its_connections(void **state)
{
    (void)state;
    nothing_that_arrives_is_told(state);
    for (unsigned i = 0; i < 400; i++)
        list(0);
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_OK);
    for (unsigned i = 0; i < 3600; i++)
        list(0);
    assert_null(sl_mon_find(mon, SL_MON_PEER, "eth0 to 10.0.0.2"));
}

/* The agent began again: what its store had of a peer goes on, and ends. */
static void what_the_store_had_goes_on(void **state)
{
    struct sl_mon_subject *peer = sl_mon_subject(mon, SL_MON_PEER, "eth0 to 10.0.0.2");
    struct sl_mon_condition condition;

    (void)state;
    sl_mon_condition_init(&condition, now.mono_ns);
    condition.state = SL_MON_BAD;
    sl_mon_restore(mon, peer, SL_MON_CHECK_PEER_BLACKOUT, &condition);
    for (unsigned i = 0; i < 400; i++)
        second(1000); /* hardly anything */
    assert_int_equal(state_of(SL_MON_CHECK_PEER_BLACKOUT), SL_MON_OK);
}

static void so_many_connections_and_no_more(void **state)
{
    (void)state;
    healthy(2);
    list(SL_MON_TCP_FLOWS_MAX + 100);
    assert_int_equal(sl_mon_tcp_flows(tcp), SL_MON_TCP_FLOWS_MAX);
    assert_int_equal(sl_mon_tcp_left_out(tcp), 100);
    for (unsigned i = 0; i < SL_MON_TCP_PEERS_MAX + 10; i++) {
        now.mono_ns += SL_MON_S;
        sl_mon_set_time(mon, &now);
        sl_mon_tcp_begin(tcp);
        flow.cookie = 100000 + i;
        flow.remote[15] = (uint8_t)i;
        flow.remote[14] = (uint8_t)(1 + i / 256);
        sl_mon_tcp_flow(tcp, "eth0", &flow);
        sl_mon_tcp_end(tcp, &host);
    }
    assert_int_equal(sl_mon_tcp_left_out(tcp), 100 + 11);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_read),
        cmocka_unit_test(an_address_has_one_form),
        cmocka_unit_test(damaged_messages_do_no_harm),
        cmocka_unit_test(an_address_of_this_host_is_read),
        cmocka_unit_test(counters_are_read_by_their_names),
        CASE(a_healthy_flow_is_quiet),
        CASE(who_was_hardly_sent_anything_is_no_subject),
        CASE(loss_is_told),
        CASE(loss_that_slows_down_is_loss),
        CASE(what_was_sent_again_in_vain_is_no_loss),
        CASE(a_few_lost_of_a_million_are_no_loss),
        CASE(blackouts_are_told),
        CASE(blackouts_of_a_quick_flow_are_told),
        CASE(loss_of_a_quick_flow_is_told),
        CASE(nothing_that_arrives_is_told),
        CASE(one_timeout_among_many_flows_is_none),
        CASE(a_receiver_that_stopped_is_told),
        CASE(a_receiver_that_was_always_slow_is_quiet),
        CASE(a_way_that_became_slow_is_told),
        CASE(a_way_that_became_slow_for_bursts_is_told),
        CASE(what_fits_into_a_shapers_bucket_is_no_speed),
        CASE(a_way_that_became_slow_after_bursts_is_told_by_its_own_speed),
        CASE(a_slow_way_is_told_as_long_as_it_is_one),
        CASE(more_connections_are_no_slow_way),
        CASE(who_sends_little_is_no_slow_way),
        CASE(who_sends_half_of_the_time_is_no_slow_way),
        CASE(a_receiver_that_became_slower_is_no_slow_way),
        CASE(a_round_trip_as_usual_is_no_slow_way),
        CASE(damage_is_of_the_host),
        CASE(a_little_damage_is_quiet),
        CASE(a_blackout_ends_with_its_connections),
        CASE(what_the_store_had_goes_on),
        CASE(so_many_connections_and_no_more)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
