/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a path takes on devices that let us choose: UDP source port, and port of a bond. */
#include "tests/unit/verbs/world.h"
#include "core/state.h"
#include "verbs/config.h"
#include "multipath/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void bond(struct fake_ibv_device *params)
{
    params->mlx5 = true;
    params->lag_ports = 2;
}

static void plain_mlx5(struct fake_ibv_device *params)
{
    params->mlx5 = true;
}

static struct fake_ibv_qp_info info_of(unsigned side, unsigned path)
{
    struct fake_ibv_qp_info info;

    fake_ibv_qp_info(world_fake, sl_verbs_path_of(world_ep(side)->paths[path])->qp, &info);
    return info;
}

static void paths_of_a_bond_leave_by_its_ports_in_turns_at_both_ends(void **state)
{
    struct sl_state_path stats[SL_MP_PATHS_MAX];

    (void)state;
    world_prepare(bond);
    world_join();
    assert_int_equal(world_iface(0)->rails[0].device->lag_ports, 2);
    WORLD_UNTIL(world_ep(0)->paths_up == 4 && world_ep(1)->paths_up == 4);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned side = 0; side < 2; side++) {
            struct sl_mp_path *path = world_ep(side)->paths[i];

            assert_int_equal(info_of(side, i).lag_port, 1 + i / 2);
            assert_int_equal(sl_verbs_path_of(path)->lag_active, 1 + i / 2);
            assert_int_equal(info_of(side, i).udp_sport,
                             sl_mp_udp_sport(sl_verbs_path_of(path)->flow_label));
        }
    assert_int_equal(world[0].iface->ops->ep_stats(world[0].ep, stats, SL_MP_PATHS_MAX), 4);
    assert_memory_equal(stats[0].name, "a0:1@1 > ", 9);
    assert_memory_equal(stats[3].name, "a1:1@2 > ", 9);
    world_message(100000);
}

static void the_path_list_names_ports_and_a_path_that_returns_takes_its_own(void **state)
{
    (void)state;
    world_prepare(bond);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX,
                 "0>0/c0de@2,1>1/beef@2");
    world_join();
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(info_of(side, 0).lag_port, 2);
        assert_int_equal(info_of(side, 1).lag_port, 2);
        assert_int_equal(sl_verbs_path_of(world_ep(side)->paths[0])->flow_label, 0xc0de);
    }
    fake_ibv_kill(world_fake, sl_verbs_path_of(world_ep(0)->paths[0])->qp, FAKE_IBV_ANY,
                  FAKE_IBV_ANY, 0);
    world_message(100000);
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == 2 && world_ep(1)->paths[0]->stats.ups == 2);
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(info_of(side, 0).lag_port, 2);
}

static void a_device_that_is_no_bond_is_left_alone(void **state)
{
    (void)state;
    world_prepare(plain_mlx5);
    snprintf(sl_verbs_config_edit(&world[0].config)->mp.paths, SL_TEXT_MAX, "0>0@2");
    snprintf(sl_verbs_config_edit(&world[1].config)->mp.paths, SL_TEXT_MAX, "0>0@2");
    world_join();
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(world_iface(side)->rails[0].device->lag_ports, 0);
        assert_int_equal(info_of(side, 0).lag_port, 0);
        assert_int_equal(sl_verbs_path_of(world_ep(side)->paths[0])->lag_active, 0);
        assert_int_not_equal(info_of(side, 0).udp_sport, 0);
    }
    world_message(100);
}

static void a_port_that_the_bond_lacks_is_the_drivers_choice(void **state)
{
    (void)state;
    world_prepare(bond);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "0>0@4");
    world_join();
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(info_of(side, 0).lag_port, 0);
        assert_int_equal(sl_verbs_path_of(world_ep(side)->paths[0])->lag_active, 1);
    }
    world_message(100);
}

static void an_old_libmlx5_sets_what_it_can(void **state)
{
    (void)state;
    world_prepare(bond);
    fake_ibv_mlx5(world_fake)->mlx5dv_query_device = NULL;
    world_join();
    assert_int_equal(world_iface(0)->rails[0].device->lag_ports, 0);
    assert_int_equal(info_of(0, 0).lag_port, 0);
    assert_int_not_equal(info_of(0, 0).udp_sport, 0);
    world_message(100);
}

/* ---- each end's own list ---- */

static void join_with_lists(const char *first, const char *second, uint64_t seed)
{
    const char *lists[2] = {first, second};

    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++) {
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "%s",
                 lists[side]);
        sl_rng_init(&world[side].worker.rng, 2 * seed + side);
    }
    world_join();
}

/* "0>0/aaa0 1>1/aaa1": the paths of a side as it sees them, spare ones with a *. */
static const char *routes(unsigned side)
{
    static char text[2][256];
    const struct sl_mp_conn *conn = world_ep(side);
    size_t len = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        struct sl_mp_path *path = conn->paths[i];

        len += (size_t)snprintf(text[side] + len, sizeof(text[side]) - len, "%s%u>%u",
                                i > 0 ? " " : "", path->rail->idx, path->remote_rail);
        if (path->spare)
            len += (size_t)snprintf(text[side] + len, sizeof(text[side]) - len, "*");
        else
            len += (size_t)snprintf(text[side] + len, sizeof(text[side]) - len, "/%x",
                                    sl_verbs_path_of(path)->flow_label);
    }
    return text[side];
}

static void each_ends_list_says_how_it_sends_whatever_the_seed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        join_with_lists("0>0/aaa0,1>1/aaa1", "0>0/bbb0,1>1/bbb1", seed);
        assert_true(world_ep(0)->leads);
        assert_false(world_ep(1)->leads);
        assert_string_equal(routes(0), "0>0/aaa0 1>1/aaa1");
        assert_string_equal(routes(1), "0>0/bbb0 1>1/bbb1");
        world_message(100000);
        if (seed < 7)
            world_end();
    }
}

/* Both mean by 0>1 the rail 0 of their own, and send there. */
static void a_pair_means_the_same_at_both_ends(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        join_with_lists("0>1/aaaa", "0>1/bbbb", seed);
        for (unsigned side = 0; side < 2; side++)
            WORLD_UNTIL(world_ep(side)->paths_up == 2);
        assert_string_equal(routes(0), "0>1/aaaa 1>0*");
        assert_string_equal(routes(1), "1>0* 0>1/bbbb");
        for (unsigned i = 0; i < 2; i++)
            world_message(300000);
        assert_true(world_ep(0)->paths[0]->stats.sent_bytes > 600000);
        assert_true(world_ep(0)->paths[1]->stats.sent_bytes < 1000);
        assert_true(world_ep(1)->paths[1]->stats.sent_bytes > 600000);
        assert_true(world_ep(1)->paths[0]->stats.sent_bytes < 1000);
        if (seed < 7)
            world_end();
    }
}

static void a_spare_path_carries_when_no_other_is_up(void **state)
{
    (void)state;
    join_with_lists("0>1/aaaa", "0>1/bbbb", 1);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 2);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN); /* side 0's path, spare for side 1 */
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    world_message(300000);
    assert_true(world_ep(0)->paths[1]->stats.sent_bytes > 300000);
    /* And no longer: frames leave it by its fence. */
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->frame_path == world_ep(0)->paths[0]);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 2);
    uint64_t before = world_ep(0)->paths[1]->stats.sent_bytes;

    world_message(300000);
    assert_true(world_ep(0)->paths[1]->stats.sent_bytes < before + 1000);
}

/* Two paths between the same rails take their labels in the order of the list; one without a label
 * gets another one than these. */
static void labels_are_taken_in_the_order_of_the_list(void **state)
{
    (void)state;
    join_with_lists("0>0/a1,0>0/a2,0>0", "0>0/b1,0>0/b2,0>0/b3", 3);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 3);
    assert_memory_equal(routes(0), "0>0/a1 0>0/a2 0>0/", 18);
    assert_string_equal(routes(1), "0>0/b1 0>0/b2 0>0/b3");
}

/* With a list at one end alone the other spreads over all rails as ever, whichever leads. */
static void a_list_at_one_end_binds_that_end_alone(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        join_with_lists(side == 0 ? "1>1/cafe" : "auto", side == 1 ? "1>1/cafe" : "auto", 5);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
        assert_string_equal(routes(side), side == 0 ? "1>1/cafe 0>0*" : "0>0* 1>1/cafe");
        world_message(300000);
        for (unsigned i = 0; i < 2; i++) {
            bool is_listed = world_ep(side)->paths[i]->rail->idx == 1;

            assert_int_equal(world_ep(side)->paths[i]->stats.sent_bytes > 1000, is_listed);
            assert_true(world_ep(!side)->paths[i]->stats.sent_bytes > 50000);
        }
        if (side == 0)
            world_end();
    }
}

/* ---- where frames begin ---- */

/* Ranks of a host begin with another port each. */
static void frames_of_the_ranks_of_a_host_begin_on_different_ports(void **state)
{
    (void)state;
    for (unsigned idx = 0; idx < 4; idx++) {
        world_prepare(NULL);
        for (unsigned side = 0; side < 2; side++)
            world[side].worker.local_idx = idx;
        world_join();
        for (unsigned side = 0; side < 2; side++)
            assert_ptr_equal(world_ep(side)->frame_path, world_ep(side)->paths[idx % 2]);
        if (idx < 3)
            world_end();
    }
}

static void slow_first(struct fake_ibv_device *params)
{
    if (params->name[1] == '0') {
        params->ports[0].attr.active_speed = 1;
        params->ports[0].attr.active_width = 2;
    }
}

static void frames_do_not_begin_on_a_slow_port(void **state)
{
    (void)state;
    for (unsigned idx = 0; idx < 2; idx++) {
        world_prepare(slow_first);
        world[0].worker.local_idx = idx;
        world_join();
        assert_memory_equal(world_ep(0)->frame_path->rail->name, "a1", 2);
        if (idx < 1)
            world_end();
    }
}

/* ---- other routes ---- */

/* A route that loses all: the path that took it finds another one, at either end. */
static void a_path_that_failed_takes_another_route(void **state)
{
    (void)state;
    for (unsigned lost = 0; lost < 4; lost++) {
        uint32_t labels[2];
        uint64_t start_ns;

        world_rails[0] = world_rails[1] = 1;
        world_prepare(NULL);
        world_join();
        for (unsigned side = 0; side < 2; side++)
            labels[side] = sl_verbs_path_of(world_ep(side)->paths[0])->flow_label;
        fake_ibv_routes(world_fake, 4, 1u << lost);
        fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(world_ep(0)->paths[0])->qp);
        WORLD_UNTIL(world_ep(0)->paths_up == 0 && world_ep(1)->paths_up == 0);
        start_ns = loop_now(world_loop);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        assert_true(loop_now(world_loop) - start_ns < 40 * SL_NS_PER_S);
        for (unsigned side = 0; side < 2; side++)
            assert_int_not_equal(
                sl_mp_udp_sport(sl_verbs_path_of(world_ep(side)->paths[0])->flow_label),
                sl_mp_udp_sport(labels[side]));
        world_message(100000);
        if (lost < 3)
            world_end();
    }
}

static void a_listed_label_stays_whatever_becomes_of_the_path(void **state)
{
    (void)state;
    join_with_lists("0>0/aaa0,1>1", "0>0/bbb0,1>1/bbb1", 2);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 2);
    uint32_t drawn = sl_verbs_path_of(world_ep(0)->paths[1])->flow_label;

    for (unsigned i = 0; i < 2; i++)
        fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(world_ep(0)->paths[i])->qp);
    WORLD_UNTIL(world_ep(0)->paths_up == 0);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 2);
    assert_memory_equal(routes(0), "0>0/aaa0 1>1/", 13);
    assert_string_equal(routes(1), "0>0/bbb0 1>1/bbb1");
    assert_int_not_equal(sl_verbs_path_of(world_ep(0)->paths[1])->flow_label, drawn);
}

/* What was stopped for the close of a channel had nothing wrong with it. */
static void a_path_that_was_sound_keeps_its_route(void **state)
{
    uint32_t labels[2];

    (void)state;
    world_prepare(NULL);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        labels[side] = sl_verbs_path_of(world_ep(side)->paths[0])->flow_label;
    world_ep(0)->paths[0]->sound = true;
    sl_mp_failed(world_ep(0)->paths[0], 0, "stopped");
    WORLD_UNTIL(world_ep(0)->paths[0]->stats.ups == 2 && world_ep(1)->paths[0]->stats.ups == 2);
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(sl_verbs_path_of(world_ep(side)->paths[0])->flow_label, labels[side]);
}

/* ---- who leads ---- */

static void the_lower_rank_leads_and_without_ranks_the_lower_address(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 16; round++) {
        world_prepare(NULL);
        for (unsigned side = 0; side < 2; side++) {
            /* Ranks the other way round, or none: then side 0 has the lower addresses. */
            world[side].worker.rank = round % 2 == 0 ? (int)!side : -1;
            sl_rng_init(&world[side].worker.rng, 2 * round + side);
        }
        world_join();
        assert_int_equal(world_ep(0)->leads, round % 2 != 0);
        assert_int_equal(world_ep(1)->leads, round % 2 == 0);
        if (round < 15)
            world_end();
    }
}

/* As many connections as hosts have ranks that share two ports: over whatever number of routes
 * their paths are dealt, each has about its part. The limit is six standard deviations. */
static void labels_of_many_connections_spread_over_routes(void **state)
{
    enum { ROUNDS = 200 };
    unsigned paths = 0, on_route[2][16] = {{0}};

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        world_prepare(NULL);
        for (unsigned side = 0; side < 2; side++) {
            sl_verbs_config_edit(&world[side].config)->mp.paths_per_rail = 4;
            sl_rng_init(&world[side].worker.rng, 2 * round + side);
        }
        world_join();
        for (unsigned i = 0; i < world_ep(0)->path_count; i++) {
            for (unsigned side = 0; side < 2; side++)
                on_route[side]
                        [sl_mp_udp_sport(sl_verbs_path_of(world_ep(side)->paths[i])->flow_label) %
                         16]++;
            paths++;
        }
        if (round < ROUNDS - 1)
            world_end();
    }
    assert_int_equal(paths, ROUNDS * 8);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned route = 0; route < 16; route++)
            assert_in_range(on_route[side][route], 100 - 60, 100 + 60);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(paths_of_a_bond_leave_by_its_ports_in_turns_at_both_ends),
        CASE(the_path_list_names_ports_and_a_path_that_returns_takes_its_own),
        CASE(a_device_that_is_no_bond_is_left_alone),
        CASE(a_port_that_the_bond_lacks_is_the_drivers_choice),
        CASE(an_old_libmlx5_sets_what_it_can),
        CASE(each_ends_list_says_how_it_sends_whatever_the_seed),
        CASE(a_pair_means_the_same_at_both_ends),
        CASE(a_spare_path_carries_when_no_other_is_up),
        CASE(labels_are_taken_in_the_order_of_the_list),
        CASE(a_list_at_one_end_binds_that_end_alone),
        CASE(frames_of_the_ranks_of_a_host_begin_on_different_ports),
        CASE(frames_do_not_begin_on_a_slow_port),
        CASE(a_path_that_failed_takes_another_route),
        CASE(a_listed_label_stays_whatever_becomes_of_the_path),
        CASE(a_path_that_was_sound_keeps_its_route),
        CASE(labels_of_many_connections_spread_over_routes),
        CASE(the_lower_rank_leads_and_without_ranks_the_lower_address)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
