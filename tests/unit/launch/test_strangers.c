/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever comes to a meeting and does not belong there, or sits between two ranks. */
#include "meeting.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/pending.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

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
    hello.bytes[8] = SL_WIRE_VERSION + 1;
    go(0);
    int fd = knock();
    assert_int_equal(send(fd, hello.bytes, sizeof(hello.bytes), 0), sizeof(hello.bytes));
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len > SL_FRAME_BYTES);
    assert_int_equal(
        sl_sentence_parse(0, bytes + SL_FRAME_BYTES, len - SL_FRAME_BYTES, &code, text), 0);
    assert_int_equal(code, -EPROTO);
    assert_string_equal(text, "it speaks version 4, rank 0 speaks 3");
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

/* Half of them in the kernel, as they say nothing. The others are more than rank 0 has places
 * for. */
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
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    all_act(4);
    start_ns = sl_now(&sl_clock_monotonic) - start_ns;
    for (size_t i = 0; i < SL_ARRAY_LEN(fd); i++)
        close(fd[i]);
    assert_went_well(4);
    assert_true(refusals <= 20); /* the log names some, not all */
    /* Nobody waited until the time of strangers was over. */
    assert_true(start_ns < (SL_PENDING_MS - 500) * SL_NS_PER_MS);
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

/* ---- somebody between the ranks ---- */

/* Passes bytes both ways between who knocks at its port and rank 0. Of what goes in one direction
 * after skip bytes, it changes one byte; or it listens only. */
struct middle {
    int listener, guest, host;
    bool down; /* changes what rank 0 sends */
    size_t at; /* the byte to change, counted from the start of that direction; SIZE_MAX: none */
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
    assert_true(
        /* where a rank of this host goes first, and without a secret alone */
        listeners.has_nearby);
    *middle = (struct middle){.listener = listeners.nearby, .at = at, .down = down};
    assert_int_equal(fcntl(middle->listener, F_SETFL, 0), 0);
    actors[1].root.port = listeners.port;
    assert_int_equal(pthread_create(&middle->thread, NULL, be_between, middle), 0);
    all_act(2);
    assert_int_equal(pthread_join(middle->thread, NULL), 0);
    sl_listeners_close(&listeners);
}

/* Until the first GATHER: SEATED lies between. */
#define UP_HEAD (SL_HELLO_BYTES + SL_FRAME_BYTES + SL_MAC_BYTES + SL_FRAME_BYTES)
#define WELCOME_END (SL_FRAME_BYTES + SL_NONCE_BYTES + SL_FRAME_BYTES + SL_WELCOME_MAX)
/* Until the first RESULT: PARENT lies between. */
#define DOWN_HEAD (WELCOME_END + SL_FRAME_BYTES + SL_SEAL_BYTES)

static void what_is_changed_on_the_way_ends_the_job(void **state)
{
    static const size_t at[] = {0,
                                SL_SEQ_BYTES,
                                SL_SEQ_BYTES + 3,
                                SL_SEQ_BYTES + 7,
                                SL_SEQ_BYTES + 8,
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
    through_the_middle(&middle, WELCOME_END - 1, true);
    assert_int_not_equal(actors[1].err, 0);
    if (strstr(actors[1].why, "the welcome was changed on the way") == NULL)
        fail_msg("%s", actors[1].why);
}

static void a_parent_that_was_changed_is_not_looked_for(void **state)
{
    static struct middle middle;

    (void)state;
    prepare(2, 5000, "secret");
    through_the_middle(&middle, DOWN_HEAD - 1, true);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(actors[i].err, 0);
        if (strstr(actors[i].why, "of this rank's parent was changed on the way") == NULL)
            fail_msg("rank %d: %s", i, actors[i].why);
    }
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

/* A hello may come byte by byte: what has not come yet is not judged. */
static void a_version_is_judged_when_it_is_whole(void **state)
{
    static const uint8_t nonce[SL_NONCE_BYTES];
    struct sl_terms terms = {.rank = 1, .size = 2};
    struct sl_hello hello;
    int rank;

    (void)state;
    sl_hello_make(&terms, nonce, &hello);
    hello.bytes[8] ^= 0x55;
    hello.bytes[9] ^= 0x55;
    assert_int_equal(sl_hello_check(&terms, hello.bytes, 8, &rank), 0);
    assert_int_equal(sl_hello_check(&terms, hello.bytes, 9, &rank), 0);
    assert_int_equal(sl_hello_check(&terms, hello.bytes, 10, &rank), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(a_parent_that_was_changed_is_not_looked_for),
        cmocka_unit_test(who_listens_reads_shares_only_without_a_secret),
        cmocka_unit_test(ranks_share_a_key_that_each_job_makes_anew),
        cmocka_unit_test(who_does_not_say_who_it_is_has_five_seconds),
        cmocka_unit_test(a_proof_in_another_frame_is_none),
        cmocka_unit_test(a_version_is_judged_when_it_is_whole),
    };

    sl_log_set_sink(meeting_log, NULL);
    return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}
