/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/model.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 16 /* of an observation's JSON */

struct sl_cluster_model {
    struct sl_cluster_limits limits;
    struct sl_cluster_node **nodes; /* by name, once they are sorted */
    struct sl_cluster_node **table; /* by hash; a power of two, at most half full */
    unsigned count, cap, table_size;
    bool is_sorted;
    uint64_t version;
    struct sl_cluster_counts counts;
    struct json_tokener *tokener;
};

uint64_t sl_cluster_hash(uint64_t hash, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

int sl_cluster_model_new(const struct sl_cluster_limits *limits, struct sl_cluster_model **out)
{
    struct sl_cluster_model *model = calloc(1, sizeof(*model));

    if (model == NULL)
        return sl_fail(-ENOMEM, "no memory for a cluster");
    model->limits = *limits;
    model->tokener = json_tokener_new_ex(DEPTH);
    if (model->tokener == NULL) {
        free(model);
        return sl_fail(-ENOMEM, "no memory for a cluster");
    }
    *out = model;
    return 0;
}

static void free_node(struct sl_cluster_node *node)
{
    for (unsigned i = 0; i < SL_CLUSTER_SOURCES; i++)
        free(node->obs[i].body);
    sl_facts_fini(&node->facts);
    free(node);
}

void sl_cluster_model_free(struct sl_cluster_model *model)
{
    if (model == NULL)
        return;
    for (unsigned i = 0; i < model->count; i++)
        free_node(model->nodes[i]);
    free(model->nodes);
    free(model->table);
    json_tokener_free(model->tokener);
    free(model);
}

/* ---- nodes ---- */

static struct sl_cluster_node **slot_of(struct sl_cluster_model *model, const char *name)
{
    unsigned mask = model->table_size - 1;
    unsigned at = (unsigned)sl_cluster_hash(SL_CLUSTER_HASH, name, strlen(name)) & mask;

    while (model->table[at] != NULL && strcmp(model->table[at]->name, name) != 0)
        at = (at + 1) & mask;
    return &model->table[at];
}

static void fill_table(struct sl_cluster_model *model)
{
    memset(model->table, 0, model->table_size * sizeof(struct sl_cluster_node *));
    for (unsigned i = 0; i < model->count; i++)
        *slot_of(model, model->nodes[i]->name) = model->nodes[i];
}

static bool make_room(struct sl_cluster_model *model)
{
    unsigned cap = model->cap == 0 ? 64 : 2 * model->cap;
    struct sl_cluster_node **nodes, **table;

    if (model->count < model->cap)
        return true;
    nodes = reallocarray(model->nodes, cap, sizeof(struct sl_cluster_node *));
    if (nodes == NULL)
        return false;
    model->nodes = nodes;
    table = calloc(2 * (size_t)cap, sizeof(struct sl_cluster_node *));
    if (table == NULL)
        return false;
    free(model->table);
    model->table = table;
    model->cap = cap;
    model->table_size = 2 * cap;
    fill_table(model);
    return true;
}

struct sl_cluster_node *sl_cluster_node(struct sl_cluster_model *model, const char *name, bool add)
{
    struct sl_cluster_node *node = model->table_size > 0 ? *slot_of(model, name) : NULL;

    if (node != NULL || !add)
        return node;
    if (model->count >= model->limits.nodes || !make_room(model))
        return NULL;
    node = calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    snprintf(node->name, sizeof(node->name), "%s", name);
    snprintf(node->facts.name, sizeof(node->facts.name), "%s", name);
    model->nodes[model->count++] = node;
    *slot_of(model, name) = node;
    model->is_sorted = false;
    model->counts.bytes += sizeof(*node);
    return node;
}

static uint64_t bytes_of(const struct sl_cluster_node *node)
{
    uint64_t bytes = sizeof(*node) + sl_facts_bytes(&node->facts);

    for (unsigned i = 0; i < SL_CLUSTER_SOURCES; i++)
        bytes += node->obs[i].len;
    return bytes;
}

void sl_cluster_forget(struct sl_cluster_model *model, const char *name)
{
    for (unsigned i = 0; i < model->count; i++)
        if (strcmp(model->nodes[i]->name, name) == 0) {
            model->counts.bytes -= bytes_of(model->nodes[i]);
            free_node(model->nodes[i]);
            model->count--;
            memmove(&model->nodes[i], &model->nodes[i + 1],
                    (model->count - i) * sizeof(struct sl_cluster_node *));
            fill_table(model);
            model->version++;
            return;
        }
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct sl_cluster_node *const *)a)->name,
                  (*(struct sl_cluster_node *const *)b)->name);
}

struct sl_cluster_node *const *sl_cluster_nodes(struct sl_cluster_model *model, unsigned *count)
{
    if (!model->is_sorted && model->count > 0)
        qsort(model->nodes, model->count, sizeof(struct sl_cluster_node *), by_name);
    model->is_sorted = true;
    *count = model->count;
    return model->nodes;
}

const struct sl_cluster_counts *sl_cluster_counts(const struct sl_cluster_model *model)
{
    return &model->counts;
}

uint64_t sl_cluster_version(const struct sl_cluster_model *model)
{
    return model->version;
}

uint64_t sl_cluster_digest(struct sl_cluster_model *model)
{
    uint64_t hash = SL_CLUSTER_HASH;
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);

    for (unsigned i = 0; i < count; i++) {
        hash = sl_cluster_hash(hash, nodes[i]->name, strlen(nodes[i]->name) + 1);
        for (unsigned k = 0; k < SL_CLUSTER_SOURCES; k++) {
            const struct sl_cluster_obs *obs = &nodes[i]->obs[k];

            hash = sl_cluster_hash(hash, &obs->epoch, sizeof(obs->epoch));
            hash = sl_cluster_hash(hash, &obs->seq, sizeof(obs->seq));
            hash = sl_cluster_hash(hash, obs->body, obs->len);
        }
    }
    return hash;
}

/* ---- observations ---- */

/* What an envelope says. */
struct message {
    const char *node, *boot_id;
    uint64_t epoch, seq;
    int64_t time_ms;
    struct json_object *bodies[SL_CLUSTER_SOURCES]; /* borrowed; NULL: not there */
};

static bool get(struct json_object *object, const char *key, enum json_type type,
                struct json_object **out)
{
    return json_object_object_get_ex(object, key, out) && json_object_is_type(*out, type);
}

static bool get_number(struct json_object *object, const char *key, uint64_t *out)
{
    struct json_object *value;

    if (!get(object, key, json_type_int, &value) || json_object_get_int64(value) < 0)
        return false;
    *out = (uint64_t)json_object_get_int64(value);
    return true;
}

static int refuse(const char *what)
{
    return sl_fail(-EBADMSG, "an observation is refused: %s", what);
}

static int read_message(struct json_object *object, struct message *out)
{
    struct json_object *value, *sources;
    uint64_t version, time_ms;

    *out = (struct message){.node = ""};
    if (!json_object_is_type(object, json_type_object))
        return refuse("it is no object");
    if (!get_number(object, "version", &version) || version != SL_OBSERVE_VERSION)
        return refuse("its version is not 1");
    if (!get(object, "node", json_type_string, &value) ||
        !sl_observe_is_node(json_object_get_string(value)))
        return refuse("it names no node");
    out->node = json_object_get_string(value);
    out->boot_id =
        get(object, "boot_id", json_type_string, &value) ? json_object_get_string(value) : "";
    if (!get_number(object, "epoch", &out->epoch) || !get_number(object, "seq", &out->seq) ||
        !get_number(object, "time_ms", &time_ms) || out->epoch == 0 ||
        time_ms > INT64_MAX / 1000000)
        return refuse("its epoch, seq or time_ms is none");
    out->time_ms = (int64_t)time_ms;
    if (get(object, "alive", json_type_boolean, &value))
        out->bodies[SL_CLUSTER_ALIVE] = value;
    if (!get(object, "sources", json_type_object, &sources))
        return out->bodies[SL_CLUSTER_ALIVE] != NULL ? 0 : refuse("it has no sources");
    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        if (get(sources, sl_observe_names[i], json_type_object, &value))
            out->bodies[i] = value;
    return 0;
}

static bool is_newer(const struct sl_cluster_obs *old, const struct message *message,
                     const char *body, size_t len)
{
    if (message->epoch != old->epoch)
        return message->epoch > old->epoch;
    if (message->seq != old->seq)
        return message->seq > old->seq;
    if (len != old->len)
        return len > old->len;
    return memcmp(body, old->body, len) > 0;
}

static int set_facts(struct sl_cluster_node *node, unsigned source, struct json_object *body)
{
    switch (source) {
    case SL_OBSERVE_STATUS: return sl_facts_status(&node->facts, body);
    case SL_OBSERVE_PORTS: return sl_facts_ports(&node->facts, body);
    case SL_OBSERVE_RANKS: return sl_facts_ranks(&node->facts, body);
    default: return 0;
    }
}

static bool has_room(const struct sl_cluster_model *model, const struct sl_cluster_obs *old,
                     size_t len)
{
    return model->counts.bytes - old->len + len <= model->limits.bytes;
}

/* 1: it is newer, and taken. */
static int merge(struct sl_cluster_model *model, struct sl_cluster_node *node, unsigned source,
                 const struct message *message)
{
    struct sl_cluster_obs *obs = &node->obs[source];
    const char *text = json_object_to_json_string_ext(
        message->bodies[source], JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    size_t len = text != NULL ? strlen(text) : 0;
    uint64_t before;
    char *body;
    int err;

    if (text == NULL)
        return sl_fail(-ENOMEM, "no memory for an observation");
    if (!is_newer(obs, message, text, len))
        return 0;
    if (!has_room(model, obs, len))
        return sl_fail(-ENOSPC, "[cluster] bytes are used up: of %s nothing new is kept",
                       node->name);
    body = strdup(text);
    if (body == NULL)
        return sl_fail(-ENOMEM, "no memory for an observation");
    before = bytes_of(node);
    err = set_facts(node, source, message->bodies[source]);
    free(obs->body);
    *obs = (struct sl_cluster_obs){message->epoch, message->seq, message->time_ms, body, len};
    if (message->epoch > node->facts.epoch)
        node->facts.epoch = message->epoch;
    node->facts.status_ms = node->obs[SL_OBSERVE_STATUS].time_ms;
    node->facts.ranks_ms = node->obs[SL_OBSERVE_RANKS].time_ms;
    model->counts.bytes += bytes_of(node) - before;
    return err != 0 ? err : 1;
}

static void set_alive(struct sl_cluster_node *node, const struct message *message)
{
    const struct sl_cluster_obs *alive = &node->obs[SL_CLUSTER_ALIVE];
    uint64_t epoch = 0;

    for (unsigned i = 0; i < SL_CLUSTER_SOURCES; i++)
        epoch = node->obs[i].epoch > epoch ? node->obs[i].epoch : epoch;
    /* A boot has many epochs, an epoch one boot. */
    if (message->epoch == epoch && message->boot_id[0] != '\0')
        snprintf(node->boot_id, sizeof(node->boot_id), "%s", message->boot_id);
    node->is_dead =
        alive->body != NULL && alive->epoch == epoch && strcmp(alive->body, "false") == 0;
}

static int take(struct sl_cluster_model *model, const struct message *message,
                struct sl_cluster_node *node)
{
    int got = 0, err = 0;

    for (unsigned i = 0; i < SL_CLUSTER_SOURCES && err >= 0; i++) {
        if (message->bodies[i] == NULL)
            continue;
        err = merge(model, node, i, message);
        if (err == 1) {
            got = 1;
            model->counts.taken++;
        } else if (err == 0) {
            model->counts.old++;
        }
    }
    if (got == 1) {
        set_alive(node, message);
        model->version++;
    }
    return err < 0 ? err : got;
}

int sl_cluster_take(struct sl_cluster_model *model, const char *bytes, size_t len, const char *name,
                    struct sl_cluster_node **out)
{
    struct json_object *object;
    struct sl_cluster_node *node = NULL;
    struct message message = {.node = ""};
    int err;

    if (len > SL_CLUSTER_MESSAGE_MAX) {
        model->counts.refused++;
        return refuse("it is longer than 1 MiB");
    }
    json_tokener_reset(model->tokener);
    json_tokener_set_flags(model->tokener, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
    object = json_tokener_parse_ex(model->tokener, bytes, (int)len);
    err = object == NULL ? refuse("it is no JSON") : read_message(object, &message);
    if (err == 0 && name != NULL && strcmp(name, message.node) != 0)
        err = refuse("it is another node's");
    if (err != 0)
        model->counts.refused++;
    if (err == 0) {
        node = sl_cluster_node(model, message.node, true);
        err = node != NULL
                  ? take(model, &message, node)
                  : sl_fail(-ENOSPC, "[cluster] nodes are used up: %s is left out", message.node);
        model->counts.left_out += err == -ENOSPC;
    }
    json_object_put(object);
    if (out != NULL && node != NULL)
        *out = node;
    return err;
}
