/* SPDX-License-Identifier: Apache-2.0 */
/* The sideband is lost and dialled again: what it carried comes once, and only a peer that is gone
 * ends the connection. */
#include "tests/unit/verbs/world.h"
#include "verbs/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SOON_NS (50 * SL_NS_PER_MS)
#define WORDS 40
#define LEN ((size_t)300000)

static struct {
    uint32_t heard; /* words of side 0, in their order */
    unsigned odd;
} ear;

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    uint32_t word;

    (void)arg, (void)ep;
    assert_int_equal(len, sizeof(word));
    memcpy(&word, msg, sizeof(word));
    ear.odd += word != ear.heard;
    ear.heard++;
}

static int fresh_with(enum sl_mp_fallback_choice fallback)
{
    memset(&ear, 0, sizeof(ear));
    world_prepare(NULL);
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_config_edit(&world[i].config)->mp.fallback = fallback;
    world_join();
    world[1].iface->handler.ctrl = on_ctrl;
    return 0;
}

static int fresh(void **state)
{
    (void)state;
    return fresh_with(SL_MP_FALLBACK_OFF);
}

static int fresh_over_tcp(void **state)
{
    (void)state;
    return fresh_with(SL_MP_FALLBACK_TCP);
}

static bool say(uint32_t word)
{
    return world[0].iface->ops->ctrl(world[0].ep, &word, sizeof(word)) == 0;
}

static bool is_up(unsigned side, uint32_t connection)
{
    const struct sl_mp_conn *conn = world_ep(side);

    return conn->sideband_up && conn->sideband->connection == connection;
}

static void ports_set(enum ibv_port_state port)
{
    for (unsigned i = 0; i < 2; i++)
        fake_ibv_port_set(world_fake, i, 1, port);
}

static void side_progress(unsigned side)
{
    fake_ibv_run(world_fake, 3);
    assert_true(world[side].iface->ops->progress(world[side].iface, 64) >= 0);
    loop_pass(world_loop, 20000);
}

/* ---- paths carry meanwhile ---- */

static void a_reset_is_not_the_end(void **state)
{
    (void)state;
    world_message(100);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    world_message(100000);
    WORLD_UNTIL(is_up(0, 1) && is_up(1, 1));
    world_message(100000);
    assert_int_equal(world[0].downs + world[1].downs, 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(world_ep(i)->paths_up, 2);
}

/* It is tried until it is there, and rarer from time to time. */
static void it_is_dialled_until_it_answers(void **state)
{
    uint64_t before_ns;

    (void)state;
    world_message(100);
    loop_redials(world_loop, 1);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    before_ns = loop_now(world_loop);
    WORLD_UNTIL(loop_now(world_loop) > before_ns + 3 * SL_NS_PER_S);
    world_message(1000);
    assert_true(world_ep(0)->redial_wait_ns > SL_NS_PER_S);
    assert_false(world_ep(0)->sideband_up);
    loop_redials(world_loop, 0);
    WORLD_UNTIL(is_up(0, 1) && is_up(1, 1));
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* Nothing else tells the other end: its own half of the connection stays silent. */
static void the_end_that_did_not_notice_hears_of_it_by_a_path(void **state)
{
    (void)state;
    world_message(100);
    loop_redials(world_loop, 1);
    loop_lose_here(world_loop, 0, -ECONNRESET);
    WORLD_UNTIL(!world_ep(1)->sideband_up);
    loop_redials(world_loop, 0);
    WORLD_UNTIL(is_up(0, 1) && is_up(1, 1));
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* Its word, sent before it was lost, is known to be of the one before. */
static void news_of_an_earlier_loss_end_no_later_one(void **state)
{
    struct sl_mp_control control = {.kind = SL_MP_CONTROL_SIDEBAND_OVER};

    (void)state;
    world_message(100);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    WORLD_UNTIL(is_up(0, 1) && is_up(1, 1));
    control.sideband.before = 1;
    sl_mp_on_control(world_ep(0), &control);
    assert_true(world_ep(0)->sideband_up);
    control.sideband.before = 2;
    sl_mp_on_control(world_ep(0), &control);
    assert_false(world_ep(0)->sideband_up);
    WORLD_UNTIL(is_up(0, 2) && is_up(1, 2));
    world_message(1000);
}

/* ---- what it carried ---- */

/* No path, and the word lies in a socket that is no more. */
static void what_it_took_and_lost_is_said_once_more(void **state)
{
    (void)state;
    world_message(100);
    ports_set(IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up + world_ep(1)->paths_up == 0 &&
                world_ep(0)->control_count == 0 && world_ep(0)->fencing == NULL);
    assert_true(say(0));
    assert_int_equal(world_ep(0)->control_count, 0);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    WORLD_UNTIL(is_up(0, 1) && ear.heard == 1);
    ports_set(IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2);
    world_message(1000);
    assert_int_equal(ear.heard, 1);
    assert_int_equal(ear.odd, 0);
}

static void words_come_once_and_in_order_however_often_it_breaks(void **state)
{
    (void)state;
    world_message(100);
    for (uint32_t word = 0; word < WORDS; word++) {
        if (word % 3 == 0)
            loop_lose(world_loop, 0, word % 2 == 0 ? -ECONNRESET : -ETIMEDOUT, 40000);
        if (word % 8 == 4)
            ports_set(word % 16 == 4 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
        WORLD_UNTIL(say(word));
        for (unsigned i = 0; i < word % 5; i++)
            world_progress();
    }
    ports_set(IBV_PORT_ACTIVE);
    WORLD_UNTIL(ear.heard == WORDS);
    WORLD_UNTIL(world_ep(0)->sideband_up && world_ep(1)->sideband_up);
    world_message(100000);
    assert_int_equal(ear.heard, WORDS);
    assert_int_equal(ear.odd, 0);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* ---- data over it ---- */

struct way {
    uint8_t *sent, *got;
    struct sl_sink sink;
    struct sl_req send_req, recv_req;
};

static void way_open(struct way *way, unsigned from)
{
    struct sl_buf buf = {.len = LEN};

    *way = (struct way){.sent = malloc(LEN), .got = calloc(1, LEN)};
    assert_true(way->sent != NULL && way->got != NULL);
    for (size_t i = 0; i < LEN; i++)
        way->sent[i] = (uint8_t)((i + from) * 2654435761u >> 11);
    way->sink = (struct sl_sink){.dst = way->got, .len = LEN, .tag = 5};
    buf.addr = way->sent;
    assert_true(world_recv(!from, &way->sink, &way->recv_req) >= 0);
    assert_true(world_send(from, &buf, 5, &way->send_req) >= 0);
}

static void way_close(struct way *way)
{
    assert_int_equal(way->send_req.status, 0);
    assert_int_equal(way->recv_req.status, 0);
    assert_memory_equal(way->sent, way->got, LEN);
    free(way->sent);
    free(way->got);
}

static bool is_done(const struct way *way)
{
    return way->send_req.status != SL_PENDING && way->recv_req.status != SL_PENDING;
}

/* After so many rounds the sideband breaks, and once more a little later; then paths return, or do
 * not. */
static void broken_over_tcp(unsigned rounds, bool returns)
{
    struct way ways[2];

    ports_set(IBV_PORT_DOWN);
    WORLD_UNTIL(sl_mp_fallback_path(world_ep(0)) != NULL &&
                sl_mp_fallback_path(world_ep(1)) != NULL);
    for (unsigned i = 0; i < 2; i++)
        way_open(&ways[i], i);
    for (unsigned i = 0; i < rounds; i++)
        world_progress();
    if (returns)
        ports_set(IBV_PORT_ACTIVE);
    loop_lose(world_loop, 0, -ECONNRESET, rounds * UINT64_C(3000));
    for (unsigned i = 0; i < 2 * rounds; i++)
        world_progress();
    loop_lose(world_loop, 0, -ETIMEDOUT, rounds * UINT64_C(1000));
    WORLD_UNTIL(is_done(&ways[0]) && is_done(&ways[1]));
    for (unsigned i = 0; i < 2; i++)
        way_close(&ways[i]);
    ports_set(IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    world_message(100000);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void data_over_it_comes_once_however_it_breaks(void **state)
{
    static const unsigned rounds_of[] = {0, 1, 2, 3, 5, 8, 13, 21, 34, 55};

    for (unsigned i = 0; i < 2 * SL_ARRAY_LEN(rounds_of); i++) {
        if (i > 0) {
            world_clean(state);
            fresh_over_tcp(state);
        }
        broken_over_tcp(rounds_of[i / 2], i % 2 == 0);
    }
}

/* One end had the next one, and gave units to it; for the other it broke before it was there. That
 * end has lost nothing of its own, and says what it had once there is another. */
static void data_on_one_that_a_single_end_had_comes_once(void **state)
{
    const struct sl_mp_path *path;
    struct way way;

    (void)state;
    ports_set(IBV_PORT_DOWN);
    WORLD_UNTIL(sl_mp_fallback_path(world_ep(0)) != NULL &&
                sl_mp_fallback_path(world_ep(1)) != NULL);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    while (!world_ep(0)->dialling)
        side_progress(0);
    while (!is_up(1, 1))
        side_progress(1);
    path = sl_mp_fallback_any(world_ep(1));
    while (path->state != SL_MP_PATH_UP)
        side_progress(1);
    way_open(&way, 1);
    while (path->posted == path->retired)
        side_progress(1);
    assert_true(world_ep(0)->dialling);
    loop_lose_here(world_loop, 0, -ECONNRESET);
    WORLD_UNTIL(is_up(0, 2) && is_up(1, 2));
    WORLD_UNTIL(is_done(&way));
    way_close(&way);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

/* Neither end has a path then, and both wait for the same time as ever. */
static void without_a_path_it_has_the_time_that_paths_have(void **state)
{
    int64_t wait_ms = sl_verbs_config(&world[0].config)->mp.path_wait_ms;
    uint64_t before_ns;

    (void)state;
    world_message(100);
    ports_set(IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up + world_ep(1)->paths_up == 0);
    before_ns = loop_now(world_loop);
    loop_redials(world_loop, 1);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    WORLD_UNTIL(world[0].downs == 1 && world[1].downs == 1);
    assert_true(loop_now(world_loop) - before_ns < (uint64_t)(wait_ms + 100) * SL_NS_PER_MS);
    assert_int_equal(world_ep(0)->down_status, -EHOSTUNREACH);
}

/* ---- the reason of an end ---- */

/* Side 1 does not run until side 0 is done with it. */
static void give_up_alone(void)
{
    while (world[0].downs == 0)
        side_progress(0);
    assert_int_equal(world_ep(0)->down_status, -EHOSTUNREACH);
    for (unsigned i = 0; i < 100; i++)
        side_progress(0);
}

static void peer_hears(const char *why)
{
    WORLD_UNTIL(world[1].downs == 1);
    assert_int_equal(world_ep(1)->down_status, -EHOSTUNREACH);
    assert_non_null(strstr(world_ep(1)->why, why));
    WORLD_UNTIL(world_ep(0)->sideband == NULL && world_ep(1)->sideband == NULL);
    assert_int_equal(ear.odd, 0);
}

/* Simulator seeds 6299 and 6314: it closed a sideband that was full of words, and the peer heard of
 * a lost connection only. */
static void a_peer_that_reads_late_hears_why_it_was_given_up(void **state)
{
    uint32_t words = 0;

    (void)state;
    world_message(100);
    while (say(words))
        words++;
    assert_true(world_ep(0)->control_count > 0);
    ports_set(IBV_PORT_DOWN);
    give_up_alone();
    peer_hears("found no path: no path to rank 1 for");
    assert_int_equal(ear.heard, words);
}

/* There are so many that no other control message has room. */
static void a_last_place_is_kept_for_the_reason(void **state)
{
    uint32_t words = 0;

    (void)state;
    world_message(100);
    ports_set(IBV_PORT_DOWN);
    while (world_ep(0)->paths_up > 0)
        side_progress(0);
    for (; !world_ep(0)->failing; words++) {
        struct sl_mp_control control = {.kind = SL_MP_CONTROL_CALLER, .epoch = sizeof(words)};

        memcpy(control.caller, &words, sizeof(words));
        sl_mp_control_send(world_ep(0), &control);
    }
    give_up_alone();
    peer_hears("found no path: neither a path nor the TCP connection");
    assert_int_equal(ear.heard, words - 1);
}

static void both_ends_that_give_up_wait_for_no_word(void **state)
{
    uint64_t before_ns;

    (void)state;
    world_message(100);
    before_ns = loop_now(world_loop);
    for (unsigned i = 0; i < 2; i++)
        sl_mp_conn_fail(world_ep(i), -EHOSTUNREACH, "a test");
    WORLD_UNTIL(world_ep(0)->sideband == NULL && world_ep(1)->sideband == NULL);
    assert_true(loop_now(world_loop) - before_ns < SOON_NS);
}

static void a_peer_that_never_reads_is_not_waited_for(void **state)
{
    uint64_t before_ns;

    (void)state;
    world_message(100);
    ports_set(IBV_PORT_DOWN);
    give_up_alone();
    assert_non_null(world_ep(0)->sideband);
    before_ns = loop_now(world_loop);
    while (world_ep(0)->sideband != NULL) {
        loop_pass(world_loop, SL_NS_PER_MS);
        side_progress(0);
        assert_true(loop_now(world_loop) - before_ns < 11 * SL_NS_PER_S);
    }
    assert_true(loop_now(world_loop) - before_ns > 9 * SL_NS_PER_S);
}

/* ---- a peer that is gone ---- */

/* Its paths still look alive. */
static void a_peer_that_died_is_named_at_once(void **state)
{
    uint64_t before_ns;

    (void)state;
    world_message(100);
    before_ns = loop_now(world_loop);
    loop_die(world_loop, 1);
    while (world[0].downs == 0 && loop_now(world_loop) < before_ns + SL_NS_PER_S)
        side_progress(0);
    assert_int_equal(world[0].downs, 1);
    assert_true(loop_now(world_loop) - before_ns < SOON_NS);
    assert_int_equal(world_ep(0)->down_status, -ECONNRESET);
}

/* It has no sideband to say so. */
static void a_farewell_goes_by_a_path(void **state)
{
    uint64_t before_ns;

    (void)state;
    world_message(100);
    loop_redials(world_loop, 1);
    loop_lose(world_loop, 0, -ECONNRESET, 0);
    WORLD_UNTIL(!world_ep(0)->sideband_up && !world_ep(1)->sideband_up);
    before_ns = loop_now(world_loop);
    world[0].iface->ops->ep_destroy(world[0].ep);
    world[0].ep = NULL;
    while (world[1].downs == 0 && loop_now(world_loop) < before_ns + SL_NS_PER_S)
        side_progress(1);
    assert_int_equal(world[1].downs, 1);
    assert_int_equal(world_ep(1)->down_status, -ECONNRESET);
    assert_non_null(strstr(world_ep(1)->why, "closed its endpoint"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, world_clean)
    const struct CMUnitTest tests[] = {
        CASE(a_reset_is_not_the_end),
        CASE(it_is_dialled_until_it_answers),
        CASE(the_end_that_did_not_notice_hears_of_it_by_a_path),
        CASE(news_of_an_earlier_loss_end_no_later_one),
        CASE(what_it_took_and_lost_is_said_once_more),
        CASE(words_come_once_and_in_order_however_often_it_breaks),
        cmocka_unit_test_setup_teardown(data_over_it_comes_once_however_it_breaks, fresh_over_tcp,
                                        world_clean),
        cmocka_unit_test_setup_teardown(data_on_one_that_a_single_end_had_comes_once,
                                        fresh_over_tcp, world_clean),
        CASE(without_a_path_it_has_the_time_that_paths_have),
        CASE(a_peer_that_reads_late_hears_why_it_was_given_up),
        CASE(a_last_place_is_kept_for_the_reason),
        CASE(both_ends_that_give_up_wait_for_no_word),
        CASE(a_peer_that_never_reads_is_not_waited_for),
        CASE(a_peer_that_died_is_named_at_once),
        CASE(a_farewell_goes_by_a_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
