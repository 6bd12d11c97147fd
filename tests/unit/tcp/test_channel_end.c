/* SPDX-License-Identifier: Apache-2.0 */
/* How channels of an endpoint end, by either side. */
#include "channel_wire.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MANY 200

static uint8_t place[BIG], heard[BIG];

/* ---- receives ---- */

static void pending_receives_end_and_others_stay(void **state)
{
    struct wire *w = *state;
    struct in in[3];

    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 5, place, 10);
    cw_recv(w, &in[1], 6, place + 100, 20);
    cw_recv(w, &in[2], 5, place + 200, 10);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(in[0].req.status, -ECANCELED);
    assert_int_equal(in[1].req.status, SL_PENDING);
    assert_int_equal(in[2].req.status, -ECANCELED);
    cw_hear_close(w, 5, 0, 0);
    cw_say_whole(w, 1, 5, 0, 10);
    cw_say_whole(w, 1, 6, 0, 20);
    cw_check(w, &in[1], 20);
    assert_int_equal(place[0], 0);
    assert_non_null(cw_channel(w, 5));
    cw_say_close(w, 5, 1, 0);
    WIRE_UNTIL(w, cw_channel(w, 5) == NULL);
    assert_int_equal(cw_ep(w)->rx_open, 0);
    assert_int_equal(w->downs, 0);
}

static void a_message_under_way_is_dropped_to_its_end(void **state)
{
    struct wire *w = *state;
    uint8_t *memory = calloc(1, BIG);
    struct in in[2];

    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 5, memory, BIG);
    cw_say(w, 2, 5, 0, BIG, 100000, 100000);
    WIRE_UNTIL(w, cw_ep(w)->received_bytes == 100000);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(in[0].req.status, -ECANCELED);
    free(memory);
    cw_say_close(w, 5, 2, 0);
    cw_say(w, 1, 5, 0, BIG, 0, 100000);
    cw_say_whole(w, 2, 5, 1, 77);
    cw_rounds(w);
    assert_non_null(cw_channel(w, 5));
    cw_say(w, 1, 5, 0, BIG, 200000, 100000);
    WIRE_UNTIL(w, cw_channel(w, 5) == NULL);
    cw_recv(w, &in[1], 6, place, 30);
    cw_say_whole(w, 1, 6, 0, 30);
    cw_check(w, &in[1], 30);
}

static void a_message_that_is_kept_goes_too(void **state)
{
    struct wire *w = *state;
    struct in in[3];

    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say(w, 1, 5, 1, 100, 0, 50);
    cw_rounds(w);
    cw_recv(w, &in[1], 5, place, 100); /* it is whole, and its receive ends in the next progress */
    cw_recv(w, &in[2], 5, place, 100);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(in[1].req.status, -ECANCELED);
    assert_int_equal(in[2].req.status, -ECANCELED);
    cw_say_close(w, 5, 2, 0);
    cw_say(w, 2, 5, 1, 100, 50, 50);
    WIRE_UNTIL(w, cw_channel(w, 5) == NULL);
    cw_say_whole(w, 2, 6, 0, 30);
    cw_check(w, &in[0], 30);
}

/* A connection that waited for a receive there waits no more. */
static void a_message_that_held_back_others_lets_them_through(void **state)
{
    struct wire *w = *state;
    struct in in;

    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say_whole(w, 1, 0, 0, 30);
    cw_rounds(w);
    w->ops.channel_close(w->ep, 5);
    WIRE_UNTIL(w, cw_ep(w)->received_bytes == 100);
    cw_recv(w, &in, 0, place, 30);
    cw_check(w, &in, 30);
}

static void a_channel_may_end_before_it_is_opened_here(void **state)
{
    struct wire *w = *state;
    struct in in[2];

    cw_up(w, 1, (const uint32_t[]){6, 0});
    cw_recv(w, &in[0], 6, place, 30);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_say_close(w, 5, 1, 0);
    cw_say_whole(w, 1, 6, 0, 30);
    cw_check(w, &in[0], 30);
    WIRE_UNTIL(w, cw_channel(w, 5)->base.peer_closed);
    assert_int_equal(w->ops.channel_open(w->ep, 5), 0);
    cw_recv(w, &in[1], 5, place, 100);
    cw_check(w, &in[1], 100);
    w->ops.channel_close(w->ep, 5);
    assert_null(cw_channel(w, 5));
    cw_hear_close(w, 5, 0, 0);
}

/* ---- sends ---- */

static void sends_go_on_without_their_memory_or_vanish(void **state)
{
    struct wire *w = *state;
    uint8_t *memory = malloc(BIG);
    struct sl_tcp_frame frame;
    struct out out[3];

    cw_again(w, (const char *const[]){"TCP_SOCKET_BYTES", "4096", NULL});
    cw_up(w, 1, (const uint32_t[]){5, 6, 0});
    memcpy(memory, message, BIG);
    assert_int_equal(cw_send(w, &out[0], 5, memory, BIG), 0);
    assert_int_equal(cw_send(w, &out[1], 5, memory, BIG), 0);
    assert_int_equal(cw_send(w, &out[2], 6, message, 1000), 0);
    cw_rounds(w);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(out[0].req.status, -ECANCELED);
    assert_int_equal(out[1].req.status, -ECANCELED);
    assert_int_equal(out[2].req.status, SL_PENDING);
    memset(memory, 0xee, BIG);
    free(memory);
    cw_hear(w, 1, &frame, heard);
    assert_int_equal(frame.channel, 5);
    assert_int_equal(frame.len, BIG);
    assert_memory_equal(heard, message, BIG);
    cw_hear(w, 1, &frame, heard);
    assert_int_equal(frame.channel, 6);
    assert_int_equal(frame.seq, 0);
    assert_memory_equal(heard, message, 1000);
    WIRE_UNTIL(w, out[2].req.status == 0);
    cw_hear_close(w, 5, 1, 0);
    assert_int_equal(cw_ep(w)->tx_head, cw_ep(w)->tx_tail);
    assert_false(cw_ep(w)->is_active);
    cw_say_close(w, 5, 0, 0);
    WIRE_UNTIL(w, cw_channel(w, 5) == NULL);
}

static void a_long_message_is_cut(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame;
    struct out out[2];
    size_t got = 0;

    cw_again(w,
             (const char *const[]){"TCP_SOCKET_BYTES", "4096", "TCP_STRIPE_BYTES", "4096", NULL});
    cw_up(w, 2, (const uint32_t[]){5, 6, 0});
    assert_int_equal(cw_send(w, &out[0], 5, message, BIG), 0);
    assert_int_equal(cw_send(w, &out[1], 6, message, 1000), 0);
    cw_rounds(w);
    w->ops.channel_close(w->ep, 5);
    cw_hear(w, 0, &frame, NULL);
    assert_int_equal(frame.type, SL_TCP_CLOSE);
    assert_int_equal(frame.tag, 1);
    uint64_t cut = frame.total;

    assert_in_range(cut, 1, BIG - 1);
    /* The other message is behind all that is left of it. */
    for (unsigned conn = 1; got < cut + 1000; conn = 3 - conn) {
        if (recv(w->fds[conn], heard, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
            wire_progress(w);
            continue;
        }
        cw_hear(w, conn, &frame, heard);
        assert_memory_equal(heard, message + frame.off, frame.len);
        assert_true(frame.channel == 6 || frame.off + frame.len <= cut);
        assert_int_equal(frame.total, frame.channel == 6 ? 1000 : BIG);
        got += frame.len;
    }
    assert_int_equal(got, cut + 1000);
    WIRE_UNTIL(w, out[1].req.status == 0);
    assert_false(cw_ep(w)->is_active);
}

static void a_cut_message_ends_with_its_channel(void **state)
{
    struct wire *w = *state;
    struct in in;

    cw_up(w, 2, (const uint32_t[]){5, 6, 7, 0});
    cw_recv(w, &in, 5, place, 2000);
    cw_say(w, 1, 5, 0, 2000, 0, 700);
    cw_say_close(w, 5, 1, 1000);
    cw_say(w, 2, 5, 0, 2000, 700, 300);
    cw_rounds(w);
    assert_int_equal(in.req.status, SL_PENDING);
    w->ops.channel_close(w->ep, 5);
    assert_int_equal(in.req.status, -ECANCELED);
    assert_null(cw_channel(w, 5));

    /* Its last frame comes last. */
    w->ops.channel_close(w->ep, 6);
    cw_say(w, 1, 6, 0, 2000, 0, 700);
    cw_say_close(w, 6, 1, 1000);
    cw_rounds(w);
    assert_non_null(cw_channel(w, 6));
    cw_say(w, 2, 6, 0, 2000, 700, 300);
    WIRE_UNTIL(w, cw_channel(w, 6) == NULL);

    /* The word of its end does. */
    w->ops.channel_close(w->ep, 7);
    cw_say(w, 1, 7, 0, 2000, 0, 700);
    cw_rounds(w);
    cw_say_close(w, 7, 1, 700);
    WIRE_UNTIL(w, cw_channel(w, 7) == NULL);
    assert_int_equal(cw_ep(w)->rx_open, 0);
    assert_int_equal(w->downs, 0);
}

/* Each channel has a queue of its own: the line grows. */
static void a_full_channel_leaves_room_for_others(void **state)
{
    struct wire *w = *state;
    struct out *out = calloc((size_t)3 * SL_TCP_QUEUE + 100, sizeof(*out));
    uint32_t next[8] = {0};
    unsigned sent = 0;
    int rc;

    cw_again(w, (const char *const[]){"TCP_SOCKET_BYTES", "4096", NULL});
    cw_up(w, 1, (const uint32_t[]){5, 6, 7, 0});
    for (uint32_t id = 5; id < 8; id++) {
        while ((rc = cw_send(w, &out[sent], id, message, 3000)) >= 0)
            sent++;
        assert_int_equal(rc, -EAGAIN);
        assert_int_equal(cw_channel(w, id)->tx_pending, SL_TCP_QUEUE);
    }
    assert_true(sent >= 3 * SL_TCP_QUEUE);
    for (unsigned i = 0; i < sent; i++) {
        struct sl_tcp_frame frame;

        cw_hear(w, 1, &frame, heard);
        assert_int_equal(frame.len, 3000);
        assert_int_equal(frame.channel, out[i].buf.channel);
        assert_int_equal(frame.seq, next[frame.channel]++);
        assert_memory_equal(heard, message, 3000);
    }
    WIRE_UNTIL(w, cw_ep(w)->tx_head == cw_ep(w)->tx_tail);
    for (unsigned i = 0; i < sent; i++)
        assert_int_equal(out[i].req.status, 0);
    free(out);
}

/* ---- the word of it ---- */

static void every_end_is_told(void **state)
{
    struct wire *w = *state;
    uint8_t note[SL_CTRL_ROOM] = {1};
    unsigned notes = 0;
    uint32_t id = 1;

    cw_again(w, (const char *const[]){"TCP_SOCKET_BYTES", "4096", NULL});
    assert_int_equal(w->ops.channel_open(w->ep, 1), 0);
    w->ops.channel_close(w->ep, 1);
    cw_up(w, 1, (const uint32_t[]){0});
    for (uint32_t more = 2; more <= MANY; more++)
        assert_int_equal(w->ops.channel_open(w->ep, more), 0);
    while (w->ops.ctrl(w->ep, note, sizeof(note)) == 0)
        notes++;
    for (uint32_t more = 2; more <= MANY; more++)
        w->ops.channel_close(w->ep, more);
    while (id <= MANY) {
        struct sl_tcp_frame frame;

        cw_hear(w, 0, &frame, heard);
        if (frame.type == SL_TCP_CTRL) {
            notes--;
            continue;
        }
        assert_int_equal(frame.type, SL_TCP_CLOSE);
        assert_int_equal(frame.channel, id);
        id++;
    }
    assert_int_equal(notes, 0);
}

static void contradictions_end_the_endpoint(void **state)
{
    struct wire *w = *state;
    static const struct {
        uint64_t count, cut;
        bool twice;
    } wrong[] = {{1, 0, false}, {2, 400, false}, {2, 1000, false}, {2, 0, true}, {2, 600, true}};
    struct in in[2];

    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        cw_up(w, 1, (const uint32_t[]){5, 0});
        cw_recv(w, &in[0], 5, place, 100);
        cw_recv(w, &in[1], 5, place + 100, 1000);
        cw_say_whole(w, 1, 5, 0, 100);
        cw_say(w, 1, 5, 1, 1000, 0, 500);
        WIRE_UNTIL(w, cw_ep(w)->received_bytes == 600);
        if (wrong[i].twice)
            cw_say_close(w, 5, wrong[i].count, wrong[i].cut);
        cw_rounds(w);
        assert_int_equal(w->downs, 0);
        cw_say_close(w, 5, wrong[i].count, wrong[i].cut);
        cw_lost(w, "the end of channel 5 contradicts what came there");
        assert_int_equal(in[1].req.status, -EBADMSG);
        cw_again(w, NULL);
    }
    cw_up(w, 1, (const uint32_t[]){5, 0});
    cw_recv(w, &in[0], 5, place, 100);
    cw_say_whole(w, 1, 5, 0, 100);
    cw_check(w, &in[0], 100);
    cw_say_close(w, 5, 1, 50); /* of a message that is here */
    cw_lost(w, "the end of channel 5 contradicts what came there");
}

static void messages_beyond_the_end_are_refused(void **state)
{
    struct wire *w = *state;
    struct in in;

    for (unsigned posted = 0; posted < 2; posted++) {
        cw_up(w, 1, (const uint32_t[]){5, 0});
        if (posted)
            cw_recv(w, &in, 5, place, 100);
        cw_say_close(w, 5, 0, 0);
        WIRE_UNTIL(w, cw_channel(w, 5)->base.peer_closed);
        cw_say_whole(w, 1, 5, 0, 100);
        cw_lost(w, "message 0 of channel 5, which had 0");
        cw_again(w, NULL);
    }
    cw_up(w, 1, (const uint32_t[]){5, 0});
    cw_recv(w, &in, 5, place, 1000);
    cw_say(w, 1, 5, 0, 1000, 0, 500);
    WIRE_UNTIL(w, cw_ep(w)->received_bytes == 500);
    cw_say_close(w, 5, 1, 600);
    WIRE_UNTIL(w, cw_channel(w, 5)->base.peer_closed);
    cw_say(w, 1, 5, 0, 1000, 500, 200);
    cw_lost(w, "700 bytes came of a message of channel 5 that ends at 600");
}

static void a_peer_may_not_name_channels_without_end(void **state)
{
    struct wire *w = *state;

    cw_up(w, 1, (const uint32_t[]){0});
    for (uint32_t id = 1; id <= SL_CHANNELS_UNOPENED_MAX; id++)
        cw_say_close(w, id, 0, 0);
    cw_rounds(w);
    assert_int_equal(w->downs, 0);
    cw_say_whole(w, 1, SL_CHANNELS_UNOPENED_MAX + 1, 0, 10);
    cw_lost(w, "that are not open here");
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, cw_setup, cw_teardown)
    const struct CMUnitTest tests[] = {
        CASE(pending_receives_end_and_others_stay),
        CASE(a_message_under_way_is_dropped_to_its_end),
        CASE(a_message_that_is_kept_goes_too),
        CASE(a_message_that_held_back_others_lets_them_through),
        CASE(a_channel_may_end_before_it_is_opened_here),
        CASE(sends_go_on_without_their_memory_or_vanish),
        CASE(a_long_message_is_cut),
        CASE(a_cut_message_ends_with_its_channel),
        CASE(a_full_channel_leaves_room_for_others),
        CASE(every_end_is_told),
        CASE(contradictions_end_the_endpoint),
        CASE(messages_beyond_the_end_are_refused),
        CASE(a_peer_may_not_name_channels_without_end),
    };

    cw_engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
