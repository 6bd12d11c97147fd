/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/action_line.h"

#include "monitor/event_line.h"

#include <json-c/json.h>

static void add_text(struct json_object *line, const char *key, const char *value)
{
    json_object_object_add(line, key, json_object_new_string(value));
}

static void add_number(struct json_object *line, const char *key, uint64_t value)
{
    json_object_object_add(line, key, json_object_new_uint64(value));
}

void sl_mon_action_json(const struct sl_mon_action *action, struct json_object *out)
{
    add_number(out, "id", action->id);
    add_text(out, "key", action->key);
    add_text(out, "action", action->kind);
    add_text(out, "node", action->node);
    add_text(out, "plug", action->plug);
    add_text(out, "mode", action->is_shadow ? "shadow" : "act");
    add_text(out, "state", action->state);
    add_number(out, "attempts", action->attempts);
    add_number(out, "verdict", action->verdict);
    add_text(out, "class", action->condition);
    add_text(out, "kind", action->subject_kind);
    add_text(out, "subject", action->subject);
    add_text(out, "check", action->check);
    add_text(out, "text", action->text);
    add_text(out, "outcome", action->outcome);
    add_text(out, "boot_id", action->boot_id);
}

void sl_mon_action_line(const struct sl_mon_action *action, const char *result, uint64_t wall_ns,
                        FILE *out)
{
    struct json_object *line = json_object_new_object();
    char time_text[48];
    const char *text;

    if (line == NULL)
        return;
    sl_mon_time_text(wall_ns, time_text, sizeof(time_text));
    add_number(line, "version", SL_MON_EVENT_VERSION);
    add_text(line, "type", "action");
    add_text(line, "time", time_text);
    add_text(line, "result", result);
    sl_mon_action_json(action, line);
    text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN);
    if (text != NULL && (fprintf(out, "%s\n", text) < 0 || fflush(out) != 0))
        clearerr(out);
    json_object_put(line);
}
