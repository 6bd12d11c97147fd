/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a broker has for an instance: observations of nodes, which go to the model, and what
 * instances tell each other, which goes to act.h. Messages wait in a queue of bounded bytes between
 * the connection's thread and the owner's; when it is full, the broker waits: nothing is lost.
 */
#ifndef SL_MONITOR_CLUSTER_SUBSCRIBE_H
#define SL_MONITOR_CLUSTER_SUBSCRIBE_H

#include "monitor/cluster/model.h"
#include "monitor/mqtt.h"

#define SL_SUBSCRIBE_BYTES ((size_t)64 << 20)

struct sl_subscribe;

struct sl_subscribe_options {
    const struct sl_mon_config *config; /* borrowed */
    const char *instance;               /* borrowed */
    struct sl_cluster_model *model;
    /* What is not a node's: topic below the prefix. */
    void (*other)(void *arg, const char *topic, const char *bytes, size_t len, bool is_retained);
    void *arg;
};

/* -ENOTSUP, -EINVAL, -ENOMEM with a sentence. */
int sl_subscribe_open(const struct sl_subscribe_options *options, struct sl_subscribe **out);
void sl_subscribe_close(struct sl_subscribe *subscribe);
int sl_subscribe_fd(const struct sl_subscribe *subscribe);
/* Takes what has come, so much at once. True: there is more. */
bool sl_subscribe_turn(struct sl_subscribe *subscribe, uint64_t now_ns, int64_t now_ms);
struct sl_mqtt *sl_subscribe_mqtt(const struct sl_subscribe *subscribe);

struct sl_subscribe_counts {
    uint64_t messages, refused;
};

struct sl_subscribe_counts sl_subscribe_counts(const struct sl_subscribe *subscribe);

/* Whose, by its topic "v1/node/NAME/SOURCE"? False: it is none of a node's. */
bool sl_subscribe_node(const char *topic, char out[SL_OBSERVE_NODE]);

#endif
