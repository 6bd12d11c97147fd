/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: receives with room for more than comes. */
#include "core/err.h"
#include "core/rng.h"
#include "tests/contract/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

/* Who of the two registers its memory. */
enum registers { NOBODY, RECEIVER, SENDER, BOTH, REGISTERS };

/* Which of the two is posted first, and gets about before the other is. */
enum first { TOGETHER, SEND, RECEIVE, FIRSTS };

static void free_both(struct msg *send, struct msg *recv)
{
    msg_free(send);
    msg_free(recv);
}

static void post_both(struct pair *p, struct msg *send, struct msg *recv, enum registers who,
                      enum first first)
{
    if (who == RECEIVER || who == BOTH)
        msg_register(recv);
    if (who == SENDER || who == BOTH)
        msg_register(send);
    if (first == SEND)
        post_send(p, send, NULL);
    else
        post_recv(p, recv, NULL);
    /* Until the other side has heard of it, mostly; or for as long as it takes. */
    for (unsigned i = 0; i < 30 && first != TOGETHER; i++)
        pair_pump(p);
    if (first == SEND)
        post_recv(p, recv, NULL);
    else
        post_send(p, send, NULL);
    PUMP_UNTIL(p, send->ended && recv->ended);
    msg_check_ended(send, 0);
}

/* A message of len bytes for a receive of room bytes. */
static void one(struct pair *p, size_t room, size_t len, enum registers who, enum first first,
                uint64_t tag)
{
    struct msg *send = msg_send(&p->side[0], len, tag), *recv = msg_recv(&p->side[1], room, tag);

    msg_expect(recv, len);
    post_both(p, send, recv, who, first);
    msg_check_received(recv);
    free_both(send, recv);
}

static const size_t rooms[] = {1, 8, 48, 49, 300, 4096, 4097, 65536, 70000, 300000, 1500000};

static void every_length_up_to_the_room_is_taken(void **state)
{
    struct pair p;
    uint64_t tag = 0;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < SL_ARRAY_LEN(rooms); i++) {
        const size_t room = rooms[i], lens[] = {room, 0, room - 1, room / 2, 1, room / 20};

        for (unsigned k = 0; k < SL_ARRAY_LEN(lens); k++, tag++) {
            for (unsigned first = 0; first < FIRSTS; first++)
                one(&p, room, lens[k], (tag + first * i) % REGISTERS, first, tag * 4 + first);
        }
    }
    for (unsigned first = 0; first < FIRSTS; first++)
        one(&p, 0, 0, NOBODY, first, 7);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

static void consume_gets_so_many_bytes_as_came(void **state)
{
    static const uint32_t granules[] = {0, 1, 4, 8};
    static const size_t lens[] = {0, 8, 48, 4096, 5000, 65536, 262144 + 8, 600000};
    const size_t room = 600000;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens) * SL_ARRAY_LEN(granules) * 2; i++) {
        size_t len = lens[i % SL_ARRAY_LEN(lens)];
        struct msg *send = msg_send(&p.side[0], len, i);
        struct msg *recv =
            msg_consume(&p.side[1], room, i, granules[i / 2 % SL_ARRAY_LEN(granules)], i % 2);

        msg_expect(recv, len);
        if (i % 3 == 0)
            msg_register(recv);
        post_recv(&p, recv, NULL);
        post_send(&p, send, NULL);
        PUMP_UNTIL(&p, send->ended && recv->ended);
        msg_check_received(recv);
        assert_int_equal(recv->pieces > 0, len > 0);
        free_both(send, recv);
    }
    pair_close(&p);
}

/* The receive ends with status, and the next one is as good as ever. */
static void refused(size_t room, size_t len, uint64_t tag, int status, enum registers who,
                    enum first first)
{
    struct msg *send, *recv;
    struct pair p;

    pair_connect(&p);
    send = msg_send(&p.side[0], len, 1);
    recv = msg_recv(&p.side[1], room, tag);
    msg_expect(recv, room);
    post_both(&p, send, recv, who, first);
    msg_check_ended(recv, status);
    assert_int_equal(recv->req.len, len);
    assert_int_equal(recv->req.tag, 1);
    one(&p, 100000, 99999, who, first, 2);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    free_both(send, recv);
    pair_close(&p);
}

static void a_longer_message_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FIRSTS * REGISTERS; i++) {
        refused(0, 1, 1, -EMSGSIZE, i / FIRSTS, i % FIRSTS);
        refused(40, 41, 1, -EMSGSIZE, i / FIRSTS, i % FIRSTS);
        refused(5000, 2000000, 1, -EMSGSIZE, i / FIRSTS, i % FIRSTS);
        refused(70000, 70001, 1, -EMSGSIZE, i / FIRSTS, i % FIRSTS);
    }
}

static void tags_are_checked_all_the_same(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FIRSTS * REGISTERS; i++) {
        refused(40, 0, 3, -EPROTO, i / FIRSTS, i % FIRSTS);
        refused(300000, 100, 3, -EPROTO, i / FIRSTS, i % FIRSTS);
        refused(300000, 200000, 3, -EPROTO, i / FIRSTS, i % FIRSTS);
    }
}

/* As in a trainer: rooms of one size, filled more or less, many at a time, both ways. */
static void many_are_in_flight(size_t room, unsigned count, unsigned exact_in, uint64_t seed)
{
    struct msg *send[2][64], *recv[2][64];
    unsigned sent[2] = {0}, posted[2] = {0}, over[2] = {0};
    struct sl_rng rng;
    struct pair p;

    sl_rng_init(&rng, seed);
    pair_connect(&p);
    pair_wait_begin(&p);
    while (over[0] < count || over[1] < count) {
        for (unsigned s = 0; s < 2; s++) {
            while (posted[s] < count && posted[s] - over[s] < 64) {
                unsigned i = posted[s];
                size_t len =
                    sl_rng_chance(&rng, 4) ? sl_rng_below(&rng, 200) : sl_rng_below(&rng, room + 1);
                bool exact = exact_in > 0 && sl_rng_chance(&rng, exact_in);

                recv[s][i % 64] = msg_recv(&p.side[s], exact ? len : room, i);
                send[s][i % 64] = msg_send(&p.side[!s], len, i);
                if (!exact)
                    msg_expect(recv[s][i % 64], len);
                if (sl_rng_chance(&rng, 2))
                    msg_register(recv[s][i % 64]);
                if (sl_rng_chance(&rng, 2))
                    msg_register(send[s][i % 64]);
                post_recv(&p, recv[s][i % 64], NULL);
                posted[s]++;
            }
            while (sent[s] < posted[s] && try_send(send[s][sent[s] % 64], NULL) >= 0)
                sent[s]++;
            while (over[s] < sent[s] && recv[s][over[s] % 64]->ended &&
                   send[s][over[s] % 64]->ended) {
                msg_check_received(recv[s][over[s] % 64]);
                msg_check_ended(send[s][over[s] % 64], 0);
                free_both(send[s][over[s] % 64], recv[s][over[s] % 64]);
                over[s]++;
                pair_wait_begin(&p);
            }
        }
        pair_pump(&p);
        pair_wait_check(&p, "a message is over", __FILE__, __LINE__);
    }
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

static void many_of_mixed_lengths_are_in_flight(void **state)
{
    (void)state;
    many_are_in_flight(200, 1500, 0, 1);
    many_are_in_flight(20000, 500, 3, 2);
    many_are_in_flight(150000, 200, 4, 3);
}

static void large_rooms_are_filled_in_part(void **state)
{
    (void)state;
    many_are_in_flight(4u << 20, 6, 0, 4);
}

static void many_empty_messages_meet_large_rooms(void **state)
{
    enum { N = 700 };
    struct msg *send, *recv[32];
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N + 32; i++) {
        if (i >= 32) {
            send = msg_send(&p.side[0], 0, i - 32);
            post_send(&p, send, NULL);
            PUMP_UNTIL(&p, send->ended && recv[i % 32]->ended);
            msg_check_received(recv[i % 32]);
            free_both(send, recv[i % 32]);
        }
        if (i < N) {
            recv[i % 32] = msg_recv(&p.side[1], 10000, i);
            msg_expect(recv[i % 32], 0);
            msg_register(recv[i % 32]);
            post_recv(&p, recv[i % 32], NULL);
        }
    }
    one(&p, 100000, 100, BOTH, TOGETHER, 1);
    one(&p, 100000, 90000, BOTH, TOGETHER, 2);
    pair_close(&p);
}

int contract_room_cases(void)
{
    static const struct contract_case cases[] = {
        {0, cmocka_unit_test(every_length_up_to_the_room_is_taken)},
        {0, cmocka_unit_test(consume_gets_so_many_bytes_as_came)},
        {0, cmocka_unit_test(a_longer_message_is_refused)},
        {0, cmocka_unit_test(tags_are_checked_all_the_same)},
        {0, cmocka_unit_test(many_of_mixed_lengths_are_in_flight)},
        {0, cmocka_unit_test(large_rooms_are_filled_in_part)},
        {0, cmocka_unit_test(many_empty_messages_meet_large_rooms)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
