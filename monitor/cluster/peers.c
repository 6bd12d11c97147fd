/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/peers.h"

#include "monitor/child.h"
#include "monitor/cluster/view.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 32
#define COMMAND_NS UINT64_C(60000000000) /* a command that takes longer is killed */
#define KEEP_S 604800u /* for so long verdicts and actions are remembered: a week */
#define TEXT_MAX 512

/* What the child is given. */
struct order {
    char command[SL_MON_PATH], key[SL_ACT_KEY], id[SL_CLUSTER_ID], cls[32], object[192];
    char node[SL_OBSERVE_NODE], job[64];
    const char *event; /* "opened", "isolate", "closed" */
    uint64_t deadline_ns;
};

struct answer {
    int err, status;
    char why[256];
};

struct sl_peers {
    const struct sl_mon_config *config;
    const char *instance;
    void (*say)(const char *sentence);
    struct sl_act *act;
    struct sl_mqtt *mqtt;       /* during a tick */
    const struct sl_book *book; /* the same */
    uint64_t connection;        /* that is known */
    uint64_t published;         /* changes of the book up to this one */
    uint64_t now_ns;
    struct sl_mon_child child;
    struct order order; /* that runs */
    struct sl_peers_counts counts;
};

/* ---- topics ---- */

static int publish(struct sl_peers *peers, const char *kind, const char *key, const char *state,
                   unsigned keep_s)
{
    char topic[SL_MQTT_TOPIC], text[TEXT_MAX];
    int len = snprintf(text, sizeof(text), "{\"version\":1,\"instance\":\"%s\",\"state\":\"%s\"}",
                       peers->instance, state);

    snprintf(topic, sizeof(topic), "v1/%s/%s", kind, key);
    return sl_mqtt_publish(peers->mqtt, topic, text, (size_t)len, keep_s);
}

static int claim(void *arg, const char *key)
{
    return publish(arg, "claim", key, "claimed", 0);
}

static int begun(void *arg, const char *key)
{
    return publish(arg, "action", key, "begun", KEEP_S);
}

static int done(void *arg, const char *key)
{
    return publish(arg, "action", key, "done", KEEP_S);
}

/* ---- the command ---- */

static void run_command(const void *arg, void *out)
{
    const struct order *order = arg;
    struct answer *answer = out;
    const char *argv[WORDS + 8];
    struct sl_mon_child_output output = {.text = NULL};
    char command[SL_MON_PATH];
    char *save = NULL;
    unsigned count = 0;

    memcpy(command, order->command, sizeof(command));
    for (char *word = strtok_r(command, " \t", &save); word != NULL && count < WORDS;
         word = strtok_r(NULL, " \t", &save))
        argv[count++] = word;
    argv[count++] = order->key;
    argv[count++] = order->event;
    argv[count++] = order->id;
    argv[count++] = order->cls;
    argv[count++] = order->object;
    argv[count++] = order->node;
    argv[count++] = order->job;
    argv[count] = NULL;
    answer->err = sl_mon_child_run(argv, NULL, order->deadline_ns, &output);
    answer->status = output.status;
    snprintf(answer->why, sizeof(answer->why), "%s",
             answer->err != 0 ? sluice_last_error() : output.error);
    free(output.text);
}

static const struct sl_book_entry *entry_of(const struct sl_book *book, const char *key)
{
    for (unsigned i = 0; i < book->count; i++)
        if (strncmp(book->list[i].verdict.id, key, SL_CLUSTER_ID - 1) == 0)
            return &book->list[i];
    return NULL;
}

/* What the key is of; NULL: it is none. */
static const char *event_of(const char *key)
{
    static const char *const events[] = {"opened", "isolate", "closed"};

    if (strspn(key, "0123456789abcdef") != SL_CLUSTER_ID - 1 || key[SL_CLUSTER_ID - 1] != '-')
        return NULL;
    for (unsigned i = 0; i < SL_ARRAY_LEN(events); i++)
        if (strcmp(key + SL_CLUSTER_ID, events[i]) == 0)
            return events[i];
    return NULL;
}

static void run(void *arg, const char *key)
{
    struct sl_peers *peers = arg;
    const struct sl_book_entry *entry = entry_of(peers->book, key);
    struct order *order = &peers->order;

    memset(order, 0, sizeof(*order));
    snprintf(order->command, sizeof(order->command), "%s", peers->config->cluster_command);
    snprintf(order->key, sizeof(order->key), "%s", key);
    snprintf(order->id, sizeof(order->id), "%.16s", key);
    order->event = event_of(key);
    if (entry != NULL) {
        memcpy(order->cls, entry->verdict.cls, sizeof(order->cls));
        memcpy(order->object, entry->verdict.object, sizeof(order->object));
        memcpy(order->node, entry->verdict.node, sizeof(order->node));
        memcpy(order->job, entry->verdict.job, sizeof(order->job));
    }
    order->deadline_ns = sl_mon_child_now() + COMMAND_NS;
    if (sl_mon_child_start(&peers->child, run_command, order, sizeof(struct answer),
                           order->deadline_ns) != 0) {
        peers->say(sluice_last_error());
        peers->counts.failed++;
        sl_act_ended(peers->act, key);
    }
    peers->counts.commands++;
}

static void poll_command(struct sl_peers *peers)
{
    struct answer answer;
    char text[TEXT_MAX];
    int got;

    if (peers->child.pid == 0)
        return;
    got = sl_mon_child_poll(&peers->child, sl_mon_child_now(), &answer, sizeof(answer));
    if (got == 0)
        return;
    if (got < 0 || answer.err != 0 || answer.status != 0) {
        peers->counts.failed++;
        if (got == 1 && answer.err == 0)
            snprintf(text, sizeof(text), "[cluster] command ended with status %d for %s: %.200s",
                     answer.status, peers->order.key, answer.why);
        else
            snprintf(text, sizeof(text), "[cluster] command for %s: %.200s", peers->order.key,
                     got == 1 ? answer.why : sluice_last_error());
        peers->say(text);
    }
    sl_act_ended(peers->act, peers->order.key);
}

/* ---- what others say ---- */

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *value;

    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &value) &&
                   json_object_is_type(value, json_type_string)
               ? json_object_get_string(value)
               : "";
}

static void take(struct sl_peers *peers, const char *topic, struct json_object *object)
{
    const char *instance = text_of(object, "instance");
    struct json_object *alive;

    if (!sl_observe_is_node(instance))
        return;
    if (strncmp(topic, "v1/claim/", 9) == 0 && event_of(topic + 9) != NULL)
        sl_act_heard_claim(peers->act, topic + 9, instance);
    else if (strncmp(topic, "v1/action/", 10) == 0 && event_of(topic + 10) != NULL) {
        if (strcmp(text_of(object, "state"), "done") == 0)
            sl_act_heard_done(peers->act, topic + 10);
        else
            sl_act_heard_begun(peers->act, topic + 10, instance);
    } else if (strncmp(topic, "v1/instance/", 12) == 0 && strcmp(topic + 12, instance) == 0 &&
               json_object_object_get_ex(object, "alive", &alive)) {
        sl_act_heard_instance(peers->act, instance, json_object_get_boolean(alive));
    }
}

void sl_peers_heard(struct sl_peers *peers, const char *topic, const char *bytes, size_t len)
{
    struct json_tokener *tokener = len > 0 && len < 65536 ? json_tokener_new_ex(8) : NULL;
    struct json_object *object;

    if (tokener == NULL)
        return;
    object = json_tokener_parse_ex(tokener, bytes, (int)len);
    if (object != NULL)
        take(peers, topic, object);
    json_object_put(object);
    json_tokener_free(tokener);
}

/* ---- verdicts ---- */

/* The change after that one, the oldest; NULL: there is none. */
static const struct sl_book_entry *next_change(const struct sl_book *book, uint64_t after)
{
    const struct sl_book_entry *found = NULL;

    for (unsigned i = 0; i < book->count; i++)
        if (book->list[i].change > after && (found == NULL || book->list[i].change < found->change))
            found = &book->list[i];
    return found;
}

static void want(struct sl_peers *peers, const struct sl_book_entry *entry, const char *event)
{
    char key[SL_ACT_KEY];

    snprintf(key, sizeof(key), "%s-%s", entry->verdict.id, event);
    if (sl_act_want(peers->act, key) != 0)
        peers->say(sluice_last_error());
}

/* 0: the broker has it. */
static int tell_verdict(struct sl_peers *peers, const struct sl_book_entry *entry)
{
    struct json_object *object = sl_cluster_verdict_json(entry);
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN);
    char topic[SL_MQTT_TOPIC];
    int err = text != NULL ? 0 : -ENOMEM;

    snprintf(topic, sizeof(topic), "v1/verdict/%s", entry->verdict.id);
    if (err == 0)
        err = sl_mqtt_publish(peers->mqtt, topic, text, strlen(text), KEEP_S);
    json_object_put(object);
    if (err != 0 || peers->config->cluster_command[0] == '\0')
        return err;
    want(peers, entry, sl_book_is_open(entry) ? "opened" : "closed");
    if (sl_book_is_open(entry) && entry->has_acted)
        want(peers, entry, "isolate");
    return 0;
}

static void tell_verdicts(struct sl_peers *peers)
{
    const struct sl_book_entry *entry;

    while ((entry = next_change(peers->book, peers->published)) != NULL &&
           tell_verdict(peers, entry) == 0) {
        peers->published = entry->change;
        peers->counts.published++;
    }
}

/* ---- the owner's calls ---- */

int sl_peers_new(const struct sl_mon_config *config, const char *instance,
                 void (*say)(const char *sentence), struct sl_peers **out)
{
    static const struct sl_act_ops ops = {.claim = claim, .begun = begun, .done = done, .run = run};
    struct sl_peers *peers = calloc(1, sizeof(*peers));
    int err;

    if (peers == NULL)
        return sl_fail(-ENOMEM, "no memory for instances");
    peers->config = config;
    peers->instance = instance;
    peers->say = say;
    peers->child = (struct sl_mon_child)SL_MON_CHILD_INIT;
    err = sl_act_new(instance, &ops, peers, &peers->act);
    if (err != 0) {
        free(peers);
        return err;
    }
    *out = peers;
    return 0;
}

void sl_peers_free(struct sl_peers *peers)
{
    if (peers == NULL)
        return;
    sl_mon_child_kill(&peers->child);
    sl_act_free(peers->act);
    free(peers);
}

void sl_peers_tick(struct sl_peers *peers, struct sl_mqtt *mqtt, const struct sl_book *book,
                   uint64_t now_ns)
{
    uint64_t connection = sl_mqtt_connection(mqtt);

    peers->mqtt = mqtt;
    peers->book = book;
    peers->now_ns = now_ns;
    poll_command(peers);
    if (connection != 0 && connection != peers->connection) {
        peers->connection = connection;
        peers->published = 0; /* the broker may have lost what it kept */
        sl_act_connected(peers->act, now_ns);
    }
    if (connection != 0)
        tell_verdicts(peers);
    sl_act_tick(peers->act, now_ns, connection != 0);
}

struct sl_peers_counts sl_peers_counts(const struct sl_peers *peers)
{
    return peers->counts;
}
