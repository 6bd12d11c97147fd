/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads, and sockets that play one. */
#include "meeting.h"

#include "core/clock.h"
#include "core/err.h"
#include "launch/nearby.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

atomic_int refusals; /* lines in the log */

char last_refusal[1024], last_warning[1024];

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

void meeting_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)area;
    pthread_mutex_lock(&log_lock);
    if (level == SL_LOG_WARN)
        snprintf(last_warning, sizeof(last_warning), "%s", line);
    if (level == SL_LOG_WARN && strstr(line, "refused a connection") != NULL) {
        snprintf(last_refusal, sizeof(last_refusal), "%s", line);
        refusals++;
    }
    pthread_mutex_unlock(&log_lock);
}

bool said(const char *last, const char *words)
{
    pthread_mutex_lock(&log_lock);
    bool found = strstr(last, words) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

static int swap_bytes(struct actor *actor, struct sl_exchange *exchange, uint8_t *mine,
                      uint8_t *all)
{
    size_t len = actor->len;

    for (unsigned round = 0; round < actor->rounds; round++) {
        if (actor->leave_early && round == 1)
            return 0;
        if (round == 1 && actor->pause_ms > 0)
            poll(NULL, 0, (int)actor->pause_ms);
        memset(mine, exchange->rank * 16 + (int)round, len);
        int err = exchange->allgather(exchange, mine, len, all);
        if (err != 0)
            return err;
        for (int i = 0; i < exchange->size; i++)
            for (size_t at = 0; at < len; at++)
                if (all[(size_t)i * len + at] != (uint8_t)(i * 16 + (int)round))
                    return sl_fail(-EBADMSG, "byte %zu of rank %d is wrong", at, i);
    }
    return 0;
}

static int swap(struct actor *actor, struct sl_exchange *exchange)
{
    uint8_t *mine = malloc(actor->len + 1), *all = malloc(actor->len * RANKS_MAX + 1);
    int err = mine != NULL && all != NULL ? swap_bytes(actor, exchange, mine, all)
                                          : sl_fail(-ENOMEM, "no memory for the test");

    free(mine);
    free(all);
    return err;
}

static void *act(void *arg)
{
    struct actor *actor = arg;
    struct sl_exchange *exchange;

    if (actor->delay_ms > 0)
        poll(NULL, 0, (int)actor->delay_ms);
    actor->err =
        actor->party.rank == 0
            ? sl_rendezvous_host(&actor->party, &actor->listeners, &exchange)
            : sl_rendezvous_join(&actor->party,
                                 &(struct sl_places){.root = actor->card ? NULL : &actor->root,
                                                     .card = actor->card},
                                 &exchange);
    if (actor->err == 0) {
        actor->nearby = exchange->nearby;
        if (actor->session != NULL && exchange->session != NULL)
            memcpy(actor->session, exchange->session, SL_DIGEST_BYTES);
        actor->err = swap(actor, exchange);
        snprintf(actor->why, sizeof(actor->why), "%s", sluice_last_error());
        exchange->close(exchange);
    }
    snprintf(actor->why, sizeof(actor->why), "%s", sluice_last_error());
    return NULL;
}

struct actor actors[RANKS_MAX];

void prepare(int size, uint64_t timeout_ms, const char *secret)
{
    struct sl_listeners listeners;

    assert_int_equal(sl_listen_any("", NULL, &listeners), 0);
    for (int i = 0; i < size; i++) {
        actors[i] = (struct actor){.party = {i, size, "job", secret, timeout_ms},
                                   .len = 8,
                                   .rounds = 2,
                                   .listeners = listeners};
        snprintf(actors[i].root.host, sizeof(actors[i].root.host), "127.0.0.1");
        actors[i].root.port = listeners.port;
    }
    refusals = 0;
}

void go(int i)
{
    assert_int_equal(pthread_create(&actors[i].thread, NULL, act, &actors[i]), 0);
}

void wait_for(int i)
{
    assert_int_equal(pthread_join(actors[i].thread, NULL), 0);
}

void all_act(int size)
{
    for (int i = 0; i < size; i++)
        go(i);
    for (int i = 0; i < size; i++)
        wait_for(i);
}

void assert_went_well(int size)
{
    for (int i = 0; i < size; i++)
        if (actors[i].err != 0)
            fail_msg("rank %d: %s", i, actors[i].why);
}

int knock(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(actors[0].root.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

size_t read_to_end(int fd, uint8_t *bytes, size_t cap)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;
    size_t len = 0;

    while (sl_now(&sl_clock_monotonic) < deadline_ns) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};

        poll(&wait, 1, 100);
        ssize_t n = recv(fd, bytes + len, cap - len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return len;
        if (n > 0)
            len += (size_t)n;
    }
    fail_msg("the connection was not closed in time");
    return 0;
}

void read_exactly(int fd, void *bytes, size_t len)
{
    assert_int_equal(recv(fd, bytes, len, MSG_WAITALL), (ssize_t)len);
}

void prove_by_hand(int fd, int size, enum sl_frame_kind kind)
{
    struct sl_terms terms = {.rank = size - 1, .size = size, .secret = "", .secret_len = 0};
    uint8_t nonce[SL_NONCE_BYTES] = {7}, bytes[SL_FRAME_BYTES + SL_NONCE_BYTES];
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    struct sl_hello hello;

    assert_int_equal(sl_job_hash("job", terms.job), 0);
    sl_hello_make(&terms, nonce, &hello);
    assert_int_equal(send(fd, hello.bytes, sizeof(hello.bytes), 0), sizeof(hello.bytes));
    read_exactly(fd, bytes, sizeof(bytes));
    assert_int_equal(
        sl_proof_make(&terms, false, &hello, bytes + SL_FRAME_BYTES, proof + SL_FRAME_BYTES), 0);
    sl_frame_make(kind, SL_MAC_BYTES, proof);
    assert_int_equal(send(fd, proof, sizeof(proof), 0), sizeof(proof));
}

int join_by_hand(int fd, int size)
{
    uint8_t welcome[SL_FRAME_BYTES + SL_WELCOME_BYTES];

    prove_by_hand(fd, size, SL_FRAME_PROOF);
    read_exactly(fd, welcome, sizeof(welcome));
    return fd;
}

void seat_by_hand(int fd)
{
    uint8_t parent[SL_FRAME_BYTES], seated[SL_FRAME_BYTES];
    struct sl_frame frame;

    read_exactly(fd, parent, sizeof(parent));
    assert_int_equal(sl_frame_parse(parent, &frame), 0);
    assert_int_equal(frame.kind, SL_FRAME_PARENT);
    assert_int_equal(frame.len, 0);
    sl_frame_make(SL_FRAME_SEATED, 0, seated);
    assert_int_equal(send(fd, seated, sizeof(seated), 0), sizeof(seated));
}

int knock_nearby(void)
{
    char name[SL_NEARBY_NAME_MAX];
    int fd;

    sl_nearby_name(actors[0].root.port, name);
    assert_int_equal(sl_nearby_dial(name, &fd), 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    return fd;
}
