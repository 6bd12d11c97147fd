/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/subscribe.h"

#include "core/err.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 4096 /* messages of a turn */

struct message {
    struct message *next;
    bool is_retained;
    size_t len;
    char topic[SL_MQTT_TOPIC];
    char bytes[];
};

struct sl_subscribe {
    struct sl_subscribe_options options;
    struct sl_mqtt *mqtt;
    char topic[SL_MQTT_TOPIC], client_id[128];
    uint64_t epoch_ms;
    int event_fd;
    pthread_mutex_t lock;
    pthread_cond_t room;
    struct message *first, **last;
    size_t bytes;
    bool is_over;
    struct sl_subscribe_counts counts;
};

/* ---- the connection's thread ---- */

static void on_message(void *arg, const char *topic, const void *bytes, size_t len,
                       bool is_retained)
{
    struct sl_subscribe *subscribe = arg;
    const uint64_t one = 1;
    struct message *message;

    if (len > SL_CLUSTER_MESSAGE_MAX || strlen(topic) >= SL_MQTT_TOPIC)
        return;
    message = malloc(sizeof(*message) + len + 1);
    if (message == NULL)
        return;
    message->next = NULL;
    message->is_retained = is_retained;
    message->len = len;
    strcpy(message->topic, topic);
    if (len > 0)
        memcpy(message->bytes, bytes, len);
    message->bytes[len] = '\0';
    pthread_mutex_lock(&subscribe->lock);
    while (subscribe->bytes > SL_SUBSCRIBE_BYTES && !subscribe->is_over)
        pthread_cond_wait(&subscribe->room, &subscribe->lock);
    *subscribe->last = message;
    subscribe->last = &message->next;
    subscribe->bytes += sizeof(*message) + len;
    pthread_mutex_unlock(&subscribe->lock);
    (void)!write(subscribe->event_fd, &one, sizeof(one));
}

static void will(void *arg, bool is_alive, uint64_t connection, char *out, size_t cap)
{
    const struct sl_subscribe *subscribe = arg;

    snprintf(out, cap,
             "{\"version\":1,\"instance\":\"%s\",\"epoch\":%llu,\"seq\":%llu,\"alive\":%s}",
             subscribe->options.instance, (unsigned long long)subscribe->epoch_ms,
             (unsigned long long)(2 * connection + !is_alive), is_alive ? "true" : "false");
}

/* ---- the owner's ---- */

bool sl_subscribe_node(const char *topic, char out[SL_OBSERVE_NODE])
{
    static const char begin[] = "v1/node/";
    const char *name = topic + sizeof(begin) - 1;
    size_t len;

    if (strncmp(topic, begin, sizeof(begin) - 1) != 0)
        return false;
    len = strcspn(name, "/");
    if (name[len] != '/' || len >= SL_OBSERVE_NODE || strchr(name + len + 1, '/') != NULL)
        return false;
    memcpy(out, name, len);
    out[len] = '\0';
    return sl_observe_is_node(out);
}

/* A message that the broker kept is as old as it says. An empty one: somebody took the node
 * away. */
static void take_node(struct sl_subscribe *subscribe, const char *name,
                      const struct message *message, uint64_t now_ns, int64_t now_ms)
{
    struct sl_cluster_model *model = subscribe->options.model;
    struct sl_cluster_node *node = NULL;
    uint64_t heard = now_ns;
    int64_t age_ms = 0;

    if (message->len == 0) {
        if (!message->is_retained)
            sl_cluster_forget(model, name);
        return;
    }
    if (sl_cluster_take(model, message->bytes, message->len, name, &node) < 0)
        subscribe->counts.refused++;
    if (node == NULL)
        return;
    if (message->is_retained) {
        for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
            if (node->obs[i].time_ms > age_ms)
                age_ms = node->obs[i].time_ms;
        age_ms = now_ms > age_ms ? now_ms - age_ms : 0;
        heard = (uint64_t)age_ms * 1000000 < now_ns ? now_ns - (uint64_t)age_ms * 1000000 : 1;
    }
    node->heard_ns = heard > node->heard_ns ? heard : node->heard_ns;
}

static struct message *take_all(struct sl_subscribe *subscribe, bool *is_more)
{
    struct message *list, *at;
    uint64_t times;
    unsigned count = 1;

    (void)!read(subscribe->event_fd, &times, sizeof(times));
    pthread_mutex_lock(&subscribe->lock);
    list = at = subscribe->first;
    while (at != NULL) {
        subscribe->bytes -= sizeof(*at) + at->len;
        if (at->next == NULL || count++ == AT_ONCE)
            break;
        at = at->next;
    }
    subscribe->first = at != NULL ? at->next : NULL;
    if (subscribe->first == NULL)
        subscribe->last = &subscribe->first;
    *is_more = subscribe->first != NULL;
    if (at != NULL)
        at->next = NULL;
    pthread_cond_signal(&subscribe->room);
    pthread_mutex_unlock(&subscribe->lock);
    return list;
}

bool sl_subscribe_turn(struct sl_subscribe *subscribe, uint64_t now_ns, int64_t now_ms)
{
    bool is_more;
    struct message *message = take_all(subscribe, &is_more), *next;
    char name[SL_OBSERVE_NODE];

    for (; message != NULL; message = next) {
        next = message->next;
        subscribe->counts.messages++;
        if (sl_subscribe_node(message->topic, name))
            take_node(subscribe, name, message, now_ns, now_ms);
        else
            subscribe->options.other(subscribe->options.arg, message->topic, message->bytes,
                                     message->len, message->is_retained);
        free(message);
    }
    return is_more;
}

int sl_subscribe_open(const struct sl_subscribe_options *options, struct sl_subscribe **out)
{
    static const char *const topics[] = {"v1/node/+/+", "v1/instance/+", "v1/claim/+",
                                         "v1/action/+", NULL};
    struct sl_subscribe *subscribe = calloc(1, sizeof(*subscribe));
    struct sl_mqtt_options mqtt = {.config = options->config,
                                   .will = will,
                                   .topics = topics,
                                   .message = on_message,
                                   .arg = subscribe};
    struct timespec now;
    int err;

    if (subscribe == NULL)
        return sl_fail(-ENOMEM, "no memory to subscribe");
    clock_gettime(CLOCK_REALTIME, &now);
    subscribe->epoch_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    subscribe->options = *options;
    subscribe->last = &subscribe->first;
    pthread_mutex_init(&subscribe->lock, NULL);
    pthread_cond_init(&subscribe->room, NULL);
    snprintf(subscribe->topic, sizeof(subscribe->topic), "v1/instance/%s", options->instance);
    snprintf(subscribe->client_id, sizeof(subscribe->client_id), "sluiced-cluster-%s",
             options->instance);
    mqtt.client_id = subscribe->client_id;
    mqtt.will_topic = subscribe->topic;
    subscribe->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = subscribe->event_fd < 0 ? sl_fail(-errno, "eventfd: %s", sluice_strerror(-errno))
                                  : sl_mqtt_open(&mqtt, &subscribe->mqtt);
    if (err != 0) {
        sl_subscribe_close(subscribe);
        return err;
    }
    *out = subscribe;
    return 0;
}

void sl_subscribe_close(struct sl_subscribe *subscribe)
{
    struct message *next;

    if (subscribe == NULL)
        return;
    pthread_mutex_lock(&subscribe->lock);
    subscribe->is_over = true;
    pthread_cond_signal(&subscribe->room);
    pthread_mutex_unlock(&subscribe->lock);
    sl_mqtt_close(subscribe->mqtt);
    for (struct message *at = subscribe->first; at != NULL; at = next) {
        next = at->next;
        free(at);
    }
    if (subscribe->event_fd >= 0)
        close(subscribe->event_fd);
    pthread_cond_destroy(&subscribe->room);
    pthread_mutex_destroy(&subscribe->lock);
    free(subscribe);
}

int sl_subscribe_fd(const struct sl_subscribe *subscribe)
{
    return subscribe->event_fd;
}

struct sl_mqtt *sl_subscribe_mqtt(const struct sl_subscribe *subscribe)
{
    return subscribe->mqtt;
}

struct sl_subscribe_counts sl_subscribe_counts(const struct sl_subscribe *subscribe)
{
    return subscribe->counts;
}
