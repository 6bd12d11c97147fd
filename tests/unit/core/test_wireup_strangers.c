/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at the door of wire-up: they are shown out, and keep nobody out. */
#include "wire_case.h"

#include "core/err.h"
#include "core/host.h"
#include "core/wireup_addr.h"
#include "core/wireup_link.h"
#include "core/wireup_word.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CROWD 140 /* more than may be pending */

static bool another_user; /* at the other end of each unix socket */

bool __real_sl_host_same_user(int fd, struct ucred *peer);
bool __wrap_sl_host_same_user(int fd, struct ucred *peer);

bool __wrap_sl_host_same_user(int fd, struct ucred *peer)
{
    return __real_sl_host_same_user(fd, peer) && !another_user;
}

static int knock(uint32_t rank)
{
    struct sockaddr_un name;
    socklen_t len;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(sl_wireup_local_name(addrs[rank].id, &name, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, len), 0);
    return fd;
}

/* Who knows two ids can take a rank's place where there is no secret. */
static void names_of_sockets_do_not_tell_ids(void **state)
{
    char line[512], id[2 * SL_WIREUP_ID_BYTES + 1] = "";
    FILE *file = fopen("/proc/net/unix", "re");
    unsigned sockets = 0;

    (void)state;
    assert_non_null(file);
    for (unsigned i = 0; i < SL_WIREUP_ID_BYTES; i++)
        snprintf(id + 2 * i, 3, "%02x", addrs[0].id[i]);
    while (fgets(line, sizeof(line), file) != NULL) {
        sockets += strstr(line, "@sluice-wireup-") != NULL;
        assert_null(strstr(line, id));
    }
    fclose(file);
    assert_true(sockets >= RANKS);
}

static void send_word(int fd, const struct sl_wireup_word *word)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX];
    size_t len = sl_wireup_word_encode(word, bytes);

    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* What was said last, before the end: its kind; 0: nothing. */
static int heard_last(int fd, struct sl_wireup_word *out)
{
    uint8_t bytes[1024];
    ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
    size_t at = 0, len = got > 0 ? (size_t)got : 0;
    int kind = 0;

    while (at < len) {
        int word = sl_wireup_word_length(bytes + at, len - at, false);

        assert_true(word > 0 && at + (size_t)word <= len);
        assert_int_equal(sl_wireup_word_decode(bytes + at, (size_t)word, out), 0);
        kind = (int)out->kind;
        at += (size_t)word;
    }
    return kind;
}

/* Until it answers that. */
static void wait_for(int fd, int kind, struct sl_wireup_word *out)
{
    char byte;

    PUMP_UNTIL(10, recv(fd, &byte, 1, MSG_PEEK) == 1);
    assert_int_equal(heard_last(fd, out), kind);
}

static bool is_over(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

/* Of rank 1 to rank 0, all right. */
static struct sl_wireup_word good_hello(void)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_HELLO};

    word.hello = (struct sl_wireup_hello){
        .version = SL_WIREUP_VERSION, .from = 1, .to = 0, .transports = 3, .group = 99};
    memcpy(word.hello.from_id, addrs[1].id, sizeof(word.hello.from_id));
    memcpy(word.hello.to_id, addrs[0].id, sizeof(word.hello.to_id));
    return word;
}

static void check_refused(const struct sl_wireup_word *word, int code, const char *why)
{
    struct sl_wireup_word answer = {.kind = SL_WIREUP_HELLO};
    int fd = knock(0);

    send_word(fd, word);
    wait_for(fd, SL_WIREUP_REFUSE, &answer);
    assert_int_equal(answer.code, code);
    assert_non_null(strstr(answer.text, why));
    assert_true(is_over(fd) && idle());
    close(fd);
}

static void a_wrong_hello_is_refused_at_once(void **state)
{
    struct sl_wireup_word word = good_hello();

    (void)state;
    word.hello.version++;
    check_refused(&word, -EPROTO, "another version");
    word = good_hello();
    word.hello.to_id[3] ^= 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.from_id[15] ^= 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.from = RANKS;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.to = 1;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word = good_hello();
    word.hello.group = 98;
    check_refused(&word, -ECONNREFUSED, "somebody else");
    word.kind = SL_WIREUP_UP;
    check_refused(&word, -EPROTO, "does not begin with a hello");
}

static void garbage_is_shown_out_at_once(void **state)
{
    int fd = knock(0);

    (void)state;
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    PUMP_UNTIL(1, is_over(fd));
    assert_true(idle());
    close(fd);
}

static void who_cannot_prove_it_is_refused(void **state)
{
    struct sl_wireup_word word = good_hello();
    int fd = knock(0);

    (void)state;
    send_word(fd, &word);
    wait_for(fd, SL_WIREUP_CHALLENGE, &word);
    memset(&word, 0, sizeof(word));
    word.kind = SL_WIREUP_PROOF;
    send_word(fd, &word);
    wait_for(fd, SL_WIREUP_REFUSE, &word);
    assert_non_null(strstr(word.text, "cannot prove"));
    assert_int_equal(sides[0].ups + sides[0].failures, 0);
    close(fd);
}

static void a_rank_with_another_key_is_not_connected(void **state)
{
    (void)state;
    sides[1].worker.has_session = true;
    memset(sides[1].worker.session, 7, sizeof(sides[1].worker.session));
    connect_one(1, 0, false);
    PUMP_UNTIL(SECOND_MS, sides[1].failures == 1);
    assert_int_equal(ep_count(), 0);
    assert_int_equal(sides[0].ups + sides[0].failures, 0);
    PUMP_UNTIL(10, idle());
}

static void ranks_with_one_key_connect(void **state)
{
    (void)state;
    for (unsigned r = 0; r < 2; r++) {
        sides[r].worker.has_session = true;
        memset(sides[r].worker.session, 7, sizeof(sides[r].worker.session));
    }
    check_connects(1, 0);
}

/* One has heard everything of a connection, and says it again. */
static void another_user_of_this_host_is_shown_out(void **state)
{
    int fd;

    (void)state;
    another_user = true;
    fd = knock(0);
    PUMP_UNTIL(10, is_over(fd));
    another_user = false;
    close(fd);
}

static void a_name_that_another_user_has_is_not_believed(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    another_user = true;
    connect_one(0, 1, false);
    while (sides[0].failures == 0 && now_ns < began_ns + 2 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    another_user = false;
    if (strstr(sides[0].why, "has its name, not one of user") == NULL)
        fail_msg("%s", sides[0].why);
}

static void who_is_connected_is_not_connected_again(void **state)
{
    (void)state;
    check_connects(0, 1);
    connect_one(1, 0, false);
    PUMP_UNTIL(CONNECT_MS, sides[1].failures == 1);
    assert_non_null(strstr(sides[1].why, "it is connected already"));
    assert_int_equal(sides[0].ups, 1);
    assert_int_equal(ep_count(), 2);
}

/* Before its proof, and of a transport that there is not. */
static void an_offer_that_cannot_be_is_refused(void **state)
{
    static const uint8_t kinds[] = {KINDS, 31, 32, 255};
    struct sl_wireup_word offer = {.kind = SL_WIREUP_OFFER};
    struct sl_wireup_link *link;

    (void)state;
    connect_one(0, 1, false);
    link = sl_wireup_link_find(sides[0].wireup, 1, NULL);
    for (int i = 0; i < 1000 && link->pipe == NULL; i++) { /* rank 1 does not move */
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    assert_non_null(link->pipe);
    assert_int_equal(sl_wireup_dial_word(link, &offer), -EPROTO);
    assert_int_equal(ep_count(), 0);
    link->sealed = true;
    for (unsigned i = 0; i < sizeof(kinds); i++) {
        offer.transport = kinds[i];
        assert_int_equal(sl_wireup_dial_word(link, &offer), -EPROTO);
    }
    assert_int_equal(ep_count(), 0);
    link->sealed = false;
}

static void a_recorded_proof_is_worth_nothing(void **state)
{
    struct sl_wireup_word hello = good_hello(), word, proof = {.kind = SL_WIREUP_PROOF};
    uint8_t key[SL_DIGEST_BYTES];
    int first = knock(0), again = knock(0);

    (void)state;
    send_word(first, &hello);
    wait_for(first, SL_WIREUP_CHALLENGE, &word);
    assert_int_equal(sl_wireup_key(NULL, &hello.hello, key), 0);
    assert_int_equal(sl_wireup_proof(key, false, &hello.hello, word.nonce, proof.proof), 0);
    send_word(again, &hello);
    wait_for(again, SL_WIREUP_CHALLENGE, &word);
    send_word(again, &proof);
    wait_for(again, SL_WIREUP_REFUSE, &word);
    assert_int_equal(ep_count(), 0);
    send_word(first, &proof); /* whose nonce it answers: this one is taken for rank 1 */
    PUMP_UNTIL(10, ep_count() == 1);
    close(first);
    close(again);
    PUMP_UNTIL(10, idle());
    assert_int_equal(ep_count(), 0);
}

static void silence_is_shown_out_after_its_time(void **state)
{
    uint64_t began_ns = now_ns;
    int fd = knock(0);

    (void)state;
    PUMP_UNTIL(10, sl_wireup_busy(sides[0].wireup) == 1);
    PUMP_UNTIL(6 * SECOND_MS, is_over(fd));
    assert_true(now_ns - began_ns >= 4 * SL_NS_PER_S);
    assert_true(idle());
    close(fd);
}

static void a_silent_crowd_does_not_keep_a_peer_out(void **state)
{
    int fds[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++)
        fds[i] = knock(0);
    pump();
    assert_true(sl_wireup_busy(sides[0].wireup) >= 64);
    connect_one(1, 0, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
    PUMP_UNTIL(SECOND_MS, idle());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(names_of_sockets_do_not_tell_ids),
        CASE(a_wrong_hello_is_refused_at_once),
        CASE(garbage_is_shown_out_at_once),
        CASE(who_cannot_prove_it_is_refused),
        CASE(a_rank_with_another_key_is_not_connected),
        CASE(ranks_with_one_key_connect),
        CASE(another_user_of_this_host_is_shown_out),
        CASE(a_name_that_another_user_has_is_not_believed),
        CASE(who_is_connected_is_not_connected_again),
        CASE(an_offer_that_cannot_be_is_refused),
        CASE(a_recorded_proof_is_worth_nothing),
        CASE(silence_is_shown_out_after_its_time),
        CASE(a_silent_crowd_does_not_keep_a_peer_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
