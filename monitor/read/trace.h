/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of Chrome's trace events share: an event, and who makes operations of events. */
#ifndef SL_MONITOR_READ_TRACE_H
#define SL_MONITOR_READ_TRACE_H

#include "monitor/read/json.h"

/* A complete event ("ph": "X") or a name ("ph": "M"). Its texts are json-c's, until it is put. */
struct sl_trace_event {
    char phase;
    const char *name;
    const char *category; /* "" where there is none */
    int64_t process, thread;
    int64_t start_ns, end_ns;
    struct json_object *args; /* NULL: none */
};

/* A whole number of the event's args. False: it is not there, or none. */
bool sl_trace_arg(const struct sl_trace_event *event, const char *key, int64_t *number);
/* A text of the event's args, NULL: it is not there. */
const char *sl_trace_text(const struct sl_trace_event *event, const char *key);

/* Events of all ranks in one file, whose threads say which rank they are of. */
struct sl_timeline;
struct sl_timeline *sl_timeline_new(struct sl_job *job);
void sl_timeline_free(struct sl_timeline *timeline);
int sl_timeline_add(struct sl_timeline *timeline, const struct sl_trace_event *event);
/* All were added: they become operations. name: of the file, for sentences. */
int sl_timeline_finish(struct sl_timeline *timeline, const char *name);

/* Kineto's: a file a rank, what its GPU did. */
struct sl_kineto;
struct sl_kineto *sl_kineto_new(struct sl_job *job, uint32_t rank);
void sl_kineto_free(struct sl_kineto *kineto);
int sl_kineto_add(struct sl_kineto *kineto, const struct sl_trace_event *event);
int sl_kineto_finish(struct sl_kineto *kineto, const char *name);

#endif
