/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process: all show what they send, and nobody goes on before all have read it. */
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct hub {
    pthread_barrier_t barrier;
    const void *in[RANKS_MOST];
};

struct member {
    struct sl_net net;
    struct hub *hub;
    ranks_body *body;
    void *arg;
    int err;
    pthread_t thread;
};

atomic_size_t ranks_bytes;

static void show(struct member *m, const void *in, size_t len)
{
    if (m->net.rank == 0)
        ranks_bytes += len;
    m->hub->in[m->net.rank] = in;
    pthread_barrier_wait(&m->hub->barrier);
}

static int sum(void *arg, float *x, size_t count)
{
    struct member *m = arg;
    float *total = calloc(count + 1, sizeof(*total));

    show(m, x, count * sizeof(*x));
    for (uint32_t w = 0; w < m->net.ranks; w++)
        sl_add_scaled(total, 1, m->hub->in[w], count);
    pthread_barrier_wait(&m->hub->barrier);
    memcpy(x, total, count * sizeof(*x));
    free(total);
    return 0;
}

static int gather(void *arg, const void *in, size_t len, void *out)
{
    struct member *m = arg;

    show(m, in, len);
    for (uint32_t w = 0; w < m->net.ranks; w++)
        memcpy((char *)out + w * len, m->hub->in[w], len);
    pthread_barrier_wait(&m->hub->barrier);
    return 0;
}

static int exchange(void *arg, const void *in, size_t len, void *out)
{
    struct member *m = arg;

    show(m, in, len * m->net.ranks);
    for (uint32_t w = 0; w < m->net.ranks; w++)
        memcpy((char *)out + w * len, (const char *)m->hub->in[w] + m->net.rank * len, len);
    pthread_barrier_wait(&m->hub->barrier);
    return 0;
}

static void *run(void *arg)
{
    struct member *m = arg;

    m->err = m->body(&m->net, m->arg);
    return NULL;
}

int ranks_run(uint32_t ranks, ranks_body *body, void *arg)
{
    struct member members[RANKS_MOST];
    struct hub hub;
    int err = 0;

    ranks_bytes = 0;
    pthread_barrier_init(&hub.barrier, NULL, ranks);
    for (uint32_t w = 0; w < ranks; w++) {
        members[w] = (struct member){.net = {&members[w], w, ranks, sum, gather, exchange},
                                     .hub = &hub,
                                     .body = body,
                                     .arg = arg};
        if (pthread_create(&members[w].thread, NULL, run, &members[w]) != 0)
            abort();
    }
    for (uint32_t w = 0; w < ranks; w++) {
        pthread_join(members[w].thread, NULL);
        err = err != 0 ? err : members[w].err;
    }
    pthread_barrier_destroy(&hub.barrier);
    return err;
}

void *ranks_memory(size_t size)
{
    void *memory = aligned_alloc(16, (size + 31) & ~(size_t)15);

    memset(memory, 0xa5, size);
    return memory;
}

int ranks_save_and_load(const struct sl_state_part *parts, size_t count, const struct sl_net *net)
{
    size_t len = sl_state_size(parts, count);
    void *bytes = aligned_alloc(16, (len + 15) & ~(size_t)15);
    int err;

    sl_state_save(parts, count, net->ranks, 7, bytes);
    for (size_t i = 0; i < count; i++)
        memset(parts[i].data, 0xa5, parts[i].len);
    err = sl_state_load(parts, count, net->ranks, bytes, len, NULL);
    free(bytes);
    return err;
}
