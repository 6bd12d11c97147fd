/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that end and return: what the other end says of them, and how soon they are tried again. */
#include "tests/unit/verbs/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    return 0;
}

/* Both paths are up; the first is in its second epoch. */
static struct sl_mp_path *returned(unsigned side)
{
    struct sl_mp_path *path = world_ep(side)->paths[0];

    fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(path)->qp);
    world_message(5000);
    WORLD_UNTIL(path->stats.ups == 2 && world_ep(!side)->paths[0]->stats.ups == 2);
    WORLD_UNTIL(world_ep(side)->paths_up == 2 && world_ep(!side)->paths_up == 2);
    return path;
}

static void the_end_of_an_earlier_epoch_ends_nothing(void **state)
{
    struct sl_mp_control record = {.kind = SL_MP_CONTROL_DOWN, .path = 0};

    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        struct sl_mp_path *path = returned(side);
        uint64_t failures = path->stats.failures;

        record.epoch = (uint16_t)(path->epoch - 1);
        record.down.arrived = 7;
        sl_mp_on_control(world_ep(side), &record);
        assert_int_equal(path->state, SL_MP_PATH_UP);
        assert_int_equal(path->stats.failures, failures);
        world_message(100000);
        assert_int_equal(world_ep(side)->paths_up, 2);
    }
}

static void nor_is_a_fence_over_by_it(void **state)
{
    struct sl_mp_control record = {.kind = SL_MP_CONTROL_DOWN, .path = 0};
    struct sl_mp_path *path;

    (void)state;
    path = returned(0);
    sl_mp_failed(path, 0, "a test");
    for (int i = 0; i < 100 && path->state != SL_MP_PATH_FENCING; i++)
        world[0].iface->ops->progress(world[0].iface, 64);
    assert_int_equal(path->state, SL_MP_PATH_FENCING);
    record.epoch = (uint16_t)(path->epoch - 1);
    sl_mp_on_control(world_ep(0), &record);
    assert_int_equal(path->state, SL_MP_PATH_FENCING);
    record.epoch = path->epoch;
    record.down.arrived = path->carried;
    WORLD_UNTIL(path->stats.ups == 3);
    world_message(100000);
}

/* This end's device was told that its last message had arrived, and the other end never saw it. */
static void what_was_acknowledged_and_is_gone_ends_the_connection(void **state)
{
    struct sl_mp_control record = {.kind = SL_MP_CONTROL_DOWN};
    struct sl_mp_path *path;

    (void)state;
    world_message(100000);
    path = world_ep(0)->paths[world_ep(0)->paths[0]->carried == 0];
    WORLD_UNTIL(path->carried > 0);
    sl_mp_failed(path, 0, "a test");
    for (int i = 0; i < 100 && path->state != SL_MP_PATH_FENCING; i++)
        world[0].iface->ops->progress(world[0].iface, 64);
    assert_int_equal(path->state, SL_MP_PATH_FENCING);
    record.path = path->idx;
    record.epoch = path->epoch;
    record.down.arrived = path->carried - 1;
    sl_mp_on_control(world_ep(0), &record);
    WORLD_UNTIL(world[0].downs == 1 || path->state == SL_MP_PATH_UP);
    assert_int_equal(world[0].downs, 1);
    assert_int_equal(world_ep(0)->down_status, -EHOSTUNREACH);
    assert_string_equal(world_ep(0)->why,
                        "a device of rank 1 failed with 1 messages in it that it had acknowledged");
}

/* Of every path, from its first to its last word. */
static void a_lost_connection_has_the_reasons_of_all_paths(void **state)
{
    struct sl_mp_conn *conn = world_ep(0);
    char reasons[SL_ERROR_TEXT_MAX];

    (void)state;
    for (unsigned i = 0; i < conn->path_count; i++)
        snprintf(conn->paths[i]->why, sizeof(conn->paths[i]->why), "<%0*u>",
                 (int)sizeof(conn->paths[i]->why) - 3, i);
    sl_mp_reasons(conn, reasons, sizeof(reasons));
    sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path: %s", reasons);
    for (unsigned i = 0; i < conn->path_count; i++)
        assert_non_null(strstr(conn->why, conn->paths[i]->why));
    assert_int_equal(conn->why[strlen(conn->why) - 1], '>');
    WORLD_UNTIL(world[0].downs == 1);
}

/* ---- how soon ---- */

#define BACKOFF_NS                                                                                 \
    (50 * SL_NS_PER_MS) /* before the first try, twice as much before each that follows soon */
#define COARSE_NS (10 * SL_NS_PER_MS) /* timers are looked at now and then */
#define LASTING_NS (6 * SL_NS_PER_S)  /* up for so long: the next failure is a first one */

/* The first path of the end that offers it. */
static struct sl_mp_path *leading(void)
{
    return world_ep(!world_ep(0)->leads)->paths[0];
}

static void until_up(const struct sl_mp_path *path)
{
    WORLD_UNTIL(path->state == SL_MP_PATH_UP && !path->failing && world_ep(0)->paths_up == 2 &&
                world_ep(1)->paths_up == 2);
}

/* Fails it, and tells how long it rests. */
static uint64_t rest_ns(struct sl_mp_path *path)
{
    uint64_t start_ns;

    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_IDLE);
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(path->state != SL_MP_PATH_IDLE);
    return loop_now(world_loop) - start_ns;
}

static void fail_often(struct sl_mp_path *path)
{
    for (uint64_t expected_ns = BACKOFF_NS; expected_ns < 16 * BACKOFF_NS; expected_ns *= 2) {
        assert_in_range(rest_ns(path), expected_ns - COARSE_NS, expected_ns + COARSE_NS);
        until_up(path);
    }
}

static void a_path_that_lasted_is_tried_again_as_soon_as_a_new_one(void **state)
{
    struct sl_mp_path *path = leading();

    (void)state;
    fail_often(path);
    loop_pass(world_loop, LASTING_NS);
    assert_in_range(rest_ns(path), BACKOFF_NS - COARSE_NS, BACKOFF_NS + COARSE_NS);
    until_up(path);
    world_message(100000);
}

/* A hello says that a rail has changed: what failed before says nothing of it. */
static void news_of_a_rail_end_the_rest_and_make_the_next_short(void **state)
{
    struct sl_mp_path *path = leading();
    uint64_t start_ns;

    (void)state;
    fail_often(path);
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_IDLE);
    start_ns = loop_now(world_loop);
    sl_mp_hello_send(sl_mp_conn_of(world[path->conn == world_ep(0)].ep));
    WORLD_UNTIL(path->state != SL_MP_PATH_IDLE);
    assert_true(loop_now(world_loop) - start_ns < BACKOFF_NS);
    until_up(path);
    assert_in_range(rest_ns(path), BACKOFF_NS - COARSE_NS, BACKOFF_NS + COARSE_NS);
    until_up(path);
}

/* ---- the first words ---- */

static int apart(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_open();
    return 0;
}

/* One end is connected a moment before the other, which has its hello while it has not said its
 * own. */
static void hear_early(unsigned late)
{
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    struct sl_mp_control hello;
    struct sl_addr addr[2];

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_addr(world[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world[i].iface->ops->ep_connect(world[i].ep, &addr[!i], &req[i]), 0);
    for (int i = 0; i < 100 && world_ep(!late)->control_out == 0; i++)
        world[!late].iface->ops->progress(world[!late].iface, 64);
    hello = *world_ep(!late)->unhandled[0];
    assert_int_equal(hello.kind, SL_MP_CONTROL_HELLO);
    assert_int_equal(world_ep(late)->control_out, 0);
    sl_mp_control_take(world_ep(late), &hello, sl_mp_control_size(&hello));
    WORLD_UNTIL(req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    if (req[0].status != 0 || req[1].status != 0)
        fail_msg("not connected: %d, %d: %s", req[0].status, req[1].status, sluice_last_error());
    world_message(100000);
}

/* Of the two ends one leads, and answers a hello by offers. */
static void offers_do_not_overtake_a_hello_of_rank_0(void **state)
{
    (void)state;
    hear_early(0);
}

static void nor_one_of_rank_1(void **state)
{
    (void)state;
    hear_early(1);
}

/* ---- the sideband is lost, and paths carry ---- */

static unsigned heard;

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    (void)arg, (void)ep;
    assert_int_equal(len, 4);
    assert_memory_equal(msg, "word", 4);
    heard++;
}

/* No path of that side has room for one more. */
static void fill_paths(unsigned side)
{
    struct sl_mp_conn *conn = world_ep(side);

    for (unsigned i = 0; i < conn->path_count; i++)
        while (sl_mp_path_has_room(conn->paths[i]))
            sl_mp_path_ping(conn->paths[i]);
}

/* It had taken the word that no path had room for. */
static void what_the_sideband_took_and_lost_goes_by_a_path(void **state)
{
    (void)state;
    world[1].iface->handler.ctrl = on_ctrl;
    heard = 0;
    world_message(100);
    fill_paths(0);
    assert_int_equal(world[0].iface->ops->ctrl(world[0].ep, "word", 4), 0);
    assert_int_equal(world_ep(0)->control_count, 0);
    loop_lose(world_loop, 0, -ETIMEDOUT, 0);
    WORLD_UNTIL(heard == 1);
    assert_false(world_ep(0)->sideband_up);
    world_message(100000);
    assert_int_equal(heard, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(the_end_of_an_earlier_epoch_ends_nothing),
        CASE(nor_is_a_fence_over_by_it),
        CASE(what_was_acknowledged_and_is_gone_ends_the_connection),
        CASE(a_lost_connection_has_the_reasons_of_all_paths),
        CASE(a_path_that_lasted_is_tried_again_as_soon_as_a_new_one),
        CASE(news_of_a_rail_end_the_rest_and_make_the_next_short),
        CASE(what_the_sideband_took_and_lost_goes_by_a_path),
        cmocka_unit_test_setup_teardown(offers_do_not_overtake_a_hello_of_rank_0, apart,
                                        world_clean),
        cmocka_unit_test_setup_teardown(nor_one_of_rank_1, apart, world_clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
