/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting in memory: who comes last to a round ends it. */
#include "tests/unit/collectives/meeting.h"

#include "core/err.h"

#include <string.h>

void meeting_open(struct meeting *m)
{
    memset(m, 0, sizeof(*m));
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
}

void meeting_close(struct meeting *m)
{
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static int allgather(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct meeting *m = ((struct attendance *)exchange)->meeting;
    size_t all = (size_t)exchange->size * len;

    sl_assert(all <= sizeof(m->bytes[0]));
    pthread_mutex_lock(&m->lock);
    unsigned round = m->round;

    memcpy(m->bytes[round % 2] + (size_t)exchange->rank * len, in, len);
    if (++m->arrived == exchange->size) {
        m->arrived = 0;
        m->round++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->round == round && !m->closed)
        pthread_cond_wait(&m->changed, &m->lock);
    bool complete = m->round != round;

    if (complete)
        memcpy(out, m->bytes[round % 2], all);
    pthread_mutex_unlock(&m->lock);
    return complete ? 0 : sl_fail(-ECONNRESET, "another rank has left");
}

struct attendance meeting_attend(struct meeting *m, int rank, int size)
{
    return (struct attendance){{.rank = rank, .size = size, .allgather = allgather}, m};
}
