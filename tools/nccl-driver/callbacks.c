/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin calls back: the logger, which keeps the last warning, and the profiler, which keeps
 * accounts. */
#include "tools/nccl-driver/net.h"
#include "tools/nccl-driver/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EVENTS 4096

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_warning[400];

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static enum net_profiling profiling;
static unsigned event_next, event_open, event_seen;
static struct {
    bool open;
    const void *phandle;
} events[EVENTS];

void net_log_line(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[sizeof(last_warning)];
    va_list args;

    if (level < NET_LOG_NONE || level > NET_LOG_TRACE || fmt == NULL || file == NULL) {
        watch_fail("the logger was called with level %d, file %s, format %s", level,
                   file != NULL ? file : "NULL", fmt != NULL ? fmt : "NULL");
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_mutex_lock(&log_lock);
    if (level == NET_LOG_WARN)
        memcpy(last_warning, text, sizeof(text));
    if (net_verbose)
        fprintf(stderr, "# [%d] %s:%d %s\n", level, file, line, text);
    pthread_mutex_unlock(&log_lock);
}

void net_last_warning(char *text, size_t cap)
{
    pthread_mutex_lock(&log_lock);
    snprintf(text, cap, "%s", last_warning);
    pthread_mutex_unlock(&log_lock);
}

void net_profile(enum net_profiling how)
{
    pthread_mutex_lock(&event_lock);
    profiling = how;
    event_seen = event_open = 0;
    memset(events, 0, sizeof(events));
    pthread_mutex_unlock(&event_lock);
}

unsigned net_profile_open(unsigned *seen)
{
    unsigned open;

    pthread_mutex_lock(&event_lock);
    open = event_open;
    *seen = event_seen;
    pthread_mutex_unlock(&event_lock);
    return open;
}

static int start(void **event, void *phandle)
{
    const struct net_phandle *p = phandle;

    if (p == NULL || p->magic != NET_PHANDLE)
        return watch_fail("the profiler was started with a phandle that is none of ours");
    if (!atomic_load(&p->live))
        return watch_fail("the profiler was started for a request that is done");
    event_seen++;
    if (profiling != PROFILING_ON)
        return 0;
    while (events[event_next % EVENTS].open)
        event_next++;
    events[event_next % EVENTS].open = true;
    events[event_next % EVENTS].phandle = phandle;
    *event = &events[event_next % EVENTS];
    event_next++;
    event_open++;
    return 0;
}

static int stop(void **event, bool close)
{
    size_t at = ((uintptr_t)*event - (uintptr_t)events) / sizeof(events[0]);

    if (*event == NULL)
        return watch_fail("the profiler was %s with no event: none had been taken",
                          close ? "stopped" : "updated");
    if (at >= EVENTS || *event != &events[at] || !events[at].open)
        return watch_fail("the profiler was %s with an event that is not open",
                          close ? "stopped" : "updated");
    if (close) {
        events[at].open = false;
        event_open--;
    }
    return 0;
}

int net_profile_event(void **event, int type, void *phandle, int64_t plugin, void *data)
{
    pthread_mutex_lock(&event_lock);
    if (profiling == PROFILING_OFF) {
        pthread_mutex_unlock(&event_lock);
        return NET_OK;
    }
    if (event == NULL || type < NET_START || type > NET_UPDATE_STOP)
        watch_fail("the profiler was called with type %d", type);
    else if (event_open < EVENTS && type == NET_START)
        start(event, phandle);
    else if (type != NET_START)
        stop(event, type != NET_UPDATE);
    pthread_mutex_unlock(&event_lock);
    return NET_OK;
}
