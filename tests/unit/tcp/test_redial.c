/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that break and are dialled again, of two real endpoints; and hellos of an endpoint
 * that is up, by hand. */
#include "wire_peer.h"

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

#define LEN ((size_t)200000)
#define PIPES 2

static const char *engine;

static struct stage {
    struct sl_transport_ops ops;
    struct sl_config config[2];
    struct sl_worker worker[2];
    struct sl_iface *iface[2];
    struct sl_ep *ep[2];
    struct sl_req connect[2], send[2], recv[2];
    struct sl_sink sink[2];
    uint8_t *sent, *got[2];
    unsigned downs[2];
    int status[2];
} stage;

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    unsigned i = ep == stage.ep[1];

    (void)arg, (void)why;
    stage.downs[i]++;
    stage.status[i] = status;
}

static void progress(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (stage.iface[i] != NULL)
            assert_true(stage.ops.progress(stage.iface[i], 16) >= 0);
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t end_ns = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;                          \
                                                                                                   \
        while (!(cond)) {                                                                          \
            progress();                                                                            \
            if (sl_now(&sl_clock_monotonic) > end_ns)                                              \
                fail_msg("timed out waiting for %s", #cond);                                       \
        }                                                                                          \
    } while (0)

static bool is_connected(unsigned side)
{
    return stage.connect[side].status == 0;
}

static int pair_open(void **state)
{
    struct sl_handler handler = {.down = on_down};
    struct sl_addr addr[2];

    (void)state;
    memset(&stage, 0, sizeof(stage));
    sl_transport_complete(&sl_tcp_ops, &stage.ops);
    for (unsigned i = 0; i < 2; i++) {
        sl_config_defaults(&stage.config[i]);
        assert_int_equal(sl_config_set(&stage.config[i], "TCP_ENGINE", engine), 0);
        assert_int_equal(sl_config_set(&stage.config[i], "INTERFACE", "lo"), 0);
        assert_int_equal(sl_config_set(&stage.config[i], "TCP_CONNECTIONS", "2"), 0);
        stage.worker[i] = (struct sl_worker){.clock = &sl_clock_monotonic,
                                             .config = &stage.config[i],
                                             .rank = (int)i,
                                             .has_session = true,
                                             .session = {7}};
        assert_int_equal(stage.ops.open(&stage.worker[i], NULL, &handler, &stage.iface[i]), 0);
        assert_int_equal(stage.ops.ep_create(stage.iface[i], &stage.ep[i]), 0);
        stage.ep[i]->peer = (int)!i;
        assert_int_equal(stage.ops.ep_addr(stage.ep[i], &addr[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(stage.ops.ep_connect(stage.ep[i], &addr[!i], &stage.connect[i]), 0);
    UNTIL(is_connected(0) && is_connected(1));
    stage.sent = malloc(LEN);
    for (size_t i = 0; i < LEN; i++)
        stage.sent[i] = (uint8_t)(i * 2654435761u >> 15);
    for (unsigned i = 0; i < 2; i++)
        stage.got[i] = malloc(LEN);
    return 0;
}

static int pair_close(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        if (stage.ep[i] != NULL)
            stage.ops.ep_destroy(stage.ep[i]);
        if (stage.iface[i] != NULL)
            stage.ops.close(stage.iface[i]);
        free(stage.got[i]);
    }
    free(stage.sent);
    return 0;
}

static struct sl_tcp_ep *end_of(unsigned side)
{
    return sl_tcp_ep_of(stage.ep[side]);
}

/* The side that dials, or the one that does not. */
static unsigned side_that(bool dials)
{
    return end_of(0)->dials == dials ? 0 : 1;
}

static void posts(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct sl_buf buf = {.addr = stage.sent, .len = LEN};

        memset(stage.got[i], 0, LEN);
        stage.sink[i] = (struct sl_sink){.dst = stage.got[i], .len = LEN, .tag = 3};
        stage.send[i].status = stage.recv[i].status = SL_PENDING;
        assert_true(stage.ops.recv(stage.ep[i], &stage.sink[i], &stage.recv[i]) >= 0);
        assert_true(stage.ops.send(stage.ep[i], &buf, 3, &stage.send[i]) >= 0);
    }
}

static void messages_pass(void)
{
    posts();
    UNTIL(stage.send[0].status != SL_PENDING && stage.recv[0].status != SL_PENDING &&
          stage.send[1].status != SL_PENDING && stage.recv[1].status != SL_PENDING);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(stage.send[i].status, 0);
        assert_int_equal(stage.recv[i].status, 0);
        assert_memory_equal(stage.got[i], stage.sent, LEN);
    }
}

/* As a firewall or `ss -K` does: both ends get a reset. */
static void reset(unsigned side, unsigned conn)
{
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    assert_int_equal(connect(end_of(side)->conns[conn].watch.fd, &nobody, sizeof(nobody)), 0);
}

static void redial(unsigned side)
{
    assert_int_equal(stage.ops.ep_redial(stage.ep[side], &stage.connect[side], &stage.ep[side]), 0);
}

/* The process is gone, or only its endpoint: no farewell. */
static void vanish(unsigned side, bool process)
{
    end_of(side)->is_failing = true;
    stage.ops.ep_destroy(stage.ep[side]);
    stage.ep[side] = NULL;
    if (!process)
        return;
    stage.ops.close(stage.iface[side]);
    stage.iface[side] = NULL;
}

static void one_that_is_reset_is_connected_again(void **state)
{
    uint32_t before = 0;

    for (unsigned i = 0; i < 2 * (1 + PIPES); i++) {
        if (i > 0) {
            pair_close(state);
            pair_open(state);
        }
        messages_pass();
        posts();
        before = stage.ep[0]->connection;
        reset(side_that(i % 2), i / 2);
        UNTIL(stage.downs[0] == 1 && stage.downs[1] == 1);
        for (unsigned side = 0; side < 2; side++) {
            assert_false(stage.ep[side]->left);
            assert_int_not_equal(stage.recv[side].status, SL_PENDING);
            redial(side);
        }
        UNTIL(is_connected(0) && is_connected(1));
        assert_true(stage.ep[0]->connection > before);
        assert_int_equal(stage.ep[0]->connection, stage.ep[1]->connection);
        assert_int_equal(stage.ep[0]->peer, 1);
        messages_pass();
        assert_int_equal(stage.downs[0] + stage.downs[1], 2);
    }
}

/* One end knows of the loss a while before the other acts on it. */
static void who_is_late_is_not_taken_for_dead(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        unsigned early = side_that(i % 2), late = !early;
        unsigned tries = 0;

        reset(early, 0);
        UNTIL(stage.downs[0] == i + 1 && stage.downs[1] == i + 1);
        redial(early);
        for (unsigned n = 0; n < 3000; n++) {
            progress();
            if (stage.connect[early].status != SL_PENDING) {
                assert_int_not_equal(stage.connect[early].status, -ECONNREFUSED);
                tries++;
                redial(early);
            }
        }
        assert_true(i % 2 == 0 || tries > 0);
        redial(late);
        while (!is_connected(0) || !is_connected(1))
            for (unsigned side = 0; side < 2; side++) {
                progress();
                if (stage.connect[side].status < 0)
                    redial(side);
            }
        messages_pass();
    }
}

static void is_named(bool dials, bool process)
{
    unsigned side = side_that(dials);
    uint64_t before_ns = sl_now(&sl_clock_monotonic);

    vanish(!side, process);
    UNTIL(stage.downs[side] == 1);
    assert_int_equal(stage.status[side], -ECONNRESET);
    assert_false(stage.ep[side]->left);
    redial(side);
    UNTIL(stage.connect[side].status != SL_PENDING);
    assert_int_equal(stage.connect[side].status, -ECONNREFUSED);
    assert_true(sl_now(&sl_clock_monotonic) - before_ns < 5 * SL_NS_PER_S);
}

static void who_dials_finds_that_the_process_is_gone(void **state)
{
    (void)state;
    is_named(true, true);
}

static void who_is_dialled_finds_it_by_knocking(void **state)
{
    (void)state;
    is_named(false, true);
}

static void and_so_that_the_endpoint_is_gone(void **state)
{
    is_named(true, false);
    pair_close(state);
    pair_open(state);
    is_named(false, false);
}

static void a_farewell_is_told_from_a_loss(void **state)
{
    (void)state;
    stage.ops.ep_destroy(stage.ep[1]);
    stage.ep[1] = NULL;
    UNTIL(stage.downs[0] == 1);
    assert_true(stage.ep[0]->left);
}

/* ---- hellos of an endpoint that is up ---- */

static int wire_setup(void **state)
{
    static struct wire w;

    wire_open(&w, engine, NULL);
    wire_connect(&w, 1, false);
    *state = &w;
    return 0;
}

static int wire_teardown(void **state)
{
    wire_close(*state);
    return 0;
}

static struct sl_tcp_hello hello_of(struct wire *w, unsigned conn, uint32_t attempt)
{
    struct sl_tcp_hello hello;

    wire_hello(w, &hello, conn, 1, false);
    hello.attempt = attempt;
    return hello;
}

/* The dialler was reset, and we did not hear of it. */
static void its_own_peer_may_end_it_by_dialling_again(void **state)
{
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    struct wire *w = *state;
    struct sl_tcp_hello hello = hello_of(w, 0, 1);
    int fd = wire_dial(w, AF_INET);

    wire_greet(w, fd, &hello, token);
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -ECONNRESET);
    assert_non_null(strstr(w->down_why, "dials again"));
    close(fd);
}

/* Names travel in clear. */
static void a_stranger_who_knows_its_name_may_not(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello = hello_of(w, 0, 1);
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES], wrong[SL_DIGEST_BYTES] = {1};
    int fd = wire_dial(w, AF_INET);

    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    wire_read(w, fd, welcome, sizeof(welcome));
    wire_write(w, fd, wrong, sizeof(wrong));
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(w->downs, 0);
    close(fd);
}

static void closed_at_once(struct wire *w, struct sl_tcp_hello hello)
{
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    int fd = wire_dial(w, AF_INET);

    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(w->downs, 0);
    close(fd);
}

static void nor_may_an_attempt_that_was_given_up(void **state)
{
    struct wire *w = *state;

    closed_at_once(w, hello_of(w, 0, 0));
    closed_at_once(w, hello_of(w, 1, 0));
    closed_at_once(w, hello_of(w, 1, 1)); /* it is by the control connection that it dials again */
}

static void a_knock_changes_nothing(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello = hello_of(w, 0, 1);

    hello.knocks = true;
    closed_at_once(w, hello);
}

static void who_asks_for_an_endpoint_that_is_not_here_hears_so(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello = hello_of(w, 0, 1);
    uint8_t bytes[SL_TCP_HELLO_BYTES], reply[SL_TCP_ANSWER_BYTES];
    struct sl_tcp_answer answer;
    int fd = wire_dial(w, AF_INET);

    hello.to[0] ^= 1;
    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    wire_read(w, fd, reply, sizeof(reply));
    assert_int_equal(sl_tcp_answer_decode(reply, &answer), 0);
    assert_int_equal(answer.verdict, SL_TCP_NOBODY);
    assert_true(wire_is_closed(w, fd));
    close(fd);
}

/* Data connections of an attempt that its end gave up hold what was said in it: they are not the
 * next one's. */
static void data_connections_belong_to_one_attempt(void **state)
{
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    static struct wire fresh;
    struct wire *w = &fresh;
    struct sl_tcp_hello hello;
    int late;

    (void)state;
    wire_open(w, engine, NULL);
    wire_connect_begin(w, 1, false);
    w->fds[0] = wire_dial(w, AF_INET);
    hello = hello_of(w, 0, 0);
    wire_greet(w, w->fds[0], &hello, token);
    close(w->fds[0]);
    w->fds[0] = wire_dial(w, AF_INET);
    hello = hello_of(w, 0, 1);
    wire_greet(w, w->fds[0], &hello, token);
    late = wire_dial(w, AF_INET);
    hello = hello_of(w, 1, 0);
    wire_greet(w, late, &hello, token);
    assert_true(wire_is_closed(w, late));
    assert_int_equal(w->connect.status, SL_PENDING);
    w->fds[1] = wire_dial(w, AF_INET);
    hello = hello_of(w, 1, 1);
    wire_greet(w, w->fds[1], &hello, token);
    WIRE_UNTIL(w, w->connect.status != SL_PENDING);
    assert_int_equal(w->connect.status, 0);
    close(late);
    wire_close(w);
}

int main(int argc, char **argv)
{
#define PAIR(name) cmocka_unit_test_setup_teardown(name, pair_open, pair_close)
#define WIRE(name) cmocka_unit_test_setup_teardown(name, wire_setup, wire_teardown)
    const struct CMUnitTest tests[] = {
        PAIR(one_that_is_reset_is_connected_again),
        PAIR(who_is_late_is_not_taken_for_dead),
        PAIR(who_dials_finds_that_the_process_is_gone),
        PAIR(who_is_dialled_finds_it_by_knocking),
        PAIR(and_so_that_the_endpoint_is_gone),
        PAIR(a_farewell_is_told_from_a_loss),
        WIRE(its_own_peer_may_end_it_by_dialling_again),
        WIRE(a_stranger_who_knows_its_name_may_not),
        WIRE(nor_may_an_attempt_that_was_given_up),
        WIRE(a_knock_changes_nothing),
        WIRE(who_asks_for_an_endpoint_that_is_not_here_hears_so),
        cmocka_unit_test(data_connections_belong_to_one_attempt),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
