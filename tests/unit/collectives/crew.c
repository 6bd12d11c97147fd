/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that are ranks, and the meeting between them. */
#include "tests/unit/collectives/crew.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct meeting {
    pthread_barrier_t all_in, all_out;
    uint8_t bytes[CREW_MAX * 4096];
};

/* Where some ranks of the crew meet, as often as they like. */
struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    unsigned round;
    bool closed; /* a rank has failed, and comes no more */
    uint8_t bytes[2][CREW_MAX * 4096];
};

struct sub_exchange {
    struct sl_exchange exchange;
    struct group *group;
};

struct member {
    struct sl_exchange exchange;
    struct meeting *meeting;
    const struct crew *crew;
    const struct sl_config *config;
    crew_body *body;
    pthread_t thread;
};

static struct group groups[CREW_GROUPS];
static struct member *members;
static _Thread_local int own_rank;
static char trouble[1024];
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;

void crew_failed(const char *file, int line, const char *what)
{
    pthread_mutex_lock(&trouble_lock);
    if (trouble[0] == '\0')
        snprintf(trouble, sizeof(trouble), "%s:%d: %s; last error: %s", file, line, what,
                 sluice_last_error());
    pthread_mutex_unlock(&trouble_lock);
    for (int g = 0; g < CREW_GROUPS; g++) {
        pthread_mutex_lock(&groups[g].lock);
        groups[g].closed = true;
        pthread_cond_broadcast(&groups[g].changed);
        pthread_mutex_unlock(&groups[g].lock);
    }
}

static int meet(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct member *m = (struct member *)exchange;
    size_t size = (size_t)exchange->size;

    sl_assert(size * len <= sizeof(m->meeting->bytes));
    memcpy(m->meeting->bytes + (size_t)exchange->rank * len, in, len);
    pthread_barrier_wait(&m->meeting->all_in);
    memcpy(out, m->meeting->bytes, size * len);
    pthread_barrier_wait(&m->meeting->all_out);
    return 0;
}

static int meet_group(struct sl_exchange *exchange, const void *in, size_t len, void *out)
{
    struct group *g = ((struct sub_exchange *)exchange)->group;
    size_t size = (size_t)exchange->size;

    sl_assert(size * len <= sizeof(g->bytes[0]));
    pthread_mutex_lock(&g->lock);
    unsigned round = g->round;

    memcpy(g->bytes[round % 2] + (size_t)exchange->rank * len, in, len);
    if (++g->arrived == exchange->size) {
        g->arrived = 0;
        g->round++;
        pthread_cond_broadcast(&g->changed);
    }
    while (g->round == round && !g->closed)
        pthread_cond_wait(&g->changed, &g->lock);
    bool complete = g->round != round;

    memcpy(out, g->bytes[round % 2], size * len);
    pthread_mutex_unlock(&g->lock);
    return complete ? 0 : sl_fail(-ECONNRESET, "a rank has failed");
}

static int create(const struct member *m, struct sl_exchange *exchange, struct sluice_comm **out)
{
    struct sl_comm_transport transport = {.ops = m->crew->ops[m->exchange.rank]};
    struct sl_comm_params params = {.config = m->config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = (uint64_t)m->exchange.rank + 1,
                                    .transports = &transport,
                                    .transport_count = 1};

    return sl_comm_create(exchange, &params, out);
}

int crew_make_as(int rank, int group, const int *ranks, int count, struct sluice_comm **out)
{
    struct sub_exchange sub = {.exchange = {.size = count, .allgather = meet_group},
                               .group = &groups[group]};

    while (ranks[sub.exchange.rank] != rank)
        sub.exchange.rank++;
    return create(&members[rank], &sub.exchange, out);
}

int crew_make(int group, const int *ranks, int count, struct sluice_comm **out)
{
    return crew_make_as(own_rank, group, ranks, count, out);
}

static void *live(void *arg)
{
    struct member *m = arg;
    struct sluice_comm *comm = NULL;

    own_rank = m->exchange.rank;
    if (create(m, &m->exchange, &comm) != 0 && !m->crew->may_fail) {
        crew_failed(__FILE__, __LINE__, "sl_comm_create()");
        return NULL;
    }
    m->body(comm, m->exchange.rank);
    if (!m->crew->keeps)
        sluice_comm_destroy(comm);
    return NULL;
}

static void configure(struct sl_config *config, const char *settings)
{
    char text[512], *rest = text;

    sl_config_defaults(config);
    config->timeout_ms = 20000;
    config->connect_timeout_ms = 20000;
    config->tune = SL_TUNE_OFF;
    snprintf(config->interface, sizeof(config->interface), "lo");
    snprintf(text, sizeof(text), "%s", settings);
    for (char *item; (item = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(item, '=');

        if (value == NULL)
            continue;
        *value = '\0';
        sl_assert(sl_config_set(config, item, value + 1) == 0);
    }
}

const char *crew_run(const struct crew *crew, crew_body *body)
{
    struct member member[CREW_MAX];
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    unsigned ranks = (unsigned)crew->ranks;
    struct sl_config config;

    trouble[0] = '\0';
    members = member;
    for (int g = 0; g < CREW_GROUPS; g++) {
        memset(&groups[g], 0, sizeof(groups[g]));
        pthread_mutex_init(&groups[g].lock, NULL);
        pthread_cond_init(&groups[g].changed, NULL);
    }
    sl_assert(ranks >= 1 && ranks <= CREW_MAX && meeting != NULL);
    configure(&config, crew->settings);
    pthread_barrier_init(&meeting->all_in, NULL, ranks);
    pthread_barrier_init(&meeting->all_out, NULL, ranks);
    for (unsigned i = 0; i < ranks; i++) {
        member[i] =
            (struct member){.exchange = {.rank = (int)i, .size = (int)ranks, .allgather = meet},
                            .meeting = meeting,
                            .crew = crew,
                            .config = &config,
                            .body = body};
        sl_assert(pthread_create(&member[i].thread, NULL, live, &member[i]) == 0);
    }
    for (unsigned i = 0; i < ranks; i++)
        pthread_join(member[i].thread, NULL);
    pthread_barrier_destroy(&meeting->all_in);
    pthread_barrier_destroy(&meeting->all_out);
    free(meeting);
    return trouble[0] != '\0' ? trouble : NULL;
}
