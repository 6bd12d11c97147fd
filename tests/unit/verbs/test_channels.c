/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of a connection: the end of one that memory is lent to, and refused words of a peer. */
#include "tests/unit/verbs/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LEN (8u << 20) /* more than all paths take at once */
#define ID 9
#define RETURN_NS (40 * SL_NS_PER_MS) /* of lanes that do not wait */
#define WAIT_NS (50 * SL_NS_PER_MS)   /* of those that do, at least */

static uint8_t *sent, *got;
static struct sl_mr *mr[2][2]; /* by side: of `got`, of `sent` */

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    sent = malloc(LEN);
    got = malloc(LEN);
    memset(sent, 1, LEN);
    memset(got, 0, LEN);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned k = 0; k < 2; k++) {
            struct sl_mem mem = {
                .addr = k == 0 ? got : sent, .len = LEN, .kind = SL_MEM_HOST, .fd = -1};

            assert_int_equal(sl_verbs_ops.mr_reg(world[i].iface, &mem, &mr[i][k], NULL), 0);
        }
        assert_int_equal(sl_verbs_ops.channel_open(world[i].ep, ID), 0);
    }
    return 0;
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        sl_verbs_ops.mr_dereg(world[i / 2].iface, mr[i / 2][i % 2]);
    world_end();
    free(sent);
    free(got);
    return 0;
}

static struct sl_mp_channel *channel_at(unsigned side)
{
    return sl_mp_channel_of(sl_channels_find(&world_ep(side)->channels, ID));
}

static unsigned failures(unsigned side)
{
    unsigned count = 0;

    for (unsigned i = 0; i < world_ep(side)->path_count; i++)
        count += (unsigned)world_ep(side)->paths[i]->stats.failures;
    return count;
}

/* ---- memory that is lent ---- */

static struct sl_sink sink;
static struct sl_buf buf;
static struct sl_req recv_req, send_req;

/* The other side writes into memory of this one, and has begun to. */
static void begin_message_to(unsigned side)
{
    sink = (struct sl_sink){.dst = got, .len = LEN, .tag = 3, .channel = ID, .mr = mr[side][0]};
    buf = (struct sl_buf){.addr = sent, .len = LEN, .mr = mr[!side][1], .channel = ID};
    assert_int_equal(world_recv(side, &sink, &recv_req), 0);
    assert_int_equal(world_send(!side, &buf, 3, &send_req), 0);
    WORLD_UNTIL(channel_at(!side)->written > 0);
    assert_int_equal(recv_req.status, SL_PENDING);
}

static void begin_message(void)
{
    begin_message_to(0);
}

/* The close came back: nothing may touch the memory, and all else goes on. */
static void check_closed(void)
{
    assert_int_equal(recv_req.status, -ECANCELED);
    memset(got, 0x5c, LEN);
    for (unsigned i = 0; i < 4; i++)
        world_message(70000);
    WORLD_UNTIL(send_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0); /* dropped */
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(got[i], 0x5c);
    sl_verbs_ops.channel_close(world[1].ep, ID);
    WORLD_UNTIL(channel_at(0) == NULL && channel_at(1) == NULL);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void a_close_stops_the_lanes_of_a_peer_that_does_not_answer(void **state)
{
    (void)state;
    begin_message();
    sl_verbs_ops.channel_close(world[0].ep, ID);
    assert_true(failures(0) > 0);
    check_closed();
}

/* Nothing was wrong with them: they do not wait, however often that happens, and whichever end
 * offers them. */
static void the_lanes_return_at_once_after_a_close(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        unsigned closer = i % 2;
        uint64_t since_ns;

        begin_message_to(closer);
        since_ns = loop_now(world_loop);
        sl_verbs_ops.channel_close(world[closer].ep, ID);
        assert_int_equal(world_ep(closer)->paths_up, 0);
        WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
        assert_in_range(loop_now(world_loop) - since_ns, 0, RETURN_NS);
        sl_verbs_ops.channel_close(world[!closer].ep, ID);
        WORLD_UNTIL(channel_at(0) == NULL && channel_at(1) == NULL);
        for (unsigned side = 0; side < 2; side++)
            assert_int_equal(sl_verbs_ops.channel_open(world[side].ep, ID), 0);
    }
}

/* What fails at the same time is not taken for that: it waits as ever. */
static void a_lane_that_failed_before_the_close_waits(void **state)
{
    uint64_t since_ns;

    (void)state;
    begin_message();
    sl_mp_failed(world_ep(0)->paths[0], 0, "a test");
    since_ns = loop_now(world_loop);
    sl_verbs_ops.channel_close(world[0].ep, ID);
    WORLD_UNTIL(world_ep(0)->paths[1]->state == SL_MP_PATH_UP);
    assert_in_range(loop_now(world_loop) - since_ns, 0, RETURN_NS);
    WORLD_UNTIL(world_ep(0)->paths[0]->state == SL_MP_PATH_UP);
    assert_in_range(loop_now(world_loop) - since_ns, WAIT_NS, 4 * WAIT_NS);
}

static void only_the_wire(void *arg)
{
    fake_ibv_run(arg, 2);
}

static void both_move(void *arg)
{
    static bool inside;

    fake_ibv_run(arg, 2);
    if (inside)
        return;
    inside = true;
    world[1].iface->ops->progress(world[1].iface, 64);
    inside = false;
}

static void a_close_waits_for_the_peer_that_answers(void **state)
{
    (void)state;
    begin_message();
    loop_on_look(world_loop, both_move, world_fake);
    sl_verbs_ops.channel_close(world[0].ep, ID);
    loop_on_look(world_loop, only_the_wire, world_fake);
    assert_int_equal(failures(0) + failures(1), 0);
    check_closed();
    assert_int_equal(failures(0) + failures(1), 0);
}

static void a_path_fails_and_the_channel_closes_meanwhile(unsigned closer, unsigned rounds)
{
    begin_message();
    for (unsigned i = 0; i < world_ep(1)->path_count; i++)
        if (rounds % 2 == 0 || i == 0)
            fake_ibv_kill(world_fake, sl_verbs_path_of(world_ep(1)->paths[i])->qp, FAKE_IBV_ANY,
                          FAKE_IBV_ANY, FAKE_IBV_ANY);
    for (unsigned i = 0; i < rounds; i++)
        world_progress();
    /* It was quicker; or, with keys of its own, it waits for their end alone. */
    if (recv_req.status != SL_PENDING || send_req.status != SL_PENDING)
        return;
    sl_verbs_ops.channel_close(world[closer].ep, ID);
    assert_int_equal((closer == 0 ? &recv_req : &send_req)->status, -ECANCELED);
    memset(closer == 0 ? got : sent, 0x5c, LEN);
    world_message(70000);
    if (closer == 0)
        WORLD_UNTIL(send_req.status == 0);
    sl_verbs_ops.channel_close(world[!closer].ep, ID);
    /* All may have been on its way. */
    assert_true(recv_req.status == -ECANCELED || (closer == 1 && recv_req.status == 0));
    for (size_t i = 0; i < LEN; i++)
        assert_true(closer == 0 ? got[i] == 0x5c : got[i] != 0x5c);
    WORLD_UNTIL(channel_at(0) == NULL && channel_at(1) == NULL);
    world_message(70000);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void a_channel_closes_during_a_failover(void **state)
{
    for (unsigned rounds = 0; rounds < 24; rounds++)
        for (unsigned closer = 0; closer < 2; closer++) {
            if (rounds + closer > 0) {
                clean(state);
                fresh(state);
            }
            a_path_fails_and_the_channel_closes_meanwhile(closer, rounds);
        }
}

/* ---- frames without a receive ---- */

/* As many as are taken; what they are is in `small`. */
static unsigned send_ahead(uint32_t channel, unsigned most)
{
    static struct sl_buf small;
    static struct sl_req reqs[64];
    unsigned count = 0;

    small = (struct sl_buf){.addr = sent, .len = 100, .channel = channel};
    for (unsigned i = 0; i < 2000 && count < most; i++) {
        reqs[count] = (struct sl_req){.status = SL_PENDING};
        count += sl_verbs_ops.send(world[1].ep, &small, count, &reqs[count]) == 1;
        world_progress();
    }
    return count;
}

static void credits_go_back_when_another_channel_waits(void **state)
{
    uint8_t one;
    struct sl_sink other = {.dst = &one, .len = 1, .tag = 1};
    struct sl_buf last = {.addr = sent, .len = 1};
    struct sl_req reqs[2];

    (void)state;
    assert_int_equal(send_ahead(ID, 64), SL_MP_CREDITS);
    assert_int_equal(world_ep(0)->held, SL_MP_CREDITS);
    assert_int_equal(world_recv(0, &other, &reqs[0]), 0);
    assert_int_equal(world_ep(0)->held, SL_MP_HELD_MAX);
    assert_int_equal(world_ep(0)->kept, SL_MP_CREDITS - SL_MP_HELD_MAX);
    assert_int_equal(send_ahead(ID, 40), 40);
    assert_true(world_send(1, &last, 1, &reqs[1]) >= 0);
    WORLD_UNTIL(reqs[0].status != SL_PENDING);
    assert_int_equal(reqs[0].status, 0);
    sl_verbs_ops.channel_close(world[0].ep, ID);
    assert_int_equal(world_ep(0)->held + world_ep(0)->kept, 0);
    world_message(1000);
}

/* ---- what a peer must not say ---- */

static void say(uint8_t kind, uint32_t channel, uint64_t count)
{
    struct sl_mp_control control = {.kind = kind, .close = {.channel = channel, .count = count}};

    channel_at(1)->ends = true; /* an answer is no surprise */
    sl_mp_control_send(world_ep(1), &control);
}

static void send_frame(uint8_t kind, uint32_t channel, uint32_t number)
{
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(world_ep(1), kind, channel, number);

    assert_non_null(frame);
    world_ep(1)->credits--;
    sl_mp_frame_post(world_ep(1), frame, 0);
}

static bool may_send(void)
{
    return world_ep(1)->credits > 0 && sl_mp_can_post_frame(world_ep(1));
}

static void ends_with(const char *part)
{
    WORLD_UNTIL(world[0].downs == 1);
    if (strstr(world_ep(0)->why, part) == NULL)
        fail_msg("'%s' lacks '%s'", world_ep(0)->why, part);
}

static void channel_0_is_not_closed(void **state)
{
    (void)state;
    say(SL_MP_CONTROL_CLOSE, 0, 1000);
    ends_with("closes channel 0 as it cannot be closed");
}

static void a_channel_is_closed_once(void **state)
{
    (void)state;
    say(SL_MP_CONTROL_CLOSE, ID, 0);
    say(SL_MP_CONTROL_CLOSE, ID, 0);
    ends_with("closes channel 9 as it cannot be closed");
}

static void closed_comes_after_a_close(void **state)
{
    (void)state;
    say(SL_MP_CONTROL_CLOSED, ID, 0);
    ends_with("closes channel 9 as it cannot be closed");
}

static void a_close_counts_what_came(void **state)
{
    (void)state;
    send_frame(SL_MP_EAGER, ID, 0);
    WORLD_UNTIL(channel_at(0)->base.came == 1);
    say(SL_MP_CONTROL_CLOSE, ID, 0);
    ends_with("closes channel 9 as it cannot be closed");
}

static void no_frame_comes_after_the_last(void **state)
{
    (void)state;
    say(SL_MP_CONTROL_CLOSE, ID, 1);
    WORLD_UNTIL(channel_at(0)->base.peer_closed);
    send_frame(SL_MP_EAGER, ID, 0);
    send_frame(SL_MP_EAGER, ID, 1);
    ends_with("speaks of channel 9, which it has closed");
}

static void no_bytes_come_after_the_last(void **state)
{
    (void)state;
    begin_message();
    say(SL_MP_CONTROL_CLOSE, ID, 1000);
    say(SL_MP_CONTROL_CLOSED, ID, 1);
    ends_with("writes to channel 9, which it has left");
}

static void messages_without_receives_come_in_turn(void **state)
{
    (void)state;
    send_frame(SL_MP_RTS, ID, 0);
    send_frame(SL_MP_EAGER, ID, 2);
    ends_with("message 2 of rank 1 comes twice, or not in its turn");
}

static void a_sender_has_so_many_messages_under_way(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= SL_MP_TX_QUEUE; i++) {
        WORLD_UNTIL(world[0].downs > 0 || may_send());
        if (world[0].downs == 0)
            send_frame(SL_MP_RTS, ID, i);
    }
    ends_with("message 256 of rank 1 comes twice, or not in its turn");
}

static void a_peer_names_too_many_channels(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= SL_CHANNELS_UNOPENED_MAX && world[0].downs == 0; i++) {
        WORLD_UNTIL(world[0].downs > 0 || may_send());
        if (world[0].downs == 0)
            send_frame(SL_MP_RTS, 100 + i, 0);
    }
    ends_with("names more than 4096 channels");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_close_stops_the_lanes_of_a_peer_that_does_not_answer),
        CASE(the_lanes_return_at_once_after_a_close),
        CASE(a_lane_that_failed_before_the_close_waits),
        CASE(a_close_waits_for_the_peer_that_answers),
        CASE(a_channel_closes_during_a_failover),
        CASE(credits_go_back_when_another_channel_waits),
        CASE(channel_0_is_not_closed),
        CASE(a_channel_is_closed_once),
        CASE(closed_comes_after_a_close),
        CASE(a_close_counts_what_came),
        CASE(no_frame_comes_after_the_last),
        CASE(no_bytes_come_after_the_last),
        CASE(messages_without_receives_come_in_turn),
        CASE(a_sender_has_so_many_messages_under_way),
        CASE(a_peer_names_too_many_channels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
