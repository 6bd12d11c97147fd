/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of one simulation swap addresses: arrays that all of them can see. */
#include "testing/sim/net.h"

#include <stdlib.h>
#include <string.h>

struct place {
    struct sl_exchange base;
    struct sl_sim_meeting *meeting;
    struct sl_worker worker; /* only to idle with */
    uint64_t round;          /* how many of its rounds have begun */
};

/* What all places gave in one round, one after the other. */
struct round {
    uint8_t *bytes;
    size_t len; /* of each */
    uint64_t number;
    uint32_t given;
};

struct sl_sim_meeting {
    struct sl_sim *sim;
    uint64_t timeout_ns;
    uint32_t size;
    /* Nobody can be two rounds ahead: to begin round k + 2 all must have given for k + 1, and have
     * read round k. */
    struct round rounds[2];
    struct place places[];
};

static int given_up(void)
{
    return sl_fail(-ETIMEDOUT, "the other ranks have given this round of the meeting up");
}

static int wait_for_all(struct place *p, const struct round *round)
{
    struct sl_sim_meeting *m = p->meeting;
    uint64_t limit = m->sim->now_ns + m->timeout_ns;

    while (round->number == p->round && round->given < m->size) {
        if (m->sim->now_ns > limit) {
            uint32_t i = 0;

            while (m->places[i].round >= p->round)
                i++;
            return sl_fail(-ETIMEDOUT, "rank %u did not come to the simulated meeting", i);
        }
        sl_sim_idle(&p->worker);
    }
    return round->number == p->round ? 0 : given_up();
}

/* The first of a round makes room for it. */
static void begin_round(struct sl_sim_meeting *m, struct round *round, uint64_t number, size_t len)
{
    if (round->number >= number)
        return;
    free(round->bytes);
    *round = (struct round){.bytes = malloc(m->size * len + 1), .len = len, .number = number};
    sl_assert(round->bytes != NULL);
}

static int meet_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct place *p = (struct place *)exchange;
    struct sl_sim_meeting *m = p->meeting;
    struct round *round = &m->rounds[++p->round % 2];
    int err;

    begin_round(m, round, p->round, len);
    if (round->number > p->round)
        return given_up();
    sl_assert(round->len == len);
    memcpy(round->bytes + (size_t)exchange->rank * len, in, len);
    round->given++;
    err = wait_for_all(p, round);
    if (err == 0)
        memcpy(out, round->bytes, m->size * len);
    return err;
}

static void meet_close(struct sl_exchange *exchange)
{
    (void)exchange; /* places belong to the meeting */
}

int sl_sim_meeting_create(struct sl_sim *sim, uint32_t size, uint64_t timeout_ns,
                          struct sl_sim_meeting **out)
{
    struct sl_sim_meeting *m = calloc(1, sizeof(*m) + size * sizeof(m->places[0]));

    if (m == NULL)
        return sl_fail(-ENOMEM, "no memory for a simulated meeting");
    m->sim = sim;
    m->size = size;
    m->timeout_ns = timeout_ns;
    *out = m;
    return 0;
}

void sl_sim_meeting_destroy(struct sl_sim_meeting *m)
{
    if (m == NULL)
        return;
    free(m->rounds[0].bytes);
    free(m->rounds[1].bytes);
    free(m);
}

struct sl_exchange *sl_sim_meeting_exchange(struct sl_sim_meeting *m, uint32_t idx, uint32_t rank)
{
    struct place *p = &m->places[idx];

    *p = (struct place){
        .base = {.rank = (int)idx,
                 .size = (int)m->size,
                 .allgather = meet_allgather,
                 .close = meet_close},
        .meeting = m,
        .worker = {.clock = &m->sim->clock,
                   .idle = sl_sim_idle,
                   .idle_arg = sl_sim_idle_arg(m->sim, rank)},
    };
    return &p->base;
}
