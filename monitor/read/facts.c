/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/read/facts.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for what a node says");
}

/* ---- members of an object ---- */

static struct json_object *get(struct json_object *object, const char *key)
{
    struct json_object *out = NULL;

    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &out)
               ? out
               : NULL;
}

/* Printable ASCII, cut where it is too long. */
static void get_text(struct json_object *object, const char *key, char *out, size_t cap)
{
    struct json_object *value = get(object, key);
    const char *text =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
    size_t i = 0;

    for (; i + 1 < cap && text[i] != '\0'; i++)
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    out[i] = '\0';
}

/* A whole number from 0 to most; else fallback. */
static uint64_t get_u64(struct json_object *object, const char *key, uint64_t most)
{
    struct json_object *value = get(object, key);
    uint64_t number;

    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0)
        return 0;
    number = json_object_get_uint64(value);
    return number < most ? number : most;
}

static int32_t get_peer(struct json_object *object, const char *key)
{
    struct json_object *value = get(object, key);
    int64_t number = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;

    return number >= 0 && number < SL_FACTS_SIZE_MAX ? (int32_t)number : -1;
}

static uint64_t get_hex(struct json_object *object, const char *key)
{
    char text[24], *end;
    uint64_t number;

    get_text(object, key, text, sizeof(text));
    errno = 0;
    number = strtoull(text, &end, 16);
    return text[0] != '\0' && text[0] != '-' && *end == '\0' && errno == 0 ? number : 0;
}

static bool get_bool(struct json_object *object, const char *key)
{
    struct json_object *value = get(object, key);

    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

/* Seconds, to ms; within a year. */
static int64_t get_ms(struct json_object *object, const char *key)
{
    struct json_object *value = get(object, key);
    double seconds =
        json_object_is_type(value, json_type_double) || json_object_is_type(value, json_type_int)
            ? json_object_get_double(value)
            : 0;

    return seconds > 0 && seconds < 31536000.0 ? (int64_t)(seconds * 1e3) : 0;
}

/* Places for the members of an array, at most so many; *count: how many. NULL where there are none,
 * with *err set where there is no memory. */
static void *make(struct json_object *array, size_t size, unsigned most, unsigned *count, int *err)
{
    size_t len = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    void *list = NULL;

    *count = (unsigned)(len < most ? len : most);
    if (*count > 0 && *err == 0) {
        list = calloc(*count, size);
        if (list == NULL)
            *err = no_memory();
    }
    if (list == NULL)
        *count = 0;
    return list;
}

static int check(struct json_object *body, const char *source)
{
    return json_object_is_type(body, json_type_object)
               ? 0
               : sl_fail(-EBADMSG, "an observation of %s is no object", source);
}

/* ---- status ---- */

int sl_facts_status(struct sl_facts *facts, struct json_object *body)
{
    struct json_object *list = get(body, "verdicts");
    int err = check(body, "status");

    if (err != 0)
        return err;
    free(facts->verdicts);
    facts->verdicts =
        make(list, sizeof(*facts->verdicts), SL_FACTS_VERDICTS, &facts->verdict_count, &err);
    get_text(body, "health", facts->health, sizeof(facts->health));
    get_text(body, "agent_version", facts->version, sizeof(facts->version));
    get_text(body, "why", facts->why, sizeof(facts->why));
    facts->is_fresh = get_bool(body, "fresh");
    for (unsigned i = 0; i < facts->verdict_count; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        struct sl_fact_verdict *out = &facts->verdicts[i];

        out->id = get_u64(one, "id", UINT64_MAX);
        out->opened_ms = (int64_t)get_u64(one, "opened_ms", INT64_MAX / 1000000);
        out->is_fatal = get_bool(one, "fatal");
        out->is_acked = get_bool(one, "acked");
        get_text(one, "kind", out->kind, sizeof(out->kind));
        get_text(one, "subject", out->subject, sizeof(out->subject));
        get_text(one, "check", out->check, sizeof(out->check));
        get_text(one, "class", out->cls, sizeof(out->cls));
        get_text(one, "text", out->text, sizeof(out->text));
    }
    return err;
}

/* ---- ports ---- */

int sl_facts_ports(struct sl_facts *facts, struct json_object *body)
{
    struct json_object *list = get(body, "ports");
    int err = check(body, "ports");

    if (err != 0)
        return err;
    free(facts->ports);
    facts->ports = make(list, sizeof(*facts->ports), SL_FACTS_PORTS, &facts->port_count, &err);
    for (unsigned i = 0; i < facts->port_count; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        struct sl_fact_port *out = &facts->ports[i];

        get_text(one, "subject", out->subject, sizeof(out->subject));
        get_text(one, "state", out->state, sizeof(out->state));
        out->up = (int8_t)(get(one, "up") == NULL ? -1 : get_bool(one, "up"));
        out->speed = get_u64(one, "speed", UINT64_MAX);
        out->sent = get_u64(one, "sent", UINT64_MAX);
        out->received = get_u64(one, "received", UINT64_MAX);
        out->flaps = get_u64(one, "flaps", UINT64_MAX);
        out->errors = get_u64(one, "errors", UINT64_MAX);
    }
    return err;
}

/* ---- ranks ---- */

static int take_comms(struct sl_fact_rank *rank, struct json_object *list)
{
    int err = 0;

    rank->comms = make(list, sizeof(*rank->comms), SL_FACTS_COMMS, &rank->comm_count, &err);
    for (unsigned i = 0; i < rank->comm_count; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        struct sl_fact_comm *out = &rank->comms[i];

        out->id = get_hex(one, "id");
        out->rank = (uint32_t)get_u64(one, "rank", SL_FACTS_SIZE_MAX);
        out->size = (uint32_t)get_u64(one, "size", SL_FACTS_SIZE_MAX);
        out->begun = get_u64(one, "collectives", UINT64_MAX);
        out->ended = get_u64(one, "ended", UINT64_MAX);
        out->is_broken = get_bool(one, "broken");
        out->culprit = get_peer(one, "culprit");
    }
    return err;
}

static int take_paths(struct sl_fact_rank *rank, struct json_object *list)
{
    int err = 0;

    rank->paths = make(list, sizeof(*rank->paths), SL_FACTS_PATHS, &rank->path_count, &err);
    for (unsigned i = 0; i < rank->path_count; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        struct sl_fact_path *out = &rank->paths[i];

        out->comm = get_hex(one, "communicator");
        out->peer = get_peer(one, "peer");
        out->sent = get_u64(one, "sent_bytes", UINT64_MAX);
        out->messages = get_u64(one, "sent_messages", UINT64_MAX);
        out->resent = get_u64(one, "resent", UINT64_MAX);
        out->failures = get_u64(one, "failures", UINT64_MAX);
        out->message_ns = get_u64(one, "message_ns", UINT64_MAX);
        out->arriving_messages = get_u64(one, "arriving_messages", UINT64_MAX);
        out->arriving_ns = get_u64(one, "arriving_ns", UINT64_MAX);
        get_text(one, "name", out->name, sizeof(out->name));
        get_text(one, "state", out->state, sizeof(out->state));
    }
    return err;
}

static void take_op(struct sl_fact_op *out, struct json_object *waits)
{
    out->is_there = json_object_is_type(waits, json_type_object);
    out->peer = -1;
    if (!out->is_there)
        return;
    out->comm = get_hex(waits, "communicator");
    out->number = get_u64(waits, "number", UINT64_MAX);
    out->elements = get_u64(waits, "elements", UINT64_MAX);
    out->peer = get_peer(waits, "peer");
    out->for_ms = get_ms(waits, "for_seconds");
    out->idle_ms = get_ms(waits, "idle_seconds");
    get_text(waits, "operation", out->coll, sizeof(out->coll));
    get_text(waits, "type", out->type, sizeof(out->type));
    get_text(waits, "doing", out->doing, sizeof(out->doing));
}

static void free_ranks(struct sl_facts *facts)
{
    for (unsigned i = 0; i < facts->rank_count; i++) {
        free(facts->ranks[i].comms);
        free(facts->ranks[i].paths);
    }
    free(facts->ranks);
    facts->ranks = NULL;
    facts->rank_count = 0;
}

int sl_facts_ranks(struct sl_facts *facts, struct json_object *body)
{
    struct json_object *list = get(body, "ranks");
    int err = check(body, "ranks");

    if (err != 0)
        return err;
    free_ranks(facts);
    facts->ranks = make(list, sizeof(*facts->ranks), SL_FACTS_RANKS, &facts->rank_count, &err);
    for (unsigned i = 0; i < facts->rank_count && err == 0; i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        struct sl_fact_rank *out = &facts->ranks[i];
        char state[4];

        get_text(one, "job", out->job, sizeof(out->job));
        get_text(one, "program", out->program, sizeof(out->program));
        out->rank = (uint32_t)get_u64(one, "rank", SL_FACTS_SIZE_MAX);
        out->size = (uint32_t)get_u64(one, "size", SL_FACTS_SIZE_MAX);
        out->pid = (int32_t)get_u64(one, "pid", INT32_MAX);
        get_text(one, "state", state, sizeof(state));
        out->is_stopped = state[0] == 'T' || state[0] == 't';
        take_op(&out->op, get(one, "waits"));
        err = take_comms(out, get(one, "communicators"));
        if (err == 0)
            err = take_paths(out, get(one, "paths"));
    }
    return err;
}

void sl_facts_fini(struct sl_facts *facts)
{
    free_ranks(facts);
    free(facts->verdicts);
    free(facts->ports);
    *facts = (struct sl_facts){.verdicts = NULL};
}

size_t sl_facts_bytes(const struct sl_facts *facts)
{
    size_t bytes = facts->verdict_count * sizeof(*facts->verdicts) +
                   facts->port_count * sizeof(*facts->ports) +
                   facts->rank_count * sizeof(*facts->ranks);

    for (unsigned i = 0; i < facts->rank_count; i++)
        bytes += facts->ranks[i].comm_count * sizeof(*facts->ranks[i].comms) +
                 facts->ranks[i].path_count * sizeof(*facts->ranks[i].paths);
    return bytes;
}
