/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of ranks that do, or do not do, what they should. */
#include "meeting.h"

#include "core/clock.h"
#include "core/err.h"
#include "launch/launch.h"
#include "launch/tree.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>
#include <unistd.h>

static void every_rank_gets_every_share(void **state)
{
    (void)state;
    for (int size = 2; size <= 16; size++) {
        prepare(size, 20000, "secret");
        all_act(size);
        assert_went_well(size);
    }
}

/* Where the unix socket is slow to answer TCP is tried beside it, and says nothing of hosts: here
 * it is all there is. */
static void who_met_by_the_unix_socket_knows_that_it_is_on_this_host(void **state)
{
    (void)state;
    prepare(4, 20000, "secret");
    while (actors[0].listeners.count > 0)
        close(actors[0].listeners.fd[--actors[0].listeners.count]);
    all_act(4);
    assert_went_well(4);
    for (int i = 0; i < 4; i++)
        assert_true(actors[i].nearby);
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
        assert_non_null(
            strstr(actors[i].why, "rank 2 gives 24 bytes to exchange 1, rank 0 gives 8"));
    }
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

static void a_rank_at_another_exchange_ends_the_job(void **state)
{
    uint8_t gather[SL_FRAME_BYTES + SL_SEQ_BYTES + 8] = {0}, bytes[1024];
    char text[SL_SENTENCE_MAX + 1];
    int code;

    (void)state;
    prepare(2, 20000, "");
    go(0);
    int fd = join_by_hand(knock(), 2);
    seat_by_hand(fd);
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + 8, gather);
    sl_put(gather + SL_FRAME_BYTES, 7, SL_SEQ_BYTES);
    assert_int_equal(send(fd, gather, sizeof(gather), 0), sizeof(gather));
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    assert_true(len > SL_FRAME_BYTES);
    assert_int_equal(
        sl_sentence_parse(0, bytes + SL_FRAME_BYTES, len - SL_FRAME_BYTES, &code, text), 0);
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
    seat_by_hand(fd);
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

/* Between exchanges ranks connect, for as long as the timeout: who failed to is heard a little
 * later. */
static void who_took_the_whole_timeout_to_connect_is_waited_for(void **state)
{
    (void)state;
    prepare(2, 4000, "");
    actors[1].pause_ms = 4300; /* the wait is 5 s */
    all_act(2);
    assert_went_well(2);
}

/* It comes to an exchange that is over, from which rank 0 has gone: what it said before is still
 * there. */
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
#define PIECES_MAX ((WITH_MANY + 1) * (SL_FRAME_BYTES + SL_SEQ_BYTES + LEN_MAX))

/* Gives the share of the last rank as the others expect it. */
static void give_by_hand(int fd, size_t each)
{
    static uint8_t share[SL_FRAME_BYTES + SL_SEQ_BYTES + LEN_MAX];
    size_t len = SL_FRAME_BYTES + SL_SEQ_BYTES + each;

    memset(share, 16 * (WITH_MANY - 1), sizeof(share));
    sl_frame_make(SL_FRAME_GATHER, SL_SEQ_BYTES + each, share);
    sl_put(share + SL_FRAME_BYTES, 1, SL_SEQ_BYTES);
    assert_int_equal(send(fd, share, len, 0), (ssize_t)len);
}

/* Walks over the pieces of a result. Returns where a farewell stands behind them, or len; fails
 * when one stands anywhere else. */
static size_t find_farewell(const uint8_t *bytes, size_t len)
{
    uint8_t failed[SL_FRAME_BYTES];
    struct sl_frame frame = {.kind = SL_FRAME_RESULT};
    size_t at = 0;

    while (at + SL_FRAME_BYTES <= len) {
        assert_int_equal(sl_frame_parse(bytes + at, &frame), 0);
        if (frame.kind == SL_FRAME_FAILED)
            break;
        assert_int_equal(frame.kind, SL_FRAME_RESULT);
        at += SL_FRAME_BYTES + frame.len;
    }
    at = at < len ? at : len;
    sl_frame_make(SL_FRAME_FAILED, 0, failed);
    assert_null(memmem(bytes, at, failed, 8));
    return at;
}

/* A rank that has read half a piece would take a farewell for the other half. */
static void a_piece_is_not_followed_by_a_farewell_in_its_middle(void **state)
{
    static uint8_t bytes[PIECES_MAX];
    struct sl_frame frame;

    (void)state;
    prepare(WITH_MANY, 2500, ""); /* all others are through by then, on a busy machine too */
    for (int i = 0; i < WITH_MANY; i++)
        actors[i].len = LEN_MAX;
    for (int i = 0; i < WITH_MANY - 1; i++)
        go(i);
    /* a unix socket: how much fits is the same everywhere */
    int fd = join_by_hand(knock_nearby(), WITH_MANY);
    seat_by_hand(fd);
    give_by_hand(fd, LEN_MAX);
    for (int i = 1; i < WITH_MANY - 1; i++)
        wait_for(i); /* the others have been told; its own turn, the last, goes on for a second */
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    size_t at = find_farewell(bytes, len);
    if (at < len) { /* the piece was ended in time */
        assert_int_equal(sl_frame_parse(bytes + at, &frame), 0);
        assert_int_equal(at + SL_FRAME_BYTES + frame.len, len);
    }
    wait_for(0);
    assert_int_equal(actors[0].err, -ETIMEDOUT);
    assert_non_null(strstr(actors[0].why, "no result could be sent to rank 7"));
    close(fd);
}

/* How many bytes a unix socket takes at once until it is full. */
static size_t bytes_to_fill(void)
{
    socklen_t room_len = sizeof(int);
    int pair[2], room;
    uint8_t *bytes;
    ssize_t took;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(getsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, &room_len), 0);
    bytes = calloc(2, (size_t)room);
    assert_non_null(bytes);
    took = send(pair[0], bytes, 2 * (size_t)room, 0);
    assert_true(took > 0 && took < 2 * room);
    free(bytes);
    close(pair[0]);
    close(pair[1]);
    return (size_t)took;
}

/* Its socket is full of a result that it has not read, and that is whole: the farewell waits for a
 * place. */
static void hear_late(size_t each)
{
    static uint8_t bytes[PIECES_MAX];
    char text[SL_SENTENCE_MAX + 1];
    struct sl_frame frame;
    int code;

    prepare(WITH_MANY, 20000, "");
    for (int i = 0; i < WITH_MANY; i++)
        actors[i].len = each;
    actors[5].leave_early = true;
    for (int i = 0; i < WITH_MANY - 1; i++)
        go(i);
    int fd = join_by_hand(knock_nearby(), WITH_MANY);
    seat_by_hand(fd);
    give_by_hand(fd, each);
    for (int i = 1; i < WITH_MANY - 1; i++)
        wait_for(i); /* the others have been told; its own turn, the last, goes on for a second */
    size_t len = read_to_end(fd, bytes, sizeof(bytes));
    size_t at = find_farewell(bytes, len);
    assert_true(len > at + SL_FRAME_BYTES);
    assert_int_equal(sl_frame_parse(bytes + at, &frame), 0);
    assert_int_equal(at + SL_FRAME_BYTES + frame.len, len);
    assert_int_equal(sl_sentence_parse(0, bytes + at + SL_FRAME_BYTES, frame.len, &code, text), 0);
    assert_int_equal(code, -ECONNRESET);
    assert_non_null(strstr(text, "rank 5 went away during exchange 2"));
    close(fd);
    wait_for(0);
    assert_int_equal(actors[0].err, -ECONNRESET);
}

static void a_rank_that_reads_late_hears_why_the_job_has_ended(void **state)
{
    size_t each = bytes_to_fill() / (WITH_MANY - 1) - SL_FRAME_BYTES - SL_SEQ_BYTES;

    (void)state;
    if (each > LEN_MAX || each <= SL_PIECE_BYTES) {
        print_message("skipped: unix sockets take more here than a result of this test has\n");
        skip();
    }
    hear_late(each);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_every_share),
        cmocka_unit_test(who_met_by_the_unix_socket_knows_that_it_is_on_this_host),
        cmocka_unit_test(shares_may_be_empty_or_larger_than_socket_buffers),
        cmocka_unit_test(a_late_rank_0_is_waited_for),
        cmocka_unit_test(ranks_that_do_not_come_are_named_on_every_rank),
        cmocka_unit_test(a_rank_0_that_does_not_exist_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named_on_every_rank),
        cmocka_unit_test(a_rank_0_that_leaves_is_named_by_the_others),
        cmocka_unit_test(different_lengths_are_named_on_every_rank),
        cmocka_unit_test(few_descriptors_are_enough),
        cmocka_unit_test(a_rank_at_another_exchange_ends_the_job),
        cmocka_unit_test(a_rank_that_leaves_while_others_are_awaited_is_named),
        cmocka_unit_test(a_first_exchange_may_follow_a_long_wait_for_ranks),
        cmocka_unit_test(a_rank_0_that_comes_very_late_is_found_at_once),
        cmocka_unit_test(who_took_the_whole_timeout_to_connect_is_waited_for),
        cmocka_unit_test(a_late_rank_hears_why_the_job_has_ended),
        cmocka_unit_test(a_piece_is_not_followed_by_a_farewell_in_its_middle),
        cmocka_unit_test(a_rank_that_reads_late_hears_why_the_job_has_ended),
        cmocka_unit_test(ranks_in_lists_are_joined_to_ranges),
        cmocka_unit_test(a_list_of_too_many_ranks_ends_with_dots),
        cmocka_unit_test(a_rank_that_is_alone_meets_nowhere),
    };

    sl_log_set_sink(meeting_log, NULL);
    return cmocka_run_group_tests_name("rendezvous", tests, NULL, NULL);
}
