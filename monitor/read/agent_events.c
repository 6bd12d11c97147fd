/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What node agents tell (docs/monitor-api.md): answers to /v1/status, /v1/ports, /v1/events and
 * /v1/verdicts, which have the name of their host, and lines of events, which may; those of a file
 * without it are of the host that the file is named after ("h2.jsonl").
 *
 * A port's counters are totals since the agent began: what of them is wrong, and since when, it has
 * judged itself, and says in the port's conditions.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/json.h"
#include "monitor/read/lines.h"
#include "monitor/read/utc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16

struct answer {
    struct sl_job *job;
    size_t first_event, first_fault; /* of this file */
    uint32_t host;                   /* 0: not told yet */
    int64_t time_ns;                 /* when it was given, or NEVER */
    bool is_fresh;
};

/* Texts of others, as they may be printed: at most 512 bytes, no controls. */
static uint32_t keep(struct sl_job *job, struct json_object *object, const char *key)
{
    char text[512];
    size_t len;
    const char *value = sl_json_text(sl_json_get(object, key), &len);

    if (value == NULL)
        return 0;
    len = len < sizeof(text) ? len : sizeof(text);
    for (size_t i = 0; i < len; i++)
        text[i] = (unsigned char)value[i] < ' ' || value[i] == 0x7f ? '?' : value[i];
    return sl_job_text(job, text, len);
}

static int64_t time_of(struct json_object *object, const char *key)
{
    size_t len;
    const char *text = sl_json_text(sl_json_get(object, key), &len);

    return text != NULL ? sl_utc_ns(text, len) : SL_JOB_NEVER;
}

static bool says(struct json_object *object, const char *key, const char *word)
{
    size_t len;
    const char *text = sl_json_text(sl_json_get(object, key), &len);

    return text != NULL && strcmp(text, word) == 0;
}

/* The parts that all three have. */
static int fill(struct answer *answer, struct json_object *object, struct sl_job_event *event)
{
    uint32_t host = keep(answer->job, object, "host");

    *event = (struct sl_job_event){.host = host,
                                   .kind = keep(answer->job, object, "kind"),
                                   .subject = keep(answer->job, object, "subject"),
                                   .check = keep(answer->job, object, "check"),
                                   .source = keep(answer->job, object, "source"),
                                   .text = keep(answer->job, object, "text")};
    if (host == SL_JOB_NONE || event->kind == SL_JOB_NONE || event->subject == SL_JOB_NONE ||
        event->check == SL_JOB_NONE || event->source == SL_JOB_NONE || event->text == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for what an agent told");
    return 0;
}

static int add(struct answer *answer, struct sl_job_event *event, int64_t from, int64_t to)
{
    event->at_ns = from;
    event->end_ns = to != SL_JOB_NEVER && to > from ? to : from;
    return event->check != 0 ? sl_job_add_event(answer->job, event) : 0;
}

/* An event of a condition that is bad, or the transition to that. */
static int read_event(struct answer *answer, struct json_object *object)
{
    struct sl_job_event event;
    int64_t at = time_of(object, "time");
    int err = fill(answer, object, &event);

    if (err != 0 || (!says(object, "to", "bad") && !says(object, "type", "event")))
        return err;
    return add(answer, &event, at, at);
}

static int read_condition(struct answer *answer, struct json_object *object)
{
    struct sl_job_event event;
    int err = fill(answer, object, &event);
    bool is_bad = says(object, "state", "bad");

    if (err != 0 || (!is_bad && !says(object, "state", "recovering")))
        return err;
    return add(answer, &event, time_of(object, "since"),
               is_bad ? answer->time_ns : time_of(object, "last_bad"));
}

static int read_port(struct answer *answer, struct json_object *port)
{
    struct json_object *list = sl_json_get(port, "conditions");
    size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    int err = 0;

    for (size_t i = 0; i < count && err == 0; i++) {
        struct json_object *condition = json_object_array_get_idx(list, i);

        if (json_object_is_type(condition, json_type_object))
            err = read_condition(answer, condition);
    }
    return err;
}

/* A verdict is an event, and a fault of the host's history. */
static int read_verdict(struct answer *answer, struct json_object *object)
{
    struct sl_job_event event;
    struct sl_job_fault fault;
    int64_t from = time_of(object, "opened"), to = time_of(object, "closed");
    int err = fill(answer, object, &event);

    if (err != 0 || from == SL_JOB_NEVER || sl_json_get(object, "opened") == NULL)
        return err;
    fault = (struct sl_job_fault){.cls = event.check, .text = event.text, .at_ns = from};
    err = sl_job_add_fault(answer->job, &fault);
    return err == 0 ? add(answer, &event, from, to != SL_JOB_NEVER ? to : answer->time_ns) : err;
}

typedef int read_one(struct answer *answer, struct json_object *object);

static int read_list(struct answer *answer, struct sl_json *json, read_one *read)
{
    struct json_object *value;
    int got = sl_json_open(json, '[');

    while (got == 0 && (got = sl_json_next(json, NULL, 0)) == 1) {
        got = sl_json_value(json, &value);
        if (got != 0)
            break;
        got = json_object_is_type(value, json_type_object)
                  ? read(answer, value)
                  : sl_json_refuse(json, "what an agent lists is no object");
        json_object_put(value);
    }
    return got;
}

/* The host and the time stand before the lists. */
static int walk(struct answer *answer, struct sl_json *json)
{
    char key[32];
    struct json_object *value, *holder;
    int got = sl_json_open(json, '{');

    while (got == 0 && (got = sl_json_next(json, key, sizeof(key))) == 1) {
        read_one *read = strcmp(key, "events") == 0       ? read_event
                         : strcmp(key, "conditions") == 0 ? read_condition
                         : strcmp(key, "verdicts") == 0   ? read_verdict
                         : strcmp(key, "ports") == 0      ? read_port
                                                          : NULL;

        if (read != NULL) {
            got = read_list(answer, json, read);
            continue;
        }
        got = sl_json_value(json, &value);
        if (got != 0)
            break;
        holder = json_object_new_object();
        json_object_object_add(holder, key, value);
        if (strcmp(key, "host") == 0)
            answer->host = keep(answer->job, holder, key);
        else if (strcmp(key, "time") == 0)
            answer->time_ns = time_of(holder, key);
        else if (strcmp(key, "fresh") == 0)
            answer->is_fresh = json_object_get_boolean(value);
        json_object_put(holder);
        if (answer->host == SL_JOB_NONE)
            got = sl_fail(-ENOMEM, "no memory for the name of a host");
    }
    return got == 0 ? sl_json_end(json) : got;
}

/* What did not say its host is of the file's. */
static int finish(struct answer *answer)
{
    struct sl_job *job = answer->job;
    struct sl_job_event heard = {
        .host = answer->host, .at_ns = answer->time_ns, .end_ns = answer->time_ns};

    for (size_t i = answer->first_event; i < job->event_count; i++)
        if (job->events[i].host == 0)
            job->events[i].host = answer->host;
    for (size_t i = answer->first_fault; i < job->fault_count; i++)
        if (job->faults[i].host == 0)
            job->faults[i].host = answer->host;
    return answer->is_fresh ? sl_job_add_event(job, &heard) : 0;
}

static struct answer answer_of(struct sl_job *job)
{
    return (struct answer){.job = job,
                           .first_event = job->event_count,
                           .first_fault = job->fault_count,
                           .time_ns = SL_JOB_NEVER};
}

static int read_answer(struct sl_job *job, struct sl_read_in *in)
{
    struct answer answer = answer_of(job);
    struct sl_json *json = sl_json_new(in);
    int err = json == NULL ? sl_fail(-ENOMEM, "no memory to read %s", in->name) : 0;

    if (err == 0)
        err = walk(&answer, json);
    if (err == 0 && answer.host == 0)
        err = sl_fail(-EBADMSG,
                      "%s does not say of which host it is: ask an agent of this version, "
                      "or add \"host\":\"NAME\" to it",
                      in->name);
    if (err == 0)
        err = finish(&answer);
    sl_json_free(json);
    return err;
}

int sl_read_agent_ports(struct sl_job *job, struct json_object *object)
{
    struct answer answer = answer_of(job);
    struct json_object *ports = sl_json_get(object, "ports");
    size_t count =
        json_object_is_type(ports, json_type_array) ? json_object_array_length(ports) : 0;
    int err = 0;

    answer.host = keep(job, object, "host");
    answer.time_ns = time_of(object, "time");
    if (answer.host == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the name of a host");
    for (size_t i = 0; i < count && answer.host != 0 && err == 0; i++) {
        struct json_object *port = json_object_array_get_idx(ports, i);

        if (json_object_is_type(port, json_type_object))
            err = read_port(&answer, port);
    }
    return err == 0 ? finish(&answer) : err;
}

static bool is_answer(const char *head, size_t len)
{
    size_t at = 0;

    while (at < len && (head[at] == ' ' || head[at] == '\n' || head[at] == '\r'))
        at++;
    if (at == len || head[at] != '{' || !sl_read_has(head, len < 64 ? len : 64, "\"version\""))
        return false;
    return sl_read_has(head, len, "\"agent_version\"") ||
           (sl_read_has(head, len < 512 ? len : 512, "\"events\"") &&
            sl_read_has(head, len, "[")) ||
           (sl_read_has(head, len < 512 ? len : 512, "\"host\"") &&
            (sl_read_has(head, len < 512 ? len : 512, "\"verdicts\"") ||
             sl_read_has(head, len < 512 ? len : 512, "\"ports\"")));
}

const struct sl_read_format sl_read_agent = {
    .name = "node agent's status, ports, events or verdicts", .is = is_answer, .read = read_answer};

/* ---- lines ---- */

/* "h2" of "/tmp/h2.jsonl". */
static uint32_t host_of_file(struct sl_job *job, const char *name)
{
    const char *last = strrchr(name, '/');

    last = last != NULL ? last + 1 : name;
    return sl_job_text(job, last, strcspn(last, "."));
}

static int read_line(struct answer *answer, struct sl_lines *lines, struct json_tokener *tokener)
{
    struct json_object *object;
    int err;

    json_tokener_reset(tokener);
    object = json_tokener_parse_ex(tokener, lines->text, (int)lines->len + 1);
    if (!json_object_is_type(object, json_type_object)) {
        json_object_put(object);
        return sl_lines_bad(lines, "that is no object of JSON");
    }
    err = read_event(answer, object);
    json_object_put(object);
    return err;
}

static int read_lines(struct sl_job *job, struct sl_read_in *in)
{
    struct answer answer = answer_of(job);
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
    struct sl_lines lines;
    int err = sl_lines_open(&lines, in);

    answer.host = host_of_file(job, in->name);
    if (err == 0 && (tokener == NULL || answer.host == SL_JOB_NONE))
        err = sl_fail(-ENOMEM, "no memory to read %s", in->name);
    if (tokener != NULL)
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    while (err == 0 && (err = sl_lines_next(&lines)) == 1)
        err = lines.len > 0 ? read_line(&answer, &lines, tokener) : 0;
    if (err == 0)
        err = finish(&answer);
    sl_lines_close(&lines);
    if (tokener != NULL)
        json_tokener_free(tokener);
    return err;
}

static bool is_lines(const char *head, size_t len)
{
    size_t first = len < 128 ? len : 128;

    return len > 0 && head[0] == '{' && sl_read_has(head, first, "\"version\":") &&
           (sl_read_has(head, first, "\"type\":\"transition\"") ||
            sl_read_has(head, first, "\"type\":\"event\""));
}

const struct sl_read_format sl_read_agent_lines = {
    .name = "node agent's lines of events", .is = is_lines, .read = read_lines};
