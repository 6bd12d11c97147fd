/* SPDX-License-Identifier: Apache-2.0 */
/* What peers say of ports and flows: refused where it makes no sense; what both ends agree on; and
 * which ports are on one wire. */
#include "tests/unit/dpdk/dpdk_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* struct sl_mp_offer.lane, as docs/wire.md has it */
enum { NUMBER = 0, SECRET = 4, VERSION_LEAST = 12, VERSION_MOST = 13, FLAGS = 14, ROUTES = 15 };
/* struct sl_mp_rail_info */
enum { MAC = 0, IP = 6, PREFIX = 10, PREFIX6 = 11, IP6 = 18, FRAME_MOST = 35 };

static struct sl_mp_control offer_of(unsigned side, unsigned idx)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_OFFER};
    struct sl_mp_path *path = &world_lane(side, idx)->base;

    sl_dpdk_rail_describe(path->rail, &control.offer.rail);
    sl_dpdk_offer(path, &control.offer);
    return control;
}

static int setup(void **state)
{
    (void)state;
    world_prepare();
    world_join();
    return 0;
}

static void an_offer_says_number_secret_versions_and_routes(void **state)
{
    struct sl_mp_control control = offer_of(0, 0);
    const struct sl_dpdk_lane *lane = world_lane(0, 0);

    (void)state;
    assert_memory_equal(control.offer.lane + NUMBER, &lane->number, 4);
    assert_memory_equal(control.offer.lane + SECRET, &lane->secret, 8);
    assert_int_equal(control.offer.lane[VERSION_LEAST], 1);
    assert_int_equal(control.offer.lane[VERSION_MOST], SL_DP_VERSION);
    assert_int_equal(control.offer.lane[ROUTES], 1);
    assert_int_equal(sl_dpdk_control_check(&control), 0);
    assert_true(lane->secret != world_lane(0, 1)->secret);
    assert_true(lane->secret != world_lane(1, 0)->secret);
}

/* The control message of a case, with a byte or several set to a value. */
static int with(unsigned at, unsigned count, uint8_t value)
{
    struct sl_mp_control control = offer_of(0, 0);

    memset(control.offer.lane + at, value, count);
    return sl_dpdk_control_check(&control);
}

static int with_rail(unsigned at, unsigned count, uint8_t value)
{
    struct sl_mp_control control = offer_of(0, 0), hello = {.kind = SL_MP_CONTROL_HELLO};
    int err;

    memset((uint8_t *)&control.offer.rail + at, value, count);
    err = sl_dpdk_control_check(&control);
    hello.hello.rails[3] = control.offer.rail;
    assert_int_equal(sl_dpdk_control_check(&hello), err);
    return err;
}

static void offers_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    assert_int_equal(with(NUMBER, 4, 0), -EBADMSG);
    assert_int_equal(with(ROUTES, 1, 0), -EBADMSG);
    assert_int_equal(with(ROUTES, 1, SL_DP_ROUTES_MAX), 0);
    assert_int_equal(with(ROUTES, 1, SL_DP_ROUTES_MAX + 1), -EBADMSG);
    assert_int_equal(with(VERSION_LEAST, 1, 0), -EBADMSG);
    assert_int_equal(with(VERSION_LEAST, 1, SL_DP_VERSION + 1), -EBADMSG);
    assert_int_equal(with_rail(PREFIX, 1, 32), 0);
    assert_int_equal(with_rail(PREFIX, 1, 33), -EBADMSG);
    assert_int_equal(with_rail(MAC, 1, 1), -EBADMSG);
    assert_int_equal(with_rail(FRAME_MOST, 2, 2), -EBADMSG); /* 514 */
    assert_int_equal(with_rail(FRAME_MOST, 2, 3), 0);        /* 771 */
    assert_int_equal(with_rail(PREFIX6, 1, 128), 0);
    assert_int_equal(with_rail(PREFIX6, 1, 129), -EBADMSG);
    assert_int_equal(with_rail(IP6, 16, 0xfd), 0);
    assert_int_equal(with_rail(IP6, 16, 0xff), -EBADMSG); /* a group */
    assert_int_equal(with_rail(IP, 4, 0), -EBADMSG);      /* no address at all */
    assert_int_equal(with_rail(IP6, 19, 3), -EBADMSG);    /* 771 bytes, and IPv6 */
}

static struct sl_dp_ends agreed(const struct sl_mp_control *control)
{
    struct sl_dp_ends ends;

    assert_int_equal(sl_dpdk_agree(world_lane(1, 0), &control->offer, &ends), 0);
    return ends;
}

static void both_ends_agree_on_versions_checks_and_sizes(void **state)
{
    struct sl_mp_control control = offer_of(0, 0);
    struct sl_dp_ends ends = agreed(&control);

    (void)state;
    assert_int_equal(ends.own_number, world_lane(1, 0)->number);
    assert_int_equal(ends.peer_number, world_lane(0, 0)->number);
    assert_true(ends.own_secret == world_lane(1, 0)->secret);
    assert_true(ends.peer_secret == world_lane(0, 0)->secret);
    assert_int_equal(ends.version, SL_DP_VERSION);
    assert_false(ends.crc);
    assert_int_equal(ends.payload_most, 9014 - 74);
    assert_int_equal(ends.payload_least, 9014 - 74); /* one wire */
    control.offer.lane[FLAGS] = 1;
    ends = agreed(&control);
    assert_true(ends.crc);
    assert_int_equal(ends.payload_most, 9014 - 74 - 4);
    control.offer.lane[VERSION_MOST] = SL_DP_VERSION + 3; /* a newer one, that knows ours */
    assert_int_equal(agreed(&control).version, SL_DP_VERSION);
}

static void through_a_network_large_packets_are_tried_first(void **state)
{
    struct sl_mp_control control = offer_of(0, 0);
    struct sl_dp_ends ends;

    (void)state;
    world_lane(1, 0)->is_direct = false;
    ends = agreed(&control);
    assert_int_equal(ends.payload_most, 9014 - 74);
    assert_int_equal(ends.payload_least, 1514 - 74);
    memset((uint8_t *)&control.offer.rail + FRAME_MOST, 3, 2); /* 771: of the peer's port */
    ends = agreed(&control);
    assert_int_equal(ends.payload_most, 771 - 74);
    assert_int_equal(ends.payload_least, 771 - 74);
}

static void packets_are_no_larger_than_the_protocol_takes(void **state)
{
    struct sl_dpdk_lane *lane = world_lane(1, 0);
    struct sl_mp_control control = offer_of(0, 0);
    uint32_t own = lane->rail->info.frame_most;
    struct sl_dp_flow *flow;
    struct sl_dp_ends ends;

    (void)state;
    lane->rail->info.frame_most = 16384 + 14; /* @mtu=16384 */
    memset((uint8_t *)&control.offer.rail + FRAME_MOST, 0x40, 2);
    for (unsigned i = 0; i < 4; i++) {
        lane->is_direct = i % 2 == 0;
        control.offer.lane[FLAGS] = i / 2;
        ends = agreed(&control);
        assert_int_equal(ends.payload_most, SL_DP_PAYLOAD_MOST);
        assert_int_equal(sl_dp_flow_open(&world_iface(1)->engine, &ends, NULL, &flow), 0);
        sl_dp_flow_close(flow);
    }
    lane->rail->info.frame_most = own;
}

static void versions_that_do_not_meet_are_refused(void **state)
{
    struct sl_mp_control control = offer_of(0, 0);
    struct sl_dp_ends ends;

    (void)state;
    control.offer.lane[VERSION_LEAST] = SL_DP_VERSION + 1;
    control.offer.lane[VERSION_MOST] = SL_DP_VERSION + 2;
    assert_int_equal(sl_dpdk_agree(world_lane(1, 0), &control.offer, &ends), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "versions 2 to 3"));
}

/* How a port with this address is reached from one with that. */
static enum sl_mp_reach reach(uint32_t ours_segment, const uint8_t ours[4], uint32_t theirs_segment,
                              const uint8_t theirs[4])
{
    struct sl_dpdk_rail rail = *(struct sl_dpdk_rail *)world_lane(0, 0)->base.rail, remote = rail;
    struct sl_mp_rail_info info;

    rail.info.address.segment = ours_segment;
    memcpy(rail.info.address.ip, ours, 4);
    remote.info.address.segment = theirs_segment;
    memcpy(remote.info.address.ip, theirs, 4);
    remote.info.address.mac[5] ^= memcmp(ours, theirs, 4) == 0 && ours_segment == 7 ? 0 : 0x80;
    sl_dpdk_rail_describe(&remote.base, &info);
    return sl_dpdk_rail_reach(&rail, &info);
}

static void set_ip6(struct sl_dpdk_address *address, uint8_t net, uint8_t host)
{
    static const uint8_t first[3] = {0xfd, 0, 1};

    memcpy(address->ip6, first, sizeof(first));
    address->ip6[7] = net;
    address->ip6[15] = host;
    address->prefix6 = net != 0 ? 64 : 0;
    if (net == 0)
        memset(address->ip6, 0, 16);
}

/* Two ports with IPv4 addresses in these nets (0: none) and IPv6 addresses in those: how they reach
 * each other, the same both ways, and whether it is by IPv6. */
static enum sl_mp_reach reach6(const uint8_t nets[4], uint8_t gateways, bool *by_ip6)
{
    struct sl_dpdk_rail rails[2];
    struct sl_mp_rail_info infos[2];
    enum sl_mp_reach reaches[2];
    bool is_ip6[2];

    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_address *address = &rails[i].info.address;

        rails[i] = *(struct sl_dpdk_rail *)world_lane(0, 0)->base.rail;
        address->segment = 0;
        address->mac[5] ^= (uint8_t)(i * 0x80);
        memcpy(address->ip, (const uint8_t[]){10, 1, nets[i], (uint8_t)(1 + i)}, 4);
        if (nets[i] == 0)
            address->prefix = address->ip[0] = 0;
        set_ip6(address, nets[2 + i], (uint8_t)(1 + i));
        rails[i].info.has_gateway = (gateways & 1) != 0;
        rails[i].info.has_gateway6 = (gateways & 2) != 0;
        sl_dpdk_rail_describe(&rails[i].base, &infos[i]);
        assert_int_equal(sl_dpdk_rail_info_check(&infos[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct sl_dpdk_rail_info info = sl_dpdk_rail_info_of(&infos[!i]);
        struct sl_dpdk_address peer = sl_dpdk_rail_towards(&rails[i], &info);

        reaches[i] = sl_dpdk_rail_reach(&rails[i], &infos[!i]);
        is_ip6[i] = sl_dpdk_has_ip6(&peer);
        assert_true(is_ip6[i] != sl_dpdk_has_ip4(&peer)); /* one family alone */
    }
    assert_int_equal(reaches[0], reaches[1]);
    if (reaches[0] != SL_MP_REACH_NEVER)
        assert_int_equal(is_ip6[0], is_ip6[1]);
    *by_ip6 = is_ip6[0];
    return reaches[0];
}

static void both_ends_choose_the_same_ip_version(void **state)
{
    static const struct {
        uint8_t nets[4], gateways; /* IPv4 here, there; IPv6 here, there */
        enum sl_mp_reach reach;
        bool by_ip6;
    } cases[] = {
        {{1, 1, 0, 0}, 0, SL_MP_REACH_DIRECT, false}, {{0, 0, 1, 1}, 0, SL_MP_REACH_DIRECT, true},
        {{1, 1, 1, 1}, 0, SL_MP_REACH_DIRECT, false}, {{1, 0, 0, 1}, 3, SL_MP_REACH_NEVER, false},
        {{1, 1, 0, 1}, 0, SL_MP_REACH_DIRECT, false}, {{0, 1, 1, 1}, 0, SL_MP_REACH_DIRECT, true},
        {{1, 2, 1, 1}, 3, SL_MP_REACH_DIRECT, true},  {{1, 1, 1, 2}, 3, SL_MP_REACH_DIRECT, false},
        {{0, 0, 1, 2}, 0, SL_MP_REACH_ROUTED, true},  {{1, 2, 1, 2}, 3, SL_MP_REACH_ROUTED, false},
        {{1, 2, 1, 2}, 2, SL_MP_REACH_ROUTED, true},  {{1, 2, 1, 2}, 1, SL_MP_REACH_ROUTED, false},
    };
    bool by_ip6;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        if (reach6(cases[i].nets, cases[i].gateways, &by_ip6) != cases[i].reach)
            fail_msg("case %zu is reached otherwise", i);
        if (cases[i].reach != SL_MP_REACH_NEVER && by_ip6 != cases[i].by_ip6)
            fail_msg("case %zu goes by the other version", i);
    }
}

static void packets_over_ipv6_have_20_bytes_less_payload(void **state)
{
    struct sl_dpdk_lane *lane = world_lane(1, 0);
    struct sl_mp_control control = offer_of(0, 0);
    struct sl_dpdk_address own = lane->rail->info.address;
    struct sl_dpdk_rail_info info = sl_dpdk_rail_info_of(&control.offer.rail);
    struct sl_dp_ends ends;

    (void)state;
    set_ip6(&lane->rail->info.address, 1, 1);
    info.prefix6 = 64;
    memcpy(info.ip6, lane->rail->info.address.ip6, 16);
    info.ip6[15] = 9;
    memset(info.ip, 0, 4);
    memcpy(&control.offer.rail, &info, sizeof(info));
    assert_int_equal(sl_dpdk_control_check(&control), 0);
    for (unsigned i = 0; i < 2; i++) {
        lane->is_direct = i == 0;
        control.offer.lane[FLAGS] = (uint8_t)i;
        ends = agreed(&control);
        assert_int_equal(ends.payload_most, 9014 - 94 - 4 * i);
        assert_int_equal(ends.payload_least, i == 0 ? 9014 - 94 : 1514 - 98);
    }
    lane->rail->info.address = own;
    lane->is_direct = true;
}

static void wires_and_subnets_say_who_reaches_whom(void **state)
{
    static const uint8_t a[4] = {10, 1, 0, 1}, b[4] = {10, 1, 0, 200}, far[4] = {10, 2, 0, 1};
    static const uint8_t local[4] = {169, 254, 3, 4}, local2[4] = {169, 254, 9, 9};

    (void)state;
    assert_int_equal(reach(5, a, 5, far), SL_MP_REACH_DIRECT);
    assert_int_equal(reach(5, a, 6, b), SL_MP_REACH_NEVER);
    assert_int_equal(reach(7, a, 7, a), SL_MP_REACH_NEVER); /* a port and itself */
    assert_int_equal(reach(0, a, 0, b), SL_MP_REACH_DIRECT);
    assert_int_equal(reach(0, a, 6, b), SL_MP_REACH_DIRECT);
    assert_int_equal(reach(0, a, 0, far), SL_MP_REACH_ROUTED);
    assert_int_equal(reach(0, local, 0, local2), SL_MP_REACH_UNKNOWN);
    assert_int_equal(reach(0, local, 0, a), SL_MP_REACH_NEVER);
}

static void ports_are_joined_by_their_wires(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(world_conn(i)->path_count, 2);
        for (unsigned p = 0; p < 2; p++) {
            const struct sl_mp_path *path = world_conn(i)->paths[p];

            assert_int_equal(path->rail->idx, path->remote_rail);
            assert_true(world_lane(i, p)->is_direct);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offer_says_number_secret_versions_and_routes),
        cmocka_unit_test(offers_that_make_no_sense_are_refused),
        cmocka_unit_test(both_ends_agree_on_versions_checks_and_sizes),
        cmocka_unit_test(versions_that_do_not_meet_are_refused),
        cmocka_unit_test(wires_and_subnets_say_who_reaches_whom),
        cmocka_unit_test(both_ends_choose_the_same_ip_version),
        cmocka_unit_test(packets_over_ipv6_have_20_bytes_less_payload),
        cmocka_unit_test(ports_are_joined_by_their_wires),
        cmocka_unit_test(through_a_network_large_packets_are_tried_first),
        cmocka_unit_test(packets_are_no_larger_than_the_protocol_takes),
    };

    return cmocka_run_group_tests(tests, setup, world_clean);
}
