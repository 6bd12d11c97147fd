/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance that watches a cluster (sluiced --cluster):
 *
 *     members --> collect (HTTP) --+
 *                                  +--> model --> judge --> book --> serve (page, API, events)
 *     broker --> subscribe (MQTT) -+                         +----> broker: verdicts, actions
 *
 * One thread, and libmosquitto's own where a broker is asked for.
 */
#ifndef SL_MONITOR_CLUSTER_INSTANCE_H
#define SL_MONITOR_CLUSTER_INSTANCE_H

#include "monitor/config.h"

#include <stdbool.h>

struct sl_instance;

struct sl_instance_options {
    const struct sl_mon_config *config; /* copied */
    const char *version;                /* a constant */
    void (*say)(const char *sentence);  /* what people should know, once each */
};

/* Is what [cluster] and [mqtt] say enough, and right? -EINVAL, -ENOTSUP with a sentence. */
int sl_instance_check(const struct sl_mon_config *config);
/* -EADDRINUSE, -ENOMEM, ... with a sentence. */
int sl_instance_open(const struct sl_instance_options *options, struct sl_instance **out);
void sl_instance_close(struct sl_instance *instance);

/* Descriptors to wait for, at most so many: how many. Each readable. */
unsigned sl_instance_fds(const struct sl_instance *instance, int *fds, unsigned most);
/* For so long, at most; ms. */
int sl_instance_wait_ms(struct sl_instance *instance);
/* After that: all that is to be done. */
void sl_instance_turn(struct sl_instance *instance);
/* Does anything come in? Else why it does not. */
bool sl_instance_is_fresh(const struct sl_instance *instance, char *why, size_t cap);

#endif
