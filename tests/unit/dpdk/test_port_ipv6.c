/* SPDX-License-Identifier: Apache-2.0 */
/* Ports with IPv6: headers and checksums as they are on the wire, neighbour discovery with who
 * asks, answers and lies, and a wire between processes. test_port_ipv6 PORT_PEER */
#include "core/clock.h"
#include "core/err.h"
#include "core/rng.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/nd.h"
#include "dpdk/port/ports.h"
#include "dpdk/port/sum.h"
#include "dpdk/proto/wire.h"
#include "tests/unit/dpdk/port_spawn.h"

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
#define WIRE "ring:six/0@ip=fd00:1::1/64@gw=fe80::1 ring:six/1@ip=fd00:1::2/64"
#define PAYLOAD_AT 62
#define FRAME_ROOM 9100

struct raw {
    uint8_t bytes[FRAME_ROOM];
    size_t len;
};

static const char *program;
static uint8_t payload[9000];
static struct rte_mempool *pool;
static struct port_end a, b;

/* ---- the wire ---- */

static void open_wire(const char *list)
{
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};

    if (port_end_open(&a, &settings, 0) != 0 || port_end_open(&b, &settings, 1) != 0)
        fail_msg("%s", sluice_last_error());
}

static void join(const char *list)
{
    open_wire(list);
    assert_int_equal(port_end_connect(&a, &b.own, 50000), 0);
    assert_int_equal(port_end_connect(&b, &a.own, 50001), 0);
}

static void part(void)
{
    port_end_close(&a);
    port_end_close(&b);
}

static struct rte_ring *ring_to(unsigned end)
{
    return rte_ring_lookup(end == 0 ? "sl_six_0" : "sl_six_1");
}

/* The next frame on its way to that end is taken off the wire. */
static bool take(unsigned end, struct raw *out)
{
    struct rte_mbuf *packet;
    const void *bytes;

    if (rte_ring_dequeue(ring_to(end), (void **)&packet) != 0)
        return false;
    out->len = packet->pkt_len;
    bytes = rte_pktmbuf_read(packet, 0, packet->pkt_len, out->bytes);
    if (bytes != out->bytes)
        memcpy(out->bytes, bytes, out->len);
    rte_pktmbuf_free(packet);
    return true;
}

/* Somebody puts a frame on it; flags are what the receiver's NIC says of it. */
static void put_seen(unsigned end, const void *frame, size_t len, uint64_t flags)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);

    assert_non_null(packet);
    packet->ol_flags |= flags;
    memcpy(rte_pktmbuf_append(packet, (uint16_t)len), frame, len);
    assert_int_equal(rte_ring_enqueue(ring_to(end), packet), 0);
}

static void put(unsigned end, const void *frame, size_t len)
{
    put_seen(end, frame, len, 0);
}

/* A frame of a's to b, as it is on the wire. */
static struct raw *sent(size_t len)
{
    static struct raw frame;

    assert_true(port_end_send(&a, payload, len, false) >= 0);
    port_end_poll(&a);
    assert_true(take(1, &frame));
    return &frame;
}

static struct sl_dpdk_port_stats stats_of(struct port_end *end)
{
    struct sl_dpdk_port_stats stats;

    sl_dpdk_port_stats(end->port, &stats);
    return stats;
}

/* ---- checksums ---- */

/* RFC 1071 word by word. */
static uint16_t naive(const uint8_t *bytes, size_t len, uint32_t sum)
{
    for (size_t i = 0; i < len; i++)
        sum += i % 2 == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Of a frame's upper layer: 0xffff where its checksum is right. */
static uint16_t naive_of_frame(const uint8_t *frame, uint8_t protocol)
{
    size_t len = (size_t)frame[18] << 8 | frame[19];

    return naive(frame + 54, len, naive(frame + 22, 32, (uint32_t)len + protocol));
}

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
                         naive(bytes + at, len, 0) % 0xffff);
    }
}

static void packets_of_every_size_pass_with_a_right_checksum(void **state)
{
    static const uint32_t tail = 0x12345678;
    struct raw frame;
    uint64_t left = 0;

    (void)state;
    join(WIRE);
    for (size_t len = 0; len < 8900; len += len < 700 ? 1 : 97) {
        assert_int_equal(naive_of_frame(sent(len)->bytes, 17), 0xffff);
        for (unsigned lent = 0; lent < 2; lent++, left++)
            assert_true(port_end_send(&a, payload, len, lent != 0) >= 0);
        port_end_poll(&a);
        assert_true(port_end_wait(&b, &b.came, left, WAIT_MS));
        assert_int_equal(b.last_len, len);
    }
    assert_int_equal(b.damaged, 0);
    assert_int_equal(stats_of(&b).damaged, 0);
    assert_true(a.returned > 0);            /* something was lent */
    for (size_t len = 0; len < 40; len++) { /* a checksum of the protocol's behind it */
        uint8_t head[PORT_END_HEAD] = {SL_DP_DATA << 4 | SL_DP_VERSION};

        assert_int_equal(
            sl_dpdk_send(a.user, a.port, &a.way, head, sizeof(head), payload, len, &tail, true, 0),
            0);
        port_end_poll(&a);
        assert_true(take(1, &frame));
        assert_int_equal(naive_of_frame(frame.bytes, 17), 0xffff);
        assert_memory_equal(frame.bytes + frame.len - 4, &tail, 4);
    }
    part();
}

/* Bytes that make the sum 0: 0 on the wire would say that there is no checksum. */
static void a_checksum_of_zero_is_sent_as_its_other_form(void **state)
{
    struct raw *frame;
    uint8_t two[2] = {0};
    uint16_t check;

    (void)state;
    join(WIRE);
    a.sent = 0;
    memcpy(payload, two, 2);
    frame = sent(2);
    memcpy(payload, frame->bytes + 60, 2); /* the checksum itself, in the place of two zeros */
    a.sent = 0;
    frame = sent(2);
    memcpy(&check, frame->bytes + 60, 2);
    assert_int_equal(check, 0xffff);
    port_end_fill(payload, sizeof(payload));
    part();
}

static void a_damaged_packet_is_thrown_away_and_counted(void **state)
{
    struct sl_rng rng;
    struct raw frame;

    (void)state;
    join(WIRE);
    sl_rng_init(&rng, 3);
    for (unsigned i = 0; i < 300; i++) {
        frame = *sent(i * 4);
        size_t at = 22 + sl_rng_below(&rng, frame.len - 22);
        frame.bytes[at] ^= (uint8_t)(1u << sl_rng_below(&rng, 8));
        put(1, frame.bytes, frame.len);
        port_end_poll(&b);
    }
    assert_int_equal(b.came, 0);
    struct sl_dpdk_port_stats stats = stats_of(&b);
    assert_int_equal(stats.damaged + stats.foreign + stats.unknown, 300);
    assert_true(stats.damaged > 150);
    frame = *sent(100);
    memset(frame.bytes + 60, 0, 2); /* no checksum */
    put(1, frame.bytes, frame.len);
    port_end_poll(&b);
    assert_int_equal(b.came, 0);
    assert_int_equal(stats_of(&b).foreign, stats.foreign + 1);
    part();
}

/* The NIC is given the sum of the pseudo header, and its word counts for what comes. */
static void a_nic_that_computes_checksums_is_left_to_it(void **state)
{
    struct rte_ipv6_hdr ip;
    struct raw frame;
    uint16_t check;

    (void)state;
    join(WIRE);
    a.port->sums = true;
    frame = *sent(100);
    memcpy(&ip, frame.bytes + 14, sizeof(ip));
    memcpy(&check, frame.bytes + 60, 2);
    assert_int_equal(check, rte_ipv6_phdr_cksum(&ip, 0));
    put_seen(1, frame.bytes, frame.len, RTE_MBUF_F_RX_L4_CKSUM_GOOD);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    put(1, frame.bytes, frame.len); /* nobody has looked */
    port_end_poll(&b);
    a.port->sums = false;
    frame = *sent(100);
    put_seen(1, frame.bytes, frame.len, RTE_MBUF_F_RX_L4_CKSUM_BAD);
    port_end_poll(&b);
    assert_int_equal(b.came, 1);
    assert_int_equal(stats_of(&b).damaged, 2);
    part();
}

/* ---- headers ---- */

static void headers_are_as_rfc_8200_has_them(void **state)
{
    static const uint8_t from[16] = {0xfd, 0, 0, 1, [15] = 1}, to[16] = {0xfd, 0, 0, 1, [15] = 2};
    const uint8_t *frame;

    (void)state;
    join(WIRE);
    assert_int_equal(sl_dpdk_way_make(a.port, &b.own.address, 0xc123, 0x68, &a.way), 0);
    assert_true(a.way.is_ip6);
    sl_dpdk_way_label(&a.way, 0xabcde);
    frame = sent(100)->bytes;
    assert_memory_equal(frame, b.own.address.mac, 6);
    assert_memory_equal(frame + 6, a.own.address.mac, 6);
    /* type, version 6, class 0x6a (ECT(0)), label; 8 + 32 + 100 bytes, UDP, 64 hops */
    assert_memory_equal(frame + 12, "\x86\xdd\x66\xaa\xbc\xde\x00\x8c\x11\x40", 10);
    assert_memory_equal(frame + 22, from, 16);
    assert_memory_equal(frame + 38, to, 16);
    assert_memory_equal(frame + 54, "\xc1\x23\xba\xc1\x00\x8c", 6);
    assert_int_equal(naive_of_frame(frame, 17), 0xffff); /* the label is not in it */
    part();
}

static void a_packet_that_was_marked_on_its_way_is_told(void **state)
{
    struct raw frame;

    (void)state;
    join(WIRE);
    for (unsigned i = 0; i < 4; i++) {
        frame = *sent(100);
        frame.bytes[15] = (uint8_t)((frame.bytes[15] & ~0x30) | i << 4);
        put(1, frame.bytes, frame.len);
        port_end_poll(&b);
    }
    assert_int_equal(b.came, 4);
    assert_int_equal(b.marked, 1);
    assert_int_equal(b.damaged, 0);
    part();
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
    struct raw frame;

    (void)state;
    join(WIRE);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        uint64_t foreign = stats_of(&b).foreign;

        frame = *sent(100);
        frame.bytes[cases[i].at] = cases[i].value;
        put(1, frame.bytes, frame.len);
        port_end_poll(&b);
        if (stats_of(&b).foreign != foreign + 1)
            fail_msg("%s is not foreign", cases[i].what);
    }
    for (size_t len = 0; len < PAYLOAD_AT + 32; len++) { /* cut off */
        put(1, frame.bytes, len);
        port_end_poll(&b);
    }
    assert_int_equal(b.came, 0);
    part();
}

/* IPv4 at a port that has none, also to nobody, and the reverse. */
static void a_port_hears_the_families_that_it_has(void **state)
{
    struct raw frame, six;
    struct rte_ipv4_hdr ip = {.version_ihl = 0x45, .next_proto_id = 17, .time_to_live = 9};

    (void)state;
    join(WIRE);
    six = *sent(100);
    frame = six;
    memcpy(frame.bytes + 12, "\x08\x00", 2);
    ip.total_length = rte_cpu_to_be_16(20 + 8 + 132);
    ip.hdr_checksum = rte_ipv4_cksum(&ip);
    memcpy(frame.bytes + 14, &ip, 20);
    memmove(frame.bytes + 34, frame.bytes + 54, 8 + 132);
    put(1, frame.bytes, 42 + 132);
    port_end_poll(&b);
    assert_int_equal(b.came, 0);
    assert_int_equal(stats_of(&b).foreign, 1);
    part();
    join("ring:six/0 ring:six/1");
    assert_false(a.way.is_ip6);
    memset(six.bytes + 38, 0, 16);
    put(1, six.bytes, six.len);
    port_end_poll(&b);
    assert_int_equal(stats_of(&b).foreign, 1);
    part();
}

static void both_families_serve_one_port(void **state)
{
    struct sl_dpdk_address only6, only4;

    (void)state;
    join("ring:six/0@ip=10.3.0.1/24@ip=fd00:1::1/64 ring:six/1@ip=fd00:1::2/64@ip=10.3.0.2/24");
    assert_false(a.way.is_ip6); /* the shorter headers */
    only6 = b.own.address;
    memset(only6.ip, 0, 4);
    only4 = b.own.address;
    memset(only4.ip6, 0, 16);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sl_dpdk_way_make(a.port, i == 0 ? &only6 : &only4, 50000, 0, &a.way), 0);
        assert_int_equal(a.way.is_ip6, i == 0);
        assert_int_equal(port_end_send(&a, payload, 500, false), 0);
    }
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 2, WAIT_MS));
    assert_int_equal(b.damaged, 0);
    part();
    join("ring:six/0@ip=fd00:1::1/64 ring:six/1@ip=10.3.0.2/24@ip=fd00:1::2/64");
    assert_true(a.way.is_ip6 && b.way.is_ip6);
    part();
    open_wire("ring:six/0@ip=10.3.0.1/24 ring:six/1@ip=fd00:1::2/64");
    assert_int_equal(port_end_connect(&a, &b.own, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "fd00:1::2 and DPDK port 'ring:six/0'"));
    part();
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
    struct sl_dpdk_port_settings settings = {.list = WIRE, .rank = -1, .local_rank = -1};

    (void)state;
    settings.inject = "loss=1,port=50000";
    assert_int_equal(port_end_open(&a, &settings, 0), 0);
    assert_int_equal(port_end_open(&b, &settings, 1), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(port_end_connect(&a, &b.own, (uint16_t)(50000 + i)), 0);
        assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    }
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    assert_int_equal(stats_of(&b).injected, 1);
    part();
}

/* ---- neighbour discovery ---- */

static const uint8_t good[6] = {2, 1, 1, 1, 1, 1}, evil[6] = {2, 0xee, 0xee, 0xee, 0xee, 0xee};
static const uint8_t router[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t own6[16] = {0xfd, 0, 0, 1, [15] = 1};

static void a_peer_without_a_mac_is_asked_for_it(void **state)
{
    struct port_hello peer;
    int err = -EAGAIN;

    (void)state;
    join(WIRE);
    peer = b.own;
    memset(peer.address.mac, 0, 6);
    assert_int_equal(port_end_connect(&a, &peer, 50000), -EAGAIN);
    assert_non_null(strstr(sluice_last_error(), "the MAC of fd00:1::2"));
    for (unsigned i = 0; i < 1000 && (err = port_end_connect(&a, &peer, 50000)) == -EAGAIN; i++) {
        port_end_poll(&b);
        port_end_poll(&a);
    }
    assert_int_equal(err, 0);
    assert_memory_equal(a.way.head, b.own.address.mac, 6);
    part();
}

/* The question after the gateway, byte by byte. */
static void a_gateway_is_asked_for_in_its_group(void **state)
{
    static const uint8_t group[16] = {0xff, 2, [11] = 1, 0xff, 0, 0, 1};
    struct port_hello far;
    struct raw frame;

    (void)state;
    open_wire(WIRE);
    far = b.own;
    far.address.ip6[5] = 9;
    assert_int_equal(port_end_connect(&a, &far, 50000), -EAGAIN);
    assert_true(take(1, &frame));
    assert_int_equal(frame.len, 86);
    assert_memory_equal(frame.bytes, "\x33\x33\xff\x00\x00\x01", 6);
    assert_memory_equal(frame.bytes + 6, a.own.address.mac, 6);
    assert_memory_equal(frame.bytes + 12, "\x86\xdd\x60\x00\x00\x00\x00\x20\x3a\xff", 10);
    assert_memory_equal(frame.bytes + 22, own6, 16);
    assert_memory_equal(frame.bytes + 38, group, 16);
    assert_memory_equal(frame.bytes + 54, "\x87\x00", 2);
    assert_memory_equal(frame.bytes + 58, "\x00\x00\x00\x00", 4);
    assert_memory_equal(frame.bytes + 62, router, 16);
    assert_memory_equal(frame.bytes + 78, "\x01\x01", 2);
    assert_memory_equal(frame.bytes + 80, a.own.address.mac, 6);
    assert_int_equal(naive_of_frame(frame.bytes, 58), 0xffff);
    part();
    open_wire("ring:six/0@ip=fd00:1::1/64 ring:six/1@ip=fd00:1::2/64"); /* without one */
    assert_int_equal(port_end_connect(&a, &far, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "@gw="));
    part();
}

/* A change of an answer, or a question, that takes its worth away; at 0: none. */
struct change {
    unsigned at;
    uint8_t value;
    const char *what;
    bool keeps_check; /* the checksum is as it was */
};

static void change_frame(uint8_t frame[SL_DPDK_ND_FRAME], const struct change *change)
{
    uint16_t sum;

    if (change->at != 0)
        frame[change->at] = change->value;
    if (change->keeps_check)
        return;
    memset(frame + 56, 0, 2);
    sum = (uint16_t)~naive_of_frame(frame, 58);
    frame[56] = (uint8_t)(sum >> 8);
    frame[57] = (uint8_t)sum;
}

static void say(const uint8_t mac[6], const struct change *change)
{
    struct sl_dpdk_nd nd = {.is_answer = true, .is_solicited = true};
    uint8_t frame[SL_DPDK_ND_FRAME];

    memcpy(nd.ether, a.own.address.mac, 6);
    memcpy(nd.from, router, 16);
    memcpy(nd.to, own6, 16);
    memcpy(nd.target, router, 16);
    sl_dpdk_nd_write(&nd, mac, frame);
    if (change != NULL)
        change_frame(frame, change);
    put(0, frame, sizeof(frame));
    port_end_poll(&a);
}

static void only_the_first_sound_answer_to_a_question_counts(void **state)
{
    static const struct change lies[] = {
        {21, 254, "through a router", false},  {57, 0x5a, "damaged", true},
        {58, 0x20, "not asked for", false},    {55, 1, "another code", false},
        {54, 137, "a redirect", false},        {62, 0xff, "of a group", false},
        {77, 2, "of another host", false},     {79, 0, "an option of no length", false},
        {79, 2, "an option too long", false},  {78, 1, "without the target's MAC", false},
        {80, 3, "the MAC of a group", false},  {19, 23, "cut", false},
        {19, 0x28, "longer than it is", true}, {38, 0xff, "to a group", false},
        {53, 7, "to another host", false},     {20, 59, "no ICMPv6", false},
        {14, 0x50, "another version", false},  {22, 0xff, "from a group", false},
    };
    struct port_hello far;
    struct raw frame;

    (void)state;
    open_wire(WIRE);
    far = b.own;
    far.address.ip6[5] = 9;
    say(evil, NULL); /* before the question */
    assert_int_equal(port_end_connect(&a, &far, 50000), -EAGAIN);
    for (size_t i = 0; i < SL_ARRAY_LEN(lies); i++) {
        say(evil, &lies[i]);
        if (port_end_connect(&a, &far, 50000) != -EAGAIN)
            fail_msg("an answer counts that is %s", lies[i].what);
    }
    say(good, NULL);
    say(evil, NULL); /* too late */
    assert_int_equal(port_end_connect(&a, &far, 50000), 0);
    assert_memory_equal(a.way.head, good, 6);
    while (take(1, &frame))
        ;
    part();
}

static void ask(const struct sl_dpdk_nd *nd, const struct change *change)
{
    uint8_t frame[SL_DPDK_ND_FRAME];

    sl_dpdk_nd_write(nd, good, frame);
    if (change != NULL)
        change_frame(frame, change);
    put(0, frame, sizeof(frame));
    port_end_poll(&a);
}

static struct sl_dpdk_nd question(bool in_group)
{
    struct sl_dpdk_nd nd = {0};

    memcpy(nd.ether, a.own.address.mac, 6);
    memcpy(nd.from, router, 16);
    memcpy(nd.to, own6, 16);
    memcpy(nd.target, own6, 16);
    if (in_group) {
        sl_dpdk_nd_group_mac(own6, nd.ether);
        sl_dpdk_nd_group(own6, nd.to);
    }
    return nd;
}

/* An answer of a's, checked against its question. */
static void answered(bool to_all)
{
    static const uint8_t all[16] = {0xff, 2, [15] = 1};
    struct sl_dpdk_nd nd;
    struct raw frame;

    assert_true(take(1, &frame));
    assert_true(sl_dpdk_nd_read(frame.bytes, frame.len, &nd));
    assert_int_equal(naive_of_frame(frame.bytes, 58), 0xffff);
    assert_true(nd.is_answer);
    assert_int_equal(nd.is_solicited, !to_all);
    assert_memory_equal(frame.bytes, to_all ? (const uint8_t *)"\x33\x33\0\0\0\1" : good, 6);
    assert_memory_equal(nd.to, to_all ? all : router, 16);
    assert_memory_equal(nd.from, own6, 16);
    assert_memory_equal(nd.target, own6, 16);
    assert_true(nd.has_mac);
    assert_memory_equal(nd.mac, a.own.address.mac, 6);
    assert_false(take(1, &frame));
}

static void who_asks_for_the_port_is_answered(void **state)
{
    struct sl_dpdk_nd nd;
    uint8_t frame[SL_DPDK_ND_FRAME];

    (void)state;
    open_wire(WIRE);
    for (unsigned in_group = 0; in_group < 2; in_group++) {
        nd = question(in_group != 0);
        ask(&nd, NULL);
        answered(false);
    }
    /* Who looks whether the address is free has none himself, and tells no MAC. */
    nd = question(true);
    memset(nd.from, 0, 16);
    sl_dpdk_nd_write(&nd, good, frame);
    frame[19] = 24;
    change_frame(frame, &(struct change){0});
    put(0, frame, 78);
    port_end_poll(&a);
    answered(true);
    part();
}

static void questions_that_are_not_for_the_port_or_unsound_are_not_answered(void **state)
{
    static const struct change bad[] = {
        {21, 64, "through a router", false}, {57, 0x5a, "damaged", true},
        {55, 1, "another code", false},      {77, 9, "for another host", false},
        {62, 0xff, "for a group", false},    {79, 0, "an option of no length", false},
        {53, 9, "to another group", false},  {80, 3, "from the MAC of a group", false},
        {22, 0xff, "from a group", false},
    };
    uint8_t bytes[SL_DPDK_ND_FRAME];
    struct sl_dpdk_nd nd;
    struct raw frame;

    (void)state;
    open_wire(WIRE);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        nd = question(true);
        ask(&nd, &bad[i]);
        if (take(1, &frame))
            fail_msg("a question is answered that is %s", bad[i].what);
    }
    nd = question(true); /* of nobody, with a MAC */
    memset(nd.from, 0, 16);
    ask(&nd, NULL);
    assert_false(take(1, &frame));
    nd = question(false); /* of nobody, not to the group */
    memset(nd.from, 0, 16);
    ask(&nd, NULL);
    assert_false(take(1, &frame));
    sl_dpdk_nd_write(&nd, good, bytes); /* and with no MAC */
    bytes[19] = 24;
    change_frame(bytes, &(struct change){0});
    put(0, bytes, 78);
    port_end_poll(&a);
    assert_false(take(1, &frame));
    part();
}

/* Whatever bytes: nothing breaks, and nobody is believed. */
static void random_frames_change_nothing(void **state)
{
    struct port_hello far;
    struct sl_rng rng;
    struct raw frame;

    (void)state;
    open_wire(WIRE);
    sl_rng_init(&rng, 11);
    far = b.own;
    far.address.ip6[5] = 9;
    assert_int_equal(port_end_connect(&a, &far, 50000), -EAGAIN);
    for (unsigned i = 0; i < 3000; i++) {
        struct sl_dpdk_nd nd = question(i % 2 == 0);
        uint8_t bytes[SL_DPDK_ND_FRAME];

        nd.is_answer = i % 3 == 0;
        sl_dpdk_nd_write(&nd, evil, bytes);
        for (uint64_t n = 1 + sl_rng_below(&rng, 6); n > 0; n--)
            bytes[12 + sl_rng_below(&rng, sizeof(bytes) - 12)] = (uint8_t)sl_rng_u64(&rng);
        if (i % 4 != 0)
            change_frame(bytes, &(struct change){.keeps_check = bytes[18] != 0 || bytes[19] > 32});
        put(0, bytes, i % 5 == 0 ? sl_rng_below(&rng, sizeof(bytes)) : sizeof(bytes));
        port_end_poll(&a);
        while (take(1, &frame))
            ;
    }
    assert_int_equal(port_end_connect(&a, &far, 50000), -EAGAIN);
    part();
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
            (void)port_end_send(&end, payload, 100 + i * 37 % 8000, i % 2);
            port_end_wait(&end, &end.came, came + 1, 50);
        }
        assert_true(end.came > came);
    }
    assert_int_equal(end.damaged, 0);
    assert_int_equal(stats_of(&end).damaged, 0);
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
    memcpy(bytes + PORT_END_HEAD, payload, len);
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

        assert_true(port_end_send(&end, payload, len, true) >= 0);
        for (unsigned i = 0; i < 2000 && took < 0; i++) {
            port_end_poll(&end);
            took = recv(fd, bytes, sizeof(bytes), 0);
            usleep(took < 0 ? 1000 : 0);
        }
        assert_int_equal(took, PORT_END_HEAD + len);
        assert_memory_equal(bytes + PORT_END_HEAD, payload, len);
        kernel_sends(fd, &end, len);
        assert_true(port_end_wait(&end, &end.came, came + 1, WAIT_MS));
        assert_int_equal(end.last_len, len);
    }
    assert_int_equal(end.damaged, 0);
    assert_int_equal(stats_of(&end).damaged, 0);
    close(fd);
    port_end_close(&end);
}

static int set_up(void **state)
{
    (void)state;
    has_namespace = geteuid() == 0 && unshare(CLONE_NEWNET) == 0;
    port_end_fill(payload, sizeof(payload));
    open_wire(WIRE); /* EAL is started */
    part();
    pool = rte_pktmbuf_pool_create("stranger", 1023, 0, 0, FRAME_ROOM + 128, SOCKET_ID_ANY);
    return pool != NULL ? 0 : -1;
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
        cmocka_unit_test(a_peer_without_a_mac_is_asked_for_it),
        cmocka_unit_test(a_gateway_is_asked_for_in_its_group),
        cmocka_unit_test(only_the_first_sound_answer_to_a_question_counts),
        cmocka_unit_test(who_asks_for_the_port_is_answered),
        cmocka_unit_test(questions_that_are_not_for_the_port_or_unsound_are_not_answered),
        cmocka_unit_test(random_frames_change_nothing),
        cmocka_unit_test(a_wire_of_memif_carries_ipv6),
        cmocka_unit_test(a_driver_that_computes_checksums_agrees_with_the_kernel),
    };

    if (argc < 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, set_up, NULL);
}
