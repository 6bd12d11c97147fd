/* SPDX-License-Identifier: Apache-2.0 */
/* How an endpoint ends: farewells, crashes, last words, peers that are stopped or never stop. */
#include "wire_peer.h"

#include "core/err.h"
#include "core/log.h"
#include "tcp/tcp.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define BIG ((size_t)300000)
#define NOTES 400 /* control messages, more than one read takes */
#define STOPPED 16

static const char *engine;
static uint8_t message[BIG], place[BIG];

/* Of the endpoint's control connection: the peer has said another message each time it is read. */
static int endless_fd = -1;
static uint32_t endless_seq;

ssize_t __real_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL};

    if (fd != endless_fd)
        return __real_recv(fd, bytes, len, flags);
    if (endless_seq == 100000)
        fail_msg("it is still being read");
    assert_true(len >= SL_TCP_FRAME_BYTES);
    frame.seq = endless_seq++;
    sl_tcp_frame_encode(&frame, false, bytes);
    return SL_TCP_FRAME_BYTES;
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

static void a_control_connection_that_ends_without_farewell_is_a_crash(void **state)
{
    struct wire *w = *state;

    wire_connect(w, 1, false);
    close(w->fds[0]);
    w->fds[0] = -1;
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
}

/* It crashed behind its last byte: that is here, though not read yet. */
static void what_came_before_a_crash_is_received(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, BIG, 0, BIG);
    uint8_t header[SL_TCP_FRAME_BYTES];
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 2, false);
    wire_post(w, &sink, &req, place, BIG, 1);
    sl_tcp_frame_encode(&frame, false, header);
    /* No progress between. */
    assert_int_equal(send(w->fds[2], header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
    assert_int_equal(send(w->fds[2], message, BIG, MSG_NOSIGNAL), BIG);
    for (int i = 0; i < 3; i++) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_memory_equal(place, message, BIG);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
}

static void a_farewell_lets_received_data_be_fetched_first(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame data = wire_piece(0, 1, 1000, 0, 1000), bye = {.type = SL_TCP_BYE};
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 1, false);
    wire_frame(w, 1, &data, false, message);
    wire_frame(w, 0, &bye, false, NULL);
    for (int i = 0; i < 2; i++) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    for (int i = 0; i < 1000; i++)
        wire_progress(w);
    assert_int_equal(w->downs, 0);
    wire_post(w, &sink, &req, place, 1000, 1);
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    assert_memory_equal(place, message, 1000);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
    assert_non_null(strstr(w->down_why, "closed its endpoint"));
}

static void a_peer_that_goes_in_the_middle_of_a_message_is_lost(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = wire_piece(0, 1, 1000, 0, 1000);
    struct sl_sink sink;
    struct sl_req req;

    wire_connect(w, 1, false);
    wire_post(w, &sink, &req, place, 1000, 1);
    frame.len = 1000;
    wire_frame(w, 1, &frame, false, NULL);
    wire_write(w, w->fds[1], message, 400);
    close(w->fds[1]);
    w->fds[1] = -1;
    WIRE_UNTIL(w, req.status != SL_PENDING);
    assert_int_equal(req.status, -ECONNRESET);
    assert_int_equal(w->downs, 1);
}

/* Else a crowded control connection would make of every orderly end a crash. */
static void a_farewell_has_a_place_when_no_control_message_has(void **state)
{
    struct wire *w = *state;
    static uint8_t bytes[8 << 20];
    uint8_t note[SL_CTRL_ROOM] = {1};
    struct sl_tcp_frame frame;
    size_t have = 0, at = 0;
    unsigned sent = 0, came = 0;
    ssize_t n;
    int rc;

    wire_close(w);
    wire_open(w, engine, (const char *const[]){"TCP_SOCKET_BYTES", "65536", NULL});
    wire_connect(w, 1, false);
    while ((rc = w->ops.ctrl(w->ep, note, sizeof(note))) == 0)
        sent++;
    assert_int_equal(rc, -EAGAIN);
    /* The peer reads what is on the way, and the endpoint ends before it has looked again. */
    while ((n = recv(w->fds[0], bytes + have, sizeof(bytes) - have, MSG_DONTWAIT)) > 0)
        have += (size_t)n;
    w->ops.ep_destroy(w->ep);
    w->ep = NULL;
    while ((n = recv(w->fds[0], bytes + have, sizeof(bytes) - have, 0)) > 0)
        have += (size_t)n;
    assert_int_equal(n, 0);
    do {
        assert_true(at + SL_TCP_FRAME_BYTES <= have);
        assert_int_equal(sl_tcp_frame_decode(bytes + at, false, &frame), 0);
        assert_int_equal(frame.seq, came);
        at += SL_TCP_FRAME_BYTES + frame.len;
        came++;
    } while (frame.type == SL_TCP_CTRL);
    assert_int_equal(frame.type, SL_TCP_BYE);
    assert_int_equal(came, sent + 1);
    assert_int_equal(at, have);
}

/* 64 ranks that close 24 channels each say more than one read takes. */
static void a_farewell_is_read_behind_many_control_messages(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_frame frame = {.type = SL_TCP_CTRL, .len = 64};
    uint8_t bytes[SL_TCP_FRAME_BYTES + 64] = {0};

    wire_connect(w, 1, false);
    for (frame.seq = 0; frame.seq < NOTES; frame.seq++) { /* no progress between */
        sl_tcp_frame_encode(&frame, false, bytes);
        assert_int_equal(send(w->fds[0], bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    }
    frame.type = SL_TCP_BYE;
    frame.len = 0;
    sl_tcp_frame_encode(&frame, false, bytes);
    assert_int_equal(send(w->fds[0], bytes, SL_TCP_FRAME_BYTES, MSG_NOSIGNAL), SL_TCP_FRAME_BYTES);
    for (int i = 2; i-- > 0;) {
        close(w->fds[i]);
        w->fds[i] = -1;
    }
    WIRE_UNTIL(w, w->downs == 1);
    assert_non_null(strstr(w->down_why, "closed its endpoint"));
    assert_int_equal(w->ctrls, NOTES);
}

/* A peer that speaks while the endpoint closes, and reads to the end. */
struct speaker {
    int fd;
    atomic_bool closing, closed;
    size_t have;
    uint8_t last[SL_TCP_FRAME_BYTES];
};

static void *speak_and_read(void *arg)
{
    struct speaker *s = arg;
    uint8_t byte = 0;
    ssize_t n;

    while (!atomic_load(&s->closing))
        ;
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 5 * SL_NS_PER_MS;
         !atomic_load(&s->closed) && sl_now(&sl_clock_monotonic) < end;)
        ;
    (void)send(s->fd, &byte, 1, MSG_NOSIGNAL); /* to a socket that is closed already, or waits */
    while ((n = read(s->fd, &byte, 1)) == 1) { /* not recv(), which is counted */
        memmove(s->last, s->last + 1, sizeof(s->last) - 1);
        s->last[sizeof(s->last) - 1] = byte;
        s->have++;
    }
    return NULL;
}

/* It waits for the kernel to send them: what comes to a closed socket resets it, and what it has
 * not sent by then is lost. */
static void the_last_words_are_not_lost_by_what_comes_at_the_end(void **state)
{
    struct wire *w = *state;
    struct speaker s = {.fd = -1};
    uint8_t note[SL_CTRL_ROOM] = {1};
    struct sl_tcp_frame frame;
    unsigned sent = 0;
    int unsent = 0;
    pthread_t thread;

    wire_close(w);
    wire_open(w, engine, (const char *const[]){"TCP_SOCKET_BYTES", "65536", NULL});
    wire_connect(w, 1, false);
    for (; unsent == 0; sent++) {
        assert_int_equal(w->ops.ctrl(w->ep, note, sizeof(note)), 0);
        int fd = ((const struct sl_tcp_ep *)w->ep)->conns[0].watch.fd;

        /* An emulator of system calls knows the second question only. */
        assert_true(ioctl(fd, SIOCOUTQNSD, &unsent) == 0 || ioctl(fd, SIOCOUTQ, &unsent) == 0);
    }
    s.fd = w->fds[0];
    assert_int_equal(pthread_create(&thread, NULL, speak_and_read, &s), 0);
    atomic_store(&s.closing, true);
    w->ops.ep_destroy(w->ep);
    w->ep = NULL;
    atomic_store(&s.closed, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(s.have, sent * (SL_TCP_FRAME_BYTES + sizeof(note)) + SL_TCP_FRAME_BYTES);
    assert_int_equal(sl_tcp_frame_decode(s.last, false, &frame), 0);
    assert_int_equal(frame.type, SL_TCP_BYE);
}

/* Its peer takes nothing: it is stopped. */
static void fill(struct wire *w)
{
    uint8_t note[SL_CTRL_ROOM] = {1};
    int rc;

    while ((rc = w->ops.ctrl(w->ep, note, sizeof(note))) == 0)
        ;
    assert_int_equal(rc, -EAGAIN);
}

/* Another endpoint of the interface, with a peer of its own. */
static void connect_another(struct wire *w, struct wire *another)
{
    *another = *w;
    assert_int_equal(w->ops.ep_create(w->iface, &another->ep), 0);
    assert_int_equal(w->ops.ep_addr(another->ep, &another->addr), 0);
    assert_int_equal(sl_tcp_name_make(another->addr.bytes + 24, another->name), 0);
    wire_connect(another, 1, false);
}

static uint64_t destroy_all(struct wire *peers, unsigned from, unsigned count)
{
    uint64_t start = sl_now(&sl_clock_monotonic);

    for (unsigned i = from; i < count; i++) {
        peers[i].ops.ep_destroy(peers[i].ep);
        for (unsigned c = 0; c < 2; c++)
            close(peers[i].fds[c]);
    }
    return (sl_now(&sl_clock_monotonic) - start) / SL_NS_PER_MS;
}

static void many_peers_that_are_stopped_cost_as_much_as_one(void **state)
{
    static struct wire peers[STOPPED + 1];
    struct wire *w = *state;

    wire_close(w);
    wire_open(w, engine, (const char *const[]){"TCP_SOCKET_BYTES", "65536", NULL});
    for (unsigned i = 0; i <= STOPPED; i++) {
        connect_another(w, &peers[i]);
        fill(&peers[i]);
    }
    uint64_t ms = destroy_all(peers, 0, STOPPED);

    wire_progress(w);
    uint64_t another_time = destroy_all(peers, STOPPED, STOPPED + 1);

    assert_in_range(ms, 99, 99 * STOPPED / 2);
    assert_in_range(another_time, 99, 99 * STOPPED / 2); /* not counted with it */
}

/* The data connection ends, and the peer talks on: in each turn a part of it is heard. Then it
 * falls silent without a farewell, or the endpoint is lost for another reason meanwhile. */
static void end_while_the_peer_talks_on(struct wire *w, bool resets)
{
    const struct linger at_once = {.l_onoff = 1};

    wire_connect(w, 1, false);
    endless_seq = 0;
    endless_fd = ((const struct sl_tcp_ep *)w->ep)->conns[0].watch.fd;
    if (resets)
        assert_int_equal(setsockopt(w->fds[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
                         0);
    close(w->fds[1]);
    w->fds[1] = -1;
    if (resets) {
        WIRE_UNTIL(w, w->downs == 1);
    } else {
        WIRE_UNTIL(w, w->ctrls > 1000);
        assert_int_equal(w->downs, 0);
        endless_fd = -1;
        WIRE_UNTIL(w, w->downs == 1);
    }
    endless_fd = -1;
    assert_int_equal(w->down_status, -ECONNRESET);
    assert_int_equal((uint32_t)w->ctrls, endless_seq);
}

static void a_peer_that_talks_without_end_holds_nobody_up(void **state)
{
    struct wire *w = *state;

    end_while_the_peer_talks_on(w, false);
    wire_close(w);
    wire_open(w, engine, NULL);
    end_while_the_peer_talks_on(w, true);
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_control_connection_that_ends_without_farewell_is_a_crash),
        CASE(what_came_before_a_crash_is_received),
        CASE(a_farewell_lets_received_data_be_fetched_first),
        CASE(a_peer_that_goes_in_the_middle_of_a_message_is_lost),
        CASE(a_farewell_has_a_place_when_no_control_message_has),
        CASE(a_farewell_is_read_behind_many_control_messages),
        CASE(the_last_words_are_not_lost_by_what_comes_at_the_end),
        CASE(many_peers_that_are_stopped_cost_as_much_as_one),
        CASE(a_peer_that_talks_without_end_holds_nobody_up),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
