/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that fetch, and the one that waits for them. */
#include "tools/ctl/live.h"
#include "core/clock.h"
#include "core/err.h"
#include "tools/ctl/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* NCCL waits 5 s for peers that it sees delayed, and 5 more for what its peers may bring (its
 * RAS_COLLECTIVE_LEG_TIMEOUT and _EXTRA_TIMEOUT), and a rank that is stopped is such a peer. Of
 * NCCL 2.28.9 some requests had no answer in 13 s then, while others that began 5 s later had one
 * at once: so each look asks anew. After 60 s NCCL takes a silent peer for dead. */
#define RAS_LANES 4
#define RAS_ANSWER_NS ((int64_t)12000000000)
#define RAS_SILENT_NS ((int64_t)60000000000)

struct worker {
    struct sc_sources *sources;
    struct sc_source *source;
};

/* ---- one request, in a thread of the source's ---- */

/* A failure is the source's only where no other request may still bring an answer. One that a
 * later request has overtaken says less. */
static void deliver(struct sc_source *source, uint64_t number, int err, char *bytes, size_t len)
{
    if ((err != 0 && (source->under_way > 0 || source->answer.bytes != NULL)) ||
        number < source->answered) {
        free(bytes);
        return;
    }
    source->answered = err == 0 ? number : source->answered;
    free(source->answer.bytes);
    source->answer = (struct sc_answer){.bytes = err == 0 ? bytes : NULL,
                                        .len = len,
                                        .at_ns = (int64_t)sl_now(&sl_clock_monotonic)};
    snprintf(source->why, sizeof(source->why), "%s", err != 0 ? sluice_last_error() : "");
    source->is_asked = false;
}

static void work_once(struct sc_sources *sources, struct sc_source *source)
{
    char *bytes = NULL;
    size_t len = 0;
    int64_t deadline_ns = source->deadline_ns;
    uint64_t number = ++source->begun;
    int err;

    source->wanted--;
    source->under_way++;
    pthread_mutex_unlock(&sources->lock);
    err = source->fetch(source, deadline_ns, &bytes, &len);
    pthread_mutex_lock(&sources->lock);
    source->under_way--;
    deliver(source, number, err, bytes, len);
    pthread_cond_broadcast(&sources->changed);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct sc_sources *sources = worker->sources;
    struct sc_source *source = worker->source;

    free(worker);
    pthread_mutex_lock(&sources->lock);
    for (;;) {
        while (source->wanted == 0)
            pthread_cond_wait(&sources->changed, &sources->lock);
        work_once(sources, source);
    }
    return NULL;
}

static int start(struct sc_sources *sources, struct sc_source *source)
{
    struct worker *worker;
    pthread_attr_t attr;
    pthread_t thread;
    int err;

    if (source->fetch == NULL)
        return 0;
    worker = malloc(sizeof(*worker));
    if (worker == NULL)
        return sl_fail(-ENOMEM, "no memory to ask %s", source->word);
    *worker = (struct worker){sources, source};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 512 << 10);
    err = pthread_create(&thread, &attr, work, worker);
    pthread_attr_destroy(&attr);
    if (err == 0)
        return 0;
    free(worker);
    return sl_fail(-err, "no thread to ask %s: %s", source->word, sluice_strerror(-err));
}

/* ---- asking ---- */

static unsigned count_asked(const struct sc_sources *sources)
{
    unsigned asked = 0;

    for (unsigned i = 0; i < sources->count; i++)
        asked += sources->list[i].is_asked;
    return asked;
}

static void ask(struct sc_source *source, int64_t now_ns, int64_t wait_ns)
{
    if (source->fetch == NULL)
        return;
    if (!source->is_asked)
        source->asked_ns = now_ns;
    source->is_asked = true;
    if (source->wanted + source->under_way >= source->lanes)
        return;
    source->wanted++;
    source->deadline_ns =
        now_ns + (source->is_ras && wait_ns < RAS_ANSWER_NS ? RAS_ANSWER_NS : wait_ns);
    source->since = source->calls.next;
}

static void note_late(struct sc_source *source, int64_t now_ns, int64_t wait_ns)
{
    source->answer.is_late = source->is_ras && now_ns - source->asked_ns < RAS_SILENT_NS;
    snprintf(source->why, sizeof(source->why), "no answer within %.1f s%s", (double)wait_ns / 1e9,
             source->answer.is_late ? "; NCCL waits for ranks that are silent: it is asked again"
                                    : "");
}

void sc_sources_ask(struct sc_sources *sources, int64_t wait_ns)
{
    int64_t now_ns = (int64_t)sl_now(&sl_clock_monotonic), deadline_ns = now_ns + wait_ns;
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};

    pthread_mutex_lock(&sources->lock);
    for (unsigned i = 0; i < sources->count; i++)
        ask(&sources->list[i], now_ns, wait_ns);
    pthread_cond_broadcast(&sources->changed);
    while (count_asked(sources) > 0 &&
           pthread_cond_timedwait(&sources->changed, &sources->lock, &until) == 0)
        continue;
    for (unsigned i = 0; i < sources->count; i++)
        if (sources->list[i].is_asked)
            note_late(&sources->list[i], deadline_ns, wait_ns);
    pthread_mutex_unlock(&sources->lock);
}

bool sc_sources_take(struct sc_sources *sources, unsigned i, struct sc_answer *out, char why[256])
{
    struct sc_source *source = &sources->list[i];

    pthread_mutex_lock(&sources->lock);
    *out = source->answer;
    source->answer = (struct sc_answer){.bytes = NULL};
    memcpy(why, source->why, 256);
    pthread_mutex_unlock(&sources->lock);
    return out->bytes != NULL;
}

/* ---- what was given ---- */

static int add(struct sc_sources *sources, const char *word)
{
    struct sc_source source = {.word = word, .fetch = sc_agent_fetch, .lanes = 1};
    struct sc_source *more;

    if (strcmp(word, "host") == 0) {
        source.fetch = NULL;
    } else if (strcmp(word, "ras") == 0 || strncmp(word, "ras:", 4) == 0) {
        source.fetch = sc_ras_fetch;
        source.is_ras = true;
        source.lanes = RAS_LANES;
        source.address = word[3] == ':' ? word + 4 : "localhost";
    } else if (strcmp(word, "agent") == 0 || strncmp(word, "agent:", 6) == 0) {
        source.address = word[5] == ':' ? word + 6 : SC_SOCKET;
    } else if (strncmp(word, "http://", 7) == 0) {
        source.address = word;
    } else {
        return sl_fail(-EINVAL,
                       "%s is no source: host, ras[:HOST[:PORT]], agent[:SOCKET], "
                       "http://HOST:PORT, or @FILE with one a line",
                       word);
    }
    if (source.fetch == NULL && source.address != NULL)
        return sl_fail(-ENOTSUP, "%s: this sluicectl was built without what asks agents", word);
    if (sources->count == SC_SOURCES_MAX)
        return sl_fail(-EINVAL, "more than %d sources: a cluster instance reads so many",
                       SC_SOURCES_MAX);
    more = reallocarray(sources->list, sources->count + 1, sizeof(*more));
    if (more == NULL)
        return sl_fail(-ENOMEM, "no memory for sources");
    sources->list = more;
    more[sources->count++] = source;
    return 0;
}

/* Lines, with comments behind '#'. */
static int add_file(struct sc_sources *sources, const char *path)
{
    FILE *in = fopen(path, "re");
    char line[512], **texts;
    int err = in == NULL ? sl_fail(-errno, "%s cannot be opened: %s", path, strerror(errno)) : 0;

    while (err == 0 && fgets(line, sizeof(line), in) != NULL) {
        char *word;

        line[strcspn(line, "#\n")] = '\0';
        word = line + strspn(line, " \t\r");
        word[strcspn(word, " \t\r")] = '\0';
        if (word[0] == '\0')
            continue;
        texts = reallocarray(sources->texts, sources->text_count + 1, sizeof(*texts));
        if (texts == NULL) {
            err = sl_fail(-ENOMEM, "no memory for sources");
            break;
        }
        sources->texts = texts;
        texts[sources->text_count] = strdup(word);
        err = texts[sources->text_count] == NULL ? sl_fail(-ENOMEM, "no memory for sources")
                                                 : add(sources, texts[sources->text_count]);
        sources->text_count++;
    }
    if (in != NULL)
        fclose(in);
    return err;
}

int sc_sources_open(char *const *words, unsigned count, struct sc_sources **out)
{
    struct sc_sources *sources = calloc(1, sizeof(*sources));
    pthread_condattr_t attr;
    int err = sources == NULL ? sl_fail(-ENOMEM, "no memory for sources") : 0;

    if (err != 0)
        return err;
    pthread_mutex_init(&sources->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sources->changed, &attr);
    pthread_condattr_destroy(&attr);
    for (unsigned i = 0; i < count && err == 0; i++)
        err = words[i][0] == '@' ? add_file(sources, words[i] + 1) : add(sources, words[i]);
    if (err == 0 && sources->count == 0)
        err = add(sources, "host");
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < sources->count; i++)
        for (unsigned lane = 0; lane < sources->list[i].lanes && err == 0; lane++)
            err = start(sources, &sources->list[i]);
    *out = sources;
    return err;
}
