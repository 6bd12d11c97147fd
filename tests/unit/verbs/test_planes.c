/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts whose rails are of several subnets that do not reach each other, in whatever order. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char *planes[2]; /* a letter for each rail of a side */

/* InfiniBand: there the GID tells the subnet by itself. */
static void put_into_plane(struct fake_ibv_device *params)
{
    unsigned side = (unsigned)(params->name[0] - 'a'), rail = (unsigned)(params->name[1] - '0');
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
                                       CASE(a_rail_without_a_link_at_start_joins_in_its_plane)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
