/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's observations, to a broker (mqtt.h): each source when it has changed, at most once a
 * period; how the node is, also when it has not.
 */
#ifndef SL_MONITOR_PUBLISH_H
#define SL_MONITOR_PUBLISH_H

#include "monitor/agent.h"

struct sl_mon_publish;

/* *out is NULL where no broker is asked for. -EINVAL, -ENOTSUP, -ENOMEM with a sentence. */
int sl_mon_publish_open(struct sl_agent *agent, struct sl_mon_publish **out);
void sl_mon_publish_close(struct sl_mon_publish *publish);
/* Once a period of the agent's, after its tick. */
void sl_mon_publish_tick(struct sl_mon_publish *publish);

#endif
