/* SPDX-License-Identifier: Apache-2.0 */
/* Users' memory is registered on the rails that paths are made on, when they are. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"
#include "verbs/region.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RAILS 4
#define LEN (6u << 20)
#define LIMIT (4u << 20)

static uint8_t sent[LEN], got[LEN];
static struct sl_mr *mr[2];
static unsigned limited; /* a device that registers nothing so long, or none */
static unsigned added;

static void limit(struct fake_ibv_device *params)
{
    if (added++ == limited)
        params->attr.max_mr_size = LIMIT;
}

static void prepare(int64_t lazy)
{
    world_rails[0] = world_rails[1] = RAILS;
    added = 0;
    world_prepare(limit);
    limited = 2 * RAILS;
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = lazy;
}

static void reg(unsigned side)
{
    struct sl_mem mem = {.addr = side == 0 ? sent : got, .len = LEN, .kind = SL_MEM_HOST, .fd = -1};

    assert_int_equal(sl_verbs_mr_reg(world[side].iface, &mem, &mr[side], NULL), 0);
}

static void dereg(void)
{
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_mr_dereg(world[side].iface, mr[side]);
}

static uint16_t rails_of(unsigned side)
{
    const struct sl_verbs_mr *region = ((const struct sl_mem_region *)mr[side])->handle;

    return region->base.rails;
}

static unsigned count_of(unsigned side)
{
    return (unsigned)__builtin_popcount(rails_of(side));
}

static uint16_t rail_bit(unsigned side)
{
    return (uint16_t)(1u << world_ep(side)->frame_path->rail->idx);
}

static bool is_even(void)
{
    for (unsigned side = 0; side < 2; side++)
        if (world_ep(side)->uneven || world_iface(side)->mp.uneven)
            return false;
    return true;
}

/* From side 0's memory into side 1's. */
static void message(size_t len)
{
    struct sl_buf buf = {.addr = sent, .len = len, .mr = mr[0]};
    struct sl_sink sink = {.dst = got, .len = len, .tag = 3, .mr = mr[1]};
    struct sl_req send, recv;

    memset(got, 0, sizeof(got));
    assert_true(world_recv(1, &sink, &recv) >= 0);
    assert_true(world_send(0, &buf, 3, &send) >= 0);
    WORLD_UNTIL(send.status != SL_PENDING && recv.status != SL_PENDING);
    assert_int_equal(send.status, 0);
    assert_int_equal(recv.status, 0);
    assert_memory_equal(sent, got, len);
}

static void all_paths(unsigned count)
{
    WORLD_UNTIL(world_ep(0)->paths_up == count && world_ep(1)->paths_up == count);
}

static void off_registers_on_all(void **state)
{
    (void)state;
    prepare(SL_OFF);
    world_join();
    for (unsigned side = 0; side < 2; side++) {
        reg(side);
        assert_int_equal(count_of(side), RAILS);
    }
    message(LEN);
    dereg();
}

static void one_path_one_registration(void **state)
{
    (void)state;
    prepare(SL_ON);
    world_join();
    uint64_t calls = fake_ibv_calls(world_fake, FAKE_IBV_REG_MR);

    for (unsigned side = 0; side < 2; side++) {
        reg(side);
        assert_int_equal(rails_of(side), rail_bit(side));
    }
    assert_int_equal(fake_ibv_calls(world_fake, FAKE_IBV_REG_MR) - calls, 2);
    message(100000);
    message(100000);
    assert_int_equal(count_of(0), 1);
    assert_true(is_even()); /* pieces look at no rails */
    dereg();
}

static void further_rails_with_their_paths(void **state)
{
    (void)state;
    prepare(SL_ON);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        reg(side);
    message(LEN);
    all_paths(RAILS);
    WORLD_UNTIL(count_of(0) == RAILS && count_of(1) == RAILS);
    message(LEN);
    assert_true(is_even());
    for (unsigned i = 0, busy = 0; i < RAILS; i++) {
        busy += world_ep(0)->paths[i]->stats.sent_bytes > LEN / 16;
        assert_true(busy > 1 || i < RAILS - 1);
    }
    dereg();
}

/* What a rail is before any path is there: so its user hears at once that it cannot be. */
static void before_a_path_on_one(void **state)
{
    (void)state;
    prepare(SL_ON);
    world_open();
    for (unsigned side = 0; side < 2; side++) {
        reg(side);
        assert_int_equal(rails_of(side), 1);
    }
    world_connect();
    message(LIMIT / 32);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(rails_of(side) == (rail_bit(side) | 1));
    message(LEN);
    dereg();
}

/* Its memory is cleared for the first rail alone, which goes before anything went. */
static void what_was_cleared_goes_by_rails_that_came_later(void **state)
{
    struct sl_buf buf = {.addr = sent, .len = LEN};
    struct sl_sink sink = {.dst = got, .len = LEN, .tag = 3};
    struct sl_req send, recv;

    (void)state;
    prepare(SL_ON);
    world_join();
    fake_ibv_retry_steps(world_fake, 100000000, 2);
    for (unsigned side = 0; side < 2; side++)
        reg(side);
    buf.mr = mr[0];
    sink.mr = mr[1];
    unsigned first = world_ep(0)->frame_path->rail->idx;

    assert_true(world_recv(1, &sink, &recv) >= 0);
    assert_true(world_send(0, &buf, 3, &send) >= 0);
    WORLD_UNTIL(world_ep(0)->frame_path->writes > 0);
    fake_ibv_block(world_fake, first, 1, RAILS + first, 1, true);
    WORLD_UNTIL(send.status != SL_PENDING && recv.status != SL_PENDING);
    assert_int_equal(send.status, 0);
    assert_int_equal(recv.status, 0);
    assert_memory_equal(sent, got, LEN);
    dereg();
}

static void where_it_cannot_be_that_rail_is_out_alone(void **state)
{
    for (unsigned side = 0; side < 2; side++) {
        (void)state;
        if (side == 1)
            world_end();
        limited = side * RAILS + 2;
        prepare(SL_ON);
        world_join();
        assert_int_not_equal(world_ep(side)->frame_path->rail->idx, 2);
        for (unsigned i = 0; i < 2; i++)
            reg(i);
        message(LEN);
        WORLD_UNTIL(world_iface(side)->rails[2].is_lost);
        all_paths(RAILS - 1);
        assert_non_null(strstr(world_iface(side)->rails[2].base.why, "regist"));
        message(LEN);
        assert_int_equal(world[0].downs + world[1].downs, 0);
        dereg();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(off_registers_on_all),
        CASE(one_path_one_registration),
        CASE(further_rails_with_their_paths),
        CASE(before_a_path_on_one),
        CASE(what_was_cleared_goes_by_rails_that_came_later),
        CASE(where_it_cannot_be_that_rail_is_out_alone),
    };

    for (size_t i = 0; i < LEN; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    limited = 2 * RAILS;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
