/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings on loopback: each rank a thread, strangers by hand. */
#include "launch/rendezvous.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/launch.h"
#include "launch/nearby.h"
#include "launch/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>
#include <unistd.h>

#define RANKS_MAX 16
#define LEN_MAX 70000

/* What one rank does, and how it went. */
struct actor {
    struct sl_party party;
    struct sl_root root;
    const struct sl_card *card; /* instead of root */
    struct sl_listeners listeners;
    size_t len;          /* of its share */
    unsigned rounds;     /* exchanges; 0: leaves at once */
    unsigned delay_ms;   /* before it dials */
    unsigned pause_ms;   /* before its second exchange */
    bool leave_early;    /* after the first exchange */
    bool nearby;         /* what its exchange says of it */
    uint8_t *session;    /* gets the exchange's */
    int err;
    char why[1024];
    pthread_t thread;
};

static atomic_int refusals; /* lines in the log */
static char last_refusal[1024], last_warning[1024];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void count_lines(void *arg, enum sl_log_level level, const char *area, const char *line)
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

/* Whether the last line of a kind has this in it; a rank may be writing the next one. */
static bool said(const char *last, const char *words)
{
    pthread_mutex_lock(&log_lock);
    bool found = strstr(last, words) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

static int swap(struct actor *actor, struct sl_exchange *exchange)
{
    static _Thread_local uint8_t mine[LEN_MAX], all[RANKS_MAX * LEN_MAX];
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

static void *act(void *arg)
{
    struct actor *actor = arg;
    struct sl_exchange *exchange;

    if (actor->delay_ms > 0)
        poll(NULL, 0, (int)actor->delay_ms);
    actor->err = actor->party.rank == 0
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

static struct actor actors[RANKS_MAX];

/* Ranks 0..size-1 that agree on everything, and a place for them; nobody acts yet. */
static void prepare(int size, uint64_t timeout_ms, const char *secret)
{
    struct sl_listeners listeners;

    assert_int_equal(sl_listen_any("", NULL, &listeners), 0);
    for (int i = 0; i < size; i++) {
        actors[i] = (struct actor){.party = {i, size, "job", secret, timeout_ms}, .len = 8,
                                   .rounds = 2, .listeners = listeners};
        snprintf(actors[i].root.host, sizeof(actors[i].root.host), "127.0.0.1");
        actors[i].root.port = listeners.port;
    }
    refusals = 0;
}

static void go(int i)
{
    assert_int_equal(pthread_create(&actors[i].thread, NULL, act, &actors[i]), 0);
}

static void wait_for(int i)
{
    assert_int_equal(pthread_join(actors[i].thread, NULL), 0);
}

static void all_act(int size)
{
    for (int i = 0; i < size; i++)
        go(i);
    for (int i = 0; i < size; i++)
        wait_for(i);
}

static void assert_went_well(int size)
{
    for (int i = 0; i < size; i++)
        if (actors[i].err != 0)
            fail_msg("rank %d: %s", i, actors[i].why);
}

static int knock(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(actors[0].root.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Until the other side has closed; what it sent before goes to bytes. */
static size_t read_to_end(int fd, uint8_t *bytes, size_t cap)
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

static void every_rank_gets_every_share(void **state)
{
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++) {
        prepare(size, 20000, "secret");
        all_act(size);
        assert_went_well(size);
        for (int i = 0; i < size; i++)
            assert_true(actors[i].nearby);
    }
}

static void shares_may_be_empty_or_larger_than_socket_buffers(void **state)
{
    static const size_t lens[] = {0, 1, LEN_MAX};

    (void)state;
    for (size_t k = 0; k < SL_ARRAY_LEN(lens); k++) {
        prepare(4, 20000, "");
        for (int i = 0; i < 4; i++)
            actors[i].len = lens[k];
        all_act(4);
        assert_went_well(4);
    }
}

static void a_late_rank_0_is_waited_for(void **state)
{
    (void)state;
    prepare(3, 20000, "secret");
    actors[0].delay_ms = 300;
    all_act(3);
    assert_went_well(3);
}

static void ranks_that_do_not_come_are_named_on_every_rank(void **state)
{
    (void)state;
    prepare(8, 400, "secret");
    static const int here[] = {0, 1, 2, 4};
    for (size_t i = 0; i < SL_ARRAY_LEN(here); i++)
        go(here[i]);
    for (size_t i = 0; i < SL_ARRAY_LEN(here); i++) {
        wait_for(here[i]);
        assert_int_equal(actors[here[i]].err, -ETIMEDOUT);
        assert_non_null(strstr(actors[here[i]].why, "ranks 3, 5-7 of 8 did not reach rank 0"));
        assert_non_null(strstr(actors[here[i]].why, "within 0.4 s"));
    }
}

static void a_rank_0_that_does_not_exist_is_named(void **state)
{
    (void)state;
    prepare(2, 300, "");
    sl_listeners_close(&actors[0].listeners);
    go(1);
    wait_for(1);
    assert_int_equal(actors[1].err, -ETIMEDOUT);
    assert_non_null(strstr(actors[1].why, "rank 1 of 2 did not reach rank 0 within 0.3 s"));
    assert_non_null(strstr(actors[1].why, "Connection refused"));
}

static void a_rank_that_leaves_is_named_on_every_rank(void **state)
{
    (void)state;
    prepare(4, 20000, "secret");
    actors[2].leave_early = true;
    all_act(4);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        assert_int_equal(actors[i].err, -ECONNRESET);
        assert_non_null(strstr(actors[i].why, "rank 2 went away during exchange 2"));
    }
}

static void a_rank_0_that_leaves_is_named_by_the_others(void **state)
{
    (void)state;
    prepare(3, 20000, "secret");
    actors[0].leave_early = true;
    all_act(3);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(actors[i].err, -ECONNRESET);
        assert_non_null(strstr(actors[i].why, "went away during exchange 2"));
    }
}

static void different_lengths_are_named_on_every_rank(void **state)
{
    (void)state;
    prepare(3, 20000, "");
    actors[2].len = 24;
    all_act(3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(actors[i].err, -EPROTO);
        assert_non_null(strstr(actors[i].why, "rank 2 gives 24 bytes to exchange 1, rank 0 gives 8"));
    }
}

/* Rank 1 comes as change made it, is refused for this reason, and then the real one comes. */
static void assert_refused(int err, const char *reason)
{
    struct actor real;

    go(0);
    go(1);
    wait_for(1);
    assert_int_equal(actors[1].err, err);
    if (strstr(actors[1].why, reason) == NULL)
        fail_msg("'%s' does not tell '%s'", actors[1].why, reason);
    assert_true(refusals > 0);
    real = actors[0];
    actors[1].party = (struct sl_party){1, 2, "job", real.party.secret, 20000};
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

static void another_secret_is_refused(void **state)
{
    (void)state;
    prepare(2, 20000, "secret");
    actors[1].party.secret = "guess";
    actors[1].party.timeout_ms = 400;
    assert_refused(-EPROTO, "rank 1 has another secret");
}

static void no_secret_is_refused_where_there_is_one(void **state)
{
    (void)state;
    prepare(2, 20000, "secret");
    actors[1].party.secret = "";
    assert_refused(-EPROTO, "it has no secret, but rank 0 has one");
}

static void another_job_is_refused_after_trying_on(void **state)
{
    (void)state;
    prepare(2, 20000, "secret");
    actors[1].party.job = "other";
    actors[1].party.timeout_ms = 200;
    assert_refused(-EPROTO, "it belongs to another job");
    assert_true(refusals >= 1);
}

static void another_size_is_refused(void **state)
{
    (void)state;
    prepare(2, 20000, "secret");
    actors[1].party.size = 3;
    actors[1].party.timeout_ms = 400;
    assert_refused(-EPROTO, "it counts 3 ranks, rank 0 counts 2");
}

static void a_rank_out_of_range_is_refused(void **state)
{
    (void)state;
    prepare(2, 20000, "secret");
    actors[1].party.rank = 2;
    actors[1].party.timeout_ms = 400;
    assert_refused(-EPROTO, "it calls itself rank 2, but ranks 1 to 1 are expected");
}

static void a_second_process_of_a_rank_is_refused(void **state)
{
    (void)state;
    prepare(3, 20000, "secret");
    actors[1].party.timeout_ms = 3000; /* one of the two tries until then */
    actors[3] = actors[1];
    actors[3].party.rank = 1;
    go(0);
    go(1);
    /* One of the two comes first; the other is told, and the job goes on. */
    go(3);
    while (refusals == 0)
        poll(NULL, 0, 1);
    go(2);
    for (int i = 0; i < 4; i++)
        wait_for(i);
    assert_int_equal(actors[0].err, 0);
    assert_int_equal(actors[2].err, 0);
    assert_int_equal((actors[1].err == 0) + (actors[3].err == 0), 1);
    struct actor *second = actors[1].err == 0 ? &actors[3] : &actors[1];
    assert_int_equal(second->err, -EPROTO);
    assert_non_null(strstr(second->why, "there is a rank 1 already"));
}

static void another_version_is_told_both_versions(void **state)
{
    uint8_t bytes[1024], nonce[SL_NONCE_BYTES] = {0};
    struct sl_terms terms = {.rank = 1, .size = 2};
    struct sl_hello hello;
    char text[SL_SENTENCE_MAX + 1];
    int code;

    (void)state;
    prepare(2, 20000, "");
    sl_hello_make(&terms, nonce, &hello);
    hello.bytes[8] = 3;
    go(0);
    int fd = knock();
    assert_int_equal(send(fd, hello.bytes, sizeof(hello.bytes), 0), sizeof(hello.bytes));
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len > SL_FRAME_BYTES);
    assert_int_equal(sl_sentence_parse(bytes + SL_FRAME_BYTES, len - SL_FRAME_BYTES, &code, text), 0);
    assert_int_equal(code, -EPROTO);
    assert_string_equal(text, "it speaks version 3, rank 0 speaks 2");
    close(fd);
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

static void garbage_is_refused_at_its_first_byte_and_disturbs_nobody(void **state)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01",
                                          "SLUICE\r\x01"};
    uint8_t bytes[64];

    (void)state;
    prepare(2, 20000, "secret");
    go(0);
    for (size_t i = 0; i < SL_ARRAY_LEN(garbage); i++) {
        int fd = knock();

        assert_true(send(fd, garbage[i], strlen(garbage[i]), 0) > 0);
        assert_int_equal(read_to_end(fd, bytes, sizeof(bytes)), 0);
        close(fd);
    }
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
    assert_int_equal(refusals, SL_ARRAY_LEN(garbage));
    assert_true(said(last_refusal, "it does not speak Sluice's protocol"));
}

/* Half of them in the kernel, as they say nothing. The others are more than rank 0 has places for. */
static void let_a_crowd_in(bool by_tcp_alone)
{
    int fd[300];

    prepare(4, 20000, "secret");
    if (by_tcp_alone) {
        close(actors[0].listeners.nearby);
        actors[0].listeners.has_nearby = false;
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(fd); i++) {
        fd[i] = knock(); /* into the backlog, ahead of every rank */
        if (i % 2 == 0)
            assert_int_equal(send(fd[i], "SLUI", 4, 0), 4);
    }
    all_act(4);
    for (size_t i = 0; i < SL_ARRAY_LEN(fd); i++)
        close(fd[i]);
    assert_went_well(4);
    assert_true(refusals <= 20); /* the log names some, not all */
}

static void a_crowd_of_silent_strangers_keeps_no_rank_out(void **state)
{
    (void)state;
    let_a_crowd_in(false); /* by the unix socket, ranks may be in before a stranger has to go */
    let_a_crowd_in(true);  /* behind them in the queue, no rank is in before a stranger has gone */
    assert_true(refusals > 0);
}

static void who_does_not_say_who_it_is_has_five_seconds(void **state)
{
    uint64_t start_ns;
    uint8_t byte;

    (void)state;
    prepare(2, 20000, "secret");
    go(0);
    int fd = knock();
    start_ns = sl_now(&sl_clock_monotonic);
    assert_int_equal(send(fd, "SLUI", 4, 0), 4);
    assert_int_equal(read_to_end(fd, &byte, 1), 0);
    start_ns = sl_now(&sl_clock_monotonic) - start_ns;
    assert_true(start_ns > 4900 * SL_NS_PER_MS && start_ns < 9000 * SL_NS_PER_MS);
    assert_true(said(last_refusal, "in time"));
    close(fd);
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

/* A list for poll() that names places which nobody holds is too long for the kernel. */
static void few_descriptors_are_enough(void **state)
{
    struct rlimit old, low;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){64, old.rlim_max};
    prepare(4, 20000, "secret");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    all_act(4);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_went_well(4);
}

static void read_exactly(int fd, void *bytes, size_t len)
{
    assert_int_equal(recv(fd, bytes, len, MSG_WAITALL), (ssize_t)len);
}

/* The last rank of a job without a secret, as far as its proof in a frame of that kind, over fd. */
static void prove_by_hand(int fd, int size, enum sl_frame_kind kind)
{
    struct sl_terms terms = {.rank = size - 1, .size = size, .secret = "", .secret_len = 0};
    uint8_t nonce[SL_NONCE_BYTES] = {7}, bytes[SL_FRAME_BYTES + SL_NONCE_BYTES];
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    struct sl_hello hello;

    assert_int_equal(sl_job_hash("job", terms.job), 0);
    sl_hello_make(&terms, nonce, &hello);
    assert_int_equal(send(fd, hello.bytes, sizeof(hello.bytes), 0), sizeof(hello.bytes));
    read_exactly(fd, bytes, sizeof(bytes));
    assert_int_equal(sl_proof_make(&terms, false, &hello, bytes + SL_FRAME_BYTES,
                                   proof + SL_FRAME_BYTES), 0);
    sl_frame_make(kind, SL_MAC_BYTES, proof);
    assert_int_equal(send(fd, proof, sizeof(proof), 0), sizeof(proof));
}

/* ... as far as its welcome. */
static int join_by_hand(int fd, int size)
{
    uint8_t welcome[SL_FRAME_BYTES + SL_MAC_BYTES];

    prove_by_hand(fd, size, SL_FRAME_PROOF);
    read_exactly(fd, welcome, sizeof(welcome));
    return fd;
}

static void a_proof_in_another_frame_is_none(void **state)
{
    uint8_t bytes[1024];

    (void)state;
    prepare(2, 20000, "");
    go(0);
    int fd = knock();
    prove_by_hand(fd, 2, SL_FRAME_GATHER);
    read_to_end(fd, bytes, sizeof(bytes));
    close(fd);
    assert_true(said(last_refusal, "it sent something else than its proof"));
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

static void a_rank_at_another_exchange_ends_the_job(void **state)
{
    uint8_t gather[SL_FRAME_BYTES + SL_SEQ_BYTES + 8] = {0}, bytes[1024];
    char text[SL_SENTENCE_MAX + 1];
    int code;

    (void)state;
    prepare(2, 20000, "");
    go(0);
    int fd = join_by_hand(knock(), 2);
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + 8, gather);
    sl_put(gather + SL_FRAME_BYTES, 7, SL_SEQ_BYTES);
    assert_int_equal(send(fd, gather, sizeof(gather), 0), sizeof(gather));
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len > SL_FRAME_BYTES);
    assert_int_equal(sl_sentence_parse(bytes + SL_FRAME_BYTES, len - SL_FRAME_BYTES, &code, text), 0);
    assert_string_equal(text, "rank 1 is at exchange 7, rank 0 at exchange 1");
    close(fd);
    wait_for(0);
    assert_int_equal(actors[0].err, -EPROTO);
}

static void a_rank_that_leaves_while_others_are_awaited_is_named(void **state)
{
    (void)state;
    prepare(3, 5000, "");
    go(0);
    close(join_by_hand(knock(), 3));
    wait_for(0);
    assert_int_equal(actors[0].err, -ECONNRESET);
    assert_non_null(strstr(actors[0].why, "rank 2 went away while ranks were still awaited"));
}

/* Rank 0 waits a whole timeout for ranks, and begins another one with the first exchange. */
static void a_first_exchange_may_follow_a_long_wait_for_ranks(void **state)
{
    uint8_t gather[SL_FRAME_BYTES + SL_SEQ_BYTES + 8] = {0};

    (void)state;
    prepare(3, 2000, "");
    actors[0].rounds = actors[1].rounds = 1;
    go(0);
    go(1);
    poll(NULL, 0, 1000);
    int fd = join_by_hand(knock(), 3);
    poll(NULL, 0, 1500); /* rank 1 has waited for more than a timeout by now */
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + 8, gather);
    sl_put(gather + SL_FRAME_BYTES, 1, SL_SEQ_BYTES);
    memset(gather + SL_FRAME_BYTES + SL_SEQ_BYTES, 2 * 16, 8);
    assert_int_equal(send(fd, gather, sizeof(gather), MSG_NOSIGNAL), sizeof(gather));
    wait_for(0);
    wait_for(1);
    close(fd);
    assert_went_well(2);
}

/* However long rank 0 has been awaited, it is asked for twice a second. */
static void a_rank_0_that_comes_very_late_is_found_at_once(void **state)
{
    struct sl_root root;

    (void)state;
    prepare(2, 20000, "secret");
    sl_listeners_close(&actors[0].listeners);
    root = actors[0].root;
    go(1);
    poll(NULL, 0, 2700);
    assert_int_equal(sl_listen_root(&root, true, &actors[0].listeners), 0);
    uint64_t start_ns = sl_now(&sl_clock_monotonic);
    go(0);
    wait_for(0);
    wait_for(1);
    assert_went_well(2);
    assert_true(sl_now(&sl_clock_monotonic) - start_ns < 1500 * SL_NS_PER_MS);
}

/* It comes to an exchange that is over, from which rank 0 has gone: what it said before is still there. */
static void a_late_rank_hears_why_the_job_has_ended(void **state)
{
    (void)state;
    prepare(3, 20000, "secret");
    actors[2].leave_early = true;
    actors[1].pause_ms = 500;
    all_act(3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(actors[i].err, -ECONNRESET);
        assert_non_null(strstr(actors[i].why, "rank 2 went away during exchange 2"));
    }
}

#define WITH_MANY 8 /* so that a result is more than a socket holds */

/* A rank that has read half a result would take a farewell for the other half. */
static void a_result_is_not_followed_by_a_farewell_in_its_middle(void **state)
{
    static uint8_t share[SL_FRAME_BYTES + SL_SEQ_BYTES + LEN_MAX], bytes[(WITH_MANY + 1) * LEN_MAX];
    uint8_t failed[SL_FRAME_BYTES];

    (void)state;
    prepare(WITH_MANY, 700, "");
    for (int i = 0; i < WITH_MANY; i++)
        actors[i].len = LEN_MAX;
    for (int i = 0; i < WITH_MANY - 1; i++)
        go(i);
    int fd; /* a unix socket: how much fits is the same everywhere */
    assert_int_equal(sl_nearby_dial(actors[0].root.port, &fd), 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    join_by_hand(fd, WITH_MANY);
    memset(share, 16 * (WITH_MANY - 1), sizeof(share)); /* as the others expect */
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + LEN_MAX, share);
    sl_put(share + SL_FRAME_BYTES, 1, SL_SEQ_BYTES);
    assert_int_equal(send(fd, share, sizeof(share), 0), (ssize_t)sizeof(share));
    for (int i = 1; i < WITH_MANY - 1; i++)
        wait_for(i); /* the others have been told; its own turn, the last, goes on for a second */
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len < SL_FRAME_BYTES + SL_SEQ_BYTES + WITH_MANY * LEN_MAX);
    sl_frame_make(SL_FRAME_FAILED, 0, failed);
    assert_null(memmem(bytes, len, failed, 8));
    wait_for(0);
    assert_int_equal(actors[0].err, -ETIMEDOUT);
    assert_non_null(strstr(actors[0].why, "no result could be sent to rank 7"));
    close(fd);
}

/* How many bytes a unix socket takes behind the head of a result until it is full. */
static size_t bytes_to_fill(void)
{
    uint8_t head[SL_FRAME_BYTES + SL_SEQ_BYTES] = {0}, *bytes;
    socklen_t room_len = sizeof(int);
    int pair[2], room;
    ssize_t took;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(getsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, &room_len), 0);
    bytes = calloc(2, (size_t)room);
    assert_non_null(bytes);
    assert_int_equal(send(pair[0], head, sizeof(head), 0), sizeof(head));
    took = send(pair[0], bytes, 2 * (size_t)room, 0);
    assert_true(took > 0 && took < 2 * room);
    free(bytes);
    close(pair[0]);
    close(pair[1]);
    return (size_t)took;
}

/* Its socket is full of a result that it has not read, and that is whole: the farewell waits for a place. */
static void a_rank_that_reads_late_hears_why_the_job_has_ended(void **state)
{
    static uint8_t share[SL_FRAME_BYTES + SL_SEQ_BYTES + LEN_MAX], bytes[(WITH_MANY + 1) * LEN_MAX];
    size_t each = bytes_to_fill() / WITH_MANY, at = SL_FRAME_BYTES + SL_SEQ_BYTES + WITH_MANY * each, len;
    char text[SL_SENTENCE_MAX + 1];
    struct sl_frame frame;
    int fd, code;

    (void)state;
    if (each > LEN_MAX) {
        print_message("skipped: unix sockets take more here than a result of this test has\n");
        skip();
    }
    prepare(WITH_MANY, 20000, "");
    for (int i = 0; i < WITH_MANY; i++) {
        actors[i].len = each;
        actors[i].rounds = 2;
    }
    actors[2].leave_early = true;
    for (int i = 0; i < WITH_MANY - 1; i++)
        go(i);
    assert_int_equal(sl_nearby_dial(actors[0].root.port, &fd), 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    join_by_hand(fd, WITH_MANY);
    memset(share, 16 * (WITH_MANY - 1), sizeof(share)); /* as the others expect */
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + each, share);
    sl_put(share + SL_FRAME_BYTES, 1, SL_SEQ_BYTES);
    len = SL_FRAME_BYTES + SL_SEQ_BYTES + each;
    assert_int_equal(send(fd, share, len, 0), (ssize_t)len);
    for (int i = 1; i < WITH_MANY - 1; i++)
        wait_for(i); /* the others have been told; its own turn, the last, goes on for a second */
    len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len > at + SL_FRAME_BYTES);
    assert_int_equal(sl_frame_parse(bytes + at, &frame), 0);
    assert_int_equal(frame.kind, SL_FRAME_FAILED);
    assert_int_equal(at + SL_FRAME_BYTES + frame.len, len);
    assert_int_equal(sl_sentence_parse(bytes + at + SL_FRAME_BYTES, frame.len, &code, text), 0);
    assert_int_equal(code, -ECONNRESET);
    assert_non_null(strstr(text, "rank 2 went away during exchange 2"));
    close(fd);
    wait_for(0);
    assert_int_equal(actors[0].err, -ECONNRESET);
}

/* ---- places beside each other ---- */

/* Rank 0 at the second of two addresses, which have one port: rank 1 begins at 127.0.0.2. With its secret, so that
 * TCP is tried on this host, too; the unix socket is nobody's. */
static struct sl_card two_places;

static void prepare_second_of_two(uint64_t timeout_ms)
{
    static struct sl_address v4;

    prepare(2, timeout_ms, "secret");
    close(actors[0].listeners.nearby);
    actors[0].listeners.has_nearby = false;
    v4 = (struct sl_address){.len = sizeof(struct sockaddr_in)};
    *(struct sockaddr_in *)&v4.any = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(actors[0].listeners.port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    two_places = (struct sl_card){.count = 2, .port = actors[0].listeners.port};
    two_places.place[0] = two_places.place[1] = v4;
    ((struct sockaddr_in *)&two_places.place[1].any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    actors[1].card = &two_places;
}

static int listen_first(int backlog)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&two_places.place[0].any, two_places.place[0].len), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static uint64_t both_act_ns(void)
{
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    all_act(2);
    return sl_now(&sl_clock_monotonic) - start_ns;
}

static void a_first_place_that_says_nothing_costs_a_moment(void **state)
{
    (void)state;
    prepare_second_of_two(20000);
    int fd = listen_first(16);
    uint64_t took_ns = both_act_ns();
    close(fd);
    assert_went_well(2);
    assert_false(actors[1].nearby); /* TCP says nothing of hosts */
    assert_true(took_ns < 2 * SL_NS_PER_S);
}

/* A listener at the first place whose queue is full: connect() waits as for a host that is down. */
struct dead_place {
    int listener, filler[8];
};

static void dead_place_open(struct dead_place *dead)
{
    dead->listener = listen_first(0);
    for (size_t i = 0; i < SL_ARRAY_LEN(dead->filler); i++) {
        dead->filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(dead->filler[i], (struct sockaddr *)&two_places.place[0].any, two_places.place[0].len);
    }
}

static void dead_place_close(struct dead_place *dead)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(dead->filler); i++)
        close(dead->filler[i]);
    close(dead->listener);
}

static void a_dead_first_place_costs_a_moment(void **state)
{
    struct dead_place dead;

    (void)state;
    prepare_second_of_two(20000);
    dead_place_open(&dead);
    uint64_t took_ns = both_act_ns();
    dead_place_close(&dead);
    assert_went_well(2);
    assert_true(took_ns < 2 * SL_NS_PER_S);
}

/* An address of this host that is not loopback. */
static bool find_own_address(struct sl_address *out)
{
    struct ifaddrs *list;
    bool found = false;

    assert_int_equal(getifaddrs(&list), 0);
    for (const struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
        found = at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
                (at->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
        if (found)
            memcpy(&out->any, at->ifa_addr, sizeof(struct sockaddr_in));
    }
    freeifaddrs(list);
    out->len = sizeof(struct sockaddr_in);
    return found;
}

/* Nothing but the clock ends a try at the only place: after five seconds. */
static void a_dead_only_place_is_named(void **state)
{
    struct dead_place dead;

    (void)state;
    prepare_second_of_two(5500);
    sl_listeners_close(&actors[0].listeners);
    if (!find_own_address(&two_places.place[0]))
        skip();
    ((struct sockaddr_in *)&two_places.place[0].any)->sin_port = htons(two_places.port);
    two_places.count = 1;
    dead_place_open(&dead);
    go(1);
    wait_for(1);
    dead_place_close(&dead);
    assert_int_equal(actors[1].err, -ETIMEDOUT);
    if (strstr(actors[1].why, "the last try: connecting to ") == NULL)
        fail_msg("%s", actors[1].why);
}

static int say(int fd, enum sl_frame_kind kind, const void *body, size_t len)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX];

    sl_frame_make(kind, len, bytes);
    memcpy(bytes + SL_FRAME_BYTES, body, len);
    return send(fd, bytes, SL_FRAME_BYTES + len, MSG_NOSIGNAL) > 0 ? 0 : -1;
}

/* Whoever holds the first place. Ends when its socket is shut. */
enum imposture { REFUSES, WELCOMES /* without the proof */, MUMBLES /* a refusal without a sentence */, IMPOSTURES };
struct impostor {
    int listener;
    enum imposture how;
    atomic_uint heard;
    pthread_t thread;
};

static void *pretend(void *arg)
{
    struct impostor *self = arg;
    uint8_t hello[SL_HELLO_BYTES], body[4 + SL_SENTENCE_MAX] = {0};
    uint8_t proof[SL_FRAME_BYTES + SL_MAC_BYTES];

    for (;;) {
        int fd = accept(self->listener, NULL, NULL);

        if (fd < 0)
            return NULL;
        self->heard++;
        if (recv(fd, hello, sizeof(hello), MSG_WAITALL) != (ssize_t)sizeof(hello)) {
            close(fd);
            continue;
        }
        if (self->how == MUMBLES) {
            say(fd, SL_FRAME_REFUSE, body, 2);
        } else if (self->how == REFUSES) {
            size_t len = sl_sentence_make(-EPROTO, "your licence has expired", body);

            say(fd, SL_FRAME_REFUSE, body, len);
        } else {
            say(fd, SL_FRAME_CHALLENGE, body, SL_NONCE_BYTES);
            (void)!recv(fd, proof, sizeof(proof), MSG_WAITALL);
            say(fd, SL_FRAME_WELCOME, body, SL_WELCOME_MAX);
        }
        shutdown(fd, SHUT_WR);
        (void)!recv(fd, body, sizeof(body), 0);
        close(fd);
    }
}

static void start_impostor(struct impostor *self, enum imposture how)
{
    *self = (struct impostor){.listener = listen_first(16), .how = how};
    assert_int_equal(pthread_create(&self->thread, NULL, pretend, self), 0);
}

static void stop_impostor(struct impostor *self)
{
    shutdown(self->listener, SHUT_RDWR);
    assert_int_equal(pthread_join(self->thread, NULL), 0);
    close(self->listener);
}

static void who_cannot_prove_himself_is_passed_by(void **state)
{
    struct impostor impostor;

    (void)state;
    for (enum imposture how = 0; how < IMPOSTURES; how++) {
        prepare_second_of_two(20000);
        start_impostor(&impostor, how);
        go(1);
        while (impostor.heard == 0)
            poll(NULL, 0, 1);
        go(0);
        wait_for(1);
        wait_for(0);
        stop_impostor(&impostor);
        assert_went_well(2);
    }
}

static void an_unproved_refusal_is_called_that(void **state)
{
    static const char *const said[] = {
        [REFUSES] = "which has not proved to be rank 0, refused this rank: your licence",
        [WELCOMES] = "could not prove that it is rank 0",
        [MUMBLES] = "rank 0 sent a sentence of 2 bytes",
    };
    struct impostor impostor;

    (void)state;
    for (enum imposture how = 0; how < IMPOSTURES; how++) {
        prepare_second_of_two(700);
        sl_listeners_close(&actors[0].listeners);
        start_impostor(&impostor, how);
        go(1);
        wait_for(1);
        stop_impostor(&impostor);
        assert_int_equal(actors[1].err, how == MUMBLES ? -ETIMEDOUT : -EPROTO);
        if (strstr(actors[1].why, said[how]) == NULL)
            fail_msg("%s", actors[1].why);
        assert_true(impostor.heard >= 3 && impostor.heard <= 12); /* 10, 20, 40 ms ... between tries */
    }
}

/* ---- who is on this host ---- */

static void as_user(uid_t uid, void (*act_as)(void *arg), void *arg)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgid(uid) != 0 || setuid(uid) != 0)
            _exit(77);
        act_as(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void try_to_join(void *arg)
{
    uint16_t port = *(uint16_t *)arg;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct actor me = {.party = {1, 2, "job", "", 300}, .root = {.host = "127.0.0.1", .port = port}};
    struct sl_exchange *exchange;
    char name[SL_NEARBY_NAME_MAX], byte;
    int fd;

    /* Decently: it sees itself that rank 0 is somebody else's. */
    if (sl_rendezvous_join(&me.party, &(struct sl_places){.root = &me.root}, &exchange) == 0 ||
        strstr(sluice_last_error(), "not one of user") == NULL)
        _exit(1);
    /* And by force. */
    sl_nearby_name(port, name);
    memcpy(to.sun_path + 1, name + 1, strlen(name) - 1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) != 0)
        _exit(2);
    if (recv(fd, &byte, 1, 0) > 0)
        _exit(3);
}

static void prepare_on_this_host(const char *secret)
{
    struct sl_root root;

    prepare(2, 20000, secret);
    sl_listeners_close(&actors[0].listeners);
    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, *secret != '\0', &actors[0].listeners), 0);
}

static void another_user_of_this_host_does_not_join(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    prepare_on_this_host("");
    assert_int_equal(actors[0].listeners.count, 0); /* no TCP, where nobody proves who he is */
    go(0);
    as_user(65534, try_to_join, &actors[0].root.port);
    assert_true(said(last_refusal, "of user 65534: rank 0 belongs to user 0"));
    go(1);
    wait_for(1);
    wait_for(0);
    assert_went_well(2);
}

struct squat {
    uint16_t port;
    int told[2], end[2];
};

static void hold_name(void *arg)
{
    struct squat *squat = arg;
    char byte = 0;
    int fd;

    close(squat->end[1]);
    if (sl_nearby_listen(squat->port, &fd) != 0)
        _exit(1);
    (void)!write(squat->told[1], &byte, 1);
    (void)!read(squat->end[0], &byte, 1);
}

static void *squatter(void *arg)
{
    as_user(65534, hold_name, arg);
    return NULL;
}

static void another_user_who_has_the_name_is_not_rank_0(void **state)
{
    struct squat squat;
    struct sl_listeners listeners;
    struct sl_root root;
    pthread_t thread;
    char byte;

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    prepare(2, 600, "");
    sl_listeners_close(&actors[0].listeners);
    squat.port = actors[0].root.port;
    assert_int_equal(pipe(squat.told), 0);
    assert_int_equal(pipe(squat.end), 0);
    assert_int_equal(pthread_create(&thread, NULL, squatter, &squat), 0);
    assert_int_equal(read(squat.told[0], &byte, 1), 1);

    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, false, &listeners), -EACCES);
    assert_non_null(strstr(sluice_last_error(), "of user 65534 has the name @sluice-meet-"));
    assert_int_equal(sl_listen_root(&root, true, &listeners), 0); /* who proves himself may use TCP */
    assert_true(listeners.count > 0 && !listeners.has_nearby);
    sl_listeners_close(&listeners);
    root.more = 3; /* derived places have more */
    assert_int_equal(sl_listen_root(&root, false, &listeners), 0);
    assert_true(listeners.port > root.port && listeners.has_nearby && listeners.count == 0);
    sl_listeners_close(&listeners);

    go(1); /* a rank does not take him for rank 0 */
    wait_for(1);
    assert_int_equal(actors[1].err, -ETIMEDOUT);
    assert_non_null(strstr(actors[1].why, "of user 65534 has the name @sluice-meet-"));
    close(squat.end[1]);
    pthread_join(thread, NULL);
    close(squat.end[0]);
    close(squat.told[0]);
    close(squat.told[1]);
}

static void two_jobs_of_one_user_do_not_share_a_place(void **state)
{
    struct sl_listeners second;
    struct sl_root root;

    (void)state;
    prepare_on_this_host("");
    root = actors[0].root;
    assert_int_equal(sl_listen_root(&root, false, &second), -EADDRINUSE);
    assert_non_null(strstr(sluice_last_error(), "has the name @sluice-meet-"));
    sl_listeners_close(&actors[0].listeners);
}

static int launch_alone(const char *secret, int64_t require)
{
    struct sl_exchange *exchange;
    struct sl_listeners place;
    struct sl_config config;

    sl_config_defaults(&config);
    assert_int_equal(sl_listen_any("", NULL, &place), 0); /* for a port that is free */
    sl_listeners_close(&place);
    config.rank = 0;
    config.size = 2;
    config.connect_timeout_ms = 50;
    config.require_secret = require;
    snprintf(config.root, sizeof(config.root), "127.0.0.1:%u", place.port);
    snprintf(config.secret, sizeof(config.secret), "%s", secret);
    last_warning[0] = '\0';
    return sl_launch(&config, NULL, &exchange);
}

static void a_secret_can_be_demanded_and_should_be_long(void **state)
{
    (void)state;
    assert_int_equal(launch_alone("", SL_ON), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_REQUIRE_SECRET is on"));
    assert_int_equal(launch_alone("", SL_OFF), -ETIMEDOUT);
    assert_string_equal(last_warning, ""); /* users are compared */
    assert_int_equal(launch_alone("fifteen letters", SL_ON), -ETIMEDOUT);
    assert_true(said(last_warning, "the secret has 15 characters"));
    assert_int_equal(launch_alone("sixteen letters!", SL_ON), -ETIMEDOUT);
    assert_string_equal(last_warning, "");
}

/* TCP without a secret is said, on loopback too. */
static void a_meeting_that_anybody_could_join_is_warned_of(void **state)
{
    (void)state;
    prepare(2, 20000, "");
    last_warning[0] = '\0';
    all_act(2);
    assert_went_well(2);
    assert_true(said(last_warning, "anyone on this host can join"));
}

static void a_root_is_parsed_or_says_what_is_wrong(void **state)
{
    static const char *const bad[] = {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x",
                                      "fe80::1:80", "[::1]", "[::1]80", "[::1:80", "h:65535+1",
                                      "h:80+16", "h:80+"};
    struct sl_root root;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++)
        assert_int_equal(sl_root_parse(bad[i], &root), -EINVAL);
    assert_int_equal(sl_root_parse("[fe80::1%eth0]:4711", &root), 0);
    assert_string_equal(root.host, "fe80::1%eth0");
    assert_int_equal(root.port, 4711);
    assert_int_equal(sl_root_parse("h.example:80+3", &root), 0);
    assert_string_equal(root.host, "h.example");
    assert_int_equal(root.more, 3);
}

static void a_unique_id_carries_place_and_secret_and_notices_damage(void **state)
{
    struct sl_config config;
    struct sl_listeners listeners;
    struct sl_card card, back;
    struct sluice_unique_id id;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(sl_card_make(&config, false, &card), 0);
    assert_int_equal(sl_listen_any("", &card, &listeners), 0);
    sl_card_pack(&card, &id);
    assert_int_equal(sl_card_unpack(&id, &back), 0);
    assert_int_equal(back.count, card.count);
    assert_string_equal(back.secret, card.secret);
    assert_int_equal(back.port, listeners.port);
    for (unsigned i = 0; i < card.count; i++) {
        char text[2][SL_ADDRESS_TEXT_MAX];

        sl_address_text(&card.place[i], text[0]);
        sl_address_text(&back.place[i], text[1]);
        assert_string_equal(text[0], text[1]);
    }
    assert_int_equal(sl_card_localize(&config, &back), 0);
    assert_true(sl_address_is_loopback(&back.place[0]));
    for (unsigned at = 0; at < SLUICE_UNIQUE_ID_BYTES; at++) {
        id.bytes[at] ^= 1;
        assert_int_equal(sl_card_unpack(&id, &back), -EINVAL);
        id.bytes[at] ^= 1;
    }
    sl_listeners_close(&listeners);
}

static bool is_told(const struct sl_card *card, const struct sl_address *address)
{
    for (unsigned i = 0; i < card->count; i++)
        if (card->place[i].len == address->len &&
            memcmp(&card->place[i].any, &address->any, address->len) == 0)
            return true;
    return sl_address_is_loopback(address);
}

static void a_published_place_listens_where_its_card_tells_and_on_loopback(void **state)
{
    const char *ranges[] = {"", "20000-29999"};
    struct sl_listeners listeners;
    struct sl_config config;
    struct sl_card card;
    char text[SL_ADDRESS_TEXT_MAX];

    (void)state;
    sl_config_defaults(&config);
    for (unsigned range = 0; range < SL_ARRAY_LEN(ranges); range++) {
        assert_int_equal(sl_card_make(&config, false, &card), 0);
        assert_int_equal(sl_listen_any(ranges[range], &card, &listeners), 0);
        assert_int_equal(card.port, listeners.port);
        assert_true(listeners.count >= card.count);
        for (unsigned i = 0; i < listeners.count; i++) {
            struct sl_address address = {.len = sizeof(address.any)};

            assert_int_equal(getsockname(listeners.fd[i], (struct sockaddr *)&address.any, &address.len), 0);
            sl_address_text(&address, text);
            if (!is_told(&card, &address))
                fail_msg("it listens at %s", text);
        }
        for (unsigned i = 0; i < card.count; i++) {
            int fd = socket(card.place[i].any.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

            assert_int_equal(connect(fd, (struct sockaddr *)&card.place[i].any, card.place[i].len), 0);
            close(fd);
        }
        sl_listeners_close(&listeners);
    }
}

/* An address that this host has not got stands for one of IPv6 that is not usable yet. */
static void a_place_that_is_not_usable_yet_is_not_published(void **state)
{
    struct sl_card card = {.count = 2};
    struct sl_listeners listeners;
    struct sockaddr_in *v4;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        card.place[i].len = sizeof(*v4);
        v4 = (struct sockaddr_in *)&card.place[i].any;
        v4->sin_family = AF_INET;
        v4->sin_addr.s_addr = htonl(i == 0 ? 0xc0000263 /* 192.0.2.99 */ : INADDR_LOOPBACK + 1);
    }
    assert_int_equal(sl_listen_any("", &card, &listeners), 0);
    assert_int_equal(card.count, 1);
    v4 = (struct sockaddr_in *)&card.place[0].any;
    assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_LOOPBACK + 1);
    assert_int_equal(ntohs(v4->sin_port), card.port);
    assert_int_equal(listeners.count, 2);
    sl_listeners_close(&listeners);
}

static void ranks_in_lists_are_joined_to_ranges(void **state)
{
    static const bool missing[] = {0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1};
    char list[64];

    (void)state;
    sl_rank_list(missing, 11, list, sizeof(list));
    assert_string_equal(list, "3, 5-7, 9, 10");
}

/* There is room for the marks of an end behind whatever fits, also where all would not. */
static void a_list_of_too_many_ranks_ends_with_dots(void **state)
{
    bool missing[32];
    char list[64];

    (void)state;
    for (int i = 0; i < 32; i++)
        missing[i] = i % 2 == 0;
    sl_rank_list(missing, 32, list, sizeof(list));
    assert_string_equal(list, "0, 2, 4, 6, 8, 10, 12, 14, ...");
}

/* A rank that took the lack of descriptors for a lack of unix sockets would ask by TCP, where anybody may answer. */
static void without_descriptors_unix_sockets_are_possible_all_the_same(void **state)
{
    struct rlimit old, none;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){0, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool possible = sl_nearby_possible();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(possible);
}

/* The search begins anywhere in a range: behind its last port comes its first. */
static void a_range_of_ports_is_searched_whole_and_not_left(void **state)
{
    struct sl_listeners held, found;
    char range[32];
    int rounds = 0;

    (void)state;
    for (int attempt = 0; attempt < 20 && rounds < 16; attempt++) {
        assert_int_equal(sl_listen_any("", NULL, &held), 0);
        snprintf(range, sizeof(range), "%u-%u", held.port - 1u, (unsigned)held.port);
        for (rounds = 0; rounds < 16 && sl_listen_any(range, NULL, &found) == 0; rounds++) {
            uint16_t port = found.port;

            sl_listeners_close(&found);
            assert_int_equal(port, held.port - 1);
        }
        sl_listeners_close(&held); /* and where another program has the first port, once more */
    }
    assert_int_equal(rounds, 16);
}

/* Behind address translation: all addresses, at the port that the others know. */
static void a_root_of_another_address_keeps_its_port(void **state)
{
    struct sl_root root = {.host = "192.0.2.1"};
    struct sl_listeners found;
    int err = -EADDRINUSE;

    (void)state;
    for (int attempt = 0; attempt < 20 && err != 0; attempt++) { /* another program may take it meanwhile */
        assert_int_equal(sl_listen_any("", NULL, &found), 0);
        sl_listeners_close(&found);
        root.port = found.port;
        err = sl_listen_root(&root, true, &found);
    }
    assert_int_equal(err, 0);
    assert_int_equal(found.port, root.port);
    assert_false(found.loopback);
    sl_listeners_close(&found);
}

static void a_rank_that_is_alone_meets_nowhere(void **state)
{
    struct sl_exchange *exchange;
    struct sl_listeners held;
    struct sl_config config;

    (void)state;
    assert_int_equal(sl_listen_any("", NULL, &held), 0);
    sl_config_defaults(&config);
    config.rank = 0;
    config.size = 1;
    snprintf(config.root, sizeof(config.root), "127.0.0.1:%u", held.port);
    assert_int_equal(sl_launch(&config, NULL, &exchange), 0);
    assert_int_equal(exchange->size, 1);
    exchange->close(exchange);
    sl_listeners_close(&held);
}

/* ---- somebody between the ranks ---- */

/* Passes bytes both ways between who knocks at its port and rank 0. Of what goes in one direction after skip
 * bytes, it changes one byte; or it listens only. */
struct middle {
    int listener, guest, host;
    bool down;     /* changes what rank 0 sends */
    size_t at;     /* the byte to change, counted from the start of that direction; SIZE_MAX: none */
    size_t passed[2];
    uint8_t heard[2][1 << 16];
    pthread_t thread;
};

static bool pass_on(struct middle *middle, bool down)
{
    uint8_t bytes[4096];
    size_t *passed = &middle->passed[down];
    ssize_t n = recv(down ? middle->host : middle->guest, bytes, sizeof(bytes), 0);

    if (n <= 0)
        return false;
    for (ssize_t i = 0; i < n; i++, (*passed)++) {
        if (*passed < sizeof(middle->heard[0]))
            middle->heard[down][*passed] = bytes[i];
        if (down == middle->down && *passed == middle->at)
            bytes[i] ^= 0x20;
    }
    return send(down ? middle->guest : middle->host, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *be_between(void *arg)
{
    struct middle *middle = arg;
    bool up = true;

    middle->guest = accept(middle->listener, NULL, NULL);
    middle->host = knock();
    while (up) {
        struct pollfd wait[2] = {{middle->guest, POLLIN, 0}, {middle->host, POLLIN, 0}};

        poll(wait, 2, 20000);
        for (int i = 0; i < 2 && up; i++)
            if (wait[i].revents != 0)
                up = pass_on(middle, i == 1);
    }
    close(middle->guest);
    close(middle->host);
    return NULL;
}

/* Rank 1 of 2 reaches rank 0 through it. */
static void through_the_middle(struct middle *middle, size_t at, bool down)
{
    struct sl_listeners listeners;

    assert_int_equal(sl_listen_any("", NULL, &listeners), 0);
    assert_true(listeners.has_nearby); /* where a rank of this host goes first, and without a secret alone */
    *middle = (struct middle){.listener = listeners.nearby, .at = at, .down = down};
    assert_int_equal(fcntl(middle->listener, F_SETFL, 0), 0);
    actors[1].root.port = listeners.port;
    assert_int_equal(pthread_create(&middle->thread, NULL, be_between, middle), 0);
    all_act(2);
    assert_int_equal(pthread_join(middle->thread, NULL), 0);
    sl_listeners_close(&listeners);
}

#define UP_HEAD (SL_HELLO_BYTES + SL_FRAME_BYTES + SL_MAC_BYTES)    /* until the first GATHER */
#define DOWN_HEAD (SL_FRAME_BYTES + SL_NONCE_BYTES + SL_FRAME_BYTES + SL_WELCOME_MAX)

static void what_is_changed_on_the_way_ends_the_job(void **state)
{
    static const size_t at[] = {0, SL_SEQ_BYTES, SL_SEQ_BYTES + 3, SL_SEQ_BYTES + 7, SL_SEQ_BYTES + 8,
                                SL_SEQ_BYTES + 8 + SL_SEAL_BYTES - 1};
    static struct middle middle;

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(at); i++) {
        prepare(2, 5000, "secret");
        through_the_middle(&middle, UP_HEAD + SL_FRAME_BYTES + at[i], false);
        assert_int_not_equal(actors[0].err, 0);
        assert_int_not_equal(actors[1].err, 0);
        if (at[i] >= SL_SEQ_BYTES) {
            assert_int_equal(actors[0].err, -EBADMSG);
            assert_non_null(strstr(actors[0].why, "rank 1 in exchange 1 was changed on the way"));
            assert_non_null(strstr(actors[1].why, "rank 1 in exchange 1 was changed on the way"));
        }
    }
    for (size_t i = 1; i < SL_ARRAY_LEN(at); i++) {
        prepare(2, 5000, "secret");
        through_the_middle(&middle, DOWN_HEAD + SL_FRAME_BYTES + at[i], true);
        assert_int_equal(actors[1].err, -EBADMSG);
        assert_non_null(strstr(actors[1].why, "rank 0 at @sluice-meet-"));
        assert_non_null(strstr(actors[1].why, "was changed on the way"));
    }
}

static void a_welcome_that_was_changed_is_refused(void **state)
{
    static struct middle middle;

    (void)state;
    prepare(2, 1000, "secret");
    through_the_middle(&middle, DOWN_HEAD - 1, true);
    assert_int_not_equal(actors[1].err, 0);
}

static bool contains(const uint8_t *bytes, size_t len, uint8_t byte, size_t count)
{
    size_t run = 0;

    for (size_t i = 0; i < len && run < count; i++)
        run = bytes[i] == byte ? run + 1 : 0;
    return run >= count;
}

/* Shares are 8 equal bytes: round 1 of rank 1 gives 0x11. */
static void who_listens_reads_shares_only_without_a_secret(void **state)
{
    static struct middle middle;

    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        prepare(2, 5000, secret ? "secret" : "");
        through_the_middle(&middle, SIZE_MAX, false);
        assert_went_well(2);
        assert_int_equal(contains(middle.heard[0], middle.passed[0], 0x11, 8), !secret);
        assert_int_equal(contains(middle.heard[1], middle.passed[1], 0x11, 8), !secret);
    }
}

static void ranks_share_a_key_that_each_job_makes_anew(void **state)
{
    static uint8_t keys[4][SL_DIGEST_BYTES];

    (void)state;
    for (int job = 0; job < 2; job++) {
        prepare(2, 5000, "secret");
        actors[0].session = keys[2 * job];
        actors[1].session = keys[2 * job + 1];
        all_act(2);
        assert_went_well(2);
        assert_memory_equal(keys[2 * job], keys[2 * job + 1], SL_DIGEST_BYTES);
    }
    assert_memory_not_equal(keys[0], keys[2], SL_DIGEST_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_every_share),
        cmocka_unit_test(shares_may_be_empty_or_larger_than_socket_buffers),
        cmocka_unit_test(a_late_rank_0_is_waited_for),
        cmocka_unit_test(ranks_that_do_not_come_are_named_on_every_rank),
        cmocka_unit_test(a_rank_0_that_does_not_exist_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named_on_every_rank),
        cmocka_unit_test(a_rank_0_that_leaves_is_named_by_the_others),
        cmocka_unit_test(different_lengths_are_named_on_every_rank),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(no_secret_is_refused_where_there_is_one),
        cmocka_unit_test(another_job_is_refused_after_trying_on),
        cmocka_unit_test(another_size_is_refused),
        cmocka_unit_test(a_rank_out_of_range_is_refused),
        cmocka_unit_test(a_second_process_of_a_rank_is_refused),
        cmocka_unit_test(another_version_is_told_both_versions),
        cmocka_unit_test(garbage_is_refused_at_its_first_byte_and_disturbs_nobody),
        cmocka_unit_test(a_crowd_of_silent_strangers_keeps_no_rank_out),
        cmocka_unit_test(what_is_changed_on_the_way_ends_the_job),
        cmocka_unit_test(a_welcome_that_was_changed_is_refused),
        cmocka_unit_test(who_listens_reads_shares_only_without_a_secret),
        cmocka_unit_test(ranks_share_a_key_that_each_job_makes_anew),
        cmocka_unit_test(who_does_not_say_who_it_is_has_five_seconds),
        cmocka_unit_test(few_descriptors_are_enough),
        cmocka_unit_test(a_proof_in_another_frame_is_none),
        cmocka_unit_test(a_rank_at_another_exchange_ends_the_job),
        cmocka_unit_test(a_rank_that_leaves_while_others_are_awaited_is_named),
        cmocka_unit_test(a_first_exchange_may_follow_a_long_wait_for_ranks),
        cmocka_unit_test(a_rank_0_that_comes_very_late_is_found_at_once),
        cmocka_unit_test(a_late_rank_hears_why_the_job_has_ended),
        cmocka_unit_test(a_result_is_not_followed_by_a_farewell_in_its_middle),
        cmocka_unit_test(a_rank_that_reads_late_hears_why_the_job_has_ended),
        cmocka_unit_test(a_first_place_that_says_nothing_costs_a_moment),
        cmocka_unit_test(a_dead_first_place_costs_a_moment),
        cmocka_unit_test(a_dead_only_place_is_named),
        cmocka_unit_test(who_cannot_prove_himself_is_passed_by),
        cmocka_unit_test(an_unproved_refusal_is_called_that),
        cmocka_unit_test(another_user_of_this_host_does_not_join),
        cmocka_unit_test(another_user_who_has_the_name_is_not_rank_0),
        cmocka_unit_test(two_jobs_of_one_user_do_not_share_a_place),
        cmocka_unit_test(a_secret_can_be_demanded_and_should_be_long),
        cmocka_unit_test(a_meeting_that_anybody_could_join_is_warned_of),
        cmocka_unit_test(a_root_is_parsed_or_says_what_is_wrong),
        cmocka_unit_test(a_unique_id_carries_place_and_secret_and_notices_damage),
        cmocka_unit_test(a_published_place_listens_where_its_card_tells_and_on_loopback),
        cmocka_unit_test(a_place_that_is_not_usable_yet_is_not_published),
        cmocka_unit_test(ranks_in_lists_are_joined_to_ranges),
        cmocka_unit_test(a_list_of_too_many_ranks_ends_with_dots),
        cmocka_unit_test(without_descriptors_unix_sockets_are_possible_all_the_same),
        cmocka_unit_test(a_range_of_ports_is_searched_whole_and_not_left),
        cmocka_unit_test(a_root_of_another_address_keeps_its_port),
        cmocka_unit_test(a_rank_that_is_alone_meets_nowhere),
    };

    sl_log_set_sink(count_lines, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
