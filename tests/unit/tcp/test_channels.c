/* SPDX-License-Identifier: Apache-2.0 */
/* Several orders of messages on one endpoint, and messages that come before their receives. */
#include "channel_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static uint8_t place[BIG];

/* ---- orders ---- */

static void each_channel_has_its_own_order(void **state)
{
    struct wire *w = *state;
    struct in in[4];

    cw_up(w, 1, (const uint32_t[]){5, 0x80000001, 0});
    cw_recv(w, &in[0], 0x80000001, place, 10);
    cw_recv(w, &in[1], 5, place + 100, 20);
    cw_recv(w, &in[2], 0x80000001, place + 200, 30);
    cw_recv(w, &in[3], 0, place + 300, 40);
    cw_say_whole(w, 1, 5, 0, 20);
    cw_say_whole(w, 1, 0, 0, 40);
    cw_say_whole(w, 1, 0x80000001, 0, 10);
    cw_say_whole(w, 1, 0x80000001, 1, 30);
    for (int i = 0; i < 4; i++)
        cw_check(w, &in[i], in[i].sink.len);
    assert_false(cw_ep(w)->is_active);
}

static void numbers_go_round(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_channel *channel;
    struct in in[2];

    cw_up(w, 1, (const uint32_t[]){5, 0});
    channel = cw_channel(w, 5);
    channel->rx_head = channel->rx_tail = channel->rx_next = UINT32_MAX;
    cw_recv(w, &in[0], 5, place, 10);
    cw_recv(w, &in[1], 5, place + 100, 20);
    cw_say_whole(w, 1, 5, UINT32_MAX, 10);
    cw_say_whole(w, 1, 5, 0, 20);
    cw_check(w, &in[0], 10);
    cw_check(w, &in[1], 20);
}

static void a_channel_that_is_not_open_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_sink sink = {.channel = 6};
    struct sl_req req;
    struct out out;

    cw_up(w, 1, (const uint32_t[]){5, 0});
    assert_int_equal(cw_send(w, &out, 6, message, 1), -EINVAL);
    assert_int_equal(w->ops.recv(w->ep, &sink, &req), -EINVAL);
    assert_int_equal(w->ops.channel_open(w->ep, 5), -EINVAL);
    assert_int_equal(w->ops.channel_open(w->ep, 0), -EINVAL);
    w->ops.channel_close(w->ep, 6);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(cw_send(w, &out, 5, message, 1), -EINVAL);
    assert_int_equal(w->downs, 0);
}

/* ---- messages without a receive ---- */

static void a_message_holds_back_only_until_another_channel_waits(void **state)
{
    struct wire *w = *state;
    struct in in[3];

    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    cw_say_whole(w, 1, 5, 0, 10000);
    cw_say_whole(w, 1, 5, 1, 20);
    cw_say_whole(w, 1, 6, 0, 30);
    cw_rounds(w);
    assert_int_equal(cw_ep(w)->received_bytes, 0);
    cw_recv(w, &in[0], 6, place, 30);
    cw_check(w, &in[0], 30);
    assert_int_equal(cw_ep(w)->received_bytes, 10050);
    assert_false(cw_ep(w)->is_active);
    cw_recv(w, &in[1], 5, place + 1000, 10000);
    assert_int_equal(in[1].req.status, SL_PENDING);
    in[2] = (struct in){.sink = {.dst = place + 20000, .len = 20, .tag = 4, .channel = 5}};
    assert_int_equal(w->ops.recv(w->ep, &in[2].sink, &in[2].req), 0);
    cw_check(w, &in[1], 10000);
    WIRE_UNTIL(w, in[2].req.status != SL_PENDING);
    assert_int_equal(in[2].req.status, -EPROTO);
    assert_int_equal(in[2].req.tag, 5);
    assert_int_equal(w->downs, 0);
}

static void a_kept_message_waits_for_its_channel_to_be_opened(void **state)
{
    struct wire *w = *state;
    struct in in[3];

    cw_up(w, 1, (const uint32_t[]){6, 0});
    cw_say_whole(w, 1, 5, 0, 100);
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 6, 0, 30);
    cw_check(w, &in[0], 30);
    assert_int_equal(w->ops.channel_open(w->ep, 5), 0);
    cw_recv(w, &in[1], 5, place + 100, 100);
    cw_recv(w, &in[2], 5, place + 300, 100);
    cw_check(w, &in[1], 100);
    cw_say_whole(w, 1, 5, 1, 100);
    cw_check(w, &in[2], 100);
}

/* Its receive comes between its first byte and its last one. */
static void a_message_that_is_being_kept_can_be_received(void **state)
{
    struct wire *w = *state;
    struct in in[2];

    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say(w, 2, 5, 0, BIG / 2, 1000, BIG / 2 - 1000);
    cw_rounds(w);
    cw_recv(w, &in[1], 5, place + 100, BIG / 2);
    cw_rounds(w);
    assert_int_equal(in[1].req.status, SL_PENDING);
    cw_say(w, 1, 5, 0, BIG / 2, 0, 1000);
    cw_check(w, &in[1], BIG / 2);
    assert_int_equal(in[0].req.status, SL_PENDING);
    cw_say_whole(w, 1, 6, 0, 30);
    cw_check(w, &in[0], 30);
}

/* The rest of a message that is under way comes behind one that nobody waits for. */
static void the_rest_of_a_message_is_not_held_back(void **state)
{
    struct wire *w = *state;
    struct in in[2];

    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 2000);
    cw_say(w, 1, 6, 0, 2000, 0, 1000);
    cw_rounds(w);
    cw_say_whole(w, 2, 5, 0, 500);
    cw_say(w, 2, 6, 0, 2000, 1000, 1000);
    cw_check(w, &in[0], 2000);
    cw_recv(w, &in[1], 5, place + 3000, 500);
    cw_check(w, &in[1], 500);

    /* The same when its own receive came late. */
    cw_recv(w, &in[0], 5, place, 500);
    cw_say(w, 1, 6, 1, 2000, 0, 1000);
    cw_rounds(w);
    cw_say_whole(w, 1, 5, 1, 500);
    cw_check(w, &in[0], 500);
    cw_say_whole(w, 2, 5, 2, 500);
    cw_say(w, 2, 6, 1, 2000, 1000, 1000);
    cw_rounds(w);
    cw_recv(w, &in[1], 6, place + 3000, 2000);
    cw_check(w, &in[1], 2000);
}

static void take(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    assert_true(len % sink->granule == 0 || off + len == sink->len);
    memcpy(place + sink->tag * 10000 + off, bytes, len);
}

/* What an element was cut to belongs to its message. */
static void consumers_of_two_channels_take_turns(void **state)
{
    struct wire *w = *state;
    struct in in[2];

    cw_up(w, 2, (const uint32_t[]){1, 2, 0});
    for (unsigned i = 0; i < 2; i++) {
        in[i] = (struct in){.sink = {.len = 9001,
                                     .tag = i + 1,
                                     .channel = i + 1,
                                     .granule = i == 0 ? 8 : 4000,
                                     .consume = take}};
        assert_int_equal(w->ops.recv(w->ep, &in[i].sink, &in[i].req), 0);
    }
    for (size_t off = 0; off < 9001; off += 1003)
        for (unsigned i = 0; i < 2; i++)
            cw_say(w, i + 1, i + 1, 0, 9001, off, 9001 - off < 1003 ? 9001 - off : 1003);
    for (unsigned i = 0; i < 2; i++) {
        WIRE_UNTIL(w, in[i].req.status != SL_PENDING);
        assert_int_equal(in[i].req.status, 0);
        assert_memory_equal(place + (i + 1) * 10000, message, 9001);
    }
}

static void a_farewell_waits_for_what_is_kept(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame bye = {.type = SL_TCP_BYE};
    struct in in[2];

    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say_whole(w, 1, 6, 0, 30);
    wire_frame(w, 0, &bye, false, NULL);
    cw_check(w, &in[0], 30);
    for (int i = 0; i < 2; i++) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    WIRE_UNTIL(w, cw_ep(w)->conns[1].eof);
    cw_rounds(w);
    assert_int_equal(w->downs, 0);
    cw_recv(w, &in[1], 5, place + 100, 100);
    cw_check(w, &in[1], 100);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
}

/* But not while a receive waits for what cannot come. */
static void a_farewell_does_not_wait_for_kept_messages_forever(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame bye = {.type = SL_TCP_BYE};
    struct in in[2];

    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say_whole(w, 1, 6, 0, 30);
    wire_frame(w, 0, &bye, false, NULL);
    cw_check(w, &in[0], 30);
    for (int i = 0; i < 2; i++) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    WIRE_UNTIL(w, cw_ep(w)->conns[1].eof);
    cw_recv(w, &in[1], 6, place, 30);
    WIRE_UNTIL(w, in[1].req.status != SL_PENDING);
    assert_int_equal(in[1].req.status, -ECONNRESET);
    assert_int_equal(w->downs, 1);
}

/* Nor when no connection goes on: what is missing would have come on one that has ended. */
static void a_farewell_ends_a_message_whose_middle_is_missing(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame bye = {.type = SL_TCP_BYE};
    struct in in = {.sink = {.len = 9000, .tag = 5, .channel = 5, .granule = 4, .consume = take}};

    cw_up(w, 2, (const uint32_t[]){5, 0});
    assert_int_equal(w->ops.recv(w->ep, &in.sink, &in.req), 0);
    cw_say(w, 2, 5, 0, 9000, 4000, 5000);
    wire_frame(w, 0, &bye, false, NULL);
    for (int i = 0; i < 3; i++) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    WIRE_UNTIL(w, in.req.status != SL_PENDING);
    assert_int_equal(in.req.status, -ECONNRESET);
    assert_int_equal(w->downs, 1);
    assert_non_null(strstr(w->down_why, "closed its endpoint"));
}

static void what_is_kept_for_nobody_is_freed_with_the_endpoint(void **state)
{
    struct wire *w = *state;
    static struct in in[2]; /* they end with the endpoint */

    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say(w, 1, 5, 1, 100, 0, 50);
    cw_say(w, 2, 7, 0, 100, 0, 50);
    WIRE_UNTIL(w, cw_ep(w)->received_bytes == 200);
    cw_recv(w, &in[1], 5, place, 30);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, cw_setup, cw_teardown)
    const struct CMUnitTest tests[] = {
        CASE(each_channel_has_its_own_order),
        CASE(numbers_go_round),
        CASE(a_channel_that_is_not_open_is_refused),
        CASE(a_message_holds_back_only_until_another_channel_waits),
        CASE(a_kept_message_waits_for_its_channel_to_be_opened),
        CASE(a_message_that_is_being_kept_can_be_received),
        CASE(the_rest_of_a_message_is_not_held_back),
        CASE(consumers_of_two_channels_take_turns),
        CASE(a_farewell_waits_for_what_is_kept),
        CASE(a_farewell_does_not_wait_for_kept_messages_forever),
        CASE(a_farewell_ends_a_message_whose_middle_is_missing),
        CASE(what_is_kept_for_nobody_is_freed_with_the_endpoint),
    };

    cw_engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
