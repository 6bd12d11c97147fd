/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What instances tell each other over a broker: verdicts, who does what (act.h); and the command
 * that is run for a verdict, in a child process, one at a time.
 */
#ifndef SL_MONITOR_CLUSTER_PEERS_H
#define SL_MONITOR_CLUSTER_PEERS_H

#include "monitor/cluster/act.h"
#include "monitor/cluster/book.h"
#include "monitor/mqtt.h"

struct sl_peers;

/* All borrowed. say: what people should know. -ENOMEM. */
int sl_peers_new(const struct sl_mon_config *config, const char *instance,
                 void (*say)(const char *sentence), struct sl_peers **out);
void sl_peers_free(struct sl_peers *peers);
/* A message that is no node's. */
void sl_peers_heard(struct sl_peers *peers, const char *topic, const char *bytes, size_t len);
/* Now and then: publishes what the book has that is new, and does what is to be done. */
void sl_peers_tick(struct sl_peers *peers, struct sl_mqtt *mqtt, const struct sl_book *book,
                   uint64_t now_ns);

struct sl_peers_counts {
    uint64_t published, commands, failed;
};

struct sl_peers_counts sl_peers_counts(const struct sl_peers *peers);

#endif
