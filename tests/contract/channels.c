/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: channels of an endpoint, none of which waits for another one. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/channels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

#define A UINT32_C(7)
#define B UINT32_C(0xfffffff1)
#define C UINT32_C(1)

void channel_open(struct pair *p, unsigned side, uint32_t channel)
{
    if (contract_ops->channel_open(p->side[side].ep, channel) != 0)
        fail_msg("channel_open: %s", sluice_last_error());
}

void channel_open_both(struct pair *p, uint32_t channel)
{
    channel_open(p, 0, channel);
    channel_open(p, 1, channel);
}

void channel_check_traffic(struct pair *p, uint32_t channel, size_t len, uint64_t tag)
{
    for (unsigned s = 0; s < 2; s++) {
        struct msg *send = msg_on(msg_send(&p->side[s], len, tag), channel);
        struct msg *recv = msg_on(msg_recv(&p->side[!s], len, tag), channel);

        post_recv(p, recv, NULL);
        post_send(p, send, NULL);
        PUMP_UNTIL(p, send->ended && recv->ended);
        msg_check_ended(send, 0);
        msg_check_received(recv);
        msg_free(send);
        msg_free(recv);
    }
}

/* One of the ways to receive. */
struct msg *channel_recv(struct side *side, size_t len, uint64_t tag, unsigned way)
{
    struct msg *m;

    switch (way % 6) {
    case 1: return msg_consume(side, len, tag, 8, false);
    case 2: return msg_consume(side, len, tag, 4, true);
    case 3:
        m = msg_recv(side, len + 1 + way, tag);
        msg_expect(m, len);
        return m;
    case 4:
        m = msg_consume(side, len + 1 + way, tag, 1, way % 4 == 0);
        msg_expect(m, len);
        return m;
    case 5:
        m = msg_recv(side, len, tag);
        msg_register(m);
        return m;
    default: return msg_recv(side, len, tag);
    }
}

/* Both have ended well. */
static void finish(struct pair *p, struct msg *send, struct msg *recv)
{
    PUMP_UNTIL(p, send->ended && recv->ended);
    msg_check_ended(send, 0);
    msg_check_received(recv);
    msg_free(send);
    msg_free(recv);
}

/* ---- order ---- */

static void each_channel_has_an_order_of_its_own(void **state)
{
    static const uint32_t ids[] = {0, A, B, C};
    static const size_t sizes[] = {1, 0, 4000, 70, 100000, 8, 65536, 9000, 300, 0, 1 << 20, 5};
    enum { K = SL_ARRAY_LEN(ids), N = SL_ARRAY_LEN(sizes) };
    struct msg *send[2][K][N], *recv[2][K][N];
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned k = 1; k < K; k++)
        channel_open_both(&p, ids[k]);
    /* Receives: the last channel first, each channel whole. */
    for (unsigned k = K; k-- > 0;)
        for (unsigned i = 0; i < N; i++)
            for (unsigned s = 0; s < 2; s++) {
                recv[s][k][i] =
                    msg_on(channel_recv(&p.side[!s], sizes[i], k * 100 + i, i + k), ids[k]);
                post_recv(&p, recv[s][k][i], NULL);
            }
    /* Sends: by turns. */
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < K; k++)
            for (unsigned s = 0; s < 2; s++) {
                send[s][k][i] = msg_on(msg_send(&p.side[s], sizes[i], k * 100 + i), ids[k]);
                post_send(&p, send[s][k][i], NULL);
            }
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < K; k++)
            for (unsigned s = 0; s < 2; s++)
                finish(&p, send[s][k][i], recv[s][k][i]);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

/* Sends by turns; the receives of a channel when all of the channel before it are over. */
static void a_channel_is_received_after_the_other(void **state)
{
    static const uint32_t ids[] = {B, 0, A, C};
    enum { K = SL_ARRAY_LEN(ids), N = 10 };
    struct msg *send[2][K][N] = {0}, *recv[2][N];
    unsigned sent[2][K] = {0};
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned k = 0; k < K; k++)
        if (ids[k] != 0)
            channel_open_both(&p, ids[k]);
    for (unsigned s = 0; s < 2; s++)
        for (unsigned k = 0; k < K; k++)
            for (unsigned i = 0; i < N; i++)
                send[s][k][i] = msg_on(msg_send(&p.side[s], i * 3001, k * 100 + i), ids[k]);
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = K; k-- > 0;)
            for (unsigned s = 0; s < 2; s++)
                if (sent[s][k] == i && try_send(send[s][k][i], NULL) >= 0)
                    sent[s][k]++;
    for (unsigned i = 0; i < 50; i++)
        pair_pump(&p);
    for (unsigned k = 0; k < K; k++) {
        for (unsigned i = 0; i < N; i++)
            for (unsigned s = 0; s < 2; s++) {
                recv[s][i] = msg_on(channel_recv(&p.side[!s], i * 3001, k * 100 + i, i), ids[k]);
                post_recv(&p, recv[s][i], NULL);
            }
        for (unsigned i = 0; i < N; i++)
            for (unsigned s = 0; s < 2; s++) {
                if (sent[s][k] <= i)
                    post_send(&p, send[s][k][i], NULL);
                finish(&p, send[s][k][i], recv[s][i]);
            }
    }
    pair_close(&p);
}

static void a_channel_is_opened_once(void **state)
{
    struct pair p;

    (void)state;
    pair_connect(&p);
    channel_open(&p, 0, A);
    assert_int_equal(contract_ops->channel_open(p.side[0].ep, A), -EINVAL);
    assert_int_equal(contract_ops->channel_open(p.side[0].ep, 0), -EINVAL);
    channel_open(&p, 1, A);
    channel_check_traffic(&p, A, 1000, 1);
    contract_ops->channel_close(p.side[0].ep, A);
    assert_int_equal(contract_ops->channel_open(p.side[0].ep, A), -EINVAL);
    for (unsigned i = 0; i < 50; i++)
        pair_pump(&p);
    assert_int_equal(contract_ops->channel_open(p.side[1].ep, A), -EINVAL);
    channel_check_traffic(&p, 0, 1000, 2);
    pair_close(&p);
}

/* Messages of a channel come before the receiver opens it. */
static void opened_late(unsigned opener, size_t len)
{
    enum { N = 5 };
    struct msg *send[N], *recv;
    unsigned sent = 0;
    struct pair p;

    pair_connect(&p);
    channel_open(&p, opener, A);
    for (unsigned i = 0; i < N; i++)
        send[i] = msg_on(msg_send(&p.side[opener], len, i), A);
    while (sent < N && try_send(send[sent], NULL) >= 0)
        sent++;
    for (unsigned i = 0; i < 50; i++)
        pair_pump(&p);
    channel_check_traffic(&p, 0, 3000, 50);
    channel_check_traffic(&p, 0, 300000, 51);
    channel_open(&p, !opener, A);
    for (unsigned i = 0; i < N; i++) {
        recv = msg_on(msg_recv(&p.side[!opener], len, i), A);
        post_recv(&p, recv, NULL);
        if (sent <= i)
            post_send(&p, send[i], NULL);
        finish(&p, send[i], recv);
    }
    channel_check_traffic(&p, A, len, 60);
    pair_close(&p);
}

static void either_side_opens_a_channel_first(void **state)
{
    (void)state;
    for (unsigned opener = 0; opener < 2; opener++) {
        opened_late(opener, 0);
        opened_late(opener, 40);
        opened_late(opener, 20000);
        opened_late(opener, 2u << 20);
    }
}

/* ---- no channel waits for another one ---- */

/*
 * Both sides send count messages on A, for which there is no receive, then one on B. late: the
 * receive of B is posted after A is stuck.
 */
static void held_up(size_t len, unsigned count, bool late)
{
    struct msg **send[2], *recv, *b_send[2], *b_recv[2];
    unsigned sent[2] = {0};
    struct pair p;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    for (unsigned s = 0; s < 2; s++) {
        send[s] = calloc(count, sizeof(*send[s]));
        assert_non_null(send[s]);
        for (unsigned i = 0; i < count; i++)
            send[s][i] = msg_on(msg_send(&p.side[s], len, i), A);
        b_send[s] = msg_on(msg_send(&p.side[s], 5000, 77), B);
        b_recv[s] = msg_on(msg_recv(&p.side[!s], 5000, 77), B);
        if (!late)
            post_recv(&p, b_recv[s], NULL);
    }
    for (unsigned s = 0; s < 2; s++) {
        for (; late && sent[s] < count && try_send(send[s][sent[s]], NULL) >= 0; sent[s]++)
            ;
        for (; !late && sent[s] < count; sent[s]++)
            post_send(&p, send[s][sent[s]], NULL);
    }
    for (unsigned i = 0; late && i < 100; i++)
        pair_pump(&p);
    for (unsigned s = 0; s < 2; s++)
        if (late)
            post_recv(&p, b_recv[s], NULL);
    for (unsigned s = 0; s < 2; s++)
        post_send(&p, b_send[s], NULL);
    for (unsigned s = 0; s < 2; s++)
        finish(&p, b_send[s], b_recv[s]);
    for (unsigned i = 0; i < count; i++)
        for (unsigned s = 0; s < 2; s++) {
            recv = msg_on(channel_recv(&p.side[!s], len, i, i), A);
            post_recv(&p, recv, NULL);
            if (sent[s] <= i)
                post_send(&p, send[s][i], NULL);
            finish(&p, send[s][i], recv);
        }
    channel_check_traffic(&p, A, len, 1000);
    channel_check_traffic(&p, B, len, 1001);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    for (unsigned s = 0; s < 2; s++)
        free(send[s]);
    pair_close(&p);
}

static void messages_without_receives_hold_up_nobody(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        held_up(0, 1, late);
        held_up(24, 3, late);
        held_up(6000, 12, late);
        held_up(100000, 8, late);
    }
}

static void large_messages_without_receives_hold_up_nobody(void **state)
{
    (void)state;
    held_up(8u << 20, 2, false);
    held_up(8u << 20, 2, true);
}

static void many_small_messages_without_receives_hold_up_nobody(void **state)
{
    (void)state;
    held_up(40, 300, false);
    held_up(40, 300, true);
    held_up(3000, 300, false);
}

/* Receives of a channel that gets nothing, and sends of one that nobody receives: as many as are
 * taken. */
static void full_queues_of_a_channel_do_not_stop_another(void **state)
{
    enum { MANY = 2000 };
    struct msg **idle = calloc(MANY, sizeof(*idle)), **stuck = calloc(MANY, sizeof(*stuck)), *m;
    unsigned idles = 0, stucks = 0, tries = 0;
    struct pair p;

    (void)state;
    assert_true(idle != NULL && stuck != NULL);
    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, C);
    channel_open_both(&p, B);
    for (tries = 0; idles < MANY && tries < 50; tries++) {
        idle[idles] = msg_on(msg_recv(&p.side[1], 100, idles), A);
        if (try_recv(idle[idles], NULL) >= 0)
            tries = 0, idles++;
        else
            msg_free(idle[idles]);
    }
    for (tries = 0; stucks < MANY && tries < 50; tries++) {
        stuck[stucks] = msg_on(msg_send(&p.side[0], 100, stucks), C);
        if (try_send(stuck[stucks], NULL) >= 0)
            tries = 0, stucks++;
        else
            msg_free(stuck[stucks]);
        pair_pump(&p);
    }
    assert_true(idles > 0 && stucks > 0);
    for (unsigned i = 0; i < 10; i++)
        channel_check_traffic(&p, B, i * 20000, i);
    for (unsigned i = 0; i < idles; i++) {
        m = msg_on(msg_send(&p.side[0], 100, i), A);
        post_send(&p, m, NULL);
        finish(&p, m, idle[i]);
    }
    for (unsigned i = 0; i < stucks; i++) {
        m = msg_on(msg_recv(&p.side[1], 100, i), C);
        post_recv(&p, m, NULL);
        finish(&p, stuck[i], m);
    }
    free(idle);
    free(stuck);
    pair_close(&p);
}

static void control_messages_flow_beside(void **state)
{
    struct msg *send[2], *wait[2], *recv;
    struct pair p;
    int rc = -EAGAIN;

    (void)state;
    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    for (unsigned s = 0; s < 2; s++) {
        wait[s] = msg_on(msg_recv(&p.side[s], 10, 9), B);
        post_recv(&p, wait[s], NULL);
        send[s] = msg_on(msg_send(&p.side[s], 3u << 20, 1), A);
        post_send(&p, send[s], NULL);
    }
    for (unsigned i = 0; i < 40; i++)
        for (unsigned s = 0; s < 2; s++) {
            unsigned before = p.side[!s].ctrls;

            PUMP_UNTIL(&p, (rc = contract_ops->ctrl(p.side[s].ep, &i, sizeof(i))) != -EAGAIN);
            assert_int_equal(rc, 0);
            PUMP_UNTIL(&p, p.side[!s].ctrls > before);
            assert_memory_equal(p.side[!s].ctrl, &i, sizeof(i));
        }
    for (unsigned s = 0; s < 2; s++) {
        recv = msg_on(msg_recv(&p.side[!s], 3u << 20, 1), A);
        post_recv(&p, recv, NULL);
        finish(&p, send[s], recv);
        send[s] = msg_on(msg_send(&p.side[!s], 10, 9), B);
        post_send(&p, send[s], NULL);
        finish(&p, send[s], wait[s]);
    }
    pair_close(&p);
}

/* ---- other messages than expected ---- */

/* Three messages of A are let in by a receive of B; the second does not match its receive. */
static void kept_mismatch(size_t len, size_t room, bool shorter, uint64_t tag, int status)
{
    struct msg *send[3], *recv[3], *b_send, *b_recv;
    struct pair p;

    pair_connect(&p);
    channel_open_both(&p, A);
    channel_open_both(&p, B);
    b_send = msg_on(msg_send(&p.side[0], 10, 1), B);
    b_recv = msg_on(msg_recv(&p.side[1], 10, 1), B);
    post_recv(&p, b_recv, NULL);
    for (unsigned i = 0; i < 3; i++) {
        send[i] = msg_on(msg_send(&p.side[0], len, i), A);
        recv[i] = msg_on(msg_recv(&p.side[1], i == 1 ? room : len, i == 1 ? tag : i), A);
        recv[i]->sink.shorter = shorter;
        post_send(&p, send[i], NULL);
    }
    post_send(&p, b_send, NULL);
    finish(&p, b_send, b_recv);
    for (unsigned i = 0; i < 3; i++)
        post_recv(&p, recv[i], NULL);
    PUMP_UNTIL(&p, send[1]->ended && recv[1]->ended);
    msg_check_ended(send[1], 0);
    msg_check_ended(recv[1], status);
    assert_int_equal(recv[1]->req.len, len);
    assert_int_equal(recv[1]->req.tag, 1);
    finish(&p, send[0], recv[0]);
    finish(&p, send[2], recv[2]);
    msg_free(send[1]);
    msg_free(recv[1]);
    channel_check_traffic(&p, A, len, 8);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

static void a_wrong_receive_of_a_message_that_was_held_back(void **state)
{
    static const size_t lens[] = {24, 9000, 2u << 20};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++) {
        kept_mismatch(lens[i], lens[i], false, 99, -EPROTO);
        kept_mismatch(lens[i], lens[i], true, 99, -EPROTO);
        kept_mismatch(lens[i], lens[i] - 1, false, 1, -EMSGSIZE);
        kept_mismatch(lens[i], lens[i] + 1, false, 1, -EMSGSIZE);
        kept_mismatch(lens[i], lens[i] - 1, true, 1, -EMSGSIZE);
    }
}

int contract_channels_cases(void)
{
    static const struct contract_case cases[] = {
        {SL_CAP_CHANNELS, cmocka_unit_test(each_channel_has_an_order_of_its_own)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_channel_is_received_after_the_other)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_channel_is_opened_once)},
        {SL_CAP_CHANNELS, cmocka_unit_test(either_side_opens_a_channel_first)},
        {SL_CAP_CHANNELS, cmocka_unit_test(messages_without_receives_hold_up_nobody)},
        {SL_CAP_CHANNELS, cmocka_unit_test(large_messages_without_receives_hold_up_nobody)},
        {SL_CAP_CHANNELS, cmocka_unit_test(many_small_messages_without_receives_hold_up_nobody)},
        {SL_CAP_CHANNELS, cmocka_unit_test(full_queues_of_a_channel_do_not_stop_another)},
        {SL_CAP_CHANNELS, cmocka_unit_test(control_messages_flow_beside)},
        {SL_CAP_CHANNELS, cmocka_unit_test(a_wrong_receive_of_a_message_that_was_held_back)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
