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

struct member {
    struct sl_exchange exchange;
    struct meeting *meeting;
    const struct crew *crew;
    const struct sl_config *config;
    crew_body *body;
    pthread_t thread;
};

static char trouble[1024];
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;

void crew_failed(const char *file, int line, const char *what)
{
    pthread_mutex_lock(&trouble_lock);
    if (trouble[0] == '\0')
        snprintf(trouble, sizeof(trouble), "%s:%d: %s; last error: %s", file, line, what,
                 sluice_last_error());
    pthread_mutex_unlock(&trouble_lock);
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

static void *live(void *arg)
{
    struct member *m = arg;
    struct sl_comm_transport transport = {.ops = m->crew->ops[m->exchange.rank]};
    struct sl_comm_params params = {.config = m->config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = (uint64_t)m->exchange.rank + 1,
                                    .transports = &transport,
                                    .transport_count = 1};
    struct sluice_comm *comm = NULL;

    if (sl_comm_create(&m->exchange, &params, &comm) != 0 && !m->crew->may_fail) {
        crew_failed(__FILE__, __LINE__, "sl_comm_create()");
        return NULL;
    }
    m->body(comm, m->exchange.rank);
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
