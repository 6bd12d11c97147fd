/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges through the tree: of all sizes, with ranks that go, stop or never come to their places,
 * and with strangers where ranks await their children. */
#include "meeting.h"

#include "core/clock.h"
#include "core/err.h"
#include "launch/tree.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <sys/un.h>
#include <unistd.h>

static atomic_int network_listens; /* since the test has set it to 0 */

int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);

int __wrap_listen(int fd, int backlog)
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(at);

    if (getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family != AF_UNIX)
        network_listens++;
    return __real_listen(fd, backlog);
}

static void set_len(int size, size_t len)
{
    for (int i = 0; i < size; i++)
        actors[i].len = len;
}

static void trees_of_every_shape_carry_every_share(void **state)
{
    (void)state;
    for (int size = 2; size <= 40; size++) {
        prepare(size, 20000, size % 2 == 0 ? "" : "secret");
        set_len(size, size % 3 == 0 ? 3000 : 8); /* one piece, or several */
        all_act(size);
        assert_went_well(size);
    }
}

static void shares_may_be_larger_than_pieces(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        prepare(23, 20000, secret ? "secret" : "");
        set_len(23, LEN_MAX);
        all_act(23);
        assert_went_well(23);
        prepare(23, 20000, secret ? "secret" : "");
        set_len(23, 0);
        all_act(23);
        assert_went_well(23);
    }
}

/* Nobody proves a user by TCP: there has to be a secret. */
static void without_the_unix_socket(const char *secret, int size)
{
    prepare(size, 20000, secret);
    close(actors[0].listeners.nearby);
    actors[0].listeners.has_nearby = false;
}

static void ranks_that_did_not_meet_nearby_find_each_other_by_tcp(void **state)
{
    (void)state;
    without_the_unix_socket("secret", 24);
    network_listens = 0;
    set_len(24, 1000);
    all_act(24);
    assert_went_well(24);
    assert_true(network_listens > 0);
}

static void a_job_on_one_host_opens_no_tcp_port_for_the_tree(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        prepare(24, 20000, secret ? "secret" : "");
        network_listens = 0;
        all_act(24);
        assert_went_well(24);
        assert_int_equal(network_listens, 0);
    }
}

static void a_meeting_place_may_have_an_ipv6_address(void **state)
{
    static struct sl_card card;
    struct sl_root root = {.host = "::1"};
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    (void)state;
    prepare(11, 20000, "secret");
    sl_listeners_close(&actors[0].listeners);
    root.port = actors[0].root.port;
    if (sl_listen_root(&root, true, &actors[0].listeners) != 0) {
        print_message("skipped: %s\n", sluice_last_error());
        skip();
    }
    close(actors[0].listeners.nearby);
    actors[0].listeners.has_nearby = false;
    at.sin6_port = htons(root.port);
    card = (struct sl_card){.count = 1, .port = root.port};
    memcpy(&card.place[0].any, &at, sizeof(at));
    card.place[0].len = sizeof(at);
    for (int i = 1; i < 11; i++)
        actors[i].card = &card;
    all_act(11);
    assert_went_well(11);
}

/* ---- ranks that go ---- */

static void a_rank_that_leaves_anywhere_in_the_tree_is_named_by_all(void **state)
{
    char text[64];

    (void)state;
    for (int gone = 1; gone < 22; gone += 3) {
        prepare(22, 20000, "secret");
        actors[gone].leave_early = true;
        all_act(22);
        snprintf(text, sizeof(text), "rank %d went away during exchange 2", gone);
        for (int i = 0; i < 22; i++) {
            if (i == gone)
                continue;
            assert_int_equal(actors[i].err, -ECONNRESET);
            if (strstr(actors[i].why, text) == NULL)
                fail_msg("rank %d, %d being gone: %s", i, gone, actors[i].why);
        }
    }
}

static bool is_behind(int rank, int above, int size)
{
    struct sl_tree tree;

    sl_tree_make(above, size, &tree);
    return rank >= above && rank < tree.end;
}

/* Who is behind a rank that stands still hears nothing of the others' verdict. */
static void assert_named(int size, const int *silent, int count, const char *text)
{
    for (int i = 0; i < size; i++) {
        bool behind = false;

        for (int k = 0; k < count; k++)
            behind = behind || is_behind(i, silent[k], size);
        if (behind)
            continue;
        assert_int_equal(actors[i].err, -ETIMEDOUT);
        if (strstr(actors[i].why, text) == NULL)
            fail_msg("rank %d: %s", i, actors[i].why);
    }
}

static void silent_ranks_are_named_by_all_that_can_be_reached(void **state)
{
    /* 3 is a leaf below 2; 6 has children; 21 is the last leaf */
    static const int silent[] = {3, 6, 21};

    (void)state;
    prepare(22, 600, "secret");
    for (size_t k = 0; k < SL_ARRAY_LEN(silent); k++)
        actors[silent[k]].pause_ms = 4000;
    all_act(22);
    assert_named(22, silent, 3, "nothing came from rank 3, 6, 21 of 22");
    assert_named(22, silent, 3, "in exchange 2; stopped or cut off?");
}

/* A parent that comes to the exchange late itself is not taken for the rank that is missing. */
static void a_late_parent_is_not_blamed_for_its_silent_child(void **state)
{
    static const int silent[] = {3};

    (void)state;
    prepare(22, 1200, "");
    actors[2].pause_ms = 900;
    actors[3].pause_ms = 6000;
    all_act(22);
    assert_named(22, silent, 1, "nothing came from rank 3 of 22");
}

static void different_lengths_anywhere_are_named(void **state)
{
    (void)state;
    prepare(22, 20000, "");
    actors[3].len = 24; /* a leaf below 2 */
    all_act(22);
    for (int i = 0; i < 22; i++) {
        assert_int_equal(actors[i].err, -EPROTO);
        if (strstr(actors[i].why, "rank 3 gives 24 bytes to exchange 1, rank 2 gives 8") == NULL)
            fail_msg("rank %d: %s", i, actors[i].why);
    }
}

static void a_rank_that_goes_before_it_has_its_place_is_named_by_all(void **state)
{
    uint8_t parent[SL_FRAME_BYTES];

    (void)state;
    prepare(8, 20000, "");
    for (int i = 0; i < 7; i++)
        go(i);
    int fd = join_by_hand(knock_nearby(), 8);
    read_exactly(fd, parent, sizeof(parent));
    close(fd);
    for (int i = 0; i < 7; i++) {
        wait_for(i);
        if (strstr(actors[i].why, "rank 7 went away") == NULL)
            fail_msg("rank %d: %s", i, actors[i].why);
    }
}

static void a_child_that_does_not_come_to_its_parent_is_named_by_all(void **state)
{
    (void)state;
    prepare(9, 500, "");
    for (int i = 0; i < 8; i++)
        go(i);
    int fd = join_by_hand(knock_nearby(), 9); /* 8 is a child of 7 */
    for (int i = 0; i < 8; i++) {
        wait_for(i);
        assert_int_equal(actors[i].err, -ETIMEDOUT);
        if (strstr(actors[i].why, "rank 8 of 9 did not reach rank 7, its parent in the tree") ==
            NULL)
            fail_msg("rank %d: %s", i, actors[i].why);
    }
    close(fd);
}

/* ---- strangers ---- */

/* Connects to all seats of this process; returns how many. */
static int knock_at_seats(int *out, int cap)
{
    int count = 0;

    for (int fd = 0; fd < 1024 && count < cap; fd++) {
        struct sockaddr_un at = {.sun_family = AF_UNSPEC};
        socklen_t len = sizeof(at), on_len = sizeof(int);
        int listens = 0;

        if (getsockname(fd, (struct sockaddr *)&at, &len) != 0 || at.sun_family != AF_UNIX ||
            strncmp(at.sun_path + 1, "sluice-seat-", 12) != 0 ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &on_len) != 0 || !listens)
            continue;
        out[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(out[count], (struct sockaddr *)&at, len), 0);
        count++;
    }
    return count;
}

static int await_seats(int *fd, int expected)
{
    uint64_t end_ns = sl_now(&sl_clock_monotonic) + 10 * SL_NS_PER_S;
    int count = 0;

    while (sl_now(&sl_clock_monotonic) < end_ns) {
        count = knock_at_seats(fd, expected);
        if (count == expected)
            return count;
        while (count > 0)
            close(fd[--count]);
        poll(NULL, 0, 1);
    }
    return count;
}

/* 9 ranks: 1, 3, 5 and 7 have a child each. */
static void strangers_at_seats_keep_no_child_out(void **state)
{
    int silent[4], rude[4];

    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        prepare(9, 20000, secret ? "secret" : "");
        for (int i = 0; i < 8; i++)
            go(i);
        assert_int_equal(await_seats(silent, 4), 4);
        assert_int_equal(knock_at_seats(rude, 4), 4);
        for (int i = 0; i < 4; i++)
            assert_true(send(rude[i], "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) > 0);
        go(8);
        for (int i = 0; i < 9; i++)
            wait_for(i);
        assert_went_well(9);
        assert_true(said(last_refusal, "it does not speak Sluice's protocol") ||
                    said(last_refusal, "it closed the connection"));
        for (int i = 0; i < 4; i++) {
            close(silent[i]);
            close(rude[i]);
        }
    }
}

/* Answers a challenge as who knows the secret alone; false: there was none. */
static bool prove_by_secret(int fd, const struct sl_terms *terms, const struct sl_hello *hello)
{
    uint8_t bytes[SL_FRAME_BYTES + SL_NONCE_BYTES], proof[SL_FRAME_BYTES + SL_MAC_BYTES];
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_WAITALL);

    if (n != (ssize_t)sizeof(bytes) || sl_get32(bytes + 4) != SL_FRAME_CHALLENGE)
        return false;
    assert_int_equal(
        sl_proof_make(terms, false, hello, bytes + SL_FRAME_BYTES, proof + SL_FRAME_BYTES), 0);
    sl_frame_make(SL_FRAME_PROOF, SL_MAC_BYTES, proof);
    (void)!send(fd, proof, sizeof(proof), MSG_NOSIGNAL);
    return true;
}

/* Knocks at all four seats of nine ranks before their children do, as each of these. It is of the
 * right user, knows the job's name, its secret even, and whose child to be: but not the key that
 * rank 0 has made for this job. */
static void who_was_not_let_in_by_rank_0_is_no_child(void **state)
{
    static const uint8_t nonce[SL_NONCE_BYTES] = {9};
    struct sl_terms terms = {.size = 9, .secret = "secret", .secret_len = 6};
    struct sl_hello hello[4];
    int fd[16], challenged = 0;
    uint8_t bytes[1024];

    (void)state;
    prepare(9, 20000, "secret");
    for (int i = 0; i < 8; i++)
        go(i);
    assert_int_equal(await_seats(fd, 4), 4);
    for (int i = 1; i < 4; i++)
        assert_int_equal(knock_at_seats(fd + 4 * i, 4), 4);
    assert_int_equal(sl_job_hash("job", terms.job), 0);
    for (int i = 0; i < 16; i++) {
        terms.rank = 2 + 2 * (i / 4);
        sl_hello_make(&terms, nonce, &hello[i / 4]);
        assert_true(send(fd[i], hello[i / 4].bytes, SL_HELLO_BYTES, MSG_NOSIGNAL) > 0);
    }
    go(8);
    for (int i = 0; i < 16; i++) {
        terms.rank = 2 + 2 * (i / 4);
        if (!prove_by_secret(fd[i], &terms, &hello[i / 4]))
            continue;
        size_t len = read_to_end(fd[i], bytes, sizeof(bytes) - 1);
        bytes[len] = '\0';
        /* Where the child came first the door was closed, with no word. */
        assert_true(len == 0 || sl_get32(bytes + 4) == SL_FRAME_REFUSE);
        assert_true(len == 0 ||
                    strstr((char *)bytes + SL_FRAME_BYTES + 4, "has another secret") != NULL);
        challenged++;
    }
    for (int i = 0; i < 9; i++)
        wait_for(i);
    assert_went_well(9);
    assert_int_equal(challenged, 4); /* the others were told that they are no children there */
    for (int i = 0; i < 16; i++)
        close(fd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_of_every_shape_carry_every_share),
        cmocka_unit_test(shares_may_be_larger_than_pieces),
        cmocka_unit_test(ranks_that_did_not_meet_nearby_find_each_other_by_tcp),
        cmocka_unit_test(a_job_on_one_host_opens_no_tcp_port_for_the_tree),
        cmocka_unit_test(a_meeting_place_may_have_an_ipv6_address),
        cmocka_unit_test(a_rank_that_leaves_anywhere_in_the_tree_is_named_by_all),
        cmocka_unit_test(silent_ranks_are_named_by_all_that_can_be_reached),
        cmocka_unit_test(a_late_parent_is_not_blamed_for_its_silent_child),
        cmocka_unit_test(different_lengths_anywhere_are_named),
        cmocka_unit_test(a_rank_that_goes_before_it_has_its_place_is_named_by_all),
        cmocka_unit_test(a_child_that_does_not_come_to_its_parent_is_named_by_all),
        cmocka_unit_test(strangers_at_seats_keep_no_child_out),
        cmocka_unit_test(who_was_not_let_in_by_rank_0_is_no_child),
    };

    sl_log_set_sink(meeting_log, NULL);
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
