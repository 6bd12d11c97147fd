/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chrome's trace events, as timelines of whole jobs and as Kineto (PyTorch's profiler) writes them:
 * an array of events, or an object with "traceEvents". Events are read one at a time.
 *
 *     {"ph": "X", "name": "forward-compute", "cat": "...", "pid": 0, "tid": 80, "ts": 12.5,
 *      "dur": 3.0, "args": {"step": 16, ...}}
 *
 * json-c per event takes 2.3 us: 0.27 s for the 117,380 events (21 MB) of a recorded job on a host
 * that is otherwise idle. A tokenizer of our own is not worth its code.
 */
#include "monitor/read/trace.h"
#include "core/err.h"
#include "monitor/read/formats.h"

#include <math.h>
#include <string.h>

struct file {
    struct sl_json *json;
    struct sl_job *job;
    struct sl_timeline *timeline;
    struct sl_kineto *kineto; /* where the file is of one rank */
    int64_t base_ns;
};

bool sl_trace_arg(const struct sl_trace_event *event, const char *key, int64_t *number)
{
    struct json_object *value = sl_json_get(event->args, key);

    if (!json_object_is_type(value, json_type_int))
        return false;
    *number = json_object_get_int64(value);
    return true;
}

const char *sl_trace_text(const struct sl_trace_event *event, const char *key)
{
    struct json_object *value = sl_json_get(event->args, key);

    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

/* ---- one event ---- */

static const char *text_of(struct json_object *event, const char *key)
{
    struct json_object *value = sl_json_get(event, key);

    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

/* Numbers; a thread of Kineto may be a text ("stream 7"), which becomes its hash. */
static int64_t id_of(struct json_object *event, const char *key)
{
    struct json_object *value = sl_json_get(event, key);
    uint64_t hash = 14695981039346656037u;

    if (json_object_is_type(value, json_type_int))
        return json_object_get_int64(value);
    for (const char *at = text_of(event, key); *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return (int64_t)(hash >> 1);
}

/* us of the file to ns. */
static int ns_of(struct file *file, struct json_object *event, const char *key, int64_t *ns)
{
    struct json_object *value = sl_json_get(event, key);
    double us;

    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
        return sl_json_refuse(file->json, "the event before has no number \"ts\" or \"dur\"");
    us = json_object_get_double(value);
    if (!isfinite(us) || fabs(us) > 4e15)
        return sl_json_refuse(file->json, "the event before is of no time in this age");
    *ns = (int64_t)(us * 1000);
    return 0;
}

static int add_event(struct file *file, const struct sl_trace_event *event)
{
    if (file->kineto != NULL)
        return sl_kineto_add(file->kineto, event);
    if (file->timeline == NULL)
        file->timeline = sl_timeline_new(file->job);
    if (file->timeline == NULL)
        return sl_fail(-ENOMEM, "no memory to read a trace");
    return sl_timeline_add(file->timeline, event);
}

static int read_event(struct file *file, struct json_object *object)
{
    struct sl_trace_event event = {.name = text_of(object, "name"),
                                   .category = text_of(object, "cat"),
                                   .args = sl_json_get(object, "args")};
    const char *phase = text_of(object, "ph");
    int64_t dur = 0;
    int err;

    if (!json_object_is_type(object, json_type_object) || phase[0] == '\0' || phase[1] != '\0')
        return sl_json_refuse(file->json, "the value before is no event of a trace");
    event.phase = phase[0];
    if (event.phase != 'X' && event.phase != 'M')
        return 0;
    event.process = id_of(object, "pid");
    event.thread = id_of(object, "tid");
    if (event.phase == 'M')
        return add_event(file, &event);
    err = ns_of(file, object, "ts", &event.start_ns);
    if (err == 0)
        err = ns_of(file, object, "dur", &dur);
    if (err != 0)
        return err;
    if (dur < 0)
        return sl_json_refuse(file->json, "the event before ends before it begins");
    event.start_ns += file->base_ns;
    event.end_ns = event.start_ns + dur;
    return add_event(file, &event);
}

static int read_events(struct file *file)
{
    struct json_object *event;
    int err = sl_json_open(file->json, '[');

    while (err == 0) {
        err = sl_json_next(file->json, NULL, 0);
        if (err <= 0)
            break;
        err = sl_json_value(file->json, &event);
        if (err != 0)
            break;
        err = read_event(file, event);
        json_object_put(event);
    }
    return err;
}

/* ---- what is around events ---- */

static int read_rank(struct file *file, struct json_object *info)
{
    uint64_t rank = 0;

    if (file->timeline != NULL || !sl_json_u64(sl_json_get(info, "rank"), &rank))
        return 0;
    if (rank >= SL_JOB_RANKS_MAX || file->kineto != NULL)
        return sl_json_refuse(file->json, "distributedInfo before names no rank");
    file->kineto = sl_kineto_new(file->job, (uint32_t)rank);
    return file->kineto != NULL ? 0 : sl_fail(-ENOMEM, "no memory to read a trace");
}

static int read_member(struct file *file, const char *key)
{
    struct json_object *value;
    uint64_t number = 0;
    int err;

    if (strcmp(key, "traceEvents") == 0)
        return read_events(file);
    err = sl_json_value(file->json, &value);
    if (err != 0)
        return err;
    if (strcmp(key, "distributedInfo") == 0)
        err = read_rank(file, value);
    else if (strcmp(key, "baseTimeNanoseconds") == 0 && sl_json_u64(value, &number) &&
             number < INT64_MAX / 4)
        file->base_ns = (int64_t)number;
    json_object_put(value);
    return err;
}

static int read_object(struct file *file)
{
    char key[64];
    int err = sl_json_open(file->json, '{');

    while (err == 0) {
        err = sl_json_next(file->json, key, sizeof(key));
        if (err <= 0)
            break;
        err = read_member(file, key);
    }
    return err;
}

static int finish(struct file *file, const char *name)
{
    int err = sl_json_end(file->json);

    if (err != 0)
        return err;
    if (file->kineto != NULL)
        return sl_kineto_finish(file->kineto, name);
    if (file->timeline != NULL)
        return sl_timeline_finish(file->timeline, name);
    return sl_fail(-EBADMSG, "%s: no event is in it", name);
}

/* What the first bytes are: '[', '{' or 0. */
static char bracket_of(const char *head, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (head[i] == '[' || head[i] == '{')
            return head[i];
        else if (head[i] != ' ' && head[i] != '\n' && head[i] != '\r' && head[i] != '\t')
            return 0;
    return 0;
}

static bool is_trace(const char *head, size_t len)
{
    switch (bracket_of(head, len)) {
    case '[': return sl_read_has(head, len, "\"ph\"");
    case '{': return sl_read_has(head, len, "\"traceEvents\"");
    default: return false;
    }
}

/* Both forms: the first bytes are seen again by the tokenizer, which says what is wrong. */
struct form {
    struct sl_read_in in;
    struct sl_read_in *under;
    char first[256];
    size_t first_len, first_at;
};

static long more_of(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct form *form = (struct form *)in;
    size_t left = form->first_len - form->first_at;

    if (left == 0)
        return form->under->more(form->under, buffer, cap);
    left = left < cap ? left : cap;
    memcpy(buffer, form->first + form->first_at, left);
    form->first_at += left;
    return (long)left;
}

static int read_trace(struct sl_job *job, struct sl_read_in *in)
{
    struct form form = {.in = {.name = in->name, .more = more_of}, .under = in};
    struct file file = {.job = job};
    long got = in->more(in, form.first, sizeof(form.first));
    int err;

    if (got < 0)
        return (int)got;
    form.first_len = (size_t)got;
    file.json = sl_json_new(&form.in);
    if (file.json == NULL)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    err = bracket_of(form.first, form.first_len) == '{' ? read_object(&file) : read_events(&file);
    if (err == 0)
        err = finish(&file, in->name);
    sl_timeline_free(file.timeline);
    sl_kineto_free(file.kineto);
    sl_json_free(file.json);
    return err;
}

const struct sl_read_format sl_read_trace = {
    .name = "Chrome or Kineto trace", .is = is_trace, .read = read_trace};
