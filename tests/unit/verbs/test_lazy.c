/* SPDX-License-Identifier: Apache-2.0 */
/* SLUICE_VERBS_LAZY: paths are made when they are needed. */
#include "tests/unit/verbs/world.h"
#include "core/state.h"
#include "multipath/stats.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define RAILS 4
#define LONG (4 << 20)

static unsigned qps(unsigned side)
{
    unsigned count = 0;

    for (unsigned i = 0; i < world_ep(side)->path_count; i++)
        count += world_ep(side)->paths[i] != NULL &&
                 ((struct sl_verbs_path *)world_ep(side)->paths[i])->qp != NULL;
    return count;
}

static void join_ranks(int64_t lazy, int64_t reserve, int low, int high)
{
    world_rails[0] = world_rails[1] = RAILS;
    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++) {
        sl_verbs_config_edit(&world[side].config)->mp.lazy = lazy;
        sl_verbs_config_edit(&world[side].config)->mp.reserve = reserve;
        sl_verbs_config_edit(&world[side].config)->mp.staging_bytes = 8 << 20;
        world[side].worker.rank = side == 0 ? low : high;
    }
    world_join();
}

static void join(int64_t lazy)
{
    join_ranks(lazy, SL_OFF, 0, 1);
}

static void pass(uint64_t ns)
{
    for (uint64_t until_ns = loop_now(world_loop) + ns; loop_now(world_loop) < until_ns;)
        world_progress();
}

/* Until both have so many, and no more. */
static void expect_paths(unsigned count)
{
    WORLD_UNTIL(world_ep(0)->paths_up == count && world_ep(1)->paths_up == count);
    pass(SL_NS_PER_S);
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(world_ep(side)->paths_up, count);
        assert_int_equal(qps(side), count);
    }
}

static void chat(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        world_message(64);
        world_message(4000);
        world_message(100000);
    }
}

static struct sl_mp_path *only(unsigned side)
{
    struct sl_mp_path *found = NULL;

    for (unsigned i = 0; i < world_ep(side)->path_count; i++) {
        struct sl_mp_path *path = world_ep(side)->paths[i];

        if (path == NULL || path->state != SL_MP_PATH_UP)
            continue;
        assert_null(found);
        found = path;
    }
    assert_non_null(found);
    return found;
}

/* ---- how many there are ---- */

static void short_messages_need_one(void **state)
{
    (void)state;
    join(SL_ON);
    chat(20);
    expect_paths(1);
}

static void off_makes_all_at_once(void **state)
{
    (void)state;
    join(SL_OFF);
    expect_paths(RAILS);
}

static void a_long_message_needs_all(void **state)
{
    (void)state;
    for (unsigned from = 0; from < 2; from++) {
        static uint8_t bytes[LONG], got[LONG];
        struct sl_buf buf = {.addr = bytes, .len = LONG};
        struct sl_sink sink = {.dst = got, .len = LONG, .tag = 1};
        struct sl_req send, recv;

        if (from == 1)
            world_end();
        join(SL_ON);
        assert_true(world_recv(!from, &sink, &recv) >= 0);
        assert_true(world_send(from, &buf, 1, &send) >= 0);
        WORLD_UNTIL(recv.status == 0 && send.status == 0);
        expect_paths(RAILS);
        world_message(LONG);
        for (unsigned i = 0, busy = 0; i < RAILS; i++) {
            busy += world_ep(from)->paths[i]->stats.sent_bytes > LONG / 8;
            assert_true(busy > 1 || i < RAILS - 1);
        }
    }
}

/* Each of them is short. */
static void so_do_many_under_way(void **state)
{
    enum { COUNT = 24, LEN = 128 << 10 };
    static uint8_t bytes[LEN], got[COUNT][LEN];
    struct sl_req send[COUNT], recv[COUNT];
    struct sl_sink sink[COUNT];

    (void)state;
    join(SL_ON);
    for (unsigned i = 0; i < COUNT; i++) {
        struct sl_buf buf = {.addr = bytes, .len = LEN};

        sink[i] = (struct sl_sink){.dst = got[i], .len = LEN, .tag = i};
        assert_true(world_recv(1, &sink[i], &recv[i]) >= 0);
        assert_true(world_send(0, &buf, i, &send[i]) >= 0);
    }
    for (unsigned i = 0; i < COUNT; i++)
        WORLD_UNTIL(recv[i].status != SL_PENDING && send[i].status != SL_PENDING);
    expect_paths(RAILS);
}

/* To other rails, at both ends, once there was a message. */
static void auto_has_a_second_one_ready(void **state)
{
    (void)state;
    join(SL_AUTO);
    expect_paths(1);
    world_message(8);
    expect_paths(2);
    chat(20);
    expect_paths(2);
    assert_int_equal(world_ep(0)->path_count, RAILS);
}

static void with_reserve_long_messages_need_no_more(void **state)
{
    (void)state;
    join_ranks(SL_ON, SL_ON, 0, 1);
    world_message(LONG);
    expect_paths(1);
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(only(side)->rail->idx, 0);
}

/* ---- which one is first ---- */

static void pairs_of_ranks_spread_over_the_rails(void **state)
{
    unsigned count[RAILS] = {0};

    (void)state;
    for (int low = 0; low < 4; low++)
        for (int high = 4; high < 16; high++) {
            if (low != 0 || high != 4)
                world_end();
            join_ranks(SL_ON, SL_OFF, low, high);
            WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
            assert_int_equal(only(0)->idx, only(1)->idx);
            count[only(0)->rail->idx]++;
        }
    for (unsigned i = 0; i < RAILS; i++)
        assert_in_range(count[i], 6, 18); /* of 48 */
}

static void one_that_has_no_link_is_not_first(void **state)
{
    (void)state;
    join(SL_ON);
    unsigned first = only(0)->rail->idx;

    world_end();
    world_rails[0] = world_rails[1] = RAILS;
    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_ON;
    fake_ibv_port_set(world_fake, RAILS + first, 1, IBV_PORT_DOWN);
    world_join();
    expect_paths(1);
    assert_int_not_equal(only(0)->rail->idx, first);
}

/* ---- when it fails ---- */

static void block(unsigned rail)
{
    fake_ibv_block(world_fake, rail, 1, RAILS + rail, 1, true);
}

/* A message in each direction, of which nothing is lost, in less than so long. */
static void goes_on_within(uint64_t ns)
{
    uint64_t start_ns = loop_now(world_loop);

    world_message(3000);
    world_message(100000);
    assert_true(loop_now(world_loop) - start_ns < ns);
}

static void others_are_made_when_its_port_goes(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        if (side == 1)
            world_end();
        join(SL_ON);
        chat(2);
        fake_ibv_port_set(world_fake, side * RAILS + only(side)->rail->idx, 1, IBV_PORT_DOWN);
        goes_on_within(SL_NS_PER_S / 4);
        expect_paths(RAILS - 1);
    }
}

/* No device gives it up here: that nothing comes back is enough. */
static void others_are_made_when_nothing_comes_back(void **state)
{
    for (int64_t lazy = SL_AUTO; lazy <= SL_ON; lazy += 2) {
        (void)state;
        if (lazy == SL_ON)
            world_end();
        join(lazy);
        fake_ibv_retry_steps(world_fake, 100000000, 2);
        chat(2);
        if (lazy == SL_AUTO)
            expect_paths(2);
        struct sl_mp_path *path = world_ep(0)->frame_path;

        block(path->rail->idx);
        goes_on_within(SL_NS_PER_S / 2);
        assert_int_equal(path->stats.failures, 1);
        expect_paths(RAILS - 1);
    }
}

static void others_are_made_when_the_first_cannot_be(void **state)
{
    (void)state;
    join(SL_ON);
    unsigned first = only(0)->rail->idx;

    world_end();
    world_rails[0] = world_rails[1] = RAILS;
    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_ON;
    block(first);
    fake_ibv_retry_steps(world_fake, 1000, 2);
    world_join();
    world_message(100000);
    expect_paths(RAILS - 1);
}

static void others_are_made_when_the_sideband_is_lost(void **state)
{
    (void)state;
    join(SL_ON);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    expect_paths(RAILS);
    chat(1);
}

/* ---- what is told ---- */

static void it_says_which_are_not_needed_yet(void **state)
{
    struct sl_state_path stats[RAILS];
    char text[512];
    unsigned later = 0;

    (void)state;
    join(SL_ON);
    assert_int_equal(sl_mp_ep_stats(world[0].ep, stats, RAILS), RAILS);
    for (unsigned i = 0; i < RAILS; i++) {
        assert_int_equal(stats[i].number, i);
        later += strcmp(stats[i].state, "not needed yet") == 0;
    }
    assert_int_equal(later, RAILS - 1);
    for (unsigned side = 0; side < 2; side++) {
        sl_mp_ep_describe(world[side].ep, text, sizeof(text));
        assert_non_null(strstr(text, "verbs, 1 of 4 paths up"));
        assert_non_null(strstr(text, "not needed yet"));
    }
}

static void who_lists_paths_means_them_all(void **state)
{
    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        if (side == 1)
            world_end();
        world_rails[0] = world_rails[1] = RAILS;
        world_prepare(NULL);
        for (unsigned i = 0; i < 2; i++)
            sl_verbs_config_edit(&world[i].config)->mp.lazy = SL_ON;
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "0>0,1>1");
        world_join();
        WORLD_UNTIL(world_ep(0)->paths_up >= 2 && world_ep(1)->paths_up >= 2);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(short_messages_need_one),
        CASE(off_makes_all_at_once),
        CASE(a_long_message_needs_all),
        CASE(so_do_many_under_way),
        CASE(auto_has_a_second_one_ready),
        CASE(with_reserve_long_messages_need_no_more),
        CASE(pairs_of_ranks_spread_over_the_rails),
        CASE(one_that_has_no_link_is_not_first),
        CASE(others_are_made_when_its_port_goes),
        CASE(others_are_made_when_nothing_comes_back),
        CASE(others_are_made_when_the_first_cannot_be),
        CASE(others_are_made_when_the_sideband_is_lost),
        CASE(it_says_which_are_not_needed_yet),
        CASE(who_lists_paths_means_them_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
