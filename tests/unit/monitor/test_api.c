/* SPDX-License-Identifier: Apache-2.0 */
/* The API over its sockets: those who ask well, and those who do not. */
#include "core/err.h"
#include "monitor/api.h"
#include "tests/unit/monitor/bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

static struct sl_api *api;
static char said[1024];

static void say(const char *sentence)
{
    snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", sentence);
}

static int begin(void **state)
{
    bed_begin(state);
    snprintf(bed.config.api_socket, sizeof(bed.config.api_socket), "%s/run/api.sock", bed.folder);
    bed_restart();
    said[0] = '\0';
    assert_int_equal(sl_api_create(bed.agent, say, &api), 0);
    return 0;
}

static int end(void **state)
{
    sl_api_destroy(api);
    api = NULL;
    return bed_end(state);
}

static void break_port(void)
{
    bed_second();
    bed_second();
    bed_put("state", "1: DOWN\n");
    bed_second();
    bed_second();
}

/* For so long as there is something to do, as the daemon does. */
static void turn(int ms)
{
    struct pollfd fd = {.fd = sl_api_fd(api), .events = POLLIN};
    bool is_more = true;

    while (is_more || poll(&fd, 1, ms) > 0)
        is_more = sl_api_turn(api);
}

static int dial(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(to.sun_path, sizeof(to.sun_path), "%s", bed.config.api_socket);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void put(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* What has come, ended; 0 bytes: nothing, or its end. */
static size_t take(int fd, char *out, size_t cap)
{
    size_t used = 0;
    ssize_t n;

    while (used + 1 < cap && (n = recv(fd, out + used, cap - 1 - used, 0)) > 0)
        used += (size_t)n;
    out[used] = '\0';
    return used;
}

static bool is_closed(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK) == 0 || (errno != EAGAIN && errno != EINTR);
}

/* The whole answer to one request of a connection of its own. */
static const char *ask(const char *request)
{
    static char answer[1 << 17];
    int fd = dial();

    put(fd, request);
    turn(20);
    (void)take(fd, answer, sizeof(answer));
    close(fd);
    turn(0);
    return answer;
}

static void the_socket_has_its_mode_and_answers(void **state)
{
    struct stat info;

    (void)state;
    assert_string_equal(said, "");
    assert_int_equal(stat(bed.config.api_socket, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0660);
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(ask("GET /healthz HTTP/1.0\r\n\r\n"), "\"healthy\":true"));
    assert_non_null(strstr(ask("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: "
                               "application/openmetrics-text\r\n\r\n"),
                           "# EOF\n"));
    assert_null(strstr(ask("HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "healthy"));
    bed.now.mono_ns += 6 * SL_MON_S;
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 503 "));
}

static void who_asks_wrongly_is_told_so(void **state)
{
    static char long_head[40000] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";

    (void)state;
    assert_non_null(
        strstr(ask("POST /v1/status HTTP/1.1\r\nHost: a\r\n\r\n"), "\r\nAllow: GET, HEAD\r\n"));
    assert_non_null(
        strstr(ask("GET /v1/clear HTTP/1.1\r\nHost: a\r\n\r\n"), "\r\nAllow: POST\r\n"));
    assert_non_null(strstr(ask("GET /v1/%GG HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 404 "));
    assert_non_null(
        strstr(ask("GET /v1/events?since=-1 HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 400 "));
    assert_non_null(strstr(ask("POST /v1/verdicts/1/ack HTTP/1.1\r\nHost: a\r\nContent-Length: "
                               "9999999999\r\n\r\n"),
                           "HTTP/1.1 413 "));
    assert_non_null(strstr(ask("POST /v1/verdicts/1/ack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                               "chunked\r\n\r\n"),
                           "HTTP/1.1 413 "));
    assert_non_null(
        strstr(ask("POST /v1/verdicts/1/ack HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
               "there is no verdict 1"));
    memset(long_head + strlen(long_head), 'x', 30000);
    strcat(long_head, "\r\n\r\n");
    assert_null(strstr(ask(long_head), "HTTP/1.1 200 "));
    (void)ask("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n");
    (void)ask("\r\n\r\n\r\n");
    /* And all goes on. */
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
}

static void several_questions_of_one_connection_are_answered(void **state)
{
    char answer[65536];
    int fd = dial();

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        put(fd, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        turn(20);
        assert_true(take(fd, answer, sizeof(answer)) > 0);
        assert_non_null(strstr(answer, "HTTP/1.1 200 OK\r\n"));
    }
    close(fd);
}

static void who_waits_is_answered_when_something_happens(void **state)
{
    char answer[65536];
    int fd = dial();

    (void)state;
    put(fd, "GET /v1/events?since=0&wait=30 HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    assert_int_equal(take(fd, answer, sizeof(answer)), 0);
    bed_second();
    bed_second();
    sl_api_tick(api);
    turn(20);
    assert_int_equal(take(fd, answer, sizeof(answer)), 0);
    break_port();
    turn(20);
    assert_true(take(fd, answer, sizeof(answer)) > 0);
    assert_non_null(strstr(answer, "\"check\":\"link_down\""));
    close(fd);
}

static void who_waits_is_answered_when_it_is_over(void **state)
{
    char answer[65536];
    int fd = dial();

    (void)state;
    put(fd, "GET /v1/events?wait=30 HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    for (unsigned i = 0; i < 29; i++) {
        bed_second();
        sl_api_tick(api);
    }
    turn(20);
    assert_int_equal(take(fd, answer, sizeof(answer)), 0);
    bed_second();
    sl_api_tick(api);
    turn(20);
    assert_true(take(fd, answer, sizeof(answer)) > 0);
    assert_non_null(strstr(answer, "\"events\":[]"));
    close(fd);
}

static void too_many_who_wait_are_answered_at_once(void **state)
{
    int fds[SL_API_WAITERS + 1];
    char answer[4096];

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++) {
        fds[i] = dial();
        put(fds[i], "GET /v1/events?wait=60 HTTP/1.1\r\nHost: a\r\n\r\n");
        turn(10);
    }
    for (unsigned i = 0; i < SL_API_WAITERS; i++)
        assert_int_equal(take(fds[i], answer, sizeof(answer)), 0);
    assert_true(take(fds[SL_API_WAITERS], answer, sizeof(answer)) > 0);
    /* It ends while they wait. */
    sl_api_destroy(api);
    api = NULL;
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        close(fds[i]);
}

/* A byte now and then. */
static void the_slow_hold_nobody_up_and_are_closed(void **state)
{
    int fds[SL_API_CLIENTS - 1];

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++) {
        fds[i] = dial();
        put(fds[i], "GET /v1/");
    }
    turn(20);
    for (unsigned second = 0; second < SL_API_DEADLINE + 2; second++) {
        for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
            if (!is_closed(fds[i]))
                (void)send(fds[i], "x", 1, MSG_NOSIGNAL);
        bed_second();
        sl_api_tick(api);
        assert_non_null(
            strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
        if (second + 2 < SL_API_DEADLINE)
            assert_false(is_closed(fds[0]));
    }
    turn(20);
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++) {
        assert_true(is_closed(fds[i]));
        close(fds[i]);
    }
}

/* Those who are too many wait until there is room. */
static void more_clients_than_there_is_room_for_wait(void **state)
{
    int fds[SL_API_CLIENTS], last;
    char answer[4096];

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        fds[i] = dial();
    turn(20);
    last = dial();
    put(last, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    assert_int_equal(take(last, answer, sizeof(answer)), 0);
    close(fds[3]);
    turn(20);
    assert_true(take(last, answer, sizeof(answer)) > 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        if (i != 3)
            close(fds[i]);
    close(last);
}

/* It does not read: what it is to get is held, and nobody else waits for it. */
static void who_does_not_read_is_closed(void **state)
{
    int fd = dial();
    char rest[4096];
    ssize_t n = 0;

    (void)state;
    for (unsigned i = 0; n >= 0 && i < 4000; i++)
        n = send(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 35, MSG_NOSIGNAL);
    turn(20);
    for (unsigned second = 0; second < SL_API_DEADLINE + 2; second++) {
        bed_second();
        sl_api_tick(api);
        assert_non_null(
            strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
    }
    turn(20);
    while ((n = recv(fd, rest, sizeof(rest), 0)) > 0)
        ;
    assert_true(n == 0 || errno != EAGAIN);
    close(fd);
}

static void who_hangs_up_while_waiting_is_forgotten(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * SL_API_WAITERS; i++) {
        int fd = dial();

        put(fd, "GET /v1/events?wait=5 HTTP/1.1\r\nHost: a\r\n\r\n");
        turn(0);
        close(fd);
    }
    for (unsigned i = 0; i < 8; i++) {
        bed_second();
        sl_api_tick(api);
        turn(0);
    }
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
}

/* ---- HTTP, and sockets that cannot be had ---- */

static int dial_http(unsigned short port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A port that was free a moment ago; the listener that has it. */
static int take_port(unsigned short *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* The address is taken: it is said once, tried again, and over HTTP one may only read. */
static void http_is_had_when_its_address_is_free_and_only_reads(void **state)
{
    unsigned short port;
    int other = take_port(&port), fd;
    char answer[65536];

    (void)state;
    snprintf(bed.config.api_http, sizeof(bed.config.api_http), "127.0.0.1:%u", port);
    bed_restart();
    sl_api_set_agent(api, bed.agent);
    assert_non_null(strstr(said, "HTTP at 127.0.0.1:"));
    said[0] = '\0';
    for (unsigned i = 0; i < 25; i++) {
        bed_second();
        sl_api_tick(api);
    }
    assert_string_equal(said, "");
    close(other);
    for (unsigned i = 0; i < 10; i++) {
        bed_second();
        sl_api_tick(api);
    }
    fd = dial_http(port);
    assert_true(fd >= 0);
    put(fd, "POST /v1/clear?kind=port&subject=mlx5_0:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    assert_true(recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(answer, "HTTP/1.1 403 "));
    put(fd, "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    assert_true(recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(answer, "HTTP/1.1 200 OK"));
    close(fd);
    /* And none when it is not asked for any more. */
    bed.config.api_http[0] = '\0';
    bed_restart();
    sl_api_set_agent(api, bed.agent);
    assert_int_equal(dial_http(port), -1);
}

static void an_agent_that_begins_anew_keeps_who_waits(void **state)
{
    char answer[65536];
    int fd = dial();

    (void)state;
    put(fd, "GET /v1/events?wait=30 HTTP/1.1\r\nHost: a\r\n\r\n");
    turn(20);
    bed_restart();
    sl_api_set_agent(api, bed.agent);
    assert_string_equal(said, "");
    break_port();
    turn(20);
    assert_true(take(fd, answer, sizeof(answer)) > 0);
    assert_non_null(strstr(answer, "\"check\":\"link_down\""));
    close(fd);
}

static void of_two_agents_the_second_says_that_there_is_one(void **state)
{
    struct sl_api *second;

    (void)state;
    assert_int_equal(sl_api_create(bed.agent, say, &second), 0);
    assert_non_null(strstr(said, "another agent listens at "));
    sl_api_destroy(second);
    /* The first one's is still there. */
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
}

/* It was killed, and left its socket. */
static void what_a_dead_agent_left_is_replaced(void **state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    sl_api_destroy(api);
    api = NULL;
    assert_int_equal(access(bed.config.api_socket, F_OK), -1);
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", bed.config.api_socket);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    close(fd);
    assert_int_equal(access(bed.config.api_socket, F_OK), 0);
    assert_int_equal(sl_api_create(bed.agent, say, &api), 0);
    assert_string_equal(said, "");
    assert_non_null(strstr(ask("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
}

static void what_cannot_be_a_socket_is_said(void **state)
{
    (void)state;
    snprintf(bed.config.api_group, sizeof(bed.config.api_group), "no-such-group");
    bed_restart();
    sl_api_set_agent(api, bed.agent);
    assert_non_null(strstr(said, "there is no group 'no-such-group'"));
    bed.config.api_group[0] = '\0';
    memset(bed.config.api_socket, 'x', 150);
    bed.config.api_socket[150] = '\0';
    bed_restart();
    sl_api_set_agent(api, bed.agent);
    assert_non_null(strstr(said, "is too long"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {CASE(the_socket_has_its_mode_and_answers),
                                       CASE(who_asks_wrongly_is_told_so),
                                       CASE(several_questions_of_one_connection_are_answered),
                                       CASE(who_waits_is_answered_when_something_happens),
                                       CASE(who_waits_is_answered_when_it_is_over),
                                       CASE(too_many_who_wait_are_answered_at_once),
                                       CASE(the_slow_hold_nobody_up_and_are_closed),
                                       CASE(more_clients_than_there_is_room_for_wait),
                                       CASE(who_does_not_read_is_closed),
                                       CASE(who_hangs_up_while_waiting_is_forgotten),
                                       CASE(http_is_had_when_its_address_is_free_and_only_reads),
                                       CASE(an_agent_that_begins_anew_keeps_who_waits),
                                       CASE(of_two_agents_the_second_says_that_there_is_one),
                                       CASE(what_a_dead_agent_left_is_replaced),
                                       CASE(what_cannot_be_a_socket_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
