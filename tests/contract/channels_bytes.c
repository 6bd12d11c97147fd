/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: bytes moved on each channel of an endpoint. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/channels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

#define A UINT32_C(3)
#define B UINT32_C(12)
#define LONG ((size_t)16 << 20)

static uint64_t bytes_on(const struct pair *p, unsigned side, uint32_t channel)
{
    return contract_ops->channel_traffic(p->side[side].ep, channel);
}

static void check_bytes(const struct pair *p, uint32_t channel, uint64_t bytes)
{
    for (unsigned s = 0; s < 2; s++)
        if (bytes_on(p, s, channel) != bytes)
            fail_msg("side %u has moved %llu bytes on channel %u, not %llu", s,
                     (unsigned long long)bytes_on(p, s, channel), channel,
                     (unsigned long long)bytes);
}

static void open_pair(struct pair *p)
{
    pair_connect(p);
    channel_open_both(p, A);
    channel_open_both(p, B);
}

static void finish(struct pair *p, struct msg *send, struct msg *recv)
{
    PUMP_UNTIL(p, send->ended && recv->ended);
    msg_check_ended(send, 0);
    msg_check_received(recv);
    msg_free(send);
    msg_free(recv);
}

/* One message from that side, received in one of the ways; before its receive, or behind it. */
static void exchange(struct pair *p, unsigned from, uint32_t channel, size_t len, unsigned way,
                     bool early)
{
    struct msg *send = msg_on(msg_send(&p->side[from], len, way), channel);
    struct msg *recv = msg_on(channel_recv(&p->side[!from], len, way, way), channel);

    if (way % 2 == 1)
        msg_register(send);
    if (!early)
        post_recv(p, recv, NULL);
    post_send(p, send, NULL);
    if (early) {
        for (unsigned i = 0; i < 20; i++)
            pair_pump(p);
        post_recv(p, recv, NULL);
    }
    finish(p, send, recv);
}

static void bytes_count_once_on_the_channel_of_their_message(void **state)
{
    static const size_t lens[] = {0, 1, 8, 40, 3000, 70000, 300001, 2u << 20};
    uint64_t on_a = 0, on_b = 0;
    struct pair p;

    (void)state;
    open_pair(&p);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++)
        for (unsigned way = 0; way < 12; way++) {
            exchange(&p, way % 2, A, lens[i], way, way >= 6);
            on_a += lens[i];
            check_bytes(&p, A, on_a);
            check_bytes(&p, B, on_b);
            if (way % 3 != 0)
                continue;
            exchange(&p, way % 2, B, lens[i], way, way >= 6);
            on_b += lens[i];
            check_bytes(&p, A, on_a);
            check_bytes(&p, B, on_b);
        }
    check_bytes(&p, 0, 0);
    pair_close(&p);
}

/* A message of A comes before its receive, and is let in by a receive of B. */
static void bytes_of_a_kept_message_count_on_its_channel(void **state)
{
    static const size_t lens[] = {24, 9000, 2u << 20};
    uint64_t on_a = 0, on_b = 0;
    struct pair p;

    (void)state;
    open_pair(&p);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
        struct msg *send = msg_on(msg_send(&p.side[0], lens[i], 1), A);
        struct msg *recv = msg_on(msg_recv(&p.side[1], lens[i], 1), A);
        struct msg *b_send = msg_on(msg_send(&p.side[0], 10, 2), B);
        struct msg *b_recv = msg_on(msg_recv(&p.side[1], 10, 2), B);

        post_recv(&p, b_recv, NULL);
        post_send(&p, send, NULL);
        post_send(&p, b_send, NULL);
        finish(&p, b_send, b_recv);
        post_recv(&p, recv, NULL);
        finish(&p, send, recv);
        on_a += lens[i];
        on_b += 10;
        check_bytes(&p, A, on_a);
        check_bytes(&p, B, on_b);
    }
    check_bytes(&p, 0, 0);
    pair_close(&p);
}

/* What has moved of the message must have counted: what its receive got so far, and all of it at an
 * end that is over with it. */
static void check_under_way(const struct pair *p, const struct msg *send, const struct msg *recv,
                            uint64_t before[2])
{
    for (unsigned s = 0; s < 2; s++) {
        uint64_t now = bytes_on(p, s, A);

        assert_true(now >= before[s] && now <= LONG);
        before[s] = now;
        assert_int_equal(bytes_on(p, s, B), 0);
        assert_int_equal(bytes_on(p, s, 0), 0);
    }
    if (before[1] < recv->taken)
        fail_msg("%zu bytes of a message are received, of which %llu count", recv->taken,
                 (unsigned long long)before[1]);
    assert_true(!send->ended || before[0] == LONG);
    assert_true(!recv->ended || before[1] == LONG);
}

static void long_message(bool registered)
{
    struct msg *wait[2], *send, *recv;
    uint64_t bytes[2] = {0};
    struct pair p;

    open_pair(&p);
    for (unsigned s = 0; s < 2; s++) {
        wait[s] = msg_on(msg_recv(&p.side[s], 10, 9), B);
        post_recv(&p, wait[s], NULL);
    }
    send = msg_on(msg_send(&p.side[0], LONG, 5), A);
    recv = msg_on(msg_consume(&p.side[1], LONG, 5, 8, registered), A);
    if (registered) {
        msg_register(send);
        msg_register(recv);
    }
    post_recv(&p, recv, NULL);
    post_send(&p, send, NULL);
    PUMP_UNTIL(&p, send->ended && recv->ended)
    check_under_way(&p, send, recv, bytes);
    check_under_way(&p, send, recv, bytes);
    finish(&p, send, recv);
    for (unsigned s = 0; s < 2; s++) {
        send = msg_on(msg_send(&p.side[!s], 10, 9), B);
        post_send(&p, send, NULL);
        finish(&p, send, wait[s]);
    }
    check_bytes(&p, A, LONG);
    check_bytes(&p, B, 20);
    pair_close(&p);
}

static void bytes_of_a_message_under_way_count(void **state)
{
    (void)state;
    long_message(false);
    long_message(true);
}

/* A channel that nobody knows has moved nothing; nor one that is over. */
static void an_unknown_channel_has_moved_nothing(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p);
    assert_int_equal(bytes_on(&p, 0, 99), 0);
    exchange(&p, 0, A, 5000, 0, false);
    contract_ops->channel_close(p.side[0].ep, A);
    contract_ops->channel_close(p.side[1].ep, A);
    PUMP_UNTIL(&p, bytes_on(&p, 0, A) == 0 && bytes_on(&p, 1, A) == 0);
    pair_close(&p);
}

int contract_channels_bytes_cases(void)
{
    static const struct contract_case cases[] = {
        {SL_CAP_CHANNELS, cmocka_unit_test(bytes_count_once_on_the_channel_of_their_message)},
        {SL_CAP_CHANNELS, cmocka_unit_test(bytes_of_a_kept_message_count_on_its_channel)},
        {SL_CAP_CHANNELS, cmocka_unit_test(bytes_of_a_message_under_way_count)},
        {SL_CAP_CHANNELS, cmocka_unit_test(an_unknown_channel_has_moved_nothing)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
