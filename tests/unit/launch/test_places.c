/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks meet: several places beside each other, and what a place is called. */
#include "meeting.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/netif.h"
#include "launch/launch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include "tests/util/dead_place.h"

/* ---- places beside each other ---- */

/* Rank 0 at the second of two addresses, which have one port: rank 1 begins at 127.0.0.2. With its
 * secret, so that TCP is tried on this host, too; the unix socket is nobody's. */
static struct sl_card two_places;

static void prepare_second_of_two(uint64_t timeout_ms)
{
    static struct sl_address v4;

    prepare(2, timeout_ms, "secret");
    close(actors[0].listeners.nearby);
    actors[0].listeners.has_nearby = false;
    v4 = (struct sl_address){.len = sizeof(struct sockaddr_in)};
    *(struct sockaddr_in *)&v4.any =
        (struct sockaddr_in){.sin_family = AF_INET,
                             .sin_port = htons(actors[0].listeners.port),
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
    assert_int_equal(bind(fd, (struct sockaddr *)&two_places.place[0].any, two_places.place[0].len),
                     0);
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

static void a_dead_first_place_costs_a_moment(void **state)
{
    struct dead_place dead;

    (void)state;
    prepare_second_of_two(20000);
    dead_place_open(&dead, &two_places.place[0].any, two_places.place[0].len);
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

static atomic_uint dials;

int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    atomic_fetch_add(&dials, addr->sa_family == AF_INET);
    return __real_connect(fd, addr, len);
}

/* Nothing but the clock ends a try at the only place: after five seconds the next one begins. */
static void a_dead_only_place_is_named(void **state)
{
    struct dead_place dead;

    (void)state;
    prepare_second_of_two(7000);
    sl_listeners_close(&actors[0].listeners);
    if (!find_own_address(&two_places.place[0]))
        skip();
    struct sockaddr_in *only = (struct sockaddr_in *)&two_places.place[0].any;
    only->sin_port = 0;
    two_places.count = 1;
    dead_place_open(&dead, only, two_places.place[0].len);
    two_places.port = ntohs(only->sin_port);
    atomic_store(&dials, 0);
    go(1);
    wait_for(1);
    dead_place_close(&dead);
    assert_int_equal(actors[1].err, -ETIMEDOUT);
    if (strstr(actors[1].why, "the last try: connecting to ") == NULL)
        fail_msg("%s", actors[1].why);
    assert_true(atomic_load(&dials) >= 2);
}

static int say(int fd, enum sl_frame_kind kind, const void *body, size_t len)
{
    uint8_t bytes[SL_FRAME_BYTES + 4 + SL_SENTENCE_MAX];

    sl_frame_make(kind, len, bytes);
    memcpy(bytes + SL_FRAME_BYTES, body, len);
    return send(fd, bytes, SL_FRAME_BYTES + len, MSG_NOSIGNAL) > 0 ? 0 : -1;
}

/* Whoever holds the first place. Ends when its socket is shut. */
enum imposture {
    REFUSES,
    WELCOMES /* without the proof */,
    MUMBLES /* a refusal without a sentence */,
    IMPOSTURES
};

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
        assert_true(impostor.heard >= 3 &&
                    impostor.heard <= 12); /* 10, 20, 40 ms ... between tries */
    }
}

/* ---- what a place is called ---- */

static void a_root_is_parsed_or_says_what_is_wrong(void **state)
{
    static const char *const bad[] = {"",           "host",      ":1",         "host:", "host:0",
                                      "host:65536", "host:1x",   "fe80::1:80", "[::1]", "[::1]80",
                                      "[::1:80",    "h:65535+1", "h:80+16",    "h:80+"};
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
    assert_true(sl_sockaddr_loopback(&back.place[0].any));
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
    return sl_sockaddr_loopback(&address->any);
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

            assert_int_equal(
                getsockname(listeners.fd[i], (struct sockaddr *)&address.any, &address.len), 0);
            sl_address_text(&address, text);
            if (!is_told(&card, &address))
                fail_msg("it listens at %s", text);
        }
        for (unsigned i = 0; i < card.count; i++) {
            int fd = socket(card.place[i].any.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

            assert_int_equal(connect(fd, (struct sockaddr *)&card.place[i].any, card.place[i].len),
                             0);
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
    for (int attempt = 0; attempt < 20 && err != 0;
         attempt++) { /* another program may take it meanwhile */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_place_that_says_nothing_costs_a_moment),
        cmocka_unit_test(a_dead_first_place_costs_a_moment),
        cmocka_unit_test(a_dead_only_place_is_named),
        cmocka_unit_test(who_cannot_prove_himself_is_passed_by),
        cmocka_unit_test(an_unproved_refusal_is_called_that),
        cmocka_unit_test(a_root_is_parsed_or_says_what_is_wrong),
        cmocka_unit_test(a_unique_id_carries_place_and_secret_and_notices_damage),
        cmocka_unit_test(a_published_place_listens_where_its_card_tells_and_on_loopback),
        cmocka_unit_test(a_place_that_is_not_usable_yet_is_not_published),
        cmocka_unit_test(a_range_of_ports_is_searched_whole_and_not_left),
        cmocka_unit_test(a_root_of_another_address_keeps_its_port),
    };

    sl_log_set_sink(meeting_log, NULL);
    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
