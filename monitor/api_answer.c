/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/api_answer.h"

#include "monitor/calls.h"
#include "monitor/event_line.h"
#include "monitor/json_add.h"
#include "monitor/observe.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORTS_MAX 512
#define BATCH 32 /* records that are read at once */

/* ---- pieces of JSON ---- */

/* Seconds, to a thousandth: a double would show what it cannot hold. */
static void add_seconds(struct json_object *out, const char *key, uint64_t ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu.%03u", (unsigned long long)(ns / 1000000000),
             (unsigned)(ns / 1000000 % 1000));
    json_object_object_add(out, key, json_object_new_double_s((double)ns / 1e9, text));
}

/* null: never. */
static void add_time(struct json_object *out, const char *key, uint64_t wall_ns)
{
    char text[48];

    if (wall_ns == 0) {
        json_object_object_add(out, key, NULL);
        return;
    }
    sl_mon_time_text(wall_ns, text, sizeof(text));
    sl_json_add_text(out, key, text);
}

/* What the wall clock said then, as it goes now: somebody may have set it in between. */
static uint64_t wall_of(const struct sl_mon_time *now, uint64_t mono_ns)
{
    uint64_t ago = now->mono_ns > mono_ns ? now->mono_ns - mono_ns : 0;

    return now->wall_ns > ago ? now->wall_ns - ago : 0;
}

static bool is_active(uint8_t state)
{
    return state == SL_MON_BAD || state == SL_MON_RECOVERING;
}

/* With the host it is of: answers are kept, and read elsewhere. */
static struct json_object *object_of_host(struct sl_agent *agent)
{
    struct json_object *object = sl_http_object();
    char host[256] = "";

    (void)gethostname(host, sizeof(host) - 1);
    sl_json_add_text(object, "host", host);
    sl_json_add_text(object, "boot_id", sl_mon_boot(sl_agent_mon(agent)));
    return object;
}

/* ---- probes and health ---- */

static bool is_alarm(const char *state)
{
    return strcmp(state, "down") == 0 || strcmp(state, "stale") == 0;
}

static struct json_object *probes_of(struct sl_agent *agent)
{
    struct json_object *list = json_object_new_array();
    unsigned count;
    const struct sl_mon_probe *probes = sl_agent_probes(agent, &count);

    for (unsigned i = 0; i < count; i++) {
        struct json_object *one = json_object_new_object();
        const char *state = sl_agent_probe_state(agent, i);

        sl_json_add_text(one, "name", probes[i].name);
        sl_json_add_text(one, "how", probes[i].how);
        sl_json_add_text(one, "state", state);
        sl_json_add_bool(one, "is_alarm", is_alarm(state));
        sl_json_add_text(one, "why", probes[i].why);
        add_time(one, "sampled", probes[i].sampled_ns);
        sl_json_add_number(one, "dropped", probes[i].dropped);
        json_object_array_add(list, one);
    }
    return list;
}

static int answer_health(struct sl_agent *agent, FILE *out, int *status)
{
    struct json_object *object = sl_http_object(), *stale = json_object_new_array();
    char why[1024];
    bool is_fresh = sl_agent_is_fresh(agent, why, sizeof(why));
    unsigned count;
    const struct sl_mon_probe *probes = sl_agent_probes(agent, &count);

    for (unsigned i = 0; i < count; i++)
        if (is_alarm(sl_agent_probe_state(agent, i)))
            json_object_array_add(stale, json_object_new_string(probes[i].name));
    sl_json_add_bool(object, "healthy", is_fresh);
    sl_json_add_text(object, "why", why);
    json_object_object_add(object, "stale", stale);
    *status = is_fresh ? 200 : 503;
    return sl_http_write(object, out);
}

/* ---- conditions ---- */

static struct json_object *
condition_of(struct sl_agent *agent, const struct sl_mon_subject *subject, enum sl_mon_check check)
{
    const struct sl_mon_time *now = sl_mon_time(sl_agent_mon(agent));
    const struct sl_mon_condition *condition = sl_mon_condition(subject, check);
    const struct sl_mon_check_row *row = &sl_mon_checks[check];
    struct json_object *one = json_object_new_object();
    enum sl_mon_check first;
    const struct sl_mon_evidence *evidence;

    (void)sl_mon_checks_of(subject->kind, &first);
    evidence = &subject->evidence[check - first];
    sl_json_add_text(one, "kind", sl_mon_kind_name(subject->kind));
    sl_json_add_text(one, "subject", subject->name);
    sl_json_add_text(one, "label", subject->label);
    sl_json_add_text(one, "check", row->name);
    sl_json_add_text(one, "class", row->condition);
    sl_json_add_text(one, "severity", row->severity == SL_MON_FATAL ? "fatal" : "degraded");
    sl_json_add_text(one, "state", sl_mon_state_name((enum sl_mon_state)condition->state));
    add_time(one, "since", wall_of(now, condition->since_ns));
    add_seconds(one, "for_s",
                now->mono_ns > condition->since_ns ? now->mono_ns - condition->since_ns : 0);
    add_time(one, "last_bad", condition->bad_ns == 0 ? 0 : wall_of(now, condition->bad_ns));
    sl_json_add_number(one, "bad_samples", condition->bads);
    sl_json_add_text(one, "source", evidence->source != NULL ? evidence->source : "");
    sl_json_add_text(one, "text", evidence->text);
    sl_json_add_text(one, "means", row->help);
    json_object_object_add(
        one, "history", json_object_new_double(sl_mon_condition_history(condition, now->mono_ns)));
    return one;
}

/* Of one subject, or NULL: of all. */
static struct json_object *conditions_of(struct sl_agent *agent, const struct sl_mon_subject *only)
{
    struct json_object *list = json_object_new_array();

    for (const struct sl_mon_subject *at = sl_mon_next(sl_agent_mon(agent), NULL); at != NULL;
         at = sl_mon_next(sl_agent_mon(agent), at)) {
        enum sl_mon_check first;
        unsigned count = sl_mon_checks_of(at->kind, &first);

        for (unsigned i = 0; i < count && (only == NULL || only == at); i++)
            if (at->conditions[i].state != SL_MON_OK)
                json_object_array_add(list,
                                      condition_of(agent, at, (enum sl_mon_check)(first + i)));
    }
    return list;
}

struct counts {
    uint64_t subjects[SL_MON_KINDS], states[SL_MON_STATES];
    bool has_fatal, has_degraded; /* a condition that is BAD, or was a moment ago */
};

static void count_all(const struct sl_mon *mon, struct counts *out)
{
    *out = (struct counts){.has_fatal = false};
    for (const struct sl_mon_subject *at = sl_mon_next(mon, NULL); at != NULL;
         at = sl_mon_next(mon, at)) {
        enum sl_mon_check first;
        unsigned count = sl_mon_checks_of(at->kind, &first);

        out->subjects[at->kind]++;
        for (unsigned i = 0; i < count; i++) {
            out->states[at->conditions[i].state]++;
            if (!is_active(at->conditions[i].state))
                continue;
            if (sl_mon_checks[first + i].severity == SL_MON_FATAL)
                out->has_fatal = true;
            else
                out->has_degraded = true;
        }
    }
}

static const char *health_of(const struct counts *counts, bool is_fresh)
{
    return counts->has_fatal ? "bad" : counts->has_degraded || !is_fresh ? "degraded" : "ok";
}

const char *sl_api_health(struct sl_agent *agent)
{
    struct counts counts;
    char why[1024];

    count_all(sl_agent_mon(agent), &counts);
    return health_of(&counts, sl_agent_is_fresh(agent, why, sizeof(why)));
}

static struct json_object *counts_of(const struct sl_mon *mon, const struct counts *counts)
{
    struct json_object *out = json_object_new_object(), *subjects = json_object_new_object(),
                       *conditions = json_object_new_object();

    for (unsigned i = 0; i < SL_MON_KINDS; i++)
        sl_json_add_number(subjects, sl_mon_kind_name((enum sl_mon_kind)i), counts->subjects[i]);
    for (unsigned i = 0; i < SL_MON_STATES; i++)
        sl_json_add_number(conditions, sl_mon_state_name((enum sl_mon_state)i), counts->states[i]);
    json_object_object_add(out, "subjects", subjects);
    json_object_object_add(out, "conditions", conditions);
    sl_json_add_number(out, "left_out", sl_mon_left_out(mon));
    return out;
}

/* ---- answers ---- */

static int answer_index(FILE *out)
{
    struct json_object *object = sl_http_object(), *list = json_object_new_object();
    const char *path, *help;

    for (unsigned i = 0; (path = sl_api_endpoint(i, &help)) != NULL; i++)
        sl_json_add_text(list, path, help);
    json_object_object_add(object, "endpoints", list);
    return sl_http_write(object, out);
}

static int answer_status(struct sl_agent *agent, FILE *out)
{
    struct json_object *object = sl_http_object();
    struct sl_mon *mon = sl_agent_mon(agent);
    char host[64] = "?", why[1024];
    bool is_fresh = sl_agent_is_fresh(agent, why, sizeof(why));
    const struct sl_mon_time *now = sl_mon_time(mon);
    struct counts counts;

    count_all(mon, &counts);
    (void)gethostname(host, sizeof(host) - 1);
    sl_json_add_text(object, "host", host);
    sl_json_add_text(object, "boot_id", sl_mon_boot(mon));
    sl_json_add_text(object, "agent_version", sl_agent_version(agent));
    sl_json_add_number(object, "pid", (uint64_t)getpid());
    add_time(object, "time", now->wall_ns);
    add_seconds(object, "host_up_s", now->boot_ns);
    add_seconds(object, "agent_up_s", sl_agent_up_ns(agent));
    sl_json_add_bool(object, "records", sl_agent_records(agent));
    sl_json_add_text(object, "health", health_of(&counts, is_fresh));
    sl_json_add_bool(object, "fresh", is_fresh);
    sl_json_add_text(object, "why", why);
    sl_json_add_text(object, "note", sl_agent_note(agent));
    sl_json_add_bool(object, "config_is_good", sl_agent_config_is_good(agent));
    sl_json_add_number(object, "last_event", sl_mon_store_next(sl_agent_store(agent)) - 1);
    json_object_object_add(object, "counts", counts_of(mon, &counts));
    json_object_object_add(object, "conditions", conditions_of(agent, NULL));
    json_object_object_add(object, "probes", probes_of(agent));
    (void)sl_agent_json(agent, "steering", object);
    return sl_http_write(object, out);
}

static struct json_object *port_of(struct sl_agent *agent, const struct sl_mon_port *port)
{
    struct json_object *one = json_object_new_object(), *errors = json_object_new_object();
    const struct sl_mon_subject *subject = port->subject;

    sl_json_add_text(one, "subject", subject->name);
    sl_json_add_text(one, "label", subject->label);
    if (port->last.has_state)
        sl_json_add_bool(one, "up", port->last.is_up);
    else
        json_object_object_add(one, "up", NULL);
    sl_json_add_bool(one, "in_use", sl_mon_in_use(sl_agent_mon(agent), subject));
    sl_json_add_number(one, "speed_bits_per_s", port->last.speed);
    sl_json_add_number(one, "transmit_bytes", port->sent);
    sl_json_add_number(one, "receive_bytes", port->received);
    sl_json_add_number(one, "flaps", port->flaps);
    for (unsigned i = 0; i < SL_MON_COUNTER_COUNT; i++)
        if (sl_mon_counters[i].kind[0] != '\0')
            sl_json_add_number(errors, sl_mon_counters[i].kind, port->totals[i]);
    json_object_object_add(one, "errors", errors);
    sl_json_add_text(one, "state", sl_mon_state_name(sl_mon_subject_state(subject)));
    json_object_object_add(one, "conditions", conditions_of(agent, subject));
    return one;
}

static int answer_ports(struct sl_agent *agent, FILE *out)
{
    const struct sl_mon_port *ports[PORTS_MAX];
    unsigned count = sl_agent_ports(agent, ports, PORTS_MAX);
    struct json_object *object = sl_http_object(), *list = json_object_new_array();
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    sl_json_add_text(object, "host", host);
    add_time(object, "time", sl_mon_time(sl_agent_mon(agent))->wall_ns);
    for (unsigned i = 0; i < count; i++)
        json_object_array_add(list, port_of(agent, ports[i]));
    json_object_object_add(object, "ports", list);
    return sl_http_write(object, out);
}

static int answer_probes(struct sl_agent *agent, FILE *out)
{
    struct json_object *object = sl_http_object();

    json_object_object_add(object, "probes", probes_of(agent));
    return sl_http_write(object, out);
}

/* The processes that are subjects, and what the sources know of them. */
static int answer_ranks(struct sl_agent *agent, FILE *out)
{
    struct json_object *object = sl_http_object(), *list = json_object_new_array();
    struct sl_mon *mon = sl_agent_mon(agent);
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    sl_json_add_text(object, "host", host);
    add_time(object, "time", sl_mon_time(mon)->wall_ns);
    /* Whoever reads the answer by its beginning sees what it is. */
    json_object_object_add(object, "processes", list);
    for (const struct sl_mon_subject *at = sl_mon_next(mon, NULL); at != NULL;
         at = sl_mon_next(mon, at)) {
        struct json_object *one;

        if (at->kind != SL_MON_PROCESS)
            continue;
        one = json_object_new_object();
        sl_json_add_text(one, "subject", at->name);
        sl_json_add_text(one, "label", at->label);
        sl_json_add_text(one, "state", sl_mon_state_name(sl_mon_subject_state(at)));
        json_object_object_add(one, "conditions", conditions_of(agent, at));
        json_object_array_add(list, one);
    }
    (void)sl_agent_json(agent, "ranks", object);
    (void)sl_agent_json(agent, "sluice", object);
    return sl_http_write(object, out);
}

static int answer_source(struct sl_agent *agent, const char *name, FILE *out, int *status)
{
    struct json_object *object = sl_http_object();
    char why[96];

    if (!sl_agent_json(agent, name, object)) {
        *status = 404;
        snprintf(why, sizeof(why), "no source '%s' is on here that has an answer of its own", name);
        sl_json_add_text(object, "error", why);
    }
    return sl_http_write(object, out);
}

static int answer_config(struct sl_agent *agent, FILE *out)
{
    static const char *const words[] = {
        [SL_MON_OFF] = "off", [SL_MON_AUTO] = "auto", [SL_MON_ON] = "on"};
    struct json_object *object = sl_http_object(), *sections = json_object_new_object(), *section;
    const char *config = (const char *)sl_agent_config(agent);

    for (unsigned i = 0; i < sl_mon_config_row_count; i++) {
        const struct sl_mon_config_row *row = &sl_mon_config_rows[i];
        const void *field = config + row->offset;
        char mode[8], word[SL_MON_WORD];

        if (!json_object_object_get_ex(sections, row->section, &section)) {
            section = json_object_new_object();
            json_object_object_add(sections, row->section, section);
        }
        switch (row->type) {
        case SL_MON_CONFIG_NUMBER:
            json_object_object_add(section, row->key,
                                   json_object_new_int64(*(const int64_t *)field));
            break;
        case SL_MON_CONFIG_WANTED:
            sl_json_add_text(section, row->key, words[*(const enum sl_mon_wanted *)field]);
            break;
        case SL_MON_CONFIG_MODE:
            snprintf(mode, sizeof(mode), "%04o", (unsigned)*(const int64_t *)field & 07777);
            sl_json_add_text(section, row->key, mode);
            break;
        case SL_MON_CONFIG_CHOICE:
            sl_mon_config_word(row, sl_agent_config(agent), word);
            sl_json_add_text(section, row->key, word);
            break;
        default: sl_json_add_text(section, row->key, field); break;
        }
    }
    sl_json_add_bool(object, "last_reload_is_good", sl_agent_config_is_good(agent));
    json_object_object_add(object, "config", sections);
    return sl_http_write(object, out);
}

/* One that is after all that there is comes from another store, and waits for nothing. */
bool sl_api_has_news(struct sl_agent *agent, uint64_t since)
{
    return sl_mon_store_next(sl_agent_store(agent)) != since + 1;
}

/* Lines of events are objects of JSON as they are. */
static int answer_events(struct sl_agent *agent, const struct sl_api_request *request, FILE *out)
{
    struct sl_mon_store *store = sl_agent_store(agent);
    struct sl_mon_record *records = calloc(BATCH, sizeof(*records));
    uint64_t last = sl_mon_store_next(store) - 1, at = request->since;
    bool is_reset = request->since > last; /* that number is of another store */
    unsigned left = request->limit;
    struct json_object *head = object_of_host(agent);
    const char *text = json_object_to_json_string_ext(head, JSON_C_TO_STRING_PLAIN);
    int count = 1, err = 0;

    if (records == NULL || text == NULL) {
        free(records);
        json_object_put(head);
        return sl_fail(-ENOMEM, "no memory for events");
    }
    fprintf(out, "%.*s,\"events\":[", (int)strlen(text) - 1, text);
    json_object_put(head);
    while (err == 0 && left > 0 && count > 0 && !is_reset) {
        count = sl_mon_store_list(store, at + 1, records, left < BATCH ? left : BATCH);
        for (int i = 0; err == 0 && i < count; i++) {
            fputs(left == request->limit ? "\n" : ",", out);
            err = sl_mon_event_line(&records[i], out);
            at = records[i].id;
            left--;
        }
    }
    free(records);
    if (err == 0)
        err = count < 0 ? count : 0;
    fprintf(out, "],\"next\":%llu,\"last\":%llu,\"reset\":%s}\n",
            (unsigned long long)(left == 0 || (at > last && !is_reset) ? at : last),
            (unsigned long long)last, is_reset ? "true" : "false");
    return err;
}

static struct json_object *verdict_of(const struct sl_mon_verdict *verdict)
{
    struct json_object *one = json_object_new_object();

    sl_json_add_number(one, "id", verdict->id);
    sl_json_add_bool(one, "open", verdict->closed_ns == 0);
    add_time(one, "opened", verdict->opened_ns);
    add_time(one, "closed", verdict->closed_ns);
    add_time(one, "acked", verdict->acked_ns);
    sl_json_add_text(one, "acked_by", verdict->acked_by);
    sl_json_add_text(one, "kind", verdict->kind);
    sl_json_add_text(one, "subject", verdict->subject);
    sl_json_add_text(one, "check", verdict->check);
    sl_json_add_text(one, "class", verdict->condition);
    sl_json_add_text(one, "severity", verdict->is_fatal ? "fatal" : "degraded");
    sl_json_add_text(one, "text", verdict->text);
    sl_json_add_text(one, "boot_id", verdict->boot_id);
    return one;
}

static int answer_verdicts(struct sl_agent *agent, const struct sl_api_request *request, FILE *out)
{
    struct json_object *object, *list;
    struct sl_mon_verdict *verdicts = calloc(BATCH, sizeof(*verdicts));
    uint64_t at = request->since;
    unsigned left = request->limit;
    int count = 1;

    if (verdicts == NULL)
        return sl_fail(-ENOMEM, "no memory for verdicts");
    object = object_of_host(agent);
    list = json_object_new_array();
    while (left > 0 && count > 0) {
        count = sl_mon_store_verdicts(sl_agent_store(agent), at + 1, request->is_open_only,
                                      verdicts, left < BATCH ? left : BATCH);
        for (int i = 0; i < count; i++) {
            json_object_array_add(list, verdict_of(&verdicts[i]));
            at = verdicts[i].id;
            left--;
        }
    }
    free(verdicts);
    json_object_object_add(object, "verdicts", list);
    sl_json_add_number(object, "next", at);
    sl_json_add_bool(object, "more", left == 0);
    if (count < 0) {
        json_object_put(object);
        return count;
    }
    return sl_http_write(object, out);
}

static int answer_ack(struct sl_agent *agent, const struct sl_api_request *request,
                      const struct sl_api_asker *asker, FILE *out, int *status)
{
    struct json_object *object;
    char by[64];
    int err;

    sl_agent_turn(agent); /* what time it is */
    if (request->by[0] != '\0')
        snprintf(by, sizeof(by), "%s (%s)", request->by, asker->by);
    else
        snprintf(by, sizeof(by), "%s", asker->by);
    err = sl_mon_store_verdict_ack(sl_agent_store(agent), request->id,
                                   sl_mon_time(sl_agent_mon(agent))->wall_ns, by);
    if (err != 0 && err != -ENOENT)
        return err;
    object = sl_http_object();
    if (err == 0) {
        sl_json_add_number(object, "acked", request->id);
    } else {
        *status = 404;
        sl_json_add_text(object, "error", sluice_last_error());
    }
    return sl_http_write(object, out);
}

static int answer_clear(struct sl_agent *agent, const struct sl_api_request *request, FILE *out,
                        int *status)
{
    struct json_object *object = sl_http_object();
    struct sl_mon_subject *subject;
    char why[160];

    sl_agent_turn(agent); /* what time it is */
    subject = sl_mon_find(sl_agent_mon(agent), request->kind, request->subject);
    if (subject == NULL) {
        *status = 404;
        snprintf(why, sizeof(why), "no %s is named %s", sl_mon_kind_name(request->kind),
                 request->subject);
        sl_json_add_text(object, "error", why);
    } else {
        sl_json_add_bool(object, "cleared", sl_mon_clear(sl_agent_mon(agent), subject));
        sl_agent_turn(agent); /* it is told */
    }
    return sl_http_write(object, out);
}

static int answer_probe(struct sl_agent *agent, const struct sl_api_request *request, FILE *out,
                        int *status)
{
    struct json_object *object = sl_http_object();
    uint64_t id = 0;
    int err = sl_agent_probe(agent, &request->probe, &id);

    if (err == 0) {
        sl_json_add_number(object, "probe", id);
    } else {
        *status = err == -EAGAIN ? 503 : 400;
        sl_json_add_text(object, "error", sluice_last_error());
    }
    return sl_http_write(object, out);
}

/* ---- one request ---- */

/* Who asks over HTTP may change nothing; to send packets is another matter, if that is said. */
static bool may(struct sl_agent *agent, const struct sl_api_request *request,
                const struct sl_api_asker *asker)
{
    return !request->is_write || asker->may_write ||
           (request->what == SL_API_PROBE && sl_agent_config(agent)->probe_http == SL_MON_ON);
}

static int answer(struct sl_agent *agent, const struct sl_api_request *request,
                  const struct sl_api_asker *asker, struct sl_http_answer *answer, FILE *out)
{
    switch (request->what) {
    case SL_API_INDEX: return answer_index(out);
    case SL_API_HEALTH: return answer_health(agent, out, &answer->status);
    case SL_API_METRICS:
        answer->type = sl_http_metrics_type(asker->openmetrics);
        return sl_agent_metrics(agent, asker->openmetrics ? SL_MON_OPENMETRICS : SL_MON_TEXT_FORMAT,
                                out)
                   ? 0
                   : sl_fail(-ENOMEM, "no memory for metrics");
    case SL_API_STATUS: return answer_status(agent, out);
    case SL_API_PORTS: return answer_ports(agent, out);
    case SL_API_RANKS: return answer_ranks(agent, out);
    case SL_API_CALLS:
        return sl_mon_calls_write(sl_agent_ranks(agent), sl_mon_time(sl_agent_mon(agent)),
                                  request->since, request->limit, out);
    case SL_API_EVENTS: return answer_events(agent, request, out);
    case SL_API_CONFIG: return answer_config(agent, out);
    case SL_API_PROBES: return answer_probes(agent, out);
    case SL_API_OBSERVATION: return sl_observe_all(agent, out);
    case SL_API_SOURCE: return answer_source(agent, request->name, out, &answer->status);
    case SL_API_PROBE: return answer_probe(agent, request, out, &answer->status);
    case SL_API_CLEAR: return answer_clear(agent, request, out, &answer->status);
    case SL_API_VERDICTS: return answer_verdicts(agent, request, out);
    case SL_API_ACK: return answer_ack(agent, request, asker, out, &answer->status);
    default: return sl_fail(-EINVAL, "there is no such thing here");
    }
}

int sl_api_answer(struct sl_agent *agent, const struct sl_api_request *request,
                  const struct sl_api_asker *asker, struct sl_http_answer *out)
{
    FILE *file;
    int err;

    if (request->status != 200)
        return sl_http_answer_error(request->status, request->why, out);
    if (!may(agent, request, asker))
        return sl_http_answer_error(403, asker->refusal, out);
    *out = (struct sl_http_answer){.status = 200, .type = "application/json"};
    file = open_memstream(&out->body, &out->len);
    if (file == NULL)
        return sl_fail(-ENOMEM, "no memory for an answer");
    err = answer(agent, request, asker, out, file);
    if (fclose(file) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory for an answer");
    if (err == 0)
        return 0;
    free(out->body);
    return sl_http_answer_error(500, sluice_last_error(), out);
}
