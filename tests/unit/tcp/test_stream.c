/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from a hand-made peer: cut anywhere, over several connections, out of turn, and wrong. */
#include "wire_peer.h"

#include "core/crc.h"
#include "core/err.h"
#include "core/log.h"
#include "tcp/tcp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define BIG ((size_t)300000)

static const char *engine;
static uint8_t message[BIG], place[BIG];

static int reads; /* of sockets by the transport */

ssize_t __real_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags)
{
    reads++;
    return __real_recv(fd, bytes, len, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
    reads++;
    return __real_recvmsg(fd, msg, flags);
}

struct taker {
    struct sl_sink sink;
    uint8_t *to;
    size_t next;
};

static void take(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    struct taker *t = sl_container_of((uintptr_t)sink, struct taker, sink);

    assert_int_equal(off, t->next);
    assert_true(len % sink->granule == 0 || off + len == sink->len);
    memcpy(t->to + off, bytes, len);
    t->next += len;
}

static int setup(void **state)
{
    static struct wire w;

    for (size_t i = 0; i < BIG; i++)
        message[i] = (uint8_t)(i * 7 + (i >> 9));
    memset(place, 0, sizeof(place));
    wire_open(&w, engine, NULL);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    wire_close(*state);
    return 0;
}

static void one_byte_at_a_time_is_a_message(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 5, 100, 0, 100);
    uint8_t bytes[SL_TCP_FRAME_BYTES];
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 1, true);
    wire_post(w, &sink, &req, place, 100, 5);
    frame.crc = sl_crc32c(0, message, 100);
    sl_tcp_frame_encode(&frame, true, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++)
        wire_write(w, w->fds[1], bytes + i, 1);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(req.status, SL_PENDING);
        wire_write(w, w->fds[1], message + i, 1);
    }
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_memory_equal(place, message, 100);
}

/* Pieces of one message dealt over three connections, the last ones first. */
static void deal(struct wire *w, bool crc)
{
    size_t size = BIG / 6;

    for (unsigned turn = 0; turn < 6; turn++) {
        unsigned at = turn < 3 ? 2 - turn : 8 - turn; /* 2 1 0, then 5 4 3 */
        struct sl_tcp_frame frame = wire_piece(0, 9, BIG, at * size, size);

        wire_frame(w, 1 + at % 3, &frame, crc, message + at * size);
    }
}

static void pieces_on_several_connections_join_at_their_places(void **state)
{
    struct wire *w = *state;
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 3, true);
    wire_post(w, &sink, &req, place, BIG, 9);
    deal(w, true);
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_int_equal(req.len, BIG);
    assert_memory_equal(place, message, BIG);
}

static void consume_gets_pieces_of_several_connections_in_order(void **state)
{
    struct wire *w = *state;
    struct taker t = {.sink = {.len = BIG, .tag = 9, .granule = 48, .consume = take}, .to = place};
    struct sl_req req = {0};

    wire_connect(w, 3, true);
    assert_int_equal(w->ops.recv(w->ep, &t.sink, &req), 0);
    deal(w, true);
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_int_equal(t.next, BIG);
    assert_memory_equal(place, message, BIG);
}

/* What is left over of a granule is kept once for a channel. */
static void consume_gets_no_message_before_the_one_ahead_is_over(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame begin = wire_piece(0, 1, 144, 0, 48), rest = wire_piece(0, 1, 144, 48, 96);
    struct sl_tcp_frame next = wire_piece(1, 2, 144, 0, 144);
    struct taker t[2] = {{.sink = {.len = 144, .tag = 1, .granule = 48, .consume = take}},
                         {.sink = {.len = 144, .tag = 2, .granule = 48, .consume = take}}};
    struct sl_req req[2] = {0};

    wire_connect(w, 2, false);
    for (int i = 0; i < 2; i++) {
        t[i].to = place + 1000 * i;
        assert_int_equal(w->ops.recv(w->ep, &t[i].sink, &req[i]), 0);
    }
    wire_frame(w, 1, &begin, false, message);
    WIRE_UNTIL(w, t[0].next == 48);
    wire_frame(w, 2, &next, false, message + 500);
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    assert_int_equal(t[1].next, 0);
    wire_frame(w, 1, &rest, false, message + 48);
    WIRE_UNTIL(w, req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(req[i].status, 0);
        assert_memory_equal(t[i].to, message + 500 * i, 144);
    }
}

static void messages_on_two_connections_meet_their_receives_by_number(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame first = wire_piece(0, 1, 10, 0, 10), second = wire_piece(1, 2, 20, 0, 20);
    struct sl_sink sink[2];
    struct sl_req req[2];

    wire_connect(w, 2, false);
    wire_post(w, &sink[0], &req[0], place, 10, 1);
    wire_frame(w, 2, &second, false, message + 100);
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    assert_int_equal(req[0].status, SL_PENDING);
    wire_post(w, &sink[1], &req[1], place + 50, 20, 2);
    WIRE_UNTIL(w, req[1].status != SL_PENDING);
    assert_int_equal(req[0].status, SL_PENDING);
    wire_frame(w, 1, &first, false, message);
    WIRE_UNTIL(w, req[0].status != SL_PENDING);
    assert_int_equal(req[0].status, 0);
    assert_int_equal(req[1].status, 0);
    assert_memory_equal(place, message, 10);
    assert_memory_equal(place + 50, message + 100, 20);
}

static void control_comes_through_while_data_is_stuck(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame data = wire_piece(0, 1, 1000, 0, 1000);
    struct sl_tcp_frame ctrl = {.type = SL_TCP_CTRL, .len = 3};

    wire_connect(w, 1, false);
    wire_frame(w, 1, &data, false, message);
    wire_frame(w, 0, &ctrl, false, "hi!");
    WIRE_UNTIL(w, w->ctrls == 1);
    assert_int_equal(w->downs, 0);
}

/* Sends frame and expects that the endpoint is lost with -EBADMSG and a word of explanation, and
 * that a pending receive ends with it. */
static void check_lost(struct wire *w, unsigned conn, struct sl_tcp_frame frame, bool crc,
                       const char *why)
{
    struct sl_sink sink;
    struct sl_req req;

    wire_post(w, &sink, &req, place, 1000, 1);
    wire_frame(w, conn, &frame, crc, message);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -EBADMSG);
    assert_int_equal(req.status, -EBADMSG);
    if (strstr(w->down_why, why) == NULL)
        fail_msg("'%s' does not say '%s'", w->down_why, why);
    assert_int_equal(w->ops.recv(w->ep, &sink, &req), -EBADMSG);
}

static void damaged_payload_ends_the_endpoint_and_names_the_connection(void **state)
{
    struct sl_tcp_frame frame = wire_piece(0, 1, 1000, 0, 1000);

    wire_connect(*state, 1, true);
    frame.crc = 0x12345678;
    check_lost(*state, 1, frame, true, "connection 1 of 1");
}

static void a_message_that_is_over_cannot_come_again(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, 100, 0, 100);
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 2, false);
    wire_post(w, &sink, &req, place, 100, 1);
    wire_frame(w, 1, &frame, false, message);
    WIRE_UNTIL(w, req.status != SL_PENDING);
    check_lost(w, 2, frame, false, "complete");
}

static void a_frame_that_goes_back_on_its_connection_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, 100, 50, 50), back = wire_piece(0, 1, 100, 0, 50);
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 1, false);
    wire_post(w, &sink, &req, place, 100, 1);
    frame.off = 10;
    frame.len = 50;
    wire_frame(w, 1, &frame, false, message);
    check_lost(w, 1, back, false, "out of order");
}

static void pieces_that_disagree_on_their_message_are_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame one = wire_piece(0, 1, 1000, 0, 500),
                        other = wire_piece(0, 2, 1000, 500, 500);

    wire_connect(w, 2, false);
    wire_frame(w, 1, &one, false, message);
    check_lost(w, 2, other, false, "contradict");
}

static void pieces_that_disagree_on_its_length_are_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame one = wire_piece(0, 1, 1000, 0, 500),
                        other = wire_piece(0, 1, 1001, 500, 500);

    wire_connect(w, 2, false);
    wire_frame(w, 1, &one, false, message);
    check_lost(w, 2, other, false, "contradict");
}

static void more_bytes_than_the_message_has_are_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame one = wire_piece(0, 1, 1000, 0, 600),
                        other = wire_piece(0, 1, 1000, 300, 700);

    wire_connect(w, 2, false);
    wire_frame(w, 1, &one, false, message);
    check_lost(w, 2, other, false, "contradict");
}

static void a_control_frame_among_data_is_refused(void **state)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL, .len = 8};

    wire_connect(*state, 1, false);
    check_lost(*state, 1, frame, false, "out of order");
}

static void a_damaged_control_message_is_refused(void **state)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL, .len = 8, .crc = 0x12345678};

    wire_connect(*state, 1, true);
    check_lost(*state, 0, frame, true, "a control message was damaged");
    assert_int_equal(((struct wire *)*state)->ctrls, 0);
}

static void a_control_message_out_of_turn_is_refused(void **state)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL, .len = 8, .seq = 1};

    wire_connect(*state, 1, false);
    check_lost(*state, 0, frame, false, "control message 1 came when 0 was due");
    assert_int_equal(((struct wire *)*state)->ctrls, 0);
}

static void data_on_the_control_connection_is_refused(void **state)
{
    wire_connect(*state, 1, false);
    check_lost(*state, 0, wire_piece(0, 1, 8, 0, 8), false, "data came on the control connection");
}

static void a_control_message_does_not_come_twice(void **state)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL, .len = 8};
    struct wire *w = *state;

    wire_connect(w, 1, true);
    wire_frame(w, 0, &frame, true, message);
    WIRE_UNTIL(w, w->ctrls == 1);
    check_lost(w, 0, frame, true, "control message 0 came when 1 was due");
    assert_int_equal(w->ctrls, 1);
}

/* What no receive wants is dropped to its last byte, in whatever way it comes, and what is behind
 * it arrives. */
static void an_unwanted_message_is_dropped_alone(void **state)
{
    struct wire *w = *state;
    struct taker t = {.sink = {.len = BIG, .tag = 9, .granule = 48, .consume = take}, .to = place};
    struct sl_req req[4] = {0};
    struct sl_sink sink[3];
    size_t half = BIG / 2;

    wire_connect(w, 2, true);
    wire_post(w, &sink[0], &req[0], place, BIG, 5);     /* of another tag */
    wire_post(w, &sink[1], &req[1], place, BIG - 1, 5); /* of another length */
    assert_int_equal(w->ops.recv(w->ep, &t.sink, &req[2]), 0);
    wire_post(w, &sink[2], &req[3], place, 100, 7);
    for (uint32_t seq = 0; seq < 3; seq++) {
        struct sl_tcp_frame one = wire_piece(seq, seq == 1 ? 5 : 6, BIG, 0, half);
        struct sl_tcp_frame two = wire_piece(seq, seq == 1 ? 5 : 6, BIG, half, half);

        wire_frame(w, 1, &one, true, message);
        WIRE_UNTIL(w, req[seq].status != SL_PENDING);
        assert_int_equal(req[seq].status, seq == 1 ? -EMSGSIZE : -EPROTO);
        assert_int_equal(req[seq].tag, seq == 1 ? 5 : 6);
        assert_int_equal(req[seq].len, BIG);
        req[seq].status = 12345; /* it has ended: nobody touches it */
        wire_frame(w, 2, &two, true, message + half);
    }
    assert_int_equal(req[3].status, SL_PENDING);
    for (size_t i = 0; i < BIG; i++)
        assert_int_equal(place[i], 0);
    assert_int_equal(t.next, 0);
    struct sl_tcp_frame wanted = wire_piece(3, 7, 100, 0, 100);

    wire_frame(w, 2, &wanted, true, message);
    WIRE_UNTIL(w, req[3].status != SL_PENDING);
    assert_int_equal(req[3].status, 0);
    assert_memory_equal(place, message, 100);
    for (int i = 0; i < 3; i++)
        assert_int_equal(req[i].status, 12345);
    assert_int_equal(w->downs, 0);
}

static void what_we_send_is_cut_and_summed_as_the_wire_format_says(void **state)
{
    struct wire *w = *state;
    struct sl_buf buf = {.addr = message, .len = 5000};
    struct sl_req req = {0};
    uint8_t header[SL_TCP_FRAME_BYTES], payload[5000];
    struct sl_tcp_frame frame;
    size_t at = 0;
    int rc;

    wire_close(w);
    wire_open(w, engine, (const char *const[]){"TCP_STRIPE_BYTES", "4096", NULL});
    wire_connect(w, 1, true);
    rc = w->ops.send(w->ep, &buf, 77, &req);
    assert_true(rc >= 0);
    while (at < 5000) {
        wire_read(w, w->fds[1], header, sizeof(header));
        assert_int_equal(sl_tcp_frame_decode(header, true, &frame), 0);
        assert_int_equal(frame.off, at);
        assert_int_equal(frame.total, 5000);
        assert_int_equal(frame.tag, 77);
        assert_int_equal(frame.len, at == 0 ? 4096 : 904);
        wire_read(w, w->fds[1], payload + at, frame.len);
        assert_int_equal(frame.crc, sl_crc32c(0, payload + at, frame.len));
        at += frame.len;
    }
    assert_memory_equal(payload, message, 5000);
    WIRE_UNTIL(w, req.status == 0);
}

/* What has something to do is looked after at every progress, the rest only when the kernel tells
 * of it. */
static void an_endpoint_is_active_while_it_has_requests(void **state)
{
    struct wire *w = *state;
    const struct sl_tcp_iface *iface;
    const struct sl_tcp_ep *ep;

    wire_connect(w, 1, true);
    iface = sl_container_of(w->iface, struct sl_tcp_iface, base);
    ep = sl_tcp_ep_of(w->ep);
    for (unsigned i = 0; i < 3; i++) {
        struct sl_tcp_frame frame = wire_piece(i, 1, 100, 0, 100);
        struct sl_sink sink;
        struct sl_req req;

        assert_false(ep->is_active);
        assert_int_equal(iface->active_count, 0);
        wire_post(w, &sink, &req, place, 100, 1);
        assert_true(ep->is_active);
        assert_int_equal(iface->active_count, 1);
        wire_frame(w, 1, &frame, true, message);
        WIRE_UNTIL(w, req.status != SL_PENDING);
        assert_int_equal(req.status, 0);
        WIRE_UNTIL(w, !ep->is_active);
    }
}

/* As if more endpoints were awaited than are asked without the engine: its events alone count. */
static void crowd(struct wire *w)
{
    sl_container_of(w->iface, struct sl_tcp_iface, base)->active_count += 100;
}

static void a_message_that_came_whole_costs_one_read(void **state)
{
    struct wire *w = *state;
    size_t lens[] = {100, 8192};

    wire_connect(w, 1, false);
    crowd(w);
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
        struct sl_tcp_frame frame = wire_piece(i, 1, lens[i], 0, lens[i]);
        struct sl_sink sink;
        struct sl_req req;
        uint8_t bytes[SL_TCP_FRAME_BYTES + 8192];

        wire_post(w, &sink, &req, place, lens[i], 1);
        sl_tcp_frame_encode(&frame, false, bytes);
        memcpy(bytes + SL_TCP_FRAME_BYTES, message, lens[i]);
        reads = 0;
        assert_int_equal(send(w->fds[1], bytes, SL_TCP_FRAME_BYTES + lens[i], 0),
                         SL_TCP_FRAME_BYTES + lens[i]);
        WIRE_UNTIL(w, req.status != SL_PENDING);
        for (int n = 0; n < 100; n++)
            wire_progress(w);
        assert_int_equal(req.status, 0);
        assert_int_equal(reads, 1);
        assert_memory_equal(place, message, lens[i]);
    }
    sl_container_of(w->iface, struct sl_tcp_iface, base)->active_count -= 100;
}

/* One event tells of the bytes and of the end. */
static void an_end_that_came_with_the_bytes_is_seen(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, 100, 0, 100);
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 1, false);
    crowd(w);
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    wire_post(w, &sink, &req, place, 100, 1);
    uint8_t bytes[SL_TCP_FRAME_BYTES + 100];

    sl_tcp_frame_encode(&frame, false, bytes);
    memcpy(bytes + SL_TCP_FRAME_BYTES, message, 100);
    assert_int_equal(send(w->fds[1], bytes, sizeof(bytes), 0), sizeof(bytes));
    close(w->fds[1]);
    w->fds[1] = -1;
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
    sl_container_of(w->iface, struct sl_tcp_iface, base)->active_count -= 100;
}

static void tiny_socket_buffers_only_slow_things_down(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, BIG, 0, BIG);
    struct sl_sink sink;
    struct sl_req req;

    wire_close(w);
    wire_open(w, engine, (const char *const[]){"TCP_SOCKET_BYTES", "4096", NULL});
    wire_connect(w, 1, true);
    wire_post(w, &sink, &req, place, BIG, 1);
    wire_frame(w, 1, &frame, true, message);
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_memory_equal(place, message, BIG);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_byte_at_a_time_is_a_message),
        CASE(pieces_on_several_connections_join_at_their_places),
        CASE(an_endpoint_is_active_while_it_has_requests),
        CASE(consume_gets_pieces_of_several_connections_in_order),
        CASE(consume_gets_no_message_before_the_one_ahead_is_over),
        CASE(messages_on_two_connections_meet_their_receives_by_number),
        CASE(control_comes_through_while_data_is_stuck),
        CASE(damaged_payload_ends_the_endpoint_and_names_the_connection),
        CASE(a_message_that_is_over_cannot_come_again),
        CASE(a_frame_that_goes_back_on_its_connection_is_refused),
        CASE(pieces_that_disagree_on_their_message_are_refused),
        CASE(pieces_that_disagree_on_its_length_are_refused),
        CASE(more_bytes_than_the_message_has_are_refused),
        CASE(a_control_frame_among_data_is_refused),
        CASE(a_damaged_control_message_is_refused),
        CASE(a_control_message_out_of_turn_is_refused),
        CASE(data_on_the_control_connection_is_refused),
        CASE(a_control_message_does_not_come_twice),
        CASE(an_unwanted_message_is_dropped_alone),
        CASE(what_we_send_is_cut_and_summed_as_the_wire_format_says),
        CASE(a_message_that_came_whole_costs_one_read),
        CASE(an_end_that_came_with_the_bytes_is_seen),
        CASE(tiny_socket_buffers_only_slow_things_down),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
