/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of a job that runs: each is asked again and again, by threads of its own, so that one
 * that is silent holds up nobody. What a thread brings is bytes; whoever asked reads them.
 */
#ifndef SLUICE_CTL_LIVE_H
#define SLUICE_CTL_LIVE_H

#include "monitor/read/calls.h"
#include "monitor/read/page.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sc_source;

/* What a source answered. */
struct sc_answer {
    char *bytes;  /* NULL: nothing yet, or it failed */
    bool is_late; /* nothing yet, and it may still come */
    size_t len;
    int64_t at_ns; /* CLOCK_MONOTONIC */
};

/* Fetches once: 0 and bytes that the caller frees, or a negative errno with its sentence. May take
 * until deadline_ns of CLOCK_MONOTONIC. In the source's own thread. */
typedef int sc_fetch(const struct sc_source *source, int64_t deadline_ns, char **bytes,
                     size_t *len);

struct sc_source {
    const char *word; /* as it was given, for sentences */
    const char *address;
    sc_fetch *fetch; /* NULL: the pages of this host, read by the caller */
    bool is_ras;
    unsigned lanes; /* requests that may be under way at once: each a thread */

    /* Guarded by the lock of all sources. */
    bool is_asked;    /* and has not answered since */
    int64_t asked_ns; /* since when */
    unsigned wanted;  /* requests that no thread has begun */
    unsigned under_way;
    uint64_t begun, answered; /* requests: how many, and the latest that was answered */
    int64_t deadline_ns;
    uint64_t since; /* of calls: stays as it is while it is asked */
    struct sc_answer answer;
    char why[256]; /* of a failure */

    /* The asking thread's own. */
    bool is_silent;          /* its last failure was said */
    bool is_strange;         /* it was said that its calls make no sense */
    struct sl_calls calls;   /* of an agent */
    struct sc_answer *looks; /* of RAS: earlier answers, the oldest first */
    unsigned look_count;
};

#define SC_SOURCES_MAX 1024

struct sc_sources {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sc_source *list;
    unsigned count;
    char **texts; /* of files with lists */
    unsigned text_count;
};

/* words: "host", "ras[:HOST[:PORT]]", "agent[:SOCKET]", "http://HOST:PORT", "@FILE".
 * One a line in a file.
 * -EINVAL, -ENOENT, ... with a sentence. Threads of sources that do not answer are left when it is
 * closed, and end with the process. */
int sc_sources_open(char *const *words, unsigned count, struct sc_sources **out);

/* Asks all that have a request to spare, and waits until all have answered or wait_ns are over. */
void sc_sources_ask(struct sc_sources *sources, int64_t wait_ns);
/* The answer that came since it was taken last; the caller frees its bytes. False: none, and why
 * has the reason. */
bool sc_sources_take(struct sc_sources *sources, unsigned i, struct sc_answer *out, char why[256]);

sc_fetch sc_ras_fetch;
/* NULL: this build asks no agents. */
extern sc_fetch *const sc_agent_fetch;

/* ---- pages ---- */

struct sc_pages {
    struct sl_page *list;
    unsigned count, cap;
    unsigned unreadable; /* pages that this user may not read, or that are damaged */
};

/* -ENOMEM. The page is the list's then, or freed. */
int sc_pages_add(struct sc_pages *pages, struct sl_page *page);
void sc_pages_free(struct sc_pages *pages);
/* State pages of this host. -ENOMEM. */
int sc_pages_of_host(struct sc_pages *pages);
/* What an agent answered: its ranks with their calls, and its ports, which the job gets. -EBADMSG
 * with a sentence, -ENOMEM. */
int sc_pages_of_agent(struct sc_source *source, const struct sc_answer *answer,
                      struct sc_pages *pages, struct sl_job *job);
/* Keeps those of one job: of that name, or where it is NULL the one with the most processes that
 * live, and without any the one that said something last. Returns how many were left out. */
unsigned sc_pages_choose(struct sc_pages *pages, const char *job);

/* ---- pages as they were ---- */

#define SC_WINDOW_NS ((int64_t)10000000000) /* what passed by paths in it is compared */
#define SC_KEPT_MAX 8                       /* looks at pages within it */

struct sc_kept_look {
    struct sc_pages pages;
    int64_t at_ns; /* CLOCK_MONOTONIC */
};

struct sc_kept {
    struct sc_kept_look looks[SC_KEPT_MAX]; /* the oldest first: as old as the window, once there
                                             * is one */
    unsigned count;
    struct sc_pages last; /* of the last look: who they are, their calls and windows */
};

/* The oldest one that is kept of the same process; the page itself where there is none. */
const struct sl_page *sc_kept_before(const struct sc_kept *kept, const struct sl_page *page);
/* What pages have forgotten of earlier looks, calls and windows, comes back into them. -ENOMEM. */
int sc_kept_recall(struct sc_kept *kept, struct sc_pages *pages);
/* The look is over: its pages are kept, or freed where the last ones that are kept are young.
 * -ENOMEM. */
int sc_kept_add(struct sc_kept *kept, struct sc_pages *pages);
void sc_kept_free(struct sc_kept *kept);

/* ---- the command ---- */

int sc_live(int count, char **words);

#endif
