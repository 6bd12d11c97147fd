/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints that come about from either side, from both, by another transport, or not. */
#include "wire_case.h"

#include "core/err.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t send_most; /* bytes of one send(); 0: all */

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    return __real_send(fd, bytes, send_most != 0 && len > send_most ? send_most : len, flags);
}

/* ---- endpoints ---- */

static void an_endpoint_comes_about_from_the_lower_rank(void **state)
{
    (void)state;
    check_connects(0, 1);
}

static void an_endpoint_comes_about_from_the_higher_rank(void **state)
{
    (void)state;
    check_connects(1, 0);
}

static void words_leave_in_pieces_and_arrive_whole(void **state)
{
    (void)state;
    send_most = 7;
    check_connects(0, 1);
    send_most = 0;
}

static void all_pairs_connect_at_once(void **state)
{
    (void)state;
    for (uint32_t a = 0; a < RANKS; a++)
        for (uint32_t b = 0; b < RANKS; b++)
            if (a != b)
                connect_one(a, b, false);
    PUMP_UNTIL(CONNECT_MS, idle());
    assert_int_equal(ep_count(), RANKS * (RANKS - 1));
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(sides[r].ups, RANKS - 1);
        assert_int_equal(sides[r].failures, 0);
    }
}

/* Whoever moves when, and however far apart they begin. */
static void two_that_dial_each_other_get_one_endpoint_each(void **state)
{
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 11);
    for (unsigned round = 0; round < 400; round++) {
        unsigned first = (unsigned)sl_rng_u64(&rng) & 1, later = (unsigned)sl_rng_u64(&rng) % 800;
        unsigned ticks = 0;

        connect_one(first, !first, false);
        for (; !idle() || ticks <= later; ticks++) {
            if (ticks == later && sides[!first].eps[first] == NULL)
                connect_one(!first, first, false);
            for (uint64_t turns = sl_rng_u64(&rng) % 8; turns > 0; turns--)
                pump_one(&sides[sl_rng_u64(&rng) & 1]);
            now_ns += TICK_NS;
            assert_true(ticks < 100000);
        }
        assert_true(are_connected(&sides[0], &sides[1]));
        assert_int_equal(ep_count(), 2);
        assert_int_equal(sides[0].failures + sides[1].failures, 0);
        for (unsigned r = 0; r < 2; r++) {
            sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
            sides[r].eps[!r] = NULL;
            sides[r].ups = 0;
        }
    }
}

static void later(uint64_t ms)
{
    now_ns += ms * SL_NS_PER_MS;
    pump_one(&sides[0]);
}

static bool has_dialed(uint32_t from, uint32_t to)
{
    return sl_wireup_at(sides[from].wireup, to)[0] != '\0';
}

static void the_lower_rank_does_not_dial_while_others_dials_come_in(void **state)
{
    (void)state;
    connect_one(0, 1, false);
    connect_one(0, 2, false);
    connect_one(2, 0, false);
    pump_one(&sides[2]);
    later(30); /* which lets the third one in */
    assert_false(has_dialed(0, 1));
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 2 && idle());
}

/* Ranks that share its core have had no turn meanwhile. */
static void the_lower_rank_polls_some_times_before_it_dials(void **state)
{
    (void)state;
    connect_one(0, 1, false);
    connect_one(0, 2, false);
    later(50);
    later(50);
    assert_false(has_dialed(0, 1) || has_dialed(0, 2));
    for (unsigned polls = 0; polls < 4; polls++)
        later(50);
    assert_true(has_dialed(0, 1) && has_dialed(0, 2));
    PUMP_UNTIL(CONNECT_MS, sides[0].ups == 2 && idle());
}

/* ---- transports ---- */

static void check_second(unsigned at, enum fault fault, uint32_t from)
{
    sides[at].faults[0] = fault;
    connect_one(from, !from, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]) && idle());
    assert_int_equal(transport_of(&sides[0], 1), 1);
    assert_int_equal(transport_of(&sides[1], 0), 1);
    assert_int_equal(ep_count(), 2);
    for (unsigned r = 0; r < 2; r++) {
        sides[r].eps[!r]->iface->ops->ep_destroy(sides[r].eps[!r]);
        sides[r].eps[!r] = NULL;
        sides[r].ups = 0;
        sides[r].faults[0] = WORKS;
    }
}

static void the_second_transport_is_used_where_the_first_fails(void **state)
{
    (void)state;
    for (enum fault fault = NO_CREATE; fault <= LOST; fault++)
        for (unsigned at = 0; at < 2; at++)
            for (uint32_t from = 0; from < 2; from++)
                check_second(at, fault, from);
}

static void a_transport_that_one_side_lacks_is_not_tried(void **state)
{
    (void)state;
    sides[1].candidates = 2;
    connect_one(0, 1, false);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
    assert_int_equal(transport_of(&sides[0], 1), 1);
}

/* Faults at either side or both; both owners hear of both transports. */
static void without_a_transport_both_owners_hear_why(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 8; bits++) {
        uint32_t from = bits & 1;

        sides[bits >> 1 & 1].faults[0] = NO_LINK;
        sides[bits >> 2 & 1].faults[1] = NO_CONNECT;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        for (unsigned r = 0; r < 2; r++) {
            assert_int_equal(sides[r].err, -EHOSTUNREACH);
            assert_non_null(strstr(sides[r].why, "first: the cable is cut"));
            assert_non_null(strstr(sides[r].why, "second: its address is no address"));
            sides[r].failures = 0;
            memset(sides[r].faults, 0, sizeof(sides[r].faults));
        }
        assert_int_equal(ep_count(), 0);
    }
}

/* Both at the acceptor, both at the dialer, and one at each. */
static void reasons_of_any_length_reach_both_owners_whole(void **state)
{
    char want[SL_ERROR_TEXT_MAX];

    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[0] = '<', long_text[sizeof(long_text) - 2] = '>';
    snprintf(want, sizeof(want), "; first: %s; second: %s", long_text, long_text);
    for (unsigned bits = 0; bits < 8; bits++) {
        uint32_t from = bits & 1;

        sides[bits >> 1 & 1].faults[0] = TALKS;
        sides[bits >> 2 & 1].faults[1] = TALKS;
        connect_one(from, !from, false);
        PUMP_UNTIL(CONNECT_MS, sides[0].failures == 1 && sides[1].failures == 1 && idle());
        for (unsigned r = 0; r < 2; r++) {
            assert_string_equal(sides[r].why, want);
            sides[r].failures = 0;
            memset(sides[r].faults, 0, sizeof(sides[r].faults));
        }
    }
}

/* ---- peers that are not there ---- */

static void a_peer_that_has_closed_is_refused_at_once(void **state)
{
    uint64_t began_ns = now_ns;

    (void)state;
    side_close(&sides[1]);
    connect_one(0, 1, true);
    PUMP_UNTIL(SECOND_MS, sides[0].failures == 1);
    assert_int_equal(sides[0].err, -ECONNREFUSED);
    assert_true(now_ns - began_ns < 200 * SL_NS_PER_MS);
    assert_true(idle());
}

static void turn(struct side *side)
{
    now_ns += TICK_NS;
    pump_one(side);
}

/* The peer gives up and hangs up while its offer is on its way: what answers it finds nobody. */
static void a_refusal_is_read_though_nothing_can_be_sent_any_more(void **state)
{
    (void)state;
    sides[0].candidates = 1;
    connect_one(1, 0, false);
    for (unsigned i = 0; ep_count() == 0; i++) {
        assert_true(i < 1000);
        turn(&sides[i % 2]);
    }
    sl_wireup_lost(sides[0].wireup, 1, "the device went");
    turn(&sides[0]);
    assert_int_equal(sides[0].failures, 1);
    turn(&sides[1]);
    assert_int_equal(sides[1].failures, 1);
    assert_int_equal(sides[1].err, -EHOSTUNREACH);
    assert_string_equal(sides[1].why, "; first: the device went");
    assert_true(idle());
    assert_int_equal(ep_count(), 0);
}

static void a_silent_peer_is_given_up_by_who_is_not_patient(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    connect_one(0, 1, false);
    while (sides[0].failures == 0 && now_ns < began_ns + 2 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += SL_NS_PER_MS;
    }
    assert_int_equal(sides[0].err, -ETIMEDOUT);
    assert_true(now_ns - began_ns >= wait_ns);
    assert_non_null(strstr(sides[0].why, "it does not answer"));
}

static void a_patient_dial_waits_for_a_peer_that_computes(void **state)
{
    uint64_t wait_ns = (uint64_t)sides[0].config.connect_timeout_ms * SL_NS_PER_MS;
    uint64_t began_ns = now_ns;

    (void)state;
    connect_one(0, 1, true);
    while (now_ns < began_ns + 10 * wait_ns) {
        pump_one(&sides[0]);
        now_ns += 10 * SL_NS_PER_MS;
    }
    assert_int_equal(sides[0].failures, 0);
    PUMP_UNTIL(CONNECT_MS, are_connected(&sides[0], &sides[1]));
}

static void a_peer_that_ends_in_the_middle_is_no_longer_waited_for(void **state)
{
    (void)state;
    connect_one(1, 0, true);
    for (unsigned i = 0; i < 3; i++) {
        pump_one(&sides[1]);
        pump_one(&sides[0]);
        now_ns += TICK_NS;
    }
    side_close(&sides[0]);
    PUMP_UNTIL(SECOND_MS, sides[1].failures == 1);
    assert_int_equal(sides[1].err, -ECONNREFUSED);
}

/* The link whose failure it hears of is freed around it. */
static void a_dial_that_an_owner_begins_in_failed_goes_at_once(void **state)
{
    (void)state;
    sides[2].next = 0;
    side_close(&sides[1]);
    connect_one(2, 1, false);
    PUMP_UNTIL(SECOND_MS, sides[2].failures == 1);
    PUMP_UNTIL(5, are_connected(&sides[2], &sides[0]));
}

/* ---- listening ---- */

/* Peers know one port: half of the places would be none. */
static void a_port_that_is_taken_at_one_place_is_not_used(void **state)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    socklen_t len = sizeof(at);
    struct side *side = &sides[2];
    char range[32];

    (void)state;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        skip();
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(range, sizeof(range), "%u-%u", ntohs(at.sin6_port), ntohs(at.sin6_port));
    assert_int_equal(sl_config_set(&side->config, "PORT_RANGE", range), 0);
    side_close(side);
    assert_int_equal(sl_wireup_open(&side->worker, &sl_wire_sockets, false,
                                    &(struct sl_wireup_owner){.arg = side}, &addrs[2],
                                    &side->wireup),
                     -EADDRINUSE);
    close(fd);
}

int main(void)
{
#define TCP_CASE(name)                                                                             \
    {                                                                                              \
#name "_over_tcp", name, start, stop, &fds_before                                          \
    }
    const struct CMUnitTest tests[] = {
        CASE(an_endpoint_comes_about_from_the_lower_rank),
        CASE(an_endpoint_comes_about_from_the_higher_rank),
        TCP_CASE(an_endpoint_comes_about_from_the_higher_rank),
        CASE(words_leave_in_pieces_and_arrive_whole),
        CASE(all_pairs_connect_at_once),
        TCP_CASE(all_pairs_connect_at_once),
        CASE(two_that_dial_each_other_get_one_endpoint_each),
        CASE(the_lower_rank_does_not_dial_while_others_dials_come_in),
        CASE(the_lower_rank_polls_some_times_before_it_dials),
        CASE(the_second_transport_is_used_where_the_first_fails),
        CASE(a_transport_that_one_side_lacks_is_not_tried),
        CASE(without_a_transport_both_owners_hear_why),
        CASE(reasons_of_any_length_reach_both_owners_whole),
        CASE(a_peer_that_has_closed_is_refused_at_once),
        TCP_CASE(a_peer_that_has_closed_is_refused_at_once),
        CASE(a_refusal_is_read_though_nothing_can_be_sent_any_more),
        CASE(a_silent_peer_is_given_up_by_who_is_not_patient),
        CASE(a_patient_dial_waits_for_a_peer_that_computes),
        CASE(a_peer_that_ends_in_the_middle_is_no_longer_waited_for),
        CASE(a_dial_that_an_owner_begins_in_failed_goes_at_once),
        CASE(a_port_that_is_taken_at_one_place_is_not_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
