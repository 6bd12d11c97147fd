/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What core/transport.h promises, as cases that every transport passes, bare and under faulty.c.
 *
 * usage: contract_NAME GROUP [--faulty SEED]; main() lists the groups of cases.
 */

#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/stage.h"
#include "tests/fake/faulty.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

static struct sl_transport_ops complete;

static void endpoints_connect_and_describe_themselves(void **state)
{
    struct pair p;
    char text[80];

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < 2; i++) {
        memset(text, 0, sizeof(text));
        contract_ops->ep_describe(p.side[i].ep, text, sizeof(text));
        assert_int_not_equal(strlen(text), 0);
        memset(text, 'x', sizeof(text));
        contract_ops->ep_describe(p.side[i].ep, text, 4);
        assert_int_equal(text[4], 'x');
        assert_true(memchr(text, '\0', 4) != NULL);
    }
    pair_close(&p);
}

static void messages_of_all_sizes_arrive_in_order_both_ways(void **state)
{
    static const size_t sizes[] = {1,     0,     7,    8,      40,     48,   49,     64,    100,
                                   0,     255,   1000, 4095,   4096,   4097, 1,      16384, 65535,
                                   65536, 65537, 3,    262143, 300000, 0,    1000001};
    enum { N = SL_ARRAY_LEN(sizes) };
    struct msg *send[2][N], *recv[2][N];
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++) {
        for (unsigned s = 0; s < 2; s++) {
            recv[s][i] = msg_recv(&p.side[s], sizes[i], i * 2 + !s);
            send[s][i] = msg_send(&p.side[s], sizes[i], i * 2 + s);
            post_recv(&p, recv[s][i], NULL);
        }
        for (unsigned s = 0; s < 2; s++)
            post_send(&p, send[s][i], NULL);
    }
    for (unsigned i = 0; i < N; i++) {
        for (unsigned s = 0; s < 2; s++) {
            PUMP_UNTIL(&p, recv[s][i]->ended && send[s][i]->ended);
            msg_check_received(recv[s][i]);
            msg_check_ended(send[s][i], 0);
            msg_free(recv[s][i]);
            msg_free(send[s][i]);
        }
    }
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

static void big_messages_cross_both_ways_at_once(void **state)
{
    struct msg *send[2], *recv[2];
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned s = 0; s < 2; s++) {
        send[s] = msg_send(&p.side[s], (5u << 20) + 3 + s, 77 + s);
        recv[s] = msg_recv(&p.side[s], (5u << 20) + 4 - s, 78 - s);
        post_send(&p, send[s], NULL);
    }
    for (unsigned s = 0; s < 2; s++)
        post_recv(&p, recv[s], NULL);
    for (unsigned s = 0; s < 2; s++) {
        PUMP_UNTIL(&p, send[s]->ended && recv[s]->ended);
        msg_check_received(recv[s]);
        msg_check_ended(send[s], 0);
        msg_free(send[s]);
        msg_free(recv[s]);
    }
    pair_close(&p);
}

static void consume_gets_each_piece_once_in_order_and_in_granules(void **state)
{
    static const uint32_t granules[] = {1, 2, 4, 8};
    static const size_t counts[] = {0, 1, 5, 100, 3000, 40001, 262144};
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned g = 0; g < SL_ARRAY_LEN(granules); g++) {
        for (unsigned c = 0; c < SL_ARRAY_LEN(counts); c++) {
            size_t len = counts[c] * granules[g];
            bool with_dst = (g + c) % 2, send_first = c % 3 == 0;
            struct msg *send = msg_send(&p.side[0], len, g * 100 + c);
            struct msg *recv = msg_consume(&p.side[1], len, g * 100 + c, granules[g], with_dst);

            if (send_first)
                post_send(&p, send, NULL);
            post_recv(&p, recv, NULL);
            if (!send_first)
                post_send(&p, send, NULL);
            PUMP_UNTIL(&p, send->ended && recv->ended);
            msg_check_received(recv);
            assert_true(len == 0 || recv->pieces > 0);
            msg_free(send);
            msg_free(recv);
        }
    }
    pair_close(&p);
}

static void sends_wait_for_receives_that_come_late(void **state)
{
    enum { N = 6 };
    static const size_t sizes[N] = {16, 5000, 0, 2u << 20, 100, 70000};
    struct msg *send[N], *recv[N];
    int taken = 0;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++)
        send[i] = msg_send(&p.side[0], sizes[i], i);
    post_send(&p, send[taken++], NULL);
    while (taken < N && try_send(send[taken], NULL) >= 0)
        taken++;
    for (int i = 0; i < 200; i++)
        pair_pump(&p);
    for (unsigned i = 0; i < N; i++) {
        recv[i] = msg_recv(&p.side[1], sizes[i], i);
        post_recv(&p, recv[i], NULL);
        if ((int)i >= taken)
            post_send(&p, send[i], NULL);
    }
    for (unsigned i = 0; i < N; i++) {
        PUMP_UNTIL(&p, send[i]->ended && recv[i]->ended);
        msg_check_received(recv[i]);
        msg_free(send[i]);
        msg_free(recv[i]);
    }
    pair_close(&p);
}

/* Sends until the transport is full (or a bound), then receives all of it: nothing taken is lost,
 * nothing refused arrives. */
static void flood(size_t len, unsigned bound)
{
    struct msg **send = calloc(bound, sizeof(*send)), *recv;
    unsigned taken = 0, received = 0;
    struct pair p;
    int rc = 0;

    pair_connect(&p);
    for (; taken < bound; taken++) {
        send[taken] = msg_send(&p.side[0], len, taken);
        /* The first must get through, however long the transport says -EAGAIN. */
        if (taken == 0)
            PUMP_UNTIL(&p, (rc = try_send(send[taken], NULL)) != -EAGAIN);
        else
            for (unsigned tries = 0; tries < 50 && (rc = try_send(send[taken], NULL)) == -EAGAIN;
                 tries++)
                pair_pump(&p);
        if (rc == -EAGAIN)
            break;
        assert_true(rc >= 0);
    }
    if (taken < bound)
        msg_free(send[taken]);
    assert_true(taken > 0);
    for (; received < taken; received++) {
        recv = msg_recv(&p.side[1], len, received);
        post_recv(&p, recv, NULL);
        PUMP_UNTIL(&p, recv->ended);
        msg_check_received(recv);
        msg_free(recv);
    }
    for (unsigned i = 0; i < taken; i++) {
        PUMP_UNTIL(&p, send[i]->ended);
        msg_check_ended(send[i], 0);
        msg_free(send[i]);
    }
    free(send);
    /* It works again after having been full. */
    send = (struct msg *[]){msg_send(&p.side[0], len, 9)};
    recv = msg_recv(&p.side[1], len, 9);
    post_recv(&p, recv, NULL);
    post_send(&p, send[0], NULL);
    PUMP_UNTIL(&p, recv->ended && send[0]->ended);
    msg_check_received(recv);
    msg_free(recv);
    msg_free(send[0]);
    pair_close(&p);
}

static void a_full_queue_takes_nothing_and_recovers_with_small_messages(void **state)
{
    (void)state;
    flood(24, 20000);
}

static void a_full_queue_takes_nothing_and_recovers_with_large_messages(void **state)
{
    (void)state;
    flood(100000, 300);
}

/* Posts from the posted-th on until one is refused. Returns how many are posted then. */
static unsigned post_receives(struct msg **recv, unsigned posted, unsigned count)
{
    for (; posted < count; posted++) {
        int rc = try_recv(recv[posted], NULL);

        if (rc == -EAGAIN)
            break;
        assert_true(rc >= 0);
    }
    return posted;
}

static void many_receives_wait_at_once(void **state)
{
    enum { N = 500 };
    struct msg *recv[N] = {0}, *send[N];
    unsigned posted = 0, next = 0;
    struct pair p;
    int rc = 0;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++) {
        recv[i] = msg_recv(&p.side[1], i % 300, i);
        send[i] = msg_send(&p.side[0], i % 300, i);
    }
    post_recv(&p, recv[posted++], NULL);
    posted = post_receives(recv, posted, N);
    /* While a send waits for room, receives go on being posted: what makes room may be one of
     * them. */
    for (; next < N; next++) {
        PUMP_UNTIL(&p, (rc = try_send(send[next], NULL)) != -EAGAIN)
        posted = post_receives(recv, posted, N);
        assert_true(rc >= 0);
        posted = post_receives(recv, posted, N);
    }
    for (; posted < N; posted++)
        post_recv(&p, recv[posted], NULL);
    for (unsigned i = 0; i < N; i++) {
        PUMP_UNTIL(&p, send[i]->ended && recv[i]->ended);
        msg_check_received(recv[i]);
        msg_free(recv[i]);
        msg_free(send[i]);
    }
    pair_close(&p);
}

/* As in an allreduce in parts: what is to be reduced comes first and has no memory of its own, and
 * behind it wait many receives that have. */
static void registered_receives_leave_room_for_those_before_them(void **state)
{
    enum { N = 150, LEN = 9000 };
    struct msg *recv[N], *send[N];
    unsigned posted = 0;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++) {
        recv[i] = i < 3 ? msg_consume(&p.side[1], LEN, i, 4, false) : msg_recv(&p.side[1], LEN, i);
        send[i] = msg_send(&p.side[0], LEN, i);
        if (i >= 3)
            msg_register(recv[i]);
    }
    for (unsigned i = 0; i < 50; i++) { /* until what the receives say has arrived */
        posted = post_receives(recv, posted, N);
        pair_pump(&p);
    }
    for (unsigned i = 0; i < N; i++) {
        post_send(&p, send[i], NULL);
        PUMP_UNTIL(&p, send[i]->ended && recv[i]->ended)
        posted = post_receives(recv, posted, N);
        msg_check_received(recv[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        msg_free(recv[i]);
        msg_free(send[i]);
    }
    pair_close(&p);
}

/* A wrong message before a right one, both sizes on either side of any eager limit. */
static void mismatch(size_t send_len, size_t recv_len, uint64_t send_tag, uint64_t recv_tag,
                     int status, bool late, bool consume)
{
    struct msg *send[2], *recv[2];
    struct pair p;

    pair_connect(&p);
    send[0] = msg_send(&p.side[0], send_len, send_tag);
    send[1] = msg_send(&p.side[0], 500, 2);
    recv[0] = consume ? msg_consume(&p.side[1], recv_len, recv_tag, 4, false)
                      : msg_recv(&p.side[1], recv_len, recv_tag);
    recv[1] = msg_recv(&p.side[1], 500, 2);
    if (!late)
        post_recv(&p, recv[0], NULL);
    post_send(&p, send[0], NULL);
    for (int i = 0; late && i < 100; i++)
        pair_pump(&p);
    if (late)
        post_recv(&p, recv[0], NULL);
    PUMP_UNTIL(&p, recv[0]->ended);
    msg_check_ended(recv[0], status);
    if (status == -EPROTO)
        assert_int_equal(recv[0]->req.tag, send_tag);
    if (status == -EMSGSIZE)
        assert_int_equal(recv[0]->req.len, send_len);
    post_recv(&p, recv[1], NULL);
    post_send(&p, send[1], NULL);
    for (unsigned i = 0; i < 2; i++)
        PUMP_UNTIL(&p, send[i]->ended && recv[i]->ended);
    msg_check_received(recv[1]);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    for (unsigned i = 0; i < 2; i++) {
        msg_free(send[i]);
        msg_free(recv[i]);
    }
    pair_close(&p);
}

static void a_wrong_tag_ends_that_receive_only(void **state)
{
    (void)state;
    mismatch(32, 32, 5, 6, -EPROTO, false, false);
    mismatch(32, 32, 5, 6, -EPROTO, true, false);
    mismatch(3u << 20, 3u << 20, 5, UINT64_C(1) << 63, -EPROTO, false, false);
    mismatch(3u << 20, 3u << 20, UINT64_MAX, 6, -EPROTO, true, true);
}

static void a_wrong_length_ends_that_receive_only(void **state)
{
    (void)state;
    mismatch(32, 31, 1, 1, -EMSGSIZE, false, false);
    mismatch(31, 32, 1, 1, -EMSGSIZE, true, false);
    mismatch(0, 8, 1, 1, -EMSGSIZE, false, true);
    mismatch(8, 0, 1, 1, -EMSGSIZE, true, false);
    mismatch(2u << 20, 40, 1, 1, -EMSGSIZE, false, false);
    mismatch(40, 2u << 20, 1, 1, -EMSGSIZE, true, true);
    mismatch(2u << 20, 3u << 20, 1, 1, -EMSGSIZE, false, true);
}

static void control_passes_data_that_is_stuck(void **state)
{
    struct msg *send[8], *recv;
    unsigned taken = 0;
    uint8_t note[SL_CTRL_MAX];
    struct pair p;
    int rc = -EAGAIN;

    (void)state;
    for (size_t i = 0; i < sizeof(note); i++)
        note[i] = (uint8_t)(i * 7);
    pair_connect(&p);
    /* Nobody receives: whatever ring or socket carries data fills up. */
    for (; taken < 8; taken++) {
        send[taken] = msg_send(&p.side[0], 2u << 20, taken);
        if (try_send(send[taken], NULL) < 0)
            break;
    }
    if (taken < 8)
        msg_free(send[taken]);
    for (int i = 0; i < 500; i++)
        pair_pump(&p);
    for (unsigned len = 1; len <= SL_CTRL_MAX;
         len += len < SL_CTRL_MAX && len > 1 ? SL_CTRL_MAX - len : 1) {
        unsigned before = p.side[1].ctrls;

        PUMP_UNTIL(&p, (rc = contract_ops->ctrl(p.side[0].ep, note, len)) != -EAGAIN);
        assert_int_equal(rc, 0);
        PUMP_UNTIL(&p, p.side[1].ctrls > before);
        assert_int_equal(p.side[1].ctrls, before + 1);
        assert_ptr_equal(p.side[1].ctrl_ep, p.side[1].ep);
        assert_int_equal(p.side[1].ctrl_len, len);
        assert_memory_equal(p.side[1].ctrl, note, len);
    }
    for (unsigned i = 0; i < taken; i++) {
        recv = msg_recv(&p.side[1], 2u << 20, i);
        post_recv(&p, recv, NULL);
        PUMP_UNTIL(&p, recv->ended && send[i]->ended);
        msg_check_received(recv);
        msg_free(recv);
        msg_free(send[i]);
    }
    pair_close(&p);
}

static void control_comes_back_from_being_full(void **state)
{
    unsigned taken = 0;
    struct pair p;
    int rc = 0;

    (void)state;
    pair_connect(&p);
    /* -EAGAIN is legal at any time, so only the first must get through, however long it takes. */
    PUMP_UNTIL(&p, (rc = contract_ops->ctrl(p.side[0].ep, &taken, sizeof(taken))) != -EAGAIN);
    for (unsigned tries = 0; rc == 0 || (rc == -EAGAIN && tries < 50); tries++) {
        if (rc == 0)
            tries = 0, taken++;
        if (taken == 5000)
            break;
        rc = contract_ops->ctrl(p.side[0].ep, &taken, sizeof(taken));
    }
    assert_true(rc == 0 || rc == -EAGAIN);
    PUMP_UNTIL(&p, p.side[1].ctrls == taken);
    assert_int_equal(*(unsigned *)p.side[1].ctrl, taken - 1);
    PUMP_UNTIL(&p, (rc = contract_ops->ctrl(p.side[0].ep, "x", 1)) != -EAGAIN);
    assert_int_equal(rc, 0);
    PUMP_UNTIL(&p, p.side[1].ctrls == taken + 1);
    pair_close(&p);
}

/* A receive that posts itself again from inside done(). */
struct chain {
    struct msg *m;
    unsigned left, came;
    bool refused; /* -EAGAIN inside done(): posted again from outside */
};

static struct chain chain;

static void chain_post(void)
{
    int rc = 1;

    chain.refused = false;
    while (chain.left > 0 && rc == 1) {
        chain.m->ended = 0;
        rc = try_recv(chain.m, NULL);
        if (rc >= 0)
            chain.left--;
        if (rc == 1)
            chain.came++;
    }
    assert_true(rc >= 0 || rc == -EAGAIN);
    chain.refused = rc == -EAGAIN;
}

static void chain_again(struct msg *m)
{
    msg_check_received(m);
    chain.came++;
    chain_post();
}

static void done_may_post_the_next(void **state)
{
    enum { N = 30 };
    struct msg *send;
    struct pair p;

    (void)state;
    pair_connect(&p);
    chain = (struct chain){.m = msg_recv(&p.side[1], 70000, 4), .left = N};
    chain.m->then = chain_again;
    chain_post();
    for (unsigned i = 0; i < N; i++) {
        send = msg_send(&p.side[0], 70000, 4);
        post_send(&p, send, NULL);
        PUMP_UNTIL(&p, send->ended && chain.came == i + 1)
        if (chain.refused)
            chain_post();
        msg_free(send);
    }
    assert_int_equal(chain.left, 0);
    msg_free(chain.m);
    pair_close(&p);
}

static void several_endpoints_keep_apart(void **state)
{
    enum { E = 6, N = 12 };
    struct sl_ep *a[E], *b[E];
    struct msg *send[E][N], *recv[E][N];
    struct pair p;

    (void)state;
    pair_open(&p);
    for (unsigned e = 0; e < E; e++)
        pair_join(&p, &a[e], &b[e]);
    for (unsigned i = 0; i < N; i++) {
        for (unsigned e = 0; e < E; e++) {
            send[e][i] = msg_send(&p.side[0], i * 1000 + e, e * 100 + i);
            recv[e][i] = msg_recv(&p.side[1], i * 1000 + e, e * 100 + i);
            post_send(&p, send[e][i], a[e]);
            /* The later endpoints' receives come first: orders must not depend on each other. */
            post_recv(&p, recv[e][i], b[e]);
        }
    }
    for (unsigned e = E; e-- > 0;) {
        for (unsigned i = 0; i < N; i++) {
            PUMP_UNTIL(&p, send[e][i]->ended && recv[e][i]->ended);
            msg_check_received(recv[e][i]);
            msg_free(send[e][i]);
            msg_free(recv[e][i]);
        }
        contract_ops->ep_destroy(a[e]);
        contract_ops->ep_destroy(b[e]);
    }
    pair_close(&p);
}

static void progress_says_zero_when_there_is_nothing(void **state)
{
    unsigned zeros = 0;
    struct pair p;

    (void)state;
    pair_connect(&p);
    PUMP_UNTIL(&p, (zeros = pair_progress(&p) == 0 ? zeros + 1 : 0) >= 20);
    pair_close(&p);
}

int contract_traffic_cases(void)
{
    static const struct contract_case cases[] = {
        {0, cmocka_unit_test(endpoints_connect_and_describe_themselves)},
        {0, cmocka_unit_test(messages_of_all_sizes_arrive_in_order_both_ways)},
        {0, cmocka_unit_test(big_messages_cross_both_ways_at_once)},
        {0, cmocka_unit_test(consume_gets_each_piece_once_in_order_and_in_granules)},
        {0, cmocka_unit_test(sends_wait_for_receives_that_come_late)},
        {0, cmocka_unit_test(a_full_queue_takes_nothing_and_recovers_with_small_messages)},
        {0, cmocka_unit_test(a_full_queue_takes_nothing_and_recovers_with_large_messages)},
        {0, cmocka_unit_test(many_receives_wait_at_once)},
        {0, cmocka_unit_test(registered_receives_leave_room_for_those_before_them)},
        {0, cmocka_unit_test(a_wrong_tag_ends_that_receive_only)},
        {0, cmocka_unit_test(a_wrong_length_ends_that_receive_only)},
        {0, cmocka_unit_test(control_passes_data_that_is_stuck)},
        {0, cmocka_unit_test(control_comes_back_from_being_full)},
        {0, cmocka_unit_test(done_may_post_the_next)},
        {0, cmocka_unit_test(several_endpoints_keep_apart)},
        {0, cmocka_unit_test(progress_says_zero_when_there_is_nothing)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}

int contract_run(const struct contract_case *cases, size_t count)
{
    struct CMUnitTest chosen[32];
    size_t n = 0;
    uint32_t caps;
    struct pair p;

    pair_open(&p);
    caps = p.side[0].iface->caps | (contract_is_faulty ? CONTRACT_FAULTY : 0);
    pair_close(&p);
    sl_assert(count <= SL_ARRAY_LEN(chosen));
    for (size_t i = 0; i < count; i++)
        if ((cases[i].caps & ~caps) == 0)
            chosen[n++] = cases[i].test;
    if (n == 0)
        printf("1..0 # SKIP %s has none of these capabilities\n", contract_ops->name);
    return n == 0 ? 0 : _cmocka_run_group_tests("cases", chosen, n, NULL, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } groups[] = {
        {"traffic", contract_traffic_cases},
        {"room", contract_room_cases},
        {"life", contract_life_cases},
        {"memory", contract_memory_cases},
        {"forked", contract_forked_cases},
        {"channels", contract_channels_cases},
        {"channels_bytes", contract_channels_bytes_cases},
        {"channels_close", contract_channels_close_cases},
        {"channels_random", contract_channels_random_cases},
    };

    contract_ops = sl_transport_complete(stage_ops, &complete);
    contract_is_faulty = argc == 4 && strcmp(argv[2], "--faulty") == 0;
    if (contract_is_faulty)
        contract_ops = faulty_wrap(contract_ops, strtoull(argv[3], NULL, 0));
    else if (argc != 2)
        return 2;
    sl_assert(contract_ops->abi == SL_TRANSPORT_ABI);
    for (size_t i = 0; i < SL_ARRAY_LEN(groups); i++)
        if (strcmp(groups[i].name, argv[1]) == 0)
            return groups[i].run() != 0;
    fprintf(stderr, "no group of cases is called %s\n", argv[1]);
    return 2;
}
