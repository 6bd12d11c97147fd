/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts whose rails are of several subnets that do not reach each other, in whatever order. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *planes[2]; /* a letter for each rail of a side */

/* InfiniBand: there the GID tells the subnet by itself. */
static void put_into_plane(struct fake_ibv_device *params)
{
    unsigned side = (unsigned)(params->name[0] - 'a'), rail = (unsigned)atoi(params->name + 1);
    struct fake_ibv_gid *gid = &params->ports[0].gids[0];

    params->ports[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    params->ports[0].attr.sm_lid = 1;
    *gid = (struct fake_ibv_gid){
        .gid.raw = {0xfe,
                    0x80, [7] = (uint8_t)planes[side][rail], [15] = (uint8_t)(side * 16 + rail)},
        .type = IBV_GID_TYPE_IB};
    gid->gid.raw[14] = 1;
}

/* Nothing goes from one plane to another. */
static void separate(void)
{
    for (unsigned i = 0; i < world_rails[0]; i++)
        for (unsigned j = 0; j < world_rails[1]; j++)
            if (planes[0][i] != planes[1][j])
                fake_ibv_block(world_fake, i, 1, world_rails[0] + j, 1, true);
}

static void join(const char *first, const char *second)
{
    planes[0] = first;
    planes[1] = second;
    for (unsigned i = 0; i < 2; i++)
        world_rails[i] = (unsigned)strlen(planes[i]);
    world_prepare(put_into_plane);
    separate();
    world_join();
}

/* As many paths, all of them up, each within a plane, and messages pass. */
static void expect_paths(unsigned count)
{
    for (unsigned side = 0; side < 2; side++) {
        WORLD_UNTIL(world_ep(side)->paths_up == count);
        assert_int_equal(world_ep(side)->path_count, count);
        for (unsigned i = 0; i < count; i++) {
            const struct sl_mp_path *path = world_ep(side)->paths[i];

            assert_int_equal(planes[side][path->rail->idx], planes[!side][path->remote_rail]);
        }
    }
    world_message(200000);
}

static void hosts_that_list_their_rails_in_another_order_connect(void **state)
{
    (void)state;
    join("BA", "AB");
    expect_paths(2);
}

static void eight_rails_in_reverse_connect_within_their_planes(void **state)
{
    (void)state;
    join("ABCDEFGH", "HGFEDCBA");
    expect_paths(8);
}

static void a_host_without_its_first_rail_connects_the_other_seven(void **state)
{
    (void)state;
    join("BCDEFGH", "ABCDEFGH");
    expect_paths(7);
}

static void two_rails_of_each_plane_are_all_used(void **state)
{
    unsigned used[2][4] = {{0}};

    (void)state;
    join("AABB", "BABA");
    expect_paths(4);
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 4; i++)
            used[side][world_ep(side)->paths[i]->rail->idx]++;
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(used[side][i], 1);
}

/* ---- many ---- */

static const char sixteen[] = "ABCDEFGHIJKLMNOP", eight[] = "ABCDEFGH";

static void prepare_many(const char *names, int64_t per_rail)
{
    planes[0] = planes[1] = names;
    world_rails[0] = world_rails[1] = (unsigned)strlen(names);
    world_prepare(put_into_plane);
    separate();
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.paths_per_rail = per_rail;
}

static void eight_rails_have_four_paths_each(void **state)
{
    (void)state;
    prepare_many(eight, 4);
    world_join();
    expect_paths(32);
}

static void sixteen_rails_connect(void **state)
{
    (void)state;
    prepare_many(sixteen, 0);
    world_join();
    expect_paths(16);
}

/* Its key is the last of a CTS, and what the peer says of it comes in a second HELLO. */
static void the_last_of_sixteen_rails_carries_alone(void **state)
{
    (void)state;
    prepare_many(sixteen, 0);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "15>15");
    world_join();
    expect_paths(1);
    assert_true(world_ep(0)->paths[0]->stats.sent_bytes > 200000);
    fake_ibv_port_set(world_fake, 15, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(1)->paths_up == 0);
    fake_ibv_port_set(world_fake, 15, 1, IBV_PORT_ACTIVE);
    expect_paths(1);
}

/* More than there is room for are asked for. */
static void sixty_four_paths_end_at_once_and_return(void **state)
{
    struct ibv_qp *qps[SL_MP_PATHS_MAX];

    (void)state;
    prepare_many(sixteen, 8);
    world_join();
    expect_paths(64);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t ups = world_ep(0)->paths[63]->stats.ups;

        for (unsigned i = 0; i < 64; i++)
            qps[i] = sl_verbs_path_of(world_ep(round % 2)->paths[i])->qp;
        for (unsigned i = 0; i < 64; i++)
            fake_ibv_qp_fatal(world_fake, qps[i]);
        WORLD_UNTIL(world_ep(0)->paths[63]->stats.ups > ups);
        expect_paths(64);
    }
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* A connection with few paths does not pay for those that there may be. */
static void a_connection_has_room_for_its_own_paths_alone(void **state)
{
    (void)state;
    prepare_many("AB", 0);
    world_join();
    expect_paths(2);
    for (unsigned side = 0; side < 2; side++) {
        assert_in_range(world_ep(side)->path_room, 2, 4);
        assert_int_equal(world_ep(side)->peer.rail_count, 2);
        assert_null(world_ep(side)->redo);
        assert_null(world_ep(side)->why_bytes);
    }
}

/* Its address is known, so the others do not take what belongs to it. */
static void a_rail_without_a_link_at_start_joins_in_its_plane(void **state)
{
    (void)state;
    planes[0] = "BCA";
    planes[1] = "ABC";
    world_rails[0] = world_rails[1] = 3;
    world_prepare(put_into_plane);
    separate();
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_DOWN);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == 2);
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_ACTIVE);
    expect_paths(3);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {CASE(hosts_that_list_their_rails_in_another_order_connect),
                                       CASE(eight_rails_in_reverse_connect_within_their_planes),
                                       CASE(a_host_without_its_first_rail_connects_the_other_seven),
                                       CASE(two_rails_of_each_plane_are_all_used),
                                       CASE(eight_rails_have_four_paths_each),
                                       CASE(sixteen_rails_connect),
                                       CASE(the_last_of_sixteen_rails_carries_alone),
                                       CASE(sixty_four_paths_end_at_once_and_return),
                                       CASE(a_connection_has_room_for_its_own_paths_alone),
                                       CASE(a_rail_without_a_link_at_start_joins_in_its_plane)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
