/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract cases: traffic over several channels both ways, drawn from seeds.
 *
 * A direction of a channel is a queue of messages: the n-th is known to both ends. Each round draws
 * what is posted, opened or closed, and how long the transport gets.
 */
#include "core/err.h"
#include "core/rng.h"
#include "tests/contract/pair.h"
#include "tests/contract/channels.h"
#include "tests/util/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

#define CHANNELS 5 /* number 0 among them, which does not close */
#define QUEUE 24
#define SCRIBBLE 0x5c

enum { SEND, RECV };

struct message {
    size_t len;
    uint64_t tag;
    bool wrong; /* its receive expects another tag */
    struct msg *half[2];
    struct msg *refused[2]; /* made, but not taken yet; to make it takes longer than to try */
};

struct queue {
    struct message messages[QUEUE];
    unsigned posted[2];
};

struct random {
    struct sl_rng rng;
    struct pair p;
    struct queue queues[CHANNELS][2]; /* by the side that sends */
    uint32_t id[CHANNELS];
    bool open[CHANNELS][2], closed[CHANNELS][2], closes[CHANNELS];
};

static void draw(struct random *r, uint64_t seed)
{
    memset(r, 0, sizeof(*r));
    sl_rng_init(&r->rng, seed);
    for (unsigned c = 0; c < CHANNELS; c++) {
        r->id[c] = c == 0 ? 0 : c + CHANNELS * (uint32_t)sl_rng_below(&r->rng, 1000000);
        r->open[c][0] = r->open[c][1] = c == 0;
        r->closes[c] = c > 0 && sl_rng_chance(&r->rng, 2);
        for (unsigned s = 0; s < 2; s++)
            for (unsigned i = 0; i < QUEUE; i++) {
                struct message *m = &r->queues[c][s].messages[i];
                unsigned kind = (unsigned)sl_rng_below(&r->rng, 8);

                m->len = sl_rng_below(&r->rng, kind < 4 ? 200 : kind < 7 ? 20000 : 300001);
                m->tag = c * 1000 + s * 100 + i;
                m->wrong = sl_rng_chance(&r->rng, 25);
            }
    }
}

/* Who has the sends or receives of a queue. */
static unsigned owner_of(unsigned from, unsigned which)
{
    return which == SEND ? from : !from;
}

static struct msg *make(struct random *r, unsigned c, unsigned s, const struct message *m,
                        unsigned which)
{
    struct msg *half = which == SEND
                           ? msg_send(&r->p.side[s], m->len, m->tag)
                           : channel_recv(&r->p.side[s], m->len, m->tag + (m->wrong ? 500 : 0),
                                          (unsigned)sl_rng_below(&r->rng, 6));

    if (which == SEND && sl_rng_chance(&r->rng, 3))
        msg_register(half);
    return msg_on(half, r->id[c]);
}

static void post_one(struct random *r, unsigned c, unsigned from, unsigned which)
{
    struct queue *q = &r->queues[c][from];
    unsigned s = owner_of(from, which);
    struct message *m = &q->messages[q->posted[which]];
    struct msg *half;

    if (q->posted[which] == QUEUE || !r->open[c][s] || r->closed[c][s])
        return;
    half = m->refused[which];
    if (half == NULL)
        half = make(r, c, s, m, which);
    m->refused[which] = half;
    if ((which == SEND ? try_send : try_recv)(half, NULL) < 0)
        return;
    m->refused[which] = NULL;
    m->half[which] = half;
    q->posted[which]++;
}

static void check_recv(const struct message *m)
{
    if (m->half[RECV]->req.status == -ECANCELED)
        return;
    if (m->wrong)
        msg_check_ended(m->half[RECV], -EPROTO);
    else
        msg_check_received(m->half[RECV]);
}

/* All of a side on a channel has ended; its memory serves another purpose from now on. */
static void take_back(struct random *r, unsigned c, unsigned s)
{
    for (unsigned from = 0; from < 2; from++)
        for (unsigned which = SEND; which <= RECV; which++) {
            struct queue *q = &r->queues[c][from];

            if (owner_of(from, which) != s)
                continue;
            for (unsigned i = 0; i < q->posted[which]; i++) {
                struct msg *half = q->messages[i].half[which];

                assert_int_equal(half->ended, 1);
                if (which == RECV)
                    check_recv(&q->messages[i]);
                else if (half->req.status != -ECANCELED)
                    msg_check_ended(half, 0);
                memset(half->block, SCRIBBLE, half->room + 2 * GUARD);
            }
        }
}

static void close_one(struct random *r, unsigned c, unsigned s)
{
    if (!r->open[c][s] || r->closed[c][s])
        return;
    contract_ops->channel_close(r->p.side[s].ep, r->id[c]);
    r->closed[c][s] = true;
    take_back(r, c, s);
}

static void act(struct random *r)
{
    unsigned c = (unsigned)sl_rng_below(&r->rng, CHANNELS);
    unsigned s = (unsigned)sl_rng_below(&r->rng, 2);

    if (!r->open[c][s] && sl_rng_chance(&r->rng, 5)) {
        channel_open(&r->p, s, r->id[c]);
        r->open[c][s] = true;
    }
    if (r->closes[c] && sl_rng_chance(&r->rng, 60))
        close_one(r, c, s);
    for (uint64_t n = sl_rng_below(&r->rng, 4); n > 0; n--)
        post_one(r, c, s, sl_rng_chance(&r->rng, 2) ? SEND : RECV);
}

/* Everything is posted that can be, and has ended unless its channel was closed. */
static bool is_over(const struct random *r)
{
    for (unsigned c = 0; c < CHANNELS; c++)
        for (unsigned from = 0; from < 2; from++) {
            const struct queue *q = &r->queues[c][from];

            for (unsigned which = SEND; which <= RECV; which++) {
                unsigned s = owner_of(from, which);

                if (r->closed[c][s] || (which == RECV && r->closed[c][!s]))
                    continue;
                if (q->posted[which] < QUEUE)
                    return false;
                for (unsigned i = 0; i < QUEUE; i++)
                    if (!q->messages[i].half[which]->ended)
                        return false;
            }
        }
    return true;
}

static unsigned ended(const struct random *r)
{
    unsigned count = 0;

    for (unsigned c = 0; c < CHANNELS; c++)
        for (unsigned from = 0; from < 2; from++)
            for (unsigned which = SEND; which <= RECV; which++)
                for (unsigned i = 0; i < r->queues[c][from].posted[which]; i++)
                    count += r->queues[c][from].messages[i].half[which]->ended;
    return count;
}

static void judge(struct random *r)
{
    for (unsigned c = 0; c < CHANNELS; c++)
        for (unsigned from = 0; from < 2; from++)
            for (unsigned which = SEND; which <= RECV; which++) {
                struct queue *q = &r->queues[c][from];
                bool closed = r->closed[c][owner_of(from, which)];

                for (unsigned i = 0; i < QUEUE; i++)
                    if (q->messages[i].refused[which] != NULL)
                        msg_free(q->messages[i].refused[which]);
                for (unsigned i = 0; i < q->posted[which]; i++) {
                    struct msg *half = q->messages[i].half[which];
                    size_t len = half->room + 2 * GUARD;

                    assert_int_equal(half->ended, 1);
                    if (closed)
                        assert_int_equal(bytes_other(half->block, len, SCRIBBLE), len);
                    if (!closed && which == SEND)
                        msg_check_ended(half, 0);
                    if (!closed && which == RECV)
                        check_recv(&q->messages[i]);
                    msg_free(half);
                }
            }
}

static void run(uint64_t seed)
{
    struct random *r = malloc(sizeof(*r));
    unsigned slow, before = 0;

    assert_non_null(r);
    draw(r, seed);
    slow = (unsigned)sl_rng_range(&r->rng, 1, 12);
    pair_connect(&r->p);
    for (pair_wait_begin(&r->p); !is_over(r);) {
        act(r);
        if (sl_rng_chance(&r->rng, slow))
            pair_pump(&r->p);
        if (ended(r) != before) {
            before = ended(r);
            pair_wait_begin(&r->p);
        }
        pair_wait_check(&r->p, "the next message is over", __FILE__, __LINE__);
    }
    for (unsigned c = 0; c < CHANNELS; c++) /* what the other end has closed */
        for (unsigned s = 0; s < 2; s++)
            if (r->closed[c][!s])
                close_one(r, c, s);
    for (unsigned i = 0; i < 50; i++)
        pair_pump(&r->p);
    channel_check_traffic(&r->p, 0, 100, 7);
    assert_int_equal(r->p.side[0].downs + r->p.side[1].downs, 0);
    judge(r);
    pair_close(&r->p);
    free(r);
}

static void seeded_traffic_with_closes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        run(seed);
}

int contract_channels_random_cases(void)
{
    static const struct contract_case cases[] = {
        {SL_CAP_CHANNELS, cmocka_unit_test(seeded_traffic_with_closes)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
