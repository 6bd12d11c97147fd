/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that are ranks, and the meeting between them. */
#include "tests/unit/collectives/crew.h"

#include "core/clock.h"
#include "tests/unit/collectives/meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
    struct attendance attendance;
    int rank;
    const struct crew *crew;
    const struct sl_config *config;
    crew_body *body;
    pthread_t thread;
};

static struct meeting everyone, groups[CREW_GROUPS];
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
    meeting_close(&everyone);
    for (int g = 0; g < CREW_GROUPS; g++)
        meeting_close(&groups[g]);
}

static int create(const struct member *m, struct sl_exchange *exchange, struct sluice_comm **out)
{
    struct sl_comm_transport transport = {.ops = m->crew->ops[m->rank]};
    struct sl_comm_params params = {.config = m->config,
                                    .clock = &sl_clock_monotonic,
                                    .seed = (uint64_t)m->rank + 1,
                                    .transports = &transport,
                                    .transport_count = 1};

    return sl_comm_create(exchange, &params, out);
}

int crew_make_as(int rank, int group, const int *ranks, int count, struct sluice_comm **out)
{
    struct attendance sub;
    int at = 0;

    while (ranks[at] != rank)
        at++;
    sub = meeting_attend(&groups[group], at, count);
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

    own_rank = m->rank;
    if (create(m, &m->attendance.exchange, &comm) != 0 && !m->crew->may_fail) {
        crew_failed(__FILE__, __LINE__, "sl_comm_create()");
        return NULL;
    }
    m->body(comm, m->rank);
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
    unsigned ranks = (unsigned)crew->ranks;
    struct sl_config config;

    trouble[0] = '\0';
    members = member;
    meeting_open(&everyone);
    for (int g = 0; g < CREW_GROUPS; g++)
        meeting_open(&groups[g]);
    sl_assert(ranks >= 1 && ranks <= CREW_MAX);
    configure(&config, crew->settings);
    for (unsigned i = 0; i < ranks; i++) {
        member[i] = (struct member){.attendance = meeting_attend(&everyone, (int)i, (int)ranks),
                                    .rank = (int)i,
                                    .crew = crew,
                                    .config = &config,
                                    .body = body};
        sl_assert(pthread_create(&member[i].thread, NULL, live, &member[i]) == 0);
    }
    for (unsigned i = 0; i < ranks; i++)
        pthread_join(member[i].thread, NULL);
    return trouble[0] != '\0' ? trouble : NULL;
}

bool crew_alike(struct sluice_comm *comm, const void *bytes, size_t len)
{
    unsigned char *first = malloc(len);
    int32_t differs, most = 1;

    sl_assert(first != NULL);
    memcpy(first, bytes, len);
    if (sluice_broadcast(comm, first, first, len, SLUICE_U8, 0, NULL) == 0) {
        differs = memcmp(first, bytes, len) != 0;
        if (sluice_allreduce(comm, &differs, &most, 1, SLUICE_I32, SLUICE_MAX, NULL) != 0)
            most = 1;
    }
    free(first);
    return most == 0;
}
