/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: channels that close, and endpoints with channels that end. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/channels.h"
#include "tests/contract/stage.h"
#include "tests/util/bytes.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

#define A UINT32_C(3)
#define B UINT32_C(12)
#define SCRIBBLE 0x5c

/* m is over, and its memory is ours again: used for something else at once. */
static void reuse(struct msg *m)
{
    assert_int_equal(m->ended, 1);
    if (m->req.status != 0 && m->req.status != -ECANCELED)
        fail_msg("a closed channel ended a message with %s", sluice_strerror(m->req.status));
    memset(m->block, SCRIBBLE, m->room + 2 * GUARD);
}

/* Nobody has touched it since. Frees it. */
static void check_untouched(struct msg *m)
{
    size_t len = m->room + 2 * GUARD, i = bytes_other(m->block, len, SCRIBBLE);

    assert_int_equal(m->ended, 1);
    if (i < len)
        fail_msg("byte %zu of %zu was written after the channel was closed", i, m->room);
    msg_free(m);
}

static void pump(struct pair *p, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++)
        pair_pump(p);
}

/* Two messages of B that cross while something happens to A. */
struct beside {
    struct msg *send[2], *recv[2];
};

static void beside_begin(struct pair *p, struct beside *b)
{
    for (unsigned s = 0; s < 2; s++) {
        b->recv[s] = msg_on(msg_recv(&p->side[!s], 1000000 + s, 5), B);
        b->send[s] = msg_on(msg_send(&p->side[s], 1000000 + s, 5), B);
        post_recv(p, b->recv[s], NULL);
    }
    for (unsigned s = 0; s < 2; s++)
        post_send(p, b->send[s], NULL);
}

static void beside_end(struct pair *p, struct beside *b)
{
    for (unsigned s = 0; s < 2; s++) {
        PUMP_UNTIL(p, b->send[s]->ended && b->recv[s]->ended);
        msg_check_ended(b->send[s], 0);
        msg_check_received(b->recv[s]);
        msg_free(b->send[s]);
        msg_free(b->recv[s]);
    }
}

static void check_afterwards(struct pair *p)
{
    channel_check_traffic(p, 0, 700, 91);
    channel_check_traffic(p, B, 200000, 92);
    channel_open_both(p, 1000);
    channel_check_traffic(p, 1000, 5000, 93);
    assert_int_equal(p->side[0].downs + p->side[1].downs, 0);
}

/* A large message of A from side 0 to side 1, smaller ones behind it, and receives that get
 * nothing; after so many rounds one of both closes A, then the other. */
static void closed_under_way(unsigned closer, unsigned rounds, bool consume)
{
    enum { N = 6 };
    const size_t big = 8u << 20;
    struct msg *send[N], *recv[N], *idle[2];
    unsigned sent = 0, received = 0;
    struct beside b;
    struct pair p;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    for (unsigned i = 0; i < 2; i++) {
        idle[i] = msg_on(msg_recv(&p.side[0], 3000, i), A);
        post_recv(&p, idle[i], NULL);
    }
    for (unsigned i = 0; i < N; i++) {
        size_t len = i == 0 ? big : i * 400;

        send[i] = msg_on(msg_send(&p.side[0], len, i), A);
        recv[i] = msg_on(consume && i == 0 ? msg_consume(&p.side[1], len, i, 4, true)
                                           : msg_recv(&p.side[1], len, i),
                         A);
        while (received == i && try_recv(recv[i], NULL) >= 0)
            received++;
        while (sent == i && try_send(send[i], NULL) >= 0)
            sent++;
    }
    beside_begin(&p, &b);
    pump(&p, rounds);
    contract_ops->channel_close(p.side[closer].ep, A);
    for (unsigned i = 0; i < sent && closer == 0; i++)
        reuse(send[i]);
    for (unsigned i = 0; i < 2 && closer == 0; i++)
        msg_check_ended(idle[i], -ECANCELED);
    for (unsigned i = 0; i < received && closer == 1; i++) {
        if (recv[i]->req.status == 0)
            msg_check_received(recv[i]);
        reuse(recv[i]);
    }
    beside_end(&p, &b);
    if (closer == 1) /* what was on its way is dropped, as if it had been received */
        for (unsigned i = 0; i < sent; i++) {
            PUMP_UNTIL(&p, send[i]->ended);
            msg_check_ended(send[i], 0);
        }
    check_afterwards(&p);
    pump(&p, 100);
    contract_ops->channel_close(p.side[!closer].ep, A);
    for (unsigned i = 0; i < 2; i++)
        msg_check_ended(idle[i], -ECANCELED);
    for (unsigned i = 0; i < sent && closer == 1; i++)
        reuse(send[i]);
    for (unsigned i = 0; i < received && closer == 0; i++) {
        if (recv[i]->ended == 1 && recv[i]->req.status == 0)
            msg_check_received(recv[i]);
        reuse(recv[i]);
    }
    pump(&p, 100);
    channel_check_traffic(&p, B, 1000, 94);
    for (unsigned i = 0; i < N; i++) {
        (i < sent ? check_untouched : msg_free)(send[i]);
        (i < received ? check_untouched : msg_free)(recv[i]);
    }
    for (unsigned i = 0; i < 2; i++)
        msg_free(idle[i]);
    pair_close(&p);
}

static const unsigned rounds_of[] = {0, 1, 2, 4, 8, 20, 60, 200};

static void the_sender_closes_a_channel_under_way(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i++)
        closed_under_way(0, rounds_of[i], i % 2);
}

static void the_receiver_closes_a_channel_under_way(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i++)
        closed_under_way(1, rounds_of[i], i % 2);
}

/* Messages without receives that a receive of channel 0 has let in, some received meanwhile; after
 * so many rounds the receiver closes the channel. */
static void closed_with_kept(size_t len, unsigned rounds)
{
    enum { N = 6, RECEIVED = 3 };
    struct msg *send[N], *recv[RECEIVED], *wait;
    unsigned sent = 0, received = 0;
    struct beside b;
    struct pair p;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    wait = msg_recv(&p.side[1], 10, 9);
    post_recv(&p, wait, NULL);
    for (unsigned i = 0; i < N; i++) {
        send[i] = msg_on(msg_send(&p.side[0], len, i), A);
        while (sent == i && try_send(send[i], NULL) >= 0)
            sent++;
    }
    pump(&p, rounds);
    for (unsigned i = 0; i < RECEIVED; i++) {
        recv[i] = msg_on(channel_recv(&p.side[1], len, i, i * 5), A);
        while (received == i && try_recv(recv[i], NULL) >= 0)
            received++;
    }
    contract_ops->channel_close(p.side[1].ep, A);
    for (unsigned i = 0; i < received; i++) {
        if (recv[i]->ended == 1 && recv[i]->req.status == 0)
            msg_check_received(recv[i]);
        reuse(recv[i]);
    }
    beside_begin(&p, &b);
    beside_end(&p, &b);
    for (unsigned i = 0; i < sent; i++) {
        PUMP_UNTIL(&p, send[i]->ended);
        msg_check_ended(send[i], 0);
    }
    for (unsigned i = 0; i < N; i++)
        msg_free(send[i]);
    send[0] = msg_send(&p.side[0], 10, 9);
    post_send(&p, send[0], NULL);
    PUMP_UNTIL(&p, wait->ended && send[0]->ended);
    msg_check_received(wait);
    check_afterwards(&p);
    contract_ops->channel_close(p.side[0].ep, A);
    pump(&p, 50);
    for (unsigned i = 0; i < RECEIVED; i++)
        (i < received ? check_untouched : msg_free)(recv[i]);
    msg_free(send[0]);
    msg_free(wait);
    pair_close(&p);
}

static void a_channel_closes_with_messages_that_nobody_received(void **state)
{
    static const size_t lens[] = {30, 120000, 2u << 20};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i += 2)
        for (unsigned k = 0; k < SL_ARRAY_LEN(lens); k++)
            closed_with_kept(lens[k], rounds_of[i]);
}

/* Which messages are the last does not matter to their arrival. */
static void what_was_sent_before_a_close_still_arrives(void **state)
{
    enum { N = 5 };
    struct msg *send[N], *recv[N];
    struct pair p;

    (void)state;
    for (unsigned late = 0; late < 3; late++) {
        pair_connect(&p);
        channel_open(&p, 0, A);
        channel_open_both(&p, B);
        if (late < 2)
            channel_open(&p, 1, A);
        for (unsigned i = 0; i < N; i++) {
            recv[i] = msg_on(msg_recv(&p.side[1], i * 10, i), A);
            send[i] = msg_on(msg_send(&p.side[0], i * 10, i), A);
            if (late == 0)
                post_recv(&p, recv[i], NULL);
            post_send(&p, send[i], NULL);
            PUMP_UNTIL(&p, send[i]->ended);
            msg_check_ended(send[i], 0);
        }
        contract_ops->channel_close(p.side[0].ep, A);
        if (late > 0)
            channel_check_traffic(&p, B, 5000, 1);
        if (late == 2)
            channel_open(&p, 1, A);
        for (unsigned i = 0; i < N; i++) {
            if (late > 0)
                post_recv(&p, recv[i], NULL);
            PUMP_UNTIL(&p, recv[i]->ended);
            msg_check_received(recv[i]);
            msg_free(recv[i]);
            msg_free(send[i]);
        }
        contract_ops->channel_close(p.side[1].ep, A);
        channel_check_traffic(&p, B, 5000, 2);
        pair_close(&p);
    }
}

static void the_peer_sends_on_after_a_close(void **state)
{
    enum { N = 40 };
    static const size_t lens[] = {0, 20, 5000, 100000, 1500000};
    struct msg *send[N];
    struct pair p;

    (void)state;
    for (unsigned opened = 0; opened < 2; opened++) {
        pair_connect(&p);
        channel_open_both(&p, A);
        channel_open_both(&p, B);
        if (opened)
            channel_check_traffic(&p, A, 100, 1);
        contract_ops->channel_close(p.side[1].ep, A);
        for (unsigned i = 0; i < N; i++) {
            send[i] = msg_on(msg_send(&p.side[0], lens[i % SL_ARRAY_LEN(lens)], i), A);
            post_send(&p, send[i], NULL);
            channel_check_traffic(&p, B, i * 100, i);
        }
        for (unsigned i = 0; i < N; i++) {
            PUMP_UNTIL(&p, send[i]->ended);
            msg_check_ended(send[i], 0);
            msg_free(send[i]);
        }
        check_afterwards(&p);
        contract_ops->channel_close(p.side[0].ep, A);
        pump(&p, 20);
        pair_close(&p);
    }
}

/* ---- memory ---- */

/* Of the sanitizers' allocators. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    struct mallinfo2 info;

    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* At its end messages are under way that nobody receives. */
static void one_channel_life(struct pair *p, uint32_t channel)
{
    struct msg *send[2];
    bool sent[2];

    channel_open_both(p, channel);
    channel_check_traffic(p, channel, channel % 10 == 0 ? 70000 : 300, channel);
    for (unsigned s = 0; s < 2; s++) {
        send[s] = msg_on(msg_send(&p->side[s], channel % 7 * 50, 1), channel);
        sent[s] = try_send(send[s], NULL) >= 0;
    }
    pump(p, channel % 5);
    contract_ops->channel_close(p->side[channel % 2].ep, channel);
    pump(p, channel % 3);
    contract_ops->channel_close(p->side[!(channel % 2)].ep, channel);
    for (unsigned s = 0; s < 2; s++) {
        assert_int_equal(send[s]->ended, sent[s]);
        msg_free(send[s]);
    }
    pump(p, 3);
}

static void closed_channels_leave_no_memory_behind(void **state)
{
    enum { BEFORE = 100, COUNT = 1000, LEAST = 32 };
    struct pair p;
    size_t before, after;

    (void)state;
    pair_connect(&p);
    for (uint32_t c = 1; c <= BEFORE; c++)
        one_channel_life(&p, c);
    pump(&p, 200);
    before = allocated();
    for (uint32_t c = BEFORE + 1; c <= BEFORE + COUNT; c++)
        one_channel_life(&p, c);
    pump(&p, 200);
    after = allocated();
    if (after > before + COUNT * LEAST)
        fail_msg("%d channels left %zu bytes behind", COUNT, after - before);
    pair_close(&p);
}

/* ---- endpoints ---- */

/* Channels with messages and receives of all kinds under way. */
struct busy {
    struct msg *send[12], *recv[12];
    unsigned sends, recvs;
};

static void busy_begin(struct pair *p, struct busy *b, unsigned rounds)
{
    static const size_t lens[] = {50, 9000, 2u << 20};

    *b = (struct busy){0};
    for (uint32_t channel = 1; channel <= 4; channel++)
        channel_open_both(p, channel);
    for (unsigned i = 0; i < 3; i++) { /* 4: waits, and lets in messages of 1 to 3 */
        b->recv[b->recvs] = msg_on(msg_recv(&p->side[1], 10, i), 4);
        post_recv(p, b->recv[b->recvs++], NULL);
    }
    for (unsigned i = 0; i < SL_ARRAY_LEN(b->send); i++) {
        b->send[b->sends] = msg_on(msg_send(&p->side[0], lens[i % 3], i), i % 3 + 1);
        if (try_send(b->send[b->sends], NULL) >= 0)
            b->sends++;
        else
            msg_free(b->send[b->sends]);
    }
    pump(p, rounds);
    for (unsigned i = 0; i < 9; i++) { /* of 1 to 3, by turns */
        b->recv[b->recvs] = msg_on(channel_recv(&p->side[1], lens[i % 3], i, i), i % 3 + 1);
        if (try_recv(b->recv[b->recvs], NULL) >= 0)
            b->recvs++;
        else
            msg_free(b->recv[b->recvs]);
    }
}

static void busy_free(struct busy *b)
{
    for (unsigned i = 0; i < b->sends; i++) {
        assert_int_equal(b->send[i]->ended, 1);
        msg_free(b->send[i]);
    }
    for (unsigned i = 0; i < b->recvs; i++) {
        assert_int_equal(b->recv[i]->ended, 1);
        msg_free(b->recv[i]);
    }
}

static void destroy_ends_all_channels(void **state)
{
    struct busy b;
    struct pair p;

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i++) {
        pair_connect(&p);
        busy_begin(&p, &b, rounds_of[i]);
        for (unsigned s = 0; s < 2; s++) {
            contract_ops->ep_destroy(p.side[(s + i) % 2].ep);
            p.side[(s + i) % 2].ep = NULL;
            for (unsigned k = 0; (s + i) % 2 == 1 && k < b.recvs; k++)
                assert_int_equal(b.recv[k]->ended, 1);
            for (unsigned k = 0; (s + i) % 2 == 0 && k < b.sends; k++)
                assert_int_equal(b.send[k]->ended, 1);
            if (s == 0)
                pump(&p, rounds_of[i] / 2);
        }
        for (unsigned k = 0; k < 3; k++)
            assert_true(b.recv[k]->req.status < 0);
        busy_free(&b);
        pair_close(&p);
    }
}

static void a_lost_peer_ends_receives_of_all_channels(void **state)
{
    struct busy b;
    struct pair p;

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(rounds_of); i++) {
        pair_connect(&p);
        busy_begin(&p, &b, rounds_of[i]);
        contract_ops->ep_destroy(p.side[0].ep);
        p.side[0].ep = NULL;
        for (unsigned k = 0; k < b.recvs; k++) {
            PUMP_UNTIL(&p, b.recv[k]->ended);
            if (b.recv[k]->req.status == 0)
                msg_check_received(b.recv[k]);
        }
        for (unsigned k = 0; k < 3; k++)
            assert_true(b.recv[k]->req.status < 0);
        PUMP_UNTIL(&p, p.side[1].downs == 1);
        busy_free(&b);
        pair_close(&p);
    }
}

/* So long a large message may take that some transports do not take before its receive. */
#define TRY_NS (200 * SL_NS_PER_MS)

static unsigned ended_of(struct msg *const *m, unsigned count)
{
    unsigned ended = 0;

    while (ended < count && m[ended]->ended)
        ended++;
    return ended;
}

/* A receives three messages of that length after the endpoint was lost, all of which were kept as
 * others wait on B; one more than there are has the code of the loss. claimed: how many of the
 * receives were posted before the loss. */
static void received_after_the_loss(size_t len, unsigned claimed)
{
    enum { N = 3 };
    struct msg *send[N], *recv[N + 1], *b_send, *b_recv[2];
    unsigned sent = 0, came = 0;
    struct pair p;
    int rc = 0;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    for (unsigned i = 0; i < 2; i++) {
        b_recv[i] = msg_on(msg_recv(&p.side[1], 40, i), B);
        post_recv(&p, b_recv[i], NULL);
    }
    for (unsigned i = 0; i <= N; i++)
        recv[i] = msg_on(channel_recv(&p.side[1], len, i, i + 1), A);
    for (unsigned i = 0; i < N; i++) {
        send[i] = msg_on(msg_send(&p.side[0], len, i), A);
        while (sent == i && try_send(send[i], NULL) >= 0)
            sent++;
    }
    b_send = msg_on(msg_send(&p.side[0], 40, 0), B);
    post_send(&p, b_send, NULL);
    PUMP_UNTIL(&p, b_send->ended && b_recv[0]->ended);
    msg_check_received(b_recv[0]);
    pair_wait_begin(&p);
    while ((came = ended_of(send, sent)) < sent && stage_now() - p.since_ns < TRY_NS)
        pair_pump(&p);
    for (unsigned i = 0; i < claimed && i < came; i++)
        post_recv(&p, recv[i], NULL);
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    PUMP_UNTIL(&p, p.side[1].downs == 1 && b_recv[1]->ended);
    msg_check_ended(b_recv[1], p.side[1].down_status);
    for (unsigned i = claimed; i < came; i++)
        post_recv(&p, recv[i], NULL);
    for (unsigned i = 0; i < came; i++) {
        PUMP_UNTIL(&p, recv[i]->ended);
        msg_check_received(recv[i]);
    }
    PUMP_UNTIL(&p, (rc = try_recv(recv[came], NULL)) != -EAGAIN);
    assert_int_equal(rc, p.side[1].down_status);
    assert_int_equal(p.side[1].downs, 1);
    for (unsigned i = 0; i < N; i++)
        msg_free(send[i]);
    for (unsigned i = 0; i <= N; i++)
        msg_free(recv[i]);
    for (unsigned i = 0; i < 2; i++)
        msg_free(b_recv[i]);
    msg_free(b_send);
    pair_close(&p);
}

static void what_came_whole_is_received_after_the_loss(void **state)
{
    static const size_t lens[] = {0, 30, 3000, 120000, 2u << 20};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++)
        for (unsigned claimed = 0; claimed < 3; claimed++)
            received_after_the_loss(lens[i], claimed);
}

/* Nobody receives it: it goes with its channel, or with the endpoint. */
static void what_came_whole_is_dropped_after_the_loss(void **state)
{
    struct msg *send, *b_recv, *recv;
    struct pair p;

    (void)state;
    for (unsigned closes = 0; closes < 2; closes++) {
        pair_connect(&p);
        channel_open_both(&p, A);
        channel_open_both(&p, B);
        b_recv = msg_on(msg_recv(&p.side[1], 40, 0), B);
        recv = msg_on(msg_recv(&p.side[1], 500, 0), A);
        send = msg_on(msg_send(&p.side[0], 500, 0), A);
        post_recv(&p, b_recv, NULL);
        post_send(&p, send, NULL);
        PUMP_UNTIL(&p, send->ended);
        contract_ops->ep_destroy(p.side[0].ep);
        p.side[0].ep = NULL;
        PUMP_UNTIL(&p, p.side[1].downs == 1);
        post_recv(&p, recv, NULL);
        if (closes)
            contract_ops->channel_close(p.side[1].ep, A);
        contract_ops->ep_destroy(p.side[1].ep);
        p.side[1].ep = NULL;
        assert_int_equal(recv->ended, 1);
        if (recv->req.status != 0)
            msg_check_ended(recv, -ECANCELED);
        msg_free(send);
        msg_free(recv);
        msg_free(b_recv);
        pair_close(&p);
    }
}

static bool starves(const struct pair *p, uint32_t channel)
{
    return contract_ops->channel_starves(p->side[0].ep, channel);
}

/* Side 1 has sent one message when it closes; side 0 has a receive more. */
static void close_with_a_receive_left(size_t len, bool consume)
{
    struct msg *send, *recv[2], *b_recv;
    struct pair p;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    b_recv = msg_on(msg_recv(&p.side[0], 10, 7), B);
    post_recv(&p, b_recv, NULL);
    send = msg_on(msg_send(&p.side[1], len, 1), A);
    recv[0] = msg_on(
        consume ? msg_consume(&p.side[0], len, 1, 4, false) : msg_recv(&p.side[0], len, 1), A);
    recv[1] = msg_on(msg_recv(&p.side[0], 100, 2), A);
    post_send(&p, send, NULL);
    post_recv(&p, recv[0], NULL);
    PUMP_UNTIL(&p, send->ended)
    assert_false(starves(&p, A));
    contract_ops->channel_close(p.side[1].ep, A);
    PUMP_UNTIL(&p, recv[0]->ended)
    assert_false(starves(&p, A)); /* nothing waits but for what comes */
    msg_check_received(recv[0]);
    post_recv(&p, recv[1], NULL);
    PUMP_UNTIL(&p, starves(&p, A))
    assert_false(starves(&p, B) || starves(&p, 0));
    assert_false(recv[1]->ended);
    contract_ops->channel_close(p.side[0].ep, A);
    msg_check_ended(recv[1], -ECANCELED);
    assert_false(starves(&p, A));
    msg_free(send);
    msg_free(recv[0]);
    msg_free(recv[1]);
    send = msg_on(msg_send(&p.side[1], 10, 7), B);
    post_send(&p, send, NULL);
    PUMP_UNTIL(&p, send->ended && b_recv->ended);
    msg_check_received(b_recv);
    msg_free(send);
    msg_free(b_recv);
    pair_close(&p);
}

static void a_receive_that_is_left_over_starves(void **state)
{
    (void)state;
    close_with_a_receive_left(8, false);
    close_with_a_receive_left(9000, true);
    close_with_a_receive_left(5u << 20, false);
}

int contract_channels_close_cases(void)
{
    static const struct contract_case cases[] = {
        {SL_CAP_CHANNELS, cmocka_unit_test(the_sender_closes_a_channel_under_way)},
        {SL_CAP_CHANNELS, cmocka_unit_test(the_receiver_closes_a_channel_under_way)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_channel_closes_with_messages_that_nobody_received)},
        {SL_CAP_CHANNELS, cmocka_unit_test(what_was_sent_before_a_close_still_arrives)},
        {SL_CAP_CHANNELS, cmocka_unit_test(the_peer_sends_on_after_a_close)},
        {SL_CAP_CHANNELS, cmocka_unit_test(closed_channels_leave_no_memory_behind)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_receive_that_is_left_over_starves)},
        {SL_CAP_CHANNELS, cmocka_unit_test(destroy_ends_all_channels)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_lost_peer_ends_receives_of_all_channels)},
        {SL_CAP_CHANNELS, cmocka_unit_test(what_came_whole_is_received_after_the_loss)},
        {SL_CAP_CHANNELS, cmocka_unit_test(what_came_whole_is_dropped_after_the_loss)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
