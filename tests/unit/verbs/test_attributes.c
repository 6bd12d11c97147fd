/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of queue pairs that fabrics and devices ask for: partitions, LIDs, rates, and
 * what goes beyond the standard (ECE). */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"
#include "verbs/pkey.h"
#include "verbs/rate.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint16_t keys[2][2][FAKE_IBV_PKEYS]; /* by side, rail and index */

static void infiniband(struct fake_ibv_device *params)
{
    params->ports[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    params->ports[0].attr.sm_lid = 1;
}

static void with_keys(struct fake_ibv_device *params)
{
    unsigned side = (unsigned)(params->name[0] - 'a'), rail = (unsigned)atoi(params->name + 1);

    infiniband(params);
    memcpy(params->ports[0].pkeys, keys[side][rail], sizeof(keys[side][rail]));
}

static struct sl_verbs_path *path_of(unsigned side, unsigned path)
{
    return sl_verbs_path_of(world_ep(side)->paths[path]);
}

static struct fake_ibv_qp_info info_of(unsigned side, unsigned path)
{
    struct fake_ibv_qp_info info;

    fake_ibv_qp_info(world_fake, path_of(side, path)->qp, &info);
    return info;
}

static void wait_for_paths(unsigned count)
{
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == count);
}

/* Two that cannot: what side 0, which leads, says. */
static const char *join_in_vain(void)
{
    static char why[SL_ERROR_TEXT_MAX];
    struct sl_addr addr[2];
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};

    world_open();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_addr(world[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_connect(world[i].ep, &addr[!i], &req[i]), 0);
    WORLD_UNTIL(req[0].status != SL_PENDING);
    snprintf(why, sizeof(why), "%s", sluice_last_error());
    WORLD_UNTIL(req[1].status != SL_PENDING);
    assert_int_equal(req[0].status, -EHOSTUNREACH);
    assert_true(req[1].status < 0);
    return why;
}

static void set_keys(const uint16_t first[2], const uint16_t second[2])
{
    memset(keys, 0, sizeof(keys));
    for (unsigned rail = 0; rail < 2; rail++) {
        keys[0][rail][0] = first[rail];
        keys[1][rail][0] = second[rail];
    }
}

/* ---- partitions ---- */

static void rails_are_paired_within_their_partitions(void **state)
{
    (void)state;
    set_keys((uint16_t[2]){0x8001, 0x8002}, (uint16_t[2]){0x8002, 0x8001});
    world_prepare(with_keys);
    world_join();
    wait_for_paths(2);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            const struct sl_mp_path *path = world_ep(side)->paths[i];

            assert_int_not_equal(path->rail->idx, path->remote_rail);
        }
    world_message(100000);
}

static void limited_members_talk_to_full_ones_alone(void **state)
{
    (void)state;
    set_keys((uint16_t[2]){0x0001, 0x8001}, (uint16_t[2]){0x0001, 0x8001});
    world_prepare(with_keys);
    world_join();
    wait_for_paths(2);
    world_message(100000);
    for (unsigned i = 0; i < 2; i++)
        assert_int_not_equal(world_ep(0)->paths[i]->rail->idx, world_ep(0)->paths[i]->remote_rail);
    world_end();

    set_keys((uint16_t[2]){0x0001, 0x0001}, (uint16_t[2]){0x0001, 0x0001});
    world_prepare(with_keys);
    assert_non_null(
        strstr(join_in_vain(),
               "port a0:1 has no P_Key that talks to the peer's 0x0001: both must be in one "
               "partition, one as a full member; it has 0x0001"));
}

/* Each tells the first that it has, and takes the one that suits the other's. */
static void of_several_keys_the_one_that_both_have_is_taken(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const uint16_t side_0[FAKE_IBV_PKEYS] = {0x7fff, 0x8003, 0, 0x8005};
        const uint16_t side_1[FAKE_IBV_PKEYS] = {0x7fff, 0x8004, 0x8003};

        memcpy(keys[0][i], side_0, sizeof(side_0));
        memcpy(keys[1][i], side_1, sizeof(side_1));
    }
    world_prepare(with_keys);
    snprintf(sl_verbs_config_edit(&world[1].config)->pkey, SL_TEXT_MAX, "0x3");
    world_join();
    wait_for_paths(2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(path_of(0, i)->pkey.key, 0x8003);
        assert_int_equal(info_of(0, i).pkey_index, 1);
        assert_int_equal(info_of(1, i).pkey_index, 2);
    }
    world_message(100000);
}

static void a_key_that_moves_takes_its_paths_along(void **state)
{
    (void)state;
    set_keys((uint16_t[2]){0x8001, 0x8001}, (uint16_t[2]){0x8001, 0x8001});
    world_prepare(with_keys);
    world_join();
    wait_for_paths(2);
    uint64_t ups = world_ep(0)->paths[0]->stats.ups;

    fake_ibv_pkey_set(world_fake, 0, 1, 3, 0x8001);
    fake_ibv_pkey_set(world_fake, 0, 1, 0, 0x7fff);
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups > ups && world_ep(1)->paths_up == 2);
    assert_int_equal(info_of(0, 0).pkey_index, 3);
    assert_int_equal(info_of(0, 1).pkey_index, 0); /* the other rail's is where it was */
    assert_int_equal(world_ep(0)->paths[1]->stats.ups, 1);
    assert_non_null(strstr(world_ep(0)->paths[0]->why, "P_Key 0x8001 of a0:1 has moved"));
    world_message(100000);
}

/* As when a subnet manager renames the partition: the ports stay usable, and peers hear of it. */
static void ports_that_get_another_key_meet_again_by_it(void **state)
{
    (void)state;
    world_rails[0] = world_rails[1] = 1;
    set_keys((uint16_t[2]){0x8001}, (uint16_t[2]){0x8001});
    world_prepare(with_keys);
    world_join();
    wait_for_paths(1);
    for (unsigned side = 0; side < 2; side++)
        fake_ibv_pkey_set(world_fake, side, 1, 0, 0x8002);
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == 2 && world_ep(1)->paths_up == 1);
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(sl_verbs_rail_info_of(&world_ep(side)->peer.rails[0]).pkey, 0x8002);
    world_message(100000);
}

static void a_port_without_the_key_is_out_until_it_has_it(void **state)
{
    (void)state;
    set_keys((uint16_t[2]){0x8001, 0x8001}, (uint16_t[2]){0x8001, 0xffff});
    world_prepare(with_keys);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->pkey, SL_TEXT_MAX, "0x8001");
    world_join();
    assert_false(world_iface(1)->rails[1].base.usable);
    assert_string_equal(world_iface(1)->rails[1].base.why,
                        "port b1:1 has no P_Key 0x8001 of SLUICE_VERBS_PKEY: add it to that "
                        "partition, or set the variable to one of its own; it has 0xffff");
    assert_int_equal(world_ep(0)->peer.rails[1].usable, 0);
    wait_for_paths(1);
    fake_ibv_pkey_set(world_fake, 3, 1, 5, 0x8001);
    wait_for_paths(2);
    fake_ibv_pkey_set(world_fake, 3, 1, 5, 0);
    wait_for_paths(1);
    world_message(100000);
}

/* RoCE has the default partition alone, whatever is asked for of InfiniBand ports. */
static void a_roce_port_has_the_default_key(void **state)
{
    (void)state;
    world_prepare(NULL);
    snprintf(sl_verbs_config_edit(&world[0].config)->pkey, SL_TEXT_MAX, "0x8001");
    world_join();
    wait_for_paths(2);
    assert_int_equal(path_of(0, 0)->pkey.key, SL_VERBS_PKEY_DEFAULT);
    assert_int_equal(info_of(0, 0).pkey_index, 0);
}

static void keys_are_read_as_they_are_written(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {{"auto", 0},        {"0x8001", 0},   {"8001", 0},          {"0x1", 0},
                 {"ffff", 0},        {"0", -EINVAL},  {"0x", -EINVAL},      {"0x8000", -EINVAL},
                 {"10000", -EINVAL}, {"-1", -EINVAL}, {"0x8001 ", -EINVAL}, {"all", -EINVAL},
                 {"1,2", -EINVAL}};
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    for (unsigned i = 0; i < SL_ARRAY_LEN(cases); i++)
        assert_int_equal(sl_config_set(&config, "VERBS_PKEY", cases[i].text), cases[i].rc);
}

/* ---- LIDs ---- */

static uint8_t lmcs[2];

static void with_lmc(struct fake_ibv_device *params)
{
    infiniband(params);
    params->ports[0].attr.lmc = lmcs[params->name[0] - 'a'];
    params->ports[0].attr.lid = (uint16_t)(16 * (1 + (params->name[0] - 'a')));
}

static void prepare_lmc(uint8_t first, uint8_t second, int64_t paths)
{
    lmcs[0] = first;
    lmcs[1] = second;
    world_rails[0] = world_rails[1] = 1;
    world_prepare(with_lmc);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.paths_per_rail = paths;
}

static void paths_between_the_same_rails_have_lids_of_their_own(void **state)
{
    unsigned used[2] = {0, 0};

    (void)state;
    prepare_lmc(2, 2, 4);
    world_join();
    wait_for_paths(4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(info_of(0, i).slid, info_of(1, i).dlid);
        assert_int_equal(info_of(1, i).slid, info_of(0, i).dlid);
        for (unsigned side = 0; side < 2; side++)
            used[side] |= 1u << (info_of(side, i).slid - 16 * (1 + side));
    }
    assert_int_equal(used[0], 0xf);
    assert_int_equal(used[1], 0xf);
    world_message(100000);
}

/* The end that has more than one is reached by each of them. */
static void one_end_alone_may_have_several_lids(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        prepare_lmc(side == 0 ? 1 : 0, side == 1 ? 1 : 0, 2);
        world_join();
        wait_for_paths(2);
        assert_int_not_equal(info_of(side, 0).slid, info_of(side, 1).slid);
        assert_int_equal(info_of(!side, 0).slid, info_of(!side, 1).slid);
        world_message(100000);
        if (side == 0)
            world_end();
    }
}

static void a_path_that_failed_goes_by_another_lid(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        uint64_t start_ns;
        uint16_t lost;

        prepare_lmc(1, 1, 0);
        world_join();
        wait_for_paths(1);
        assert_int_equal(world_ep(0)->path_count, 1);
        lost = info_of(side, 0).dlid;
        fake_ibv_lose_lid(world_fake, lost, true);
        fake_ibv_qp_fatal(world_fake, path_of(0, 0)->qp);
        WORLD_UNTIL(world_ep(0)->paths_up == 0 && world_ep(1)->paths_up == 0);
        start_ns = loop_now(world_loop);
        wait_for_paths(1);
        assert_true(loop_now(world_loop) - start_ns < SL_NS_PER_S);
        assert_int_equal(info_of(side, 0).dlid, lost ^ 1);
        world_message(100000);
        if (side == 0)
            world_end();
    }
}

static void a_port_with_other_lids_has_its_paths_made_anew(void **state)
{
    (void)state;
    prepare_lmc(1, 0, 2);
    world_join();
    wait_for_paths(2);
    fake_ibv_lid_set(world_fake, 0, 1, 100, 0);
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == 2 && world_ep(0)->paths[1]->stats.ups == 2);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(info_of(1, i).dlid, 100);
    wait_for_paths(2);
    assert_int_equal(sl_verbs_rail_info_of(&world_ep(1)->peer.rails[0]).lid, 100);
    world_message(100000);
}

/* ---- rates ---- */

/* Side 0 has 100 Gbit/s, as the fake's devices have; of side 1 the second rail does. */
static void slow_peer(struct fake_ibv_device *params)
{
    if (strcmp(params->name, "b0") == 0)
        params->ports[0].attr.active_width = 1;
}

static void slow_peer_and_one_rate(struct fake_ibv_device *params)
{
    slow_peer(params);
    params->one_rate = true;
}

static void what_goes_to_a_slower_port_leaves_at_its_speed(void **state)
{
    (void)state;
    world_prepare(slow_peer);
    world_join();
    wait_for_paths(2);
    for (unsigned i = 0; i < 2; i++) {
        bool is_slow = world_ep(1)->paths[i]->rail->name[1] == '0';

        assert_int_equal(info_of(0, i).static_rate, is_slow ? IBV_RATE_25_GBPS : IBV_RATE_MAX);
        assert_int_equal(info_of(1, i).static_rate, IBV_RATE_MAX);
    }
    world_message(100000);
}

static void no_rate_is_set_where_it_is_off_or_the_device_takes_none(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        world_prepare(round == 0 ? slow_peer : slow_peer_and_one_rate);
        if (round == 0)
            sl_verbs_config_edit(&world[0].config)->static_rate = SL_VERBS_RATE_OFF;
        world_join();
        wait_for_paths(2);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(info_of(0, i).static_rate, IBV_RATE_MAX);
        world_message(100000);
        if (round == 0)
            world_end();
    }
}

static void codes_of_rates_never_fall_below_the_speed(void **state)
{
    static const struct {
        uint64_t mbit;
        uint8_t rate;
    } cases[] = {
        {0, IBV_RATE_MAX},           {2500, IBV_RATE_2_5_GBPS},   {10000, IBV_RATE_10_GBPS},
        {56250, IBV_RATE_56_GBPS},   {90000, IBV_RATE_100_GBPS},  {100000, IBV_RATE_100_GBPS},
        {100001, IBV_RATE_112_GBPS}, {400000, IBV_RATE_400_GBPS}, {1200000, IBV_RATE_1200_GBPS},
        {1600000, IBV_RATE_MAX}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(cases); i++)
        assert_int_equal(sl_verbs_rate_of(cases[i].mbit * 125000), cases[i].rate);
    for (unsigned code = 0; code < 256; code++) {
        uint64_t speed = sl_verbs_rate_speed((uint8_t)code);

        assert_true((speed != 0) == (code >= IBV_RATE_2_5_GBPS && code <= IBV_RATE_1200_GBPS));
        assert_int_equal(sl_verbs_rate_of(speed), speed == 0 ? IBV_RATE_MAX : code);
        assert_int_equal(sl_verbs_rate_towards(speed, (uint8_t)code), IBV_RATE_MAX);
        if (speed != 0) {
            assert_int_equal(sl_verbs_rate_towards(speed + 1, (uint8_t)code), code);
            assert_int_equal(sl_verbs_rate_towards(0, (uint8_t)code), IBV_RATE_MAX);
        }
    }
}

/* ---- ECE ---- */

#define VENDOR 0x2c9

static struct ibv_ece eces[2];

static void with_ece(struct fake_ibv_device *params)
{
    params->ece = eces[params->name[0] - 'a'];
}

static void prepare_ece(struct ibv_ece first, struct ibv_ece second)
{
    eces[0] = first;
    eces[1] = second;
    world_prepare(with_ece);
}

/* All paths are up with those options at both ends, and messages pass. */
static void expect_ece(uint32_t options)
{
    wait_for_paths(2);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(info_of(side, i).ece, options);
            assert_int_equal(path_of(side, i)->ece.options, options);
        }
    world_message(100000);
}

static void what_both_devices_can_is_used(void **state)
{
    (void)state;
    for (unsigned leads = 0; leads < 2; leads++) {
        prepare_ece((struct ibv_ece){VENDOR, 0x7000001e, 0},
                    (struct ibv_ece){VENDOR, 0x30000017, 0});
        world[0].worker.rank = (int)leads;
        world[1].worker.rank = (int)!leads;
        world_join();
        expect_ece(0x30000016);
        if (leads == 0)
            world_end();
    }
}

static void devices_with_nothing_in_common_go_by_the_standard(void **state)
{
    static const struct ibv_ece none = {0}, some = {VENDOR, 0xf, 0}, other = {0x14e4, 0xf, 0},
                                rest = {VENDOR, 0xf0, 0};
    const struct ibv_ece cases[][2] = {{some, none},  {none, some}, {some, other},
                                       {other, some}, {some, rest}, {none, none}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(cases); i++) {
        prepare_ece(cases[i][0], cases[i][1]);
        world_join();
        expect_ece(0);
        if (i + 1 < SL_ARRAY_LEN(cases))
            world_end();
    }
}

static void ece_may_be_off_at_either_end_or_unknown_to_the_library(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        prepare_ece((struct ibv_ece){VENDOR, 0xf, 0}, (struct ibv_ece){VENDOR, 0xf, 0});
        if (i < 2)
            sl_verbs_config_edit(&world[i].config)->ece = SL_VERBS_ECE_OFF;
        else
            fake_ibv_table(world_fake)->ibv_query_ece = NULL;
        world_join();
        expect_ece(0);
        if (i < 2)
            world_end();
    }
}

/* The peer has taken them: its queue pair has to go, and the next one is to be without. */
static void options_that_the_device_refuses_after_all_cost_an_attempt(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 4; i++) {
        prepare_ece((struct ibv_ece){VENDOR, 0xf, 0}, (struct ibv_ece){VENDOR, 0xf, 0});
        /* Of either end, of either path. */
        fake_ibv_fail(world_fake, FAKE_IBV_SET_ECE, i, EINVAL);
        world_join();
        wait_for_paths(2);
        for (unsigned side = 0; side < 2; side++)
            assert_int_equal(info_of(side, 0).ece + info_of(side, 1).ece, 0xf);
        world_message(100000);
        if (i < 4)
            world_end();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(rails_are_paired_within_their_partitions),
        CASE(limited_members_talk_to_full_ones_alone),
        CASE(of_several_keys_the_one_that_both_have_is_taken),
        CASE(a_key_that_moves_takes_its_paths_along),
        CASE(ports_that_get_another_key_meet_again_by_it),
        CASE(a_port_without_the_key_is_out_until_it_has_it),
        CASE(a_roce_port_has_the_default_key),
        CASE(paths_between_the_same_rails_have_lids_of_their_own),
        CASE(one_end_alone_may_have_several_lids),
        CASE(a_path_that_failed_goes_by_another_lid),
        CASE(a_port_with_other_lids_has_its_paths_made_anew),
        CASE(what_goes_to_a_slower_port_leaves_at_its_speed),
        CASE(no_rate_is_set_where_it_is_off_or_the_device_takes_none),
        CASE(what_both_devices_can_is_used),
        CASE(devices_with_nothing_in_common_go_by_the_standard),
        CASE(ece_may_be_off_at_either_end_or_unknown_to_the_library),
        CASE(options_that_the_device_refuses_after_all_cost_an_attempt),
        cmocka_unit_test(codes_of_rates_never_fall_below_the_speed),
        cmocka_unit_test(keys_are_read_as_they_are_written)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
