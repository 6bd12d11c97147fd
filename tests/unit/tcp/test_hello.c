/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at the port: each is shown out with one line, and a rank that comes then is served. */
#include "wire_peer.h"

#include "core/err.h"
#include "core/log.h"
#include "tcp/tcp.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static const char *engine;
static int lines, starved_lines;
static char last_line[512];

static void count_refusals(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area;
    if (strstr(line, "raise 'ulimit -n'") != NULL)
        starved_lines++;
    if (strstr(line, "refused a connection") != NULL) {
        lines++;
        snprintf(last_line, sizeof(last_line), "%s", line);
    }
}

static int setup(void **state)
{
    static struct wire w;

    lines = starved_lines = 0;
    sl_log_set_sink(count_refusals, NULL);
    wire_open(&w, engine, NULL);
    *state = &w;
    return 0;
}

/* Whatever happened before, the real peer is served. */
static int teardown(void **state)
{
    struct wire *w = *state;

    if (w->connect.arg == NULL && w->fds[0] < 0)
        wire_connect(w, 1, false);
    wire_close(w);
    sl_log_set_sink(NULL, NULL);
    return 0;
}

static struct sl_tcp_iface *wire_iface(struct wire *w)
{
    return (struct sl_tcp_iface *)w->iface;
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void check_refused(struct wire *w, const void *bytes, size_t len, const char *why)
{
    int fd = wire_dial(w, AF_INET), before = lines;

    wire_write(w, fd, bytes, len);
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, before + 1);
    if (strstr(last_line, why) == NULL)
        fail_msg("'%s' does not say '%s'", last_line, why);
    close(fd);
}

static void garbage_is_refused(void **state)
{
    check_refused(*state, "GET / HTTP/1.1\r\n\r\n", 18, "does not speak");
    check_refused(*state, "\0\0\0\0", 4, "does not speak");
}

static void another_version_is_refused_and_told_ours(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    struct sl_tcp_answer answer;
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    int fd = wire_dial(w, AF_INET);

    wire_hello(w, &hello, 0, 1, false);
    hello.version = 99;
    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    wire_read(w, fd, bytes, SL_TCP_ANSWER_BYTES);
    assert_int_equal(sl_tcp_answer_decode(bytes, &answer), 0);
    assert_int_equal(answer.verdict, SL_TCP_WRONG_VERSION);
    assert_int_equal(answer.version, SL_TCP_WIRE_VERSION);
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, 1);
    assert_non_null(strstr(last_line, "99"));
    close(fd);
}

static void a_wrong_name_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    wire_hello(w, &hello, 0, 1, false);
    hello.to[3] ^= 1;
    sl_tcp_hello_encode(&hello, bytes);
    check_refused(w, bytes, sizeof(bytes), "not waiting here");
}

static void a_damaged_hello_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    bytes[20] ^= 4;
    check_refused(w, bytes, sizeof(bytes), "damaged");
}

/* Whoever heard a rank's hello, or even read its token, but is not the peer. */
static void who_cannot_prove_to_be_the_peer_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES],
        mac[SL_DIGEST_BYTES];
    static const uint8_t other[SL_TCP_TOKEN_BYTES] = {0x77};
    int fd = wire_dial(w, AF_INET);

    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes)); /* parked, until the endpoint connects */
    wire_connect_begin(w, 1, false);
    wire_read(w, fd, welcome, sizeof(welcome));
    assert_int_equal(sl_tcp_link_key(&w->worker, other, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, bytes, welcome, mac), 0);
    wire_write(w, fd, mac, sizeof(mac));
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, 1);
    assert_non_null(strstr(last_line, "cannot prove that it is its peer"));
    wire_connect_end(w, 1, false);
    close(fd);
}

/* What one connection proved is worth nothing on another. */
static void a_proof_that_was_recorded_is_refused(void **state)
{
    struct wire *w = *state;
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[2][SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES],
        mac[SL_DIGEST_BYTES];
    struct sl_tcp_hello hello;
    int fds[2];

    wire_connect_begin(w, 1, false);
    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    for (int i = 0; i < 2; i++) {
        fds[i] = wire_dial(w, AF_INET);
        wire_write(w, fds[i], bytes, sizeof(bytes));
        wire_read(w, fds[i], welcome[i], sizeof(welcome[i]));
    }
    assert_memory_not_equal(welcome[0], welcome[1], sizeof(welcome[0]));
    assert_int_equal(sl_tcp_link_key(&w->worker, token, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, bytes, welcome[0], mac), 0);
    wire_write(w, fds[1], mac, sizeof(mac));
    assert_true(wire_is_closed(w, fds[1]));
    /* Nor is the listener's own. */
    wire_write(w, fds[0], welcome[0] + SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES, sizeof(mac));
    assert_true(wire_is_closed(w, fds[0]));
    assert_int_equal(lines, 2);
    wire_connect_end(w, 1, false);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}

/* Tokens alone are worth nothing where the ranks have a secret. */
static void tokens_without_the_session_key_are_refused(void **state)
{
    struct wire *w = *state;
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES],
        mac[SL_DIGEST_BYTES];
    struct sl_worker none = {.has_session = false};
    struct sl_tcp_hello hello;
    int fd;

    w->worker.has_session = true;
    memset(w->worker.session, 5, sizeof(w->worker.session));
    wire_connect_begin(w, 1, false);
    fd = wire_dial(w, AF_INET);
    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, fd, bytes, sizeof(bytes));
    wire_read(w, fd, welcome, sizeof(welcome));
    assert_int_equal(sl_tcp_link_key(&none, token, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, bytes, welcome, mac), 0);
    wire_write(w, fd, mac, sizeof(mac));
    assert_true(wire_is_closed(w, fd));
    wire_connect_end(w, 1, false);
    close(fd);
}

/* A control connection's proof may be late on the way, its data connections' not. */
static void data_connections_may_be_proved_before_the_control_connection(void **state)
{
    struct wire *w = *state;
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    uint8_t bytes[SL_TCP_HELLO_BYTES], welcome[SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES],
        mac[SL_DIGEST_BYTES];
    struct sl_tcp_hello hello;

    wire_connect_begin(w, 2, false);
    w->fds[0] = wire_dial(w, AF_INET);
    wire_hello(w, &hello, 0, 2, false);
    sl_tcp_hello_encode(&hello, bytes);
    wire_write(w, w->fds[0], bytes, sizeof(bytes));
    wire_read(w, w->fds[0], welcome, sizeof(welcome));
    for (unsigned i = 1; i <= 2; i++) {
        w->fds[i] = wire_dial(w, AF_INET);
        wire_hello(w, &hello, i, 2, false);
        wire_greet(w, w->fds[i], &hello, token);
        for (int round = 0; round < 100; round++)
            wire_progress(w);
    }
    assert_int_equal(sl_tcp_link_key(&w->worker, token, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, bytes, welcome, mac), 0);
    wire_write(w, w->fds[0], mac, sizeof(mac));
    WIRE_UNTIL(w, w->connect.status != SL_PENDING);
    assert_int_equal(w->connect.status, 0);
}

/* A dialler that gives up on its first attempt may have said something there. */
static void who_starts_again_is_heard_from_its_first_byte(void **state)
{
    struct wire *w = *state;
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    const struct sl_tcp_conn *control;
    struct sl_tcp_frame word = {.type = SL_TCP_CTRL, .len = 4};
    struct sl_tcp_hello hello;
    int fd = wire_dial(w, AF_INET);

    wire_connect_begin(w, 1, false);
    control = &sl_tcp_ep_of(w->ep)->conns[0];
    wire_hello(w, &hello, 0, 1, false);
    wire_greet(w, fd, &hello, token);
    wire_write(w, fd, "half a frame", 12);
    WIRE_UNTIL(w, control->rx_end == 12);
    close(fd);
    WIRE_UNTIL(w, control->eof);
    wire_connect_end(w, 1, false);
    wire_frame(w, 0, &word, false, "word");
    WIRE_UNTIL(w, w->ctrls == 1);
    assert_int_equal(w->downs, 0);
}

/* The name of an endpoint can be read on the way; what makes its proof cannot. */
static void who_knows_a_name_alone_holds_no_place_for_long(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_iface *iface = wire_iface(w);
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    int fds[2];

    iface->pending_set.limit = 2;
    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    for (unsigned i = 0; i < 2; i++) {
        fds[i] = wire_dial(w, AF_INET);
        wire_write(w, fds[i], bytes, sizeof(bytes));
        WIRE_UNTIL(w, iface->pending_set.count == i + 1);
    }
    w->skew_ns += 60 * SL_NS_PER_S; /* early peers wait for us as long as it takes */
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    assert_int_equal(iface->pending_set.count, 2);
    wire_connect_begin(w, 1, false);
    w->skew_ns += 6 * SL_NS_PER_S;
    wire_connect_end(w, 1, false);
    for (unsigned i = 0; i < 2; i++)
        close(fds[i]);
}

/* Says its proof for what it was told, while the listening end rests. */
static void prove_while_it_rests(struct wire *w, int fd, const uint8_t *hello)
{
    static const uint8_t token[SL_TCP_TOKEN_BYTES];
    uint8_t welcome[SL_TCP_WELCOME_BYTES], key[SL_DIGEST_BYTES], mac[SL_DIGEST_BYTES];

    assert_int_equal(recv(fd, welcome, sizeof(welcome), MSG_WAITALL), sizeof(welcome));
    assert_int_equal(sl_tcp_link_key(&w->worker, token, w->addr.bytes + 24, key), 0);
    assert_int_equal(sl_tcp_proof_make(key, SL_TCP_PROOF_DIALLER, hello, welcome, mac), 0);
    assert_int_equal(send(fd, mac, sizeof(mac), MSG_NOSIGNAL), sizeof(mac));
}

/* A rank that is stopped as it connects finds more proofs than one look at the engine tells of: all
 * came in time. */
static void a_proof_that_is_here_is_heard_though_we_come_late(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    int fds[80];

    wire_iface(w)->pending_set.limit = SL_ARRAY_LEN(fds) + 1;
    wire_hello(w, &hello, 0, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++) {
        fds[i] = wire_dial(w, AF_INET);
        wire_write(w, fds[i], bytes, sizeof(bytes));
        WIRE_UNTIL(w, wire_iface(w)->pending_set.count == i + 1);
        wire_progress(w); /* its proof makes an event of its own */
    }
    wire_connect_begin(w, 1, false);
    for (unsigned i = 0; i + 1 < SL_ARRAY_LEN(fds); i++)
        assert_int_equal(send(fds[i], "?", 1, MSG_NOSIGNAL), 1);
    w->fds[0] = fds[SL_ARRAY_LEN(fds) - 1];
    prove_while_it_rests(w, w->fds[0], bytes);
    w->skew_ns += 6 * SL_NS_PER_S;
    wire_hello(w, &hello, 1, 1, false);
    w->fds[1] = wire_dial(w, AF_INET);
    wire_greet(w, w->fds[1], &hello, (const uint8_t[SL_TCP_TOKEN_BYTES]){0});
    WIRE_UNTIL(w, w->connect.status != SL_PENDING);
    assert_int_equal(w->connect.status, 0);
    for (unsigned i = 0; i + 1 < SL_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

static void a_slow_hello_is_refused_at_its_deadline(void **state)
{
    struct wire *w = *state;
    int fd = wire_dial(w, AF_INET);

    wire_write(w, fd, "SLTH", 4);
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    assert_int_equal(lines, 0);
    w->skew_ns += 6 * SL_NS_PER_S;
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, 1);
    assert_non_null(strstr(last_line, "in time"));
    close(fd);
}

/* The dialling side speaks first: who does not costs nothing here. */
static void silent_strangers_stay_in_the_kernel(void **state)
{
    struct wire *w = *state;
    unsigned before, after = 0;
    int fds[50];

    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        fds[i] = wire_dial(w, AF_INET);
    before = open_descriptors();
    for (int i = 0; i < 100; i++) {
        wire_progress(w);
        after = open_descriptors();
        assert_int_equal(after, before);
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

/* They say a byte each, so that they get so far, and no more. */
static void more_strangers_than_places_keep_no_rank_out_and_fill_no_log(void **state)
{
    struct wire *w = *state;
    unsigned limit = wire_iface(w)->pending_set.limit, count = limit + 40;
    int fds[SL_TCP_PENDING + 40];

    assert_true(limit <= SL_TCP_PENDING);
    for (unsigned i = 0; i < count; i++) {
        fds[i] = wire_dial(w, AF_INET);
        wire_write(w, fds[i], "S", 1);
        wire_progress(w);
        assert_true(wire_iface(w)->pending_set.count <= limit);
    }
    wire_connect(w, 2, false);
    assert_true(lines >= 1 && lines <= SL_PENDING_LOG_LINES);
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

/* With descriptors in plenty the limit is the size of the table. With few it is what leaves the
 * application the others, however fast strangers come. */
static void few_descriptors_mean_few_pending_connections(void **state)
{
    struct wire *w = *state;
    struct rlimit old, low;
    unsigned before, most = 0;
    int fds[100];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){256, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    wire_close(w);
    wire_open(w, engine, NULL);
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++) {
        fds[i] = wire_dial(w, AF_INET);
        assert_int_equal(write(fds[i], "S", 1), 1);
    }
    before = open_descriptors();
    for (int i = 0; i < 2000; i++) {
        unsigned more = open_descriptors() - before;

        most = more > most ? more : most;
        wire_progress(w);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(most, 256 / 8); /* all places were taken, and not one more */
    assert_int_equal(starved_lines, 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

/* Opens one more interface; how many of its listeners are open, and the address that it tells. */
static unsigned listeners_of(const char *interface, bool one_host, struct sl_tcp_address *told)
{
    struct sl_config config;
    struct sl_worker worker = {
        .clock = &sl_clock_monotonic, .config = &config, .one_host = one_host};
    struct sl_iface *base;
    struct sl_addr addr;
    struct sl_ep *ep;
    unsigned count = 0;

    sl_config_defaults(&config);
    snprintf(config.interface, sizeof(config.interface), "%s", interface);
    assert_int_equal(sl_tcp_ops.open(&worker, NULL, NULL, &base), 0);
    struct sl_tcp_iface *iface = (struct sl_tcp_iface *)base;
    assert_int_equal(sl_tcp_ops.ep_create(base, &ep), 0);
    assert_int_equal(sl_tcp_ops.ep_addr(ep, &addr), 0);
    assert_int_equal(sl_tcp_address_decode(&addr, "the test", told), 0);
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++) {
        struct sockaddr_storage at = {0};
        socklen_t len = sizeof(at);
        char text[2][64] = {""};

        if (iface->listeners[i].fd < 0)
            continue;
        assert_int_equal(getsockname(iface->listeners[i].fd, (struct sockaddr *)&at, &len), 0);
        sl_sockaddr_text(&at, text[0], sizeof(text[0]));
        sl_sockaddr_text(&told->places[count].addr, text[1], sizeof(text[1]));
        if (at.ss_family == AF_INET) /* link-local IPv6 has a scope here */
            assert_string_equal(text[0], text[1]);
        count++;
    }
    assert_int_equal(count, told->count);
    sl_tcp_ops.ep_destroy(ep);
    sl_tcp_ops.close(base);
    return count;
}

/* 127.0.0.2 is this host's, too, but nobody is told of it. */
static void only_addresses_that_are_told_are_listened_on(void **state)
{
    struct wire *w = *state;
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1),
                             .sin_port =
                                 htons((uint16_t)(w->addr.bytes[4] | w->addr.bytes[5] << 8))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sl_tcp_address told;

    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    assert_true(listeners_of("", false, &told) >= listeners_of("lo", false, &told));
    for (unsigned i = 0; i < told.count; i++)
        assert_true(told.places[i].loopback);
}

static void a_job_on_one_host_listens_on_loopback_alone(void **state)
{
    struct sl_tcp_address told;

    (void)state;
    assert_true(listeners_of("", true, &told) > 0);
    for (unsigned i = 0; i < told.count; i++)
        assert_true(told.places[i].loopback);
}

static bool no_chance;

ssize_t __real_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags)
{
    if (!no_chance)
        return __real_getrandom(out, len, flags);
    errno = ENOSYS;
    return -1;
}

/* A token that can be guessed is none. */
static void without_random_bytes_there_is_no_endpoint(void **state)
{
    struct wire *w = *state;
    struct sl_ep *ep = NULL;

    no_chance = true;
    int err = w->ops.ep_create(w->iface, &ep);
    no_chance = false;
    assert_int_equal(err, -EIO);
    assert_null(ep);
    assert_non_null(strstr(sluice_last_error(), "no random bytes"));
}

static void a_connection_that_comes_twice_is_refused(void **state)
{
    struct wire *w = *state;
    struct sl_tcp_hello hello;
    uint8_t bytes[SL_TCP_HELLO_BYTES];

    wire_connect(w, 1, false);
    wire_hello(w, &hello, 1, 1, false);
    sl_tcp_hello_encode(&hello, bytes);
    check_refused(w, bytes, sizeof(bytes), "not waiting here");
    assert_int_equal(w->downs, 0);
}

static void ipv6_reaches_the_same_port(void **state)
{
    struct wire *w = *state;
    int fd = wire_dial(w, AF_INET6), before = lines;

    wire_write(w, fd, "nonsense", 8);
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, before + 1);
    assert_non_null(strstr(last_line, "[::1]"));
    close(fd);
}

static void out_of_descriptors_is_said_once_a_second_and_is_over_when_it_is_over(void **state)
{
    struct wire *w = *state;
    struct rlimit old, none;
    int fd = wire_dial(w, AF_INET);

    wire_write(w, fd, "S", 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 2000; i++)
        wire_progress(w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(starved_lines, 1);
    w->skew_ns += 2 * SL_NS_PER_S;
    wire_write(w, fd, "nonsense", 8);
    assert_true(wire_is_closed(w, fd));
    assert_int_equal(lines, 1);
    close(fd);
}

static void a_peer_that_never_comes_ends_in_a_timeout(void **state)
{
    struct wire *w = *state;
    struct sl_addr peer = w->addr;

    memset(peer.bytes + 24, 0, SL_TCP_TOKEN_BYTES);
    assert_int_equal(w->ops.ep_connect(w->ep, &peer, &w->connect), 0);
    w->connect.arg = w; /* teardown must not connect again */
    for (int i = 0; i < 100; i++)
        wire_progress(w);
    assert_int_equal(w->connect.status, SL_PENDING);
    w->skew_ns += 31 * SL_NS_PER_S;
    WIRE_UNTIL(w, w->connect.status != SL_PENDING);
    assert_int_equal(w->connect.status, -ETIMEDOUT);
    assert_non_null(strstr(sluice_last_error(), "0 of 2 connections"));
}

int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(garbage_is_refused),
        CASE(another_version_is_refused_and_told_ours),
        CASE(a_wrong_name_is_refused),
        CASE(a_damaged_hello_is_refused),
        CASE(who_cannot_prove_to_be_the_peer_is_refused),
        CASE(a_proof_that_was_recorded_is_refused),
        CASE(tokens_without_the_session_key_are_refused),
        CASE(data_connections_may_be_proved_before_the_control_connection),
        CASE(who_starts_again_is_heard_from_its_first_byte),
        CASE(who_knows_a_name_alone_holds_no_place_for_long),
        CASE(a_proof_that_is_here_is_heard_though_we_come_late),
        CASE(a_slow_hello_is_refused_at_its_deadline),
        CASE(silent_strangers_stay_in_the_kernel),
        CASE(more_strangers_than_places_keep_no_rank_out_and_fill_no_log),
        CASE(few_descriptors_mean_few_pending_connections),
        CASE(only_addresses_that_are_told_are_listened_on),
        CASE(a_job_on_one_host_listens_on_loopback_alone),
        CASE(without_random_bytes_there_is_no_endpoint),
        CASE(a_connection_that_comes_twice_is_refused),
        CASE(ipv6_reaches_the_same_port),
        CASE(out_of_descriptors_is_said_once_a_second_and_is_over_when_it_is_over),
        CASE(a_peer_that_never_comes_ends_in_a_timeout),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
