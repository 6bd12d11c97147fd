/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's devices do and soft-RoCE does not, over the fake: bonds of four ports, packets that
 * overtake others, news that come late, timeouts of up to four times their length. */
#include "tests/fake/fake_ibv_inside.h"
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void bond(struct fake_ibv_device *params)
{
    params->mlx5 = true;
    params->lag_ports = 4;
}

static struct sl_verbs_path *path_of(unsigned side, unsigned i)
{
    return sl_verbs_path_of(world_ep(side)->paths[i]);
}

static void a_bond_has_a_path_by_each_of_its_four_ports(void **state)
{
    unsigned seen[2] = {0, 0};

    (void)state;
    world_prepare(bond);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == 8 && world_ep(1)->paths_up == 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(path_of(0, i)->lag_active, path_of(0, i)->lag_port);
        seen[path_of(0, i)->rail->base.idx] |= 1u << path_of(0, i)->lag_port;
    }
    assert_int_equal(seen[0], 0x1e);
    assert_int_equal(seen[1], 0x1e);
}

/* The driver moves those of a port that is down, and says by which they leave. */
static void one_whose_port_is_down_leaves_by_another(void **state)
{
    unsigned moved = 0;

    (void)state;
    world_prepare(bond);
    fake_ibv_lag_port_set(world_fake, 0, 3, false);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == 8 && world_ep(1)->paths_up == 8);
    for (unsigned i = 0; i < 8; i++) {
        const struct sl_verbs_path *path = path_of(0, i);
        bool is_down = path->rail->base.idx == 0 && path->lag_port == 3;

        assert_int_equal(path->lag_active, is_down ? 4 : path->lag_port);
        moved += is_down;
    }
    assert_int_equal(moved, 1);
    fake_ibv_lag_port_set(world_fake, 0, 1, false); /* under way, without any event */
    world_message(1 << 20);
    assert_int_equal(world_ep(0)->paths_up, 8);
    for (unsigned port = 1; port <= 4; port++)
        fake_ibv_lag_port_set(world_fake, 0, port, false);
    world_message(1 << 20); /* the other rail carries */
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void packets_that_overtake_others_change_nothing(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    fake_ibv_disorder(world_fake, 2);
    for (unsigned i = 1; i <= 8; i++) {
        struct sl_verbs_path *path = path_of(i % 2, 0);

        world_message(1 << 20);
        if (path->qp == NULL || path->base.state != SL_MP_PATH_UP)
            continue;
        fake_ibv_kill(world_fake, path->qp, FAKE_IBV_ANY, FAKE_IBV_ANY, FAKE_IBV_ANY);
    }
    assert_true(world_fake->overtook > 100);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* News of a port that was down, read when it has long been up again and its paths are others. */
static void late_news_of_a_port_end_nothing_for_good(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    fake_ibv_event_delay(world_fake, 3000);
    for (unsigned i = 0; i < 4; i++) {
        fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
        fake_ibv_run(world_fake, 20);
        fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
        world_message(300000);
    }
    fake_ibv_qp_fatal(world_fake,
                      path_of(0, 0)->qp != NULL ? path_of(0, 0)->qp : path_of(0, 1)->qp);
    world_message(300000);
    fake_ibv_event_delay(world_fake, 0);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++)
            world_ep(side)->paths[i]->losses = 0;
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2 &&
                world_iface(0)->rails[0].base.usable);
    world_message(300000);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* The NIC takes up to four times as long to give a path up: nobody waits for it. */
static void a_path_that_stands_still_is_left_before_its_device_gives_up(void **state)
{
    struct sl_verbs_path *path;
    uint64_t began_ns;

    (void)state;
    world_prepare(NULL);
    world_join();
    world_message(1 << 20);
    fake_ibv_retry_steps(world_fake, 1u << 30, 2);
    fake_ibv_timeout_most(world_fake, 4);
    path = path_of(0, world_ep(0)->frame_path->idx);
    fake_ibv_cut(world_fake, path->qp, true);
    began_ns = loop_now(world_loop);
    world_message(1 << 20);
    assert_in_range(loop_now(world_loop) - began_ns, 0, SL_NS_PER_S);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(a_bond_has_a_path_by_each_of_its_four_ports),
        CASE(one_whose_port_is_down_leaves_by_another),
        CASE(packets_that_overtake_others_change_nothing),
        CASE(late_news_of_a_port_end_nothing_for_good),
        CASE(a_path_that_stands_still_is_left_before_its_device_gives_up)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
