/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/event_line.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>
#include <time.h>

void sl_mon_time_text(uint64_t wall_ns, char *out, size_t cap)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    char text[32];

    if (gmtime_r(&seconds, &parts) == NULL || strftime(text, sizeof(text), "%FT%T", &parts) == 0)
        snprintf(text, sizeof(text), "?");
    snprintf(out, cap, "%s.%03uZ", text, (unsigned)(wall_ns / 1000000 % 1000));
}

#define COPY(to, from) snprintf(to, sizeof(to), "%s", from)

void sl_mon_record_of(const struct sl_mon_transition *transition, struct sl_mon_record *out)
{
    const struct sl_mon_check_row *row = &sl_mon_checks[transition->check];
    const struct sl_mon_evidence *evidence = transition->evidence;
    bool is_event = transition->step.from == transition->step.to;

    out->id = transition->id;
    out->wall_ns = transition->time.wall_ns;
    out->mono_ns = transition->time.mono_ns;
    COPY(out->boot_id, transition->boot_id);
    COPY(out->kind, sl_mon_kind_name(transition->subject->kind));
    COPY(out->subject, transition->subject->name);
    COPY(out->check, row->name);
    COPY(out->condition, row->condition);
    COPY(out->from, sl_mon_state_name((enum sl_mon_state)transition->step.from));
    COPY(out->to, sl_mon_state_name((enum sl_mon_state)transition->step.to));
    COPY(out->cause,
         is_event ? "evidence" : sl_mon_input_name((enum sl_mon_input)transition->step.input));
    COPY(out->source, evidence->source != NULL ? evidence->source : "");
    out->before = evidence->before;
    out->after = evidence->after;
    COPY(out->text, evidence->text);
    out->history = transition->history;
}

/* What a transition is for a verdict, whose number is that of the one that opened it; or NULL. */
static const char *verdict_of(const struct sl_mon_record *record)
{
    bool was = strcmp(record->from, "bad") == 0 || strcmp(record->from, "recovering") == 0;

    if (!was && strcmp(record->to, "bad") == 0)
        return "opened";
    return was && strcmp(record->to, "ok") == 0 ? "closed" : NULL;
}

int sl_mon_event_line(const struct sl_mon_record *record, FILE *out)
{
    struct json_object *line = json_object_new_object();
    const char *text;
    char time_text[48];
    int err = 0;

    if (line == NULL)
        return sl_fail(-ENOMEM, "no memory for a line of JSON");
    sl_mon_time_text(record->wall_ns, time_text, sizeof(time_text));
    sl_json_add_number(line, "version", SL_MON_EVENT_VERSION);
    sl_json_add_text(line, "type", strcmp(record->from, record->to) == 0 ? "event" : "transition");
    sl_json_add_number(line, "id", record->id);
    sl_json_add_text(line, "time", time_text);
    sl_json_add_text(line, "kind", record->kind);
    sl_json_add_text(line, "subject", record->subject);
    sl_json_add_text(line, "check", record->check);
    sl_json_add_text(line, "class", record->condition);
    sl_json_add_text(line, "from", record->from);
    sl_json_add_text(line, "to", record->to);
    if (verdict_of(record) != NULL)
        sl_json_add_text(line, "verdict", verdict_of(record));
    sl_json_add_text(line, "cause", record->cause);
    sl_json_add_text(line, "source", record->source);
    sl_json_add_number(line, "before", record->before);
    sl_json_add_number(line, "after", record->after);
    sl_json_add_text(line, "text", record->text);
    json_object_object_add(line, "history", json_object_new_double(record->history));
    sl_json_add_number(line, "mono_ns", record->mono_ns);
    sl_json_add_text(line, "boot_id", record->boot_id);
    text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN);
    if (text == NULL)
        err = sl_fail(-ENOMEM, "no memory for a line of JSON");
    else if (fprintf(out, "%s\n", text) < 0 || fflush(out) != 0)
        err = sl_fail(-EIO, "an event could not be written: %s", sluice_strerror(-errno));
    json_object_put(line);
    return err;
}
