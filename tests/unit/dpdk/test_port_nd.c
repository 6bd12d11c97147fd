/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbour discovery of ports: who asks, answers and lies. */
#include "core/err.h"
#include "core/rng.h"
#include "dpdk/port/inside.h"
#include "dpdk/port/nd.h"
#include "tests/unit/dpdk/six_wire.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const uint8_t good[6] = {2, 1, 1, 1, 1, 1}, evil[6] = {2, 0xee, 0xee, 0xee, 0xee, 0xee};
static const uint8_t router[16] = {0xfe, 0x80, [15] = 1};
static const uint8_t own6[16] = {0xfd, 0, 0, 1, [15] = 1};

static void a_peer_without_a_mac_is_asked_for_it(void **state)
{
    struct port_hello peer;
    int err = -EAGAIN;

    (void)state;
    six_join(SIX_WIRE);
    peer = six.b.own;
    memset(peer.address.mac, 0, 6);
    assert_int_equal(port_end_connect(&six.a, &peer, 50000), -EAGAIN);
    assert_non_null(strstr(sluice_last_error(), "the MAC of fd00:1::2"));
    for (unsigned i = 0; i < 1000 && (err = port_end_connect(&six.a, &peer, 50000)) == -EAGAIN;
         i++) {
        port_end_poll(&six.b);
        port_end_poll(&six.a);
    }
    assert_int_equal(err, 0);
    assert_memory_equal(six.a.way.head, six.b.own.address.mac, 6);
    six_part();
}

/* The question after the gateway, byte by byte. */
static void a_gateway_is_asked_for_in_its_group(void **state)
{
    static const uint8_t group[16] = {0xff, 2, [11] = 1, 0xff, 0, 0, 1};
    struct port_hello far;
    struct six_frame frame;

    (void)state;
    six_open(SIX_WIRE);
    far = six.b.own;
    far.address.ip6[5] = 9;
    assert_int_equal(port_end_connect(&six.a, &far, 50000), -EAGAIN);
    assert_true(six_take(1, &frame));
    assert_int_equal(frame.len, 86);
    assert_memory_equal(frame.bytes, "\x33\x33\xff\x00\x00\x01", 6);
    assert_memory_equal(frame.bytes + 6, six.a.own.address.mac, 6);
    assert_memory_equal(frame.bytes + 12, "\x86\xdd\x60\x00\x00\x00\x00\x20\x3a\xff", 10);
    assert_memory_equal(frame.bytes + 22, own6, 16);
    assert_memory_equal(frame.bytes + 38, group, 16);
    assert_memory_equal(frame.bytes + 54, "\x87\x00", 2);
    assert_memory_equal(frame.bytes + 58, "\x00\x00\x00\x00", 4);
    assert_memory_equal(frame.bytes + 62, router, 16);
    assert_memory_equal(frame.bytes + 78, "\x01\x01", 2);
    assert_memory_equal(frame.bytes + 80, six.a.own.address.mac, 6);
    assert_int_equal(six_sum_of(frame.bytes, 58), 0xffff);
    six_part();
    six_open("ring:six/0@ip=fd00:1::1/64 ring:six/1@ip=fd00:1::2/64"); /* without one */
    assert_int_equal(port_end_connect(&six.a, &far, 50000), -EHOSTUNREACH);
    assert_non_null(strstr(sluice_last_error(), "@gw="));
    six_part();
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
    sum = (uint16_t)~six_sum_of(frame, 58);
    frame[56] = (uint8_t)(sum >> 8);
    frame[57] = (uint8_t)sum;
}

static void say(const uint8_t mac[6], const struct change *change)
{
    struct sl_dpdk_nd nd = {.is_answer = true, .is_solicited = true};
    uint8_t frame[SL_DPDK_ND_FRAME];

    memcpy(nd.ether, six.a.own.address.mac, 6);
    memcpy(nd.from, router, 16);
    memcpy(nd.to, own6, 16);
    memcpy(nd.target, router, 16);
    sl_dpdk_nd_write(&nd, mac, frame);
    if (change != NULL)
        change_frame(frame, change);
    six_put(0, frame, sizeof(frame));
    port_end_poll(&six.a);
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
    struct six_frame frame;

    (void)state;
    six_open(SIX_WIRE);
    far = six.b.own;
    far.address.ip6[5] = 9;
    say(evil, NULL); /* before the question */
    assert_int_equal(port_end_connect(&six.a, &far, 50000), -EAGAIN);
    for (size_t i = 0; i < SL_ARRAY_LEN(lies); i++) {
        say(evil, &lies[i]);
        if (port_end_connect(&six.a, &far, 50000) != -EAGAIN)
            fail_msg("an answer counts that is %s", lies[i].what);
    }
    say(good, NULL);
    say(evil, NULL); /* too late */
    assert_int_equal(port_end_connect(&six.a, &far, 50000), 0);
    assert_memory_equal(six.a.way.head, good, 6);
    while (six_take(1, &frame))
        ;
    six_part();
}

static void ask(const struct sl_dpdk_nd *nd, const struct change *change)
{
    uint8_t frame[SL_DPDK_ND_FRAME];

    sl_dpdk_nd_write(nd, good, frame);
    if (change != NULL)
        change_frame(frame, change);
    six_put(0, frame, sizeof(frame));
    port_end_poll(&six.a);
}

static struct sl_dpdk_nd question(bool in_group)
{
    struct sl_dpdk_nd nd = {0};

    memcpy(nd.ether, six.a.own.address.mac, 6);
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
    struct six_frame frame;

    assert_true(six_take(1, &frame));
    assert_true(sl_dpdk_nd_read(frame.bytes, frame.len, &nd));
    assert_int_equal(six_sum_of(frame.bytes, 58), 0xffff);
    assert_true(nd.is_answer);
    assert_int_equal(nd.is_solicited, !to_all);
    assert_memory_equal(frame.bytes, to_all ? (const uint8_t *)"\x33\x33\0\0\0\1" : good, 6);
    assert_memory_equal(nd.to, to_all ? all : router, 16);
    assert_memory_equal(nd.from, own6, 16);
    assert_memory_equal(nd.target, own6, 16);
    assert_true(nd.has_mac);
    assert_memory_equal(nd.mac, six.a.own.address.mac, 6);
    assert_false(six_take(1, &frame));
}

static void who_asks_for_the_port_is_answered(void **state)
{
    struct sl_dpdk_nd nd;
    uint8_t frame[SL_DPDK_ND_FRAME];

    (void)state;
    six_open(SIX_WIRE);
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
    six_put(0, frame, 78);
    port_end_poll(&six.a);
    answered(true);
    six_part();
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
    struct six_frame frame;

    (void)state;
    six_open(SIX_WIRE);
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        nd = question(true);
        ask(&nd, &bad[i]);
        if (six_take(1, &frame))
            fail_msg("a question is answered that is %s", bad[i].what);
    }
    nd = question(true); /* of nobody, with a MAC */
    memset(nd.from, 0, 16);
    ask(&nd, NULL);
    assert_false(six_take(1, &frame));
    nd = question(false); /* of nobody, not to the group */
    memset(nd.from, 0, 16);
    ask(&nd, NULL);
    assert_false(six_take(1, &frame));
    sl_dpdk_nd_write(&nd, good, bytes); /* and with no MAC */
    bytes[19] = 24;
    change_frame(bytes, &(struct change){0});
    six_put(0, bytes, 78);
    port_end_poll(&six.a);
    assert_false(six_take(1, &frame));
    six_part();
}

/* Whatever bytes: nothing breaks, and nobody is believed. */
static void random_frames_change_nothing(void **state)
{
    struct port_hello far;
    struct sl_rng rng;
    struct six_frame frame;

    (void)state;
    six_open(SIX_WIRE);
    sl_rng_init(&rng, 11);
    far = six.b.own;
    far.address.ip6[5] = 9;
    assert_int_equal(port_end_connect(&six.a, &far, 50000), -EAGAIN);
    for (unsigned i = 0; i < 3000; i++) {
        struct sl_dpdk_nd nd = question(i % 2 == 0);
        uint8_t bytes[SL_DPDK_ND_FRAME];

        nd.is_answer = i % 3 == 0;
        sl_dpdk_nd_write(&nd, evil, bytes);
        for (uint64_t n = 1 + sl_rng_below(&rng, 6); n > 0; n--)
            bytes[12 + sl_rng_below(&rng, sizeof(bytes) - 12)] = (uint8_t)sl_rng_u64(&rng);
        if (i % 4 != 0)
            change_frame(bytes, &(struct change){.keeps_check = bytes[18] != 0 || bytes[19] > 32});
        six_put(0, bytes, i % 5 == 0 ? sl_rng_below(&rng, sizeof(bytes)) : sizeof(bytes));
        port_end_poll(&six.a);
        while (six_take(1, &frame))
            ;
    }
    assert_int_equal(port_end_connect(&six.a, &far, 50000), -EAGAIN);
    six_part();
}

static int set_up(void **state)
{
    (void)state;
    return six_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_without_a_mac_is_asked_for_it),
        cmocka_unit_test(a_gateway_is_asked_for_in_its_group),
        cmocka_unit_test(only_the_first_sound_answer_to_a_question_counts),
        cmocka_unit_test(who_asks_for_the_port_is_answered),
        cmocka_unit_test(questions_that_are_not_for_the_port_or_unsound_are_not_answered),
        cmocka_unit_test(random_frames_change_nothing),
    };

    return cmocka_run_group_tests_name("dpdk_port_nd", tests, set_up, NULL);
}
