/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/history.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define TABLE 65536 /* places; more than twice the ports */

struct sample {
    int64_t time_ms;
    uint64_t sent, received, errors, flaps;
    int8_t up;
};

struct port {
    uint64_t hash; /* of its node's name and its own */
    unsigned count, next;
    struct sample samples[SL_HISTORY_SAMPLES];
};

struct sl_history {
    struct port *table[TABLE];
    unsigned count;
};

int sl_history_new(struct sl_history **out)
{
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? 0 : sl_fail(-ENOMEM, "no memory for the ports' history");
}

void sl_history_free(struct sl_history *history)
{
    for (unsigned i = 0; history != NULL && i < TABLE; i++)
        free(history->table[i]);
    free(history);
}

static uint64_t hash_of(const char *node, const char *port)
{
    return sl_cluster_hash(sl_cluster_hash(SL_CLUSTER_HASH, node, strlen(node) + 1), port,
                           strlen(port));
}

static unsigned slot_of(const struct sl_history *history, uint64_t hash)
{
    unsigned at = (unsigned)(hash ^ hash >> 32) % TABLE;

    while (history->table[at] != NULL && history->table[at]->hash != hash)
        at = (at + 1) % TABLE;
    return at;
}

static struct port *port_of(struct sl_history *history, uint64_t hash)
{
    unsigned at = slot_of(history, hash);

    if (history->table[at] == NULL && history->count < SL_HISTORY_PORTS) {
        history->table[at] = calloc(1, sizeof(struct port));
        if (history->table[at] != NULL) {
            history->table[at]->hash = hash;
            history->count++;
        }
    }
    return history->table[at];
}

void sl_history_note(struct sl_history *history, const struct sl_cluster_node *node)
{
    int64_t time_ms = node->obs[SL_OBSERVE_PORTS].time_ms;

    for (unsigned i = 0; i < node->facts.port_count; i++) {
        const struct sl_fact_port *fact = &node->facts.ports[i];
        struct port *port = port_of(history, hash_of(node->name, fact->subject));
        unsigned last;

        if (port == NULL)
            continue;
        last = (port->next + SL_HISTORY_SAMPLES - 1) % SL_HISTORY_SAMPLES;
        if (port->count > 0 && port->samples[last].time_ms >= time_ms)
            continue;
        port->samples[port->next] = (struct sample){time_ms,      fact->sent,  fact->received,
                                                    fact->errors, fact->flaps, fact->up};
        port->next = (port->next + 1) % SL_HISTORY_SAMPLES;
        port->count += port->count < SL_HISTORY_SAMPLES;
    }
}

static struct json_object *samples_of(const struct port *port)
{
    struct json_object *out = json_object_new_array();
    const struct sample *before = NULL;

    for (unsigned i = 0; port != NULL && i < port->count; i++) {
        unsigned at = (port->next + SL_HISTORY_SAMPLES - port->count + i) % SL_HISTORY_SAMPLES;
        const struct sample *now = &port->samples[at];
        struct json_object *one;
        double seconds;

        if (before == NULL || now->sent < before->sent || now->received < before->received) {
            before = now; /* the agent began anew */
            continue;
        }
        seconds = (double)(now->time_ms - before->time_ms) / 1e3;
        one = json_object_new_array();
        json_object_array_add(one, json_object_new_int64(now->time_ms));
        json_object_array_add(
            one, json_object_new_int64((int64_t)((double)(now->sent - before->sent) / seconds)));
        json_object_array_add(
            one,
            json_object_new_int64((int64_t)((double)(now->received - before->received) / seconds)));
        json_object_array_add(one, json_object_new_int64((int64_t)(now->errors - before->errors)));
        json_object_array_add(one, json_object_new_int64((int64_t)(now->flaps - before->flaps)));
        json_object_array_add(one, json_object_new_int(now->up));
        json_object_array_add(out, one);
        before = now;
    }
    return out;
}

struct json_object *sl_history_json(const struct sl_history *history,
                                    const struct sl_cluster_node *node)
{
    struct json_object *out = json_object_new_array();

    for (unsigned i = 0; i < node->facts.port_count; i++) {
        const struct sl_fact_port *fact = &node->facts.ports[i];
        unsigned slot = slot_of(history, hash_of(node->name, fact->subject));
        struct json_object *one = json_object_new_object();

        json_object_object_add(one, "subject", json_object_new_string(fact->subject));
        json_object_object_add(one, "state", json_object_new_string(fact->state));
        json_object_object_add(one, "up",
                               fact->up < 0 ? NULL : json_object_new_boolean(fact->up == 1));
        json_object_object_add(one, "speed_bits_per_s", json_object_new_uint64(fact->speed));
        json_object_object_add(one, "errors", json_object_new_uint64(fact->errors));
        json_object_object_add(one, "flaps", json_object_new_uint64(fact->flaps));
        json_object_object_add(one, "samples", samples_of(history->table[slot]));
        json_object_array_add(out, one);
    }
    return out;
}
