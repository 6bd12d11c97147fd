/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_VERBS_RESERVE: data keeps to the first rail that has a path, and comes back to it. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LEN 1000000

static uint64_t sent(unsigned side, unsigned path)
{
    return world_ep(side)->paths[path]->stats.sent_bytes;
}

static void join(int64_t reserve)
{
    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.reserve = reserve;
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
}

static void without_it_all_rails_carry(void **state)
{
    (void)state;
    join(SL_AUTO);
    for (int i = 0; i < 4; i++)
        world_message(LEN);
    for (unsigned side = 0; side < 2; side++)
        assert_true(sent(side, 0) > LEN / 2 && sent(side, 1) > LEN / 2);
}

static void the_first_rail_carries_all_while_it_has_a_path(void **state)
{
    (void)state;
    join(SL_ON);
    for (int i = 0; i < 4; i++)
        world_message(LEN);
    for (unsigned side = 0; side < 2; side++) {
        assert_true(sent(side, 0) >= 4 * LEN);
        assert_true(sent(side, 1) < LEN / 100);
    }
}

static void the_reserve_carries_while_it_has_none(void **state)
{
    uint64_t before[2], after[2];

    (void)state;
    join(SL_ON);
    world_message(LEN);
    for (unsigned side = 0; side < 2; side++)
        before[side] = sent(side, 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    world_message(LEN);
    for (unsigned side = 0; side < 2; side++)
        assert_true(sent(side, 1) >= before[side] + LEN);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    for (unsigned side = 0; side < 2; side++)
        after[side] = sent(side, 1);
    world_message(LEN);
    for (unsigned side = 0; side < 2; side++)
        assert_true(sent(side, 1) < after[side] + LEN / 100);
}

/* Short messages as well, once it has stayed up for a while. */
static void frames_return_to_the_first_rail(void **state)
{
    (void)state;
    join(SL_ON);
    world_message(64);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    world_message(64);
    assert_int_equal(world_ep(0)->frame_path->rail->idx, 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    uint64_t since_ns = loop_now(world_loop);

    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->frame_path != NULL &&
                    world_ep(side)->frame_path->rail->idx == 0);
    assert_true(loop_now(world_loop) - since_ns >= SL_NS_PER_S / 2);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(64);
    assert_int_equal(world_ep(0)->frame_path->rail->idx, 0);
}

/* Keys of its own a message has only by rails that could make one when its receive was posted:
 * after a bind has failed, not by the first rail. Found by sim_verbs --seed 5731. */
static void a_message_without_a_key_of_the_first_rail_goes_by_the_reserve(void **state)
{
    static uint8_t from[LEN], to[2][LEN];
    struct sl_mem mem = {.addr = to, .len = sizeof(to)};
    struct sl_buf buf = {.addr = from, .len = LEN};
    struct sl_sink sink = {.len = LEN, .tag = 7};
    struct sl_req sent_req[2], got_req[2];
    struct sl_key key;
    uint64_t before;

    (void)state;
    join(SL_ON);
    if (getenv("WORLD_WINDOWS") == NULL)
        return; /* all its memory has one key by each rail */
    world_message(64);
    assert_int_equal(sl_verbs_ops.mr_reg(world[1].iface, &mem, &sink.mr, &key), 0);
    before = sent(0, 1);
    memset(from, 0x5a, LEN);
    fake_ibv_bind_fails(world_fake, 1);
    for (unsigned i = 0; i < 2; i++) {
        sink.dst = to[i];
        assert_true(world_recv(1, &sink, &got_req[i]) >= 0);
        for (unsigned n = 0; n < 20; n++)
            world_progress();
    }
    for (unsigned i = 0; i < 2; i++)
        assert_true(world_send(0, &buf, 7, &sent_req[i]) >= 0);
    for (unsigned i = 0; i < 2; i++) {
        WORLD_UNTIL(sent_req[i].status != SL_PENDING && got_req[i].status != SL_PENDING);
        assert_int_equal(sent_req[i].status, 0);
        assert_int_equal(got_req[i].status, 0);
        assert_memory_equal(from, to[i], LEN);
    }
    assert_true(sent(0, 1) >= before + LEN);
    sl_verbs_ops.mr_dereg(world[1].iface, sink.mr);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(without_it_all_rails_carry), CASE(the_first_rail_carries_all_while_it_has_a_path),
        CASE(the_reserve_carries_while_it_has_none), CASE(frames_return_to_the_first_rail),
        CASE(a_message_without_a_key_of_the_first_rail_goes_by_the_reserve)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
