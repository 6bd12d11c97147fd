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

struct sl_sim_meeting {
    struct sl_sim *sim;
    uint64_t timeout_ns;
    uint32_t size;
    uint8_t **given; /* [size]: of the round under way; a place keeps it until it begins its next */
    uint64_t *round; /* [size]: rounds that each place has given for */
    uint8_t **last;  /* [size]: of the round before, which slow places may still read */
    struct place places[];
};

static int wait_for_all(struct place *p)
{
    struct sl_sim_meeting *m = p->meeting;
    uint64_t limit = m->sim->now_ns + m->timeout_ns;

    for (uint32_t i = 0; i < m->size; i++) {
        while (m->round[i] < p->round) {
            if (m->sim->now_ns > limit)
                return sl_fail(-ETIMEDOUT, "rank %u did not come to the simulated meeting", i);
            sl_sim_idle(&p->worker);
        }
    }
    return 0;
}

static int meet_allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct place *p = (struct place *)exchange;
    struct sl_sim_meeting *m = p->meeting;
    uint32_t idx = (uint32_t)exchange->rank;
    int err;

    free(m->last[idx]);
    m->last[idx] = m->given[idx];
    m->given[idx] = malloc(len + 1);
    sl_assert(m->given[idx] != NULL);
    memcpy(m->given[idx], in, len);
    m->round[idx] = ++p->round;
    err = wait_for_all(p);
    if (err != 0)
        return err;
    /* Nobody can be two rounds ahead: to begin round k + 2 all must have given for k + 1. */
    for (uint32_t i = 0; i < m->size; i++)
        memcpy((uint8_t *)out + i * len, m->round[i] == p->round ? m->given[i] : m->last[i], len);
    return 0;
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
    m->given = calloc(size, sizeof(m->given[0]));
    m->last = calloc(size, sizeof(m->last[0]));
    m->round = calloc(size, sizeof(m->round[0]));
    sl_assert(m->given != NULL && m->last != NULL && m->round != NULL);
    *out = m;
    return 0;
}

void sl_sim_meeting_destroy(struct sl_sim_meeting *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->size; i++) {
        free(m->given[i]);
        free(m->last[i]);
    }
    free(m->given);
    free(m->last);
    free(m->round);
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
