/* SPDX-License-Identifier: Apache-2.0 */
/* Rails in reserve have no device, no queues and no memory before a path needs them. */
#include "multipath/gpu_copy.h"
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"
#include "verbs/region.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define RAILS 4
#define LEN (3u << 20)

static uint8_t sent[LEN], got[LEN];
static struct sl_mr *mr[2];

static void prepare(void (*more)(struct fake_ibv_device *params))
{
    world_rails[0] = world_rails[1] = RAILS;
    world_prepare(more);
    for (unsigned side = 0; side < 2; side++) {
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_ON;
        sl_verbs_config_edit(&world[side].config)->mp.reserve = SL_ON;
    }
}

static void join(void)
{
    struct sl_mem mem = {.len = LEN, .kind = SL_MEM_HOST, .fd = -1};

    world_join();
    for (unsigned side = 0; side < 2; side++) {
        mem.addr = side == 0 ? sent : got;
        assert_int_equal(sl_verbs_mr_reg(world[side].iface, &mem, &mr[side], NULL), 0);
    }
}

static void leave(void)
{
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_mr_dereg(world[side].iface, mr[side]);
}

static unsigned awake(unsigned side)
{
    unsigned count = 0;

    for (unsigned i = 0; i < RAILS; i++)
        count += !world_iface(side)->rails[i].is_asleep;
    return count;
}

static uint16_t registered(unsigned side)
{
    const struct sl_verbs_mr *region = ((const struct sl_mem_region *)mr[side])->handle;

    return region->base.rails;
}

/* Of both ends: devices that are open, and completion queues. */
static void expect_open(unsigned count)
{
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_CONTEXT), count);
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_CQ), count);
    assert_int_equal(awake(0) + awake(1), count);
}

static void begin(struct sl_req *send, struct sl_req *recv)
{
    static struct sl_buf buf;
    static struct sl_sink sink;

    buf = (struct sl_buf){.addr = sent, .len = LEN, .mr = mr[0]};
    sink = (struct sl_sink){.dst = got, .len = LEN, .tag = 3, .mr = mr[1]};
    for (unsigned i = 0; i < LEN; i++)
        sent[i] = (uint8_t)(sent[i] + 3 * i + 1);
    assert_true(world_recv(1, &sink, recv) >= 0);
    assert_true(world_send(0, &buf, 3, send) >= 0);
}

/* How long it took. */
static uint64_t finish(const struct sl_req *send, const struct sl_req *recv)
{
    uint64_t since_ns = loop_now(world_loop);

    WORLD_UNTIL(send->status != SL_PENDING && recv->status != SL_PENDING);
    assert_int_equal(send->status, 0);
    assert_int_equal(recv->status, 0);
    assert_memory_equal(sent, got, LEN);
    return loop_now(world_loop) - since_ns;
}

static uint64_t message(void)
{
    struct sl_req send, recv;

    begin(&send, &recv);
    return finish(&send, &recv);
}

static void what_is_in_reserve_is_not_open(void **state)
{
    (void)state;
    prepare(NULL);
    join();
    for (unsigned i = 0; i < 3; i++)
        message();
    expect_open(2);
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(registered(side), 1);
        for (unsigned i = 0; i < RAILS; i++)
            assert_true(world_ep(side)->peer.rails[i].usable != 0); /* peers may ask for it */
        assert_int_equal(world[side].iface->ops->delivers(world[side].iface), 1000);
    }
    leave();
}

static void with_lazy_off_all_is_open_from_the_start(void **state)
{
    (void)state;
    prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_OFF;
    join();
    expect_open(2 * RAILS);
    leave();
}

static void who_lists_paths_wants_their_rails(void **state)
{
    (void)state;
    prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        strcpy(sl_verbs_config_edit(&world[side].config)->mp.paths, "0>0,2>2");
    join();
    expect_open(2 * RAILS);
    leave();
}

/* A message is under way when the first rail goes: the others are opened, it is whole in time, and
 * the memory that it lies in is registered there. */
static void the_reserve_wakes_when_the_first_rail_goes(void **state)
{
    struct sl_req send, recv;

    (void)state;
    prepare(NULL);
    join();
    message();
    begin(&send, &recv);
    for (unsigned i = 0; i < 4; i++)
        world_progress();
    assert_int_equal(recv.status, SL_PENDING);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    assert_true(finish(&send, &recv) < SL_NS_PER_S);
    WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 1 && world_ep(1)->paths_up == RAILS - 1);
    expect_open(2 * RAILS);
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(registered(side) == (1u << RAILS) - 1);
    message();
    assert_true(world_ep(0)->paths[0]->state != SL_MP_PATH_UP);
    leave();
}

/* The cable that says nothing. */
static void the_reserve_wakes_when_nothing_comes_back(void **state)
{
    struct sl_req send, recv;

    (void)state;
    prepare(NULL);
    join();
    message();
    begin(&send, &recv);
    for (unsigned i = 0; i < 4; i++)
        world_progress();
    assert_int_equal(recv.status, SL_PENDING);
    fake_ibv_block(world_fake, 0, 1, RAILS, 1, true);
    assert_true(finish(&send, &recv) < SL_NS_PER_S);
    leave();
}

/* Opening one takes milliseconds, in which the others stand still. */
static void one_wakes_in_a_turn(void **state)
{
    (void)state;
    prepare(NULL);
    join();
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    for (unsigned count = 2; count < 2 * RAILS;) {
        world_progress(); /* a turn of each end */
        unsigned now = awake(0) + awake(1);

        assert_true(now - count <= 2);
        count = now;
    }
    message();
    leave();
}

/* Its port went down while it slept: it stays out, and the peer hears of it. */
static void a_port_that_is_down_by_then_is_left_out(void **state)
{
    (void)state;
    prepare(NULL);
    join();
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_DOWN);
    message();
    assert_true(world_iface(0)->rails[1].base.usable); /* as far as anybody knows */
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    assert_true(message() < SL_NS_PER_S);
    WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 2 && world_ep(1)->paths_up == RAILS - 2);
    assert_false(world_iface(0)->rails[1].base.usable);
    assert_null(world_iface(0)->rails[1].qpns); /* no queue pair was made there */
    WORLD_UNTIL(world_ep(1)->peer.rails[1].usable == 0);
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 1 && world_ep(1)->paths_up == RAILS - 1);
    message();
    leave();
}

/* It cannot be opened at first: the others carry, and it is tried again. */
static void one_that_cannot_be_opened_is_tried_again(void **state)
{
    static const enum fake_ibv_call calls[] = {FAKE_IBV_OPEN_DEVICE, FAKE_IBV_CREATE_CQ,
                                               FAKE_IBV_CREATE_SRQ, FAKE_IBV_POST_SRQ_RECV,
                                               FAKE_IBV_REG_MR};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(calls); i++) {
        if (i > 0)
            world_end();
        prepare(NULL);
        join();
        message();
        fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
        WORLD_UNTIL(world_ep(0)->paths[0]->state != SL_MP_PATH_UP);
        fake_ibv_fail(world_fake, calls[i], 1, ENOMEM);
        assert_true(message() < SL_NS_PER_S);
        WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 1 && world_ep(1)->paths_up == RAILS - 1);
        WORLD_UNTIL(registered(0) == (1u << RAILS) - 1);
        message();
        leave();
    }
}

static void a_device_that_is_gone_by_then_is_lost(void **state)
{
    (void)state;
    prepare(NULL);
    join();
    fake_ibv_device_remove(world_fake, 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    assert_true(message() < SL_NS_PER_S);
    WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 2);
    assert_true(world_iface(0)->rails[1].is_lost && !world_iface(0)->rails[1].is_asleep);
    assert_false(world_iface(0)->rails[1].base.usable);
    WORLD_UNTIL(world_ep(1)->peer.rails[1].usable == 0);
    fake_ibv_device_return(world_fake, 1);
    WORLD_UNTIL(world_ep(0)->paths_up == RAILS - 1);
    message();
    leave();
}

/* The one that would carry cannot be opened at the start: then one of the reserve is, at once. */
static void one_is_open_in_any_case(void **state)
{
    (void)state;
    prepare(NULL);
    /* The listing opens all; the one completion queue of side 0. */
    fake_ibv_fail(world_fake, FAKE_IBV_CREATE_CQ, 1, ENOMEM);
    join();
    assert_int_equal(world_iface(0)->mp.rail_count, RAILS - 1);
    assert_false(world_iface(0)->rails[0].is_asleep);
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_CONTEXT), 2);
    message();
    leave();
}

/* A port without a link cannot be what carries, and is opened to hear when it gets one. */
static void one_without_a_link_is_awaited(void **state)
{
    (void)state;
    prepare(NULL);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
    world_join();
    assert_false(world_iface(0)->rails[0].is_asleep);
    assert_false(world_iface(0)->rails[1].is_asleep);
    assert_true(world_iface(0)->rails[2].is_asleep);
    WORLD_UNTIL(world_ep(0)->paths_up == 1);
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2);
    assert_ptr_equal(world_ep(0)->paths[0]->rail, &world_iface(0)->rails[0].base);
    world_message(LEN);
    assert_true(world_iface(0)->rails[2].is_asleep);
}

/* What it takes is known before it is opened. */
static void with_dmabuf(struct fake_ibv_device *params)
{
    params->dmabuf = true;
}

static void with_dmabuf_but_for_the_last(struct fake_ibv_device *params)
{
    params->dmabuf = strcmp(params->name, "a3") != 0;
}

static void gpu_memory_needs_all_that_may_carry(void **state)
{
    (void)state;
    prepare(with_dmabuf);
    world_join();
    assert_true((world[0].iface->caps & SL_CAP_GPU) != 0);
    world_end();
    prepare(with_dmabuf_but_for_the_last);
    world_join();
    assert_true((world[0].iface->caps & SL_CAP_GPU) == 0);
    assert_true((world[1].iface->caps & SL_CAP_GPU) != 0);
}

/* The second path of a connection that has sent something, for want of another way to agree. */
static void with_auto_a_second_one_stands_by(void **state)
{
    (void)state;
    prepare(NULL);
    for (unsigned side = 0; side < 2; side++)
        sl_verbs_config_edit(&world[side].config)->mp.lazy = SL_AUTO;
    join();
    expect_open(2);
    message();
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    for (unsigned i = 0; i < 3; i++)
        message();
    expect_open(4);
    leave();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {CASE(what_is_in_reserve_is_not_open),
                                       CASE(with_lazy_off_all_is_open_from_the_start),
                                       CASE(who_lists_paths_wants_their_rails),
                                       CASE(the_reserve_wakes_when_the_first_rail_goes),
                                       CASE(the_reserve_wakes_when_nothing_comes_back),
                                       CASE(one_wakes_in_a_turn),
                                       CASE(a_port_that_is_down_by_then_is_left_out),
                                       CASE(one_that_cannot_be_opened_is_tried_again),
                                       CASE(a_device_that_is_gone_by_then_is_lost),
                                       CASE(one_is_open_in_any_case),
                                       CASE(one_without_a_link_is_awaited),
                                       CASE(gpu_memory_needs_all_that_may_carry),
                                       CASE(with_auto_a_second_one_stands_by)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
