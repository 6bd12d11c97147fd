/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/steering.h"

#include "monitor/event_line.h"
#include "monitor/json_add.h"
#include "monitor/steer.h"

#include "core/err.h"
#include "core/path_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define UNTIL_S 60 /* from when it is written */
#define AGAIN_S 30 /* left, and it is written again */
#define SHOWN 16   /* changes that are remembered */
#define RETRY_NS SL_MON_S

enum { OFF, SHADOW, ACT };

static const char *const modes[] = {"off", "shadow", "act"};

/* What changed, for people. */
struct past {
    uint64_t wall_ns;
    char port[SL_STEER_NAME];
    enum sl_steer_state from, to;
    uint8_t weight;
    char check[32], why[64], text[SL_MON_TEXT];
};

struct sl_steering {
    struct sl_steering_options options;
    struct sl_steer steer;
    bool is_shadow;
    uint64_t checks; /* that count, a bit each */
    char file[SL_PATH_FILE_MAX];
    uint64_t until_s, tried_ns; /* of the table that is there; 0: none was written */
    bool is_up, is_stale;       /* the table could be written; it is not what it is to be */
    char why[SL_MON_TEXT];      /* it could not */
    struct past past[SHOWN];    /* the latest first */
    unsigned past_count;
};

/* ---- what counts ---- */

/* "packet_loss, rank_paths": of ports. */
static int take_checks(const char *names, uint64_t *out)
{
    while (*names != '\0') {
        size_t len;
        bool found = false;

        names += strspn(names, ", ");
        len = strcspn(names, ", ");
        for (unsigned i = 0; i < SL_MON_CHECK_COUNT && len > 0; i++) {
            const struct sl_mon_check_row *row = &sl_mon_checks[i];

            if (row->kind != SL_MON_PORT || strlen(row->name) != len ||
                memcmp(row->name, names, len) != 0)
                continue;
            *out |= UINT64_C(1) << i;
            found = true;
        }
        if (len > 0 && !found)
            return sl_fail(-EINVAL, "[steer] checks: there is no check '%.*s' of ports",
                           (int)(len < 60 ? len : 60), names);
        names += len;
    }
    return 0;
}

/* Is it bad by what was seen lately? A verdict is held for minutes beyond that. */
static bool is_believed(const struct sl_mon_condition *condition,
                        const struct sl_mon_policy *policy)
{
    uint32_t window = policy->of >= SL_MON_WINDOW_MAX ? UINT32_MAX : (1u << policy->of) - 1;

    if (condition->state != SL_MON_BAD)
        return false;
    return policy->quiet ||
           (unsigned)__builtin_popcount(condition->recent & window) >= (policy->bad + 1u) / 2;
}

static uint8_t share_left(const struct sl_mon_subject *subject, enum sl_mon_check check)
{
    enum sl_mon_check first;
    const struct sl_mon_evidence *evidence;
    uint64_t part;

    (void)sl_mon_checks_of(SL_MON_PORT, &first);
    evidence = &subject->evidence[check - first];
    if (check != SL_MON_CHECK_PORT_SPEED || evidence->before < 100)
        return 0;
    part = evidence->after / (evidence->before / 100);
    return part < 1 ? 1 : part > 99 ? 99 : (uint8_t)part;
}

static void view_port(const struct sl_steering *steering, const struct sl_mon_port *port,
                      struct sl_steer_view *out)
{
    const struct sl_mon_subject *subject = port->subject;
    bool is_worst_known = false;

    *out = (struct sl_steer_view){.name = subject->name,
                                  .is_up = port->last.has_state && port->last.is_up,
                                  .carried = port->sent + port->received,
                                  .clears = subject->clears};
    if (port->sent + port->received == 0) /* a device in software counts packets alone */
        for (unsigned i = 0; i < 2; i++)
            out->carried += port->totals[i == 0 ? SL_MON_COUNTER_TRANSMIT_PACKETS
                                                : SL_MON_COUNTER_RECEIVE_PACKETS];
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++) {
        enum sl_mon_check check = (enum sl_mon_check)i;
        const struct sl_mon_condition *condition;
        bool is_open;
        uint8_t left;

        if ((steering->checks >> i & 1) == 0)
            continue;
        condition = sl_mon_condition(subject, check);
        out->bads += condition->bads;
        is_open = condition->state == SL_MON_BAD || condition->state == SL_MON_RECOVERING;
        if (!is_open)
            continue;
        left = share_left(subject, check);
        out->weight = !is_worst_known || left < out->weight ? left : out->weight;
        is_worst_known = true;
        out->is_open = true;
        out->is_bad |= is_believed(condition, &sl_mon_checks[i].policy);
    }
}

/* The check that is bad, and its evidence; NULL: none is. */
static const struct sl_mon_evidence *worst(const struct sl_steering *steering, const char *name,
                                           const char **check)
{
    const struct sl_mon_subject *subject = sl_mon_find(steering->options.mon, SL_MON_PORT, name);
    enum sl_mon_check first;

    *check = "";
    (void)sl_mon_checks_of(SL_MON_PORT, &first);
    for (unsigned i = 0; subject != NULL && i < SL_MON_CHECK_COUNT; i++) {
        if ((steering->checks >> i & 1) == 0 ||
            sl_mon_condition(subject, (enum sl_mon_check)i)->state == SL_MON_OK)
            continue;
        *check = sl_mon_checks[i].name;
        return &subject->evidence[i - first];
    }
    return NULL;
}

/* ---- what changes ---- */

static void add_past(const struct past *past, struct json_object *to)
{
    char time_text[48];

    sl_mon_time_text(past->wall_ns, time_text, sizeof(time_text));
    sl_json_add_text(to, "time", time_text);
    sl_json_add_text(to, "port", past->port);
    sl_json_add_text(to, "from", sl_steer_state_name(past->from));
    sl_json_add_text(to, "to", sl_steer_state_name(past->to));
    sl_json_add_number(to, "weight", past->weight);
    sl_json_add_text(to, "why", past->why);
    sl_json_add_text(to, "check", past->check);
    sl_json_add_text(to, "text", past->text);
}

/* A line among the events. */
static void tell(const struct sl_steering *steering, const struct past *past)
{
    struct json_object *line = json_object_new_object();
    const char *text;

    if (line == NULL)
        return;
    sl_json_add_number(line, "version", SL_MON_EVENT_VERSION);
    sl_json_add_text(line, "type", "steer");
    add_past(past, line);
    sl_json_add_text(line, "mode", modes[steering->is_shadow ? SHADOW : ACT]);
    text = json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN);
    if (text != NULL &&
        (fprintf(steering->options.log, "%s\n", text) < 0 || fflush(steering->options.log) != 0))
        clearerr(steering->options.log);
    json_object_put(line);
}

static void key_of(const struct sl_steering *steering, const char *port, char out[128])
{
    snprintf(out, 128, "steer%s %s", steering->is_shadow ? " in shadow" : "", port);
}

static void changed(void *arg, const struct sl_steer_port *port, enum sl_steer_state from,
                    const char *why)
{
    struct sl_steering *steering = arg;
    struct past *past = &steering->past[0];
    const char *check;
    const struct sl_mon_evidence *evidence = worst(steering, port->name, &check);
    char key[128];

    memmove(&steering->past[1], &steering->past[0], (SHOWN - 1) * sizeof(*past));
    steering->past_count += steering->past_count < SHOWN;
    *past = (struct past){.wall_ns = sl_mon_time(steering->options.mon)->wall_ns,
                          .from = from,
                          .to = port->state,
                          .weight = sl_steer_weight(&steering->steer, port)};
    snprintf(past->port, sizeof(past->port), "%s", port->name);
    snprintf(past->check, sizeof(past->check), "%s", check);
    snprintf(past->why, sizeof(past->why), "%s", why);
    if (evidence != NULL)
        snprintf(past->text, sizeof(past->text), "%s", evidence->text);
    tell(steering, past);
    steering->is_stale = true;
    key_of(steering, port->name, key);
    if (steering->options.note != NULL)
        steering->options.note(steering->options.arg, key, sl_steer_pack(port));
}

static uint64_t recall(void *arg, const char *name)
{
    struct sl_steering *steering = arg;
    uint64_t packed = 0;
    char key[128];

    key_of(steering, name, key);
    if (steering->options.recall != NULL)
        packed = steering->options.recall(steering->options.arg, key);
    if (packed != 0)
        steering->is_stale = true; /* the table that is there may be of before the restart */
    return packed;
}

/* ---- the table ---- */

static int write_table(const struct sl_steering *steering, uint64_t until_s)
{
    struct sl_path_rule rules[SL_STEER_PORTS];
    struct sl_path_table table = {.rules = rules, .until_s = until_s};

    for (unsigned i = 0; i < steering->steer.count; i++) {
        const struct sl_steer_port *port = &steering->steer.ports[i];
        uint8_t weight = sl_steer_weight(&steering->steer, port);
        struct sl_path_rule *rule = &rules[table.count];

        if (weight == 100)
            continue;
        *rule = sl_path_rule_empty();
        rule->port = port->name;
        rule->port_len = strlen(port->name);
        if (weight == 0)
            rule->avoid = 1;
        else
            rule->weight = weight;
        table.count++;
    }
    return sl_path_file_write(steering->file, &table);
}

static bool has_rules(const struct sl_steering *steering)
{
    return sl_steer_count(&steering->steer, SL_STEER_IN_USE) < steering->steer.count;
}

static void keep_table(struct sl_steering *steering)
{
    const struct sl_mon_time *now = sl_mon_time(steering->options.mon);
    uint64_t wall_s = now->wall_ns / 1000000000;
    /* Also where the clock was set back, and the table would count for too long. */
    bool is_due = has_rules(steering) &&
                  (steering->until_s < wall_s + AGAIN_S || steering->until_s > wall_s + UNTIL_S);

    if (steering->is_shadow || (!steering->is_stale && !is_due) ||
        (!steering->is_up && now->mono_ns - steering->tried_ns < RETRY_NS))
        return;
    steering->tried_ns = now->mono_ns;
    steering->is_up = write_table(steering, wall_s + UNTIL_S) == 0;
    snprintf(steering->why, sizeof(steering->why), "%s",
             steering->is_up ? "" : sluice_last_error());
    if (!steering->is_up)
        return;
    steering->until_s = wall_s + UNTIL_S;
    steering->is_stale = false;
}

/* ---- its life ---- */

int sl_steering_open(const struct sl_steering_options *options, struct sl_steering **out)
{
    const struct sl_mon_config *config = options->config;
    const struct sl_steer_rules rules = {.ports = (unsigned)config->steer_ports,
                                         .rest_ns = (uint64_t)config->steer_rest_s * SL_MON_S,
                                         .trial_ns = (uint64_t)config->steer_trial_s * SL_MON_S,
                                         .trial_weight = (uint8_t)config->steer_trial_weight};
    struct sl_steering *steering;
    uint64_t checks = 0;
    int err = take_checks(config->steer_checks, &checks);

    *out = NULL;
    if (err != 0 || config->steer_mode == OFF)
        return err;
    steering = calloc(1, sizeof(*steering));
    if (steering == NULL)
        return sl_fail(-ENOMEM, "no memory for steering");
    steering->options = *options;
    steering->checks = checks;
    steering->is_shadow = config->steer_mode == SHADOW;
    steering->is_up = true;
    snprintf(steering->file, sizeof(steering->file), "%s", config->steer_table);
    sl_steer_init(&steering->steer, &rules);
    steering->steer.changed = changed;
    steering->steer.recall = recall;
    steering->steer.arg = steering;
    *out = steering;
    return 0;
}

void sl_steering_close(struct sl_steering *steering)
{
    free(steering);
}

void sl_steering_tick(struct sl_steering *steering, const struct sl_mon_port *const *ports,
                      unsigned count)
{
    struct sl_steer_view views[SL_STEER_PORTS];
    unsigned seen = 0;

    if (steering == NULL)
        return;
    for (unsigned i = 0; i < count && seen < SL_STEER_PORTS; i++)
        /* "mlx5_0:1": by its name ranks know it; an interface is none of theirs. */
        if (ports[i]->subject != NULL && strchr(ports[i]->subject->name, ':') != NULL)
            view_port(steering, ports[i], &views[seen++]);
    sl_steer_see(&steering->steer, sl_mon_time(steering->options.mon)->mono_ns, views, seen);
    keep_table(steering);
}

/* ---- what others ask ---- */

static void gauge(FILE *out, enum sl_mon_format format, const char *name, const char *help,
                  uint64_t value)
{
    sl_mon_metrics_family(format, out, name, "gauge", "", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

void sl_steering_metrics(const struct sl_steering *steering, enum sl_mon_format format, FILE *out)
{
    static const struct sl_steer none = {.count = 0};
    const struct sl_steer *steer = steering != NULL ? &steering->steer : &none;
    unsigned mode = steering == NULL ? OFF : steering->is_shadow ? SHADOW : ACT;

    sl_mon_metrics_family(format, out, "sluice_steer_mode", "gauge", "", "1: this is the mode.");
    for (unsigned i = 0; i < SL_ARRAY_LEN(modes); i++) {
        sl_mon_metrics_open(out, "sluice_steer_mode", "mode", modes[i]);
        sl_mon_metrics_number(out, mode == i);
    }
    sl_mon_metrics_family(format, out, "sluice_steer_ports", "gauge", "",
                          "RDMA ports, by what ranks are told of them.");
    for (unsigned i = 0; i < SL_STEER_STATES; i++) {
        sl_mon_metrics_open(out, "sluice_steer_ports", "state",
                            sl_steer_state_name((enum sl_steer_state)i));
        sl_mon_metrics_number(out, sl_steer_count(steer, (enum sl_steer_state)i));
    }
    sl_mon_metrics_family(format, out, "sluice_steer_changes", "counter", "",
                          "Ports that were told to ranks as such.");
    for (unsigned i = 0; i < SL_STEER_STATES; i++) {
        sl_mon_metrics_open(out, "sluice_steer_changes_total", "to",
                            sl_steer_state_name((enum sl_steer_state)i));
        sl_mon_metrics_number(out, steer->changes[i]);
    }
    sl_mon_metrics_family(format, out, "sluice_steer_refused", "counter", "",
                          "Ports that were not avoided, as too many are or no other is left.");
    fprintf(out, "sluice_steer_refused_total %" PRIu64 "\n", steer->refused);
    gauge(out, format, "sluice_steer_up", "0: the table for the ranks could not be written.",
          steering == NULL || steering->is_up);
}

static struct json_object *ports_json(const struct sl_steering *steering)
{
    struct json_object *list = json_object_new_array();
    uint64_t now_ns = sl_mon_time(steering->options.mon)->mono_ns;

    for (unsigned i = 0; i < steering->steer.count; i++) {
        const struct sl_steer_port *port = &steering->steer.ports[i];
        const char *check;
        const struct sl_mon_evidence *evidence;
        struct json_object *one;

        if (port->state == SL_STEER_IN_USE && !port->is_refused)
            continue;
        one = json_object_new_object();
        evidence = worst(steering, port->name, &check);
        sl_json_add_text(one, "port", port->name);
        sl_json_add_text(one, "state", sl_steer_state_name(port->state));
        sl_json_add_number(one, "weight", sl_steer_weight(&steering->steer, port));
        json_object_object_add(one, "refused", json_object_new_boolean(port->is_refused));
        sl_json_add_number(one, "for_s", (now_ns - port->since_ns) / SL_MON_S);
        sl_json_add_number(one, "rest_s", sl_steer_rest_ns(&steering->steer, port) / SL_MON_S);
        sl_json_add_text(one, "check", check);
        sl_json_add_text(one, "text", evidence != NULL ? evidence->text : "");
        json_object_array_add(list, one);
    }
    return list;
}

void sl_steering_json(const struct sl_steering *steering, struct json_object *out)
{
    struct json_object *own = json_object_new_object(), *list;

    json_object_object_add(out, "steering", own);
    sl_json_add_text(own, "mode",
                     modes[steering == NULL      ? OFF
                           : steering->is_shadow ? SHADOW
                                                 : ACT]);
    if (steering == NULL)
        return;
    sl_json_add_text(own, "table", steering->file);
    json_object_object_add(own, "up", json_object_new_boolean(steering->is_up));
    sl_json_add_text(own, "why", steering->why);
    sl_json_add_number(own, "refused", steering->steer.refused);
    json_object_object_add(own, "ports", ports_json(steering));
    list = json_object_new_array();
    for (unsigned i = 0; i < steering->past_count; i++) {
        struct json_object *one = json_object_new_object();

        add_past(&steering->past[i], one);
        json_object_array_add(list, one);
    }
    json_object_object_add(own, "changes", list);
}
