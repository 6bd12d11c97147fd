/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a path takes on devices that let us choose: UDP source port, and port of a bond. */
#include "tests/unit/verbs/world.h"
#include "core/state.h"
#include "verbs/config.h"
#include "verbs/plan.h"

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
                             sl_verbs_udp_sport(sl_verbs_path_of(path)->flow_label));
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
        snprintf(sl_verbs_config_edit(&world[side].config)->paths, SL_TEXT_MAX,
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
    snprintf(sl_verbs_config_edit(&world[0].config)->paths, SL_TEXT_MAX, "0>0@2");
    snprintf(sl_verbs_config_edit(&world[1].config)->paths, SL_TEXT_MAX, "0>0@2");
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
        snprintf(sl_verbs_config_edit(&world[side].config)->paths, SL_TEXT_MAX, "0>0@4");
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

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(paths_of_a_bond_leave_by_its_ports_in_turns_at_both_ends),
        CASE(the_path_list_names_ports_and_a_path_that_returns_takes_its_own),
        CASE(a_device_that_is_no_bond_is_left_alone),
        CASE(a_port_that_the_bond_lacks_is_the_drivers_choice),
        CASE(an_old_libmlx5_sets_what_it_can)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
