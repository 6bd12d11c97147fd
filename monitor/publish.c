/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/publish.h"

#include "monitor/mqtt.h"
#include "monitor/observe.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

struct sl_mon_publish {
    struct sl_agent *agent;
    struct sl_mon_config config; /* the agent's own may be another while the connection ends */
    struct sl_mqtt *mqtt;
    char node[SL_OBSERVE_NODE], topic[SL_MQTT_TOPIC];
    uint64_t epoch_ms;
    uint64_t connection; /* that all was published over */
    uint64_t next_ns, refreshed_ns;
    uint64_t hashes[SL_OBSERVE_SOURCES]; /* of what was published last */
};

/* seq: even, alive; odd, the will of the same connection. */
static void will(void *arg, bool is_alive, uint64_t connection, char *out, size_t cap)
{
    const struct sl_mon_publish *publish = arg;

    snprintf(out, cap,
             "{\"version\":%d,\"node\":\"%s\",\"epoch\":%llu,\"seq\":%llu,\"time_ms\":%llu,"
             "\"alive\":%s}",
             SL_OBSERVE_VERSION, publish->node, (unsigned long long)publish->epoch_ms,
             (unsigned long long)(2 * connection + !is_alive),
             (unsigned long long)publish->epoch_ms, is_alive ? "true" : "false");
}

int sl_mon_publish_open(struct sl_agent *agent, struct sl_mon_publish **out)
{
    struct sl_mon_publish *publish;
    struct sl_mqtt_options options = {.will = will};
    char id[SL_OBSERVE_NODE + 16];
    int err;

    *out = NULL;
    if (sl_agent_config(agent)->mqtt_broker[0] == '\0')
        return 0;
    publish = calloc(1, sizeof(*publish));
    if (publish == NULL)
        return sl_fail(-ENOMEM, "no memory to publish");
    publish->agent = agent;
    publish->config = *sl_agent_config(agent);
    publish->epoch_ms = sl_agent_epoch_ms(agent);
    sl_observe_node(&publish->config, publish->node);
    snprintf(publish->topic, sizeof(publish->topic), "v1/node/%s/alive", publish->node);
    snprintf(id, sizeof(id), "sluiced-%s", publish->node);
    options.config = &publish->config;
    options.client_id = id;
    options.will_topic = publish->topic;
    options.arg = publish;
    err = sl_mqtt_open(&options, &publish->mqtt);
    if (err != 0) {
        free(publish);
        return err;
    }
    *out = publish;
    return 0;
}

void sl_mon_publish_close(struct sl_mon_publish *publish)
{
    if (publish == NULL)
        return;
    sl_mqtt_close(publish->mqtt);
    free(publish);
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static int send_body(struct sl_mon_publish *publish, enum sl_observe_source source,
                     struct json_object *body)
{
    struct json_object *bodies[SL_OBSERVE_SOURCES] = {NULL};
    char topic[SL_MQTT_TOPIC], *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    int err = out == NULL ? sl_fail(-ENOMEM, "no memory to publish") : 0;

    bodies[source] = body;
    if (err == 0)
        err = sl_observe_write(publish->agent, bodies, out);
    if (out != NULL && fclose(out) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory to publish");
    snprintf(topic, sizeof(topic), "v1/node/%s/%s", publish->node, sl_observe_names[source]);
    if (err == 0)
        err = sl_mqtt_publish(publish->mqtt, topic, text, len, SL_MQTT_KEEP);
    free(text);
    return err;
}

/* What could not be published is tried again: its hash stays the old one. */
static int look_at(struct sl_mon_publish *publish, enum sl_observe_source source, bool is_all)
{
    struct json_object *body = sl_observe_body(publish->agent, source);
    const char *text = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN);
    uint64_t hash = text != NULL ? hash_of(text) : 0;
    int err = 0;

    if (text != NULL && (is_all || hash != publish->hashes[source])) {
        err = send_body(publish, source, body);
        if (err == 0)
            publish->hashes[source] = hash;
    }
    json_object_put(body);
    return err;
}

void sl_mon_publish_tick(struct sl_mon_publish *publish)
{
    uint64_t connection, now;
    bool is_new, is_due;
    int err = 0;

    if (publish == NULL)
        return;
    now = sl_mon_time(sl_agent_mon(publish->agent))->mono_ns;
    connection = sl_mqtt_connection(publish->mqtt);
    if (connection == 0 || now < publish->next_ns)
        return;
    publish->next_ns = now + (uint64_t)publish->config.mqtt_period_ms * MS;
    is_new = connection != publish->connection;
    is_due = now - publish->refreshed_ns >= (uint64_t)publish->config.mqtt_refresh_s * SL_MON_S;
    for (unsigned i = 0; i < SL_OBSERVE_SOURCES && err == 0; i++)
        err = look_at(publish, (enum sl_observe_source)i,
                      is_new || (is_due && i == SL_OBSERVE_STATUS));
    if (err != 0)
        return;
    publish->connection = connection;
    if (is_new || is_due)
        publish->refreshed_ns = now;
}
