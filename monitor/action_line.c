/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/action_line.h"

#include "monitor/event_line.h"
#include "monitor/json_add.h"

#include <json-c/json.h>

void sl_mon_action_json(const struct sl_mon_action *action, struct json_object *out)
{
    sl_json_add_number(out, "id", action->id);
    sl_json_add_text(out, "key", action->key);
    sl_json_add_text(out, "action", action->kind);
    sl_json_add_text(out, "node", action->node);
    sl_json_add_text(out, "plug", action->plug);
    sl_json_add_text(out, "mode", action->is_shadow ? "shadow" : "act");
    sl_json_add_text(out, "state", action->state);
    sl_json_add_number(out, "attempts", action->attempts);
    sl_json_add_number(out, "verdict", action->verdict);
    sl_json_add_text(out, "class", action->condition);
    sl_json_add_text(out, "kind", action->subject_kind);
    sl_json_add_text(out, "subject", action->subject);
    sl_json_add_text(out, "check", action->check);
    sl_json_add_text(out, "text", action->text);
    sl_json_add_text(out, "outcome", action->outcome);
    sl_json_add_text(out, "boot_id", action->boot_id);
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
    sl_json_add_number(line, "version", SL_MON_EVENT_VERSION);
    sl_json_add_text(line, "type", "action");
    sl_json_add_text(line, "time", time_text);
    sl_json_add_text(line, "result", result);
    sl_mon_action_json(action, line);
    text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN);
    if (text != NULL && (fprintf(out, "%s\n", text) < 0 || fflush(out) != 0))
        clearerr(out);
    json_object_put(line);
}
