/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/observe.h"

#include "monitor/api_answer.h"
#include "monitor/event_line.h"

#include "core/err.h"
#include "monitor/json_add.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORTS_MAX 512
#define VERDICTS_MAX 64 /* that are open; more are counted */

const char *const sl_observe_names[] = {"status", "ports", "ranks"};

/* ---- names of nodes ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool sl_observe_is_node(const char *name)
{
    size_t len = 0;

    for (; name[len] != '\0'; len++)
        if (len + 1 >= SL_OBSERVE_NODE ||
            (!is_letter(name[len]) && (len == 0 || strchr("._-", name[len]) == NULL)))
            return false;
    return len > 0;
}

void sl_observe_node(const struct sl_mon_config *config, char out[SL_OBSERVE_NODE])
{
    memset(out, 0, SL_OBSERVE_NODE);
    if (config->mqtt_node[0] != '\0')
        snprintf(out, SL_OBSERVE_NODE, "%s", config->mqtt_node);
    else
        (void)gethostname(out, SL_OBSERVE_NODE - 1);
    for (size_t i = 0; out[i] != '\0'; i++)
        if (!is_letter(out[i]) && (i == 0 || strchr("._-", out[i]) == NULL))
            out[i] = i == 0 ? 'x' : '-';
    if (out[0] == '\0')
        strcpy(out, "node");
}

/* ---- bodies ---- */

static struct json_object *verdict_of(const struct sl_mon_verdict *verdict)
{
    struct json_object *one = json_object_new_object();

    sl_json_add_number(one, "id", verdict->id);
    sl_json_add_number(one, "opened_ms", verdict->opened_ns / 1000000);
    sl_json_add_text(one, "kind", verdict->kind);
    sl_json_add_text(one, "subject", verdict->subject);
    sl_json_add_text(one, "check", verdict->check);
    sl_json_add_text(one, "class", verdict->condition);
    json_object_object_add(one, "fatal", json_object_new_boolean(verdict->is_fatal));
    json_object_object_add(one, "acked", json_object_new_boolean(verdict->acked_ns != 0));
    sl_json_add_text(one, "text", verdict->text);
    return one;
}

static void add_verdicts(struct sl_agent *agent, struct json_object *out)
{
    struct sl_mon_verdict *verdicts = calloc(VERDICTS_MAX, sizeof(*verdicts));
    struct json_object *list = json_object_new_array();
    int count = verdicts == NULL
                    ? 0
                    : sl_mon_store_verdicts(sl_agent_store(agent), 1, true, verdicts, VERDICTS_MAX);

    for (int i = 0; i < count; i++)
        json_object_array_add(list, verdict_of(&verdicts[i]));
    json_object_object_add(out, "verdicts", list);
    free(verdicts);
}

static void add_status(struct sl_agent *agent, struct json_object *out)
{
    char why[1024];
    bool is_fresh = sl_agent_is_fresh(agent, why, sizeof(why));

    sl_json_add_text(out, "health", sl_api_health(agent));
    json_object_object_add(out, "fresh", json_object_new_boolean(is_fresh));
    sl_json_add_text(out, "why", why);
    sl_json_add_text(out, "agent_version", sl_agent_version(agent));
    add_verdicts(agent, out);
}

static void add_ports(struct sl_agent *agent, struct json_object *out)
{
    const struct sl_mon_port *ports[PORTS_MAX];
    unsigned count = sl_agent_ports(agent, ports, PORTS_MAX);
    struct json_object *list = json_object_new_array();

    for (unsigned i = 0; i < count; i++) {
        struct json_object *one = json_object_new_object();
        uint64_t errors = 0;

        for (unsigned k = 0; k < SL_MON_COUNTER_COUNT; k++)
            if (sl_mon_counters[k].kind[0] != '\0')
                errors += ports[i]->totals[k];
        sl_json_add_text(one, "subject", ports[i]->subject->name);
        if (ports[i]->last.has_state)
            json_object_object_add(one, "up", json_object_new_boolean(ports[i]->last.is_up));
        sl_json_add_number(one, "speed", ports[i]->last.speed);
        sl_json_add_number(one, "sent", ports[i]->sent);
        sl_json_add_number(one, "received", ports[i]->received);
        sl_json_add_number(one, "flaps", ports[i]->flaps);
        sl_json_add_number(one, "errors", errors);
        sl_json_add_text(one, "state", sl_mon_state_name(sl_mon_subject_state(ports[i]->subject)));
        json_object_array_add(list, one);
    }
    json_object_object_add(out, "ports", list);
}

struct json_object *sl_observe_body(struct sl_agent *agent, enum sl_observe_source source)
{
    struct json_object *out = json_object_new_object();

    if (out == NULL)
        return NULL;
    switch (source) {
    case SL_OBSERVE_STATUS: add_status(agent, out); break;
    case SL_OBSERVE_PORTS: add_ports(agent, out); break;
    default: (void)sl_agent_json(agent, "sluice", out); break;
    }
    return out;
}

/* ---- the envelope ---- */

int sl_observe_write(struct sl_agent *agent, struct json_object *const bodies[SL_OBSERVE_SOURCES],
                     FILE *out)
{
    const struct sl_mon_time *now = sl_mon_time(sl_agent_mon(agent));
    struct json_object *object = json_object_new_object(), *sources = json_object_new_object();
    char node[SL_OBSERVE_NODE];
    const char *text;
    int err = 0;

    sl_observe_node(sl_agent_config(agent), node);
    sl_json_add_number(object, "version", SL_OBSERVE_VERSION);
    sl_json_add_text(object, "node", node);
    sl_json_add_text(object, "boot_id", sl_mon_boot(sl_agent_mon(agent)));
    sl_json_add_number(object, "epoch", sl_agent_epoch_ms(agent));
    sl_json_add_number(object, "seq", now->mono_ns / 1000000);
    sl_json_add_number(object, "time_ms", now->wall_ns / 1000000);
    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        if (bodies[i] != NULL)
            json_object_object_add(sources, sl_observe_names[i], json_object_get(bodies[i]));
    json_object_object_add(object, "sources", sources);
    text = json_object_to_json_string_ext(object,
                                          JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    if (text == NULL || fprintf(out, "%s\n", text) < 0)
        err = sl_fail(-ENOMEM, "no memory for an observation");
    json_object_put(object);
    return err;
}

int sl_observe_all(struct sl_agent *agent, FILE *out)
{
    struct json_object *bodies[SL_OBSERVE_SOURCES];
    int err;

    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        bodies[i] = sl_observe_body(agent, (enum sl_observe_source)i);
    err = sl_observe_write(agent, bodies, out);
    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        json_object_put(bodies[i]);
    return err;
}
