/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as they are on the wire: what is made, what is taken, and what is dropped. */
#include "core/err.h"
#include "dpdk/port/port.h"
#include "core/log.h"
#include "testing/dpdk/forge.h"
#include "tests/unit/dpdk/port_pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_config.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

static uint8_t payload[9000];

/* What is on its way to the second end. */
static struct rte_mbuf *take_frame(void)
{
    void *frame = NULL;

    assert_int_equal(rte_ring_dequeue(rte_ring_lookup("sl_a_1"), &frame), 0);
    return frame;
}

/* A good frame of a's with 100 bytes, changed by the caller, goes on to b. */
static uint8_t *start_frame(struct port_end *a, struct rte_mbuf **out)
{
    assert_int_equal(port_end_send(a, payload, 100, false), 0);
    assert_int_equal(sl_dpdk_flush(a->user, a->port), 1);
    *out = take_frame();
    return rte_pktmbuf_mtod(*out, uint8_t *);
}

static void send_frame(struct rte_mbuf *frame)
{
    assert_int_equal(rte_ring_enqueue(rte_ring_lookup("sl_a_1"), frame), 0);
}

static void checksums_are_right_for_all_addresses_and_lengths(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        struct port_hello peer = b.own;

        peer.address.ip[2] = (uint8_t)(i * 37);
        peer.address.ip[3] = (uint8_t)(i * 101);
        assert_int_equal(sl_dpdk_way_make(a.port, &peer.address, 50000, (uint8_t)i, &a.way), 0);
        assert_int_equal(port_end_send(&a, payload, i * 8, false), 0);
        assert_int_equal(sl_dpdk_flush(a.user, a.port), 1);
        struct rte_mbuf *frame = take_frame();
        const uint8_t *ip = rte_pktmbuf_mtod_offset(frame, const uint8_t *, SL_FORGE_IP);
        assert_int_equal(rte_raw_cksum(ip, 20), 0xffff);
        assert_int_equal(ip[2] << 8 | ip[3], i * 8 + PORT_END_HEAD + 28);
        rte_pktmbuf_free(frame);
    }
    port_pair_close(&a, &b);
}

static void ignore(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes,
                   size_t len, bool is_marked)
{
    (void)arg, (void)port, (void)flow, (void)bytes, (void)len, (void)is_marked;
}

static void frames_for_others_are_counted_and_dropped(void **state)
{
    static const struct {
        unsigned at, value;
        bool good_sum;
    } cases[] = {
        {12, 0x86dd, true},                /* IPv6 */
        {SL_FORGE_IP, 0x4602, true},       /* with options */
        {SL_FORGE_IP, 0x6502, true},       /* version 6 */
        {SL_FORGE_IP + 6, 0x2000, true},   /* fragments */
        {SL_FORGE_IP + 6, 0x4001, true},   /* the last one */
        {SL_FORGE_IP + 8, 0x4006, true},   /* TCP */
        {SL_FORGE_IP + 10, 0x1234, false}, /* a wrong checksum */
        {SL_FORGE_IP + 16, 0x0808, true},  /* another address, either half */
        {SL_FORGE_IP + 18, 0x0808, true},
        {SL_FORGE_UDP + 2, 0x0808, true}, /* another port */
        {SL_FORGE_IP + 2, 161, true},     /* one byte more than there is */
        {SL_FORGE_IP + 2, 0xffff, true},  /* as many as can be */
        {SL_FORGE_IP + 2, 159, true},     /* less than UDP says */
        {SL_FORGE_UDP + 4, 141, true},    /* UDP says more than IP */
        {SL_FORGE_UDP + 4, 0, true},      /* nothing */
        {SL_FORGE_UDP + 4, 8 + 31, true}, /* one less than a header of ours */
    };
    struct sl_dpdk_port_stats before, after;
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    sl_dpdk_port_stats(b.port, &before);
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct rte_mbuf *frame;
        uint8_t *bytes = start_frame(&a, &frame);

        sl_forge_put_16(bytes + cases[i].at, cases[i].value);
        if (cases[i].good_sum)
            sl_forge_checksum(bytes);
        send_frame(frame);
        assert_false(port_end_wait(&b, &b.came, 1, 1));
        sl_dpdk_port_stats(b.port, &after);
        if (after.foreign != before.foreign + i + 1)
            fail_msg("case %zu was not counted", i);
    }
    assert_int_equal(after.received, before.received);
    port_pair_close(&a, &b);
}

/* Eight to all, of an unknown type. */
static void send_foreign(struct port_end *a)
{
    struct rte_mbuf *frames[8];

    for (unsigned i = 0; i < SL_ARRAY_LEN(frames); i++)
        memset(start_frame(a, &frames[i]), 0xff, 14);
    for (unsigned i = 0; i < SL_ARRAY_LEN(frames); i++)
        send_frame(frames[i]);
}

/* Who sleeps is not kept awake by what is for others; but who may have left some behind comes back,
 * and a packet of another engine is news. */
static void frames_for_others_are_no_news(void **state)
{
    struct port_end a, b;
    struct sl_dpdk_user *other;
    struct rte_mbuf *frame;
    uint32_t flow = 0;

    (void)state;
    port_pair_open(&a, &b, NULL);
    assert_int_equal(sl_dpdk_user_open(ignore, NULL, NULL, &other), 0);
    assert_int_equal(sl_dpdk_flow_number(other, &flow), 0);
    send_foreign(&a);
    assert_int_equal(sl_dpdk_user_poll(b.user, b.port, 64), 0);
    send_foreign(&a);
    assert_int_equal(sl_dpdk_user_poll(b.user, b.port, 8), 1);
    assert_int_equal(sl_dpdk_user_poll(b.user, b.port, 8), 0);
    a.peer.flow = flow;
    (void)start_frame(&a, &frame);
    send_frame(frame);
    assert_int_equal(sl_dpdk_user_poll(b.user, b.port, 8), 1);
    assert_int_equal(b.came, 0);
    sl_dpdk_user_close(other);
    port_pair_close(&a, &b);
}

/* Ethernet's least length; and a second segment that is nothing else. */
static void padding_is_cut_off(void **state)
{
    struct rte_mbuf *frame, *more;
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    (void)start_frame(&a, &frame);
    memset(rte_pktmbuf_append(frame, 20), 0x55, 20);
    send_frame(frame);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    assert_int_equal(b.last_len, 100);
    (void)start_frame(&a, &frame);
    more = rte_pktmbuf_copy(frame, frame->pool, 0, 20);
    assert_int_equal(rte_pktmbuf_chain(frame, more), 0);
    send_frame(frame);
    assert_true(port_end_wait(&b, &b.came, 2, WAIT_MS));
    assert_int_equal(b.last_len, 100);
    assert_int_equal(b.damaged, 0);
    port_pair_close(&a, &b);
}

static void random_frames_reach_nobody(void **state)
{
    struct port_end a, b;
    uint64_t chance = 88172645463325252u;
    uint8_t junk[200], head[32];

    (void)state;
    port_pair_open(&a, &b, NULL);
    for (unsigned round = 0; round < 20000; round++) {
        struct sl_dpdk_way way = a.way;

        for (size_t i = 0; i < sizeof(junk); i++) {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            junk[i] = (uint8_t)(chance >> 24);
        }
        memcpy(head, junk + 100, sizeof(head));
        if (round % 2 == 0) /* headers that are nearly good */
            way.head[junk[0] % sizeof(way.head)] = junk[1];
        else
            memcpy(way.head + 12, junk, sizeof(way.head) - 12);
        (void)sl_dpdk_send(a.user, a.port, &way, head, junk[2] % 33, junk, junk[3] % 128, NULL,
                           false, 0);
        port_end_poll(&a);
        port_end_poll(&b);
    }
    assert_int_equal(b.came, 0);
    port_pair_close(&a, &b);
}

/* ---- marks and ways ---- */

static void a_packet_that_was_marked_on_its_way_is_told(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    assert_int_equal(a.way.head[15] & 3, 2); /* may be marked */
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    a.way.head[15] |= 3; /* as a switch does it: the checksum as well */
    uint16_t sum = (uint16_t)((a.way.head[24] << 8 | a.way.head[25]) - 1);
    a.way.head[24] = (uint8_t)(sum >> 8);
    a.way.head[25] = (uint8_t)sum;
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 2, WAIT_MS));
    assert_int_equal(b.marked, 1);
    port_pair_close(&a, &b);
}

static void the_traffic_class_and_the_source_port_are_in_the_headers(void **state)
{
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    assert_int_equal(sl_dpdk_way_make(a.port, &b.own.address, 0xc123, 0x68, &a.way), 0);
    assert_int_equal(a.way.head[15], 0x6a);
    assert_int_equal(a.way.head[34], 0xc1);
    assert_int_equal(a.way.head[35], 0x23);
    assert_int_equal(port_end_send(&a, payload, 100, false), 0);
    port_end_poll(&a);
    assert_true(port_end_wait(&b, &b.came, 1, WAIT_MS));
    port_pair_close(&a, &b);
}

static void a_peer_without_a_mac_is_asked_for_it(void **state)
{
    struct port_hello peer;
    struct port_end a, b;
    int err;

    (void)state;
    port_pair_open(&a, &b, NULL);
    peer = b.own;
    memset(peer.address.mac, 0, 6);
    assert_int_equal(port_end_connect(&a, &peer, 50000), -EAGAIN);
    for (unsigned i = 0; i < 1000 && (err = port_end_connect(&a, &peer, 50000)) == -EAGAIN; i++) {
        port_end_poll(&b);
        port_end_poll(&a);
    }
    assert_int_equal(err, 0);
    assert_memory_equal(a.way.head, b.own.address.mac, 6);
    port_pair_close(&a, &b);
}

static void a_peer_in_another_subnet_needs_a_gateway(void **state)
{
    struct port_hello peer;
    struct port_end a, b;

    (void)state;
    port_pair_open(&a, &b, NULL);
    peer = b.own;
    peer.address.ip[0] = 10;
    assert_int_equal(port_end_connect(&a, &peer, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "@gw="));
    port_pair_close(&a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_right_for_all_addresses_and_lengths),
        cmocka_unit_test(frames_for_others_are_counted_and_dropped),
        cmocka_unit_test(frames_for_others_are_no_news),
        cmocka_unit_test(padding_is_cut_off),
        cmocka_unit_test(random_frames_reach_nobody),
        cmocka_unit_test(a_packet_that_was_marked_on_its_way_is_told),
        cmocka_unit_test(the_traffic_class_and_the_source_port_are_in_the_headers),
        cmocka_unit_test(a_peer_without_a_mac_is_asked_for_it),
        cmocka_unit_test(a_peer_in_another_subnet_needs_a_gateway),
    };

    if (getenv("PEER_LOG") != NULL)
        sl_log_configure(getenv("PEER_LOG"));
    port_end_fill(payload, sizeof(payload));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
