/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this node tells those who watch the whole cluster (docs/cluster.md): observations, one of
 * each of three sources, with a number that grows.
 *
 *     {"version":1,"node":"node17","boot_id":"...","epoch":1764142511000,"seq":84512,
 *      "time_ms":1764142595512,"sources":{"status":{...},"ports":{...},"ranks":{...}}}
 *
 * Of two observations of a node's source the newer one is that with the larger (epoch, seq): epoch
 * is when the agent began, by the wall clock, in ms; seq is ms of the monotonic clock.
 */
#ifndef SL_MONITOR_OBSERVE_H
#define SL_MONITOR_OBSERVE_H

#include "monitor/agent.h"

#include <stdio.h>

#define SL_OBSERVE_VERSION 1
#define SL_OBSERVE_NODE 65 /* bytes of a node's name, with its end */

enum sl_observe_source {
    SL_OBSERVE_STATUS,
    SL_OBSERVE_PORTS,
    SL_OBSERVE_RANKS,
    SL_OBSERVE_SOURCES
};

extern const char *const sl_observe_names[SL_OBSERVE_SOURCES];

/* As the configuration says, or the host's name; characters that no name has are '-'. */
void sl_observe_node(const struct sl_mon_config *config, char out[SL_OBSERVE_NODE]);
/* 1 to 64 of: letters, digits, '.', '_', '-'; and the first is a letter or a digit. */
bool sl_observe_is_node(const char *name);

/* The body of a source, the caller's; NULL without memory. */
struct json_object *sl_observe_body(struct sl_agent *agent, enum sl_observe_source source);
/* The whole of it, of the sources whose bodies are given (NULL: left out; borrowed), as one line.
 * -ENOMEM. */
int sl_observe_write(struct sl_agent *agent, struct json_object *const bodies[SL_OBSERVE_SOURCES],
                     FILE *out);
/* All three. */
int sl_observe_all(struct sl_agent *agent, FILE *out);

#endif
