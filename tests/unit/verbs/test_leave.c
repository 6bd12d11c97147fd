/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that closes its endpoint: it says so before its lanes stop, and from then on nothing is
 * asked of it, and no path that fails is a fault. */
#include "tests/unit/verbs/world.h"

#include "core/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static unsigned warnings, lanes_at_goodbye;

static void count_warnings(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)area;
    warnings += level <= SL_LOG_WARN && strstr(line, " is down: ") != NULL;
}

static int fresh(void **state)
{
    (void)state;
    warnings = lanes_at_goodbye = 0;
    world_prepare(NULL);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(1000);
    sl_log_set_sink(count_warnings, NULL);
    return 0;
}

static int clean(void **state)
{
    sl_log_set_sink(NULL, NULL);
    return world_clean(state);
}

/* As TCP says it once the farewell is read, before the rest of what was on its way. */
static void leave(unsigned side)
{
    world_ep(side)->sideband->left = true;
}

/* ---- the end that goes ---- */

static void (*sideband_destroy)(struct sl_ep *ep);

static void at_goodbye(struct sl_ep *ep)
{
    for (unsigned i = 0; i < world_ep(0)->path_count; i++)
        lanes_at_goodbye += sl_mp_path_carries(world_ep(0)->paths[i]);
    sideband_destroy(ep);
}

static void the_goodbye_is_said_before_lanes_stop(void **state)
{
    struct sl_iface *sideband = world_iface(0)->mp.sideband;
    struct sl_transport_ops ops = *sideband->ops;
    const struct sl_transport_ops *before = sideband->ops;

    (void)state;
    sideband_destroy = ops.ep_destroy;
    ops.ep_destroy = at_goodbye;
    sideband->ops = &ops;
    world[0].iface->ops->ep_destroy(world[0].ep);
    world[0].ep = NULL;
    sideband->ops = before;
    assert_int_equal(lanes_at_goodbye, 2);
}

static void progress_of(unsigned side, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        fake_ibv_run(world_fake, 3);
        assert_true(world[side].iface->ops->progress(world[side].iface, 64) >= 0);
        loop_pass(world_loop, 2000);
    }
}

/* A short message is done for its sender when it is posted. Its path ends as the sender leaves, by
 * the other end's doing or its own, and the message goes by the other one. */
static void what_was_sent_arrives_though_its_path_ends_meanwhile(void **state)
{
    static uint8_t out[100], in[100];

    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        if (side > 0) {
            clean(NULL);
            fresh(NULL);
        }
        struct sl_mp_path *path = world_ep(0)->frame_path;
        struct sl_buf buf = {.addr = out, .len = sizeof(out)};
        struct sl_sink sink = {.dst = in, .len = sizeof(in), .tag = 5};
        struct sl_req send, recv;

        memset(out, 0x30 + (int)side, sizeof(out));
        fake_ibv_block(world_fake, path->rail->idx, 1, 2u + path->remote_rail, 1, true);
        assert_true(world_recv(1, &sink, &recv) >= 0);
        assert_int_equal(world_send(0, &buf, 5, &send), 1);
        sl_mp_failed(side == 0 ? path : world_ep(1)->paths[path->idx], 0, "as the case wants it");
        progress_of(side, 20);
        if (side == 0) /* the other end answers, and this one has not heard it yet */
            progress_of(1, 20);
        world[0].iface->ops->ep_destroy(world[0].ep);
        world[0].ep = NULL;
        for (unsigned i = 0; i < 1000 && recv.status == SL_PENDING; i++)
            progress_of(1, 1);
        assert_int_equal(recv.status, 0);
        assert_memory_equal(in, out, sizeof(in));
    }
}

/* ---- the other one ---- */

/* What is posted to the path that carries no frames, while some go by the other one. */
static uint32_t asked(void)
{
    struct sl_mp_path *other = world_ep(0)->paths[!world_ep(0)->frame_path->idx];
    uint32_t posted = other->posted;

    for (uint64_t until_ns = loop_now(world_loop) + SL_NS_PER_S / 2;
         loop_now(world_loop) < until_ns;) {
        world_message(64);
        loop_pass(world_loop, SL_NS_PER_MS);
    }
    return other->posted - posted;
}

static void nothing_is_asked_of_it(void **state)
{
    (void)state;
    assert_true(asked() > 0);
    leave(0);
    assert_int_equal(asked(), 0);
}

/* Where it said so by a path, and what it sent before waits for its receive. */
static void nor_by_pings_where_there_is_no_sideband(void **state)
{
    struct sl_mp_conn *conn = world_ep(0);
    uint8_t bytes[64] = {1, 2, 3}, got[64] = {0};
    struct sl_buf buf = {.addr = bytes, .len = sizeof(bytes)};
    struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 7};
    struct sl_req send_req, recv_req;

    (void)state;
    loop_redials(world_loop, 1);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    WORLD_UNTIL(!conn->sideband_up && !world_ep(1)->sideband_up);
    assert_true(world_send(1, &buf, 7, &send_req) >= 0);
    world[1].iface->ops->ep_destroy(world[1].ep);
    world[1].ep = NULL;
    WORLD_UNTIL(conn->left);
    for (uint64_t until_ns = loop_now(world_loop) + 3 * SL_NS_PER_S;
         loop_now(world_loop) < until_ns;)
        world_progress();
    assert_int_equal(conn->paths_up, 2); /* nobody was there to answer a ping */
    assert_true(world_recv(0, &sink, &recv_req) >= 0);
    WORLD_UNTIL(recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(got, bytes, sizeof(bytes));
}

/* Nor is a lane made anew. */
static void a_path_that_fails_meanwhile_is_no_fault(void **state)
{
    struct sl_mp_path *path = world_ep(0)->paths[1];

    (void)state;
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state != SL_MP_PATH_UP);
    assert_int_equal(warnings, 2); /* the other end tells of it, too */
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    warnings = 0;
    leave(0);
    leave(1);
    sl_mp_failed(path, 0, "a test");
    for (uint64_t until_ns = loop_now(world_loop) + SL_NS_PER_S; loop_now(world_loop) < until_ns;)
        world_progress();
    assert_int_equal(path->state, SL_MP_PATH_IDLE);
    assert_int_equal(warnings, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(the_goodbye_is_said_before_lanes_stop),
        CASE(what_was_sent_arrives_though_its_path_ends_meanwhile),
        CASE(nothing_is_asked_of_it),
        CASE(nor_by_pings_where_there_is_no_sideband),
        CASE(a_path_that_fails_meanwhile_is_no_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
