/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that end and return: what the other end says of them, and how soon they are tried again. */
#include "multipath/trial.h"
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
    char reasons[SL_MP_REASONS_BYTES];

    (void)state;
    for (unsigned i = 0; i < conn->path_count; i++)
        snprintf(conn->paths[i]->why, sizeof(conn->paths[i]->why), "<%0*u>",
                 (int)sizeof(conn->paths[i]->why) - 3, i);
    sl_mp_reasons(conn, reasons);
    sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path: %s", reasons);
    for (unsigned i = 0; i < conn->path_count; i++)
        assert_non_null(strstr(conn->why, conn->paths[i]->why));
    assert_int_equal(conn->why[strlen(conn->why) - 1], '>');
    WORLD_UNTIL(world[0].downs == 1);
}

/* As long as it can be, and another one for each path. */
static void blame_all(struct sl_mp_conn *conn)
{
    for (unsigned i = 0; i < conn->path_count; i++)
        snprintf(conn->paths[i]->why, sizeof(conn->paths[i]->why), "<%u %0*u>", i,
                 (int)sizeof(conn->paths[i]->why) - 8, i);
}

static void end_with_all_rails_named(unsigned paths, const char *end)
{
    struct sl_mp_conn *conn = world_ep(0);
    char reasons[SL_MP_REASONS_BYTES], part[24];

    assert_int_equal(conn->path_count, paths);
    blame_all(conn);
    sl_mp_reasons(conn, reasons);
    sl_mp_conn_fail(conn, -EHOSTUNREACH, "no path to %s for %lld ms: %s",
                    sl_ep_peer_name(&conn->base), (long long)conn->iface->settings.path_wait_ms,
                    reasons);
    assert_true(strlen(reasons) < sizeof(reasons));
    assert_string_equal(reasons + strlen(reasons) - strlen(end), end);
    for (unsigned i = 0; i < SL_MP_RAILS_MAX; i++) {
        snprintf(part, sizeof(part), "a%u:1: <%u 000000", i, i);
        assert_non_null(strstr(conn->why, part));
    }
    assert_string_equal(conn->why + strlen(conn->why) - strlen(end), end);
    WORLD_UNTIL(world[0].downs == 1);
    sl_mp_not_up(conn);
    assert_non_null(strstr(sluice_last_error(), conn->why));
}

static void join_16_rails(const char *per_rail)
{
    world_rails[0] = world_rails[1] = SL_MP_RAILS_MAX;
    world_prepare(NULL);
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(sl_config_set(&world[side].config, "VERBS_PATHS_PER_RAIL", per_rail), 0);
        world[side].worker.rank = (int)side;
    }
    world_join();
}

static void an_end_names_16_rails_with_as_many_reasons(void **state)
{
    (void)state;
    join_16_rails("1");
    end_with_all_rails_named(SL_MP_RAILS_MAX, "...");
}

static void an_end_of_64_paths_names_each_rail_and_says_how_many_more(void **state)
{
    (void)state;
    join_16_rails("4");
    end_with_all_rails_named(4 * SL_MP_RAILS_MAX, "; and 48 more");
}

/* ---- how soon ---- */

#define BACKOFF_NS                                                                                 \
    (50 * SL_NS_PER_MS) /* before the first try, twice as much before each that follows soon */
#define COARSE_NS (10 * SL_NS_PER_MS)  /* timers are looked at now and then */
#define FORGIVEN_NS (31 * SL_NS_PER_S) /* up for so long: one failure is forgotten */

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

static void assert_rests(struct sl_mp_path *path, uint64_t expected_ns)
{
    assert_in_range(rest_ns(path), expected_ns - COARSE_NS, expected_ns + COARSE_NS);
    until_up(path);
}

static void pass(uint64_t ns)
{
    uint64_t until_ns = loop_now(world_loop) + ns;

    while (loop_now(world_loop) < until_ns) {
        world_progress();
        loop_pass(world_loop, SL_NS_PER_MS);
    }
}

/* Some seconds without a failure are not enough: one by one they are, after half a minute each. */
static void failures_are_forgotten_one_by_one_and_not_soon(void **state)
{
    struct sl_mp_path *path = leading();

    (void)state;
    fail_often(path);
    pass(6 * SL_NS_PER_S);
    assert_rests(path, 16 * BACKOFF_NS);
    pass(FORGIVEN_NS);
    assert_rests(path, 16 * BACKOFF_NS);
    pass(5 * FORGIVEN_NS);
    assert_rests(path, BACKOFF_NS);
    world_message(100000);
}

/* Longer than any try that fails waits for the next, as each return of such a path holds up what it
 * carries; unless there is no other. */
static void a_path_that_fails_again_and_again_rests_ever_longer_while_others_carry(void **state)
{
    struct sl_mp_path *path = leading(), *other = path->conn->paths[1];
    uint64_t start_ns;

    (void)state;
    fail_often(path);
    assert_rests(path, 16 * BACKOFF_NS);
    assert_rests(path, 32 * BACKOFF_NS);
    assert_rests(path, 64 * BACKOFF_NS);
    assert_rests(path, 128 * BACKOFF_NS);
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_IDLE);
    start_ns = loop_now(world_loop);
    sl_mp_failed(other, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_UP);
    assert_true(loop_now(world_loop) - start_ns < BACKOFF_NS);
    world_message(100000);
}

/* Ports that come and go say so themselves: no path pays for that. */
static void a_port_that_goes_is_no_mark_against_its_paths(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        fake_ibv_port_set(world_fake, i, 1, IBV_PORT_DOWN);
        WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
        fake_ibv_port_set(world_fake, i, 1, IBV_PORT_ACTIVE);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    }
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(world_ep(side)->paths[i]->losses, 0);
}

/* A hello says that a rail has changed: how many tries failed before says nothing of it. */
static void news_of_a_rail_end_the_rest(void **state)
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
}

/* ---- what a path has to show ---- */

/* Between the first rails of both ends; what is posted there is longer. */
static void lose_large(bool lost)
{
    fake_ibv_lose_longer(world_fake, 0, 1, 2, 1, lost ? 1023 : 0);
}

/* Messages until the first path has failed, and for so long after it. */
static void carry(uint64_t ns)
{
    uint64_t until_ns;

    while (world_ep(0)->paths_up == 2 || world_ep(1)->paths_up == 2)
        world_message(100000);
    until_ns = loop_now(world_loop) + ns;
    while (loop_now(world_loop) < until_ns) {
        world_message(20000);
        pass(20 * SL_NS_PER_MS);
    }
}

/* By pings alone, if these were short, it would come back again and again. */
static void a_route_that_loses_large_packets_stops_data_once(void **state)
{
    (void)state;
    world_message(100000);
    lose_large(true);
    carry(10 * SL_NS_PER_S);
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(world_ep(side)->paths[0]->stats.ups, 1);
        assert_int_equal(world_ep(side)->paths[1]->stats.failures, 0);
    }
    lose_large(false);
    until_up(leading());
    assert_int_equal(leading()->stats.ups, 2);
}

/* It may be the only one: whether the other one has failed, or there never was any. */
static void the_only_path_is_taken_back_as_it_is(void **state)
{
    struct sl_mp_path *path = leading();

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_rests(path, BACKOFF_NS << i);
    fake_ibv_block(world_fake, 1, 1, 3, 1, true);
    sl_mp_failed(path->conn->paths[1], 0, "a test");
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->conn->paths_up == 0);
    WORLD_UNTIL(path->conn->paths_up == 1);
    assert_true(path->posted < 4);
    world_message(100000);
    fake_ibv_block(world_fake, 1, 1, 3, 1, false);
    until_up(path);
}

static void fail_and_return(struct sl_mp_path *path)
{
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_IDLE);
    WORLD_UNTIL(path->state == SL_MP_PATH_UP);
}

/* Of a new one two pings are enough; each failure makes it twice as many. */
static void a_path_that_failed_has_more_to_show(void **state)
{
    struct sl_mp_path *path = leading();

    (void)state;
    assert_int_equal(sl_mp_trial_pings(path), 2);
    for (unsigned pings = 8; pings <= 64; pings *= 2) {
        fail_and_return(path);
        assert_int_equal(path->posted, pings);
    }
}

/* The device would repeat it, and the path come up. */
static void none_of_its_packets_may_be_lost(void **state)
{
    struct sl_mp_path *path = leading();
    uint64_t start_ns;

    (void)state;
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_PINGING);
    fake_ibv_retry_steps(world_fake, 1000000, 2); /* not before this test is over */
    fake_ibv_block(world_fake, 0, 1, 2, 1, true);
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(path->state == SL_MP_PATH_IDLE);
    assert_in_range(loop_now(world_loop) - start_ns, path->repeat_ns / 2,
                    path->repeat_ns / 2 + 3 * COARSE_NS);
    assert_non_null(strstr(path->why, "1024 bytes did not come through at once"));
    fake_ibv_block(world_fake, 0, 1, 2, 1, false);
    until_up(path);
}

/* That this end looks elsewhere meanwhile is no fault of it. */
static void nor_is_one_lost_that_nobody_looked_for(void **state)
{
    struct sl_mp_path *path = leading();
    unsigned ups = (unsigned)path->stats.ups;

    (void)state;
    sl_mp_failed(path, 0, "a test");
    WORLD_UNTIL(path->state == SL_MP_PATH_PINGING && path->posted > path->retired);
    fake_ibv_run(world_fake, 1000);
    loop_pass(world_loop, path->repeat_ns);
    WORLD_UNTIL(path->state != SL_MP_PATH_PINGING);
    assert_int_equal(path->state, SL_MP_PATH_UP);
    assert_int_equal(path->stats.ups, ups + 1);
}

static void a_path_that_failed_gets_its_share_by_degrees(void **state)
{
    struct sl_mp_path *path = leading();
    uint64_t start_ns;

    (void)state;
    assert_int_equal(path->writes_most, SL_MP_WRITES_ANY);
    fail_and_return(path);
    start_ns = loop_now(world_loop);
    for (unsigned most = 1; most < SL_MP_WRITES_MAX; most *= 2) {
        assert_int_equal(path->writes_most, most);
        WORLD_UNTIL(path->writes_most != most);
    }
    assert_int_equal(path->writes_most, SL_MP_WRITES_ANY);
    assert_true(loop_now(world_loop) - start_ns > 4 * 20 * SL_NS_PER_MS);
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
            sl_mp_path_ping(conn->paths[i], false);
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
        CASE(failures_are_forgotten_one_by_one_and_not_soon),
        CASE(a_path_that_fails_again_and_again_rests_ever_longer_while_others_carry),
        CASE(a_port_that_goes_is_no_mark_against_its_paths),
        CASE(news_of_a_rail_end_the_rest),
        CASE(a_route_that_loses_large_packets_stops_data_once),
        CASE(the_only_path_is_taken_back_as_it_is),
        CASE(a_path_that_failed_has_more_to_show),
        CASE(none_of_its_packets_may_be_lost),
        CASE(nor_is_one_lost_that_nobody_looked_for),
        CASE(a_path_that_failed_gets_its_share_by_degrees),
        CASE(what_the_sideband_took_and_lost_goes_by_a_path),
        cmocka_unit_test_setup_teardown(offers_do_not_overtake_a_hello_of_rank_0, apart,
                                        world_clean),
        cmocka_unit_test_setup_teardown(nor_one_of_rank_1, apart, world_clean),
        cmocka_unit_test_teardown(an_end_names_16_rails_with_as_many_reasons, world_clean),
        cmocka_unit_test_teardown(an_end_of_64_paths_names_each_rail_and_says_how_many_more,
                                  world_clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
