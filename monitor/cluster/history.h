/* SPDX-License-Identifier: Apache-2.0 */
/* What the ports of nodes carried in the last observations: for the page, bounded, and no part of
 * any verdict. */
#ifndef SL_MONITOR_CLUSTER_HISTORY_H
#define SL_MONITOR_CLUSTER_HISTORY_H

#include "monitor/cluster/model.h"

#define SL_HISTORY_SAMPLES 60  /* of a port; the latest */
#define SL_HISTORY_PORTS 20000 /* of all nodes; more have none */

struct json_object;
struct sl_history;

int sl_history_new(struct sl_history **out);
void sl_history_free(struct sl_history *history);
/* The node's ports were observed anew. */
void sl_history_note(struct sl_history *history, const struct sl_cluster_node *node);
/* An array of its ports; the caller's. */
struct json_object *sl_history_json(const struct sl_history *history,
                                    const struct sl_cluster_node *node);

#endif
