/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that stand still or are late, and what leaves them before their device gives them up. */
#include "tests/unit/verbs/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define LEN 400000

static uint8_t sent[LEN], got[LEN];
static struct sl_req send_req, recv_req;
static struct sl_buf buf;
static struct sl_sink sink;

/* No device gives anything up here. */
static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    fake_ibv_retry_steps(world_fake, 100000000, 2);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(100000);
    return 0;
}

static void start(void)
{
    for (size_t i = 0; i < LEN; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 11);
    memset(got, 0, LEN);
    buf = (struct sl_buf){.addr = sent, .len = LEN};
    sink = (struct sl_sink){.dst = got, .len = LEN, .tag = 7};
    assert_true(world_recv(1, &sink, &recv_req) >= 0);
    assert_true(world_send(0, &buf, 7, &send_req) >= 0);
}

static void finish(void)
{
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(sent, got, LEN);
}

static void block(unsigned rail, bool blocked)
{
    fake_ibv_block(world_fake, rail, 1, 2 + rail, 1, blocked);
}

static struct sl_mp_path *frames(void)
{
    return world_ep(0)->frame_path;
}

static struct sl_mp_path *other(void)
{
    return world_ep(0)->paths[!frames()->idx];
}

static uint64_t failures(void)
{
    uint64_t sum = 0;

    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++)
            sum += world_ep(side)->paths[i]->stats.failures;
    return sum;
}

static void pieces_on_a_path_that_stands_still_go_by_another(void **state)
{
    struct sl_mp_path *path = other();
    uint64_t start_ns;

    (void)state;
    start();
    WORLD_UNTIL(path->writes > 0);
    block(path->rail->idx, true);
    start_ns = loop_now(world_loop);
    finish();
    assert_true(loop_now(world_loop) - start_ns < path->repeat_ns * 2);
    assert_int_equal(path->stats.failures, 1);
    assert_non_null(strstr(path->why, "nothing came back"));
    assert_int_equal(world_ep(0)->paths[!path->idx]->stats.failures, 0);
    block(path->rail->idx, false);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
}

static void so_do_frames(void **state)
{
    struct sl_mp_path *path = frames();
    uint64_t start_ns;

    (void)state;
    block(path->rail->idx, true);
    start_ns = loop_now(world_loop);
    for (unsigned i = 0; i < 4; i++)
        world_message(64);
    assert_true(loop_now(world_loop) - start_ns < path->repeat_ns * 4);
    assert_ptr_not_equal(frames(), path);
    assert_int_equal(path->stats.failures, 1);
    block(path->rail->idx, false);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
}

/* What is under way there waits for a moment; what comes after it does not. */
static void a_late_path_gets_no_more_until_something_comes_back(void **state)
{
    struct sl_mp_path *path = other();
    uint64_t bytes;

    (void)state;
    start();
    WORLD_UNTIL(path->writes > 0);
    block(path->rail->idx, true);
    WORLD_UNTIL(path->late);
    bytes = path->stats.sent_bytes;
    while (world_ep(0)->paths[!path->idx]->writes > 0)
        world_progress();
    assert_true(path->late);
    assert_int_equal(path->stats.sent_bytes, bytes);
    block(path->rail->idx, false);
    fake_ibv_retry_steps(world_fake, 4, 2);
    finish();
    WORLD_UNTIL(!path->late);
    path->ps_per_byte = 0; /* as measured it was slow */
    world_message(LEN);
    assert_true(path->stats.sent_bytes > bytes);
    assert_int_equal(failures(), 0);
}

static void not_even_if_it_was_the_better_one(void **state)
{
    struct sl_mp_path *path = other(), *good = frames();
    struct sl_buf more = {.addr = sent, .len = LEN};
    static uint8_t there[LEN];
    struct sl_sink place = {.dst = there, .len = LEN, .tag = 7};
    struct sl_req more_req, there_req;
    uint64_t bytes;

    (void)state;
    start();
    WORLD_UNTIL(path->writes > 0);
    block(path->rail->idx, true);
    WORLD_UNTIL(path->late);
    assert_true(path->writes < SL_MP_WRITES_MAX && sl_mp_path_has_room(path));
    bytes = path->stats.sent_bytes;
    path->ps_per_byte = path->latency_ns = 1;
    good->ps_per_byte = SL_NS_PER_S;
    assert_true(world_recv(1, &place, &there_req) >= 0);
    assert_true(world_send(0, &more, 7, &more_req) >= 0);
    WORLD_UNTIL(more_req.status != SL_PENDING && there_req.status != SL_PENDING);
    assert_int_equal(path->stats.failures, 0);
    assert_int_equal(path->stats.sent_bytes, bytes);
    block(path->rail->idx, false);
    fake_ibv_retry_steps(world_fake, 4, 2);
    finish();
}

/* Then it is more likely the peer, or the way to it. */
static void where_nothing_comes_back_no_path_is_late(void **state)
{
    struct sl_mp_path *const *paths = world_ep(0)->paths;

    (void)state;
    start();
    WORLD_UNTIL(paths[0]->writes > 0 && paths[1]->writes > 0);
    block(0, true);
    block(1, true);
    for (uint64_t until_ns = loop_now(world_loop) + SL_NS_PER_S; loop_now(world_loop) < until_ns;) {
        world_progress();
        assert_false(paths[0]->late || paths[1]->late);
    }
    assert_true(paths[0]->writes > 0 && paths[1]->writes > 0);
    block(0, false);
    block(1, false);
    fake_ibv_retry_steps(world_fake, 4, 2);
    finish();
    assert_int_equal(failures(), 0);
}

/* Nor is anything wrong with the one that is left when the other has gone. */
static void without_another_no_path_is_late(void **state)
{
    struct sl_mp_path *path = frames(), *gone = other();

    (void)state;
    block(gone->rail->idx, true);
    sl_mp_failed(gone, 0, "a test");
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    start();
    block(path->rail->idx, true);
    for (uint64_t until_ns = loop_now(world_loop) + SL_NS_PER_S; loop_now(world_loop) < until_ns;)
        world_progress();
    assert_int_equal(path->state, SL_MP_PATH_UP);
    assert_false(path->late);
    block(path->rail->idx, false);
    fake_ibv_retry_steps(world_fake, 4, 2);
    finish();
    block(gone->rail->idx, false);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_int_equal(path->stats.failures, 0);
}

/* A rank that computes finds all of its paths late at once, and what came meanwhile a moment
 * later. */
static void who_does_not_look_blames_no_path(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        start();
        for (unsigned k = 0; k < i; k++)
            world_progress();
        fake_ibv_run(world_fake, 2000);
        loop_pass(world_loop, SL_NS_PER_S);
        finish();
        assert_false(world_ep(0)->paths[0]->late || world_ep(0)->paths[1]->late);
    }
    assert_int_equal(failures(), 0);
}

/* And what it finds is not all there is: the rest needs as long as ever. */
static void nor_does_who_finds_little_at_first(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        start();
        for (unsigned k = 0; k < i; k++)
            world_progress();
        loop_pass(world_loop, SL_NS_PER_S);
        while (send_req.status == SL_PENDING || recv_req.status == SL_PENDING) {
            world_progress();
            assert_false(world_ep(0)->paths[0]->late || world_ep(0)->paths[1]->late);
        }
        finish();
    }
    assert_int_equal(failures(), 0);
}

/* Here the other side does not look: devices acknowledge by themselves. */
static void nor_does_who_is_not_looked_at(void **state)
{
    (void)state;
    start();
    for (uint64_t until_ns = loop_now(world_loop) + SL_NS_PER_S; loop_now(world_loop) < until_ns;) {
        fake_ibv_run(world_fake, 3);
        world[0].iface->ops->progress(world[0].iface, 64);
        loop_pass(world_loop, 100000);
    }
    finish();
    assert_int_equal(failures(), 0);
}

/* ---- where frames go ---- */

/* Messages for so long; the path by which frames went first answers late, as measured. */
static void chat(struct sl_mp_path *slow, uint64_t latency_ns, uint64_t ns)
{
    for (uint64_t until_ns = loop_now(world_loop) + ns; loop_now(world_loop) < until_ns;) {
        if (slow != NULL && frames() == slow)
            slow->latency_ns = latency_ns;
        world_message(64);
        loop_pass(world_loop, SL_NS_PER_MS);
    }
}

static void frames_leave_a_path_that_answers_late(void **state)
{
    struct sl_mp_path *path = frames();

    (void)state;
    chat(path, 50 * SL_NS_PER_MS, SL_NS_PER_S);
    assert_ptr_not_equal(frames(), path);
    assert_int_equal(path->stats.failures, 1);
    assert_int_equal(path->losses, 0); /* nothing was wrong with it: it returned at once */
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    chat(NULL, 0, 300 * SL_NS_PER_MS);
    assert_ptr_not_equal(frames(), path);
    assert_int_equal(path->stats.failures, 1);
}

/* Nor for one that is a little better. */
static void not_for_a_moment_or_a_little(void **state)
{
    struct sl_mp_path *path = frames();

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        chat(path, 50 * SL_NS_PER_MS, 60 * SL_NS_PER_MS);
        path->latency_ns = other()->latency_ns;
        chat(NULL, 0, 60 * SL_NS_PER_MS);
    }
    chat(path, 3 * other()->latency_ns, SL_NS_PER_S);
    assert_ptr_equal(frames(), path);
    assert_int_equal(failures(), 0);
}

/* They do not go to and fro when both are bad in turn. */
static void where_frames_went_they_stay_ever_longer(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        struct sl_mp_path *path = frames();

        chat(path, 50 * SL_NS_PER_MS, 250 * SL_NS_PER_MS);
        path->latency_ns = other()->latency_ns = 10000;
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    }
    assert_in_range(world_ep(0)->paths[0]->stats.failures + world_ep(0)->paths[1]->stats.failures,
                    3, 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(pieces_on_a_path_that_stands_still_go_by_another),
        CASE(so_do_frames),
        CASE(a_late_path_gets_no_more_until_something_comes_back),
        CASE(not_even_if_it_was_the_better_one),
        CASE(where_nothing_comes_back_no_path_is_late),
        CASE(without_another_no_path_is_late),
        CASE(who_does_not_look_blames_no_path),
        CASE(nor_does_who_finds_little_at_first),
        CASE(nor_does_who_is_not_looked_at),
        CASE(frames_leave_a_path_that_answers_late),
        CASE(not_for_a_moment_or_a_little),
        CASE(where_frames_went_they_stay_ever_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
