/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SL_MONITOR_METRICS_NODE_H
#define SL_MONITOR_METRICS_NODE_H

#include "monitor/metrics.h"

/* node_infiniband_...: families of RDMA ports as node_exporter names them (its infiniband
 * collector). Ports that are none are left out. */
void sl_mon_metrics_node(enum sl_mon_format format, const struct sl_mon_port *const *ports,
                         unsigned count, FILE *out);

#endif
