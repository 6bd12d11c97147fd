/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs that stop: what they had of the shared receive queue comes back, as devices do that
 * drop completions with their queue pair, and nothing waits for them. */
#include "tests/fake/fake_ibv_inside.h"
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define SLOW_STEPS 40 /* until a completion can be seen */
#define WHENS 12      /* looks at the clock, at each of which it may happen once */
#define PATHS 40
#define AHEAD_STEPS 400 /* until a receive is flushed that a queue pair had taken */

static void as_mlx5(struct fake_ibv_device *params)
{
    params->mlx5 = true;
    params->ahead_steps = AHEAD_STEPS;
}

static void one_queue_pair(struct fake_ibv_device *params)
{
    as_mlx5(params);
    params->attr.max_qp = 1;
}

/* Receive buffers that wait at the NIC, as it counts them and as the rail does. */
static bool all_at_nic(unsigned side)
{
    bool all = true;

    for (unsigned i = 0; i < world_iface(side)->mp.rail_count; i++) {
        const struct sl_verbs_rail *rail = &world_iface(side)->rails[i];

        all &= FAKE_OF(fake_srq, rail->srq)->rq.count == rail->shared_blocks * SL_VERBS_BLOCK_SLOTS;
        all &= rail->slots_free == rail->shared_blocks * SL_VERBS_BLOCK_SLOTS;
    }
    return all;
}

static bool none_leaves(void)
{
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < world_iface(side)->mp.rail_count; i++)
            if (world_iface(side)->rails[i].leaving != NULL)
                return false;
    return true;
}

static void fail_first_path(unsigned side, unsigned times)
{
    struct sl_mp_path *path = world_ep(side)->paths[0];

    for (unsigned i = 1; i <= times; i++) {
        fake_ibv_qp_fatal(world_fake, sl_verbs_path_of(path)->qp);
        for (unsigned k = 0; k < 3; k++)
            world_message(k * 3000);
        for (unsigned end = 0; end < 2; end++)
            world_ep(end)->paths[0]->losses = 0; /* else it would rest a minute */
        WORLD_UNTIL(path->stats.ups > i && world_ep(!side)->paths[0]->stats.ups > i);
    }
}

static void what_a_stopped_queue_pair_took_comes_back(void **state)
{
    (void)state;
    world_prepare(as_mlx5);
    world_join();
    fake_ibv_delay(world_fake, 10);
    fail_first_path(0, 10);
    fake_ibv_delay(world_fake, 0);
    WORLD_UNTIL(none_leaves() && all_at_nic(0) && all_at_nic(1));
    assert_int_equal(fake_ibv_live_of(world_fake, FAKE_IBV_QP), 4);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* Devices that never say it, or say it late. */
static void without_the_event_it_leaves_after_a_while(void **state)
{
    struct sl_mp_path *path;
    uint64_t began_ns;

    (void)state;
    world_prepare(as_mlx5);
    world_join();
    path = world_ep(0)->paths[0];
    fake_ibv_event_delay(world_fake, 1u << 30);
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->stats.ups == 2);
    began_ns = loop_now(world_loop);
    assert_non_null(world_iface(0)->rails[0].leaving); /* and its path has another already */
    world_message(100000);
    WORLD_UNTIL(none_leaves());
    assert_in_range(loop_now(world_loop) - began_ns, 1, 200 * SL_NS_PER_MS);
    assert_true(all_at_nic(0) && all_at_nic(1));
}

/* Not before what the queue pair left has been read of the completion queue. */
static void the_event_alone_ends_no_queue_pair(void **state)
{
    struct sl_verbs_rail *rail;
    struct ibv_qp *qp;

    (void)state;
    world_prepare(as_mlx5);
    world_join();
    rail = &world_iface(0)->rails[0];
    qp = sl_verbs_path_of(world_ep(0)->paths[0])->qp;
    sl_mp_failed(world_ep(0)->paths[0], 0, "a test");
    WORLD_UNTIL(rail->leaving != NULL);
    if (!FAKE_OF(fake_qp, qp)->has_ahead)
        fake_respond_take(FAKE_OF(fake_qp, qp));
    FAKE_OF(fake_qp, qp)->last_wqe_due = true;
    fake_ibv_run(world_fake, 2 * AHEAD_STEPS);
    assert_true(FAKE_OF(fake_cq, rail->cq)->count > 0); /* its buffer, flushed, not polled yet */
    sl_verbs_rail_events(rail);
    assert_null(rail->leaving);
    assert_false(FAKE_OF(fake_qp, qp)->obj.alive);
    assert_int_equal(FAKE_OF(fake_srq, rail->srq)->rq.count,
                     rail->shared_blocks * SL_VERBS_BLOCK_SLOTS);
}

/* Another interface of the process reads the device's events, and leaves them for this one, where
 * there is room for few: they are not taken for queue pairs that failed, and take no room of
 * those. */
static void many_that_leave_at_once_cost_no_other_path(void **state)
{
    struct sl_verbs_event events[SL_VERBS_EVENTS_MAX];
    struct sl_verbs_listener other = {.port = 1, .bell = -1};
    struct sl_verbs_rail *rail;
    char list[SL_TEXT_MAX] = "0>0";
    bool overflowed;

    (void)state;
    for (unsigned i = 1; i < PATHS; i++)
        strcat(list, ",0>0");
    world_prepare(as_mlx5);
    for (unsigned side = 0; side < 2; side++)
        snprintf(sl_verbs_config_edit(&world[side].config)->mp.paths, SL_TEXT_MAX, "%s", list);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == PATHS && world_ep(1)->paths_up == PATHS);
    rail = &world_iface(0)->rails[0];
    sl_verbs_device_listen(rail->device, &other);
    for (unsigned i = 0; i < PATHS; i++)
        fake_event_raise(FAKE_OF(fake_context, rail->device->context),
                         IBV_EVENT_QP_LAST_WQE_REACHED,
                         &FAKE_OF(fake_qp, sl_verbs_path_of(world_ep(0)->paths[i])->qp)->obj, 0);
    fake_event_raise(FAKE_OF(fake_context, rail->device->context), IBV_EVENT_QP_FATAL,
                     &FAKE_OF(fake_qp, sl_verbs_path_of(world_ep(0)->paths[3])->qp)->obj, 0);
    for (unsigned i = 0; i < PATHS / 8; i++)
        (void)sl_verbs_device_events(rail->device, &other, events, &overflowed);
    sl_verbs_device_unlisten(rail->device, &other);
    WORLD_UNTIL(world_ep(0)->paths[3]->stats.failures == 1);
    for (unsigned i = 0; i < PATHS; i++)
        assert_int_equal(world_ep(0)->paths[i]->stats.failures, i == 3);
    assert_non_null(strstr(world_ep(0)->paths[3]->why, "local work queue catastrophic error"));
}

/* It counts at its device, which may have no room for more: the path waits, and is not given up. */
static void where_there_is_room_for_one_the_next_waits(void **state)
{
    struct sl_mp_path *path;

    (void)state;
    world_prepare(one_queue_pair);
    world_join();
    path = world_ep(0)->paths[0];
    for (unsigned i = 1; i < 6; i++) {
        sl_mp_failed(path, 0, "a test");
        WORLD_UNTIL(path->stats.ups == i + 1);
    }
    world_message(10000);
    WORLD_UNTIL(none_leaves() && all_at_nic(0) && all_at_nic(1));
}

static void a_lost_rail_waits_for_none(void **state)
{
    struct sl_verbs_rail *rail;

    (void)state;
    world_prepare(as_mlx5);
    world_join();
    rail = &world_iface(0)->rails[0];
    fake_ibv_event_delay(world_fake, 1u << 30);
    sl_mp_failed(world_ep(0)->paths[0], 0, "a test");
    WORLD_UNTIL(rail->leaving != NULL);
    fake_ibv_event_delay(world_fake, 0);
    fake_ibv_device_remove(world_fake, 0);
    sl_verbs_rail_lose(rail, "a test");
    WORLD_UNTIL(rail->leaving == NULL);
    fake_ibv_device_return(world_fake, 0);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(100000);
}

/* ---- draining ---- */

static unsigned off_looks; /* looks at the clock until the thread is off its processor */

static void look_and_lose_time(void *arg)
{
    (void)arg;
    fake_ibv_run(world_fake, 1);
    if (off_looks != 0 && --off_looks == 0)
        loop_pass(world_loop, 20 * SL_NS_PER_MS);
}

/* A thread that loses its processor while it drains has not looked meanwhile: it looks again before
 * it gives up, or the connection would end for messages that had arrived. */
static void a_thread_that_was_away_looks_again(void **state)
{
    (void)state;
    for (unsigned when = 1; when < WHENS; when++) {
        char sent[64] = "a message", got[64] = "";
        struct sl_buf buf = {.addr = sent, .len = sizeof(sent)};
        struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 7};
        struct sl_req send_req, recv_req;
        struct sl_mp_path *path;

        world_prepare(as_mlx5);
        world_join();
        path = world_ep(1)->paths[world_ep(0)->frame_path->idx];
        world_recv(1, &sink, &recv_req);
        fake_ibv_delay(world_fake, SLOW_STEPS);
        world_send(0, &buf, 7, &send_req);
        fake_ibv_run(world_fake, 10);
        loop_on_look(world_loop, look_and_lose_time, NULL);
        sl_mp_failed(path, 0, "a test");
        off_looks = when;
        world[1].iface->ops->progress(world[1].iface, 64);
        off_looks = 0;
        assert_true(sl_verbs_path_of(path)->qp == NULL || sl_verbs_path_of(path)->drained);
        fake_ibv_delay(world_fake, 0);
        WORLD_UNTIL(recv_req.status != SL_PENDING);
        assert_int_equal(recv_req.status, 0);
        assert_string_equal(got, "a message");
        WORLD_UNTIL(path->stats.ups == 2);
        assert_int_equal(world[0].downs + world[1].downs, 0);
        if (when + 1 < WHENS)
            world_end();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, world_clean)
    const struct CMUnitTest tests[] = {CASE(what_a_stopped_queue_pair_took_comes_back),
                                       CASE(without_the_event_it_leaves_after_a_while),
                                       CASE(the_event_alone_ends_no_queue_pair),
                                       CASE(many_that_leave_at_once_cost_no_other_path),
                                       CASE(where_there_is_room_for_one_the_next_waits),
                                       CASE(a_lost_rail_waits_for_none),
                                       CASE(a_thread_that_was_away_looks_again)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
